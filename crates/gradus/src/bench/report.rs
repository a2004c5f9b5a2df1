//! A bench in numbers: how many tasks are done, how safely, how reliably, at what price. Trials of one task are alike, so
//! intervals go by task.

use std::io::{self, Write};

use gradus_eval::interval::{Cluster, Interval, clustered};
use gradus_eval::report::Metric;
use gradus_github::bench::TrialLine;
use gradus_github::bench::statistics::{TaskTally, all_good, median, tally};
use serde::Serialize;

use super::truth::Scores;
use crate::output::{BOLD, DIM, GREEN, RED, printable_line};

/// Who measured: the world itself, not a judge.
pub(crate) const SIMULATOR: &str = "simulator";

#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub(crate) struct Measure {
    pub(crate) value: f64,
    pub(crate) interval: Option<Interval>,
}

#[derive(Clone, Debug, Serialize)]
pub(crate) struct AgentReport {
    pub(crate) agent: String,
    pub(crate) tasks: usize,
    pub(crate) trials: u32,
    pub(crate) success: Option<Measure>,
    pub(crate) safe: Option<Measure>,
    pub(crate) clean: Option<Measure>,
    /// Done, and safely.
    pub(crate) joint: Option<Measure>,
    /// Mean partial credit.
    pub(crate) credit: Option<f64>,
    /// So many trials of a task that were all good: of `pass_k` and `safe_k`. The fewest that a task has.
    pub(crate) k: u32,
    pub(crate) pass_k: Option<Measure>,
    pub(crate) safe_k: Option<Measure>,
    /// Calls ÷ minimal calls on trials that passed; the median over tasks of their medians.
    pub(crate) calls_ratio: Option<Measure>,
    /// Dollars for all trials ÷ trials that passed; null where a price is not known, or nobody was paid.
    pub(crate) cost_per_solved: Option<Measure>,
    pub(crate) prompt_tokens: u64,
    pub(crate) completion_tokens: u64,
}

#[derive(Clone, Debug, Serialize)]
pub(crate) struct BenchReport {
    pub(crate) suite: String,
    pub(crate) folder: String,
    pub(crate) agents: Vec<AgentReport>,
    /// Mistakes that could not be made: which, where, why.
    pub(crate) not_applicable: Vec<String>,
    /// Scripted trials that came out otherwise than scripted, each with what is different.
    pub(crate) unexpected: Vec<String>,
    pub(crate) scores: Option<Scores>,
    #[serde(skip)]
    lines: Vec<TrialLine>,
    /// One object for each trial.
    trials: Vec<serde_json::Value>,
}

impl BenchReport {
    pub(crate) fn of(suite: &str, folder: &str, agents: &[String], lines: Vec<TrialLine>) -> BenchReport {
        let reports = agents.iter().filter_map(|agent| {
            let own: Vec<&TrialLine> = lines.iter().filter(|line| line.agent == *agent).collect();
            (!own.is_empty()).then(|| AgentReport::of(agent, &own))
        });
        let unexpected = lines.iter().filter(|line| !line.differences.is_empty());
        let unexpected = unexpected.map(|line| {
            let variant = line.truth.as_ref().map_or("", |truth| truth.variant.as_str());
            format!("{} ({}, {variant}): {}", line.name(), line.agent, line.differences.join("; "))
        });
        BenchReport {
            suite: suite.to_owned(),
            folder: folder.to_owned(),
            agents: reports.collect(),
            not_applicable: Vec::new(),
            unexpected: unexpected.collect(),
            scores: None,
            trials: lines.iter().filter_map(|line| serde_json::to_value(line).ok()).collect(),
            lines,
        }
    }

    pub(crate) fn lines(&self) -> &[TrialLine] {
        &self.lines
    }

    /// Names of what [`BenchReport::metrics`] gives, for gates.
    pub(crate) fn metric_names(trials: u32) -> Vec<String> {
        let fixed = ["success", "safe", "clean", "joint", "calls_ratio", "cost_per_solved"];
        let mut names: Vec<String> = fixed.map(str::to_owned).to_vec();
        names.extend([format!("pass^{trials}"), format!("safe^{trials}")]);
        names
    }

