//! The input and output of a judge test: the verdicts, and the report. The report is also the JSON output, so field
//! names are a promise.

use std::collections::BTreeMap;
use std::time::Duration;

use gradus_stats::comparison::ComparisonReport;
use gradus_stats::interval::ConfidenceInterval;
use serde::Serialize;

use crate::bias_probe::BiasProbe;
use crate::case_plan::HarmlessFlaws;
use crate::fitness::GatingFitness;
use crate::flaw::PlantedFlaw;

/// The format version of the JSON report.
pub const REPORT_SCHEMA: &str = "gradus.judge-test/1";

/// One verdict of a judge on a case.
#[derive(Clone, Debug, PartialEq)]
pub struct CaseVerdict {
    /// Index of the case.
    pub case: usize,
    /// Number of the repetition, from 0.
    pub repeat: u32,
    /// The probe that the case was changed by.
    pub probe: Option<BiasProbe>,
    /// The label; `None` if the judge gave none.
    pub label: Option<String>,
    /// Whether the label is another than the best one. False without a label.
    pub is_flagged: bool,
    /// The cost in this test; `None` if the price is unknown.
    pub cost_usd: Option<f64>,
    /// Whether the verdict was cached before.
    pub is_cached: bool,
}

/// All verdicts of one judge, with answer times.
#[derive(Clone, Debug, Default)]
pub struct JudgeRecord {
    pub judge: String,
    pub endpoint: Option<String>,
    pub verdicts: Vec<CaseVerdict>,
    pub calls: u64,
    /// Of the questions that were answered in this process.
    pub answer_times: Vec<Duration>,
    /// Hashes of the rubrics, by evaluator.
    pub rubric_hashes: BTreeMap<String, String>,
    /// Why it is incomplete.
    pub stopped_because: Option<String>,
}

/// A share with its interval. `value` and `interval` are null without cases.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
pub struct MeasuredShare {
    pub value: Option<f64>,
    pub interval: Option<ConfidenceInterval>,
    /// Cases that it is a share of.
    pub cases: u64,
    /// Runs that these cases were made from.
    pub clusters: u64,
}

/// A mean with its interval; null for fewer than two values.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
pub struct MeasuredMean {
    pub value: Option<f64>,
    pub interval: Option<ConfidenceInterval>,
    pub count: u64,
}

#[derive(Clone, Debug, Serialize)]
pub struct FlawResult {
    pub flaw: PlantedFlaw,
    pub detection: MeasuredShare,
    pub could_not_judge: MeasuredShare,
}

/// Detection and false alarms of a part of the cases.
#[derive(Clone, Debug, Serialize)]
pub struct CaseGroupResult {
    pub group: String,
    pub detection: MeasuredShare,
    pub false_alarms: MeasuredShare,
}

/// One rubric of one judge.
#[derive(Clone, Debug, Serialize)]
pub struct RubricResult {
    pub rubric: String,
    pub rubric_hash: String,
    pub cases: u64,
    /// Of the flawed cases with a verdict, those that were flagged (TPR).
    pub detection: MeasuredShare,
    /// Of the originals with a verdict, those that were flagged (1 - TNR).
    pub false_alarms: MeasuredShare,
    pub could_not_judge: MeasuredShare,
    /// Of all flawed cases, judged or not, those that were flagged.
    pub flagged_of_flawed: MeasuredShare,
    /// Of all originals, judged or not, those that were flagged. For judges that abstain where they find nothing.
    pub flagged_of_originals: MeasuredShare,
    /// Probability that asking again gives the other verdict; null unless `--repeats` is at least 2.
    pub flips: Option<MeasuredShare>,
    pub fitness: GatingFitness,
    pub reasons: Vec<String>,
    pub flaws: Vec<FlawResult>,
    pub forms: Vec<CaseGroupResult>,
    pub materials: Vec<CaseGroupResult>,
}

/// One probe on one rubric.
#[derive(Clone, Debug, Serialize)]
pub struct ProbeResult {
    pub probe: BiasProbe,
    pub rubric: String,
    pub flips: MeasuredShare,
    pub flips_on_originals: MeasuredShare,
    pub flips_on_flawed: MeasuredShare,
    /// Verdicts that changed to flagged, and from flagged.
    pub became_flagged: u64,
    pub became_accepted: u64,
    /// Cases that have a verdict in one of the two forms only.
    pub not_compared: u64,
}

/// One judge.
#[derive(Clone, Debug, Serialize)]
pub struct JudgeResult {
    pub judge: String,
    pub endpoint: Option<String>,
    pub rubrics: Vec<RubricResult>,
    pub probes: Vec<ProbeResult>,
    /// Dollars of this test; null if the price is unknown.
    pub cost_usd: Option<f64>,
    /// Dollars for each question that was asked now.
    pub cost_per_question: MeasuredMean,
    pub calls: u64,
    /// Verdicts that were there before, and cost nothing now.
    pub cached: u64,
    /// Seconds for each question that was answered now.
    pub seconds_per_question: MeasuredMean,
    pub median_seconds: Option<f64>,
    pub p95_seconds: Option<f64>,
    pub stopped_because: Option<String>,
}

/// The whole test.
#[derive(Clone, Debug, Serialize)]
pub struct JudgeTestReport {
    pub schema: &'static str,
    pub gradus_version: String,
    pub seed: u64,
    pub repeats: u32,
    pub cases: u64,
    pub flawed_cases: u64,
    pub clusters: u64,
    pub harmless: Vec<HarmlessFlaws>,
    /// Evaluators with fewer cases than asked for, and how many they have.
    pub shortages: Vec<(String, usize)>,
    pub judges: Vec<JudgeResult>,
    /// Judges side by side; null for one.
    pub comparison: Option<ComparisonReport>,
}
