//! Where the values in arguments and in the final message come from: which earlier steps told them first.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::Value;

use super::facts::{self, Fact, Facts};
use crate::record::{RunRecord, Step};
use crate::rules::denies_text;

/// Steps by index, from 0.
pub(super) type Kept = BTreeSet<usize>;

/// Something that is said at a place, and who told it before. At least one of those must stay.
#[derive(Clone, Debug)]
pub(super) struct Use {
    /// The step that says it; none: the final message.
    pub(super) at: Option<usize>,
    pub(super) fact: Fact,
    pub(super) sources: Kept,
}

#[derive(Debug)]
pub(super) struct Trace {
    pub(super) uses: Vec<Use>,
    /// Pages of one list: all of them or none, since what is said of a list is said of all its pages. Each page with the
    /// steps that read it.
    pages: Vec<Vec<Kept>>,
    /// For each step, an earlier one that told exactly the same.
    pub(super) same_as: Vec<Option<usize>>,
    /// Whether the final message says anything that some step told.
    pub(super) answer_is_traced: bool,
}

impl Trace {
    pub(super) fn new(record: &RunRecord) -> Trace {
        let steps = &record.steps;
        let pages = pages(steps);
        let mut told: Vec<Facts> =
            steps.iter().map(|step| facts::of_observation(&step.observation)).collect();
        for (index, step) in steps.iter().enumerate() {
            told[index].extend(of_requests(record, step));
            if step.is_error {
                told[index].insert(Fact::Refusal);
            }
        }
        for list in &pages {
            let all: Vec<Value> =
                list.iter().filter_map(|page| items(&steps[*page.first()?])).flatten().collect();
            let mut counts = Facts::new();
            facts::count(&all, &mut counts);
            list.iter().flatten().for_each(|index| told[*index].extend(counts.iter().cloned()));
        }
        // What the user said or the agent said itself before needs nobody to tell it.
        let mut known = Facts::new();
        facts::of_text(&without_enumeration(&record.request), &mut known);
        let numbers: Vec<Fact> = known
            .iter()
            .filter_map(|fact| match fact {
                Fact::Figure(figure) => Some(Fact::Number(*figure)),
                Fact::Number(number) => Some(Fact::Figure(*number)),
                _ => None,
            })
            .collect();
        known.extend(numbers);
        let said: Vec<Facts> = steps.iter().map(|step| facts::of_arguments(&step.arguments)).collect();
        let mut trace = Trace { uses: Vec::new(), pages, same_as: same_as(steps), answer_is_traced: false };
        for (index, facts) in said.iter().enumerate() {
            trace.add(Some(index), facts, &told[..index], &said, &known, record);
            let texts = strings(&steps[index].arguments).join("\n");
            trace.add_quotations(Some(index), &texts, record, &told[..index], &said);
            trace.add_looks(index, record, &told);
        }
        let answer = record.answer.as_deref().unwrap_or_default();
        let mut facts = Facts::new();
        facts::of_text(answer, &mut facts);
        if denies_text(answer) {
            facts.insert(Fact::Refusal);
        }
        let strong: Facts = facts.iter().filter(|fact| !matches!(fact, Fact::Word(_))).cloned().collect();
        trace.add(None, &strong, &told, &said, &known, record);
        trace.add_quotations(None, answer, record, &told, &said);
        let is_traced = |trace: &Trace| trace.uses.iter().any(|one| one.at.is_none());
        if !is_traced(&trace) {
            // Plain words are better than nothing.
            trace.add(None, &facts, &told, &said, &known, record);
        }
        trace.answer_is_traced = is_traced(&trace);
        trace
    }

    fn add(
        &mut self,
        at: Option<usize>,
        used: &Facts,
        told: &[Facts],
        said: &[Facts],
        known: &Facts,
        record: &RunRecord,
    ) {
        for fact in used.iter().filter(|fact| !known.contains(*fact) && !is_in(&record.request, fact)) {
            // Anyone may use a plain word, but for one that is a name somewhere.
            if matches!(fact, Fact::Word(_)) && at.is_some() && !told.iter().any(|told| is_value(told, fact))
            {
                continue;
            }
            let mut sources = Kept::new();
            let mut is_said = false;
            for (index, told) in told.iter().enumerate() {
                // Who says something before it is told has it from elsewhere.
                is_said |= said[index].contains(fact);
                if !is_said && tells(told, fact) {
                    sources.insert(index);
                }
            }
            if !sources.is_empty() {
                self.uses.push(Use { at, fact: fact.clone(), sources });
            }
        }
    }

