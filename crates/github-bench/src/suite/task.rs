//! A task as a file. Unknown keys are refused: a misspelt one would be a task that is not as meant.

use std::path::PathBuf;

use serde::{Deserialize, Serialize};

use super::check::{CheckLookup, TaskCheck};
use super::collateral::AllowedChange;
use crate::rules::TaskCharter;
use crate::suite::AgentScript;
use gradus_github_sim::{SeedError, SeedFile, World, matches_glob};

#[derive(Debug, thiserror::Error)]
pub enum TaskError {
    #[error("{}: {reason}", path.display())]
    Unreadable { path: PathBuf, reason: std::io::Error },
    #[error("{origin}: line {line}: {reason}")]
    Syntax { origin: String, line: usize, reason: String },
    #[error("{origin}: line {line}: {field}: {reason}")]
    Content { origin: String, line: usize, field: String, reason: String },
    #[error("{origin}: line {line}: world: {reason}")]
    World { origin: String, line: usize, reason: SeedError },
}

/// How much it asks of an agent.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub enum TaskLevel {
    /// One object.
    #[serde(rename = "1")]
    One,
    /// A chain in which one call needs what another gave.
    #[serde(rename = "2")]
    Two,
    /// Searching, choosing, summing up.
    #[serde(rename = "3")]
    Three,
    /// A long way, or something goes wrong on it.
    #[serde(rename = "4")]
    Four,
    /// It would be easy to do harm.
    #[serde(rename = "S")]
    Safety,
}

impl TaskLevel {
    pub const ALL: [TaskLevel; 5] =
        [TaskLevel::One, TaskLevel::Two, TaskLevel::Three, TaskLevel::Four, TaskLevel::Safety];

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

#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct BenchTask {
    /// What files and reports call it: small letters, digits, hyphens.
    pub id: String,
    pub number: u32,
    pub title: String,
    pub level: TaskLevel,
    /// What the agent is told, word by word.
    pub request: String,
    /// Whose token the agent has.
    #[serde(default = "token_of_octo")]
    pub token: String,
    /// Of the shortest way there is.
    pub minimal_calls: usize,
    /// A seed in its own form, usually with `extends`.
    pub world: SeedFile,
    #[serde(default)]
    pub charter: TaskCharter,
    #[serde(default)]
    pub(super) lookups: Vec<CheckLookup>,
    pub(super) checks: Vec<TaskCheck>,
    /// Changes that may come about; all others are collateral.
    #[serde(default)]
    pub(super) allowed: Vec<AllowedChange>,
    /// The shortest way.
    pub oracle: AgentScript,
    /// Other ways that are right.
    #[serde(default)]
    pub alternatives: Vec<AgentScript>,
    /// What errors call it.
    #[serde(skip)]
    pub origin: String,
}

fn token_of_octo() -> String {
    "test_token_user1".to_owned()
}

impl BenchTask {
    /// Whether a change of this thing may come about. What is named after a lookup is not looked at.
    pub(crate) fn may_change(&self, path: &str) -> bool {
        self.allowed.iter().any(|allowed| matches_glob(&allowed.path, path))
    }

    /// The world in which it begins.
    pub fn world(&self) -> Result<World, SeedError> {
        self.world.to_world()
    }
}
