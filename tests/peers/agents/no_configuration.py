"""A span by each of OpenTelemetry's exporters for Python, with no address given; prints the trace's id for each."""
import json

from opentelemetry.exporter.otlp.proto.grpc.trace_exporter import OTLPSpanExporter as Grpc
from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter as Http
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import BatchSpanProcessor

sent = {}
for name, exporter in {"http": Http, "grpc": Grpc}.items():
    provider = TracerProvider()
    provider.add_span_processor(BatchSpanProcessor(exporter()))
    with provider.get_tracer("by-hand").start_as_current_span("found", attributes={"openinference.span.kind": "CHAIN", "input.value": name}) as span:
        sent[name] = f"{span.get_span_context().trace_id:032x}"
    provider.shutdown()
print(json.dumps(sent))
