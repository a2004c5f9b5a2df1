//! Multi-pattern search: which of many texts occur in another text. Rules and replays look for values that were read in
//! texts that were written. Both sides are under the control of the agent, so the time must not depend on how similar
//! the patterns are.

use std::collections::{BTreeSet, HashMap};

/// Minimum length of a pattern in bytes. Shorter ones are not searched, because they occur by chance.
pub(crate) const MIN_NEEDLE_BYTES: usize = 8;
/// Maximum length of a pattern in bytes. A longer one is represented by its first bytes, unless
/// [`NeedleSet::from_whole_texts`] is used.
const MAX_COMPARED_BYTES: usize = 256;

/// A set of patterns, sorted, with an index on their first [`MIN_NEEDLE_BYTES`] bytes. A lookup at one position is a
/// hash, a binary search and a walk up the chain of prefixes.
#[derive(Clone, Debug, Default)]
pub(crate) struct NeedleSet {
    texts: Vec<String>,
    /// Maximum length of a pattern in bytes.
    longest: usize,
    /// For each pattern, the longest other pattern that is a prefix of it.
    within: Vec<Option<usize>>,
    /// Range in `texts` of the patterns with the same first bytes.
    by_begin: HashMap<[u8; MIN_NEEDLE_BYTES], (usize, usize)>,
}

impl NeedleSet {
    /// Maximum number of patterns in a set; further ones are ignored. Bounds memory for runs that read very much.
    pub(crate) const MAX_NEEDLES: usize = 200_000;

    /// Returns the part of a text that represents it in a set made by [`NeedleSet::new`].
    pub(crate) fn compared_prefix(text: &str) -> &str {
        &text[..text.floor_char_boundary(MAX_COMPARED_BYTES)]
    }

    /// Creates a set of patterns that are represented by their first 256 bytes.
    pub(crate) fn new<T: AsRef<str>>(texts: impl IntoIterator<Item = T>) -> NeedleSet {
        NeedleSet::index_needles(MAX_COMPARED_BYTES, texts)
    }

    /// Creates a set of patterns that must occur as a whole. Those with more than `longest` bytes are left out, since
    /// a prefix would match other texts.
    pub(crate) fn from_whole_texts<T: AsRef<str>>(texts: impl IntoIterator<Item = T>, longest: usize) -> NeedleSet {
        let texts = texts.into_iter().filter(|text| text.as_ref().len() <= longest);
        NeedleSet::index_needles(longest, texts)
    }

