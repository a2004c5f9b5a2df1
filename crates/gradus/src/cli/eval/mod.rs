//! `gradus eval`: judges every step of every trajectory and reports the results. Sources are read in one thread,
//! questions are asked on another; every answer is in the journal of the run before the next question starts, so that
//! an interrupted run continues with the same command.

mod arguments;
mod dry_run;
mod judges;
mod progress;
mod sampled_source;
mod session_consent;
mod settings;
mod stop_early;
mod stream;

pub(super) use arguments::{EvalArguments, GradingOptions};
pub(super) use progress::RunProgressBar;
pub(super) use settings::EvalSettingsError;

use std::io::IsTerminal;

use gradus_eval::calibration::store_run_calibration;
use gradus_eval::evaluator::Evaluator;
use gradus_eval::judge::ModelJudge;
use gradus_eval::report::{EvaluationSummary, RunReader, TrialMetricNames};
use gradus_eval::run::{RunFileError, RunFolder, RunManifest, RunState, StateFolder, VerdictCache};
use gradus_eval::runner::{self, JudgePanel, RunPlan, RunTermination};
use gradus_llm::{CallError, ModelCallFailure};

use super::CommandExit;
use super::baseline::{CompareError, LoadedVersion, baseline_values};
use super::calibration_options::{CalibrationOptionError, LoadedCalibration, correct_summary};
use super::destinations::{self, DestinationError, ReachableDestinations};
use super::gates::exit_for_gates;
use super::outputs::RunReport;
use super::report_addition::{NoAddition, ReportAddition};
use super::sources::{SourceReadReport, print_diagnostic};
use settings::EvalSettings;
use stop_early::{EarlyDecisions, EarlyGate, StopEarlyError};

/// Entry point of the command.
pub(super) fn run_eval_command(arguments: &EvalArguments) -> anyhow::Result<CommandExit> {
    if arguments.stream {
        return stream::run_stream_command(arguments);
    }
    let adapted = session_consent::adapt_to_sessions(arguments);
    let holds_sessions = adapted.is_some();
    let arguments = adapted.as_ref().unwrap_or(arguments);
    let mut prepared = match PreparedRun::new(arguments, None) {
        Ok(prepared) => prepared,
        Err(error) => {
            print_diagnostic(&error.to_string());
            return Ok(CommandExit::BadInput);
        }
    };
    if prepared.settings.judge.is_some() && !arguments.yes {
        prepared.settings.sources.refuse_personal_stdin();
    }
    if prepared.settings.offline_by_default {
        print_diagnostic(
            "no OPENAI_API_KEY or ANTHROPIC_API_KEY is set: judging with `offline`, which is rules and no model",
        );
    }
    if arguments.dry_run {
        return dry_run::run_dry_run(arguments, &prepared.settings);
    }
    if holds_sessions && let Some(exit) = session_consent::ask_before_sending(arguments, &prepared.settings)? {
        return Ok(exit);
    }
    prepared.judge(&mut NoAddition)
}

/// A run that can begin: settings, output files and destinations are checked. `bench` and `demo` prepare it before they
/// run trials, so that hours of trials do not end in a wrong option.
pub(super) struct PreparedRun<'a> {
    arguments: &'a EvalArguments,
    settings: EvalSettings,
    destinations: Option<ReachableDestinations>,
    baseline: Option<LoadedVersion>,
    calibration: Option<LoadedCalibration>,
    /// With `--stop-early`: what decides when to stop.
    early_gates: Option<Vec<EarlyGate>>,
}

