//! `gradus eval --stream`: judges blocks of records from standard input and writes one outcome a line, as long as there
//! is input. It is what a task of Spark, Ray or Dask runs for its part of an archive. No run is stored: the engine
//! repeats what failed, and `--shared` avoids paying for repeated questions again.

mod block_reader;
mod stream_ledger;

use std::io::{self, BufReader};
use std::sync::{Arc, PoisonError};
use std::thread::JoinHandle;

use gradus_core::trajectory::{DefectKind, Trajectory};
use gradus_eval::run::RunFileError;
use gradus_eval::runner::{self, QuestionScope, RunLimits, RunPlan, RunTermination};
use gradus_eval::shared::{QuestionCoordinator, SharedFolder, SharedLimits};
use gradus_ingest::{RecordIntake, SourceLimits};
use tokio::sync::mpsc;

use super::arguments::EvalArguments;
use super::settings::EvalSettings;
use super::{describe_stop_reason, endpoint_advice, spawn_interrupt_listener};
use crate::cli::{CommandExit, print_diagnostic};
use block_reader::BlockStream;
use stream_ledger::{StreamLedger, UnreadableBlock, UnreadableBlocks};

/// Maximum number of blocks that wait between the thread that reads and the one that asks.
const MAX_WAITING_BLOCKS: usize = 4;
/// Buffer size for standard input, in bytes.
const STDIN_BUFFER_BYTES: usize = 1 << 18;

/// Entry point of `gradus eval --stream`.
pub(super) fn run_stream_command(arguments: &EvalArguments) -> anyhow::Result<CommandExit> {
    if !matches!(arguments.sources.as_slice(), [] | [_]) || arguments.sources.iter().any(|source| source != "-") {
        print_diagnostic("--stream: it reads blocks from standard input; give no SOURCE, or -");
        return Ok(CommandExit::BadInput);
    }
    let (max_calls, max_cost_usd) = (arguments.grading.max_calls, arguments.grading.max_cost);
    let arguments = arguments.for_stream();
    let settings = match EvalSettings::read(&arguments, None) {
        Ok(settings) => settings,
        Err(error) => {
            print_diagnostic(&error.to_string());
            return Ok(CommandExit::BadInput);
        }
    };
    let limits = SharedLimits { concurrency: settings.limits.concurrency, max_calls, max_cost_usd };
    let private = tempfile::tempdir()?;
    let coordinator = match open_coordinator(&arguments, &settings, limits, private.path()) {
        Ok(coordinator) => coordinator,
        Err(error) => {
            print_diagnostic(&format!("--shared: {error}"));
            return Ok(CommandExit::BadInput);
        }
    };
    match judge_stream(&arguments, &settings, coordinator) {
        Ok(exit) => Ok(exit),
        Err(error) => match error.downcast_ref::<RunFileError>() {
            // The reader of the outcomes has closed the pipe.
            Some(file) if file.reason.kind() == io::ErrorKind::BrokenPipe => Ok(CommandExit::Unexpected),
            Some(file) => {
                print_diagnostic(&file.to_string());
                Ok(CommandExit::Unexpected)
            }
            None => Err(error),
        },
    }
}

/// Opens the folder of `--shared`, or a private one: limits then hold for this process. Rules need none.
fn open_coordinator(
    arguments: &EvalArguments,
    settings: &EvalSettings,
    limits: SharedLimits,
    private: &std::path::Path,
) -> Result<Option<Arc<dyn QuestionCoordinator>>, RunFileError> {
    if settings.judge.is_none() {
        return Ok(None);
    }
    // Unique over machines and over the lives of a process id.
    let owner = format!("{:032x}", fastrand::u128(..));
    let folder = SharedFolder::open(arguments.shared.as_deref().unwrap_or(private), &owner, limits)?;
    Ok(Some(Arc::new(folder)))
}

