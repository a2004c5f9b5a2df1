//! Settings: the reference page, the variables that the program reads, and where each value comes from.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use serde_json::{Value as Json, json};

use crate::place::Place;

fn workspace(path: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..").join(path)
}

fn reference_page() -> String {
    std::fs::read_to_string(workspace("docs/reference/configuration.md")).unwrap()
}

#[test]
fn the_reference_page_is_what_the_program_prints() {
    let printed = Place::new().run(&["config", "reference"]).exits_with(0).out;
    if std::env::var_os("GRADUS_BLESS").is_some() {
        std::fs::write(workspace("docs/reference/configuration.md"), &printed).unwrap();
    }
    let advice = "run `GRADUS_BLESS=1 cargo test -p gradus --test cli configuration` and commit the page";
    assert!(reference_page() == printed, "the page is stale: {advice}");
}

/// All sources of the program, without modules of tests.
fn program_sources() -> Vec<(String, String)> {
    let mut waiting = vec![workspace("crates")];
    let mut sources = Vec::new();
    while let Some(folder) = waiting.pop() {
        for entry in std::fs::read_dir(folder).unwrap() {
            let path = entry.unwrap().path();
            let name = path.file_name().unwrap().to_str().unwrap().to_owned();
            let is_test =
                ["tests", "examples", "benches", "tests.rs"].contains(&name.as_str()) || name.ends_with("_tests.rs");
            if path.is_dir() && !is_test {
                waiting.push(path);
            } else if name.ends_with(".rs") && !is_test && name != "build.rs" {
                let text = std::fs::read_to_string(&path).unwrap();
                let shown = path.strip_prefix(workspace("crates")).unwrap().display().to_string();
                let code = text.split("#[cfg(test)]\nmod tests").next().unwrap();
                sources.push((shown, code.to_owned()));
            }
        }
    }
    sources.sort();
    assert!(sources.len() > 300, "{}", sources.len());
    sources
}

/// The words of a text that could be names of variables.
fn upper_case_words(text: &str) -> BTreeSet<&str> {
    let words = text.split(|letter: char| !(letter.is_ascii_alphanumeric() || letter == '_'));
    words
        .filter(|word| word.len() > 2 && word.starts_with(|first: char| first.is_ascii_uppercase()))
        .filter(|word| word.bytes().all(|byte| byte.is_ascii_uppercase() || byte.is_ascii_digit() || byte == b'_'))
        .collect()
}

/// The texts in quotes, one line each, without placeholders of help texts.
fn literals(source: &str) -> impl Iterator<Item = &str> {
    let is_code = |line: &&str| !line.trim_start().starts_with("//") && !line.contains("value_name");
    let lines = source.lines().filter(is_code);
    lines.flat_map(|line| line.split('"').skip(1).step_by(2))
}

#[test]
fn every_variable_that_is_read_is_in_the_reference() {
    let page = reference_page();
    // A prefix is listed as `LC_*`.
    let is_listed = |name: &str| {
        let star = if name.ends_with('_') { "*" } else { "" };
        page.contains(&format!("`{name}{star}`"))
    };
    let mut readers = Vec::new();
    for (path, source) in program_sources() {
        // Our own variables, wherever they are named; those of the build are no settings.
        for word in upper_case_words(&source).into_iter().filter(|word| word.starts_with("GRADUS_")) {
            assert!(word.starts_with("GRADUS_BUILD_") || is_listed(word), "{path}: {word} is not in the reference");
        }
        let calls = ["env::var(", "env::var_os(", "env::vars(", "env::vars_os("];
        let is_call = |line: &str| !line.trim_start().starts_with("//") && calls.iter().any(|call| line.contains(call));
        if !source.lines().any(is_call) {
            continue;
        }
        let names = literals(&source).filter(|text| upper_case_words(text).contains(text) || text.ends_with("_proxy"));
        for name in names {
            assert!(is_listed(name), "{path}: {name} is not in the reference");
        }
        readers.push(path);
    }
    // Names that are computed cannot be found in the source, so whoever reads the environment is named here. Add a new
    // file only when its variables are in `config/variables.rs`.
    let known = [
        "gradus/src/cli/code_version.rs",
        "gradus/src/cli/config_command.rs",
        "gradus/src/cli/discover.rs",
        "gradus/src/cli/export/scrubbed_rows.rs",
        "gradus/src/cli/init/project_scan.rs",
        "gradus/src/cli/mcp.rs",
        "gradus/src/config/environment.rs",
        "gradus/src/program_runner.rs",
        "host/src/child_environment.rs",
        "http/src/proxy.rs",
        "store/src/postgres_server/address.rs",
    ];
    assert_eq!(readers, known);
    for name in ["CODEX_HOME", "GITHUB_SHA", "CI_COMMIT_REF_NAME", "no_proxy", "GRADUS_ALERT_VALUE", "XDG_STATE_HOME"] {
        assert!(is_listed(name), "{name}");
    }
}

fn shown_json(place: &Place, arguments: &[&str], variables: &[(&str, &str)], code: i32) -> Json {
    let all = [&["config", "show", "--json"][..], arguments].concat();
    let mut command = place.command(&all);
    command.envs(variables.iter().copied());
    let ran = crate::place::Ran::from_output(command.output().unwrap()).exits_with(code);
    serde_json::from_str(&ran.out).unwrap()
}

fn value(shown: &Json, key: &str) -> (Json, Json) {
    let found = shown["values"].as_array().unwrap().iter().find(|value| value["key"] == key);
    let found = found.unwrap_or_else(|| panic!("{key} is not shown"));
    (found["value"].clone(), found["source"].clone())
}

