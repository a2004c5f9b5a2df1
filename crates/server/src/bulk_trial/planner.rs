//! Plans a trial on many cases: chooses them, looks up the present verdicts, and estimates the cost. Asks nobody.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;

use gradus_core::span::TraceId;
use gradus_core::trajectory::Trajectory;
use gradus_eval::evaluator::Evaluator;
use gradus_eval::judge::ModelJudge;
use gradus_eval::outcome::OutcomeLine;
use gradus_eval::rubric::{Rubric, RubricSubject};
use gradus_eval::run::{StateFolder, VerdictCache};
use gradus_eval::runner::{CostEstimator, QuestionSelection};
use gradus_store::{Store, StoreError, TraceFilter};

use super::folder::{BulkTrialFolder, BulkTrialFolderError};
use super::plan::{
    BulkTrialCase, BulkTrialEstimate, BulkTrialLimits, BulkTrialPlan, BulkTrialSelection, PresentVerdict,
};
use crate::clock::now_ns;
use crate::grading_rule::GradingRule;
use crate::http_error::{ApiError, run_large_query};
use crate::settings::ReloadableSettings;
use crate::state::ServerState;
use crate::trace_group::TraceGroupView;

/// Maximum number of cases in one trial.
const MAX_CASES: usize = 2_000;
/// Maximum number of labels that are searched; the latest ones.
const MAX_LABELS: usize = 10_000;
/// Number of traces that are read in one query.
const MAX_TRACES_PER_QUERY: usize = 16;
/// The label of a person who could not decide. It is not compared with verdicts.
const UNDECIDED_LABEL: &str = "undecided";

/// The parameters of a new trial.
#[derive(Clone, Debug)]
pub(crate) struct BulkTrialRequest {
    pub(crate) rubric: Rubric,
    pub(crate) present_hash: String,
    pub(crate) project: String,
    pub(crate) selection: BulkTrialSelection,
    pub(crate) limits: BulkTrialLimits,
    pub(crate) author: String,
}

/// Why a trial cannot be planned. Each message is a sentence for the page.
#[derive(Debug, thiserror::Error)]
pub(crate) enum BulkTrialPlanError {
    #[error("No rule grades this project, so it has no judge.")]
    NoRule,
    #[error("The rule of this project uses the offline judge, which does not read rubrics. A trial needs a model.")]
    NoModel,
    #[error(
        "The price of {judge} is not known, so no limit in dollars can be kept. Leave it empty, or set its price with eval.prices."
    )]
    UnknownPrice { judge: String },
    #[error("Give a limit in dollars: {judge} costs money.")]
    NoCostLimit { judge: String },
    #[error("Nothing to try: the project has no graded traces yet.")]
    NoTraces,
    #[error("Nobody has labelled verdicts of this rubric in this project. Label some under Review first.")]
    NoLabels,
    #[error("{}", .0.message())]
    Query(ApiError),
    #[error("The verdict cache cannot be read: {0}")]
    Cache(#[source] gradus_eval::run::RunFileError),
    #[error("The plan cannot be stored: {0}")]
    Folder(#[from] BulkTrialFolderError),
}

impl From<ApiError> for BulkTrialPlanError {
    fn from(error: ApiError) -> BulkTrialPlanError {
        BulkTrialPlanError::Query(error)
    }
}

/// Finds the rule of a project and its model.
pub(super) fn find_model_rule<'s>(
    settings: &'s ReloadableSettings,
    project: &str,
) -> Result<(&'s GradingRule, &'s Arc<ModelJudge>), BulkTrialPlanError> {
    let rule = settings.rules.iter().find(|rule| rule.matches_project(project));
    let rule = rule.ok_or(BulkTrialPlanError::NoRule)?;
    Ok((rule, rule.judge.as_ref().ok_or(BulkTrialPlanError::NoModel)?))
}

/// Builds the evaluator that asks the model with the rubric of a trial.
pub(super) fn build_trial_evaluator(rubric: &Rubric, judge: &ModelJudge) -> Evaluator {
    Evaluator::with_model_judge(rubric, &judge.name(), judge.settings.structured)
}

