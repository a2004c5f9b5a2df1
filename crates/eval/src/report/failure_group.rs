//! Groups wrong verdicts by evaluator, tool and reason. The reason is a pattern in which values are replaced by their
//! kind, so that one mistake with a hundred different values is one group.
//!
//! The key of a group depends on nothing but what the group is about, so groups of different runs can be compared by
//! it. Memory is bounded: beyond a number of groups, further reasons are counted together. Reasons that a model gave in
//! other words are one group (`similar_reasons`).

use std::collections::BTreeMap;

use gradus_core::text_signature::TextSignature;
use gradus_core::trajectory::Trajectory;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::group_tally::{FailureExample, GroupSubject, GroupTally, MAX_EXAMPLES};
use super::reason_pattern::{ReasonAuthor, make_reason_pattern};
use super::similar_reasons::merge_similar_groups;
use crate::outcome::{OutcomeLine, OutcomeSpans};

/// Maximum number of groups that are distinguished while a run is read.
const MAX_TRACKED_GROUPS: usize = 2_000;
/// Maximum number of groups in a summary.
pub const MAX_FAILURE_GROUPS: usize = 100;
/// Maximum characters of the request in an example.
const MAX_REQUEST_CHARS: usize = 120;
/// Maximum bytes of a tool name. Longer names are cut.
const MAX_TOOL_BYTES: usize = 200;
/// The reason of groups in which further reasons are counted together.
const OTHER_REASONS: &str = "other reasons";
/// The reason of verdicts without an explanation.
const NO_REASON: &str = "no explanation";

/// Wrong verdicts of one evaluator on one tool, for one reason.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct FailureGroup {
    /// Equal for the same evaluator, tool, rule, label and reason, in every run.
    pub key: String,
    pub evaluator: String,
    /// Null for verdicts on whole trajectories and on the thought before the answer.
    pub tool: Option<String>,
    /// The rule that decided; null when a model did.
    pub rule: Option<String>,
    pub label: String,
    /// The first sentence of the explanation (of a rule: two), with values replaced by their kind: `<number>`, `<text>`, `<date>`, `<id>`,
    /// `<url>`, `<email>`, `<path>`.
    pub reason: String,
    /// Wrong verdicts.
    pub count: u64,
    /// Trajectories with such a verdict.
    pub trajectories: u64,
    /// These as a share of all trajectories of the run.
    pub share: f64,
    /// The first ones, at most 3.
    pub examples: Vec<FailureExample>,
}

impl GroupSubject {
    fn from_verdict(trajectory: &Trajectory, line: &OutcomeLine) -> (GroupSubject, String) {
        let at = trajectory.steps.binary_search_by_key(&line.step_index, |step| Some(step.index));
        GroupSubject::with_tool(at.ok().map(|at| trajectory.steps[at].tool.as_str()), line)
    }

    /// `tool` is the one that the step of the verdict calls.
    fn with_tool(tool: Option<&str>, line: &OutcomeLine) -> (GroupSubject, String) {
        let tool = tool.map(cut_tool_name);
        let author = if line.rule.is_some() { ReasonAuthor::Rule } else { ReasonAuthor::Model };
        let pattern = line.explanation.as_deref().map(|text| make_reason_pattern(text, author));
        let reason = pattern.filter(|reason| !reason.is_empty());
        let reason = reason.unwrap_or_else(|| NO_REASON.to_owned());
        let subject = GroupSubject {
            evaluator: line.evaluator.to_string(),
            tool,
            rule: line.rule.as_deref().map(str::to_owned),
            label: line.label.clone().unwrap_or_default(),
            reason: reason.to_lowercase(),
        };
        (subject, reason)
    }

    /// Every part with its length, so that no two subjects give the same bytes.
    fn to_key(&self) -> String {
        let parts = [
            Some(self.evaluator.as_str()),
            self.tool.as_deref(),
            self.rule.as_deref(),
            Some(self.label.as_str()),
            Some(self.reason.as_str()),
        ];
        let mut bytes = Vec::new();
        for part in parts {
            let length = part.map_or(u64::MAX, |text| text.len() as u64);
            bytes.extend_from_slice(&length.to_le_bytes());
            bytes.extend_from_slice(part.unwrap_or_default().as_bytes());
        }
        format!("{:016x}", gradus_core::stable_digest(&bytes) as u64)
    }
}

