//! Transcodes an OTLP request from JSON to protobuf, so that a receiver has one form to deal with.

use std::sync::Arc;

use gradus_core::span::{Span, SpanResource};

use crate::encode::{encode_attributes, encode_log, encode_span};
use crate::json::{JsonRecord, RecordExtras, read_export_json};
use crate::record::TelemetrySignal;
use crate::regroup::RejectedRecords;
use crate::wire::{write_bytes, write_head};

/// Reads a request in OTLP/JSON. Records of the other signal, records with malformed ids and records that cannot be
/// read are left out and counted. An error means that the document as a whole is not JSON or not an export request;
/// nothing of it is used then.
pub fn export_from_json(json: &[u8], signal: TelemetrySignal) -> Result<(Vec<u8>, RejectedRecords), serde_json::Error> {
    let mut out = Vec::new();
    let mut rejected = RejectedRecords::default();
    let mut open = OpenScope::default();
    let mut deserializer = serde_json::Deserializer::from_slice(json);
    read_export_json(&mut deserializer, &mut |record| match record {
        // A malformed id is refused here although files with such ids are accepted: the sender is there to be notified.
        JsonRecord::Span(_, RecordExtras { odd_id: Some(reason), .. })
        | JsonRecord::Log(_, _, _, RecordExtras { odd_id: Some(reason), .. }) => rejected.add(1, || reason.to_owned()),
        JsonRecord::Span(span, beside) if signal == TelemetrySignal::Span => {
            let mut body = Vec::new();
            encode_span(&span, &mut body);
            body.extend(beside.fields);
            open.add_record(&span.resource, &span.scope, &body, &mut out);
        }
        JsonRecord::Log(log, resource, scope, _) if signal == TelemetrySignal::Log => {
            let mut body = Vec::new();
            encode_log(&log, &mut body);
            open.add_record(&resource, &scope, &body, &mut out);
        }
        JsonRecord::Span(..) => rejected.add(1, || "a span in a request of log records".to_owned()),
        JsonRecord::Log(..) => rejected.add(1, || "a log record in a request of spans".to_owned()),
        JsonRecord::Bad(reason) => rejected.add(1, || reason),
    })?;
    // A request is one document: anything behind it is an error, not ignored.
    deserializer.end()?;
    open.close_resource(&mut out);
    Ok((out, rejected))
}

