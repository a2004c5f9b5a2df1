//! `gradus dataset`: makes datasets from recorded trajectories, checks them, splits them, and removes duplicates. The
//! format and the checks are those of `gradus-dataset`.

mod create;
mod dataset_file;
mod item_labels;
mod phoenix_dataset;
mod trajectory_filter;

use std::collections::BTreeMap;
use std::io::Write as _;
use std::path::PathBuf;

use clap::{Args, Subcommand};
use gradus_core::visible::printable_line;
use gradus_dataset::{
    DatasetError, SplitPart, assign_part, dedupe_items, parse_split_part, read_dataset, read_dataset_lines,
};
use gradus_report::format_counted_noun;

use super::CommandExit;
use super::sources::print_diagnostic;
use dataset_file::DatasetOutput;

#[derive(Args)]
#[command(after_help = EXAMPLES)]
pub(super) struct DatasetArguments {
    #[command(subcommand)]
    command: DatasetCommand,
}

const EXAMPLES: &str = "\
Examples:
  gradus dataset create items.jsonl traces/ --where has_error
  gradus dataset create items.jsonl store:shop --from 7d --expect-tools --expect-answer
  gradus dataset create wrong.jsonl --run 20261115 --where 'thought_to_tool = incorrect'
  gradus dataset check items.jsonl
  gradus dataset split items.jsonl --part train=80 --part test=20
  gradus dataset dedupe items.jsonl --in-place

Exit codes: 0 done, 1 unexpected failure, 2 bad input or options, 4 no items found.";

#[derive(Subcommand)]
enum DatasetCommand {
    /// Create a dataset from recorded trajectories.
    Create(Box<create::CreateArguments>),
    /// Check datasets and count their items, checks and tags.
    Check(CheckArguments),
    /// Split a dataset by a hash of the ids: an item stays in its part when others are added.
    Split(SplitArguments),
    /// Merge items whose requests are equal, apart from case, white space and final punctuation.
    Dedupe(DedupeArguments),
}

#[derive(Args)]
struct CheckArguments {
    /// Files to check.
    #[arg(required = true, value_name = "FILE")]
    files: Vec<PathBuf>,
}

#[derive(Args)]
struct SplitArguments {
    /// The dataset.
    #[arg(value_name = "FILE")]
    file: PathBuf,
    /// A part and its weight; may be given several times. Part NAME of items.jsonl is written to items.NAME.jsonl.
    #[arg(long = "part", value_name = "NAME=WEIGHT", default_values = ["train=80", "test=20"])]
    parts: Vec<String>,
    /// Another seed gives another split.
    #[arg(long, value_name = "S", default_value_t = 0)]
    seed: u64,
    /// The folder for the parts [default: that of FILE].
    #[arg(long, value_name = "DIR")]
    out_dir: Option<PathBuf>,
    /// Replace parts that exist.
    #[arg(long)]
    overwrite: bool,
}

#[derive(Args)]
struct DedupeArguments {
    /// The dataset.
    #[arg(value_name = "FILE")]
    file: PathBuf,
    /// The file to write; - is standard output.
    #[arg(long, value_name = "FILE", required_unless_present = "in_place", conflicts_with = "in_place")]
    output: Option<PathBuf>,
    /// Replace FILE.
    #[arg(long)]
    in_place: bool,
    /// Replace the output file if it exists.
    #[arg(long)]
    overwrite: bool,
}

/// Entry point of the command.
pub(super) fn run_dataset_command(arguments: &DatasetArguments) -> anyhow::Result<CommandExit> {
    match &arguments.command {
        DatasetCommand::Create(arguments) => create::create_dataset(arguments),
        DatasetCommand::Check(arguments) => check_datasets(arguments),
        DatasetCommand::Split(arguments) => split_dataset(arguments),
        DatasetCommand::Dedupe(arguments) => dedupe_dataset(arguments),
    }
}

