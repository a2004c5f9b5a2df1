//! Files that an earlier version left behind, opened by this one. `fixtures/upgrade/make.py` made them with that version,
//! together with what it answered; this version has to answer the same, and may say more.

use std::io::Read as _;
use std::path::Path;
use std::process::Command;

use serde_json::{Value as Json, json};

use crate::compatibility::find_breaking_operations;
use crate::lab::{Lab, Server, in_vain};
use crate::place::Ran;

const SERVE: [&str; 7] = ["serve", "--log-format", "json", "--http", "127.0.0.1:0", "--grpc", "127.0.0.1:0"];

/// A working folder as the earlier version left it: settings, store, runs, benchmark, an export of the store.
struct OldFolder {
    lab: Lab,
    expected: Json,
}

impl std::ops::Deref for OldFolder {
    type Target = Lab;

    fn deref(&self) -> &Lab {
        &self.lab
    }
}

fn read_compressed(name: &str) -> Vec<u8> {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fixtures/upgrade/528afdd").join(name);
    let mut content = Vec::new();
    flate2::read::GzDecoder::new(std::fs::File::open(path).unwrap()).read_to_end(&mut content).unwrap();
    content
}

impl OldFolder {
    fn unpack() -> OldFolder {
        let lab = Lab::new();
        let state: Json = serde_json::from_slice(&read_compressed("state.json.gz")).unwrap();
        for (name, content) in state.as_object().unwrap() {
            let bytes = match content["file"].as_str() {
                Some(file) => read_compressed(file),
                None => content.as_str().unwrap().as_bytes().to_vec(),
            };
            lab.write(name, "");
            std::fs::write(lab.path(name), bytes).unwrap();
        }
        OldFolder { lab, expected: serde_json::from_slice(&read_compressed("expected.json.gz")).unwrap() }
    }

    /// A command with a key for the judges that the settings name; they listen nowhere.
    fn command(&self, arguments: &[&str]) -> Command {
        let mut command = self.lab.command(arguments);
        command.env("OPENAI_API_KEY", "none");
        command
    }

    fn run(&self, arguments: &[&str]) -> Ran {
        Ran::from_output(self.command(arguments).output().unwrap())
    }

    fn serve(&self) -> Server {
        Server::start(self.command(&SERVE))
    }

    /// The number of migrations that the store has been through.
    fn store_format(&self) -> i64 {
        self.sql().pragma_query_value(None, "user_version", |row| row.get(0)).unwrap()
    }

    fn get(&self, server: &Server, key: &str, path: &str) -> (u16, String) {
        let key = format!("Bearer {}", self.expected["keys"][key].as_str().unwrap());
        let reply = server.request("GET", path).header("authorization", &key).send();
        (reply.status, reply.text())
    }

    fn get_json(&self, server: &Server, path: &str) -> Json {
        let (status, text) = self.get(server, "owner", path);
        assert_eq!(status, 200, "{path}: {text}");
        if path.starts_with("/labels") { parse_lines(&text) } else { serde_json::from_str(&text).unwrap() }
    }

    /// All files of the store, byte by byte.
    fn store_bytes(&self) -> Vec<u8> {
        std::fs::read(self.path(".gradus/gradus.db")).unwrap()
    }
}

