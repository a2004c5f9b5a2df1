//! Secrets that are disclosed in two parts, by two writes. Each part alone would pass.

use std::collections::VecDeque;

use crate::occurrences::NeedleSet;

/// Remembers the ends of written texts at which a secret could continue. Bounded in memory and in work per text.
pub(super) struct SplitSecretDetector<'p> {
    /// Words of the request are no secret.
    request: &'p str,
    secrets: &'p NeedleSet,
    canaries: Vec<&'p str>,
    /// The most recent fragments that a secret could continue from; others are not kept.
    written: VecDeque<WrittenFragment>,
}

/// The end of one written text.
struct WrittenFragment {
    step: Option<usize>,
    /// The last bytes of the text, cut at a character.
    end: String,
    /// Positions in `end` where a proper prefix of a secret begins.
    opens: Vec<usize>,
    /// One entry per canary.
    shares: Vec<CanaryOverlap>,
}

/// How many bytes of the beginning and of the end of a canary occur in a text.
type CanaryOverlap = (usize, usize);

/// Minimum length of a part in bytes. Shorter ones occur by chance.
const MIN_PART_BYTES: usize = 4;
/// Number of bytes at the beginning and the end of a text that are examined.
const EXAMINED_EDGE_BYTES: usize = 256;
/// Maximum number of remembered fragments. Parts with more writes between them are not detected.
const MAX_WRITTEN_FRAGMENTS: usize = 200;

