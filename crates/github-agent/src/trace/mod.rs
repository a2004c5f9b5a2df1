//! Runs as OpenInference spans of the OpenTelemetry SDK: one AGENT span per request, with an LLM span for each model
//! call and a TOOL span for each tool call below it.
//!
//! Finished spans wait until they are taken: `export` passes them to an exporter, `take_otlp` encodes them as one OTLP
//! request. Nothing is sent in the background, so that a benchmark can have a provider for each run.

mod attributes;
mod file;
mod ids;
mod otlp;
mod spans;
#[cfg(test)]
mod tests;

use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use opentelemetry::trace::TracerProvider as _;
use opentelemetry::{Context, InstrumentationScope, KeyValue, Value};
use opentelemetry_proto::tonic::collector::trace::v1::ExportTraceServiceRequest;
use opentelemetry_proto::transform::common::tonic::ResourceAttributesWithSchema;
use opentelemetry_proto::transform::trace::tonic::group_spans_by_resource_and_scope;
use opentelemetry_sdk::Resource;
use opentelemetry_sdk::error::{OTelSdkError, OTelSdkResult};
use opentelemetry_sdk::trace::{SdkTracerProvider, Span, SpanData, SpanExporter, SpanLimits, SpanProcessor};
use prost::Message as _;

pub use file::FileExporter;
pub use ids::TraceIdGenerator;
pub use otlp::{OtlpError, OtlpExporter, build_otlp_exporter};
pub use spans::SpanObserver;

/// Maximum size in bytes of finished spans that wait for an exporter. The oldest are dropped beyond it, so that an
/// unreachable endpoint does not fill the memory. Each LLM span repeats the conversation, so even a few can be large.
const MAX_WAITING_SPAN_BYTES: usize = 64 << 20;
/// Maximum number of spans per export request.
const EXPORT_BATCH_SPANS: usize = 50;

/// Resource attributes and ids of the traces.
#[derive(Clone, Debug)]
pub struct TracerSettings<'o> {
    /// `service.name`.
    pub service: &'o str,
    /// `openinference.project.name`, by which Phoenix and Gradus group traces.
    pub project: &'o str,
    pub ids: TraceIdGenerator,
}

/// A tracer provider with the spans that are finished and not exported yet.
#[derive(Debug)]
pub struct AgentTracer {
    provider: SdkTracerProvider,
    resource: Resource,
    finished: FinishedSpans,
}

impl AgentTracer {
    pub fn new(origin: &TracerSettings<'_>) -> AgentTracer {
        let finished = FinishedSpans::default();
        let resource = Resource::builder_empty()
            .with_service_name(origin.service.to_owned())
            .with_attributes([
                KeyValue::new("openinference.project.name", origin.project.to_owned()),
                KeyValue::new("telemetry.sdk.language", "rust"),
                KeyValue::new("telemetry.sdk.name", "opentelemetry"),
            ])
            .build();
        // A conversation has far more attributes than the 128 that a span may have by default.
        let limits =
            SpanLimits { max_attributes_per_span: u32::MAX, max_events_per_span: 1_000, ..SpanLimits::default() };
        let provider = SdkTracerProvider::builder()
            .with_span_processor(finished.clone())
            .with_span_limits(limits)
            .with_id_generator(origin.ids.clone())
            .with_resource(resource.clone())
            .build();
        AgentTracer { provider, resource, finished }
    }

    /// Creates an observer that turns events into spans.
    pub fn observer(&self) -> SpanObserver {
        let scope = InstrumentationScope::builder("gradus.agent").with_version(env!("CARGO_PKG_VERSION")).build();
        SpanObserver::new(self.provider.tracer_with_scope(scope))
    }

    /// Takes the finished spans that were not taken yet.
    pub fn take_spans(&self) -> Vec<SpanData> {
        std::mem::take(&mut self.finished.lock().spans)
    }

    /// Returns the number of spans that were dropped because they were not exported in time.
    pub fn dropped_span_count(&self) -> u64 {
        self.finished.lock().dropped
    }

