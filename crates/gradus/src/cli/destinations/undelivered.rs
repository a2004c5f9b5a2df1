//! The list of outcomes that could not be written to one destination: a few on the terminal, all of them as JSON Lines
//! in the folder of the run. Each destination has a file of its own, so that a successful export to one does not delete
//! what another lacks.

use std::path::{Path, PathBuf};

use gradus_eval::run::{AppendLog, RunFolder};
use serde::Serialize;

use crate::cli::sources::print_diagnostic;
use gradus_eval::annotation::OutcomeReference;

/// Outcomes of a run that are missing at one destination. Memory is bounded: lines are written to the file as they
/// come.
pub(super) struct UndeliveredOutcomes {
    /// `phoenix` or `otlp`; part of the name of the file.
    to: &'static str,
    /// The command that exports the run there again.
    again: String,
    path: PathBuf,
    /// Created with the first line: without undelivered outcomes there is no file.
    log: Option<AppendLog>,
    count: u64,
    /// The first lines, for the terminal.
    shown: Vec<String>,
}

#[derive(Serialize)]
struct UndeliveredLine<'l> {
    to: &'l str,
    #[serde(flatten)]
    subject: Option<&'l OutcomeReference>,
    reason: &'l str,
}

/// Maximum number of outcomes on the terminal; a destination that is down leaves thousands.
const MAX_PRINTED_OUTCOMES: usize = 10;
/// Number of buffered bytes after which the file is written.
const WRITE_THRESHOLD_BYTES: usize = 1 << 20;

impl UndeliveredOutcomes {
    /// Creates an empty list. Removes the file of an earlier export, since this export writes every outcome again.
    pub(super) fn new(folder: &RunFolder, to: &'static str, again: String) -> UndeliveredOutcomes {
        let path = folder.path().join(format!("unwritten_{to}.jsonl"));
        let _ = std::fs::remove_file(&path);
        UndeliveredOutcomes { to, again, path, log: None, count: 0, shown: Vec::new() }
    }

    /// Records one undelivered outcome.
    pub(super) fn add(&mut self, subject: &OutcomeReference, reason: &str) -> anyhow::Result<()> {
        self.count += 1;
        if self.shown.len() < MAX_PRINTED_OUTCOMES {
            self.shown.push(format!("not written to {}: {subject}: {reason}", self.to));
        }
        self.write(Some(subject), reason)
    }

    /// Records rejections of a whole batch: OTLP's `partial_success` has only their number, so the file has the reasons
    /// without subjects.
    pub(super) fn add_rejected(&mut self, outcomes: u64, reasons: &[String]) -> anyhow::Result<()> {
        self.count += outcomes;
        for reason in reasons {
            if self.shown.len() < MAX_PRINTED_OUTCOMES {
                self.shown.push(format!("not taken over OTLP: {reason}"));
            }
            self.write(None, reason)?;
        }
        Ok(())
    }

    fn write(&mut self, subject: Option<&OutcomeReference>, reason: &str) -> anyhow::Result<()> {
        let log = match &mut self.log {
            Some(log) => log,
            None => self.log.insert(AppendLog::open(&self.path)?),
        };
        log.add(&UndeliveredLine { to: self.to, subject, reason })?;
        if log.buffered_bytes() > WRITE_THRESHOLD_BYTES {
            log.write()?;
        }
        Ok(())
    }

    /// Writes the file and prints a summary; returns true if every outcome was delivered.
    pub(super) fn report_undelivered(mut self) -> anyhow::Result<bool> {
        if let Some(log) = &mut self.log {
            log.write()?;
        }
        self.shown.iter().for_each(|line| print_diagnostic(line));
        if self.count > 0 {
            print_diagnostic(&format!(
                "{} outcomes could not be written, all listed in {}; `{}` writes them again",
                self.count,
                self.path.display(),
                self.again
            ));
        }
        Ok(self.count == 0)
    }
}

/// Returns the command that exports a run, quoted for a POSIX shell, so that the user can copy it. `--state-dir` is
/// included if the run is not in `.gradus`.
pub(super) fn report_command(folder: &RunFolder, phoenix: Option<&str>, otlp: Option<&str>) -> String {
    let mut command = format!("gradus report {}", folder.record.run_id);
    let state = folder.path().parent().and_then(Path::parent).unwrap_or(Path::new("."));
    if state != Path::new(".gradus") {
        command.push_str(&format!(" --state-dir {}", shell_word(&state.display().to_string())));
    }
    if let Some(url) = phoenix {
        command.push_str(&format!(" --log-to-phoenix --phoenix {}", shell_word(url)));
    }
    if let Some(url) = otlp {
        command.push_str(&format!(" --log-to-otlp {}", shell_word(url)));
    }
    command
}

/// Quotes a word for a POSIX shell, if it has characters that a shell could interpret.
fn shell_word(text: &str) -> String {
    let is_plain = |c: char| c.is_ascii_alphanumeric() || "-_./:[]".contains(c);
    match !text.is_empty() && text.chars().all(is_plain) {
        true => text.to_owned(),
        false => format!("'{}'", text.replace('\'', r"'\''")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_reach_a_command_as_they_are() {
        assert_eq!(shell_word("http://[::1]:6006/s_1"), "http://[::1]:6006/s_1");
        assert_eq!(shell_word("it's here"), r"'it'\''s here'");
        assert_eq!(shell_word(""), "''");
    }
}
