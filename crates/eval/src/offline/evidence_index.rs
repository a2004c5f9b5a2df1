//! An index of all texts that an agent could take values from: system prompt, earlier turns, request and results. It
//! finds the first occurrence of a value in constant time, so that long runs stay linear.

use std::collections::HashMap;
use std::hash::{BuildHasher, BuildHasherDefault, Hasher};
use std::sync::OnceLock;

use foldhash::fast::FixedState;
use gradus_core::trajectory::Trajectory;

use super::date_mentions::{DateMentions, DateWriter};
use super::excerpt::take_prefix;
use super::number_text::{parse_number, parse_number_word};
use super::text_pieces::{PieceSeparators, trim_piece};

/// Maximum indexed bytes of one text.
const MAX_TEXT_BYTES: usize = 512 * 1024;
/// Maximum indexed bytes of one trajectory. Beyond that, no value counts as unexplained.
const MAX_TOTAL_BYTES: usize = 8 * 1024 * 1024;
/// Maximum numbers of each text that are stored for sums and differences, so that a long table does not explain every
/// number.
const MAX_TERMS: usize = 160;

/// Estimated bytes of text per value, for reserving memory.
const ESTIMATED_VALUE_BYTES: usize = 16;
const MAX_RESERVED_VALUES: usize = 4_096;

/// Maximum bytes of a value whose key is computed without an allocation.
const MAX_STACK_KEY_BYTES: usize = 64;

/// Where a value comes from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum EvidenceSource {
    SystemPrompt,
    /// What the user said, or a tool returned, in an earlier turn; its number from 1.
    EarlierTurn(u32),
    /// What the agent itself told the user in an earlier turn.
    EarlierAnswer(u32),
    Request,
    /// The result of a step, by its position from 0.
    Observation(u32),
}

/// Keys are hashes already, so they are not hashed again.
#[derive(Default)]
struct KeyHasher(u64);

impl Hasher for KeyHasher {
    fn finish(&self) -> u64 {
        self.0
    }

    fn write(&mut self, bytes: &[u8]) {
        self.0 = bytes.iter().fold(self.0, |hash, byte| hash.rotate_left(8) ^ u64::from(*byte));
    }

    fn write_u64(&mut self, key: u64) {
        self.0 = key;
    }
}

/// The first occurrence of each value, in order of time.
#[derive(Debug)]
pub(super) struct EvidenceIndex<'t> {
    first: HashMap<u64, EvidenceSource, BuildHasherDefault<KeyHasher>>,
    hasher: FixedState,
    /// The indexed texts. Dates are only read from them on first use, because few runs need dates.
    texts: Vec<(&'t str, DateWriter)>,
    dates: OnceLock<DateMentions>,
    /// Numbers with the position of the step that returned them; `None` before the first step.
    terms: Vec<(f64, Option<u32>)>,
    /// Whether some text was not indexed.
    pub is_cut: bool,
    /// Number of indexed bytes.
    bytes: usize,
}

