//! Selections: where a check looks. Sources are a response of the simulator, a file, new commits, changes, requests,
//! and the final message.

use serde::Deserialize;
use serde_json::{Map, Value};

use super::path::{JsonPath, JsonPathError};
use super::text::TextReadMode;
use gradus_github_sim::{DifferenceKind, RequestMethod};

/// Where a value comes from. A file names exactly one source per check.
#[derive(Clone, Debug)]
pub(super) enum CheckSource {
    /// The response to a GET with the token of the task, all pages joined. Null if GitHub refuses, `true` for 204.
    Get(String),
    /// The text of a file, `owner/name@ref:path`; null if it does not exist or is a folder.
    File(String),
    /// Commits of `owner/name@branch` that the run added, newest first, with message, parents and changed files.
    Commits(String),
    /// Differences between the world before and after, by a glob on their path and optionally by kind.
    Changes { pattern: String, what: Option<DifferenceKind> },
    /// Recorded requests that match, as objects with method, path, query, operation, status and body.
    Requests(RequestPattern),
    /// The final message; null if the run ended without one.
    Answer,
    /// Whether successful requests came in this order: all that match one pattern before the first that matches the
    /// next.
    Order(Vec<RequestPattern>),
    /// Whether one commit descends from another.
    Descends(CommitDescent),
    /// Whether no request was sent during the time that a `Retry-After` header asked to wait.
    RetryAfterObeyed,
}

impl CheckSource {
    /// Whether the source is true or false by itself, so that a check needs no expectation.
    pub(super) fn is_statement(&self) -> bool {
        matches!(self, CheckSource::Order(_) | CheckSource::Descends(_) | CheckSource::RetryAfterObeyed)
    }
}

/// A pattern for recorded requests. Keys that are absent match anything.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub(super) struct RequestPattern {
    pub(super) method: Option<String>,
    /// A glob, with `*` for any characters.
    pub(super) path: Option<String>,
    /// A glob on the query string without its question mark.
    pub(super) query: Option<String>,
    /// The operation id of GitHub's OpenAPI description, such as `issues/create`.
    pub(super) operation: Option<String>,
    /// Whether the status was below 400.
    pub(super) ok: Option<bool>,
    /// Whether the method is other than GET and HEAD.
    pub(super) write: Option<bool>,
}

/// Two commits of one repository. A commit is a branch, a tag or a SHA. The prefix `before:` takes the branch or tag as
/// it was before the run, to check that history was not rewritten.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct CommitDescent {
    pub(super) repository: String,
    pub(super) newer: String,
    pub(super) older: String,
}

/// A source with the steps that narrow it down. They apply in the order of the fields: filter, path, reading, column.
#[derive(Clone, Debug)]
pub(super) struct CheckSelection {
    pub(super) source: CheckSource,
    /// Read the world as it was before the run. Only for `get` and `file`.
    pub(super) before: bool,
    /// Of a list, only elements that have all of these values. Other values are not filtered.
    pub(super) filter: Vec<(JsonPath, Value)>,
    pub(super) at: Option<JsonPath>,
    pub(super) read_as: Option<TextReadMode>,
    /// Of the rows of a table: only this cell of each.
    pub(super) column: Option<usize>,
}

/// The selection keys of a [`super::check::RawCheck`], before they are validated.
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

/// Keys of sources for the error message, in the order of the documentation.
const SOURCE_KEYS: &str = "get, file, commits, changes, requests, answer, order, descends, retry_after_obeyed";

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
    #[error("it says where to look with exactly one of {SOURCE_KEYS}")]
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
        // Exactly one: none would select nothing, and two would be ambiguous.
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

/// Splits `owner/name@ref:path`. None if a part is missing. The path may hold further colons.
pub(super) fn split_file(name: &str) -> Option<(&str, &str, &str)> {
    let (repository, rest) = name.split_once('@')?;
    let (reference, path) = rest.split_once(':')?;
    (!path.is_empty()).then_some((repository, reference, path))
}
