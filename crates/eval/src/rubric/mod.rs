//! Rubrics: a judge as data. One file holds what is asked, of what, and what the answers are worth.

mod file;
mod labels;
mod library;
mod template;

pub use file::RubricError;
pub use labels::Labels;
pub use library::{Library, LibraryError};
pub use template::{Piece, Template, Variable};

use std::path::PathBuf;
use std::sync::Arc;

/// One question, ready to be asked.
#[derive(Clone, Debug)]
pub struct Rubric {
    /// The evaluator's name in every output.
    pub name: String,
    pub title: String,
    pub about: String,
    pub subject: Subject,
    pub labels: Labels,
    /// Without these the question does not arise.
    pub requires: Vec<Variable>,
    pub template: Template,
    /// The name under which its outcomes are logged to Phoenix.
    pub phoenix_name: String,
    /// Changes with every change to the file or to what every prompt has beside it.
    pub hash: String,
    /// The file's text.
    pub source: Arc<str>,
    pub origin: Origin,
}

/// What a rubric is asked of.
#[derive(Clone, Copy, Debug, PartialEq, Eq, serde::Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Subject {
    Step,
    Trajectory,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Origin {
    BuiltIn,
    File(PathBuf),
}

impl Rubric {
    /// Reads a rubric file's text.
    pub fn parse(text: &str, origin: Origin) -> Result<Rubric, RubricError> {
        file::parse(text, origin)
    }
}
