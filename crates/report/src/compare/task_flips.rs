//! Tasks whose scores differ between two versions, largest change first.

use std::collections::{BTreeMap, HashMap, HashSet};

use gradus_core::trajectory::Trajectory;
use gradus_eval::outcome::OutcomeLine;
use gradus_eval::report::RunReader;
use gradus_eval::run::{RunFileError, RunManifest};
use schemars::JsonSchema;
use serde::Serialize;

use super::pairing_keys::{PairingKeys, version_letter};
use super::version_results::{RunValues, ScoredDimension, VersionResults};

/// Maximum number of listed flips in each direction for a pair of versions; all are counted.
const MAX_FLIPS: usize = 50;

/// The flips of a pair of versions.
#[derive(Clone, Debug, PartialEq, Serialize, JsonSchema)]
pub struct TaskFlips {
    pub first: String,
    pub second: String,
    pub worse_count: u64,
    pub better_count: u64,
    /// Worse in the second version.
    pub worse: Vec<TaskFlip>,
    pub better: Vec<TaskFlip>,
}

/// A task whose mean score changed in one dimension.
#[derive(Clone, Debug, PartialEq, Serialize, JsonSchema)]
pub struct TaskFlip {
    pub dimension: String,
    /// The id of the item, or a digest of the request.
    pub task: String,
    /// The beginning of the request; null if a baseline without content is compared.
    pub request: Option<String>,
    /// Mean scores over the runs of the task, on the scale of the dimension.
    pub before: f64,
    pub after: f64,
    /// The best run of the first version and the worst of the second one, or the other way round for `better`. Empty
    /// if a baseline does not name its runs.
    pub before_trajectory: String,
    pub after_trajectory: String,
    /// The tools that these runs called, with wrong steps marked. Null for a baseline, and for flips beyond the first.
    pub before_path: Option<String>,
    pub after_path: Option<String>,
}

/// Maximum number of flips in each direction whose paths are shown.
pub const MAX_SHOWN_PATHS: usize = 10;
/// Maximum number of steps of a path; the rest is counted.
const MAX_PATH_STEPS: usize = 20;

/// The runs of one task in one version.
#[derive(Default)]
struct TaskRunList<'v> {
    request: Option<&'v str>,
    runs: Vec<&'v RunValues>,
}

/// Finds the flips of all pairs, in the order of the pairs.
pub(super) fn find_task_flips(
    versions: &[VersionResults],
    dimensions: &[ScoredDimension],
    keys: &PairingKeys,
) -> Vec<TaskFlips> {
    let by_task: Vec<BTreeMap<String, TaskRunList<'_>>> =
        versions.iter().map(|results| group_by_task(results, keys)).collect();
    let mut all = Vec::new();
    for first in 0..versions.len() {
        for second in first + 1..versions.len() {
            let mut worse: Vec<TaskFlip> = Vec::new();
            let mut better: Vec<TaskFlip> = Vec::new();
            let mut counts = (0, 0);
            for dimension in dimensions {
                let (Some(old), Some(new)) =
                    (versions[first].find_dimension(&dimension.name), versions[second].find_dimension(&dimension.name))
                else {
                    continue;
                };
                for (task, before) in &by_task[first] {
                    let Some(after) = by_task[second].get(task) else { continue };
                    let flip = compare_task(dimension, task, (before, old), (after, new));
                    match flip {
                        Some(flip) if flip.after < flip.before => add_flip(&mut worse, &mut counts.0, flip),
                        Some(flip) => add_flip(&mut better, &mut counts.1, flip),
                        None => {}
                    }
                }
            }
            keep_largest(&mut worse);
            keep_largest(&mut better);
            all.push(TaskFlips {
                first: version_letter(first),
                second: version_letter(second),
                worse_count: counts.0,
                better_count: counts.1,
                worse,
                better,
            });
        }
    }
    all
}

fn group_by_task<'v>(results: &'v VersionResults, keys: &PairingKeys) -> BTreeMap<String, TaskRunList<'v>> {
    let mut tasks: BTreeMap<String, TaskRunList<'v>> = BTreeMap::new();
    for (key, task) in &results.tasks {
        for run in &task.runs {
            let list = tasks.entry(keys.task_name(results, key, run)).or_default();
            list.request = task.request.as_deref();
            list.runs.push(run);
        }
    }
    tasks
}

