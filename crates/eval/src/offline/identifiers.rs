//! Finds identifiers in texts: paths, addresses, numbers, dates, codes and quotations. A text with another identifier
//! than the request is about something else, whatever its other words are.

use super::excerpt::take_prefix;
use super::vocabulary::is_stop_word;

/// One identifier, without the punctuation around it.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct TextIdentifier {
    pub text: String,
    pub shape: IdentifierShape,
    /// The stem of the word before it: "issue" in "issue 17".
    pub noun: Option<String>,
    /// Written as `#17`: the number of a thing, not an amount.
    pub is_numbered: bool,
}

/// The kind of an identifier, by its spelling.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum IdentifierShape {
    Number,
    /// `owner/name`
    Pair,
    Path,
    /// A file name without folders.
    File,
    Email,
    Url,
    Date,
    /// Letters and digits: a ticket, a flight, a hash.
    Code,
    /// snake_case: usually a tool or a parameter.
    Snake,
    Quoted,
}

impl IdentifierShape {
    /// Whether two different identifiers of this shape always mean different things. Paths may be guessed or shortened,
    /// so they do not count.
    pub(super) fn is_exact(self) -> bool {
        matches!(
            self,
            IdentifierShape::Pair
                | IdentifierShape::Email
                | IdentifierShape::Url
                | IdentifierShape::Date
                | IdentifierShape::Code
        )
    }
}

const OPENING: &[char] = &['(', '[', '{', '<', '"', '\'', '`', '“', '‘', '「', '*', '«', '„'];
const CLOSING: &[char] =
    &['.', ',', ';', ':', '!', '?', ')', ']', '}', '>', '"', '\'', '`', '”', '’', '」', '*', '»', '。', '，', '…'];
const SLASHED_WORDS: &[&str] =
    &["read/write", "client/server", "input/output", "request/response", "true/false", "n/a"];

/// Parses a chunk between spaces. `before` is the stem of the previous word. The second value is whether the chunk
/// also counts as words of the text.
pub(super) fn parse_identifier_chunk(chunk: &str, before: Option<&str>) -> (Option<TextIdentifier>, bool) {
    if is_plain_word(chunk) && chunk.len() <= 300 {
        return (None, true);
    }
    let bare = chunk.trim_start_matches(OPENING).trim_end_matches(CLOSING);
    let bare = bare.strip_suffix("'s").or_else(|| bare.strip_suffix("’s")).unwrap_or(bare);
    if bare.is_empty() || bare.len() > 300 {
        return (None, bare.len() <= 300);
    }
    match classify_identifier(bare) {
        Some(shape) => {
            let text = if shape == IdentifierShape::Number { normalize_number_text(bare) } else { bare.to_owned() };
            let noun = before.map(str::to_owned);
            let is_numbered = shape == IdentifierShape::Number && bare.starts_with('#');
            (Some(TextIdentifier { text, shape, noun, is_numbered }), shape == IdentifierShape::Snake)
        }
        None => (None, true),
    }
}

/// Whether a chunk consists of letters only. A fast path, as most chunks do.
fn is_plain_word(chunk: &str) -> bool {
    !chunk.is_empty() && chunk.bytes().all(|byte| byte.is_ascii_alphabetic())
}

/// The shape of a text without spaces; `None` for an ordinary word.
pub(super) fn classify_identifier(bare: &str) -> Option<IdentifierShape> {
    if is_plain_word(bare) {
        return None;
    }
    let digits = bare.bytes().filter(u8::is_ascii_digit).count();
    let letters = bare.chars().filter(|letter| letter.is_alphabetic()).count();
    if letters == 0 {
        let number = bare.trim_start_matches(['#', '$', '€', '£', '-', '+']);
        let date = number.len() == 10 && number.split('-').map(str::len).eq([4, 2, 2]);
        return match number {
            _ if digits == 0 => None,
            _ if date => Some(IdentifierShape::Date),
            _ if number.bytes().all(|byte| byte.is_ascii_digit() || matches!(byte, b'.' | b',' | b'%')) => {
                Some(IdentifierShape::Number)
            }
            _ => None,
        };
    }
    if bare.contains("://") {
        return Some(IdentifierShape::Url);
    }
    if let Some((user, domain)) = bare.split_once('@')
        && !user.is_empty()
        && domain.contains('.')
    {
        return Some(IdentifierShape::Email);
    }
    let (folders, last) = bare.rsplit_once('/').map_or((None, bare), |(folders, last)| (Some(folders), last));
    let has_extension = last.rsplit_once('.').is_some_and(|(stem, extension)| {
        !stem.is_empty()
            && (1..=5).contains(&extension.len())
            && extension.bytes().all(|byte| byte.is_ascii_alphanumeric())
            && extension.bytes().any(|byte| byte.is_ascii_lowercase())
            && !stem.ends_with('.')
    });
    if let Some(folders) = folders {
        let path_like = has_extension
            || folders.is_empty()
            || folders.contains('/')
            || folders.starts_with(['.', '~'])
            || last.is_empty();
        if path_like {
            return Some(IdentifierShape::Path);
        }
        let words = is_stop_word(&folders.to_lowercase())
            || is_stop_word(&last.to_lowercase())
            || folders.len() < 2
            || last.len() < 2;
        let slashed = words || SLASHED_WORDS.contains(&bare.to_lowercase().as_str());
        return (!slashed).then_some(IdentifierShape::Pair);
    }
    if has_extension && !bare.ends_with("e.g") && !bare.ends_with("i.e") {
        return Some(IdentifierShape::File);
    }
    if bare.contains('_') && bare.bytes().all(|byte| byte.is_ascii_alphanumeric() || matches!(byte, b'_' | b'.' | b'-'))
    {
        return Some(IdentifierShape::Snake);
    }
    // c-77, ticket-8
    let numbered = bare.rsplit_once('-').is_some_and(|(name, number)| {
        name.bytes().all(|byte| byte.is_ascii_alphabetic())
            && !name.is_empty()
            && number.bytes().all(|byte| byte.is_ascii_digit())
    });
    let coded = bare.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'-')
        && digits >= 2
        && bare.len() >= 4
        && (bare.bytes().any(|byte| byte.is_ascii_uppercase()) || bare.len() >= 8);
    (coded || numbered && digits > 0).then_some(IdentifierShape::Code)
}

