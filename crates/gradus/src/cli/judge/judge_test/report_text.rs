//! The report of a judge test as text: on the terminal, and as Markdown with the same tables.

use std::io::{self, Write};

use gradus_core::visible::printable_line;
use gradus_eval::evaluator::Evaluator;
use gradus_eval::runner::EvaluatorEstimate;
use gradus_judge_test::case_plan::CasePlan;
use gradus_judge_test::fitness::GatingFitness;
use gradus_judge_test::test_case::ExpectedVerdict;
use gradus_judge_test::test_report::{
    JudgeResult, JudgeTestReport, MeasuredMean, MeasuredShare, ProbeResult, RubricResult,
};
use gradus_report::markdown::escape_markdown_cell;
use gradus_report::{BOLD, DIM, GREEN, RED, YELLOW, format_counted_noun};
use gradus_stats::comparison::{ComparisonReport, ComparisonTest, ComparisonVerdict};

use super::test_pass::PassKind;
use super::test_settings::TestedJudge;

/// A table for the terminal and for Markdown. The first column is text, the others are numbers.
struct TextTable {
    columns: Vec<&'static str>,
    rows: Vec<Vec<String>>,
}

impl TextTable {
    fn print(&self, out: &mut dyn Write) -> io::Result<()> {
        let columns: Vec<String> = self.columns.iter().map(|name| (*name).to_owned()).collect();
        let all = || [&columns].into_iter().chain(&self.rows);
        let widths: Vec<usize> = (0..columns.len())
            .map(|at| all().map(|row| row[at].chars().count()).max().unwrap_or(0) + if at == 0 { 0 } else { 2 })
            .collect();
        let line = |row: &Vec<String>| -> String {
            let cells = row.iter().zip(&widths).enumerate();
            let cells = cells.map(|(at, (cell, width))| match at {
                0 => format!("{cell:<width$}"),
                _ => format!("{cell:>width$}"),
            });
            cells.collect::<String>().trim_end().to_owned()
        };
        writeln!(out, "{DIM}{}{DIM:#}", line(&columns))?;
        for row in &self.rows {
            writeln!(out, "{}", line(row))?;
        }
        Ok(())
    }

    fn write_markdown(&self, out: &mut dyn Write) -> io::Result<()> {
        let line = |cells: &mut dyn Iterator<Item = String>| format!("| {} |", cells.collect::<Vec<_>>().join(" | "));
        writeln!(out, "{}", line(&mut self.columns.iter().map(|name| (*name).to_owned())))?;
        let rules = (0..self.columns.len()).map(|at| if at == 0 { "---" } else { "--:" }.to_owned());
        writeln!(out, "{}", line(&mut { rules }))?;
        for row in &self.rows {
            writeln!(out, "{}", line(&mut row.iter().map(|cell| escape_cell(cell.trim()))))?;
        }
        writeln!(out)
    }
}

/// Names of judges are the user's; figures and names of our own have nothing to escape.
fn escape_cell(cell: &str) -> String {
    let is_plain = |letter: char| letter.is_ascii_alphanumeric() || " _%().,:+-$".contains(letter);
    if cell.chars().all(is_plain) { cell.to_owned() } else { escape_markdown_cell(cell) }
}

/// Formats a share as `93 % (78 to 98)`, or `-` without cases. The interval of a single run is not meaningful, which
/// the text states.
fn format_share(share: &MeasuredShare) -> String {
    let Some(value) = share.value else { return "-".to_owned() };
    let percent = |number: f64| format!("{:.0}", number * 100.0);
    match share.interval {
        Some(interval) => format!("{} % ({} to {})", percent(value), percent(interval.low), percent(interval.high)),
        None => format!("{} %", percent(value)),
    }
}

fn format_mean(mean: &MeasuredMean, format: impl Fn(f64) -> String) -> String {
    match (mean.value, mean.interval) {
        (Some(value), Some(interval)) => {
            format!("{} ({} to {})", format(value), format(interval.low.max(0.0)), format(interval.high))
        }
        (Some(value), None) => format(value),
        (None, _) => "-".to_owned(),
    }
}

/// Describes the cases: how many, of which runs, and which flaws were left out.
pub(super) fn describe_cases(plan: &CasePlan, seed: u64) -> String {
    let flawed = plan.cases.iter().filter(|case| case.expected == ExpectedVerdict::Flawed).count();
    let clusters: std::collections::BTreeSet<&str> = plan.cases.iter().map(|case| case.cluster.as_str()).collect();
    let harmless = plan.harmless.iter().map(|one| one.count).sum();
    format_case_counts(plan.cases.len(), flawed, clusters.len(), harmless, seed)
}

