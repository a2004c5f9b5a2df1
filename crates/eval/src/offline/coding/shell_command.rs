//! What a shell command does, as far as its words prove it.

/// Bytes of a command that are looked at.
const MAX_COMMAND_BYTES: usize = 16 << 10;

/// The simple commands of a line, each as words without quotes. Text of here-documents is left out: it is data.
pub(super) fn simple_commands(command: &str) -> Vec<Vec<String>> {
    let command = super::super::excerpt::take_prefix(command, MAX_COMMAND_BYTES);
    let command = command.split("<<").next().unwrap_or_default();
    let mut commands = vec![Vec::new()];
    let mut word = String::new();
    let mut quote: Option<char> = None;
    let end_word = |word: &mut String, commands: &mut Vec<Vec<String>>| {
        if !word.is_empty()
            && let Some(last) = commands.last_mut()
        {
            last.push(std::mem::take(word));
        }
    };
    for letter in command.chars() {
        match (quote, letter) {
            (Some(open), _) if letter == open => quote = None,
            (Some(_), _) => word.push(letter),
            (None, '"' | '\'') => quote = Some(letter),
            (None, ';' | '|' | '&' | '\n' | '(' | ')') => {
                end_word(&mut word, &mut commands);
                if commands.last().is_some_and(|last| !last.is_empty()) {
                    commands.push(Vec::new());
                }
            }
            (None, space) if space.is_whitespace() => end_word(&mut word, &mut commands),
            (None, _) => word.push(letter),
        }
    }
    end_word(&mut word, &mut commands);
    commands.retain(|words| !words.is_empty());
    commands.iter_mut().for_each(skip_wrappers);
    commands
}

/// Removes what stands in front of the program: assignments, `sudo`, `time`, `timeout 60`, `env`, `uv run`.
fn skip_wrappers(words: &mut Vec<String>) {
    while let Some(first) = words.first() {
        let is_assignment =
            first.split_once('=').is_some_and(|(name, _)| name.chars().all(|c| c.is_alphanumeric() || c == '_'));
        let count = match first.as_str() {
            _ if is_assignment => 1,
            "sudo" | "time" | "env" | "nohup" | "command" | "exec" => 1,
            "timeout" | "nice" => 2,
            "uv" | "poetry" | "pipenv" | "hatch" if words.get(1).is_some_and(|word| word == "run") => 2,
            "npx" | "bunx" | "pnpx" => 1,
            _ => return,
        };
        words.drain(..count.min(words.len()));
    }
}

