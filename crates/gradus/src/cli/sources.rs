//! Reads the sources that a command was given, and tells of those that cannot be read.

use gradus_core::coverage::Coverage;
use gradus_core::trajectory::DefectKind;

use super::Exit;
use crate::source::{self, Input, Intake, Limits, SourceError, Summary};

/// What reading came to.
#[derive(Default)]
pub(super) struct Read {
    pub(super) summary: Summary,
    /// Sources and files that could not be read.
    pub(super) failed: usize,
}

impl Read {
    pub(super) fn exit(&self, found: usize) -> Exit {
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
pub(super) fn read_all(sources: &[String], sink: &mut source::Sink<'_>) -> anyhow::Result<Read> {
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
    if matches!(only, Input::File { .. }) && only.name() != name {
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

/// One line on standard error, safe to show whatever it quotes.
pub(crate) fn complain(text: &str) {
    anstream::eprintln!("gradus: {}", crate::output::printable_line(text));
}
