//! `gradus report`: results of an earlier run in any output format, computed from the files of the run alone. Gates are
//! checked again, and outcomes can be exported later.

use std::collections::BTreeMap;
use std::io::{BufWriter, Write};
use std::path::PathBuf;

use clap::Args;
use gradus_eval::report::{EvaluationSummary, GateVocabulary, QualityGate, RunReader};
use gradus_eval::run::{JudgeAnswers, RunFolder, RunManifest, StateFolder};
use gradus_report::raw_responses::{print_raw_response, print_raw_vote};

use super::CommandExit;
use super::baseline::baseline_values;
use super::bench::BenchAddition;
use super::calibration_options::correct_summary;
use super::destinations::{self, DestinationError, DestinationOptions, ReachableDestinations};
use super::experiment::ExperimentAddition;
use super::outputs::{OutputOptions, RunReport};
use super::report_addition::{NoAddition, ReportAddition};
use super::run_lookup::{find_run, resolve_state_dir};
use super::runs::{RunsArguments, run_runs_command};
use super::sources::print_diagnostic;
use crate::config::{ConfigFile, EnvironmentVariables, PhoenixSection};
use crate::experiment_report::ExperimentReport;
use gradus_github_bench::results::BenchReport;
use gradus_phoenix::client::PhoenixAddress;
use gradus_report::RunSupplement;

#[derive(Args)]
#[command(after_help = EXAMPLES)]
pub(super) struct ReportArguments {
    /// The run's id, the beginning of it, or its name; without it, the latest run.
    #[arg(value_name = "RUN")]
    run: Option<String>,
    /// The old name of `gradus runs`.
    #[arg(long, hide = true)]
    list: bool,
    /// Print the judge's answers as the model gave them, with the verdict that each was parsed into.
    #[arg(long)]
    raw_responses: bool,
    /// Where runs are kept [default: .gradus].
    #[arg(long, value_name = "DIR")]
    state_dir: Option<PathBuf>,
    #[command(flatten)]
    outputs: OutputOptions,
    #[command(flatten)]
    destinations: DestinationOptions,
    /// The Phoenix to write to [default: the one that the run has read from, else PHOENIX_COLLECTOR_ENDPOINT].
    #[arg(long, value_name = "URL", help_heading = "Outputs (- is standard output)")]
    phoenix: Option<String>,
}

const EXAMPLES: &str = "\
Examples:
  gradus report                                  the latest run
  gradus report 20261115-0731 --html out.html    an earlier one, as a page
  gradus report --gate 'combined >= 0.7'         check a gate afterwards
  gradus report --raw-responses                  what the judge answered, word for word
  gradus report --log-to-phoenix                 write its outcomes to Phoenix, again or for the first time

Exit codes: 0 done, 2 no such run or bad options, 3 a gate failed or a regression was found, 5 not every outcome could be \
written to Phoenix or over OTLP, 6 a gate is not decided.";

/// Entry point of the command. Without a run id it reports the latest run.
pub(super) fn run_report_command(arguments: &ReportArguments) -> anyhow::Result<CommandExit> {
    let environment = EnvironmentVariables::read();
    let file = match ConfigFile::read(environment.config.as_deref()) {
        Ok(file) => file,
        Err(error) => return Ok(reject_report_input(&error.to_string())),
    };
    let state_dir = resolve_state_dir(arguments.state_dir.as_ref(), &environment, &file);
    if arguments.list {
        print_diagnostic("note: --list is now `gradus runs`");
        return run_runs_command(&RunsArguments::all_runs(state_dir));
    }
    let state = StateFolder::from_path(&state_dir);
    let folder = match find_run(state_dir, arguments.run.as_deref()) {
        Ok(folder) => folder,
        Err(error) => return Ok(reject_report_input(&error.to_string())),
    };
    let bench = match BenchReport::load_from_run(folder.path()) {
        Ok(bench) => bench,
        Err(reason) => return Ok(reject_report_input(&reason.to_string())),
    };
    let experiment = match ExperimentReport::load(folder.path()) {
        Ok(experiment) => experiment,
        Err(error) => return Ok(reject_report_input(&error.to_string())),
    };
    // Gates may also be about the metrics of a benchmark or an experiment, if the run is about one.
    let measured = match (&bench, &experiment) {
        (Some(bench), _) => Some(bench.own_metric_names()),
        (None, Some(experiment)) => Some(RunSupplement::metric_names(experiment)),
        (None, None) => None,
    };
    let vocabulary = GateVocabulary::new(folder.record.evaluators.clone(), measured);
    let gates: Result<Vec<QualityGate>, _> =
        arguments.outputs.gates.gate.iter().map(|text| QualityGate::parse(text, &vocabulary)).collect();
    let gates = match (gates, arguments.outputs.prepare(&[])) {
        (Ok(gates), Ok(())) => gates,
        (Err(error), _) => return Ok(reject_report_input(&error.to_string())),
        (_, Err(error)) => return Ok(reject_report_input(&error.to_string())),
    };
    let baseline = match arguments.outputs.baseline.load(&state, &gates, &folder.record.evaluators) {
        Ok(baseline) => baseline,
        Err(error) => return Ok(reject_report_input(&error.to_string())),
    };
    let configured = file.eval.calibration.as_deref();
    let calibration = match arguments.outputs.calibration.load_for_run(configured, &folder, &gates) {
        Ok(calibration) => calibration,
        Err(error) => return Ok(reject_report_input(&error.to_string())),
    };
    if arguments.raw_responses && arguments.outputs.uses_stdout() {
        return Ok(reject_report_input("--raw-responses prints to standard output, where another output goes"));
    }
    let destinations = match prepare_destinations(arguments, &environment, &folder.record, &file.phoenix) {
        Ok(destinations) => destinations,
        Err(error) => return Ok(reject_report_input(&error.to_string())),
    };
    let mut reader = RunReader::open(&folder)?;
    let mut summary = EvaluationSummary::from_run(&mut reader)?;
    if let Err(error) = correct_summary(&mut summary, &mut reader, calibration.as_ref(), &gates)? {
        return Ok(reject_report_input(&error.to_string()));
    }
    let mut addition: Box<dyn ReportAddition> = match (bench, experiment) {
        (Some(bench), _) => Box::new(BenchAddition::new(bench)),
        (None, Some(report)) => Box::new(ExperimentAddition { report }),
        (None, None) => Box::new(NoAddition),
    };
    summary.metrics.extend(addition.metrics(&mut reader)?);
    let outputs = &arguments.outputs;
    let values = baseline_values(baseline.as_ref());
    let decides = !outputs.gates.gate.is_empty();
    let known = baseline.is_some().then_some(&values);
    let gates = if decides { gates } else { recorded_gates(&folder.record, &vocabulary, known) };
    let gates = outputs.gates.evaluate(&gates, &summary, &mut reader, &values, addition.as_ref())?;
    let comparison = match outputs.baseline.compare_run(&mut reader, &summary, addition.as_ref(), baseline)? {
        Ok(comparison) => comparison,
        Err(error) => return Ok(reject_report_input(&error.to_string())),
    };
    let report = RunReport { summary, gates, decides, comparison };
    outputs.write(&mut reader, &report, addition.as_ref())?;
    if arguments.raw_responses {
        print_raw_responses(&folder, &mut reader)?;
    }
    let sent = match destinations {
        Some(ready) => ready.send(&folder, &mut reader)?,
        None => CommandExit::Pass,
    };
    Ok(destinations::combine_exits(report.exit(outputs), sent))
}

