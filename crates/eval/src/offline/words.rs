//! Text as the rules see it: sentences of stemmed words, and the identifiers between them.

use std::borrow::Cow;
use std::collections::HashSet;

use super::identifiers::{Identifier, read_chunk};
use super::quote::{head, tail};
use super::vocabulary::{self, Deeds, PHRASES};

/// Bytes looked at: what a thought is about stands in its beginning, what it decides in its end.
const HEAD: usize = 4_000;
const TAIL: usize = 3_000;

#[derive(Debug)]
pub(super) struct Text<'a> {
    pub source: Cow<'a, str>,
    pub words: Vec<Word>,
    pub identifiers: Vec<Identifier>,
    /// The source in lower case, for finding names in it.
    pub lower: String,
    /// The verbs by which the text says what it is going to do, or orders done, and where they stand.
    pub announced: Vec<(usize, Deeds)>,
    /// What the text does or wants done anywhere.
    pub deeds: Deeds,
    /// Letters of scripts that our word lists do not know.
    other_scripts: usize,
    letters: usize,
}

#[derive(Debug)]
pub(super) struct Word {
    pub stem: Box<str>,
    /// Lower-case, as written.
    pub plain: Box<str>,
    pub sentence: u32,
    pub stop: bool,
    pub capital: bool,
    pub deeds: Deeds,
}

