//! A calibration on the terminal, in words that need no statistics.

use std::collections::BTreeMap;
use std::io::{self, Write};
use std::path::Path;

use gradus_core::visible::printable_line;
use gradus_eval::calibration::{JudgeCalibration, LabelSampling, LabellerKind, MeasuredShare};
use gradus_eval::report::MetricResult;
use gradus_report::metric_text::format_calibration;
use gradus_report::{BOLD, DIM, YELLOW, format_count, format_counted_noun};

/// The content of the printed report.
pub(super) struct CalibrationText<'t> {
    pub(super) calibration: &'t JudgeCalibration,
    /// The metric of the run that the labels are from, corrected if possible.
    pub(super) metric: Option<&'t MetricResult>,
    pub(super) output: &'t Path,
}

/// Prints who was calibrated on what, the confusion matrix, the measures and the corrected number.
pub(super) fn print_calibration(text: &CalibrationText<'_>, out: &mut dyn Write) -> io::Result<()> {
    let CalibrationText { calibration, metric, output } = text;
    let measures = &calibration.measures;
    writeln!(
        out,
        "{BOLD}{}{BOLD:#} on {BOLD}{}{BOLD:#}: {} of {}, {}",
        printable_line(&calibration.judge.name),
        calibration.evaluator,
        format_counted_noun(measures.cases, "labelled case", "labelled cases"),
        format_counted_noun(measures.trajectories, "trajectory", "trajectories"),
        describe_sampling(calibration)
    )?;
    writeln!(out, "Labelled by {}", describe_labellers(calibration))?;
    if let Some(models) = describe_models(calibration) {
        writeln!(out, "Answered by {models}")?;
    }
    if measures.disputed > 0 {
        writeln!(out, "{YELLOW}Labellers disagree on {} cases, which are left out{YELLOW:#}", measures.disputed)?;
    }
    writeln!(out)?;
    print_confusion(calibration, out)?;
    writeln!(out)?;
    print_vote_strata(calibration, out)?;
    for (title, share) in [
        ("Calls right what is right (TPR)", measures.true_positive_rate),
        ("Finds what is wrong (TNR)", measures.true_negative_rate),
        ("Right when it says right (precision)", measures.precision),
        ("Agreement", measures.agreement),
        ("Right cases (base rate)", measures.base_rate),
    ] {
        writeln!(out, "{:<38} {}", format!("{title}:"), format_share(share))?;
    }
    for (title, share) in [("Cohen's kappa", measures.kappa), ("Gwet's AC1", measures.ac1)] {
        writeln!(out, "{:<38} {}", format!("{title}:"), format_coefficient(share))?;
    }
    if measures.flip_rate.value.is_some() {
        writeln!(out, "{:<38} {}", "Changes its mind (flip rate):", format_share(measures.flip_rate))?;
    }
    if let Some(metric) = metric {
        writeln!(out)?;
        let raw = metric.value.filter(|_| metric.is_share).map(|value| format!("{:.1} %", 100.0 * value));
        let raw = raw.or_else(|| metric.value.map(|value| format!("{value:.2}"))).unwrap_or_default();
        writeln!(out, "The judge says {raw}; {BOLD}{}{BOLD:#}", format_calibration(metric).unwrap_or_default())?;
    }
    writeln!(
        out,
        "\n{DIM}Written to {}; it expires at {}. Use it with --calibration.{DIM:#}",
        output.display(),
        calibration.expires
    )
}

fn describe_sampling(calibration: &JudgeCalibration) -> String {
    let judged = format_counted_noun(calibration.population.judged, "verdict", "verdicts");
    match calibration.population.sampling {
        LabelSampling::Uniform => format!("drawn at random from {judged}"),
        LabelSampling::Stratified => format!("drawn by the judge's label from {judged}"),
        LabelSampling::Active => format!("drawn from {judged}, unsure ones more often"),
        LabelSampling::Given => format!("not drawn at random from the {judged} of the run"),
    }
}

