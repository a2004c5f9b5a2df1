//! Compares two versions, models or agents by their stored trajectories, with the code of `gradus compare`.

use std::borrow::Cow;
use std::collections::HashMap;

use gradus_core::trajectory::{TokenUsage, Trajectory};
use gradus_eval::outcome::{OutcomeKind, OutcomeLine};
use gradus_eval::report::{ItemCount, JudgedHead, VerdictHead};
use gradus_eval::run::EvaluatorRecord;
use gradus_report::compare::{
    FailureGroupChange, MAX_SHOWN_PATHS, TaskFlip, VersionComparison, VersionHeader, VersionResults,
    VersionResultsBuilder, describe_tool_path,
};
use gradus_report::html::number::format_count;
use gradus_store::{ComparedRunRow, ComparedRuns, MetricFilter, NameKind, RecordedKind, Store};

use crate::evaluators::{find_evaluator_labels, find_evaluator_title};
use crate::http_error::ApiError;
use crate::run_comparison::comparison_settings;
use crate::settings::ReloadableSettings;
use crate::state::ServerState;
use crate::time_text::format_rfc3339;

/// Maximum number of trajectories that are compared on each side; the latest.
pub(crate) const MAX_COMPARED_RUNS: usize = 1_000;
/// Maximum number of listed failure groups.
const MAX_GROUP_CHANGES: usize = 50;

/// The kind of names that are compared.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ComparedName {
    Version,
    Model,
    Agent,
}

impl ComparedName {
    pub(crate) const ALL: [ComparedName; 3] = [ComparedName::Version, ComparedName::Model, ComparedName::Agent];

    /// The value of the parameter `by`. `None` for unknown values.
    pub(crate) fn parse(text: &str) -> Option<ComparedName> {
        ComparedName::ALL.into_iter().find(|name| name.noun() == text)
    }

    /// `version`, `model` or `agent`.
    pub(crate) fn noun(self) -> &'static str {
        match self {
            ComparedName::Version => "version",
            ComparedName::Model => "model",
            ComparedName::Agent => "agent",
        }
    }

    pub(crate) fn kind(self) -> NameKind {
        match self {
            ComparedName::Version => NameKind::Version,
            ComparedName::Model => NameKind::Model,
            ComparedName::Agent => NameKind::Agent,
        }
    }

    /// Narrows a filter to this name.
    fn select(self, filter: &MetricFilter, name: &str) -> MetricFilter {
        let mut filter = filter.clone();
        match self {
            ComparedName::Version => filter.version = Some(name.to_owned()),
            ComparedName::Model => filter.model = Some(name.to_owned()),
            ComparedName::Agent => filter.agent = Some(name.to_owned()),
        }
        filter
    }
}

/// Compares the latest trajectories of two names, A (before) and B (after). 400 without two different names, 404 if
/// there are no trajectories of one of them.
pub(crate) fn compare_live(
    server: &ServerState,
    by: ComparedName,
    names: [&str; 2],
    filter: &MetricFilter,
) -> Result<VersionComparison, ApiError> {
    let noun = by.noun();
    if names.iter().any(|name| name.is_empty()) || names[0] == names[1] {
        return Err(ApiError::bad_request(format!("Choose two {noun}s to compare, A and B.")));
    }
    let settings = server.reloadable();
    let mut read = Vec::with_capacity(2);
    let mut results = Vec::with_capacity(2);
    for name in names {
        let runs = server.store.compared_runs(&by.select(filter, name), MAX_COMPARED_RUNS)?;
        if runs.runs.is_empty() {
            return Err(ApiError::not_found(format!("There are no stored runs of {noun} {name} in this time range.")));
        }
        results.push(collect_results(&settings, format!("{noun} {name}"), &runs));
        read.push(runs);
    }
    let compared = VersionComparison::from_versions(&results, &comparison_settings());
    let mut comparison = compared.map_err(|error| ApiError::bad_request(error.to_string()))?;
    let cut = read.iter().zip(["A", "B"]).filter(|(runs, _)| runs.is_cut).map(|(_, letter)| letter);
    let cut: Vec<&str> = cut.collect();
    if !cut.is_empty() {
        let most = format_count(MAX_COMPARED_RUNS as u64);
        comparison.task_mix.push(format!("Only the latest {most} runs are compared of {}.", cut.join(" and ")));
    }
    add_stored_paths(&server.store, &mut comparison)?;
    comparison.failure_groups = find_group_changes(&server.store, &read)?;
    Ok(comparison)
}

