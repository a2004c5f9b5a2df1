//! The results of an experiment: pass rates with intervals, by check and by tag, and over trials of the same item.
//! Trials of one item are alike, so intervals are cluster-robust with items as clusters.

use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::path::{Path, PathBuf};

use gradus_dataset::{CheckOutcome, ItemTrial, TrialEnd};
use gradus_eval::evaluator::SIMULATOR_JUDGE;
use gradus_eval::report::{GateResult, MetricResult, RunReader, TrialMetricNames};
use gradus_eval::run::RunFileError;
use gradus_github_bench::trial::statistics::estimate_pass_hat_k;
use gradus_report::{ReportTable, RunSupplement, TableColumn, TrialMeasurement, TrialResult};
use gradus_stats::interval::{ConfidenceInterval, ScoreCluster, clustered_interval};
use serde::{Deserialize, Serialize};

/// Name in the folder of a run.
const REPORT_FILE_NAME: &str = "experiment.json";
/// Checks in the order of the fields of an item.
const CHECK_NAMES: [&str; 4] = ["expected_tools", "must_not_call", "answer_contains", "answer_matches"];

/// The results of an experiment, as they are stored with the run that graded it.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct ExperimentReport {
    pub(crate) dataset: String,
    pub(crate) agent: String,
    pub(crate) folder: String,
    /// K of `pass^K` and `pass@K`: the smallest number of trials that an item has.
    pub(crate) k: u32,
    /// Spans and traces of an agent behind HTTP that belong to no trial.
    pub(crate) unattributed_spans: u64,
    pub(crate) unattributed_traces: u64,
    pub(crate) refused_exports: u64,
    /// In the order of the dataset.
    pub(crate) trials: Vec<ItemTrial>,
}

/// A share of trials, or a mean over items.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub(crate) struct PassRate {
    pub(crate) name: String,
    pub(crate) title: String,
    pub(crate) value: Option<f64>,
    pub(crate) interval: Option<ConfidenceInterval>,
    /// Trials that passed; for means over items their sum.
    pub(crate) numerator: f64,
    /// Trials or items that count.
    pub(crate) denominator: u64,
    /// Trials that could not be checked.
    pub(crate) not_checked: u64,
}

/// Why the results of an experiment in the folder of a run cannot be loaded.
#[derive(Debug, thiserror::Error)]
#[error("experiment results not readable: {}: {source}", path.display())]
pub(crate) struct ExperimentFileError {
    path: PathBuf,
    source: io::Error,
}

impl ExperimentReport {
    /// Loads the results that were stored with a run; `None` if the run graded no experiment.
    pub(crate) fn load(run: &Path) -> Result<Option<ExperimentReport>, ExperimentFileError> {
        let path = run.join(REPORT_FILE_NAME);
        match std::fs::read(&path).and_then(|text| Ok(serde_json::from_slice(&text)?)) {
            Ok(report) => Ok(Some(report)),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
            Err(source) => Err(ExperimentFileError { path, source }),
        }
    }

    /// Writes a new file and renames it, so that a reader finds all or nothing.
    pub(crate) fn save(&self, run: &Path) -> io::Result<()> {
        let (path, new) = (run.join(REPORT_FILE_NAME), run.join(format!("{REPORT_FILE_NAME}.new")));
        std::fs::write(&new, serde_json::to_vec(self)?)?;
        std::fs::rename(new, path)
    }

    /// Returns the names that gates may use. `pass^K` and `pass@K` exist for several trials only.
    pub(crate) fn metric_names(trials: u32, tags: BTreeSet<String>) -> TrialMetricNames {
        let mut shares = vec!["pass".to_owned(), "answered".to_owned()];
        shares.extend(CHECK_NAMES.map(str::to_owned));
        if trials > 1 {
            shares.extend([format!("pass^{trials}"), format!("pass@{trials}")]);
        }
        TrialMetricNames { shares, amounts: Vec::new(), tags }
    }

    /// Returns overall rates: all checks together, how the agent ended, each check, and over trials.
    pub(crate) fn rates(&self) -> Vec<PassRate> {
        let all: Vec<&ItemTrial> = self.trials.iter().collect();
        let mut passed = trial_pass_rate("pass", "Trials Passed", &all, ItemTrial::verdict);
        passed.not_checked = all.iter().filter(|trial| trial.verdict().is_none()).count() as u64;
        let mut rates = vec![
            passed,
            trial_pass_rate("answered", "Trials Answered", &all, |trial| Some(trial.end == TrialEnd::Answered)),
        ];
        for name in CHECK_NAMES {
            if all.iter().any(|trial| trial.checks.iter().any(|check| check.name == name)) {
                rates.push(check_pass_rate(name, &all));
            }
        }
        if self.k > 1 {
            let k = self.k;
            let all_pass = |good, trials| estimate_pass_hat_k(good, trials, k);
            rates.push(self.mean_items(&format!("pass^{k}"), &format!("All {k} Trials Passed"), all_pass));
            // At least one passes unless all fail.
            let one_passes = |good, trials| estimate_pass_hat_k(trials - good, trials, k).map(|none| 1.0 - none);
            rates.push(self.mean_items(&format!("pass@{k}"), &format!("At Least 1 of {k} Trials Passed"), one_passes));
        }
        rates
    }

