//! `calibration.json`: how far the verdicts of a judge on a rubric agree with the truth. It holds labels and ids, and no
//! content of traces, so it fits into a repository. Doc comments of the types below become descriptions in
//! `docs/schemas/calibration.schema.json`.

use std::io;
use std::path::{Path, PathBuf};

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::calibrated_judge::{CalibratedJudge, RunJudge};
use super::calibration_measures::CalibrationMeasures;
use super::calibration_mismatch::CalibrationMismatch;
use super::verdict_strata::VoteSplit;
use crate::run::EvaluatorRecord;
use crate::scale::ScoreScale;

/// The value of `schema`. A file with another one is refused.
pub const CALIBRATION_SCHEMA: &str = "gradus.calibration/1";
/// Maximum bytes of a calibration file: 100,000 labelled cases need about 20 MB.
const MAX_FILE_BYTES: u64 = 64 << 20;

/// The document that `gradus judge calibrate` writes: one calibration per evaluator and judge.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct CalibrationFile {
    /// `gradus.calibration/1`.
    pub schema: String,
    pub calibrations: Vec<JudgeCalibration>,
}

/// What is known about one judge on one rubric.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct JudgeCalibration {
    pub evaluator: String,
    pub judge: CalibratedJudge,
    /// The hash of the rubric that the judge answered. Verdicts on another rubric are not corrected.
    pub rubric_hash: String,
    /// Labels of the rubric with their scores, best first.
    pub labels: Vec<(String, f64)>,
    pub population: LabelPopulation,
    pub labellers: Vec<LabellerRecord>,
    pub measures: CalibrationMeasures,
    /// RFC 3339.
    pub created: String,
    /// RFC 3339. Gates refuse the calibration afterwards.
    pub expires: String,
    pub gradus_version: String,
    /// The labelled cases, in the order of their ids.
    pub cases: Vec<LabelledVerdict>,
}

/// What the labelled cases were drawn from.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct LabelPopulation {
    pub run_id: String,
    pub sources: Vec<String>,
    /// A digest of the ids of all trajectories. A run with the same digest is about the same population.
    pub digest: String,
    pub trajectories: u64,
    /// Verdicts that the cases were drawn from.
    pub judged: u64,
    /// Questions that the judge could not answer.
    pub not_judged: u64,
    pub sampling: LabelSampling,
    /// The seed of the draw.
    pub seed: u64,
}

/// How the cases were drawn.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum LabelSampling {
    /// Every case with the same probability.
    Uniform,
    /// As many of each label of the judge.
    Stratified,
    /// Cases of which the judge was unsure with a higher probability, which is stored with the label.
    Active,
    /// Not drawn: the labels that there were. They say nothing about shares, only about the judge.
    Given,
}

/// Who labelled.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct LabellerRecord {
    pub name: String,
    pub kind: LabellerKind,
    pub labels: u64,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum LabellerKind {
    Human,
    /// Another model. Its labels are no truth.
    Model,
    /// Known by construction: a benchmark, or a planted flaw.
    Truth,
}

/// One case: what the judge said, and what is true.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct LabelledVerdict {
    pub trajectory_id: String,
    /// Null for a whole trajectory.
    pub step_index: Option<u32>,
    /// Null if the judge could not judge the case.
    pub judge_label: Option<String>,
    /// What the members of a panel said. Absent where one judge is asked once.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub votes: Option<VoteSplit>,
    /// The label of the majority of labellers.
    pub truth: String,
    /// The probability with which the case was drawn.
    pub probability: f64,
}

/// Why a file is not a valid calibration.
#[derive(Debug, thiserror::Error)]
pub enum CalibrationFileError {
    #[error("{}: {source}", path.display())]
    Read { path: PathBuf, source: io::Error },
    #[error("{}: no calibration: {source}\nhint: `gradus judge calibrate` writes calibrations", path.display())]
    Parse { path: PathBuf, source: serde_json::Error },
    #[error(
        "{}: schema {found:?} is not known, only {CALIBRATION_SCHEMA:?}\nhint: write it anew with `gradus judge calibrate`",
        path.display()
    )]
    Schema { path: PathBuf, found: String },
    #[error("{}: larger than {} MiB, so no calibration", path.display(), MAX_FILE_BYTES >> 20)]
    TooLarge { path: PathBuf },
    #[error("{}: the calibration of {evaluator}: {reason}", path.display())]
    Content { path: PathBuf, evaluator: String, reason: String },
}

impl CalibrationFile {
    pub fn new(calibrations: Vec<JudgeCalibration>) -> CalibrationFile {
        CalibrationFile { schema: CALIBRATION_SCHEMA.to_owned(), calibrations }
    }

