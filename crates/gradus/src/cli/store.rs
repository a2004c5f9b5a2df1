//! `gradus store`: maintenance of a server's store. Commands that only read work while a server runs; the others
//! open the store exclusively and fail while a server has it.

use std::fs::File;
use std::io::{BufRead, BufReader, BufWriter, Write};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use clap::{Args, Subcommand};
use gradus_core::span::TraceId;
use gradus_store::{
    DATABASE_FILE_NAME, SearchTextBuilder, Store, StoreError, StoreLocation, StoreOptions, WriteHandle, copy_store,
};

use super::store_archive::{ArchiveArguments, run_archive_command};
use super::{CommandExit, print_diagnostic};
use crate::config::{StoreLocationError, store_location};
use gradus_server::stored_records;

#[derive(Args)]
pub(super) struct StoreArguments {
    #[command(subcommand)]
    command: StoreCommand,
}

/// Why a command on the store failed; printed as one line, exit code 2.
#[derive(Debug, thiserror::Error)]
enum StoreCommandError {
    #[error(transparent)]
    Location(#[from] StoreLocationError),
    #[error(transparent)]
    Store(#[from] StoreError),
    #[error("{id:?} is no trace id: give 32 hexadecimal digits")]
    TraceId { id: String },
    #[error("no quarantined trace has the id {id}")]
    NotQuarantined { id: TraceId },
    /// Reading or writing the file of an export.
    #[error("{}: {source}", path.display())]
    File { path: PathBuf, source: std::io::Error },
    /// An export could not be finished; the disk is full, or nobody reads standard output any more.
    #[error(transparent)]
    Output(#[from] std::io::Error),
    #[error("{} is there already; an export is a new file", path.display())]
    ExportExists { path: PathBuf },
    #[error("{} is there already; a backup is a new file", path.display())]
    BackupExists { path: PathBuf },
    #[error("{}: {source}", path.display())]
    Import { path: PathBuf, source: StoreError },
    #[error("{}: {source}", path.display())]
    Backup { path: PathBuf, source: StoreError },
}

#[derive(Args)]
struct DataFolderOptions {
    /// The server's folder [default: .gradus].
    #[arg(long, value_name = "DIR")]
    data: Option<PathBuf>,
    /// A store in PostgreSQL [env: GRADUS_STORE].
    #[arg(long, value_name = "ADDRESS")]
    store: Option<String>,
}

impl DataFolderOptions {
    fn location(&self) -> Result<StoreLocation, StoreCommandError> {
        Ok(store_location(self.store.as_deref(), self.data.as_deref())?)
    }

    /// Returns the file of an embedded store, which must exist; `None` for a database server.
    fn existing_file(&self) -> Result<Option<PathBuf>, StoreCommandError> {
        let location = self.location()?;
        let Some(path) = location.folder().map(|folder| folder.join(DATABASE_FILE_NAME)) else { return Ok(None) };
        if path.is_file() { Ok(Some(path)) } else { Err(StoreError::Missing { path }.into()) }
    }
}

#[derive(Subcommand)]
enum StoreCommand {
    /// Reads everything and says whether it is what it should be. Works while a server runs.
    Check(DataFolderOptions),
    /// Puts together what came in pieces, and gives back room that is not needed. The server must be stopped.
    Compact(DataFolderOptions),
    /// Writes everything but API keys as lines of JSON, packed with zstd. Works while a server runs.
    Export {
        /// The file to write; - for standard output.
        file: PathBuf,
        #[command(flatten)]
        data: DataFolderOptions,
    },
    /// Reads an export into an empty store. The server must be stopped.
    Import {
        /// The file to read; - for standard input.
        file: PathBuf,
        #[command(flatten)]
        data: DataFolderOptions,
    },
    /// Puts quarantined traces back into the queue, to be assembled at the next start. The server must be stopped; on a
    /// running one, use its /server page or POST /api/v1/quarantine/retry.
    Retry {
        /// The id of one trace [default: all that are quarantined].
        trace: Option<String>,
        #[command(flatten)]
        data: DataFolderOptions,
    },
    /// Writes traces as Parquet files by day and shard, for `gradus eval` and other engines. Works while a server runs.
    Archive(ArchiveArguments),
    /// Copies everything into an empty store, also of the other engine, and compares both. Servers must be stopped. A
    /// copy that was interrupted goes on where it was.
    Copy {
        /// The source: `sqlite:FOLDER` or `postgres://USER@HOST/DATABASE`.
        from: String,
        /// The target, in the same form.
        to: String,
    },
    /// Copies the store into a new file. Works while a server runs.
    Backup {
        /// The copy.
        file: PathBuf,
        #[command(flatten)]
        data: DataFolderOptions,
    },
}

/// Entry point of the command.
pub(super) fn run_store_command(arguments: &StoreArguments) -> anyhow::Result<CommandExit> {
    let done = match &arguments.command {
        StoreCommand::Check(data) => check_store(data),
        StoreCommand::Compact(data) => compact_store(data),
        StoreCommand::Export { file, data } => export_store(file, data),
        StoreCommand::Import { file, data } => import_store(file, data),
        StoreCommand::Retry { trace, data } => retry_quarantined_traces(trace.as_deref(), data),
        StoreCommand::Archive(archive) => return run_archive_command(archive),
        StoreCommand::Copy { from, to } => copy_whole_store(from, to),
        StoreCommand::Backup { file, data } => backup_store(file, data),
    };
    Ok(done.unwrap_or_else(|error| match error {
        // Its own message is about a server, which goes on.
        StoreCommandError::Store(StoreError::DiskFull)
        | StoreCommandError::Import { source: StoreError::DiskFull, .. } => {
            print_diagnostic("the disk that is written to is full; make room, and run the same command again");
            CommandExit::Unexpected
        }
        StoreCommandError::Store(StoreError::Unreachable { reason }) => {
            print_diagnostic(&format!(
                "PostgreSQL cannot be reached ({reason}); run the same command again when it is back"
            ));
            CommandExit::Unexpected
        }
        error => {
            print_diagnostic(&error.to_string());
            CommandExit::BadInput
        }
    }))
}

/// Opens the store for reading, even while a server runs. It must exist.
fn open_read_only(data: &DataFolderOptions) -> Result<Store, StoreCommandError> {
    Ok(Store::open_at_to_read(&data.location()?)?)
}

/// Opens the store for writing, which fails while a server has it. Creates a missing one, so commands that must
/// not do that check for the file first.
fn open_exclusive(data: &DataFolderOptions) -> Result<Store, StoreCommandError> {
    Ok(Store::open_at(&data.location()?, StoreOptions::default())?)
}

/// Reads every row. A damaged store is the expected finding here and not bad input, so it has exit code 1.
fn check_store(data: &DataFolderOptions) -> Result<CommandExit, StoreCommandError> {
    let report = match open_read_only(data)?.check(&mut stored_records::span_ids) {
        Ok(report) => report,
        Err(error @ StoreError::Missing { .. }) => return Err(error.into()),
        Err(error) => {
            print_diagnostic(&format!("the store cannot be read to its end: {error}; restore a backup"));
            return Ok(CommandExit::Unexpected);
        }
    };
    for problem in &report.problems {
        print_diagnostic(problem);
    }
    anstream::println!(
        "{} traces, {} spans in {} blocks, {} trajectories, {} verdicts: {}",
        report.traces,
        report.spans,
        report.blocks,
        report.trajectories,
        report.outcomes,
        match report.problems.len() {
            0 => "all is well".to_owned(),
            problems => format!("{problems} problems; restore a backup, or export what can be read"),
        }
    );
    Ok(if report.problems.is_empty() { CommandExit::Pass } else { CommandExit::Unexpected })
}

/// Puts one quarantined trace, or all, back into the ready queue. The next start of the server assembles them.
fn retry_quarantined_traces(trace: Option<&str>, data: &DataFolderOptions) -> Result<CommandExit, StoreCommandError> {
    let trace = trace.map(|id| {
        let number = u128::from_str_radix(id, 16).ok().filter(|_| id.len() == 32);
        number.map(TraceId).ok_or_else(|| StoreCommandError::TraceId { id: id.to_owned() })
    });
    let trace = trace.transpose()?;
    data.existing_file()?;
    let retried = open_exclusive(data)?.retry_quarantined(trace).and_then(WriteHandle::wait)?;
    if let (0, Some(id)) = (retried, trace) {
        return Err(StoreCommandError::NotQuarantined { id });
    }
    anstream::println!("{retried} traces will be assembled at the next start of the server");
    Ok(CommandExit::Pass)
}

/// Merges small blocks of spans and returns free pages to the file system (`VACUUM`). Prints the size before and after.
fn compact_store(data: &DataFolderOptions) -> Result<CommandExit, StoreCommandError> {
    let path = data.existing_file()?;
    let file_bytes = || path.as_ref().and_then(|path| std::fs::metadata(path).ok()).map(|data| data.len());
    let before = file_bytes();
    let store = open_exclusive(data)?;
    let merged = store.compact()?;
    // Closed before its file is measured: SQLite writes what is left in the write-ahead log when the store is closed.
    drop(store);
    match before.zip(file_bytes()) {
        Some((before, after)) => {
            anstream::println!("{before} bytes before, {after} after; {merged} pieces put together")
        }
        None => anstream::println!("{merged} pieces put together"),
    }
    Ok(CommandExit::Pass)
}

/// Writes the export under another name and renames it at the end, so that a file with the wanted name is complete.
fn export_store(file: &Path, data: &DataFolderOptions) -> Result<CommandExit, StoreCommandError> {
    let store = open_read_only(data)?;
    let wrong = |source: std::io::Error| StoreCommandError::File { path: file.to_owned(), source };
    if file == Path::new("-") {
        let out = zstd::Encoder::new(std::io::stdout().lock(), 3).map_err(wrong)?;
        return write_export(&store, out).map(|_| CommandExit::Pass);
    }
    if file.exists() {
        return Err(StoreCommandError::ExportExists { path: file.to_owned() });
    }
    let part = file.with_added_extension("part");
    // Readable by its owner only: traces hold what users and tools said.
    let out = BufWriter::new(gradus_store::create_private_file(&part).map_err(wrong)?);
    let done = write_export(&store, zstd::Encoder::new(out, 3).map_err(wrong)?)
        .and_then(|rows| std::fs::rename(&part, file).map_err(wrong).map(|()| rows));
    match done {
        Ok(rows) => {
            anstream::println!("{rows} rows in {}", file.display());
            Ok(CommandExit::Pass)
        }
        Err(reason) => {
            let _ = std::fs::remove_file(&part);
            Err(reason)
        }
    }
}

/// Writes all rows and ends the zstd frame; returns the number of rows.
fn write_export(store: &Store, mut out: zstd::Encoder<'_, impl Write>) -> Result<u64, StoreCommandError> {
    let done = store.export(&mut out)?;
    let mut inner = out.finish()?;
    inner.flush()?;
    Ok(done.rows)
}

/// Reads an export into an empty store. `rebuild_search_text` recomputes the full-text index, which an export does not contain.
fn import_store(file: &Path, data: &DataFolderOptions) -> Result<CommandExit, StoreCommandError> {
    let wrong = |source: std::io::Error| StoreCommandError::File { path: file.to_owned(), source };
    let input: Box<dyn BufRead + Send> = if file == Path::new("-") {
        Box::new(BufReader::new(zstd::Decoder::new(std::io::stdin()).map_err(wrong)?))
    } else {
        Box::new(BufReader::new(zstd::Decoder::new(File::open(file).map_err(wrong)?).map_err(wrong)?))
    };
    let store = open_exclusive(data)?;
    let done = store
        .import(input, gradus_server::rebuild_search_text)
        .map_err(|source| StoreCommandError::Import { path: file.to_owned(), source })?;
    anstream::println!("{} traces, {} rows", done.traces, done.rows);
    Ok(CommandExit::Pass)
}

/// Copies a store into another one, and compares them.
fn copy_whole_store(from: &str, to: &str) -> Result<CommandExit, StoreCommandError> {
    let (from, to) = (StoreLocation::from_address(from)?, StoreLocation::from_address(to)?);
    let words: SearchTextBuilder = Arc::new(gradus_server::rebuild_search_text);
    let copied = copy_store(&from, &to, &words, &mut |table| {
        if table.rows > 0 {
            print_diagnostic(&format!("{}: {} rows copied", table.table, table.rows));
        }
    })?;
    let row_count = |name: &str| copied.iter().find(|table| table.table == name).map_or(0, |table| table.rows);
    anstream::println!(
        "{} traces, {} spans, {} trajectories, {} verdicts; {} rows in all: copied and compared",
        row_count("trace"),
        row_count("span"),
        row_count("trajectory"),
        row_count("outcome"),
        copied.iter().map(|table| table.rows).sum::<u64>()
    );
    Ok(CommandExit::Pass)
}

fn backup_store(file: &Path, data: &DataFolderOptions) -> Result<CommandExit, StoreCommandError> {
    if file.exists() {
        return Err(StoreCommandError::BackupExists { path: file.to_owned() });
    }
    let location = data.location()?;
    let copied = match location.folder() {
        Some(folder) => Store::backup_file(&folder.join(DATABASE_FILE_NAME), file),
        None => Store::open_at_to_read(&location).and_then(|store| store.backup(file)),
    };
    copied.map_err(|source| StoreCommandError::Backup { path: file.to_owned(), source })?;
    anstream::println!("copied to {}", file.display());
    Ok(CommandExit::Pass)
}
