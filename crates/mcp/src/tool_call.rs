//! One call of a tool: arguments in, the text of an answer out.

use gradus_core::whitespace::collapse_whitespace;
use jiff::Timestamp;
use serde::de::DeserializeOwned;
use serde_json::{Map, Value};

use crate::archive::{ArchiveError, LabelSource, NewRunLabel, RunArchive};
use crate::arguments::{
    CompareToolArguments, DecidedBy, ExplainGateArguments, FindRunsArguments, FlaggedArguments, GetRunArguments,
    LabelStepArguments, ListEvaluationsArguments, non_empty_text,
};
use crate::comparison_text::render_comparison;
use crate::evaluation_text::render_evaluations;
use crate::failure_text::{render_failure_groups, render_worst_steps};
use crate::gate_text::render_gates;
use crate::recorded_text::quote_name;
use crate::run_list_text::render_found_runs;
use crate::tool_catalog::LABEL_STEP;
use crate::transcript_text::render_run;

/// Maximum bytes of an error. Errors can repeat arguments.
const MAX_ERROR_BYTES: usize = 600;

/// A call with parsed arguments. [`McpToolCall::perform`] may take long.
#[derive(Debug)]
pub struct McpToolCall(ToolRequest);

#[derive(Debug)]
enum ToolRequest {
    ListEvaluations(ListEvaluationsArguments),
    FindRuns(FindRunsArguments),
    GetRun(GetRunArguments),
    FailureGroups(FlaggedArguments),
    WorstSteps(FlaggedArguments),
    Compare(CompareToolArguments),
    ExplainGate(ExplainGateArguments),
    LabelStep(LabelStepArguments),
}

/// Why a call has no answer. It is sent as the result of the tool, so that the assistant can correct itself.
#[derive(Debug, thiserror::Error)]
pub enum ToolError {
    #[error("{tool}: no such tool")]
    UnknownTool { tool: String },
    #[error("{tool}: {source}")]
    Arguments { tool: String, source: serde_json::Error },
    #[error(transparent)]
    Archive(#[from] ArchiveError),
    /// The call was not performed: the server is overloaded, or the client has disconnected.
    #[error("{reason}")]
    NotPerformed { reason: String },
}

impl ToolError {
    /// Formats the error as one bounded line.
    pub fn to_line(&self) -> String {
        let line = collapse_whitespace(&self.to_string());
        let line = gradus_core::visible::reveal_invisible(&line).into_owned();
        let end = line.floor_char_boundary(MAX_ERROR_BYTES);
        if end < line.len() { format!("{}…", &line[..end]) } else { line }
    }
}

impl McpToolCall {
    /// Reads the arguments of a call. `label_step` is unknown unless labels are allowed.
    pub fn parse(tool: &str, arguments: Map<String, Value>, allows_labels: bool) -> Result<McpToolCall, ToolError> {
        Ok(McpToolCall(match tool {
            "list_evaluations" => ToolRequest::ListEvaluations(read_arguments(tool, arguments)?),
            "find_runs" => ToolRequest::FindRuns(read_arguments(tool, arguments)?),
            "get_run" => ToolRequest::GetRun(read_arguments(tool, arguments)?),
            "failure_groups" => ToolRequest::FailureGroups(read_arguments(tool, arguments)?),
            "worst_steps" => ToolRequest::WorstSteps(read_arguments(tool, arguments)?),
            "compare" => ToolRequest::Compare(read_arguments(tool, arguments)?),
            "explain_gate" => ToolRequest::ExplainGate(read_arguments(tool, arguments)?),
            LABEL_STEP if allows_labels => ToolRequest::LabelStep(read_arguments(tool, arguments)?),
            _ => return Err(ToolError::UnknownTool { tool: quote_name(tool) }),
        }))
    }

    /// Whether the call writes to the archive.
    pub fn is_write(&self) -> bool {
        matches!(self.0, ToolRequest::LabelStep(_))
    }

    /// Performs the call and returns the text of the answer. It blocks.
    pub fn perform(&self, archive: &dyn RunArchive) -> Result<String, ToolError> {
        let now = Timestamp::now();
        Ok(match &self.0 {
            ToolRequest::ListEvaluations(arguments) => render_evaluations(archive, arguments)?,
            ToolRequest::FindRuns(arguments) => render_found_runs(archive, arguments, now)?,
            ToolRequest::GetRun(arguments) => render_run(archive, arguments)?,
            ToolRequest::FailureGroups(arguments) => render_failure_groups(archive, arguments, now)?,
            ToolRequest::WorstSteps(arguments) => render_worst_steps(archive, arguments, now)?,
            ToolRequest::Compare(arguments) => render_comparison(archive, arguments)?,
            ToolRequest::ExplainGate(arguments) => render_gates(archive, arguments)?,
            ToolRequest::LabelStep(arguments) => store_label(archive, arguments)?,
        })
    }
}

fn read_arguments<A: DeserializeOwned>(tool: &str, arguments: Map<String, Value>) -> Result<A, ToolError> {
    serde_json::from_value(Value::Object(arguments))
        .map_err(|source| ToolError::Arguments { tool: tool.to_owned(), source })
}

fn store_label(archive: &dyn RunArchive, arguments: &LabelStepArguments) -> Result<String, ArchiveError> {
    let label = NewRunLabel {
        evaluation: non_empty_text(&arguments.evaluation),
        run_id: arguments.run.trim().to_owned(),
        step_index: arguments.step,
        evaluator: arguments.evaluator.trim().to_owned(),
        label: arguments.label.trim().to_owned(),
        explanation: non_empty_text(&arguments.why),
        source: match arguments.decided_by {
            DecidedBy::Person => LabelSource::Person,
            DecidedBy::Assistant => LabelSource::Assistant,
        },
    };
    let place = archive.store_label(&label)?;
    let subject = label.step_index.map_or_else(|| "the whole run".to_owned(), |step| format!("step {step}"));
    let (evaluator, value) = (quote_name(&label.evaluator), quote_name(&label.label));
    Ok(format!("stored in {place}: {evaluator}={value} for {subject}"))
}
