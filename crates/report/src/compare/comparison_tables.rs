//! A comparison as tables that every output shows: verdicts by dimension, then the tasks that changed.

use gradus_stats::comparison::{
    ComparisonVerdict, DimensionComparison, EffectScale, TrialAdvice, VersionPairComparison, relative_change,
};

use super::calibration_table::build_calibration_table;
use super::task_flips::{TaskFlip, TaskFlips};
use super::version_comparison::VersionComparison;
use crate::failure_list::elide_values;
use crate::report_table::{ReportTable, TableColumn};
use crate::{format_amount, format_count, format_counted_noun};

/// Maximum number of flips in a table.
const MAX_SHOWN_FLIPS: usize = 10;

fn build_column(name: impl Into<String>, is_number: bool) -> TableColumn {
    TableColumn { name: name.into(), is_number }
}

/// `SAME`, `BETTER`, `WORSE` or `INCONCLUSIVE`.
pub fn verdict_word(verdict: ComparisonVerdict) -> &'static str {
    match verdict {
        ComparisonVerdict::Same => "SAME",
        ComparisonVerdict::Better => "BETTER",
        ComparisonVerdict::Worse => "WORSE",
        ComparisonVerdict::Inconclusive => "INCONCLUSIVE",
    }
}

/// Builds all tables of a comparison, in display order.
pub fn build_comparison_tables(comparison: &VersionComparison) -> Vec<ReportTable> {
    let mut tables = vec![build_verdict_table(comparison)];
    tables.extend(build_calibration_table(comparison));
    for (title, is_worse) in [("Tasks that got worse", true), ("Tasks that got better", false)] {
        tables.extend(build_flip_table(comparison, title, is_worse));
    }
    tables.extend(build_group_table(comparison));
    tables
}

/// Sums up the verdicts of a comparison in a sentence. For several pairs of versions, the verdicts are counted by pair.
pub fn summarize_verdicts(comparison: &VersionComparison) -> String {
    let has_pairs = comparison.report.pairs.len() > 1;
    let mut sides: [Vec<String>; 2] = Default::default();
    let (mut compared, mut same, mut untouched) = (0, 0, 0);
    for pair in &comparison.report.pairs {
        for found in &pair.dimensions {
            compared += 1;
            same += usize::from(found.verdict == ComparisonVerdict::Same);
            untouched += usize::from(found.verdict == ComparisonVerdict::Inconclusive && is_unchanged(found));
            let title = comparison.title(&found.dimension);
            let name = match has_pairs {
                true => format!("{title} ({} → {})", pair.first, pair.second),
                false => title.to_owned(),
            };
            match found.verdict {
                ComparisonVerdict::Worse => sides[0].push(name),
                ComparisonVerdict::Better => sides[1].push(name),
                ComparisonVerdict::Same | ComparisonVerdict::Inconclusive => {}
            }
        }
    }
    if compared == 0 {
        return "Nothing could be compared.".to_owned();
    }
    let [worse, better] = &sides;
    let open = compared - worse.len() - better.len() - same;
    let mut parts = Vec::new();
    for (word, names) in [("Worse", worse), ("Better", better)] {
        if !names.is_empty() {
            parts.push(format!("{word}: {}.", names.join(", ")));
        }
    }
    if parts.is_empty() {
        parts.push("No certain change.".to_owned());
    }
    if same > 0 {
        parts.push(format!("{same} of {compared} the same."));
    }
    if open > 0 {
        let equal = match untouched {
            0 => String::new(),
            _ => format!(", {untouched} of them without any difference in these runs"),
        };
        parts.push(format!("{open} of {compared} undecided{equal}."));
    }
    parts.join(" ")
}

