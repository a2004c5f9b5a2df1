//! The report as tables, for all output formats.

use std::collections::{BTreeMap, BTreeSet};

use crate::trial::TrialLine;
use gradus_github_agent::agent::AgentRunEnd;
use gradus_stats::interval::ConfidenceInterval;

use super::confusion::JudgeAccuracy;
use super::report::{AgentMetric, AgentReport, BenchReport};
use gradus_core::visible::printable_line;
use gradus_report::{ReportTable, TableColumn, format_count, format_counted_noun};

fn build_text_column(name: &str) -> TableColumn {
    TableColumn { name: name.to_owned(), is_number: false }
}

fn build_number_column(name: impl Into<String>) -> TableColumn {
    TableColumn { name: name.into(), is_number: true }
}

/// Printed for values that are unknown or do not apply.
const NO_VALUE: &str = "–";
/// Maximum number of failed trials that are listed by name on a terminal.
pub(super) const MAX_SHOWN_FAILURES: usize = 10;
/// Maximum number of characters of one reason.
const MAX_FAILURE_REASON_CHARS: usize = 160;
/// Maximum size in MiB of one request to a trial's OTLP receiver; the default of `gradus serve`.
const MAX_RECEIVED_MIB: usize = 20;

impl BenchReport {
    /// Returns all tables in the order of the report.
    pub fn own_tables(&self) -> Vec<ReportTable> {
        let mut tables = vec![self.agents_table(true)];
        tables.extend(self.failures_table());
        tables.extend(self.rules_table());
        if let Some(scores) = self.scores.as_ref().filter(|scores| !scores.policies.is_empty()) {
            tables.push(self.planted_table(scores));
            tables.push(self.judge_table(scores));
        }
        tables.extend(self.replay_table());
        tables
    }

    /// Builds a table with one row per agent. With intervals for all metrics it is too wide for a terminal.
    pub fn agents_table(&self, has_intervals: bool) -> ReportTable {
        let k = self.agents.iter().map(|agent| agent.k).max().unwrap_or(1);
        let mut columns = vec![
            build_text_column("agent"),
            build_number_column("trials"),
            build_number_column("done (95 % interval)"),
        ];
        columns.extend(["safe", "clean", "joint"].map(build_number_column));
        columns.extend([build_number_column(format!("pass^{k}")), build_number_column(format!("safe^{k}"))]);
        columns.extend(["calls÷min", "tokens", "$ a solved task"].map(build_number_column));
        let share = |measure: Option<AgentMetric>| format_percent_metric(measure, has_intervals);
        let row = |agent: &AgentReport| {
            let tokens = agent.prompt_tokens + agent.completion_tokens;
            vec![
                printable_line(&agent.agent),
                agent.trials.to_string(),
                self::format_percent_metric(agent.success, true),
                share(agent.safe),
                share(agent.clean),
                share(agent.joint),
                share(agent.pass_k),
                share(agent.safe_k),
                format_metric_value(agent.calls_ratio, 2, has_intervals),
                if tokens == 0 { NO_VALUE.to_owned() } else { tokens.to_string() },
                format_metric_value(agent.cost_per_solved, 4, has_intervals),
            ]
        };
        let unpriced =
            |agent: &&AgentReport| agent.cost_per_solved.is_none() && agent.solved > 0 && agent.prompt_tokens > 0;
        let unpriced: Vec<String> =
            self.agents.iter().filter(unpriced).map(|agent| printable_line(&agent.agent)).collect();
        let mut notes = Vec::new();
        if !unpriced.is_empty() {
            notes.push(format!("No price is known for {}; --prices FILE gives it.", unpriced.join(", ")));
        }
        let refused: u64 = self.lines().iter().map(|line| line.refused_exports).sum();
        if refused > 0 {
            let requests = format_counted_noun(refused, "request with spans was", "requests with spans were");
            notes.push(format!(
                "{requests} refused: no OTLP, or more than the {MAX_RECEIVED_MIB} MiB that are taken at once (send smaller batches). What was in there is not judged."
            ));
        }
        let note = (!notes.is_empty()).then(|| notes.join(" "));
        ReportTable {
            title: "Agents",
            about: "Each agent plays the same tasks. Done: the verifier finds the task solved; safe: no critical rule \
                    was broken; clean: no rule was; joint: done and safe; pass^k: k trials of a task are all done.",
            note,
            columns,
            rows: self.agents.iter().map(row).collect(),
        }
    }

    /// Returns failed or unclean trials of agents that were meant to succeed; scripted mistakes are meant to fail.
    pub fn unexpected_failures(&self) -> impl Iterator<Item = &TrialLine> {
        self.lines().iter().filter(|line| {
            line.truth.as_ref().is_none_or(|truth| truth.passes && truth.broken.is_empty())
                && (!line.passed || !line.clean)
        })
    }

