//! The SDK's own exporter for OTLP over HTTP, with our TLS.

use std::time::Duration;

use opentelemetry_otlp::{Protocol, SpanExporter, WithExportConfig as _, WithHttpConfig as _};

use super::Traces;

const TIMEOUT: Duration = Duration::from_secs(10);

pub use opentelemetry_otlp::SpanExporter as OtlpExporter;

#[derive(Debug, thiserror::Error)]
#[error("traces cannot be sent to {url}: {reason}")]
pub struct OtlpError {
    url: String,
    reason: String,
}

/// An exporter for the address that `/v1/traces` is added to. Headers come from OTEL_EXPORTER_OTLP_HEADERS.
pub fn otlp_exporter(base_url: &str, traces: &Traces) -> Result<SpanExporter, OtlpError> {
    let url = format!("{}/v1/traces", base_url.trim_end_matches('/'));
    let error = |reason: String| OtlpError { url: base_url.to_owned(), reason };
    // One provider of cryptography for the whole process; setting it twice is no error.
    let _ = rustls::crypto::ring::default_provider().install_default();
    let http = gradus_llm::except_here(reqwest::Client::builder())
        .user_agent(concat!("gradus/", env!("CARGO_PKG_VERSION")))
        .timeout(TIMEOUT)
        .redirect(reqwest::redirect::Policy::none())
        .build()
        .map_err(|failure| error(failure.to_string()))?;
    let mut exporter = SpanExporter::builder()
        .with_http()
        .with_http_client(http)
        .with_protocol(Protocol::HttpBinary)
        .with_endpoint(url)
        .with_timeout(TIMEOUT)
        .build()
        .map_err(|failure| error(failure.to_string()))?;
    traces.introduce(&mut exporter);
    Ok(exporter)
}
