//! An index of facts by the steps that stated them, so that a use finds its sources without another pass over the run.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::Value;

use super::pages::{find_paged_lists, parse_list_items};
use super::traced_facts::{self, TracedFact, TracedFactSet};
use crate::occurrences::NeedleSet;
use crate::record::TrialRecord;
use crate::replay::step_selection::{FactUseIndex, StepSet};
use crate::rules::{denying_sentences, to_singular};
use gradus_github_agent::agent::RunStep;
use gradus_github_sim::RecordedExchange;

/// Built once per replay from the record.
pub(super) struct FactSources<'r> {
    record: &'r TrialRecord,
    /// The request in lower case.
    request: String,
    /// Facts of the request. They need no source.
    known: TracedFactSet,
    /// Facts in the arguments of each step.
    pub(super) argument_facts: Vec<TracedFactSet>,
    /// The first step whose arguments contain a fact. Observations after it are no source: the agent had it from
    /// elsewhere.
    first_argument_use: BTreeMap<TracedFact, usize>,
    /// Steps whose observation states a fact, in order.
    stated_by: BTreeMap<TracedFact, Vec<usize>>,
    /// Whole values of observations, to find them inside longer texts.
    values: NeedleSet,
    /// Words of request and final message in the singular. They decide which of several fields with the same figure
    /// matters.
    mentioned_words: Vec<String>,
    /// See [`find_paged_lists`].
    pub(super) pages: Vec<Vec<StepSet>>,
}

impl<'r> FactSources<'r> {
    pub(super) fn new(record: &'r TrialRecord) -> FactSources<'r> {
        let steps = &record.steps;
        let pages = find_paged_lists(record);
        let mut told: Vec<TracedFactSet> =
            steps.iter().map(|step| traced_facts::collect_observation_facts(&step.observation)).collect();
        for (index, step) in steps.iter().enumerate() {
            told[index].extend(collect_exchange_facts(record, step));
        }
        // Counts over a whole list are stated by all of its pages together.
        for list in &pages {
            let all: Vec<Value> =
                list.iter().filter_map(|page| parse_list_items(&steps[*page.first()?])).flatten().collect();
            let mut counts = TracedFactSet::new();
            traced_facts::add_item_counts(&all, &mut counts);
            list.iter().flatten().for_each(|index| told[*index].extend(counts.iter().cloned()));
        }
        let argument_facts: Vec<TracedFactSet> =
            steps.iter().map(|step| traced_facts::collect_argument_facts(&step.arguments)).collect();
        let mut first_argument_use = BTreeMap::new();
        for (index, facts) in argument_facts.iter().enumerate() {
            for fact in facts {
                first_argument_use.entry(fact.clone()).or_insert(index);
            }
        }
        let request = record.request.to_lowercase();
        let whole = told.iter().flatten().filter_map(|fact| match fact {
            TracedFact::Whole(text) if !request.contains(text.as_str()) => Some(text.as_str()),
            _ => None,
        });
        // A truncated value would be another value, which no observation states.
        let values = NeedleSet::from_whole_texts(whole, traced_facts::MAX_FACT_VALUE_BYTES);
        let mut stated_by: BTreeMap<TracedFact, Vec<usize>> = BTreeMap::new();
        for (index, facts) in told.into_iter().enumerate() {
            facts.into_iter().for_each(|fact| stated_by.entry(fact).or_default().push(index));
        }
        let texts = [record.request.as_str(), record.answer.as_deref().unwrap_or_default()];
        let words = texts.iter().flat_map(|text| text.split(|c: char| !c.is_alphanumeric()));
        let mentioned_words =
            words.filter(|word| word.len() > 3).map(|word| to_singular(&word.to_lowercase())).collect();
        let known = collect_request_facts(&record.request);
        FactSources {
            record,
            request,
            known,
            argument_facts,
            first_argument_use,
            stated_by,
            values,
            mentioned_words,
            pages,
        }
    }

    /// Adds the uses of facts by a step or by the final message (none).
    pub(super) fn add_uses<'f>(
        &self,
        at: Option<usize>,
        used: impl Iterator<Item = &'f TracedFact>,
        uses: &mut FactUseIndex,
    ) {
        for fact in used.filter(|fact| !self.known.contains(*fact) && !self.is_requested(fact)) {
            // An ordinary word needs no source, unless it is the whole value of a field.
            let is_plain = match fact {
                TracedFact::Word(word) if at.is_some() => {
                    self.find_exact_sources(&TracedFact::Whole(word.clone()), at).next().is_none()
                }
                TracedFact::Whole(_) => true,
                _ => false,
            };
            if !is_plain {
                self.record_use(at, fact, self.find_sources(fact, at), uses);
            }
        }
    }

    /// Keeps the strongest fact per user and sources. A fact without a source puts no constraint and is dropped.
    fn record_use(&self, at: Option<usize>, fact: &TracedFact, sources: StepSet, uses: &mut FactUseIndex) {
        if sources.is_empty() {
            return;
        }
        let best = uses.entry((at, sources)).or_insert_with(|| fact.clone());
        if best.evidence_weight() < fact.evidence_weight() {
            *best = fact.clone();
        }
    }