impl<'a> PreparedRun<'a> {
    /// Checks settings, output files and destinations. `trials` are the metrics that an addition will have, for
    /// gates.
    pub(super) fn new(
        arguments: &'a EvalArguments,
        trials: Option<&TrialMetricNames>,
    ) -> Result<PreparedRun<'a>, EvalSettingsError> {
        let settings = EvalSettings::read(arguments, trials)?;
        arguments.grading.outputs.prepare(&arguments.sources)?;
        // A dry run sends nothing, so the destinations need not be reachable.
        let destinations = match arguments.dry_run {
            true => None,
            false => prepare_destinations(arguments, &settings)?,
        };
        let state = StateFolder::from_path(&settings.state_dir);
        let outputs = &arguments.grading.outputs;
        let evaluators: Vec<_> = settings.evaluators.iter().map(Evaluator::to_record).collect();
        let baseline = outputs.baseline.load(&state, &settings.gates, &evaluators)?;
        let early_gates = prepare_early_gates(arguments, &settings, baseline.as_ref())?;
        let configured = settings.calibration.as_deref();
        if early_gates.is_some() && outputs.calibration.has_calibration(configured) {
            return Err(CalibrationOptionError::StopEarly.into());
        }
        let panel = settings.judge.as_ref().and_then(JudgePanel::to_record);
        let calibration = outputs.calibration.load(configured, &evaluators, panel.as_ref(), &settings.gates)?;
        Ok(PreparedRun { arguments, settings, destinations, baseline, calibration, early_gates })
    }

    /// Judges all trajectories, writes the outputs, and exports the outcomes.
    pub(super) fn judge(self, addition: &mut dyn ReportAddition) -> anyhow::Result<CommandExit> {
        report_file_errors(judge_prepared_run(self, addition))
    }

    /// Writes the outputs of a run without verdicts, for what the addition has measured (`gradus bench --no-grading`).
    pub(super) fn report_without_judging(
        self,
        addition: &mut dyn ReportAddition,
        stopped_because: Option<String>,
    ) -> anyhow::Result<CommandExit> {
        report_file_errors(report_unjudged_run(self, addition, stopped_because))
    }
}

/// Prints advice if a file of a run cannot be used (a full disk, missing permissions); other errors pass through.
fn report_file_errors(done: anyhow::Result<CommandExit>) -> anyhow::Result<CommandExit> {
    done.or_else(|error| match error.downcast_ref::<RunFileError>() {
        Some(file) => {
            print_diagnostic(&file_advice(file));
            Ok(CommandExit::Unexpected)
        }
        None => Err(error),
    })
}

fn prepare_destinations(
    arguments: &EvalArguments,
    settings: &EvalSettings,
) -> Result<Option<ReachableDestinations>, DestinationError> {
    let read_from: Vec<_> = settings.sources.phoenixes().collect();
    let phoenix = arguments.which.selection.phoenix.as_deref();
    let evaluators: Vec<_> = settings.evaluators.iter().map(Evaluator::to_record).collect();
    arguments.grading.destinations.prepare(phoenix, &read_from, &settings.phoenix, &evaluators)
}

