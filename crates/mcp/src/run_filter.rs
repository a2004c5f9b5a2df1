//! The filter of runs that a tool is about.

use gradus_core::trajectory::Trajectory;
use jiff::Timestamp;

use crate::archived_run::ArchivedVerdict;

/// Conditions on a run. All given ones must hold.
#[derive(Clone, Debug, Default)]
pub struct RunFilter {
    /// `None` for the default scope of the archive.
    pub evaluation: Option<String>,
    pub project: Option<String>,
    pub agent: Option<String>,
    /// A tool that some step calls.
    pub tool: Option<String>,
    /// A label such as `incorrect`, or with its evaluator, `thought_to_tool=incorrect`.
    pub label: Option<String>,
    /// Whether the run must have a wrong verdict.
    pub is_flagged: bool,
    /// Whether the run ended in an error.
    pub is_error: Option<bool>,
    /// Words that the run must all contain.
    pub text: Option<String>,
    /// Began at this time or later.
    pub from: Option<Timestamp>,
    /// Began before this time.
    pub to: Option<Timestamp>,
}

impl RunFilter {
    /// Whether a run matches, for archives without an index. The evaluation is not checked.
    pub fn matches(&self, trajectory: &Trajectory, verdicts: &[ArchivedVerdict]) -> bool {
        let is_wanted = |wanted: &Option<String>, found: &Option<String>| wanted.is_none() || wanted == found;
        is_wanted(&self.project, &trajectory.project)
            && is_wanted(&self.agent, &trajectory.agent)
            && self.tool.as_ref().is_none_or(|tool| trajectory.steps.iter().any(|step| step.tool == *tool))
            && self.is_error.is_none_or(|wanted| wanted == trajectory.is_error)
            && (!self.is_flagged || verdicts.iter().any(|verdict| verdict.is_wrong))
            && self.label.as_ref().is_none_or(|label| verdicts.iter().any(|verdict| has_label(verdict, label)))
            && self.includes_start(trajectory.start.as_deref())
            && self.text.as_ref().is_none_or(|text| contains_words(trajectory, text))
    }

    /// A run without a start is in no time range.
    fn includes_start(&self, start: Option<&str>) -> bool {
        if self.from.is_none() && self.to.is_none() {
            return true;
        }
        let start: Option<Timestamp> = start.and_then(|start| start.parse().ok());
        start.is_some_and(|start| self.from.is_none_or(|from| start >= from) && self.to.is_none_or(|to| start < to))
    }
}

fn has_label(verdict: &ArchivedVerdict, wanted: &str) -> bool {
    let label = verdict.line.label.as_deref();
    match wanted.split_once('=') {
        Some((evaluator, wanted)) => &*verdict.line.evaluator == evaluator && label == Some(wanted),
        None => label == Some(wanted),
    }
}

/// Whether each word occurs somewhere, in any case.
fn contains_words(trajectory: &Trajectory, words: &str) -> bool {
    let mut texts: Vec<&str> = [&trajectory.query, &trajectory.final_answer, &trajectory.final_thought]
        .into_iter()
        .filter_map(|text| text.as_deref())
        .collect();
    for step in &trajectory.steps {
        texts.push(&step.tool);
        texts.extend([&step.thought, &step.arguments_raw, &step.observation].into_iter().filter_map(|t| t.as_deref()));
    }
    let arguments = trajectory.steps.iter().filter(|step| step.arguments_raw.is_none());
    let mut all: Vec<String> = texts.into_iter().map(str::to_lowercase).collect();
    all.extend(arguments.filter_map(|step| Some(step.arguments.as_ref()?.to_string().to_lowercase())));
    words.to_lowercase().split_whitespace().all(|word| all.iter().any(|text| text.contains(word)))
}

#[cfg(test)]
mod tests {
    use super::*;
    use gradus_core::trajectory::TrajectoryStep;

    #[test]
    fn all_given_conditions_hold() {
        let trajectory = Trajectory {
            project: Some("shop".to_owned()),
            query: Some("Close the ISSUE".to_owned()),
            start: Some("2026-11-17T10:00:00Z".to_owned()),
            steps: vec![TrajectoryStep {
                tool: "list".to_owned(),
                arguments: Some(serde_json::json!({"repo": "Api"})),
                ..TrajectoryStep::default()
            }],
            ..Trajectory::default()
        };
        let is_found = |filter: &RunFilter| filter.matches(&trajectory, &[]);
        let some = |text: &str| Some(text.to_owned());
        assert!(is_found(&RunFilter::default()));
        assert!(is_found(&RunFilter { text: some("issue api LIST"), project: some("shop"), ..RunFilter::default() }));
        assert!(!is_found(&RunFilter { text: some("issue web"), ..RunFilter::default() }));
        assert!(!is_found(&RunFilter { is_flagged: true, ..RunFilter::default() }));
        assert!(!is_found(&RunFilter { tool: some("close"), ..RunFilter::default() }));
        let at = |text: &str| Some(text.parse().unwrap());
        assert!(is_found(&RunFilter { from: at("2026-11-17T10:00:00Z"), ..RunFilter::default() }));
        assert!(!is_found(&RunFilter { to: at("2026-11-17T10:00:00Z"), ..RunFilter::default() }));
    }
}