fn build_verdict_table(comparison: &VersionComparison) -> ReportTable {
    let has_pairs = comparison.report.pairs.len() > 1;
    let mut columns = vec![build_column("dimension", false)];
    if has_pairs {
        columns.push(build_column("pair", false));
    }
    let (first, second) = if has_pairs { ("before", "after") } else { ("A", "B") };
    let names = [(first, true), (second, true), ("change", true), ("verdict", false), ("", false)];
    columns.extend(names.map(|(name, is_number)| build_column(name, is_number)));
    let mut rows = Vec::new();
    for known in &comparison.dimensions {
        let compared: Vec<(&VersionPairComparison, &DimensionComparison)> = comparison
            .report
            .pairs
            .iter()
            .filter_map(|pair| Some((pair, pair.dimensions.iter().find(|found| found.dimension == known.name)?)))
            .collect();
        let unchanged: Vec<&DimensionComparison> =
            compared.iter().map(|(_, found)| *found).filter(|found| is_unchanged(found)).collect();
        let is_folded = has_pairs && unchanged.len() > 1;
        for (pair, found) in compared.iter().filter(|(_, found)| !(is_folded && is_unchanged(found))) {
            let mut row = vec![comparison.title(&known.name).to_owned()];
            if has_pairs {
                row.push(format!("{} → {}", pair.first, pair.second));
            }
            row.extend([
                format_mean(found.first_mean, found.scale),
                format_mean(found.second_mean, found.scale),
                format_change(found),
                verdict_word(found.verdict).to_owned(),
                explain_verdict(pair, found),
            ]);
            rows.push(row);
        }
        if is_folded {
            rows.push(build_unchanged_row(comparison.title(&known.name), &unchanged, compared.len()));
        }
    }
    let tests = comparison.report.test_count as u64;
    let note = format!(
        "Intervals and verdicts are corrected for {}: all of them hold together with {} % confidence. SAME means that the \
         difference is smaller than the one that matters. Values are means over tasks of the shares of their runs; `eval`, \
         `runs` and gates print the share of all steps, in which long runs weigh more.",
        format_counted_noun(tests, "comparison", "comparisons"),
        (100.0 * (1.0 - comparison.report.alpha)).round()
    );
    ReportTable { title: "Comparison", about: "", note: Some(note), columns, rows }
}

/// Whether no task differs between the two versions.
fn is_unchanged(found: &DimensionComparison) -> bool {
    found.is_paired && found.effect == 0.0 && found.tasks.rose == 0 && found.tasks.fell == 0
}

/// Builds one row for all pairs of versions in which no task differs: with five versions, up to ten rows would be
/// equal.
fn build_unchanged_row(title: &str, unchanged: &[&DimensionComparison], pair_count: usize) -> Vec<String> {
    let pairs = match pair_count - unchanged.len() {
        0 => format!("all {pair_count} pairs"),
        _ => format!("{} other pairs", unchanged.len()),
    };
    // The values of the pairs, as a range if they differ.
    let means = unchanged.iter().map(|found| (found.first_mean, format_mean(found.first_mean, found.scale)));
    let lowest = means.clone().min_by(|one, other| one.0.total_cmp(&other.0)).map(|(_, text)| text).unwrap_or_default();
    let highest = means.max_by(|one, other| one.0.total_cmp(&other.0)).map(|(_, text)| text).unwrap_or_default();
    let value = if lowest == highest { lowest } else { format!("{lowest} to {highest}") };
    let mut verdicts: Vec<&str> = unchanged.iter().map(|found| verdict_word(found.verdict)).collect();
    verdicts.sort_unstable();
    verdicts.dedup();
    let change = "no difference".to_owned();
    let (verdicts, explanation) = (verdicts.join(", "), "no task differs".to_owned());
    vec![title.to_owned(), pairs, value.clone(), value, change, verdicts, explanation]
}

/// `87.5 %` of shares, `3.25` of amounts.
fn format_mean(mean: f64, scale: EffectScale) -> String {
    match scale {
        EffectScale::Share => format!("{:.1} %", 100.0 * unsigned_zero(mean)),
        EffectScale::Relative => format_amount(unsigned_zero(mean), 2),
    }
}

/// `-7.9 points (-12.1 to -3.2)`, `+4.0 % (-1.0 to +9.3)`, `×31 (×12 to ×58)`.
fn format_change(found: &DimensionComparison) -> String {
    let interval = found.adjusted_interval;
    let ends = [found.effect, interval.low, interval.high];
    let [change, low, high] = match found.scale {
        EffectScale::Share => ends.map(|effect| format_signed(100.0 * effect)),
        EffectScale::Relative => ends.map(|effect| format_relative(relative_change(effect))),
    };
    match found.scale {
        EffectScale::Share => format!("{change} points ({low} to {high})"),
        EffectScale::Relative if change.starts_with(FACTOR_SIGN) => format!("{change} ({low} to {high})"),
        EffectScale::Relative => format!("{change} % ({low} to {high})"),
    }
}