/// Reports every bad line of every file, and counts what the good ones have.
fn check_datasets(arguments: &CheckArguments) -> anyhow::Result<CommandExit> {
    let mut out = anstream::stdout().lock();
    let mut exit = CommandExit::Pass;
    for path in &arguments.files {
        let reading = match read_dataset_lines(path) {
            Ok(reading) => reading,
            Err(error) => {
                exit = reject_dataset_input(&error.to_string());
                continue;
            }
        };
        for error in &reading.errors {
            exit = reject_dataset_input(&error.to_string());
        }
        let items: Vec<_> = reading.lines.iter().map(|line| &line.item).collect();
        let checked = items.iter().filter(|item| item.has_checks()).count();
        let refused = reading.errors.iter().filter(|error| !matches!(error, DatasetError::Empty { .. })).count();
        let errors = match refused as u64 {
            0 => String::new(),
            count => format!(", {}", format_counted_noun(count, "line refused", "lines refused")),
        };
        let name = printable_line(&path.display().to_string());
        let counted = format_counted_noun(items.len() as u64, "item", "items");
        writeln!(out, "{name}: {counted}, {checked} with checks{errors}")?;
        let mut tags: BTreeMap<&str, usize> = BTreeMap::new();
        for tag in items.iter().flat_map(|item| &item.tags) {
            *tags.entry(tag).or_default() += 1;
        }
        for (tag, count) in tags {
            writeln!(out, "  {count:>6}  {}", printable_line(tag))?;
        }
    }
    Ok(exit)
}

/// Writes each part to a file of its own, also one without items, so that scripts find every part.
fn split_dataset(arguments: &SplitArguments) -> anyhow::Result<CommandExit> {
    let parts: Result<Vec<SplitPart>, _> = arguments.parts.iter().map(|text| parse_split_part(text)).collect();
    let parts = match parts {
        Ok(parts) => parts,
        Err(error) => return Ok(reject_dataset_input(&error.to_string())),
    };
    if let Some(at) = (1..parts.len()).find(|at| parts[..*at].iter().any(|part| part.name == parts[*at].name)) {
        return Ok(reject_dataset_input(&format!("part refused: {:?}: it is named twice", parts[at].name)));
    }
    let items = match read_dataset(&arguments.file) {
        Ok(items) => items,
        Err(error) => return Ok(reject_dataset_input(&error.to_string())),
    };
    let folder = match &arguments.out_dir {
        Some(folder) => folder.clone(),
        None => arguments.file.parent().unwrap_or(std::path::Path::new("")).to_owned(),
    };
    std::fs::create_dir_all(if folder.as_os_str().is_empty() { std::path::Path::new(".") } else { &folder })?;
    let stem = arguments.file.file_stem().unwrap_or_default().to_string_lossy().into_owned();
    let outputs: Vec<DatasetOutput> = parts
        .iter()
        .map(|part| DatasetOutput::new(folder.join(format!("{stem}.{}.jsonl", part.name)), arguments.overwrite))
        .collect();
    // All files are looked at before the first is written.
    if let Some(error) = outputs.iter().find_map(|output| output.check_overwrite().err()) {
        return Ok(reject_dataset_input(&error.to_string()));
    }
    let mut out = anstream::stdout().lock();
    for (at, (part, output)) in parts.iter().zip(&outputs).enumerate() {
        let own: Vec<_> =
            items.iter().filter(|item| assign_part(&item.id, arguments.seed, &parts) == Some(at)).collect();
        if let Err(error) = output.write(own.iter().copied()) {
            return Ok(reject_dataset_input(&error.to_string()));
        }
        let counted = format_counted_noun(own.len() as u64, "item", "items");
        writeln!(out, "{}: {counted} in {}", part.name, output.shown_name())?;
    }
    Ok(CommandExit::Pass)
}

/// Reports every merge, since the expectations of a removed item are lost.
fn dedupe_dataset(arguments: &DedupeArguments) -> anyhow::Result<CommandExit> {
    let items = match read_dataset(&arguments.file) {
        Ok(items) => items,
        Err(error) => return Ok(reject_dataset_input(&error.to_string())),
    };
    let output = match &arguments.output {
        Some(path) => DatasetOutput::new(path.clone(), arguments.overwrite),
        None => DatasetOutput::new(arguments.file.clone(), true),
    };
    let (kept, merged) = dedupe_items(items);
    if let Err(error) = output.check_overwrite().and_then(|()| output.write(&kept)) {
        return Ok(reject_dataset_input(&error.to_string()));
    }
    for one in &merged {
        let differs = match one.differing_fields.as_slice() {
            [] => String::new(),
            fields => format!("; {} of the removed item differed and is lost", fields.join(", ")),
        };
        print_diagnostic(&format!("merged {:?} into {:?}{differs}", one.removed_id, one.kept_id));
    }
    let (kept, merged) = (kept.len() as u64, merged.len() as u64);
    print_diagnostic(&format!(
        "{} kept, {} merged, written to {}",
        format_counted_noun(kept, "item", "items"),
        format_counted_noun(merged, "item", "items"),
        output.shown_name()
    ));
    Ok(CommandExit::Pass)
}

fn reject_dataset_input(reason: &str) -> CommandExit {
    print_diagnostic(reason);
    CommandExit::BadInput
}
