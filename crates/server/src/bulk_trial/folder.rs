//! The files of trials on many cases.

use std::io::ErrorKind;
use std::path::{Path, PathBuf};

use serde::Serialize;
use serde::de::DeserializeOwned;

use super::journal::BulkTrialRecord;
use super::plan::{BulkTrialPlan, BulkTrialState, BulkTrialStatus};

/// Maximum number of stored trials; the latest are kept.
const MAX_STORED_TRIALS: usize = 50;
/// Maximum age of a trial. Trials contain text of judges about recorded data, so they are not kept for ever.
const MAX_TRIAL_AGE_NS: i64 = 30 * 86_400 * 1_000_000_000;

/// A file of a trial that could not be read or written.
#[derive(Debug, thiserror::Error)]
#[error("{path}: {source}")]
pub(crate) struct BulkTrialFolderError {
    path: String,
    #[source]
    source: std::io::Error,
}

impl BulkTrialFolderError {
    fn new(path: &Path, source: std::io::Error) -> BulkTrialFolderError {
        BulkTrialFolderError { path: path.display().to_string(), source }
    }
}

/// The folder of one trial.
#[derive(Clone, Debug)]
pub(crate) struct BulkTrialFolder(PathBuf);

impl BulkTrialFolder {
    /// `None` for a name that is not an id: it must not become a path.
    pub(crate) fn find(data: &Path, id: &str) -> Option<BulkTrialFolder> {
        let is_id = id.len() == 32 && id.bytes().all(|byte| matches!(byte, b'0'..=b'9' | b'a'..=b'f'));
        let folder = trials_folder(data).join(id);
        (is_id && folder.join("plan.json").is_file()).then_some(BulkTrialFolder(folder))
    }

    /// Writes a new plan, and removes trials that are too old or too many.
    pub(crate) fn create(
        data: &Path,
        plan: &BulkTrialPlan,
        max_age_ns: Option<i64>,
    ) -> Result<BulkTrialFolder, BulkTrialFolderError> {
        remove_old_trials(data, plan.created_ns, max_age_ns.unwrap_or(MAX_TRIAL_AGE_NS).min(MAX_TRIAL_AGE_NS));
        let folder = BulkTrialFolder(trials_folder(data).join(&plan.id));
        std::fs::create_dir_all(&folder.0).map_err(|error| BulkTrialFolderError::new(&folder.0, error))?;
        folder.write("plan.json", plan)?;
        Ok(folder)
    }

    pub(crate) fn load_plan(&self) -> Result<BulkTrialPlan, BulkTrialFolderError> {
        self.read("plan.json")
    }

    /// Loads the state; `Planned` if no state file exists.
    pub(crate) fn load_state(&self) -> Result<BulkTrialState, BulkTrialFolderError> {
        match self.read("state.json") {
            Err(error) if error.source.kind() == ErrorKind::NotFound => Ok(BulkTrialState::default()),
            read => read,
        }
    }

    pub(crate) fn save_state(&self, state: &BulkTrialState) -> Result<(), BulkTrialFolderError> {
        self.write("state.json", state)
    }

    pub(crate) fn load_record(&self) -> Result<BulkTrialRecord, BulkTrialFolderError> {
        let path = self.journal_path();
        BulkTrialRecord::read(&path).map_err(|error| BulkTrialFolderError::new(&path, error))
    }

    pub(super) fn journal_path(&self) -> PathBuf {
        self.0.join("journal.jsonl")
    }

    fn read<T: DeserializeOwned>(&self, name: &str) -> Result<T, BulkTrialFolderError> {
        let path = self.0.join(name);
        let read = std::fs::read(&path).and_then(|bytes| Ok(serde_json::from_slice(&bytes)?));
        read.map_err(|error| BulkTrialFolderError::new(&path, error))
    }

    /// Replaces a file atomically: readers see the old content or the new one, never a part.
    fn write(&self, name: &str, value: &impl Serialize) -> Result<(), BulkTrialFolderError> {
        let path = self.0.join(name);
        let new = self.0.join(format!("{name}.new"));
        let written = serde_json::to_vec(value)
            .map_err(std::io::Error::from)
            .and_then(|bytes| std::fs::write(&new, bytes))
            .and_then(|()| std::fs::rename(&new, &path));
        written.map_err(|error| BulkTrialFolderError::new(&path, error))
    }
}

