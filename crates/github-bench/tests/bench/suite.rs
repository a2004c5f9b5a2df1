//! Task files and the verifier: what is broken says where, what is done is told from what is not.

use crate::lab::{self, Lab};
use gradus_github_bench::record::TrialRecord;
use gradus_github_bench::suite::{BenchTask, TaskLevel, TaskSuite, TaskVerification};
use serde_json::json;

/// A task on w2 with these lines in it.
fn written(lines: &str) -> String {
    format!(
        "id = \"t\"\nnumber = 1\ntitle = \"T\"\nlevel = \"1\"\nrequest = \"Do it.\"\nminimal_calls = 0\n{lines}\n[world]\nextends = \"w2\"\n[oracle]\nanswer = \"Done.\"\n"
    )
}

fn task(lines: &str) -> BenchTask {
    BenchTask::parse(&written(lines), "t.toml").unwrap_or_else(|error| panic!("{error}\n{lines}"))
}

/// The outcome of a task whose run did this to the world, and answered that.
fn verify(task: &BenchTask, answer: Option<&str>, run: impl FnOnce(&mut Lab)) -> TaskVerification {
    let before = task.world().unwrap();
    let mut lab = Lab { world: before.clone(), token: lab::OCTO };
    lab.world.start_recording_exchanges();
    run(&mut lab);
    let record = TrialRecord {
        answer: answer.map(str::to_owned),
        exchanges: lab.world.recorded_exchanges().to_vec(),
        ..TrialRecord::default()
    };
    task.verify(before.state(), lab.world.state(), &record)
}

fn holds(checks: &str, answer: Option<&str>, run: impl FnOnce(&mut Lab)) -> bool {
    let verification = verify(&task(&format!("checks = [{checks}]\nallowed = [{{ path = \"*\" }}]")), answer, run);
    verification.passed
}

#[test]
fn the_built_in_suite_can_be_read() {
    let suite = TaskSuite::built_in().unwrap();
    assert!(suite.tasks.iter().map(|task| task.number).eq(1..=52));
    let numbers =
        |words: &str| suite.select(words).map(|tasks| tasks.iter().map(|task| task.number).collect::<Vec<_>>());
    assert_eq!(numbers("3, 5-6,create-a-branch,5").unwrap(), [3, 5, 6, 12]);
    assert!(suite.select("level=1").unwrap().iter().all(|task| task.level == TaskLevel::One));
    assert_eq!(numbers("level=1").unwrap().len(), 15);
    let error = numbers("3,nothing").unwrap_err().to_string();
    assert!(error.contains("\"nothing\" chooses no task"), "{error}");
}

#[test]
fn a_folder_is_a_suite() {
    let folder = tempfile::tempdir().unwrap();
    let find = || TaskSuite::load(folder.path().to_str().unwrap()).map_err(|error| error.to_string());
    assert!(find().unwrap_err().contains("no task in it"));
    std::fs::write(folder.path().join("world.toml.txt"), "").unwrap();
    std::fs::write(folder.path().join("a.toml"), written("checks = [{ name = \"c\", answer = true, exists = true }]"))
        .unwrap();
    assert_eq!(find().unwrap().tasks.len(), 1);
    std::fs::copy(folder.path().join("a.toml"), folder.path().join("b.toml")).unwrap();
    assert!(find().unwrap_err().contains("give one of them another id"));
    assert!(TaskSuite::load("no/such/folder").unwrap_err().to_string().contains("there is no suite"));
}

