//! Tasks with a known correct result: the request, the world, what must be true afterwards, and the shortest solution.
//! A task is a TOML file (`docs/reference/task-files.md`); a suite is a folder of them.

mod check;
mod check_context;
mod collateral;
mod digest;
mod expectation;
mod path;
mod review;
mod script;
mod source;
mod task;
mod task_reader;
pub(crate) mod template;
mod text;
mod verify;

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

pub use script::{AgentScript, ScriptReply, ScriptStep};
pub use task::{BenchTask, TaskError, TaskLevel};
pub use template::{ScriptTemplateError, fill_template, fill_text, list_referenced_steps, list_steps_in_text};
pub(crate) use text::parse_number_word;
pub use verify::{CheckOutcome, CollateralChange, TaskVerification};

/// Name of the suite that is compiled in.
pub const BUILT_IN_SUITE: &str = "github";
/// Its files as pairs of name and text, collected by `build.rs`.
const BUILT_IN_TASK_FILES: &[(&str, &str)] = include!(concat!(env!("OUT_DIR"), "/tasks.rs"));

/// Why a suite cannot be loaded, or a selection of it is empty.
#[derive(Debug, thiserror::Error)]
pub enum SuiteError {
    #[error(
        "there is no suite {name:?}: give a folder of task files, or {BUILT_IN_SUITE:?} for the one that is built in"
    )]
    Unknown { name: String },
    #[error("{}: {reason}", path.display())]
    Unreadable { path: PathBuf, reason: std::io::Error },
    #[error("{}: there is no task in it; a task is a file that ends in .toml", path.display())]
    Empty { path: PathBuf },
    /// Two files with the same id or number.
    #[error("{one} and {other} are both task {name}: give one of them another {field}")]
    Twice { one: String, other: String, name: String, field: &'static str },
    /// A part of a selection that matches no task.
    #[error(
        "{word:?} chooses no task of the suite {suite:?}: write numbers (3), ranges (5-9), ids (add-a-file) or levels (level=S), with commas between"
    )]
    Unselected { word: String, suite: String },
    #[error(transparent)]
    Task(#[from] TaskError),
}

/// Tasks sorted by number. Numbers and ids are unique.
#[derive(Clone, Debug)]
pub struct TaskSuite {
    pub name: String,
    pub tasks: Vec<BenchTask>,
}

impl TaskSuite {
    /// Parses the compiled-in tasks. Their worlds are not built yet.
    pub fn built_in() -> Result<TaskSuite, SuiteError> {
        let tasks = BUILT_IN_TASK_FILES.iter().map(|(name, text)| BenchTask::parse_built_in(text, name));
        TaskSuite::from_tasks(BUILT_IN_SUITE.to_owned(), tasks.collect::<Result<_, _>>()?)
    }

    /// Loads the built-in suite by its name, or all `.toml` files of a folder. Stops at the first file that is wrong.
    pub fn load(name: &str) -> Result<TaskSuite, SuiteError> {
        if name == BUILT_IN_SUITE {
            return TaskSuite::built_in();
        }
        let folder = Path::new(name);
        if !folder.is_dir() {
            return Err(SuiteError::Unknown { name: name.to_owned() });
        }
        let unreadable = |reason| SuiteError::Unreadable { path: folder.to_owned(), reason };
        let mut tasks = Vec::new();
        for entry in std::fs::read_dir(folder).map_err(unreadable)? {
            let path = entry.map_err(unreadable)?.path();
            if path.extension().is_some_and(|ending| ending == "toml") {
                tasks.push(BenchTask::read(&path)?);
            }
        }
        if tasks.is_empty() {
            return Err(SuiteError::Empty { path: folder.to_owned() });
        }
        TaskSuite::from_tasks(name.to_owned(), tasks)
    }

    /// Sorts tasks and refuses duplicate ids and numbers, by which results and selections name them.
    fn from_tasks(name: String, mut tasks: Vec<BenchTask>) -> Result<TaskSuite, SuiteError> {
        tasks.sort_by(|one, other| (one.number, &one.id).cmp(&(other.number, &other.id)));
        let twice = |one: &BenchTask, other: &BenchTask, name: String, field| SuiteError::Twice {
            one: one.origin.clone(),
            other: other.origin.clone(),
            name,
            field,
        };
        for (index, task) in tasks.iter().enumerate() {
            for other in &tasks[index + 1..] {
                if task.id == other.id {
                    return Err(twice(task, other, format!("{:?}", task.id), "id"));
                }
                if task.number == other.number {
                    return Err(twice(task, other, task.number.to_string(), "number"));
                }
            }
        }
        Ok(TaskSuite { name, tasks })
    }

    /// Finds a task by its id.
    pub fn task(&self, id: &str) -> Option<&BenchTask> {
        self.tasks.iter().find(|task| task.id == id)
    }

    /// Selects tasks by a comma-separated list: `1,5-9,add-a-file,level=S`. A word that matches no task is an error, so
    /// that a typing mistake does not shrink a benchmark silently. The result is in the order of the suite, without
    /// duplicates.
    pub fn select(&self, words: &str) -> Result<Vec<&BenchTask>, SuiteError> {
        let mut chosen = BTreeSet::new();
        for word in words.split(',').map(str::trim).filter(|word| !word.is_empty()) {
            let range = word
                .split_once('-')
                .and_then(|(first, last)| Some(first.trim().parse::<u32>().ok()?..=last.trim().parse::<u32>().ok()?));
            let level = word.strip_prefix("level=").and_then(TaskLevel::from_name);
            let fits = |task: &BenchTask| {
                task.id == word
                    || word.parse() == Ok(task.number)
                    || range.as_ref().is_some_and(|range| range.contains(&task.number))
                    || level == Some(task.level)
            };
            let before = chosen.len();
            let found: Vec<u32> = self.tasks.iter().filter(|task| fits(task)).map(|task| task.number).collect();
            if found.is_empty() && before == chosen.len() {
                return Err(SuiteError::Unselected { word: word.to_owned(), suite: self.name.clone() });
            }
            chosen.extend(found);
        }
        Ok(self.tasks.iter().filter(|task| chosen.contains(&task.number)).collect())
    }
}
