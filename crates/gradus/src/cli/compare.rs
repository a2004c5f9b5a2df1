//! `gradus compare`: versions of an agent over the same tasks.

use std::fs::File;
use std::io::{self, BufWriter, Read, Write};
use std::path::{Path, PathBuf};

use clap::{Args, Parser};
use gradus_eval::run::StateFolder;
use gradus_report::compare::{
    MAX_VERSIONS, VersionComparison, is_baseline, print_comparison, write_comparison_html, write_comparison_markdown,
};
use gradus_report::json;

use super::CommandExit;
use super::baseline::{CompareError, DecisionOptions, load_version, split_version};
use super::eval::{EvalArguments, PreparedRun};
use super::report_addition::ReportAddition;
use super::sources::print_diagnostic;
use crate::config::{ConfigFile, EnvironmentVariables};

#[derive(Args)]
#[command(after_help = EXAMPLES)]
pub(super) struct CompareArguments {
    /// Two or more versions: the id of a run or its beginning, the name of a run, a baseline file, or a source as for
    /// `gradus eval`. A source is judged by rules first; gates of the settings file are ignored. `?version=2.3.0` behind
    /// a run or a source selects one version of the agent. The first version is the one that the others are compared
    /// with.
    #[arg(value_name = "VERSION", required = true, num_args = 2..)]
    versions: Vec<String>,
    /// Where runs are stored [default: .gradus].
    #[arg(long, value_name = "DIR")]
    state_dir: Option<PathBuf>,
    #[command(flatten)]
    decision: DecisionOptions,
    /// Decide --fail-on also if a version ended early; without it the exit code is 6.
    #[arg(long, help_heading = "Comparison")]
    allow_partial: bool,
    /// Write the comparison as JSON.
    #[arg(long, value_name = "FILE", help_heading = "Outputs (- is standard output)")]
    json: Option<PathBuf>,
    /// Write the comparison as Markdown, for the summary page of a CI job.
    #[arg(long, value_name = "FILE", help_heading = "Outputs (- is standard output)")]
    markdown: Option<PathBuf>,
    /// Write the comparison as an HTML page.
    #[arg(long, value_name = "FILE", help_heading = "Outputs (- is standard output)")]
    html: Option<PathBuf>,
}

const EXAMPLES: &str = "\
Examples:
  gradus compare v1 v2                                  two runs by name
  gradus compare main.baseline 20261117-0914            a baseline and a run
  gradus compare v1 v2 --fail-on regression             exit 3 if a score of v2 is worse
  gradus compare v1 v2 v3 --html versions.html          all pairs, corrected together
  gradus compare 'store:shop?version=2.2.0' 'store:shop?version=2.3.0'

Verdicts: SAME if the whole interval of the difference is smaller than --min-effect, BETTER or WORSE if it excludes 0, \
INCONCLUSIVE otherwise.

Exit codes: 0 done, 1 an output cannot be written, 2 bad input or versions that cannot be compared, 3 a regression with \
--fail-on regression, 6 with --fail-on a version ended early or has no steps.";

/// Entry point of the command.
pub(super) fn run_compare_command(arguments: &CompareArguments) -> anyhow::Result<CommandExit> {
    let environment = EnvironmentVariables::read();
    let file = match ConfigFile::read(environment.config.as_deref()) {
        Ok(file) => file,
        Err(error) => return Ok(reject_input(&error.to_string())),
    };
    let outputs = [&arguments.json, &arguments.markdown, &arguments.html];
    if outputs.into_iter().flatten().filter(|path| path.as_os_str() == "-").count() > 1 {
        return Ok(reject_input("only one output can go to standard output"));
    }
    if arguments.versions.len() > MAX_VERSIONS {
        return Ok(reject_input(&format!(
            "{} versions are too many: at most {MAX_VERSIONS}",
            arguments.versions.len()
        )));
    }
    let state_dir = arguments.state_dir.clone().or_else(|| environment.state_dir.clone()).or(file.state_dir);
    let state_dir = state_dir.unwrap_or_else(|| PathBuf::from(crate::config::DEFAULT_STATE_DIR));
    let state = StateFolder::from_path(&state_dir);
    let load = || {
        // A run wins over a folder with the same name, which is often the one that it was made from.
        let load_one = |name: &String| match find_source(name).filter(|source| !is_run(&state, source)) {
            Some(source) if is_trial_folder(Path::new(source)) => {
                Err(CompareError::TrialFolder { name: source.to_owned() })
            }
            Some(source) => judge_source(source, name, &state_dir).and_then(|run| load_version(&run, &state)),
            None => load_version(name, &state),
        };
        let versions = arguments.versions.iter().map(load_one).collect::<Result<Vec<_>, CompareError>>()?;
        let (results, mut readers): (Vec<_>, Vec<_>) =
            versions.into_iter().map(|version| (version.results, version.reader)).unzip();
        let mut readers: Vec<_> = readers.iter_mut().map(Option::as_mut).collect();
        arguments.decision.compare(&results, &mut readers)
    };
    let comparison = match load() {
        Ok(comparison) => comparison,
        Err(CompareError::RunFile(error)) => return Err(error.into()),
        Err(error) => return Ok(reject_input(&error.to_string())),
    };
    write_outputs(arguments, &comparison)?;
    let exit = arguments.decision.decide_exit(&comparison, arguments.allow_partial);
    if exit == CommandExit::GateIncomplete {
        print_diagnostic(match comparison.is_complete() {
            false => {
                "a version ended early, so --fail-on decides nothing\nhint: finish its run, or add --allow-partial"
            }
            true => {
                "a version has no steps, so --fail-on decides nothing\nhint: check the tracing of its agent, or add \
                 --allow-partial"
            }
        });
    }
    Ok(exit)
}