#[test]
fn each_value_is_shown_with_its_source() {
    let place = Place::new();
    let shown = shown_json(&place, &[], &[], 0);
    assert_eq!(value(&shown, "serve.http"), (json!("127.0.0.1:4318"), json!({"kind": "default"})));
    assert_eq!(shown["file"], json!({"path": null, "origin": "none"}));
    place.write("gradus.toml", "# settings\n[serve]\nquiet_s = 2\n\n[judge]\nname = \"offline\"\n");
    let line = |line: u32| json!({"kind": "file", "path": "gradus.toml", "line": line});
    let variables = [("GRADUS_STATE_DIR", "elsewhere"), ("PHOENIX_PROJECT_NAME", "shop")];
    let shown = shown_json(&place, &["--http", "127.0.0.1:9"], &variables, 0);
    assert_eq!(value(&shown, "serve.quiet_s"), (json!(2), line(3)));
    assert_eq!(value(&shown, "judge.name"), (json!("offline"), line(6)));
    assert_eq!(value(&shown, "serve.http"), (json!("127.0.0.1:9"), json!({"kind": "option", "name": "--http"})));
    let variable = json!({"kind": "environment", "name": "GRADUS_STATE_DIR"});
    assert_eq!(value(&shown, "state_dir"), (json!("elsewhere"), variable));
    let project = json!({"name": "PHOENIX_PROJECT_NAME", "value": "shop", "is_secret": false});
    assert!(shown["environment"].as_array().unwrap().contains(&project), "{shown}");
    // For people: one line each.
    let text = place.run(&["config", "show"]).exits_with(0).out;
    assert!(text.contains("\nserve.quiet_s = 2  # gradus.toml:3\n"), "{text}");
    assert!(text.contains("\nserve.give_up_s = 60  # default\n"), "{text}");
    let changed = place.run(&["config", "show", "--changed"]).exits_with(0).out;
    assert!(changed.contains("serve.quiet_s = 2") && !changed.contains("# default"), "{changed}");
    // What is shown is what a command uses.
    let effective = shown_json(&place, &["--data", "given"], &variables, 0);
    assert_eq!(value(&effective, "state_dir").0, json!("given"));
}

#[test]
fn no_secret_is_shown() {
    let place = Place::new();
    let toml = "[judge]\nname = \"gpt-x\"\nbase_url = \"https://user:file-password@judge.example/v1\"\n\
        [[alert]]\nname = \"a\"\nwhen = \"error_rate > 5% over 1h\"\nwebhook = \"https://hooks.example/T00/webhook-path\"\n\
        command = [\"page\", \"--token\", \"command-secret\"]\n";
    place.write("gradus.toml", toml);
    let variables = [
        ("OPENAI_API_KEY", "sk-environment-secret"),
        ("PHOENIX_CLIENT_HEADERS", "authorization=header-secret"),
        ("PHOENIX_COLLECTOR_ENDPOINT", "https://u:endpoint-password@phoenix.example"),
        ("HTTPS_PROXY", "http://u:proxy-password@proxy.example"),
    ];
    for format in [&["config", "show"][..], &["config", "show", "--json"]] {
        let mut command = place.command(format);
        let ran = crate::place::Ran::from_output(command.envs(variables).output().unwrap()).exits_with(2);
        let all = ran.out + &ran.err;
        for secret in [
            "file-password",
            "webhook-path",
            "command-secret",
            "sk-environment-secret",
            "header-secret",
            "endpoint-password",
            "proxy-password",
        ] {
            assert!(!all.contains(secret), "{secret}: {all}");
        }
        for shown in ["judge.example", "hooks.example", "phoenix.example", "OPENAI_API_KEY"] {
            assert!(all.contains(shown), "{shown}: {all}");
        }
    }
}

#[test]
fn a_file_that_is_refused_or_broken_is_bad_input() {
    let place = Place::new();
    place.write("gradus.toml", "[serve]\nhttp = \"0.0.0.0:4318\"\n");
    // It is shown, so that people see what they would trust.
    let ran = place.run(&["config", "show"]).exits_with(2);
    assert!(ran.out.contains("serve.http = \"0.0.0.0:4318\"  # gradus.toml:2"), "{}", ran.out);
    assert!(ran.err.contains("settings refused: gradus.toml") && ran.err.lines().count() == 1, "{}", ran.err);
    place.run(&["config", "show", "--config", "gradus.toml"]).exits_with(0);
    place.run(&["trust", "--yes"]).exits_with(0);
    place.run(&["config", "show"]).exits_with(0);
    place.write("gradus.toml", "[serve]\nquiet = 1\n");
    let ran = place.run(&["config", "show"]).exits_with(2);
    assert!(ran.err.contains("gradus.toml, line 2") && ran.out.is_empty(), "{}", ran.err);
    place.run(&["config", "show", "--config", "missing.toml"]).exits_with(2);
}

#[test]
fn settings_that_the_server_refuses_are_shown_and_refused() {
    let place = Place::new();
    for (settings, part) in [
        ("[serve]\nhttp = \"nowhere\"\n", "nowhere"),
        ("[[rule]]\nname = \"a\"\nevaluators = [\"no_such\"]\n", "no_such"),
    ] {
        place.write("own.toml", settings);
        let refused = place.run(&["serve", "--config", "own.toml"]).exits_with(2);
        let ran = place.run(&["config", "show", "--config", "own.toml"]).exits_with(2);
        assert!(ran.out.contains("# configuration file: own.toml (named)"), "{}", ran.out);
        assert!(ran.err.contains("`gradus serve` refuses: ") && ran.err.contains(part), "{}", ran.err);
        assert!(refused.err.contains(part), "{}", refused.err);
        let shown = shown_json(&place, &["--config", "own.toml"], &[], 2);
        assert!(shown["server_error"].as_str().is_some_and(|reason| reason.contains(part)), "{shown}");
    }
}
