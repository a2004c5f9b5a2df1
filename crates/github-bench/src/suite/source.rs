//! Where a check looks: at an answer of the simulator, a file, new commits, changes, requests, the final message.

use serde::Deserialize;
use serde_json::{Map, Value};

use super::path::{JsonPath, JsonPathError};
use super::text::TextReadMode;
use gradus_github_sim::{DifferenceKind, RequestMethod};

#[derive(Clone, Debug)]
pub(super) enum CheckSource {
    /// What GitHub answers to a GET, all pages of it; nothing if it refuses.
    Get(String),
    /// A file's text.
    File(String),
    /// Commits that a branch has and did not have before, newest first.
    Commits(String),
    /// What is different from before.
    Changes {
        pattern: String,
        what: Option<DifferenceKind>,
    },
    Requests(RequestPattern),
    Answer,
    /// Whether requests that went well came in this order.
    Order(Vec<RequestPattern>),
    /// Whether one commit descends from another.
    Descends(CommitDescent),
    /// Whether nothing was asked while the service wanted to be left alone.
    RetryAfterObeyed,
}

impl CheckSource {
    /// Whether it is true or not by itself.
    pub(super) fn is_statement(&self) -> bool {
        matches!(self, CheckSource::Order(_) | CheckSource::Descends(_) | CheckSource::RetryAfterObeyed)
    }
}

/// Requests that are meant; what is not said may be anything.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub(super) struct RequestPattern {
    pub(super) method: Option<String>,
    /// With `*` for anything.
    pub(super) path: Option<String>,
    /// What stands behind the question mark, with `*` for anything.
    pub(super) query: Option<String>,
    /// GitHub's name of it.
    pub(super) operation: Option<String>,
    /// Whether it was answered with less than 400.
    pub(super) ok: Option<bool>,
    /// Whether it is no GET or HEAD.
    pub(super) write: Option<bool>,
}

/// All of a repository; a commit is a branch, a tag or a sha, with `before:` in front if it is meant as it was.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct CommitDescent {
    pub(super) repository: String,
    pub(super) newer: String,
    pub(super) older: String,
}

/// A source, and what of it is looked at.
#[derive(Clone, Debug)]
pub(super) struct CheckSelection {
    pub(super) source: CheckSource,
    /// As it was before the run.
    pub(super) before: bool,
    /// Of a list: only what has these values.
    pub(super) filter: Vec<(JsonPath, Value)>,
    pub(super) at: Option<JsonPath>,
    pub(super) read_as: Option<TextReadMode>,
    /// Of the rows of a table: only this cell of each.
    pub(super) column: Option<usize>,
}

/// The keys of a selection, as a file has them.
#[derive(Clone, Debug, Default)]
pub(super) struct SelectionKeys {
    pub(super) get: Option<String>,
    pub(super) file: Option<String>,
    pub(super) commits: Option<String>,
    pub(super) changes: Option<String>,
    pub(super) what: Option<DifferenceKind>,
    pub(super) requests: Option<RequestPattern>,
    pub(super) answer: Option<bool>,
    pub(super) order: Option<Vec<RequestPattern>>,
    pub(super) descends: Option<CommitDescent>,
    pub(super) retry_after_obeyed: Option<bool>,
    pub(super) before: bool,
    pub(super) filter: Map<String, Value>,
    pub(super) at: Option<String>,
    pub(super) read_as: Option<TextReadMode>,
    pub(super) column: Option<usize>,
}

const SOURCES: &str = "get, file, commits, changes, requests, answer, order, descends, retry_after_obeyed";