/// Where `got` does not say what `wanted` says; it may say more.
fn differences(wanted: &Json, got: &Json, path: &str, found: &mut Vec<String>) {
    match (wanted, got) {
        // What an alert measures is that of its last look. The ends of intervals are compared below.
        _ if path.ends_with(".now") => {}
        (Json::Number(wanted), Json::Number(got)) if path.ends_with(".low") || path.ends_with(".high") => {
            // Intervals of few cases became wider since; their estimates did not change.
            let distance = (wanted.as_f64().unwrap() - got.as_f64().unwrap()).abs();
            if distance > 0.05 {
                found.push(format!("{path}: {got} instead of {wanted}"));
            }
        }
        (Json::Object(wanted), Json::Object(got)) => {
            for (name, wanted) in wanted {
                differences(wanted, got.get(name).unwrap_or(&Json::Null), &format!("{path}.{name}"), found);
            }
        }
        // Rules go on watching, so there may be later events; the latest come first.
        (Json::Array(wanted), Json::Array(got)) if path == ".events" && got.len() > wanted.len() => {
            let got = Json::from(got[got.len() - wanted.len()..].to_vec());
            differences(&Json::from(wanted.clone()), &got, path, found);
        }
        // A report shows the gates that were recorded with its run, which it did not then.
        (Json::Array(wanted), Json::Array(_)) if path == ".gates" && wanted.is_empty() => {}
        (Json::Array(wanted), Json::Array(got)) if wanted.len() == got.len() => {
            for (index, (wanted, got)) in wanted.iter().zip(got).enumerate() {
                differences(wanted, got, &format!("{path}[{index}]"), found);
            }
        }
        _ if wanted == got => {}
        _ => found.push(format!("{path}: {got} instead of {wanted}")),
    }
}

fn assert_says_the_same(wanted: &Json, got: &Json, what: &str) {
    let mut found = Vec::new();
    differences(wanted, got, "", &mut found);
    assert!(found.is_empty(), "{what}: {found:#?}");
}

fn parse_lines(text: &str) -> Json {
    text.lines().map(|line| serde_json::from_str::<Json>(line).unwrap()).collect()
}

/// Projects, traces with trajectories and verdicts, annotations, labels, alerts, runs, figures, what Phoenix's clients see.
#[test]
fn a_server_answers_as_the_earlier_version_did() {
    let old = OldFolder::unpack();
    assert_eq!(old.store_format(), 1);
    let server = old.serve();
    let answers = old.expected["answers"].as_object().unwrap();
    assert!(answers.len() > 30, "{}", answers.len());
    for (path, wanted) in answers {
        let got = old.get_json(&server, path);
        // Alerts look on, and a rule whose traces have become too old is quiet again.
        if path == "/api/v1/alerts" {
            assert_says_the_same(&json!({"events": wanted["events"]}), &got, path);
            assert_eq!(got["rules"].as_array().unwrap().len(), wanted["rules"].as_array().unwrap().len());
        } else {
            assert_says_the_same(wanted, &got, path);
        }
    }
    // What waited for a model still does.
    let metrics = old.get(&server, "owner", "/metrics").1;
    assert!(metrics.contains("\ngradus_trajectories_ungraded 1.0\n"), "{metrics}");
    assert_eq!(server.stop().0, Some(0));
    assert!(old.store_format() > 1);
    let checked = old.run(&["store", "check"]).exits_with(0);
    assert_eq!(checked.out.trim(), old.expected["check"].as_str().unwrap().trim());
}

/// Operations, parameters and fields that programs were written for.
#[test]
fn the_api_has_everything_that_it_had() {
    let before: Json = serde_json::from_slice(&read_compressed("openapi.json.gz")).unwrap();
    let now = Lab::new().serve().json("/openapi.json");
    assert_eq!(find_breaking_operations(&before, &now), Vec::<String>::new());
    // And it would notice: a parameter less, and a field.
    let mut broken = now.clone();
    broken["paths"]["/api/v1/metrics"]["get"]["parameters"].as_array_mut().unwrap().pop();
    let schema = broken.pointer_mut("/components/schemas/MetricPoint/properties").unwrap();
    schema.as_object_mut().unwrap().remove("mean").unwrap();
    assert_eq!(find_breaking_operations(&before, &broken).len(), 2);
}

#[test]
fn keys_of_the_earlier_version_still_open_what_they_did() {
    let old = OldFolder::unpack();
    let server = old.serve();
    assert_eq!(old.get(&server, "reader", "/api/v1/projects").0, 200);
    assert_eq!(old.get(&server, "collector", "/api/v1/projects").0, 403);
    assert_eq!(old.get(&server, "former", "/api/v1/projects").0, 401);
    let send = |key: &str| {
        let key = format!("Bearer {}", old.expected["keys"][key].as_str().unwrap());
        let request = server.request("POST", "/v1/traces").header("content-type", "application/x-protobuf");
        request.header("authorization", &key).send().status
    };
    assert_eq!((send("collector"), send("reader"), send("former")), (200, 403, 401));
}

