//! Provenance: which earlier observations the values in arguments and in the final message come from.

use crate::replay::step_selection::{FactUseIndex, StepSet};
use std::collections::BTreeMap;

use super::sources::FactSources;
use super::traced_facts::{self, TracedFact, TracedFactSet};
use crate::record::TrialRecord;
use crate::rules::collect_strings;
use gradus_github_agent::agent::RunStep;

/// A fact that a step or the final message uses, and the steps that stated it before. At least one source must be kept.
#[derive(Clone, Debug)]
pub(super) struct FactUse {
    /// The step that uses it; none for the final message.
    pub(super) at: Option<usize>,
    pub(super) fact: TracedFact,
    /// Not empty.
    pub(super) sources: StepSet,
}

/// All constraints that the provenance of values puts on a search. Built once per replay.
#[derive(Debug)]
pub(super) struct ProvenanceGraph {
    pub(super) uses: Vec<FactUse>,
    /// Paginated lists, see [`super::pages::find_paged_lists`]. All pages of a list are kept, or none.
    pages: Vec<Vec<StepSet>>,
    /// For each step, an earlier one with the same call and the same observation.
    pub(super) equal_earlier_steps: Vec<Option<usize>>,
    /// Whether any fact of the final message comes from an observation.
    pub(super) answer_is_traced: bool,
}

impl ProvenanceGraph {
    /// Collects the uses of all steps in order, then those of the final message.
    pub(super) fn new(record: &TrialRecord) -> ProvenanceGraph {
        let sources = FactSources::new(record);
        let steps = &record.steps;
        let mut uses = FactUseIndex::default();
        for (index, step) in steps.iter().enumerate() {
            sources.add_uses(Some(index), sources.argument_facts[index].iter(), &mut uses);
            let texts = collect_strings(&step.arguments).join("\n");
            sources.add_quotations(Some(index), &texts, &mut uses);
            sources.add_review_uses(index, &mut uses);
        }
        let answer = record.answer.as_deref().unwrap_or_default();
        let mut facts = TracedFactSet::new();
        traced_facts::add_text_facts(answer, &mut facts);
        sources.add_uses(None, facts.iter().filter(|fact| !matches!(fact, TracedFact::Word(_))), &mut uses);
        sources.add_quotations(None, answer, &mut uses);
        sources.add_refusals(answer, &mut uses);
        let is_traced = |uses: &FactUseIndex| uses.keys().any(|(at, _)| at.is_none());
        if !is_traced(&uses) {
            // Ordinary words are used if there are no other facts.
            sources.add_uses(None, facts.iter(), &mut uses);
        }
        let answer_is_traced = is_traced(&uses);
        let uses = uses.into_iter().map(|((at, sources), fact)| FactUse { at, fact, sources }).collect();
        ProvenanceGraph {
            uses,
            pages: sources.pages,
            equal_earlier_steps: equal_earlier_steps(steps),
            answer_is_traced,
        }
    }

    /// Whether every use of a kept step or the final message still has a kept source, and no list is incomplete.
    pub(super) fn is_supported(&self, kept: &StepSet) -> bool {
        self.find_unsupported_use(kept).is_none()
            && self.pages.iter().all(|list| {
                let read = list.iter().filter(|page| page.iter().any(|step| kept.contains(step))).count();
                read == 0 || read == list.len()
            })
    }

    /// Removes the remaining pages of lists of which a page is missing.
    pub(super) fn drop_incomplete_lists(&self, mut kept: StepSet) -> StepSet {
        for list in &self.pages {
            if list.iter().any(|page| page.is_disjoint(&kept)) {
                kept.retain(|step| !list.iter().any(|page| page.contains(step)));
            }
        }
        kept
    }

    /// Finds a figure of the final message that this step and another kept one both state, where nothing else in the
    /// message comes from the other. It is then unknown which of the two it came from. Pages of one list count as
    /// one.
    pub(super) fn find_ambiguous_figure(&self, step: usize, kept: &StepSet) -> Option<&FactUse> {
        let same = |one: usize| self.equal_earlier_steps[one].unwrap_or(one);
        let tells_more = |one: usize| {
            let is_more = |used: &FactUse| used.at.is_none() && !matches!(used.fact, TracedFact::Figure(_));
            self.uses.iter().any(|used| is_more(used) && used.sources.contains(&one))
        };
        self.uses.iter().find(|used| {
            let is_other = |other: &&usize| same(**other) != same(step) && !self.are_pages_of_one_list(step, **other);
            let mut others = used.sources.intersection(kept).filter(is_other);
            matches!(used.fact, TracedFact::Figure(_))
                && used.sources.contains(&step)
                && others.next().is_some()
                && !used.sources.intersection(kept).any(|other| tells_more(*other))
        })
    }

    /// Finds a use whose sources are all left out.
    pub(super) fn find_unsupported_use(&self, kept: &StepSet) -> Option<&FactUse> {
        let is_there = |one: &&FactUse| one.at.is_none_or(|at| kept.contains(&at));
        self.uses.iter().filter(is_there).find(|one| one.sources.is_disjoint(kept))
    }

    /// Finds the strongest use for which this step is the only kept source.
    pub(super) fn find_sole_source_use(&self, step: usize, kept: &StepSet) -> Option<&FactUse> {
        let only = |one: &&FactUse| {
            one.at.is_none_or(|at| kept.contains(&at))
                && one.sources.contains(&step)
                && one.sources.intersection(kept).count() == 1
        };
        self.uses.iter().filter(only).max_by_key(|one| one.fact.evidence_weight())
    }

    fn are_pages_of_one_list(&self, one: usize, other: usize) -> bool {
        let has = |list: &[StepSet], step: usize| list.iter().any(|page| page.contains(&step));
        self.pages.iter().any(|list| has(list, one) && has(list, other))
    }

    /// Whether the step reads a page of a list of which other pages are kept.
    pub(super) fn is_page_of_kept_list(&self, step: usize, kept: &StepSet) -> bool {
        self.pages.iter().any(|list| {
            list.iter().any(|page| page.contains(&step))
                && list.iter().flatten().any(|other| *other != step && kept.contains(other))
        })
    }
}

/// Compares steps by a hash of tool, arguments and observation, so that long runs stay linear.
fn equal_earlier_steps(steps: &[RunStep]) -> Vec<Option<usize>> {
    let mut first: BTreeMap<[u8; 32], usize> = BTreeMap::new();
    let name = |step: &RunStep| {
        let whole = (&step.tool, &step.arguments, &step.observation);
        *blake3::hash(serde_json::to_string(&whole).unwrap_or_default().as_bytes()).as_bytes()
    };
    let mut earlier = |(index, step)| {
        let one = *first.entry(name(step)).or_insert(index);
        (one < index).then_some(one)
    };
    steps.iter().enumerate().map(&mut earlier).collect()
}
