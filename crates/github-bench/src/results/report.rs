//! Metrics of a benchmark: success, safety, reliability, detours and cost. Trials of one task are correlated, so
//! intervals are cluster-robust with tasks as clusters.

use std::collections::HashMap;

use crate::trial::TrialLine;
use crate::trial::statistics::{TaskTally, estimate_pass_hat_k, median_with_interval, tally_trials};
use gradus_eval::evaluator::SIMULATOR_JUDGE;
use gradus_eval::outcome::OutcomeSpans;
use gradus_eval::report::{MetricResult, TrialMetricNames};
use gradus_stats::interval::{ConfidenceInterval, ScoreCluster, clustered_interval};
use serde::{Deserialize, Serialize};

use super::confusion::JudgeAccuracy;
use gradus_core::visible::printable_line;

/// A value with its 95 % confidence interval; no interval if there are too few tasks.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct AgentMetric {
    pub value: f64,
    pub interval: Option<ConfidenceInterval>,
}

/// Metrics of one agent over its trials.
#[derive(Clone, Debug, Serialize)]
pub struct AgentReport {
    pub agent: String,
    pub tasks: usize,
    pub trials: u32,
    /// Share of trials that passed.
    pub success: Option<AgentMetric>,
    /// Share of trials without a critical breach.
    pub safe: Option<AgentMetric>,
    /// Share of trials without any breach.
    pub clean: Option<AgentMetric>,
    /// Share of trials that passed and are safe.
    pub joint: Option<AgentMetric>,
    /// Mean partial credit.
    pub credit: Option<f64>,
    /// K of `pass_k` and `safe_k`: the smallest number of trials that a task has.
    pub k: u32,
    /// `pass^K`: probability that K trials of a task all pass, averaged over tasks.
    pub pass_k: Option<AgentMetric>,
    pub safe_k: Option<AgentMetric>,
    /// Number of trials that passed; `solved_tasks` counts the tasks with at least one.
    pub solved: u64,
    pub solved_tasks: u64,
    /// Calls divided by minimal calls over passed trials: the median over tasks of the medians within tasks.
    pub calls_ratio: Option<AgentMetric>,
    /// Dollars of all trials divided by passed trials. None if a price is unknown or no model was used.
    pub cost_per_solved: Option<AgentMetric>,
    pub prompt_tokens: u64,
    pub completion_tokens: u64,
}

/// The data behind a report, as it is stored.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct BenchResults {
    /// Name or folder of the suite.
    pub suite: String,
    pub folder: String,
    /// In the order of the plan.
    pub agents: Vec<String>,
    /// Planted mistakes that could not be made: which, in which task, why.
    pub not_applicable: Vec<String>,
    /// All trials, in the order in which they finished.
    pub lines: Vec<TrialLine>,
}

/// The trajectory of a trial that was judged.
#[derive(Clone, Debug, Default)]
pub struct JudgedTrial {
    pub trajectory_id: String,
    pub spans: OutcomeSpans,
}

/// A report ready to be printed, and its JSON document.
#[derive(Clone, Debug, Serialize)]
pub struct BenchReport {
    pub suite: String,
    pub folder: String,
    pub agents: Vec<AgentReport>,
    not_applicable: Vec<String>,
    /// Scripted trials whose findings contradict the script.
    pub unexpected: Vec<String>,
    /// Set by `RunSupplement::score` once the run was judged.
    pub scores: Option<JudgeAccuracy>,
    /// By trial name, for trials that were judged.
    #[serde(skip)]
    pub trajectories: HashMap<String, JudgedTrial>,
    #[serde(skip)]
    kept: BenchResults,
    /// One object per trial in the JSON document.
    trials: Vec<serde_json::Value>,
}

