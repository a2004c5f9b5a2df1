"""Where the spans go: to `gradus serve`, and to a Phoenix as well if there is one."""
import os

from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import BatchSpanProcessor


def tracer_provider(project: str) -> TracerProvider:
    provider = TracerProvider(resource=Resource.create({"openinference.project.name": project}))
    # OTEL_EXPORTER_OTLP_ENDPOINT, by default http://localhost:4318: that is where `gradus serve` listens.
    provider.add_span_processor(BatchSpanProcessor(OTLPSpanExporter()))
    if phoenix := os.environ.get("PHOENIX_COLLECTOR_ENDPOINT"):
        provider.add_span_processor(BatchSpanProcessor(OTLPSpanExporter(f"{phoenix}/v1/traces")))
    return provider
