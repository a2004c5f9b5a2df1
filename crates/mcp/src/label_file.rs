//! Labels as JSON Lines, in the format that `gradus judge calibrate --labels` reads.

use std::fs::{self, File};
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};

use gradus_eval::run::{EvaluatorRecord, RunManifest};
use serde::{Deserialize, Serialize};
use tempfile::NamedTempFile;

use crate::archive::{ArchiveError, LabelSource, NewRunLabel};
use crate::archived_run::{ArchivedRun, RunLabel};

/// The label of a case that a person could not decide.
const UNDECIDED: &str = "undecided";
/// Maximum bytes of a file of labels, which is read whole for each new label.
const MAX_FILE_BYTES: u64 = 32 << 20;
/// Maximum bytes of an explanation.
const MAX_EXPLANATION_BYTES: usize = 16 << 10;

/// The file that labels are written to.
#[derive(Debug)]
pub struct LabelFile {
    path: PathBuf,
    /// Whose labels they are.
    labeller: String,
    /// Serializes writes: two labels stored at once would lose one.
    turn: Mutex<()>,
}

/// One line. Lines with other fields, written by other programs, are never rewritten.
#[derive(Debug, Serialize, Deserialize)]
struct LabelRecord {
    trajectory_id: String,
    step_index: Option<u32>,
    evaluator: String,
    label: Option<String>,
    #[serde(default)]
    author: Option<String>,
    /// `HUMAN` or `LLM`. Judges are calibrated with labels of people only.
    #[serde(default)]
    annotator_kind: Option<String>,
    #[serde(default)]
    explanation: Option<String>,
    #[serde(default)]
    run_id: Option<String>,
    #[serde(default)]
    created: Option<String>,
}

impl LabelFile {
    pub fn new(path: &Path, labeller: &str) -> LabelFile {
        LabelFile { path: path.to_owned(), labeller: labeller.to_owned(), turn: Mutex::default() }
    }

    /// Returns the labels of a run; none if the file does not exist.
    pub(crate) fn read_labels(&self, trajectory_id: &str) -> Result<Vec<RunLabel>, ArchiveError> {
        let own = self.read_lines()?.into_iter().filter_map(|line| serde_json::from_str::<LabelRecord>(&line).ok());
        let own = own.filter(|record| record.trajectory_id == trajectory_id);
        Ok(own
            .filter_map(|record| {
                Some(RunLabel {
                    step_index: record.step_index,
                    evaluator: record.evaluator,
                    label: record.label?,
                    labeller: record.author.unwrap_or_else(|| "unnamed".to_owned()),
                    explanation: record.explanation,
                })
            })
            .collect())
    }

    /// Checks a label against the run and stores it. An earlier label of the same labeller on the same case is
    /// replaced: two that contradict each other would make the file unusable.
    pub(crate) fn store_label(
        &self,
        manifest: &RunManifest,
        run: &ArchivedRun,
        new: &NewRunLabel,
    ) -> Result<String, ArchiveError> {
        check_label(manifest, run, new)?;
        let labeller = match new.source {
            LabelSource::Person => self.labeller.clone(),
            LabelSource::Assistant => format!("assistant of {}", self.labeller),
        };
        let record = LabelRecord {
            trajectory_id: run.trajectory.trajectory_id.clone(),
            step_index: new.step_index,
            evaluator: new.evaluator.clone(),
            label: Some(new.label.clone()),
            author: Some(labeller),
            annotator_kind: Some(if new.source == LabelSource::Person { "HUMAN" } else { "LLM" }.to_owned()),
            explanation: new.explanation.clone(),
            run_id: Some(manifest.run_id.clone()),
            created: Some(jiff::Timestamp::now().to_string()),
        };
        let _turn = self.turn.lock().unwrap_or_else(PoisonError::into_inner);
        let _lock = self.lock_file().map_err(|error| not_stored(&error.to_string()))?;
        let mut lines = self.read_lines()?;
        lines
            .retain(|line| !serde_json::from_str::<LabelRecord>(line).is_ok_and(|known| is_same_case(&known, &record)));
        let line = serde_json::to_string(&record).map_err(|error| not_stored(&error.to_string()))?;
        lines.push(line);
        self.write_lines(&lines).map_err(|error| not_stored(&error.to_string()))?;
        Ok("the file of labels".to_owned())
    }

