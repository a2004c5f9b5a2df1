//! `gradus runs`: the runs of a state folder over time, with their scores.

use std::collections::{BTreeMap, BTreeSet};
use std::io::{self, BufWriter, Write};
use std::path::PathBuf;

use clap::Args;
use gradus_core::visible::printable_line;
use gradus_eval::report::RunReader;
use gradus_eval::run::{RunFileError, RunFolder, RunState, StateFolder};
use gradus_report::compare::VersionResults;
use gradus_report::{BOLD, DIM, format_amount, json};
use serde::Serialize;
use unicode_width::UnicodeWidthStr;

use super::CommandExit;
use super::baseline::load_trial_measurements;
use super::sources::print_diagnostic;
use crate::config::{ConfigFile, EnvironmentVariables};

#[derive(Args)]
#[command(after_help = EXAMPLES)]
pub(super) struct RunsArguments {
    /// Where runs are stored [default: .gradus].
    #[arg(long, value_name = "DIR")]
    state_dir: Option<PathBuf>,
    /// List only runs with this name.
    #[arg(long, value_name = "NAME")]
    name: Option<String>,
    /// List only runs of this branch.
    #[arg(long, value_name = "BRANCH")]
    branch: Option<String>,
    /// List only runs with this tag; may be given several times.
    #[arg(long, value_name = "KEY=VALUE")]
    tag: Vec<String>,
    /// List at most this many runs, the latest.
    #[arg(long, value_name = "N", default_value_t = 20)]
    limit: usize,
    /// Show these scores [default: all].
    #[arg(long, value_name = "NAME", value_delimiter = ',')]
    metrics: Vec<String>,
    /// Write the list as JSON to standard output.
    #[arg(long)]
    json: bool,
}

const EXAMPLES: &str = "\
Examples:
  gradus runs                                         the latest 20 runs with their scores
  gradus runs --branch main --metrics outcome,steps   two numbers over time
  gradus runs --json                                  for a script

Exit codes: 0 done, 2 there are no such runs or no such score.";

impl RunsArguments {
    /// Returns the arguments that list every run of a folder.
    pub(super) fn all_runs(state_dir: PathBuf) -> RunsArguments {
        RunsArguments {
            state_dir: Some(state_dir),
            name: None,
            branch: None,
            tag: Vec::new(),
            limit: usize::MAX,
            metrics: Vec::new(),
            json: false,
        }
    }
}

/// One run, as in `--json`.
#[derive(Debug, Serialize)]
struct ListedRun {
    run_id: String,
    name: Option<String>,
    commit: Option<String>,
    branch: Option<String>,
    tags: BTreeMap<String, String>,
    /// `finished`, `stopped`, `running` or `cut off`.
    state: &'static str,
    /// Why it ended early.
    stopped_because: Option<String>,
    started: String,
    judge: String,
    sources: Vec<String>,
    runs: u64,
    /// Metrics that are shares from 0 to 1; others are amounts, or scores on a scale of their own.
    #[serde(skip)]
    shares: BTreeSet<String>,
    /// Means by the name of the metric: shares as 0 to 1.
    metrics: BTreeMap<String, f64>,
}

/// Entry point of the command.
pub(super) fn run_runs_command(arguments: &RunsArguments) -> anyhow::Result<CommandExit> {
    let environment = EnvironmentVariables::read();
    let file = match ConfigFile::read(environment.config.as_deref()) {
        Ok(file) => file,
        Err(error) => return Ok(reject_input(&error.to_string())),
    };
    let state_dir = arguments.state_dir.clone().or_else(|| environment.state_dir.clone()).or(file.state_dir);
    let state_dir = state_dir.unwrap_or_else(|| PathBuf::from(crate::config::DEFAULT_STATE_DIR));
    let listed = list_runs(&StateFolder::from_path(&state_dir), arguments);
    if listed.is_empty() {
        let folder = state_dir.display();
        return Ok(reject_input(&format!("{folder}: there are no such runs\nhint: `gradus eval` makes them")));
    }
    if let Some(unknown) = find_unknown_metric(&listed, &arguments.metrics) {
        return Ok(reject_input(&unknown));
    }
    let mut out = BufWriter::new(anstream::stdout().lock());
    if arguments.json {
        json::write_pretty(&listed, &mut out)?;
        writeln!(out)?;
    } else {
        print_run_table(&listed, &arguments.metrics, &mut out)?;
        print_trends(&listed, &arguments.metrics, &mut out)?;
    }
    out.flush()?;
    Ok(CommandExit::Pass)
}

