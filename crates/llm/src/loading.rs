//! A local model server that still loads its model answers 503 for minutes. That is no failure of a question: all calls
//! wait for it together, one of them asks now and then, and none is counted until there is a model.

use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use tokio::time::Instant;

/// Whether the answer says that a model is being loaded, as llama.cpp ("Loading model"), Ollama ("llm server loading
/// model"), Hugging Face's servers ("Model x is currently loading") and other local servers say it.
pub(crate) fn is_loading_message(status: u16, message: &str) -> bool {
    const SAYINGS: [&str; 9] = [
        "loading model",
        "loading the model",
        "model is loading",
        "model loading",
        "currently loading",
        "still loading",
        "being loaded",
        "model is not ready",
        "server is starting",
    ];
    const FAILURES: [&str; 5] = ["error loading", "fail", "unable", "could not", "cannot"];
    let lower = message.to_ascii_lowercase();
    let says = |sayings: &[&str]| sayings.iter().any(|saying| lower.contains(saying));
    matches!(status, 425 | 500 | 503) && says(&SAYINGS) && !says(&FAILURES)
}

/// How long the server has been loading, and whose turn it is to ask whether it still does.
#[derive(Debug, Default)]
pub(crate) struct LoadWait {
    since: Mutex<Option<Instant>>,
    turn: tokio::sync::Mutex<()>,
}

impl LoadWait {
    /// The server has said that it loads its model.
    pub(crate) fn begin(&self) {
        self.lock().get_or_insert_with(Instant::now);
    }

    /// The server has said something else.
    pub(crate) fn end(&self) {
        *self.lock() = None;
    }

    pub(crate) fn elapsed(&self) -> Option<Duration> {
        self.lock().map(|since| since.elapsed())
    }

    /// Waits until it makes sense to ask: at once when the server loads nothing, after a pause when it is this call's
    /// turn. The turn is held while the call asks.
    pub(crate) async fn wait_turn(&self, pause: Duration) -> Option<tokio::sync::MutexGuard<'_, ()>> {
        self.elapsed()?;
        let turn = self.turn.lock().await;
        self.elapsed()?;
        tokio::time::sleep(pause).await;
        Some(turn)
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, Option<Instant>> {
        self.since.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tells_loading_from_failing() {
        for message in [
            "Loading model",
            "llm server loading model",
            "Model acme/judge-7b is currently loading",
            "The model is still loading, try again later",
        ] {
            assert!(is_loading_message(503, message), "{message}");
        }
        for message in ["error loading model: out of memory", "Failed while loading model", "Service Unavailable"] {
            assert!(!is_loading_message(503, message), "{message}");
        }
        assert!(!is_loading_message(400, "Loading model"));
    }
}
