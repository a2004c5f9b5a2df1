//! Compares the results of versions: pairs their runs by task, and asks the statistics for verdicts.

use std::collections::{BTreeMap, BTreeSet};

use gradus_eval::evaluator::OUTCOME;
use gradus_eval::report::RunReader;
use gradus_eval::run::RunFileError;
use gradus_stats::comparison::{
    ComparedDimension, ComparisonError, ComparisonReport, ComparisonSamples, ComparisonSettings, ComparisonVerdict,
    DimensionComparison, EffectScale, VersionPairComparison, compare_versions,
};
use schemars::JsonSchema;
use serde::Serialize;

use super::compared_calibration::{ComparedCalibration, collect_calibrations, describe_uncalibrated};
use super::group_changes::{FailureGroupChange, find_group_changes};
use super::pairing_keys::{PairingKeys, version_letter};
use super::task_flips::{TaskFlips, add_flip_paths, find_task_flips};
use super::version_results::{RunValues, ScoredDimension, UNFLAGGED_PREFIX, VersionResults};
use crate::format_counted_noun;

/// The document that `gradus compare --json` writes.
#[derive(Clone, Debug, Serialize, JsonSchema)]
pub struct VersionComparison {
    /// In the order of the command line; A is the first.
    pub versions: Vec<ComparedVersion>,
    pub pairing: RunPairing,
    /// Changes of the task mix, as sentences. Read them before any number.
    pub task_mix: Vec<String>,
    /// Sentences about numbers that only some of the versions have.
    pub uncompared: Vec<String>,
    /// Letters of later versions whose runs have no steps at all, where the first version has some. Most likely their
    /// tracing is broken, and nothing about steps was compared.
    pub without_steps: Vec<String>,
    /// Dimensions that another rubric or another judge scored, for each pair of versions. Their difference can be one of
    /// the judges.
    pub mismatches: Vec<String>,
    /// Dimensions with the name that people read, in the order in which they are shown.
    pub dimensions: Vec<DimensionTitle>,
    pub report: ComparisonReport,
    /// Dimensions that a model judged: how far its errors are known, and the corrected numbers. Verdicts compare the raw
    /// ones.
    pub calibrations: Vec<ComparedCalibration>,
    /// Tasks whose scores changed, for each pair of versions.
    pub flips: Vec<TaskFlips>,
    /// What goes wrong more often or less often; empty if a version is a baseline.
    pub failure_groups: Vec<FailureGroupChange>,
}

/// What runs of different versions were paired by.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum RunPairing {
    /// The versions judged the same runs.
    Run,
    /// Dataset item, or request.
    Task,
    /// No task is in two versions.
    None,
}

impl RunPairing {
    /// A sentence for people.
    pub fn describe(self) -> &'static str {
        match self {
            RunPairing::Run => "Paired by run: the versions judged the same trajectories.",
            RunPairing::Task => "Paired by task: several runs of a task are averaged, and each task counts once.",
            RunPairing::None => "Not paired: the versions share no task.",
        }
    }
}

/// One version, under its letter.
#[derive(Clone, Debug, Serialize, JsonSchema)]
pub struct ComparedVersion {
    pub letter: String,
    pub name: String,
    pub run_id: String,
    pub judge: String,
    pub agent_versions: Vec<String>,
    pub is_complete: bool,
    pub tasks: u64,
    pub runs: u64,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, JsonSchema)]
pub struct DimensionTitle {
    pub name: String,
    pub title: String,
}

/// A quantity that the agent used, as a dimension where less is better.
#[derive(Clone, Copy)]
struct UsageDimension {
    name: &'static str,
    title: &'static str,
    value: fn(&RunValues) -> Option<f64>,
}

const USAGE_DIMENSIONS: [UsageDimension; 4] = [
    UsageDimension { name: "steps", title: "Steps", value: |run| run.steps.map(f64::from) },
    UsageDimension { name: "tokens", title: "Tokens", value: |run| run.tokens.map(|tokens| tokens as f64) },
    UsageDimension { name: "latency", title: "Latency (s)", value: |run| run.seconds },
    UsageDimension { name: "agent_cost", title: "Agent cost ($)", value: |run| run.cost_usd },
];

