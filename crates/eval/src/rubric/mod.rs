//! Rubrics: a question as data. One file contains the prompt, what it applies to, the labels and their scores.
//! `docs/reference/rubrics.md` describes the format.

mod file;
mod labels;
mod library;
mod template;

pub use file::{RubricError, is_reserved_name};
pub use labels::{RubricLabelError, RubricLabels};
pub use library::{LibraryError, RubricLibrary};
pub use template::{RubricTemplate, RubricTemplatePiece, RubricVariable};

use std::path::PathBuf;
use std::sync::Arc;

/// One question, parsed and checked.
#[derive(Clone, Debug)]
pub struct Rubric {
    /// The evaluator's name in every output; unique in a library.
    pub name: String,
    pub title: String,
    /// One line for `gradus rubrics list`.
    pub about: String,
    pub subject: RubricSubject,
    pub labels: RubricLabels,
    /// Variables without which the outcome is `not_applicable`. Their texts must be recorded and not blank.
    pub requires: Vec<RubricVariable>,
    /// Variables with which the question does not apply.
    pub unless: Vec<RubricVariable>,
    /// Whether the question is also asked about the thought before the final answer, after which no tool was called.
    pub judges_final_thought: bool,
    pub template: RubricTemplate,
    /// The name of its annotations in Phoenix.
    pub phoenix_name: String,
    /// A hash of the file and of the fixed texts around every prompt. It is part of the cache key.
    pub hash: String,
    /// The file's text, to be shown unchanged.
    pub source: Arc<str>,
    pub origin: RubricOrigin,
}

/// Whether a rubric is asked once per step or once per trajectory.
#[derive(Clone, Copy, Debug, PartialEq, Eq, serde::Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum RubricSubject {
    Step,
    Trajectory,
}

/// Where a rubric comes from; errors and `gradus rubrics list` show it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum RubricOrigin {
    BuiltIn,
    File(PathBuf),
}

impl Rubric {
    /// Parses the text of a rubric file. It reads no file: `origin` is only stored.
    pub fn parse(text: &str, origin: RubricOrigin) -> Result<Rubric, RubricError> {
        file::parse_rubric(text, origin)
    }
}
