//! `gradus init` in projects of all kinds. What it prints at the end is run as printed.

use std::path::Path;

use crate::place::{Place, Ran};

/// Without the user's own sessions and variables.
fn init(place: &Place, arguments: &[&str], variables: &[(&str, &str)]) -> Ran {
    init_in(place, place.folder(), arguments, variables)
}

fn init_in(place: &Place, folder: &Path, arguments: &[&str], variables: &[(&str, &str)]) -> Ran {
    let mut command = place.command(&[&["init"][..], arguments].concat());
    for (name, _) in std::env::vars_os() {
        if ["OTEL_", "PHOENIX_"].iter().any(|prefix| name.to_string_lossy().starts_with(prefix)) {
            command.env_remove(name);
        }
    }
    command.current_dir(folder).env("HOME", place.path("home")).envs(variables.iter().copied());
    Ran::from_output(command.output().unwrap())
}

/// The commands below `Next`.
fn next_commands(out: &str) -> Vec<String> {
    let lines = out.lines().skip_while(|line| *line != "Next").skip(1);
    lines.filter_map(|line| line.strip_prefix("    ")).map(str::to_owned).collect()
}

#[test]
fn an_empty_folder_gets_everything_and_the_commands_work_as_printed() {
    let place = Place::new();
    let ran = init(&place, &[], &[]).exits_with(0);
    assert_eq!(ran.err, "");
    let files = ["gradus.toml", "evals/dataset.jsonl", ".github/workflows/gradus.yml"];
    for file in files {
        assert!(ran.out.contains(&format!("  wrote {file}\n")), "{}", ran.out);
    }
    assert!(ran.out.contains("no git repository"), "{}", ran.out);
    let commands = next_commands(&ran.out);
    assert_eq!(commands.len(), 3, "{}", ran.out);
    let program = Path::new(env!("CARGO_BIN_EXE_gradus"));
    for command in &commands {
        // A shell reads them, as a person's would, with the program under its own name on the path.
        let path = format!("{}:{}", program.parent().unwrap().display(), std::env::var("PATH").unwrap());
        let mut shell = std::process::Command::new("sh");
        shell.args(["-c", command]).current_dir(place.folder()).env("PATH", path);
        for (name, value) in place.command(&[]).get_envs() {
            match value {
                Some(value) => shell.env(name, value),
                None => shell.env_remove(name),
            };
        }
        Ran::from_output(shell.output().unwrap()).exits_with(0);
    }
    assert!(place.read("gradus-report.html").contains("<html"));
    // The file is trusted as it was written, and a second call changes nothing.
    let trusted = place.run(&["trust", "--list"]).exits_with(0).out;
    assert!(trusted.contains("gradus.toml\ttrusted"), "{trusted}");
    let before: Vec<String> = files.iter().map(|file| place.read(file)).collect();
    let again = init(&place, &[], &[]).exits_with(0);
    for file in files {
        assert!(again.out.contains(&format!("  kept {file}, which exists\n")), "{}", again.out);
    }
    assert_eq!(before, files.map(|file| place.read(file)));
    assert_eq!(next_commands(&again.out), commands);
}

#[test]
fn what_was_found_is_in_the_files_and_no_secret_is() {
    let place = Place::new();
    place.write("pyproject.toml", "[project]\nname = \"shop\"\ndependencies = [\"langgraph>=1\", \"openai\"]\n");
    place.write("uv.lock", "version = 1\n");
    place.write("src/agent.py", "");
    place.write(".git/HEAD", "ref: refs/heads/trunk\n");
    place.write("home/.claude/projects/p/1.jsonl", "{}\n");
    let variables = [
        ("PHOENIX_COLLECTOR_ENDPOINT", "https://u:secret-in-url@phoenix.example"),
        ("PHOENIX_API_KEY", "phoenix-secret-key"),
        ("OTEL_EXPORTER_OTLP_HEADERS", "authorization=otlp-secret"),
        ("OPENAI_API_KEY", "sk-openai-secret"),
    ];
    let ran = init(&place, &[], &variables).exits_with(0);
    let settings = place.read("gradus.toml");
    assert!(settings.contains("LangGraph (langgraph in pyproject.toml)"), "{settings}");
    assert!(settings.contains("[phoenix]") && settings.contains("PHOENIX_API_KEY is set"), "{settings}");
    assert!(!settings.contains("OpenAI's client"), "{settings}");
    let workflow = place.read(".github/workflows/gradus.yml");
    for part in ["branches: [trunk]", "uv run src/agent.py", "uv sync", "source: evals/dataset.jsonl"] {
        assert!(workflow.contains(part), "{part}: {workflow}");
    }
    assert!(ran.out.contains("1 session file of Claude Code: gradus eval "), "{}", ran.out);
    let all = [settings, workflow, place.read("evals/dataset.jsonl"), ran.out, ran.err].concat();
    for secret in ["secret-in-url", "phoenix-secret-key", "otlp-secret", "sk-openai-secret", "phoenix.example"] {
        assert!(!all.contains(secret), "{secret}");
    }
    // A key in the environment does not make the settings send anything.
    let mut show = place.command(&["config", "show", "--changed"]);
    let shown = Ran::from_output(show.envs(variables).output().unwrap()).exits_with(0).out;
    assert!(shown.contains("judge.name = \"offline\"  # gradus.toml:"), "{shown}");
}