    /// Returns the steps before `at` whose observation states exactly this fact.
    fn find_exact_sources(&self, fact: &TracedFact, at: Option<usize>) -> impl Iterator<Item = usize> {
        let end = at.unwrap_or(usize::MAX);
        self.stated_by.get(fact).into_iter().flatten().copied().take_while(move |index| *index < end)
    }

    /// Returns the sources of a fact, including related forms: a name can be the whole value of a field, a figure can
    /// be a count.
    fn find_sources(&self, fact: &TracedFact, at: Option<usize>) -> StepSet {
        let first_argument_use = self.first_argument_use.get(fact).copied().unwrap_or(usize::MAX);
        let by = |facts: &[TracedFact]| -> StepSet {
            let all = facts.iter().flat_map(|fact| self.find_exact_sources(fact, at));
            all.filter(|index| *index < first_argument_use).collect()
        };
        match fact {
            // A field whose whole value is a word states that word, and the other way round.
            TracedFact::Name(text) => by(&[fact.clone(), TracedFact::Value(text.clone())]),
            TracedFact::Value(text) => {
                by(&[fact.clone(), TracedFact::Name(text.clone()), TracedFact::Word(text.to_lowercase())])
            }
            TracedFact::Word(text) => by(&[fact.clone(), TracedFact::Whole(text.clone())]),
            TracedFact::Figure(figure) => {
                let named = self.fields_with_figure(*figure);
                let (spoken, silent): (Vec<TracedFact>, Vec<TracedFact>) =
                    named.into_iter().partition(|fact| self.is_field_mentioned(fact));
                let counted = by(&[&[fact.clone(), TracedFact::Count(*figure)], &spoken[..]].concat());
                // Fields that neither request nor message mention come last.
                if counted.is_empty() { by(&silent) } else { counted }
            }
            _ => by(std::slice::from_ref(fact)),
        }
    }

    /// Returns all named fields with this figure, by a range query on the ordered index.
    fn fields_with_figure(&self, figure: u64) -> Vec<TracedFact> {
        let begin = TracedFact::Field(figure, String::new());
        let all = self.stated_by.range(begin..).map(|(fact, _)| fact);
        all.take_while(|fact| matches!(fact, TracedFact::Field(one, _) if *one == figure)).cloned().collect()
    }

    /// Whether request or final message mention the name of the field, apart from words that many fields share.
    fn is_field_mentioned(&self, fact: &TracedFact) -> bool {
        const PLAIN: [&str; 5] = ["count", "total", "open", "number", "size"];
        let TracedFact::Field(_, name) = fact else { return false };
        let mut parts = name.split('_').filter(|part| part.len() > 3 && !PLAIN.contains(part)).map(to_singular);
        parts.any(|part| self.mentioned_words.iter().any(|word| part.starts_with(word) || word.starts_with(&part)))
    }

    /// Whether the request contains the text of a fact, so that no source is needed.
    fn is_requested(&self, fact: &TracedFact) -> bool {
        match fact {
            TracedFact::Value(text) | TracedFact::Name(text) | TracedFact::Line(text) | TracedFact::Word(text) => {
                self.request.contains(&text.to_lowercase())
            }
            _ => false,
        }
    }

    /// Makes a merge depend on reading the changes of the pull request, if a step did.
    pub(super) fn add_review_uses(&self, index: usize, uses: &mut FactUseIndex) {
        let merges = get_step_exchanges(self.record, &self.record.steps[index]).iter();
        for exchange in merges.filter(|one| one.operation.as_deref() == Some("pulls/merge")) {
            if let Some(pull) = parse_pull_path(&exchange.path) {
                let fact = TracedFact::Changes(pull);
                self.record_use(Some(index), &fact, self.find_exact_sources(&fact, Some(index)).collect(), uses);
            }
        }
    }

    /// Adds whole values of observations that occur inside a text: titles, names, descriptions.
    pub(super) fn add_quotations(&self, at: Option<usize>, text: &str, uses: &mut FactUseIndex) {
        let lower = text.to_lowercase();
        let mut quoted: BTreeMap<usize, usize> = BTreeMap::new();
        self.values.visit_matches(lower.as_bytes(), &mut |begin, one| {
            if is_whole_word_at(&lower, begin, self.values.get(one)) {
                quoted.insert(one, begin);
            }
            true
        });
        for (one, begin) in quoted {
            let value = self.values.get(one);
            let fact = TracedFact::Whole(value.to_owned());
            let as_written = text.get(begin..begin + value.len()).filter(|text| text.to_lowercase() == value);
            let name = as_written.map(|text| TracedFact::Name(text.to_owned()));
            let said = self.first_argument_use.get(&fact).copied().unwrap_or(usize::MAX);
            let others = [Some(TracedFact::Word(value.to_owned())), name];
            let tell = others.iter().flatten().chain([&fact]).flat_map(|fact| self.find_exact_sources(fact, at));
            self.record_use(at, &fact, tell.filter(|index| *index < said).collect(), uses);
        }
    }

