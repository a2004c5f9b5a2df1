//! Rules and replays on runs that are known to be right, and on the same with something needless in them.

use gradus_github_agent::agent::RunStep;
use gradus_github_agent::tools::{GitHubTools, ToolEffect, ToolRestrictions, ToolSet as _};
use gradus_github_bench::record::TrialRecord;
use gradus_github_bench::replay::{ReplayEnvironment, ReplayReport, StepNecessity, replay_trial};
use gradus_github_bench::rules::{BudgetUsage, RuleEvidence, RuleOutcome, check_conduct_rules};
use gradus_github_bench::suite::{AgentScript, ScriptReply, ScriptStep};
use gradus_github_bench::suite::{BenchTask, TaskSuite};
use gradus_github_sim::state::WorldState;
use gradus_github_sim::{RequestMethod, SimulatedRequest, SimulatorServer, World};
use serde_json::{Value, json};

/// A place where scripts are played.
struct Theatre {
    server: SimulatorServer,
    tools: GitHubTools,
}

impl Theatre {
    fn new(task: &BenchTask) -> (Theatre, World) {
        let world = task.world().unwrap();
        let server = SimulatorServer::start(world.clone(), 0).unwrap();
        let limits = ToolRestrictions { allow_destructive: true, ..ToolRestrictions::default() };
        let tools = GitHubTools::new(&server.url(), Some(&task.token), limits).unwrap();
        (Theatre { server, tools }, world)
    }

    async fn play(&self, task: &BenchTask, script: &AgentScript, world: &World) -> TrialRecord {
        {
            let mut world = world.clone();
            world.start_recording_exchanges();
            *self.server.world().lock().unwrap() = world;
        }
        let mut record = TrialRecord { task: task.id.clone(), request: task.request.clone(), ..TrialRecord::default() };
        let mut seen: Vec<Value> = Vec::new();
        loop {
            match script.reply_at(seen.len(), &seen).unwrap() {
                ScriptReply::Answer(answer) => {
                    record.answer = Some(answer);
                    record.exchanges = self.server.world().lock().unwrap().recorded_exchanges().to_vec();
                    return record;
                }
                ScriptReply::Call { thought, tool, arguments } => {
                    let from = self.server.world().lock().unwrap().recorded_exchanges().len();
                    let mut observation = self.tools.call(&tool, &arguments).await;
                    // As the agent does.
                    while let Some(wait) = observation.retry_after {
                        let seconds = i64::try_from(wait.as_secs()).unwrap();
                        self.server.world().lock().unwrap().advance_clock(seconds);
                        observation = self.tools.call(&tool, &arguments).await;
                    }
                    let exchanges = from..self.server.world().lock().unwrap().recorded_exchanges().len();
                    seen.push(serde_json::from_str(&observation.text).unwrap());
                    record.steps.push(RunStep {
                        thought: Some(thought),
                        tool,
                        arguments,
                        observation: observation.text,
                        is_error: observation.is_error,
                        exchanges,
                        approved: None,
                    });
                }
            }
        }
    }

    async fn replay(&self, task: &BenchTask, record: &TrialRecord, world: &World) -> ReplayReport {
        let stage = ReplayEnvironment { tools: &self.tools, world: self.server.world(), token: &task.token };
        let verify = |after: &WorldState, record: &TrialRecord| task.verify(world.state(), after, record).into_checks();
        replay_trial(world, record, stage, &verify).await
    }

    fn is_read(&self, step: &ScriptStep) -> bool {
        self.tools.classify_effect(&step.tool, &Value::Object(step.arguments.clone())) == ToolEffect::Read
    }
}

