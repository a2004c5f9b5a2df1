//! Arguments of the tools. Their doc comments are the descriptions that assistants read, and unknown fields are
//! refused, so that a misspelt filter does not answer about everything.

use jiff::Timestamp;
use schemars::JsonSchema;
use serde::Deserialize;

use crate::archive::{ArchiveError, TrafficName};
use crate::run_filter::RunFilter;
use crate::time_bound::parse_time_bound;

#[derive(Debug, Default, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub(crate) struct ListEvaluationsArguments {
    /// How many to list, 1 to 50.
    #[schemars(range(min = 1, max = 50))]
    pub(crate) limit: Option<usize>,
    /// The value of `more:` of the answer before.
    pub(crate) cursor: Option<String>,
}

#[derive(Debug, Default, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub(crate) struct FindRunsArguments {
    /// Id or name of an evaluation. Without it: live traffic on a server, the latest evaluation elsewhere.
    pub(crate) evaluation: Option<String>,
    /// Only runs with a wrong verdict.
    pub(crate) flagged: Option<bool>,
    /// Only runs with this verdict: `incorrect`, or with its evaluator, `thought_to_tool=incorrect`.
    pub(crate) label: Option<String>,
    /// Only runs that call this tool.
    pub(crate) tool: Option<String>,
    /// Only runs that ended in an error (true) or did not (false).
    pub(crate) error: Option<bool>,
    /// Only runs that contain all of these words.
    pub(crate) text: Option<String>,
    /// Only runs of this project.
    pub(crate) project: Option<String>,
    /// Only runs of this agent.
    pub(crate) agent: Option<String>,
    /// Only runs that began at this time or later: `24h`, `7d`, or `2026-11-15T08:00:00Z`.
    pub(crate) since: Option<String>,
    /// Only runs that began before this time.
    pub(crate) until: Option<String>,
    /// How many to list, 1 to 100.
    #[schemars(range(min = 1, max = 100))]
    pub(crate) limit: Option<usize>,
    /// The value of `more:` of the answer before, with the other arguments as they were.
    pub(crate) cursor: Option<String>,
}

#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct GetRunArguments {
    /// Id of the run as find_runs lists it; the id of a trace with one run also works.
    pub(crate) run: String,
    /// Id or name of the evaluation that the run is from. Without it: live traffic on a server, the latest evaluation
    /// elsewhere.
    #[serde(default)]
    pub(crate) evaluation: Option<String>,
    /// Show only steps with a wrong verdict.
    #[serde(default)]
    pub(crate) only_flagged: Option<bool>,
    /// Begin with this step.
    #[serde(default)]
    pub(crate) from_step: Option<u32>,
    /// Show this step alone, with longer texts; 0 is request and answer.
    #[serde(default)]
    pub(crate) step: Option<u32>,
    /// With `step`: leave out this many characters at the beginning of each text, to read on in a long one.
    #[serde(default)]
    pub(crate) text_from: Option<usize>,
}

#[derive(Debug, Default, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub(crate) struct FlaggedArguments {
    /// Id or name of an evaluation. Without it: live traffic on a server, the latest evaluation elsewhere.
    pub(crate) evaluation: Option<String>,
    /// Only verdicts of this evaluator.
    pub(crate) evaluator: Option<String>,
    /// Only verdicts on steps that call this tool.
    pub(crate) tool: Option<String>,
    /// Only runs of this project.
    pub(crate) project: Option<String>,
    /// Only runs that began at this time or later: `24h`, `7d`, or `2026-11-15T08:00:00Z`.
    pub(crate) since: Option<String>,
    /// How many to list, 1 to 50.
    #[schemars(range(min = 1, max = 50))]
    pub(crate) limit: Option<usize>,
    /// The value of `more:` of the answer before, with the other arguments as they were.
    pub(crate) cursor: Option<String>,
}

#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct CompareToolArguments {
    /// Id or name of the evaluation to compare with: the old version. With `by`, the name of the old one.
    pub(crate) a: String,
    /// Id or name of the evaluation of the new version. With `by`, the name of the new one.
    pub(crate) b: String,
    /// On a server: compare live traffic of two versions, models or agents instead of two evaluations.
    pub(crate) by: Option<TrafficName>,
    /// With `by`: only runs of this project.
    pub(crate) project: Option<String>,
}