/// Does the whole run: continue or create it, judge, write manifest and outputs, export. The order of precedence of
/// exit codes is: interrupted, endpoint, unreadable sources, failed gate, incomplete export.
fn judge_prepared_run(prepared: PreparedRun<'_>, addition: &mut dyn ReportAddition) -> anyhow::Result<CommandExit> {
    let PreparedRun { arguments, settings, destinations, baseline, calibration, early_gates } = prepared;
    let settings = &settings;
    let state = StateFolder::open(&settings.state_dir)?;
    let mut cache = VerdictCache::open(&state.cache_path())?;
    state.restore_cache(&mut cache)?;
    let (mut folder, is_new) = continue_or_begin_run(&state, arguments, settings)?;
    let JudgedSources { end, read, decisions } = judge_all(arguments, settings, &folder, cache, early_gates)?;
    // A decided gate says nothing about what was not judged.
    let decided_early = decisions.as_ref().and_then(EarlyDecisions::stop_reason);
    folder.record.state = match &end {
        RunTermination::Finished if decided_early.is_none() => RunState::Finished,
        _ => RunState::Stopped,
    };
    folder.record.ended = Some(format_to_seconds(jiff::Timestamp::now()));
    folder.record.stopped_because = describe_stop_reason(&end).or(decided_early);
    folder.record.gates = settings.gates.iter().map(ToString::to_string).collect();
    if let Some(source) = addition.source() {
        folder.record.sources = vec![source];
    }
    // The addition is saved before the manifest says `finished`: a server that shows finished runs must find both.
    addition.save_for_report(folder.path())?;
    store_run_calibration(&folder, calibration.as_ref().map(|known| &known.file))?;
    folder.save_manifest()?;
    let mut reader = RunReader::open(&folder)?;
    let mut summary = EvaluationSummary::from_run(&mut reader)?;
    if let Err(error) = correct_summary(&mut summary, &mut reader, calibration.as_ref(), &settings.gates)? {
        print_diagnostic(&error.to_string());
        return Ok(CommandExit::BadInput);
    }
    // An addition such as a benchmark can have results without trajectories.
    if summary.trajectories == 0 && end == RunTermination::Finished && !addition.has_own_results() {
        // An empty new run is removed. A continued run has verdicts, even if its source is gone now.
        if is_new {
            let _ = std::fs::remove_dir_all(folder.path());
        }
        return Ok(read.command_exit(0));
    }
    summary.metrics.extend(addition.metrics(&mut reader)?);
    if let Some(decisions) = decisions.filter(|_| end == RunTermination::Finished) {
        folder.record.early_gates = decisions.to_records(&settings.gates, &summary);
        folder.save_manifest()?;
        summary.early_gates = folder.record.early_gates.clone();
    }
    let outputs = &arguments.grading.outputs;
    let report = match build_report(arguments, settings, summary, &mut reader, baseline, addition)? {
        Ok(report) => report,
        Err(error) => {
            print_diagnostic(&error.to_string());
            return Ok(CommandExit::BadInput);
        }
    };
    outputs.write(&mut reader, &report, addition)?;
    if let Some(advice) = describe_stop_advice(&end, settings, arguments.grading.fresh) {
        print_diagnostic(&advice);
    }
    // An outage of the judge must not look like a passed run, even without gates. Its reason was already printed.
    let is_stopped_by_endpoint = matches!(end, RunTermination::Endpoint { .. });
    if !is_stopped_by_endpoint && let Some(reason) = find_judge_outage(&report.summary, settings) {
        print_diagnostic(&format!("the judge answered none of the questions: {reason}"));
        return Ok(if end == RunTermination::Interrupted { CommandExit::Interrupted } else { CommandExit::Unexpected });
    }
    let sent = match destinations {
        None => CommandExit::Pass,
        // After Ctrl-C nothing more is sent: an export could take minutes.
        Some(ready) if end == RunTermination::Interrupted => {
            print_diagnostic(&format!("nothing was written elsewhere; `{}` does that", ready.retry_command(&folder)));
            CommandExit::NotWritten
        }
        Some(ready) => ready.send(&folder, &mut reader)?,
    };
    let exit = match end {
        // Undecided gates take precedence for a CI job, whatever ended the run.
        _ if exit_for_gates(&report.gates) == CommandExit::GateIncomplete => CommandExit::GateIncomplete,
        RunTermination::Interrupted => CommandExit::Interrupted,
        RunTermination::Endpoint { failure, .. } if failure.error.is_fatal() => CommandExit::BadInput,
        RunTermination::Endpoint { .. } | RunTermination::EndpointDied(_) => CommandExit::Unexpected,
        RunTermination::Finished | RunTermination::Limit(_) if read.failed > 0 => CommandExit::BadInput,
        RunTermination::Finished | RunTermination::Limit(_) => report.exit(outputs),
    };
    Ok(destinations::combine_exits(exit, sent))
}

