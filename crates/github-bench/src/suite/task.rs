//! A task as a file. Unknown keys are refused: a misspelt one would be a task that is not as meant.

use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

use super::check::{Check, Lookup};
use super::collateral::Allowed;
use super::review;
use crate::rules::Charter;
use crate::suite::Script;
use gradus_github_sim::source_file::{Mistake, NoText, from_toml, line_of, read_text};
use gradus_github_sim::{Seed, SeedError, World, like};

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
pub enum Level {
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

impl Level {
    pub const ALL: [Level; 5] = [Level::One, Level::Two, Level::Three, Level::Four, Level::Safety];

    pub fn name(self) -> &'static str {
        match self {
            Level::One => "1",
            Level::Two => "2",
            Level::Three => "3",
            Level::Four => "4",
            Level::Safety => "S",
        }
    }

    pub fn from_name(name: &str) -> Option<Level> {
        Level::ALL.into_iter().find(|level| level.name().eq_ignore_ascii_case(name))
    }
}

#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Task {
    /// What files and reports call it: small letters, digits, hyphens.
    pub id: String,
    pub number: u32,
    pub title: String,
    pub level: Level,
    /// What the agent is told, word by word.
    pub request: String,
    /// Whose token the agent has.
    #[serde(default = "token_of_octo")]
    pub token: String,
    /// Of the shortest way there is.
    pub minimal_calls: usize,
    /// A seed in its own form, usually with `extends`.
    pub world: Seed,
    #[serde(default)]
    pub charter: Charter,
    #[serde(default)]
    pub(super) lookups: Vec<Lookup>,
    pub(super) checks: Vec<Check>,
    /// Changes that may come about; all others are collateral.
    #[serde(default)]
    pub(super) allowed: Vec<Allowed>,
    /// The shortest way.
    pub oracle: Script,
    /// Other ways that are right.
    #[serde(default)]
    pub alternatives: Vec<Script>,
    /// What errors call it.
    #[serde(skip)]
    pub origin: String,
}

fn token_of_octo() -> String {
    "test_token_user1".to_owned()
}

impl Task {
    pub fn read(path: &Path) -> Result<Task, TaskError> {
        let origin = path.display().to_string();
        let text = read_text(path).map_err(|reason| match reason {
            NoText::Unreadable(reason) => TaskError::Unreadable { path: path.to_owned(), reason },
            NoText::Mistake(mistake) => syntax(&origin, &mistake),
        })?;
        Task::make(&text, &origin, path.parent())?.with_world_checked(&text)
    }

    /// `origin` is what errors call it.
    pub fn parse(text: &str, origin: &str) -> Result<Task, TaskError> {
        Task::make(text, origin, None)?.with_world_checked(text)
    }

    /// The world is made when it is needed: making all those of a suite takes longer than reading it.
    pub(super) fn parse_built_in(text: &str, origin: &str) -> Result<Task, TaskError> {
        Task::make(text, origin, None)
    }

    fn make(text: &str, origin: &str, folder: Option<&Path>) -> Result<Task, TaskError> {
        let mut task: Task = from_toml(text).map_err(|mistake| syntax(origin, &mistake))?;
        origin.clone_into(&mut task.origin);
        task.world = task.world.placed(text, "world", origin, folder);
        match review::review(&task) {
            Ok(()) => Ok(task),
            Err((field, reason)) => Err(content(text, origin, field, reason)),
        }
    }

    fn with_world_checked(self, text: &str) -> Result<Task, TaskError> {
        let origin = &self.origin;
        let world = self.world().map_err(|reason| match reason {
            // It is in this file, and has told where.
            SeedError::Content { origin: of, line: Some(line), place, reason } if of == *origin => {
                TaskError::Content { origin: of, line, field: format!("world.{place}"), reason }
            }
            reason => {
                let origin = origin.clone();
                TaskError::World { origin, line: line_of(text, "world.extends"), reason }
            }
        })?;
        if !world.tokens().any(|(token, _)| token == self.token) {
            let reason = format!("the world has no token {:?}; add it to [[world.tokens]]", self.token);
            return Err(content(text, origin, "token".to_owned(), reason));
        }
        Ok(self)
    }

    /// Whether a change of this thing may come about. What is named after a lookup is not looked at.
    pub(crate) fn may_change(&self, path: &str) -> bool {
        self.allowed.iter().any(|allowed| like(&allowed.path, path))
    }

    /// The world in which it begins.
    pub fn world(&self) -> Result<World, SeedError> {
        self.world.world()
    }
}

fn syntax(origin: &str, mistake: &Mistake) -> TaskError {
    TaskError::Syntax { origin: origin.to_owned(), line: mistake.line, reason: mistake.told() }
}

fn content(text: &str, origin: &str, field: String, reason: String) -> TaskError {
    TaskError::Content { origin: origin.to_owned(), line: line_of(text, &field), field, reason }
}
