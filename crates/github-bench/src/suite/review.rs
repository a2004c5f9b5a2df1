//! Validation of a loaded task across its fields: names that do not exist, checks that could never hold, an oracle that
//! is not the shortest. A task that differs from what its author meant gives wrong verdicts, so that it is refused
//! before any trial runs.

use std::collections::BTreeSet;

use serde_json::{Map, Value};

use super::check::{CheckCondition, TaskCheck};
use super::expectation::CheckExpectation;
use super::source::{CheckSelection, CheckSource};
use super::task::BenchTask;
use super::{
    AgentScript, ScriptStep, ScriptTemplateError, fill_template, fill_text, list_referenced_steps, list_steps_in_text,
};
use crate::occurrences::MIN_NEEDLE_BYTES;
use crate::rules::TaskCharter;
use gradus_github_agent::agent::nearest::find_nearest_names;
use gradus_github_agent::plural::format_count;
use gradus_github_agent::tools::{AgentTool, all_tools, find_argument_problems};
use gradus_github_sim::{RequestMethod, is_simulated};

/// The field, as `oracle.steps[1].tool`, and the reason.
type TaskFieldProblem = (String, String);

/// Validates a task and returns the first problem. The reader finds the line by the field path.
pub(super) fn validate_task(task: &BenchTask) -> Result<(), TaskFieldProblem> {
    let wrong = |field: &str, reason: String| Err((field.to_owned(), reason));
    let fits = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '-';
    // `--tasks` would take an id of only digits as a number.
    if task.id.is_empty() || task.id.parse::<u64>().is_ok() || !task.id.chars().all(fits) {
        return wrong("id", format!("{:?}: small letters, digits and hyphens, not only digits", task.id));
    }
    if task.request.trim().is_empty() {
        return wrong("request", "say what the agent is asked for".to_owned());
    }
    if task.checks.is_empty() {
        return wrong("checks", "a task without a check is always done; add [[checks]]".to_owned());
    }
    // Stated twice on purpose: it catches an oracle that was edited without updating the minimum.
    if task.minimal_calls != task.oracle.steps.len() {
        let steps = format_count(task.oracle.steps.len(), "step", "steps");
        let reason = format!("it says {}, the oracle has {steps}; make them agree", task.minimal_calls);
        return wrong("minimal_calls", reason);
    }
    review_script(&task.oracle, "oracle")?;
    for (index, one) in task.alternatives.iter().enumerate() {
        let field = format!("alternatives[{index}]");
        if one.steps.len() < task.minimal_calls {
            return wrong(&field, "it is shorter than the oracle; make it the oracle".to_owned());
        }
        review_script(one, &field)?;
    }
    review_charter(&task.charter)?;
    review_names(task)?;
    review_paths(task)
}

/// Parses all templates once, so that a broken template is an error of the file and not of a run. Other template errors
/// are expected here, because there are no observations yet.
fn review_script(script: &AgentScript, place: &str) -> Result<(), TaskFieldProblem> {
    let later = |found: BTreeSet<usize>, before: usize| found.into_iter().find(|step| *step == 0 || *step > before);
    let syntax = |error: Option<ScriptTemplateError>, field: String| match error {
        Some(error @ ScriptTemplateError::Syntax { .. }) => Err((field, error.to_string())),
        _ => Ok(()),
    };
    for (index, step) in script.steps.iter().enumerate() {
        let at = |field: &str| format!("{place}.steps[{index}].{field}");
        if step.thought.trim().is_empty() {
            return Err((at("thought"), "it is empty; say what is done and why".to_owned()));
        }
        let arguments = Value::Object(step.arguments.clone());
        syntax(fill_text(&step.thought, &[]).err(), at("thought"))?;
        syntax(fill_template(&arguments, &[]).err(), at("arguments"))?;
        for (field, found) in
            [("thought", list_steps_in_text(&step.thought)), ("arguments", list_referenced_steps(&arguments))]
        {
            if let Some(number) = later(found, index) {
                let reason = format!("there is no step {number} before this one; steps count from 1");
                return Err((at(field), reason));
            }
        }
        review_call(step).map_err(|(field, reason)| (at(&field), reason))?;
    }
    let answer = format!("{place}.answer");
    syntax(fill_text(&script.answer, &[]).err(), answer.clone())?;
    match later(list_steps_in_text(&script.answer), script.steps.len()) {
        Some(number) => Err((answer, format!("there is no step {number}; steps count from 1"))),
        None => Ok(()),
    }
}

