//! Coverage: how much of a source could be read. These are the numbers to check before paying for a judge.

use std::collections::BTreeMap;

use schemars::JsonSchema;
use serde::Serialize;

use crate::trajectory::{DefectKind, ExtractionDefect, Trajectory};

/// What was found in one source, or in all of them.
#[derive(Clone, Debug, Default, PartialEq, Serialize, JsonSchema)]
#[schemars(rename = "Coverage")]
pub struct SourceCoverage {
    pub source: String,
    pub traces: u64,
    pub spans: u64,
    pub log_records: u64,
    /// Message lists, transcripts and trajectories in our own format.
    pub documents: u64,
    /// Turns that a resumed session repeats from another file; they count once.
    #[serde(skip_serializing_if = "is_zero")]
    pub repeated_turns: u64,
    /// Runs of an agent that answer no request, such as those by which Claude Code warms a cache. They are left out.
    #[serde(skip_serializing_if = "is_zero")]
    pub unrequested_runs: u64,
    pub unreadable_records: u64,
    /// Files of a folder that are no traces.
    pub skipped_files: u64,
    /// The first of them, each with the reason.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub skipped_examples: Vec<String>,
    pub trajectories: u64,
    pub trajectories_with_query: u64,
    pub trajectories_with_answer: u64,
    pub trajectories_with_tools: u64,
    pub steps: u64,
    pub steps_with_thought: u64,
    pub steps_with_tool: u64,
    pub steps_with_arguments: u64,
    pub steps_with_observation: u64,
    pub steps_with_error: u64,
    pub defects: BTreeMap<DefectKind, DefectCount>,
}

fn is_zero(count: &u64) -> bool {
    *count == 0
}

/// One class of defects.
#[derive(Clone, Debug, Default, PartialEq, Serialize, JsonSchema)]
pub struct DefectCount {
    pub count: u64,
    /// The first few places: a trajectory's id, else the detail.
    pub examples: Vec<String>,
}

/// Maximum number of skipped files that are listed. A folder can have millions.
const MAX_SKIPPED_EXAMPLES: usize = 200;

/// Maximum number of examples per kind of defect: enough to find the cause.
const MAX_EXAMPLES: usize = 3;

impl SourceCoverage {
    /// Empty coverage of a source with this name.
    pub fn new(source: impl Into<String>) -> Self {
        SourceCoverage { source: source.into(), ..SourceCoverage::default() }
    }

    /// Counts a trajectory with its steps and defects.
    pub fn add(&mut self, trajectory: &Trajectory) {
        self.trajectories += 1;
        self.trajectories_with_query += u64::from(trajectory.query.is_some());
        self.trajectories_with_answer += u64::from(trajectory.final_answer.is_some());
        self.trajectories_with_tools += u64::from(!trajectory.tools.is_empty());
        for step in &trajectory.steps {
            self.steps += 1;
            self.steps_with_thought += u64::from(step.thought.is_some());
            self.steps_with_tool += u64::from(!step.tool.is_empty());
            self.steps_with_arguments += u64::from(step.arguments.is_some() || step.arguments_raw.is_some());
            self.steps_with_observation += u64::from(step.observation.is_some());
            self.steps_with_error += u64::from(step.is_error);
        }
        for defect in &trajectory.defects {
            self.count_defect(defect.kind, &trajectory.trajectory_id);
        }
    }

    /// Counts a file that is no trace. `reason` begins with its name.
    pub fn add_skipped_file(&mut self, reason: &str) {
        self.skipped_files += 1;
        if self.skipped_examples.len() < MAX_SKIPPED_EXAMPLES {
            self.skipped_examples.push(reason.to_owned());
        }
    }

    /// Counts a defect that belongs to no trajectory.
    pub fn add_defect(&mut self, defect: &ExtractionDefect) {
        let example = defect.span_id.as_deref().unwrap_or(&defect.detail);
        self.count_defect(defect.kind, example);
    }

    /// Counts one defect and keeps its location as an example.
    fn count_defect(&mut self, kind: DefectKind, example: &str) {
        let class = self.defects.entry(kind).or_default();
        class.count += 1;
        // One trajectory can have the same defect many times; it is one example.
        if class.examples.len() < MAX_EXAMPLES && !class.examples.iter().any(|known| known == example) {
            class.examples.push(example.to_owned());
        }
    }

    /// Adds the numbers of another source, for the total. Keeps the name of this one.
    pub fn merge(&mut self, other: &SourceCoverage) {
        self.traces += other.traces;
        self.spans += other.spans;
        self.log_records += other.log_records;
        self.documents += other.documents;
        self.repeated_turns += other.repeated_turns;
        self.unrequested_runs += other.unrequested_runs;
        self.unreadable_records += other.unreadable_records;
        self.skipped_files += other.skipped_files;
        let room = MAX_SKIPPED_EXAMPLES.saturating_sub(self.skipped_examples.len());
        self.skipped_examples.extend(other.skipped_examples.iter().take(room).cloned());
        self.trajectories += other.trajectories;
        self.trajectories_with_query += other.trajectories_with_query;
        self.trajectories_with_answer += other.trajectories_with_answer;
        self.trajectories_with_tools += other.trajectories_with_tools;
        self.steps += other.steps;
        self.steps_with_thought += other.steps_with_thought;
        self.steps_with_tool += other.steps_with_tool;
        self.steps_with_arguments += other.steps_with_arguments;
        self.steps_with_observation += other.steps_with_observation;
        self.steps_with_error += other.steps_with_error;
        for (kind, class) in &other.defects {
            let into = self.defects.entry(*kind).or_default();
            into.count += class.count;
            let room = MAX_EXAMPLES.saturating_sub(into.examples.len());
            into.examples.extend(class.examples.iter().take(room).cloned());
        }
    }
}