/// The sign before a factor.
const FACTOR_SIGN: char = '×';
/// Minimum factor that is written as a factor: larger percentages are hard to read.
const MIN_FACTOR: f64 = 10.0;
/// Maximum factor that is written out. A larger one only says that the first version needed almost nothing.
const MAX_FACTOR: f64 = 1_000.0;

/// Formats a relative change: a signed percentage, a large factor as `×31`, and a huge one as `×1,000 or more`.
fn format_relative(change: f64) -> String {
    let factor = 1.0 + change;
    match factor {
        _ if factor < MIN_FACTOR || factor.is_nan() => format_signed(100.0 * change),
        _ if factor < MAX_FACTOR => format!("{FACTOR_SIGN}{factor:.0}"),
        _ => format!("{FACTOR_SIGN}1,000 or more"),
    }
}

/// One decimal with its sign; what rounds to 0 is `0.0`, never `-0.0`.
fn format_signed(number: f64) -> String {
    let text = format!("{number:+.1}");
    if text == "+0.0" || text == "-0.0" { "0.0".to_owned() } else { text }
}

fn unsigned_zero(number: f64) -> f64 {
    if number == 0.0 { 0.0 } else { number }
}

/// Explains a verdict: the numbers of tasks, and for an inconclusive one what would decide it.
fn explain_verdict(pair: &VersionPairComparison, found: &DimensionComparison) -> String {
    let counts = found.tasks;
    let tasks = match found.is_paired {
        true => format!(
            "{}: {} up, {} down",
            format_counted_noun(counts.shared, "task", "tasks"),
            format_count(counts.rose),
            format_count(counts.fell)
        ),
        false => format!(
            "not paired: {} of {}, {} of {}",
            format_counted_noun(counts.first_runs, "run", "runs"),
            pair.first,
            format_count(counts.second_runs),
            pair.second
        ),
    };
    let Some(plan) = &found.plan else { return tasks };
    let detectable = plan.detectable_effect.map(|effect| match found.scale {
        EffectScale::Share => format!("; would detect a change of {:.1} points", 100.0 * effect),
        EffectScale::Relative if relative_change(effect) >= MIN_FACTOR => String::new(),
        EffectScale::Relative => format!("; would detect a change of {:.1} %", 100.0 * relative_change(effect)),
    });
    let more = plan
        .more_tasks
        .map(|more| format!("; about {} would decide", format_counted_noun(more, "more task", "more tasks")));
    let is_small = found.effect.abs() < found.equivalence_bound;
    let beyond = plan.beyond_tasks.map(|most| {
        let small = if is_small { "; the difference seen is too small to matter (--min-effect)" } else { "" };
        format!(
            "; to exclude a difference that matters, more than {} would be needed{small}",
            format_counted_noun(most, "task", "tasks")
        )
    });
    let more = more.or(beyond);
    let if_as_seen = plan.more_tasks_if_as_seen.map(|more| {
        format!("; {} if the change is as large as it seems", format_counted_noun(more, "more task", "more tasks"))
    });
    let trials = match plan.trials {
        TrialAdvice::Decide { trials_per_task } => format!(", or {trials_per_task} trials of each task"),
        TrialAdvice::CannotDecide if plan.beyond_tasks.is_some() => String::new(),
        TrialAdvice::CannotDecide if plan.more_tasks.is_some() => ", more trials of these would not".to_owned(),
        TrialAdvice::CannotDecide => "; one task decides nothing".to_owned(),
        TrialAdvice::Uncertain if plan.more_tasks.is_some() => ", more trials of these may not".to_owned(),
        TrialAdvice::Uncertain => String::new(),
        TrialAdvice::Unknown => String::new(),
    };
    let (detectable, more) = (detectable.unwrap_or_default(), more.unwrap_or_default());
    format!("{tasks}{detectable}{more}{trials}{}", if_as_seen.unwrap_or_default())
}

