//! Where runs are stored, and how an unfinished run is found again.

use std::collections::BTreeMap;
use std::fs::{self, File, TryLockError};
use std::path::{Path, PathBuf};

use gradus_llm::price::ModelPrices;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::{EarlyGateRecord, RunFileError};
use crate::scale::ScoreScale;

/// The state folder (`.gradus`), which contains the verdict cache and all runs.
#[derive(Clone, Debug)]
pub struct StateFolder(PathBuf);

/// The folder of one run. A process that created or resumed it holds its lock; readers hold none.
#[derive(Debug)]
pub struct RunFolder {
    path: PathBuf,
    pub record: RunManifest,
    /// Kept open: the operating system releases the lock when the process ends, however it ends.
    _lock: Option<File>,
}

/// `run.json`: what a run was, and how it ended. Reports are made from it without the rubric files.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct RunManifest {
    /// Ids begin with the time of the start, so that sorting them sorts runs by age.
    pub run_id: String,
    /// Equal for runs that ask the same questions about the same sources. A run is resumed by it.
    pub fingerprint: String,
    pub state: RunState,
    /// What the user calls it. Absent in runs of earlier versions, like the next three.
    #[serde(default)]
    pub name: Option<String>,
    #[serde(default)]
    pub tags: BTreeMap<String, String>,
    /// The commit and branch of the agent under test, from the variables of a CI job or from git.
    #[serde(default)]
    pub commit: Option<String>,
    #[serde(default)]
    pub branch: Option<String>,
    /// Why the run ended early, as text for people.
    pub stopped_because: Option<String>,
    pub started: String,
    pub ended: Option<String>,
    pub sources: Vec<String>,
    pub judge: String,
    /// The address of the judge; null for the offline judge. Several addresses are separated by commas.
    pub endpoint: Option<String>,
    /// How several judges were asked, or one several times. Absent where one judge is asked once.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub panel: Option<PanelRecord>,
    /// The models that are asked. Empty for the offline judge, and in runs of earlier versions.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub models: Vec<JudgeModelRecord>,
    pub evaluators: Vec<EvaluatorRecord>,
    /// Whether the price of the model was known. If not, costs are null instead of 0.
    pub priced: bool,
    /// The gates as written. Absent in runs of earlier versions.
    #[serde(default)]
    pub gates: Vec<String>,
    /// Gates that `--stop-early` decided. Empty for a run that judged everything.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub early_gates: Vec<EarlyGateRecord>,
    /// Prices of models from the user's table, for the cost of the agent. Reports use them with the built-in table.
    #[serde(default, skip_serializing_if = "ModelPrices::is_empty")]
    pub prices: ModelPrices,
    pub gradus_version: String,
}

/// A model as it is asked, with everything that changes its answers.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct JudgeModelRecord {
    /// Provider and model, `openai:gpt-4o`.
    pub judge: String,
    pub provider: String,
    /// The model as asked.
    pub model: String,
    /// The address of the endpoint, without secrets.
    pub endpoint: String,
    /// Null if none is sent.
    pub temperature: Option<f64>,
    /// Length of an answer at most.
    pub max_tokens: u32,
    /// Whether JSON of a schema is asked for. Endpoints that reject this are asked for text.
    pub structured: bool,
    /// Whether log-probabilities are asked for.
    pub logprobs: bool,
}

/// What reports must know about a panel.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct PanelRecord {
    /// The judges that are asked about every question.
    pub judges: Vec<String>,
    /// How often each of them is asked, at most.
    pub repeats: u32,
    /// The judge that decides where the others are unsure.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub escalate_to: Option<String>,
    /// The probability of a label below which a judge is unsure.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub min_probability: Option<f64>,
    /// The share of questions that is escalated to check the others.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub audit_share: Option<f64>,
}

/// What reports must know about an evaluator.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct EvaluatorRecord {
    pub name: String,
    pub title: String,
    /// Whether it was asked about steps and not about whole trajectories.
    pub of_steps: bool,
    /// Labels with their scores, best first.
    pub labels: Vec<(String, f64)>,
    pub rubric_hash: String,
    pub phoenix_name: String,
    pub judge: String,
}

impl RunManifest {
    /// The name, or else the id.
    pub fn display_name(&self) -> &str {
        self.name.as_deref().unwrap_or(&self.run_id)
    }