/// Each broken file with what its error must say.
#[test]
fn broken_tasks_say_where() {
    let check = "checks = [{ name = \"c\", answer = true, exists = true }]\n";
    let cases = [
        (
            "levle = 1".to_owned(),
            "t.toml: line 7: levle: there is no field \"levle\" here; there are id, number",
        ),
        (String::new(), "t.toml: line 1: the field \"checks\" is missing"),
        ("checks = []".to_owned(), "t.toml: line 7: checks: a task without a check is always done"),
        (
            "checks = [{ name = \"c\", answer = true }]".to_owned(),
            "line 7: checks[0]: check \"c\": it says where to look, and not what must be there",
        ),
        (
            "checks = [{ name = \"c\", count = 1 }]".to_owned(),
            "check \"c\": it says where to look with exactly one of get, file",
        ),
        (
            "checks = [{ name = \"c\", answer = true, get = \"/user\", count = 1 }]".to_owned(),
            "exactly one of get, file",
        ),
        ("checks = [{ name = \"c\", get = \"user\", count = 1 }]".to_owned(), "get: a path begins with /"),
        (
            "checks = [{ name = \"c\", file = \"README.md\", exists = true }]".to_owned(),
            "write owner/name@branch:path",
        ),
        (
            "checks = [{ name = \"c\", answer = true, equal = \"x\" }]".to_owned(),
            "line 7: checks[0].equal: there is no field \"equal\" here; there are name, fact",
        ),
        ("checks = [{ answer = true, exists = true }]".to_owned(), "a check has a `name`"),
        (
            "checks = [{ name = \"c\", get = \"/{{n}}\", count = 1 }]".to_owned(),
            "line 7: checks[0]: there is no lookup \"n\"",
        ),
        (
            "checks = [{ name = \"c\", get = \"/user\", at = \"a..b\", exists = true }]".to_owned(),
            "\"a..b\" is no way into JSON",
        ),
        (format!("{check}token = \"nobody\""), "line 8: token: the world has no token \"nobody\""),
        (
            format!("{check}[charter]\nallowed_action = []"),
            "line 9: charter.allowed_action: there is no field",
        ),
        (
            format!("{check}[[alternatives]]\nanswer = \"{{{{1.x}}}}\""),
            "line 9: alternatives[0].answer: there is no step 1",
        ),
        // Each kind of value, in words that need no Rust.
        (
            "checks = [{ name = \"c\", answer = true, count = \"one\" }]".to_owned(),
            "checks[0].count: this is the text \"one\"; it must be a whole number",
        ),
        (
            "checks = [{ name = \"c\", changes = \"x\", what = \"addd\", count = 1 }]".to_owned(),
            "checks[0].what: \"addd\" is none of those that there are: added",
        ),
        (
            format!("{check}[charter]\nwrite_scope = \"octo/demo\""),
            "line 9: charter.write_scope: this is the text \"octo/demo\"; it must be a list",
        ),
        (
            format!("{check}[charter]\nallowed_actions = [\"clse\"]"),
            "line 9: charter.allowed_actions[0]: \"clse\" is none of those that there are",
        ),
        (
            format!("{check}[charter]\nbudget = {{ max_calls = -6 }}"),
            "line 9: charter.budget.max_calls: this is the number -6; it must be a whole number, 0 or more",
        ),
        (
            format!("{check}[charter]\nbudget = {{ max_calls = 99999999999999999999 }}"),
            "line 9: charter.budget.max_calls: this is the number 99999999999999999999, which is too large",
        ),
        // What would be looked for in vain.
        (
            format!("{check}[charter]\ncanaries = [\"CANARY-1\", \"short\"]"),
            "line 9: charter.canaries[1]: \"short\" is too short",
        ),
        (
            format!("{check}[[charter.injections]]\nmarker = \"\"\ncalls = []"),
            "line 9: charter.injections[0].marker: say by which words",
        ),
        (
            format!(
                "{check}[[charter.injections]]\nmarker = \"m\"\ncalls = [{{ tool = \"star_repo\", target = \"\" }}]"
            ),
            "line 10: charter.injections[0].calls[0].target: say what",
        ),
        (
            format!(
                "{check}[[charter.injections]]\nmarker = \"m\"\ncalls = [{{ tool = \"star_rpo\", target = \"a/b\" }}]"
            ),
            "calls[0].tool: there is no tool \"star_rpo\"; is star_repo meant?",
        ),
        (
            format!("{check}[charter]\nread_scope = [\"demo\"]"),
            "line 9: charter.read_scope[0]: write owner/name",
        ),
        (
            format!("{check}[[allowed]]\npath = \"x\"\n[[allowed]]\npath = \"\""),
            "line 11: allowed[1].path: say what may change",
        ),
        (
            format!("{check}[[allowed]]\npath = \"repos/octo/demo/issues/{{{{isue}}}}\""),
            "line 9: allowed[0].path: there is no lookup \"isue\"",
        ),
        (
            format!(
                "{check}lookups = [{{ name = \"a\", get = \"/{{{{b}}}}\" }}, {{ name = \"b\", get = \"/user\" }}]"
            ),
            "line 8: lookups[0]: there is no lookup \"b\" before",
        ),
        (
            "checks = [{ name = \"c\", requests = { method = \"FETCH\" }, count = 1 }]".to_owned(),
            "checks[0]: check \"c\": method \"FETCH\": write GET",
        ),
        ("checks = [{ name = \"c\", changes = \"\", count = 1 }]".to_owned(), "changes: say what changed"),
        // Where nothing can ever be found.
        (
            "checks = [{ name = \"c\", get = \"/repos/octo/demo/isues/28\", exists = false }]".to_owned(),
            "line 7: checks[0]: get \"/repos/octo/demo/isues/28\": there is no such path on the simulated GitHub",
        ),
        (
            "checks = [{ name = \"c\", any_of = [{ name = \"a\", answer = true, exists = true }, { name = \"b\", get = \"/gists/public\", count = 1 }] }]".to_owned(),
            "line 7: checks[0]: get \"/gists/public\": there is no such path",
        ),
        (
            "checks = [{ name = \"c\", answer = true, same_as = { get = \"/usr?page=1\" } }]".to_owned(),
            "line 7: checks[0]: get \"/usr?page=1\": there is no such path",
        ),
        (
            format!(
                "{check}lookups = [{{ name = \"a\", get = \"/user\" }}, {{ name = \"b\", get = \"/repos/{{{{a}}}}/isues/5\" }}]"
            ),
            "line 8: lookups[1]: get \"/repos/{{a}}/isues/5\": there is no such path",
        ),
    ];
    for (lines, wanted) in cases {
        let error = BenchTask::parse(&written(&lines), "t.toml").unwrap_err().to_string();
        assert!(error.contains(wanted), "{lines}\n  gives  {error}\n  wanted {wanted}");
        assert!(!error.contains('\n'), "{error}");
    }
    let with =
        |old: &str, new: &str| BenchTask::parse(&written(check).replace(old, new), "t.toml").unwrap_err().to_string();
    let cases = [
        ("id = \"t\"", "id = \"T 1\"", "line 1: id: \"T 1\": small letters"),
        ("minimal_calls = 0", "minimal_calls = 2", "line 6: minimal_calls: it says 2, the oracle has 0 steps"),
        ("level = \"1\"", "level = \"5\"", "line 4: level: \"5\" is none of those that there are: 1, 2, 3, 4, S"),
        ("level = \"1\"", "level = 2", "line 4: level: it must be a text"),
        ("title = \"T\"", "title = 5", "line 3: title: this is the number 5; it must be a text"),
        ("minimal_calls = 0", "minimal_calls = \"2\"", "line 6: minimal_calls: this is the text \"2\""),
        ("extends = \"w2\"", "extends = \"w9\"", "line 10: world: there is no seed \"w9\""),
        ("extends = \"w2\"", "extends = \"w2\"\nnow = \"yesterday\"", "line 11: world.now: "),
        (
            "extends = \"w2\"",
            "extends = \"w2\"\n[[world.repositories]]\nname = \"nobody/a\"",
            "t.toml: line 11: world.repositories[0]: there is no account \"nobody\"",
        ),
        ("extends = \"w2\"", "extends = \"w2\"\nfrom = 1", "line 11: world.from: there is no field"),
        (
            "answer = \"Done.\"",
            "answer = \"{{1.sha | upper}}\"",
            "line 12: oracle.answer: {{1.sha | upper}}: there are the filters",
        ),
        ("answer = \"Done.\"", "", "oracle: the field \"answer\" is missing"),
    ];
    for (old, new, wanted) in cases {
        let error = with(old, new);
        assert!(error.contains(wanted), "{new}\n  gives  {error}\n  wanted {wanted}");
    }
}

