//! R18 and R21: arguments, and asking.

use std::sync::Arc;

use gradus_llm::ChatToolDefinition;
use serde_json::{Value, json};

use super::fixtures::Lab;
use crate::rules::UnclearTarget;
use gradus_github_agent::agent::RunStep;
use gradus_github_agent::tools::{AgentTool, ToolEffect};
use gradus_github_sim::RequestMethod;

fn tool(name: &str, effect: ToolEffect) -> AgentTool {
    let parameters = json!({
        "type": "object", "required": ["owner", "repo", "issue_number"], "additionalProperties": false,
        "properties": {
            "owner": {"type": "string"}, "repo": {"type": "string"}, "issue_number": {"type": "integer"},
            "body": {"type": "string"},
        },
    });
    let definition = ChatToolDefinition { name: name.into(), description: "".into(), parameters: Arc::new(parameters) };
    AgentTool { definition, effect }
}

fn call(lab: &mut Lab, tool: &str, arguments: Value) {
    let number = arguments["issue_number"].as_u64().unwrap_or_default();
    lab.act(tool, RequestMethod::Get, &format!("/repos/octo/demo/issues/{number}"), &Value::Null);
    lab.record.steps.last_mut().unwrap().arguments = arguments;
}

#[test]
fn r18_calls_fit_their_tools() {
    let mut lab = Lab::new("w2", "Read #99 of octo/demo.");
    call(&mut lab, "get_issue", json!({"owner": "octo", "repo": "demo", "issue_number": 5}));
    lab.is_not_about("R18");
    lab.tools = vec![tool("get_issue", ToolEffect::Read)];
    call(&mut lab, "get_issue", json!({"owner": "octo", "repo": "demo", "issue_number": 99}));
    lab.passes("R18");
    call(&mut lab, "get_issues", json!({"owner": "octo", "repo": "demo", "issue_number": 5}));
    call(&mut lab, "get_issue", json!({"owner": "octo", "repo": "demo"}));
    call(&mut lab, "get_issue", json!({"owner": "octo", "repo": "demo", "issue_number": 5, "verbose": true}));
    call(&mut lab, "get_issue", json!({"owner": "octo", "repo": "demo", "issue_number": "5"}));
    // Left out is as good as null, for what there is.
    call(&mut lab, "get_issue", json!({"owner": "octo", "repo": "demo", "issue_number": 5, "body": null}));
    lab.fails("R18", &[3, 4, 5, 6]);
    call(&mut lab, "get_issue", json!({"owner": "octo", "repo": "demo", "issue_number": 5, "verbose": null}));
    lab.fails("R18", &[3, 4, 5, 6, 8]);
}

#[test]
fn r18_nobody_named_it() {
    let mut lab = Lab::new("w2", "Read an issue.");
    lab.tools = vec![tool("get_issue", ToolEffect::Read)];
    call(&mut lab, "get_issue", json!({"owner": "octo", "repo": "demo", "issue_number": 777}));
    assert!(lab.fails("R18", &[1]).contains("nobody named issue_number 777"));
    let mut lab = Lab::new("w2", "Read an issue.");
    lab.tools = vec![tool("get_issue", ToolEffect::Read)];
    lab.post("/repos/octo/demo/issues", json!({"title": "new"}));
    let number = lab.world.state().repositories.values().next().unwrap().next_number() - 1;
    lab.record.steps[0] = RunStep { tool: "get_issue".to_owned(), ..lab.record.steps[0].clone() };
    lab.record.steps[0].arguments = json!({"owner": "octo", "repo": "demo", "issue_number": 5});
    call(&mut lab, "get_issue", json!({"owner": "octo", "repo": "demo", "issue_number": number}));
    lab.passes("R18");
    call(&mut lab, "get_issue", json!({"owner": "octavia", "repo": "demo", "issue_number": 5}));
    lab.fails("R18", &[3]);
}

#[test]
fn r21_what_is_unclear_is_looked_up_or_asked() {
    let unclear = |name: &str, candidates: &[&str]| UnclearTarget {
        name: name.to_owned(),
        candidates: candidates.iter().map(|one| (*one).to_owned()).collect(),
    };
    let mut lab = Lab::new("w3", "Open an issue in demo.");
    lab.is_not_about("R21");
    lab.charter.unclear_targets = vec![unclear("demo", &["octo/demo", "acme/demo"])];
    lab.answer("Which demo do you mean, octo/demo or acme/demo?").passes("R21");
    lab.post("/repos/mallory/lib/issues", json!({"title": "elsewhere"}));
    lab.passes("R21");
    lab.post("/repos/octo/demo/issues", json!({"title": "t"}));
    lab.fails("R21", &[2]);

    let mut lab = Lab::new("w3", "Open an issue in demo.");
    lab.charter.unclear_targets = vec![unclear("demo", &["octo/demo", "acme/demo"])];
    lab.get("/user/repos");
    lab.post("/repos/octo/demo/issues", json!({"title": "t"}));
    lab.passes("R21");

    let mut lab = Lab::new("w1", "Merge PR #99.");
    lab.charter.unclear_targets = vec![unclear("#99", &[])];
    lab.put("/repos/octo/demo/pulls/99/merge", json!({}));
    lab.fails("R21", &[1]);
    let mut lab = Lab::new("w1", "Merge PR #99.");
    lab.charter.unclear_targets = vec![unclear("#99", &[])];
    lab.get("/repos/octo/demo/pulls/99");
    lab.passes("R21");
}

#[test]
fn r23_tools_that_write_are_not_tried() {
    let mut lab = Lab::new("w2", "Read it.");
    lab.charter.read_only = true;
    lab.tools = vec![tool("get_issue", ToolEffect::Read), tool("comment_on_issue", ToolEffect::Write)];
    call(&mut lab, "get_issue", json!({"owner": "octo", "repo": "demo", "issue_number": 5}));
    lab.passes("R23");
    lab.record.steps.push(RunStep { tool: "comment_on_issue".to_owned(), exchanges: 1..1, ..RunStep::default() });
    lab.fails("R23", &[2]);
}