    /// Over all agents: whoever sets a gate mostly runs one.
    pub(crate) fn metrics(&self) -> Vec<Metric> {
        let all: Vec<&TrialLine> = self.lines.iter().collect();
        if all.is_empty() {
            return Vec::new();
        }
        let report = AgentReport::of("all", &all);
        let count = u64::from(report.trials);
        let tasks = report.tasks as u64;
        let share = |name: &str, title: &str, measure: Option<Measure>, denominator: u64| Metric {
            name: name.to_owned(),
            title: title.to_owned(),
            judge: SIMULATOR.to_owned(),
            value: measure.map(|measure| measure.value),
            interval: measure.and_then(|measure| measure.interval),
            is_share: true,
            numerator: measure.map_or(0.0, |measure| measure.value * denominator as f64),
            denominator: if measure.is_some() { denominator } else { 0 },
            ..Metric::default()
        };
        let counted = |metric: Metric| Metric { numerator: metric.numerator.round(), ..metric };
        let k = report.k;
        let mut metrics = vec![
            counted(share("success", "Tasks Done", report.success, count)),
            counted(share("safe", "Safe Runs", report.safe, count)),
            counted(share("clean", "Clean Runs", report.clean, count)),
            counted(share("joint", "Done and Safe", report.joint, count)),
        ];
        if self.agents.len() == 1 && k > 1 {
            metrics.push(share(&format!("pass^{k}"), &format!("All {k} Trials Done"), report.pass_k, tasks));
            metrics.push(share(&format!("safe^{k}"), &format!("All {k} Trials Safe"), report.safe_k, tasks));
        }
        for (name, title, measure) in [
            ("calls_ratio", "Calls ÷ Minimal Calls", report.calls_ratio),
            ("cost_per_solved", "Dollars for a Solved Task", report.cost_per_solved),
        ] {
            if measure.is_some() {
                metrics.push(Metric { is_share: false, ..share(name, title, measure, count) });
            }
        }
        metrics
    }
}

impl AgentReport {
    fn of(agent: &str, lines: &[&TrialLine]) -> AgentReport {
        let tallies = tally(lines.iter().copied());
        let tallies: Vec<&TaskTally> = tallies.values().collect();
        let trials: u32 = tallies.iter().map(|tally| tally.trials).sum();
        let k = tallies.iter().map(|tally| tally.trials).min().unwrap_or(0);
        let share = |good: fn(&TaskTally) -> u32| {
            let clusters: Vec<Cluster> = tallies
                .iter()
                .map(|tally| Cluster { count: f64::from(tally.trials), sum: f64::from(good(tally)) })
                .collect();
            mean(&clusters)
        };
        let of_k = |good: fn(&TaskTally) -> u32| {
            let chances = tallies.iter().filter_map(|tally| all_good(good(tally), tally.trials, k));
            mean(&chances.map(|chance| Cluster { count: 1.0, sum: chance }).collect::<Vec<_>>())
        };
        let medians: Vec<f64> =
            tallies.iter().filter_map(|tally| median(&tally.ratios)).map(|(middle, ..)| middle).collect();
        AgentReport {
            agent: agent.to_owned(),
            tasks: tallies.len(),
            trials,
            success: share(|tally| tally.passed),
            safe: share(|tally| tally.safe),
            clean: share(|tally| tally.clean),
            joint: share(|tally| tally.joint),
            credit: (trials > 0)
                .then(|| tallies.iter().map(|tally| tally.credit).sum::<f64>() / f64::from(trials)),
            k,
            pass_k: of_k(|tally| tally.passed),
            safe_k: of_k(|tally| tally.safe),
            calls_ratio: median(&medians)
                .map(|(value, low, high)| Measure { value, interval: Some(Interval { low, high }) }),
            cost_per_solved: cost_per_solved(&tallies),
            prompt_tokens: lines.iter().map(|line| line.spending.prompt_tokens).sum(),
            completion_tokens: lines.iter().map(|line| line.spending.completion_tokens).sum(),
        }
    }
}

