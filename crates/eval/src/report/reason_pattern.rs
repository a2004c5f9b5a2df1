//! Turns an explanation into a pattern that the same mistake gives every time: values are replaced by their kind
//! (`"TP-88213"` becomes `<text>`, `2026-03-05` becomes `<date>`), so that explanations that differ only in values
//! are equal. It is linear in the text, which is cut before.

/// Maximum bytes of an explanation that are read.
const MAX_SOURCE_BYTES: usize = 4_096;
/// Maximum characters of a pattern.
const MAX_PATTERN_CHARS: usize = 200;
/// Maximum bytes between two quotation marks. Without a limit, text full of unpaired marks would take quadratic time.
const MAX_QUOTED_BYTES: usize = 400;

/// Who wrote an explanation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum ReasonAuthor {
    /// A rule: the second sentence says what is wrong with a value, and names of tools and parameters, which are not
    /// values, are in backticks.
    Rule,
    /// A model: it repeats itself after the first sentence, and backticks may contain anything.
    Model,
}

/// Returns the pattern of an explanation: its first sentences, on one line, with kinds in place of values. A sentence
/// in parentheses is left out: it counts how often the same happened.
pub(super) fn make_reason_pattern(explanation: &str, author: ReasonAuthor) -> String {
    let max_sentences = if author == ReasonAuthor::Rule { 2 } else { 1 };
    let text = &explanation[..explanation.floor_char_boundary(MAX_SOURCE_BYTES)];
    let mut pieces: Vec<ReasonPiece<'_>> = Vec::new();
    let mut rest = text.trim_start();
    let mut sentences = 0;
    while !rest.is_empty() && sentences < max_sentences {
        let (piece, after) = next_piece(rest, author);
        sentences += usize::from(piece.ends_sentence());
        push_piece(&mut pieces, piece);
        rest = after;
        if sentences > 0 && rest.trim_start().starts_with('(') {
            break;
        }
    }
    let mut pattern = String::new();
    for piece in pieces {
        match piece {
            ReasonPiece::Space => pattern.push(' '),
            ReasonPiece::Word(word) => pattern.push_str(word),
            ReasonPiece::Value { before, kind, after } => {
                pattern.push_str(before);
                pattern.push('<');
                pattern.push_str(kind);
                pattern.push('>');
                pattern.push_str(after);
            }
        }
    }
    let pattern = pattern.trim().trim_end_matches(['.', ',', ';', ':']).trim_end();
    match pattern.char_indices().nth(MAX_PATTERN_CHARS) {
        Some((end, _)) => format!("{}...", &pattern[..end]),
        None => pattern.to_owned(),
    }
}

/// A part of a text.
#[derive(Clone, Copy, Debug, PartialEq)]
enum ReasonPiece<'t> {
    /// Any white space or control characters.
    Space,
    Word(&'t str),
    /// A value with the punctuation around it.
    Value {
        before: &'t str,
        kind: &'static str,
        after: &'t str,
    },
}

/// Splits off the first piece of a text that is not empty.
fn next_piece(text: &str, author: ReasonAuthor) -> (ReasonPiece<'_>, &str) {
    let is_blank = |c: char| c.is_whitespace() || c.is_control();
    if text.starts_with(is_blank) {
        return (ReasonPiece::Space, text.trim_start_matches(is_blank));
    }
    if let Some((before, after, rest)) = split_quotation(text) {
        if author == ReasonAuthor::Rule && text.starts_with('`') {
            return (ReasonPiece::Word(&text[..text.len() - rest.len()]), rest);
        }
        return (ReasonPiece::Value { before, kind: "text", after }, rest);
    }
    let end = text.find(is_blank).unwrap_or(text.len());
    // A quotation may begin inside of a word, as in `(id="x y")`.
    let quote = text[..end].char_indices().skip(1).find(|(at, c)| {
        is_opening_quote(*c)
            && text[..*at].ends_with(['(', '[', '{', '=', ':'])
            && split_quotation(&text[*at..]).is_some()
    });
    let (word, rest) = text.split_at(quote.map_or(end, |(at, _)| at));
    (classify_word(word), rest)
}

fn is_opening_quote(c: char) -> bool {
    matches!(c, '"' | '\'' | '`' | '\u{201c}' | '\u{2018}' | '\u{ab}')
}

/// Splits a quotation off the beginning of a text: the brackets before it, the punctuation after it, and the rest. An
/// apostrophe inside a word does not end it.
fn split_quotation(text: &str) -> Option<(&str, &str, &str)> {
    let start = text.find(|c: char| !matches!(c, '(' | '[' | '{'))?;
    let open = text[start..].chars().next().filter(|c| is_opening_quote(*c))?;
    let close = match open {
        '\u{201c}' => '\u{201d}',
        '\u{2018}' => '\u{2019}',
        '\u{ab}' => '\u{bb}',
        other => other,
    };
    let inside = start + open.len_utf8();
    let window = &text[inside..text.floor_char_boundary(inside + MAX_QUOTED_BYTES)];
    let length = window.char_indices().find_map(|(at, c)| {
        let next = window[at + c.len_utf8()..].chars().next();
        (c == close && !next.is_some_and(char::is_alphanumeric)).then_some(at)
    })?;
    if length == 0 {
        return None;
    }
    let after = &text[inside + length + close.len_utf8()..];
    let (marks, rest) = after.split_at(count_trailing_marks(after));
    Some((&text[..start], marks, rest))
}

