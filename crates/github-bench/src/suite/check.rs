//! Checks and lookups as task files have them. All keys are optional in the file; the conversion from [`RawCheck`]
//! refuses combinations that have no meaning, so that a task that loads can be evaluated.

use serde::Deserialize;
use serde_json::{Map, Value};

use super::expectation::CheckExpectation;
use super::source::{CheckSelection, CommitDescent, RequestPattern, SelectionError, SelectionKeys};
use super::text::TextReadMode;
use gradus_github_sim::DifferenceKind;

/// One `[[checks]]` table: a name for reports, and a condition.
#[derive(Clone, Debug, Deserialize)]
#[serde(try_from = "RawCheck")]
pub(super) struct TaskCheck {
    pub(super) name: String,
    /// For partial credit: which of a task's facts it belongs to.
    pub(super) fact: Option<String>,
    /// What must be true.
    pub(super) demand: CheckCondition,
}

/// Checks nest: a group holds checks that have names of their own, so that failures say which part failed.
#[derive(Clone, Debug)]
pub(super) enum CheckCondition {
    /// The selected value meets all expectations. Without expectations the selection is a statement and must be true.
    Holds(CheckSelection, Vec<CheckExpectation>),
    /// At least one of two or more holds: tasks that have several right ends.
    AnyOf(Vec<TaskCheck>),
    /// All hold: a group inside of an `any_of`.
    AllOf(Vec<TaskCheck>),
}

/// A named value that checks refer to as `{{name}}`, such as the number of an issue that the run opened. Its number
/// cannot be known when the task is written.
#[derive(Clone, Debug, Deserialize)]
#[serde(try_from = "RawCheck")]
pub(super) struct CheckLookup {
    pub(super) name: String,
    pub(super) selection: CheckSelection,
}

/// All keys that checks, lookups and `same_as` can have. It is one struct because `deny_unknown_fields` does not work
/// together with `flatten`: a misspelt key can be refused only where all known keys are listed.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub(super) struct RawCheck {
    name: Option<String>,
    fact: Option<String>,
    any_of: Option<Vec<TaskCheck>>,
    all_of: Option<Vec<TaskCheck>>,
    // Where to look.
    get: Option<String>,
    file: Option<String>,
    commits: Option<String>,
    changes: Option<String>,
    what: Option<DifferenceKind>,
    requests: Option<RequestPattern>,
    answer: Option<bool>,
    order: Option<Vec<RequestPattern>>,
    descends: Option<CommitDescent>,
    retry_after_obeyed: Option<bool>,
    before: bool,
    #[serde(rename = "where")]
    filter: Map<String, Value>,
    at: Option<String>,
    read_as: Option<TextReadMode>,
    column: Option<usize>,
    // What the value must be.
    equals: Option<Value>,
    one_of: Option<Vec<Value>>,
    same_as: Option<Box<RawCheck>>,
    exists: Option<bool>,
    count: Option<usize>,
    at_least: Option<usize>,
    at_most: Option<usize>,
    set: Option<Vec<Value>>,
    contains: Option<Vec<Value>>,
    lacks: Option<Vec<Value>>,
    mentions: Option<Vec<String>>,
    mentions_any: Option<Vec<String>>,
    mentions_none: Option<Vec<String>>,
    tells: Option<u64>,
    tells_none: Option<Vec<u64>>,
    question: Option<bool>,
    not_empty: Option<bool>,
}

/// Why a `[[checks]]` or `[[lookups]]` table of a task file is refused. The TOML reader adds the line to the message.
#[derive(Debug, thiserror::Error)]
pub(super) enum CheckSyntaxError {
    #[error("a check has a `name` that says what must be true")]
    UnnamedCheck,
    #[error("a lookup has a `name` of letters, digits and _")]
    UnnamedLookup,
    #[error("check {name:?}: {source}")]
    Check { name: String, source: CheckKeyError },
    #[error("lookup {name:?}: {source}")]
    Lookup { name: String, source: CheckKeyError },
}

