//! The server's log: lines for people, or JSON for programs. Nothing of a trace is written to it.

use clap::ValueEnum;
use tracing::Level;
use tracing_subscriber::fmt;

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub(crate) enum LogFormat {
    #[default]
    Text,
    Json,
}

pub(super) fn start(format: LogFormat) {
    // A line that cannot be written, to a full disk or a pipe that is gone, is no reason to stop.
    let builder = fmt()
        .with_writer(std::io::stderr)
        .with_max_level(Level::INFO)
        .with_target(false)
        .log_internal_errors(false);
    // Somebody else's subscriber, as in tests, stays.
    let _ = match format {
        LogFormat::Text => {
            let is_seen = std::io::IsTerminal::is_terminal(&std::io::stderr());
            builder.with_ansi(is_seen).try_init()
        }
        LogFormat::Json => builder.json().flatten_event(true).try_init(),
    };
}
