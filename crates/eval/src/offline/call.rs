//! Checks whether a call is valid: the tool exists, and the arguments follow its schema.

use gradus_core::trajectory::TrajectoryStep;

use super::excerpt::{quote_excerpt, quote_name};
use super::failure::ToolFailureKind;
use super::rule_catalog::{CALL_MALFORMED, CALL_REJECTED, CALL_SCHEMA, CALL_UNKNOWN_TOOL, CALL_VALID};
use super::schema::{SchemaViolation, ViolationKind, check_arguments};
use super::vocabulary::contains_name;
use super::{OfflineJudge, OfflineVerdict};

/// Whether the called tool existed.
pub(super) enum ToolExistence {
    Known,
    /// Not listed, but it returned a result: the list of tools in the trace is incomplete.
    Ran,
    /// It did not exist, with the reason as a sentence.
    Missing(String),
    /// Neither the list nor the result shows it.
    Unsure,
}

/// Checks whether the called tool existed: by the error of the call, then by the list, then by results of other calls
/// to the same tool.
pub(super) fn check_tool_existence(offline: &OfflineJudge<'_>, at: usize) -> ToolExistence {
    let Some(step) = offline.step(at) else { return ToolExistence::Unsure };
    let trajectory = offline.trajectory;
    let listed = |name: &str| trajectory.tools.iter().any(|tool| same_tool(&tool.name, name));
    let missing = |why: &str| ToolExistence::Missing(format!("{} {why}.", quote_excerpt(&step.tool)));
    // Checked before the list: some frameworks record a span, and so a definition, for a tool that does not exist.
    if offline.failure(at) == Some(ToolFailureKind::NoSuchTool) {
        return missing("is no tool that the agent had: the call was answered with an error that says so");
    }
    if listed(&step.tool) {
        return ToolExistence::Known;
    }
    let special = offline.find_tool(step).is_some_and(|(_, tool)| tool.hands_over || tool.ends_run);
    let mut others = trajectory.steps.iter().enumerate().take(200);
    if special
        || offline.has_succeeded(at)
        || others.any(|(other, called)| called.tool == step.tool && offline.has_succeeded(other))
    {
        return ToolExistence::Ran;
    }
    if *offline.lists_all_tools.get_or_init(|| lists_all_tools(offline)) {
        missing("is not among the tools on offer")
    } else {
        ToolExistence::Unsure
    }
}

/// Whether the list of tools is complete. A list of called tools only was built from the calls, and one that lacks a
/// tool that ran has gaps. Neither proves that a tool did not exist.
fn lists_all_tools(offline: &OfflineJudge<'_>) -> bool {
    let trajectory = offline.trajectory;
    let steps = || trajectory.steps.iter().take(200);
    let offers_more =
        trajectory.tools.iter().take(500).any(|tool| !steps().any(|step| same_tool(&tool.name, &step.tool)));
    let listed = |name: &str| trajectory.tools.iter().any(|tool| same_tool(&tool.name, name));
    let unlisted = |(at, step): (usize, &TrajectoryStep)| {
        !listed(&step.tool) && offline.has_succeeded(at) && !ends_or_hands_over(offline, step)
    };
    offers_more && !steps().enumerate().any(unlisted)
}

fn ends_or_hands_over(offline: &OfflineJudge<'_>, step: &TrajectoryStep) -> bool {
    offline.find_tool(step).is_some_and(|(_, tool)| tool.hands_over || tool.ends_run)
}

/// Whether two names are the same tool. Frameworks put a namespace before names: `functions.read`,
/// `mcp__server__read`.
fn same_tool(listed: &str, called: &str) -> bool {
    let ends = |long: &str, short: &str| {
        long.strip_suffix(short).is_some_and(|before| before.ends_with(['.', ':', '/']) || before.ends_with("__"))
    };
    listed == called || ends(listed, called) || ends(called, listed)
}

/// Finds violations of the tool's schema. Empty if the trace has no schema or no arguments.
pub(super) fn find_schema_violations(offline: &OfflineJudge<'_>, at: usize) -> Vec<SchemaViolation> {
    let Some(step) = offline.step(at) else { return Vec::new() };
    let Some(schema) = offline.find_tool(step).and_then(|(_, tool)| tool.schema.as_ref()) else {
        return Vec::new();
    };
    let Some(arguments) = &step.arguments else { return Vec::new() };
    let was_accepted = offline.has_succeeded(at);
    let mut violations = check_arguments(schema, arguments);
    // Many tools accept "17" for 17. The result shows that this one does.
    violations.retain(|problem| !was_accepted || problem.kind != ViolationKind::TextForValue);
    violations.retain(|problem| {
        problem.kind != ViolationKind::Missing || !works_without_parameter(offline, at, step, &problem.parameter)
    });
    violations
}

/// Whether a required parameter is in fact optional: the tool worked without it at least once. Frameworks with strict
/// schemas declare every parameter as required.
fn works_without_parameter(offline: &OfflineJudge<'_>, at: usize, step: &TrajectoryStep, parameter: &str) -> bool {
    let lacks = |other: &TrajectoryStep| {
        other.arguments.as_ref().is_some_and(|arguments| arguments.is_object() && arguments.get(parameter).is_none())
    };
    let calls = offline.trajectory.steps.iter().enumerate().take(200).chain(std::iter::once((at, step)));
    calls.filter(|(_, other)| other.tool == step.tool).any(|(at, other)| lacks(other) && offline.has_succeeded(at))
}