/// Returns the bytes of punctuation directly after a value.
fn count_trailing_marks(text: &str) -> usize {
    text.find(|c: char| !matches!(c, '.' | ',' | ';' | ':' | ')' | ']' | '}' | '!' | '?')).unwrap_or(text.len())
}

/// Returns a word unchanged, or the kind of value that it is.
fn classify_word(word: &str) -> ReasonPiece<'_> {
    let start = word.find(|c: char| !matches!(c, '(' | '[' | '{' | '<')).unwrap_or(word.len());
    let marks = |c: char| matches!(c, '.' | ',' | ';' | ':' | ')' | ']' | '}' | '>' | '!' | '?' | '…');
    let core = word[start..].trim_end_matches(marks);
    match find_value_kind(core) {
        Some(kind) => ReasonPiece::Value { before: &word[..start], kind, after: &word[start + core.len()..] },
        None => ReasonPiece::Word(word),
    }
}

/// Returns the kind of value of a word without surrounding punctuation; `None` for ordinary words.
fn find_value_kind(word: &str) -> Option<&'static str> {
    let has = |found: fn(&char) -> bool| word.chars().any(|c| found(&c));
    let has_digit = has(char::is_ascii_digit);
    if word.contains("://") || word.starts_with("www.") {
        return Some("url");
    }
    if let Some((user, host)) = word.split_once('@')
        && !user.is_empty()
        && host.contains('.')
    {
        return Some("email");
    }
    if is_path(word) {
        return Some("path");
    }
    if !has_digit {
        // A SHA of letters only is rarer than words that look like one.
        return None;
    }
    if is_timestamp(word) {
        return Some("date");
    }
    let number = word.trim_start_matches(['#', '$', '€', '£', '+', '-', '~', '±', '=', '≥', '≤']);
    let number = number.trim_end_matches(['%', '€', '$']);
    if !number.is_empty() && number.chars().all(|c| c.is_ascii_digit() || matches!(c, '.' | ',' | '_' | '\'')) {
        return Some("number");
    }
    // `12ms`, `3rd` and `5x` are numbers with a unit; `TP-88213` and `a1b2c3d4` are identifiers.
    let digits = number.chars().take_while(|c| c.is_ascii_digit() || *c == '.').count();
    let unit = &number[digits.min(number.len())..];
    if digits > 0 && unit.len() <= 3 && unit.chars().all(char::is_alphabetic) && digits <= 12 {
        return Some("number");
    }
    Some("id")
}

/// `/usr/lib`, `./a`, `~/x`, `src/main.rs`, `C:\x`. `and/or` is none: a relative path needs a dot or two separators.
fn is_path(word: &str) -> bool {
    let separators = word.matches(['/', '\\']).count();
    let is_rooted = word.starts_with(['/', '~']) || word.starts_with("./") || word.starts_with("../");
    let is_drive = word.len() > 2 && word.as_bytes()[1] == b':' && word.as_bytes()[2] == b'\\';
    separators > 0 && word.len() > 1 && (is_rooted || is_drive || separators >= 2 || word.contains('.'))
        && word.chars().any(char::is_alphanumeric)
        // Dates such as 3/5/2026.
        && !word.chars().all(|c| c.is_ascii_digit() || c == '/')
}

/// `2026-03-05`, `2026-03-05T09:41:07Z`, `09:41`, `05.03.2026`, `3/5/2026`.
fn is_timestamp(word: &str) -> bool {
    let is_stamp =
        word.chars().all(|c| c.is_ascii_digit() || matches!(c, '-' | ':' | '.' | '/' | '+' | 'T' | 'Z' | 't' | 'z'));
    let groups: Vec<&str> = word.split(|c: char| !c.is_ascii_digit()).filter(|group| !group.is_empty()).collect();
    let date_separators = word.matches(['-', '/']).count() >= 2 || word.matches('.').count() == 2;
    let is_date = groups.len() >= 3 && date_separators && groups.iter().take(3).any(|group| group.len() == 4);
    let is_clock = word.contains(':') && (2..=4).contains(&groups.len()) && groups[0].len() <= 2;
    is_stamp && (is_date || is_clock)
}

