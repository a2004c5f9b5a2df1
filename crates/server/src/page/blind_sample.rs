//! A random sample of verdicts for labelling, without the verdicts. The sample is an order of the verdicts that one
//! judge gave before a cutoff time on trajectories that began before it, so that everybody labels the same cases and
//! can continue later.

use std::collections::{BTreeMap, HashSet};
use std::fmt;
use std::str::FromStr;

use gradus_eval::calibration::{CasePopulation, JudgedCase, LabelDraw, LabelSampling, PopulationDigest};
use gradus_eval::run::EvaluatorRecord;
use gradus_store::{JudgedCaseRow, LabelRow, MetricFilter, ReviewItem, ReviewPosition};
use serde_json::json;

use crate::clock::now_ns;
use crate::http_error::ApiError;
use crate::live_calibration::{find_live_evaluators, is_case_judged_by};
use crate::signature;
use crate::state::ServerState;
use crate::time_text::format_rfc3339;

/// Maximum number of labels that are searched for those of a sample; the latest ones.
pub(super) const MAX_SAMPLE_LABELS: usize = 10_000;
/// The label of a person who cannot decide.
pub(super) const UNDECIDED_LABEL: &str = "undecided";

/// Identifies a sample of the verdicts of an evaluator. Its text is in addresses and forms: `uniform-0-1763370000`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct SampleDraw {
    pub(super) sampling: LabelSampling,
    pub(super) seed: u64,
    /// The population: verdicts that were stored before this second.
    pub(super) until_s: i64,
}

impl fmt::Display for SampleDraw {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}-{}-{}", sampling_name(self.sampling), self.seed, self.until_s)
    }
}

impl FromStr for SampleDraw {
    type Err = ();

    fn from_str(text: &str) -> Result<SampleDraw, ()> {
        let mut parts = text.splitn(3, '-');
        let sampling = match parts.next() {
            Some("uniform") => LabelSampling::Uniform,
            Some("stratified") => LabelSampling::Stratified,
            _ => return Err(()),
        };
        let seed = parts.next().and_then(|seed| seed.parse().ok()).ok_or(())?;
        // The time in nanoseconds must fit in an `i64`.
        let until_s = parts.next().and_then(|until| until.parse().ok()).filter(|until| (0..1 << 33).contains(until));
        Ok(SampleDraw { sampling, seed, until_s: until_s.ok_or(())? })
    }
}

fn sampling_name(sampling: LabelSampling) -> &'static str {
    match sampling {
        LabelSampling::Stratified => "stratified",
        _ => "uniform",
    }
}

/// Reads the draw of a label; `None` for labels outside of a sample.
fn read_label_draw(row: &LabelRow) -> Option<SampleDraw> {
    let (metadata, _) = signature::split_signed_metadata(&row.metadata);
    metadata.get("sample")?.get("draw")?.as_str()?.parse().ok()
}

/// Reads the project of a draw; empty for all projects.
fn read_label_project(row: &LabelRow) -> Option<String> {
    let (metadata, _) = signature::split_signed_metadata(&row.metadata);
    Some(metadata.get("sample")?.get("project")?.as_str()?.to_owned())
}

/// Returns the draw that was labelled last, so that people continue it; else a new one with the cutoff time now.
pub(super) fn choose_sample_draw(
    labels: &[LabelRow],
    evaluator: &str,
    project: Option<&str>,
    sampling: LabelSampling,
    now_s: i64,
) -> SampleDraw {
    let same = labels.iter().filter(|row| row.evaluator == evaluator);
    let same = same.filter(|row| read_label_project(row).as_deref() == Some(project.unwrap_or_default()));
    let known = same.filter_map(read_label_draw).find(|draw| draw.sampling == sampling);
    known.unwrap_or(SampleDraw { sampling, seed: 0, until_s: now_s })
}

/// A sample with its population.
pub(super) struct BlindSample {
    draw: SampleDraw,
    project: String,
    pub(super) evaluator: EvaluatorRecord,
    rows: Vec<JudgedCaseRow>,
    population: CasePopulation,
    order: LabelDraw,
}