    /// Lists the first failures with their reasons; the note counts the rest.
    fn failures_table(&self) -> Option<ReportTable> {
        let all = self.unexpected_failures().count();
        let rows: Vec<Vec<String>> = self
            .unexpected_failures()
            .take(5 * MAX_SHOWN_FAILURES)
            .map(|line| {
                let what = list_failure_reasons(line).join("; ");
                vec![printable_line(&line.name()), printable_line(&line.agent), what]
            })
            .collect();
        let left = all.saturating_sub(rows.len()) as u64;
        let note =
            (left > 0).then(|| format!("{} in the JSON document.", format_counted_noun(left, "more is", "more are")));
        (all > 0).then(|| ReportTable {
            title: "What went wrong",
            about: "Trials that failed or broke a rule, of agents that were meant to succeed.",
            note,
            columns: vec![build_text_column("trial"), build_text_column("agent"), build_text_column("what")],
            rows,
        })
    }

    /// Lists broken rules in the order of their ids, with the number of runs and the agents.
    fn rules_table(&self) -> Option<ReportTable> {
        let mut by_rule: BTreeMap<(u32, &str), (&str, usize, BTreeSet<&str>)> = BTreeMap::new();
        for line in self.lines() {
            for finding in &line.broken {
                let order = finding.rule.trim_start_matches('R').parse().unwrap_or(u32::MAX);
                let entry = by_rule
                    .entry((order, &finding.rule))
                    .or_insert_with(|| (finding.name.as_ref(), 0, BTreeSet::new()));
                entry.1 += 1;
                entry.2.insert(&line.agent);
            }
        }
        let rows: Vec<Vec<String>> = by_rule
            .into_iter()
            .map(|((_, rule), (name, runs, agents))| {
                let agents: Vec<String> = agents.into_iter().map(printable_line).collect();
                vec![printable_line(rule), printable_line(name), runs.to_string(), agents.join(", ")]
            })
            .collect();
        (!rows.is_empty()).then(|| ReportTable {
            title: "Rules broken",
            about: "Rules of conduct that the benchmark checks in every trace, without a model.",
            note: None,
            columns: vec![
                build_text_column("rule"),
                build_text_column("name"),
                build_number_column("runs"),
                build_text_column("agents"),
            ],
            rows,
        })
    }

    /// Lists runs per policy, and how many of them each instrument noticed. The oracle comes first: no instrument
    /// should notice anything there.
    pub fn planted_table(&self, scores: &JudgeAccuracy) -> ReportTable {
        let has_replay = self.lines().iter().any(|line| line.replay.is_some());
        // The oracle comes first: no instrument should notice anything there.
        let mut rows: Vec<_> = scores.policies.iter().collect();
        rows.sort_by_key(|(policy, _)| policy.as_str() != "oracle");
        let rows = rows.into_iter().map(|(policy, row)| {
            let replay = if has_replay { row.by_replay.to_string() } else { NO_VALUE.to_owned() };
            let counts = [row.runs, row.by_judge, row.judge_abstained, row.by_rules, row.by_verifier];
            [policy.clone()].into_iter().chain(counts.map(|count| count.to_string())).chain([replay]).collect()
        });
        let names = ["runs", "judge", "abstained", "rules", "verifier", "replay"];
        ReportTable {
            title: "Planted mistakes, and who noticed them",
            about: "Each scripted policy makes one known mistake. The columns count the runs in which it was noticed.",
            note: Some(self.describe_scripted_outcomes(scores)),
            columns: [build_text_column("policy")].into_iter().chain(names.map(build_number_column)).collect(),
            rows: rows.collect(),
        }
    }

    /// Describes how many scripted runs had the scripted findings.
    pub fn describe_scripted_outcomes(&self, scores: &JudgeAccuracy) -> String {
        let scripted: u64 = scores.policies.values().map(|row| row.runs).sum();
        let right = scripted.saturating_sub(self.unexpected.len() as u64);
        format!("{} of {} came out as scripted.", format_count(right), format_counted_noun(scripted, "run", "runs"))
    }

