//! The Agent Trajectory Interchange Format (ATIF). Writers must be strict: its models forbid unknown keys, so verdicts
//! go into `extra`.

use std::io::{self, Write};

use gradus_core::trajectory::{TokenUsage, Trajectory, TrajectoryStep};
use serde_json::{Map, Value as Json, json};

use crate::chat_form::{call_id, tool_schemas};
use crate::graded_runs::{GradedRun, GradedRuns, split_replies};

/// The version to write. What Gradus writes is the same in both.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum AtifVersion {
    /// What most readers know.
    #[default]
    V1_7,
    V1_8,
}

impl AtifVersion {
    fn name(self) -> &'static str {
        match self {
            AtifVersion::V1_7 => "ATIF-v1.7",
            AtifVersion::V1_8 => "ATIF-v1.8",
        }
    }
}

/// Writes one document for each conversation, as a line. Returns the number of documents.
pub fn write_atif_rows(runs: &GradedRuns, version: AtifVersion, out: &mut dyn Write) -> io::Result<u64> {
    let mut rows = 0;
    for turns in runs.conversations() {
        if let Some(document) = atif_document(&turns, version) {
            writeln!(out, "{document}")?;
            rows += 1;
        }
    }
    Ok(rows)
}

/// Returns the document of one conversation; `None` if it has no step: ATIF demands at least one.
fn atif_document(turns: &[&GradedRun], version: AtifVersion) -> Option<Json> {
    let first = &turns.first()?.trajectory;
    let mut steps = StepList::default();
    if let Some(prompt) = &first.system_prompt {
        steps.push(json!({"source": "system", "message": &**prompt}), None);
    }
    for turn in turns {
        add_turn(&mut steps, turn);
    }
    if steps.0.is_empty() {
        return None;
    }
    let mut agent = json!({
        "name": first.agent.as_deref().unwrap_or("unknown"),
        "version": first.agent_version.as_deref().unwrap_or("unknown"),
    });
    set_optional(&mut agent, "model_name", first.model.as_deref());
    set_optional(&mut agent, "tool_definitions", tool_schemas(first));
    let sum = |count: fn(&GradedRun) -> u64| turns.iter().map(|turn| count(turn)).fold(0u64, u64::saturating_add);
    let costs: Vec<f64> = turns.iter().filter_map(|turn| turn.trajectory.cost_usd).collect();
    let mut metrics = json!({
        "total_prompt_tokens": sum(|turn| turn.trajectory.tokens.prompt),
        "total_completion_tokens": sum(|turn| turn.trajectory.tokens.completion),
        "total_cached_tokens": sum(|turn| turn.trajectory.tokens.cached_prompt),
        "total_steps": steps.0.len(),
    });
    set_optional(&mut metrics, "total_cost_usd", (!costs.is_empty()).then(|| costs.iter().sum::<f64>()));
    let mut document = json!({
        "schema_version": version.name(),
        "session_id": first.session_id.as_deref().unwrap_or(&first.trajectory_id),
        "trajectory_id": first.trajectory_id,
        "agent": agent,
        "steps": steps.0,
        "final_metrics": metrics,
    });
    set_optional(&mut document, "extra", first.project.as_ref().map(|project| json!({"gradus": {"project": project}})));
    Some(document)
}

/// Returns facts and verdicts about a turn as a whole; `None` if there are none.
fn turn_extra(turn: &GradedRun) -> Option<Json> {
    let verdicts: Vec<_> = turn.run_verdicts().collect();
    let annotations = &turn.trajectory.annotations;
    if verdicts.is_empty() && annotations.is_empty() && !turn.trajectory.is_error {
        return None;
    }
    let mut extra = json!({"trajectory_id": turn.trajectory.trajectory_id});
    set_optional(&mut extra, "verdicts", (!verdicts.is_empty()).then_some(verdicts));
    set_optional(&mut extra, "annotations", (!annotations.is_empty()).then_some(annotations));
    set_optional(&mut extra, "is_error", turn.trajectory.is_error.then_some(true));
    Some(extra)
}

