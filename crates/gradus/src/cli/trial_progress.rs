//! A progress bar for trials, on standard error.

use std::io;

use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};

/// Creates the bar; `None` with `--quiet` or if standard error is not a terminal.
pub(super) fn create_progress_bar(quiet: bool, length: usize) -> Option<ProgressBar> {
    if quiet || !io::IsTerminal::is_terminal(&io::stderr()) {
        return None;
    }
    let bar = ProgressBar::with_draw_target(Some(length as u64), ProgressDrawTarget::stderr_with_hz(5));
    if let Ok(style) = ProgressStyle::with_template("{bar:24} {pos}/{len} trials") {
        bar.set_style(style.progress_chars("=> "));
    }
    Some(bar)
}