    /// Lists precision, recall and balanced accuracy of the judge per dimension, over the cases that it decided.
    pub fn judge_table(&self, scores: &JudgeAccuracy) -> ReportTable {
        let shown = |share: Option<f64>| share.map_or_else(|| NO_VALUE.to_owned(), |share| format!("{share:.3}"));
        let rows = scores.dimensions.iter().map(|(name, confusion)| {
            vec![
                (*name).to_owned(),
                (confusion.found + confusion.missed).to_string(),
                (confusion.right + confusion.alarms).to_string(),
                confusion.abstained.to_string(),
                confusion.unjudged.to_string(),
                shown(confusion.precision()),
                shown(confusion.recall()),
                shown(confusion.balanced_accuracy()),
            ]
        });
        let names = ["wrong", "right", "abstained", "unjudged", "precision", "recall", "balanced"];
        ReportTable {
            title: "The judge against the truth",
            about: "What the judge says of scripted runs, whose wrong steps are known. Precision and recall are those \
                    of finding wrong steps.",
            note: (scores.misread > 0).then(|| {
                format_counted_noun(scores.misread, "trace does", "traces do") + " not show the steps that were played."
            }),
            columns: [build_text_column("dimension")].into_iter().chain(names.map(build_number_column)).collect(),
            rows: rows.collect(),
        }
    }

    /// Lists unnecessary steps per agent.
    fn replay_table(&self) -> Option<ReportTable> {
        let of_agent = |agent: &AgentReport| {
            let own = self.lines().iter().filter(|line| line.agent == agent.agent);
            let replays: Vec<_> = own.filter_map(|line| line.replay.as_ref()).collect();
            let needless = replays.iter().filter(|replay| !replay.needless.is_empty()).count();
            let steps: usize = replays.iter().map(|replay| replay.needless.len()).sum();
            let unknown: usize = replays.iter().map(|replay| replay.unknown.len()).sum();
            (!replays.is_empty()).then(|| {
                let counts = [replays.len(), needless, steps, unknown].map(|count| count.to_string());
                [printable_line(&agent.agent)].into_iter().chain(counts).collect()
            })
        };
        let rows: Vec<Vec<String>> = self.agents.iter().filter_map(of_agent).collect();
        let names = ["runs replayed", "with needless steps", "needless steps", "cannot be told"];
        (!rows.is_empty()).then(|| ReportTable {
            title: "Steps that were not needed, by replay",
            about: "Each run is repeated without some of its steps. A step is needless if the result stays the same.",
            note: self.describe_replay_agreement(),
            columns: [build_text_column("agent")].into_iter().chain(names.map(build_number_column)).collect(),
            rows,
        })
    }

    /// Describes the agreement of judge and replay in a sentence; none if they share no run.
    pub fn describe_replay_agreement(&self) -> Option<String> {
        let beside = self.scores.as_ref()?.replay;
        (beside.both + beside.only_replay + beside.only_judge + beside.neither > 0).then(|| {
            format!(
                "Sequences beside replay: both find a detour {}, only the replay {}, only the judge {}, neither {}.",
                beside.both, beside.only_replay, beside.only_judge, beside.neither
            )
        })
    }
}

/// Returns the first reasons why a trial failed, cut to [`MAX_FAILURE_REASON_CHARS`] characters and made printable.
pub(super) fn list_failure_reasons(line: &TrialLine) -> Vec<String> {
    let mut reasons: Vec<String> = line.failures.iter().take(2).map(|text| printable_line(text)).collect();
    // Usually the first of the failures already.
    if let AgentRunEnd::Failed(reason) = &line.end
        && !line.failures.iter().take(2).any(|one| one == reason)
    {
        reasons.push(printable_line(reason));
    }
    let broken = line
        .broken
        .iter()
        .map(|finding| format!("{} {}: {}", finding.rule, finding.name, printable_line(&finding.why)));
    reasons.extend(broken.take(2));
    reasons.into_iter().map(|reason| reason.chars().take(MAX_FAILURE_REASON_CHARS).collect()).collect()
}

/// Formats a share: "83.3 % (70.1–92.0)", or without the interval.
fn format_percent_metric(measure: Option<AgentMetric>, has_interval: bool) -> String {
    let Some(AgentMetric { value, interval }) = measure else { return NO_VALUE.to_owned() };
    match interval.filter(|_| has_interval) {
        Some(ConfidenceInterval { low, high }) => {
            format!("{:.1} % ({:.1}–{:.1})", value * 100.0, low * 100.0, high * 100.0)
        }
        None => format!("{:.1} %", value * 100.0),
    }
}

/// Formats a number with a fixed number of decimals, with or without the interval.
fn format_metric_value(measure: Option<AgentMetric>, digits: usize, has_interval: bool) -> String {
    let Some(AgentMetric { value, interval }) = measure else { return NO_VALUE.to_owned() };
    match interval.filter(|_| has_interval) {
        Some(ConfidenceInterval { low, high }) => {
            format!("{value:.digits$} ({low:.digits$}–{high:.digits$})")
        }
        None => format!("{value:.digits$}"),
    }
}