/// Builds what the outputs show: the summary, the gates, and the comparison with the baseline.
fn build_report(
    arguments: &EvalArguments,
    settings: &EvalSettings,
    summary: EvaluationSummary,
    reader: &mut RunReader,
    baseline: Option<LoadedVersion>,
    addition: &dyn ReportAddition,
) -> anyhow::Result<Result<RunReport, CompareError>> {
    let outputs = &arguments.grading.outputs;
    let values = baseline_values(baseline.as_ref());
    let gates = outputs.gates.evaluate(&settings.gates, &summary, reader, &values, addition)?;
    let comparison = match outputs.baseline.compare_run(reader, &summary, addition, baseline)? {
        Ok(comparison) => comparison,
        Err(error) => return Ok(Err(error)),
    };
    Ok(Ok(RunReport { summary, gates, decides: true, comparison }))
}

/// Reports a run without questions. Gates and outputs are about the metrics of the addition.
fn report_unjudged_run(
    prepared: PreparedRun<'_>,
    addition: &mut dyn ReportAddition,
    stopped_because: Option<String>,
) -> anyhow::Result<CommandExit> {
    let PreparedRun { arguments, settings, baseline, .. } = prepared;
    let settings = &settings;
    let state = StateFolder::open(&settings.state_dir)?;
    let mut record = create_run_manifest(settings, "nothing is asked".to_owned());
    record.judge = "none".to_owned();
    record.endpoint = None;
    record.evaluators = Vec::new();
    record.gates = settings.gates.iter().map(ToString::to_string).collect();
    let mut folder = state.create_run(record)?;
    addition.save_for_report(folder.path())?;
    folder.record.state = if stopped_because.is_none() { RunState::Finished } else { RunState::Stopped };
    folder.record.ended = Some(folder.record.started.clone());
    folder.record.stopped_because = stopped_because;
    folder.save_manifest()?;
    let mut reader = RunReader::open(&folder)?;
    let mut summary = EvaluationSummary::from_run(&mut reader)?;
    summary.metrics.extend(addition.metrics(&mut reader)?);
    let outputs = &arguments.grading.outputs;
    let report = match build_report(arguments, settings, summary, &mut reader, baseline, addition)? {
        Ok(report) => report,
        Err(error) => {
            print_diagnostic(&error.to_string());
            return Ok(CommandExit::BadInput);
        }
    };
    outputs.write(&mut reader, &report, addition)?;
    Ok(report.exit(outputs))
}

/// Continues an unfinished run with the same fingerprint, or creates a new one. Returns whether it is new.
fn continue_or_begin_run(
    state: &StateFolder,
    arguments: &EvalArguments,
    settings: &EvalSettings,
) -> Result<(RunFolder, bool), RunFileError> {
    let fingerprint = compute_fingerprint(arguments, settings);
    // Standard input may have other contents each time, which the fingerprint cannot see.
    // With --stop-early the order matters; answers of an earlier process come from the cache.
    let can_be_taken_up = !arguments.grading.fresh
        && !arguments.grading.stop_early
        && !arguments.sources.iter().any(|source| source == "-");
    if can_be_taken_up && let Some(mut folder) = state.resume_run(&fingerprint) {
        print_diagnostic(&format!("taking up run {}, which ended early", folder.record.run_id));
        folder.record.state = RunState::Running;
        folder.record.ended = None;
        folder.record.stopped_because = None;
        folder.record.prices.clone_from(&settings.prices);
        folder.record.models = settings.judge.as_ref().map(JudgePanel::model_records).unwrap_or_default();
        folder.save_manifest()?;
        return Ok((folder, false));
    }
    Ok((state.create_run(create_run_manifest(settings, fingerprint))?, true))
}