impl<'a> Text<'a> {
    pub(super) fn new(source: &'a str) -> Text<'a> {
        let source = if source.len() > HEAD + TAIL {
            Cow::Owned(format!("{}\n{}", head(source, HEAD), tail(source, TAIL)))
        } else {
            Cow::Borrowed(source)
        };
        let mut text = Text {
            lower: source.to_lowercase(),
            source: Cow::Borrowed(""),
            words: Vec::new(),
            identifiers: Vec::new(),
            announced: Vec::new(),
            deeds: 0,
            other_scripts: 0,
            letters: 0,
        };
        let mut sentence = 0;
        for line in source.lines() {
            for chunk in line.split_whitespace() {
                text.take_chunk(chunk, sentence);
                // A comma is no end: "first A, then B" is one plan.
                if chunk
                    .trim_end_matches(['"', '\'', ')', '*', '`', '”'])
                    .ends_with(['.', '!', '?', ';', ':', '。', '？', '！'])
                {
                    sentence += 1;
                }
            }
            sentence += 1;
        }
        text.identifiers.extend(super::identifiers::quotations(&source));
        text.join_phrases();
        text.announced = text.find_announced();
        text.deeds = text.find_deeds();
        text.source = source;
        text
    }

    fn take_chunk(&mut self, chunk: &str, sentence: u32) {
        for part in split_scripts(chunk) {
            if part.chars().any(is_unspaced_script) && !part.contains(['/', '.', '_', '@']) {
                self.take_unspaced(part, sentence);
                continue;
            }
            let (identifier, speaks) = read_chunk(part, self.words.last().map(|word| &*word.stem));
            if let Some(identifier) = identifier {
                self.identifiers.push(identifier);
            }
            if speaks {
                self.take_words(part, sentence);
            }
        }
    }

    fn take_words(&mut self, part: &str, sentence: u32) {
        split_words(part, |word| {
            let letters = word.chars().filter(|letter| letter.is_alphabetic()).count();
            self.letters += letters;
            if !word.is_ascii() {
                self.other_scripts +=
                    word.chars().filter(|letter| letter.is_alphabetic() && *letter as u32 > 0x24F).count();
            }
            let plain = word.to_lowercase();
            let stem = stem(&plain);
            let stop = vocabulary::is_stop(&plain) || plain.len() < 2;
            let deeds = vocabulary::deeds(&stem);
            let capital = word.starts_with(char::is_uppercase);
            self.words.push(Word { stem: stem.into(), plain: plain.into(), sentence, stop, capital, deeds });
        });
    }

    /// Chinese and Japanese put no spaces between words: pairs of characters stand for them.
    fn take_unspaced(&mut self, part: &str, sentence: u32) {
        let letters: Vec<char> = part.chars().filter(|letter| letter.is_alphanumeric()).collect();
        self.letters += letters.len();
        self.other_scripts += letters.len();
        for pair in letters.windows(2) {
            let stem: Box<str> = pair.iter().collect::<String>().into();
            let plain = stem.clone();
            self.words.push(Word { stem, plain, sentence, stop: false, capital: false, deeds: 0 });
        }
    }

    fn join_phrases(&mut self) {
        for at in 0..self.words.len().saturating_sub(1) {
            if self.words[at].sentence != self.words[at + 1].sentence {
                continue;
            }
            let after = if self.words[at + 1].plain.as_ref() == "a" { at + 2 } else { at + 1 };
            let Some(after) = self.words.get(after) else { continue };
            let first = &*self.words[at].stem;
            let fits = |phrase: &str| {
                phrase
                    .split_once(' ')
                    .is_some_and(|(one, two)| one == first && (*after.plain == *two || *after.stem == *two))
            };
            let phrase = PHRASES.iter().find(|(phrases, _)| phrases.split('|').any(fits));
            if let Some((_, deeds)) = phrase {
                self.words[at].deeds = *deeds;
            }
        }
    }

    /// The stems that say what the text is about.
    pub(super) fn subjects(&self) -> impl Iterator<Item = &Word> {
        self.words.iter().filter(|word| !word.stop)
    }

    pub(super) fn stems(&self) -> HashSet<&str> {
        self.subjects().map(|word| &*word.stem).collect()
    }

    /// Mostly in a script, or a language, that the word lists do not know.
    pub(super) fn is_foreign(&self) -> bool {
        if self.other_scripts * 2 > self.letters {
            return true;
        }
        let stops = self.words.iter().filter(|word| word.stop).count();
        self.words.len() >= 4
            && stops * 12 < self.words.len()
            && self.words.iter().all(|word| word.deeds == 0)
    }

    /// Verbs, but not the "open" of "the open tickets".
    fn find_deeds(&self) -> Deeds {
        let mut all = 0;
        for (at, word) in self.words.iter().enumerate() {
            let before = at
                .checked_sub(1)
                .and_then(|at| self.words.get(at))
                .filter(|before| before.sentence == word.sentence);
            if word.deeds != 0 && !before.is_some_and(|before| vocabulary::determines(&before.plain)) {
                all |= word.deeds;
            }
        }
        all
    }

    fn find_announced(&self) -> Vec<(usize, Deeds)> {
        let mut verbs = Vec::new();
        for (at, word) in self.words.iter().enumerate() {
            let opens = at == 0 || self.words[at - 1].sentence != word.sentence;
            let first = if vocabulary::announces(&word.plain) {
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
                    .is_some_and(|next| next.sentence == word.sentence && vocabulary::fills(&next.plain))
            {
                verb += 1;
            }
            let Some(found) = self.words.get(verb).filter(|found| found.sentence == word.sentence) else {
                continue;
            };
            if found.deeds != 0 && !verbs.contains(&(verb, found.deeds)) {
                verbs.push((verb, found.deeds));
            }
        }
        verbs
    }
}

fn is_unspaced_script(letter: char) -> bool {
    matches!(letter as u32, 0x3040..=0x30FF | 0x3400..=0x4DBF | 0x4E00..=0x9FFF | 0xF900..=0xFAFF | 0x20000..=0x2FFFF)
}

/// Cuts where Chinese or Japanese text touches other text, but not inside `name/名前`.
fn split_scripts(chunk: &str) -> Vec<&str> {
    if chunk.is_ascii() {
        return vec![chunk];
    }
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

/// Splits at anything but letters and digits, and at camelCase humps.
pub(super) fn split_words(part: &str, mut take: impl FnMut(&str)) {
    for word in part.split(|letter: char| !letter.is_alphanumeric()) {
        let (mut start, mut before) = (0, ' ');
        for (at, letter) in word.char_indices() {
            let next_is_small = || word[at..].chars().nth(1).is_some_and(char::is_lowercase);
            let hump = letter.is_uppercase()
                && (before.is_lowercase() || (before.is_uppercase() && next_is_small()));
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

/// A light stem: the same for "closes", "closing", "closed" and "close". Takes lower case.
pub(super) fn stem(word: &str) -> String {
    if !word.is_ascii() || word.len() < 4 || word.bytes().any(|byte| byte.is_ascii_digit()) {
        return word
            .strip_suffix('s')
            .filter(|rest| rest.len() == 2 && rest.is_ascii())
            .unwrap_or(word)
            .to_owned();
    }
    let mut stem = word.to_owned();
    if let Some(rest) = word.strip_suffix("ies").filter(|rest| rest.len() > 2) {
        stem = format!("{rest}i");
    } else if let Some(rest) = word.strip_suffix("es").filter(|rest| {
        rest.ends_with(['x', 'z']) || rest.ends_with("ch") || rest.ends_with("sh") || rest.ends_with("ss")
    }) {
        stem = rest.to_owned();
    } else if word.ends_with('s') && !word.ends_with("ss") && !word.ends_with("us") && !word.ends_with("is") {
        stem.pop();
    }
    let vowels = |rest: &str| rest.len() >= 3 && rest.contains(['a', 'e', 'i', 'o', 'u', 'y']);
    for suffix in ["ing", "ed"] {
        if let Some(rest) = stem.strip_suffix(suffix).filter(|rest| vowels(rest) && !rest.ends_with("ee")) {
            stem = undouble(rest);
            break;
        }
    }
    if let Some(rest) = stem.strip_suffix("er").filter(|rest| rest.len() >= 4) {
        stem = undouble(rest);
    } else if stem.len() >= 7 && stem.ends_with("tion") {
        stem.truncate(stem.len() - 3);
    }
    if stem.len() > 2 && stem.ends_with('e') {
        stem.pop();
    }
    soften(stem)
}

/// "query" and "queries" end alike.
pub(super) fn soften(mut stem: String) -> String {
    let before = stem.len().checked_sub(2).and_then(|at| stem.as_bytes().get(at));
    if stem.ends_with('y') && stem.len() > 3 && before.is_some_and(|before| !b"aeiou".contains(before)) {
        stem.pop();
        stem.push('i');
    }
    stem
}

fn undouble(rest: &str) -> String {
    let bytes = rest.as_bytes();
    let doubled = bytes.len() > 3 && bytes[bytes.len() - 1] == bytes[bytes.len() - 2];
    if doubled && !rest.ends_with(['l', 's', 'e', 'o']) {
        rest[..rest.len() - 1].to_owned()
    } else {
        rest.to_owned()
    }
}

/// Whether one stem is the other in short: "repo" for "repository".
pub(super) fn abbreviates(short: &str, long: &str) -> bool {
    const KNOWN: &[(&str, &str)] = &[
        ("doc", "document"),
        ("dir", "directori"),
        ("msg", "messag"),
        ("db", "databas"),
        ("img", "imag"),
        ("num", "numb"),
        ("env", "environment"),
        ("app", "applicat"),
        ("acct", "account"),
        ("qty", "quantiti"),
        ("temp", "temperatur"),
    ];
    let (short, long) = if short.len() <= long.len() { (short, long) } else { (long, short) };
    (short.len() >= 4 && long.len() >= short.len() + 3 && long.starts_with(short))
        || KNOWN.contains(&(short, long))
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
                assert_eq!(stem(form), stem(forms[0]), "{form}");
            }
        }
        assert_ne!(stem("issue"), stem("branch"));
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
            let text = Text::new(text);
            text.announced.iter().map(|(at, _)| text.words[*at].stem.to_string()).collect()
        };
        assert_eq!(stems("The flight is delayed. I will now rebook it, then notify Ann."), ["notifi"]);
        assert_eq!(stems("List the open tickets."), ["list"]);
        assert_eq!(stems("I need the log of run 9."), Vec::<String>::new());
        assert_eq!(stems("I will make sure that it is gone."), Vec::<String>::new());
    }

    #[test]
    fn text_without_spaces_is_read_in_pairs() {
        let text = Text::new("请在acme/网站里创建");
        assert!(text.is_foreign());
        assert!(
            text.identifiers.iter().any(|found| found.text == "acme/网站里创建" || found.text == "acme/网站")
        );
    }
}
