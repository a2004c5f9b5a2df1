//! Which trial the spans of an agent behind HTTP belong to: by the trace id of the `traceparent` that it was sent, else
//! by `gradus.item.id` and `gradus.trial` in attributes of spans (copied from baggage) or of their resource.

use std::collections::{BTreeMap, HashMap};
use std::io;
use std::path::Path;

use gradus_core::span::{AttributeList, AttributeValue, TraceId};
use gradus_core::trajectory::Trajectory;
use gradus_otlp::{RecordLimits, TelemetrySignal, decode_span, read_export, regroup_export};

use super::folder::AttemptMap;
use crate::received_traces::{read_trajectories, visit_received_exports};

/// Item and trial.
type TrialKey = (String, u32);

/// Trajectories by trial, and what belongs to none.
#[derive(Debug, Default)]
pub(super) struct AttributedTraces {
    pub(super) trajectories: BTreeMap<TrialKey, Vec<Trajectory>>,
    pub(super) unattributed_spans: u64,
    pub(super) unattributed_traces: u64,
}

/// Reads the store of the collector. Traces are separated before they are assembled, so that a session id that
/// several trials share does not join them.
pub(super) fn attribute_traces(collector: &Path, attempts: &AttemptMap) -> io::Result<AttributedTraces> {
    if !collector.join(gradus_store::DATABASE_FILE_NAME).is_file() {
        return Ok(AttributedTraces::default());
    }
    let mut traces = TrialsByTrace::from_attempts(attempts);
    let mut exports: Vec<Vec<u8>> = Vec::new();
    visit_received_exports(collector, &mut |export| {
        traces.add_export_spans(export, attempts);
        exports.push(export.to_vec());
    })?;
    let mut by_trial: BTreeMap<&TrialKey, Vec<u8>> = BTreeMap::new();
    for export in &exports {
        for signal in [TelemetrySignal::Span, TelemetrySignal::Log] {
            let Ok(request) = regroup_export(export, signal, &RecordLimits::default()) else { continue };
            for part in &request.parts {
                if let Some(key) = traces.keys.get(&part.trace_id) {
                    request.write(part, by_trial.entry(key).or_default());
                }
            }
            // A request holds one signal, and spans are the usual one.
            if !request.parts.is_empty() {
                break;
            }
        }
    }
    let mut found = AttributedTraces::default();
    for (key, otlp) in by_trial {
        found.trajectories.insert(key.clone(), read_trajectories(&otlp)?);
    }
    let stray = traces.span_counts.iter().filter(|(trace, _)| !traces.keys.contains_key(trace));
    for (_, spans) in stray {
        found.unattributed_traces += 1;
        found.unattributed_spans += spans;
    }
    Ok(found)
}

/// The trial of each trace, as far as it is known.
#[derive(Debug, Default)]
struct TrialsByTrace {
    keys: HashMap<TraceId, TrialKey>,
    span_counts: HashMap<TraceId, u64>,
}

impl TrialsByTrace {
    fn from_attempts(attempts: &AttemptMap) -> TrialsByTrace {
        let keys = attempts.iter().filter_map(|(key, attempt)| {
            let id = u128::from_str_radix(attempt.trace_id.as_deref()?, 16).ok()?;
            Some((TraceId(id), key.clone()))
        });
        TrialsByTrace { keys: keys.collect(), span_counts: HashMap::new() }
    }

    fn add_export_spans(&mut self, export: &[u8], attempts: &AttemptMap) {
        let limits = RecordLimits::default();
        // A record that cannot be decoded is ignored here; the assembler reports it as a defect.
        let _ = read_export(export, &limits, &mut |record| {
            if record.signal == TelemetrySignal::Log {
                return Ok(());
            }
            if let Ok(span) = decode_span(record.body, &record.scope.resource, &record.scope.name, &limits) {
                *self.span_counts.entry(span.trace_id).or_default() += 1;
                let mut lists = [&span.attributes, &span.resource.attributes].into_iter();
                if let Some(key) = lists.find_map(|attributes| read_trial_key(attributes, attempts)) {
                    self.keys.entry(span.trace_id).or_insert(key);
                }
            }
            Ok(())
        });
    }
}

/// Reads item and trial from attributes. `gradus.attempt.id` must be that of the attempt that counts: spans of an
/// attempt that was killed do not belong to the one that replaced it.
fn read_trial_key(attributes: &AttributeList<'_>, attempts: &AttemptMap) -> Option<TrialKey> {
    let item = attributes.get_text("gradus.item.id")?;
    let trial = match attributes.get("gradus.trial")? {
        AttributeValue::Int(number) => u32::try_from(*number).ok()?,
        AttributeValue::Str(text) => text.parse().ok()?,
        _ => return None,
    };
    // Some SDKs copy values of baggage without decoding them.
    let key = (gradus_http::percent_decode(item), trial);
    let attempt_id = attributes.get_text("gradus.attempt.id");
    let is_current = |id: &str| attempts.get(&key).is_some_and(|attempt| attempt.trace_id.as_deref() == Some(id));
    attempt_id.is_none_or(is_current).then_some(key)
}