    pub fn read(path: &Path) -> Result<CalibrationFile, CalibrationFileError> {
        let io = |source| CalibrationFileError::Read { path: path.to_owned(), source };
        if std::fs::metadata(path).map_err(io)?.len() > MAX_FILE_BYTES {
            return Err(CalibrationFileError::TooLarge { path: path.to_owned() });
        }
        let text = std::fs::read(path).map_err(io)?;
        let parse = |source| CalibrationFileError::Parse { path: path.to_owned(), source };
        #[derive(Deserialize)]
        struct SchemaField {
            schema: String,
        }
        // The schema first: a file of a later version should say so instead of naming a missing field.
        let found = serde_json::from_slice::<SchemaField>(&text).map_err(parse)?.schema;
        if found != CALIBRATION_SCHEMA {
            return Err(CalibrationFileError::Schema { path: path.to_owned(), found });
        }
        let file: CalibrationFile = serde_json::from_slice(&text).map_err(parse)?;
        for calibration in &file.calibrations {
            if let Some(reason) = calibration.find_fault() {
                let evaluator = calibration.evaluator.clone();
                return Err(CalibrationFileError::Content { path: path.to_owned(), evaluator, reason });
            }
        }
        Ok(file)
    }

    /// Writes a new file and renames it, so that a reader never sees a part.
    pub fn write(&self, path: &Path) -> io::Result<()> {
        let mut text = serde_json::to_vec_pretty(self)?;
        text.push(b'\n');
        let mut name = path.as_os_str().to_owned();
        name.push(".new");
        let new = PathBuf::from(name);
        std::fs::write(&new, text)?;
        std::fs::rename(&new, path)
    }

    /// Adds a calibration. It replaces an earlier one of the same evaluator and judge.
    pub fn add(&mut self, calibration: JudgeCalibration) {
        let is_same = |known: &JudgeCalibration| {
            known.evaluator == calibration.evaluator && known.judge.name == calibration.judge.name
        };
        self.calibrations.retain(|known| !is_same(known));
        self.calibrations.push(calibration);
        self.calibrations.sort_by(|a, b| (&a.evaluator, &a.judge.name).cmp(&(&b.evaluator, &b.judge.name)));
    }

    /// Finds the calibration for an evaluator of a run, or why the ones for it do not apply. `None` if there is none.
    pub fn find(
        &self,
        evaluator: &EvaluatorRecord,
        judge: RunJudge<'_>,
        now: jiff::Timestamp,
    ) -> Option<Result<&JudgeCalibration, CalibrationMismatch>> {
        let mut mismatch = None;
        for calibration in self.calibrations.iter().filter(|known| known.evaluator == evaluator.name) {
            match calibration.check_evaluator(evaluator, judge, now) {
                Ok(()) => return Some(Ok(calibration)),
                Err(error) => mismatch = Some(Err(error)),
            }
        }
        mismatch
    }
}

impl JudgeCalibration {
    /// Checks that the calibration applies to the verdicts of this evaluator: the same judge and rubric, and not
    /// expired.
    pub fn check_evaluator(
        &self,
        evaluator: &EvaluatorRecord,
        judge: RunJudge<'_>,
        now: jiff::Timestamp,
    ) -> Result<(), CalibrationMismatch> {
        self.judge.check_run(&evaluator.judge, judge)?;
        if self.rubric_hash != evaluator.rubric_hash {
            return Err(CalibrationMismatch::Rubric {
                calibrated: shorten_hash(&self.rubric_hash),
                current: shorten_hash(&evaluator.rubric_hash),
            });
        }
        match self.expires.parse::<jiff::Timestamp>() {
            Ok(expires) if now < expires => Ok(()),
            _ => Err(CalibrationMismatch::Expired { expires: self.expires.clone() }),
        }
    }

    /// The position of a label in `labels`, which is its stratum.
    pub fn stratum(&self, label: &str) -> Option<usize> {
        self.labels.iter().position(|(known, _)| known == label)
    }

    /// Whether every case that the judge judged has the votes of its members.
    pub fn has_votes(&self) -> bool {
        self.cases.iter().all(|case| case.judge_label.is_none() || case.votes.is_some())
    }

    /// The score of a label on a scale from 0 to 1.
    pub fn unit_score(&self, label: &str) -> Option<f64> {
        let scale = self.scale();
        let (_, score) = self.labels.iter().find(|(known, _)| known == label)?;
        Some((score - scale.worst) / (scale.best - scale.worst))
    }

    pub fn scale(&self) -> ScoreScale {
        ScoreScale::from_scores(self.labels.iter().map(|(_, score)| *score)).unwrap_or(ScoreScale::SHARE)
    }

    /// Returns why the calibration is invalid; `None` if it can be used. Files are untrusted, so everything that
    /// calculations rely on is checked here.
    fn find_fault(&self) -> Option<String> {
        let scale = self.scale();
        if self.labels.iter().any(|(_, score)| !score.is_finite()) || scale.best <= scale.worst {
            return Some("its labels need different scores".to_owned());
        }
        for case in &self.cases {
            let mut labels = case.judge_label.iter().chain([&case.truth]);
            if let Some(label) = labels.find(|label| self.stratum(label).is_none()) {
                return Some(format!("the rubric has no label {label:?}"));
            }
            if !(case.probability > 0.0 && case.probability <= 1.0) {
                return Some(format!(
                    "a case has the probability {}; it must be above 0 and at most 1",
                    case.probability
                ));
            }
            if case.votes.is_some_and(|votes| votes.right > votes.answered || votes.answered == 0) {
                return Some("a case has more votes for the best label than votes".to_owned());
            }
        }
        None
    }
}

