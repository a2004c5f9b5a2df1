//! Every task of the built-in suite, played on the simulator with the real tools: the oracle does it, in as few calls as
//! the task says; who does nothing, or leaves something out, or does more, does not.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Mutex;

use gradus_github_agent::agent::RunStep;
use gradus_github_agent::tools::{AgentTool, GitHubTools, ToolEffect, ToolRestrictions, ToolSet as _, all_tools};
use gradus_github_bench::record::TrialRecord;
use gradus_github_bench::rules;
use gradus_github_bench::suite::{AgentScript, ScriptReply};
use gradus_github_bench::suite::{BenchTask, TaskSuite, TaskVerification};
use gradus_github_sim::{RequestMethod, SimulatedRequest, SimulatorServer, World};
use serde_json::{Value, json};

struct Played {
    before: World,
    after: World,
    record: TrialRecord,
    verification: TaskVerification,
}

/// The world of a task, made once.
fn world(task: &BenchTask) -> World {
    static MADE: Mutex<BTreeMap<String, World>> = Mutex::new(BTreeMap::new());
    let mut made = MADE.lock().unwrap();
    made.entry(task.id.clone()).or_insert_with(|| task.world().unwrap()).clone()
}

/// Plays a script to its end, or as far as it goes; `after` may do more to the world before it is looked at.
async fn play(task: &BenchTask, script: &AgentScript, after: impl FnOnce(&mut World)) -> Played {
    let before = world(task);
    let mut world = before.clone();
    world.start_recording_exchanges();
    let server = SimulatorServer::start(world, 0).unwrap();
    let limits = ToolRestrictions { allow_destructive: true, ..ToolRestrictions::default() };
    let tools = GitHubTools::new(&server.url(), Some(&task.token), limits).unwrap();
    let exchanges = || server.world().lock().unwrap().recorded_exchanges().len();
    let (mut steps, mut observations, mut answer) = (Vec::new(), Vec::new(), None);
    while let Ok(line) = script.reply_at(steps.len(), &observations) {
        let (thought, tool, arguments) = match line {
            ScriptReply::Call { thought, tool, arguments } => (thought, tool, arguments),
            ScriptReply::Answer(text) => {
                answer = Some(text);
                break;
            }
        };
        let began = exchanges();
        let mut seen = tools.call(&tool, &arguments).await;
        // As the agent does it: it waits, and calls again.
        while let Some(time) = seen.retry_after {
            server.world().lock().unwrap().advance_clock(i64::try_from(time.as_secs()).unwrap());
            seen = tools.call(&tool, &arguments).await;
        }
        observations.push(serde_json::from_str::<Value>(&seen.text).unwrap_or_default());
        steps.push(RunStep {
            thought: Some(thought),
            tool,
            arguments,
            observation: seen.text,
            is_error: seen.is_error,
            exchanges: began..exchanges(),
            approved: None,
        });
    }
    let world = server.world();
    let mut world = world.lock().unwrap();
    let kept = world.recorded_exchanges().to_vec();
    after(&mut world);
    let record = TrialRecord {
        task: task.id.clone(),
        request: task.request.clone(),
        steps,
        answer,
        exchanges: kept,
        ..TrialRecord::default()
    };
    let verification = task.verify(before.state(), world.state(), &record);
    Played { before, after: world.clone(), record, verification }
}

fn effect(tool: &str) -> ToolEffect {
    let found = all_tools().find(|(_, one)| &*one.definition.name == tool);
    found.unwrap_or_else(|| panic!("there is no tool {tool}")).1.effect
}

/// All that went wrong, so that one look is enough.
fn none(problems: &[String]) {
    assert!(problems.is_empty(), "\n{}", problems.join("\n"));
}

fn told(task: &BenchTask, played: &Played) -> String {
    let checks = played.verification.checks.iter().filter(|check| !check.passed);
    let checks: Vec<String> = checks.map(|check| format!("\n    {}: {}", check.name, check.detail)).collect();
    let collateral: Vec<String> = played
        .verification
        .collateral
        .iter()
        .map(|one| format!("\n    {:?} {} {:?}", one.what, one.path, one.fields))
        .collect();
    let steps: Vec<String> = played
        .record
        .steps
        .iter()
        .map(|step| format!("\n    > {} {}\n      {:.600}", step.tool, step.arguments, step.observation))
        .collect();
    format!(
        "{} {} ({} steps){}\n  collateral:{}\n  steps:{}\n  answer: {:?}",
        task.number,
        task.id,
        played.record.steps.len(),
        checks.concat(),
        collateral.concat(),
        steps.concat(),
        played.record.answer,
    )
}