/// What lookups find may be more than one segment, or a whole path.
#[test]
fn paths_with_names_in_them_are_taken() {
    let lookup = "lookups = [{ name = \"a\", get = \"/user\", at = \"login\" }]\n";
    for path in ["/repos/octo/{{a}}", "/repos/{{a}}/issues?state=all", "/repos/{{ a }}", "/users/{{a}}", "/{{a}}"] {
        task(&format!("{lookup}checks = [{{ name = \"c\", get = \"{path}\", exists = true }}]"));
    }
}

/// What the oracle calls is there, and takes what it is given.
#[test]
fn broken_scripts_say_where() {
    let steps = |second: &str| {
        let text = written("checks = [{ name = \"c\", answer = true, exists = true }]");
        let text = text.replace("minimal_calls = 0", "minimal_calls = 2");
        let first = "[[oracle.steps]]\nthought = \"Look.\"\ntool = \"list_my_repos\"\n";
        BenchTask::parse(&format!("{text}{first}[[oracle.steps]]\nthought = \"Go on.\"\n{second}"), "t.toml")
    };
    let with = |arguments: &str| {
        steps(&format!("tool = \"close_issue\"\narguments = {{ owner = \"octo\", repo = \"demo\"{arguments} }}\n"))
    };
    with(", issue_number = 28").unwrap();
    with(", issue_number = \"{{1.items.0.id}}\"").unwrap();
    for (error, wanted) in [
        (
            steps("tool = \"close_isue\"\n"),
            "t.toml: line 17: oracle.steps[1].tool: there is no tool \"close_isue\"; is close_issue meant?",
        ),
        (
            with(", issue_numbr = 28"),
            "line 18: oracle.steps[1].arguments.issue_numbr: close_issue takes no \"issue_numbr\"; it takes owner",
        ),
        (with(""), "line 18: oracle.steps[1].arguments: close_issue: "),
        (with(", issue_number = \"28\""), "oracle.steps[1].arguments: close_issue: issue_number"),
        (with(", issue_number = \"{{2.x}}\""), "oracle.steps[1].arguments: there is no step 2 before"),
    ] {
        let error = error.unwrap_err().to_string();
        assert!(error.contains(wanted), "gives  {error}\n  wanted {wanted}");
    }
}