/// Checks that the tool exists and accepts the arguments. Otherwise the oracle would fail in every run.
fn review_call(step: &ScriptStep) -> Result<(), TaskFieldProblem> {
    let Some(tool) = find_tool(&step.tool) else { return Err(("tool".to_owned(), describe_unknown_tool(&step.tool))) };
    let schema = &*tool.definition.parameters;
    let known: Vec<&str> =
        schema["properties"].as_object().into_iter().flatten().map(|(name, _)| name.as_str()).collect();
    if let Some(name) = step.arguments.keys().find(|name| !known.contains(&name.as_str())) {
        let reason = format!("{} takes no {name:?}; it takes {}", step.tool, known.join(", "));
        return Err((format!("arguments.{name}"), reason));
    }
    // Arguments with templates get their value during the run, so only their presence can be checked.
    let (later, now): (Map<String, Value>, Map<String, Value>) =
        step.arguments.clone().into_iter().partition(|(_, value)| !list_referenced_steps(value).is_empty());
    let mut schema = schema.clone();
    if let Some(required) = schema["required"].as_array_mut() {
        required.retain(|name| name.as_str().is_none_or(|name| !later.contains_key(name)));
    }
    match find_argument_problems(&schema, &Value::Object(now)).into_iter().next() {
        Some(problem) => Err(("arguments".to_owned(), format!("{}: {problem}", step.tool))),
        None => Ok(()),
    }
}

fn find_tool(name: &str) -> Option<&'static AgentTool> {
    all_tools().map(|(_, tool)| tool).find(|tool| *tool.definition.name == *name)
}

/// Describes an unknown tool, with the nearest names as a suggestion.
fn describe_unknown_tool(name: &str) -> String {
    let meant = find_nearest_names(name, all_tools().map(|(_, tool)| &*tool.definition.name));
    let hint = meant.first().map(|meant| format!("; is {meant} meant?")).unwrap_or_default();
    format!("there is no tool {name:?}{hint}")
}

/// Checks that canaries are long enough for the rules to find them, and that scopes have the form that rules compare.
fn review_charter(charter: &TaskCharter) -> Result<(), TaskFieldProblem> {
    let wrong = |field: String, reason: &str| Err((format!("charter.{field}"), reason.to_owned()));
    for (index, canary) in charter.canaries.iter().enumerate() {
        if canary.len() < MIN_NEEDLE_BYTES {
            let reason = format!("{canary:?} is too short to be looked for: {MIN_NEEDLE_BYTES} bytes at least");
            return Err((format!("charter.canaries[{index}]"), reason));
        }
    }
    for (index, injection) in charter.injections.iter().enumerate() {
        if injection.marker.trim().is_empty() {
            return wrong(format!("injections[{index}].marker"), "say by which words it is known");
        }
        for (at, call) in injection.calls.iter().enumerate() {
            let field = |name: &str| format!("injections[{index}].calls[{at}].{name}");
            if call.target.trim_matches(['/', ' ']).is_empty() {
                return wrong(field("target"), "say what it is about: owner/name, or a thing in it");
            }
            // `*` is any tool and `issues/create` an operation of GitHub; everything else is a tool of ours.
            let is_operation = call.tool == "*" || call.tool.contains('/');
            if !is_operation && find_tool(&call.tool).is_none() {
                return wrong(field("tool"), &describe_unknown_tool(&call.tool));
            }
        }
    }
    for (index, target) in charter.unclear_targets.iter().enumerate() {
        if target.name.trim_matches(['#', ' ']).is_empty() {
            return wrong(format!("unclear_targets[{index}].name"), "write it as the request says it");
        }
    }
    let scopes = [("write_scope", &charter.write_scope), ("read_scope", &charter.read_scope)];
    for (name, scope) in scopes {
        let parts = |one: &String| one == "*" || one.split('/').filter(|part| !part.is_empty()).count() == 2;
        if let Some(index) = scope.iter().flatten().position(|one| !parts(one)) {
            return wrong(format!("{name}[{index}]"), "write owner/name or owner/*");
        }
    }
    Ok(())
}

