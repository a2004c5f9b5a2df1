//! Checks the gates of a run again from its files.

use std::collections::BTreeMap;

use gradus_eval::report::{
    EvaluationSummary, GateBasis, GateContext, GateError, GateResult, GateTrials, GateVerdict, GateVocabulary,
    QualityGate, RunReader, explain_unpriced_runs, measure_gate_metrics,
};
use gradus_eval::run::RunFileError;

use crate::run_supplement::{RunSupplement, index_trials};

/// Checks gates on a run. A gate that cannot be checked, for example because its metric is unknown, is incomplete,
/// and its explanation says why.
pub fn check_run_gates(
    reader: &mut RunReader,
    supplement: Option<&dyn RunSupplement>,
    summary: &EvaluationSummary,
    gates: &[String],
    baseline: Option<&BTreeMap<String, f64>>,
) -> Result<Vec<GateResult>, RunFileError> {
    let evaluators = reader.record.evaluators.clone();
    let vocabulary = GateVocabulary::new(evaluators, supplement.map(RunSupplement::metric_names));
    let parse = |text: &String| {
        // The baseline is not stored with the run: without one, a bar that is relative to it is unknown.
        QualityGate::parse(text, &vocabulary).and_then(|gate| gate.check_baseline(baseline).map(|()| gate))
    };
    let parsed: Vec<_> = gates.iter().map(|text| (text, parse(text))).collect();
    let metrics = parsed.iter().filter_map(|(_, gate)| gate.as_ref().ok()).map(|gate| &gate.metric);
    let index = supplement.map(|supplement| index_trials(&supplement.measurements())).unwrap_or_default();
    let tag_metrics = |tag: &str| supplement.map(|supplement| supplement.tag_metrics(tag)).unwrap_or_default();
    let more_metrics =
        &measure_gate_metrics(metrics, reader, &GateTrials { index: &index, tag_metrics: &tag_metrics })?;
    let no_baseline = BTreeMap::new();
    let check = |(text, gate): &(&String, Result<QualityGate, GateError>)| match gate {
        Ok(gate) => {
            let context = GateContext {
                summary,
                more_metrics,
                baseline: baseline.unwrap_or(&no_baseline),
                basis: GateBasis::Estimate,
                allow_partial: false,
            };
            let mut result = gate.check(&context);
            explain_unpriced_runs(&mut result, &context);
            if let Some(supplement) = supplement {
                supplement.explain_gate(&mut result);
            }
            result
        }
        Err(error) => GateResult {
            gate: (*text).clone(),
            metric: String::new(),
            bar: None,
            is_share: true,
            verdict: GateVerdict::Incomplete,
            value: None,
            interval: None,
            count: 0,
            is_certain: false,
            more_runs: None,
            raw_value: None,
            is_uncalibrated: false,
            explanation: format!("it cannot be checked here: {error}"),
        },
    };
    Ok(parsed.iter().map(check).collect())
}