fn judge_stream(
    arguments: &EvalArguments,
    settings: &EvalSettings,
    coordinator: Option<Arc<dyn QuestionCoordinator>>,
) -> anyhow::Result<CommandExit> {
    let plan = RunPlan {
        evaluators: settings.evaluators.clone(),
        judge: settings.judge.clone(),
        tools: settings.tool_texts(),
        // The coordinator holds the other limits, for all processes.
        limits: RunLimits { max_calls: None, max_cost_usd: None, ..settings.limits },
        ignore_cache: false,
    };
    // A question in flight is a connection and two locks.
    if settings.judge.is_some()
        && let Err(error) = gradus_host::raise_open_file_limit(settings.limits.concurrency.saturating_mul(4))
    {
        print_diagnostic(&error.to_string());
    }
    let limits = SourceLimits {
        // The engine runs as many processes as there are cores.
        threads: 1,
        accepts_personal_stdin: settings.judge.is_none() || arguments.yes,
        ..SourceLimits::default()
    };
    let unreadable = UnreadableBlocks::default();
    let (trajectories, reading) = start_block_reader(limits, Arc::clone(&unreadable))?;
    let mut ledger = StreamLedger::new(io::stdout(), coordinator.clone(), unreadable);
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let mut nobody = ();
    let end = runtime.block_on(async {
        let interrupts = spawn_interrupt_listener();
        let scope = QuestionScope { selection: None, coordinator };
        runner::run_shared(plan, "stream", scope, &mut ledger, trajectories, interrupts, &mut nobody).await
    })?;
    match &end {
        // The reading thread may block on standard input forever, so it is joined only here.
        RunTermination::Finished => match reading.join() {
            Ok(Ok(())) => Ok(CommandExit::Pass),
            Ok(Err(error)) => {
                print_diagnostic(&format!("standard input: {error}"));
                Ok(CommandExit::BadInput)
            }
            Err(_) => anyhow::bail!("reading standard input broke off"),
        },
        RunTermination::Endpoint { judge, failure } => {
            let judge = settings.judge.as_ref().and_then(|panel| panel.judges().nth(*judge));
            print_diagnostic(&endpoint_advice(failure, judge.map(AsRef::as_ref)));
            Ok(if failure.error.is_fatal() { CommandExit::BadInput } else { CommandExit::Unexpected })
        }
        RunTermination::Interrupted => Ok(CommandExit::Interrupted),
        RunTermination::Limit(_) | RunTermination::EndpointDied(_) => {
            print_diagnostic(&describe_stop_reason(&end).unwrap_or_default());
            Ok(CommandExit::Unexpected)
        }
    }
}

/// Ends with the input, or with the reason why it could not be read.
type BlockReaderThread = JoinHandle<io::Result<()>>;

/// Reads blocks in a thread of its own. The channel is bounded: when judging is slower, reading waits.
fn start_block_reader(
    limits: SourceLimits,
    unreadable: UnreadableBlocks,
) -> io::Result<(mpsc::Receiver<Vec<Trajectory>>, BlockReaderThread)> {
    let (sender, receiver) = mpsc::channel(MAX_WAITING_BLOCKS);
    let thread = std::thread::Builder::new().name("sources".to_owned()).spawn(move || {
        let blocks = BlockStream::new(Box::new(BufReader::with_capacity(STDIN_BUFFER_BYTES, io::stdin())));
        while let Some((name, bytes)) = blocks.begin_block()? {
            let mut found = Vec::new();
            let reason = read_block(bytes, limits, &mut found)?;
            // A block that is cut off is not judged.
            blocks.skip_block()?;
            if let Some(reason) = reason {
                let block = UnreadableBlock { outcome: "unreadable", block: name, reason };
                unreadable.lock().unwrap_or_else(PoisonError::into_inner).push(block);
            }
            if !found.is_empty() && sender.blocking_send(found).is_err() {
                return Ok(());
            }
        }
        Ok(())
    })?;
    Ok((receiver, thread))
}

/// Reads the trajectories of one block. Returns what could not be read.
fn read_block(
    bytes: block_reader::BlockBytes,
    limits: SourceLimits,
    found: &mut Vec<Trajectory>,
) -> io::Result<Option<String>> {
    let mut sink = |_: usize, trajectory| {
        found.push(trajectory);
        Ok(())
    };
    let mut intake = RecordIntake::new(limits, &mut sink);
    intake.begin_source("standard input");
    let read = gradus_ingest::read_stream(Box::new(bytes), &mut intake);
    let summary = intake.finish().map_err(io::Error::other)?;
    if let Err(error) = read {
        return Ok(Some(error.to_string()));
    }
    let mut bad = summary.defects.iter().filter(|defect| defect.kind == DefectKind::UnreadableRecord);
    let Some(first) = bad.next() else { return Ok(None) };
    let more = bad.count();
    let tail = if more == 0 { String::new() } else { format!(" (and {more} more)") };
    Ok(Some(format!("{}{tail}", first.detail)))
}