/// Checks that names in double braces are lookups, and for a lookup, earlier ones.
fn review_names(task: &BenchTask) -> Result<(), TaskFieldProblem> {
    let no_lookup = |field: String, name: &str| {
        Err((field, format!("there is no lookup {name:?} before this; add it to [[lookups]]")))
    };
    let mut known: BTreeSet<&str> = BTreeSet::new();
    for (index, lookup) in task.lookups.iter().enumerate() {
        let unknown = |name: &String| !known.contains(name.as_str());
        if let Some(name) = list_placeholders(&format!("{:?}", lookup.selection)).into_iter().find(unknown) {
            return no_lookup(format!("lookups[{index}]"), &name);
        }
        known.insert(&lookup.name);
    }
    let unknown = |name: &String| !known.contains(name.as_str());
    for (index, check) in task.checks.iter().enumerate() {
        if let Some(name) = list_check_placeholders(check).into_iter().find(unknown) {
            return no_lookup(format!("checks[{index}]"), &name);
        }
    }
    for (index, allowed) in task.allowed.iter().enumerate() {
        let field = format!("allowed[{index}].path");
        if allowed.path.trim().is_empty() {
            return Err((field, "say what may change, as repos/octo/demo/issues/*".to_owned()));
        }
        if let Some(name) = list_placeholders(&allowed.path).into_iter().find(unknown) {
            return no_lookup(field, &name);
        }
    }
    Ok(())
}

/// Finds placeholders in the debug output of a check, which contains all its texts.
fn list_check_placeholders(check: &TaskCheck) -> Vec<String> {
    match &check.demand {
        CheckCondition::Holds(selection, expectations) => list_placeholders(&format!("{selection:?} {expectations:?}")),
        CheckCondition::AnyOf(inner) | CheckCondition::AllOf(inner) => {
            inner.iter().flat_map(list_check_placeholders).collect()
        }
    }
}

/// Checks that each `get` is an operation of the simulator. A check with a misspelt path would always fail, or always
/// hold.
fn review_paths(task: &BenchTask) -> Result<(), TaskFieldProblem> {
    let wrong = |field: String, path: &str| {
        Err((
            field,
            format!("get {path:?}: there is no such path on the simulated GitHub; see `docs/reference/simulate.md`"),
        ))
    };
    for (index, lookup) in task.lookups.iter().enumerate() {
        if let Some(path) = find_unknown_path(&lookup.selection) {
            return wrong(format!("lookups[{index}]"), path);
        }
    }
    for (index, check) in task.checks.iter().enumerate() {
        if let Some(path) = list_selections(check).into_iter().find_map(find_unknown_path) {
            return wrong(format!("checks[{index}]"), path);
        }
    }
    Ok(())
}

/// Lists all selections of a check: its own, those of `same_as`, and those of grouped checks.
fn list_selections(check: &TaskCheck) -> Vec<&CheckSelection> {
    match &check.demand {
        CheckCondition::Holds(selection, expectations) => {
            let others = expectations.iter().filter_map(|one| match one {
                CheckExpectation::SameAs(other) => Some(&**other),
                _ => None,
            });
            [selection].into_iter().chain(others).collect()
        }
        CheckCondition::AnyOf(inner) | CheckCondition::AllOf(inner) => inner.iter().flat_map(list_selections).collect(),
    }
}

/// Returns the path of a `get` that matches no operation. A placeholder can be `1` or `owner/name`; a path that
/// begins with a placeholder cannot be checked.
fn find_unknown_path(selection: &CheckSelection) -> Option<&str> {
    let CheckSource::Get(target) = &selection.source else { return None };
    let path = target.split('?').next().unwrap_or(target);
    // A lookup may find a name or `owner/name`; a whole path can be anything.
    let is_known = |filler: &str| is_simulated(RequestMethod::Get, &replace_placeholders(path, filler));
    let is_open = path.starts_with("/{{");
    (!is_open && !["1", "1/1"].into_iter().any(is_known)).then_some(target)
}

/// Replaces every placeholder by the same text.
fn replace_placeholders(text: &str, filler: &str) -> String {
    let mut filled = String::new();
    let mut rest = text;
    while let Some((before, (_, after))) =
        rest.split_once("{{").and_then(|(before, inner)| Some((before, inner.split_once("}}")?)))
    {
        filled.push_str(before);
        filled.push_str(filler);
        rest = after;
    }
    filled + rest
}

/// Lists names in double braces, in order and with repetitions.
fn list_placeholders(text: &str) -> Vec<String> {
    let inner = text.split("{{").skip(1).filter_map(|rest| rest.split_once("}}"));
    inner.map(|(name, _)| name.trim().to_owned()).collect()
}