/// `None` if no task changed in this direction.
fn build_flip_table(comparison: &VersionComparison, title: &'static str, is_worse: bool) -> Option<ReportTable> {
    let has_pairs = comparison.flips.len() > 1;
    let pick = |pair: &TaskFlips| if is_worse { pair.worse_count } else { pair.better_count };
    let all: u64 = comparison.flips.iter().map(pick).sum();
    let mut rows = Vec::new();
    for pair in &comparison.flips {
        let flips = if is_worse { &pair.worse } else { &pair.better };
        for flip in flips.iter().take(MAX_SHOWN_FLIPS) {
            let mut row = vec![describe_task(flip)];
            if has_pairs {
                row.push(format!("{} → {}", pair.first, pair.second));
            }
            row.extend([
                comparison.title(&flip.dimension).to_owned(),
                format!("{:.2}", flip.before),
                format!("{:.2}", flip.after),
                describe_run(flip.before_path.as_deref(), &flip.before_trajectory),
                describe_run(flip.after_path.as_deref(), &flip.after_trajectory),
            ]);
            rows.push(row);
        }
    }
    if rows.is_empty() {
        return None;
    }
    let mut columns = vec![build_column("task", false)];
    if has_pairs {
        columns.push(build_column("pair", false));
    }
    let (first, second) = if has_pairs { ("before", "after") } else { ("A", "B") };
    columns.extend([
        build_column("dimension", false),
        build_column(first, true),
        build_column(second, true),
        build_column(format!("run of {first}"), false),
        build_column(format!("run of {second}"), false),
    ]);
    let shown = rows.len() as u64;
    let note =
        (all > shown).then(|| format!("{} of {}, largest change first.", format_count(shown), format_count(all)));
    Some(ReportTable { title, about: "", note, columns, rows })
}

/// `None` if nothing goes wrong more or less often.
fn build_group_table(comparison: &VersionComparison) -> Option<ReportTable> {
    if comparison.failure_groups.is_empty() {
        return None;
    }
    let mut columns =
        vec![build_column("reason", false), build_column("evaluator", false), build_column("tool", false)];
    columns.extend(comparison.versions.iter().map(|version| build_column(format!("runs of {}", version.letter), true)));
    let rows = comparison.failure_groups.iter().take(MAX_SHOWN_FLIPS).map(|group| {
        let mut row = vec![
            elide_values(&group.reason),
            group.evaluator.clone(),
            group.tool.clone().unwrap_or_else(|| "–".to_owned()),
        ];
        let cells = group.runs.iter().zip(&group.shares);
        row.extend(cells.map(|(runs, share)| format!("{} ({:.1} %)", format_count(*runs), 100.0 * share)));
        row
    });
    let note = "Reasons of wrong verdicts, with values replaced by their kind; largest change first.".to_owned();
    Some(ReportTable { title: "What goes wrong", about: "", note: Some(note), columns, rows: rows.collect() })
}

fn describe_task(flip: &TaskFlip) -> String {
    match &flip.request {
        Some(request) => request.clone(),
        None => flip.task.clone(),
    }
}

fn describe_run(path: Option<&str>, trajectory_id: &str) -> String {
    match (path, trajectory_id) {
        (Some(path), id) => format!("{path} [{}]", short_id(id)),
        (None, "") => "not in the baseline".to_owned(),
        (None, id) => short_id(id).to_owned(),
    }
}

fn short_id(id: &str) -> &str {
    id.get(..12).unwrap_or(id)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn small_amounts_and_large_changes_can_be_read() {
        let shown = [0.000_012, 0.042, 3.25, -0.0].map(|mean| format_mean(mean, EffectScale::Relative));
        assert_eq!(shown, ["0.000012", "0.042", "3.25", "0.00"]);
        let shown = [-1.0, -0.0, 0.5, 8.9, 30.2, 29_999_998.0, f64::INFINITY].map(format_relative);
        assert_eq!(shown, ["-100.0", "0.0", "+50.0", "+890.0", "×31", "×1,000 or more", "×1,000 or more"]);
    }
}