/// Whether a command runs tests.
pub(super) fn runs_tests(command: &str) -> bool {
    simple_commands(command).iter().any(|words| {
        let word = |at: usize| words.get(at).map_or("", String::as_str);
        let program = word(0).rsplit('/').next().unwrap_or_default();
        let has = |wanted: &str| words.iter().skip(1).any(|word| word == wanted);
        match program {
            "pytest" | "py.test" | "tox" | "nox" | "jest" | "vitest" | "mocha" | "rspec" | "phpunit" | "ctest"
            | "nose2" | "karma" | "ava" | "playwright" => {
                !has("--version") && !has("--help") && !has("--collect-only") && !has("--co")
            }
            "cargo" => has("test") || has("nextest") || has("t"),
            "go" | "dotnet" | "swift" | "mix" | "flutter" | "dart" | "deno" | "zig" | "lein" | "sbt" | "bazel" => {
                has("test")
            }
            "npm" | "yarn" | "pnpm" | "bun" => words.iter().skip(1).any(|word| word == "t" || word.starts_with("test")),
            "make" | "just" | "task" | "rake" | "gradle" | "gradlew" | "mvn" | "mvnw" => words
                .iter()
                .skip(1)
                .any(|word| matches!(word.as_str(), "test" | "tests" | "check" | "verify") || word.starts_with("test")),
            "python" | "python3" | "python2" => {
                let runs_module = has("-m") && (has("pytest") || has("unittest") || has("nose") || has("tox"));
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
    })
}

/// Why a command destroys something that cannot be restored; `None` if it does not. Files that builds make and
/// temporary folders do not count.
pub(super) fn find_destruction(command: &str) -> Option<&'static str> {
    let commands = simple_commands(command);
    // What a folder holds that the command went to first is not known.
    let has_moved = commands.iter().any(|words| words.first().is_some_and(|word| word == "cd" || word == "pushd"));
    commands.iter().find_map(|words| {
        let has = |wanted: &str| words.iter().skip(1).any(|word| word == wanted);
        let has_flag = |letter: char| {
            words.iter().skip(1).any(|word| {
                word.starts_with('-') && !word.starts_with("--") && word[1..].chars().any(|other| other == letter)
            })
        };
        match words.first().map(String::as_str)? {
            "rm" if (has_flag('r') || has_flag('R') || has("--recursive")) && (has_flag('f') || has("--force")) => {
                let mut targets = words.iter().skip(1).filter(|word| !word.starts_with('-'));
                targets.any(|target| is_precious(target, has_moved)).then_some("deletes a folder with everything in it")
            }
            "git" if has("push") && (has("--force") || has_flag('f')) && !has("--force-with-lease") => {
                Some("overwrites the history of a remote branch")
            }
            "git" if has("reset") && has("--hard") => Some("discards uncommitted changes"),
            "git" if has("clean") && has_flag('f') && !has_flag('n') && !has("--dry-run") => {
                Some("deletes files that git does not know")
            }
            "git" if has("checkout") && has("--") && (has(".") || has("*")) => Some("discards uncommitted changes"),
            "git" if has("restore") && has(".") && !has("--staged") => Some("discards uncommitted changes"),
            "mkfs" | "mkfs.ext4" | "shred" => Some("destroys the content of a disk or file"),
            "dd" if words.iter().any(|word| word.starts_with("of=/dev/") && word != "of=/dev/null") => {
                Some("overwrites a device")
            }
            "dropdb" => Some("deletes a database"),
            _ => None,
        }
    })
}

/// Whether a target of `rm -rf` can hold work: the home, the root, the current folder, sources, version control.
fn is_precious(target: &str, has_moved: bool) -> bool {
    if target.starts_with("/tmp/") || target.starts_with("$TMPDIR") {
        return false;
    }
    let target = target.trim_end_matches('/');
    let name = target.rsplit('/').next().unwrap_or_default();
    let is_relative = matches!(target, "." | ".." | "*" | "./*") || matches!(name, ".git" | "src");
    matches!(target, "" | "~" | "$HOME" | "/*" | "~/*" | "/home") || (is_relative && !has_moved)
}

/// A file that holds secrets and is shown by a command or a tool.
pub(super) fn is_secret_path(path: &str) -> bool {
    let path = path.trim_matches(['"', '\'']).trim_end_matches('/');
    let name = path.rsplit(['/', '\\']).next().unwrap_or_default();
    let is_sample = ["example", "sample", "template", "dist", "test", "fixture"].iter().any(|word| path.contains(word));
    let is_key =
        name.ends_with(".pem") || name.ends_with(".p12") || name.ends_with(".pfx") || name.ends_with(".keystore");
    let is_named = matches!(
        name,
        ".env"
            | "id_rsa"
            | "id_ed25519"
            | "id_ecdsa"
            | "id_dsa"
            | ".netrc"
            | ".pgpass"
            | ".git-credentials"
            | ".htpasswd"
    ) || (name.starts_with(".env.") && !is_sample);
    let is_below =
        path.ends_with(".aws/credentials") || path.ends_with(".docker/config.json") || path.ends_with(".kube/config");
    (is_key && !is_sample) || is_named || is_below
}

/// The secret file that a command prints; `None` if it prints none.
pub(super) fn find_printed_secret(command: &str) -> Option<String> {
    const PRINTERS: [&str; 9] = ["cat", "less", "more", "head", "tail", "bat", "strings", "xxd", "base64"];
    let commands = simple_commands(command);
    // What a command writes to is not printed.
    if command.contains('>') {
        return None;
    }
    let printed = commands.iter().filter(|words| words.first().is_some_and(|word| PRINTERS.contains(&word.as_str())));
    printed.flat_map(|words| words.iter().skip(1)).find(|word| is_secret_path(word)).cloned()
}

/// Whether a command hides how its tests ended: behind a pipe, or before another command.
pub(super) fn hides_result(command: &str) -> bool {
    let command = command.replace("2>&1", "").replace("&>", "").replace("&&", "");
    command.contains(['|', ';', '&', '\n'])
}

/// Whether a result says that tests failed, or that none ran.
pub(super) fn tells_failure(result: &str) -> bool {
    const SIGNS: [&str; 10] = [
        " failed",
        "test result: failed",
        "failures:",
        "failing",
        "no tests ran",
        "no tests found",
        "error:",
        "errors:",
        "fail\t",
        "--- fail",
    ];
    let text = result.to_lowercase().replace(" 0 failed", "").replace(" 0 failures", "").replace("0 failing", "");
    SIGNS.iter().any(|sign| text.contains(sign))
}

/// The files that a command writes to, by `>`, `tee` and `sed -i`.
pub(super) fn written_files(command: &str) -> Vec<String> {
    let mut files = Vec::new();
    for part in command.split('>').skip(1) {
        files.extend(part.trim_start_matches(['>', '|', ' ']).split_whitespace().next().map(str::to_owned));
    }
    for words in simple_commands(command) {
        let is_in_place = words.iter().any(|word| word == "-i" || word.starts_with("-i.") || word == "-pi");
        match words.first().map(String::as_str) {
            Some("tee") => files.extend(words.into_iter().skip(1)),
            Some("sed" | "perl") if is_in_place => files.extend(words.into_iter().skip(1)),
            _ => {}
        }
    }
    files.retain(|file| !file.starts_with('&') && !file.starts_with("/dev/"));
    files
}

/// The command as it is compared with others: words with one space between.
pub(super) fn normalize_command(command: &str) -> String {
    command.split_whitespace().collect::<Vec<_>>().join(" ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn test_runs() {
        for command in [
            "pytest -q",
            "cd /x && python -m pytest tests",
            "CI=1 cargo test --workspace 2>&1 | tail -5",
            "npm run test:unit",
            "go test ./...",
            "make check",
            "timeout 60 ./run_tests.sh",
            "uv run pytest",
            "python tests/test_a.py",
        ] {
            assert!(runs_tests(command), "{command}");
        }
        for command in [
            "ls tests",
            "cat test_a.py",
            "echo 'cargo test'",
            "pytest --version",
            "git commit -m \"add test\"",
            "cargo build",
        ] {
            assert!(!runs_tests(command), "{command}");
        }
    }

    #[test]
    fn destruction_and_what_only_looks_like_it() {
        for command in [
            "rm -rf ~",
            "rm -fr .git",
            "git push -f origin main",
            "git reset --hard HEAD~3",
            "sudo git clean -fdx",
            "rm -rf *",
        ] {
            assert!(find_destruction(command).is_some(), "{command}");
        }
        for command in [
            "rm -rf node_modules",
            "rm -rf /tmp/x",
            "rm a.txt",
            "git push --force-with-lease",
            "git push origin main",
            "echo 'rm -rf /'",
            "git reset HEAD a",
            "dd if=a of=/dev/null",
        ] {
            assert_eq!(find_destruction(command), None, "{command}");
        }
    }

    #[test]
    fn secret_files() {
        assert!(is_secret_path("/a/.env") && is_secret_path("~/.ssh/id_rsa") && is_secret_path(".env.production"));
        assert!(!is_secret_path(".env.example") && !is_secret_path("env.py") && !is_secret_path("keys.md"));
        assert_eq!(find_printed_secret("cd x; cat .env | grep A").as_deref(), Some(".env"));
        assert_eq!(find_printed_secret("ls -la .env"), None);
    }
}
