//! Rubrics: a judge as data. One file holds what is asked, of what, and what the answers are worth.

mod file;
mod labels;
mod library;
mod template;

pub use file::RubricError;
pub use labels::{RubricLabelError, RubricLabels};
pub use library::{LibraryError, RubricLibrary};
pub use template::{RubricTemplate, RubricTemplatePiece, RubricVariable};

use std::path::PathBuf;
use std::sync::Arc;

/// One question, ready to be asked.
#[derive(Clone, Debug)]
pub struct Rubric {
    /// The evaluator's name in every output.
    pub name: String,
    pub title: String,
    pub about: String,
    pub subject: RubricSubject,
    pub labels: RubricLabels,
    /// Without these the question does not arise.
    pub requires: Vec<RubricVariable>,
    pub template: RubricTemplate,
    /// The name under which its outcomes are logged to Phoenix.
    pub phoenix_name: String,
    /// Changes with every change to the file or to what every prompt has beside it.
    pub hash: String,
    /// The file's text.
    pub source: Arc<str>,
    pub origin: RubricOrigin,
}

/// What a rubric is asked of.
#[derive(Clone, Copy, Debug, PartialEq, Eq, serde::Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum RubricSubject {
    Step,
    Trajectory,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum RubricOrigin {
    BuiltIn,
    File(PathBuf),
}

impl Rubric {
    /// Reads a rubric file's text.
    pub fn parse(text: &str, origin: RubricOrigin) -> Result<Rubric, RubricError> {
        file::parse_rubric(text, origin)
    }
}
