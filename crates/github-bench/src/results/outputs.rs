//! The report in formats for programs (CSV, JUnit, JSON lines) and in Markdown.

use std::io::{self, Write};
use std::path::Path;

use crate::trial::TrialLine;
use gradus_eval::evaluator::SIMULATOR_JUDGE;
use gradus_eval::outcome::{OutcomeKind, OutcomeSpans};
use quick_junit::{TestCase, TestSuite};
use serde_json::json;

use super::report::{AgentReport, BenchReport};
use super::tables::list_failure_reasons;
use gradus_report::junit::{JunitSettings, build_measured_status, sanitize_xml_text};
use gradus_report::{csv, json, markdown};

/// Returns the two verdicts on a trial: name, whether it is good, and the label.
fn list_trial_verdicts(line: &TrialLine) -> [(&'static str, bool, &'static str); 2] {
    [
        ("success", line.passed, if line.passed { "done" } else { "not done" }),
        ("safe", line.safe, if line.safe { "safe" } else { "unsafe" }),
    ]
}

/// Returns the reason of a verdict; empty if it is good.
fn explain_trial_verdict(line: &TrialLine, name: &str) -> String {
    if name == "safe" {
        let broken = line.broken.iter().map(|one| format!("{} {}: {}", one.rule, one.name, one.why));
        return broken.collect::<Vec<_>>().join("; ");
    }
    if line.passed { String::new() } else { list_failure_reasons(line).join("; ") }
}

/// Metrics of `agents.csv`. Each has four columns: value, ends of the interval, and the number of observations.
const AGENT_METRIC_COLUMNS: [&str; 8] =
    ["success", "safe", "clean", "joint", "pass^", "safe^", "calls_ratio", "cost_per_solved"];

/// Builds the row of an agent. Shares are over trials, `^K` metrics over tasks, the call ratio over solved tasks, the
/// cost over solved trials.
fn agent_row(agent: &AgentReport) -> Vec<String> {
    let (trials, tasks) = (u64::from(agent.trials), agent.tasks as u64);
    let measures = [
        (agent.success, trials),
        (agent.safe, trials),
        (agent.clean, trials),
        (agent.joint, trials),
        (agent.pass_k, tasks),
        (agent.safe_k, tasks),
        (agent.calls_ratio, agent.solved_tasks),
        (agent.cost_per_solved, agent.solved),
    ];
    let plain = |number: Option<f64>| number.map(|number| format!("{number:.6}")).unwrap_or_default();
    let mut row = vec![agent.agent.clone(), tasks.to_string(), trials.to_string()];
    for (measure, of) in measures {
        let interval = measure.and_then(|measure| measure.interval);
        row.push(plain(measure.map(|measure| measure.value)));
        row.push(plain(interval.map(|interval| interval.low)));
        row.push(plain(interval.map(|interval| interval.high)));
        row.push(of.to_string());
    }
    row.extend([agent.prompt_tokens.to_string(), agent.completion_tokens.to_string()]);
    row
}

/// Columns of `trials.csv`. The order is part of the format.
const TRIAL_COLUMNS: [&str; 23] = [
    "task",
    "trial",
    "agent",
    "title",
    "level",
    "trajectory_id",
    "session_id",
    "passed",
    "safe",
    "clean",
    "credit",
    "calls",
    "minimal_calls",
    "needless_steps",
    "rules_broken",
    "failures",
    "end",
    "prompt_tokens",
    "completion_tokens",
    "cost_usd",
    "seconds",
    "trace_id",
    "span_ids",
];

impl BenchReport {
    /// Returns the id of the judged trajectory, or the one that the trial named.
    fn trajectory_id<'r>(&'r self, line: &'r TrialLine) -> Option<&'r str> {
        let judged = self.trajectories.get(&line.name()).map(|judged| &judged.trajectory_id);
        judged.or(line.trajectory.as_ref()).map(String::as_str)
    }

    /// Returns the root span of the judged trajectory; empty for a trial that was not judged.
    fn root_spans(&self, line: &TrialLine) -> OutcomeSpans {
        let judged = self.trajectories.get(&line.name());
        judged.map(|judged| judged.spans.clone()).unwrap_or_default()
    }

    /// Writes all tables as Markdown; cells are escaped, since they contain text of agents.
    pub fn write_markdown(&self, out: &mut dyn Write) -> io::Result<()> {
        for table in self.own_tables() {
            writeln!(out, "\n### {}\n", table.title)?;
            let columns = table.columns.iter();
            let names: Vec<String> =
                columns.clone().map(|column| markdown::escape_markdown_cell(&column.name)).collect();
            let rule: Vec<&str> = columns.map(|column| if column.is_number { "--:" } else { "---" }).collect();
            writeln!(out, "| {} |\n|{}|", names.join(" | "), rule.join("|"))?;
            for row in &table.rows {
                let cells: Vec<String> = row.iter().map(|cell| markdown::escape_markdown_cell(cell)).collect();
                writeln!(out, "| {} |", cells.join(" | "))?;
            }
            if let Some(note) = &table.note {
                writeln!(out, "\n{}", markdown::escape_markdown_cell(note))?;
            }
        }
        Ok(())
    }

