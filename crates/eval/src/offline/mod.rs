//! The offline judge: fixed rules, without a model and a network. The same trajectory always gets the same verdicts.
//! Where the rules cannot decide, the judge says so instead of guessing.
//!
//! All texts are untrusted and may be very long, so every rule bounds what it looks at and runs in time linear in the
//! trajectory.

mod call;
mod excerpt;
mod failure;
mod identifiers;
mod intention;
mod repetition;
mod schema;
mod sequence;
mod thought;
mod tools;
mod topic;
mod values;
mod vocabulary;
mod word_form;
mod words;

#[cfg(test)]
mod tests;

use std::hash::BuildHasher;
use std::sync::{Arc, OnceLock};

use foldhash::fast::RandomState;
use gradus_core::trajectory::{Trajectory, TrajectoryStep};

pub use repetition::{ComparedCall, is_repetition};
pub use tools::ToolIndex;

use excerpt::take_prefix;
use failure::{ToolFailureKind, classify_tool_failure};
use schema::SchemaViolation;
use tools::IndexedTool;
use topic::AskedStems;
use values::ScalarArgument;
use words::AnalyzedText;

/// How many bytes of each earlier observation are searched.
const OBSERVATION: usize = 20_000;

/// The answer of the rules to one question.
#[derive(Clone, Debug, PartialEq)]
pub enum OfflineVerdict {
    Good {
        explanation: String,
        evidence: Vec<String>,
    },
    Bad {
        explanation: String,
        evidence: Vec<String>,
    },
    /// The question applies, and the rules cannot decide it.
    CannotJudge {
        reason: String,
    },
    /// The question does not apply: there is no thought, no query or no step.
    NotApplicable {
        reason: String,
    },
}

impl OfflineVerdict {
    fn good(explanation: impl Into<String>, evidence: Vec<String>) -> OfflineVerdict {
        OfflineVerdict::Good { explanation: explanation.into(), evidence }
    }

    fn bad(explanation: impl Into<String>, evidence: Vec<String>) -> OfflineVerdict {
        OfflineVerdict::Bad { explanation: explanation.into(), evidence }
    }

    fn cannot_judge(reason: impl Into<String>) -> OfflineVerdict {
        OfflineVerdict::CannotJudge { reason: reason.into() }
    }

    fn not_applicable(reason: impl Into<String>) -> OfflineVerdict {
        OfflineVerdict::NotApplicable { reason: reason.into() }
    }
}

/// The rules, prepared for one trajectory. Results are computed on first use and kept, because many rules ask for them.
#[derive(Debug)]
pub struct OfflineJudge<'t> {
    trajectory: &'t Trajectory,
    index: Arc<ToolIndex>,
    query: OnceLock<Option<AnalyzedText<'t>>>,
    asked_stems: OnceLock<AskedStems>,
    steps: Vec<StepFeatures<'t>>,
    /// The hash seed of stem fingerprints. It differs per process and never influences a verdict.
    prints: RandomState,
    /// How well each tool fits the request, by index of the tool.
    query_fits: OnceLock<Vec<f32>>,
    /// Tools whose subject the request names.
    asked_tools: OnceLock<Vec<usize>>,
    /// Whether the trace's list of tools is complete, so that a tool that is missing from it did not exist.
    lists_all: OnceLock<bool>,
}

fn unwrap_verdict(opinion: Option<&OfflineVerdict>) -> OfflineVerdict {
    opinion.cloned().unwrap_or_else(|| OfflineVerdict::not_applicable("There is no such step."))
}

/// Analysis of one step, computed on first use: many rules need it, and again for each later step.
#[derive(Debug, Default)]
struct StepFeatures<'t> {
    thought: OnceLock<Option<AnalyzedText<'t>>>,
    /// How well each tool fits the thought.
    thought_fits: OnceLock<Vec<f32>>,
    scalars: OnceLock<Vec<ScalarArgument<'t>>>,
    failure: OnceLock<Option<ToolFailureKind>>,
    problems: OnceLock<Vec<SchemaViolation>>,
    brought_up: OnceLock<Vec<u64>>,
    choice: OnceLock<OfflineVerdict>,
    topic: OnceLock<OfflineVerdict>,
    validity: OnceLock<OfflineVerdict>,
}

