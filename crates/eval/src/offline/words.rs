//! Splits texts for the rules: into sentences of stemmed words, and the identifiers between them.

use crate::offline::word_form::{ends_in_consonant_y, replace_final_y};
use std::borrow::Cow;

use super::excerpt::{take_prefix, take_suffix};
use super::identifiers::{TextIdentifier, parse_identifier_chunk};
use super::vocabulary::{self, ActionFlags, PHRASES, WordTraits};

/// Maximum bytes analyzed at the beginning, which contains the subject of a thought.
const HEAD_BYTES: usize = 4_000;
/// Maximum bytes analyzed at the end, which contains the decision.
const TAIL_BYTES: usize = 3_000;

/// An analyzed request, thought or description.
#[derive(Debug)]
pub(super) struct AnalyzedText<'a> {
    pub source: Cow<'a, str>,
    pub words: Vec<AnalyzedWord<'a>>,
    pub identifiers: Vec<TextIdentifier>,
    /// The source in lower case, for searching names.
    pub lower: String,
    /// Verbs by which the text announces or orders an action, with their positions.
    pub announced: Vec<(usize, ActionFlags)>,
}

/// One word.
#[derive(Debug)]
pub(super) struct AnalyzedWord<'a> {
    /// In lower case; borrowed if the text has it in lower case.
    pub plain: Cow<'a, str>,
    /// Length of the stem within `plain`.
    stem_bytes: u32,
    /// The stem, if it is not a prefix of the word.
    softened: Option<Box<str>>,
    /// Number of the sentence, from 0.
    pub sentence: u32,
    pub action_flags: ActionFlags,
    pub traits: WordTraits,
    /// A function word, which says nothing about the subject.
    pub stop: bool,
    opens_phrase: bool,
}

impl AnalyzedWord<'_> {
    pub(super) fn stem(&self) -> &str {
        match &self.softened {
            Some(stem) => stem,
            None => self.plain.get(..self.stem_bytes as usize).unwrap_or(&self.plain),
        }
    }
}

