//! Trajectories, verdicts and summaries as people and programs read them: terminal, HTML, Markdown, CSV, JSON, JUnit.
//!
//! This crate formats and does nothing else: no judging, no storage, no network. Content of traces is untrusted. Each
//! format has its own escaping, next to its writer: no text of a trace reaches a terminal as an escape sequence,
//! reorders the text around it, runs as a formula in a spreadsheet, or becomes markup.

pub mod compare;
pub mod cost_text;
pub mod coverage;
pub mod csv;
#[cfg(test)]
mod example;
pub mod failure_list;
pub mod html;
pub mod json;
pub mod junit;
pub mod markdown;
pub mod metric_text;
mod number_text;
pub mod panel_text;
pub mod raw_responses;
mod report_table;
mod run_gates;
mod run_supplement;
pub mod summary;
pub mod table;
pub mod transcript;

pub use number_text::{format_amount, format_count, format_counted_noun};
pub use report_table::{ReportTable, TableColumn};
pub use run_gates::check_run_gates;
pub use run_supplement::{RunSupplement, SupplementLoader, TrialMeasurement, TrialResult, index_trials};

use gradus_eval::evaluator::SIMULATOR_JUDGE;
use gradus_eval::report::MetricResult;

/// Describes the population of a metric that the simulator measured and that is not a share, such as a median over
/// tasks or a price per solved task. `None` for shares and for metrics of a judge, which have their own counts.
pub fn measured_population(metric: &MetricResult) -> Option<String> {
    let (one, many) = match metric.name.as_str() {
        _ if metric.is_share || metric.judge != SIMULATOR_JUDGE => return None,
        "calls_ratio" => ("task with a trial that passed", "tasks with a trial that passed"),
        _ => ("trial that passed", "trials that passed"),
    };
    Some(format!("of {}", format_counted_noun(metric.denominator, one, many)))
}

/// Styles of terminal output. Writers emit them always; `anstream` removes them if the output is no terminal.
pub const BOLD: anstyle::Style = anstyle::Style::new().bold();
pub const DIM: anstyle::Style = anstyle::Style::new().dimmed();
pub const RED: anstyle::Style = anstyle::AnsiColor::Red.on_default();
pub const GREEN: anstyle::Style = anstyle::AnsiColor::Green.on_default();
pub const YELLOW: anstyle::Style = anstyle::AnsiColor::Yellow.on_default();
