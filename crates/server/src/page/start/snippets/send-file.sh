# A file of OTLP, as the SDK or the collector writes it: protobuf, or JSON with the other content type.
curl --fail --data-binary @traces.bin \
__IF_KEY__    --header "authorization: Bearer $GRADUS_KEY" \
    --header "content-type: application/x-protobuf" __ENDPOINT__/v1/traces

# Any other format, graded here and without this server: sessions of coding agents, transcripts, exports of other tools.
gradus eval traces/ --html report.html
