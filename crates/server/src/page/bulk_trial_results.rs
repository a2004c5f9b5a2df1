//! Results of a trial on many cases: agreement with people before and after, and the verdicts that changed.

use std::collections::{BTreeMap, BTreeSet, HashMap};

use gradus_core::span::TraceId;
use gradus_eval::outcome::{OutcomeKind, OutcomeLine};
use gradus_eval::rubric::Rubric;
use gradus_report::html::number::{self, format_count};
use gradus_report::html::text::{self, DisplayText};
use gradus_stats::agreement::LabelPair;
use gradus_store::{LabelRow, Store, StoreError};

use super::agreement::{DimensionAgreement, build_confusion_matrix, identify_labeler};
use super::blind_sample::{MAX_SAMPLE_LABELS, UNDECIDED_LABEL};
use super::loaded_trace;
use crate::bulk_trial::{BulkTrialCase, BulkTrialPlan, BulkTrialRecord};

/// Maximum number of changed verdicts in the list. The download has all of them.
const MAX_LISTED_CHANGES: usize = 100;

/// Labels of people on the cases of a trial, by trajectory and step.
pub(super) struct CaseLabels(HashMap<(String, Option<u32>), Vec<LabelRow>>);

impl CaseLabels {
    /// Loads the present labels.
    pub(super) fn load(store: &Store, plan: &BulkTrialPlan) -> Result<CaseLabels, StoreError> {
        let mut by_case: HashMap<(String, Option<u32>), Vec<LabelRow>> = HashMap::new();
        for label in store.labels(Some(&plan.project), MAX_SAMPLE_LABELS)? {
            if label.evaluator == plan.rubric && label.label != UNDECIDED_LABEL {
                by_case.entry((label.trajectory_id.clone(), label.step)).or_default().push(label);
            }
        }
        Ok(CaseLabels(by_case))
    }

    pub(super) fn on_case(&self, case: &BulkTrialCase) -> &[LabelRow] {
        self.0.get(&(case.trajectory_id.clone(), case.step)).map_or(&[], Vec::as_slice)
    }
}

/// The results, ready to be displayed.
pub(super) struct BulkTrialResults {
    /// Counts by outcome: `118 verdicts, 2 not applicable`.
    pub(super) outcomes: String,
    /// Why the judge gave no verdict, the first reason.
    pub(super) failure: Option<String>,
    /// Agreement with people: the present rubric first, then the tried one. Empty without labels.
    pub(super) agreement: Vec<DimensionAgreement>,
    /// The effect of the changes on labelled cases: `3 verdicts agree now that did not before, 1 no longer does`.
    pub(super) label_changes: Option<String>,
    /// Labels of the present rubric in rows, of the tried one in columns.
    pub(super) labels: Vec<String>,
    pub(super) table: Vec<(String, Vec<String>)>,
    /// `12 of 118`; `None` without present verdicts.
    pub(super) changed: Option<String>,
    pub(super) changes: Vec<ChangedVerdict>,
    /// Whether the list has only some of them.
    pub(super) is_cut: bool,
    /// Notes on the data of the comparison.
    pub(super) notes: Vec<String>,
}

/// A verdict that differs under the tried rubric.
pub(super) struct ChangedVerdict {
    pub(super) href: String,
    pub(super) what: String,
    trace_id: Option<TraceId>,
    trajectory_id: String,
    /// What the user asked, otherwise the beginning of the trajectory's id: it tells cases with the same step apart.
    pub(super) trajectory: String,
    pub(super) before: String,
    pub(super) after: String,
    /// Labels of people; empty without any.
    pub(super) people: String,
    /// `pass` if people agree with the new verdict, `fail` if they agreed with the old one.
    pub(super) class: &'static str,
    pub(super) explanation: Option<DisplayText>,
}

