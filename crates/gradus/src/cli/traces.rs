//! `gradus traces`: what is in these traces, and could it be read?

use std::io::{self, BufWriter, IsTerminal, Write};

use clap::{Args, Subcommand, ValueEnum};
use gradus_core::coverage::Coverage;
use gradus_core::trajectory::{DefectKind, Trajectory};

use super::Exit;
use crate::output::{coverage, json, table, transcript};
use crate::source::{self, Input, Intake, Limits, SourceError, Summary};

#[derive(Args)]
#[command(args_conflicts_with_subcommands = true, subcommand_negates_reqs = true, after_help = EXAMPLES)]
pub(super) struct Arguments {
    #[command(subcommand)]
    command: Option<ArgumentsCommand>,
    /// Files, folders or - for standard input; gzip and zstd are taken off. OTLP (protobuf, JSON, JSON Lines; traces
    /// and logs), Phoenix spans, nested trace dumps, message lists (OpenAI, Anthropic) and ReAct transcripts are told
    /// apart by their content. All sources of one call are assembled together.
    #[arg(value_name = "SOURCE", required = true)]
    sources: Vec<String>,
    /// How to print the trajectories.
    #[arg(long, value_enum, default_value_t = Format::Table)]
    format: Format,
    /// Print how much could be read, source by source, instead of the trajectories.
    #[arg(long)]
    coverage: bool,
}

const EXAMPLES: &str = "\
Examples:
  gradus traces traces.bin                       list what is in a file
  gradus traces show 4fe6911a traces.bin         read one trajectory
  gradus traces --coverage exports/              can these be judged?
  otel-dump | gradus traces --format jsonl -     one trajectory a line, for other tools

Exit codes: 0 read, 2 a source could not be read (the others are printed), 4 no trajectories found.";

#[derive(Subcommand)]
enum ArgumentsCommand {
    /// Prints one trajectory as a transcript: steps numbered, defects below.
    Show(ShowArguments),
}

#[derive(Args)]
struct ShowArguments {
    /// The trajectory's id, or enough of its beginning.
    #[arg(value_name = "ID")]
    id: String,
    /// Where to look for it.
    #[arg(value_name = "SOURCE", required = true)]
    sources: Vec<String>,
    /// Print long texts whole.
    #[arg(long)]
    full: bool,
    /// How to print it; a table is a transcript here.
    #[arg(long, value_enum, default_value_t = Format::Table)]
    format: Format,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Format {
    /// For people.
    Table,
    /// One JSON document.
    Json,
    /// One JSON object a line.
    Jsonl,
}

pub(super) fn run(arguments: &Arguments) -> anyhow::Result<Exit> {
    match &arguments.command {
        Some(ArgumentsCommand::Show(show)) => self::show(show),
        None if arguments.coverage => report_coverage(arguments),
        None => list(arguments),
    }
}

fn list(arguments: &Arguments) -> anyhow::Result<Exit> {
    let mut out = output(arguments.format);
    let mut printer = Printer::new(arguments.format);
    let mut found = 0usize;
    let read = read_all(&arguments.sources, &mut |_, trajectory| {
        found += 1;
        printer.print(&trajectory, &mut out)
    })?;
    printer.finish(&mut out)?;
    out.flush()?;
    drop(out);
    Ok(read.exit(found))
}

fn report_coverage(arguments: &Arguments) -> anyhow::Result<Exit> {
    let mut by_source: Vec<Coverage> = Vec::new();
    let read = read_all(&arguments.sources, &mut |source, trajectory| {
        if by_source.len() <= source {
            by_source.resize_with(source + 1, Coverage::default);
        }
        by_source[source].add(&trajectory);
        Ok(())
    })?;
    let mut sources = read.summary.sources.clone();
    for (source, found) in sources.iter_mut().zip(&by_source) {
        source.merge(found);
    }
    let mut total = Coverage::new("all sources");
    sources.iter().for_each(|source| total.merge(source));
    let mut out = output(arguments.format);
    match arguments.format {
        Format::Table => coverage::print(&sources, &total, &mut out)?,
        Format::Json => {
            json::write_pretty(&serde_json::json!({"sources": sources, "total": total}), &mut out)?;
            writeln!(out)?;
        }
        Format::Jsonl => {
            for source in &sources {
                json::write_line(source, &mut out)?;
            }
        }
    }
    out.flush()?;
    Ok(read.exit(total.trajectories as usize))
}

fn show(arguments: &ShowArguments) -> anyhow::Result<Exit> {
    let wanted = arguments.id.as_str();
    let mut matches: Vec<Trajectory> = Vec::new();
    let mut others = 0usize;
    let read = read_all(&arguments.sources, &mut |_, trajectory| {
        // An id that is given whole means just that one, even if others begin with it.
        let exact = matches.first().is_some_and(|known| known.trajectory_id == wanted);
        if trajectory.trajectory_id == wanted {
            matches = vec![trajectory];
        } else if trajectory.trajectory_id.starts_with(wanted) && !exact {
            matches.push(trajectory);
        } else {
            others += 1;
        }
        Ok(())
    })?;
    let mut out = output(arguments.format);
    match matches.as_slice() {
        [] if others == 0 => return Ok(read.exit(0)),
        [] => {
            complain(&format!(
                "no trajectory's id begins with {wanted:?}; `gradus traces SOURCE` lists the {others} that are there"
            ));
            return Ok(Exit::BadInput);
        }
        [one] => match arguments.format {
            Format::Table => transcript::print(one, arguments.full, &mut out)?,
            Format::Json => {
                json::write_pretty(one, &mut out)?;
                writeln!(out)?;
            }
            Format::Jsonl => {
                json::write_line(one, &mut out)?;
            }
        },
        several => {
            let ids: Vec<&str> =
                several.iter().take(4).map(|trajectory| trajectory.trajectory_id.as_str()).collect();
            complain(&format!(
                "{} trajectories begin with {wanted:?}: {}, ...; give more of the id",
                several.len(),
                ids.join(", ")
            ));
            return Ok(Exit::BadInput);
        }
    }
    out.flush()?;
    Ok(read.exit(1))
}

/// Prints trajectories as they come.
struct Printer {
    format: Format,
    table: table::Table,
    printed: usize,
}

impl Printer {
    fn new(format: Format) -> Self {
        Printer { format, table: table::Table::default(), printed: 0 }
    }

