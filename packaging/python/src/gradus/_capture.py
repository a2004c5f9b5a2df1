"""Takes the spans that OpenTelemetry providers of this process end, whenever and however they were set up.

An agent that builds its tracer provider when it is imported has read the environment before a test could set it. So
the spans are taken from the providers themselves, by a span processor of our own.
"""

from __future__ import annotations

import base64
import functools
import gc
import importlib
import importlib.util
import threading
import weakref
from typing import Any, Callable, Dict, Iterator, List, Mapping, Optional, Sequence, Tuple

#: Bytes of one request; the server takes 20 MB.
MAX_REQUEST_BYTES = 4 << 20


class SpanCapture:
    """Spans that ended in this process while it was active."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._ended: List[Any] = []
        self._providers: "weakref.WeakSet[Any]" = weakref.WeakSet()
        self._processor: Any = None
        self._depth = 0
        #: Spans since the first `start`.
        self.span_count = 0

    @property
    def provider_count(self) -> int:
        return len(self._providers)

    @property
    def has_sdk(self) -> bool:
        return self._processor is not None

    def start(self) -> None:
        """Attaches to the providers that exist and to those that will be made. Recordings can be nested."""
        if self._processor is None:
            self._install()
        with self._lock:
            if self._depth == 0:
                self._ended.clear()
                self.span_count = 0
            self._depth += 1

    def stop(self) -> None:
        with self._lock:
            self._depth = max(0, self._depth - 1)
            if self._depth == 0:
                self._ended.clear()

    def take_spans(self) -> List[Any]:
        with self._lock:
            taken, self._ended = self._ended, []
        return taken

    def flush_exporters(self, endpoint: str) -> None:
        """Makes exporters that send to this endpoint send now. Others are left alone: they may wait for a server that is
        not there."""
        for provider in list(self._providers):
            processors = getattr(getattr(provider, "_active_span_processor", None), "_span_processors", ())
            for processor in processors:
                if (_exporter_endpoint(processor) or "").startswith(endpoint):
                    processor.force_flush(2000)

    def _install(self) -> None:
        try:
            is_installed = importlib.util.find_spec("opentelemetry.sdk.trace") is not None
        except ModuleNotFoundError:
            is_installed = False
        if not is_installed:
            return
        sdk = importlib.import_module("opentelemetry.sdk.trace")

        def on_end(_: Any, span: Any) -> None:
            with self._lock:
                if self._depth > 0:
                    self._ended.append(span)
                    self.span_count += 1

        self._processor = type("GradusSpanProcessor", (sdk.SpanProcessor,), {"on_end": on_end})()
        provider_type = sdk.TracerProvider
        # Once, for providers that were made while test modules were imported.
        for candidate in gc.get_objects():
            if isinstance(type(candidate), type) and issubclass(type(candidate), provider_type):
                self._attach(candidate)
        make = provider_type.__init__

        @functools.wraps(make)
        def make_and_attach(provider: Any, *arguments: Any, **options: Any) -> None:
            make(provider, *arguments, **options)
            self._attach(provider)

        provider_type.__init__ = make_and_attach

    def _attach(self, provider: Any) -> None:
        if provider in self._providers:
            return
        # Subclasses replace `add_span_processor`; Phoenix's drops its default exporter there.
        inner = getattr(provider, "_active_span_processor", None)
        add: Optional[Callable[[Any], None]] = getattr(inner, "add_span_processor", None) or getattr(provider, "add_span_processor", None)
        if add is not None:
            add(self._processor)
            self._providers.add(provider)


def _exporter_endpoint(processor: Any) -> Optional[str]:
    for holder in (processor, getattr(processor, "_batch_processor", None)):
        for name in ("span_exporter", "_exporter"):
            endpoint = getattr(getattr(holder, name, None), "_endpoint", None)
            if isinstance(endpoint, str):
                return endpoint
    return None


def export_requests(spans: Sequence[Any]) -> Iterator[Dict[str, Any]]:
    """The spans as OTLP export requests in JSON, each of a bounded size."""
    part: List[Any] = []
    size = 0
    for span in spans:
        encoded = (span, encode_span(span))
        part.append(encoded)
        size += _rough_size(encoded[1])
        if size > MAX_REQUEST_BYTES:
            yield _group_spans(part)
            part, size = [], 0
    if part:
        yield _group_spans(part)


def _group_spans(encoded: Sequence[Tuple[Any, Dict[str, Any]]]) -> Dict[str, Any]:
    """By resource and scope, which OTLP writes once for all of their spans."""
    resources: Dict[int, Dict[str, Any]] = {}
    scopes: Dict[Tuple[int, str, str], List[Dict[str, Any]]] = {}
    for span, fields in encoded:
        resource, scope = getattr(span, "resource", None), getattr(span, "instrumentation_scope", None)
        name, version = getattr(scope, "name", None) or "", getattr(scope, "version", None) or ""
        if id(resource) not in resources:
            resources[id(resource)] = {"resource": {"attributes": encode_attributes(getattr(resource, "attributes", None))}, "scopeSpans": []}
        key = (id(resource), name, version)
        if key not in scopes:
            scopes[key] = []
            resources[id(resource)]["scopeSpans"].append({"scope": {"name": name, "version": version}, "spans": scopes[key]})
        scopes[key].append(fields)
    return {"resourceSpans": list(resources.values())}


def encode_span(span: Any) -> Dict[str, Any]:
    """One span of the SDK in OTLP's JSON: ids are hexadecimal, 64-bit numbers are strings."""
    context, parent, status = span.context, span.parent, span.status
    fields: Dict[str, Any] = {
        "traceId": f"{context.trace_id:032x}",
        "spanId": f"{context.span_id:016x}",
        "name": span.name,
        # The SDK counts kinds from 0, OTLP from 1.
        "kind": span.kind.value + 1,
        "startTimeUnixNano": str(span.start_time or 0),
        "endTimeUnixNano": str(span.end_time or 0),
        "attributes": encode_attributes(span.attributes),
        "events": [{"timeUnixNano": str(event.timestamp), "name": event.name, "attributes": encode_attributes(event.attributes)} for event in span.events],
        "links": [{"traceId": f"{link.context.trace_id:032x}", "spanId": f"{link.context.span_id:016x}", "attributes": encode_attributes(link.attributes)} for link in span.links],
        "status": {"code": status.status_code.value, "message": status.description or ""},
    }
    if parent is not None:
        fields["parentSpanId"] = f"{parent.span_id:016x}"
    return fields


def encode_attributes(attributes: Optional[Mapping[str, Any]]) -> List[Dict[str, Any]]:
    return [{"key": str(key), "value": encode_value(value)} for key, value in (attributes or {}).items()]


def encode_value(value: Any) -> Dict[str, Any]:
    if isinstance(value, bool):
        return {"boolValue": value}
    if isinstance(value, int):
        return {"intValue": str(value)}
    if isinstance(value, float):
        # JSON has no numbers for these; OTLP writes them as text.
        return {"doubleValue": value if value - value == 0 else "NaN" if value != value else "Infinity" if value > 0 else "-Infinity"}
    if isinstance(value, bytes):
        return {"bytesValue": base64.b64encode(value).decode()}
    if isinstance(value, Mapping):
        return {"kvlistValue": {"values": encode_attributes(value)}}
    if isinstance(value, (list, tuple)):
        return {"arrayValue": {"values": [encode_value(item) for item in value]}}
    return {} if value is None else {"stringValue": str(value)}


def _rough_size(fields: Mapping[str, Any]) -> int:
    return len(repr(fields))
