//! Gradus's own verdicts as Phoenix annotations, with the names, targets, identifiers and metadata that
//! `--log-to-phoenix` writes. They are returned to clients that ask for them by name or by the identifier `gradus`. A
//! list without these conditions shows logged annotations only, as Phoenix would.

use std::collections::HashSet;

use gradus_core::span::{SpanId, TraceId};
use gradus_core::trajectory::Trajectory;
use gradus_eval::annotation::{
    AnnotationKeyAllocator, IDENTIFIER_PREFIX, OutcomeAnnotation, OutcomeTarget, annotate_outcome,
};
use gradus_eval::evaluator_selection::find_rule_evaluator;
use gradus_eval::outcome::OutcomeLine;
use gradus_phoenix::filter::FilterableAnnotation;
use gradus_phoenix::span_view::format_iso_time;
use gradus_store::{AnnotationFilter, AnnotationQuery, StoreError, VerdictLine};
use serde_json::{Value, json};

use super::ids;
use crate::phoenix::annotation_subject::PhoenixAnnotationTarget;
use crate::settings::ReloadableSettings;
use crate::state::ServerState;

/// A verdict with its target.
pub(super) struct VerdictAnnotation {
    judged_ns: i64,
    annotation: OutcomeAnnotation,
}

/// Loads all verdicts on the trajectories of a trace. Empty if the trace is unknown or not graded.
pub(super) fn load_trace_verdicts(server: &ServerState, trace: TraceId) -> Result<Vec<VerdictAnnotation>, StoreError> {
    let mut verdicts = Vec::new();
    let Some(row) = server.store.trace(trace)? else { return Ok(verdicts) };
    let mut judged = Vec::new();
    for trajectory in &row.trajectories {
        judged.push((&trajectory.trajectory_id, server.store.verdict_lines(&trajectory.trajectory_id)?));
    }
    if judged.iter().all(|(_, lines)| lines.is_empty()) {
        return Ok(verdicts);
    }
    let settings = server.reloadable();
    // Keys are numbered over all trajectories of a trace, so ungraded ones must be allocated, too.
    let mut allocator = AnnotationKeyAllocator::new(settings.annotations.trajectory_target);
    for (id, lines) in judged {
        let json = server.store.trajectory_json(id)?.unwrap_or_default();
        let Ok(trajectory) = serde_json::from_slice::<Trajectory>(&json) else { continue };
        let keys = allocator.assign_keys(&trajectory);
        for VerdictLine { judged_ns, line, .. } in lines {
            let Ok(outcome) = serde_json::from_str::<OutcomeLine>(&line) else { continue };
            // Skips outcomes that `--log-to-phoenix` would not write (abstentions, unless configured).
            if !settings.annotations.includes(outcome.outcome) {
                continue;
            }
            if let Some(key) = keys.find_key(outcome.step_index) {
                let name = find_phoenix_name(&settings, &outcome.evaluator);
                verdicts.push(VerdictAnnotation { judged_ns, annotation: annotate_outcome(&name, &outcome, key) });
            }
        }
    }
    Ok(verdicts)
}

/// Finds the annotation name of an evaluator: from the settings, the rubric, or its own name if the rubric was
/// removed.
fn find_phoenix_name(settings: &ReloadableSettings, evaluator: &str) -> String {
    let rubric = || settings.library.iter().find(|rubric| rubric.name == evaluator);
    match settings.annotations.names.get(evaluator) {
        Some(name) => name.clone(),
        None => rubric()
            .map(|rubric| rubric.phoenix_name.clone())
            .or_else(|| find_rule_evaluator(evaluator).map(|known| known.phoenix_name))
            .unwrap_or_else(|| evaluator.to_owned()),
    }
}

impl VerdictAnnotation {
    fn target_kind(&self) -> PhoenixAnnotationTarget {
        match self.annotation.target {
            OutcomeTarget::Span { .. } => PhoenixAnnotationTarget::Span,
            OutcomeTarget::Trace { .. } => PhoenixAnnotationTarget::Trace,
        }
    }

    /// Returns the target in the form of logged annotations, to compare them.
    fn target_key(&self) -> String {
        let (OutcomeTarget::Span { span_id: id, .. } | OutcomeTarget::Trace { trace_id: id }) = &self.annotation.target;
        self.target_kind().format_target(id)
    }