    /// Sorts, deduplicates and indexes the patterns. Linear apart from the sorting.
    fn index_needles<T: AsRef<str>>(longest: usize, texts: impl IntoIterator<Item = T>) -> NeedleSet {
        let mut known = BTreeSet::new();
        for text in texts {
            if known.len() == NeedleSet::MAX_NEEDLES {
                break;
            }
            let text = text.as_ref();
            if text.len() >= MIN_NEEDLE_BYTES {
                known.insert(text[..text.floor_char_boundary(longest)].to_owned());
            }
        }
        let texts: Vec<String> = known.into_iter().collect();
        let mut by_begin: HashMap<[u8; MIN_NEEDLE_BYTES], (usize, usize)> = HashMap::new();
        let mut within = Vec::with_capacity(texts.len());
        // In sorted order a pattern follows directly after its prefixes and their other continuations, so a stack finds
        // the longest prefix of each in linear time.
        let mut open: Vec<usize> = Vec::new();
        for (at, text) in texts.iter().enumerate() {
            while open.last().is_some_and(|one| !text.starts_with(&texts[*one])) {
                open.pop();
            }
            within.push(open.last().copied());
            open.push(at);
            if let Some(begin) = text.as_bytes().first_chunk() {
                by_begin.entry(*begin).or_insert((at, at)).1 = at + 1;
            }
        }
        NeedleSet { texts, longest, within, by_begin }
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.texts.is_empty()
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = &str> {
        self.texts.iter().map(String::as_str)
    }

    /// Returns the patterns that occur in a text.
    pub(crate) fn find_in_text(&self, text: &str) -> BTreeSet<&str> {
        let mut found = BTreeSet::new();
        self.visit_matches(text.as_bytes(), &mut |_, one| found.insert(one));
        found.into_iter().map(|one| self.texts[one].as_str()).collect()
    }

    /// Calls `see` with position and pattern for all occurrences. At each position the longest pattern comes first;
    /// `see` returns whether to visit the shorter ones at the same position.
    pub(crate) fn visit_matches(&self, text: &[u8], see: &mut dyn FnMut(usize, usize) -> bool) {
        for at in 0..text.len().saturating_sub(MIN_NEEDLE_BYTES - 1) {
            self.visit_needles_at(&text[at..], &mut |one| see(at, one));
        }
    }

    /// Calls `see` for patterns that are prefixes of a text, longest first, while it returns true.
    pub(crate) fn visit_needles_at(&self, text: &[u8], see: &mut dyn FnMut(usize) -> bool) {
        let Some((from, to)) = text.first_chunk().and_then(|begin| self.by_begin.get(begin)) else { return };
        let text = &text[..text.len().min(self.longest)];
        // The last pattern that is not greater than the text is the longest prefix, or shares a chain with it.
        let last = self.texts[*from..*to].partition_point(|one| one.as_bytes() <= text);
        let mut next = last.checked_sub(1).map(|last| from + last);
        while let Some(one) = next {
            if text.starts_with(self.texts[one].as_bytes()) && !see(one) {
                break;
            }
            next = self.within[one];
        }
    }

    /// Whether a pattern starts with these bytes and is longer. Used to decide whether a text that is cut could still
    /// match.
    pub(crate) fn is_proper_prefix(&self, begin: &[u8]) -> bool {
        let next = self.texts.partition_point(|one| one.as_bytes() <= begin);
        self.texts.get(next).is_some_and(|one| one.as_bytes().starts_with(begin))
    }

    /// Returns the pattern with this index, as passed to the callbacks.
    pub(crate) fn get(&self, one: usize) -> &str {
        &self.texts[one]
    }

    /// Returns the set without these patterns.
    pub(crate) fn without(self, known: &BTreeSet<String>) -> NeedleSet {
        NeedleSet::index_needles(self.longest, self.texts.into_iter().filter(|one| !known.contains(one)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn texts_in_texts_are_found() {
        let wanted = NeedleSet::new(["password", "password-1", "password-123", "passwords", "other one", "short"]);
        let found = |text: &str| wanted.find_in_text(text).into_iter().map(str::to_owned).collect::<Vec<_>>();
        assert_eq!(found("my password-12"), ["password", "password-1"]);
        assert_eq!(found("password-1234"), ["password", "password-1", "password-123"]);
        assert_eq!(found("passwords, short, Other one"), ["password", "passwords"]);
        assert_eq!(found("é password-zzz"), ["password"]);
        assert!(found("passwor").is_empty());
        assert!(wanted.is_proper_prefix(b"pass") && wanted.is_proper_prefix(b"password-12"));
        assert!(!wanted.is_proper_prefix(b"password-123") && !wanted.is_proper_prefix(b"zzz"));
    }

    #[test]
    fn a_whole_text_is_not_known_by_its_begin() {
        let long = format!("{} the end", "д".repeat(200));
        let other = format!("{} another end", "д".repeat(200));
        let text = format!("it says: {long}.");
        assert_eq!(
            NeedleSet::from_whole_texts([&long, &other], 1_200).find_in_text(&text),
            BTreeSet::from([long.as_str()])
        );
        assert!(NeedleSet::from_whole_texts([&long], 100).is_empty(), "half of it is another one");
        assert_eq!(NeedleSet::new([&long]).find_in_text(&other), BTreeSet::from([NeedleSet::compared_prefix(&long)]));
    }

    /// Texts that differ at their ends only, in a text that is all of what they share: each place is one look.
    #[test]
    fn alike_texts_cost_no_more() {
        let many: Vec<String> = (0..5_000).map(|one| format!("{}{one}", "a".repeat(100))).collect();
        let wanted = NeedleSet::new(&many);
        let mut seen = 0;
        wanted.visit_matches("a".repeat(20_000).as_bytes(), &mut |_, _| {
            seen += 1;
            true
        });
        assert_eq!(seen, 0);
        // Texts that stand in each other are told of once, not once a place.
        let nested = NeedleSet::new((MIN_NEEDLE_BYTES..200).map(|length| "a".repeat(length)));
        let (mut told, mut found) = (0, BTreeSet::new());
        nested.visit_matches("a".repeat(20_000).as_bytes(), &mut |_, one| {
            told += 1;
            found.insert(one)
        });
        assert_eq!(found.len(), 200 - MIN_NEEDLE_BYTES);
        assert!(told < 2 * 20_000, "{told}");
    }

    proptest::proptest! {
        #[test]
        fn as_a_plain_search_does(
            texts in proptest::collection::vec("[ab]{8,12}", 1..20),
            text in "[ab]{0,60}",
        ) {
            let wanted = NeedleSet::new(&texts);
            for one in &texts {
                proptest::prop_assert_eq!(wanted.find_in_text(&text).contains(one.as_str()), text.contains(one.as_str()));
            }
        }
    }
}
