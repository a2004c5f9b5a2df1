//! Archives as sources and targets: folders, and `s3://` addresses in a build with that feature.

use std::path::Path;
use std::sync::Arc;

use gradus_core::coverage::SourceCoverage;
use gradus_ingest::archive::{ArchiveError, ArchiveStorage, FetchedShard, FolderStorage, TraceArchive};
use gradus_ingest::{ReadSummary, RecordIntake, SourceLimits, TraceSelection, TrajectorySink};

use super::s3_support::has_s3_scheme;

/// The archives among the sources of a command.
pub(super) struct ArchiveSources<'s> {
    pub(super) names: Vec<&'s str>,
    pub(super) limits: SourceLimits,
    pub(super) selection: &'s TraceSelection,
    /// Prints a line.
    pub(super) report: fn(&str),
}

/// Whether a source is an archive, even an incomplete one. No request is sent.
pub(super) fn is_archive(name: &str) -> bool {
    has_s3_scheme(name) || !matches!(TraceArchive::open_folder(Path::new(name)), Ok(None))
}

impl ArchiveSources<'_> {
    /// Reads shard by shard, each with an intake of its own: no trace is in two shards. Returns how many shards and
    /// archives could not be read; each was reported.
    pub(super) fn read(&self, sink: &mut TrajectorySink<'_>, summary: &mut ReadSummary) -> anyhow::Result<usize> {
        let mut failed = 0;
        for name in &self.names {
            let mut coverage = SourceCoverage::new(*name);
            let number = summary.sources.len();
            let is_open = self.visit_shards(name, |shard| {
                let mut shard_sink = |_: usize, trajectory| sink(number, trajectory);
                let mut intake = RecordIntake::new(self.limits, &mut shard_sink);
                intake.set_selection(self.selection.clone());
                if let Err(error) = shard.and_then(|shard| shard.read_into(&mut intake)) {
                    (self.report)(&error.to_string());
                    coverage.unreadable_records += 1;
                    failed += 1;
                    return Ok(());
                }
                let read = intake.finish()?;
                read.sources.iter().for_each(|source| coverage.merge(source));
                summary.defects.extend(read.defects);
                summary.excluded_count += read.excluded_count;
                anyhow::Ok(())
            })?;
            if is_open {
                summary.sources.push(coverage);
            } else {
                failed += 1;
            }
        }
        Ok(failed)
    }

    /// Reads all shards into one intake, to write them elsewhere. Returns how many could not be read.
    pub(super) fn read_into(&self, intake: &mut RecordIntake<'_>) -> anyhow::Result<usize> {
        let mut failed = 0;
        for name in &self.names {
            intake.begin_source(name);
            let is_open = self.visit_shards(name, |shard| {
                if let Err(error) = shard.and_then(|shard| shard.read_into(intake)) {
                    (self.report)(&error.to_string());
                    failed += 1;
                }
                anyhow::Ok(())
            })?;
            failed += usize::from(!is_open);
        }
        Ok(failed)
    }

    /// Visits the shards of an archive. Returns `false` if it cannot be opened, which was reported.
    fn visit_shards(
        &self,
        name: &str,
        visit: impl FnMut(Result<FetchedShard, ArchiveError>) -> anyhow::Result<()>,
    ) -> anyhow::Result<bool> {
        match open_archive(name) {
            Ok(Some(archive)) => archive.visit_shards(visit).map(|()| true),
            Ok(None) => Ok(true),
            Err(error) => {
                (self.report)(&error.to_string());
                Ok(false)
            }
        }
    }
}

fn open_archive(name: &str) -> Result<Option<TraceArchive>, ArchiveError> {
    if has_s3_scheme(name) {
        return TraceArchive::open_storage(super::s3_support::open_storage(name)?).map(Some);
    }
    TraceArchive::open_folder(Path::new(name))
}

/// Creates the storage of a new archive.
pub(super) fn create_storage(target: &Path) -> Result<Arc<dyn ArchiveStorage>, ArchiveError> {
    match target.to_str() {
        Some(address) if has_s3_scheme(address) => super::s3_support::open_storage(address),
        _ => Ok(Arc::new(FolderStorage::create(target)?)),
    }
}