/// Lists the trials of a rubric, latest first. Unreadable trials are left out.
pub(crate) fn list_bulk_trials(data: &Path, rubric: &str) -> Vec<(BulkTrialPlan, BulkTrialFolder)> {
    let mut all = list_all_trials(data);
    all.retain(|(plan, _)| plan.rubric == rubric);
    all
}

fn list_all_trials(data: &Path) -> Vec<(BulkTrialPlan, BulkTrialFolder)> {
    let folders = std::fs::read_dir(trials_folder(data)).into_iter().flatten().flatten();
    let folders = folders.filter_map(|entry| BulkTrialFolder::find(data, entry.file_name().to_str()?));
    let mut all: Vec<_> = folders.filter_map(|folder| Some((folder.load_plan().ok()?, folder))).collect();
    all.sort_by_key(|(plan, _)| std::cmp::Reverse(plan.created_ns));
    all
}

fn remove_old_trials(data: &Path, now_ns: i64, max_age_ns: i64) {
    for (number, (plan, folder)) in list_all_trials(data).into_iter().enumerate() {
        // Leaves room for the new trial. A running trial is kept.
        let is_running = folder.load_state().unwrap_or_default().status == BulkTrialStatus::Running;
        if (number + 1 >= MAX_STORED_TRIALS && !is_running) || now_ns.saturating_sub(plan.created_ns) > max_age_ns {
            let removed = std::fs::remove_dir_all(&folder.0);
            if let Err(error) = removed {
                tracing::warn!(%error, trial = plan.id, "failed to remove an old rubric trial");
            }
        }
    }
}

fn trials_folder(data: &Path) -> PathBuf {
    data.join("rubric-trials")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn plan(number: u64, created_ns: i64) -> BulkTrialPlan {
        BulkTrialPlan { id: format!("{number:032x}"), rubric: "fit".to_owned(), created_ns, ..BulkTrialPlan::default() }
    }

    #[test]
    fn trials_are_found_again_and_do_not_fill_the_disk() {
        let data = tempfile::tempdir().unwrap();
        for number in 1..=60 {
            let made = BulkTrialFolder::create(data.path(), &plan(number, number as i64), None).unwrap();
            assert_eq!(made.load_state().unwrap(), BulkTrialState::default());
        }
        let kept = list_bulk_trials(data.path(), "fit");
        assert_eq!((kept.len(), kept[0].0.created_ns), (MAX_STORED_TRIALS, 60));
        assert!(list_bulk_trials(data.path(), "other").is_empty());
        // Those that are too old go with the next plan.
        BulkTrialFolder::create(data.path(), &plan(99, MAX_TRIAL_AGE_NS + 58), None).unwrap();
        let times: Vec<i64> = list_bulk_trials(data.path(), "fit").iter().map(|(plan, _)| plan.created_ns).collect();
        assert_eq!(times, [MAX_TRIAL_AGE_NS + 58, 60, 59, 58]);
        BulkTrialFolder::create(data.path(), &plan(100, MAX_TRIAL_AGE_NS + 59), Some(1)).unwrap();
        assert_eq!(list_bulk_trials(data.path(), "fit").len(), 2);
    }

    #[test]
    fn a_name_is_no_path_and_states_are_replaced() {
        let data = tempfile::tempdir().unwrap();
        let made = BulkTrialFolder::create(data.path(), &plan(7, 1), None).unwrap();
        for name in ["", "..", "../rubric-trials", "0000000000000000000000000000000G", "/"] {
            assert!(BulkTrialFolder::find(data.path(), name).is_none(), "{name}");
        }
        assert!(BulkTrialFolder::find(data.path(), &format!("{:032x}", 8)).is_none());
        made.save_state(&BulkTrialState::new(BulkTrialStatus::Stopped, "why")).unwrap();
        let found = BulkTrialFolder::find(data.path(), &format!("{:032x}", 7)).unwrap();
        assert_eq!(found.load_state().unwrap(), BulkTrialState::new(BulkTrialStatus::Stopped, "why"));
        assert_eq!(found.load_plan().unwrap().rubric, "fit");
    }
}