/// Creates the manifest of a run that begins now.
fn create_run_manifest(settings: &EvalSettings, fingerprint: String) -> RunManifest {
    let started = jiff::Timestamp::now();
    RunManifest {
        run_id: run_id(started),
        fingerprint,
        state: RunState::Running,
        name: settings.run_name.clone(),
        tags: settings.run_tags.clone(),
        commit: settings.code_version.commit.clone(),
        branch: settings.code_version.branch.clone(),
        stopped_because: None,
        started: format_to_seconds(started),
        ended: None,
        sources: settings.sources.names(),
        judge: settings.judge_name(),
        endpoint: settings.judge.as_ref().map(JudgePanel::endpoints),
        panel: settings.judge.as_ref().and_then(JudgePanel::to_record),
        models: settings.judge.as_ref().map(JudgePanel::model_records).unwrap_or_default(),
        evaluators: settings.evaluators.iter().map(Evaluator::to_record).collect(),
        priced: settings.judge.as_ref().is_none_or(JudgePanel::is_priced),
        gates: Vec::new(),
        early_gates: Vec::new(),
        prices: settings.prices.clone(),
        gradus_version: env!("CARGO_PKG_VERSION").to_owned(),
    }
}

/// Reads the sources in a thread and judges the trajectories as they arrive. If the run ends early, the thread is not
/// joined and its report is empty.
fn judge_all(
    arguments: &EvalArguments,
    settings: &EvalSettings,
    folder: &RunFolder,
    cache: VerdictCache,
    early_gates: Option<Vec<EarlyGate>>,
) -> anyhow::Result<JudgedSources> {
    let plan = RunPlan {
        evaluators: settings.evaluators.clone(),
        judge: settings.judge.clone(),
        tools: settings.tool_texts(),
        limits: settings.limits,
        ignore_cache: arguments.grading.fresh,
    };
    // Every question in flight is a connection; the default limit of open files is often 1024.
    if settings.judge.is_some()
        && let Err(error) = gradus_host::raise_open_file_limit(settings.limits.concurrency)
    {
        print_diagnostic(&error.to_string());
    }
    let mut watcher = progress::RunProgressBar::new(arguments.grading.quiet, settings.judge.is_some());
    // One thread: a call to a judge is all waiting, and handing it between threads costs more than it gains.
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let sources = sampled_source::SampledSource {
        sources: settings.sources.clone(),
        sample: arguments.sample,
        seed: arguments.seed,
    };
    if let Some(gates) = early_gates {
        let (trajectories, feeding, mut early) = stop_early::start_early_feeder(sources, gates, &mut watcher)?;
        let end = runtime.block_on(async {
            let interrupts = spawn_interrupt_listener();
            runner::run_evaluation(plan, folder, cache, trajectories, interrupts, &mut early).await
        });
        watcher.finish();
        let end = end?;
        if end != RunTermination::Finished {
            return Ok(JudgedSources { end, read: SourceReadReport::default(), decisions: None });
        }
        let (read, decisions) = feeding.join().map_err(|_| anyhow::anyhow!("reading the sources broke off"))??;
        return Ok(JudgedSources { end, read, decisions: Some(decisions).filter(EarlyDecisions::is_decided) });
    }
    let (trajectories, reading) = sampled_source::start_source_reader(sources)?;
    let end = runtime.block_on(async {
        let interrupts = spawn_interrupt_listener();
        runner::run_evaluation(plan, folder, cache, trajectories, interrupts, &mut watcher).await
    });
    watcher.finish();
    let end = end?;
    if end != RunTermination::Finished {
        // The reading thread may block on standard input forever, so it is not joined.
        return Ok(JudgedSources { end, read: SourceReadReport::default(), decisions: None });
    }
    let read = reading.join().map_err(|_| anyhow::anyhow!("reading the sources broke off"))?;
    Ok(JudgedSources { end, read: read?, decisions: None })
}

/// The result of judging.
struct JudgedSources {
    end: RunTermination,
    /// Empty if the run ended early.
    read: SourceReadReport,
    /// The decisions of `--stop-early`, if every gate is decided.
    decisions: Option<EarlyDecisions>,
}