/// Whether the arguments were recorded but are not valid JSON.
pub(super) fn is_malformed(step: &TrajectoryStep) -> bool {
    step.arguments.is_none()
        && step.arguments_raw.as_deref().is_some_and(|raw| {
            let raw = raw.trim();
            // Agents that write ReAct text pass plain text to tools with one argument, which is fine.
            raw.starts_with(['{', '['])
        })
}

/// A violation as a sentence of an explanation.
pub(super) fn describe_violation(problem: &SchemaViolation) -> String {
    let (parameter, has) = if problem.parameter.is_empty() {
        ("The arguments".to_owned(), "have")
    } else {
        (format!("Parameter {}", quote_name(&problem.parameter)), "has")
    };
    match problem.kind {
        ViolationKind::Missing => format!("{parameter} is missing: {}.", problem.detail),
        ViolationKind::Unknown => format!("{parameter} is invented: {}.", problem.detail),
        ViolationKind::WrongType | ViolationKind::TextForValue => {
            format!("{parameter} {has} the wrong type: {}.", problem.detail)
        }
        ViolationKind::NotListed => {
            format!("{parameter} {has} a value that the tool does not know: {}.", problem.detail)
        }
        ViolationKind::OutOfRange => format!("{parameter} is out of range: {}.", problem.detail),
    }
}

/// The reason for not judging a call of a tool that the agent does not have and that [`request_names_tool`] finds.
pub(super) const ORDERED_TOOL: &str = "The agent does not have this tool, and the request names it.";

/// Whether the request names a tool: then the call is what the user ordered. Names of one word are words of the language,
/// too.
pub(super) fn request_names_tool(offline: &OfflineJudge<'_>, tool: &str) -> bool {
    let is_compound = tool.contains(['_', '-', '.']);
    is_compound && offline.query().is_some_and(|query| contains_name(&query.lower, &tool.to_lowercase()))
}

/// The verdict of `call_validity`.
pub(super) fn judge_call_validity(offline: &OfflineJudge<'_>, at: usize) -> OfflineVerdict {
    let Some(step) = offline.step(at) else {
        return OfflineVerdict::not_applicable("The step does not exist.");
    };
    let exists = check_tool_existence(offline, at);
    if let ToolExistence::Missing(why) = exists {
        return match request_names_tool(offline, &step.tool) {
            true => OfflineVerdict::cannot_judge(ORDERED_TOOL),
            false => OfflineVerdict::bad(CALL_UNKNOWN_TOOL, why, Vec::new()),
        };
    }
    if is_malformed(step) {
        let raw = step.arguments_raw.as_deref().unwrap_or_default();
        return OfflineVerdict::bad(
            CALL_MALFORMED,
            format!("The arguments of {} are no JSON.", quote_excerpt(&step.tool)),
            vec![quote_excerpt(raw)],
        );
    }
    let violations = offline.schema_violations(at);
    if let Some(first) = violations.first() {
        let explanation = format!("The call does not fit {}. {}", quote_excerpt(&step.tool), describe_violation(first));
        return OfflineVerdict::bad(CALL_SCHEMA, explanation, violations.iter().map(describe_violation).collect());
    }
    if offline.failure(at) == Some(ToolFailureKind::BadCall) {
        let observation = step.observation.as_deref().unwrap_or_default();
        return OfflineVerdict::bad(
            CALL_REJECTED,
            format!("{} rejected the arguments.", quote_excerpt(&step.tool)),
            vec![quote_excerpt(observation)],
        );
    }
    let known = offline.find_tool(step).is_some_and(|(_, tool)| tool.schema.is_some());
    match exists {
        ToolExistence::Unsure => {
            OfflineVerdict::cannot_judge("The trace holds neither the tool's definition nor its result.")
        }
        // Without a schema the call cannot be checked.
        _ if !known => OfflineVerdict::not_applicable("The trace does not hold the schema of this tool."),
        _ if step.arguments.is_none() => {
            OfflineVerdict::cannot_judge("The trace does not hold the arguments of this call.")
        }
        _ => {
            let but = match find_omitted_parameter(offline, step) {
                Some(name) => {
                    format!(", but for {}: it is required, and the tool did without", quote_excerpt(name))
                }
                None => String::new(),
            };
            OfflineVerdict::good(
                CALL_VALID,
                format!("{} exists and the arguments fit its schema{but}.", quote_excerpt(&step.tool)),
                Vec::new(),
            )
        }
    }
}

/// Returns the first required parameter that a valid call omitted; see `works_without_parameter`.
fn find_omitted_parameter<'o>(offline: &'o OfflineJudge<'_>, step: &TrajectoryStep) -> Option<&'o str> {
    let schema = offline.find_tool(step).and_then(|(_, tool)| tool.schema.as_ref())?;
    let given = step.arguments.as_ref()?.as_object()?;
    let required = schema.get("required")?.as_array()?;
    required.iter().filter_map(|name| name.as_str()).find(|name| !given.contains_key(*name))
}