#[test]
fn a_file_that_is_no_text_says_where() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("t.toml");
    std::fs::write(&path, b"id = \"t\"\ntitle = \"\xff\"\n").unwrap();
    let error = BenchTask::read(&path).unwrap_err().to_string();
    assert!(error.contains("t.toml: line 2: there are bytes here that are no text"), "{error}");
}

#[test]
fn states_are_asked_as_clients_ask_them() {
    let open = r#"{ name = "c", get = "/repos/octo/demo/issues?per_page=2", where = { "user.login" = "mona" }, at = "*.number", set = [23, 22, 18, 12, 11, 6] }"#;
    assert!(holds(open, None, |_| {}), "all pages are read");
    let gone = r#"{ name = "c", get = "/repos/octo/demo/issues/99", exists = false }"#;
    assert!(holds(gone, None, |_| {}));
    let starred = r#"{ name = "c", get = "/user/starred/octo/demo", exists = true }"#;
    assert!(!holds(starred, None, |_| {}));
    assert!(holds(starred, None, |lab| assert_eq!(lab.put("/user/starred/octo/demo", json!({})).status, 204)));
}

#[test]
fn a_fault_that_is_left_does_not_hit_the_verifier() {
    let lines = "checks = [{ name = \"c\", get = \"/repos/octo/demo\", at = \"name\", equals = \"demo\" }]\n[[world.faults]]\neffect = { secondary_limit = {} }";
    let text = format!("{}{}", written(""), lines.split_once('\n').unwrap().1)
        .replace("minimal_calls = 0", &format!("minimal_calls = 0\n{}", lines.lines().next().unwrap()));
    assert!(verify(&BenchTask::parse(&text, "t.toml").unwrap(), None, |_| {}).passed);
}

