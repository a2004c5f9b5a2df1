//! Progress of a run on standard error: a bar for people, occasional lines for logs.

use std::time::Duration;

use gradus_eval::runner::{ProgressWatcher, RunProgress};
use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};

use super::is_stderr_terminal;

/// Time between two lines if standard error is not a terminal, such as in a CI job.
const LOG_INTERVAL: Duration = Duration::from_secs(30);

/// Progress of a run: a bar on a terminal, lines in a log, nothing with `--quiet`.
pub(in crate::cli) struct RunProgressBar {
    bar: Option<ProgressBar>,
    quiet: bool,
    /// Elapsed time at the last line of the log.
    logged: Duration,
    with_model: bool,
    /// Whether the server was loading its model at the last tick. The log gets a line as soon as loading begins.
    is_loading: bool,
}

impl RunProgressBar {
    /// Creates the bar. `with_model` adds cost and calls in flight, which the offline judge does not have.
    pub(in crate::cli) fn new(quiet: bool, with_model: bool) -> RunProgressBar {
        let bar = (!quiet && is_stderr_terminal()).then(|| {
            let bar = ProgressBar::with_draw_target(Some(0), ProgressDrawTarget::stderr_with_hz(5));
            if let Ok(style) = ProgressStyle::with_template("{bar:24} {pos}/{len} {msg}") {
                bar.set_style(style.progress_chars("=> "));
            }
            bar
        });
        RunProgressBar { bar, quiet, logged: Duration::ZERO, with_model, is_loading: false }
    }

    /// Removes the bar, so that it does not mix with the results.
    pub(in crate::cli) fn finish(&self) {
        if let Some(bar) = &self.bar {
            bar.finish_and_clear();
        }
    }

    /// Returns the text after the bar: rate, time left, cost, calls in flight, cached and failed questions.
    fn message(&self, progress: &RunProgress) -> String {
        if let Some(waited) = progress.loading {
            return format!("waiting for the model server to load its model ({} s)", waited.as_secs());
        }
        let seconds = progress.elapsed.as_secs_f64().max(0.001);
        let rate = progress.finished as f64 / seconds;
        let left = progress.planned.saturating_sub(progress.finished) as f64 / rate.max(0.001);
        let mut text = format!("{rate:.0}/s");
        if !progress.is_all_planned {
            text.push_str(" still reading");
        } else if progress.finished > 0 && left >= 1.0 {
            text.push_str(&format!(" {} left", format_time_left(left)));
        }
        if self.with_model {
            text.push_str(&format!(" ${:.4} {} in flight", progress.cost_usd, progress.in_flight));
        }
        for (count, what) in [(progress.cached, "cached"), (progress.failed, "failed")] {
            if count > 0 {
                text.push_str(&format!(" {count} {what}"));
            }
        }
        text
    }
}

impl ProgressWatcher for RunProgressBar {
    fn on_progress(&mut self, progress: &RunProgress) {
        if let Some(bar) = &self.bar {
            bar.set_length(progress.planned);
            bar.set_position(progress.finished);
            bar.set_message(self.message(progress));
        } else if !self.quiet
            && (progress.elapsed >= self.logged + LOG_INTERVAL || (progress.loading.is_some() && !self.is_loading))
        {
            self.logged = progress.elapsed;
            let text = self.message(progress);
            anstream::eprintln!("gradus: {} of {} judged, {text}", progress.finished, progress.planned);
        }
        self.is_loading = progress.loading.is_some();
    }
}

/// Formats a time as `42 s`, `3:05` or `2 h 10 min`, at most 100 hours.
fn format_time_left(seconds: f64) -> String {
    let seconds = seconds.min(359_999.0) as u64;
    match (seconds / 3600, seconds / 60 % 60, seconds % 60) {
        (0, 0, seconds) => format!("{seconds} s"),
        (0, minutes, seconds) => format!("{minutes}:{seconds:02}"),
        (hours, minutes, _) => format!("{hours} h {minutes} min"),
    }
}
