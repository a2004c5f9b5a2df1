//! Two runs of one task side by side: the rows of the page that compares them.

use std::sync::Arc;

use axum::extract::State;
use axum::response::Response;
use gradus_core::trajectory::TrajectoryStep;
use gradus_eval::evaluator::OUTCOME;
use gradus_eval::outcome::OutcomeLine;
use gradus_report::compare::StepRelation;
use serde::{Deserialize, Serialize};
use utoipa::{IntoParams, ToSchema};

use super::schema;
use crate::http_error::{ApiError, ApiQuery, respond_json};
use crate::queries::QueryKind;
use crate::state::ServerState;
use crate::step_comparison::{ComparedRun, StepComparison, StepPair};

/// Maximum number of rows in one response. Steps are complete, and may be large.
const MAX_ROWS: usize = 200;

#[derive(Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub(super) struct StepComparisonParams {
    /// The ids of two trajectories.
    a: String,
    b: String,
    /// The run of `gradus eval` that judged `a`. Without it, the store has the trajectory.
    run_a: Option<String>,
    run_b: Option<String>,
    /// `next_offset` of the page before.
    offset: Option<usize>,
    /// From 1 to 200.
    #[param(minimum = 1, maximum = 200, default = 200)]
    limit: Option<usize>,
}

/// Two runs with their steps aligned, so that the same calls are in one row (Needleman-Wunsch over tool and arguments).
#[derive(Serialize, ToSchema)]
#[schema(as = StepComparison)]
pub(super) struct StepComparisonBody {
    a: ComparedRunItem,
    b: ComparedRunItem,
    /// Rows of the whole comparison, and those that are not the same call.
    row_count: usize,
    differing_count: usize,
    /// From `offset` on.
    rows: Vec<AlignedStepRow>,
    /// Null at the end.
    next_offset: Option<usize>,
}

/// One of the runs.
#[derive(Serialize, ToSchema)]
#[schema(as = ComparedRun)]
struct ComparedRunItem {
    trajectory_id: String,
    /// The run of `gradus eval`; null if the store has the trajectory.
    run_id: Option<String>,
    /// The traces that it was read from.
    trace_ids: Vec<String>,
    agent: Option<String>,
    version: Option<String>,
    model: Option<String>,
    query: Option<String>,
    answer: Option<String>,
    /// The label of the evaluator `outcome`; null if it gave none.
    outcome: Option<String>,
    start: Option<String>,
    end: Option<String>,
    steps: usize,
    tokens: u64,
    /// Wrong verdicts on the run as a whole.
    flags: Vec<StepFlagItem>,
}

/// Two steps beside each other. One of them is null if the step has no counterpart.
#[derive(Serialize, ToSchema)]
struct AlignedStepRow {
    #[schema(schema_with = relation_schema)]
    relation: StepRelation,
    /// Names of the arguments that differ, if the relation is `other_arguments` and both are JSON objects.
    different_arguments: Vec<String>,
    a: Option<AlignedStepItem>,
    b: Option<AlignedStepItem>,
}

/// A step with what is wrong with it.
#[derive(Serialize, ToSchema)]
struct AlignedStepItem {
    /// As `gradus traces --format jsonl` writes it.
    #[schema(schema_with = step_schema)]
    step: TrajectoryStep,
    flags: Vec<StepFlagItem>,
}

/// A verdict below the best score of its evaluator.
#[derive(Serialize, ToSchema)]
#[schema(as = StepFlag)]
struct StepFlagItem {
    evaluator: String,
    label: Option<String>,
    score: Option<f64>,
    explanation: Option<String>,
}

fn relation_schema() -> utoipa::openapi::RefOr<utoipa::openapi::Schema> {
    schema::generate_openapi_schema::<StepRelation>()
}

fn step_schema() -> utoipa::openapi::RefOr<utoipa::openapi::Schema> {
    schema::generate_openapi_schema::<TrajectoryStep>()
}

