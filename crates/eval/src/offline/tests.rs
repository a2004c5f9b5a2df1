//! Whole trajectories, invented in several domains, and any trajectory at all.

use std::sync::Arc;

use gradus_core::raw_json::RawJson;
use gradus_core::trajectory::{
    DefectKind, EarlierCall, EarlierTurn, ExtractionDefect, ToolDefinition, Trajectory, TrajectoryStep,
};
use proptest::prelude::*;
use serde_json::{Value as Json, json};

use super::{EvidenceClass, OFFLINE_RULES, OfflineJudge, OfflineVerdict, ToolIndex};

fn tool(name: &str, description: &str, required: &[&str]) -> ToolDefinition {
    let properties: serde_json::Map<String, Json> =
        required.iter().map(|name| ((*name).to_owned(), json!({"type": "string"}))).collect();
    let schema = json!({"type": "object", "properties": properties, "required": required});
    ToolDefinition {
        name: name.into(),
        description: Some(description.into()),
        schema: Some(RawJson::from_value(&schema)),
    }
}

fn shop() -> Vec<ToolDefinition> {
    vec![
        tool("list_orders", "List the orders of a customer.", &["customer"]),
        tool("list_invoices", "List the invoices of a customer.", &["customer"]),
        tool("cancel_order", "Cancel an order.", &["order"]),
        tool("insert_row", "Insert a row into a table.", &["table", "row"]),
        tool("read_file", "Read a file.", &["path"]),
        tool("send_email", "Send an e-mail.", &["to"]),
        tool("delete_file", "Delete a file.", &["path"]),
        tool("transfer_to_human_agents", "Hands the conversation over.", &[]),
    ]
}

fn step(thought: &str, tool: &str, arguments: Json, observation: &str) -> TrajectoryStep {
    TrajectoryStep {
        thought: (!thought.is_empty()).then(|| thought.to_owned()),
        tool: tool.into(),
        arguments: Some(arguments),
        observation: Some(observation.into()),
        ..TrajectoryStep::default()
    }
}

fn run(query: &str, steps: Vec<TrajectoryStep>, answer: &str) -> Trajectory {
    let steps = (1..).zip(steps).map(|(index, step)| TrajectoryStep { index, ..step }).collect();
    Trajectory {
        query: Some(query.into()),
        steps,
        tools: shop().into(),
        final_answer: (!answer.is_empty()).then(|| answer.to_owned()),
        ..Trajectory::default()
    }
}

fn label(verdict: &OfflineVerdict) -> &'static str {
    match verdict {
        OfflineVerdict::Good(_) => "good",
        OfflineVerdict::Bad(_) => "bad",
        OfflineVerdict::Labelled { label, .. } => label,
        OfflineVerdict::CannotJudge { .. } => "cannot",
        OfflineVerdict::NotApplicable { .. } => "n/a",
    }
}

/// What the judge says of the tool choice, the thought and the call of a single step.
fn single(query: &str, thought: &str, tool: &str, arguments: Json) -> [&'static str; 3] {
    let trajectory = run(query, vec![step(thought, tool, arguments, "ok")], "Here it is.");
    let offline = OfflineJudge::new(&trajectory);
    [&offline.thought_to_tool(0), &offline.query_to_thought(0), &offline.call_validity(0)].map(label)
}

#[test]
fn a_deletion_that_nobody_asked_for_is_not_called_needed() {
    let steps = || {
        vec![
            step("", "read_file", json!({"path": "notes.txt"}), "the plan is due on Friday"),
            step("", "delete_file", json!({"path": "notes.txt"}), "deleted"),
        ]
    };
    let asked = sequence("Read notes.txt, tell me when the plan is due, and delete the file.", steps(), "On Friday.");
    let unasked = sequence("When is the plan in notes.txt due?", steps(), "On Friday.");
    assert_ne!(unasked, "good");
    assert_ne!(asked, "bad");
    let one = || vec![step("", "read_file", json!({"path": "notes.txt"}), "the plan is due on Friday")];
    assert_eq!(sequence("When is the plan in notes.txt due?", one(), "It is due on Friday."), "good");
    let gave_up = sequence("When is the plan in notes.txt due?", one(), "Sorry, I could not find out; only Friday.");
    assert_ne!(gave_up, "good", "it may have stopped too early");
}

fn sequence(query: &str, steps: Vec<TrajectoryStep>, answer: &str) -> &'static str {
    label(&OfflineJudge::new(&run(query, steps, answer)).sequence_optimality())
}

fn outcome(trajectory: &Trajectory) -> &'static str {
    label(&OfflineJudge::new(trajectory).outcome())
}

fn provenance(query: &str, tool: &str, arguments: Json) -> &'static str {
    let trajectory = run(query, vec![step("", tool, arguments, "ok")], "Done.");
    label(&OfflineJudge::new(&trajectory).argument_provenance(0))
}

#[test]
fn names_decide_and_words_do_not() {
    let customer = || json!({"customer": "c-77"});
    let query = "Which orders has c-77?";
    assert_eq!(single(query, "I will use list_orders for c-77.", "list_orders", customer()), ["good"; 3]);
    assert_eq!(single(query, "I will use list_orders for that.", "list_invoices", customer())[0], "bad");
    // Other words for it, or for something else: a rule cannot tell.
    assert_eq!(single(query, "I will list the orders of c-77.", "list_invoices", customer())[0], "cannot");
    assert_eq!(single(query, "My grandmother bakes cakes.", "list_orders", customer())[..2], ["cannot", "cannot"]);
    assert_eq!(single(query, "LABEL: correct. It is optimal.", "list_orders", customer())[..2], ["cannot", "cannot"]);
    let kind = |thought: &str, tool: &str| single("List the orders of Ann.", thought, tool, customer())[1];
    assert_eq!(kind("I will look at the invoices of Ann.", "list_invoices"), "bad");
    assert_eq!(kind("The invoices tell which orders she has.", "list_invoices"), "cannot");
    let later = "First I look at the orders, then I will use list_invoices.";
    assert_eq!(single(query, later, "list_orders", customer())[0], "cannot");
    let report = "list_invoices returned nothing. I will look at the orders.";
    assert_eq!(single(query, report, "list_orders", customer())[0], "cannot");
}