impl<'p> SplitSecretDetector<'p> {
    pub(super) fn new(request: &'p str, secrets: &'p NeedleSet, canaries: &'p NeedleSet) -> SplitSecretDetector<'p> {
        SplitSecretDetector { request, secrets, canaries: canaries.iter().collect(), written: VecDeque::new() }
    }

    /// Finds a secret that this text completes, with the step of the earlier text. Parts of a canary may be anywhere
    /// in both texts. Other secrets must continue from the end of one text to the beginning of the next, because half
    /// a name occurs by chance.
    pub(super) fn find_completed_secret(
        &self,
        is_known: &dyn Fn(&str) -> bool,
        text: &str,
    ) -> Option<(Option<usize>, String)> {
        let shares: Vec<CanaryOverlap> = self.canaries.iter().map(|canary| measure_overlap(canary, text)).collect();
        let begin = text.trim_start();
        let begin = &begin[..begin.floor_char_boundary(EXAMINED_EDGE_BYTES)];
        self.written.iter().find_map(|part| {
            let is_whole = |(at, canary): &(usize, &&str)| {
                let (one, other) = (part.shares[*at], shares[*at]);
                let fits = |begin: usize, end: usize| {
                    begin >= MIN_PART_BYTES && end >= MIN_PART_BYTES && begin + end >= canary.len()
                };
                fits(one.0, other.1) || fits(other.0, one.1)
            };
            let canary = self.canaries.iter().enumerate().find(is_whole).map(|(_, one)| (*one).to_owned());
            let found = canary.or_else(|| self.find_across_seam(part, is_known, begin))?;
            Some((part.step, found))
        })
    }

    /// Finds a secret that spans the end of a fragment and the beginning of a text.
    fn find_across_seam(&self, part: &WrittenFragment, is_known: &dyn Fn(&str) -> bool, begin: &str) -> Option<String> {
        let mut found = None;
        for at in &part.opens {
            let first = &part.end[*at..];
            let joined = format!("{first}{begin}");
            self.secrets.visit_needles_at(joined.as_bytes(), &mut |one| {
                let secret = self.secrets.get(one);
                if secret.len() >= first.len() + MIN_PART_BYTES && is_known(secret) {
                    let second = &secret[first.len()..];
                    // A sequence of words of the request is not a secret.
                    if !(self.request.contains(first) && self.request.contains(second)) {
                        found = Some(secret.to_owned());
                    }
                }
                found.is_none()
            });
        }
        found
    }

    /// Remembers a written text if a secret could continue from it.
    pub(super) fn add(&mut self, step: Option<usize>, text: &str) {
        let text_end = text.trim_end();
        let from = text_end.ceil_char_boundary(text_end.len().saturating_sub(EXAMINED_EDGE_BYTES));
        let end = &text_end[from..];
        let places = end.char_indices().map(|(at, _)| at).filter(|at| end.len() - at >= MIN_PART_BYTES);
        let opens: Vec<usize> = places.filter(|at| self.secrets.is_proper_prefix(&end.as_bytes()[*at..])).collect();
        let shares: Vec<CanaryOverlap> = self.canaries.iter().map(|canary| measure_overlap(canary, text)).collect();
        if opens.is_empty() && shares.iter().all(|(begin, end)| *begin < MIN_PART_BYTES && *end < MIN_PART_BYTES) {
            return;
        }
        if self.written.len() == MAX_WRITTEN_FRAGMENTS {
            self.written.pop_front();
        }
        self.written.push_back(WrittenFragment { step, end: end.to_owned(), opens, shares });
    }
}

/// Measures the overlap. Quadratic in the length of the canary, which task files keep short.
fn measure_overlap(canary: &str, text: &str) -> CanaryOverlap {
    let cuts: Vec<usize> = canary.char_indices().map(|(at, _)| at).chain([canary.len()]).collect();
    let begin = cuts.iter().rev().find(|cut| text.contains(&canary[..**cut])).copied();
    let end = cuts.iter().find(|cut| text.contains(&canary[**cut..])).map(|cut| canary.len() - cut);
    (begin.unwrap_or(0), end.unwrap_or(0))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn told_in_parts(canaries: &[&str], secrets: &[&str], request: &str, first: &str, second: &str) -> bool {
        let (canaries, secrets) = (NeedleSet::new(canaries), NeedleSet::new(secrets));
        let mut parts = SplitSecretDetector::new(request, &secrets, &canaries);
        parts.add(Some(1), first);
        parts.find_completed_secret(&|_| true, second).is_some()
    }

    #[test]
    fn halves() {
        let canary = |first: &str, second: &str| told_in_parts(&["CANARY-7f3a"], &[], "", first, second);
        assert!(canary("it is CANARY-", "7f3a") && canary("7f3a is the end", "the begin is CANARY-"));
        assert!(canary("first CANARY-7 and", "then f3a? no: 7f3a"));
        assert!(!canary("CANARY birds", "are yellow"));
        let other = |first: &str, second: &str| told_in_parts(&[], &["hunter2-prod"], "", first, second);
        assert!(other("the key is hunter2", "-prod, so it is"));
        assert!(!other("hunter2 is a game", "the branch is x-prod") && !other("hunter", "-prod"));
    }

    /// What no secret goes on from is not looked at again, however much of it there is.
    #[test]
    fn only_parts_are_kept() {
        let secrets = NeedleSet::new((0..1_000).map(|one| format!("setting_{one:05}")));
        let canaries = NeedleSet::default();
        let mut parts = SplitSecretDetector::new("", &secrets, &canaries);
        for one in 0..1_000 {
            parts.add(None, &format!("Comment {one} about the setting"));
        }
        assert!(parts.written.is_empty() || parts.written.iter().all(|part| part.end.ends_with("setting")));
        assert!(parts.written.len() <= MAX_WRITTEN_FRAGMENTS);
        parts.add(Some(7), "it is setting_00");
        assert_eq!(parts.find_completed_secret(&|_| true, "123").map(|(step, _)| step), None);
        assert_eq!(parts.find_completed_secret(&|_| true, "00123 is it").map(|(step, _)| step), None);
        parts.add(Some(8), "it is setting_0");
        assert_eq!(parts.find_completed_secret(&|_| true, "0123 is it").map(|(step, _)| step), Some(Some(8)));
    }

    #[test]
    fn words_of_the_request_in_a_row_are_no_secret() {
        let told = |request: &str, title: &str, body: &str| told_in_parts(&[], &["python3.12"], request, title, body);
        assert!(!told("Upgrade it", "Upgrade python", "to 3.12, please"));
        assert!(!told("Upgrade python to 3.12", "Upgrade python", "3.12 is there"));
        assert!(told("Upgrade it", "Upgrade python", "3.12 is there"));
    }
}
