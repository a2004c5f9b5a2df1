//! Export of an agent's spans while it works: over OTLP, or into a file.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use gradus_github_agent::trace::{
    AgentTracer, FileExporter, OtlpError, OtlpExporter, SpanObserver, TraceIdGenerator, TracerSettings,
    build_otlp_exporter,
};
use gradus_report::format_counted_noun;

/// Interval of exports, so that a server shows the steps while the agent works.
const EXPORT_INTERVAL: Duration = Duration::from_secs(2);
/// Timeout of the last export after an interrupt; after a normal end four times as long.
const LAST_EXPORT_TIMEOUT: Duration = Duration::from_secs(5);

/// A background task that exports finished spans. `end` must be called for the last ones: dropping it loses them.
pub(super) struct TraceExportTask {
    traces: Arc<AgentTracer>,
    to: Arc<TraceDestination>,
    handing_on: tokio::task::JoinHandle<()>,
}

/// Why a trace was not exported, or not completely. The answer of the agent is not affected.
#[derive(Debug, thiserror::Error)]
pub(super) enum TraceExportError {
    #[error("--trace-file: {}: {source}", path.display())]
    OpenFile { path: PathBuf, source: std::io::Error },
    #[error(transparent)]
    Exporter(#[from] OtlpError),
    /// The source is an error of the OpenTelemetry SDK.
    #[error("the trace could not be sent to {url}: {source}")]
    Send { url: String, source: Box<dyn std::error::Error + Send + Sync> },
    #[error("{}: {source}; the trace is not kept", path.display())]
    WriteFile { path: PathBuf, source: Box<dyn std::error::Error + Send + Sync> },
    #[error("the trace could not be sent to {url} within {} s", limit.as_secs())]
    SendTimeout { url: String, limit: Duration },
    #[error("{}: the trace could not be written in time", path.display())]
    WriteTimeout { path: PathBuf },
    /// The queue of finished spans was full for a while, and the oldest were dropped.
    #[error("the trace is not whole: {} could not be handed on in time", format_counted_noun(*spans, "span", "spans"))]
    Incomplete { spans: u64 },
}

enum TraceDestination {
    Otlp(String, OtlpExporter),
    File(PathBuf, FileExporter),
}

impl TraceDestination {
    /// Exports all finished spans. After an error they stay in the queue for the next export.
    async fn export_traces(&self, traces: &AgentTracer) -> Result<(), TraceExportError> {
        match self {
            TraceDestination::Otlp(url, exporter) => match traces.export(exporter).await {
                Ok(_) => Ok(()),
                Err(error) => Err(TraceExportError::Send { url: url.clone(), source: Box::new(error) }),
            },
            TraceDestination::File(path, exporter) => match traces.export(exporter).await {
                Ok(_) => Ok(()),
                Err(error) => Err(TraceExportError::WriteFile { path: path.clone(), source: Box::new(error) }),
            },
        }
    }
}

impl TraceExportTask {
    /// Starts the task; `None` if neither a file nor an address is given. Must be called inside a runtime. The file
    /// takes precedence.
    pub(super) fn begin(
        project: &str,
        otlp: Option<&str>,
        file: Option<&Path>,
    ) -> Result<Option<TraceExportTask>, TraceExportError> {
        let traces =
            AgentTracer::new(&TracerSettings { service: "gradus-agent", project, ids: TraceIdGenerator::Random });
        let to = match (file, otlp) {
            (Some(path), _) => {
                let exporter = FileExporter::open(path, &traces);
                let exporter =
                    exporter.map_err(|source| TraceExportError::OpenFile { path: path.to_owned(), source })?;
                TraceDestination::File(path.to_owned(), exporter)
            }
            (None, Some(url)) => {
                let exporter = build_otlp_exporter(url, &traces)?;
                TraceDestination::Otlp(url.to_owned(), exporter)
            }
            (None, None) => return Ok(None),
        };
        let (traces, to) = (Arc::new(traces), Arc::new(to));
        let handing_on = {
            let (traces, to) = (Arc::clone(&traces), Arc::clone(&to));
            tokio::spawn(async move {
                loop {
                    tokio::time::sleep(EXPORT_INTERVAL).await;
                    // Failed spans are exported again next time; `end` reports the last failure.
                    let _ = to.export_traces(&traces).await;
                }
            })
        };
        Ok(Some(TraceExportTask { traces, to, handing_on }))
    }

    /// Returns an observer that turns the events of the agent into spans.
    pub(super) fn observer(&self) -> SpanObserver {
        self.traces.observer()
    }

    /// Writes a file at the end of a request, so that it is complete while a conversation waits for the next one. Spans
    /// for a server are left to the task.
    pub(super) async fn flush_file(&self) {
        if let TraceDestination::File(..) = *self.to {
            let _ = self.to.export_traces(&self.traces).await;
        }
    }

    /// Exports the remaining spans, within a time limit.
    pub(super) async fn end(self, is_interrupted: bool) -> Result<(), TraceExportError> {
        self.handing_on.abort();
        // The task may be aborted in the middle of an export; its spans are then sent again, with the same ids.
        let _ = self.handing_on.await;
        let limit = if is_interrupted { LAST_EXPORT_TIMEOUT } else { 4 * LAST_EXPORT_TIMEOUT };
        match (tokio::time::timeout(limit, self.to.export_traces(&self.traces)).await, &*self.to) {
            (Ok(taken), _) => taken?,
            (Err(_), TraceDestination::Otlp(to, _)) => {
                return Err(TraceExportError::SendTimeout { url: to.clone(), limit });
            }
            (Err(_), TraceDestination::File(path, _)) => {
                return Err(TraceExportError::WriteTimeout { path: path.clone() });
            }
        }
        match self.traces.dropped_span_count() {
            0 => Ok(()),
            spans => Err(TraceExportError::Incomplete { spans }),
        }
    }
}