fn is_run(state: &StateFolder, name: &str) -> bool {
    let is_named = |id: &String| state.read_run(id).is_ok_and(|run| run.record.name.as_deref() == Some(name));
    state.run_ids().iter().any(|id| id == name || is_named(id))
}

/// Whether a folder is that of an experiment or of a benchmark. Its traces alone lack the results of the trials.
fn is_trial_folder(path: &Path) -> bool {
    ["experiment.json", "trials.jsonl"].iter().any(|file| path.join(file).is_file())
}

/// Returns the source that a version names; `None` if it is a run or a baseline.
fn find_source(name: &str) -> Option<&str> {
    let (source, _) = split_version(name);
    let is_address = ["store:", "gradus://", "phoenix://"].iter().any(|scheme| source.starts_with(scheme));
    let path = Path::new(source);
    let is_traces = path.is_dir()
        || File::open(path).is_ok_and(|file| {
            let mut first_bytes = Vec::new();
            file.take(64).read_to_end(&mut first_bytes).is_ok() && !is_baseline(&first_bytes)
        });
    (is_address || is_traces).then_some(source)
}

/// Judges a source by rules, and returns the run with the version that was asked for. An unchanged source is judged
/// again: reading it costs as much as looking whether it changed.
fn judge_source(source: &str, version: &str, state_dir: &Path) -> Result<String, CompareError> {
    let name = format!("compare {source}");
    let state_dir = state_dir.display().to_string();
    let words =
        ["eval", source, "--judge", "offline", "--quiet", "--fresh", "--name", &name, "--state-dir", &state_dir];
    let failed = |reason: String| CompareError::Source { name: source.to_owned(), reason };
    let command = SourceEvaluation::try_parse_from(words).map_err(|error| failed(error.to_string()))?;
    let judged = command.arguments.without_file_gates();
    let prepared = PreparedRun::new(&judged, None).map_err(|error| failed(error.to_string()))?;
    match prepared.judge(&mut SilentAddition) {
        Ok(CommandExit::Pass) => Ok(format!("{name}{}", &version[source.len()..])),
        Ok(CommandExit::NothingFound) => Err(failed("there are no trajectories in it".to_owned())),
        Ok(_) => Err(failed("it could not be read completely; see above".to_owned())),
        Err(error) => Err(failed(format!("{error:#}"))),
    }
}

/// The arguments of `gradus eval` for one source.
#[derive(Parser)]
struct SourceEvaluation {
    #[command(flatten)]
    arguments: EvalArguments,
}

/// Judges without printing a summary: the comparison is the result.
struct SilentAddition;

impl ReportAddition for SilentAddition {
    fn replaces_summary(&self) -> bool {
        true
    }
}

fn write_outputs(arguments: &CompareArguments, comparison: &VersionComparison) -> anyhow::Result<()> {
    let mut is_stdout_taken = false;
    let mut write = |path: &Option<PathBuf>, render: &dyn Fn(&mut dyn Write) -> io::Result<()>| {
        let Some(path) = path else { return Ok(()) };
        if path.as_os_str() == "-" {
            is_stdout_taken = true;
            let mut out = BufWriter::new(io::stdout().lock());
            render(&mut out)?;
            return Ok(out.flush()?);
        }
        let write_file = || {
            let mut out = BufWriter::new(File::create(path)?);
            render(&mut out)?;
            out.flush()
        };
        anyhow::Context::with_context(write_file(), || path.display().to_string())
    };
    write(&arguments.json, &|out| {
        json::write_pretty(comparison, out)?;
        writeln!(out)
    })?;
    write(&arguments.markdown, &|out| write_comparison_markdown(comparison, out))?;
    write(&arguments.html, &|out| write_comparison_html(comparison, out))?;
    if !is_stdout_taken {
        let mut out = BufWriter::new(anstream::stdout().lock());
        print_comparison(comparison, &mut out)?;
        out.flush()?;
    }
    Ok(())
}

fn reject_input(reason: &str) -> CommandExit {
    print_diagnostic(reason);
    CommandExit::BadInput
}
