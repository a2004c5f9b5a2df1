//! Compares the failure groups of versions: which errors became more frequent, and which disappeared.

use std::collections::{BTreeMap, HashSet};
use std::ops::ControlFlow;

use gradus_core::text_signature::TextSignature;
use gradus_eval::outcome::OutcomeLine;
use gradus_eval::report::{FailureGroup, FailureGroupBuilder, RunReader};
use gradus_eval::run::{RunFileError, RunManifest};
use schemars::JsonSchema;
use serde::Serialize;

use super::version_results::VersionResults;

/// Maximum number of groups in a comparison.
const MAX_GROUP_CHANGES: usize = 50;

/// A failure group in all versions.
#[derive(Clone, Debug, PartialEq, Serialize, JsonSchema)]
pub struct FailureGroupChange {
    /// Stable from run to run.
    pub key: String,
    pub evaluator: String,
    pub tool: Option<String>,
    /// The reason, with values replaced by their kind.
    pub reason: String,
    /// Runs of each version in which it occurs, and their share.
    pub runs: Vec<u64>,
    pub shares: Vec<f64>,
}

/// Groups the wrong verdicts of each version. Empty if one of them is a baseline, which has no verdicts.
pub(super) fn find_group_changes(
    versions: &[VersionResults],
    readers: &mut [Option<&mut RunReader>],
) -> Result<Vec<FailureGroupChange>, RunFileError> {
    let count = readers.len();
    let mut changes: BTreeMap<String, FailureGroupChange> = BTreeMap::new();
    for (version, reader) in readers.iter_mut().enumerate() {
        let Some(reader) = reader else { return Ok(Vec::new()) };
        // A version may be only a part of its run.
        let runs = versions[version].tasks.values().flat_map(|task| &task.runs);
        let selected: HashSet<&str> = runs.map(|run| run.trajectory_id.as_str()).collect();
        let (all, groups) = (selected.len() as u64, group_failures(reader, &selected)?);
        for group in groups {
            let key = find_matching_group_key(&changes, &group).unwrap_or_else(|| group.key.clone());
            let change = changes.entry(key).or_insert_with(|| FailureGroupChange {
                key: group.key,
                evaluator: group.evaluator,
                tool: group.tool,
                reason: group.reason,
                runs: vec![0; count],
                shares: vec![0.0; count],
            });
            change.runs[version] += group.trajectories;
            change.shares[version] = change.runs[version] as f64 / all.max(1) as f64;
        }
    }
    let mut changes: Vec<FailureGroupChange> = changes.into_values().filter(|change| change.spread() > 0.0).collect();
    changes.sort_by(|one, other| other.spread().total_cmp(&one.spread()).then_with(|| one.key.cmp(&other.key)));
    changes.truncate(MAX_GROUP_CHANGES);
    Ok(changes)
}

/// Returns the key under which another version has the same group: its own, or that of a similar reason in other
/// words.
fn find_matching_group_key(changes: &BTreeMap<String, FailureGroupChange>, group: &FailureGroup) -> Option<String> {
    if changes.contains_key(&group.key) || group.rule.is_some() {
        return None;
    }
    let signature = |reason: &str| TextSignature::from_text(&reason.to_lowercase());
    let own = signature(&group.reason);
    let is_same = |change: &&FailureGroupChange| {
        change.evaluator == group.evaluator && change.tool == group.tool && signature(&change.reason).is_similar(&own)
    };
    changes.values().find(is_same).map(|change| change.key.clone())
}

impl FailureGroupChange {
    /// Returns the largest difference of shares between two versions.
    pub fn spread(&self) -> f64 {
        let largest = self.shares.iter().copied().fold(0.0, f64::max);
        largest - self.shares.iter().copied().fold(f64::INFINITY, f64::min)
    }
}

/// Groups the wrong verdicts of the selected runs. Only runs with a wrong verdict are read in full.
fn group_failures(reader: &mut RunReader, selected: &HashSet<&str>) -> Result<Vec<FailureGroup>, RunFileError> {
    let manifest = reader.record.clone();
    let mut wrong: HashSet<String> = HashSet::new();
    reader.visit_verdicts(|head, verdicts| {
        let is_wrong = |evaluator: usize, score: Option<f64>| {
            manifest.evaluators.get(evaluator).zip(score).is_some_and(|(known, score)| known.scale().is_wrong(score))
        };
        if selected.contains(&*head.trajectory_id)
            && verdicts.iter().any(|verdict| is_wrong(verdict.evaluator, verdict.score))
        {
            wrong.insert(head.trajectory_id.clone().into_owned());
        }
        ControlFlow::Continue(())
    })?;
    let mut builder = FailureGroupBuilder::default();
    reader.visit_selected(&wrong, |trajectory, outcomes| {
        builder.add(trajectory, outcomes.iter().filter(|outcome| is_wrong_outcome(&manifest, outcome)));
    })?;
    Ok(builder.finish())
}

fn is_wrong_outcome(manifest: &RunManifest, outcome: &OutcomeLine) -> bool {
    let known = manifest.evaluators.iter().find(|known| *known.name == *outcome.evaluator);
    known.zip(outcome.score).is_some_and(|(known, score)| known.scale().is_wrong(score))
}