impl BulkTrialResults {
    /// `None` before the first outcome.
    pub(super) fn new(
        plan: &BulkTrialPlan,
        rubric: &Rubric,
        record: &BulkTrialRecord,
        people: &CaseLabels,
    ) -> Option<BulkTrialResults> {
        if record.outcomes.is_empty() {
            return None;
        }
        let order: Vec<String> = rubric.labels.iter().map(|(label, _)| label.to_owned()).collect();
        let judged: Vec<JudgedTrialCase<'_>> =
            plan.cases.iter().filter_map(|case| find_judged_case(case, record)).collect();
        let (labels, table, changed) = compare_verdicts(&order, &judged);
        let mut changes: Vec<ChangedVerdict> =
            judged.iter().filter(|one| one.is_changed()).map(|one| one.describe_change(people)).collect();
        let is_cut = changes.len() > MAX_LISTED_CHANGES;
        // Labelled cases come first.
        changes.sort_by_key(|change| change.people.is_empty());
        changes.truncate(MAX_LISTED_CHANGES);
        Some(BulkTrialResults {
            outcomes: count_outcomes(record),
            failure: first_failure(record),
            agreement: compare_with_people(&order, &judged, people),
            label_changes: describe_label_changes(&judged, people),
            labels,
            table,
            changed,
            changes,
            is_cut,
            notes: list_comparison_notes(plan, &judged),
        })
    }

    /// Names the changed cases by their requests.
    pub(super) fn name_requests(&mut self, store: &Store) -> Result<(), StoreError> {
        for change in &mut self.changes {
            let Some(trace) = change.trace_id.map(|trace_id| store.trace(trace_id)).transpose()?.flatten() else {
                continue;
            };
            let mut trajectories = trace.trajectories.iter();
            let asked = trajectories.find(|trajectory| trajectory.trajectory_id == change.trajectory_id);
            if let Some(trajectory) = asked.filter(|trajectory| !trajectory.query.trim().is_empty()) {
                change.trajectory = text::format_display_line(&trajectory.query);
            }
        }
        Ok(())
    }
}

/// Characters of an id that are shown.
const SHOWN_ID_CHARS: usize = 12;

/// A case with its new label.
struct JudgedTrialCase<'c> {
    case: &'c BulkTrialCase,
    line: &'c OutcomeLine,
    label: &'c str,
}

impl JudgedTrialCase<'_> {
    fn before(&self) -> Option<&str> {
        self.case.present.as_ref().map(|present| present.label.as_str())
    }

    fn is_changed(&self) -> bool {
        self.before().is_some_and(|before| before != self.label)
    }

    fn describe_change(&self, people: &CaseLabels) -> ChangedVerdict {
        let said: BTreeSet<&str> = people.on_case(self.case).iter().map(|row| row.label.as_str()).collect();
        let before = self.before().unwrap_or_default();
        let class = match (said.contains(self.label), said.contains(before)) {
            (true, false) => "pass",
            (false, true) => "fail",
            _ => "na",
        };
        let people: Vec<String> = said.into_iter().map(text::format_display_line).collect();
        ChangedVerdict {
            href: loaded_trace::format_step_url(&self.case.trace_id, Some(&self.case.trajectory_id), self.case.step),
            what: self.case.step.map_or_else(|| "whole trajectory".to_owned(), |step| format!("step {step}")),
            trace_id: u128::from_str_radix(&self.case.trace_id, 16).ok().map(TraceId),
            trajectory_id: self.case.trajectory_id.clone(),
            trajectory: text::format_display_line(
                &self.case.trajectory_id.chars().take(SHOWN_ID_CHARS).collect::<String>(),
            ),
            before: text::format_display_line(before),
            after: text::format_display_line(self.label),
            people: people.join(", "),
            class,
            explanation: self.line.explanation.as_deref().map(text::format_display_block),
        }
    }
}

fn find_judged_case<'c>(case: &'c BulkTrialCase, record: &'c BulkTrialRecord) -> Option<JudgedTrialCase<'c>> {
    let line = record.outcome(&case.trajectory_id, case.step)?;
    Some(JudgedTrialCase { case, line, label: line.label.as_deref()? })
}

fn count_outcomes(record: &BulkTrialRecord) -> String {
    let count = |kind: OutcomeKind| record.outcomes.values().filter(|line| line.outcome == kind).count() as u64;
    let verdicts = number::format_counted_noun(count(OutcomeKind::Scored), "verdict", "verdicts");
    let others = [
        (count(OutcomeKind::NotApplicable), "not applicable"),
        (count(OutcomeKind::Failed), "without a verdict"),
        (count(OutcomeKind::Abstained), "abstained"),
    ];
    let others = others.into_iter().filter(|(count, _)| *count > 0);
    let parts: Vec<String> = std::iter::once(verdicts)
        .chain(others.map(|(count, what)| format!("{} {what}", format_count(count))))
        .collect();
    parts.join(", ")
}

