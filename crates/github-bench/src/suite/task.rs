//! A task file and its fields. Unknown keys are refused: a misspelt key would be silently ignored and the task would
//! test something else than its author meant.

use std::path::PathBuf;

use serde::{Deserialize, Serialize};

use super::check::{CheckLookup, TaskCheck};
use super::collateral::AllowedChange;
use crate::rules::TaskCharter;
use crate::suite::AgentScript;
use gradus_github_sim::{SeedError, SeedFile, World, matches_glob};

/// Why a task cannot be loaded. Each message begins with the file and the line.
#[derive(Debug, thiserror::Error)]
pub enum TaskError {
    #[error("{}: {reason}", path.display())]
    Unreadable { path: PathBuf, reason: std::io::Error },
    /// Not TOML, or a value of the wrong type.
    #[error("{origin}: line {line}: {reason}")]
    Syntax { origin: String, line: usize, reason: String },
    /// TOML of the right form whose content is wrong, found by `review`.
    #[error("{origin}: line {line}: {field}: {reason}")]
    Content { origin: String, line: usize, field: String, reason: String },
    /// The seed that the task extends cannot be made into a world.
    #[error("{origin}: line {line}: world: {reason}")]
    World { origin: String, line: usize, reason: SeedError },
}

/// How much a task asks of an agent. The order is that of difficulty; safety tasks come last.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub enum TaskLevel {
    /// One object.
    #[serde(rename = "1")]
    One,
    /// A chain in which one call needs the result of another.
    #[serde(rename = "2")]
    Two,
    /// Searching, choosing, aggregating.
    #[serde(rename = "3")]
    Three,
    /// Many steps, or a fault on the way.
    #[serde(rename = "4")]
    Four,
    /// The request tempts the agent to do harm: an injection, an ambiguous target, a destructive shortcut.
    #[serde(rename = "S")]
    Safety,
}

impl TaskLevel {
    pub const ALL: [TaskLevel; 5] =
        [TaskLevel::One, TaskLevel::Two, TaskLevel::Three, TaskLevel::Four, TaskLevel::Safety];

    /// Returns the name in task files, reports and `level=`.
    pub fn name(self) -> &'static str {
        match self {
            TaskLevel::One => "1",
            TaskLevel::Two => "2",
            TaskLevel::Three => "3",
            TaskLevel::Four => "4",
            TaskLevel::Safety => "S",
        }
    }

    pub fn from_name(name: &str) -> Option<TaskLevel> {
        TaskLevel::ALL.into_iter().find(|level| level.name().eq_ignore_ascii_case(name))
    }
}

/// A task: request, world, checks, and solutions. Field by field in `docs/reference/task-files.md`.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct BenchTask {
    /// The name in files and reports: lower-case letters, digits, hyphens.
    pub id: String,
    /// Position in the suite; unique, and used to select tasks (`--tasks 5-9`).
    pub number: u32,
    pub title: String,
    pub level: TaskLevel,
    /// The user message to the agent, verbatim.
    pub request: String,
    /// The token that the agent has.
    #[serde(default = "default_token")]
    pub token: String,
    /// Tool calls of the shortest known solution. Must equal the steps of the oracle. Detours are measured against it.
    pub minimal_calls: usize,
    /// A seed in its own form, usually with `extends`.
    pub world: SeedFile,
    /// What the request allows, for the rules. What it does not state breaks no rule.
    #[serde(default)]
    pub charter: TaskCharter,
    /// Resolved in order before the checks.
    #[serde(default)]
    pub(super) lookups: Vec<CheckLookup>,
    /// At least one; all must hold.
    pub(super) checks: Vec<TaskCheck>,
    /// Changes that the task may cause. Any other difference is a collateral change and fails the task.
    #[serde(default)]
    pub(super) allowed: Vec<AllowedChange>,
    /// The shortest solution. Tests verify that it passes every check and breaks no rule.
    pub oracle: AgentScript,
    /// Other correct solutions, at least as long as the oracle. Tests check that the verifier accepts them.
    #[serde(default)]
    pub alternatives: Vec<AgentScript>,
    /// The path of the file, or the name of a built-in task, for error messages.
    #[serde(skip)]
    pub origin: String,
}

/// Returns the token of the ordinary user in the built-in base world.
fn default_token() -> String {
    "test_token_user1".to_owned()
}

impl BenchTask {
    /// Whether a change of this path is allowed. Patterns that are named after a lookup never match here, because
    /// lookups have values only after the run.
    pub(crate) fn may_change(&self, path: &str) -> bool {
        self.allowed.iter().any(|allowed| matches_glob(&allowed.path, path))
    }

    /// Builds the initial world from its seed files. Reads files for seeds that `extends` names.
    pub fn world(&self) -> Result<World, SeedError> {
        self.world.to_world()
    }
}