impl<'a> AnalyzedText<'a> {
    /// Analyzes a text with all features.
    pub(super) fn new(source: &'a str) -> AnalyzedText<'a> {
        let mut text = AnalyzedText::read(source);
        text.lower = text.source.to_lowercase();
        text.identifiers.extend(super::identifiers::extract_quotations(&text.source));
        text.announced = text.find_announced();
        text
    }

    fn read(source: &'a str) -> AnalyzedText<'a> {
        let (parts, whole) = if source.len() > HEAD_BYTES + TAIL_BYTES {
            let (beginning, end) = (take_prefix(source, HEAD_BYTES), take_suffix(source, TAIL_BYTES));
            ([beginning, end], Cow::Owned(format!("{beginning}\n{end}")))
        } else {
            ([source, ""], Cow::Borrowed(source))
        };
        let mut text = AnalyzedText {
            lower: String::new(),
            source: whole,
            words: Vec::with_capacity(source.len().min(HEAD_BYTES + TAIL_BYTES) / 6),
            identifiers: Vec::new(),
            announced: Vec::new(),
        };
        let mut sentence = 0;
        for line in parts.into_iter().flat_map(str::lines) {
            sentence = text.analyze_line(line, sentence);
        }
        text.join_phrases();
        text
    }

    /// Analyzes a line. Returns the number of the sentence that the next line begins with.
    fn analyze_line(&mut self, line: &'a str, mut sentence: u32) -> u32 {
        visit_chunks(line, |chunk| {
            self.analyze_chunk(chunk, sentence);
            if ends_sentence(chunk) {
                sentence += 1;
            }
        });
        sentence + 1
    }

    /// Splits text in mixed scripts, then analyzes each part.
    fn analyze_chunk(&mut self, chunk: &'a str, sentence: u32) {
        if chunk.is_ascii() {
            return self.analyze_part(chunk, sentence);
        }
        for part in split_scripts(chunk) {
            if part.chars().any(is_unspaced_script) && !part.contains(['/', '.', '_', '@']) {
                self.analyze_unspaced(part, sentence);
            } else {
                self.analyze_part(part, sentence);
            }
        }
    }

    fn analyze_part(&mut self, part: &'a str, sentence: u32) {
        let (identifier, speaks) = parse_identifier_chunk(part, self.words.last().map(AnalyzedWord::stem));
        if let Some(identifier) = identifier {
            self.identifiers.push(identifier);
        }
        if speaks {
            split_words(part, |word| self.analyze_word(word, sentence));
        }
    }

    fn analyze_word(&mut self, word: &'a str, sentence: u32) {
        let plain = if word.is_ascii() {
            match word.bytes().any(|byte| byte.is_ascii_uppercase()) {
                true => Cow::Owned(word.to_ascii_lowercase()),
                false => Cow::Borrowed(word),
            }
        } else {
            Cow::Owned(word.to_lowercase())
        };
        let (bytes, is_soft) = stem_bytes(&plain);
        let softened = is_soft.then(|| replace_final_y(&plain[..bytes]).into_boxed_str());
        let known = vocabulary::stem_traits(softened.as_deref().unwrap_or(&plain[..bytes]));
        let traits = vocabulary::word_traits(&plain);
        self.words.push(AnalyzedWord {
            stop: traits.has(vocabulary::STOPS) || plain.len() < 2,
            plain,
            stem_bytes: bytes as u32,
            softened,
            sentence,
            action_flags: known.action_flags,
            traits,
            opens_phrase: known.opens_phrase,
        });
    }

    /// Analyzes text without spaces between words, such as Chinese and Japanese: pairs of characters (bigrams)
    /// replace words.
    fn analyze_unspaced(&mut self, part: &'a str, sentence: u32) {
        let letters: Vec<char> = part.chars().filter(|letter| letter.is_alphanumeric()).collect();
        for pair in letters.windows(2) {
            let plain: String = pair.iter().collect();
            self.words.push(AnalyzedWord {
                stem_bytes: plain.len() as u32,
                opens_phrase: vocabulary::stem_traits(&plain).opens_phrase,
                traits: vocabulary::word_traits(&plain),
                plain: Cow::Owned(plain),
                softened: None,
                sentence,
                action_flags: 0,
                stop: false,
            });
        }
    }

    /// Gives verbs of two words ("look up") their common meaning.
    fn join_phrases(&mut self) {
        for at in 0..self.words.len().saturating_sub(1) {
            let word = &self.words[at];
            if !word.opens_phrase || word.sentence != self.words[at + 1].sentence {
                continue;
            }
            let after = if self.words[at + 1].plain == "a" { at + 2 } else { at + 1 };
            let Some(after) = self.words.get(after) else { continue };
            let first = word.stem();
            let fits = |phrase: &str| {
                phrase
                    .split_once(' ')
                    .is_some_and(|(one, two)| one == first && (*after.plain == *two || after.stem() == two))
            };
            let phrase = PHRASES.iter().find(|(phrases, _)| phrases.split('|').any(fits));
            if let Some((_, action_flags)) = phrase {
                self.words[at].action_flags = *action_flags;
            }
        }
    }

    /// Finds verbs after announcing words, and verbs at the beginning of a sentence (imperatives).
    fn find_announced(&self) -> Vec<(usize, ActionFlags)> {
        let mut verbs = Vec::new();
        for (at, word) in self.words.iter().enumerate() {
            let before = at.checked_sub(1).map(|at| &self.words[at]);
            let before = before.filter(|before| before.sentence == word.sentence);
            let opens = before.is_none();
            // "The new page will close the old one": the action of a thing is not a plan.
            let of_a_thing = word.traits.has(vocabulary::IS_MODAL)
                && before.is_some_and(|before| !before.stop && before.action_flags == 0);
            let first = if word.traits.has(vocabulary::ANNOUNCES) && !of_a_thing {
                at + 1
            } else if opens {
                at
            } else {
                continue;
            };
            let mut verb = first;
            while verb < first + 6
                && self
                    .words
                    .get(verb)
                    .is_some_and(|next| next.sentence == word.sentence && next.traits.has(vocabulary::FILLS))
            {
                verb += 1;
            }
            let Some(found) = self.words.get(verb).filter(|found| found.sentence == word.sentence) else {
                continue;
            };
            // Plans are not announced in the third person: "also gets a name".
            let third_person = found.plain.ends_with('s') && !found.plain.ends_with("ss");
            if found.action_flags != 0 && !(opens && third_person) && !verbs.contains(&(verb, found.action_flags)) {
                verbs.push((verb, found.action_flags));
            }
        }
        verbs
    }
}

/// Calls `take` for each chunk between white space.
fn visit_chunks<'t>(line: &'t str, mut take: impl FnMut(&'t str)) {
    if !line.is_ascii() {
        return line.split_whitespace().for_each(take);
    }
    // The same for ASCII, byte by byte; `is_ascii_whitespace` leaves the vertical tab out.
    let is_space = |byte: &u8| matches!(byte, b'\t'..=b'\r' | b' ');
    let mut rest = line;
    loop {
        let Some(start) = rest.bytes().position(|byte| !is_space(&byte)) else { return };
        rest = &rest[start..];
        let end = rest.bytes().position(|byte| is_space(&byte)).unwrap_or(rest.len());
        take(&rest[..end]);
        rest = &rest[end..];
    }
}

/// A comma does not end a sentence: "first A, then B" is one plan.
fn ends_sentence(chunk: &str) -> bool {
    !chunk.as_bytes().last().is_some_and(u8::is_ascii_alphanumeric)
        && chunk
            .trim_end_matches(['"', '\'', ')', '*', '`', '”'])
            .ends_with(['.', '!', '?', ';', ':', '。', '？', '！'])
}

fn is_unspaced_script(letter: char) -> bool {
    matches!(letter as u32, 0x3040..=0x30FF | 0x3400..=0x4DBF | 0x4E00..=0x9FFF | 0xF900..=0xFAFF | 0x20000..=0x2FFFF)
}

/// Splits where Chinese or Japanese text touches other text, but not inside `name/名前`.
fn split_scripts(chunk: &str) -> Vec<&str> {
    let mut parts = Vec::new();
    let (mut start, mut before) = (0, None);
    for (at, letter) in chunk.char_indices() {
        if let Some(last) = before
            && is_unspaced_script(last) != is_unspaced_script(letter)
            && !matches!(last, '/' | '-' | '_' | '.')
            && !matches!(letter, '/' | '-' | '_' | '.')
        {
            parts.push(&chunk[start..at]);
            start = at;
        }
        before = Some(letter);
    }
    parts.push(&chunk[start..]);
    parts
}

/// Splits at everything but letters and digits, and at camelCase humps.
pub(super) fn split_words<'p>(part: &'p str, mut take: impl FnMut(&'p str)) {
    // The fast path: most parts are one word, with at most its first letter in upper case.
    let is_one_word = |(at, byte): (usize, u8)| byte.is_ascii_lowercase() || at == 0 && byte.is_ascii_uppercase();
    if !part.is_empty() && part.bytes().enumerate().all(is_one_word) {
        return take(part);
    }
    for word in part.split(|letter: char| !letter.is_alphanumeric()) {
        if word.is_ascii() && !word.bytes().skip(1).any(|byte| byte.is_ascii_uppercase()) {
            if !word.is_empty() {
                take(word);
            }
            continue;
        }
        let (mut start, mut before) = (0, ' ');
        for (at, letter) in word.char_indices() {
            let next_is_small = || word[at..].chars().nth(1).is_some_and(char::is_lowercase);
            let hump = letter.is_uppercase() && (before.is_lowercase() || (before.is_uppercase() && next_is_small()));
            if at > start && hump {
                take(&word[start..at]);
                start = at;
            }
            before = letter;
        }
        if start < word.len() {
            take(&word[start..]);
        }
    }
}

/// A light stemmer: equal for "closes", "closing", "closed" and "close". Expects lower case.
pub(super) fn stem_word(word: &str) -> String {
    match stem_bytes(word) {
        (bytes, true) => replace_final_y(&word[..bytes]),
        (bytes, false) => word[..bytes].to_owned(),
    }
}

/// Length of the stem, and whether its final "y" becomes "i". Words with digits and words outside of ASCII keep their
/// form.
fn stem_bytes(word: &str) -> (usize, bool) {
    if word.len() < 4 || !word.is_ascii() || word.bytes().any(|byte| byte.is_ascii_digit()) {
        let rest = word.strip_suffix('s').filter(|rest| rest.len() == 2 && rest.is_ascii());
        return (rest.unwrap_or(word).len(), false);
    }
    let mut stem = word.as_bytes();
    if word.ends_with("ies") && word.len() > 5 {
        stem = &stem[..stem.len() - 2];
    } else if let Some(rest) = stem
        .strip_suffix(b"es")
        .filter(|rest| matches!(rest, [.., b'x' | b'z'] | [.., b'c' | b's', b'h'] | [.., b's', b's']))
    {
        stem = rest;
    } else if word.ends_with('s') && !word.ends_with("ss") && !word.ends_with("us") && !word.ends_with("is") {
        stem = &stem[..stem.len() - 1];
    }
    let has_vowel = |rest: &[u8]| rest.iter().any(|letter| b"aeiouy".contains(letter));
    for suffix in [&b"ing"[..], b"ed"] {
        let rest = stem.strip_suffix(suffix);
        if let Some(rest) = rest.filter(|rest| rest.len() >= 3 && has_vowel(rest) && !rest.ends_with(b"ee")) {
            stem = undouble_consonant(rest);
            break;
        }
    }
    if let Some(rest) = stem.strip_suffix(b"er").filter(|rest| rest.len() >= 4) {
        stem = undouble_consonant(rest);
    } else if stem.len() >= 7 && stem.ends_with(b"tion") {
        stem = &stem[..stem.len() - 3];
    }
    if stem.len() > 2 && stem.ends_with(b"e") {
        stem = &stem[..stem.len() - 1];
    }
    (stem.len(), ends_in_consonant_y(stem))
}

/// "planned" becomes "plan", but "called" keeps its double letter.
fn undouble_consonant(rest: &[u8]) -> &[u8] {
    match rest {
        [before @ .., one, other] if one == other && rest.len() > 3 && !matches!(one, b'l' | b's' | b'e' | b'o') => {
            &rest[..before.len() + 1]
        }
        _ => rest,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn forms_of_a_word_share_their_stem() {
        for forms in [
            &["close", "closes", "closed", "closing"][..],
            &["repository", "repositories"],
            &["search", "searches", "searching", "searched"],
            &["read", "reads", "reading", "reader"],
            &["create", "creating", "creation"],
            &["commit", "commits", "committing", "committed"],
            &["translate", "translation"],
            &["box", "boxes"],
            &["movie", "movies"],
            &["query", "queries"],
        ] {
            for form in forms {
                assert_eq!(stem_word(form), stem_word(forms[0]), "{form}");
            }
        }
        assert_ne!(stem_word("issue"), stem_word("branch"));
    }

    #[test]
    fn names_fall_into_words() {
        let mut words = Vec::new();
        split_words("list_my_repos.getHTTPStatus-code", |word| words.push(word.to_owned()));
        assert_eq!(words, ["list", "my", "repos", "get", "HTTP", "Status", "code"]);
    }

    #[test]
    fn announced_verbs_are_those_of_the_plan() {
        let stems = |text: &str| -> Vec<String> {
            let text = AnalyzedText::new(text);
            text.announced.iter().map(|(at, _)| text.words[*at].stem().to_owned()).collect()
        };
        assert_eq!(stems("The flight is delayed. I will now rebook it, then notify Ann."), ["rebook", "notifi"]);
        assert_eq!(stems("List the open tickets."), ["list"]);
        assert_eq!(stems("I need the log of run 9."), Vec::<String>::new());
        assert_eq!(stems("I will make sure that it is gone."), Vec::<String>::new());
    }

    #[test]
    fn text_without_spaces_is_read_in_pairs() {
        let text = AnalyzedText::new("请在acme/网站里创建");
        assert!(text.identifiers.iter().any(|found| found.text == "acme/网站里创建" || found.text == "acme/网站"));
    }
}
