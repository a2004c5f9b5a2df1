//! Our own verdicts, as annotations that Phoenix's clients can read: on the model call that held the thought for a step, on
//! the root for a whole trajectory. They are there for whoever asks for them by the evaluator's name or by the identifier
//! `gradus`; a list of everything shows what was logged, as with Phoenix.

use std::collections::HashMap;

use gradus_core::filter::Note;
use gradus_core::phoenix_view::iso_time;
use gradus_core::span::{SpanId, TraceId};
use gradus_eval::outcome::OutcomeLine;
use gradus_store::{AnnotationQuery, StoreError};
use serde::Deserialize;
use serde_json::{Value, json};

use super::ids;
use crate::serve::state::Server;

/// Tells our verdicts from what others say under the same name.
const IDENTIFIER: &str = "gradus";

/// A verdict and where it belongs.
pub(super) struct Verdict {
    span: SpanId,
    /// `gradus`, and `gradus:2` and so on for further calls that one reply asked for.
    identifier: String,
    judged_ns: i64,
    line: OutcomeLine,
}

/// Of a trajectory, which spans hold what.
#[derive(Deserialize)]
struct Spans {
    root_span_id: Option<String>,
    steps: Vec<StepSpans>,
}

#[derive(Deserialize)]
struct StepSpans {
    index: u32,
    span_ids: Vec<String>,
}

impl Spans {
    fn holder(&self, step: Option<u32>) -> Option<SpanId> {
        let id = match step {
            None => self.root_span_id.as_ref(),
            Some(index) => self.steps.iter().find(|step| step.index == index)?.span_ids.first(),
        };
        id.map(|id| SpanId::parse(id))
    }
}

/// All verdicts on what happened in a trace.
pub(super) fn of_trace(server: &Server, trace: TraceId) -> Result<Vec<Verdict>, StoreError> {
    let mut verdicts = Vec::new();
    let Some(row) = server.store.trace(trace)? else { return Ok(verdicts) };
    for trajectory in row.trajectories {
        let lines = server.store.verdict_lines(&trajectory.trajectory_id)?;
        if lines.is_empty() {
            continue;
        }
        let json = server.store.trajectory_json(&trajectory.trajectory_id)?.unwrap_or_default();
        let Ok(spans) = serde_json::from_slice::<Spans>(&json) else { continue };
        let mut count: HashMap<(SpanId, String), u32> = HashMap::new();
        for (judged_ns, line) in lines {
            let Ok(line) = serde_json::from_str::<OutcomeLine>(&line) else { continue };
            let Some(span) = spans.holder(line.step_index) else { continue };
            let number = count.entry((span, line.evaluator.to_string())).or_default();
            *number += 1;
            let identifier = match number {
                1 => IDENTIFIER.to_owned(),
                number => format!("{IDENTIFIER}:{number}"),
            };
            verdicts.push(Verdict { span, identifier, judged_ns, line });
        }
    }
    Ok(verdicts)
}

impl Verdict {
    /// What a filter sees of it, if it is about this span and by this evaluator.
    pub(super) fn note(&self, span: SpanId, evaluator: &str) -> Option<Note> {
        let is_meant = self.span == span && &*self.line.evaluator == evaluator;
        is_meant.then(|| Note {
            label: self.line.label.clone(),
            score: self.line.score,
            explanation: self.explanation(),
            identifier: self.identifier.clone(),
        })
    }

    /// Why, also where there is no verdict.
    fn explanation(&self) -> Option<String> {
        self.line.explanation.clone().or_else(|| self.line.reason.clone())
    }

    fn fits(&self, query: &AnnotationQuery) -> bool {
        let name = self.line.evaluator.to_string();
        (query.names.is_empty() || query.names.contains(&name))
            && (query.identifiers.is_empty() || query.identifiers.contains(&self.identifier))
            && !query.other_names.contains(&name)
    }

    fn shown(&self) -> Value {
        let line = &self.line;
        let name = format!("{}:{}:{}", line.trajectory_id, line.evaluator, line.step_index.unwrap_or(0));
        // Rules are code, everything else is a model.
        let kind = if matches!(&*line.judge, "offline" | "rules") { "CODE" } else { "LLM" };
        let time = iso_time(self.judged_ns / 1000);
        json!({
            "id": ids::encode("SpanAnnotation", name),
            "created_at": time,
            "updated_at": time,
            "source": "API",
            "user_id": null,
            "name": line.evaluator,
            "annotator_kind": kind,
            "result": {"label": line.label, "score": line.score, "explanation": self.explanation()},
            "metadata": {
                "outcome": line.outcome, "judge": line.judge, "rubric_hash": line.rubric_hash,
                "run_id": line.run_id, "trajectory_id": line.trajectory_id, "step_index": line.step_index,
            },
            "identifier": self.identifier,
            "span_id": self.span.to_string(),
        })
    }
}

/// The verdicts that a list of annotations asks for by name.
pub(super) fn named(server: &Server, query: &AnnotationQuery) -> Result<Vec<Value>, StoreError> {
    let is_asked = !query.names.is_empty() || query.identifiers.iter().any(|one| one.starts_with(IDENTIFIER));
    if !is_asked {
        return Ok(Vec::new());
    }
    let ids = query.targets.iter().filter_map(|target| target.strip_prefix(query.kind));
    let spans: Vec<SpanId> = ids.map(SpanId::parse).collect();
    let mut traces: Vec<TraceId> = Vec::new();
    for span in &spans {
        if let Some(trace) = server.store.trace_of_span(*span)?
            && !traces.contains(&trace)
            && server.store.trace_position(query.project, trace)?.is_some()
        {
            traces.push(trace);
        }
    }
    let mut shown = Vec::new();
    for trace in traces {
        let verdicts = of_trace(server, trace)?;
        let wanted = verdicts.iter().filter(|verdict| spans.contains(&verdict.span) && verdict.fits(query));
        shown.extend(wanted.map(Verdict::shown));
    }
    Ok(shown)
}