/// Why the keys of a check or a lookup do not say where to look.
#[derive(Debug, thiserror::Error)]
pub(super) enum SelectionError {
    #[error("`what` belongs to `changes`")]
    WhatWithoutChanges,
    #[error("`column` belongs to `read_as = \"table_rows\"`")]
    ColumnWithoutTable,
    #[error("file {0:?}: write owner/name@branch:path")]
    MalformedFile(String),
    #[error("commits {0:?}: write owner/name@branch")]
    MalformedCommits(String),
    #[error("get: a path begins with /")]
    RelativePath,
    #[error("`answer` and `retry_after_obeyed` are true, or not there")]
    FalseFlag,
    #[error("method {0:?}: write GET, HEAD, POST, PUT, PATCH or DELETE")]
    UnknownMethod(String),
    #[error("changes: say what changed, as repos/octo/demo/issues/*")]
    EmptyChanges,
    #[error("it says where to look with exactly one of {SOURCES}")]
    SourceCount,
    #[error("`before` belongs to `get` or `file`")]
    MisplacedBefore,
    #[error(transparent)]
    Path(#[from] JsonPathError),
}

impl TryFrom<SelectionKeys> for CheckSelection {
    type Error = SelectionError;

    fn try_from(keys: SelectionKeys) -> Result<CheckSelection, SelectionError> {
        if keys.what.is_some() && keys.changes.is_none() {
            return Err(SelectionError::WhatWithoutChanges);
        }
        if keys.column.is_some() && keys.read_as != Some(TextReadMode::TableRows) {
            return Err(SelectionError::ColumnWithoutTable);
        }
        if let Some(name) = keys.file.iter().find(|name| split_file(name).is_none()) {
            return Err(SelectionError::MalformedFile(name.clone()));
        }
        if let Some(name) = keys.commits.iter().find(|name| !name.contains('@')) {
            return Err(SelectionError::MalformedCommits(name.clone()));
        }
        if keys.get.as_ref().is_some_and(|path| !path.starts_with('/')) {
            return Err(SelectionError::RelativePath);
        }
        if keys.answer == Some(false) || keys.retry_after_obeyed == Some(false) {
            return Err(SelectionError::FalseFlag);
        }
        let patterns = keys.requests.iter().chain(keys.order.iter().flatten());
        if let Some(method) = patterns.filter_map(|one| one.method.as_deref()).find(|one| is_unknown(one)) {
            return Err(SelectionError::UnknownMethod(method.to_owned()));
        }
        if keys.changes.as_ref().is_some_and(|pattern| pattern.trim().is_empty()) {
            return Err(SelectionError::EmptyChanges);
        }
        let what = keys.what;
        let given = [
            keys.get.map(CheckSource::Get),
            keys.file.map(CheckSource::File),
            keys.commits.map(CheckSource::Commits),
            keys.changes.map(|pattern| CheckSource::Changes { pattern, what }),
            keys.requests.map(CheckSource::Requests),
            keys.answer.map(|_| CheckSource::Answer),
            keys.order.map(CheckSource::Order),
            keys.descends.map(CheckSource::Descends),
            keys.retry_after_obeyed.map(|_| CheckSource::RetryAfterObeyed),
        ];
        let mut given = given.into_iter().flatten();
        let (Some(source), None) = (given.next(), given.next()) else {
            return Err(SelectionError::SourceCount);
        };
        if keys.before && !matches!(source, CheckSource::Get(_) | CheckSource::File(_)) {
            return Err(SelectionError::MisplacedBefore);
        }
        let filter = keys.filter.into_iter().map(|(path, value)| Ok((JsonPath::parse(&path)?, value)));
        Ok(CheckSelection {
            source,
            before: keys.before,
            filter: filter.collect::<Result<_, SelectionError>>()?,
            at: keys.at.as_deref().map(JsonPath::parse).transpose()?,
            read_as: keys.read_as,
            column: keys.column,
        })
    }
}

fn is_unknown(method: &str) -> bool {
    matches!(RequestMethod::from_name(method), RequestMethod::Other)
}

/// `owner/name@ref:path`.
pub(super) fn split_file(name: &str) -> Option<(&str, &str, &str)> {
    let (repository, rest) = name.split_once('@')?;
    let (reference, path) = rest.split_once(':')?;
    (!path.is_empty()).then_some((repository, reference, path))
}