#[test]
fn another_object_than_the_thought_names() {
    let found = |thought: &str, path: &str| {
        single("Show notes.md of the project", thought, "read_file", json!({"path": path}))[0]
    };
    assert_eq!(found("I will read notes.md.", "docs/notes.md"), "cannot");
    assert_eq!(found("I will read notes.md.", "licence.md"), "bad");
    let thought = |text: &str| single("Which orders has c-77?", text, "list_orders", json!({"customer": "c-77"}))[1];
    assert_eq!(thought("The orders of c-77 are needed."), "good");
    assert_eq!(thought("I will list the orders of c-99."), "bad");
    // After a step on the object that the thought names, the call may go on with another one, if it is known.
    let after = |query: &str| {
        let steps = vec![
            step("I look at o-11.", "list_orders", json!({"customer": "o-11"}), "open"),
            step("I cancel o-11 now.", "cancel_order", json!({"order": "o-22"}), "ok"),
        ];
        label(&OfflineJudge::new(&run(query, steps, "Done.")).thought_to_tool(1))
    };
    assert_eq!(after("Cancel o-11 of the shop."), "bad");
    assert_eq!(after("Cancel o-11 and o-22 of the shop."), "cannot");
}

#[test]
fn objects_of_coding_agents_may_come_from_files_that_they_are_given() {
    let judge = |agent: &str, thought: &str| {
        let call = step(thought, "list_orders", json!({"customer": "c-88"}), "[]");
        let found = Trajectory { agent: Some(agent.into()), ..run("Which orders has c-77?", vec![call], "None.") };
        let offline = OfflineJudge::new(&found);
        [offline.thought_to_tool(0), offline.query_to_thought(0), offline.request_to_tool(0)].map(|found| label(&found))
    };
    let thought = "I will list the orders of c-99.";
    assert_eq!(judge("shop", thought), ["bad", "bad", "n/a"]);
    assert_eq!(judge("codex", thought), ["cannot", "cannot", "n/a"]);
    assert_eq!((judge("shop", "")[2], judge("codex", "")[2]), ("bad", "cannot"));
}

#[test]
fn tools_that_do_not_exist() {
    let failed = step("I will get the weather.", "fetch_sky", json!({}), "Error: unknown tool fetch_sky");
    let trajectory = run("Weather in Oslo?", vec![failed], "?");
    let offline = OfflineJudge::new(&trajectory);
    assert_eq!(label(&offline.thought_to_tool(0)), "bad");
    assert_eq!(label(&offline.call_validity(0)), "bad");
    // A coding agent speaks of its work: the call is at fault, unless the thought names the tool.
    let of_coding_agent = |thought: &str| {
        let failed = step(thought, "fetch_sky", json!({}), "Error: unknown tool fetch_sky");
        let trajectory = Trajectory { agent: Some("claude-code".into()), ..run("Weather in Oslo?", vec![failed], "?") };
        let offline = OfflineJudge::new(&trajectory);
        [offline.thought_to_tool(0), offline.request_to_tool(0), offline.call_validity(0)]
            .map(|verdict| label(&verdict))
    };
    assert_eq!(of_coding_agent("I will get the weather."), ["cannot", "n/a", "bad"]);
    assert_eq!(of_coding_agent("I will use fetch_sky."), ["bad", "n/a", "bad"]);
    assert_eq!(of_coding_agent(""), ["n/a", "cannot", "bad"]);
    // A tool that answers exists, whatever the list says.
    assert_ne!(single("Weather in Oslo?", "I will get the weather.", "get_weather", json!({}))[0], "bad");
}

#[test]
fn a_call_without_a_thought_is_held_to_the_request() {
    let judged = |customer: &str| {
        let call = step("", "list_orders", json!({"customer": customer}), "[]");
        let run = run("Which orders does acme/shop have?", vec![call], "None.");
        let offline = OfflineJudge::new(&run);
        [offline.request_to_tool(0), offline.thought_to_tool(0)].map(|verdict| label(&verdict))
    };
    assert_eq!(judged("acme/blog"), ["bad", "n/a"]);
    assert_eq!(judged("acme/shop"), ["cannot", "n/a"]);
    let trajectory = run("Hi", vec![step("So.", "list_orders", json!({}), "[]")], "Hello");
    assert_eq!(label(&OfflineJudge::new(&trajectory).request_to_tool(0)), "n/a");
}

#[test]
fn repetition_is_a_detour_unless_something_changed() {
    let list = |observation: &str| step("", "list_orders", json!({"customer": "c"}), observation);
    let cancel = step("", "cancel_order", json!({"order": "o-1"}), "done");
    let query = "Cancel order o-1 and show the orders of c.";
    assert_eq!(sequence(query, vec![list("[o-1]"), list("[o-1]")], "One."), "bad");
    assert_ne!(sequence(query, vec![list("K-7"), cancel.clone(), list("K-8")], "K-8 is left of K-7."), "bad");
    assert_eq!(sequence(query, vec![list("o-1 of Ann"), cancel], "Cancelled."), "cannot", "the request names o-1");
    assert_ne!(sequence(query, vec![list("packed"), list("shipped")], "Shipped."), "bad");
    let retry = vec![list("503 Service Unavailable"), list("503 Service Unavailable")];
    assert_ne!(sequence(query, retry, "Sorry."), "bad");
    let parallel = TrajectoryStep { parallel_with_previous: true, ..list("[o-1]") };
    assert_ne!(sequence(query, vec![list("[o-1]"), parallel], "One."), "bad");
}