fn first_failure(record: &BulkTrialRecord) -> Option<String> {
    let failed = record.outcomes.values().filter(|line| line.outcome == OutcomeKind::Failed);
    let mut reasons: Vec<&str> = failed.filter_map(|line| line.reason.as_deref()).collect();
    reasons.sort_unstable();
    reasons.first().map(|reason| text::format_display_line(reason))
}

/// Returns the table from old to new labels, and how many differ.
#[allow(clippy::type_complexity, reason = "the table as `build_confusion_matrix` gives it")]
fn compare_verdicts(
    order: &[String],
    judged: &[JudgedTrialCase<'_>],
) -> (Vec<String>, Vec<(String, Vec<String>)>, Option<String>) {
    let pairs: Vec<LabelPair<'_>> = judged
        .iter()
        .filter_map(|one| Some(LabelPair { judge: one.before()?, person: one.label, trajectory: 0 }))
        .collect();
    let changed = judged.iter().filter(|one| one.is_changed()).count() as u64;
    let (labels, table) = build_confusion_matrix(order.to_vec(), &pairs);
    let counted = format!("{} of {}", format_count(changed), format_count(pairs.len() as u64));
    (labels, table, (!pairs.is_empty()).then_some(counted))
}

/// Computes the agreement of both rubrics with people, over the same cases: those with a label and a verdict of both.
/// Without verdicts of the present rubric, of the tried one alone.
fn compare_with_people(
    order: &[String],
    judged: &[JudgedTrialCase<'_>],
    people: &CaseLabels,
) -> Vec<DimensionAgreement> {
    let mut clusters: BTreeMap<&str, i64> = BTreeMap::new();
    let (mut before, mut after) = (Vec::new(), Vec::new());
    let mut labelers: BTreeSet<&str> = BTreeSet::new();
    let has_present = judged.iter().any(|one| one.before().is_some() && !people.on_case(one.case).is_empty());
    for one in judged {
        if has_present && one.before().is_none() {
            continue;
        }
        let next = clusters.len() as i64;
        for row in people.on_case(one.case) {
            let trajectory = *clusters.entry(&one.case.trajectory_id).or_insert(next);
            labelers.insert(identify_labeler(row));
            after.push(LabelPair { judge: one.label, person: &row.label, trajectory });
            if let Some(judge) = one.before() {
                before.push(LabelPair { judge, person: &row.label, trajectory });
            }
        }
    }
    let of = |title: &str, pairs: &[LabelPair<'_>]| {
        (!pairs.is_empty())
            .then(|| DimensionAgreement::from_pairs(title.to_owned(), order.to_vec(), pairs, labelers.len()))
    };
    [of("Present rubric", &before), of("Tried rubric", &after)].into_iter().flatten().collect()
}

/// Describes how many labels each rubric matches that the other does not.
fn describe_label_changes(judged: &[JudgedTrialCase<'_>], people: &CaseLabels) -> Option<String> {
    let (mut gained, mut lost, mut labelled) = (0_u64, 0_u64, 0_u64);
    for one in judged {
        let Some(before) = one.before() else { continue };
        for row in people.on_case(one.case) {
            labelled += 1;
            gained += u64::from(row.label == one.label && row.label != before);
            lost += u64::from(row.label == before && row.label != one.label);
        }
    }
    (labelled > 0).then(|| {
        format!(
            "Of {}, {} now and did not before; {} no longer.",
            number::format_counted_noun(labelled, "label", "labels"),
            number::format_counted_noun(gained, "agrees", "agree"),
            number::format_counted_noun(lost, "agrees", "agree"),
        )
    })
}

/// Lists notes on the present verdicts that the comparison rests on.
fn list_comparison_notes(plan: &BulkTrialPlan, judged: &[JudgedTrialCase<'_>]) -> Vec<String> {
    let missing = judged.iter().filter(|one| one.case.present.is_none()).count() as u64;
    let present = || judged.iter().filter_map(|one| one.case.present.as_ref());
    let older = present().filter(|verdict| verdict.rubric_hash != plan.present_hash).count() as u64;
    let other = present().filter(|verdict| verdict.judge != plan.judge).count() as u64;
    [
        (missing, "no present verdict and cannot be compared"),
        (older, "a present verdict of an earlier version of the rubric, or of rules"),
        (other, "a present verdict of another judge"),
    ]
    .into_iter()
    .filter(|(count, _)| *count > 0)
    .map(|(count, what)| format!("{} {what}.", number::format_counted_noun(count, "case has", "cases have")))
    .collect()
}

#[cfg(test)]
#[path = "bulk_trial_results_tests.rs"]
mod tests;
