//! Detects commands that run tests, and reads the results of such runs.

use super::shell_syntax::{ShellOperator, SimpleCommand, simple_commands};

/// Programs that only run tests.
const TEST_PROGRAMS: [&str; 15] = [
    "pytest",
    "py.test",
    "tox",
    "nox",
    "jest",
    "vitest",
    "mocha",
    "rspec",
    "phpunit",
    "ctest",
    "nose2",
    "karma",
    "ava",
    "cypress",
    "Invoke-Pester",
];
/// Flags with which a test program lists, compiles or explains, and runs nothing.
const NO_RUN_FLAGS: [&str; 14] = [
    "--version",
    "--help",
    "-h",
    "--collect-only",
    "--co",
    "--no-run",
    "--list",
    "--listTests",
    "--list-tests",
    "--dry-run",
    "--test-no-exec",
    "--show-only",
    "--fixtures",
    "--markers",
];

/// A run of tests within a command line.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct TestRun {
    pub status: StatusMeaning,
    /// Only chosen tests run: by name or by file.
    pub is_filtered: bool,
}

/// What the exit status of the whole line proves about its tests.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum StatusMeaning {
    /// It is that of the tests.
    Exact,
    /// Success proves that the tests passed. A failure may be that of another command in the chain: `test && lint`.
    SuccessOnly,
    /// It is lost in a pipe that shows the end of the output: `test | tail`.
    OutputEnd,
    /// It is lost in another pipe, or overwritten by a later command.
    Nothing,
}

/// Finds the test run of a command line; `None` if it runs no tests.
pub(super) fn find_test_run(command: &str) -> Option<TestRun> {
    let commands = simple_commands(command);
    let is_test: Vec<bool> = commands.iter().map(|command| runs_tests(&command.words)).collect();
    let last = is_test.iter().rposition(|is_test| *is_test)?;
    let first = is_test.iter().position(|is_test| *is_test)?;
    let is_piped_safely = commands.iter().any(|command| command.words.iter().any(|word| word == "pipefail"));
    let passes_on = |operator: ShellOperator| match operator {
        ShellOperator::And => true,
        ShellOperator::Pipe => is_piped_safely,
        _ => false,
    };
    let end = commands.len() - 1;
    let reaches_end = (first..end).all(|at| passes_on(commands[at].next))
        && commands[end].next != ShellOperator::Background
        && !commands[..first].iter().any(|command| command.next == ShellOperator::Or);
    let mut chained = commands[..first].iter().rev().take_while(|command| command.next == ShellOperator::And);
    let is_alone = last == end && is_test[first..].iter().all(|is_test| *is_test) && chained.all(is_shell_setup);
    let status = match (reaches_end, is_alone) {
        (true, true) => StatusMeaning::Exact,
        (true, false) => StatusMeaning::SuccessOnly,
        (false, _) if keeps_output_end(&commands[last..]) && first == last => StatusMeaning::OutputEnd,
        (false, _) => StatusMeaning::Nothing,
    };
    let is_filtered = commands.iter().zip(&is_test).any(|(command, is_test)| *is_test && is_filtered(&command.words));
    Some(TestRun { status, is_filtered })
}

/// Whether the first of these commands writes into `tail` or `cat`, and nothing comes after that.
fn keeps_output_end(commands: &[SimpleCommand]) -> bool {
    let Some((end, pipes)) = commands.split_last() else { return false };
    let is_end = |command: &SimpleCommand| matches!(command.program(), "tail" | "cat" | "tee");
    !pipes.is_empty()
        && pipes.iter().all(|command| command.next == ShellOperator::Pipe)
        && pipes[1..].iter().chain([end]).all(is_end)
        && end.next != ShellOperator::Background
}

/// Whether a command only prepares the shell, so that it does not fail in practice.
fn is_shell_setup(command: &SimpleCommand) -> bool {
    matches!(command.program(), "cd" | "export" | "set" | "source" | "." | "echo" | "pushd" | "")
}