fn collect_results(settings: &ReloadableSettings, name: String, runs: &ComparedRuns) -> VersionResults {
    let evaluators: Vec<EvaluatorRecord> = runs
        .evaluators
        .iter()
        .zip(&runs.latest_lines)
        .map(|(name, line)| describe_evaluator(settings, name, line))
        .collect();
    let mut judges: Vec<&str> = evaluators.iter().map(|known| known.judge.as_str()).collect();
    judges.sort_unstable();
    judges.dedup();
    let header = VersionHeader { name, is_complete: true, judge: judges.join(", "), ..VersionHeader::default() };
    let mut builder = VersionResultsBuilder::new(header, &evaluators, &[]);
    for run in &runs.runs {
        let verdicts: Vec<VerdictHead> = run
            .outcomes
            .iter()
            .map(|outcome| VerdictHead {
                evaluator: outcome.evaluator,
                step_index: outcome.step,
                outcome: match outcome.kind {
                    RecordedKind::Scored => OutcomeKind::Scored,
                    RecordedKind::NotApplicable => OutcomeKind::NotApplicable,
                    RecordedKind::Abstained => OutcomeKind::Abstained,
                    RecordedKind::Failed => OutcomeKind::Failed,
                },
                label: None,
                score: outcome.score,
            })
            .collect();
        builder.add_run(&to_judged_head(run), &verdicts);
    }
    builder.finish()
}

/// Describes an evaluator: its present configuration, with the judge and rubric of its latest outcome.
fn describe_evaluator(settings: &ReloadableSettings, name: &str, line: &str) -> EvaluatorRecord {
    let line: Option<OutcomeLine> = serde_json::from_str(line).ok();
    EvaluatorRecord {
        name: name.to_owned(),
        title: find_evaluator_title(settings, name),
        of_steps: line.as_ref().is_some_and(|line| line.step_index.is_some()),
        labels: find_evaluator_labels(settings, name),
        rubric_hash: line.as_ref().map(|line| line.rubric_hash.to_string()).unwrap_or_default(),
        phoenix_name: String::new(),
        judge: line.map(|line| line.judge.to_string()).unwrap_or_default(),
    }
}

fn to_judged_head(run: &ComparedRunRow) -> JudgedHead<'_> {
    let text = |text: &'_ str| (!text.is_empty()).then(|| Cow::Owned(text.to_owned()));
    JudgedHead {
        trajectory_id: Cow::Borrowed(&run.trajectory_id),
        query: text(&run.query),
        session_id: None,
        agent_version: text(&run.version),
        steps: ItemCount(run.steps),
        // The store has only the sum.
        tokens: TokenUsage { prompt: u64::try_from(run.tokens).unwrap_or(0), ..TokenUsage::default() },
        cost_usd: run.cost_usd,
        model: None,
        model_usage: Vec::new(),
        // Only the difference of both values is used.
        start: Some(Cow::Owned(format_rfc3339(0))),
        end: Some(Cow::Owned(format_rfc3339(run.took_ns))),
    }
}

/// Adds the tool calls of the runs to the first flips.
fn add_stored_paths(store: &Store, comparison: &mut VersionComparison) -> Result<(), ApiError> {
    let mut known: HashMap<String, Option<String>> = HashMap::new();
    let mut find = |id: &str| -> Result<Option<String>, ApiError> {
        if let Some(path) = known.get(id) {
            return Ok(path.clone());
        }
        let path = describe_stored_path(store, id)?;
        known.insert(id.to_owned(), path.clone());
        Ok(path)
    };
    for pair in &mut comparison.flips {
        for flips in [&mut pair.worse, &mut pair.better] {
            for flip in flips.iter_mut().take(MAX_SHOWN_PATHS) {
                let TaskFlip { before_trajectory, after_trajectory, .. } = &*flip;
                let (before, after) = (find(before_trajectory)?, find(after_trajectory)?);
                (flip.before_path, flip.after_path) = (before, after);
            }
        }
    }
    Ok(())
}

fn describe_stored_path(store: &Store, id: &str) -> Result<Option<String>, ApiError> {
    let json = store.trajectory_json(id)?;
    let Some(trajectory) = json.and_then(|json| serde_json::from_slice::<Trajectory>(&json).ok()) else {
        return Ok(None);
    };
    let wrong: Vec<u32> = store
        .verdict_lines(id)?
        .iter()
        .filter(|stored| stored.is_wrong)
        .filter_map(|stored| serde_json::from_str::<OutcomeLine>(&stored.line).ok()?.step_index)
        .collect();
    Ok(Some(describe_tool_path(&trajectory, |index| wrong.contains(&index))))
}

/// Finds failure groups that are more frequent on one side, largest change first.
fn find_group_changes(store: &Store, read: &[ComparedRuns]) -> Result<Vec<FailureGroupChange>, ApiError> {
    let share = |count: u64, at: usize| count as f64 / read[at].runs.len().max(1) as f64;
    let change = |group: gradus_store::ComparedGroupRow| FailureGroupChange {
        key: group.key,
        evaluator: group.evaluator,
        tool: (!group.tool.is_empty()).then_some(group.tool),
        reason: group.title,
        shares: group.runs.iter().enumerate().map(|(at, count)| share(*count, at)).collect(),
        runs: group.runs,
    };
    let mut changes: Vec<FailureGroupChange> = store.compared_groups(read)?.into_iter().map(change).collect();
    changes.retain(|change| change.spread() > 0.0);
    changes.sort_by(|one, other| other.spread().total_cmp(&one.spread()).then_with(|| one.key.cmp(&other.key)));
    changes.truncate(MAX_GROUP_CHANGES);
    Ok(changes)
}
