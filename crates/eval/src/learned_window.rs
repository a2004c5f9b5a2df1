//! The context window of a model, as the endpoint states it when it refuses a prompt. All questions of a run share what
//! one of them learned, so that one refusal is enough.

use std::sync::{Mutex, PoisonError};

use gradus_llm::ContextRefusal;

use crate::prompt::{BYTES_PER_TOKEN, PromptWindow};

/// Share of the window that prompts may fill: the tokens per byte differ between prompts and were measured only once.
const MAX_FILLED_SHARE: f64 = 0.95;

/// The known size of the window; unknown until the first refusal that names it.
#[derive(Debug, Default)]
pub struct LearnedWindow(Mutex<Option<WindowSize>>);

#[derive(Clone, Copy, Debug)]
struct WindowSize {
    tokens: u64,
    /// The lowest value that a refusal implied, so that dense prompts fit as well.
    bytes_per_token: f64,
}

impl LearnedWindow {
    /// Learns from a refusal of a prompt of `prompt_bytes`. Returns `false` if the refusal does not name the window.
    pub fn learn_from_refusal(&self, refusal: &ContextRefusal, prompt_bytes: usize) -> bool {
        let Some(tokens) = refusal.window_tokens else { return false };
        let measured = refusal.prompt_tokens.map(|tokens| prompt_bytes as f64 / tokens.max(1) as f64);
        // The limits hold for any text and tokenizer; a ratio beyond them means that the message was misread.
        let bytes_per_token = measured.unwrap_or(BYTES_PER_TOKEN as f64).clamp(1.0, 6.0);
        let mut size = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        *size = Some(match *size {
            Some(known) => WindowSize {
                tokens: known.tokens.min(tokens),
                bytes_per_token: known.bytes_per_token.min(bytes_per_token),
            },
            None => WindowSize { tokens, bytes_per_token },
        });
        true
    }

    /// Returns the maximum size of a prompt if the answer has `answer_tokens`. `None` if the window is unknown.
    pub fn prompt_window(&self, answer_tokens: u32) -> Option<PromptWindow> {
        let size = self.size()?;
        let tokens = size.tokens - u64::from(size.answer_tokens(answer_tokens));
        Some(PromptWindow { bytes: (tokens as f64 * size.bytes_per_token * MAX_FILLED_SHARE) as usize })
    }

    /// The length of an answer to ask for. In a small window it is a quarter of it at most: many servers refuse a prompt
    /// that fits if prompt and requested answer together do not.
    pub fn answer_tokens(&self, answer_tokens: u32) -> u32 {
        self.size().map_or(answer_tokens, |size| size.answer_tokens(answer_tokens))
    }

    fn size(&self) -> Option<WindowSize> {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl WindowSize {
    fn answer_tokens(&self, answer_tokens: u32) -> u32 {
        u32::try_from(self.tokens / 4).unwrap_or(u32::MAX).min(answer_tokens)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn refusal(window_tokens: Option<u64>, prompt_tokens: Option<u64>) -> ContextRefusal {
        ContextRefusal { message: String::new(), window_tokens, prompt_tokens }
    }

    #[test]
    fn the_window_follows_from_what_was_refused() {
        let learned = LearnedWindow::default();
        assert_eq!((learned.prompt_window(1_000), learned.answer_tokens(1_000)), (None, 1_000));
        assert!(!learned.learn_from_refusal(&refusal(None, Some(9_000)), 36_000), "no window, nothing learned");
        assert!(learned.learn_from_refusal(&refusal(Some(8_000), Some(9_000)), 36_000));
        // 4 bytes per token, of 7,000 tokens 95 %.
        assert_eq!(learned.prompt_window(1_000), Some(PromptWindow { bytes: 26_600 }));
        assert!(learned.learn_from_refusal(&refusal(Some(16_000), Some(18_000)), 36_000));
        assert_eq!(learned.prompt_window(1_000), Some(PromptWindow { bytes: 13_300 }), "the smallest of both");
    }

    #[test]
    fn a_small_window_leaves_most_of_itself_to_the_prompt() {
        let learned = LearnedWindow::default();
        assert!(learned.learn_from_refusal(&refusal(Some(2_000), None), 36_000));
        assert_eq!(learned.answer_tokens(1_024), 500);
        assert_eq!(learned.prompt_window(1_024), Some(PromptWindow { bytes: 4_275 }));
    }
}
