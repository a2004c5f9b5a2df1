//! `gradus store archive`: traces as Parquet files by day and shard, for grading part by part and for other engines.
//! Archives are folders, or objects in S3-compatible storage.

use std::path::PathBuf;

use clap::Args;

use super::sources::SelectionOptions;
use super::{CommandExit, print_diagnostic};

// Without Parquet these options are only parsed; the command reports that Parquet is missing.
#[cfg_attr(not(feature = "parquet"), allow(dead_code))]
#[derive(Args)]
pub(super) struct ArchiveArguments {
    /// The folder to write, or s3://BUCKET/PREFIX. It must be new, empty, or an archive whose writing was interrupted.
    #[arg(value_name = "FOLDER")]
    target: PathBuf,
    /// What to archive: files, folders, other archives, store:PROJECT or gradus://HOST:PORT/PROJECT [default: store:,
    /// all projects].
    #[arg(value_name = "SOURCE")]
    sources: Vec<String>,
    #[command(flatten)]
    which: SelectionOptions,
    /// Files a day. A shard is graded on its own.
    #[arg(long, value_name = "N", default_value_t = 16, value_parser = clap::value_parser!(u32).range(1..=4096))]
    shards: u32,
    /// The server's folder [default: .gradus].
    #[arg(long, value_name = "DIR")]
    data: Option<PathBuf>,
}

/// Entry point of the command.
#[cfg(feature = "parquet")]
pub(super) fn run_archive_command(arguments: &ArchiveArguments) -> anyhow::Result<CommandExit> {
    use gradus_ingest::RecordIntake;
    use gradus_ingest::archive::ArchiveWriter;

    use super::archive_sources::create_storage;
    use super::sources::StateLocations;

    let mut sources = arguments.sources.clone();
    if sources.is_empty() && arguments.which.phoenix.is_none() {
        sources.push("store:".to_owned());
    }
    let places = StateLocations { data: arguments.data.as_deref(), ..StateLocations::default() };
    let sources = match arguments.which.resolve(&sources, None, places) {
        Ok(sources) => sources,
        Err(error) => {
            print_diagnostic(&error.to_string());
            return Ok(CommandExit::BadInput);
        }
    };
    let storage = create_storage(&arguments.target);
    let writer = match storage.and_then(|storage| ArchiveWriter::create(storage, arguments.shards)) {
        Ok(writer) => writer,
        Err(error) => {
            print_diagnostic(&error.to_string());
            return Ok(CommandExit::BadInput);
        }
    };
    // Message lists and transcripts have no spans.
    let mut documents = 0_u64;
    let (failed, written) = {
        let mut sink = |_: usize, _| {
            documents += 1;
            Ok(())
        };
        let mut intake = RecordIntake::new(sources.limits(), &mut sink);
        let failed = sources.read_into(&mut intake) + sources.archives().read_into(&mut intake)?;
        (failed, if failed == 0 { Some(writer.write(intake)) } else { None })
    };
    let manifest = match written {
        // An archive with half of the sources would pass for the whole.
        None => {
            print_diagnostic(&format!(
                "{}: not written: {failed} sources could not be read",
                arguments.target.display()
            ));
            return Ok(CommandExit::BadInput);
        }
        Some(Err(error)) => {
            print_diagnostic(&error.to_string());
            return Ok(CommandExit::Unexpected);
        }
        Some(Ok((manifest, _))) => manifest,
    };
    if documents > 0 {
        print_diagnostic(&format!("left out {documents} trajectories that were not recorded as spans"));
    }
    if manifest.traces == 0 {
        print_diagnostic(&format!("{}: not written: the sources have no traces", arguments.target.display()));
        return Ok(CommandExit::NothingFound);
    }
    let bytes: u64 = manifest.parts.iter().map(|part| part.bytes).sum();
    anstream::println!(
        "{} traces, {} records in {} files: {bytes} bytes, {} before compression",
        manifest.traces,
        manifest.records,
        manifest.parts.len(),
        manifest.record_bytes
    );
    Ok(CommandExit::Pass)
}

#[cfg(not(feature = "parquet"))]
pub(super) fn run_archive_command(_: &ArchiveArguments) -> anyhow::Result<CommandExit> {
    print_diagnostic("this build cannot write Parquet\nhint: build with `--features parquet`");
    Ok(CommandExit::BadInput)
}