fn mean(clusters: &[Cluster]) -> Option<Measure> {
    let count: f64 = clusters.iter().map(|cluster| cluster.count).sum();
    let sum: f64 = clusters.iter().map(|cluster| cluster.sum).sum();
    (count > 0.0).then(|| Measure { value: sum / count, interval: clustered(clusters, 0.0, 1.0) })
}

/// A ratio of two sums over tasks; its interval from how much tasks differ from it (the delta method).
fn cost_per_solved(tallies: &[&TaskTally]) -> Option<Measure> {
    let costs: Option<Vec<f64>> = tallies.iter().map(|tally| tally.cost_usd).collect();
    let costs = costs?;
    let (cost, solved) =
        (costs.iter().sum::<f64>(), tallies.iter().map(|tally| f64::from(tally.passed)).sum::<f64>());
    if solved == 0.0 {
        return None;
    }
    let value = cost / solved;
    let tasks = tallies.len() as f64;
    let squares: f64 =
        costs.iter().zip(tallies).map(|(cost, tally)| (cost - value * f64::from(tally.passed)).powi(2)).sum();
    let interval = (tallies.len() > 1).then(|| {
        let error = (tasks / (tasks - 1.0) * squares).sqrt() / solved;
        Interval { low: (value - 2.0 * error).max(0.0), high: value + 2.0 * error }
    });
    Some(Measure { value, interval })
}

/// Trials that went wrong and are named.
const SHOWN: usize = 10;

impl BenchReport {
    pub(crate) fn print(&self, out: &mut dyn Write) -> io::Result<()> {
        self.print_agents(out)?;
        self.print_failures(out)?;
        if let Some(scores) = self.scores.as_ref().filter(|scores| !scores.policies.is_empty()) {
            self.print_truth(scores, out)?;
        }
        writeln!(out)
    }

    fn print_agents(&self, out: &mut dyn Write) -> io::Result<()> {
        let width =
            self.agents.iter().map(|agent| agent.agent.chars().count()).max().unwrap_or(0).clamp(8, 40);
        let k = self.agents.iter().map(|agent| agent.k).max().unwrap_or(1);
        let (pass, safe) = (format!("pass^{k}"), format!("safe^{k}"));
        writeln!(
            out,
            "{BOLD}{:<width$}  {:>6}  {:>22}  {:>8}  {:>8}  {:>7}  {:>7}  {:>9}{BOLD:#}",
            "agent", "trials", "done (95 % interval)", "safe", "clean", pass, safe, "calls÷min"
        )?;
        let percent = |measure: Option<Measure>| {
            measure.map_or_else(|| "–".to_owned(), |measure| format!("{:.1} %", measure.value * 100.0))
        };
        for agent in &self.agents {
            let done = match agent.success {
                Some(Measure { value, interval: Some(interval) }) => format!(
                    "{:.1} % ({:.1}–{:.1})",
                    value * 100.0,
                    interval.low * 100.0,
                    interval.high * 100.0
                ),
                other => percent(other),
            };
            let ratio =
                agent.calls_ratio.map_or_else(|| "–".to_owned(), |ratio| format!("{:.2}", ratio.value));
            let name: String = printable_line(&agent.agent).chars().take(width).collect();
            writeln!(
                out,
                "{name:<width$}  {:>6}  {done:>22}  {:>8}  {:>8}  {:>7}  {:>7}  {ratio:>9}",
                agent.trials,
                percent(agent.safe),
                percent(agent.clean),
                percent(agent.pass_k),
                percent(agent.safe_k),
            )?;
            if let Some(cost) = agent.cost_per_solved.filter(|cost| cost.value > 0.0) {
                writeln!(out, "{DIM}{:<width$}  ${:.4} for each solved task{DIM:#}", "", cost.value)?;
            }
        }
        Ok(())
    }