impl VersionComparison {
    /// Compares two or more versions.
    pub fn from_versions(
        versions: &[VersionResults],
        settings: &ComparisonSettings,
    ) -> Result<VersionComparison, ComparisonError> {
        let keys = PairingKeys::choose(versions);
        let scored = collect_dimensions(versions);
        let usage = USAGE_DIMENSIONS.iter().filter(|usage| is_used_everywhere(usage, versions));
        let usage: Vec<UsageDimension> = usage.copied().collect();
        let compared = scored.iter().map(|dimension| ComparedDimension::score(&dimension.name));
        let compared = compared.chain(usage.iter().map(|usage| ComparedDimension::amount(usage.name)));
        let letters: Vec<String> = (0..versions.len()).map(version_letter).collect();
        let mut samples = ComparisonSamples::new(compared.collect(), letters.clone());
        for (version, results) in versions.iter().enumerate() {
            let positions: Vec<Option<usize>> =
                scored.iter().map(|dimension| results.find_dimension(&dimension.name)).collect();
            for (key, task) in &results.tasks {
                for run in &task.runs {
                    let task = keys.task_name(results, key, run);
                    for (at, position) in positions.iter().enumerate() {
                        let Some(tally) = position.and_then(|position| run.scores[position]) else { continue };
                        let scale = scored[at].scale();
                        // Clamped, since rounding can put a mean slightly outside its scale.
                        let share = ((tally.mean() - scale.worst) / (scale.best - scale.worst)).clamp(0.0, 1.0);
                        samples.add_value(version, at, &task, share)?;
                    }
                    for (at, usage) in usage.iter().enumerate() {
                        let value = (usage.value)(run).filter(|value| value.is_finite() && *value >= 0.0);
                        if let Some(value) = value {
                            samples.add_value(version, scored.len() + at, &task, value)?;
                        }
                    }
                }
            }
        }
        let report = compare_versions(&samples, settings)?;
        let titles = scored.iter().map(|known| (known.name.clone(), known.title.clone()));
        let titles = titles.chain(usage.iter().map(|usage| (usage.name.to_owned(), usage.title.to_owned())));
        let is_paired = report.pairs.iter().flat_map(|pair| &pair.dimensions).any(|found| found.is_paired);
        Ok(VersionComparison {
            pairing: match is_paired {
                false => RunPairing::None,
                true if keys.by_trajectory => RunPairing::Run,
                true => RunPairing::Task,
            },
            versions: versions.iter().zip(letters).map(|(results, letter)| describe_version(results, letter)).collect(),
            task_mix: describe_task_mix(versions, &keys),
            uncompared: describe_uncompared(versions, &scored),
            without_steps: find_versions_without_steps(versions),
            mismatches: describe_mismatches(versions),
            dimensions: titles.map(|(name, title)| DimensionTitle { name, title }).collect(),
            report,
            calibrations: collect_calibrations(versions, &scored),
            flips: find_task_flips(versions, &scored, &keys),
            failure_groups: Vec::new(),
        })
    }

    /// Adds what only the runs know: the paths of the first flips, and failure groups. A version that is a baseline has
    /// no run to read.
    pub fn add_run_details(
        &mut self,
        versions: &[VersionResults],
        readers: &mut [Option<&mut RunReader>],
    ) -> Result<(), RunFileError> {
        add_flip_paths(&mut self.flips, readers)?;
        self.failure_groups = find_group_changes(versions, readers)?;
        Ok(())
    }

    /// Returns the caveats that a reader must know before the numbers, as sentences.
    pub fn notes(&self) -> impl Iterator<Item = String> + '_ {
        let mismatches = self.mismatches.iter().map(|mismatch| {
            format!("Not judged in the same way: {mismatch}. A difference there can be one of the judges.")
        });
        let without_steps = (!self.without_steps.is_empty()).then(|| {
            format!(
                "{} recorded no step, and A did: nothing about steps was compared, so --fail-on cannot decide. Check the \
                 tracing of the agent.",
                self.without_steps.join(", ")
            )
        });
        self.task_mix
            .iter()
            .cloned()
            .chain(without_steps)
            .chain(mismatches)
            .chain(self.uncompared.iter().cloned())
            .chain(describe_uncalibrated(&self.calibrations, |name| self.title(name)))
    }

    /// Whether no version ended early.
    pub fn is_complete(&self) -> bool {
        self.versions.iter().all(|version| version.is_complete)
    }

    /// Whether any two versions have a score in common, so that a regression could be seen.
    pub fn has_common_score(&self) -> bool {
        let mut all = self.report.pairs.iter().flat_map(|pair| &pair.dimensions);
        all.any(|found| found.scale == EffectScale::Share)
    }

    /// Returns the title of a dimension for people.
    pub fn title<'c>(&'c self, name: &'c str) -> &'c str {
        let known = self.dimensions.iter().find(|known| known.name == name);
        known.map_or(name, |known| if known.title.is_empty() { name } else { &known.title })
    }

    /// Whether a later version has a score that is worse than in an earlier one. Amounts such as steps and cost do
    /// not count: a more careful version needs more of them.
    pub fn has_regression(&self) -> bool {
        let all = self.report.pairs.iter().flat_map(|pair: &VersionPairComparison| &pair.dimensions);
        all.into_iter().any(|found: &DimensionComparison| {
            found.verdict == ComparisonVerdict::Worse && found.scale == EffectScale::Share
        })
    }
}

