//! Secrets that were found once are found again without the context that gave them away.

use std::collections::{BTreeSet, HashMap};

use crate::entropy::shannon_entropy;
use crate::finding::{Finding, FindingRank, ScrubCategory};

/// Minimum length of a known secret. Shorter or plainer values may be ordinary words: `production` as a password must
/// not remove every `production`.
const MIN_KNOWN_BYTES: usize = 10;
const MAX_KNOWN_BYTES: usize = 512;
const MIN_KNOWN_ENTROPY: f64 = 3.0;
/// Number of first bytes by which most words are excluded quickly.
const PREFIX_BYTES: usize = 3;
/// Maximum number of different lengths. Each costs a look at every word of a text.
const MAX_KNOWN_LENGTHS: usize = 48;

/// The distinctive secrets of an export, with the rule that found each.
#[derive(Debug, Default)]
pub(crate) struct KnownSecrets {
    rules: HashMap<String, String>,
    lengths: BTreeSet<usize>,
    /// Hashes of the first three bytes of known secrets, which exclude most words of a text.
    start_bits: PrefixFilter,
}

/// 2^16 bits.
#[derive(Debug)]
struct PrefixFilter(Box<[u64]>);

impl Default for PrefixFilter {
    fn default() -> Self {
        Self(vec![0; 1024].into_boxed_slice())
    }
}

impl PrefixFilter {
    fn position(start: &[u8]) -> (usize, u64) {
        let hash = start.iter().fold(0_u16, |hash, byte| hash.wrapping_mul(137).wrapping_add(u16::from(*byte)));
        (usize::from(hash >> 6), 1 << (hash & 63))
    }

    fn add_prefix(&mut self, start: &[u8]) {
        let (word, bit) = Self::position(start);
        self.0[word] |= bit;
    }

    fn may_have_prefix(&self, start: &[u8]) -> bool {
        let (word, bit) = Self::position(start);
        self.0[word] & bit != 0
    }
}

impl KnownSecrets {
    /// Remembers a secret if it is distinctive enough to be searched without context.
    pub(crate) fn add_secret(&mut self, value: &str, rule: &str) {
        let is_distinctive = (MIN_KNOWN_BYTES..=MAX_KNOWN_BYTES).contains(&value.len())
            && value.bytes().all(|byte| byte.is_ascii_graphic())
            && value.bytes().any(|byte| byte.is_ascii_digit())
            && value.bytes().any(|byte| byte.is_ascii_alphabetic())
            && value.as_bytes().first().is_some_and(u8::is_ascii_alphanumeric)
            && shannon_entropy(value.as_bytes()) >= MIN_KNOWN_ENTROPY;
        let has_room = self.lengths.contains(&value.len()) || self.lengths.len() < MAX_KNOWN_LENGTHS;
        if is_distinctive && has_room && !self.rules.contains_key(value) {
            self.lengths.insert(value.len());
            self.start_bits.add_prefix(&value.as_bytes()[..PREFIX_BYTES]);
            self.rules.insert(value.to_owned(), rule.to_owned());
        }
    }

    /// Returns the number of known secrets, which grows if a text had a new one.
    pub(crate) fn len(&self) -> usize {
        self.rules.len()
    }

    /// Adds the known secrets of a text that stand alone, that is, not inside of a longer word.
    pub(crate) fn find_known(&self, text: &str, findings: &mut Vec<Finding>) {
        if self.rules.is_empty() {
            return;
        }
        let bytes = text.as_bytes();
        let mut is_inside_word = false;
        for (start, byte) in bytes.iter().enumerate() {
            let is_word_start = byte.is_ascii_alphanumeric() && !is_inside_word;
            is_inside_word = byte.is_ascii_alphanumeric();
            let may_be_known = is_word_start
                && bytes.get(start..start + PREFIX_BYTES).is_some_and(|bytes| self.start_bits.may_have_prefix(bytes));
            if !may_be_known {
                continue;
            }
            for end in self.lengths.iter().map(|length| start + length).take_while(|end| *end <= bytes.len()) {
                let ends_inside =
                    bytes[end - 1].is_ascii_alphanumeric() && bytes.get(end).is_some_and(u8::is_ascii_alphanumeric);
                if ends_inside || !text.is_char_boundary(end) {
                    continue;
                }
                if let Some(rule) = self.rules.get(&text[start..end]) {
                    findings.push(Finding {
                        span: start..end,
                        category: ScrubCategory::Secret,
                        rank: FindingRank::NamedSecret,
                        rule: rule.clone(),
                    });
                }
            }
        }
    }
}
