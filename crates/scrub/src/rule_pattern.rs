//! Patterns of the rule file as the `regex` crate takes them, and what can be wrong with the file.

use std::fmt;

/// The rule file cannot be used. Only a faulty update of the file causes it; a test reads and compiles all of it.
#[derive(Debug)]
pub(crate) enum RuleError {
    File(toml::de::Error),
    Pattern(String, regex::Error),
    Keywords(aho_corasick::BuildError),
}

impl fmt::Display for RuleError {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::File(error) => write!(formatter, "the rule file cannot be read: {error}"),
            Self::Pattern(rule, error) => write!(formatter, "{rule}: the pattern cannot be compiled: {error}"),
            Self::Keywords(error) => write!(formatter, "the keywords cannot be compiled: {error}"),
        }
    }
}

/// Escapes braces that begin no repetition. Go accepts them as literals, Rust's `regex` rejects them.
pub(crate) fn escape_literal_braces(pattern: &str) -> String {
    let mut escaped = String::with_capacity(pattern.len() + 8);
    let mut is_in_class = false;
    let mut characters = pattern.char_indices();
    while let Some((at, character)) = characters.next() {
        match character {
            '\\' => {
                escaped.push('\\');
                let Some((_, next)) = characters.next() else { break };
                escaped.push(next);
                // `\x{..}` and `\p{..}` have braces of their own.
                if matches!(next, 'x' | 'p' | 'P') && pattern[at + 2..].starts_with('{') {
                    escaped.extend(characters.by_ref().map(|(_, inner)| inner).take_while(|inner| *inner != '}'));
                    escaped.push('}');
                }
                continue;
            }
            '[' if !is_in_class => is_in_class = true,
            ']' if is_in_class => is_in_class = false,
            '{' if !is_in_class && !is_repetition(&pattern[at..]) => escaped.push('\\'),
            _ => {}
        }
        escaped.push(character);
    }
    escaped
}

/// Whether `{` begins `{3}`, `{3,}` or `{3,5}`.
fn is_repetition(rest: &str) -> bool {
    let Some((inner, _)) = rest[1..].split_once('}') else { return false };
    let (least, most) = inner.split_once(',').unwrap_or((inner, ""));
    let is_number = |text: &str| text.bytes().all(|byte| byte.is_ascii_digit());
    !least.is_empty() && is_number(least) && is_number(most)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn braces_that_are_no_repetition_are_literal() {
        assert_eq!(escape_literal_braces(r"^\${(?:a|{\d+})$"), r"^\$\{(?:a|\{\d+})$");
        assert_eq!(escape_literal_braces(r"a{2,}[{]\x{41}b{3}"), r"a{2,}[{]\x{41}b{3}");
    }
}
