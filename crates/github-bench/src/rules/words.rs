//! Sentences and words of requests and final messages. English only, since the tasks are.

/// Splits at line ends, semicolons, and punctuation marks followed by white space. A dot inside a word (`src/app.py`,
/// `v1.0`) does not end a sentence.
pub(super) fn split_sentences(text: &str) -> Vec<&str> {
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

/// Splits into words in lower case, without surrounding punctuation. `#` and `_` stay.
pub(super) fn split_lowercase_words(text: &str) -> Vec<String> {
    let is_mark = |c: char| !c.is_alphanumeric() && c != '#' && c != '_';
    text.split(|c: char| c.is_whitespace() || matches!(c, ',' | '(' | ')' | '"' | '`' | '“' | '”' | '*' | '—'))
        .map(|word| word.trim_matches(is_mark).to_lowercase())
        .filter(|word| !word.is_empty())
        .collect()
}

/// Whether a name occurs as a whole word, ignoring case.
pub(super) fn contains_name(text: &str, name: &str) -> bool {
    let (text, name) = (text.to_lowercase(), name.to_lowercase());
    let is_part = |c: char| c.is_alphanumeric() || c == '_' || c == '-';
    !name.is_empty()
        && text.match_indices(&name).any(|(at, _)| {
            let before = text[..at].chars().next_back();
            let after = text[at + name.len()..].chars().next();
            !before.is_some_and(is_part) && !after.is_some_and(is_part)
        })
}

/// Whether a text denies something: it is not so, failed, or was not done.
pub(super) fn contains_denial(text: &str) -> bool {
    split_sentences(text).into_iter().any(|sentence| is_denial(sentence, &split_lowercase_words(sentence)))
}

/// Whether a sentence denies something, by a list of words. It errs towards denial, so that rules are lenient.
fn is_denial(sentence: &str, words: &[String]) -> bool {
    // Includes status codes, by which agents report refusals.
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
    let is_question = sentence.trim_end_matches(is_closing).ends_with('?');
    let denies = |(at, word): (usize, &String)| {
        // `closed as not planned` describes an action that was done.
        let is_reason = word == "not" && words.get(at + 1).is_some_and(|next| next == "planned");
        // `Is it #5, yes or no?` denies nothing.
        let is_asked = is_question && word == "no" && at > 0 && at + 1 == words.len();
        !is_reason && !is_asked && (DENIALS.contains(&word.as_str()) || word.ends_with("n't") || word.ends_with("n’t"))
    };
    words.iter().enumerate().any(denies)
}

/// Returns the sentences that deny something.
pub(crate) fn denying_sentences(text: &str) -> Vec<&str> {
    split_sentences(text).into_iter().filter(|sentence| contains_denial(sentence)).collect()
}

/// Whether a text asks something: a question mark ends a word that is not an address.
pub(crate) fn contains_question(text: &str) -> bool {
    let is_question = |word: &str| {
        let word = word.trim_end_matches(is_closing);
        let begin = word.trim_end_matches('?');
        begin.len() < word.len() && !begin.contains("://")
    };
    text.split_whitespace().any(is_question)
}

/// Whether a character may follow the mark that ends a sentence.
fn is_closing(c: char) -> bool {
    "\"'`)]*_!”’".contains(c)
}

/// Returns `issue` for `issues`, `repository` for `repositories`, `branch` for `branches`.
pub(crate) fn to_singular(word: &str) -> String {
    let hissing = ["ches", "shes", "sses", "xes"];
    match word.strip_suffix("ies") {
        Some(stem) if stem.len() > 1 => format!("{stem}y"),
        _ if hissing.iter().any(|end| word.ends_with(end)) => word[..word.len() - 2].to_owned(),
        _ if word.len() > 2 && !word.ends_with("ss") && !word.ends_with("us") => {
            word.strip_suffix('s').unwrap_or(word).to_owned()
        }
        _ => word.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sentences_end_where_they_end() {
        let text = "Changed src/app.py to v1.0. Done!\nSee #5; it is open";
        assert_eq!(split_sentences(text), ["Changed src/app.py to v1.0.", "Done!", "See #5;", "it is open"]);
    }

    #[test]
    fn names_are_whole_words() {
        assert!(
            contains_name("Look at octo/Secrets, please", "octo/secrets") && contains_name("in `secrets`", "secrets")
        );
        assert!(!contains_name("my_secrets", "secrets") && !contains_name("secrets-2", "secrets"));
    }

    #[test]
    fn questions_and_addresses() {
        assert!(
            contains_question("Which demo do you mean? octo/demo or acme/demo")
                && contains_question("Is it \"demo\"?")
                && contains_question("(right?)")
        );
        assert!(contains_question("Is it the one at http://h/o/demo ?") && contains_question("Why?!"));
        assert!(
            !contains_question("See http://h/o/r/issues?q=is:open")
                && !contains_question("http://h/search?")
                && !contains_question("a?b")
        );
    }

    #[test]
    fn one_of_many() {
        let pairs = [
            ("issues", "issue"),
            ("releases", "release"),
            ("milestones", "milestone"),
            ("repositories", "repository"),
            ("branches", "branch"),
            ("labels", "label"),
            ("status", "status"),
            ("access", "access"),
            ("prs", "pr"),
        ];
        for (many, one) in pairs {
            assert_eq!(to_singular(many), one);
        }
    }

    #[test]
    fn denials() {
        for denial in [
            "It couldn’t be merged",
            "PR #99 does not exist.",
            "No, it is open.",
            "No.",
            "There is no #99.",
            "Was it completed? No.",
            "Issue #99: no.",
            "Is #99 there: no\nShall I look?",
        ] {
            assert!(contains_denial(denial), "{denial}");
        }
        for other in ["Merged #5 into main.", "see #9999 yes no?", "(Is it #5, \"yes\" or \"no?\")"] {
            assert!(!contains_denial(other), "{other}");
        }
    }
}
