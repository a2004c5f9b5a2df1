//! Waits for a model server that is still loading its model. Such servers answer 503 for minutes, which is not a
//! failure of a question: all calls wait, one of them polls the server, and nothing counts as an attempt until the
//! model is loaded.

use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use tokio::time::Instant;

/// Whether an error response says that a model is being loaded, as llama.cpp ("Loading model"), Ollama ("llm server
/// loading model"), Hugging Face's servers ("Model x is currently loading") and other local servers word it.
pub(crate) fn is_loading_message(status: u16, message: &str) -> bool {
    const LOADING_PHRASES: [&str; 9] = [
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
    // A model that failed to load is reported in similar words, and never becomes ready.
    const FAILURES: [&str; 5] = ["error loading", "fail", "unable", "could not", "cannot"];
    let lower = message.to_ascii_lowercase();
    let says = |sayings: &[&str]| sayings.iter().any(|saying| lower.contains(saying));
    matches!(status, 425 | 500 | 503) && says(&LOADING_PHRASES) && !says(&FAILURES)
}

/// The time since which the server has been loading, and the lock that lets one call at a time poll it.
#[derive(Debug, Default)]
pub(crate) struct LoadWait {
    since: Mutex<Option<Instant>>,
    turn: tokio::sync::Mutex<()>,
}

impl LoadWait {
    /// Records a response that says the model is being loaded. Keeps the time of the first one.
    pub(crate) fn begin(&self) {
        self.lock().get_or_insert_with(Instant::now);
    }

    /// Records any other response, or a failed connection.
    pub(crate) fn end(&self) {
        *self.lock() = None;
    }

    /// `None` while the server is not loading.
    pub(crate) fn elapsed(&self) -> Option<Duration> {
        self.lock().map(|since| since.elapsed())
    }

    /// Waits for the turn to poll and for the pause. Returns at once if the server is not loading. The caller holds
    /// the guard while it polls, so that the other calls wait.
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
