//! `gradus report`: results of an earlier run in any output format, computed from the files of the run alone. Gates are
//! checked anew, and outcomes can be exported later.

use std::path::PathBuf;

use clap::Args;
use gradus_eval::report::{EvaluationSummary, QualityGate, RunReader};
use gradus_eval::run::{RunManifest, RunState, StateFolder};

use super::CommandExit;
use super::bench::BenchAddition;
use super::destinations::{self, DestinationError, DestinationOptions, ReachableDestinations};
use super::outputs::{NoAddition, OutputOptions, ReportAddition, evaluate_gates, has_failed};
use super::sources::print_diagnostic;
use crate::config::{ConfigFile, EnvironmentVariables, PhoenixSection};
use gradus_github_bench::results::BenchReport;
use gradus_phoenix::client::PhoenixAddress;

#[derive(Args)]
#[command(after_help = EXAMPLES)]
pub(super) struct ReportArguments {
    /// The run's id, or enough of its beginning; the latest run without it.
    #[arg(value_name = "RUN")]
    run: Option<String>,
    /// List the runs that are there.
    #[arg(long)]
    list: bool,
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
  gradus report --log-to-phoenix                 write its outcomes to Phoenix, again or for the first time

Exit codes: 0 done, 2 no such run, 3 a gate failed, 5 not every outcome could be written to Phoenix or over OTLP.";

/// Entry point of the command. Without a run id it reports the latest run.
pub(super) fn run_report_command(arguments: &ReportArguments) -> anyhow::Result<CommandExit> {
    let environment = EnvironmentVariables::read();
    let file = match ConfigFile::read(environment.config.as_deref()) {
        Ok(file) => file,
        Err(error) => return Ok(reject_report_input(&error.to_string())),
    };
    let state_dir = arguments.state_dir.clone().or_else(|| environment.state_dir.clone());
    let state_dir = state_dir.or(file.state_dir);
    let state_dir = state_dir.unwrap_or_else(|| PathBuf::from(".gradus"));
    let state = StateFolder::from_path(&state_dir);
    let runs = state.run_ids();
    if runs.is_empty() {
        return Ok(reject_report_input(&format!(
            "there are no runs in {}; `gradus eval` makes them",
            state_dir.display()
        )));
    }
    if arguments.list {
        return print_run_list(&state, &runs);
    }
    // Run ids begin with their time and the latest is first.
    let wanted = arguments.run.as_deref().unwrap_or(&runs[0]);
    let matches: Vec<&String> = runs.iter().filter(|id| id.starts_with(wanted)).collect();
    let id = match matches.as_slice() {
        [one] => one,
        [] => {
            return Ok(reject_report_input(&format!("there is no run {wanted:?}; `gradus report --list` lists them")));
        }
        _ => {
            return Ok(reject_report_input(&format!(
                "{} runs begin with {wanted:?}; give more of the id",
                matches.len()
            )));
        }
    };
    let folder = match state.read_run(id) {
        Ok(folder) => folder,
        Err(error) => return Ok(reject_report_input(&error.to_string())),
    };
    let bench = match BenchReport::of_run(folder.path()) {
        Ok(bench) => bench,
        Err(reason) => return Ok(reject_report_input(&reason.to_string())),
    };
    // Gates may also be about the metrics of a benchmark, if the run is about one.
    let measured = bench.as_ref().map(BenchReport::own_metric_names).unwrap_or_default();
    let names = folder.record.evaluators.iter().map(|known| known.name.as_str());
    let names: Vec<&str> = names.chain(measured.iter().map(String::as_str)).collect();
    let gates: Result<Vec<QualityGate>, _> =
        arguments.outputs.gate.iter().map(|text| QualityGate::parse(text, &names)).collect();
    let gates = match (gates, arguments.outputs.prepare(&[])) {
        (Ok(gates), Ok(())) => gates,
        (Err(error), _) => return Ok(reject_report_input(&error.to_string())),
        (_, Err(error)) => return Ok(reject_report_input(&error.to_string())),
    };
    let destinations = match prepare_destinations(arguments, &environment, &folder.record, &file.phoenix) {
        Ok(destinations) => destinations,
        Err(error) => return Ok(reject_report_input(&error.to_string())),
    };
    let mut reader = RunReader::open(&folder)?;
    let mut summary = EvaluationSummary::from_run(&mut reader)?;
    let mut addition: Box<dyn ReportAddition> = match bench {
        Some(bench) => Box::new(BenchAddition::new(bench)),
        None => Box::new(NoAddition),
    };
    summary.metrics.extend(addition.metrics(&mut reader)?);
    let results = evaluate_gates(&gates, &summary, arguments.outputs.strict, addition.as_ref());
    arguments.outputs.write(&mut reader, &summary, &results, addition.as_ref())?;
    let sent = match destinations {
        Some(ready) => ready.send(&folder, &mut reader)?,
        None => CommandExit::Pass,
    };
    let exit = if has_failed(&results) { CommandExit::GateFailed } else { CommandExit::Pass };
    Ok(destinations::combine_exits(exit, sent))
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
        record.sources.iter().filter_map(|source| PhoenixAddress::of_source(source)?.ok()).collect();
    let vouched = environment.phoenix_url.as_deref().and_then(|url| PhoenixAddress::of_url(url).ok());
    // The user has named this address outside of the folder of runs, or it does not leave the machine.
    let is_vouched = |own: &PhoenixAddress| own.is_local() || vouched.as_ref().is_some_and(|url| url.base == own.base);
    // A folder of runs may come from a stranger, and must not decide who gets the key.
    if let (None, Some(own)) = (&arguments.phoenix, read_from.first())
        && arguments.destinations.go_to_phoenix()
        && environment.phoenix_key.is_some()
        && !is_vouched(own)
    {
        return Err(DestinationError::UnconfirmedPhoenix { base: own.base.clone() });
    }
    let read_from: Vec<&PhoenixAddress> = read_from.iter().collect();
    arguments.destinations.prepare(arguments.phoenix.as_deref(), &read_from, settings, &record.evaluators)
}

/// One line per run. A run whose manifest says `running` is only running if a process holds its lock; else it was
/// killed.
fn print_run_list(state: &StateFolder, runs: &[String]) -> anyhow::Result<CommandExit> {
    use std::io::Write;
    let mut out = anstream::stdout().lock();
    for id in runs {
        let Ok(folder) = state.read_run(id) else { continue };
        let record = &folder.record;
        let sources = gradus_core::visible::printable_line(&record.sources.join(" "));
        let judge = gradus_core::visible::printable_line(&record.judge);
        let how = match record.state {
            RunState::Finished => "finished",
            RunState::Stopped => "stopped",
            RunState::Running if state.is_held(id) => "running",
            RunState::Running => "cut off",
        };
        writeln!(out, "{}  {how:<9} {judge}  {sources}", gradus_core::visible::printable_line(id))?;
    }
    Ok(CommandExit::Pass)
}

fn reject_report_input(reason: &str) -> CommandExit {
    print_diagnostic(reason);
    CommandExit::BadInput
}
