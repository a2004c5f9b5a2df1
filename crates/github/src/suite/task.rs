//! A task as a file. Unknown keys are refused: a misspelt one would be a task that is not as meant.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::check::{Check, Demand, Lookup};
use super::collateral::Allowed;
use crate::policy::{Script, TemplateError, fill, fill_text, sources, text_sources};
use crate::rules::Charter;
use crate::simulator::{Seed, SeedError, World};

#[derive(Debug, thiserror::Error)]
pub enum TaskError {
    #[error("{}: {reason}", path.display())]
    Unreadable { path: PathBuf, reason: std::io::Error },
    #[error("{origin}: line {line}: {reason}")]
    Syntax { origin: String, line: usize, reason: String },
    #[error("{origin}: line {line}: {field}: {reason}")]
    Content { origin: String, line: usize, field: &'static str, reason: String },
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
        let text = std::fs::read_to_string(path)
            .map_err(|reason| TaskError::Unreadable { path: path.to_owned(), reason })?;
        let origin = path.display().to_string();
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
        let mut task: Task = toml::from_str(text).map_err(|error| {
            let start = error.span().map_or(0, |span| span.start.min(text.len()));
            TaskError::Syntax {
                origin: origin.to_owned(),
                line: text[..start].matches('\n').count() + 1,
                reason: error.message().replace('\n', " "),
            }
        })?;
        origin.clone_into(&mut task.origin);
        task.world = task.world.placed(origin, folder);
        if let Err((field, reason)) = task.check() {
            let line = line_of(text, field);
            return Err(TaskError::Content { origin: origin.to_owned(), line, field, reason });
        }
        Ok(task)
    }

    fn with_world_checked(self, text: &str) -> Result<Task, TaskError> {
        let world = self.world().map_err(|reason| TaskError::World {
            origin: self.origin.clone(),
            line: line_of(text, "world"),
            reason,
        })?;
        if !world.tokens().any(|(token, _)| token == self.token) {
            return Err(TaskError::Content {
                origin: self.origin.clone(),
                line: line_of(text, "token"),
                field: "token",
                reason: format!("the world has no token {:?}; add it to [[world.tokens]]", self.token),
            });
        }
        Ok(self)
    }

    /// What is wrong with it that no single value shows.
    fn check(&self) -> Result<(), (&'static str, String)> {
        let fits = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '-';
        if self.id.is_empty() || self.id.parse::<u64>().is_ok() || !self.id.chars().all(fits) {
            return Err(("id", format!("{:?}: small letters, digits and hyphens, not only digits", self.id)));
        }
        if self.request.trim().is_empty() {
            return Err(("request", "say what the agent is asked for".to_owned()));
        }
        if self.checks.is_empty() {
            return Err(("checks", "a task without a check is always done; add [[checks]]".to_owned()));
        }
        if self.minimal_calls != self.oracle.steps.len() {
            let steps = self.oracle.steps.len();
            return Err((
                "minimal_calls",
                format!("it says {}, the oracle has {steps} steps; make them agree", self.minimal_calls),
            ));
        }
        if let Some(index) = self.alternatives.iter().position(|one| one.steps.len() < self.minimal_calls) {
            return Err((
                "alternatives",
                format!("alternatives[{index}] is shorter than the oracle; make it the oracle"),
            ));
        }
        check_script(&self.oracle).map_err(|reason| ("oracle", reason))?;
        for (index, one) in self.alternatives.iter().enumerate() {
            let of_one = |reason| ("alternatives", format!("alternatives[{index}].{reason}"));
            check_script(one).map_err(of_one)?;
        }
        for name in names(&self.checks) {
            if !self.lookups.iter().any(|lookup| lookup.name == name) {
                return Err(("checks", format!("there is no lookup {name:?}; add it to [[lookups]]")));
            }
        }
        Ok(())
    }

    /// The world in which it begins.
    pub fn world(&self) -> Result<World, SeedError> {
        self.world.world()
    }
}

/// Templates are read once beforehand, so that a broken one is a broken file and not a broken run.
fn check_script(script: &Script) -> Result<(), String> {
    let later =
        |found: BTreeSet<usize>, before: usize| found.into_iter().find(|step| *step == 0 || *step > before);
    let syntax = |error: Option<TemplateError>| match error {
        Some(error @ TemplateError::Syntax { .. }) => Err(error.to_string()),
        _ => Ok(()),
    };
    for (index, step) in script.steps.iter().enumerate() {
        let wrong = |field: &str, reason: String| format!("steps[{index}].{field}: {reason}");
        if step.thought.trim().is_empty() {
            return Err(wrong("thought", "it is empty; say what is done and why".to_owned()));
        }
        let arguments = Value::Object(step.arguments.clone());
        syntax(fill_text(&step.thought, &[]).err()).map_err(|reason| wrong("thought", reason))?;
        syntax(fill(&arguments, &[]).err()).map_err(|reason| wrong("arguments", reason))?;
        let of_step = [text_sources(&step.thought), sources(&arguments)].into_iter().flatten().collect();
        if let Some(number) = later(of_step, index) {
            return Err(wrong(
                "arguments",
                format!("there is no step {number} before this one; steps count from 1"),
            ));
        }
    }
    syntax(fill_text(&script.answer, &[]).err()).map_err(|reason| format!("answer: {reason}"))?;
    match later(text_sources(&script.answer), script.steps.len()) {
        Some(number) => Err(format!("answer: there is no step {number}; steps count from 1")),
        None => Ok(()),
    }
}

/// Names of lookups that checks use.
fn names(checks: &[Check]) -> Vec<String> {
    let mut found = Vec::new();
    for check in checks {
        match &check.demand {
            Demand::Holds(selection, expectations) => {
                // Whatever is written in double braces anywhere in it.
                let text = format!("{selection:?} {expectations:?}");
                let names = text
                    .split("{{")
                    .skip(1)
                    .filter_map(|rest| Some(rest.split_once("}}")?.0.trim().to_owned()));
                found.extend(names);
            }
            Demand::AnyOf(inner) | Demand::AllOf(inner) => found.extend(self::names(inner)),
        }
    }
    found
}

/// Where a key or a table begins.
fn line_of(text: &str, field: &str) -> usize {
    let begins = |line: &str| {
        let line = line.trim_start().trim_start_matches('[').trim_start();
        line.strip_prefix(field)
            .is_some_and(|rest| !rest.starts_with(|c: char| c.is_alphanumeric() || c == '_'))
    };
    text.lines().position(begins).map_or(1, |line| line + 1)
}