impl<'t> EvidenceIndex<'t> {
    pub(super) fn new(trajectory: &'t Trajectory) -> EvidenceIndex<'t> {
        let mut index = EvidenceIndex {
            first: HashMap::default(),
            hasher: FixedState::default(),
            texts: Vec::new(),
            dates: OnceLock::new(),
            terms: Vec::new(),
            is_cut: false,
            bytes: 0,
        };
        if let Some(prompt) = &trajectory.system_prompt {
            index.add_text(prompt, EvidenceSource::SystemPrompt);
        }
        for (number, turn) in (1..).zip(&trajectory.earlier_turns) {
            let said = turn.query.iter().chain(turn.calls.iter().filter_map(|call| call.observation.as_ref()));
            said.for_each(|text| index.add_text(text, EvidenceSource::EarlierTurn(number)));
            let asked = turn.query.iter().map(|text| (take_prefix(text, MAX_TEXT_BYTES), DateWriter::User));
            index.texts.extend(asked);
            turn.answer.iter().for_each(|text| index.add_text(text, EvidenceSource::EarlierAnswer(number)));
        }
        if let Some(query) = &trajectory.query {
            index.add_text(query, EvidenceSource::Request);
        }
        for (at, step) in (0..).zip(&trajectory.steps) {
            if let Some(observation) = &step.observation {
                index.add_text(observation, EvidenceSource::Observation(at));
            }
        }
        index
    }

    /// Adds all values of a text. Later texts do not replace earlier sources.
    fn add_text(&mut self, text: &'t str, source: EvidenceSource) {
        let kept = take_prefix(text, MAX_TEXT_BYTES.min(MAX_TOTAL_BYTES.saturating_sub(self.bytes)));
        self.is_cut |= kept.len() < text.len();
        self.bytes += kept.len();
        // An estimate of the number of values; long texts repeat their words.
        self.first.reserve((kept.len() / ESTIMATED_VALUE_BYTES).min(MAX_RESERVED_VALUES));
        let step = match source {
            EvidenceSource::Observation(at) => Some(at),
            _ => None,
        };
        let mut kept_terms = 0;
        visit_value_chunks(kept, |chunk, is_plain| {
            if is_plain {
                self.insert(Some(self.hasher.hash_one(chunk.as_bytes())), source);
                if let Some(number) = parse_number_word(chunk) {
                    self.insert(Some(self.number_key(number)), source);
                }
                return;
            }
            self.insert(normalized_key(chunk, &self.hasher), source);
            if chunk.bytes().any(|byte| byte.is_ascii_digit()) {
                for part in
                    chunk.split(|letter: char| !letter.is_alphanumeric()).filter(|part| part.len() < chunk.len())
                {
                    self.insert(normalized_key(part, &self.hasher), source);
                    // `file.rs#L12` names a line.
                    if let Some(number) = parse_number(part.strip_prefix('L').unwrap_or(part)) {
                        self.insert(Some(self.number_key(number)), source);
                    }
                }
                if let Some(number) = parse_number(chunk) {
                    self.insert(Some(self.number_key(number)), source);
                    if kept_terms < MAX_TERMS && self.terms.len() < 4 * MAX_TERMS {
                        kept_terms += 1;
                        self.terms.push((number, step));
                    }
                }
            } else if let Some(number) = parse_number_word(chunk) {
                self.insert(Some(self.number_key(number)), source);
            }
        });
        let writer = match source {
            EvidenceSource::SystemPrompt => DateWriter::Instructions,
            EvidenceSource::Request => DateWriter::User,
            _ => DateWriter::Other(step),
        };
        self.texts.push((kept, writer));
    }

    /// The dates in all texts.
    pub(super) fn dates(&self) -> &DateMentions {
        self.dates.get_or_init(|| {
            let mut dates = DateMentions::default();
            self.texts.iter().for_each(|(text, writer)| dates.add_text(text, *writer));
            dates
        })
    }

    fn insert(&mut self, key: Option<u64>, source: EvidenceSource) {
        if let Some(key) = key {
            self.first.entry(key).or_insert(source);
        }
    }

    fn number_key(&self, number: f64) -> u64 {
        // Adding 0 makes -0 and 0 equal.
        self.hasher.hash_one((number.abs() + 0.0).to_bits())
    }

    /// Returns where a value without spaces occurs before the step at `before`.
    pub(super) fn find(&self, value: &str, before: usize) -> Option<EvidenceSource> {
        let key = normalized_key(trim_piece(value), &self.hasher)?;
        self.first.get(&key).copied().filter(|source| is_before(*source, before))
    }

    /// Returns where all words of a phrase occur first, if they occur in one text.
    pub(super) fn find_phrase(&self, phrase: &str, before: usize) -> Option<EvidenceSource> {
        let mut words = phrase.split_whitespace().filter(|word| word.chars().any(char::is_alphanumeric));
        let first = self.find(words.next()?, before)?;
        words.all(|word| self.find(word, before) == Some(first)).then_some(first)
    }

    pub(super) fn find_number(&self, number: f64, before: usize) -> Option<EvidenceSource> {
        self.first.get(&self.number_key(number)).copied().filter(|source| is_before(*source, before))
    }

    /// Marks the steps whose results contained a value of this text first. Only steps before `before` count.
    pub(super) fn mark_used(&self, text: &str, before: usize, used: &mut [bool]) {
        visit_value_chunks(take_prefix(text, MAX_TEXT_BYTES), |chunk, is_plain| {
            // A common word may occur in both by chance.
            if is_plain
                || !chunk.bytes().any(|byte| {
                    byte.is_ascii_digit() || byte.is_ascii_uppercase() || matches!(byte, b'_' | b'@' | b'/')
                })
            {
                return;
            }
            let key = normalized_key(chunk, &self.hasher);
            if let Some(EvidenceSource::Observation(at)) = key.and_then(|key| self.first.get(&key))
                && (*at as usize) < before
                && let Some(used) = used.get_mut(*at as usize)
            {
                *used = true;
            }
        });
    }

    /// Finds two known numbers whose sum, difference or product is this one.
    pub(super) fn find_arithmetic(&self, number: f64, before: usize) -> Option<(f64, char, f64)> {
        let known: Vec<f64> = self
            .terms
            .iter()
            .rev()
            .filter(|(_, step)| step.is_none_or(|step| (step as usize) < before))
            .map(|(term, _)| *term)
            .take(MAX_TERMS)
            .collect();
        let is_it = |value: f64| (value - number).abs() < 0.005;
        for (at, one) in known.iter().enumerate() {
            for other in &known[at..] {
                if is_it(one + other) {
                    return Some((*one, '+', *other));
                }
                if is_it((one - other).abs()) && at > 0 {
                    return Some((*one, '-', *other));
                }
                let (small, large) = if one <= other { (one, other) } else { (other, one) };
                if (2.0..=20.0).contains(small) && small.fract() == 0.0 && is_it(small * large) {
                    return Some((*small, '×', *large));
                }
            }
        }
        None
    }
}

fn is_before(source: EvidenceSource, before: usize) -> bool {
    match source {
        EvidenceSource::Observation(at) => (at as usize) < before,
        _ => true,
    }
}

/// Hashes the letters and digits of a value in lower case, so that `#W-12` and `w12` are equal; `None` if there are
/// none. An `@` is included: an address is not the name in it.
fn normalized_key(chunk: &str, hasher: &FixedState) -> Option<u64> {
    // Fast path: most chunks are already plain lower-case words.
    if chunk.bytes().all(|byte| byte.is_ascii_lowercase() || byte.is_ascii_digit()) {
        return (!chunk.is_empty()).then(|| hasher.hash_one(chunk.as_bytes()));
    }
    let mut letters = [0; MAX_STACK_KEY_BYTES];
    if chunk.len() <= MAX_STACK_KEY_BYTES && chunk.is_ascii() {
        let mut count = 0;
        for byte in chunk.bytes().filter(|byte| byte.is_ascii_alphanumeric() || *byte == b'@') {
            letters[count] = byte.to_ascii_lowercase();
            count += 1;
        }
        return (count > 0).then(|| hasher.hash_one(&letters[..count]));
    }
    let mut kept = String::with_capacity(chunk.len());
    for letter in chunk.chars() {
        if letter.is_alphanumeric() || letter == '@' {
            kept.extend(letter.to_lowercase());
        }
    }
    (!kept.is_empty()).then(|| hasher.hash_one(kept.as_bytes()))
}

const SEPARATORS: PieceSeparators = PieceSeparators::new("\"'`;()[]{}<>|=\\", |letter| {
    letter.is_whitespace() || matches!(letter, '“' | '”' | '‘' | '’')
});

/// Calls `take` for each chunk between separators, without surrounding punctuation, and with whether it is known to
/// be a plain word. Escapes such as `\n` in JSON texts are separators, too.
fn visit_value_chunks<'t>(text: &'t str, mut take: impl FnMut(&'t str, bool)) {
    SEPARATORS.split(text, |piece, is_plain| match is_plain {
        true => take(piece, true),
        false => visit_piece_parts(piece, &mut |chunk| take(chunk, false)),
    });
    // `\nOrder` in a JSON text: the letter behind the backslash belongs to the escape.
    for (at, _) in text.match_indices('\\') {
        if let Some(rest) = text[at + 1..].strip_prefix(['n', 't', 'r']) {
            visit_piece_parts(SEPARATORS.first_piece(rest), &mut |chunk| take(chunk, false));
        }
    }
}

/// Calls `take` for a chunk and for its parts between commas and colons: `id:7,8`.
fn visit_piece_parts<'t>(piece: &'t str, take: &mut impl FnMut(&'t str)) {
    let chunk = trim_piece(piece);
    if chunk.is_empty() {
        return;
    }
    take(chunk);
    if chunk.bytes().any(|byte| matches!(byte, b',' | b':')) {
        for part in chunk.split([',', ':']) {
            let part = trim_piece(part);
            if !part.is_empty() && part.len() < chunk.len() {
                take(part);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use gradus_core::trajectory::TrajectoryStep;

    /// Lives as long as the tests.
    fn index(query: &str, observations: &[&str]) -> EvidenceIndex<'static> {
        let step = |text: &&str| TrajectoryStep { observation: Some((*text).to_owned()), ..TrajectoryStep::default() };
        EvidenceIndex::new(Box::leak(Box::new(Trajectory {
            query: Some(query.to_owned()),
            steps: observations.iter().map(step).collect(),
            ..Trajectory::default()
        })))
    }

    #[test]
    fn values_are_found_however_they_are_written() {
        let index =
            index("Seat 12-B for ann.lee@example.org, $1,250.50, order #K-77!", &[r#"{"id":"T_9","note":"x\nZ81"}"#]);
        for value in ["12B", "Ann.Lee@example.org", "k77", "#K77"] {
            assert_eq!(index.find(value, 0), Some(EvidenceSource::Request), "{value}");
        }
        assert_eq!(index.find_number(1250.5, 0), Some(EvidenceSource::Request));
        assert_eq!(index.find("t9", 0), None);
        assert_eq!(index.find("t9", 1), Some(EvidenceSource::Observation(0)));
        assert_eq!(index.find("Z81", 1), Some(EvidenceSource::Observation(0)));
        assert_eq!(index.find("12C", 9), None);
        assert_eq!(index.find("lee@example.org", 9), None);
        let link = self::tests::index("see https://example.org/a/seats.py#L214", &[]);
        assert_eq!(link.find_number(214.0, 0), Some(EvidenceSource::Request));
    }

    #[test]
    fn known_numbers_explain_what_follows_from_them() {
        let index = index("two tickets at 45.50 and one at 12", &[]);
        assert_eq!(index.find_number(2.0, 0), Some(EvidenceSource::Request));
        assert!(index.find_arithmetic(57.5, 0).is_some());
        assert!(index.find_arithmetic(58.5, 0).is_none());
    }
}