/// `None` if the means are equal, or if a version has no score. Means over runs are compared as fractions of integers
/// where possible, so that equal shares are equal.
fn compare_task(
    dimension: &ScoredDimension,
    task: &str,
    (before, old): (&TaskRunList<'_>, usize),
    (after, new): (&TaskRunList<'_>, usize),
) -> Option<TaskFlip> {
    let mean_before = mean_score(before, old)?;
    let mean_after = mean_score(after, new)?;
    // Rounding errors of means of a few hundred trials are far below this.
    if (mean_after - mean_before).abs() < 1e-9 {
        return None;
    }
    let is_worse = mean_after < mean_before;
    Some(TaskFlip {
        dimension: dimension.name.clone(),
        task: task.to_owned(),
        request: after.request.or(before.request).map(str::to_owned),
        before: mean_before,
        after: mean_after,
        before_trajectory: find_extreme_run(before, old, is_worse),
        after_trajectory: find_extreme_run(after, new, !is_worse),
        before_path: None,
        after_path: None,
    })
}

fn mean_score(task: &TaskRunList<'_>, dimension: usize) -> Option<f64> {
    let means: Vec<f64> = task.runs.iter().filter_map(|run| Some(run.scores[dimension]?.mean())).collect();
    (!means.is_empty()).then(|| means.iter().sum::<f64>() / means.len() as f64)
}

/// Returns the id of the run with the highest or the lowest score.
fn find_extreme_run(task: &TaskRunList<'_>, dimension: usize, is_highest: bool) -> String {
    let scored = task.runs.iter().filter_map(|run| Some((run.scores[dimension]?.mean(), run)));
    let compare = |one: &(f64, &&RunValues), other: &(f64, &&RunValues)| one.0.total_cmp(&other.0);
    let found = if is_highest { scored.max_by(compare) } else { scored.min_by(compare) };
    found.map(|(_, run)| run.trajectory_id.clone()).unwrap_or_default()
}

/// Adds a flip. All are counted; only the largest stay in memory.
fn add_flip(flips: &mut Vec<TaskFlip>, count: &mut u64, flip: TaskFlip) {
    *count += 1;
    flips.push(flip);
    if flips.len() >= 20 * MAX_FLIPS {
        keep_largest(flips);
    }
}

fn keep_largest(flips: &mut Vec<TaskFlip>) {
    let size = |flip: &TaskFlip| (flip.after - flip.before).abs();
    flips.sort_by(|one, other| {
        size(other)
            .total_cmp(&size(one))
            .then_with(|| one.dimension.cmp(&other.dimension))
            .then_with(|| one.task.cmp(&other.task))
    });
    flips.truncate(MAX_FLIPS);
}

/// Adds the paths of the first flips, from the runs of each version. A version that is a baseline has no run to read.
pub(super) fn add_flip_paths(
    flips: &mut [TaskFlips],
    readers: &mut [Option<&mut RunReader>],
) -> Result<(), RunFileError> {
    let mut paths: Vec<HashMap<String, String>> = Vec::new();
    for (at, reader) in readers.iter_mut().enumerate() {
        let letter = version_letter(at);
        let shown = flips.iter().flat_map(|pair| {
            let both = [&pair.worse, &pair.better];
            let flips = both.into_iter().flat_map(|list| list.iter().take(MAX_SHOWN_PATHS));
            let first = flips.clone().map(|flip| &flip.before_trajectory).filter(|_| pair.first == letter);
            let second = flips.map(|flip| &flip.after_trajectory).filter(|_| pair.second == letter);
            first.chain(second).cloned().collect::<Vec<_>>()
        });
        let ids: HashSet<String> = shown.filter(|id| !id.is_empty()).collect();
        let mut found = HashMap::new();
        if let Some(reader) = reader {
            let manifest = reader.record.clone();
            reader.visit_selected(&ids, |trajectory, outcomes| {
                found.insert(trajectory.trajectory_id.clone(), describe_path(&manifest, trajectory, outcomes));
            })?;
        }
        paths.push(found);
    }
    let find = |letter: &str, id: &str| {
        let at = (0..paths.len()).find(|at| version_letter(*at) == letter)?;
        paths[at].get(id).cloned()
    };
    for pair in flips {
        for flip in pair.worse.iter_mut().chain(&mut pair.better) {
            flip.before_path = find(&pair.first, &flip.before_trajectory);
            flip.after_path = find(&pair.second, &flip.after_trajectory);
        }
    }
    Ok(())
}

fn describe_path(manifest: &RunManifest, trajectory: &Trajectory, outcomes: &[OutcomeLine]) -> String {
    describe_tool_path(trajectory, |index| {
        outcomes.iter().filter(|outcome| outcome.step_index == Some(index)).any(|outcome| {
            let evaluator = manifest.evaluators.iter().find(|known| *known.name == *outcome.evaluator);
            evaluator.zip(outcome.score).is_some_and(|(known, score)| known.scale().is_wrong(score))
        })
    })
}

/// `search → cancel ✗ → answer`: the called tools, with a mark where a verdict is below its best label.
pub fn describe_tool_path(trajectory: &Trajectory, is_wrong: impl Fn(u32) -> bool) -> String {
    let mut parts: Vec<String> = Vec::new();
    for step in trajectory.steps.iter().take(MAX_PATH_STEPS) {
        let mark = if is_wrong(step.index) { " ✗" } else { "" };
        parts.push(format!("{}{mark}", step.tool));
    }
    let more = trajectory.steps.len().saturating_sub(MAX_PATH_STEPS);
    if more > 0 {
        parts.push(format!("{more} more"));
    }
    let has_answer = trajectory.final_answer.as_deref().is_some_and(|answer| !answer.trim().is_empty());
    parts.push(if has_answer { "answer" } else { "no answer" }.to_owned());
    parts.join(" → ")
}