    /// A merge rests on a look at what is merged, if there was one.
    fn add_looks(&mut self, index: usize, record: &RunRecord, told: &[Facts]) {
        let step = &record.steps[index];
        for exchange in
            exchanges(record, step).iter().filter(|one| one.operation.as_deref() == Some("pulls/merge"))
        {
            let Some(pull) = pull_of(&exchange.path) else { continue };
            let fact = Fact::Changes(pull);
            let sources: Kept = (0..index).filter(|one| told[*one].contains(&fact)).collect();
            if !sources.is_empty() {
                self.uses.push(Use { at: Some(index), fact, sources });
            }
        }
    }

    /// Whole values that are repeated inside a text: titles, names, descriptions.
    fn add_quotations(
        &mut self,
        at: Option<usize>,
        text: &str,
        record: &RunRecord,
        told: &[Facts],
        said: &[Facts],
    ) {
        const SHORTEST: usize = 8;
        let (lower, request) = (text.to_lowercase(), record.request.to_lowercase());
        let mut seen = BTreeSet::new();
        for value in told.iter().flatten() {
            let Fact::Value(quoted) = value else { continue };
            let quoted = quoted.to_lowercase();
            let fits = quoted.chars().count() >= SHORTEST
                && stands_in(&lower, &quoted)
                && !request.contains(&quoted);
            if !fits || !seen.insert(quoted) {
                continue;
            }
            let first_said = said.iter().position(|said| said.contains(value)).unwrap_or(said.len());
            let sources: Kept =
                (0..told.len().min(first_said)).filter(|index| tells(&told[*index], value)).collect();
            if !sources.is_empty() {
                self.uses.push(Use { at, fact: value.clone(), sources });
            }
        }
    }

    /// Whether everything that is still said was told before by someone who is still there.
    pub(super) fn is_supported(&self, kept: &Kept) -> bool {
        self.unsupported(kept).is_none()
            && self.pages.iter().all(|list| {
                let read = list.iter().filter(|page| page.iter().any(|step| kept.contains(step))).count();
                read == 0 || read == list.len()
            })
    }

    /// A use whose sources are all gone.
    pub(super) fn unsupported(&self, kept: &Kept) -> Option<&Use> {
        let is_there = |one: &&Use| one.at.is_none_or(|at| kept.contains(&at));
        self.uses.iter().filter(is_there).find(|one| one.sources.is_disjoint(kept))
    }

    /// What rests on a step and on no other that is kept.
    pub(super) fn rests_on(&self, step: usize, kept: &Kept) -> Option<&Use> {
        let only = |one: &&Use| {
            one.at.is_none_or(|at| kept.contains(&at))
                && one.sources.contains(&step)
                && one.sources.intersection(kept).count() == 1
        };
        self.uses.iter().find(only)
    }

    /// Whether it is a page of a list of which others are kept.
    pub(super) fn is_page(&self, step: usize, kept: &Kept) -> bool {
        self.pages.iter().any(|list| {
            list.iter().any(|page| page.contains(&step))
                && list.iter().flatten().any(|other| *other != step && kept.contains(other))
        })
    }
}

fn tells(told: &Facts, fact: &Fact) -> bool {
    match fact {
        // A word that is somewhere's whole value is told there, and the other way round.
        Fact::Name(text) => told.contains(fact) || told.contains(&Fact::Value(text.clone())),
        Fact::Value(text) => {
            told.contains(fact)
                || told.contains(&Fact::Name(text.clone()))
                || told.contains(&Fact::Word(text.to_lowercase()))
        }
        Fact::Word(_) => told.contains(fact) || is_value(told, fact),
        Fact::Number(_) | Fact::Figure(_) | Fact::Line(_) | Fact::Refusal | Fact::Changes(_) => {
            told.contains(fact)
        }
    }
}

/// Whether a plain word is a whole value there.
fn is_value(told: &Facts, fact: &Fact) -> bool {
    let Fact::Word(word) = fact else { return false };
    told.iter().any(|one| matches!(one, Fact::Value(text) if text.eq_ignore_ascii_case(word)))
}