    /// Returns the rate of passed trials for each tag, in alphabetical order.
    pub(crate) fn tag_rates(&self) -> Vec<PassRate> {
        let mut tags: Vec<&String> = self.trials.iter().flat_map(|trial| &trial.tags).collect();
        tags.sort();
        tags.dedup();
        let rate = |tag: &&String| {
            let own: Vec<&ItemTrial> = self.trials.iter().filter(|trial| trial.tags.contains(tag)).collect();
            trial_pass_rate(tag, tag, &own, ItemTrial::verdict)
        };
        tags.iter().map(rate).collect()
    }

    /// Returns a mean over items of an estimate from the numbers of good trials and of all.
    fn mean_items(&self, name: &str, title: &str, estimate: impl Fn(u32, u32) -> Option<f64>) -> PassRate {
        let groups = group_by_item(&self.trials);
        let chances = groups.iter().filter_map(|(_, trials)| {
            let verdicts: Vec<bool> = trials.iter().filter_map(|trial| trial.verdict()).collect();
            let good = verdicts.iter().filter(|passed| **passed).count() as u32;
            estimate(good, verdicts.len() as u32)
        });
        let clusters: Vec<ScoreCluster> = chances.map(|chance| ScoreCluster { count: 1.0, sum: chance }).collect();
        make_rate(name, title, &clusters, 0)
    }

    /// Counts trials that sent no spans although a check needs tools.
    pub(crate) fn unchecked_trial_count(&self) -> usize {
        let is_unchecked =
            |trial: &&ItemTrial| trial.checks.iter().any(|check| check.outcome == CheckOutcome::NotChecked);
        self.trials.iter().filter(is_unchecked).count()
    }

    /// Lists why a trial did not pass; empty if it did.
    pub(crate) fn list_failures(trial: &ItemTrial) -> Vec<String> {
        let failed = trial.checks.iter().filter(|check| check.outcome == CheckOutcome::Failed);
        let checks = failed.map(|check| format!("{}: {}", check.name, check.reason));
        trial.failure.iter().map(|failure| format!("the agent failed: {failure}")).chain(checks).collect()
    }

    /// Returns rates as metrics, on which gates can be set.
    pub(crate) fn own_metrics(&self) -> Vec<MetricResult> {
        let metric = |rate: PassRate| MetricResult {
            name: rate.name,
            title: rate.title,
            // Measured and not judged, like the results of a simulator.
            judge: SIMULATOR_JUDGE.to_owned(),
            value: rate.value,
            interval: rate.interval,
            is_share: true,
            numerator: rate.numerator,
            denominator: rate.denominator,
            not_applicable: rate.not_checked,
            ..MetricResult::default()
        };
        self.rates().into_iter().map(metric).collect()
    }

    /// Returns tables of rates, overall and by tag.
    pub(crate) fn own_tables(&self) -> Vec<ReportTable> {
        let column = |name: &str, is_number| TableColumn { name: name.to_owned(), is_number };
        let table = |title: &'static str, about, first: &str, rates: Vec<PassRate>, note: Option<String>| ReportTable {
            title,
            about,
            note,
            columns: vec![
                column(first, false),
                column("share", true),
                column("passed", true),
                column("of", true),
                column("not checked", true),
            ],
            rows: rates.iter().map(rate_row).collect(),
        };
        let note = "Trials of one item are alike: intervals are cluster-robust over items.".to_owned();
        let mut tables = vec![table(
            "Experiment",
            "Deterministic checks of the dataset items, over all trials.",
            "measure",
            self.rates(),
            Some(note),
        )];
        let by_tag = self.tag_rates();
        if !by_tag.is_empty() {
            tables.push(table(
                "Trials passed by tag",
                "The share of passed trials for each tag of the dataset.",
                "tag",
                by_tag,
                None,
            ));
        }
        tables
    }
}

impl RunSupplement for ExperimentReport {
    fn score(&mut self, _reader: &mut RunReader) -> Result<(), RunFileError> {
        Ok(())
    }