fn describe_version(results: &VersionResults, letter: String) -> ComparedVersion {
    let header = &results.header;
    ComparedVersion {
        letter,
        name: header.name.clone(),
        run_id: header.run_id.clone(),
        judge: header.judge.clone(),
        agent_versions: header.agent_versions.clone(),
        is_complete: header.is_complete,
        tasks: results.tasks.len() as u64,
        runs: results.run_count() as u64,
    }
}

/// All scored dimensions in order of appearance. Where scales differ, their union is used.
fn collect_dimensions(versions: &[VersionResults]) -> Vec<ScoredDimension> {
    let mut all: Vec<ScoredDimension> = Vec::new();
    for dimension in versions.iter().flat_map(|results| &results.header.dimensions) {
        match all.iter_mut().find(|known| known.name == dimension.name) {
            Some(known) => {
                let scale = known.scale().with(dimension.scale());
                (known.worst, known.best) = (scale.worst, scale.best);
            }
            None => all.push(dimension.clone()),
        }
    }
    // Rules that only notice mistakes are compared by what they did not flag, if all versions were judged by such rules.
    let is_everywhere = |name: &str| versions.iter().all(|results| results.find_dimension(name).is_some());
    all.retain(|dimension| match dimension.name.starts_with(UNFLAGGED_PREFIX) {
        true => is_everywhere(&dimension.name),
        false => !is_everywhere(&format!("{UNFLAGGED_PREFIX}{}", dimension.name)),
    });
    // The outcome of runs comes first.
    all.sort_by_key(|dimension| dimension.name != OUTCOME);
    // A rubric with a single score has no scale to compare on.
    all.retain(|dimension| dimension.best > dimension.worst);
    all
}

fn is_used_everywhere(usage: &UsageDimension, versions: &[VersionResults]) -> bool {
    versions.iter().all(|results| has_usage(usage, results))
}

fn has_usage(usage: &UsageDimension, results: &VersionResults) -> bool {
    let mut runs = results.tasks.values().flat_map(|task| &task.runs);
    runs.any(|run| (usage.value)(run).is_some_and(|value| value > 0.0))
}

/// Returns the letters of later versions without any steps, if the first version has steps. Trials that were not
/// graded have no step count.
fn find_versions_without_steps(versions: &[VersionResults]) -> Vec<String> {
    let most_steps =
        |results: &VersionResults| results.tasks.values().flat_map(|task| &task.runs).filter_map(|run| run.steps).max();
    if versions.first().and_then(most_steps).unwrap_or_default() == 0 {
        return Vec::new();
    }
    let lost = versions.iter().enumerate().filter(|(_, results)| most_steps(results) == Some(0));
    lost.map(|(at, _)| version_letter(at)).collect()
}

/// Describes numbers that only some of the versions have: regressions in them cannot be detected.
fn describe_uncompared(versions: &[VersionResults], scored: &[ScoredDimension]) -> Vec<String> {
    let has_score = |results: &VersionResults, name: &str| {
        let position = results.find_dimension(name);
        let mut runs = results.tasks.values().flat_map(|task| &task.runs);
        position.is_some_and(|position| runs.any(|run| run.scores[position].is_some()))
    };
    let letters = |has: &dyn Fn(&VersionResults) -> bool| -> Vec<String> {
        let lacking = versions.iter().enumerate().filter(|(_, results)| !has(results));
        lacking.map(|(at, _)| version_letter(at)).collect()
    };
    let scores = scored.iter().map(|dimension| {
        let title = if dimension.title.is_empty() { &dimension.name } else { &dimension.title };
        (title.as_str(), letters(&|results| has_score(results, &dimension.name)))
    });
    let usage = USAGE_DIMENSIONS.iter().map(|usage| (usage.title, letters(&|results| has_usage(usage, results))));
    let mut titles: BTreeMap<Vec<String>, Vec<&str>> = BTreeMap::new();
    for (title, lacking) in scores.chain(usage) {
        if !lacking.is_empty() && lacking.len() < versions.len() {
            titles.entry(lacking).or_default().push(title);
        }
    }
    let describe = |(lacking, titles): (Vec<String>, Vec<&str>)| {
        format!("{} has no value of {}: not compared.", lacking.join(", "), titles.join(", "))
    };
    let has_costs = versions
        .iter()
        .all(|results| results.tasks.values().flat_map(|task| &task.runs).any(|run| run.cost_usd.is_some()));
    let priced = versions.iter().enumerate().filter(|_| has_costs);
    let unknown = priced.filter_map(|(at, results)| describe_unpriced(at, results));
    titles.into_iter().map(describe).chain(unknown).collect()
}