fn runs_tests(words: &[String]) -> bool {
    let word = |at: usize| words.get(at).map_or("", String::as_str);
    let program = word(0).rsplit(['/', '\\']).next().unwrap_or_default();
    let has = |wanted: &str| words.iter().skip(1).any(|word| word == wanted);
    let has_test_program = || words.iter().skip(1).any(|word| TEST_PROGRAMS.contains(&word.as_str()));
    let has_task = || words.iter().skip(1).any(|word| names_test_task(word));
    let skips_tests = |word: &String| {
        NO_RUN_FLAGS.contains(&word.as_str())
            || word.starts_with("-DskipTests")
            || word.starts_with("-Dmaven.test.skip")
    };
    if words.iter().skip(1).any(skips_tests) {
        return false;
    }
    match program {
        program if TEST_PROGRAMS.contains(&program) => !(has("list") || program == "ctest" && has("-N")),
        "playwright" => has("test"),
        "cargo" => (has("test") || has("nextest") || has("t")) && !has("list") && !has("install"),
        // `-c` compiles, `-run ^$` chooses no test.
        "go" => {
            let chosen = words.iter().position(|word| word == "-run").and_then(|at| words.get(at + 1));
            let chooses_none = chosen.is_some_and(|name| name == "^$") || has("-run=^$");
            has("test") && !has("-c") && !chooses_none && !words.iter().any(|word| word.starts_with("-list"))
        }
        "dotnet" | "swift" | "mix" | "flutter" | "dart" | "deno" | "zig" | "lein" | "sbt" | "bazel" | "nx"
        | "turbo" | "hatch" | "rails" | "poe" | "ant" => has("test") && !has("-t"),
        "npm" | "yarn" | "pnpm" | "bun" => {
            let first = words.iter().skip(1).find(|word| !word.starts_with('-')).map_or("", String::as_str);
            let installs = matches!(
                first,
                "install"
                    | "i"
                    | "ci"
                    | "add"
                    | "remove"
                    | "uninstall"
                    | "info"
                    | "view"
                    | "create"
                    | "init"
                    | "link"
                    | "why"
                    | "update"
                    | "up"
                    | "dlx"
                    | "ls"
                    | "list"
                    | "publish"
                    | "pack"
                    | "config"
            );
            !installs && (has("t") || has_task() || has_test_program())
        }
        "make" | "just" | "task" | "rake" | "gradle" | "gradlew" | "mvn" | "mvnw" | "mise" | "rtx" | "moon"
        | "pixi" | "inv" | "invoke" | "composer" | "lerna" => {
            let is_dry = has("-n") || has("-m") && program.starts_with("gradle");
            let is_left_out = words.windows(2).any(|pair| pair[0] == "-x" && names_test_task(&pair[1]));
            let installs = has("install") && !program.starts_with("mvn") || has("use");
            !is_dry && !is_left_out && !installs && (has_task() || has("check") || has("verify"))
        }
        "python" | "python3" | "python2" | "coverage" => {
            let runs_module = has("-m") && (has_test_program() || has("unittest") || has("nose"));
            let script = word(1).rsplit('/').next().unwrap_or_default();
            let is_test_file = script.starts_with("test_") || script.ends_with("_test.py");
            runs_module || is_test_file || script == "runtests.py" || (script == "manage.py" && has("test"))
        }
        script => {
            let name = script.trim_end_matches(".sh");
            let is_script = script.ends_with(".sh") || word(0).starts_with("./");
            is_script && name.split(['_', '-', '.']).any(|part| matches!(part, "test" | "tests" | "runtests"))
        }
    }
}

/// `test`, `test:ci`, `:app:test`, `testDebugUnitTest`: a task of a task runner that runs tests.
fn names_test_task(word: &str) -> bool {
    !word.starts_with('-') && word.split([':', '-', '_', '.', '/']).any(|part| part.starts_with("test"))
}

/// Whether only chosen tests run: by a flag of the common test programs, by name, or by file.
fn is_filtered(words: &[String]) -> bool {
    const FILTERS: [&str; 10] =
        ["-run", "-k", "-t", "--filter", "--grep", "-g", "--testNamePattern", "--tests", "--test", "--only-testing"];
    words.iter().skip(1).any(|word| {
        let flag = word.split('=').next().unwrap_or_default();
        let name = word.rsplit('/').next().unwrap_or_default();
        FILTERS.contains(&flag)
            || flag == "-Dtest"
            || word.contains("::")
            || name.contains(".test.")
            || name.contains(".spec.")
            || name.starts_with("test_") && name.contains('.')
            || name.contains("_test.")
    })
}