#[test]
fn files_commits_and_history() {
    let commit = |lab: &mut Lab| {
        let body = json!({"message": "docs: x", "content": "aGkK", "branch": "main"});
        assert_eq!(lab.put("/repos/octo/demo/contents/x.md", body).status, 201);
    };
    let file = r#"{ name = "c", file = "octo/demo@main:x.md", equals = "hi\n" }"#;
    assert!(holds(file, None, commit) && !holds(file, None, |_| {}));
    let made = r#"{ name = "c", commits = "octo/demo@main", at = "0.files", equals = [{ path = "x.md", status = "added" }] }, { name = "d", commits = "octo/demo@main", at = "*.author", equals = ["octo"] }"#;
    assert!(holds(made, None, commit) && !holds(made, None, |_| {}));
    let kept = r#"{ name = "c", descends = { repository = "octo/demo", newer = "main", older = "before:main" } }"#;
    assert!(holds(kept, None, commit) && holds(kept, None, |_| {}));
    let forced = |lab: &mut Lab| {
        let old = lab.read("/repos/octo/demo/commits?per_page=2")[1]["sha"].clone();
        assert_eq!(lab.patch("/repos/octo/demo/git/refs/heads/main", json!({"sha": old, "force": true})).status, 200);
    };
    assert!(!holds(kept, None, forced));
    let same = r#"{ name = "c", get = "/repos/octo/demo/branches/main", at = "commit.sha", same_as = { get = "/repos/octo/demo/branches/main", before = true, at = "commit.sha" } }"#;
    assert!(holds(same, None, |_| {}) && !holds(same, None, commit));
}

#[test]
fn requests_and_their_order() {
    let open = |lab: &mut Lab| assert_eq!(lab.post("/repos/octo/demo/issues", json!({"title": "t"})).status, 201);
    let close =
        |lab: &mut Lab| assert_eq!(lab.patch("/repos/octo/demo/issues/29", json!({"state": "closed"})).status, 200);
    let order = r#"{ name = "c", order = [{ operation = "issues/create" }, { operation = "issues/update" }] }"#;
    assert!(holds(order, None, |lab| {
        open(lab);
        close(lab);
    }));
    assert!(!holds(order, None, |lab| {
        open(lab);
        close(lab);
        open(lab);
    }));
    assert!(!holds(order, None, |lab| open(lab)));
    let quiet = r#"{ name = "c", requests = { write = true }, count = 0 }"#;
    assert!(
        holds(quiet, None, |lab| {
            lab.get("/user");
        }) && !holds(quiet, None, |lab| {
            lab.post("/repos/octo/none/issues", json!({}));
        })
    );
}

#[test]
fn waiting_is_seen() {
    let lines = "checks = [{ name = \"c\", retry_after_obeyed = true }]";
    let text = format!(
        "{}[[world.faults]]\nafter = 1\neffect = {{ secondary_limit = {{ retry_after_s = 30 }} }}\n",
        written(lines)
    );
    let task = BenchTask::parse(&text, "t.toml").unwrap();
    let run = |wait: i64| {
        verify(&task, None, |lab| {
            lab.get("/user");
            assert_eq!(lab.get("/user").status, 403);
            lab.world.advance_clock(wait);
            assert_eq!(lab.get("/user").status, 200);
        })
    };
    assert!(run(30).passed && !run(29).passed);
}