impl BlindSample {
    /// Reads the population. The error says why nothing can be drawn.
    pub(super) fn load(
        server: &ServerState,
        evaluator: &str,
        project: Option<&str>,
        draw: SampleDraw,
    ) -> Result<BlindSample, ApiError> {
        let mut known = find_live_evaluators(&server.reloadable().rules, evaluator, project);
        let (Some(record), true) = (known.pop(), known.is_empty()) else {
            return Err(ApiError::bad_request(format!(
                "{evaluator}: a sample is of the verdicts of one judge; choose a project that one grading rule judges"
            )));
        };
        if draw.until_s > now_ns() / 1_000_000_000 {
            return Err(ApiError::bad_request("draw: it ends in the future"));
        }
        let until_ns = draw.until_s.saturating_mul(1_000_000_000);
        // Trajectories that began later would displace older ones in the bounded query.
        let filter =
            MetricFilter { project: project.map(str::to_owned), to_ns: Some(until_ns), ..MetricFilter::default() };
        let (mut rows, mut digest, mut population) =
            (Vec::new(), PopulationDigest::default(), CasePopulation::default());
        let mut last = None;
        server.store.visit_judged_cases(&filter, evaluator, until_ns, |row| {
            if !is_case_judged_by(&record, &row) {
                return;
            }
            if last != Some(row.trajectory) {
                digest.add(&row.trajectory_id);
                population.trajectories += 1;
                last = Some(row.trajectory);
            }
            match &row.label {
                Some(label) => {
                    population.cases.push(JudgedCase {
                        trajectory_id: row.trajectory_id.clone(),
                        step_index: row.step,
                        label: label.clone(),
                        uncertainty: None,
                        votes: None,
                    });
                    // The outcome itself may be long, and is read again for the one that is shown.
                    rows.push(JudgedCaseRow { line: String::new(), ..row });
                }
                None => population.not_judged += 1,
            }
        })?;
        population.digest = digest.to_text();
        let order = LabelDraw::new(&population, draw.sampling, draw.seed)
            .map_err(|error| ApiError::bad_request(error.to_string()))?;
        let project = project.unwrap_or_default().to_owned();
        Ok(BlindSample { draw, project, evaluator: record, rows, population, order })
    }

    pub(super) fn len(&self) -> usize {
        self.rows.len()
    }

    pub(super) fn draw(&self) -> SampleDraw {
        self.draw
    }

    /// Returns the cases that this person has labelled in this sample.
    pub(super) fn labelled_by(&self, labels: &[LabelRow], identifier: &str) -> HashSet<(String, Option<u32>)> {
        let own = labels.iter().filter(|row| row.identifier == identifier && row.evaluator == self.evaluator.name);
        let own = own.filter(|row| read_label_draw(row) == Some(self.draw));
        own.map(|row| (row.trajectory_id.clone(), row.step)).collect()
    }

    /// Returns the position of the first case from `from` on that is not in `labelled`.
    pub(super) fn next_position(&self, labelled: &HashSet<(String, Option<u32>)>, from: usize) -> Option<usize> {
        let is_open = |position: &usize| {
            let row = &self.rows[self.order.order()[*position]];
            !labelled.contains(&(row.trajectory_id.clone(), row.step))
        };
        (from..self.len()).find(is_open)
    }

    /// Returns the case at a position of the draw.
    pub(super) fn item_at(&self, position: usize) -> Option<ReviewItem> {
        let row = &self.rows[*self.order.order().get(position)?];
        let place = ReviewPosition {
            start_ns: row.start_ns,
            trajectory: row.trajectory,
            step: row.step.unwrap_or(0),
            evaluator: self.evaluator.name.clone(),
        };
        Some(ReviewItem { place, trajectory_id: row.trajectory_id.clone(), trace_id: row.trace_id })
    }

    /// Finds the position of a case in the draw.
    pub(super) fn find_position(&self, trajectory_id: &str, step: Option<u32>) -> Option<usize> {
        let is_it = |at: &usize| self.rows[*at].trajectory_id == trajectory_id && self.rows[*at].step == step;
        self.order.order().iter().position(is_it)
    }

    /// Describes how a case was drawn, for the metadata of its label. `gradus judge calibrate` needs nothing else.
    pub(super) fn describe_case(&self, position: usize, is_blind: bool) -> serde_json::Value {
        let mut by_label: BTreeMap<&str, u64> = BTreeMap::new();
        for case in &self.population.cases {
            *by_label.entry(&case.label).or_default() += 1;
        }
        json!({
            "draw": self.draw.to_string(),
            "sampling": sampling_name(self.draw.sampling),
            "seed": self.draw.seed,
            "until": format_rfc3339(self.draw.until_s.saturating_mul(1_000_000_000)),
            "project": self.project,
            "position": position,
            // The probability of being among the cases up to this one. It grows with every further label.
            "probability": self.order.probabilities(position + 1).last(),
            "is_blind": is_blind,
            "labels": self.evaluator.labels,
            "population": {
                "digest": self.population.digest,
                "trajectories": self.population.trajectories,
                "judged": self.population.cases.len(),
                "not_judged": self.population.not_judged,
                "by_label": by_label,
            },
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn draws_are_text_in_addresses() {
        let draw = SampleDraw { sampling: LabelSampling::Stratified, seed: 7, until_s: 1_763_370_000 };
        assert_eq!(draw.to_string(), "stratified-7-1763370000");
        assert_eq!(draw.to_string().parse(), Ok(draw));
        for wrong in
            ["", "uniform", "uniform-0", "active-0-5", "uniform-x-5", "uniform-0--5", "uniform-0-99999999999999"]
        {
            assert_eq!(wrong.parse::<SampleDraw>(), Err(()), "{wrong}");
        }
    }
}
