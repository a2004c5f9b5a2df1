//! Random choices that depend only on a seed, so that the same seed gives the same cases on every machine.

/// A stream of choices (SplitMix64). Streams with different labels are independent, so an additional choice in one
/// stream does not affect the others.
#[derive(Clone, Debug)]
pub(crate) struct SeededChoice(u64);

impl SeededChoice {
    pub(crate) fn new(seed: u64, labels: &[&str]) -> SeededChoice {
        let text = format!("{seed}\0{}", labels.join("\0"));
        SeededChoice(gradus_core::stable_digest(text.as_bytes()) as u64)
    }

    pub(crate) fn next_number(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        mixed ^ (mixed >> 31)
    }

    /// A number below `count`; 0 if there is nothing to choose from.
    pub(crate) fn below(&mut self, count: usize) -> usize {
        if count == 0 { 0 } else { (self.next_number() % count as u64) as usize }
    }

    pub(crate) fn pick<'a, T>(&mut self, all: &'a [T]) -> Option<&'a T> {
        all.get(self.below(all.len()))
    }

    /// Fisher and Yates' shuffle.
    pub(crate) fn shuffle<T>(&mut self, all: &mut [T]) {
        for last in (1..all.len()).rev() {
            let other = self.below(last + 1);
            all.swap(last, other);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_stream_depends_on_seed_and_labels_only() {
        let numbers = |seed, labels: &[&str]| {
            let mut choice = SeededChoice::new(seed, labels);
            [0; 4].map(|_| choice.next_number())
        };
        assert_eq!(numbers(1, &["a", "b"]), numbers(1, &["a", "b"]));
        assert_ne!(numbers(1, &["a", "b"]), numbers(2, &["a", "b"]));
        assert_ne!(numbers(1, &["a", "b"]), numbers(1, &["a b"]));
        let mut all: Vec<usize> = (0..50).collect();
        SeededChoice::new(7, &[]).shuffle(&mut all);
        assert!(!all.is_sorted());
        all.sort_unstable();
        assert!(all.into_iter().eq(0..50));
    }
}