impl BenchReport {
    /// Computes all metrics. Agents without trials are left out.
    pub fn from_results(kept: BenchResults) -> BenchReport {
        let lines = &kept.lines;
        let reports = kept.agents.iter().filter_map(|agent| {
            let own: Vec<&TrialLine> = lines.iter().filter(|line| line.agent == *agent).collect();
            (!own.is_empty()).then(|| AgentReport::from_trials(agent, &own))
        });
        let unexpected = lines.iter().filter_map(|line| {
            let found: Vec<&str> = line.differences.iter().chain(&line.untold).map(String::as_str).collect();
            let variant = line.truth.as_ref().map_or("", |truth| truth.variant.as_str());
            (!found.is_empty()).then(|| format!("{} ({}, {variant}): {}", line.name(), line.agent, found.join("; ")))
        });
        BenchReport {
            suite: kept.suite.clone(),
            folder: kept.folder.clone(),
            agents: reports.collect(),
            not_applicable: kept.not_applicable.clone(),
            unexpected: unexpected.collect(),
            scores: None,
            trajectories: HashMap::new(),
            trials: lines.iter().filter_map(|line| serde_json::to_value(line).ok()).collect(),
            kept,
        }
    }

    pub fn lines(&self) -> &[TrialLine] {
        &self.kept.lines
    }

    pub fn results(&self) -> &BenchResults {
        &self.kept
    }

    /// Returns the names that gates may use. `pass^K` only exists for one agent with several trials.
    pub fn metric_names<'l>(agents: usize, trials: u32, levels: impl IntoIterator<Item = &'l str>) -> TrialMetricNames {
        let mut shares = ["success", "safe", "clean", "joint"].map(str::to_owned).to_vec();
        if agents == 1 && trials > 1 {
            shares.extend([format!("pass^{trials}"), format!("safe^{trials}")]);
        }
        TrialMetricNames {
            shares,
            amounts: ["calls_ratio", "cost_per_solved"].map(str::to_owned).to_vec(),
            tags: levels.into_iter().map(level_tag).collect(),
        }
    }

    /// Returns the names that gates on this benchmark may use.
    pub fn own_metric_names(&self) -> TrialMetricNames {
        let trials = self.agents.first().map_or(0, |agent| agent.k);
        BenchReport::metric_names(self.agents.len(), trials, self.lines().iter().map(|line| line.level.as_str()))
    }

    /// Computes metrics over all agents together: a gate is mostly used with one agent.
    pub fn own_metrics(&self) -> Vec<MetricResult> {
        let all: Vec<&TrialLine> = self.lines().iter().collect();
        if all.is_empty() {
            return Vec::new();
        }
        let report = AgentReport::from_trials("all", &all);
        let count = u64::from(report.trials);
        let of_all = match self.agents.len() {
            0 | 1 => String::new(),
            several => format!(", all {several} agents"),
        };
        let share = |name: &str, title: &str, measure: Option<AgentMetric>, denominator: u64| MetricResult {
            name: name.to_owned(),
            title: format!("{title}{of_all}"),
            judge: SIMULATOR_JUDGE.to_owned(),
            value: measure.map(|measure| measure.value),
            interval: measure.and_then(|measure| measure.interval),
            is_share: true,
            numerator: measure.map_or(0.0, |measure| measure.value * denominator as f64),
            denominator: if measure.is_some() { denominator } else { 0 },
            ..MetricResult::default()
        };
        let counted = |metric: MetricResult| MetricResult { numerator: metric.numerator.round(), ..metric };
        let (k, tasks) = (report.k, report.tasks as u64);
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
        for (name, title, measure, of) in [
            ("calls_ratio", "Calls ÷ Minimal Calls, Median", report.calls_ratio, report.solved_tasks),
            ("cost_per_solved", "Dollars for a Solved Task", report.cost_per_solved, report.solved),
        ] {
            if measure.is_some() {
                // A median has no numerator.
                let numerator = if name == "calls_ratio" { 0.0 } else { measure_sum(measure, of) };
                metrics.push(MetricResult { is_share: false, numerator, ..share(name, title, measure, of) });
            }
        }
        metrics
    }

    /// Returns why a metric has no value.
    pub fn explain_missing_metric(&self, metric: &str) -> Option<String> {
        let solved = self.lines().iter().any(|line| line.passed);
        match metric {
            "calls_ratio" | "cost_per_solved" if !solved => Some("no task was solved".to_owned()),
            "cost_per_solved" if self.lines().iter().all(|line| line.truth.is_some()) => {
                Some("scripted agents cost nothing".to_owned())
            }
            "cost_per_solved" => {
                let agent = self.agents.first().map_or("", |agent| agent.agent.as_str());
                Some(format!("no price is known for {}; give it with --prices FILE", printable_line(agent)))
            }
            _ => None,
        }
    }
}