fn format_case_counts(cases: usize, flawed: usize, clusters: usize, harmless: usize, seed: u64) -> String {
    let cases_text = format_counted_noun(cases as u64, "case", "cases");
    let runs = format_counted_noun(clusters as u64, "right run", "right runs");
    let mut text =
        format!("{cases_text} from {runs}, seed {seed}: {flawed} with one planted flaw, {} right", cases - flawed);
    if harmless > 0 {
        let flaws = format_counted_noun(harmless as u64, "planted flaw", "planted flaws");
        text.push_str(&format!("; {flaws} not counted, as a replay shows no harm"));
    }
    text + "\n"
}

fn describe_pass(kind: PassKind) -> String {
    match kind {
        PassKind::Repeat(0) => "cases".to_owned(),
        PassKind::Repeat(number) => format!("repeat {}", number + 1),
        PassKind::Probe(probe) => format!("probe {}", probe.name()),
    }
}

/// Describes what a judge would be asked, and what it would cost.
pub(super) fn describe_estimate(
    judge: &TestedJudge,
    rows: &[(PassKind, Evaluator, EvaluatorEstimate)],
    max_cost: Option<f64>,
) -> String {
    let price = judge.judge.as_ref().and_then(|model| model.price);
    let (mut to_ask, mut total) = (0, price.map(|_| 0.0));
    let mut table = TextTable {
        columns: vec!["rubric", "questions", "cached", "to ask", "tokens in", "about $"],
        rows: Vec::new(),
    };
    for (kind, evaluator, estimate) in rows {
        let cost = if evaluator.asks_model() { estimate.cost_usd } else { Some(0.0) };
        total = total.zip(cost).map(|(sum, more)| sum + more);
        to_ask += estimate.to_ask;
        table.rows.push(vec![
            format!("{} ({})", evaluator.name, describe_pass(*kind)),
            estimate.questions.to_string(),
            estimate.cached.to_string(),
            estimate.to_ask.to_string(),
            estimate.prompt_tokens.to_string(),
            cost.map_or_else(|| "unknown".to_owned(), |cost| format!("{cost:.4}")),
        ]);
    }
    let mut text = Vec::new();
    // Writing to memory cannot fail.
    let _ = writeln!(text, "{BOLD}{}{BOLD:#}", printable_line(&judge.name));
    let _ = table.print(&mut text);
    let calls = format_counted_noun(to_ask, "call", "calls");
    let _ = match (&judge.judge, total) {
        (None, _) => writeln!(text, "Nothing to pay: no model is asked."),
        (Some(_), Some(total)) => {
            let warning = max_cost.filter(|most| total > *most).map(|most| format!("; more than --max-cost {most}"));
            writeln!(text, "{calls}, about ${total:.4}{}", warning.unwrap_or_default())
        }
        (Some(model), None) => {
            let model = printable_line(&model.client.endpoint().model);
            writeln!(text, "{calls}; the price of {model:?} is not known: give it with --prices FILE")
        }
    };
    let _ = writeln!(text);
    String::from_utf8_lossy(&text).into_owned()
}

/// Prints the report on the terminal.
pub(super) fn print_report(report: &JudgeTestReport, out: &mut dyn Write) -> io::Result<()> {
    write!(out, "{}", describe_report_cases(report))?;
    for judge in &report.judges {
        writeln!(out, "\n{BOLD}{}{BOLD:#}", printable_line(&judge.judge))?;
        if let Some(reason) = &judge.stopped_because {
            writeln!(out, "{YELLOW}incomplete: {}{YELLOW:#}", printable_line(reason))?;
        }
        build_rubric_table(judge).print(out)?;
        writeln!(out)?;
        for rubric in &judge.rubrics {
            let style = match rubric.fitness {
                GatingFitness::Unfit => RED,
                GatingFitness::Undecided => YELLOW,
                GatingFitness::Fit | GatingFitness::Recommended => GREEN,
            };
            writeln!(out, "{}: {style}{}{style:#}", rubric.rubric, rubric.fitness.text())?;
            for reason in rubric.reasons.iter().cloned().chain(describe_all_cases(rubric)) {
                writeln!(out, "  {}", printable_line(&reason))?;
            }
        }
        if !judge.probes.is_empty() {
            writeln!(out, "\n{BOLD}Bias probes{BOLD:#}: verdicts that flip under a change that must not matter")?;
            build_probe_table(&judge.probes).print(out)?;
            writeln!(out, "{DIM}{}{DIM:#}", describe_repeat_baseline(judge))?;
        }
        writeln!(out, "{DIM}{}{DIM:#}", describe_effort(judge))?;
    }
    if let Some(comparison) = &report.comparison {
        writeln!(out, "\n{BOLD}Side by side{BOLD:#}")?;
        build_comparison_table(comparison).print(out)?;
    }
    writeln!(out, "\n{DIM}{}{DIM:#}", explain_figures())
}

