//! Where an agent's spans go: over OTLP while it works, or into a file when it is done.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use gradus_github::trace::{Ids, Origin, SpanObserver, Traces, otlp_exporter};

/// Spans are sent this often while the agent works.
const EVERY: Duration = Duration::from_secs(2);
/// How long the last ones may take when the user wants to get away.
const LAST: Duration = Duration::from_secs(5);

pub(super) struct Tracing {
    traces: Arc<Traces>,
    to: Place,
    sending: Option<tokio::task::JoinHandle<()>>,
}

enum Place {
    Otlp(String),
    File(PathBuf),
}

impl Tracing {
    /// None if nobody wants a trace. To be called where a runtime is.
    pub(super) fn begin(
        project: &str,
        otlp: Option<&str>,
        file: Option<&Path>,
    ) -> Result<Option<Tracing>, String> {
        let to = match (file, otlp) {
            (Some(path), _) => Place::File(path.to_owned()),
            (None, Some(url)) => Place::Otlp(url.to_owned()),
            (None, None) => return Ok(None),
        };
        let traces = Arc::new(Traces::new(&Origin { service: "gradus-agent", project, ids: Ids::Random }));
        let sending = match &to {
            Place::Otlp(url) => {
                let exporter = otlp_exporter(url, &traces).map_err(|error| error.to_string())?;
                let traces = Arc::clone(&traces);
                Some(tokio::spawn(async move {
                    loop {
                        tokio::time::sleep(EVERY).await;
                        // What is not taken now is sent again, and told of in the end.
                        let _ = traces.export(&exporter).await;
                    }
                }))
            }
            Place::File(_) => None,
        };
        Ok(Some(Tracing { traces, to, sending }))
    }

    pub(super) fn observer(&self) -> SpanObserver {
        self.traces.observer()
    }

    /// Sends or writes what is left; a line to show if that fails.
    pub(super) async fn end(mut self, is_interrupted: bool) -> Result<(), String> {
        if let Some(sending) = self.sending.take() {
            sending.abort();
            // It may be in the middle of sending; what it holds is then sent again, with the same ids.
            let _ = sending.await;
        }
        match &self.to {
            Place::File(path) => append(path, &self.traces.take_otlp())
                .map_err(|error| format!("{}: {error}; the trace is not kept", path.display())),
            Place::Otlp(url) => {
                let exporter = otlp_exporter(url, &self.traces).map_err(|error| error.to_string())?;
                let limit = if is_interrupted { LAST } else { 4 * LAST };
                match tokio::time::timeout(limit, self.traces.export(&exporter)).await {
                    Ok(Ok(_)) => Ok(()),
                    Ok(Err(error)) => Err(format!("the trace could not be sent to {url}: {error}")),
                    Err(_) => {
                        Err(format!("the trace could not be sent to {url} within {} s", limit.as_secs()))
                    }
                }
            }
        }
    }
}

/// Requests one behind the other are one request again.
fn append(path: &Path, bytes: &[u8]) -> std::io::Result<()> {
    let mut file = std::fs::OpenOptions::new().create(true).append(true).open(path)?;
    std::io::Write::write_all(&mut file, bytes)
}
