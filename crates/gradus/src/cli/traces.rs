//! `gradus traces`: lists the trajectories of sources, shows one as a transcript, or reports how much could be read.

use std::io::{self, BufWriter, IsTerminal, Write};
use std::path::PathBuf;

use clap::{Args, Subcommand, ValueEnum};
use gradus_core::coverage::SourceCoverage;
use gradus_core::trajectory::Trajectory;

use super::CommandExit;
use super::sources::{ResolvedSources, SourceOptions, StateLocations, print_diagnostic};
use gradus_report::{coverage, json, table, transcript};

#[derive(Args)]
#[command(args_conflicts_with_subcommands = true, subcommand_negates_reqs = true, after_help = EXAMPLES)]
pub(super) struct TraceArguments {
    #[command(subcommand)]
    command: Option<ArgumentsCommand>,
    /// Files, folders or - for standard input, compressed by gzip or zstd or not. Formats are detected from content: OTLP
    /// (protobuf, JSON, JSON Lines; traces and logs), Phoenix spans, sessions of coding agents, exports of other backends
    /// and harnesses, message lists and ReAct transcripts. store:PROJECT is a project of the local store,
    /// gradus://HOST:PORT/PROJECT one of a running server, phoenix://HOST:PORT/PROJECT one of a Phoenix; without a name,
    /// all of them. All sources of one call are assembled together.
    #[arg(value_name = "SOURCE")]
    sources: Vec<String>,
    #[command(flatten)]
    which: SourceOptions,
    #[command(flatten)]
    kept: StateOptions,
    /// How to print the trajectories.
    #[arg(long, value_enum, default_value_t = OutputFormat::Table)]
    format: OutputFormat,
    /// Print how much could be read, source by source, instead of the trajectories.
    #[arg(long)]
    coverage: bool,
}

/// Where the local store and settings are.
#[derive(Args)]
struct StateOptions {
    /// Where the store of store:PROJECT is [default: .gradus].
    #[arg(long, value_name = "DIR")]
    state_dir: Option<PathBuf>,
    /// Settings; else gradus.toml if it is here.
    #[arg(long, value_name = "FILE")]
    config: Option<PathBuf>,
}

const EXAMPLES: &str = "\
Examples:
  gradus traces traces.bin                       list what is in a file
  gradus traces show 4fe6911a traces.bin         read one trajectory
  gradus traces --coverage exports/              can these be judged?
  gradus traces phoenix://localhost:6006/shop --from 24h
  gradus traces traces/ --where \"span_kind == 'TOOL' and status_code == 'ERROR'\"
  otel-dump | gradus traces --format jsonl -     one trajectory a line, for other tools

Exit codes: 0 read, 1 broken off, 2 a source could not be read (the others are printed), 4 no trajectories found.";

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
    #[arg(value_name = "SOURCE")]
    sources: Vec<String>,
    #[command(flatten)]
    which: SourceOptions,
    #[command(flatten)]
    kept: StateOptions,
    /// Print long texts whole.
    #[arg(long)]
    full: bool,
    /// How to print it; a table is a transcript here.
    #[arg(long, value_enum, default_value_t = OutputFormat::Table)]
    format: OutputFormat,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum OutputFormat {
    /// For people.
    Table,
    /// One JSON document.
    Json,
    /// One JSON object a line.
    Jsonl,
}

/// Entry point of the command. Errors in options are found before a source is read.
pub(super) fn run_traces_command(arguments: &TraceArguments) -> anyhow::Result<CommandExit> {
    let (which, names, kept) = match &arguments.command {
        Some(ArgumentsCommand::Show(show)) => (&show.which, &show.sources, &show.kept),
        None => (&arguments.which, &arguments.sources, &arguments.kept),
    };
    let places = StateLocations {
        config: kept.config.as_deref(),
        state_dir: kept.state_dir.as_deref(),
        ..StateLocations::default()
    };
    let sources = match which.resolve(names, places) {
        Ok(sources) => sources,
        Err(error) => {
            print_diagnostic(&error.to_string());
            return Ok(CommandExit::BadInput);
        }
    };
    match &arguments.command {
        Some(ArgumentsCommand::Show(show)) => self::show_trajectory(show, &sources),
        None if arguments.coverage => report_coverage(arguments, &sources),
        None => list_trajectories(arguments, &sources),
    }
}

/// Prints all trajectories. JSON Lines are printed as they are assembled, so memory does not grow with their number;
/// the table needs the width of its columns and is printed at the end.
fn list_trajectories(arguments: &TraceArguments, sources: &ResolvedSources) -> anyhow::Result<CommandExit> {
    let mut out = open_output(arguments.format);
    let mut printer = TrajectoryPrinter::new(arguments.format);
    let mut found = 0usize;
    let read = sources.read(&mut |_, trajectory| {
        found += 1;
        printer.print(&trajectory, &mut out)
    })?;
    printer.finish(&mut out)?;
    out.flush()?;
    drop(out);
    Ok(read.command_exit(found))
}