    fn metric_names(&self) -> TrialMetricNames {
        ExperimentReport::metric_names(self.k, self.trials.iter().flat_map(|trial| trial.tags.clone()).collect())
    }

    fn metrics(&self) -> Vec<MetricResult> {
        self.own_metrics()
    }

    fn tag_metrics(&self, tag: &str) -> Vec<MetricResult> {
        let tagged: Vec<ItemTrial> =
            self.trials.iter().filter(|trial| trial.tags.iter().any(|own| own == tag)).cloned().collect();
        ExperimentReport { trials: tagged, ..self.clone() }.own_metrics()
    }

    fn explain_gate(&self, gate: &mut GateResult) {
        let is_check = CHECK_NAMES.contains(&gate.metric.as_str());
        if gate.value.is_none() && (is_check || gate.metric.starts_with("pass")) {
            gate.explanation = match self.unchecked_trial_count() {
                0 if !is_check => return,
                0 => "no item of the dataset has this check, so the gate cannot pass".to_owned(),
                _ => "the agent sent no spans, so nothing could be checked and the gate cannot pass".to_owned(),
            };
        }
    }

    fn tables(&self) -> Vec<ReportTable> {
        self.own_tables()
    }

    fn measurements(&self) -> Vec<TrialMeasurement> {
        let measurement = |trial: &ItemTrial| TrialMeasurement {
            trajectory_id: Some(trial.trajectory_id.clone()),
            session_id: format!("{}/{}", trial.item_id, trial.trial),
            owns_session: true,
            task_id: Some(trial.item_id.clone()),
            tags: trial.tags.clone(),
            results: trial.verdict().map(pass_result).into_iter().collect(),
        };
        self.trials.iter().map(measurement).collect()
    }
}

fn pass_result(passed: bool) -> TrialResult {
    TrialResult { name: "experiment: pass", title: "Trials Passed", is_good: passed }
}

/// Loads the benchmark or the experiment that a run graded, for the server.
pub(crate) fn load_run_supplement(run: &Path) -> Result<Option<Box<dyn RunSupplement>>, String> {
    if let Some(bench) = gradus_github_bench::results::load_supplement(run)? {
        return Ok(Some(bench));
    }
    let experiment = ExperimentReport::load(run).map_err(|error| error.to_string())?;
    Ok(experiment.map(|report| Box::new(report) as Box<dyn RunSupplement>))
}

/// Groups trials by item, in the order of the dataset.
pub(crate) fn group_by_item(trials: &[ItemTrial]) -> Vec<(&str, Vec<&ItemTrial>)> {
    let mut positions: BTreeMap<&str, usize> = BTreeMap::new();
    let mut groups: Vec<(&str, Vec<&ItemTrial>)> = Vec::new();
    for trial in trials {
        let at = *positions.entry(&trial.item_id).or_insert_with(|| {
            groups.push((&trial.item_id, Vec::new()));
            groups.len() - 1
        });
        groups[at].1.push(trial);
    }
    groups
}

fn check_pass_rate(name: &str, trials: &[&ItemTrial]) -> PassRate {
    let mut rate = trial_pass_rate(name, name, trials, |trial| {
        let check = trial.checks.iter().find(|check| check.name == name)?;
        match check.outcome {
            CheckOutcome::Passed => Some(true),
            CheckOutcome::Failed => Some(false),
            CheckOutcome::NotChecked => None,
        }
    });
    let is_unchecked = |trial: &&&ItemTrial| {
        trial.checks.iter().any(|check| check.name == name && check.outcome == CheckOutcome::NotChecked)
    };
    rate.not_checked = trials.iter().filter(is_unchecked).count() as u64;
    rate
}

/// Returns the share of trials that `is_good`, of those for which it is known.
fn trial_pass_rate(
    name: &str,
    title: &str,
    trials: &[&ItemTrial],
    is_good: impl Fn(&ItemTrial) -> Option<bool>,
) -> PassRate {
    let mut clusters: std::collections::BTreeMap<&str, ScoreCluster> = std::collections::BTreeMap::new();
    for trial in trials {
        if let Some(good) = is_good(trial) {
            let cluster = clusters.entry(&trial.item_id).or_default();
            cluster.count += 1.0;
            cluster.sum += f64::from(u8::from(good));
        }
    }
    make_rate(name, title, &clusters.into_values().collect::<Vec<_>>(), 0)
}