    fn print(&mut self, trajectory: &Trajectory, out: &mut dyn Write) -> io::Result<()> {
        self.printed += 1;
        match self.format {
            Format::Table => {
                self.table.add(trajectory);
                Ok(())
            }
            Format::Json => {
                out.write_all(if self.printed == 1 { b"[\n" } else { b",\n" })?;
                json::write_pretty(trajectory, out)
            }
            Format::Jsonl => json::write_line(trajectory, out),
        }
    }

    fn finish(&mut self, out: &mut dyn Write) -> io::Result<()> {
        match self.format {
            Format::Table if self.printed > 0 => self.table.print(table_width(), out),
            Format::Json if self.printed == 0 => writeln!(out, "[]"),
            Format::Json => writeln!(out, "\n]"),
            _ => Ok(()),
        }
    }
}

/// Standard output: with colours for people, byte for byte for programs.
fn output(format: Format) -> BufWriter<Box<dyn Write>> {
    BufWriter::new(match format {
        Format::Table => Box::new(anstream::stdout().lock()),
        Format::Json | Format::Jsonl => Box::new(io::stdout().lock()),
    })
}

/// The terminal's width; wide enough for anything when nobody looks.
fn table_width() -> usize {
    const UNBOUNDED: usize = 160;
    match terminal_size::terminal_size() {
        Some((width, _)) if io::stdout().is_terminal() => usize::from(width.0).max(60),
        _ => UNBOUNDED,
    }
}

/// What reading came to.
struct Read {
    summary: Summary,
    failed: usize,
}

impl Read {
    fn exit(&self, found: usize) -> Exit {
        if self.failed > 0 {
            return Exit::BadInput;
        }
        if found == 0 {
            complain(&self.nothing_found());
            return Exit::NothingFound;
        }
        Exit::Pass
    }

    fn nothing_found(&self) -> String {
        let sum = |count: fn(&Coverage) -> u64| self.summary.sources.iter().map(count).sum::<u64>();
        let (spans, logs) = (sum(|source| source.spans), sum(|source| source.log_records));
        let (documents, skipped) = (sum(|source| source.documents), sum(|source| source.skipped_files));
        let refused = sum(|source| source.unreadable_records);
        if spans + logs + documents == 0 {
            return format!("no trajectories: none of {skipped} files is a trace");
        }
        if refused > 0 {
            return format!("no trajectories: {refused} records could not be read");
        }
        if spans == 0 && logs > 0 {
            return format!(
                "no trajectories: {logs} log records were read, and none of the spans they belong to"
            );
        }
        format!("no trajectories: of {spans} spans and {documents} documents none calls a model or a tool")
    }
}

/// Reads all sources. Those that cannot be read are reported one line each, the others go on.
fn read_all(sources: &[String], sink: &mut source::Sink<'_>) -> anyhow::Result<Read> {
    let mut intake = Intake::new(Limits::default(), sink);
    let mut failed = 0;
    for source in sources {
        intake.begin_source(source);
        match read_source(source, &mut intake) {
            Ok(broken) => failed += broken,
            Err(error) => {
                complain(&error.to_string());
                intake.broken_file(&error.to_string());
                failed += 1;
            }
        }
    }
    let summary = intake.finish()?;
    let unreadable = summary.defects.iter().filter(|defect| defect.kind == DefectKind::UnreadableRecord);
    for defect in unreadable.clone().take(MAX_WARNINGS) {
        complain(&format!("passed over a record: {}", defect.detail));
    }
    let more = unreadable.count().saturating_sub(MAX_WARNINGS);
    if more > 0 {
        complain(&format!("passed over {more} more records; --coverage counts them"));
    }
    Ok(Read { summary, failed })
}

const MAX_WARNINGS: usize = 5;

/// A file must be readable. Of a folder, what is no trace is passed over, and what is broken is told.
fn read_source(name: &str, intake: &mut Intake<'_>) -> Result<usize, SourceError> {
    let inputs = source::expand(name)?;
    let [only] = inputs.as_slice() else { return Ok(read_folder(&inputs, intake)) };
    if only.name() != name && name != "-" {
        return Ok(read_folder(&inputs, intake));
    }
    source::read(only, intake).map(|()| 0)
}

/// Returns how many of a folder's files are broken.
fn read_folder(inputs: &[Input], intake: &mut Intake<'_>) -> usize {
    let mut broken = 0;
    for input in inputs {
        match source::read(input, intake) {
            Ok(()) => {}
            Err(error) if error.is_unrecognised() => intake.skip_file(),
            Err(error) => {
                complain(&error.to_string());
                intake.broken_file(&error.to_string());
                broken += 1;
            }
        }
    }
    broken
}

fn complain(text: &str) {
    anstream::eprintln!("gradus: {}", crate::output::printable_line(text));
}
