//! What must be true after a run, as task files say it.

use serde::Deserialize;
use serde_json::{Map, Value};

use super::expectation::Expectation;
use super::source::{Descent, Keys, RequestPattern, Selection};
use super::text::ReadAs;
use gradus_github_sim::What;

#[derive(Clone, Debug, Deserialize)]
#[serde(try_from = "Written")]
pub(super) struct Check {
    pub(super) name: String,
    /// For partial credit: which of a task's facts it belongs to.
    pub(super) fact: Option<String>,
    pub(super) demand: Demand,
}

#[derive(Clone, Debug)]
pub(super) enum Demand {
    Holds(Selection, Vec<Expectation>),
    AnyOf(Vec<Check>),
    AllOf(Vec<Check>),
}

/// A value that other checks name, `{{name}}`: the number of an issue that the run opened.
#[derive(Clone, Debug, Deserialize)]
#[serde(try_from = "Written")]
pub(super) struct Lookup {
    pub(super) name: String,
    pub(super) selection: Selection,
}

/// All keys there are. One list for checks, lookups and what checks compare with, since unknown keys can be refused only
/// where all known ones are in one place.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub(super) struct Written {
    name: Option<String>,
    fact: Option<String>,
    any_of: Option<Vec<Check>>,
    all_of: Option<Vec<Check>>,
    // Where to look.
    get: Option<String>,
    file: Option<String>,
    commits: Option<String>,
    changes: Option<String>,
    what: Option<What>,
    requests: Option<RequestPattern>,
    answer: Option<bool>,
    order: Option<Vec<RequestPattern>>,
    descends: Option<Descent>,
    retry_after_obeyed: Option<bool>,
    before: bool,
    #[serde(rename = "where")]
    filter: Map<String, Value>,
    at: Option<String>,
    read_as: Option<ReadAs>,
    column: Option<usize>,
    // What must be there.
    equals: Option<Value>,
    one_of: Option<Vec<Value>>,
    same_as: Option<Box<Written>>,
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

impl Written {
    fn split(self) -> Result<(Keys, Vec<Expectation>), String> {
        let same_as = match self.same_as {
            None => None,
            Some(written) => {
                let (keys, expectations) = written.split()?;
                if !expectations.is_empty() {
                    return Err("same_as only says where to look".to_owned());
                }
                Some(Expectation::SameAs(Box::new(Selection::try_from(keys)?)))
            }
        };
        let expectations = [
            self.equals.map(Expectation::Equals),
            self.one_of.map(Expectation::OneOf),
            same_as,
            self.exists.map(Expectation::Exists),
            self.count.map(Expectation::Count),
            self.at_least.map(Expectation::AtLeast),
            self.at_most.map(Expectation::AtMost),
            self.set.map(Expectation::Set),
            self.contains.map(Expectation::Contains),
            self.lacks.map(Expectation::Lacks),
            self.mentions.map(Expectation::Mentions),
            self.mentions_any.map(Expectation::MentionsAny),
            self.mentions_none.map(Expectation::MentionsNone),
            self.tells.map(Expectation::Tells),
            self.tells_none.map(Expectation::TellsNone),
            self.question.map(Expectation::Question),
            self.not_empty.map(Expectation::NotEmpty),
        ];
        let keys = Keys {
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

impl TryFrom<Written> for Check {
    type Error = String;

    fn try_from(mut written: Written) -> Result<Check, String> {
        let name = written.name.take().filter(|name| !name.trim().is_empty());
        let name = name.ok_or("a check has a `name` that says what must be true")?;
        let fact = written.fact.take();
        let groups = (written.any_of.take(), written.all_of.take());
        let of_check = |reason: String| format!("check {name:?}: {reason}");
        let demand = match groups {
            (None, None) => {
                let (keys, expectations) = written.split().map_err(of_check)?;
                let selection = Selection::try_from(keys).map_err(of_check)?;
                if expectations.is_empty() && !selection.source.is_statement() {
                    return Err(of_check("it says where to look, and not what must be there: add `equals`, `contains`, `count`, ...".to_owned()));
                }
                Demand::Holds(selection, expectations)
            }
            (Some(checks), None) if checks.len() > 1 => Demand::AnyOf(checks),
            (None, Some(checks)) if !checks.is_empty() => Demand::AllOf(checks),
            _ => return Err(of_check("it has `any_of` (two at least) or `all_of`, not both".to_owned())),
        };
        Ok(Check { name, fact, demand })
    }
}

impl TryFrom<Written> for Lookup {
    type Error = String;

    fn try_from(mut written: Written) -> Result<Lookup, String> {
        let fits =
            |name: &String| !name.is_empty() && name.chars().all(|c| c.is_ascii_alphanumeric() || c == '_');
        let name = written.name.take().filter(fits);
        let name = name.ok_or("a lookup has a `name` of letters, digits and _")?;
        let (keys, expectations) = written.split().map_err(|reason| format!("lookup {name:?}: {reason}"))?;
        if !expectations.is_empty() {
            return Err(format!(
                "lookup {name:?}: it says where to look, and demands nothing; that is for checks"
            ));
        }
        let selection = Selection::try_from(keys).map_err(|reason| format!("lookup {name:?}: {reason}"))?;
        Ok(Lookup { name, selection })
    }
}
