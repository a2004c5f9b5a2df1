//! Where an agent's spans go while it works: over OTLP, or into a file.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use gradus_github_agent::trace::{
    AgentTracer, FileExporter, OtlpExporter, SpanObserver, TraceIdGenerator, TracerSettings, otlp_exporter,
};

/// Spans are handed on this often while the agent works.
const EVERY: Duration = Duration::from_secs(2);
/// How long the last ones may take when the user wants to get away.
const LAST: Duration = Duration::from_secs(5);

pub(super) struct TraceExportTask {
    traces: Arc<AgentTracer>,
    to: Arc<TraceDestination>,
    handing_on: tokio::task::JoinHandle<()>,
}

enum TraceDestination {
    Otlp(String, OtlpExporter),
    File(PathBuf, FileExporter),
}

impl TraceDestination {
    /// A line to show if that fails; what was not taken waits for the next time.
    async fn export_traces(&self, traces: &AgentTracer) -> Result<(), String> {
        match self {
            TraceDestination::Otlp(url, exporter) => match traces.export(exporter).await {
                Ok(_) => Ok(()),
                Err(error) => Err(format!("the trace could not be sent to {url}: {error}")),
            },
            TraceDestination::File(path, exporter) => match traces.export(exporter).await {
                Ok(_) => Ok(()),
                Err(error) => Err(format!("{}: {error}; the trace is not kept", path.display())),
            },
        }
    }
}

impl TraceExportTask {
    /// None if nobody wants a trace. To be called where a runtime is.
    pub(super) fn begin(
        project: &str,
        otlp: Option<&str>,
        file: Option<&Path>,
    ) -> Result<Option<TraceExportTask>, String> {
        let traces =
            AgentTracer::new(&TracerSettings { service: "gradus-agent", project, ids: TraceIdGenerator::Random });
        let to = match (file, otlp) {
            (Some(path), _) => {
                let exporter = FileExporter::open(path, &traces);
                let exporter = exporter.map_err(|error| format!("--trace-file: {}: {error}", path.display()))?;
                TraceDestination::File(path.to_owned(), exporter)
            }
            (None, Some(url)) => {
                let exporter = otlp_exporter(url, &traces).map_err(|error| error.to_string())?;
                TraceDestination::Otlp(url.to_owned(), exporter)
            }
            (None, None) => return Ok(None),
        };
        let (traces, to) = (Arc::new(traces), Arc::new(to));
        let handing_on = {
            let (traces, to) = (Arc::clone(&traces), Arc::clone(&to));
            tokio::spawn(async move {
                loop {
                    tokio::time::sleep(EVERY).await;
                    // What is not taken now is handed on again, and told of in the end.
                    let _ = to.export_traces(&traces).await;
                }
            })
        };
        Ok(Some(TraceExportTask { traces, to, handing_on }))
    }

    pub(super) fn observer(&self) -> SpanObserver {
        self.traces.observer()
    }

    /// A request has ended: what a file gets is there before the next one begins.
    pub(super) async fn flush_file(&self) {
        if let TraceDestination::File(..) = *self.to {
            let _ = self.to.export_traces(&self.traces).await;
        }
    }

    /// Hands on what is left; a line to show if that fails.
    pub(super) async fn end(self, is_interrupted: bool) -> Result<(), String> {
        self.handing_on.abort();
        // It may be in the middle of sending; what it holds is then sent again, with the same ids.
        let _ = self.handing_on.await;
        let limit = if is_interrupted { LAST } else { 4 * LAST };
        match (tokio::time::timeout(limit, self.to.export_traces(&self.traces)).await, &*self.to) {
            (Ok(taken), _) => taken?,
            (Err(_), TraceDestination::Otlp(to, _)) => {
                return Err(format!("the trace could not be sent to {to} within {} s", limit.as_secs()));
            }
            (Err(_), TraceDestination::File(path, _)) => {
                return Err(format!("{}: the trace could not be written in time", path.display()));
            }
        }
        match self.traces.dropped_span_count() {
            0 => Ok(()),
            spans => {
                let spans = gradus_report::format_counted_noun(spans, "span", "spans");
                Err(format!("the trace is not whole: {spans} could not be handed on in time"))
            }
        }
    }
}
