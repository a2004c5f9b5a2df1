//! Labels of people and other tools on trajectories: annotations in their records, and files of labels.

use std::collections::HashMap;
use std::path::PathBuf;

use gradus_core::trajectory::Trajectory;

use crate::cli::label_file::{LabelFileError, read_label_file};

/// A label of a run or one of its steps.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct ItemLabel {
    /// The evaluator or the annotation; none in files that do not name it.
    pub(super) name: Option<String>,
    /// The label, and the score as text.
    pub(super) values: Vec<String>,
}

/// The labels of `--labels`, by what they are about.
#[derive(Debug, Default)]
pub(super) struct LabelIndex {
    by_trajectory: HashMap<String, Vec<ItemLabel>>,
    by_span: HashMap<String, Vec<ItemLabel>>,
}

impl LabelIndex {
    /// Labels of models and undecided ones are left out.
    pub(super) fn read(paths: &[PathBuf]) -> Result<LabelIndex, LabelFileError> {
        let mut index = LabelIndex::default();
        for path in paths {
            for found in read_label_file(path, |_| true)? {
                let Some(value) = found.label.label else { continue };
                let label = ItemLabel { name: found.name, values: vec![value] };
                match (found.label.trajectory_id, found.span_id) {
                    (id, _) if !id.is_empty() => index.by_trajectory.entry(id).or_default().push(label),
                    (_, Some(span)) => index.by_span.entry(span).or_default().push(label),
                    _ => {}
                }
            }
        }
        Ok(index)
    }

    pub(super) fn is_empty(&self) -> bool {
        self.by_trajectory.is_empty() && self.by_span.is_empty()
    }

    /// Returns all labels of a trajectory and its steps: of the files, and of its record. Those of models are left
    /// out.
    pub(super) fn labels_about(&self, trajectory: &Trajectory) -> Vec<ItemLabel> {
        let mut labels = self.by_trajectory.get(&trajectory.trajectory_id).cloned().unwrap_or_default();
        let spans = trajectory.steps.iter().flat_map(|step| &step.span_ids);
        let spans = spans.chain(&trajectory.root_span_id).chain(&trajectory.answer_span_ids);
        labels.extend(spans.filter_map(|span| self.by_span.get(span)).flatten().cloned());
        let recorded = trajectory.annotations.iter().filter(|one| one.annotator.as_deref() != Some("model"));
        labels.extend(recorded.map(|recorded| ItemLabel {
            name: Some(recorded.name.clone()),
            values: recorded.label.clone().into_iter().chain(recorded.score.map(|score| score.to_string())).collect(),
        }));
        labels
    }
}