fn describe_labellers(calibration: &JudgeCalibration) -> String {
    let describe = |labeller: &gradus_eval::calibration::LabellerRecord| {
        let kind = match labeller.kind {
            LabellerKind::Human => "",
            LabellerKind::Model => ", a model",
            LabellerKind::Truth => ", known by construction",
        };
        format!("{} ({}{kind})", printable_line(&labeller.name), format_count(labeller.labels))
    };
    calibration.labellers.iter().map(describe).collect::<Vec<_>>().join(", ")
}

/// Returns models as `gpt-4o-2026-08-06 (openai:gpt-4o)`; `None` if no endpoint named its model.
fn describe_models(calibration: &JudgeCalibration) -> Option<String> {
    let describe = |model: &gradus_eval::calibration::CalibratedModel| {
        let names: Vec<String> = model.answered_by.iter().map(|name| printable_line(name)).collect();
        (!names.is_empty()).then(|| format!("{} ({})", names.join(", "), printable_line(&model.asked.judge)))
    };
    let models: Vec<String> = calibration.judge.models.iter().filter_map(describe).collect();
    (!models.is_empty()).then(|| models.join("; "))
}

/// Prints how often a panel is right, by its votes. Nothing for one judge that is asked once.
fn print_vote_strata(calibration: &JudgeCalibration, out: &mut dyn Write) -> io::Result<()> {
    let strata = &calibration.measures.by_votes;
    let Some((best, _)) = calibration.labels.first().filter(|_| !strata.is_empty()) else { return Ok(()) };
    for stratum in strata.iter().rev() {
        let title = format!("{} of {} votes {}:", stratum.votes.right, stratum.votes.answered, printable_line(best));
        let cases = format_counted_noun(stratum.cases, "case", "cases");
        writeln!(out, "{title:<38} {:6.1} %  right of {cases}", 100.0 * stratum.right as f64 / stratum.cases as f64)?;
    }
    writeln!(out)
}

/// Prints the judge's labels as rows, the truth as columns, in the order of the rubric.
fn print_confusion(calibration: &JudgeCalibration, out: &mut dyn Write) -> io::Result<()> {
    let labels: Vec<String> = calibration.labels.iter().map(|(label, _)| printable_line(label)).collect();
    let width = labels.iter().map(|label| label.chars().count()).max().unwrap_or(0).max(8);
    let header: Vec<String> = labels.iter().map(|label| format!("{label:>width$}")).collect();
    writeln!(out, "{DIM}{:<w$}  truth {}{DIM:#}", "", header.join("  "), w = width + 6)?;
    let nothing = BTreeMap::new();
    for (label, shown) in calibration.labels.iter().map(|(label, _)| label).zip(&labels) {
        let row = calibration.measures.confusion.get(label).unwrap_or(&nothing);
        let cells: Vec<String> = calibration
            .labels
            .iter()
            .map(|(truth, _)| format!("{:>width$}", row.get(truth).copied().unwrap_or(0)))
            .collect();
        writeln!(out, "{DIM}judge{DIM:#} {shown:<width$}        {}", cells.join("  "))?;
    }
    Ok(())
}

/// Formats a share as `33.3 %  (24 cases, 95 % interval 18.0 to 53.3 %)`.
fn format_share(share: MeasuredShare) -> String {
    let Some(value) = share.value else { return "no such cases".to_owned() };
    let interval = share.interval.map_or_else(String::new, |found| {
        format!(", 95 % interval {:.1} to {:.1} %", 100.0 * found.low, 100.0 * found.high)
    });
    let cases = format_counted_noun(share.count, "case", "cases");
    format!("{:6.1} %  ({cases}{interval})", 100.0 * value)
}

/// Formats a coefficient, which is from -1 to 1 and not a share.
fn format_coefficient(share: MeasuredShare) -> String {
    let Some(value) = share.value else { return "not defined: one side has a single label".to_owned() };
    let interval = share
        .interval
        .map_or_else(String::new, |found| format!("  (95 % interval {:.2} to {:.2})", found.low, found.high));
    format!("{value:6.2}{interval}")
}