#[tokio::test]
async fn the_oracle_does_every_task_with_the_fewest_calls() {
    let mut problems = Vec::new();
    for task in &TaskSuite::built_in().unwrap().tasks {
        let played = play(task, &task.oracle, |_| {}).await;
        let calls = played.record.steps.len();
        if !played.verification.passed || calls != task.minimal_calls || played.record.answer.is_none() {
            problems.push(told(task, &played));
        }
        for (index, other) in task.alternatives.iter().enumerate() {
            let played = play(task, other, |_| {}).await;
            if !played.verification.passed || played.record.answer.is_none() {
                problems.push(format!("alternatives[{index}] of {}", told(task, &played)));
            }
        }
    }
    none(&problems);
}

/// Right behaviour raises no alarm.
#[tokio::test]
async fn no_rule_objects_to_the_oracle() {
    let tools: Vec<AgentTool> = all_tools().map(|(_, tool)| tool.clone()).collect();
    let mut problems = Vec::new();
    for task in &TaskSuite::built_in().unwrap().tasks {
        for script in std::iter::once(&task.oracle).chain(&task.alternatives) {
            let played = play(task, script, |_| {}).await;
            let report = rules::check_conduct_rules(&rules::RuleEvidence {
                charter: &task.charter,
                record: &played.record,
                before: played.before.state(),
                after: played.after.state(),
                tools: &tools,
                collateral: Some(&[]),
                spent: rules::BudgetUsage::default(),
            });
            let wrong = [rules::RuleOutcome::Fail, rules::RuleOutcome::Warning];
            for finding in report.findings.iter().filter(|finding| wrong.contains(&finding.outcome)) {
                problems
                    .push(format!("{} {}: {} {:?} {}", task.number, task.id, finding.rule, finding.steps, finding.why));
            }
        }
    }
    none(&problems);
}

#[tokio::test]
async fn doing_nothing_is_not_enough() {
    let mut problems = Vec::new();
    for task in &TaskSuite::built_in().unwrap().tasks {
        for answer in ["", "Done.", "I could not do it."] {
            let idle = AgentScript { steps: Vec::new(), answer: answer.to_owned() };
            if play(task, &idle, |_| {}).await.verification.passed {
                problems.push(format!("{} {}: passed with {answer:?}", task.number, task.id));
            }
        }
    }
    none(&problems);
}

/// What is well known of the world has to be looked up all the same.
#[tokio::test]
async fn a_guess_is_not_enough() {
    let suite = TaskSuite::built_in().unwrap();
    for (id, answer) in [
        ("list-my-repositories", "You have demo, recipes and field-notes."),
        ("read-a-file", "It prints \"Hello, wonderful world!\"."),
    ] {
        let task = suite.task(id).unwrap();
        let guess = AgentScript { steps: Vec::new(), answer: answer.to_owned() };
        let played = play(task, &guess, |_| {}).await;
        assert!(!played.verification.passed, "{}", told(task, &played));
        let looked = AgentScript { steps: task.oracle.steps.clone(), answer: answer.to_owned() };
        let played = play(task, &looked, |_| {}).await;
        assert!(played.verification.passed, "{}", told(task, &played));
    }
}

/// Without any one of its writes a task is not done, whatever is claimed in the end.
#[tokio::test]
async fn every_write_of_the_oracle_counts() {
    let mut problems = Vec::new();
    for task in &TaskSuite::built_in().unwrap().tasks {
        let claim = play(task, &task.oracle, |_| {}).await.record.answer.unwrap_or_default();
        for (index, step) in task.oracle.steps.iter().enumerate() {
            if effect(&step.tool) == ToolEffect::Read {
                continue;
            }
            let mut script = task.oracle.clone();
            // In its place a read that changes nothing, so that later steps find their sources where they were.
            script.steps[index].tool = "get_me".to_owned();
            script.steps[index].arguments.clear();
            script.answer.clone_from(&claim);
            if play(task, &script, |_| {}).await.verification.passed {
                problems.push(format!("{} {}: passed without step {}", task.number, task.id, index + 1));
            }
        }
    }
    none(&problems);
}

/// A value that is a little off.
fn off(value: &Value) -> Value {
    match value {
        Value::String(text) => json!(format!("{text}-off")),
        Value::Number(number) => json!(number.as_u64().unwrap_or_default() + 1),
        Value::Bool(one) => json!(!one),
        Value::Array(items) => items.iter().map(off).collect(),
        Value::Object(fields) => fields.iter().map(|(name, value)| (name.clone(), off(value))).collect(),
        Value::Null => json!("off"),
    }
}

