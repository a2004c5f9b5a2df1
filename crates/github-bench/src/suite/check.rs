//! What must be true after a run, as task files say it.

use serde::Deserialize;
use serde_json::{Map, Value};

use super::expectation::CheckExpectation;
use super::source::{CheckSelection, CommitDescent, RequestPattern, SelectionKeys};
use super::text::TextReadMode;
use gradus_github_sim::DifferenceKind;

#[derive(Clone, Debug, Deserialize)]
#[serde(try_from = "RawCheck")]
pub(super) struct TaskCheck {
    pub(super) name: String,
    /// For partial credit: which of a task's facts it belongs to.
    pub(super) fact: Option<String>,
    pub(super) demand: CheckCondition,
}

#[derive(Clone, Debug)]
pub(super) enum CheckCondition {
    Holds(CheckSelection, Vec<CheckExpectation>),
    AnyOf(Vec<TaskCheck>),
    AllOf(Vec<TaskCheck>),
}

/// A value that other checks name, `{{name}}`: the number of an issue that the run opened.
#[derive(Clone, Debug, Deserialize)]
#[serde(try_from = "RawCheck")]
pub(super) struct CheckLookup {
    pub(super) name: String,
    pub(super) selection: CheckSelection,
}

/// All keys there are. One list for checks, lookups and what checks compare with, since unknown keys can be refused only
/// where all known ones are in one place.
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
    // What must be there.
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

impl RawCheck {
    fn into_parts(self) -> Result<(SelectionKeys, Vec<CheckExpectation>), String> {
        let same_as = match self.same_as {
            None => None,
            Some(written) => {
                let (keys, expectations) = written.into_parts()?;
                if !expectations.is_empty() {
                    return Err("same_as only says where to look".to_owned());
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
    type Error = String;

    fn try_from(mut written: RawCheck) -> Result<TaskCheck, String> {
        let name = written.name.take().filter(|name| !name.trim().is_empty());
        let name = name.ok_or("a check has a `name` that says what must be true")?;
        let fact = written.fact.take();
        let groups = (written.any_of.take(), written.all_of.take());
        let of_check = |reason: String| format!("check {name:?}: {reason}");
        let demand = match groups {
            (None, None) => {
                let (keys, expectations) = written.into_parts().map_err(of_check)?;
                let selection = CheckSelection::try_from(keys).map_err(of_check)?;
                if expectations.is_empty() && !selection.source.is_statement() {
                    return Err(of_check(
                        "it says where to look, and not what must be there: add `equals`, `contains`, `count`, ..."
                            .to_owned(),
                    ));
                }
                CheckCondition::Holds(selection, expectations)
            }
            (Some(checks), None) if checks.len() > 1 => CheckCondition::AnyOf(checks),
            (None, Some(checks)) if !checks.is_empty() => CheckCondition::AllOf(checks),
            _ => return Err(of_check("it has `any_of` (two at least) or `all_of`, not both".to_owned())),
        };
        Ok(TaskCheck { name, fact, demand })
    }
}

impl TryFrom<RawCheck> for CheckLookup {
    type Error = String;

    fn try_from(mut written: RawCheck) -> Result<CheckLookup, String> {
        let fits = |name: &String| !name.is_empty() && name.chars().all(|c| c.is_ascii_alphanumeric() || c == '_');
        let name = written.name.take().filter(fits);
        let name = name.ok_or("a lookup has a `name` of letters, digits and _")?;
        let (keys, expectations) = written.into_parts().map_err(|reason| format!("lookup {name:?}: {reason}"))?;
        if !expectations.is_empty() {
            return Err(format!("lookup {name:?}: it says where to look, and demands nothing; that is for checks"));
        }
        let selection = CheckSelection::try_from(keys).map_err(|reason| format!("lookup {name:?}: {reason}"))?;
        Ok(CheckLookup { name, selection })
    }
}