/// Prints coverage by source and in total. Records are counted while they are read, trajectories when they are
/// assembled; both counts are merged by the index of the source.
fn report_coverage(arguments: &TraceArguments, sources: &ResolvedSources) -> anyhow::Result<CommandExit> {
    let mut by_source: Vec<SourceCoverage> = Vec::new();
    let read = sources.read(&mut |source, trajectory| {
        if by_source.len() <= source {
            by_source.resize_with(source + 1, SourceCoverage::default);
        }
        by_source[source].add(&trajectory);
        Ok(())
    })?;
    let mut sources = read.summary.sources.clone();
    for (source, found) in sources.iter_mut().zip(&by_source) {
        source.merge(found);
    }
    let mut total = SourceCoverage::new("all sources");
    sources.iter().for_each(|source| total.merge(source));
    let mut out = open_output(arguments.format);
    match arguments.format {
        OutputFormat::Table => coverage::print_coverage(&sources, &total, &mut out)?,
        OutputFormat::Json => {
            json::write_pretty(&serde_json::json!({"sources": sources, "total": total}), &mut out)?;
            writeln!(out)?;
        }
        OutputFormat::Jsonl => {
            for source in &sources {
                json::write_line(source, &mut out)?;
            }
        }
    }
    out.flush()?;
    Ok(read.command_exit(total.trajectories as usize))
}

/// Prints the trajectory whose id is, or uniquely begins with, the given one. All sources are read to the end, since
/// only then the prefix is known to be unique.
fn show_trajectory(arguments: &ShowArguments, sources: &ResolvedSources) -> anyhow::Result<CommandExit> {
    let wanted = arguments.id.as_str();
    let mut matches: Vec<Trajectory> = Vec::new();
    let mut others = 0usize;
    let read = sources.read(&mut |_, trajectory| {
        // A complete id wins over ids that begin with it.
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
    let mut out = open_output(arguments.format);
    match matches.as_slice() {
        [] if others == 0 => return Ok(read.command_exit(0)),
        [] => {
            print_diagnostic(&format!(
                "no trajectory's id begins with {wanted:?}; `gradus traces SOURCE` lists the {others} that are there"
            ));
            return Ok(CommandExit::BadInput);
        }
        [one] => match arguments.format {
            OutputFormat::Table => transcript::print_transcript(one, arguments.full, &mut out)?,
            OutputFormat::Json => {
                json::write_pretty(one, &mut out)?;
                writeln!(out)?;
            }
            OutputFormat::Jsonl => {
                json::write_line(one, &mut out)?;
            }
        },
        several => {
            let ids: Vec<&str> = several.iter().take(4).map(|trajectory| trajectory.trajectory_id.as_str()).collect();
            print_diagnostic(&format!(
                "{} trajectories begin with {wanted:?}: {}, ...; give more of the id",
                several.len(),
                ids.join(", ")
            ));
            return Ok(CommandExit::BadInput);
        }
    }
    out.flush()?;
    Ok(read.command_exit(1))
}

/// Prints trajectories one by one. The JSON format is one array, whose brackets and commas are written as needed.
struct TrajectoryPrinter {
    format: OutputFormat,
    table: table::TrajectoryTable,
    printed: usize,
}

impl TrajectoryPrinter {
    fn new(format: OutputFormat) -> Self {
        TrajectoryPrinter { format, table: table::TrajectoryTable::default(), printed: 0 }
    }

    fn print(&mut self, trajectory: &Trajectory, out: &mut dyn Write) -> io::Result<()> {
        self.printed += 1;
        match self.format {
            OutputFormat::Table => {
                self.table.add(trajectory);
                Ok(())
            }
            OutputFormat::Json => {
                out.write_all(if self.printed == 1 { b"[\n" } else { b",\n" })?;
                json::write_pretty(trajectory, out)
            }
            OutputFormat::Jsonl => json::write_line(trajectory, out),
        }
    }

    fn finish(&mut self, out: &mut dyn Write) -> io::Result<()> {
        match self.format {
            OutputFormat::Table if self.printed > 0 => self.table.print(table_width(), out),
            OutputFormat::Json if self.printed == 0 => writeln!(out, "[]"),
            OutputFormat::Json => writeln!(out, "\n]"),
            _ => Ok(()),
        }
    }
}

/// Opens standard output: with colours on a terminal for the table, unfiltered for JSON.
fn open_output(format: OutputFormat) -> BufWriter<Box<dyn Write>> {
    BufWriter::new(match format {
        OutputFormat::Table => Box::new(anstream::stdout().lock()),
        OutputFormat::Json | OutputFormat::Jsonl => Box::new(io::stdout().lock()),
    })
}

/// Returns the width of the terminal, at least 60 columns; 160 if standard output is not a terminal.
fn table_width() -> usize {
    const UNBOUNDED: usize = 160;
    match terminal_size::terminal_size() {
        Some((width, _)) if io::stdout().is_terminal() => usize::from(width.0).max(60),
        _ => UNBOUNDED,
    }
}