/// Returns the gates that the run was made with, to show them again. Gates that cannot be checked are reported.
fn recorded_gates(
    record: &RunManifest,
    vocabulary: &GateVocabulary,
    baseline: Option<&BTreeMap<String, f64>>,
) -> Vec<QualityGate> {
    let parse = |text: &String| {
        // The baseline is not stored with the run: without --baseline a bar that is relative to it is unknown.
        let gate = QualityGate::parse(text, vocabulary).and_then(|gate| gate.check_baseline(baseline).map(|()| gate));
        gate.inspect_err(|error| print_diagnostic(&format!("note: a gate of the run cannot be shown: {error}"))).ok()
    };
    record.gates.iter().filter_map(parse).collect()
}

/// Prints the answers to all questions that a model was asked, in the order of the run.
fn print_raw_responses(folder: &RunFolder, reader: &mut RunReader) -> anyhow::Result<()> {
    let mut answers = JudgeAnswers::open(folder)?;
    let mut out = BufWriter::new(anstream::stdout().lock());
    writeln!(out, "\nResponses of the judge\n")?;
    reader.visit_trajectories(|_, outcomes| -> anyhow::Result<()> {
        for line in outcomes {
            for vote in &line.votes {
                let answer = answers.find_vote_answer(vote)?;
                print_raw_vote(line, vote, answer.as_ref(), &mut out)?;
            }
            if !line.votes.is_empty() {
                continue;
            }
            let answer = answers.find_answer(line)?;
            // Rules, and questions that do not apply, have no answer of a model.
            if answer.is_some() || line.cached || line.calls > 0 {
                print_raw_response(line, answer.as_ref(), &mut out)?;
            }
        }
        Ok(())
    })?;
    Ok(out.flush()?)
}

/// Checks the destinations. Without `--phoenix`, the Phoenix that the run has read from is used; the key is sent to it
/// only if it is on this machine or if PHOENIX_COLLECTOR_ENDPOINT names it as well.
fn prepare_destinations(
    arguments: &ReportArguments,
    environment: &EnvironmentVariables,
    record: &RunManifest,
    settings: &PhoenixSection,
) -> Result<Option<ReachableDestinations>, DestinationError> {
    let read_from: Vec<PhoenixAddress> =
        record.sources.iter().filter_map(|source| PhoenixAddress::from_source(source)?.ok()).collect();
    let vouched = environment.phoenix_url.as_deref().and_then(|url| PhoenixAddress::from_url(url).ok());
    // The user has named this address outside of the folder of runs, or it does not leave the machine.
    let is_vouched = |own: &PhoenixAddress| own.is_local() || vouched.as_ref().is_some_and(|url| url.base == own.base);
    // A folder of runs may come from a stranger, and must not decide who gets the key.
    if let (None, Some(own)) = (&arguments.phoenix, read_from.first())
        && arguments.destinations.logs_to_phoenix()
        && environment.phoenix_key.is_some()
        && !is_vouched(own)
    {
        return Err(DestinationError::UnconfirmedPhoenix { base: own.base.clone() });
    }
    let read_from: Vec<&PhoenixAddress> = read_from.iter().collect();
    arguments.destinations.prepare(arguments.phoenix.as_deref(), &read_from, settings, &record.evaluators)
}

fn reject_report_input(reason: &str) -> CommandExit {
    print_diagnostic(reason);
    CommandExit::BadInput
}