/// The failure group of one wrong verdict.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct VerdictGroup {
    /// The key, as in [`FailureGroup::key`].
    pub key: String,
    pub evaluator: String,
    pub tool: Option<String>,
    pub rule: Option<String>,
    pub label: String,
    /// The reason, as in [`FailureGroup::reason`].
    pub reason: String,
}

impl VerdictGroup {
    /// Returns the group that a wrong verdict belongs to, unless the run has so many groups that some are counted
    /// together.
    pub fn from_verdict(trajectory: &Trajectory, line: &OutcomeLine) -> VerdictGroup {
        VerdictGroup::from_subject(GroupSubject::from_verdict(trajectory, line))
    }

    /// Like [`VerdictGroup::from_verdict`], if the tool of the step is known but the trajectory is not available.
    pub fn with_tool(tool: Option<&str>, line: &OutcomeLine) -> VerdictGroup {
        VerdictGroup::from_subject(GroupSubject::with_tool(tool, line))
    }

    fn from_subject((subject, reason): (GroupSubject, String)) -> VerdictGroup {
        let key = subject.to_key();
        let GroupSubject { evaluator, tool, rule, label, .. } = subject;
        VerdictGroup { key, evaluator, tool, rule, label, reason }
    }

    /// Evaluator, tool, rule, label and reason on one line.
    pub fn description(&self) -> String {
        let parts = [Some(&self.evaluator), self.tool.as_ref(), self.rule.as_ref(), Some(&self.label)];
        let parts: Vec<&str> = parts.into_iter().flatten().map(String::as_str).collect();
        format!("{}: {}", parts.join(" "), self.reason)
    }

    /// Returns the signature of a model's reason; empty for a rule, whose reasons are templates.
    pub fn signature(&self) -> TextSignature {
        match self.rule {
            Some(_) => TextSignature::default(),
            None => TextSignature::from_text(&self.reason.to_lowercase()),
        }
    }
}

fn cut_tool_name(tool: &str) -> String {
    let end = tool.floor_char_boundary(MAX_TOOL_BYTES);
    if end < tool.len() { format!("{}…", &tool[..end]) } else { tool.to_owned() }
}

/// Collects the groups of a run, one trajectory after the other.
#[derive(Debug, Default)]
pub struct FailureGroupBuilder {
    groups: BTreeMap<GroupSubject, GroupTally>,
    trajectories: u64,
}

impl FailureGroupBuilder {
    /// Adds a trajectory with its wrong verdicts. One without any must be added, too: shares are of all trajectories.
    pub fn add<'l>(&mut self, trajectory: &Trajectory, wrong: impl IntoIterator<Item = &'l OutcomeLine>) {
        self.trajectories += 1;
        for line in wrong {
            let (mut subject, mut reason) = GroupSubject::from_verdict(trajectory, line);
            if self.groups.len() >= MAX_TRACKED_GROUPS && !self.groups.contains_key(&subject) {
                reason = OTHER_REASONS.to_owned();
                subject =
                    GroupSubject { tool: None, rule: None, label: String::new(), reason: reason.clone(), ..subject };
            }
            let tally = self.groups.entry(subject).or_insert_with(|| GroupTally {
                reason,
                count: 0,
                trajectories: Vec::new(),
                examples: Vec::new(),
            });
            tally.count += 1;
            let number = u32::try_from(self.trajectories).unwrap_or(u32::MAX);
            if tally.trajectories.last() != Some(&number) {
                tally.trajectories.push(number);
            }
            if tally.examples.len() < MAX_EXAMPLES {
                tally.examples.push(FailureExample::new(trajectory, line));
            }
        }
    }

    /// Returns all groups: the largest first, those of the same size by evaluator, tool, rule, label and reason.
    pub fn finish(self) -> Vec<FailureGroup> {
        let runs = self.trajectories.max(1) as f64;
        let mut groups: Vec<FailureGroup> = merge_similar_groups(self.groups)
            .into_iter()
            .map(|(subject, tally)| FailureGroup {
                key: subject.to_key(),
                evaluator: subject.evaluator,
                tool: subject.tool,
                rule: subject.rule,
                label: subject.label,
                reason: tally.reason,
                count: tally.count,
                trajectories: tally.trajectories.len() as u64,
                share: tally.trajectories.len() as f64 / runs,
                examples: tally.examples,
            })
            .collect();
        // The map is ordered by subject, and the sort is stable.
        groups.sort_by_key(|group| std::cmp::Reverse(group.count));
        groups
    }
}

