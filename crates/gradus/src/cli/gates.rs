//! The gates of a command: options, checks and exit code, the same for `eval`, `bench`, `demo`, `experiment` and
//! `report`.

use std::collections::BTreeMap;

use clap::{Args, ValueEnum};
use gradus_eval::report::{
    EvaluationSummary, GateBasis, GateContext, GateResult, GateTrials, GateVerdict, GateVocabulary, QualityGate,
    RunReader, collect_gate_values, explain_unpriced_runs, measure_gate_metrics,
};
use gradus_eval::run::RunFileError;
use gradus_report::index_trials;

use super::CommandExit;
use super::report_addition::ReportAddition;
use super::sources::print_diagnostic;

#[derive(Args, Clone, Default)]
pub(super) struct GateOptions {
    /// Require a number, as in 'thought_to_tool >= 0.85', 'outcome.crashed <= 1%', 'steps <= baseline + 0.5' or
    /// 'thought_to_tool{tool=search} >= 0.9'; may be given several times.
    #[arg(long, value_name = "RULE", help_heading = "Gates")]
    pub(super) gate: Vec<String>,
    /// Compare this with the bar: the estimate, or the unfavourable (lower) or favourable (upper) end of its 95 %
    /// interval [default: estimate].
    #[arg(long, value_name = "NUMBER", value_enum, help_heading = "Gates")]
    pub(super) gate_on: Option<GateBasisOption>,
    /// Decide gates also if the run ended early, or if the cost of some runs is not known; without it they are
    /// INCOMPLETE, and the exit code is 6.
    #[arg(long, help_heading = "Gates")]
    pub(super) allow_partial: bool,
    /// The old name of `--gate-on lower`.
    #[arg(long, hide = true, conflicts_with = "gate_on")]
    pub(super) strict: bool,
}

/// The values of `--gate-on`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(super) enum GateBasisOption {
    Estimate,
    Lower,
    Upper,
}

impl GateOptions {
    fn basis(&self) -> GateBasis {
        match self.gate_on {
            Some(GateBasisOption::Lower) => GateBasis::Lower,
            Some(GateBasisOption::Upper) => GateBasis::Upper,
            None if self.strict => GateBasis::Lower,
            Some(GateBasisOption::Estimate) | None => GateBasis::Estimate,
        }
    }

    /// Checks the gates, in the order in which they were given. `baseline` has values by the name of the metric.
    pub(super) fn evaluate(
        &self,
        gates: &[QualityGate],
        summary: &EvaluationSummary,
        reader: &mut RunReader,
        baseline: &BTreeMap<String, f64>,
        addition: &dyn ReportAddition,
    ) -> Result<Vec<GateResult>, RunFileError> {
        if self.strict && !gates.is_empty() {
            print_diagnostic("note: --strict is now --gate-on lower");
        }
        let index = index_trials(&addition.measurements());
        let trials = GateTrials { index: &index, tag_metrics: &|tag| addition.tag_metrics(tag) };
        let more_metrics = measure_gate_metrics(gates.iter().map(|gate| &gate.metric), reader, &trials)?;
        let context = GateContext {
            summary,
            more_metrics: &more_metrics,
            baseline,
            basis: self.basis(),
            allow_partial: self.allow_partial,
        };
        let mut results: Vec<GateResult> = gates.iter().map(|gate| gate.check(&context)).collect();
        for result in &mut results {
            explain_unpriced_runs(result, &context);
            addition.refine_gate_reason(result);
        }
        Ok(results)
    }
}

/// Collects the numbers of a run that gates of later runs can be relative to.
pub(super) fn collect_baseline_metrics(
    summary: &EvaluationSummary,
    reader: &mut RunReader,
    addition: &dyn ReportAddition,
) -> Result<BTreeMap<String, f64>, RunFileError> {
    let vocabulary = GateVocabulary::new(reader.record.evaluators.clone(), addition.metric_names());
    let index = index_trials(&addition.measurements());
    let trials = GateTrials { index: &index, tag_metrics: &|tag| addition.tag_metrics(tag) };
    collect_gate_values(&vocabulary, summary, reader, &trials)
}

/// Returns the exit code by the gates alone. An undecided gate outweighs a failed one: its run has to be repeated
/// anyway.
pub(super) fn exit_for_gates(gates: &[GateResult]) -> CommandExit {
    let has = |verdict| gates.iter().any(|gate| gate.verdict == verdict);
    match (has(GateVerdict::Incomplete), has(GateVerdict::Fail)) {
        (true, _) => CommandExit::GateIncomplete,
        (false, true) => CommandExit::GateFailed,
        (false, false) => CommandExit::Pass,
    }
}