/// Plans a trial and stores the plan.
pub(crate) async fn plan_bulk_trial(
    server: &Arc<ServerState>,
    request: BulkTrialRequest,
) -> Result<BulkTrialPlan, BulkTrialPlanError> {
    let settings = server.reloadable();
    let (rule, judge) = find_model_rule(&settings, &request.project)?;
    match (judge.price.is_some(), request.limits.max_cost_usd) {
        (false, Some(_)) => return Err(BulkTrialPlanError::UnknownPrice { judge: judge.name() }),
        (true, None) => return Err(BulkTrialPlanError::NoCostLimit { judge: judge.name() }),
        _ => {}
    }
    let asked = request.clone();
    let chosen = run_large_query(server, move |server| Ok(choose_traces(&server.store, &asked)?)).await?;
    if chosen.is_empty() {
        return Err(match request.selection {
            BulkTrialSelection::Latest { .. } => BulkTrialPlanError::NoTraces,
            BulkTrialSelection::Labelled => BulkTrialPlanError::NoLabels,
        });
    }
    let cache = StateFolder::open(&server.settings.data).and_then(|state| VerdictCache::open(&state.cache_path()));
    let cache = cache.map_err(BulkTrialPlanError::Cache)?;
    let evaluators = vec![build_trial_evaluator(&request.rubric, judge)];
    let panel = Some(Arc::clone(judge).into());
    let mut estimator = CostEstimator::new(evaluators, panel, rule.tool_texts(), Some(cache));
    if request.selection == BulkTrialSelection::Labelled {
        let mut selection = QuestionSelection::with_repeat(0);
        for (trajectory_id, step) in chosen.iter().filter_map(|(_, questions)| questions.as_ref()).flatten() {
            selection.add_question(trajectory_id, *step, &request.rubric.name);
        }
        estimator = estimator.with_selection(selection);
    }
    let (mut cases, mut left_out) = (Vec::new(), 0);
    // Trajectories may be large, so few of them are in memory at once.
    for traces in chosen.chunks(MAX_TRACES_PER_QUERY) {
        let (traces, request, room) = (traces.to_vec(), request.clone(), MAX_CASES - cases.len());
        let (read, found, omitted) = run_large_query(server, move |server| {
            let (mut found, mut omitted) = (Vec::new(), 0);
            for (trajectory, of_it) in load_cases(&server.store, &traces, &request)? {
                omitted += of_it.len().saturating_sub(room - found.len()) as u64;
                let taken = of_it.len().min(room - found.len());
                found.extend(of_it.into_iter().take(taken));
                if taken > 0
                    && let Err(error) = estimator.add(trajectory)
                {
                    return Ok((Err(error), found, omitted));
                }
            }
            Ok((Ok(estimator), found, omitted))
        })
        .await?;
        estimator = read.map_err(BulkTrialPlanError::Cache)?;
        cases.extend(found);
        left_out += omitted;
    }
    let estimated = estimator.estimates().first().copied().unwrap_or_default();
    let plan = BulkTrialPlan {
        id: format!("{:016x}{:016x}", fastrand::u64(..), fastrand::u64(..)),
        rubric: request.rubric.name.to_string(),
        text: request.rubric.source.to_string(),
        rubric_hash: request.rubric.hash.to_string(),
        present_hash: request.present_hash,
        project: request.project,
        rule: rule.name.clone(),
        judge: judge.name(),
        selection: request.selection,
        limits: request.limits,
        estimate: BulkTrialEstimate {
            questions: cases.len() as u64,
            cached: estimated.cached,
            to_ask: estimated.to_ask,
            cost_usd: estimated.cost_usd,
        },
        cases,
        left_out,
        created_ns: now_ns(),
        author: request.author,
    };
    let (kept, data, max_age_ns) = (plan.clone(), server.settings.data.clone(), settings.retention.max_age_ns);
    let written = tokio::task::spawn_blocking(move || BulkTrialFolder::create(&data, &kept, max_age_ns));
    written.await.unwrap_or_else(|error| std::panic::resume_unwind(error.into_panic()))?;
    Ok(plan)
}