impl AgentReport {
    /// Computes the metrics of one agent from its lines.
    fn from_trials(agent: &str, lines: &[&TrialLine]) -> AgentReport {
        let tallies = tally_trials(lines.iter().copied());
        let tallies: Vec<&TaskTally> = tallies.values().collect();
        let trials: u32 = tallies.iter().map(|tally| tally.trials).sum();
        let k = tallies.iter().map(|tally| tally.trials).min().unwrap_or(0);
        let share = |good: fn(&TaskTally) -> u32| {
            let clusters: Vec<ScoreCluster> = tallies
                .iter()
                .map(|tally| ScoreCluster { count: f64::from(tally.trials), sum: f64::from(good(tally)) })
                .collect();
            compute_clustered_mean(&clusters)
        };
        let of_k = |good: fn(&TaskTally) -> u32| {
            let chances = tallies.iter().filter_map(|tally| estimate_pass_hat_k(good(tally), tally.trials, k));
            compute_clustered_mean(&chances.map(|chance| ScoreCluster { count: 1.0, sum: chance }).collect::<Vec<_>>())
        };
        let medians: Vec<f64> =
            tallies.iter().filter_map(|tally| median_with_interval(&tally.ratios)).map(|(middle, ..)| middle).collect();
        AgentReport {
            agent: agent.to_owned(),
            tasks: tallies.len(),
            trials,
            success: share(|tally| tally.passed),
            safe: share(|tally| tally.safe),
            clean: share(|tally| tally.clean),
            joint: share(|tally| tally.joint),
            credit: (trials > 0).then(|| tallies.iter().map(|tally| tally.credit).sum::<f64>() / f64::from(trials)),
            k,
            pass_k: of_k(|tally| tally.passed),
            safe_k: of_k(|tally| tally.safe),
            solved: tallies.iter().map(|tally| u64::from(tally.passed)).sum(),
            solved_tasks: medians.len() as u64,
            calls_ratio: median_with_interval(&medians).map(|(value, interval)| AgentMetric {
                value,
                interval: interval.map(|(low, high)| ConfidenceInterval { low, high }),
            }),
            cost_per_solved: cost_per_solved(&tallies),
            prompt_tokens: lines.iter().map(|line| line.spending.prompt_tokens).sum(),
            completion_tokens: lines.iter().map(|line| line.spending.completion_tokens).sum(),
        }
    }
}

/// Returns the tag of tasks of a level, which gates can select.
pub(super) fn level_tag(level: &str) -> String {
    format!("level={level}")
}

fn measure_sum(measure: Option<AgentMetric>, of: u64) -> f64 {
    measure.map_or(0.0, |measure| measure.value * of as f64)
}

/// Computes a mean with a cluster-robust interval, bounded by 0 and 1.
fn compute_clustered_mean(clusters: &[ScoreCluster]) -> Option<AgentMetric> {
    let count: f64 = clusters.iter().map(|cluster| cluster.count).sum();
    let sum: f64 = clusters.iter().map(|cluster| cluster.sum).sum();
    (count > 0.0).then(|| AgentMetric { value: sum / count, interval: clustered_interval(clusters, 0.0, 1.0) })
}

/// Computes the ratio of two sums over tasks. Its interval is by the delta method: the residuals of tasks around the
/// ratio give the standard error. None if the cost of a task is unknown or nothing was solved.
fn cost_per_solved(tallies: &[&TaskTally]) -> Option<AgentMetric> {
    let costs: Option<Vec<f64>> = tallies.iter().map(|tally| tally.cost_usd).collect();
    let costs = costs?;
    let (cost, solved) = (costs.iter().sum::<f64>(), tallies.iter().map(|tally| f64::from(tally.passed)).sum::<f64>());
    if solved == 0.0 {
        return None;
    }
    let value = cost / solved;
    let tasks = tallies.len() as f64;
    let squares: f64 =
        costs.iter().zip(tallies).map(|(cost, tally)| (cost - value * f64::from(tally.passed)).powi(2)).sum();
    let interval = (tallies.len() > 1).then(|| {
        let error = (tasks / (tasks - 1.0) * squares).sqrt() / solved;
        ConfidenceInterval { low: (value - 2.0 * error).max(0.0), high: value + 2.0 * error }
    });
    Some(AgentMetric { value, interval })
}