    /// Of agents that are meant to do well; scripted mistakes are meant to fail.
    fn print_failures(&self, out: &mut dyn Write) -> io::Result<()> {
        let is_of_interest = |line: &&TrialLine| {
            line.truth.as_ref().is_none_or(|truth| truth.passes && truth.broken.is_empty())
                && (!line.passed || !line.clean)
        };
        let failed: Vec<&TrialLine> = self.lines.iter().filter(is_of_interest).collect();
        if failed.is_empty() {
            return Ok(());
        }
        writeln!(out, "\n{BOLD}What went wrong{BOLD:#}")?;
        for line in failed.iter().take(SHOWN) {
            let mut reasons: Vec<String> =
                line.failures.iter().take(2).map(|text| printable_line(text)).collect();
            if let gradus_github::record::End::Failed(reason) = &line.end {
                reasons.push(printable_line(reason));
            }
            let broken = line.broken.iter().map(|finding| {
                format!("{} {}: {}", finding.rule, finding.name, printable_line(&finding.why))
            });
            reasons.extend(broken.take(2));
            let name = printable_line(&line.name());
            writeln!(out, "  {RED}{name}{RED:#} {DIM}{}{DIM:#}", printable_line(&line.agent))?;
            for reason in reasons {
                let reason: String = reason.chars().take(160).collect();
                writeln!(out, "    {reason}")?;
            }
        }
        if failed.len() > SHOWN {
            writeln!(out, "  {DIM}{} more in {}/trials.jsonl{DIM:#}", failed.len() - SHOWN, self.folder)?;
        }
        Ok(())
    }

    pub(crate) fn print_truth(&self, scores: &Scores, out: &mut dyn Write) -> io::Result<()> {
        let scripted: u64 = scores.policies.values().map(|row| row.runs).sum();
        let wrong = self.unexpected.len();
        writeln!(out, "\n{BOLD}Planted mistakes, and who noticed them{BOLD:#}")?;
        writeln!(
            out,
            "  {:<20} {:>5}  {:>6}  {:>6}  {:>9}  {:>7}",
            "policy", "runs", "judge", "rules", "verifier", "replay"
        )?;
        let has_replay = self.lines.iter().any(|line| line.replay.is_some());
        // The one that makes no mistake comes first: nobody should notice anything there.
        let mut rows: Vec<_> = scores.policies.iter().collect();
        rows.sort_by_key(|(policy, _)| policy.as_str() != "oracle");
        for (policy, row) in rows {
            let replay = if has_replay { row.by_replay.to_string() } else { "–".to_owned() };
            writeln!(
                out,
                "  {policy:<20} {:>5}  {:>6}  {:>6}  {:>9}  {replay:>7}",
                row.runs, row.by_judge, row.by_rules, row.by_verifier
            )?;
        }
        let style = if wrong == 0 { GREEN } else { RED };
        let as_scripted = scripted.saturating_sub(wrong as u64);
        writeln!(out, "  {style}{as_scripted} of {scripted} runs came out as scripted.{style:#}")?;
        for text in self.unexpected.iter().take(SHOWN) {
            writeln!(out, "    {}", printable_line(text))?;
        }
        writeln!(out, "\n{BOLD}The judge against the truth{BOLD:#}")?;
        writeln!(
            out,
            "  {:<20} {:>6} {:>6} {:>9}  {:>9}  {:>9}  {:>9}",
            "dimension", "wrong", "right", "unjudged", "precision", "recall", "balanced"
        )?;
        let shown = |share: Option<f64>| share.map_or_else(|| "–".to_owned(), |share| format!("{share:.3}"));
        for (name, confusion) in &scores.dimensions {
            writeln!(
                out,
                "  {name:<20} {:>6} {:>6} {:>9}  {:>9}  {:>9}  {:>9}",
                confusion.found + confusion.missed,
                confusion.right + confusion.alarms,
                confusion.unjudged,
                shown(confusion.precision()),
                shown(confusion.recall()),
                shown(confusion.balanced())
            )?;
        }
        if has_replay {
            let beside = scores.replay;
            writeln!(
                out,
                "  {DIM}sequences beside replay: both find a detour {}, only the replay {}, only the judge {}, neither {}{DIM:#}",
                beside.both, beside.only_replay, beside.only_judge, beside.neither
            )?;
        }
        if scores.misread > 0 {
            writeln!(out, "  {RED}{} traces do not show the steps that were played{RED:#}", scores.misread)?;
        }
        Ok(())
    }
}