/// Checks that `--stop-early` can decide the gates.
fn prepare_early_gates(
    arguments: &EvalArguments,
    settings: &EvalSettings,
    baseline: Option<&LoadedVersion>,
) -> Result<Option<Vec<EarlyGate>>, StopEarlyError> {
    if !arguments.grading.stop_early {
        return Ok(None);
    }
    let gates = &arguments.grading.outputs.gates;
    if gates.gate_on.is_some() || gates.strict {
        return Err(StopEarlyError::GateBasis);
    }
    let values = baseline_values(baseline);
    EarlyGate::from_gates(&settings.gates, &settings.evaluators, &values, arguments.grading.margin).map(Some)
}

/// Turns SIGINT and SIGTERM into messages. The first one ends the run gracefully, the second one at once; the runner
/// decides.
pub(super) fn spawn_interrupt_listener() -> runner::InterruptReceiver {
    let (sender, receiver) = tokio::sync::mpsc::unbounded_channel();
    tokio::spawn(async move {
        let Ok(mut terminate) = tokio::signal::unix::signal(tokio::signal::unix::SignalKind::terminate()) else {
            return;
        };
        loop {
            tokio::select! {
                pressed = tokio::signal::ctrl_c() => if pressed.is_err() { return },
                _ = terminate.recv() => {}
            }
            if sender.send(()).is_err() {
                return;
            }
        }
    });
    receiver
}

/// Identifies a run by everything that changes its questions: sources, filters, sample, evaluators with their rubrics,
/// judge, tools, version. Limits, outputs and gates are not part of it, so a run can be continued with other ones.
fn compute_fingerprint(arguments: &EvalArguments, settings: &EvalSettings) -> String {
    let evaluators: Vec<_> = settings.evaluators.iter().map(Evaluator::to_record).collect();
    let judge = settings.judge.as_ref().map(JudgePanel::describe_settings);
    let folder = std::env::current_dir().unwrap_or_default();
    let text = serde_json::json!({
        "folder": folder,
        "sources": settings.sources.names(),
        "selected": settings.sources.selection_text(),
        "sample": arguments.sample,
        "seed": arguments.seed,
        "evaluators": evaluators,
        "judge": judge,
        "tools": settings.given_tools,
        "notes": settings.tool_notes,
        "version": env!("CARGO_PKG_VERSION"),
    });
    format!("{:032x}", gradus_core::stable_digest(text.to_string().as_bytes()))
}

pub(super) fn format_to_seconds(time: jiff::Timestamp) -> String {
    time.round(jiff::Unit::Second).unwrap_or(time).to_string()
}

/// Returns the id of a run: its start in UTC with microseconds, so that ids sort by time, also within a second.
/// Commands accept a unique prefix.
pub(super) fn run_id(started: jiff::Timestamp) -> String {
    started.strftime("%Y%m%d-%H%M%S-%6f").to_string()
}

/// Describes why the run ended early, for the manifest and reports; `None` for a finished run.
pub(super) fn describe_stop_reason(end: &RunTermination) -> Option<String> {
    Some(match end {
        RunTermination::Finished => return None,
        RunTermination::Limit(reason) => reason.clone(),
        RunTermination::Interrupted => "it was interrupted".to_owned(),
        RunTermination::Endpoint { failure, .. } => failure.to_string(),
        RunTermination::EndpointDied(reason) => format!("the judge stopped answering: {reason}"),
    })
}

/// Returns the first failure if the model gave no verdict at all: then the results are empty, and the run must not
/// pass as judged. `None` if there is at least one verdict, or if no model was asked.
fn find_judge_outage(summary: &EvaluationSummary, settings: &EvalSettings) -> Option<String> {
    let asked: Vec<&str> = settings.evaluators.iter().filter(|one| one.asks_model()).map(|one| &*one.name).collect();
    let of_model = || summary.metrics.iter().filter(|metric| asked.contains(&metric.name.as_str()));
    if of_model().any(|metric| metric.denominator > 0) || of_model().all(|metric| metric.failed == 0) {
        return None;
    }
    let mut reasons = summary.reasons.iter().filter(|reason| asked.contains(&reason.evaluator.as_str()));
    let reason = reasons.find(|reason| reason.outcome == gradus_eval::outcome::OutcomeKind::Failed);
    Some(reason.map_or_else(String::new, |reason| reason.reason.clone()))
}