/// Returns the message about the first score of `--metrics` that no listed run has.
fn find_unknown_metric(listed: &[ListedRun], wanted: &[String]) -> Option<String> {
    let known: BTreeSet<&str> = listed.iter().flat_map(|run| run.metrics.keys()).map(String::as_str).collect();
    let unknown = wanted.iter().find(|name| !known.contains(name.as_str()))?;
    let hint = match known.is_empty() {
        true => String::new(),
        false => format!("\nhint: they have {}", known.into_iter().collect::<Vec<_>>().join(", ")),
    };
    Some(format!("--metrics {unknown:?}: no listed run has such a score{hint}"))
}

/// Lists the runs that the options select, latest first. A run that cannot be read is reported and left out.
fn list_runs(state: &StateFolder, arguments: &RunsArguments) -> Vec<ListedRun> {
    let mut listed = Vec::new();
    for id in state.run_ids() {
        if listed.len() == arguments.limit {
            break;
        }
        let folder = match state.read_run(&id) {
            Ok(folder) => folder,
            Err(error) => {
                print_diagnostic(&format!("a run is left out: {error}"));
                continue;
            }
        };
        if is_selected(&folder, arguments) {
            match describe_run(state, &folder) {
                Ok(run) => listed.push(run),
                Err(error) => print_diagnostic(&format!("a run is left out: {error}")),
            }
        }
    }
    listed
}

fn is_selected(folder: &RunFolder, arguments: &RunsArguments) -> bool {
    let record = &folder.record;
    let has_tag = |tag: &String| match tag.split_once('=') {
        Some((key, value)) => record.tags.get(key).is_some_and(|known| known == value),
        None => record.tags.contains_key(tag),
    };
    arguments.name.as_ref().is_none_or(|name| record.name.as_ref() == Some(name))
        && arguments.branch.as_ref().is_none_or(|branch| record.branch.as_ref() == Some(branch))
        && arguments.tag.iter().all(has_tag)
}

/// Describes a run. One whose manifest says `running` is only running if a process holds its lock; else it was
/// killed.
fn describe_run(state: &StateFolder, folder: &RunFolder) -> Result<ListedRun, RunFileError> {
    let record = &folder.record;
    let results = VersionResults::from_run(&mut RunReader::open(folder)?, &load_trial_measurements(folder.path()))?;
    let mut metrics = results.metric_values();
    // Results of benchmarks and experiments are there by two names: `success` and `bench: success`.
    metrics.retain(|name, _| !name.contains(": "));
    Ok(ListedRun {
        run_id: record.run_id.clone(),
        name: record.name.clone(),
        commit: record.commit.clone(),
        branch: record.branch.clone(),
        tags: record.tags.clone(),
        state: match record.state {
            RunState::Finished => "finished",
            RunState::Stopped => "stopped",
            RunState::Running if state.is_held(&record.run_id) => "running",
            RunState::Running => "cut off",
        },
        stopped_because: record.stopped_because.clone(),
        started: record.started.clone(),
        judge: record.judge.clone(),
        sources: record.sources.clone(),
        runs: results.run_count() as u64,
        shares: results.share_names(),
        metrics,
    })
}

/// Returns the metrics to show: the requested ones, or all that are informative. Scores of rules that only notice
/// mistakes are not, so the share that they did not flag is shown.
fn shown_metrics<'r>(listed: &'r [ListedRun], wanted: &'r [String]) -> Vec<&'r str> {
    let mut names: Vec<&str> = Vec::new();
    let is_telling = |name: &str| {
        let unflagged = format!("unflagged.{name}");
        !listed.iter().any(|run| run.metrics.contains_key(&unflagged))
    };
    for name in listed.iter().flat_map(|run| run.metrics.keys()) {
        let is_shown = if wanted.is_empty() { is_telling(name) } else { wanted.contains(name) };
        if !names.contains(&name.as_str()) && is_shown {
            names.push(name);
        }
    }
    names
}