/// Each on a copy of its own: none of them needs a server to have been there first.
#[test]
fn commands_read_an_older_store() {
    let read: [&[&str]; 4] = [
        &["store", "check"],
        &["store", "export", "again.jsonl.zst"],
        &["traces", "store:shop"],
        &["eval", "store:shop", "--judge", "offline", "--gate", "failed <= 1"],
    ];
    for arguments in read {
        let old = OldFolder::unpack();
        old.run(arguments).exits_with(0);
        assert!(old.store_format() > 1, "{arguments:?}");
    }
    let old = OldFolder::unpack();
    for (project, wanted) in old.expected["trajectories"].as_object().unwrap() {
        let ran = old.run(&["traces", "--format", "jsonl", &format!("store:{project}")]).exits_with(0);
        assert_says_the_same(wanted, &parse_lines(&ran.out), project);
    }
    old.run(&["store", "compact"]).exits_with(0);
    old.run(&["keys", "add", "another"]).exits_with(0);
    old.run(&["keys", "revoke", "reader"]).exits_with(0);
}

/// Before the upgrade one wants to look, and to make a copy.
#[test]
fn some_commands_leave_an_older_store_as_it_is() {
    let old = OldFolder::unpack();
    let before = old.store_bytes();
    let listed = old.run(&["keys", "list"]).exits_with(0);
    assert_eq!(listed.out, old.expected["key_list"].as_str().unwrap());
    old.run(&["store", "backup", "copy/gradus.db"]).exits_with(2);
    std::fs::create_dir(old.path("copy")).unwrap();
    old.run(&["store", "backup", "copy/gradus.db"]).exits_with(0);
    // Its judges listen nowhere, so not all is well.
    let doctor = old.run(&["doctor"]).exits_with(2);
    let line = "ok   store: made by an older Gradus (format 1); the first start upgrades it to format ";
    assert!(doctor.out.contains(line) && doctor.out.contains("ok   keys: 3 valid"), "{}", doctor.out);
    assert!(old.store_bytes() == before, "the store was changed");
    // The copy is a store of that version, too.
    let checked = old.run(&["store", "check", "--data", "copy"]).exits_with(0);
    assert_eq!(checked.out.trim(), old.expected["check"].as_str().unwrap().trim());
}

#[test]
fn an_export_of_the_earlier_version_is_imported() {
    let old = OldFolder::unpack();
    let server = old.serve();
    let wanted = old.get_json(&server, "/api/v1/traces?limit=100");
    server.stop();
    old.run(&["store", "import", "export.jsonl.zst", "--data", "new"]).exits_with(0);
    let checked = old.run(&["store", "check", "--data", "new"]).exits_with(0);
    assert_eq!(checked.out.trim(), old.expected["check"].as_str().unwrap().trim());
    // Keys are not exported.
    let added = old.run(&["keys", "add", "mine", "--scopes", "admin", "--data", "new"]).exits_with(0);
    let server = Server::start(old.command(&[&SERVE[..], &["--data", "new"]].concat()));
    let reply = server.request("GET", "/api/v1/traces?limit=100");
    let reply = reply.header("authorization", &format!("Bearer {}", added.out.trim())).send();
    assert_says_the_same(&wanted, &reply.json(), "the imported traces");
    // Retention goes by arrival, which exports of that time did not have under this name.
    let arrived = |data: &str| -> Vec<(i64, i64)> {
        let sql = rusqlite::Connection::open(old.path(data).join("gradus.db")).unwrap();
        let mut statement = sql.prepare("SELECT no, first_arrived_ns FROM trace ORDER BY no").unwrap();
        statement.query_map([], |row| Ok((row.get(0)?, row.get(1)?))).unwrap().collect::<Result<_, _>>().unwrap()
    };
    assert_eq!(arrived("new"), arrived(".gradus"));
    assert!(arrived("new").iter().all(|(_, arrived_ns)| *arrived_ns > 0));
}