impl ReasonPiece<'_> {
    /// Whether the sentence is over. Abbreviations and initials do not end one.
    fn ends_sentence(&self) -> bool {
        match self {
            ReasonPiece::Space => false,
            ReasonPiece::Value { after, .. } => after.ends_with(['.', '!', '?']),
            ReasonPiece::Word(word) => {
                let word = word.trim_end_matches(['"', '\'', ')', '\u{201d}']);
                let Some(stem) = word.strip_suffix(['.', '!', '?']) else { return false };
                let is_abbreviation = matches!(stem, "vs" | "etc" | "cf" | "No" | "no" | "approx");
                stem.chars().count() > 1 && !stem.contains('.') && !is_abbreviation
            }
        }
    }

    /// Whether the piece separates the values of a list.
    fn is_joiner(&self) -> bool {
        matches!(self, ReasonPiece::Space | ReasonPiece::Word("and" | "or" | "&" | "," | ";"))
    }
}

/// Appends a piece. A value that continues a list of values of its kind is merged into the list, since the length of
/// lists differs from case to case.
fn push_piece<'t>(pieces: &mut Vec<ReasonPiece<'t>>, piece: ReasonPiece<'t>) {
    // A space, a conjunction and another space.
    const MAX_JOINERS: usize = 3;
    if let ReasonPiece::Value { before: "", kind, after } = piece {
        let joiners = pieces.iter().rev().take_while(|piece| piece.is_joiner()).count();
        let at = pieces.len() - joiners;
        if joiners <= MAX_JOINERS
            && let Some(ReasonPiece::Value { kind: same, after: before, .. }) = pieces[..at].last_mut()
            && *same == kind
            && matches!(*before, "" | "," | ";")
        {
            *before = after;
            pieces.truncate(at);
            return;
        }
    }
    pieces.push(piece);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_are_replaced_by_their_kind() {
        for (text, pattern) in [
            ("Issue #123 is not issue #45.", "Issue <number> is not issue <number>"),
            ("It writes to ann@example.org instead.", "It writes to <email> instead"),
            ("It fetches https://a.example/x?y=1, which nobody named.", "It fetches <url>, which nobody named"),
            ("The run 3f2c9a1b8d is unknown", "The run <id> is unknown"),
            ("Booking TP-88213 (of 2026-03-05) is meant", "Booking <id> (of <date>) is meant"),
            ("It took 12ms, not 3 %", "It took <number>, not <number> %"),
            ("At 09:41 it reads src/main.rs and /etc/passwd.", "At <date> it reads <path>"),
            ("The thought speaks of \"a b\", but 'c' is called", "The thought speaks of <text>, but <text> is called"),
            ("It doesn't fit the user's request", "It doesn't fit the user's request"),
            ("The fields `a`, `b` and `c` are missing.", "The fields <text> are missing"),
            ("The field `a` is missing.", "The field <text> is missing"),
            ("Read and/or write", "Read and/or write"),
            ("called with (id=\"x y\") twice", "called with (id=<text>) twice"),
        ] {
            assert_eq!(make_reason_pattern(text, ReasonAuthor::Model), pattern, "{text}");
        }
    }

    #[test]
    fn the_first_sentence_counts() {
        assert_eq!(
            make_reason_pattern("The tool is wrong. It should be \"x\".", ReasonAuthor::Model),
            "The tool is wrong"
        );
        let twice = "The call does not fit \"f\". \"row\": it is required. More. (3 such steps.)";
        assert_eq!(
            make_reason_pattern(twice, ReasonAuthor::Rule),
            "The call does not fit <text>. <text>: it is required"
        );
        assert_eq!(
            make_reason_pattern("Step 3 repeats step 1. (2 such steps.)", ReasonAuthor::Rule),
            "Step <number> repeats step <number>"
        );
        assert_eq!(make_reason_pattern("See e.g. the log. More.", ReasonAuthor::Model), "See e.g. the log");
        assert_eq!(make_reason_pattern("  \n\t ", ReasonAuthor::Model), "");
    }

    #[test]
    fn equal_mistakes_with_other_values_are_one_pattern() {
        let pattern = |parameter: &str, value: &str| {
            let explanation = format!("`{parameter}` is \"{value}\", which is not in the request.");
            make_reason_pattern(&explanation, ReasonAuthor::Rule)
        };
        assert_eq!(pattern("name", "7"), "`name` is <text>, which is not in the request");
        assert_eq!(pattern("name", "7"), pattern("name", "Ann O'Neil, Ltd."));
        assert_ne!(pattern("name", "7"), pattern("id", "7"), "names are told apart");
    }

    #[test]
    fn hostile_text_is_bounded() {
        for text in
            ["\"".repeat(100_000), "'a ".repeat(50_000), "x".repeat(100_000), "é".repeat(50_000), "1, ".repeat(40_000)]
        {
            let pattern = make_reason_pattern(&text, ReasonAuthor::Rule);
            assert!(pattern.chars().count() <= MAX_PATTERN_CHARS + 3, "{}", pattern.len());
        }
        assert_eq!(make_reason_pattern("a\u{1b}[31mb\r\nc", ReasonAuthor::Model), "a [<number> c");
    }
}