/// Selects the questions of the cases.
pub(super) fn select_questions<'c>(
    rubric: &Rubric,
    cases: impl Iterator<Item = &'c BulkTrialCase>,
) -> QuestionSelection {
    let mut selection = QuestionSelection::with_repeat(0);
    for case in cases {
        selection.add_question(&case.trajectory_id, case.step, &rubric.name);
    }
    selection
}

/// A trace group and its tried cases; `None` for all of its trajectories and steps.
type ChosenTrace = (i64, Option<Vec<(String, Option<u32>)>>);

/// Chooses the trace groups that are tried, latest first.
fn choose_traces(store: &Store, request: &BulkTrialRequest) -> Result<Vec<ChosenTrace>, StoreError> {
    match request.selection {
        BulkTrialSelection::Latest { traces } => {
            let filter = TraceFilter { project: Some(request.project.clone()), ..TraceFilter::default() };
            let (mut chosen, mut cursor) = (Vec::new(), None);
            let mut known = HashSet::new();
            while chosen.len() < traces {
                let page = store.traces(&filter, cursor, traces.min(200))?;
                // Traces of one group are read together.
                let fresh = page.traces.iter().filter(|row| !row.trajectories.is_empty());
                let fresh = fresh.map(|row| row.trace_group).filter(|group| known.insert(*group));
                chosen.extend(fresh.map(|group| (group, None)));
                cursor = page.next;
                if cursor.is_none() {
                    break;
                }
            }
            chosen.truncate(traces);
            Ok(chosen)
        }
        BulkTrialSelection::Labelled => {
            let mut chosen: Vec<ChosenTrace> = Vec::new();
            let mut positions: HashMap<i64, usize> = HashMap::new();
            for label in store.labels(Some(&request.project), MAX_LABELS)? {
                if label.evaluator != *request.rubric.name || label.label == UNDECIDED_LABEL {
                    continue;
                }
                let Some(row) = store.trace(TraceId(label.trace_id))? else { continue };
                let question = (label.trajectory_id, label.step);
                let position = *positions.entry(row.trace_group).or_insert(chosen.len());
                if position == chosen.len() {
                    chosen.push((row.trace_group, Some(Vec::new())));
                }
                if let (_, Some(questions)) = &mut chosen[position]
                    && !questions.contains(&question)
                {
                    questions.push(question);
                }
            }
            Ok(chosen)
        }
    }
}

/// Loads the cases of the chosen traces, with their trajectories.
fn load_cases(
    store: &Store,
    traces: &[ChosenTrace],
    request: &BulkTrialRequest,
) -> Result<Vec<(Trajectory, Vec<BulkTrialCase>)>, StoreError> {
    let mut found = Vec::new();
    for (group, wanted) in traces {
        for trajectory in TraceGroupView::load(store, *group)?.trajectories {
            let is_wanted = |step: Option<u32>| {
                wanted.as_ref().is_none_or(|wanted| wanted.contains(&(trajectory.trajectory_id.clone(), step)))
            };
            let steps: Vec<Option<u32>> = match request.rubric.subject {
                RubricSubject::Trajectory => vec![None],
                RubricSubject::Step => trajectory.steps.iter().map(|step| Some(step.index)).collect(),
            };
            let Some(trace) = store.trace_of_trajectory(&trajectory.trajectory_id)? else { continue };
            let mut cases = Vec::new();
            for step in steps.into_iter().filter(|step| is_wanted(*step)) {
                let present = store.find_verdict_line(&trajectory.trajectory_id, &request.rubric.name, step)?;
                cases.push(BulkTrialCase {
                    trace_id: trace.to_string(),
                    trajectory_id: trajectory.trajectory_id.clone(),
                    step,
                    present: present.as_deref().and_then(read_present_verdict),
                });
            }
            if !cases.is_empty() {
                found.push((trajectory, cases));
            }
        }
    }
    Ok(found)
}

/// Reads a stored outcome; `None` if it has no label.
fn read_present_verdict(line: &str) -> Option<PresentVerdict> {
    let line: OutcomeLine = serde_json::from_str(line).ok()?;
    Some(PresentVerdict {
        label: line.label?,
        judge: line.judge.to_string(),
        rubric_hash: line.rubric_hash.to_string(),
    })
}