/// Returns the beginning of a hash, long enough to distinguish two.
fn shorten_hash(hash: &str) -> String {
    hash.chars().take(12).collect()
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;

    pub(crate) fn calibration(judge: &str) -> JudgeCalibration {
        JudgeCalibration {
            evaluator: "thought_to_tool".to_owned(),
            judge: CalibratedJudge { name: judge.to_owned(), ..CalibratedJudge::default() },
            rubric_hash: "hash-1".to_owned(),
            labels: vec![("correct".to_owned(), 1.0), ("incorrect".to_owned(), 0.0)],
            population: LabelPopulation {
                run_id: "r".to_owned(),
                sources: Vec::new(),
                digest: "d".to_owned(),
                trajectories: 10,
                judged: 30,
                not_judged: 0,
                sampling: LabelSampling::Uniform,
                seed: 0,
            },
            labellers: Vec::new(),
            measures: CalibrationMeasures::default(),
            created: "2026-11-01T00:00:00Z".to_owned(),
            expires: "2027-01-30T00:00:00Z".to_owned(),
            gradus_version: "0".to_owned(),
            cases: Vec::new(),
        }
    }

    fn evaluator(judge: &str, rubric_hash: &str) -> EvaluatorRecord {
        EvaluatorRecord {
            name: "thought_to_tool".to_owned(),
            title: String::new(),
            of_steps: true,
            labels: Vec::new(),
            rubric_hash: rubric_hash.to_owned(),
            phoenix_name: String::new(),
            judge: judge.to_owned(),
        }
    }

    #[test]
    fn a_calibration_is_of_one_judge_one_rubric_and_one_time() {
        let file = CalibrationFile::new(vec![calibration("openai:a"), calibration("openai:b")]);
        let (today, later) = ("2026-11-17T00:00:00Z".parse().unwrap(), "2027-03-01T00:00:00Z".parse().unwrap());
        let found = file.find(&evaluator("openai:b", "hash-1"), RunJudge::default(), today).unwrap();
        assert_eq!(found.unwrap().judge.name, "openai:b");
        let message =
            |evaluator, now| file.find(&evaluator, RunJudge::default(), now).unwrap().unwrap_err().to_string();
        assert_eq!(message(evaluator("openai:c", "hash-1"), today), "it is of the judge openai:b, not openai:c");
        assert_eq!(
            message(evaluator("openai:b", "hash-2"), today),
            "the rubric has changed since (calibrated hash-1, now hash-2)"
        );
        assert_eq!(message(evaluator("openai:b", "hash-1"), later), "it expired at 2027-01-30T00:00:00Z");
        let other = EvaluatorRecord { name: "x".to_owned(), ..evaluator("openai:b", "") };
        assert!(file.find(&other, RunJudge::default(), today).is_none());
    }

    #[test]
    fn a_new_calibration_replaces_the_old_one() {
        let mut file = CalibrationFile::new(vec![calibration("openai:b"), calibration("openai:a")]);
        file.add(JudgeCalibration { rubric_hash: "hash-2".to_owned(), ..calibration("openai:b") });
        let known: Vec<_> = file.calibrations.iter().map(|one| (&*one.judge.name, &*one.rubric_hash)).collect();
        assert_eq!(known, [("openai:a", "hash-1"), ("openai:b", "hash-2")]);
    }

    #[test]
    fn files_of_other_kinds_are_refused_with_the_reason() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("calibration.json");
        let refused = |text: &str| {
            std::fs::write(&path, text).unwrap();
            let message = CalibrationFile::read(&path).unwrap_err().to_string();
            message.replace(&path.display().to_string(), "FILE")
        };
        assert!(refused("{}").starts_with("FILE: no calibration: missing field `schema`"));
        assert!(
            refused(r#"{"schema": "gradus.calibration/9"}"#).starts_with("FILE: schema \"gradus.calibration/9\" is")
        );
        let mut bad = calibration("openai:a");
        bad.cases.push(LabelledVerdict {
            trajectory_id: "t".to_owned(),
            step_index: None,
            judge_label: Some("fine".to_owned()),
            votes: None,
            truth: "correct".to_owned(),
            probability: 1.0,
        });
        let text = |bad: &JudgeCalibration| serde_json::to_string(&CalibrationFile::new(vec![bad.clone()])).unwrap();
        assert_eq!(refused(&text(&bad)), "FILE: the calibration of thought_to_tool: the rubric has no label \"fine\"");
        bad.cases[0].judge_label = None;
        bad.cases[0].probability = 0.0;
        assert!(refused(&text(&bad)).contains("probability 0"));
        bad.cases[0].probability = 0.5;
        bad.cases[0].votes = Some(VoteSplit { right: 3, answered: 2 });
        assert!(refused(&text(&bad)).contains("more votes for the best label than votes"));
        bad.cases[0].votes = Some(VoteSplit { right: 2, answered: 3 });
        CalibrationFile::new(vec![bad.clone()]).write(&path).unwrap();
        assert_eq!(CalibrationFile::read(&path).unwrap().calibrations, [bad]);
    }
}