    /// Whether this is the name of the verdict: its annotation name, or the name of its evaluator.
    fn matches_name(&self, name: &str) -> bool {
        self.annotation.name == name || self.annotation.subject.evaluator == name
    }

    /// Returns the verdict as a filter sees it, if target and name match.
    pub(super) fn to_filterable(&self, target: &str, name: &str) -> Option<FilterableAnnotation> {
        let annotation = &self.annotation;
        (self.matches_name(name) && self.target_key() == target).then(|| FilterableAnnotation {
            label: annotation.label.clone(),
            score: annotation.score,
            explanation: annotation.explanation.clone(),
            identifier: annotation.identifier.clone(),
        })
    }

    /// Applies the conditions that the store applies to logged annotations.
    fn matches_query(&self, query: &AnnotationQuery) -> bool {
        (query.names.is_empty() || query.names.iter().any(|name| self.matches_name(name)))
            && (query.identifiers.is_empty() || query.identifiers.contains(&self.annotation.identifier))
            && !query.other_names.iter().any(|name| self.matches_name(name))
    }

    /// Checks whether an annotation with the same key was logged, as `gradus eval --log-to-phoenix` does. Then the
    /// logged one is shown.
    fn is_logged(&self, server: &ServerState) -> Result<bool, StoreError> {
        const MAX_COMPARED_ANNOTATIONS: usize = 100;
        let filter = AnnotationFilter {
            target: Some(self.target_key()),
            name: Some(self.annotation.name.clone()),
            limit: MAX_COMPARED_ANNOTATIONS,
            ..AnnotationFilter::default()
        };
        let rows = server.store.annotations(&filter)?;
        Ok(rows.iter().any(|row| row.identifier == self.annotation.identifier))
    }

    /// Converts to Phoenix's form. The id is derived from the verdict, so it is the same in every response.
    fn to_json(&self) -> Value {
        let annotation = &self.annotation;
        let name = format!(
            "{}:{}:{}",
            annotation.subject.trajectory_id,
            annotation.subject.evaluator,
            annotation.subject.step_index.unwrap_or(0)
        );
        let time = format_iso_time(self.judged_ns / 1000);
        let mut shown = json!({
            "id": ids::encode_node_id(self.target_kind().node_type(), name),
            "created_at": time,
            "updated_at": time,
            "source": "API",
            "user_id": null,
            "name": annotation.name,
            "annotator_kind": annotation.annotator.name(),
            "result": {"label": annotation.label, "score": annotation.score, "explanation": annotation.explanation},
            "metadata": annotation.metadata,
            "identifier": annotation.identifier,
        });
        match &annotation.target {
            OutcomeTarget::Span { span_id, .. } => shown["span_id"] = span_id.as_str().into(),
            OutcomeTarget::Trace { trace_id } => shown["trace_id"] = trace_id.as_str().into(),
        }
        shown
    }
}

/// Lists the verdicts that a query of annotations names by name or identifier, for targets of this project only.
pub(super) fn list_requested_verdicts(
    server: &ServerState,
    subject: PhoenixAnnotationTarget,
    query: &AnnotationQuery,
) -> Result<Vec<Value>, StoreError> {
    let is_asked = !query.names.is_empty() || query.identifiers.iter().any(|one| one.starts_with(IDENTIFIER_PREFIX));
    if !is_asked {
        return Ok(Vec::new());
    }
    let wanted: HashSet<&str> = query.targets.iter().map(String::as_str).collect();
    let (mut traces, mut known) = (Vec::new(), HashSet::new());
    for id in query.targets.iter().filter_map(|target| target.strip_prefix(query.kind)) {
        let trace = match subject {
            PhoenixAnnotationTarget::Span => server.store.trace_of_span(SpanId::parse(id))?,
            PhoenixAnnotationTarget::Trace => Some(TraceId::parse(id)),
            PhoenixAnnotationTarget::Session | PhoenixAnnotationTarget::Document => None,
        };
        if let Some(trace) = trace
            && known.insert(trace)
            && server.store.trace_position(query.project, trace)?.is_some()
        {
            traces.push(trace);
        }
    }
    let mut shown = Vec::new();
    for trace in traces {
        for verdict in load_trace_verdicts(server, trace)? {
            if wanted.contains(verdict.target_key().as_str())
                && verdict.matches_query(query)
                && !verdict.is_logged(server)?
            {
                shown.push(verdict.to_json());
            }
        }
    }
    Ok(shown)
}