/// As whole words: an address is not told by the beginning of it.
fn stands_in(text: &str, part: &str) -> bool {
    let goes_on = |c: char| c.is_alphanumeric() || matches!(c, '/' | '_' | '-');
    text.match_indices(part).any(|(at, _)| {
        let before = text[..at].chars().next_back();
        let after = text[at + part.len()..].chars().next();
        !before.is_some_and(goes_on) && !after.is_some_and(goes_on)
    })
}

/// The numbers in front of a list's lines number nothing else.
fn without_enumeration(text: &str) -> String {
    let line = |line: &str| {
        let rest = line.trim_start().trim_start_matches(|c: char| c.is_ascii_digit());
        let is_item = rest.len() < line.trim_start().len() && rest.starts_with(['.', ')']);
        if is_item { rest[1..].to_owned() } else { line.to_owned() }
    };
    text.lines().map(line).collect::<Vec<_>>().join("\n")
}

fn strings(value: &Value) -> Vec<&str> {
    match value {
        Value::String(text) => vec![text],
        Value::Array(items) => items.iter().flat_map(strings).collect(),
        Value::Object(fields) => fields.values().flat_map(strings).collect(),
        _ => Vec::new(),
    }
}

fn is_in(request: &str, fact: &Fact) -> bool {
    match fact {
        Fact::Value(text) | Fact::Name(text) | Fact::Line(text) | Fact::Word(text) => {
            request.to_lowercase().contains(&text.to_lowercase())
        }
        _ => false,
    }
}

fn exchanges<'r>(record: &'r RunRecord, step: &Step) -> &'r [crate::simulator::Exchange] {
    record.exchanges.get(step.exchanges.clone()).unwrap_or_default()
}

/// What requests tell that observations may not.
fn of_requests(record: &RunRecord, step: &Step) -> Facts {
    let looks =
        exchanges(record, step).iter().filter(|one| one.operation.as_deref() == Some("pulls/list-files"));
    looks.filter_map(|one| pull_of(&one.path)).map(Fact::Changes).collect()
}

/// `octo/demo#5` of `/repos/octo/demo/pulls/5/merge`.
fn pull_of(path: &str) -> Option<String> {
    let parts: Vec<&str> = path.trim_matches('/').split('/').collect();
    match parts[..] {
        ["repos", owner, name, "pulls", number, ..] => {
            Some(format!("{owner}/{name}#{number}").to_lowercase())
        }
        _ => None,
    }
}

fn items(step: &Step) -> Option<Vec<Value>> {
    let value: Value = serde_json::from_str(&step.observation).ok()?;
    value.get("items").unwrap_or(&value).as_array().cloned()
}

/// Lists of which more than one page was read.
fn pages(steps: &[Step]) -> Vec<Vec<Kept>> {
    let mut lists: Vec<(String, Vec<(String, Kept)>)> = Vec::new();
    for (index, step) in steps.iter().enumerate().filter(|(_, step)| !step.is_error && items(step).is_some())
    {
        let Some(arguments) = step.arguments.as_object() else { continue };
        let mut arguments: BTreeMap<&str, &Value> =
            arguments.iter().map(|(name, value)| (name.as_str(), value)).collect();
        let page = arguments.remove("page").map_or_else(|| "1".to_owned(), Value::to_string);
        let list = format!("{} {arguments:?}", step.tool);
        let at = lists.iter().position(|(one, _)| *one == list).unwrap_or_else(|| {
            lists.push((list, Vec::new()));
            lists.len() - 1
        });
        let read = &mut lists[at].1;
        match read.iter_mut().find(|(one, _)| *one == page) {
            Some((_, steps)) => drop(steps.insert(index)),
            None => read.push((page, Kept::from([index]))),
        }
    }
    let several = lists.into_iter().filter(|(_, pages)| pages.len() > 1);
    several.map(|(_, pages)| pages.into_iter().map(|(_, steps)| steps).collect()).collect()
}

fn same_as(steps: &[Step]) -> Vec<Option<usize>> {
    let is_same = |one: &Step, other: &Step| {
        one.tool == other.tool && one.arguments == other.arguments && one.observation == other.observation
    };
    steps
        .iter()
        .enumerate()
        .map(|(index, step)| steps[..index].iter().position(|one| is_same(one, step)))
        .collect()
}
