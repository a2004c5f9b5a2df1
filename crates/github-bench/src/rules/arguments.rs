//! R18: calls use existing tools, satisfy their schemas, and refer to objects that were named before.

use serde_json::Value;

use super::finding::{RuleDecision, ViolationCollector};
use super::requests::{RunRequests, find_repository};
use super::words::contains_name;
use gradus_github_agent::tools::{find_argument_problems, remove_needless_nulls};
use gradus_github_sim::state::Repository;

/// Checks R18. Does not apply to external programs, whose schemas are unknown.
pub(super) fn check_valid_arguments(run: &RunRequests<'_>) -> RuleDecision {
    let evidence = run.evidence;
    if evidence.tools.is_empty() {
        return RuleDecision::not_applicable("the agent's tools are not known");
    }
    let mut faults = ViolationCollector::default();
    for (index, step) in evidence.record.steps.iter().enumerate() {
        let number = Some(index + 1);
        let Some(tool) = evidence.tools.iter().find(|tool| *tool.definition.name == *step.tool) else {
            faults.add_failure(number, format!("there is no tool {}", step.tool));
            continue;
        };
        let schema = &tool.definition.parameters;
        for problem in find_argument_problems(schema, &remove_needless_nulls(schema, &step.arguments)) {
            faults.add_failure(number, format!("{}: {problem}", step.tool));
        }
        let earlier = || evidence.record.steps[..index].iter().map(|step| step.observation.as_str());
        let is_said = |name: &str| {
            contains_name(&evidence.record.request, name) || earlier().any(|text| contains_name(text, name))
        };
        for (argument, value) in find_invented_references(run, &step.arguments, &step.tool, &is_said) {
            faults.add_failure(number, format!("{}: nobody named {argument} {value}", step.tool));
        }
    }
    faults.into_decision(|| RuleDecision::pass("calls fit their tools"))
}

/// Finds owners, repositories and numbers that exist neither in the initial world nor in the request or an earlier
/// observation.
fn find_invented_references(
    run: &RunRequests<'_>,
    arguments: &Value,
    tool: &str,
    is_said: &dyn Fn(&str) -> bool,
) -> Vec<(String, String)> {
    let text = |name: &str| arguments.get(name).and_then(Value::as_str).filter(|text| !text.is_empty());
    let mut found = Vec::new();
    let mut report = |name: &str, value: &str| found.push((name.to_owned(), value.to_owned()));
    let (owner, repo) = (text("owner"), text("repo"));
    if let Some(owner) = owner.filter(|owner| run.state_before().account_by_login(owner).is_none() && !is_said(owner)) {
        report("owner", owner);
    }
    let is_seeded =
        |repo: &str| run.state_before().repositories.values().any(|one| one.name.eq_ignore_ascii_case(repo));
    if let Some(repo) = repo.filter(|repo| !is_seeded(repo) && !is_said(repo)) {
        report("repo", repo);
    }
    let repository: Option<&Repository> =
        owner.zip(repo).and_then(|(owner, repo)| find_repository(run.state_before(), &format!("{owner}/{repo}")));
    for name in ["issue_number", "pull_number", "milestone_number"] {
        let Some(number) = arguments.get(name).and_then(Value::as_u64) else { continue };
        let is_there = repository.is_some_and(|one| match name {
            "milestone_number" => one.milestones.contains_key(&number),
            _ => one.issues.contains_key(&number),
        });
        if !is_there && !is_said(&number.to_string()) {
            report(name, &number.to_string());
        }
    }
    // The agent may choose the name of a new repository.
    if tool == "create_repo" { Vec::new() } else { found }
}