    /// Writes `trials.csv` and `agents.csv`. Cells that spreadsheets would run as formulas are neutralised.
    pub fn write_csv(&self, folder: &Path) -> anyhow::Result<()> {
        let mut trials = ::csv::Writer::from_path(folder.join("trials.csv"))?;
        trials.write_record(TRIAL_COLUMNS)?;
        for line in self.lines() {
            let end = serde_json::to_value(&line.end)?;
            let end = end.as_str().unwrap_or_else(|| end["failed"].as_str().unwrap_or_default());
            let rules: Vec<&str> = line.broken.iter().map(|one| one.rule.as_ref()).collect();
            let needless = line.replay.as_ref().map(|replay| replay.needless.len().to_string());
            let spans = self.root_spans(line);
            let row = [
                line.task.clone(),
                line.trial.to_string(),
                line.agent.clone(),
                line.title.clone(),
                line.level.clone(),
                self.trajectory_id(line).unwrap_or_default().to_owned(),
                line.session.clone(),
                line.passed.to_string(),
                line.safe.to_string(),
                line.clean.to_string(),
                line.credit.to_string(),
                line.calls.to_string(),
                line.minimal_calls.to_string(),
                needless.unwrap_or_default(),
                rules.join(" "),
                line.failures.join("; "),
                end.to_owned(),
                line.spending.prompt_tokens.to_string(),
                line.spending.completion_tokens.to_string(),
                line.spending.cost_usd.map(|cost| cost.to_string()).unwrap_or_default(),
                format!("{:.3}", line.spending.seconds),
                spans.trace_id.unwrap_or_default(),
                spans.span_ids.join(" "),
            ];
            trials.write_record(row.iter().map(|cell| csv::sanitize_csv_cell(cell)))?;
        }
        trials.flush()?;
        let mut agents = ::csv::Writer::from_path(folder.join("agents.csv"))?;
        let k = self.agents.iter().map(|agent| agent.k).max().unwrap_or(1);
        let mut columns = vec!["agent".to_owned(), "tasks".to_owned(), "trials".to_owned()];
        for name in AGENT_METRIC_COLUMNS {
            let name = if name.ends_with('^') { format!("{name}{k}") } else { name.to_owned() };
            columns.extend(["", "_low", "_high", "_n"].map(|part| format!("{name}{part}")));
        }
        columns.extend(["prompt_tokens", "completion_tokens"].map(str::to_owned));
        agents.write_record(&columns)?;
        for agent in &self.agents {
            let row = agent_row(agent);
            agents.write_record(row.iter().map(|cell| csv::sanitize_csv_cell(cell)))?;
        }
        Ok(agents.flush()?)
    }

    /// Returns one suite for success and one for safety, with a test case per trial. As with verdicts, a trial fails
    /// only if a gate on its metric failed.
    pub fn to_junit_suites(&self, settings: &JunitSettings<'_>) -> Vec<TestSuite> {
        let mut suites = ["success", "safe"].map(TestSuite::new);
        for line in self.lines() {
            for (suite, (name, is_well, label)) in suites.iter_mut().zip(list_trial_verdicts(line)) {
                let message = explain_trial_verdict(line, name);
                let status = build_measured_status(is_well, name, label, &message, settings);
                let called = format!("{} ({})", line.name(), line.agent);
                let mut case = TestCase::new(sanitize_xml_text(&called).as_ref(), status);
                case.set_classname(format!("gradus.bench.{name}"));
                suite.add_test_case(case);
            }
        }
        suites.into()
    }

    /// Writes two JSON lines per trial with the keys of an outcome, so that tools for evaluation results can read
    /// them.
    pub fn write_lines(&self, run_id: &str, out: &mut dyn Write) -> io::Result<()> {
        for line in self.lines() {
            let spans = self.root_spans(line);
            for (name, is_well, label) in list_trial_verdicts(line) {
                let outcome = json!({
                    "run_id": run_id,
                    // A trial without spans, or one that was not judged, is identified by its session, which is unique.
                    "trajectory_id": self.trajectory_id(line).unwrap_or(&line.session),
                    "step_index": null,
                    "evaluator": name,
                    "outcome": OutcomeKind::Scored,
                    "label": label,
                    "score": if is_well { 1.0 } else { 0.0 },
                    "explanation": explain_trial_verdict(line, name),
                    "evidence": [],
                    "reason": null,
                    "judge": SIMULATOR_JUDGE,
                    "rubric_hash": "",
                    "tokens": null,
                    "cost_usd": null,
                    "cached": false,
                    "calls": 0,
                    "trace_id": spans.trace_id,
                    "span_ids": spans.span_ids,
                    "task": line.task,
                    "trial": line.trial,
                    "agent": line.agent,
                    "session_id": line.session,
                });
                json::write_line(&outcome, out)?;
            }
        }
        Ok(())
    }
}