/// Returns advice on a run that ended early: why, and how to continue it.
fn describe_stop_advice(end: &RunTermination, settings: &EvalSettings, fresh: bool) -> Option<String> {
    let kept = if fresh {
        "what was judged is kept; the same command without --fresh goes on from there"
    } else {
        "what was judged is kept; the same command goes on from there"
    };
    Some(match end {
        RunTermination::Finished => return None,
        RunTermination::Limit(reason) => format!("stopped: {reason}; {kept}"),
        RunTermination::Interrupted => format!("interrupted; {kept}"),
        RunTermination::EndpointDied(reason) => format!("the judge stopped answering ({reason}); {kept}"),
        RunTermination::Endpoint { judge, failure } => {
            let judge = settings.judge.as_ref().and_then(|panel| panel.judges().nth(*judge));
            format!("{}; {kept}", endpoint_advice(failure, judge.map(AsRef::as_ref)))
        }
    })
}

/// Describes an endpoint error by the options and variables that can fix it.
pub(super) fn endpoint_advice(failure: &ModelCallFailure, judge: Option<&ModelJudge>) -> String {
    let Some(judge) = judge else { return failure.to_string() };
    let endpoint = judge.client.endpoint();
    let (url, model) = (judge.client.shown_url(), &endpoint.model);
    let variable = gradus_eval::judge_selection::key_variable(endpoint.provider);
    match &failure.error {
        CallError::Unauthorized { status: 402 | 429, .. } => {
            format!("{url} wants to be paid first ({failure}): fill up the account, or judge elsewhere with --base-url")
        }
        CallError::Unauthorized { .. } if endpoint.local_server.is_some() => {
            format!("{url} wants a key ({failure}): use --judge openai:{model} --base-url {url}, and set {variable}")
        }
        CallError::Unauthorized { .. } if endpoint.key.is_empty() => {
            format!("{url} wants a key ({failure}): set {variable}")
        }
        CallError::Unauthorized { .. } => {
            format!("{url} refused the key ({failure}): set {variable} to one that is valid there")
        }
        CallError::NotFound { .. } => {
            format!(
                "{url} has no model {model:?}, or is no judge's address ({failure}): choose one with --judge, or check --base-url"
            )
        }
        CallError::Connect(_) => {
            format!("cannot reach {url} ({failure}): is it running, and is a proxy set? --base-url names another")
        }
        CallError::Loading { .. } => {
            format!("{url}: {failure}: wait until it is done, or give it longer with --load-wait")
        }
        _ => format!("{url}: {failure}"),
    }
}

/// Describes an error of the files of a run, with the option that moves them elsewhere.
fn file_advice(error: &RunFileError) -> String {
    let advice = match error.reason.kind() {
        std::io::ErrorKind::StorageFull | std::io::ErrorKind::QuotaExceeded => {
            "free some space, or keep runs elsewhere with --state-dir"
        }
        std::io::ErrorKind::PermissionDenied | std::io::ErrorKind::ReadOnlyFilesystem => {
            "keep runs where you may write, with --state-dir"
        }
        _ => "runs are kept in --state-dir",
    };
    format!("{error}: {advice}; what was judged before is kept, and the same command goes on from there")
}

/// Whether standard error is a terminal. A progress bar is drawn only then.
fn is_stderr_terminal() -> bool {
    std::io::stderr().is_terminal()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn runs_of_the_same_second_are_in_order() {
        let first: jiff::Timestamp = "2026-11-15T07:31:09.999998Z".parse().expect("a time");
        let ids = [0, 1, 2].map(|more| run_id(first + jiff::SignedDuration::from_micros(more)));
        assert_eq!(ids, ["20261115-073109-999998", "20261115-073109-999999", "20261115-073110-000000"]);
    }
}
