//! Corrects the scores of live traffic by calibrations of the judge: `calibration` in `[serve]` names their files.

use std::path::PathBuf;

use gradus_eval::calibration::{CalibrationFile, CalibrationFileError, JudgedPopulation, RunJudge};
use gradus_eval::report::MetricCalibration;
use gradus_eval::run::EvaluatorRecord;
use gradus_store::{JudgedCaseRow, MetricFilter, Store, StoreError};
use serde::Deserialize;

use crate::grading_rule::GradingRule;

/// The calibrations of all files.
#[derive(Debug)]
pub(crate) struct LiveCalibrations(CalibrationFile);

impl Default for LiveCalibrations {
    fn default() -> LiveCalibrations {
        LiveCalibrations(CalibrationFile::new(Vec::new()))
    }
}

/// The judge and the rubric that a stored outcome names.
#[derive(Deserialize)]
struct OutcomeJudge<'l> {
    #[serde(borrow)]
    judge: std::borrow::Cow<'l, str>,
    #[serde(borrow, default)]
    rubric_hash: std::borrow::Cow<'l, str>,
}

/// Whether an outcome comes from this judge and rubric. Older outcomes may come from another configuration.
pub(crate) fn is_case_judged_by(evaluator: &EvaluatorRecord, row: &JudgedCaseRow) -> bool {
    serde_json::from_str::<OutcomeJudge<'_>>(&row.line)
        .is_ok_and(|given| given.judge == evaluator.judge && given.rubric_hash == evaluator.rubric_hash)
}

/// Finds the evaluators of grading rules with this name: one for each judge and rubric. A project is graded by the
/// first rule that matches it.
pub(crate) fn find_live_evaluators(
    rules: &[GradingRule],
    evaluator: &str,
    project: Option<&str>,
) -> Vec<EvaluatorRecord> {
    let mut found: Vec<EvaluatorRecord> = Vec::new();
    let rules = match project {
        Some(project) => {
            let first = rules.iter().find(|rule| rule.matches_project(project));
            first.map_or(&[][..], std::slice::from_ref)
        }
        None => rules,
    };
    for known in rules.iter().flat_map(|rule| &rule.evaluators).filter(|known| &*known.name == evaluator) {
        let is_same = |other: &EvaluatorRecord| other.judge == *known.judge && other.rubric_hash == *known.hash;
        if !found.iter().any(is_same) {
            found.push(known.to_record());
        }
    }
    found
}

impl LiveCalibrations {
    /// Reads all files, each of which must be a calibration. Of two for the same evaluator and judge the later one
    /// counts.
    pub(crate) fn load(paths: &[PathBuf]) -> Result<LiveCalibrations, CalibrationFileError> {
        let mut all = LiveCalibrations::default();
        for path in paths {
            for calibration in CalibrationFile::read(path)?.calibrations {
                all.0.add(calibration);
            }
        }
        Ok(all)
    }

    /// Corrects the score of an evaluator by its calibration. `None` if rules give the score. The estimator depends
    /// on whether the trajectories are the labelled ones or another population.
    pub(crate) fn correct_score(
        &self,
        rules: &[GradingRule],
        store: &Store,
        evaluator: &str,
        filter: &MetricFilter,
    ) -> Result<Option<MetricCalibration>, StoreError> {
        let mut judges = find_live_evaluators(rules, evaluator, filter.project.as_deref());
        judges.retain(|known| MetricCalibration::for_judge(&known.judge).is_some());
        let record = match judges.as_slice() {
            [] => return Ok(None),
            [one] => one,
            several => {
                let is_known = self.0.calibrations.iter().any(|known| known.evaluator == evaluator);
                let names: Vec<&str> = several.iter().map(|one| one.judge.as_str()).collect();
                let reason = format!("several judges or rubrics answer it ({}); choose a project", names.join(", "));
                return Ok(Some(match is_known {
                    true => MetricCalibration::NotApplied { reason },
                    false => MetricCalibration::Uncalibrated,
                }));
            }
        };
        let calibration = match self.0.find(record, RunJudge::default(), jiff::Timestamp::now()) {
            None => return Ok(Some(MetricCalibration::Uncalibrated)),
            Some(Err(mismatch)) => return Ok(Some(MetricCalibration::NotApplied { reason: mismatch.to_string() })),
            Some(Ok(calibration)) => calibration,
        };
        let mut population = JudgedPopulation::by_labels(std::slice::from_ref(record));
        let (mut labels, mut other_count) = (Vec::<(String, Vec<String>)>::new(), 0_u64);
        let is_cut = store.visit_judged_cases(filter, evaluator, i64::MAX, |row| {
            if !is_case_judged_by(record, &row) {
                other_count += u64::from(row.label.is_some());
                return;
            }
            // A trajectory without a verdict belongs to the population, too.
            match labels.last_mut() {
                Some((id, labels)) if *id == row.trajectory_id => labels.extend(row.label),
                _ => labels.push((row.trajectory_id, row.label.into_iter().collect())),
            }
        })?;
        for (trajectory_id, labels) in &labels {
            population.add_labels(trajectory_id, labels.iter().map(|label| (0, label.as_str())));
        }
        // The correction of a part of the verdicts would not match the raw score beside it.
        if is_cut {
            return Ok(Some(MetricCalibration::NotApplied {
                reason: "the range has too many trajectories; choose a shorter one".to_owned(),
            }));
        }
        if other_count > 0 {
            return Ok(Some(MetricCalibration::NotApplied {
                reason: format!("{other_count} verdicts of the range are of another judge or rubric"),
            }));
        }
        Ok(Some(population.correct(0, calibration)))
    }
}
