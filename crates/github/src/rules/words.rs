//! Sentences and words of requests and final messages.

/// Sentences and lines, without empty ones. A point inside a word (`src/app.py`, `v1.0`) ends nothing.
pub(super) fn sentences(text: &str) -> Vec<&str> {
    let (mut found, mut begin) = (Vec::new(), 0);
    let bytes = text.as_bytes();
    for (at, byte) in bytes.iter().enumerate() {
        let ends = match byte {
            b'\n' | b';' => true,
            b'.' | b'!' | b'?' => bytes.get(at + 1).is_none_or(u8::is_ascii_whitespace),
            _ => false,
        };
        if ends {
            found.push(text[begin..=at].trim());
            begin = at + 1;
        }
    }
    found.push(text[begin..].trim());
    found.retain(|sentence| !sentence.is_empty());
    found
}

/// In lower case, without the marks around them.
pub(super) fn words(text: &str) -> Vec<String> {
    let is_mark = |c: char| !c.is_alphanumeric() && c != '#' && c != '_';
    text.split(|c: char| {
        c.is_whitespace() || matches!(c, ',' | '(' | ')' | '"' | '`' | '“' | '”' | '*' | '—')
    })
    .map(|word| word.trim_matches(is_mark).to_lowercase())
    .filter(|word| !word.is_empty())
    .collect()
}

/// Whether a name stands in a text as a word of its own, whatever its case.
pub(super) fn names(text: &str, name: &str) -> bool {
    let (text, name) = (text.to_lowercase(), name.to_lowercase());
    let is_part = |c: char| c.is_alphanumeric() || c == '_' || c == '-';
    !name.is_empty()
        && text.match_indices(&name).any(|(at, _)| {
            let before = text[..at].chars().next_back();
            let after = text[at + name.len()..].chars().next();
            !before.is_some_and(is_part) && !after.is_some_and(is_part)
        })
}

/// Whether something is said not to be, not to have worked, or not to be done.
pub(super) fn denies(words: &[String]) -> bool {
    const DENIALS: [&str; 32] = [
        "not",
        "no",
        "never",
        "none",
        "nothing",
        "without",
        "cannot",
        "can't",
        "can’t",
        "unable",
        "failed",
        "fails",
        "fail",
        "failure",
        "refused",
        "rejected",
        "denied",
        "error",
        "errors",
        "missing",
        "neither",
        "nor",
        "instead",
        "unsuccessful",
        "couldn't",
        "wasn't",
        "404",
        "403",
        "409",
        "422",
        "skipped",
        "blocked",
    ];
    let is_denial = |(at, word): (usize, &String)| {
        // `closed as not planned` is what was done, not what was left.
        let is_reason = word == "not" && words.get(at + 1).is_some_and(|next| next == "planned");
        !is_reason && (DENIALS.contains(&word.as_str()) || word.ends_with("n't") || word.ends_with("n’t"))
    };
    words.iter().enumerate().any(is_denial)
}

/// The same of a whole text.
pub(crate) fn denies_text(text: &str) -> bool {
    sentences(text).into_iter().any(|sentence| denies(&words(sentence)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sentences_end_where_they_end() {
        let text = "Changed src/app.py to v1.0. Done!\nSee #5; it is open";
        assert_eq!(sentences(text), ["Changed src/app.py to v1.0.", "Done!", "See #5;", "it is open"]);
    }

    #[test]
    fn names_are_whole_words() {
        assert!(names("Look at octo/Secrets, please", "octo/secrets") && names("in `secrets`", "secrets"));
        assert!(!names("my_secrets", "secrets") && !names("secrets-2", "secrets"));
    }

    #[test]
    fn denials() {
        assert!(denies(&words("It couldn’t be merged")) && denies(&words("PR #99 does not exist.")));
        assert!(!denies(&words("Merged #5 into main.")));
    }
}