    fn read_lines(&self) -> Result<Vec<String>, ArchiveError> {
        let size = match fs::metadata(&self.path) {
            Ok(found) => found.len(),
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(Vec::new()),
            Err(error) => return Err(not_stored(&error.to_string())),
        };
        if size > MAX_FILE_BYTES {
            return Err(not_stored("the file of labels is too large"));
        }
        let text = fs::read_to_string(&self.path).map_err(|error| not_stored(&error.to_string()))?;
        Ok(text.lines().filter(|line| !line.trim().is_empty()).map(str::to_owned).collect())
    }

    /// Locks the file, which the servers of several assistant sessions share. Dropping the value releases the lock.
    fn lock_file(&self) -> std::io::Result<File> {
        let mut name = std::ffi::OsString::from(".");
        name.push(self.path.file_name().unwrap_or_default());
        name.push(".lock");
        let lock = File::options().create(true).append(true).open(self.path.with_file_name(name))?;
        lock.lock()?;
        Ok(lock)
    }

    /// Replaces the file, so that readers see the old or the new one, never a part. The temporary name cannot be
    /// guessed: otherwise a prepared symbolic link could redirect the write.
    fn write_lines(&self, lines: &[String]) -> std::io::Result<()> {
        // If the path is a symbolic link, its target is replaced, not the link.
        let path = fs::canonicalize(&self.path).unwrap_or_else(|_| self.path.clone());
        let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."));
        let mut file = NamedTempFile::new_in(folder)?;
        for line in lines {
            writeln!(file, "{line}")?;
        }
        file.as_file().sync_all()?;
        file.persist(&path)?;
        Ok(())
    }
}

fn is_same_case(known: &LabelRecord, new: &LabelRecord) -> bool {
    (&known.trajectory_id, known.step_index, &known.evaluator, &known.author)
        == (&new.trajectory_id, new.step_index, &new.evaluator, &new.author)
}

fn check_label(manifest: &RunManifest, run: &ArchivedRun, new: &NewRunLabel) -> Result<(), ArchiveError> {
    let bad = |argument, reason| Err(ArchiveError::BadArgument { argument, reason });
    let known: Vec<&str> = manifest.evaluators.iter().map(|known| known.name.as_str()).collect();
    let Some(evaluator) = manifest.evaluators.iter().find(|known| known.name == new.evaluator) else {
        return bad("evaluator", format!("the evaluation has {}", known.join(", ")));
    };
    check_subject(evaluator, run, new)?;
    let is_known = evaluator.labels.iter().any(|(label, _)| *label == new.label) || new.label == UNDECIDED;
    if !is_known {
        let labels: Vec<&str> = evaluator.labels.iter().map(|(label, _)| label.as_str()).collect();
        return bad("label", format!("{} has {} or {UNDECIDED}", evaluator.name, labels.join(", ")));
    }
    if new.explanation.as_ref().is_some_and(|text| text.len() > MAX_EXPLANATION_BYTES) {
        return bad("why", format!("at most {MAX_EXPLANATION_BYTES} bytes"));
    }
    Ok(())
}

fn check_subject(evaluator: &EvaluatorRecord, run: &ArchivedRun, new: &NewRunLabel) -> Result<(), ArchiveError> {
    let bad = |reason: String| Err(ArchiveError::BadArgument { argument: "step", reason });
    match (evaluator.of_steps, new.step_index) {
        (true, None) => bad(format!("{} is about steps: give the number of one", evaluator.name)),
        (false, Some(_)) => bad(format!("{} is about whole runs: leave it out", evaluator.name)),
        (false, None) => Ok(()),
        (true, Some(step)) => {
            let is_step = run.trajectory.steps.iter().any(|known| known.index == step);
            match is_step || run.trajectory.final_thought_index() == Some(step) {
                true => Ok(()),
                false => bad(format!("the run has {} steps", run.trajectory.steps.len())),
            }
        }
    }
}

fn not_stored(reason: &str) -> ArchiveError {
    ArchiveError::LabelNotStored { reason: reason.to_owned() }
}
