//! Reads that no recorded value depends on, but that may have influenced a decision. Their necessity is reported as
//! unknown instead of unnecessary.

use std::collections::BTreeSet;

use serde_json::Value;

use super::provenance::ProvenanceGraph;
use crate::record::TrialRecord;
use crate::replay::step_selection::StepSet;
use crate::rules::contains_question;
use gradus_github_agent::agent::RunStep;

/// Decides about reads that the search left out.
pub(super) struct UncertaintyCheck<'d> {
    record: &'d TrialRecord,
    provenance: &'d ProvenanceGraph,
    /// Steps of the shortest run.
    kept: &'d StepSet,
    /// Whether a check of the task depends on the final message.
    answer_counts: bool,
    /// SHAs in the observations of kept steps.
    shas: BTreeSet<&'d str>,
}

impl<'d> UncertaintyCheck<'d> {
    pub(super) fn new(
        record: &'d TrialRecord,
        provenance: &'d ProvenanceGraph,
        kept: &'d StepSet,
        answer_counts: bool,
    ) -> UncertaintyCheck<'d> {
        let shas = kept.iter().flat_map(|step| find_commit_shas(&record.steps[*step])).collect();
        UncertaintyCheck { record, provenance, kept, answer_counts, shas }
    }

    /// Returns why it is unknown whether a left-out read was needed; none if it was not. The most conclusive tests
    /// come first.
    pub(super) fn explain_uncertainty(&self, step: usize) -> Option<String> {
        // A question rests on the request alone.
        let is_question = self.record.answer.as_deref().is_some_and(contains_question);
        let why = if !self.provenance.answer_is_traced && self.answer_counts && !is_question {
            "the final message may rest on it"
        } else if self.provenance.find_ambiguous_figure(step, self.kept).is_some() {
            "a figure in the final message may be from it"
        } else if is_one_of_a_series(self.record, step, self.kept) {
            "one of a series of looks, of which others were needed"
        } else if self.shares_commit(step) {
            "it shows the same commits as another step, and may have decided something"
        } else if finds_a_free_name(self.record, step, self.kept) {
            "a name was chosen later that the request does not give"
        } else {
            return None;
        };
        Some(why.to_owned())
    }

    /// Whether the step shows a commit that a kept step shows as well. Lists are excluded: a decision made from a
    /// list is about one of its elements, whose name is then used later.
    fn shares_commit(&self, step: usize) -> bool {
        let this = &self.record.steps[step];
        !this.tool.starts_with("list_") && find_commit_shas(this).any(|sha| self.shas.contains(sha))
    }
}

/// Finds full SHAs in an observation.
fn find_commit_shas(step: &RunStep) -> impl Iterator<Item = &str> {
    let is_sha = |word: &&str| word.len() == 40 && word.bytes().all(|byte| byte.is_ascii_hexdigit());
    step.observation.split(|c: char| !c.is_ascii_alphanumeric()).filter(is_sha)
}

/// Whether the step is one of several reads with the same tool on different objects, of which others were needed.
/// That this one was not used further may be the result of reading it. Objects that neither the request nor an
/// earlier observation named do not belong to such a series.
fn is_one_of_a_series(record: &TrialRecord, step: usize, kept: &StepSet) -> bool {
    let this = &record.steps[step];
    let is_sibling = |other: &&RunStep| other.tool == this.tool && other.arguments != this.arguments;
    let siblings: Vec<&RunStep> = kept.iter().map(|other| &record.steps[*other]).filter(is_sibling).collect();
    if this.is_error || siblings.is_empty() {
        return false;
    }
    let request = record.request.to_lowercase();
    let was_told = |word: &str| {
        request.contains(&word.to_lowercase())
            || record.steps[..step].iter().any(|earlier| earlier.observation.contains(word))
    };
    let is_known = |value: &Value| match value {
        Value::String(text) => text.split_whitespace().any(was_told),
        Value::Number(number) => was_told(&number.to_string()),
        _ => true,
    };
    let arguments = this.arguments.as_object().into_iter().flatten();
    let unknown: Vec<(&String, &Value)> = arguments.filter(|(_, value)| !is_known(value)).collect();
    siblings.iter().any(|other| unknown.iter().all(|(name, value)| other.arguments.get(*name) == Some(*value)))
}

/// Whether something of the listed kind is created later under a name that the agent chose. The list may have shown
/// that the name is free.
fn finds_a_free_name(record: &TrialRecord, step: usize, kept: &StepSet) -> bool {
    // Creating tool, the argument with the name, and the reads that show which names are taken.
    const KINDS: [(&str, &str, &[&str]); 5] = [
        ("create_repo", "name", &["list_my_repos", "search_repositories", "get_repo"]),
        ("create_branch", "branch", &["list_branches", "get_branch"]),
        ("create_label", "name", &["list_labels"]),
        ("create_tag", "tag", &["list_tags"]),
        ("create_milestone", "title", &["list_milestones"]),
    ];
    let this = &record.steps[step];
    let looks = |kind: &&(&str, &str, &[&str])| kind.2.contains(&this.tool.as_str());
    // A list shows all names; a read of one object has the name in the call.
    let could_show = |name: &str| {
        let call = this.arguments.to_string().to_lowercase();
        this.tool.starts_with("list") || name.to_lowercase().split(['-', '_', '/']).any(|part| call.contains(part))
    };
    KINDS.iter().filter(looks).any(|(tool, name, _)| {
        let mut made = kept.range(step..).map(|later| &record.steps[*later]).filter(|later| later.tool == *tool);
        made.any(|later| {
            let name = later.arguments.get(*name).and_then(Value::as_str).unwrap_or_default();
            could_show(name) && !record.request.to_lowercase().contains(&name.to_lowercase())
        })
    })
}