impl FailureExample {
    fn new(trajectory: &Trajectory, line: &OutcomeLine) -> FailureExample {
        FailureExample {
            trajectory_id: line.trajectory_id.to_string(),
            trace_id: OutcomeSpans::new(trajectory, line.step_index).trace_id,
            step_index: line.step_index,
            request: trajectory.query.as_deref().map(|query| excerpt_request(query, MAX_REQUEST_CHARS)),
        }
    }
}

/// The beginning of a request on one line. Reading stops early: a request may be a whole document.
pub fn excerpt_request(request: &str, max_chars: usize) -> String {
    let mut excerpt = String::new();
    let mut left = max_chars;
    for word in request.split(|c: char| c.is_whitespace() || c.is_control()).filter(|word| !word.is_empty()) {
        if !excerpt.is_empty() {
            excerpt.push(' ');
            left = left.saturating_sub(1);
        }
        match word.char_indices().nth(left) {
            Some((end, _)) => {
                excerpt.push_str(&word[..end]);
                return format!("{}...", excerpt.trim_end());
            }
            None => {
                left -= word.chars().count();
                excerpt.push_str(word);
            }
        }
    }
    excerpt
}

#[cfg(test)]
mod tests {
    use gradus_core::trajectory::TrajectoryStep;

    use super::*;
    use crate::outcome::OutcomeKind;

    fn trajectory(id: &str) -> Trajectory {
        let step = |index, tool: &str| TrajectoryStep { index, tool: tool.to_owned(), ..TrajectoryStep::default() };
        Trajectory {
            trajectory_id: id.to_owned(),
            trace_ids: vec![format!("trace of {id}")],
            query: Some("Move my\nflight".to_owned()),
            steps: vec![step(1, "search"), step(2, "book")],
            ..Trajectory::default()
        }
    }

    fn wrong(trajectory: &str, step_index: Option<u32>, rule: Option<&'static str>, explanation: &str) -> OutcomeLine {
        OutcomeLine {
            run_id: "r".into(),
            trajectory_id: trajectory.into(),
            step_index,
            evaluator: "fit".into(),
            outcome: OutcomeKind::Scored,
            label: Some("incorrect".to_owned()),
            score: Some(0.0),
            label_probability: None,
            explanation: Some(explanation.to_owned()),
            evidence: Vec::new(),
            rule: rule.map(Into::into),
            remarks: Vec::new(),
            reason: None,
            judge: "offline".into(),
            rubric_hash: "h".into(),
            tokens: None,
            cost_usd: None,
            cached: false,
            calls: 0,
            shortened: Vec::new(),
            votes: Vec::new(),
            vote_count: None,
            disagreement: None,
            escalated: None,
            first_label: None,
            answered_by: None,
        }
    }

    fn collect(cases: &[(&str, Option<u32>, &str)]) -> Vec<FailureGroup> {
        let mut builder = FailureGroupBuilder::default();
        for (id, step, explanation) in cases {
            builder.add(&trajectory(id), &[wrong(id, *step, Some("call.schema"), explanation)]);
        }
        builder.add(&trajectory("fine"), &[]);
        builder.finish()
    }