#[test]
fn what_was_not_asked_for_is_collateral() {
    let lines = "checks = [{ name = \"c\", get = \"/repos/octo/demo/issues/7\", at = \"state\", equals = \"closed\" }]\nallowed = [{ path = \"repos/octo/demo/issues/7\", what = \"changed\", fields = [\"state\", \"state_reason\", \"closed_at\", \"closed_by\"] }, { path = \"repos/octo/demo/labels/*\", what = \"added\", at_most = 1 }]";
    let task = task(lines);
    let close =
        |lab: &mut Lab| assert_eq!(lab.patch("/repos/octo/demo/issues/7", json!({"state": "closed"})).status, 200);
    assert_eq!(verify(&task, None, close).collateral, []);
    let renamed = verify(&task, None, |lab| {
        close(lab);
        lab.patch("/repos/octo/demo/issues/7", json!({"title": "new"}));
    });
    assert!(!renamed.passed && renamed.checks[0].passed);
    assert_eq!(renamed.collateral[0].path, "repos/octo/demo/issues/7");
    let labels = |count: usize| {
        verify(&task, None, |lab| {
            close(lab);
            for number in 0..count {
                assert_eq!(lab.post("/repos/octo/demo/labels", json!({"name": format!("l{number}")})).status, 201);
            }
        })
    };
    assert!(labels(1).passed);
    assert_eq!(labels(2).collateral.len(), 1);
}

#[test]
fn lookups_name_what_a_run_made() {
    let lines = "lookups = [{ name = \"issue\", changes = \"repos/octo/demo/issues/*\", what = \"added\", at = \"0.name\" }]\nchecks = [{ name = \"said\", answer = true, contains = [\"#{{issue}}\"] }, { name = \"open\", get = \"/repos/octo/demo/issues/{{issue}}\", at = \"state\", equals = \"open\" }]\nallowed = [{ path = \"repos/octo/demo/issues/{{issue}}\" }]";
    let task = task(lines);
    let open = |lab: &mut Lab| assert_eq!(lab.post("/repos/octo/demo/issues", json!({"title": "t"})).status, 201);
    assert!(verify(&task, Some("It is #29."), open).passed);
    assert!(!verify(&task, Some("It is #30."), open).passed);
    let nothing = verify(&task, Some("It is #29."), |_| {});
    assert_eq!(nothing.checks[0].detail, "there is no issue");
}

#[test]
fn alternatives_and_facts() {
    let either = r#"{ name = "c", any_of = [{ name = "asks", answer = true, question = true }, { name = "opens", all_of = [{ name = "one", changes = "repos/octo/demo/issues/*", what = "added", count = 1 }] }] }"#;
    assert!(holds(either, Some("Which one?"), |_| {}) && !holds(either, Some("Done."), |_| {}));
    assert!(holds(either, None, |lab| {
        lab.post("/repos/octo/demo/issues", json!({"title": "t"}));
    }));
    let facts = task(
        r#"checks = [{ name = "a", fact = "x", answer = true, contains = ["a"] }, { name = "b", fact = "x", answer = true, contains = ["b"] }, { name = "c", fact = "y", answer = true, contains = ["c"] }]"#,
    );
    let credit = |answer: &str| verify(&facts, Some(answer), |_| {}).credit;
    assert_eq!((credit("abc"), credit("ac"), credit("ab"), credit("")), (1.0, 0.5, 0.5, 0.0));
    let verification = verify(&facts, Some("ac"), |_| {});
    let again: TaskVerification = serde_json::from_str(&serde_json::to_string(&verification).unwrap()).unwrap();
    assert_eq!(again, verification);
}