/// Describes runs without a cost in a version where others have one: means of the cost leave them out.
fn describe_unpriced(at: usize, results: &VersionResults) -> Option<String> {
    let runs = || results.tasks.values().flat_map(|task| &task.runs);
    let unpriced = runs().filter(|run| run.cost_usd.is_none()).count();
    let all = results.run_count();
    (unpriced > 0 && unpriced < all).then(|| {
        let letter = version_letter(at);
        format!("The cost of {unpriced} of {all} runs of {letter} is not known: costs are those of the others.")
    })
}

/// Describes differences of the task mix: tasks that only some versions ran, and runs that ended early.
fn describe_task_mix(versions: &[VersionResults], keys: &PairingKeys) -> Vec<String> {
    let names = |results: &VersionResults| -> BTreeMap<String, usize> {
        let mut counts = BTreeMap::new();
        for (key, task) in &results.tasks {
            for run in &task.runs {
                *counts.entry(keys.task_name(results, key, run)).or_insert(0) += 1;
            }
        }
        counts
    };
    let all: Vec<BTreeMap<String, usize>> = versions.iter().map(names).collect();
    let mut notes = Vec::new();
    for (at, results) in versions.iter().enumerate() {
        if !results.header.is_complete {
            notes.push(format!("{} ended early: it has only a part of its runs.", version_letter(at)));
        }
    }
    for second in 1..all.len() {
        let is_same = |first: &VersionResults, other: &VersionResults| {
            !first.header.run_id.is_empty() && first.header.run_id == other.header.run_id && first.tasks == other.tasks
        };
        if let Some(first) = versions[..second].iter().position(|known| is_same(known, &versions[second])) {
            let (first, other) = (version_letter(first), version_letter(second));
            notes.push(format!("{first} and {other} are the same run, so nothing can differ."));
        }
        let (a, b) = (&all[0], &all[second]);
        let shared = a.keys().filter(|task| b.contains_key(*task)).count();
        let (first, other) = (version_letter(0), version_letter(second));
        if shared == 0 {
            notes.push(format!(
                "{first} and {other} share no task: they are compared as independent samples, and a difference can be \
                 one of the tasks."
            ));
            continue;
        }
        let (only_a, only_b) = (a.len() - shared, b.len() - shared);
        if only_a + only_b > 0 {
            notes.push(format!(
                "The task mix differs: {first} and {other} share {}, with {only_a} only in {first} and {only_b} only in {other}. \
                 Only shared tasks are compared.",
                format_counted_noun(shared as u64, "task", "tasks")
            ));
        }
        let trials = |counts: &BTreeMap<String, usize>| -> BTreeSet<usize> { counts.values().copied().collect() };
        if trials(a) != trials(b) {
            let mean = |counts: &BTreeMap<String, usize>| counts.values().sum::<usize>() as f64 / counts.len() as f64;
            notes.push(format!(
                "The number of trials differs: {:.1} per task in {first}, {:.1} in {other}. Each task counts once.",
                mean(a),
                mean(b)
            ));
        }
    }
    notes
}

/// Describes the mismatches of all pairs, with the letters of the versions.
fn describe_mismatches(versions: &[VersionResults]) -> Vec<String> {
    let mut found = Vec::new();
    for (at, first) in versions.iter().enumerate() {
        for (second_at, second) in versions.iter().enumerate().skip(at + 1) {
            let differences = find_mismatches(&first.header.dimensions, &second.header.dimensions);
            let (first, second) = (version_letter(at), version_letter(second_at));
            found.extend(differences.into_iter().map(|difference| format!("{first} and {second}: {difference}")));
        }
    }
    found
}

/// Dimensions that two versions cannot be compared on, because another rubric or another judge scored them.
pub fn find_mismatches(first: &[ScoredDimension], second: &[ScoredDimension]) -> Vec<String> {
    let mut found = Vec::new();
    // The share that rules did not flag is derived from the dimension itself.
    for dimension in first.iter().filter(|dimension| !dimension.name.starts_with(UNFLAGGED_PREFIX)) {
        let Some(other) = second.iter().find(|other| other.name == dimension.name) else { continue };
        if dimension.judge != other.judge {
            found.push(format!("{}: judged by {} and by {}", dimension.name, dimension.judge, other.judge));
        } else if dimension.rubric_hash != other.rubric_hash {
            found.push(format!("{}: the rubric or the rules changed", dimension.name));
        }
    }
    found
}