/// Encodes spans as one export request. Neighbours with the same resource and scope share one message.
pub fn export_from_spans(spans: &[Span<'_>]) -> Vec<u8> {
    let mut out = Vec::new();
    let mut open = OpenScope::default();
    for span in spans {
        let mut body = Vec::new();
        encode_span(span, &mut body);
        open.add_record(&span.resource, &span.scope, &body, &mut out);
    }
    open.close_resource(&mut out);
    out
}

/// Collects records until the resource or the scope changes, because protobuf writes the length of a message before its
/// content.
#[derive(Default)]
struct OpenScope {
    resource: Arc<SpanResource>,
    /// Finished `ScopeSpans` messages of the resource.
    scopes: Vec<u8>,
    name: String,
    /// Encoded records of the scope that is still open.
    records: Vec<u8>,
}

impl OpenScope {
    /// Appends a record, after closing what it does not belong to.
    fn add_record(&mut self, resource: &Arc<SpanResource>, name: &str, body: &[u8], out: &mut Vec<u8>) {
        // Pointers first: records of one resource usually share it, and comparing attributes is slow.
        if !Arc::ptr_eq(&self.resource, resource) && self.resource != *resource {
            self.close_resource(out);
            self.resource = Arc::clone(resource);
        }
        if self.name != name {
            self.close_scope();
            name.clone_into(&mut self.name);
        }
        write_bytes(&mut self.records, 2, body);
    }

    /// Appends the open scope to the scopes of the resource. The records may be almost all of a large request, so they
    /// are moved and freed here: they are in memory twice at most.
    fn close_scope(&mut self) {
        if self.records.is_empty() {
            return;
        }
        let (mut name, mut scope) = (Vec::new(), Vec::new());
        write_bytes(&mut name, 1, self.name.as_bytes());
        write_bytes(&mut scope, 1, &name);
        let length = scope.len() + self.records.len();
        // 16 bytes are more than a tag and a length can take.
        self.scopes.reserve(length + 16);
        write_head(&mut self.scopes, 2, length);
        self.scopes.append(&mut scope);
        self.scopes.extend_from_slice(&self.records);
        self.records = Vec::new();
    }

    /// Appends the open resource to the request.
    fn close_resource(&mut self, out: &mut Vec<u8>) {
        self.close_scope();
        if self.scopes.is_empty() {
            return;
        }
        let (mut attributes, mut resource) = (Vec::new(), Vec::new());
        encode_attributes(&self.resource.attributes, 1, &mut attributes);
        write_bytes(&mut resource, 1, &attributes);
        let length = resource.len() + self.scopes.len();
        out.reserve(length + 16);
        write_head(out, 1, length);
        out.append(&mut resource);
        out.extend_from_slice(&self.scopes);
        self.scopes = Vec::new();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keeps_what_only_the_wire_knows() {
        let json = br#"{"resourceSpans":[{"resource":{"attributes":[{"key":"service.name","value":{"stringValue":"s"}}]},
            "scopeSpans":[{"scope":{"name":"x"},"spans":[{"traceId":"0102030405060708090a0b0c0d0e0f10","spanId":"0102030405060708",
            "name":"n","kind":"SPAN_KIND_CLIENT","startTimeUnixNano":"1","endTimeUnixNano":"2","flags":257,"traceState":"a=b",
            "links":[{"traceId":"0102030405060708090a0b0c0d0e0f10","spanId":"0102030405060709","attributes":[]}]},{"traceId":7}]}]}]}"#;
        let (bytes, rejected) = export_from_json(json, TelemetrySignal::Span).expect("a request");
        assert_eq!(rejected.count, 1);
        let message: opentelemetry_proto::tonic::collector::trace::v1::ExportTraceServiceRequest =
            prost::Message::decode(bytes.as_slice()).expect("a request");
        let span = &message.resource_spans[0].scope_spans[0].spans[0];
        assert_eq!((span.kind, span.flags, span.trace_state.as_str(), span.links.len()), (3, 257, "a=b", 1));
        assert_eq!(span.links[0].span_id, [1, 2, 3, 4, 5, 6, 7, 9]);
        assert!(export_from_json(b"{\"resourceSpans\": [}", TelemetrySignal::Span).is_err());
        assert!(export_from_json(b"[]", TelemetrySignal::Span).is_err());
    }

    #[test]
    fn log_records_keep_their_resource_and_scope() {
        let json =
            br#"{"resourceLogs":[{"resource":{"attributes":[{"key":"service.name","value":{"stringValue":"s"}}]},
            "scopeLogs":[{"scope":{"name":"x"},"logRecords":[{"traceId":"0102030405060708090a0b0c0d0e0f10",
            "spanId":"0102030405060708","timeUnixNano":"1","body":{"stringValue":"b"}}]}]}]}"#;
        let (bytes, rejected) = export_from_json(json, TelemetrySignal::Log).expect("a request");
        assert_eq!(rejected.count, 0);
        let message: opentelemetry_proto::tonic::collector::logs::v1::ExportLogsServiceRequest =
            prost::Message::decode(bytes.as_slice()).expect("a request");
        let group = &message.resource_logs[0];
        let attribute = &group.resource.as_ref().expect("a resource").attributes[0];
        assert_eq!(attribute.key, "service.name");
        let scope = &group.scope_logs[0];
        assert_eq!((scope.scope.as_ref().expect("a scope").name.as_str(), scope.log_records.len()), ("x", 1));
    }
}