/// Rules that a right run breaks all the same.
fn broken(
    task: &BenchTask,
    record: &TrialRecord,
    before: &World,
    after: &WorldState,
    tools: &GitHubTools,
) -> Vec<String> {
    let collateral: Vec<String> =
        task.verify(before.state(), after, record).collateral.into_iter().map(|one| one.path).collect();
    let report = check_conduct_rules(&RuleEvidence {
        charter: &task.charter,
        record,
        before: before.state(),
        after,
        tools: tools.tools(),
        collateral: Some(&collateral),
        spent: BudgetUsage::default(),
    });
    let flagged = |one: &&gradus_github_bench::rules::RuleFinding| {
        matches!(one.outcome, RuleOutcome::Fail | RuleOutcome::Warning)
    };
    report
        .findings
        .iter()
        .filter(flagged)
        .map(|one| format!("{} {} {:?}: {}", task.number, one.rule, one.outcome, one.why))
        .collect()
}

fn unnecessary(replay: &ReplayReport) -> Vec<usize> {
    replay.list_steps(StepNecessity::Unnecessary)
}

#[tokio::test]
async fn right_runs_break_no_rule_and_have_nothing_needless() {
    let mut wrong: Vec<String> = Vec::new();
    for task in &TaskSuite::built_in().unwrap().tasks {
        let (theatre, world) = Theatre::new(task);
        for (index, script) in std::iter::once(&task.oracle).chain(&task.alternatives).enumerate() {
            let record = theatre.play(task, script, &world).await;
            let after = theatre.server.world().lock().unwrap().state().clone();
            wrong.extend(broken(task, &record, &world, &after, &theatre.tools));
            if index > 0 {
                continue;
            }
            let replay = theatre.replay(task, &record, &world).await;
            if !unnecessary(&replay).is_empty() || !replay.passed || replay.cut_short {
                wrong.push(format!("{}: {replay:#?}", task.number));
            }
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

/// A look again, and a look around beforehand.
#[tokio::test]
async fn needless_looks_are_found_and_nothing_else() {
    let mut wrong: Vec<String> = Vec::new();
    let mut played = 0;
    for task in &TaskSuite::built_in().unwrap().tasks {
        let (theatre, world) = Theatre::new(task);
        let mut cases: Vec<(AgentScript, Vec<usize>)> = Vec::new();
        for (at, step) in task.oracle.steps.iter().enumerate().filter(|(_, step)| theatre.is_read(step)) {
            let mut script = task.oracle.clone();
            script.insert(at + 1, step.clone());
            cases.push((script, vec![at + 1, at + 2]));
        }
        let home = task.charter.write_scope.iter().flatten().find_map(|name| name.split_once('/'));
        let looks = task.oracle.steps.iter().all(|step| step.tool != "get_repo");
        if let Some((owner, repo)) = home.filter(|(_, repo)| *repo != "*" && looks) {
            let mut script = task.oracle.clone();
            let arguments = json!({"owner": owner, "repo": repo}).as_object().unwrap().clone();
            script
                .insert(0, ScriptStep { thought: "A look around.".to_owned(), tool: "get_repo".to_owned(), arguments });
            cases.push((script, vec![1]));
        }
        for (script, among) in cases {
            let record = theatre.play(task, &script, &world).await;
            let replay = theatre.replay(task, &record, &world).await;
            let found = unnecessary(&replay);
            played += 1;
            if replay.passed && (found.len() != 1 || !among.contains(&found[0])) {
                wrong.push(format!("{}: wanted one of {among:?}, found {found:?}: {replay:#?}", task.number));
            }
        }
    }
    assert!(played > 20);
    assert!(wrong.is_empty(), "{} of {played}\n{}", wrong.len(), wrong.join("\n"));
}

fn step(tool: &str, arguments: &Value) -> ScriptStep {
    ScriptStep {
        thought: "So it goes.".to_owned(),
        tool: tool.to_owned(),
        arguments: arguments.as_object().unwrap().clone(),
    }
}

async fn verdicts(task: &BenchTask, script: &AgentScript) -> (ReplayReport, TrialRecord) {
    let (theatre, world) = Theatre::new(task);
    let record = theatre.play(task, script, &world).await;
    (theatre.replay(task, &record, &world).await, record)
}

/// What is done and undone, what is done for nothing, and numbers that move up when it goes.
#[tokio::test]
async fn detours_of_writes_are_found() {
    let suite = TaskSuite::built_in().unwrap();
    let task = suite.task("comment-on-an-issue").unwrap();
    let mut script = task.oracle.clone();
    script.insert(0, step("star_repo", &json!({"owner": "octo", "repo": "demo"})));
    script.insert(1, step("unstar_repo", &json!({"owner": "octo", "repo": "demo"})));
    let (replay, _) = verdicts(task, &script).await;
    assert!(replay.passed);
    assert_eq!(unnecessary(&replay), [1, 2], "{replay:#?}");
    assert_eq!(replay.shortest, [3]);
    assert!((replay.ratio - 3.0).abs() < 1e-9);

    // A branch that is made and deleted before the real one: commits have other names without it.
    let task = suite.task("readme-through-a-pull-request").unwrap();
    let mut script = task.oracle.clone();
    let at = task.oracle.steps.iter().position(|step| step.tool == "create_branch").unwrap();
    let sha = task.oracle.steps[at].arguments["sha"].clone();
    script.insert(at, step("create_branch", &json!({"owner": "octo", "repo": "demo", "branch": "tmp", "sha": sha})));
    script.insert(at + 1, step("delete_branch", &json!({"owner": "octo", "repo": "demo", "branch": "tmp"})));
    let (replay, _) = verdicts(task, &script).await;
    assert!(replay.passed);
    assert_eq!(unnecessary(&replay), [at + 1, at + 2], "{replay:#?}");
}

/// A list over two pages for nothing: neither page was needed, though neither can go without the other.
#[tokio::test]
async fn needless_lists_go_with_all_their_pages() {
    let suite = TaskSuite::built_in().unwrap();
    let task = suite.task("star-a-repository").unwrap();
    let mut script = task.oracle.clone();
    let page = |page: u64| step("list_issues", &json!({"owner": "octo", "repo": "demo", "per_page": 5, "page": page}));
    script.insert(0, page(1));
    script.insert(1, page(2));
    let (replay, _) = verdicts(task, &script).await;
    assert!(replay.passed);
    assert_eq!(unnecessary(&replay), [1, 2], "{replay:#?}");
    assert_eq!(replay.shortest, [3]);
}

/// A program of others that reads this, and says that.
async fn requested(task: &BenchTask, targets: &[&str], answer: &str) -> ReplayReport {
    let (theatre, seed) = Theatre::new(task);
    let mut world = seed.clone();
    world.start_recording_exchanges();
    for target in targets {
        let response = world.handle(&SimulatedRequest::new(RequestMethod::Get, target).with_token(&task.token));
        assert_eq!(response.status, 200, "{target}");
    }
    let record = TrialRecord {
        task: task.id.clone(),
        request: task.request.clone(),
        answer: Some(answer.to_owned()),
        exchanges: world.recorded_exchanges().to_vec(),
        is_foreign: true,
        ..TrialRecord::default()
    };
    theatre.replay(task, &record, &seed).await
}

/// Pages of a list stay together, whoever reads them.
#[tokio::test]
async fn pages_that_programs_of_others_read_stay_together() {
    let suite = TaskSuite::built_in().unwrap();
    let task = suite.task("list-my-repositories").unwrap();
    let pages = ["/user/repos?per_page=1&page=1", "/user/repos?per_page=1&page=2", "/user/repos?per_page=1&page=3"];
    for answer in ["demo, recipes, field-notes", "You have octo/field-notes, octo/recipes and octo/demo."] {
        let replay = requested(task, &pages, answer).await;
        assert!(replay.passed);
        assert_eq!(replay.list_steps(StepNecessity::Needed), [1, 2, 3], "{replay:#?}");
    }
    let task = suite.task("paginated-count").unwrap();
    let list = "/repos/octo/atlas/issues?state=open&per_page=100";
    let pages = [format!("{list}&page=1"), format!("{list}&page=2")];
    let [one, two] = pages.each_ref().map(String::as_str);
    for answer in ["117", "117 issues are open in octo/atlas."] {
        let replay = requested(task, &[one, two], answer).await;
        assert!(replay.passed);
        assert_eq!(replay.list_steps(StepNecessity::Needed), [1, 2], "{replay:#?}");
        // The first look at how many there are, and the same page once more, are no pages of it.
        let peek = "/repos/octo/atlas/issues?state=open&per_page=1";
        let replay = requested(task, &[peek, one, two, list], answer).await;
        assert_eq!(replay.list_steps(StepNecessity::Needed), [2, 3], "{replay:#?}");
        assert_eq!(unnecessary(&replay), [1, 4], "{replay:#?}");
    }
    // For nothing, they go together.
    let other = "/repos/octo/atlas/labels?per_page=2&page=";
    let needless = [format!("{other}1"), format!("{other}2")];
    let replay = requested(task, &[&needless[0], &needless[1], one, two], "117").await;
    assert_eq!(unnecessary(&replay), [1, 2], "{replay:#?}");
}

/// Who told a figure is told by what it counts: stars are no issues.
#[tokio::test]
async fn figures_are_from_where_they_are_counted() {
    let suite = TaskSuite::built_in().unwrap();
    let task = suite.task("count-open-bugs").unwrap();
    let (theatre, world) = Theatre::new(task);
    let mut script = task.oracle.clone();
    script.insert(0, step("get_repo", &json!({"owner": "octo", "repo": "demo"})));
    let mut record = theatre.play(task, &script, &world).await;
    let replay = theatre.replay(task, &record, &world).await;
    assert!(replay.passed);
    assert_eq!(unnecessary(&replay), [1], "{replay:#?}");
    // As many stars as there are bugs, and nothing but their number in the final message.
    let seen = |field: &str| json!({"full_name": "octo/demo", field: 2}).to_string();
    record.answer = Some("2".to_owned());
    record.steps[0].observation = seen("stargazers_count");
    let replay = theatre.replay(task, &record, &world).await;
    assert_eq!(unnecessary(&replay), [1], "{replay:#?}");
    assert_eq!(replay.steps[1].need, StepNecessity::Needed, "{replay:#?}");
    // Either may be meant.
    record.steps[0].observation = seen("open_issues_count");
    let replay = theatre.replay(task, &record, &world).await;
    assert_eq!(replay.list_steps(StepNecessity::Unknown), [1, 2], "{replay:#?}");
}

#[tokio::test]
async fn a_run_that_did_not_do_its_task_is_told_apart() {
    let suite = TaskSuite::built_in().unwrap();
    let task = suite.task("update-a-file").unwrap();
    let mut script = task.oracle.clone();
    script.steps.truncate(1);
    script.answer = "I could not do it.".to_owned();
    let look = script.steps[0].clone();
    script.insert(1, look);
    let (replay, _) = verdicts(task, &script).await;
    assert!(!replay.passed);
    assert_eq!(unnecessary(&replay), [2]);
    assert_eq!(replay.list_steps(StepNecessity::Unknown), [1]);
}

/// An agent with tools of its own is known by its requests; another world is noticed.
#[tokio::test]
async fn requests_are_replayed_and_other_worlds_are_noticed() {
    let suite = TaskSuite::built_in().unwrap();
    let task = suite.task("update-a-file").unwrap();
    let (theatre, world) = Theatre::new(task);
    let mut script = task.oracle.clone();
    script.insert(0, step("get_repo", &json!({"owner": "octo", "repo": "demo"})));
    let mut record = theatre.play(task, &script, &world).await;
    for step in &mut record.steps {
        step.tool = format!("their_{}", step.tool);
        let last = &record.exchanges[step.exchanges.end - 1];
        step.arguments = serde_json::from_str(&last.body).unwrap_or_default();
        step.observation.clone_from(&last.answer);
    }
    let replay = theatre.replay(task, &record, &world).await;
    assert!(replay.passed);
    assert_eq!(unnecessary(&replay), [1], "{replay:#?}");
    let other = suite.task("create-a-repository").unwrap().world().unwrap();
    let replay = theatre.replay(task, &record, &other).await;
    assert_eq!(replay.list_steps(StepNecessity::Unknown).len(), record.steps.len(), "{replay:#?}");
}
