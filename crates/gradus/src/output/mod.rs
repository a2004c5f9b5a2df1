//! How trajectories look on a terminal. Content of traces is untrusted: nothing of it reaches the terminal as an escape
//! sequence, and nothing reorders the text around it.

pub(crate) mod coverage;
pub(crate) mod csv;
pub(crate) mod html;
pub(crate) mod json;
pub(crate) mod junit;
pub(crate) mod markdown;
pub(crate) mod summary;
pub(crate) mod table;
pub(crate) mod transcript;

pub(crate) use html::number::{count, counted};

use gradus_eval::evaluator::SIMULATOR;
use gradus_eval::report::Metric;

/// What a number is about that nobody judged and that is no share: a median over tasks, or a price.
pub(crate) fn measured_of(metric: &Metric) -> Option<String> {
    let (one, many) = match metric.name.as_str() {
        _ if metric.is_share || metric.judge != SIMULATOR => return None,
        "calls_ratio" => ("task with a trial that passed", "tasks with a trial that passed"),
        _ => ("trial that passed", "trials that passed"),
    };
    Some(format!("of {}", counted(metric.denominator, one, many)))
}

/// Styles; `anstream` drops them where nobody can see them.
pub(crate) const BOLD: anstyle::Style = anstyle::Style::new().bold();
pub(crate) const DIM: anstyle::Style = anstyle::Style::new().dimmed();
pub(crate) const RED: anstyle::Style = anstyle::AnsiColor::Red.on_default();
pub(crate) const GREEN: anstyle::Style = anstyle::AnsiColor::Green.on_default();
pub(crate) const YELLOW: anstyle::Style = anstyle::AnsiColor::Yellow.on_default();