/// Two runs of one task, aligned step by step. `flips` of `/api/v1/compare` name runs to compare.
#[utoipa::path(get, path = "/api/v1/compare/steps", tag = "runs", params(StepComparisonParams),
    responses((status = 200, body = StepComparisonBody), (status = 400, body = crate::http_error::ErrorBody),
        (status = 404, body = crate::http_error::ErrorBody)))]
pub(super) async fn compare_run_steps(
    State(server): State<Arc<ServerState>>,
    ApiQuery(params): ApiQuery<StepComparisonParams>,
) -> Result<Response, ApiError> {
    let limit = params.limit.unwrap_or(MAX_ROWS);
    if !(1..=MAX_ROWS).contains(&limit) {
        return Err(ApiError::bad_request(format!("limit={limit}: from 1 to {MAX_ROWS}")));
    }
    respond_json(&server, QueryKind::Large, move |server| {
        let runs = [(params.a.as_str(), params.run_a.as_deref()), (params.b.as_str(), params.run_b.as_deref())];
        let comparison = StepComparison::load(server, runs)?;
        Ok(StepComparisonBody::from_comparison(&comparison, params.offset.unwrap_or(0), limit))
    })
    .await
}

impl StepComparisonBody {
    fn from_comparison(comparison: &StepComparison, offset: usize, limit: usize) -> StepComparisonBody {
        let [a, b] = &comparison.runs;
        let row_count = comparison.pairs.len();
        let pairs = comparison.pairs.iter().skip(offset).take(limit);
        StepComparisonBody {
            a: ComparedRunItem::from_run(a),
            b: ComparedRunItem::from_run(b),
            row_count,
            differing_count: comparison.differing_count(),
            rows: pairs.map(|pair| AlignedStepRow::from_pair(pair, a, b)).collect(),
            next_offset: Some(offset.saturating_add(limit)).filter(|next| *next < row_count),
        }
    }
}

impl ComparedRunItem {
    fn from_run(run: &ComparedRun) -> ComparedRunItem {
        let trajectory = &run.trajectory;
        let is_ending = |line: &&OutcomeLine| *line.evaluator == *OUTCOME && line.step_index.is_none();
        ComparedRunItem {
            trajectory_id: trajectory.trajectory_id.clone(),
            run_id: run.run.clone(),
            trace_ids: trajectory.trace_ids.clone(),
            agent: trajectory.agent.clone(),
            version: trajectory.agent_version.clone(),
            model: trajectory.model.clone(),
            query: trajectory.query.clone(),
            answer: trajectory.final_answer.clone(),
            outcome: run.verdicts.iter().map(|given| &given.line).find(is_ending).and_then(|line| line.label.clone()),
            start: trajectory.start.clone(),
            end: trajectory.end.clone(),
            steps: trajectory.steps.len(),
            tokens: trajectory.tokens.total(),
            flags: list_flags(run, None),
        }
    }
}

impl AlignedStepRow {
    fn from_pair(pair: &StepPair, a: &ComparedRun, b: &ComparedRun) -> AlignedStepRow {
        let item = |run: &ComparedRun, at: Option<usize>| {
            let step = run.trajectory.steps.get(at?)?;
            Some(AlignedStepItem { step: step.clone(), flags: list_flags(run, Some(step.index)) })
        };
        AlignedStepRow {
            relation: pair.aligned.relation,
            different_arguments: pair.different_arguments.clone(),
            a: item(a, pair.aligned.first),
            b: item(b, pair.aligned.second),
        }
    }
}

fn list_flags(run: &ComparedRun, step: Option<u32>) -> Vec<StepFlagItem> {
    run.wrong_verdicts(step)
        .map(|line| StepFlagItem {
            evaluator: line.evaluator.to_string(),
            label: line.label.clone(),
            score: line.score,
            explanation: line.explanation.clone(),
        })
        .collect()
}