/// Runs by rules, with a model and a rubric of the user's, one that ended early, and a benchmark.
#[test]
fn runs_are_reported_as_before() {
    let old = OldFolder::unpack();
    let runs = old.expected["runs"].as_object().unwrap();
    assert_eq!(runs.len(), 4);
    for (run, wanted) in runs {
        let summary = old.run(&["report", run, "--json", "-"]).exits_with(0);
        assert_says_the_same(&wanted["summary"], &serde_json::from_str(&summary.out).unwrap(), run);
        let outcomes = old.run(&["report", run, "--jsonl", "-"]).exits_with(0);
        assert_says_the_same(&wanted["outcomes"], &parse_lines(&outcomes.out), run);
        for option in ["--html", "--markdown", "--junit", "--csv"] {
            let file = format!("{run}{option}");
            old.run(&["report", run, option, &file]).exits_with(0);
            assert!(old.path(&file).exists(), "{run} {option}");
        }
    }
    let listed = old.run(&["runs"]).exits_with(0).out;
    assert!(runs.keys().all(|run| listed.contains(run)), "{listed}");
    let replayed = old.run(&["replay", ".gradus/bench/small"]).exits_with(0).out;
    assert!(replayed.contains("star-a-repository, trial 0 (oracle): 1 step, none can be left out"), "{replayed}");
    let (first, second) = (runs.keys().next().unwrap(), runs.keys().nth(1).unwrap());
    old.run(&["compare", first, second, "--allow-mismatch"]).exits_with(0);
}

/// The file as it was is accepted by every command that reads it. What this version does not know is refused in one line.
#[test]
fn settings_of_the_earlier_version_are_accepted() {
    let old = OldFolder::unpack();
    let doctor = old.run(&["doctor"]).out;
    assert!(doctor.contains("ok   settings: 3 rules, 3 alerts"), "{doctor}");
    old.run(&["rubrics", "check", "helpful.md"]).exits_with(0);
    old.write("gradus.toml", &(old.read("gradus.toml") + "\n[eval2]\nstrict = true\n"));
    for arguments in [&["eval", "store:shop"][..], &SERVE] {
        let ran = in_vain(old.command(arguments));
        assert_eq!((ran.code, ran.err.trim().lines().count()), (Some(2), 1), "{arguments:?}: {}", ran.err);
        assert!(ran.err.contains("gradus.toml, line ") && ran.err.contains("eval2"), "{}", ran.err);
    }
    let doctor = old.run(&["doctor"]).exits_with(2).out;
    assert!(doctor.starts_with("FAIL settings: gradus.toml, line "), "{doctor}");
}

/// A store of a version that does not exist yet: one line from every command, and nothing is changed.
#[test]
fn a_store_from_the_future_is_left_alone() {
    let old = OldFolder::unpack();
    old.run(&["store", "check"]).exits_with(0);
    old.sql().pragma_update(None, "user_version", 1_000).unwrap();
    let before = old.store_bytes();
    let commands: [&[&str]; 11] = [
        &SERVE,
        &["store", "check"],
        &["store", "backup", "copy.db"],
        &["store", "export", "copy.jsonl.zst"],
        &["store", "compact"],
        &["store", "import", "export.jsonl.zst"],
        &["store", "retry"],
        &["keys", "list"],
        &["keys", "add", "another"],
        &["keys", "revoke", "reader"],
        &["traces", "store:shop"],
    ];
    for arguments in commands {
        let ran = in_vain(old.command(arguments));
        assert_eq!((ran.code, ran.err.trim().lines().count()), (Some(2), 1), "{arguments:?}: {}", ran.err);
        assert!(ran.err.contains("made by a newer Gradus (format 1000"), "{arguments:?}: {}", ran.err);
    }
    let doctor = old.run(&["doctor"]).exits_with(2).out;
    assert!(doctor.contains("FAIL store: .gradus/gradus.db: made by a newer Gradus (format 1000"), "{doctor}");
    assert!(old.store_bytes() == before && !old.path("copy.db").exists(), "something was changed");
}