fn make_rate(name: &str, title: &str, clusters: &[ScoreCluster], not_checked: u64) -> PassRate {
    // The sum of nothing is -0, so it starts from 0.
    let count = clusters.iter().fold(0.0, |sum, cluster| sum + cluster.count);
    let numerator = clusters.iter().fold(0.0, |sum, cluster| sum + cluster.sum);
    PassRate {
        name: name.to_owned(),
        title: title.to_owned(),
        value: (count > 0.0).then(|| numerator / count),
        interval: clustered_interval(clusters, 0.0, 1.0),
        numerator,
        denominator: count as u64,
        not_checked,
    }
}

fn rate_row(rate: &PassRate) -> Vec<String> {
    let share = match (rate.value, rate.interval) {
        (Some(value), Some(interval)) => {
            format!("{:.1} % ({:.1}–{:.1})", value * 100.0, interval.low * 100.0, interval.high * 100.0)
        }
        (Some(value), None) => format!("{:.1} %", value * 100.0),
        (None, _) => "–".to_owned(),
    };
    let numerator = match rate.numerator.fract() == 0.0 {
        true => format!("{:.0}", rate.numerator),
        false => format!("{:.1}", rate.numerator),
    };
    vec![rate.name.clone(), share, numerator, rate.denominator.to_string(), rate.not_checked.to_string()]
}

#[cfg(test)]
mod tests {
    use super::*;
    use gradus_dataset::ItemCheck;

    fn trial(item: &str, number: u32, passed: bool, tag: &str) -> ItemTrial {
        let outcome = if passed { CheckOutcome::Passed } else { CheckOutcome::Failed };
        ItemTrial {
            item_id: item.to_owned(),
            trial: number,
            passed,
            end: TrialEnd::Answered,
            failure: None,
            checks: vec![ItemCheck { name: "answer_contains".to_owned(), outcome, reason: "r".to_owned() }],
            tags: vec![tag.to_owned()],
            answer: None,
            trajectory_id: format!("{item}-{number}"),
            trace_id: None,
            span_ids: Vec::new(),
            has_spans: true,
            step_count: 0,
            prompt_tokens: 0,
            completion_tokens: 0,
            cost_usd: None,
            seconds: 1.0,
        }
    }

    fn report(trials: Vec<ItemTrial>) -> ExperimentReport {
        ExperimentReport {
            dataset: "d".to_owned(),
            agent: "a".to_owned(),
            folder: "f".to_owned(),
            k: 2,
            unattributed_spans: 0,
            unattributed_traces: 0,
            refused_exports: 0,
            trials,
        }
    }

    #[test]
    fn rates_over_trials_and_items() {
        let report = report(vec![
            trial("a", 0, true, "x"),
            trial("a", 1, true, "x"),
            trial("b", 0, true, "y"),
            trial("b", 1, false, "y"),
            trial("c", 0, false, "y"),
            trial("c", 1, false, "y"),
        ]);
        let values: Vec<(String, f64, u64)> = report
            .rates()
            .into_iter()
            .map(|rate| (rate.name, rate.value.expect("a value"), rate.denominator))
            .collect();
        let near = |name: &str, value: f64, of: u64| {
            values.iter().any(|(found, share, count)| found == name && (share - value).abs() < 1e-9 && *count == of)
        };
        assert!(near("pass", 0.5, 6) && near("answered", 1.0, 6) && near("answer_contains", 0.5, 6), "{values:?}");
        assert!(near("pass^2", 1.0 / 3.0, 3) && near("pass@2", 2.0 / 3.0, 3), "{values:?}");
        let tags: Vec<(String, Option<f64>)> =
            report.tag_rates().into_iter().map(|rate| (rate.name, rate.value)).collect();
        assert_eq!(tags, [("x".to_owned(), Some(1.0)), ("y".to_owned(), Some(0.25))]);
    }

    #[test]
    fn no_rubric_can_have_the_name_of_a_measured_metric() {
        let experiment = ExperimentReport::metric_names(1, BTreeSet::new());
        let bench = gradus_github_bench::results::BenchReport::metric_names(1, 1, []);
        for name in experiment.all_names().chain(bench.all_names()) {
            assert!(gradus_eval::rubric::is_reserved_name(name), "{name}");
        }
    }

    #[test]
    fn what_was_not_checked_is_no_success_and_no_failure() {
        let mut unknown = trial("a", 0, true, "x");
        unknown.checks[0].outcome = CheckOutcome::NotChecked;
        let report = report(vec![unknown, trial("b", 0, true, "x")]);
        let rate = report.rates().into_iter().find(|rate| rate.name == "answer_contains").expect("a rate");
        assert_eq!((rate.denominator, rate.not_checked, rate.value), (1, 1, Some(1.0)));
        assert_eq!(report.unchecked_trial_count(), 1);
    }
}
