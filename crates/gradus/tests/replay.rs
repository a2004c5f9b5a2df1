//! `gradus replay` as a user meets it, on a run that was really made.

#![allow(clippy::unwrap_used, reason = "tests fail by panicking")]

#[allow(dead_code, reason = "not all of it is used here")]
mod place;

use gradus_github_agent::agent::RunStep;
use gradus_github_agent::tools::{GitHubTools, ToolRestrictions, ToolSet as _};
use gradus_github_bench::record::TrialRecord;
use gradus_github_bench::suite::{BenchTask, TaskSuite};
use gradus_github_sim::SimulatorServer;
use place::Place;
use serde_json::{Value, json};

/// A file is read, with a look around before and one more after.
fn recorded(task: &BenchTask) -> TrialRecord {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    runtime.block_on(async {
        let mut world = task.world().unwrap();
        world.start_recording_exchanges();
        let server = SimulatorServer::start(world, 0).unwrap();
        let tools = GitHubTools::new(&server.url(), Some(&task.token), ToolRestrictions::default()).unwrap();
        let mut record = TrialRecord {
            task: task.id.clone(),
            request: task.request.clone(),
            answer: Some(task.oracle.answer.clone()),
            ..TrialRecord::default()
        };
        let file = Value::Object(task.oracle.steps[0].arguments.clone());
        let place = json!({"owner": "octo", "repo": "demo"});
        for (tool, arguments) in [("get_repo", place), ("read_file", file.clone()), ("read_file", file)] {
            let from = server.world().lock().unwrap().recorded_exchanges().len();
            let seen = tools.call(tool, &arguments).await;
            record.steps.push(RunStep {
                tool: tool.to_owned(),
                arguments,
                observation: seen.text,
                is_error: seen.is_error,
                exchanges: from..server.world().lock().unwrap().recorded_exchanges().len(),
                ..RunStep::default()
            });
        }
        record.exchanges = server.world().lock().unwrap().recorded_exchanges().to_vec();
        record
    })
}

#[test]
fn says_which_steps_were_needed() {
    let suite = TaskSuite::built_in().unwrap();
    let record = recorded(suite.task("read-a-file").unwrap());
    let place = Place::new();
    std::fs::create_dir(place.path("records")).unwrap();
    place.write("records/read-a-file-0.json", &serde_json::to_string(&record).unwrap());
    let folder = place.folder().to_str().unwrap().to_owned();
    let told = place.run(&["replay", &folder]).exits_with(0).out;
    let lines: Vec<&str> = told.lines().collect();
    assert!(lines[0].contains("read-a-file, trial 0: 3 steps, 1 would have done (3.00 times as many)"), "{told}");
    assert!(lines[1].contains("get_repo") && lines[1].contains("unnecessary"), "{told}");
    assert!(lines[2].contains("read_file") && lines[2].contains("needed"), "{told}");
    assert!(lines[3].contains("unnecessary") && lines[3].contains("the same as step 2"), "{told}");
    let file = format!("{folder}/records/read-a-file-0.json");
    let told = place.run(&["replay", &file, "--json"]).exits_with(0).out;
    let told: Value = serde_json::from_str(&told).unwrap();
    assert_eq!(told["shortest"], json!([2]));
    assert_eq!(told["steps"][2]["need"], "unnecessary");
    place.run(&["replay", &folder, "--task", "4"]).exits_with(0);
    let told = place.run(&["replay", &folder, "--task", "5"]).exits_with(4).err;
    assert!(told.contains("there is no run of task 5"), "{told}");
}

#[test]
fn bad_input_is_one_line() {
    let place = Place::new();
    std::fs::create_dir(place.path("records")).unwrap();
    let folder = place.folder().to_str().unwrap().to_owned();
    let one_line = |told: &str, wanted: &str| {
        assert!(told.contains(wanted) && told.trim_end().lines().count() == 1, "{told}\nwanted {wanted}");
    };
    one_line(&place.run(&["replay", &folder]).exits_with(4).err, "there is no run");
    one_line(&place.run(&["replay", "no/such/folder"]).exits_with(2).err, "no/such/folder: ");
    std::fs::create_dir(place.path("empty")).unwrap();
    one_line(&place.run(&["replay", place.path("empty").to_str().unwrap()]).exits_with(4).err, "there is no run");
    let broken = place.write("records/x-0.json", "{\"task\": 5}");
    one_line(&place.run(&["replay", &folder]).exits_with(2).err, "this is no record of a run");
    let unknown = TrialRecord { task: "x".to_owned(), ..TrialRecord::default() };
    std::fs::write(&broken, serde_json::to_string(&unknown).unwrap()).unwrap();
    one_line(&place.run(&["replay", &folder]).exits_with(2).err, "its task \"x\" is not in the suite");
    one_line(&place.run(&["replay", &folder, "--task", "nothing"]).exits_with(2).err, "chooses no task");
    one_line(&place.run(&["replay", &folder, "--suite", "nothing"]).exits_with(2).err, "there is no suite");
    one_line(
        &place.run(&["replay", place.folder().join("records").to_str().unwrap()]).exits_with(2).err,
        "give the folder of a run",
    );
}