fn add_turn(steps: &mut StepList, turn: &GradedRun) {
    let trajectory = &turn.trajectory;
    // Facts about a turn are attached to its request.
    let extra = turn_extra(turn);
    if trajectory.query.is_some() || extra.is_some() {
        let mut step = json!({"source": "user", "message": trajectory.query.as_deref().unwrap_or_default()});
        set_optional(&mut step, "extra", extra.map(|extra| json!({"gradus": extra})));
        steps.push(step, trajectory.start.as_deref());
    }
    for reply in split_replies(&trajectory.steps) {
        steps.push(reply_step(turn, reply), reply.first().and_then(|step| step.start.as_deref()));
    }
    if let Some(answer) = &trajectory.final_answer {
        let mut step = json!({"source": "agent", "message": answer});
        set_optional(&mut step, "reasoning_content", trajectory.final_thought.as_deref());
        set_optional(&mut step, "model_name", trajectory.model.as_deref());
        set_optional(&mut step, "metrics", token_metrics(answer_tokens(trajectory)));
        let verdicts: Vec<_> =
            trajectory.final_thought_index().into_iter().flat_map(|index| turn.step_verdicts(index)).collect();
        if !verdicts.is_empty() {
            step["extra"] = json!({"gradus": {"verdicts": verdicts}});
        }
        steps.push(step, trajectory.end.as_deref());
    }
}

/// Returns a reply with its calls and their results.
fn reply_step(turn: &GradedRun, reply: &[TrajectoryStep]) -> Json {
    let thought = reply.first().and_then(|step| step.thought.as_deref()).unwrap_or_default();
    let calls: Vec<Json> = reply.iter().map(tool_call).collect();
    let results: Vec<Json> = reply.iter().filter(|step| step.observation.is_some()).map(tool_result).collect();
    let mut step = json!({"source": "agent", "message": thought, "tool_calls": calls});
    if !results.is_empty() {
        step["observation"] = json!({"results": results});
    }
    set_optional(&mut step, "model_name", turn.trajectory.model.as_deref());
    let tokens = reply.first().map(|step| step.tokens).unwrap_or_default();
    set_optional(&mut step, "metrics", token_metrics(tokens));
    let verdicts: Vec<_> = reply.iter().flat_map(|step| turn.step_verdicts(step.index)).collect();
    if !verdicts.is_empty() {
        step["extra"] = json!({"gradus": {"verdicts": verdicts}});
    }
    step
}

/// Tokens of the model call that gave the answer: those that no step has.
fn answer_tokens(trajectory: &Trajectory) -> TokenUsage {
    let sum = |count: fn(&TokenUsage) -> u64| {
        let steps = trajectory.steps.iter().map(|step| count(&step.tokens)).fold(0u64, u64::saturating_add);
        count(&trajectory.tokens).saturating_sub(steps)
    };
    TokenUsage {
        prompt: sum(|tokens| tokens.prompt),
        completion: sum(|tokens| tokens.completion),
        cached_prompt: sum(|tokens| tokens.cached_prompt),
    }
}

/// Returns token counts as ATIF metrics; `None` if the call reports none.
fn token_metrics(tokens: TokenUsage) -> Option<Json> {
    let metrics = json!({
        "prompt_tokens": tokens.prompt,
        "completion_tokens": tokens.completion,
        "cached_tokens": tokens.cached_prompt,
    });
    (tokens.total() > 0).then_some(metrics)
}

/// Returns a call. ATIF requires arguments as an object; other text goes into `extra`.
fn tool_call(step: &TrajectoryStep) -> Json {
    let arguments = step.arguments.clone().filter(Json::is_object);
    let mut call = json!({
        "tool_call_id": call_id(step),
        "function_name": step.tool,
        "arguments": arguments.clone().unwrap_or_else(|| Json::Object(Map::new())),
    });
    if let (None, Some(raw)) = (arguments, step.arguments_text()) {
        call["extra"] = json!({"gradus": {"arguments_raw": raw}});
    }
    call
}

fn tool_result(step: &TrajectoryStep) -> Json {
    let mut result = json!({"source_call_id": call_id(step), "content": step.observation});
    if step.is_error || step.is_denied {
        result["extra"] = json!({"gradus": {"is_error": step.is_error, "is_denied": step.is_denied}});
    }
    result
}

/// Steps with their numbers, which count from 1 without a gap.
#[derive(Default)]
struct StepList(Vec<Json>);

impl StepList {
    fn push(&mut self, mut step: Json, at: Option<&str>) {
        step["step_id"] = json!(self.0.len() + 1);
        set_optional(&mut step, "timestamp", at);
        self.0.push(step);
    }
}

fn set_optional(object: &mut Json, key: &str, value: Option<impl serde::Serialize>) {
    if let Some(value) = value {
        object[key] = json!(value);
    }
}