    /// Makes a sentence that denies something depend on a refused call: the one about the objects that the sentence
    /// names. A refusal after which a later call of the same tool succeeded counts only if the sentence names it.
    pub(super) fn add_refusals(&self, answer: &str, uses: &mut FactUseIndex) {
        let denials = denying_sentences(answer).join(" ").to_lowercase();
        if denials.is_empty() {
            return;
        }
        let words: BTreeSet<&str> = denials
            .split(|c: char| !(c.is_alphanumeric() || "-_./".contains(c)))
            .map(|word| word.trim_matches('.'))
            .collect();
        let is_named = |value: &Value| match value {
            Value::String(text) => words.contains(text.to_lowercase().as_str()),
            Value::Number(number) => words.contains(number.to_string().as_str()),
            _ => false,
        };
        let mut refused: Vec<(usize, usize)> = Vec::new();
        for (index, step) in self.record.steps.iter().enumerate() {
            // A call that never reached GitHub says nothing about its objects.
            if !step.is_error || step.exchanges.is_empty() {
                continue;
            }
            let mut later = self.record.steps[index..].iter();
            let made_good = later.find(|one| !one.is_error && one.tool == step.tool);
            let is_new =
                |name: &str, value: &Value| made_good.is_none_or(|later| later.arguments.get(name) != Some(value));
            let arguments = step.arguments.as_object().into_iter().flatten();
            let named = arguments.filter(|(name, value)| is_new(name, value) && is_named(value)).count();
            if made_good.is_none() || named > 0 {
                refused.push((named, index));
            }
        }
        let most = refused.iter().map(|(named, _)| *named).max().unwrap_or(0);
        let sources = refused.into_iter().filter(|(named, _)| *named == most).map(|(_, index)| index).collect();
        self.record_use(None, &TracedFact::Refusal, sources, uses);
    }
}

/// Collects the facts of the request. `#5` and `5` are equal here.
fn collect_request_facts(request: &str) -> TracedFactSet {
    let mut known = TracedFactSet::new();
    traced_facts::add_text_facts(&strip_list_numbers(request), &mut known);
    let numbers: Vec<TracedFact> = known
        .iter()
        .filter_map(|fact| match fact {
            TracedFact::Figure(figure) => Some(TracedFact::Number(*figure)),
            TracedFact::Number(number) => Some(TracedFact::Figure(*number)),
            _ => None,
        })
        .collect();
    known.extend(numbers);
    known
}

/// Whether a match is delimited like a word, so that a prefix of an address does not count as the address.
fn is_whole_word_at(text: &str, at: usize, part: &str) -> bool {
    let goes_on = |c: char| c.is_alphanumeric() || matches!(c, '/' | '_' | '-');
    let before = text[..at].chars().next_back();
    let after = text[at + part.len()..].chars().next();
    !before.is_some_and(goes_on) && !after.is_some_and(goes_on)
}

/// Removes the numbers of an enumerated list, which would be taken for figures.
fn strip_list_numbers(text: &str) -> String {
    let line = |line: &str| {
        let rest = line.trim_start().trim_start_matches(|c: char| c.is_ascii_digit());
        let is_item = rest.len() < line.trim_start().len() && rest.starts_with(['.', ')']);
        if is_item { rest[1..].to_owned() } else { line.to_owned() }
    };
    text.lines().map(line).collect::<Vec<_>>().join("\n")
}

/// Returns the requests of a step; empty if the range does not fit the record.
fn get_step_exchanges<'r>(record: &'r TrialRecord, step: &RunStep) -> &'r [RecordedExchange] {
    record.exchanges.get(step.exchanges.clone()).unwrap_or_default()
}

/// Collects the facts that the requests of a step add to its observation.
fn collect_exchange_facts(record: &TrialRecord, step: &RunStep) -> TracedFactSet {
    let looks =
        get_step_exchanges(record, step).iter().filter(|one| one.operation.as_deref() == Some("pulls/list-files"));
    looks.filter_map(|one| parse_pull_path(&one.path)).map(TracedFact::Changes).collect()
}

/// Returns `octo/demo#5` for `/repos/octo/demo/pulls/5/merge`.
fn parse_pull_path(path: &str) -> Option<String> {
    let parts: Vec<&str> = path.trim_matches('/').split('/').collect();
    match parts[..] {
        ["repos", owner, name, "pulls", number, ..] => Some(format!("{owner}/{name}#{number}").to_lowercase()),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn long_values_are_traced_to_who_told_them() {
        let step = |observation: Value| RunStep { observation: observation.to_string(), ..RunStep::default() };
        // Less than 300 characters, and more than 256 bytes.
        for count in [16, 20, 29] {
            let description = vec!["описание"; count].join(" ");
            let record = TrialRecord {
                request: "What is it about?".to_owned(),
                steps: vec![step(serde_json::json!({"description": description}))],
                ..TrialRecord::default()
            };
            let mut uses = FactUseIndex::default();
            FactSources::new(&record).add_quotations(None, &format!("It says: {description}."), &mut uses);
            let found: Vec<_> = uses.into_iter().collect();
            assert_eq!(found, [((None, StepSet::from([0])), TracedFact::Whole(description))], "{count} words");
        }
    }
}