/// Writes the report as Markdown.
pub(super) fn write_markdown(report: &JudgeTestReport, out: &mut dyn Write) -> io::Result<()> {
    writeln!(out, "# Judge test\n\n{}", describe_report_cases(report))?;
    for judge in &report.judges {
        writeln!(out, "## {}\n", escape_markdown_cell(&judge.judge))?;
        if let Some(reason) = &judge.stopped_because {
            writeln!(out, "Incomplete: {}\n", escape_markdown_cell(reason))?;
        }
        build_rubric_table(judge).write_markdown(out)?;
        for rubric in &judge.rubrics {
            let reasons = rubric.reasons.iter().cloned().chain(describe_all_cases(rubric));
            let reasons = reasons.map(|reason| format!("; {}", escape_cell(&reason)));
            writeln!(out, "- **{}**: {}{}", rubric.rubric, rubric.fitness.text(), reasons.collect::<String>())?;
        }
        writeln!(out)?;
        if !judge.probes.is_empty() {
            writeln!(out, "### Bias probes\n")?;
            build_probe_table(&judge.probes).write_markdown(out)?;
            writeln!(out, "{}\n", describe_repeat_baseline(judge))?;
        }
        writeln!(out, "{}\n", describe_effort(judge))?;
    }
    if let Some(comparison) = &report.comparison {
        writeln!(out, "## Side by side\n")?;
        build_comparison_table(comparison).write_markdown(out)?;
    }
    writeln!(out, "{}", explain_figures())
}

fn describe_report_cases(report: &JudgeTestReport) -> String {
    let harmless = report.harmless.iter().map(|one| one.count).sum();
    let (cases, flawed) = (report.cases as usize, report.flawed_cases as usize);
    format_case_counts(cases, flawed, report.clusters as usize, harmless, report.seed)
}

/// Builds a table with a line for each rubric, and below it one for each flaw.
fn build_rubric_table(judge: &JudgeResult) -> TextTable {
    let columns = vec!["rubric and flaw", "cases", "detected", "false alarms", "not judged", "flips"];
    let mut rows = Vec::new();
    for rubric in &judge.rubrics {
        let RubricResult { rubric: name, cases, detection, false_alarms, could_not_judge, flips, .. } = rubric;
        rows.push(vec![
            name.clone(),
            cases.to_string(),
            format_share(detection),
            format_share(false_alarms),
            format_share(could_not_judge),
            flips.as_ref().map_or_else(|| "-".to_owned(), format_share),
        ]);
        for flaw in &rubric.flaws {
            rows.push(vec![
                format!("  {}", flaw.flaw.name()),
                flaw.could_not_judge.cases.to_string(),
                format_share(&flaw.detection),
                String::new(),
                format_share(&flaw.could_not_judge),
                String::new(),
            ]);
        }
    }
    TextTable { columns, rows }
}

fn build_probe_table(probes: &[ProbeResult]) -> TextTable {
    let columns = vec!["probe and rubric", "cases", "flips", "on originals", "on flawed", "to flagged", "to accepted"];
    let mut rows = Vec::new();
    let mut sorted: Vec<&ProbeResult> = probes.iter().collect();
    sorted.sort_by_key(|result| result.probe);
    for result in sorted {
        rows.push(vec![
            format!("{} {}", result.probe.name(), result.rubric),
            result.flips.cases.to_string(),
            format_share(&result.flips),
            format_share(&result.flips_on_originals),
            format_share(&result.flips_on_flawed),
            result.became_flagged.to_string(),
            result.became_accepted.to_string(),
        ]);
    }
    TextTable { columns, rows }
}

