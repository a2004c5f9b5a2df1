//! The offline judge: fixed rules, no model, no network. The same trajectory always gets the same opinions, and
//! where rules cannot tell, it says so.

mod call;
mod failure;
mod identifiers;
mod intention;
mod quote;
mod repetition;
mod schema;
mod sequence;
mod thought;
mod tools;
mod topic;
mod values;
mod vocabulary;
mod words;

#[cfg(test)]
mod tests;

use std::sync::{Arc, OnceLock};

use gradus_core::trajectory::{Step, Trajectory};

pub use repetition::{Call, is_repetition};
pub use tools::ToolIndex;

use quote::head;
use tools::Tool;
use words::Text;

/// What is looked at of each earlier observation.
const OBSERVATION: usize = 20_000;

/// What the rules make of one question.
#[derive(Clone, Debug, PartialEq)]
pub enum Opinion {
    Good {
        explanation: String,
        evidence: Vec<String>,
    },
    Bad {
        explanation: String,
        evidence: Vec<String>,
    },
    /// The question arises, and the rules cannot tell.
    CannotJudge {
        reason: String,
    },
    /// The question does not arise: no thought, no query, no steps.
    NotApplicable {
        reason: String,
    },
}

impl Opinion {
    fn good(explanation: impl Into<String>, evidence: Vec<String>) -> Opinion {
        Opinion::Good { explanation: explanation.into(), evidence }
    }

    fn bad(explanation: impl Into<String>, evidence: Vec<String>) -> Opinion {
        Opinion::Bad { explanation: explanation.into(), evidence }
    }

    fn cannot(reason: impl Into<String>) -> Opinion {
        Opinion::CannotJudge { reason: reason.into() }
    }

    fn not_applicable(reason: impl Into<String>) -> Opinion {
        Opinion::NotApplicable { reason: reason.into() }
    }
}

/// The rules, prepared for one trajectory.
#[derive(Debug)]
pub struct Offline<'t> {
    trajectory: &'t Trajectory,
    index: Arc<ToolIndex>,
    query: OnceLock<Option<Text<'t>>>,
    thoughts: Vec<OnceLock<Option<Text<'t>>>>,
    /// How well each tool fits the request.
    query_fits: OnceLock<Vec<f32>>,
    /// The tools whose subject the request names.
    asked_tools: OnceLock<Vec<usize>>,
    /// Whether the trace's list of tools can be trusted to be all that were on offer.
    lists_all: OnceLock<bool>,
}

impl<'t> Offline<'t> {
    pub fn new(trajectory: &'t Trajectory) -> Self {
        let called = trajectory.steps.iter().map(|step| step.tool.as_str());
        let index = Arc::new(ToolIndex::with_called(&trajectory.tools, called));
        Offline::prepared(trajectory, index)
    }

    /// For trajectories that offer the same tools: `index` is `ToolIndex::new(&trajectory.tools)`, made once.
    pub fn with_index(trajectory: &'t Trajectory, index: &Arc<ToolIndex>) -> Self {
        if trajectory.steps.iter().any(|step| index.find(&step.tool).is_none()) {
            return Offline::new(trajectory);
        }
        Offline::prepared(trajectory, Arc::clone(index))
    }

    fn prepared(trajectory: &'t Trajectory, index: Arc<ToolIndex>) -> Self {
        let thoughts = trajectory.steps.iter().map(|_| OnceLock::new()).collect();
        Offline {
            trajectory,
            index,
            query: OnceLock::new(),
            thoughts,
            query_fits: OnceLock::new(),
            asked_tools: OnceLock::new(),
            lists_all: OnceLock::new(),
        }
    }

    /// Does the tool, on these things, do what the thought says?
    pub fn thought_to_tool(&self, step: usize) -> Opinion {
        thought::judge(self, step)
    }

    /// Is the thought about the request?
    pub fn query_to_thought(&self, step: usize) -> Opinion {
        topic::judge(self, step)
    }

    /// Was this a straight way to the answer?
    pub fn sequence_optimality(&self) -> Opinion {
        sequence::judge(self)
    }

    /// Is this a call that the tool can take and, where no thought says why it was made, that fits the request?
    pub fn call_validity(&self, step: usize) -> Opinion {
        call::judge(self, step)
    }

    fn step(&self, at: usize) -> Option<&'t Step> {
        self.trajectory.steps.get(at)
    }

    /// `None` when the step has no thought.
    fn thought(&self, at: usize) -> Option<&Text<'t>> {
        let text = || {
            let thought = self.step(at)?.thought.as_deref()?;
            (!thought.trim().is_empty()).then(|| Text::new(thought))
        };
        self.thoughts.get(at)?.get_or_init(text).as_ref()
    }

    fn query(&self) -> Option<&Text<'t>> {
        let text =
            || self.trajectory.query.as_deref().filter(|query| !query.trim().is_empty()).map(Text::new);
        self.query.get_or_init(text).as_ref()
    }

    fn query_fits(&self) -> &[f32] {
        self.query_fits.get_or_init(|| self.query().map(|query| self.index.fits(query)).unwrap_or_default())
    }

    fn asked_tools(&self) -> impl Iterator<Item = &Tool> {
        let find = || {
            let named = |tool: &Tool| {
                self.query().is_some_and(|query| tool.named_nouns(query) > 0.99) && !tool.serves_any()
            };
            self.index.tools.iter().enumerate().filter(|(_, tool)| named(tool)).map(|(at, _)| at).collect()
        };
        self.asked_tools.get_or_init(find).iter().filter_map(|at| self.index.tools.get(*at))
    }

    fn tool(&self, step: &Step) -> Option<(usize, &Tool)> {
        let at = self.index.find(&step.tool)?;
        Some((at, self.index.tools.get(at)?))
    }

    /// The steps just before, newest first: what a thought may refer to. Bounded, so that long runs stay linear.
    fn before(&self, at: usize) -> impl Iterator<Item = &'t Step> {
        self.trajectory.steps[..at.min(self.trajectory.steps.len())].iter().rev().take(64)
    }

    /// Whether a step before brought this up.
    fn seen_before(&self, at: usize, text: &str) -> bool {
        self.before(at).any(|step| {
            step.observation
                .as_deref()
                .is_some_and(|observation| head(observation, OBSERVATION).contains(text))
                || values::scalars(step).iter().any(|(_, value)| value.contains(text))
        })
    }

    /// The calls of the same reply share their thought, and one of them may be what it speaks of.
    fn same_reply(&self, at: usize) -> impl Iterator<Item = (usize, &'t Step)> {
        let steps = &self.trajectory.steps;
        let mut first = at;
        while first > 0 && at - first < 50 && steps.get(first).is_some_and(|step| step.parallel_with_previous)
        {
            first -= 1;
        }
        let rest = steps.iter().enumerate().skip(first).take(100);
        rest.take_while(move |(other, step)| *other == first || step.parallel_with_previous)
    }
}
