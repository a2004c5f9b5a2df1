//! A line of a shell as simple commands: words, redirections and the operators between. Quoted text and the bodies of
//! here-documents are data, whatever they look like.

use super::super::excerpt::take_prefix;

/// Maximum bytes of a command that are parsed.
const MAX_COMMAND_BYTES: usize = 16 << 10;

/// One program with its words.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct SimpleCommand {
    /// Without quotes, and without wrappers before the program.
    pub words: Vec<String>,
    /// The files that `>` and `>>` write to.
    pub written: Vec<String>,
    /// The operator after the command.
    pub next: ShellOperator,
}

impl SimpleCommand {
    /// The name of the program, without its folder.
    pub(super) fn program(&self) -> &str {
        let first = self.words.first().map_or("", String::as_str);
        first.rsplit('/').next().unwrap_or_default()
    }
}

/// The operator between two commands, or after the last one.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum ShellOperator {
    /// `&&`
    And,
    /// `||`
    Or,
    Pipe,
    /// `;` or a new line: the exit status before it is lost.
    Sequence,
    /// `&`
    Background,
    /// The end of the line, or of a group.
    #[default]
    End,
}

/// Splits a line into simple commands.
pub(super) fn simple_commands(command: &str) -> Vec<SimpleCommand> {
    let command = remove_here_documents(take_prefix(command, MAX_COMMAND_BYTES));
    let mut parser = ShellParser { commands: vec![SimpleCommand::default()], ..ShellParser::default() };
    parser.parse(&command);
    parser.commands.retain(|command| !command.words.is_empty() || !command.written.is_empty());
    parser.commands.iter_mut().for_each(|command| skip_wrappers(&mut command.words));
    parser.commands
}

#[derive(Default)]
struct ShellParser {
    commands: Vec<SimpleCommand>,
    word: String,
    /// The word has quotes, so that it is one even if it is empty.
    is_quoted: bool,
    /// The next word is the file of a redirection: `Some(true)` if it is written to.
    redirects_to: Option<bool>,
}

impl ShellParser {
    fn parse(&mut self, command: &str) {
        let mut letters = command.chars().peekable();
        while let Some(letter) = letters.next() {
            match letter {
                '\'' => {
                    self.is_quoted = true;
                    self.word.extend(letters.by_ref().take_while(|letter| *letter != '\''));
                }
                '"' => {
                    self.is_quoted = true;
                    while let Some(letter) = letters.next().filter(|letter| *letter != '"') {
                        let escaped = (letter == '\\').then(|| letters.next()).flatten();
                        self.word.push(escaped.unwrap_or(letter));
                    }
                }
                // A backslash before a new line joins the lines.
                '\\' => self.word.extend(letters.next().filter(|letter| *letter != '\n')),
                '#' if self.word.is_empty() && !self.is_quoted => {
                    while letters.peek().is_some_and(|letter| *letter != '\n') {
                        letters.next();
                    }
                }
                '>' if self.is_comparison() => self.word.push(letter),
                '>' => {
                    // `2>`: the number of the stream.
                    if self.word.bytes().all(|byte| byte.is_ascii_digit()) {
                        self.word.clear();
                    }
                    self.end_word();
                    while letters.next_if(|letter| matches!(letter, '>' | '|')).is_some() {}
                    // `>&2` copies a stream, `>(cmd)` starts a command.
                    let is_stream = letters.next_if_eq(&'&').is_some();
                    self.redirects_to = Some(!is_stream && letters.peek() != Some(&'('));
                }
                '<' => {
                    self.end_word();
                    while letters.next_if_eq(&'<').is_some() {}
                    self.redirects_to = Some(false);
                }
                '&' if letters.peek() == Some(&'>') => {}
                '&' if letters.next_if_eq(&'&').is_some() => self.end_command(ShellOperator::And),
                '&' => self.end_command(ShellOperator::Background),
                '|' if letters.next_if_eq(&'|').is_some() => self.end_command(ShellOperator::Or),
                '|' => {
                    letters.next_if_eq(&'&');
                    self.end_command(ShellOperator::Pipe);
                }
                ';' | '\n' => self.end_command(ShellOperator::Sequence),
                '(' | ')' => self.end_command(ShellOperator::End),
                space if space.is_whitespace() => self.end_word(),
                _ => self.word.push(letter),
            }
        }
        self.end_word();
    }

    /// `[[ a > b ]]`, and arrows in text that is no shell: `a -> b`, `x => y`.
    fn is_comparison(&self) -> bool {
        self.word.ends_with(['-', '='])
            || self.commands.last().and_then(|command| command.words.first()).is_some_and(|first| first == "[[")
    }

    fn end_word(&mut self) {
        let is_word = std::mem::take(&mut self.is_quoted) || !self.word.is_empty();
        let word = std::mem::take(&mut self.word);
        let Some(last) = self.commands.last_mut().filter(|_| is_word) else { return };
        match self.redirects_to.take() {
            Some(true) => last.written.push(word),
            Some(false) => {}
            None => last.words.push(word),
        }
    }