/// Returns the flagged share of all cases if many were not judged, because the other rates are then unreliable.
fn describe_all_cases(rubric: &RubricResult) -> Option<String> {
    let RubricResult { could_not_judge, flagged_of_flawed, flagged_of_originals, .. } = rubric;
    let (flawed, originals) = (format_share(flagged_of_flawed), format_share(flagged_of_originals));
    let is_partial = could_not_judge.value.is_some_and(|share| share > 0.0);
    is_partial
        .then(|| format!("of all cases, judged or not: flagged {flawed} of the flaws, {originals} of the originals"))
}

/// Describes how often verdicts flip without any change, which a probe must be compared with.
fn describe_repeat_baseline(judge: &JudgeResult) -> String {
    let measured: Vec<String> = judge
        .rubrics
        .iter()
        .filter_map(|rubric| Some(format!("{} {}", rubric.rubric, format_share(rubric.flips.as_ref()?))))
        .collect();
    if measured.is_empty() {
        return "How often verdicts flip without any change was not measured: --repeats 2 does that.".to_owned();
    }
    format!("Without any change: {}", measured.join(", "))
}

fn describe_effort(judge: &JudgeResult) -> String {
    let mut parts = vec![format_counted_noun(judge.calls, "call", "calls")];
    if judge.cached > 0 {
        parts.push(format_counted_noun(judge.cached, "verdict from the cache", "verdicts from the cache"));
    }
    parts.push(match judge.cost_usd {
        Some(cost) => format!("${cost:.4}"),
        None => "price unknown".to_owned(),
    });
    if judge.cost_per_question.value.is_some_and(|cost| cost > 0.0) {
        let cost = format_mean(&judge.cost_per_question, |value| format!("{value:.5}"));
        parts.push(format!("${cost} a question"));
    }
    if let (Some(median), Some(p95)) = (judge.median_seconds, judge.p95_seconds) {
        let mean = format_mean(&judge.seconds_per_question, |value| format!("{value:.2}"));
        parts.push(format!("{mean} s a question, median {median:.2} s, 95 % within {p95:.2} s"));
    }
    parts.join(", ")
}

fn build_comparison_table(comparison: &ComparisonReport) -> TextTable {
    let columns = vec!["right verdicts", "first", "second", "difference", "p", "test", "second is"];
    let mut rows = Vec::new();
    for pair in &comparison.pairs {
        rows.push(vec![
            printable_line(&format!("{} and {}", pair.first, pair.second)),
            String::new(),
            String::new(),
            String::new(),
            String::new(),
            String::new(),
            String::new(),
        ]);
        for found in &pair.dimensions {
            let points = |value: f64| format!("{:+.0}", value * 100.0);
            rows.push(vec![
                format!("  {}", found.dimension),
                format!("{:.0} %", found.first_mean * 100.0),
                format!("{:.0} %", found.second_mean * 100.0),
                format!("{} ({} to {})", points(found.effect), points(found.interval.low), points(found.interval.high)),
                format!("{:.3}", found.adjusted_p_value),
                name_test(found.test).to_owned(),
                name_verdict(found.verdict).to_owned(),
            ]);
        }
    }
    TextTable { columns, rows }
}

fn name_test(test: ComparisonTest) -> &'static str {
    match test {
        ComparisonTest::McnemarMidP => "McNemar mid-p",
        _ => "sign flips",
    }
}

fn name_verdict(verdict: ComparisonVerdict) -> &'static str {
    match verdict {
        ComparisonVerdict::Same => "the same",
        ComparisonVerdict::Better => "better",
        ComparisonVerdict::Worse => "worse",
        ComparisonVerdict::Inconclusive => "undecided",
    }
}

fn explain_figures() -> String {
    use gradus_judge_test::fitness::{MAX_FLIP_RATE, MAX_NOT_JUDGED, MIN_RATE, RECOMMENDED_RATE};
    let percent = |share: f64| format!("{:.0} %", share * 100.0);
    format!(
        "In parentheses: 95 % intervals over right runs. Fit for gating: at least {} of flaws detected and {} of originals \
         accepted (lower ends; {} recommended), at most {} not judged, at most {} flips.",
        percent(MIN_RATE),
        percent(MIN_RATE),
        percent(RECOMMENDED_RATE),
        percent(MAX_NOT_JUDGED),
        percent(MAX_FLIP_RATE)
    )
}