    #[test]
    fn a_mistake_with_other_values_is_one_group() {
        let groups = collect(&[
            ("a", Some(1), "The value #12 is unknown."),
            ("b", Some(2), "The value #13 is unknown."),
            ("c", Some(1), "the value #14 is unknown"),
            ("d", None, "The value #15 is unknown."),
        ]);
        let found: Vec<_> = groups.iter().map(|group| (group.count, group.tool.as_deref(), group.share)).collect();
        assert_eq!(found, [(2, Some("search"), 0.4), (1, None, 0.2), (1, Some("book"), 0.2)]);
        let first = &groups[0];
        assert_eq!(
            (first.reason.as_str(), first.rule.as_deref()),
            ("The value <number> is unknown", Some("call.schema"))
        );
        assert_eq!(first.examples[1].trajectory_id, "c");
        assert_eq!(first.examples[0].trace_id.as_deref(), Some("trace of a"));
        assert_eq!(first.examples[0].request.as_deref(), Some("Move my flight"));
    }

    #[test]
    fn keys_do_not_depend_on_the_rest_of_the_run() {
        let one = collect(&[("a", Some(1), "The value #12 is unknown.")]);
        let two = collect(&[("x", Some(2), "Something else."), ("y", Some(1), "The value #99 is unknown.")]);
        assert!(two.iter().any(|group| group.key == one[0].key));
        assert_eq!(two.iter().filter(|group| group.key == one[0].key).count(), 1);
    }

    #[test]
    fn reasons_of_models_in_other_words_are_one_group_in_any_order() {
        let said = [
            "The agent closed the issue although the user only asked to list open issues.",
            "Although the user had only asked to list the open issues, the agent closed the issue.",
            "The agent closed the issue although the user only asked to list open issues.",
            "The agent searched the wrong repository for the file that the user named.",
        ];
        let collect = |order: &[usize], rule: Option<&'static str>| {
            let mut builder = FailureGroupBuilder::default();
            for at in order {
                let id = format!("t{at}");
                builder.add(&trajectory(&id), &[wrong(&id, Some(1), rule, said[*at])]);
            }
            let groups = builder.finish();
            groups.into_iter().map(|group| (group.key, group.count, group.trajectories)).collect::<Vec<_>>()
        };
        let found = collect(&[0, 1, 2, 3], None);
        assert_eq!(found.iter().map(|(_, count, runs)| (*count, *runs)).collect::<Vec<_>>(), [(3, 3), (1, 1)]);
        for order in [[3, 2, 1, 0], [1, 0, 3, 2], [1, 3, 0, 2]] {
            assert_eq!(collect(&order, None), found, "{order:?}");
        }
        // Rules write templates: another one is another mistake.
        assert_eq!(collect(&[0, 1, 2, 3], Some("call.schema")).len(), 3);
    }

    #[test]
    fn the_order_of_the_source_changes_nothing_but_examples() {
        let cases = [("a", Some(1), "One."), ("b", Some(2), "Two."), ("c", Some(2), "Two."), ("d", None, "Three.")];
        let mut reversed = cases;
        reversed.reverse();
        let keys = |groups: Vec<FailureGroup>| groups.into_iter().map(|group| group.key).collect::<Vec<_>>();
        assert_eq!(keys(collect(&cases)), keys(collect(&reversed)));
    }

    #[test]
    fn memory_is_bounded_and_nothing_is_lost() {
        let mut builder = FailureGroupBuilder::default();
        let word =
            |number: usize| -> String { number.to_string().bytes().map(|digit| char::from(digit + 49)).collect() };
        for number in 0..MAX_TRACKED_GROUPS + 500 {
            let id = format!("t{number}");
            builder.add(&trajectory(&id), &[wrong(&id, Some(1), None, &format!("Reason {}", word(number)))]);
        }
        let groups = builder.finish();
        assert_eq!(groups.len(), MAX_TRACKED_GROUPS + 1);
        assert_eq!((groups[0].reason.as_str(), groups[0].count), (OTHER_REASONS, 500));
        assert_eq!(groups[0].examples.len(), MAX_EXAMPLES);
        assert_eq!(groups.iter().map(|group| group.count).sum::<u64>(), (MAX_TRACKED_GROUPS + 500) as u64);
    }

    #[test]
    fn requests_are_cut_between_characters() {
        assert_eq!(excerpt_request("a  b\n c", 10), "a b c");
        assert_eq!(excerpt_request("ééééé", 3), "ééé...");
        assert_eq!(excerpt_request(&"x ".repeat(100_000), 5), "x x x...");
        assert_eq!(excerpt_request("abc", 3), "abc");
    }
}