#[derive(Debug, Default, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub(crate) struct ExplainGateArguments {
    /// Id or name of an evaluation; without it, the latest.
    pub(crate) evaluation: Option<String>,
    /// A gate to check, as in `call_validity >= 0.95`; without it, the gates that the evaluation was made with.
    pub(crate) gate: Option<String>,
    /// Id or name of the evaluation that gates such as `call_validity >= baseline - 0.02` are relative to.
    pub(crate) baseline: Option<String>,
}

#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct LabelStepArguments {
    /// Id of the run as find_runs lists it.
    pub(crate) run: String,
    /// Id or name of the evaluation that the run is from. Without it: live traffic on a server, the latest evaluation
    /// elsewhere.
    #[serde(default)]
    pub(crate) evaluation: Option<String>,
    /// Number of the step; without it the label is about the whole run.
    #[serde(default)]
    pub(crate) step: Option<u32>,
    /// Evaluator whose verdict the label corrects or confirms, as get_run names it.
    pub(crate) evaluator: String,
    /// The right label, one of the evaluator's own.
    pub(crate) label: String,
    /// Why, in a sentence.
    #[serde(default)]
    pub(crate) why: Option<String>,
    /// Who decided. `person` only if the user gave this label; labels of assistants do not calibrate judges.
    #[serde(default)]
    pub(crate) decided_by: DecidedBy,
}

/// Who decided on a label.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
#[schemars(inline)]
pub(crate) enum DecidedBy {
    Person,
    #[default]
    Assistant,
}

impl FindRunsArguments {
    pub(crate) fn to_filter(&self, now: Timestamp) -> Result<RunFilter, ArchiveError> {
        Ok(RunFilter {
            evaluation: non_empty_text(&self.evaluation),
            project: non_empty_text(&self.project),
            agent: non_empty_text(&self.agent),
            tool: non_empty_text(&self.tool),
            label: non_empty_text(&self.label),
            is_flagged: self.flagged.unwrap_or(false),
            is_error: self.error,
            text: non_empty_text(&self.text),
            from: parse_optional_bound("since", &self.since, now)?,
            to: parse_optional_bound("until", &self.until, now)?,
        })
    }
}

impl FlaggedArguments {
    pub(crate) fn to_filter(&self, now: Timestamp) -> Result<RunFilter, ArchiveError> {
        Ok(RunFilter {
            evaluation: non_empty_text(&self.evaluation),
            project: non_empty_text(&self.project),
            from: parse_optional_bound("since", &self.since, now)?,
            ..RunFilter::default()
        })
    }
}

/// Returns the trimmed text; `None` if it is empty, because some assistants fill in every field.
pub(crate) fn non_empty_text(text: &Option<String>) -> Option<String> {
    text.as_deref().map(str::trim).filter(|text| !text.is_empty()).map(str::to_owned)
}

fn parse_optional_bound(
    argument: &'static str,
    text: &Option<String>,
    now: Timestamp,
) -> Result<Option<Timestamp>, ArchiveError> {
    non_empty_text(text).map(|text| parse_time_bound(argument, &text, now)).transpose()
}

/// Returns the number of items to list, or an error if it is out of bounds.
pub(crate) fn check_limit(limit: Option<usize>, default: usize, max: usize) -> Result<usize, ArchiveError> {
    match limit.unwrap_or(default) {
        limit if (1..=max).contains(&limit) => Ok(limit),
        _ => Err(ArchiveError::BadArgument { argument: "limit", reason: format!("give 1 to {max}") }),
    }
}

/// A cursor that counts items.
pub(crate) fn parse_offset(cursor: &Option<String>) -> Result<usize, ArchiveError> {
    let wrong =
        || ArchiveError::BadArgument { argument: "cursor", reason: "give the one of the answer before".to_owned() };
    match non_empty_text(cursor) {
        None => Ok(0),
        Some(text) => text.parse().map_err(|_| wrong()),
    }
}