/// What a task leaves to the agent: its own words.
fn is_free(task: &BenchTask, step: usize, argument: &str) -> bool {
    match argument {
        // That one is refused in any case.
        _ if task.number == 43 && step == 1 => true,
        "message" | "body" | "title" => true,
        // As good as a wrong `repo`, which is tried.
        "owner" => true,
        // More text than was asked for does no harm, or any text will do.
        "content" => [18, 19, 33, 35, 39, 40].contains(&task.number),
        "description" => task.number == 18,
        // Of a release; its tag is what counts.
        "name" => [23, 47].contains(&task.number),
        _ => false,
    }
}

#[tokio::test]
async fn a_wrong_value_is_seen() {
    let mut problems = Vec::new();
    for task in &TaskSuite::built_in().unwrap().tasks {
        for (index, step) in task.oracle.steps.iter().enumerate() {
            if effect(&step.tool) == ToolEffect::Read {
                continue;
            }
            for (name, value) in step.arguments.iter().filter(|(name, _)| !is_free(task, index, name)) {
                let mut script = task.oracle.clone();
                script.steps[index].arguments.insert(name.clone(), off(value));
                if play(task, &script, |_| {}).await.verification.passed {
                    problems.push(format!(
                        "{} {}: passed with {} off in step {}",
                        task.number,
                        task.id,
                        name,
                        index + 1
                    ));
                }
            }
        }
    }
    none(&problems);
}

/// The right end state with something else done on the side.
#[tokio::test]
async fn doing_more_is_too_much() {
    let mut problems = Vec::new();
    for task in &TaskSuite::built_in().unwrap().tasks {
        let stray = |world: &mut World| {
            let body = json!({"public": false, "files": {"stray.md": {"content": "stray"}}});
            let post = SimulatedRequest::new(RequestMethod::Post, "/gists").with_token(&task.token).with_json(&body);
            assert_eq!(world.handle(&post).status, 201);
        };
        if play(task, &task.oracle, stray).await.verification.passed {
            problems.push(format!("{} {}: passed with a stray gist", task.number, task.id));
        }
    }
    none(&problems);
}

/// The answer of another task is no answer.
#[tokio::test]
async fn answers_are_read_where_they_are_asked_for() {
    let suite = TaskSuite::built_in().unwrap();
    let mut problems = Vec::new();
    for task in &suite.tasks {
        if task.oracle.steps.iter().any(|step| effect(&step.tool) != ToolEffect::Read) {
            continue;
        }
        let script =
            AgentScript { answer: "I looked, and that is all there is to say.".to_owned(), ..task.oracle.clone() };
        if play(task, &script, |_| {}).await.verification.passed {
            problems.push(format!("{} {}: passed without an answer", task.number, task.id));
        }
    }
    none(&problems);
}

#[tokio::test]
async fn a_task_ends_the_same_each_time() {
    let suite = TaskSuite::built_in().unwrap();
    for task in &suite.tasks {
        let (one, other) = (play(task, &task.oracle, |_| {}).await, play(task, &task.oracle, |_| {}).await);
        let without_port = |played: &Played| {
            let mut told = Vec::new();
            for step in &played.record.steps {
                told.push(step.arguments.to_string());
            }
            told
        };
        assert_eq!(without_port(&one), without_port(&other), "{}", task.id);
    }
}

/// What the documentation shows is a task like any other.
#[tokio::test]
async fn the_example_in_the_documentation_works() {
    let page = include_str!("../../../../docs/how-to/write-tasks.md");
    let example = page.split("```toml\n").nth(1).and_then(|rest| rest.split("```").next()).unwrap();
    let task = BenchTask::parse(example, "docs/how-to/write-tasks.md").unwrap();
    let played = play(&task, &task.oracle, |_| {}).await;
    assert!(played.verification.passed, "{}", told(&task, &played));
    let idle = AgentScript { steps: Vec::new(), ..task.oracle.clone() };
    assert!(!play(&task, &idle, |_| {}).await.verification.passed);
}

#[test]
fn thoughts_are_sentences_of_their_own() {
    let mut seen = BTreeSet::new();
    let suite = TaskSuite::built_in().unwrap();
    let scripts = suite.tasks.iter().flat_map(|task| std::iter::once(&task.oracle).chain(&task.alternatives));
    for step in scripts.flat_map(|script| &script.steps) {
        assert!(step.thought.len() > 20 && step.thought.ends_with('.'), "{:?}", step.thought);
        assert!(seen.insert(step.thought.clone()), "twice: {:?}", step.thought);
    }
}
