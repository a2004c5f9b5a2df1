//! The OTLP/HTTP exporter of the OpenTelemetry SDK, with our TLS configuration.

use std::time::Duration;

use opentelemetry_otlp::{Protocol, SpanExporter, WithExportConfig as _, WithHttpConfig as _};

use super::AgentTracer;

/// Timeout for one export; an unreachable endpoint must not delay the agent for long.
const OTLP_EXPORT_TIMEOUT: Duration = Duration::from_secs(10);

pub use opentelemetry_otlp::SpanExporter as OtlpExporter;

/// The exporter cannot be created. Failures of an export are reported by the SDK.
#[derive(Debug, thiserror::Error)]
#[error("traces cannot be sent to {url}: {reason}")]
pub struct OtlpError {
    url: String,
    reason: String,
}

/// Builds an exporter to `base_url/v1/traces`. Headers come from `OTEL_EXPORTER_OTLP_HEADERS`.
pub fn build_otlp_exporter(base_url: &str, traces: &AgentTracer) -> Result<SpanExporter, OtlpError> {
    let url = format!("{}/v1/traces", base_url.trim_end_matches('/'));
    let error = |reason: String| OtlpError { url: base_url.to_owned(), reason };
    let http = gradus_http::http_client_builder().timeout(OTLP_EXPORT_TIMEOUT).build();
    let http = http.map_err(|failure| error(failure.to_string()))?;
    let mut exporter = SpanExporter::builder()
        .with_http()
        .with_http_client(http)
        .with_protocol(Protocol::HttpBinary)
        .with_endpoint(url)
        .with_timeout(OTLP_EXPORT_TIMEOUT)
        .build()
        .map_err(|failure| error(failure.to_string()))?;
    traces.configure_exporter(&mut exporter);
    Ok(exporter)
}
