//! Trajectories, verdicts and summaries as people and programs read them: terminal, HTML, Markdown, CSV, JSON, JUnit.
//!
//! It shows what it is given: nothing is judged, stored or asked for here. Content of traces is untrusted: nothing of it reaches the terminal as an escape
//! sequence, and nothing reorders the text around it.

pub mod coverage;
pub mod csv;
pub mod html;
pub mod json;
pub mod junit;
pub mod markdown;
mod report_table;
mod run_supplement;
pub mod summary;
pub mod table;
pub mod transcript;

pub use crate::html::count_text::{format_count, format_counted_noun};
pub use report_table::{ReportTable, TableColumn};
pub use run_supplement::{RunSupplement, SupplementLoader, TrialMeasurement, TrialResult};

use gradus_eval::evaluator::SIMULATOR;
use gradus_eval::report::MetricResult;

/// What a number is about that nobody judged and that is no share: a median over tasks, or a price.
pub fn measured_of(metric: &MetricResult) -> Option<String> {
    let (one, many) = match metric.name.as_str() {
        _ if metric.is_share || metric.judge != SIMULATOR => return None,
        "calls_ratio" => ("task with a trial that passed", "tasks with a trial that passed"),
        _ => ("trial that passed", "trials that passed"),
    };
    Some(format!("of {}", format_counted_noun(metric.denominator, one, many)))
}

/// Styles; `anstream` drops them where nobody can see them.
pub const BOLD: anstyle::Style = anstyle::Style::new().bold();
pub const DIM: anstyle::Style = anstyle::Style::new().dimmed();
pub const RED: anstyle::Style = anstyle::AnsiColor::Red.on_default();
pub const GREEN: anstyle::Style = anstyle::AnsiColor::Green.on_default();
pub const YELLOW: anstyle::Style = anstyle::AnsiColor::Yellow.on_default();