    /// Whether all names in the manifest are safe. A folder of runs may come from someone else, and ids become file
    /// names and are printed on terminals, so only the characters that Gradus itself uses are accepted: no path
    /// separators, no escape sequences.
    fn has_harmless_names(&self) -> bool {
        let fits =
            |name: &str| !name.is_empty() && name.chars().all(|c| c.is_ascii_alphanumeric() || matches!(c, '_' | '-'));
        fits(&self.run_id) && self.evaluators.iter().all(|known| fits(&known.name))
    }
}

impl EvaluatorRecord {
    /// The scale of the rubric at the time of the run.
    pub fn scale(&self) -> ScoreScale {
        ScoreScale::from_scores(self.labels.iter().map(|(_, score)| *score)).unwrap_or(ScoreScale::SHARE)
    }

    /// Whether a score is the one of the best label.
    pub fn is_right(&self, score: Option<f64>) -> bool {
        score.is_some_and(|score| !self.scale().is_wrong(score))
    }
}

/// The state in the manifest. `Running` does not mean that a process is at work; see [`StateFolder::is_held`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum RunState {
    /// A process is at work, or it died.
    Running,
    /// Ended early, with a report of what it had. The run can be resumed.
    Stopped,
    Finished,
}

/// Maximum number of latest runs that are searched for one to resume, or for answers that the cache lost. Older ones
/// are unlikely candidates, and a folder may contain thousands.
pub(super) const MAX_SEARCHED_RUNS: usize = 100;

impl StateFolder {
    /// Creates the folder if it does not exist.
    pub fn open(path: &Path) -> Result<StateFolder, RunFileError> {
        let make = || {
            // Trajectories may contain private data, so only the owner can read the folder.
            let mut builder = fs::DirBuilder::new();
            builder.recursive(true);
            #[cfg(unix)]
            std::os::unix::fs::DirBuilderExt::mode(&mut builder, 0o700);
            builder.create(path)?;
            fs::create_dir_all(path.join("cache"))?;
            fs::create_dir_all(path.join("runs"))?;
            // Runs should not be committed to the repository that may contain the folder.
            let ignore = path.join(".gitignore");
            if !ignore.exists() {
                fs::write(ignore, "*\n")?;
            }
            Ok(())
        };
        make().map_err(|reason| RunFileError::new(path, reason))?;
        Ok(StateFolder(path.to_owned()))
    }

    /// Returns the folder for reading. It need not exist.
    pub fn from_path(path: &Path) -> StateFolder {
        StateFolder(path.to_owned())
    }

    pub fn cache_path(&self) -> PathBuf {
        self.0.join("cache/verdicts.jsonl")
    }

    /// Ids of all runs, latest first. A folder without `run.json` is not a run.
    pub fn run_ids(&self) -> Vec<String> {
        let entries = fs::read_dir(self.0.join("runs")).into_iter().flatten().flatten();
        let mut ids: Vec<String> = entries
            .filter(|entry| entry.path().join("run.json").is_file())
            .filter_map(|entry| entry.file_name().into_string().ok())
            .collect();
        ids.sort_unstable_by(|a, b| b.cmp(a));
        ids
    }

    /// Resumes the latest run with this fingerprint, if it is not finished and no process has locked it.
    pub fn resume_run(&self, fingerprint: &str) -> Option<RunFolder> {
        for id in self.run_ids().into_iter().take(MAX_SEARCHED_RUNS) {
            let Ok(folder) = self.read_run(&id) else { continue };
            if folder.record.fingerprint != fingerprint {
                continue;
            }
            let lock = lock_run_folder(&folder.path).ok().flatten()?;
            // Read again under the lock: the previous holder may have finished the run in between.
            let mut folder = self.read_run(&id).ok()?;
            folder._lock = Some(lock);
            return (folder.record.state != RunState::Finished).then_some(folder);
        }
        None
    }

    /// Whether a living process has locked this run. It tries the lock and releases it at once.
    pub fn is_held(&self, id: &str) -> bool {
        matches!(lock_run_folder(&self.0.join("runs").join(id)), Ok(None))
    }

    /// Creates the folder of a new run and locks it. An existing folder with this id is an error.
    pub fn create_run(&self, record: RunManifest) -> Result<RunFolder, RunFileError> {
        let path = self.0.join("runs").join(&record.run_id);
        let io = |reason| RunFileError::new(&path, reason);
        fs::create_dir(&path).map_err(io)?;
        let lock = lock_run_folder(&path).map_err(io)?;
        let folder = RunFolder { path, record, _lock: lock };
        folder.save_manifest()?;
        Ok(folder)
    }