impl<'t> OfflineJudge<'t> {
    /// Indexes the tools of the trajectory, including called ones that the trace does not list.
    pub fn new(trajectory: &'t Trajectory) -> Self {
        let called = trajectory.steps.iter().map(|step| step.tool.as_str());
        let index = Arc::new(ToolIndex::with_called(&trajectory.tools, called));
        OfflineJudge::from_tool_index(trajectory, index)
    }

    /// For trajectories that offer the same tools: `index` is `ToolIndex::new(&trajectory.tools)`, made once. If a step
    /// calls a tool that is not in it, an index of its own is built.
    pub fn with_index(trajectory: &'t Trajectory, index: &Arc<ToolIndex>) -> Self {
        if trajectory.steps.iter().any(|step| index.find(&step.tool).is_none()) {
            return OfflineJudge::new(trajectory);
        }
        OfflineJudge::from_tool_index(trajectory, Arc::clone(index))
    }

    fn from_tool_index(trajectory: &'t Trajectory, index: Arc<ToolIndex>) -> Self {
        OfflineJudge {
            trajectory,
            index,
            query: OnceLock::new(),
            asked_stems: OnceLock::new(),
            steps: trajectory.steps.iter().map(|_| StepFeatures::default()).collect(),
            prints: RandomState::default(),
            query_fits: OnceLock::new(),
            asked_tools: OnceLock::new(),
            lists_all: OnceLock::new(),
        }
    }

    /// Whether the called tool and its arguments do what the thought announces. `step` counts from 0 here and below.
    pub fn thought_to_tool(&self, step: usize) -> OfflineVerdict {
        unwrap_verdict(self.tool_choice_verdict(step))
    }

    /// Whether the thought is about the request.
    pub fn query_to_thought(&self, step: usize) -> OfflineVerdict {
        unwrap_verdict(self.topic_verdict(step))
    }

    /// Whether the steps led to the answer without detours.
    pub fn sequence_optimality(&self) -> OfflineVerdict {
        sequence::judge_sequence(self)
    }

    /// Whether the tool accepts the call and, if no thought explains it, whether the tool fits the request.
    pub fn call_validity(&self, step: usize) -> OfflineVerdict {
        unwrap_verdict(self.validity_verdict(step))
    }

    /// The cached verdict of [`OfflineJudge::thought_to_tool`]; `None` if there is no such step.
    fn tool_choice_verdict(&self, at: usize) -> Option<&OfflineVerdict> {
        Some(self.steps.get(at)?.choice.get_or_init(|| thought::judge_tool_choice(self, at)))
    }

    fn topic_verdict(&self, at: usize) -> Option<&OfflineVerdict> {
        Some(self.steps.get(at)?.topic.get_or_init(|| topic::judge_topic(self, at)))
    }

    fn validity_verdict(&self, at: usize) -> Option<&OfflineVerdict> {
        Some(self.steps.get(at)?.validity.get_or_init(|| call::judge_call_validity(self, at)))
    }