    fn end_command(&mut self, operator: ShellOperator) {
        self.end_word();
        self.redirects_to = None;
        let Some(last) = self.commands.last_mut() else { return };
        if last.words.is_empty() && last.written.is_empty() {
            // `(a) && b`: the operator belongs to the group that ended.
            if let [.., before, _] = self.commands.as_mut_slice()
                && before.next == ShellOperator::End
            {
                before.next = operator;
            }
            return;
        }
        last.next = operator;
        self.commands.push(SimpleCommand::default());
    }
}

/// Removes the bodies of here-documents, also of those inside quotes: `-m "$(cat <<'EOF' … EOF)"`. `<<` without a
/// line that ends the body is not a here-document but a shift or a string.
fn remove_here_documents(command: &str) -> String {
    let mut kept = String::with_capacity(command.len());
    let mut lines = command.lines().peekable();
    while let Some(line) = lines.next() {
        kept.push_str(line);
        kept.push('\n');
        for delimiter in here_delimiters(line) {
            let is_end = |line: &&str| line.trim() == delimiter;
            if lines.clone().any(|line| is_end(&line)) {
                let _ = lines.by_ref().find(is_end);
            }
        }
    }
    kept.truncate(kept.trim_end_matches('\n').len());
    kept
}

/// The words after `<<` and `<<-` in a line, without quotes.
fn here_delimiters(line: &str) -> impl Iterator<Item = &str> {
    let is_here = |(at, _): &(usize, &str)| !line[..*at].ends_with('<') && !line[at + 2..].starts_with('<');
    line.match_indices("<<").filter(is_here).take(4).filter_map(|(at, _)| {
        let rest = line[at + 2..].trim_start_matches('-').trim_start().trim_start_matches(['\'', '"', '\\']);
        let end = rest.find(|letter: char| !(letter.is_alphanumeric() || matches!(letter, '_' | '-' | '.')));
        Some(&rest[..end.unwrap_or(rest.len())]).filter(|delimiter| !delimiter.is_empty())
    })
}

/// Removes wrappers before the program: assignments, `sudo`, `time`, `timeout 60`, `env`, `uv run`.
fn skip_wrappers(words: &mut Vec<String>) {
    while let Some(first) = words.first() {
        let is_assignment = first
            .split_once('=')
            .is_some_and(|(name, _)| !name.is_empty() && name.chars().all(|c| c.is_alphanumeric() || c == '_'));
        let second = words.get(1).map(String::as_str);
        let count = match first.as_str() {
            _ if is_assignment => 1,
            "sudo" | "time" | "env" | "nohup" | "command" | "exec" | "then" | "do" | "else" | "if" | "!" | "{" => 1,
            "timeout" | "nice" => 2,
            "uv" | "poetry" | "pipenv" | "hatch" | "pdm" | "rye" if second == Some("run") => 2,
            "pnpm" | "yarn" | "npm" | "bundle" if second == Some("exec") => 2,
            "bun" if second == Some("x") => 2,
            "npx" | "bunx" | "pnpx" => 1,
            // `mise exec -- cmd`
            "mise" | "rtx" if matches!(second, Some("exec" | "x")) && words.get(2).is_some_and(|word| word == "--") => {
                3
            }
            _ => return,
        };
        words.drain(..count.min(words.len()));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn written(command: &str) -> Vec<String> {
        simple_commands(command).into_iter().flat_map(|command| command.written).collect()
    }

    #[test]
    fn redirections_are_found_outside_of_quotes() {
        assert_eq!(written("cat > a.py <<'EOF'\nx > b\nEOF"), ["a.py"]);
        assert_eq!(written("make >>build.log 2>&1"), ["build.log"]);
        assert_eq!(written("make &> 'my log'"), ["my log"]);
        assert_eq!(written("a 2>/dev/null | b >| c"), ["/dev/null", "c"]);
        for command in [
            "git commit -m \"$(cat <<'EOF'\nfix \"it\"\n\nCo-Authored-By: A <a@example.org>\nEOF\n)\"",
            "git commit -m 'fix' -m 'By: A <a@example.org>'",
            "grep -n \"x => y\" a.js",
            "git log --format='%an <%ae>'",
            "jq 'select(.a > 1)' a.json",
            "[[ 2 > 1 ]] && echo yes",
            "python3 - <<PY\nprint(1 > 0)\nPY",
            "sort < in.txt",
            "diff <(a) <(b)",
            "echo a # > b",
            "echo \\> b",
        ] {
            assert_eq!(written(command), Vec::<String>::new(), "{command}");
        }
    }

    #[test]
    fn operators_between_commands() {
        let parts = |command: &str| -> Vec<(String, ShellOperator)> {
            simple_commands(command).into_iter().map(|command| (command.words.join(" "), command.next)).collect()
        };
        assert_eq!(
            parts("cd /x && A=1 pytest -q 2>&1 | tail -3; echo \"a && b\""),
            [
                ("cd /x".to_owned(), ShellOperator::And),
                ("pytest -q".to_owned(), ShellOperator::Pipe),
                ("tail -3".to_owned(), ShellOperator::Sequence),
                ("echo a && b".to_owned(), ShellOperator::End),
            ]
        );
        assert_eq!(parts("(cd a && make) || true")[1], ("make".to_owned(), ShellOperator::Or));
        assert_eq!(parts("cat <<EOF\nrm -rf ~\nEOF\nls")[1].0, "ls");
    }
}
