//! Merges labels of several people into one true label for each case that the judge judged.

use std::collections::{BTreeMap, HashMap};

use super::calibration_file::{LabellerKind, LabellerRecord};
use super::label_draw::CasePopulation;

/// A label that somebody gave to a case.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CaseLabel {
    pub trajectory_id: String,
    pub step_index: Option<u32>,
    /// `None` if the person could not decide.
    pub label: Option<String>,
    pub labeller: String,
    pub kind: LabellerKind,
    /// The location, for messages: `labels.jsonl:3`.
    pub location: String,
}

/// The true labels of the cases of a population.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct MergedLabels {
    /// The true label by the index of the case. Cases without a majority are not in it.
    pub truths: BTreeMap<usize, String>,
    /// Cases on which labellers disagree without a majority.
    pub disputed: Vec<usize>,
    /// Cases that all labellers left undecided.
    pub undecided: Vec<usize>,
    /// Labels for cases that the run does not have.
    pub unmatched: Vec<CaseLabel>,
    pub labellers: Vec<LabellerRecord>,
}

/// Why labels cannot be used.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
pub enum LabelMergeError {
    #[error("{location}: the rubric has no label {label:?}; it has {known}")]
    UnknownLabel { location: String, label: String, known: String },
    #[error(
        "{second}: {labeller} labels this case {second_label:?}, and {first_label:?} at {first}\nhint: remove one of the two"
    )]
    Contradiction { labeller: String, first: String, first_label: String, second: String, second_label: String },
    #[error(
        "none of the {count} labels is about a verdict of this run; the first is about trajectory {first:?}\nhint: labels \
         belong to the run whose trajectories they name"
    )]
    NoneMatches { count: usize, first: String },
}

/// Merges labels. Equal labels of one person count once; the majority of people decides.
pub fn merge_labels(
    labels: Vec<CaseLabel>,
    population: &CasePopulation,
    known_labels: &[(String, f64)],
) -> Result<MergedLabels, LabelMergeError> {
    let cases: HashMap<(&str, Option<u32>), usize> = population
        .cases
        .iter()
        .enumerate()
        .map(|(at, case)| ((case.trajectory_id.as_str(), case.step_index), at))
        .collect();
    let mut merged = MergedLabels::default();
    let mut by_case: BTreeMap<usize, BTreeMap<String, CaseLabel>> = BTreeMap::new();
    let count = labels.len();
    for label in labels {
        if let Some(text) = &label.label
            && !known_labels.iter().any(|(known, _)| known == text)
        {
            return Err(LabelMergeError::UnknownLabel {
                location: label.location,
                label: text.clone(),
                known: known_labels.iter().map(|(known, _)| known.as_str()).collect::<Vec<_>>().join(", "),
            });
        }
        let Some(case) = cases.get(&(label.trajectory_id.as_str(), label.step_index)) else {
            merged.unmatched.push(label);
            continue;
        };
        let own = by_case.entry(*case).or_default();
        match own.get(&label.labeller) {
            Some(first) if first.label != label.label => {
                let text = |label: &CaseLabel| label.label.clone().unwrap_or_else(|| "undecided".to_owned());
                return Err(LabelMergeError::Contradiction {
                    labeller: label.labeller.clone(),
                    first: first.location.clone(),
                    first_label: text(first),
                    second: label.location.clone(),
                    second_label: text(&label),
                });
            }
            Some(_) => {}
            None => {
                own.insert(label.labeller.clone(), label);
            }
        }
    }
    if by_case.is_empty() && count > 0 {
        let first = merged.unmatched.first().map_or(String::new(), |label| label.trajectory_id.clone());
        return Err(LabelMergeError::NoneMatches { count, first });
    }
    let mut labellers: BTreeMap<(String, LabellerKind), u64> = BTreeMap::new();
    for (case, labels) in by_case {
        for label in labels.values() {
            *labellers.entry((label.labeller.clone(), label.kind)).or_default() += 1;
        }
        let decided: Vec<&str> = labels.values().filter_map(|label| label.label.as_deref()).collect();
        match find_majority(&decided) {
            Some(truth) => drop(merged.truths.insert(case, truth.to_owned())),
            None if decided.is_empty() => merged.undecided.push(case),
            None => merged.disputed.push(case),
        }
    }
    merged.labellers =
        labellers.into_iter().map(|((name, kind), labels)| LabellerRecord { name, kind, labels }).collect();
    Ok(merged)
}

/// Returns the label that more than half of the people gave.
fn find_majority<'l>(labels: &[&'l str]) -> Option<&'l str> {
    let count = |label: &str| labels.iter().filter(|other| **other == label).count();
    labels.iter().copied().find(|label| 2 * count(label) > labels.len())
}

#[cfg(test)]
mod tests {
    use super::super::label_draw::JudgedCase;
    use super::*;

    fn population() -> CasePopulation {
        let case = |id: &str| JudgedCase {
            trajectory_id: id.to_owned(),
            step_index: Some(1),
            label: "correct".to_owned(),
            uncertainty: None,
            votes: None,
        };
        CasePopulation { cases: ["a", "b", "c"].map(case).to_vec(), trajectories: 3, ..CasePopulation::default() }
    }

    fn label(id: &str, label: &str, labeller: &str, line: u32) -> CaseLabel {
        CaseLabel {
            trajectory_id: id.to_owned(),
            step_index: Some(1),
            label: (label != "?").then(|| label.to_owned()),
            labeller: labeller.to_owned(),
            kind: LabellerKind::Human,
            location: format!("labels.jsonl:{line}"),
        }
    }

    fn merge(labels: &[(&str, &str, &str)]) -> Result<MergedLabels, LabelMergeError> {
        let known = [("correct".to_owned(), 1.0), ("incorrect".to_owned(), 0.0)];
        let labels = labels.iter().zip(1..).map(|((id, text, person), line)| label(id, text, person, line));
        merge_labels(labels.collect(), &population(), &known)
    }

    #[test]
    fn the_majority_decides_and_disputes_are_kept_apart() {
        let merged = merge(&[
            ("a", "incorrect", "ann"),
            ("a", "incorrect", "bob"),
            ("a", "correct", "cyd"),
            ("b", "correct", "ann"),
            ("b", "incorrect", "bob"),
            ("c", "?", "ann"),
            ("zz", "correct", "ann"),
            ("a", "incorrect", "ann"),
        ])
        .unwrap();
        assert_eq!(merged.truths, BTreeMap::from([(0, "incorrect".to_owned())]));
        assert_eq!((&*merged.disputed, &*merged.undecided), (&[1][..], &[2][..]));
        assert_eq!(merged.unmatched.len(), 1);
        let ann = &merged.labellers[0];
        assert_eq!((&*ann.name, ann.labels), ("ann", 3), "the same label twice counts once");
    }

    #[test]
    fn what_cannot_be_true_is_refused_with_its_place() {
        let message = |labels: &[(&str, &str, &str)]| merge(labels).unwrap_err().to_string();
        assert_eq!(
            message(&[("a", "correct", "ann"), ("b", "correct", "ann"), ("a", "incorrect", "ann")]),
            "labels.jsonl:3: ann labels this case \"incorrect\", and \"correct\" at labels.jsonl:1\nhint: remove one of the \
             two"
        );
        assert_eq!(
            message(&[("a", "fine", "ann")]),
            "labels.jsonl:1: the rubric has no label \"fine\"; it has correct, incorrect"
        );
        assert!(message(&[("x", "correct", "ann")]).starts_with("none of the 1 labels is about a verdict of this run"));
        assert_eq!(merge(&[]).unwrap(), MergedLabels::default());
    }
}