    /// Takes the same spans as an OTLP export request in protobuf. Such requests can be concatenated: the result is
    /// one valid request.
    pub fn take_otlp(&self) -> Vec<u8> {
        let resource = ResourceAttributesWithSchema::from(&self.resource);
        let resource_spans = group_spans_by_resource_and_scope(self.take_spans(), &resource);
        ExportTraceServiceRequest { resource_spans }.encode_to_vec()
    }

    /// Exports finished spans in batches. Spans that were not accepted are kept for the next call, also if this future
    /// is dropped.
    pub async fn export(&self, exporter: &impl SpanExporter) -> Result<usize, OTelSdkError> {
        let mut taken = SpanExportLease { spans: self.take_spans(), finished: &self.finished };
        let all = taken.spans.len();
        while !taken.spans.is_empty() {
            let count = taken.spans.len().min(EXPORT_BATCH_SPANS);
            exporter.export(taken.spans[..count].to_vec()).await?;
            taken.spans.drain(..count);
        }
        Ok(all)
    }

    /// Passes the resource to an exporter. Must be called before the first export.
    pub fn configure_exporter(&self, exporter: &mut impl SpanExporter) {
        exporter.set_resource(&self.resource);
    }
}

/// Spans being exported. Those that are left are put back on drop.
struct SpanExportLease<'t> {
    spans: Vec<SpanData>,
    finished: &'t FinishedSpans,
}

impl Drop for SpanExportLease<'_> {
    fn drop(&mut self) {
        if !self.spans.is_empty() {
            self.finished.put_back(std::mem::take(&mut self.spans));
        }
    }
}

/// A span processor that collects finished spans. Clones share them.
#[derive(Clone, Debug, Default)]
struct FinishedSpans(Arc<Mutex<UnexportedSpans>>);

#[derive(Debug, Default)]
struct UnexportedSpans {
    spans: Vec<SpanData>,
    dropped: u64,
}

impl FinishedSpans {
    fn lock(&self) -> std::sync::MutexGuard<'_, UnexportedSpans> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Puts spans back before those that finished meanwhile, to keep their order.
    fn put_back(&self, mut earlier: Vec<SpanData>) {
        let mut waiting = self.lock();
        earlier.append(&mut waiting.spans);
        waiting.spans = earlier;
        waiting.trim_to_size(MAX_WAITING_SPAN_BYTES);
    }
}

impl UnexportedSpans {
    /// Drops the oldest spans until at most `most` bytes are left. The newest is never dropped.
    fn trim_to_size(&mut self, most: usize) {
        let mut bytes = 0_usize;
        let fits = |span: &&SpanData| {
            bytes = bytes.saturating_add(estimate_span_size(span));
            bytes <= most
        };
        let kept = self.spans.iter().rev().take_while(fits).count().max(1);
        let surplus = self.spans.len().saturating_sub(kept);
        self.dropped += surplus as u64;
        self.spans.drain(..surplus);
    }
}

/// Estimates the memory of a span in bytes.
fn estimate_span_size(span: &SpanData) -> usize {
    const SPAN_OVERHEAD_BYTES: usize = 500;
    let of = |attribute: &KeyValue| {
        let value = match &attribute.value {
            Value::String(text) => text.as_str().len(),
            _ => 8,
        };
        64 + attribute.key.as_str().len() + value
    };
    let events = span.events.iter().flat_map(|event| &event.attributes);
    SPAN_OVERHEAD_BYTES + span.attributes.iter().chain(events).map(of).sum::<usize>()
}

impl SpanProcessor for FinishedSpans {
    fn on_start(&self, _span: &mut Span, _context: &Context) {}

    fn on_end(&self, span: SpanData) {
        let mut waiting = self.lock();
        waiting.spans.push(span);
        // Checked only now and then, since each check measures all spans.
        if waiting.spans.len().is_multiple_of(16) {
            waiting.trim_to_size(MAX_WAITING_SPAN_BYTES);
        }
    }

    fn force_flush(&self) -> OTelSdkResult {
        Ok(())
    }

    fn shutdown_with_timeout(&self, _timeout: Duration) -> OTelSdkResult {
        Ok(())
    }
}