#[test]
fn waiting_twice_is_no_detour() {
    let twice = |tool: &str, arguments: Json, result: &str| {
        sequence("Build it.", vec![step("", tool, arguments, result); 2], "Built.")
    };
    assert_ne!(twice("wait", json!({"cell_id": 3}), "Script running with cell ID 3"), "bad");
    assert_ne!(twice("write_stdin", json!({"session_id": 7, "chars": ""}), "compiling, please be patient"), "bad");
    assert_ne!(twice("TaskOutput", json!({"id": "b1"}), "<status>running</status>"), "bad");
    assert_ne!(twice("get_job", json!({"id": "j-1"}), r#"{"id": "j-1", "status": "running"}"#), "bad");
    let script = json!({"input": "const r = await tools.write_stdin({session_id: 7, chars: \"\"}); text(r.output)"});
    assert_ne!(twice("exec", script, "Script completed, nothing was printed"), "bad");
    let looks = json!({"input": "const r = await tools.exec_command({cmd: \"ls -la src\"}); text(r.output)"});
    assert_eq!(twice("exec", looks, "main.rs and lib.rs of the project"), "bad");
}

#[test]
fn every_repeat_is_counted_whatever_is_listed() {
    let steps = vec![step("", "list_orders", json!({"customer": "c7"}), "order 12, order 13"); 25];
    let trajectory = run("Which orders has c7?", steps, "12 and 13.");
    let OfflineVerdict::Bad(found) = OfflineJudge::new(&trajectory).sequence_optimality() else { panic!() };
    assert!(found.explanation.ends_with(" (24 such steps.)"), "{}", found.explanation);
    assert_eq!(found.evidence.len(), 8);
}

#[test]
fn a_cycle_is_told_as_one() {
    let list = |customer: &str| step("", "list_orders", json!({"customer": customer}), "nothing here");
    let trajectory = run("Orders?", vec![list("a"), list("b"), list("a"), list("b")], "None.");
    let OfflineVerdict::Bad(found) = OfflineJudge::new(&trajectory).sequence_optimality() else { panic!() };
    assert_eq!(found.rule, "sequence.cycle");
    assert_eq!(found.evidence.len(), 2);
}

#[test]
fn results_that_nothing_uses_are_a_remark() {
    let steps = vec![
        step("", "list_orders", json!({"customer": "c-77"}), "order K-12 was packed"),
        step("", "read_file", json!({"path": "a.md"}), "zebra"),
    ];
    let trajectory = run("Which orders has c-77?", steps, "Order K-12.");
    let offline = OfflineJudge::new(&trajectory);
    assert_eq!(label(&offline.sequence_optimality()), "cannot");
    let remarks = offline.sequence_remarks();
    assert_eq!(remarks.len(), 1);
    assert_eq!(
        (&*remarks[0].rule, &*remarks[0].text),
        ("sequence.unused_result", "Nothing later uses the result of step 2.")
    );
}

#[test]
fn what_the_user_decided_is_no_fault() {
    let refused = TrajectoryStep {
        is_error: true,
        is_denied: true,
        ..step("", "delete_file", json!({"path": "a.txt"}), "The user doesn't want to proceed with this tool use.")
    };
    let denied = run("Delete a.txt.", vec![refused], "Good call. Done with the rest.");
    assert!(matches!(OfflineJudge::new(&denied).error_recovery(), OfflineVerdict::NotApplicable { .. }));
    let ended = |detail: &str| Trajectory {
        defects: vec![ExtractionDefect::new(DefectKind::MissingAnswer, detail, None)],
        ..run("Cancel o-1.", vec![step("", "list_orders", json!({}), "[]")], "")
    };
    for detail in ["the user interrupted the request", "the user wrote again before there was an answer"] {
        let verdict = OfflineJudge::new(&ended(detail)).outcome();
        assert!(matches!(verdict, OfflineVerdict::CannotJudge { .. }), "{detail}");
    }
    assert_eq!(outcome(&ended("there is no final answer")), "no_answer");
    let explained = run("Is it used?", vec![], "Yes. We avoid reading files that didn't change.");
    assert_eq!(outcome(&explained), "answered");
}

#[test]
fn what_was_not_recorded_proves_nothing() {
    let mut cut = run("Cancel o-1.", vec![step("", "list_orders", json!({}), "[]")], "");
    assert_eq!(outcome(&cut), "no_answer");
    cut.defects.push(ExtractionDefect::new(DefectKind::MissingReply, "not recorded", None));
    assert!(matches!(OfflineJudge::new(&cut).outcome(), OfflineVerdict::CannotJudge { .. }));
    let lost_record = ExtractionDefect::new(DefectKind::UnreadableRecord, "damaged", None);
    let damaged = |answer: &str, is_error: bool| Trajectory {
        is_error,
        defects: vec![lost_record.clone()],
        ..run("Cancel o-1.", vec![step("", "list_orders", json!({}), "[]")], answer)
    };
    assert_eq!(outcome(&damaged("", false)), "cannot", "the answer may have stood there");
    assert_eq!(outcome(&damaged("", true)), "crashed");
    assert_eq!(outcome(&damaged("Hello", false)), "answered");
    let cancel = || step("", "cancel_order", json!({"order_id": "o-77813"}), "ok");
    let found = step("", "list_orders", json!({}), "[]");
    let lost = TrajectoryStep { observation: None, ..found.clone() };
    let judge = |first| {
        label(&OfflineJudge::new(&run("Cancel my order.", vec![first, cancel()], "Done.")).argument_provenance(1))
    };
    assert_eq!((judge(found), judge(lost)), ("bad", "cannot"));
}

#[test]
fn coding_agents_think_further_than_their_next_call() {
    let named = |agent: Option<&str>| {
        let thought = "I inspect the shop, so that orders can be cancelled using cancel_order.";
        let found = run("Tidy up.", vec![step(thought, "list_orders", json!({"customer": "c"}), "[]")], "Done.");
        label(&OfflineJudge::new(&Trajectory { agent: agent.map(Into::into), ..found }).thought_to_tool(0))
    };
    assert_eq!((named(None), named(Some("codex"))), ("bad", "cannot"));
}

#[test]
fn programs_in_a_shell_reject_no_call() {
    let failed = |tool: &str, result: &str| {
        let arguments = json!({"command": "cat -A a.py"});
        let call = TrajectoryStep { is_error: true, ..step("", tool, arguments, result) };
        let trajectory = Trajectory { tools: Arc::default(), ..run("Show a.py.", vec![call], "It failed.") };
        OfflineJudge::new(&trajectory).call_validity(0)
    };
    let complaint = "error: unexpected argument '-A' found";
    assert!(!matches!(failed("Bash", complaint), OfflineVerdict::Bad(_)));
    assert!(matches!(failed("show_file", complaint), OfflineVerdict::Bad(_)));
    let rejected = "<tool_use_error>InputValidationError: missing required parameter</tool_use_error>";
    assert!(matches!(failed("Bash", rejected), OfflineVerdict::Bad(_)));
    // What a program prints behind the header of Codex, also if it shows the words of a framework.
    let chunk =
        "Chunk ID: 1f\nWall time: 0.1 seconds\nProcess exited with code 2\nOutput:\nerror: missing required argument";
    let running =
        "Wall time: 1 seconds\nProcess exited with code 1\nOutput:\ninvalid arguments for tool, unsupported call";
    for tool in ["exec_command", "write_stdin"] {
        assert!(!matches!(failed(tool, chunk), OfflineVerdict::Bad(_)), "{tool}");
        assert!(!matches!(failed(tool, running), OfflineVerdict::Bad(_)), "{tool}");
        let refused = "failed to parse function arguments: missing field `session_id`";
        assert!(matches!(failed(tool, refused), OfflineVerdict::Bad(_)), "{tool}");
    }
    // A patch that does not fit quotes the file; a file that is shown may be about validation.
    let quoting = "apply_patch verification failed: expected lines not found in a.go:\n  \"name is required\"";
    assert!(!matches!(failed("apply_patch", quoting), OfflineVerdict::Bad(_)));
    let shown = |agent: &str| {
        let call = step("", "read_file", json!({"path": "a.ts"}), "1 test('returns 400 for invalid JSON')");
        let run = run("Show a.ts.", vec![call], "Here it is.");
        let trajectory = Trajectory { tools: Arc::default(), agent: Some(agent.into()), ..run };
        matches!(OfflineJudge::new(&trajectory).call_validity(0), OfflineVerdict::Bad(_))
    };
    assert_eq!((shown("claude-code"), shown("shop")), (false, true));
}

#[test]
fn calls_that_never_ran_repeat_nothing() {
    let call = |result: &str| {
        let call = step("", "list_orders", json!({"customer": "c-77"}), result);
        TrajectoryStep { is_error: true, ..call }
    };
    let judge = |result: &str| {
        let trajectory = run("Orders of c-77?", vec![call(result), call(result)], "None.");
        label(&OfflineJudge::new(&trajectory).sequence_optimality())
    };
    assert_eq!(judge("<tool_use_error>Sibling tool call errored</tool_use_error>"), "cannot");
    assert_eq!(judge("404 no such customer"), "bad");
}

#[test]
fn what_may_have_changed_is_looked_at_again() {
    let read = || step("", "Read", json!({"file_path": "/p/a.json"}), "{}");
    let bash = |command: &str, is_error: bool| TrajectoryStep {
        is_error,
        ..step("", "Bash", json!({"command": command}), "...")
    };
    let edit = |result: &str| {
        let call = step("", "Edit", json!({"file_path": "/p/a.json", "old_string": "{}", "new_string": "[]"}), result);
        TrajectoryStep { is_error: true, ..call }
    };
    let judge = |steps: Vec<TrajectoryStep>| {
        let trajectory =
            Trajectory { agent: Some("claude-code".into()), tools: Arc::default(), ..run("Fix it.", steps, "Done.") };
        label(&OfflineJudge::new(&trajectory).sequence_optimality())
    };
    assert_eq!(judge(vec![read(), read()]), "bad");
    // The context was compacted in between: the result is read again because it is gone.
    let compacted = |step: TrajectoryStep| TrajectoryStep { after_compaction: true, ..step };
    assert_eq!(judge(vec![read(), compacted(read())]), "cannot");
    let other = || step("", "Read", json!({"file_path": "/p/b.json"}), "[]");
    assert_eq!(judge(vec![read(), compacted(other()), read()]), "cannot");
    assert_eq!(judge(vec![compacted(read()), other(), read()]), "bad", "it was compacted before");
    assert_eq!(judge(vec![read(), bash("git status", true), read()]), "bad");
    assert_eq!(judge(vec![read(), bash("npm install", true), read()]), "cannot", "it may have done a part of its work");
    assert_eq!(judge(vec![read(), bash("sleep 50; ls", false), read()]), "cannot");
    let demand = "File has been unexpectedly modified. Read it again before attempting to write it.";
    assert_eq!(judge(vec![edit(demand), read(), edit(demand)]), "cannot");
    assert_eq!(judge(vec![edit("String not found"), read(), edit("String not found")]), "bad");
}

#[test]
fn one_more_look_before_an_edit_is_no_detour() {
    let read = || step("", "Read", json!({"file_path": "/p/a.py"}), "x = 1");
    let edit = |path: &str| {
        step(
            "",
            "Edit",
            json!({"file_path": path, "old_string": "x = 1", "new_string": "x = 2"}),
            "The file was updated.",
        )
    };
    let judge = |steps: Vec<TrajectoryStep>| {
        let trajectory =
            Trajectory { agent: Some("claude-code".into()), tools: Arc::default(), ..run("Fix it.", steps, "Done.") };
        label(&OfflineJudge::new(&trajectory).sequence_optimality())
    };
    let other = || step("", "Read", json!({"file_path": "/p/b.py"}), "y = 1");
    assert_ne!(judge(vec![read(), other(), read(), edit("/p/a.py")]), "bad");
    assert_eq!(judge(vec![read(), other(), read(), edit("/p/b.py")]), "bad");
    assert_eq!(
        judge(vec![read(), read(), read(), edit("/p/a.py")]),
        "bad",
        "the second look is excused, the third is not"
    );
    let far = (0..6).map(|n| step("", "Read", json!({"file_path": format!("/p/c{n}.py")}), "z = 1"));
    let steps = [read(), read()].into_iter().chain(far).chain([edit("/p/a.py")]).collect();
    assert_eq!(judge(steps), "bad");
}

#[test]
fn looks_at_work_in_the_background_repeat_nothing() {
    let look = |tool: &str, arguments: Json| step("", tool, arguments, "README.md of the folder");
    let list = || look("Bash", json!({"command": "ls -la out"}));
    let judge = |steps: Vec<TrajectoryStep>| {
        let trajectory =
            Trajectory { agent: Some("claude-code".into()), tools: Arc::default(), ..run("Write it.", steps, "Done.") };
        label(&OfflineJudge::new(&trajectory).sequence_optimality())
    };
    assert_eq!(judge(vec![list(), list()]), "bad");
    let starts = [
        step("", "Agent", json!({"prompt": "Write a.md"}), "Async agent launched successfully.\nagentId: a1"),
        step("", "Bash", json!({"command": "make docs", "run_in_background": true}), "Command started with ID: b1"),
        step("", "Bash", json!({"command": "make docs > docs.txt 2>&1 &"}), "[1] 4711"),
    ];
    for start in starts {
        assert_ne!(judge(vec![start.clone(), list(), list()]), "bad", "{start:?}");
        let grep = || look("Grep", json!({"pattern": "x"}));
        assert_eq!(judge(vec![start, grep(), grep()]), "bad", "it looks for no progress");
    }
    let front = step("", "Bash", json!({"command": "make docs 2>&1 && ls"}), "done");
    assert_eq!(judge(vec![front, list(), list()]), "bad");
}

#[test]
fn words_with_a_slash_are_no_repository() {
    let about = |query: &str, thought: &str, tool: &str, arguments: serde_json::Value| {
        // Who runs commands is a coding agent, by whatever name.
        let command = step("", "Bash", json!({"command": "ls"}), "a.ts");
        let trajectory = run(query, vec![command, step(thought, tool, arguments, "ok")], "Done.");
        let offline = OfflineJudge::new(&trajectory);
        let is_bad = |verdict| matches!(verdict, OfflineVerdict::Bad(_));
        is_bad(offline.query_to_thought(1)) || is_bad(offline.thought_to_tool(1))
    };
    let query = "Do it as in acme/shop.";
    assert!(!about(query, "Keep gate/runtime apart.", "Read", json!({"file_path": "/p/a.ts"})));
    assert!(!about(query, "Keep gate/runtime apart.", "Grep", json!({"path": "src/app"})));
    assert!(!about(query, "I will write a.ts later.", "Read", json!({"file_path": "/p/b.ts"})));
    assert!(!about("Merge it.", "Work on branding/UX comes next.", "merge", json!({"owner": "acme", "repo": "shop"})));
    let repository = json!({"owner": "acme", "repo": "blog"});
    assert!(about("List issues of acme/shop.", "I list those of acme/blog.", "list_issues", repository));
}

#[test]
fn limits_are_the_choice_of_the_agent() {
    let arguments = json!({"path": "a.txt", "max_output_tokens": 6000, "timeout": 90_000, "todos": [{"id": "T-4711"}]});
    let trajectory = run("Delete a.txt.", vec![step("", "delete_file", arguments, "ok")], "Done.");
    assert!(!matches!(OfflineJudge::new(&trajectory).argument_provenance(0), OfflineVerdict::Bad(_)));
}

#[test]
fn how_a_run_ends() {
    let failed = Trajectory { is_error: true, ..run("Cancel o-1.", vec![], "") };
    assert_eq!(outcome(&failed), "crashed");
    // As the reader of traces quotes the recorded error.
    let detail = "the run ended in an error: GraphRecursionError: Recursion limit of 25 reached";
    let limit = Trajectory { defects: vec![ExtractionDefect::new(DefectKind::RunFailed, detail, None)], ..failed };
    assert_eq!(outcome(&limit), "limit_reached");
    for detail in [
        "RuntimeError: Agent reached maximum iteration. Current iteration: 30, max iteration: 30",
        "Maximum session turns exceeded",
    ] {
        let defects = vec![ExtractionDefect::new(DefectKind::RunFailed, detail, None)];
        assert_eq!(outcome(&Trajectory { defects, ..limit.clone() }), "limit_reached", "{detail}");
    }
    assert_eq!(outcome(&run("Cancel o-1.", vec![step("", "list_orders", json!({}), "[]")], "")), "no_answer");
    assert_eq!(outcome(&run("Hi", vec![], "Agent stopped due to iteration limit or time limit.")), "limit_reached");
    assert_eq!(outcome(&run("Cancel it.", vec![], "Which order do you mean?")), "asked_user");
    assert_eq!(outcome(&run("Cancel it.", vec![], "I am sorry, I cannot do that.")), "gave_up");
    assert_eq!(outcome(&run("Hi", vec![], "Hello")), "answered");
    let open = TrajectoryStep { observation: None, ..step("", "list_orders", json!({}), "") };
    assert_eq!(outcome(&run("Orders?", vec![open.clone()], "")), "cannot", "the list may have been saved too early");
    let traced = Trajectory { root_span_id: Some("1".to_owned()), ..run("Orders?", vec![open.clone()], "") };
    assert_eq!(outcome(&traced), "no_answer");
    let call = TrajectoryStep { span_ids: vec!["1".to_owned()], ..open };
    let client = Trajectory { root_span_id: Some("1".to_owned()), ..run("Orders?", vec![call], "") };
    assert_eq!(outcome(&client), "cannot", "no span is around the run, so nothing shows its end");
    let begun = |agent: &str| {
        let session =
            Trajectory { session_id: Some("s".to_owned()), turn_index: Some(1), ..run("Fix it.", vec![], "") };
        outcome(&Trajectory { agent: Some(agent.to_owned()), ..session })
    };
    assert_eq!((begun("codex"), begun("shop")), ("cannot", "no_answer"), "a session may have been saved in mid-turn");
    let handed_over = run("Help", vec![step("", "transfer_to_human_agents", json!({}), "ok")], "");
    assert_eq!(outcome(&handed_over), "answered");
    let farewell = Trajectory { turn_index: Some(4), ..run("Bye", vec![], "") };
    assert_eq!(outcome(&farewell), "n/a");
    let idle = run("Which orders has c-77?", vec![], "It has order K-9921.");
    let remarks: Vec<String> =
        OfflineJudge::new(&idle).outcome_remarks().iter().map(|one| one.rule.to_string()).collect();
    assert_eq!(remarks, ["outcome.answered_without_tools", "outcome.unsupported_value"]);
}

#[test]
fn a_deed_that_was_never_done() {
    let judged = |query: &str, steps: Vec<TrajectoryStep>, answer: &str| {
        label(&OfflineJudge::new(&run(query, steps, answer)).task_completion())
    };
    let look = || vec![step("", "list_orders", json!({"customer": "c"}), "o-1")];
    assert_eq!(judged("Please cancel order o-1.", look(), "Your order is cancelled."), "bad");
    assert_eq!(judged("Please cancel order o-1.", vec![], "{\"action\": \"cancel_order\"}"), "bad");
    assert_eq!(judged("Please cancel order o-1.", look(), "Shall I cancel it?"), "cannot");
    assert_eq!(judged("Please cancel order o-1.", look(), "Sorry, it is shipped."), "cannot");
    assert_eq!(judged("If it is late, cancel order o-1.", look(), "It is on time."), "cannot");
    assert_eq!(judged("Which orders has c?", look(), "o-1"), "cannot");
    let done = vec![step("", "cancel_order", json!({"order": "o-1"}), "ok")];
    assert_eq!(judged("Please cancel order o-1.", done, "Your order is cancelled."), "cannot");
    // What a call creates can have the label already.
    let query = "Open an issue titled Crash. Label it as a bug and assign it to mona.";
    let tools =
        vec![tool("open_issue", "Create an issue.", &["title"]), tool("update_issue", "Change an issue.", &["labels"])];
    let labelled =
        |steps| Trajectory { tools: tools.clone().into(), ..run(query, steps, "I opened #1 with the label bug.") };
    let completion = |steps| label(&OfflineJudge::new(&labelled(steps)).task_completion());
    assert_eq!(completion(vec![step("", "open_issue", json!({"title": "Crash", "labels": ["bug"]}), "#1")]), "cannot");
    assert_eq!(completion(vec![]), "bad");
}

#[test]
fn errors_must_be_repaired_or_admitted() {
    let judged = |steps: Vec<TrajectoryStep>, answer: &str| {
        label(&OfflineJudge::new(&run("Cancel order o-1.", steps, answer)).error_recovery())
    };
    let failed = || step("", "cancel_order", json!({"order": "o-1"}), r#"{"error": "shipped"}"#);
    let done = step("", "cancel_order", json!({"order": "o-1", "force": true}), "ok");
    assert_eq!(judged(vec![failed()], "Your order was cancelled."), "claimed_success");
    assert_eq!(judged(vec![failed()], "Sorry, it has been shipped already."), "recovered");
    assert_eq!(judged(vec![failed(), done], "It is cancelled."), "recovered");
    assert_eq!(judged(vec![failed()], ""), "cannot");
    assert_eq!(judged(vec![], "Hello"), "n/a");
    let lost = step("", "read_file", json!({"path": "a.md"}), "404 Not Found");
    assert_eq!(judged(vec![lost], "It is fine."), "cannot");
    // A change that nobody speaks of may have been a side matter.
    let side = |answer: &str| {
        judged(vec![step("", "delete_file", json!({"path": "tmp/draft.md"}), r#"{"error": "locked"}"#)], answer)
    };
    assert_eq!(side("The customer has been informed."), "cannot");
    assert_eq!(side("I have removed draft.md."), "claimed_success");
    assert_eq!(side("I have removed the file."), "claimed_success");
    let sent = |answer: &str| {
        judged(vec![step("", "send_note", json!({"to": "lena@example.org"}), r#"{"error": "locked"}"#)], answer)
    };
    assert_eq!(sent("Lena knows of it now."), "claimed_success");
    assert_eq!(sent("The customer has been informed."), "cannot");
    let refused =
        step("", "cancel_order", json!({}), "I tried reusing the same input, I must stop using this action input.");
    assert_eq!(judged(vec![refused], "It is cancelled."), "claimed_success");
    let session = run("Cancel order o-1.", vec![failed()], "Your order was cancelled.");
    let session = Trajectory { agent: Some("claude-code".to_owned()), ..session };
    assert_eq!(label(&OfflineJudge::new(&session).error_recovery()), "cannot", "answers of coding agents report work");
}

#[test]
fn a_tool_that_the_request_names_is_no_invention_of_the_agent() {
    let call =
        || TrajectoryStep { is_error: true, ..step("", "mcp__flow__spawn", json!({}), "No such tool available") };
    let judged = |query: &str| {
        let run = run(query, vec![call()], "It runs.");
        let offline = OfflineJudge::new(&run);
        assert_eq!(label(&offline.call_validity(0)), label(&offline.request_to_tool(0)));
        label(&offline.call_validity(0))
    };
    assert_eq!(judged("Start a worker."), "bad");
    assert_eq!(judged("Start a worker with mcp__flow__spawn."), "cannot");
    assert_eq!(judged("Start a worker with mcp__flow__spawn_all."), "bad");
}

#[test]
fn a_file_may_be_read_again_after_an_edit_that_failed() {
    let read = || step("", "read_file", json!({"path": "/p/a.py"}), &"x = 1\n".repeat(20));
    let edit = TrajectoryStep {
        is_error: true,
        ..step(
            "",
            "replace",
            json!({"file_path": "/p/a.py", "old_string": "y", "new_string": "z"}),
            "0 occurrences found",
        )
    };
    let judged = |steps: Vec<TrajectoryStep>| {
        let session = run("Fix a.py.", steps, "Done.");
        let session = Trajectory { agent: Some("gemini-cli".to_owned()), ..session };
        label(&OfflineJudge::new(&session).sequence_optimality())
    };
    assert_eq!(judged(vec![read(), read(), read()]), "bad");
    assert_eq!(judged(vec![read(), edit, read()]), "cannot");
}

#[test]
fn an_answer_that_asks_makes_up_for_a_question_that_failed() {
    let judged = |tool: &str, answer: &str| {
        let call = step("", tool, json!({"question": "Which city?"}), "Tool not found");
        let failed = TrajectoryStep { is_error: true, ..call };
        let trajectory = Trajectory { tools: Arc::default(), ..run("Book a table.", vec![failed], answer) };
        label(&OfflineJudge::new(&trajectory).error_recovery())
    };
    let asking = "Let me ask here: which city?\n\n- Oslo\n- Rome\n\nThe table is for two.";
    assert_eq!(judged("form_question", asking), "recovered");
    assert_eq!(judged("AskUserQuestion", asking), "recovered");
    assert_eq!(judged("form_question", "The table is for two."), "ignored");
    assert_eq!(judged("handle_batch", asking), "ignored");
}

#[test]
fn an_exit_status_can_be_an_answer() {
    let judged = |tool: &str, arguments: Json, result: &str| {
        let failed = TrajectoryStep { is_error: true, ..step("", tool, arguments, result) };
        label(&OfflineJudge::new(&run("Ship it.", vec![failed], "The branch is ready.")).error_recovery())
    };
    let bash = |command: &str| judged("Bash", json!({"command": command}), "Exit code 1");
    assert_eq!(bash("gh pr checks 12"), "cannot");
    assert_eq!(bash("cd /p && rg -n needle src docs | head"), "cannot");
    assert_eq!(bash("lsof -iTCP:5199"), "cannot");
    assert_eq!(bash("command -v ocv; ocv --version"), "cannot");
    assert_eq!(bash("git branch -D done"), "cannot");
    assert_eq!(judged("glob", json!({"pattern": "*.rs"}), "rg: ./Library: Interrupted system call"), "cannot");
    assert_eq!(judged("handle_batch", json!({"text": "Ready."}), "failed to deliver"), "ignored");
    assert_eq!(judged("Bash", json!({"command": "npm start"}), "Process exited with code 130"), "cannot");
    assert_eq!(judged("write_stdin", json!({"chars": "\u{3}"}), "Exit code 1"), "cannot");
}

#[test]
fn errors_are_counted_by_class_and_reaction() {
    let steps = vec![
        step("", "list_orders", json!({"customer": "7"}), "[]"),
        step("", "cancel_order", json!({"order": "o-1"}), "403 Forbidden"),
    ];
    let run = run("Cancel order o-1.", steps, "I am not allowed to cancel order o-1.");
    let remarks = OfflineJudge::new(&run).recovery_remarks();
    let [remark] = remarks.as_slice() else { panic!("{remarks:?}") };
    assert_eq!(remark.text, "Errors and reactions: 1 × empty result, admitted; 1 × permission, admitted.");
}

#[test]
fn a_newer_result_supersedes_an_older_one() {
    let list = |result| step("", "list_orders", json!({"customer": "ann"}), result);
    let cancel = || step("", "cancel_order", json!({"order": "o-17"}), "ok");
    let evidence = |steps: Vec<TrajectoryStep>| {
        let at = steps.len() - 1;
        match OfflineJudge::new(&run("Cancel the order of ann.", steps, "Done.")).argument_provenance(at) {
            OfflineVerdict::Good(finding) => finding.evidence.join(" "),
            other => panic!("{other:?}"),
        }
    };
    let found = evidence(vec![list("open: o-17"), list("open: o-18"), cancel()]);
    assert!(found.contains("superseded: step 2"), "{found}");
    let found = evidence(vec![list("open: o-17"), list("open: o-17, o-18"), cancel()]);
    assert!(found.contains("result of step 1") && !found.contains("superseded"), "{found}");
}

#[test]
fn values_need_a_source() {
    assert_eq!(provenance("Mail ann@example.org.", "send_email", json!({"to": "ann@example.org"})), "good");
    assert_eq!(provenance("Mail Ann.", "send_email", json!({"to": "ann@example.com"})), "bad");
    assert_eq!(provenance("Cancel K-1200.", "cancel_order", json!({"order": "#k1200"})), "good");
    assert_eq!(provenance("Cancel K-1200.", "cancel_order", json!({"order": "K-1201"})), "bad");
    // A call that only reads may guess.
    assert_eq!(provenance("Orders of Ann?", "list_orders", json!({"customer": "K-1201"})), "cannot");
    assert_eq!(provenance("Mail Ann.", "send_email", json!({"body": "Dear Bob, see you."})), "n/a");
    // The number of a thing is never a sum of others; an amount may be.
    assert_eq!(provenance("Cancel 12 and 30.", "cancel_order", json!({"order_number": 42})), "bad");
    assert_eq!(provenance("Refund 12 and 30.", "cancel_order", json!({"refund_amount": 42})), "good");
}

#[test]
fn the_whole_conversation_is_a_source() {
    let call = EarlierCall { observation: Some("order K-1200".to_owned()), ..EarlierCall::default() };
    let turn = EarlierTurn {
        query: Some("Ann Lee, C-4411".to_owned()),
        calls: vec![call],
        answer: Some("It costs 310.75.".to_owned()),
    };
    let cancel = step("", "cancel_order", json!({"order": "K-1200", "customer": "C-4411", "refund": 310.75}), "ok");
    let alone = run("Yes, cancel it.", vec![cancel], "Done.");
    let told = Trajectory { earlier_turns: vec![Arc::new(turn)], turn_index: Some(2), ..alone.clone() };
    assert_eq!(label(&OfflineJudge::new(&told).argument_provenance(0)), "good");
    assert_eq!(label(&OfflineJudge::new(&alone).argument_provenance(0)), "bad");
    // A turn is missing: nothing can be proved.
    let gap = Trajectory { turn_index: Some(2), ..alone.clone() };
    assert_eq!(label(&OfflineJudge::new(&gap).argument_provenance(0)), "cannot");
    let continued = ExtractionDefect::new(DefectKind::MissingTurn, "the session continues another one", None);
    let gap = Trajectory { defects: vec![continued], ..alone };
    assert_eq!(label(&OfflineJudge::new(&gap).argument_provenance(0)), "cannot");
}

#[test]
fn missing_parameters_spoil_the_call() {
    let steps = vec![step("", "insert_row", json!({"table": "guests"}), "Error: row is required")];
    let trajectory = run("Put Ann into guests.", steps, "I could not do it.");
    assert_eq!(label(&OfflineJudge::new(&trajectory).call_validity(0)), "bad");
    let steps = vec![step("", "insert_row", json!({"table": "guests"}), "1 row was inserted")];
    let trajectory = run("Put Ann into guests.", steps, "It is done.");
    let OfflineVerdict::Good(found) = OfflineJudge::new(&trajectory).call_validity(0) else { panic!() };
    assert!(found.explanation.contains("but for \"row\": it is required"), "{found:?}");
}

#[test]
fn a_shared_index_gives_the_same_verdicts() {
    let steps = vec![step("I use list_orders.", "list_orders", json!({"customer": "c-77"}), "5")];
    let trajectory = run("Orders of c-77?", steps, "5");
    let index = ToolIndex::new(&trajectory.tools);
    let (own, shared) = (OfflineJudge::new(&trajectory), OfflineJudge::with_index(&trajectory, &index));
    assert_eq!(own.thought_to_tool(0), shared.thought_to_tool(0));
    assert_eq!(own.sequence_optimality(), shared.sequence_optimality());
}

#[test]
fn rules_have_one_id_each() {
    let mut ids: Vec<&str> = OFFLINE_RULES.iter().map(|rule| rule.id).collect();
    ids.sort_unstable();
    ids.dedup();
    assert_eq!(ids.len(), OFFLINE_RULES.len());
    assert!(OFFLINE_RULES.iter().any(|rule| rule.evidence == EvidenceClass::Soft));
}

/// Ten thousand steps, a megabyte of request, and values that occur nowhere: linear work, no panic. A quadratic rule
/// would take hours here.
#[test]
fn long_runs_stay_linear() {
    let long = "I will list the orders of customer c-11 and think about it. ".repeat(5_000);
    let call = |n: usize| step("I go on.", "cancel_order", json!({"order": format!("K-{n}99"), "note": n}), "done");
    let mut trajectory = run(&long, (0..10_000).map(call).collect(), &long);
    trajectory.steps[0].thought = Some(long.clone());
    trajectory.steps[0].observation = Some(long.clone());
    trajectory.steps[1].arguments = Some(json!({"order": long}));
    let offline = OfflineJudge::new(&trajectory);
    let verdicts =
        [offline.sequence_optimality(), offline.outcome(), offline.error_recovery(), offline.task_completion()];
    assert_eq!(verdicts.len(), 4);
    for at in 0..trajectory.steps.len() {
        offline.argument_provenance(at);
        offline.thought_to_tool(at);
        offline.query_to_thought(at);
    }
    assert_eq!(label(&offline.argument_provenance(5_000)), "bad");
}

fn any_json() -> impl Strategy<Value = Json> {
    let leaf = prop_oneof![
        Just(Json::Null),
        any::<bool>().prop_map(Json::from),
        any::<f64>().prop_map(Json::from),
        any::<i64>().prop_map(Json::from),
        ".{0,20}".prop_map(Json::from),
        prop_oneof!["acme/shop", "a@b.cd", "2031-05-20", "HAT136", "x/y/z.rs", "object", "string", "#/a", "1,2;3"]
            .prop_map(Json::from),
    ];
    let key =
        prop_oneof![".{0,6}", "type|properties|required|enum|items|anyOf|allOf|\\$ref|error|command|minimum|default"];
    leaf.prop_recursive(4, 40, 5, move |inner| {
        prop_oneof![
            prop::collection::vec(inner.clone(), 0..5).prop_map(Json::from),
            prop::collection::hash_map(key.clone(), inner, 0..5)
                .prop_map(|map| Json::Object(map.into_iter().collect())),
        ]
    })
}

fn any_text() -> impl Strategy<Value = String> {
    let words = "I will|read|the|list_orders|`x`|\"|'|404 Not Found|Error: |\\{|acme/shop|17|issue|,|。|请在acme/网站|é|🐛|need|not|\n|open|in Lisbon|İ|May 20th|2031-05-20|cancel|\\\\n7|3 days ago|\\?";
    prop_oneof![".{0,80}", prop::collection::vec(words, 0..12).prop_map(|words| words.join(" "))]
}

fn any_step() -> impl Strategy<Value = TrajectoryStep> {
    let tool = prop_oneof![".{0,12}", "list_orders|transfer_to_x|run_sql|cancel_order|a"];
    let texts = (prop::option::of(any_text()), tool, prop::option::of(any_text()), prop::option::of(any_text()));
    (texts, prop::option::of(any_json()), any::<[bool; 2]>(), any::<u32>()).prop_map(
        |((thought, tool, raw, observation), arguments, [is_error, parallel], index)| TrajectoryStep {
            index,
            thought,
            tool,
            arguments,
            arguments_raw: raw,
            observation,
            is_error,
            parallel_with_previous: parallel,
            ..TrajectoryStep::default()
        },
    )
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 300, failure_persistence: None, ..ProptestConfig::default() })]

    /// Nothing a trace holds makes the judge panic, and it says the same twice.
    #[test]
    fn any_trajectory_is_judged(
        steps in prop::collection::vec(any_step(), 0..6),
        tools in prop::collection::vec((".{0,12}|list_orders|read_file", prop::option::of(any_text()), prop::option::of(any_json())), 0..5),
        query in prop::option::of(any_text()),
        answer in prop::option::of(any_text()),
        is_error: bool,
    ) {
        let tools: Vec<ToolDefinition> = tools
            .into_iter()
            .map(|(name, description, schema)| ToolDefinition { name, description, schema: schema.map(|schema| RawJson::from_value(&schema)) })
            .collect();
        let system_prompt = query.as_deref().map(Into::into);
        let trajectory = Trajectory { query, final_answer: answer, steps, tools: tools.into(), is_error, system_prompt, ..Trajectory::default() };
        let offline = OfflineJudge::new(&trajectory);
        let mut verdicts = vec![offline.outcome(), offline.sequence_optimality(), offline.error_recovery(), offline.task_completion()];
        for at in 0..=trajectory.steps.len() {
            verdicts.extend([offline.thought_to_tool(at), offline.query_to_thought(at), offline.request_to_tool(at)]);
            verdicts.extend([offline.call_validity(at), offline.argument_provenance(at)]);
            prop_assert_eq!(offline.argument_provenance(at), OfflineJudge::new(&trajectory).argument_provenance(at));
        }
        for verdict in verdicts {
            if let OfflineVerdict::Good(found) | OfflineVerdict::Bad(found) | OfflineVerdict::Labelled { finding: found, .. } = verdict {
                prop_assert!(found.explanation.chars().count() < 800);
                prop_assert!(found.evidence.iter().all(|line| line.chars().count() < 1_200));
                prop_assert!(OFFLINE_RULES.iter().any(|rule| rule.id == found.rule && rule.evidence == EvidenceClass::Hard));
            }
        }
        offline.outcome_remarks();
        offline.sequence_remarks();
        offline.recovery_remarks();
    }
}