/// What the recorded output of a finished run shows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum TestOutput {
    /// A summary with passed tests, and no sign of a failure.
    Passed,
    /// A failure is mentioned.
    Failed,
    /// The tests did not run: the program was missing, there were no tests, or it timed out.
    NotRun,
    Unclear,
}

/// Reads the output of a run of tests.
pub(super) fn read_test_output(output: &str) -> TestOutput {
    const NOT_RUN: [&str; 12] = [
        "command not found",
        "is not recognized as",
        "no tests ran",
        "no tests found",
        "no test files",
        "no tests to run",
        "collected 0 items",
        "missing script",
        "timed out",
        "timeout",
        "interrupted",
        "no such file or directory",
    ];
    const FAILED: [&str; 8] =
        ["test result: failed", "failures:", "no tests ran", "error:", "errors:", "fail\t", "--- fail", "failed ("];
    const PASSED: [&str; 9] = [
        "test result: ok",
        "all tests passed",
        "100% tests passed",
        "build success",
        "build successful",
        "\nok \t",
        "\nok  \t",
        "\nok\n",
        "\nok (",
    ];
    let text = format!("\n{}\n", output.to_lowercase());
    let has = |signs: &[&str]| signs.iter().any(|sign| text.contains(sign));
    let counts = count_results(&text);
    if counts.failed > 0 || has(&FAILED) {
        return TestOutput::Failed;
    }
    if counts.passed > 0 || has(&PASSED) || text.starts_with("\nok ") || text.contains("\npass\n") {
        return TestOutput::Passed;
    }
    if has(&NOT_RUN) { TestOutput::NotRun } else { TestOutput::Unclear }
}

/// The largest numbers before "passed" and "failed" in a text in lower case.
#[derive(Default)]
struct ResultCounts {
    passed: u64,
    failed: u64,
}

fn count_results(text: &str) -> ResultCounts {
    let mut counts = ResultCounts::default();
    let words = || text.split(|letter: char| !letter.is_alphanumeric()).filter(|word| !word.is_empty());
    // `3 passed`, `2 tests failed`, and the other way round in TAP: `# pass 3`.
    let mut number: Option<u64> = None;
    let mut result: Option<bool> = None;
    for word in words() {
        let outcome = match word {
            "passed" | "passing" | "pass" | "passes" | "ok" | "successful" => Some(true),
            "failed" | "failing" | "fail" | "failures" | "failure" => Some(false),
            _ => None,
        };
        match (outcome, word.parse::<u64>()) {
            (Some(is_passed), _) => {
                let count = number.take();
                let total = if is_passed { &mut counts.passed } else { &mut counts.failed };
                *total = (*total).max(count.unwrap_or_default());
                result = count.is_none().then_some(is_passed);
            }
            (None, Ok(count)) => {
                let is_counted = result.take();
                if let Some(is_passed) = is_counted {
                    let total = if is_passed { &mut counts.passed } else { &mut counts.failed };
                    *total = (*total).max(count);
                }
                number = is_counted.is_none().then_some(count);
            }
            (None, Err(_)) if matches!(word, "test" | "tests" | "suites" | "assertions") => {}
            (None, Err(_)) => (number, result) = (None, None),
        }
    }
    counts
}

/// Whether the output says that the command still runs: its end is in another result.
pub(super) fn is_still_running(output: &str) -> bool {
    // Codex writes a header, Claude Code and others a sentence at the beginning or the end.
    let head: String = output.lines().take(8).collect::<Vec<_>>().join("\n").to_lowercase();
    let tail = output.lines().next_back().unwrap_or_default().to_lowercase();
    running_session(output).is_some()
        || [
            "running in background",
            "running in the background",
            "moved to background",
            "still running",
            "running with cell id",
        ]
        .iter()
        .any(|sign| head.contains(sign) || tail.contains(sign))
}

/// Returns the session of a process that Codex left running: "Process running with session ID 7" in the header of a
/// result.
pub(super) fn running_session(output: &str) -> Option<&str> {
    let header = output.lines().take(8).take_while(|line| !line.starts_with("Output:"));
    header.into_iter().find_map(|line| line.strip_prefix("Process running with session ID ")).map(str::trim)
}

