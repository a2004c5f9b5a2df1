//! Loads tasks. Errors carry the line of the file, also those found by `review`, which sees only the parsed task: the
//! line is looked up by the name of the field.

use std::path::Path;

use gradus_github_sim::SeedError;
use gradus_github_sim::source_file::{SourceFileProblem, TextFileError, from_toml, line_of, read_text};

use super::review;
use super::task::{BenchTask, TaskError};

impl BenchTask {
    /// Loads and validates a task file. Seeds that it extends are found relative to its folder.
    pub fn read(path: &Path) -> Result<BenchTask, TaskError> {
        let origin = path.display().to_string();
        let text = read_text(path).map_err(|reason| match reason {
            TextFileError::Unreadable(reason) => TaskError::Unreadable { path: path.to_owned(), reason },
            TextFileError::Mistake(mistake) => syntax_error(&origin, &mistake),
        })?;
        BenchTask::from_text(&text, &origin, path.parent())?.with_world_checked(&text)
    }

    /// Loads a task from a text that has no folder. `origin` names it in error messages.
    pub fn parse(text: &str, origin: &str) -> Result<BenchTask, TaskError> {
        BenchTask::from_text(text, origin, None)?.with_world_checked(text)
    }

    /// As [`BenchTask::parse`], without building the world: building those of a whole suite takes longer than reading
    /// it, and tests already hold that built-in worlds are valid.
    pub(super) fn parse_built_in(text: &str, origin: &str) -> Result<BenchTask, TaskError> {
        BenchTask::from_text(text, origin, None)
    }

    /// Parses and reviews a task. `folder` is where seeds are looked up; none for built-in tasks.
    fn from_text(text: &str, origin: &str, folder: Option<&Path>) -> Result<BenchTask, TaskError> {
        let mut task: BenchTask = from_toml(text).map_err(|mistake| syntax_error(origin, &mistake))?;
        origin.clone_into(&mut task.origin);
        task.world = task.world.with_source(text, "world", origin, folder);
        match review::validate_task(&task) {
            Ok(()) => Ok(task),
            Err((field, reason)) => Err(content_error(text, origin, field, reason)),
        }
    }

    /// Builds the world once to find errors in its seed, and drops it. The token must exist there, otherwise every
    /// request of the agent would be refused.
    fn with_world_checked(self, text: &str) -> Result<BenchTask, TaskError> {
        let origin = &self.origin;
        let world = self.world().map_err(|reason| match reason {
            // The error is in this file and already knows its line.
            SeedError::Content { origin: of, line: Some(line), place, reason } if of == *origin => {
                TaskError::Content { origin: of, line, field: format!("world.{place}"), reason }
            }
            reason => {
                let origin = origin.clone();
                TaskError::World { origin, line: line_of(text, "world.extends"), reason }
            }
        })?;
        if !world.tokens_with_logins().any(|(token, _)| token == self.token) {
            let reason = format!("the world has no token {:?}; add it to [[world.tokens]]", self.token);
            return Err(content_error(text, origin, "token".to_owned(), reason));
        }
        Ok(self)
    }
}

fn syntax_error(origin: &str, mistake: &SourceFileProblem) -> TaskError {
    TaskError::Syntax { origin: origin.to_owned(), line: mistake.line, reason: mistake.format_message() }
}

/// Finds the line of the field in the text.
fn content_error(text: &str, origin: &str, field: String, reason: String) -> TaskError {
    TaskError::Content { origin: origin.to_owned(), line: line_of(text, &field), field, reason }
}