    fn step(&self, at: usize) -> Option<&'t TrajectoryStep> {
        self.trajectory.steps.get(at)
    }

    /// `None` if the step has no thought or a blank one.
    fn thought(&self, at: usize) -> Option<&AnalyzedText<'t>> {
        let text = || {
            let thought = self.step(at)?.thought.as_deref()?;
            (!thought.trim().is_empty()).then(|| AnalyzedText::new(thought))
        };
        self.steps.get(at)?.thought.get_or_init(text).as_ref()
    }

    fn thought_fits(&self, at: usize) -> &[f32] {
        let fits = || self.thought(at).map(|thought| self.index.score_tools(thought)).unwrap_or_default();
        self.steps.get(at).map_or(&[], |step| step.thought_fits.get_or_init(fits))
    }

    /// The scalar arguments of a step.
    fn scalar_arguments(&self, at: usize) -> &[ScalarArgument<'t>] {
        let scalars = || self.step(at).map(values::collect_scalars).unwrap_or_default();
        self.steps.get(at).map_or(&[], |step| step.scalars.get_or_init(scalars))
    }

    fn failure(&self, at: usize) -> Option<ToolFailureKind> {
        *self.steps.get(at)?.failure.get_or_init(|| classify_tool_failure(self.step(at)?))
    }

    /// Whether the call returned a result that is not an error.
    fn has_succeeded(&self, at: usize) -> bool {
        self.step(at).is_some_and(|step| step.observation.is_some()) && self.failure(at).is_none()
    }

    /// Violations of the called tool's schema.
    fn schema_violations(&self, at: usize) -> &[SchemaViolation] {
        self.steps.get(at).map_or(&[], |step| step.problems.get_or_init(|| call::find_schema_violations(self, at)))
    }

    /// Sorted fingerprints of the words that a step brought up.
    fn brought_up(&self, at: usize) -> &[u64] {
        let prints = || {
            self.step(at).map(|step| topic::brought_up(step, |stem| self.fingerprint_stem(stem))).unwrap_or_default()
        };
        self.steps.get(at).map_or(&[], |step| step.brought_up.get_or_init(prints))
    }

    /// A 64-bit fingerprint of a stem, which is much smaller where many are kept.
    fn fingerprint_stem(&self, stem: &str) -> u64 {
        self.prints.hash_one(stem)
    }

    fn asked_stems(&self) -> &AskedStems {
        self.asked_stems.get_or_init(|| self.query().map(AskedStems::from_query).unwrap_or_default())
    }

    fn query(&self) -> Option<&AnalyzedText<'t>> {
        let text = || self.trajectory.query.as_deref().filter(|query| !query.trim().is_empty()).map(AnalyzedText::new);
        self.query.get_or_init(text).as_ref()
    }

    fn query_fits(&self) -> &[f32] {
        self.query_fits.get_or_init(|| self.query().map(|query| self.index.score_tools(query)).unwrap_or_default())
    }

    fn asked_tools(&self) -> impl Iterator<Item = &IndexedTool> {
        let find = || {
            let named = |tool: &IndexedTool| {
                self.query().is_some_and(|query| tool.named_nouns(query) > 0.99) && !tool.serves_any()
            };
            self.index.tools.iter().enumerate().filter(|(_, tool)| named(tool)).map(|(at, _)| at).collect()
        };
        self.asked_tools.get_or_init(find).iter().filter_map(|at| self.index.tools.get(*at))
    }

    fn find_tool(&self, step: &TrajectoryStep) -> Option<(usize, &IndexedTool)> {
        let at = self.index.find(&step.tool)?;
        Some((at, self.index.tools.get(at)?))
    }

    /// The previous steps, newest first, which a thought may refer to. At most 64, so that long trajectories stay
    /// linear.
    fn steps_before(&self, at: usize) -> impl Iterator<Item = (usize, &'t TrajectoryStep)> {
        self.trajectory.steps[..at.min(self.trajectory.steps.len())].iter().enumerate().rev().take(64)
    }

    /// Whether an earlier step contains this text, in its arguments or its result.
    fn seen_before(&self, at: usize, text: &str) -> bool {
        self.steps_before(at).any(|(before, step)| {
            step.observation.as_deref().is_some_and(|observation| take_prefix(observation, OBSERVATION).contains(text))
                || self.scalar_arguments(before).iter().any(|scalar| scalar.value.contains(text))
        })
    }

    /// The calls of the same model reply. They share a thought, and any of them may be the one that it announces.
    fn same_reply(&self, at: usize) -> impl Iterator<Item = (usize, &'t TrajectoryStep)> {
        let steps = &self.trajectory.steps;
        let mut first = at;
        while first > 0 && at - first < 50 && steps.get(first).is_some_and(|step| step.parallel_with_previous) {
            first -= 1;
        }
        let rest = steps.iter().enumerate().skip(first).take(100);
        rest.take_while(move |(other, step)| *other == first || step.parallel_with_previous)
    }
}
