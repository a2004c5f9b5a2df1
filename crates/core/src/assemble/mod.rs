//! Assembly: spans become trajectories.
//!
//! `link` decides, before anything else, which traces belong together. `tree` orders the spans of such a group and
//! folds spans that record the same call; `run_messages` gives a run's messages to calls without any, and
//! `stored_thoughts` gives tools the words that a framework stored. `runs` finds the requests in it, `conversations`
//! those of plain clients, and `nested` the agents inside agents. `steps` reads the thoughts, calls and observations of
//! each request; `joins` and `observations` find the results, and `code` reads agents that act by writing code.
//! `request_and_answer` finds the query and the answer, `tools` the tools on offer, and `turns` the conversation before
//! the request.
//!
//! The result does not depend on the order in which spans arrived. Everything is near linear in the size of the group:
//! what hostile input could make quadratic is looked up by key or bounded by a constant, and `budget` limits the
//! memory.

mod agent_run;
mod budget;
mod code;
mod code_reply;
mod conversations;
mod joins;
mod link;
mod messages;
mod nested;
mod observations;
mod repeated_turns;
mod reply_text;
mod request_and_answer;
mod requested_call;
mod run_messages;
mod runs;
mod steps;
mod stored_thoughts;
mod tools;
mod tree;
mod turns;
mod usage;

pub use link::{LinkKey, TraceLink, TraceLinker, hash_session};
pub use messages::{assemble_messages, assemble_transcript, record_missing_parts};
pub use tools::parse_tool_definitions as tool_definitions;

use crate::span::Span;
use crate::trajectory::{DefectKind, ExtractionDefect, Trajectory};

/// The trajectories of a group of spans, in order of time.
#[derive(Clone, Debug, Default)]
pub struct AssemblyOutput {
    pub trajectories: Vec<Trajectory>,
    /// Defects of spans that are in no trajectory.
    pub defects: Vec<ExtractionDefect>,
}

/// Assembles groups of spans one after the other. Keeps parsed tool lists between groups, so one assembler per thread
/// should be reused.
#[derive(Clone, Debug)]
pub struct TrajectoryAssembler {
    tools: tools::ToolCache,
    system_prompts: turns::SystemPromptCache,
    max_trajectories: usize,
}

impl Default for TrajectoryAssembler {
    fn default() -> Self {
        TrajectoryAssembler::with_max_trajectories(usize::MAX)
    }
}

impl TrajectoryAssembler {
    /// An assembler that builds at most this many trajectories of one group, the earliest ones, and reports the rest as
    /// one defect. Bounds the output of a hostile trace.
    pub fn with_max_trajectories(max_trajectories: usize) -> TrajectoryAssembler {
        TrajectoryAssembler {
            tools: tools::ToolCache::default(),
            system_prompts: turns::SystemPromptCache::default(),
            max_trajectories,
        }
    }

    /// Assembles the spans of traces that belong together. The order and repetition of spans do not change the result.
    pub fn assemble(&mut self, spans: &[Span<'_>]) -> AssemblyOutput {
        let mut tree = tree::SpanTree::build(spans);
        run_messages::fill_silent_calls(&mut tree);
        stored_thoughts::attach_stored_thoughts(&mut tree);
        tree.read_free_texts();
        let (mut runs, mut defects) = runs::find_runs(&tree);
        if tree.budget.cut_spans() > 0 {
            let detail = format!(
                "the messages of {} spans were left out: there are more than are read of one trace",
                tree.budget.cut_spans()
            );
            defects.push(ExtractionDefect::new(DefectKind::TooLarge, detail, None));
        }
        // Runs are in order of time, so the earliest ones are kept.
        let left_out = runs.len().saturating_sub(self.max_trajectories);
        if left_out > 0 {
            runs.truncate(self.max_trajectories);
            let detail = format!("{left_out} more trajectories in this trace are left out");
            defects.push(ExtractionDefect::new(DefectKind::TooLarge, detail, None));
        }
        let mut trajectories: Vec<Trajectory> = Vec::with_capacity(runs.len());
        for run in &runs {
            let mut trajectory = steps::extract_trajectory(&tree, run);
            trajectory.tools = self.tools.tools_for_run(&tree, run);
            self.system_prompts.set_system_prompt(&tree, run, &mut trajectory);
            trajectories.push(trajectory);
        }
        runs::link_nested_runs(&tree, &runs, &mut trajectories);
        repeated_turns::link_turns(&runs, &mut trajectories);
        AssemblyOutput { trajectories, defects }
    }
}