/// Whether a result of Codex says that its process has ended.
pub(super) fn has_exited(output: &str) -> bool {
    let mut header = output.lines().take(8).take_while(|line| !line.starts_with("Output:"));
    header.any(|line| line.starts_with("Process exited with code "))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn commands_that_run_tests() {
        for command in [
            "pytest -q",
            "cd /x && python -m pytest tests",
            "CI=1 cargo test --workspace 2>&1 | tail -5",
            "npm run test:unit",
            "pnpm --filter web exec vitest run",
            "pnpm exec jest",
            "go test ./...",
            "make check",
            "mise run test:ci",
            "just test",
            "task test",
            "./gradlew :app:testDebugUnitTest",
            "timeout 60 ./run_tests.sh",
            "uv run pytest",
            "python tests/test_a.py",
        ] {
            assert!(find_test_run(command).is_some(), "{command}");
        }
        for command in [
            "ls tests",
            "cat test_a.py",
            "echo 'cargo test'",
            "pytest --version",
            "pytest --collect-only -q",
            "git commit -m \"add test\"",
            "cargo build",
            "cargo test --no-run",
            "go test -c -o /dev/null ./...",
            "go test -run '^$' ./...",
            "mvn package -DskipTests",
            "./gradlew build -x test",
            "npm install test-utils",
            "npx playwright install",
            "make -n test",
        ] {
            assert_eq!(find_test_run(command), None, "{command}");
        }
    }

    #[test]
    fn what_the_exit_status_says() {
        let status = |command: &str| find_test_run(command).map(|run| run.status);
        assert_eq!(status("cd /p && pytest 2>&1"), Some(StatusMeaning::Exact));
        assert_eq!(status("pytest && npm test"), Some(StatusMeaning::Exact));
        assert_eq!(status("cd /p; pytest"), Some(StatusMeaning::Exact));
        assert_eq!(status("bun run test && bun run lint"), Some(StatusMeaning::SuccessOnly));
        assert_eq!(status("npm run build && npm test"), Some(StatusMeaning::SuccessOnly));
        for command in ["pytest | tail -3", "cd /p && go test ./... 2>&1 | tail -40"] {
            assert_eq!(status(command), Some(StatusMeaning::OutputEnd), "{command}");
        }
        for command in [
            "pytest | grep x",
            "pytest | tail -3; ls",
            "pytest; echo done",
            "pytest || true",
            "pytest &",
            "pytest a; pytest b",
        ] {
            assert_eq!(status(command), Some(StatusMeaning::Nothing), "{command}");
        }
        assert_eq!(status("set -o pipefail; pytest | tail -3"), Some(StatusMeaning::SuccessOnly));
        assert!(find_test_run("go test -run TestA ./...").is_some_and(|run| run.is_filtered));
        assert!(find_test_run("pytest tests/test_a.py::b").is_some_and(|run| run.is_filtered));
        assert!(find_test_run("cargo test --workspace").is_some_and(|run| !run.is_filtered));
    }

    #[test]
    fn outputs_of_test_programs() {
        for output in [
            "3 passed in 0.1s",
            " 12 pass\n 0 fail",
            "ok  \tpkg\t0.1s",
            "test result: ok. 3 passed; 0 failed",
            "# pass 3\n# fail 0",
            "Tests  29 passed (29)",
            "Ran 3 tests in 0.1s\n\nOK",
        ] {
            assert_eq!(read_test_output(output), TestOutput::Passed, "{output}");
        }
        for output in ["1 failed, 2 passed", "Tests  2 failed | 3 passed (5)", "--- FAIL: TestA", "3 failing"] {
            assert_eq!(read_test_output(output), TestOutput::Failed, "{output}");
        }
        for output in ["bash: mvn: command not found", "no tests found"] {
            assert_eq!(read_test_output(output), TestOutput::NotRun, "{output}");
        }
        assert_eq!(read_test_output("> vitest run"), TestOutput::Unclear);
        assert!(is_still_running("Chunk ID: 1\nProcess running with session ID 82\nOutput:\nx"));
        assert!(is_still_running("Command running in background with ID: b1"));
        assert!(!is_still_running("Process exited with code 0\nOutput:\nProcess running with session ID 82"));
    }
}
