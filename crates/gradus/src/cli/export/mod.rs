//! `gradus export`: trajectories, with the verdicts on them, for other tools and as training data.

mod export_file;
mod graded_input;
mod parquet_folder;
mod scrubbed_rows;

use std::collections::BTreeMap;
use std::io::{self, Write};
use std::path::{Path, PathBuf};

use clap::{Args, ValueEnum};
use gradus_export::training::{RunSelection, TrainingCounts, TrainingFormat, TrainingSettings, write_training_rows};
use gradus_export::{
    ArgumentForm, AtifVersion, ChatForm, ChatShape, ExportManifest, GradedRuns, write_atif_rows, write_message_rows,
    write_otlp_rows,
};

use gradus_report::format_counted_noun;

use super::CommandExit;
use super::sources::{SourceOptions, print_diagnostic};
use export_file::ExportFile;
use graded_input::{ExportInputError, GradedInput};
use parquet_folder::{ParquetFolderError, PendingFolder, write_parquet_folder};
use scrubbed_rows::{RowScrubber, ScrubbedRows, SurvivingSecret};

#[derive(Args)]
#[command(after_help = EXAMPLES)]
pub(super) struct ExportArguments {
    /// Runs by their id or name, or sources as `gradus traces` reads them; without any, the latest run. Verdicts come
    /// from runs.
    #[arg(value_name = "RUN|SOURCE")]
    inputs: Vec<String>,
    /// What to write.
    #[arg(long, value_enum, value_name = "FORMAT")]
    format: ExportFormat,
    /// The file to write; - is standard output. A manifest is written beside it, as FILE.manifest.json. For parquet, the
    /// folder to write.
    #[arg(long, short, value_name = "FILE", default_value = "-")]
    out: PathBuf,
    /// Whose reader the rows are for: tools as text for TRL, as a list for OpenAI, Fireworks and Together.
    #[arg(long, value_enum, default_value_t = RowShape::Trl)]
    shape: RowShape,
    /// How the arguments of calls are written [default: object for trl, text for openai].
    #[arg(long, value_enum)]
    arguments: Option<ArgumentOption>,
    /// The version of ATIF to write.
    #[arg(long, value_enum, default_value_t = AtifOption::V1_7)]
    atif_version: AtifOption,
    /// For sft, the runs to imitate: good (judged, and no verdict is bad), success (reached their goal), or all.
    #[arg(long, value_enum, default_value_t = RunSelectionOption::Good, help_heading = "Which rows")]
    select: RunSelectionOption,
    /// Use only verdicts of these evaluators, with commas between [default: all of the run].
    #[arg(long, value_name = "NAMES", value_delimiter = ',', help_heading = "Which rows")]
    evaluators: Vec<String>,
    /// Use only verdicts whose label is right at least this often, by the calibration of the run or of --calibration.
    #[arg(long, value_name = "SHARE", help_heading = "Which rows")]
    min_precision: Option<f64>,
    /// The calibration of the judge [default: the one that the run was judged with].
    #[arg(long, value_name = "FILE", help_heading = "Which rows")]
    calibration: Option<PathBuf>,
    /// Replace secrets and personal data by placeholders, and refuse to write if something that looks like a secret is
    /// left.
    #[arg(long)]
    scrub: bool,
    #[command(flatten)]
    which: SourceOptions,
    /// Where runs and the store are kept [default: .gradus].
    #[arg(long, value_name = "DIR")]
    state_dir: Option<PathBuf>,
    /// Settings; else gradus.toml if it is here.
    #[arg(long, value_name = "FILE")]
    config: Option<PathBuf>,
}

const EXAMPLES: &str = "\
Examples:
  gradus export --format sft --out good.jsonl              conversations of the latest run without a bad verdict
  gradus export nightly --format dpo --out pairs.jsonl     preference pairs of the run named nightly
  gradus export --format dpo --shape openai --out p.jsonl  the same for OpenAI, Fireworks and Together
  gradus export --format kto --min-precision 0.9 -o k.jsonl
  gradus export ~/.claude/projects --format atif --scrub -o sessions.jsonl