fn print_run_table(listed: &[ListedRun], wanted: &[String], out: &mut dyn Write) -> io::Result<()> {
    let short = |text: &Option<String>, length: usize| {
        let line = printable_line(text.as_deref().unwrap_or("-"));
        line.chars().take(length).collect::<String>()
    };
    let mut rows: Vec<[String; 7]> =
        vec![["run", "name", "commit", "branch", "state", "runs", "judge"].map(str::to_owned)];
    for run in listed {
        rows.push([
            printable_line(&run.run_id),
            short(&run.name, 30),
            short(&run.commit, 8),
            short(&run.branch, 30),
            run.state.to_owned(),
            run.runs.to_string(),
            printable_line(&run.judge),
        ]);
    }
    let width = |at: usize| rows.iter().map(|row| row[at].width()).max().unwrap_or(0);
    let widths: Vec<usize> = (0..7).map(width).collect();
    for (number, row) in rows.iter().enumerate() {
        let cells = row.iter().zip(&widths).map(|(cell, width)| {
            let gap = " ".repeat(width.saturating_sub(cell.width()));
            format!("{cell}{gap}")
        });
        let line = cells.collect::<Vec<_>>().join("  ");
        if number == 0 {
            writeln!(out, "{DIM}{}{DIM:#}", line.trim_end())?;
            continue;
        }
        writeln!(out, "{}", line.trim_end())?;
        let run = &listed[number - 1];
        if let Some(reason) = &run.stopped_because {
            writeln!(out, "  {DIM}stopped: {}{DIM:#}", printable_line(reason))?;
        }
        let scores = shown_metrics(std::slice::from_ref(run), wanted);
        let scores: Vec<String> = scores
            .iter()
            .map(|name| format!("{name} {}", format_metric(run.shares.contains(*name), run.metrics[*name])))
            .collect();
        if !scores.is_empty() {
            writeln!(out, "  {DIM}{}{DIM:#}", printable_line(&scores.join(", ")))?;
        }
    }
    Ok(())
}

/// Prints one line of bars for each metric, oldest run first.
fn print_trends(listed: &[ListedRun], wanted: &[String], out: &mut dyn Write) -> io::Result<()> {
    if listed.len() < 2 {
        return Ok(());
    }
    writeln!(out, "\n{BOLD}Over time{BOLD:#} {DIM}(oldest first){DIM:#}")?;
    let names = shown_metrics(listed, wanted);
    let width = names.iter().map(|name| name.width()).max().unwrap_or(0);
    for name in names {
        let values: Vec<Option<f64>> = listed.iter().rev().map(|run| run.metrics.get(name).copied()).collect();
        let known: Vec<f64> = values.iter().flatten().copied().collect();
        let (Some(first), Some(last)) = (known.first(), known.last()) else { continue };
        let is_share = listed.iter().all(|run| run.shares.contains(name) || !run.metrics.contains_key(name));
        writeln!(
            out,
            "  {name:<width$}  {}  {} → {}",
            draw_bars(&values, is_share),
            format_metric(is_share, *first),
            format_metric(is_share, *last)
        )?;
    }
    Ok(())
}

/// Draws bars of eight heights. Shares are drawn from 0 to 1 and amounts from 0 to the largest one, so that small
/// changes look small.
fn draw_bars(values: &[Option<f64>], is_share: bool) -> String {
    const BARS: [char; 8] = ['▁', '▂', '▃', '▄', '▅', '▆', '▇', '█'];
    let largest = values.iter().flatten().copied().fold(f64::MIN_POSITIVE, f64::max);
    let top = if is_share { 1.0 } else { largest };
    let bar = |value: &Option<f64>| match value {
        Some(value) => BARS[((value / top).clamp(0.0, 1.0) * 7.0).round() as usize],
        None => '·',
    };
    values.iter().map(bar).collect()
}

fn format_metric(is_share: bool, value: f64) -> String {
    if is_share { format!("{:.1} %", 100.0 * value) } else { format_amount(value, 2) }
}

fn reject_input(reason: &str) -> CommandExit {
    print_diagnostic(reason);
    CommandExit::BadInput
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bars_show_shares_from_zero_to_one() {
        assert_eq!(draw_bars(&[Some(0.0), None, Some(0.5), Some(1.0)], true), "▁·▅█");
        assert_eq!(draw_bars(&[Some(2.0), Some(4.0)], false), "▅█");
    }
}