/// What is wrong with the keys of a check or a lookup whose name is known.
#[derive(Debug, thiserror::Error)]
pub(super) enum CheckKeyError {
    #[error("same_as only says where to look")]
    ExpectationInSameAs,
    #[error("it says where to look, and not what must be there: add `equals`, `contains`, `count`, ...")]
    NoExpectation,
    #[error("it has `any_of` (two at least) or `all_of`, not both")]
    MalformedGroup,
    #[error("it says where to look, and demands nothing; that is for checks")]
    ExpectationInLookup,
    #[error(transparent)]
    Selection(#[from] SelectionError),
}

impl RawCheck {
    /// Splits the keys into where to look and what must be there. `same_as` takes selection keys only; it is recursive
    /// in type but not in meaning, because expectations inside of it are refused.
    fn into_parts(self) -> Result<(SelectionKeys, Vec<CheckExpectation>), CheckKeyError> {
        let same_as = match self.same_as {
            None => None,
            Some(written) => {
                let (keys, expectations) = written.into_parts()?;
                if !expectations.is_empty() {
                    return Err(CheckKeyError::ExpectationInSameAs);
                }
                Some(CheckExpectation::SameAs(Box::new(CheckSelection::try_from(keys)?)))
            }
        };
        let expectations = [
            self.equals.map(CheckExpectation::Equals),
            self.one_of.map(CheckExpectation::OneOf),
            same_as,
            self.exists.map(CheckExpectation::Exists),
            self.count.map(CheckExpectation::Count),
            self.at_least.map(CheckExpectation::AtLeast),
            self.at_most.map(CheckExpectation::AtMost),
            self.set.map(CheckExpectation::Set),
            self.contains.map(CheckExpectation::Contains),
            self.lacks.map(CheckExpectation::Lacks),
            self.mentions.map(CheckExpectation::Mentions),
            self.mentions_any.map(CheckExpectation::MentionsAny),
            self.mentions_none.map(CheckExpectation::MentionsNone),
            self.tells.map(CheckExpectation::Tells),
            self.tells_none.map(CheckExpectation::TellsNone),
            self.question.map(CheckExpectation::Question),
            self.not_empty.map(CheckExpectation::NotEmpty),
        ];
        let keys = SelectionKeys {
            get: self.get,
            file: self.file,
            commits: self.commits,
            changes: self.changes,
            what: self.what,
            requests: self.requests,
            answer: self.answer,
            order: self.order,
            descends: self.descends,
            retry_after_obeyed: self.retry_after_obeyed,
            before: self.before,
            filter: self.filter,
            at: self.at,
            read_as: self.read_as,
            column: self.column,
        };
        Ok((keys, expectations.into_iter().flatten().collect()))
    }
}

impl TryFrom<RawCheck> for TaskCheck {
    type Error = CheckSyntaxError;

    fn try_from(mut written: RawCheck) -> Result<TaskCheck, CheckSyntaxError> {
        let name = written.name.take().filter(|name| !name.trim().is_empty());
        let name = name.ok_or(CheckSyntaxError::UnnamedCheck)?;
        let fact = written.fact.take();
        let groups = (written.any_of.take(), written.all_of.take());
        let in_check = |source: CheckKeyError| CheckSyntaxError::Check { name: name.clone(), source };
        let demand = match groups {
            (None, None) => {
                let (keys, expectations) = written.into_parts().map_err(in_check)?;
                let selection = CheckSelection::try_from(keys).map_err(|error| in_check(error.into()))?;
                if expectations.is_empty() && !selection.source.is_statement() {
                    return Err(in_check(CheckKeyError::NoExpectation));
                }
                CheckCondition::Holds(selection, expectations)
            }
            (Some(checks), None) if checks.len() > 1 => CheckCondition::AnyOf(checks),
            (None, Some(checks)) if !checks.is_empty() => CheckCondition::AllOf(checks),
            _ => return Err(in_check(CheckKeyError::MalformedGroup)),
        };
        Ok(TaskCheck { name, fact, demand })
    }
}

impl TryFrom<RawCheck> for CheckLookup {
    type Error = CheckSyntaxError;

    fn try_from(mut written: RawCheck) -> Result<CheckLookup, CheckSyntaxError> {
        let fits = |name: &String| !name.is_empty() && name.chars().all(|c| c.is_ascii_alphanumeric() || c == '_');
        let name = written.name.take().filter(fits);
        let name = name.ok_or(CheckSyntaxError::UnnamedLookup)?;
        let in_lookup = |source: CheckKeyError| CheckSyntaxError::Lookup { name: name.clone(), source };
        let (keys, expectations) = written.into_parts().map_err(in_lookup)?;
        if !expectations.is_empty() {
            return Err(in_lookup(CheckKeyError::ExpectationInLookup));
        }
        let selection = CheckSelection::try_from(keys).map_err(|error| in_lookup(error.into()))?;
        Ok(CheckLookup { name, selection })
    }
}