/// Normalizes a number: `#42`, `42.0` and `42` are equal.
fn normalize_number_text(bare: &str) -> String {
    let bare = bare.trim_start_matches(['#', '$', '€', '£', '+']).trim_end_matches('%').replace(',', "");
    bare.strip_suffix(".0").map_or(bare.clone(), str::to_owned)
}

/// Texts in quotation marks or backticks of up to 120 bytes, at most 20 of them.
pub(super) fn extract_quotations(text: &str) -> Vec<TextIdentifier> {
    let mut found = Vec::new();
    let mut rest = text;
    while let Some(at) = rest.find(['"', '`', '“', '「', '\'', '‘', '«']) {
        if found.len() == 20 {
            break;
        }
        let opening = rest[at..].chars().next().unwrap_or('"');
        let after = &rest[at + opening.len_utf8()..];
        // An apostrophe inside a word is not a quotation mark.
        let inside_word = opening == '\'' && rest[..at].ends_with(char::is_alphanumeric);
        let closing = match opening {
            '“' => '”',
            '「' => '」',
            '‘' => '’',
            '«' => '»',
            same => same,
        };
        let window = take_prefix(after, 200);
        match window.find(closing).filter(|end| !inside_word && (1..=120).contains(end)) {
            Some(end) if !window[..end].contains('\n') && !(window[..end].starts_with(' ')) => {
                let text = window[..end].to_owned();
                found.push(TextIdentifier { text, shape: IdentifierShape::Quoted, noun: None, is_numbered: false });
                rest = &after[end + closing.len_utf8()..];
            }
            _ => rest = after,
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shapes() {
        for (text, shape) in [
            ("17", Some(IdentifierShape::Number)),
            ("#42", Some(IdentifierShape::Number)),
            ("2031-05-20", Some(IdentifierShape::Date)),
            ("acme/shop", Some(IdentifierShape::Pair)),
            ("src/app/main.rs", Some(IdentifierShape::Path)),
            ("/etc/hosts", Some(IdentifierShape::Path)),
            ("README.md", Some(IdentifierShape::File)),
            ("ann@example.org", Some(IdentifierShape::Email)),
            ("https://example.org/x", Some(IdentifierShape::Url)),
            ("HAT136", Some(IdentifierShape::Code)),
            ("c-77", Some(IdentifierShape::Code)),
            ("order_id", Some(IdentifierShape::Snake)),
            ("and/or", None),
            ("weather", None),
            ("well-known", None),
        ] {
            assert_eq!(classify_identifier(text), shape, "{text}");
        }
    }

    #[test]
    fn punctuation_is_no_part_of_a_name() {
        let (found, speaks) = parse_identifier_chunk("(acme/shop),", Some("in"));
        assert_eq!(found.unwrap().text, "acme/shop");
        assert!(!speaks);
        assert_eq!(parse_identifier_chunk("#42:", Some("ticket")).0.unwrap().text, "42");
    }

    #[test]
    fn quotations_are_found_and_apostrophes_are_not() {
        let texts = |text| extract_quotations(text).into_iter().map(|found| found.text).collect::<Vec<_>>();
        assert_eq!(texts("Name it 'Slow start' and `x`"), ["Slow start", "x"]);
        assert_eq!(texts("I don't know what Ann's dog does"), Vec::<String>::new());
        assert_eq!(texts("标题为“修复”的"), ["修复"]);
    }
}