    /// Opens a run for reading. It fails on a manifest with names that Gradus would not have written.
    pub fn read_run(&self, id: &str) -> Result<RunFolder, RunFileError> {
        let path = self.0.join("runs").join(id);
        let file = path.join("run.json");
        let io = |reason| RunFileError::new(&file, reason);
        let text = fs::read(&file).map_err(io)?;
        let record: RunManifest = serde_json::from_slice(&text).map_err(|error| io(error.into()))?;
        if !record.has_harmless_names() {
            return Err(io(std::io::Error::new(
                std::io::ErrorKind::InvalidData,
                "it holds names that no run of ours has",
            )));
        }
        Ok(RunFolder { path, record, _lock: None })
    }
}

impl RunFolder {
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// One [`crate::outcome::OutcomeLine`] per line, in order of arrival.
    pub fn outcomes_path(&self) -> PathBuf {
        self.path.join("outcomes.jsonl")
    }

    /// One trajectory per line, in order of the source.
    pub fn trajectories_path(&self) -> PathBuf {
        self.path.join("trajectories.jsonl")
    }

    /// One [`super::JudgeAnswer`] per line. Only runs that ask a model have the file.
    pub fn responses_path(&self) -> PathBuf {
        self.path.join("responses.jsonl")
    }

    /// The calibration that the run was judged with. Most runs have none.
    pub fn calibration_path(&self) -> PathBuf {
        self.path.join("calibration.json")
    }

    /// Writes the manifest to a new file, syncs it and renames it, so that readers see the old or the new one, never a
    /// part.
    pub fn save_manifest(&self) -> Result<(), RunFileError> {
        let file = self.path.join("run.json");
        let new = self.path.join("run.json.new");
        let write = || {
            fs::write(&new, serde_json::to_vec_pretty(&self.record)?)?;
            File::open(&new)?.sync_all()?;
            fs::rename(&new, &file)
        };
        write().map_err(|reason| RunFileError::new(&file, reason))
    }
}

/// An advisory lock on the file `lock`. `None` if another process holds it.
fn lock_run_folder(folder: &Path) -> std::io::Result<Option<File>> {
    let file = File::create(folder.join("lock"))?;
    match file.try_lock() {
        Ok(()) => Ok(Some(file)),
        Err(TryLockError::WouldBlock) => Ok(None),
        Err(TryLockError::Error(error)) => Err(error),
    }
}

#[cfg(test)]
pub(super) fn test_record(id: &str, state: RunState) -> RunManifest {
    RunManifest {
        run_id: id.to_owned(),
        fingerprint: "f".to_owned(),
        state,
        name: None,
        tags: Default::default(),
        commit: None,
        branch: None,
        stopped_because: None,
        started: String::new(),
        ended: None,
        sources: Vec::new(),
        judge: "offline".to_owned(),
        endpoint: None,
        panel: None,
        models: Vec::new(),
        evaluators: Vec::new(),
        priced: true,
        gates: Vec::new(),
        early_gates: Vec::new(),
        prices: ModelPrices::new(),
        gradus_version: String::new(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_from_elsewhere_cannot_lead_out_of_a_folder() {
        let folder = tempfile::tempdir().expect("a folder");
        let state = StateFolder::open(folder.path()).expect("opened");
        let mut run = state.create_run(test_record("1", RunState::Finished)).expect("created");
        assert!(state.read_run("1").is_ok());
        for name in ["../../evil", "/etc/evil", "a\u{1b}[2J", ""] {
            run.record.evaluators = vec![EvaluatorRecord {
                name: name.to_owned(),
                title: String::new(),
                of_steps: true,
                labels: Vec::new(),
                rubric_hash: String::new(),
                phoenix_name: String::new(),
                judge: String::new(),
            }];
            run.save_manifest().expect("saved");
            assert!(state.read_run("1").is_err(), "{name:?}");
        }
    }

    #[test]
    fn takes_up_only_the_latest_run_and_only_if_it_was_cut_off() {
        let folder = tempfile::tempdir().expect("a folder");
        let state = StateFolder::open(folder.path()).expect("opened");
        assert!(state.resume_run("f").is_none());
        let first = state.create_run(test_record("1", RunState::Running)).expect("created");
        assert!(state.resume_run("f").is_none(), "somebody is at it");
        drop(first);
        let mut taken = state.resume_run("f").expect("cut off");
        assert!(state.resume_run("g").is_none());
        taken.record.state = RunState::Finished;
        taken.save_manifest().expect("saved");
        drop(taken);
        assert!(state.resume_run("f").is_none());
        drop(state.create_run(test_record("2", RunState::Stopped)).expect("created"));
        assert_eq!(state.resume_run("f").map(|run| run.record.run_id).as_deref(), Some("2"));
        assert_eq!(state.run_ids(), ["2", "1"]);
    }
}