Exit codes: 0 written, 2 wrong input, 4 nothing to write (the reason is printed), 5 a secret was left after scrubbing.";

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum ExportFormat {
    /// Our own lines, as `gradus traces --format jsonl`, with verdicts.
    Jsonl,
    /// The Agent Trajectory Interchange Format, one document a line, with verdicts.
    Atif,
    /// OTLP JSON, one trace a line, with OpenInference attributes.
    Otlp,
    /// Conversations as chat messages.
    Messages,
    /// Tables for SQL and data frames: a folder with trajectories, steps and verdicts.
    Parquet,
    /// Training data: conversations to imitate.
    Sft,
    /// Training data: preference pairs.
    Dpo,
    /// Training data: replies with a label.
    Kto,
    /// Training data: conversations with a reward for each step, as Eval Protocol reads them.
    StepRewards,
    /// Training data: steps with labels, for process reward models.
    Stepwise,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum RowShape {
    Trl,
    Openai,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum ArgumentOption {
    Object,
    Text,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum AtifOption {
    #[value(name = "1.7")]
    V1_7,
    #[value(name = "1.8")]
    V1_8,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum RunSelectionOption {
    Good,
    Success,
    All,
}

impl ExportFormat {
    fn training(self) -> Option<TrainingFormat> {
        match self {
            ExportFormat::Sft => Some(TrainingFormat::Supervised),
            ExportFormat::Dpo => Some(TrainingFormat::Preference),
            ExportFormat::Kto => Some(TrainingFormat::Unpaired),
            ExportFormat::StepRewards => Some(TrainingFormat::StepRewards),
            ExportFormat::Stepwise => Some(TrainingFormat::Stepwise),
            ExportFormat::Jsonl
            | ExportFormat::Atif
            | ExportFormat::Otlp
            | ExportFormat::Messages
            | ExportFormat::Parquet => None,
        }
    }

    /// Whether rows are made of verdicts on steps.
    fn needs_verdicts(self) -> bool {
        matches!(self, ExportFormat::Dpo | ExportFormat::Kto | ExportFormat::StepRewards | ExportFormat::Stepwise)
    }

    fn name(self) -> String {
        value_name(&self)
    }
}

/// Entry point of the command.
pub(super) fn run_export_command(arguments: &ExportArguments) -> anyhow::Result<CommandExit> {
    let input = match GradedInput::load(arguments) {
        Ok(input) => input,
        Err(ExportInputError::Rejected(message)) => return Ok(reject_export_input(&message)),
        Err(ExportInputError::Unexpected(error)) => return Err(error),
    };
    if input.runs.is_empty() {
        print_diagnostic("there are no trajectories to export");
        return Ok(input.failed_exit.unwrap_or(CommandExit::NothingFound));
    }
    if arguments.format.needs_verdicts() && !input.has_verdicts() {
        let format = arguments.format.name();
        return Ok(reject_export_input(&format!(
            "--format {format} is made of verdicts, and there are none\nhint: judge first with `gradus eval SOURCE`, then \
             export the run"
        )));
    }
    let out = arguments.out.canonicalize().ok();
    if out.is_some() && arguments.inputs.iter().any(|input| Path::new(input).canonicalize().ok() == out) {
        let out = arguments.out.display();
        return Ok(reject_export_input(&format!("{out}: is the source; write to another file")));
    }
    let mut scrubber = arguments.scrub.then(RowScrubber::new);
    let target = match PendingExport::write(arguments, &input, scrubber.as_mut()) {
        Ok(target) => target,
        Err(ExportError::Rejected(message)) => return Ok(reject_export_input(&message)),
        Err(ExportError::Rows(error)) => {
            match error.get_ref().and_then(|inner| inner.downcast_ref::<SurvivingSecret>()) {
                Some(leak) => {
                    print_diagnostic(&format!(
                        "{leak}; nothing was written\nhint: leave out that run, or remove the value from it"
                    ));
                    return Ok(CommandExit::NotWritten);
                }
                None => return Err(error.into()),
            }
        }
    };
    if target.counts.rows == 0 {
        let format = arguments.format.name();
        print_diagnostic(&format!("no row of {format} can be made: {}", describe_left_out(&target.counts)));
        return Ok(CommandExit::NothingFound);
    }
    let mut manifest = serde_json::to_value(build_manifest(arguments, &input, &target.counts))?;
    if let Some(scrubber) = &mut scrubber {
        manifest["scrubbing"] = serde_json::to_value(scrubber.statistics())?;
        // Sources are paths, with the name of the user in them.
        scrubber.scrub_value(&mut manifest["sources"]);
    }
    match target.destination {
        ExportDestination::File(file) => file.finish(&manifest)?,
        ExportDestination::Folder(folder) => folder.finish(&manifest)?,
    }
    print_diagnostic(&describe_result(arguments, &target.counts));
    Ok(input.failed_exit.unwrap_or(CommandExit::Pass))
}

/// Rows that are written to temporary files.
struct PendingExport {
    destination: ExportDestination,
    counts: TrainingCounts,
}

enum ExportDestination {
    File(ExportFile),
    Folder(PendingFolder),
}

/// Why no rows were written.
enum ExportError {
    /// An error of the user's input, as it is printed.
    Rejected(String),
    Rows(io::Error),
}

impl PendingExport {
    fn write(
        arguments: &ExportArguments,
        input: &GradedInput,
        scrubber: Option<&mut RowScrubber>,
    ) -> Result<PendingExport, ExportError> {
        if arguments.format == ExportFormat::Parquet {
            let written = write_parquet_folder(arguments, input, scrubber);
            let (folder, counts) = written.map_err(|error| match error {
                ParquetFolderError::Rows(error) => ExportError::Rows(error),
                error => ExportError::Rejected(error.to_string()),
            })?;
            return Ok(PendingExport { destination: ExportDestination::Folder(folder), counts });
        }
        let created = ExportFile::create(&arguments.out);
        let mut file = created.map_err(|error| ExportError::Rejected(error.to_string()))?;
        let written = match scrubber {
            Some(scrubber) => write_rows(arguments, &input.runs, &mut ScrubbedRows::new(&mut file, scrubber)),
            None => write_rows(arguments, &input.runs, &mut file),
        };
        Ok(PendingExport { destination: ExportDestination::File(file), counts: written.map_err(ExportError::Rows)? })
    }
}

fn write_rows(arguments: &ExportArguments, runs: &GradedRuns, out: &mut dyn Write) -> io::Result<TrainingCounts> {
    let form = arguments.chat_form();
    let rows = match arguments.format {
        ExportFormat::Jsonl => write_own_lines(runs, out)?,
        ExportFormat::Atif => write_atif_rows(runs, arguments.atif_version.into(), out)?,
        ExportFormat::Otlp => write_otlp_rows(runs, out)?,
        ExportFormat::Messages => write_message_rows(runs, form, out)?,
        format => {
            let Some(format) = format.training() else { return Ok(TrainingCounts::default()) };
            let settings = TrainingSettings { format, form, selection: arguments.select.into() };
            return write_training_rows(runs, &settings, out);
        }
    };
    Ok(TrainingCounts { rows, ..TrainingCounts::default() })
}

/// Writes our own line format. The verdicts are in the same object as the fields of the trajectory.
fn write_own_lines(runs: &GradedRuns, out: &mut dyn Write) -> io::Result<u64> {
    let mut rows = 0;
    for run in runs.iter() {
        let mut line = serde_json::to_value(&run.trajectory)?;
        if !run.verdicts.is_empty() {
            line["verdicts"] = serde_json::to_value(&run.verdicts)?;
        }
        writeln!(out, "{line}")?;
        rows += 1;
    }
    Ok(rows)
}

fn build_manifest(arguments: &ExportArguments, input: &GradedInput, counts: &TrainingCounts) -> ExportManifest {
    let mut selection = BTreeMap::new();
    if arguments.format == ExportFormat::Sft {
        selection.insert("select".to_owned(), value_name(&arguments.select));
    }
    if !arguments.evaluators.is_empty() {
        selection.insert("evaluators".to_owned(), arguments.evaluators.join(","));
    }
    if let Some(share) = arguments.min_precision {
        selection.insert("min_precision".to_owned(), share.to_string());
    }
    ExportManifest {
        schema: "gradus.export/1",
        format: arguments.format.name(),
        gradus_version: env!("CARGO_PKG_VERSION").to_owned(),
        created: jiff::Timestamp::now().to_string(),
        sources: input.sources.clone(),
        run_id: input.run_id.clone(),
        selection,
        trajectories: input.runs.iter().count() as u64,
        rows: counts.rows,
        duplicates: counts.duplicates,
        left_out: counts.left_out.clone(),
        made_by: counts.made_by.clone(),
        verdicts: input.verdict_sources.clone(),
        scrubbing: None,
    }
}

/// Describes why there is nothing to write, most frequent reason first.
fn describe_left_out(counts: &TrainingCounts) -> String {
    let mut reasons: Vec<_> = counts.left_out.iter().collect();
    reasons.sort_by_key(|(_, count)| std::cmp::Reverse(**count));
    match reasons.as_slice() {
        [] => "no two runs differ at a step where one was found right and the other wrong, and no wrong step was \
               corrected by the agent"
            .to_owned(),
        reasons => reasons.iter().map(|(reason, count)| format!("{reason} ({count})")).collect::<Vec<_>>().join(", "),
    }
}

fn describe_result(arguments: &ExportArguments, counts: &TrainingCounts) -> String {
    let mut text = format_counted_noun(counts.rows, "row", "rows");
    if !counts.made_by.is_empty() {
        let ways: Vec<String> = counts.made_by.iter().map(|(way, count)| format!("{count} by {way}")).collect();
        text.push_str(&format!(" ({})", ways.join(", ")));
    }
    if counts.duplicates > 0 {
        text.push_str(&format!(", {} duplicates left out", counts.duplicates));
    }
    if !counts.left_out.is_empty() {
        text.push_str(&format!("; left out: {}", describe_left_out(counts)));
    }
    match arguments.out.to_str() {
        Some("-") => text,
        _ => format!("{}: {text}", arguments.out.display()),
    }
}

fn value_name(value: &impl ValueEnum) -> String {
    value.to_possible_value().map(|value| value.get_name().to_owned()).unwrap_or_default()
}

fn reject_export_input(message: &str) -> CommandExit {
    print_diagnostic(message);
    CommandExit::BadInput
}

impl ExportArguments {
    fn chat_form(&self) -> ChatForm {
        let mut form = ChatForm::for_shape(match self.shape {
            RowShape::Trl => ChatShape::Trl,
            RowShape::Openai => ChatShape::OpenAi,
        });
        match self.arguments {
            Some(ArgumentOption::Object) => form.arguments = ArgumentForm::Object,
            Some(ArgumentOption::Text) => form.arguments = ArgumentForm::Text,
            None => {}
        }
        form
    }
}

impl From<AtifOption> for AtifVersion {
    fn from(option: AtifOption) -> Self {
        match option {
            AtifOption::V1_7 => AtifVersion::V1_7,
            AtifOption::V1_8 => AtifVersion::V1_8,
        }
    }
}

impl From<RunSelectionOption> for RunSelection {
    fn from(option: RunSelectionOption) -> Self {
        match option {
            RunSelectionOption::Good => RunSelection::Good,
            RunSelectionOption::Success => RunSelection::Success,
            RunSelectionOption::All => RunSelection::All,
        }
    }
}