#[test]
fn frameworks_of_node_are_found() {
    for (package, title) in [
        ("@openai/agents", "OpenAI Agents SDK (@openai/agents in package.json)"),
        ("llamaindex", "LlamaIndex.TS (llamaindex in package.json)"),
        ("@google/adk", "Google ADK (@google/adk in package.json)"),
        ("@anthropic-ai/sdk", "Anthropic's client (@anthropic-ai/sdk in package.json)"),
    ] {
        let place = Place::new();
        place.write("package.json", &format!("{{\"dependencies\": {{\"{package}\": \"1\"}}}}"));
        init(&place, &[], &[]).exits_with(0);
        let settings = place.read("gradus.toml");
        assert!(settings.contains(title), "{package}: {settings}");
    }
}

/// The action is at the root of the repository: what the workflow gives it must be among its inputs.
#[test]
fn the_workflow_keeps_to_the_inputs_of_the_action() {
    let place = Place::new();
    init(&place, &["--ci", "github"], &[]).exits_with(0);
    let workflow = place.read(".github/workflows/gradus.yml");
    let inputs = workflow.lines().skip_while(|line| line.trim() != "with:").skip(1);
    let names: Vec<&str> = inputs
        .filter(|line| !line.trim_start().starts_with('#'))
        .filter_map(|line| line.trim().split_once(':').map(|(name, _)| name))
        .collect();
    assert_eq!(names, ["command", "source", "args", "baseline", "comment", "version"]);
}

#[test]
fn gitlab_gets_its_own_job_beside_the_users() {
    let place = Place::new();
    place.write(".git/config", "[remote \"origin\"]\n\turl = https://gitlab.example/a/b.git\n");
    let ran = init(&place, &[], &[]).exits_with(0);
    assert!(ran.out.contains("wrote .gitlab-ci.yml") && !place.path(".github").exists(), "{}", ran.out);
    let again = init(&place, &[], &[]).exits_with(0);
    assert!(again.out.contains("kept .gitlab-ci.yml") && !place.path("gradus.gitlab-ci.yml").exists(), "{}", again.out);
    let own = Place::new();
    own.write(".gitlab-ci.yml", "test:\n  script: [make]\n");
    for word in ["wrote", "kept"] {
        let ran = init(&own, &[], &[]).exits_with(0);
        assert!(ran.out.contains(&format!("{word} gradus.gitlab-ci.yml")), "{}", ran.out);
        assert!(ran.out.contains("include: [{ local: gradus.gitlab-ci.yml }]"), "{}", ran.out);
    }
    assert_eq!(own.read(".gitlab-ci.yml"), "test:\n  script: [make]\n");
    let none = Place::new();
    init(&none, &["--ci", "none"], &[]).exits_with(0);
    assert!(!none.path(".github").exists() && none.path("gradus.toml").exists());
}

#[test]
fn broken_files_of_the_project_are_reported_and_survived() {
    let place = Place::new();
    place.write("pyproject.toml", "[project\nname = 3");
    place.write("package.json", "{\"dependencies\": {\"ai\": ");
    let ran = init(&place, &[], &[]).exits_with(0);
    assert_eq!(ran.err.lines().count(), 2, "{}", ran.err);
    assert!(
        ran.err.contains("skipped: pyproject.toml: ") && ran.err.contains("skipped: package.json: "),
        "{}",
        ran.err
    );
    // The user's own settings are never replaced, and the reason that they cannot be used is said.
    let own = Place::new();
    own.write("gradus.toml", "[judge\n");
    let ran = init(&own, &[], &[]).exits_with(2);
    assert!(ran.err.contains("gradus.toml, line 1") && ran.err.contains("hint:"), "{}", ran.err);
    assert_eq!(own.read("gradus.toml"), "[judge\n");
    // A found file that needs trust does not get it by this command.
    own.write("gradus.toml", "[judge]\nname = \"gpt-4o\"\n");
    let ran = init(&own, &[], &[]).exits_with(0);
    assert!(ran.err.contains("settings refused"), "{}", ran.err);
    own.run(&["config", "show"]).exits_with(2);
}

#[test]
fn links_and_folders_in_the_way_are_left_alone() {
    let (place, outside) = (Place::new(), Place::new());
    let link = |to: &Path, name: &str| std::os::unix::fs::symlink(to, place.path(name)).unwrap();
    link(&outside.path("settings.toml"), "gradus.toml");
    link(outside.folder(), ".github");
    place.write("evals", "a file");
    let ran = init(&place, &[], &[]).exits_with(2);
    assert_eq!(std::fs::read_dir(outside.folder()).unwrap().count(), 0, "{}", ran.out);
    assert!(ran.err.contains("leads out of this folder"), "{}", ran.err);
    assert!(ran.err.contains("not written: evals/dataset.jsonl"), "{}", ran.err);
    assert!(!ran.out.contains("Next"), "{}", ran.out);
}

#[test]
fn a_folder_that_cannot_be_written_to_is_bad_input() {
    let place = Place::new();
    // Not even root can create files here.
    let ran = init_in(&place, Path::new("/proc"), &["--ci", "github"], &[]).exits_with(2);
    assert!(ran.err.contains("not written: gradus.toml: ") && ran.err.contains("hint:"), "{}", ran.err);
    let dry = init_in(&place, Path::new("/proc"), &["--dry-run"], &[]).exits_with(0);
    assert!(dry.out.contains("--- gradus.toml\n") && dry.out.contains("[judge]"), "{}", dry.out);
    // Without a home nothing can be recorded, and nothing in the new file needs it.
    let homeless = Place::new();
    let mut command = homeless.command(&["init"]);
    let ran = Ran::from_output(command.env_remove("HOME").env_remove("XDG_STATE_HOME").output().unwrap()).exits_with(0);
    assert!(ran.out.contains("wrote gradus.toml"), "{}", ran.out);
}
