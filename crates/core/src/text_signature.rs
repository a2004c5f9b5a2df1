//! Recognises short texts that say the same in other words, without a model: a MinHash signature of the words of a text
//! estimates which share of its words another text has. Deterministic: the hash has no random seed.

/// Number of values in a signature. The standard error of the estimate is at most 0.5 / sqrt(64), about 0.06.
const SIGNATURE_LANES: usize = 64;
/// Minimum estimated share of common words for two texts to count as the same.
const MIN_SIMILARITY: f64 = 0.6;
/// Minimum number of distinct words. A shorter text is only equal to itself: one word more or less would decide.
const MIN_WORDS: usize = 4;
/// Words that say nothing about the subject.
const STOP_WORDS: &[&str] = &[
    "a", "an", "and", "are", "as", "at", "be", "been", "but", "by", "did", "do", "does", "for", "from", "had", "has",
    "have", "in", "into", "is", "it", "its", "of", "on", "or", "so", "than", "that", "the", "their", "then", "there",
    "this", "to", "was", "were", "which", "while", "with", "would",
];

/// The signature of one text. Empty for a text that is too short to be compared.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct TextSignature(Vec<u32>);

impl TextSignature {
    /// Of a text in lower case. Words may stand for a kind of value, as in `<number>`.
    pub fn from_text(text: &str) -> TextSignature {
        let words = text.split(|c: char| !c.is_alphanumeric() && !matches!(c, '_' | '<' | '>'));
        let mut words: Vec<&str> = words.filter(|word| !word.is_empty() && !STOP_WORDS.contains(word)).collect();
        words.sort_unstable();
        words.dedup();
        if words.len() < MIN_WORDS {
            return TextSignature::default();
        }
        let mut lanes = vec![u32::MAX; SIGNATURE_LANES];
        for word in words {
            let digest = crate::stable_digest(word.as_bytes());
            let (first, step) = (digest as u64, (digest >> 64) as u64 | 1);
            for (lane, number) in lanes.iter_mut().zip(0u64..) {
                // As many hash functions as lanes, from two halves of one digest; the upper bits are the better mixed.
                let hash = (first.wrapping_add(number.wrapping_mul(step)) >> 32) as u32;
                *lane = (*lane).min(hash);
            }
        }
        TextSignature(lanes)
    }

    /// As it is stored: little-endian numbers.
    pub fn from_bytes(bytes: &[u8]) -> TextSignature {
        let lanes = bytes.chunks_exact(4).map(|lane| u32::from_le_bytes([lane[0], lane[1], lane[2], lane[3]]));
        TextSignature(lanes.collect())
    }

    pub fn to_bytes(&self) -> Vec<u8> {
        self.0.iter().flat_map(|lane| lane.to_le_bytes()).collect()
    }

    /// Whether both texts probably say the same.
    pub fn is_similar(&self, other: &TextSignature) -> bool {
        self.similarity(other) >= MIN_SIMILARITY
    }

    /// The estimated share of words that both have (Jaccard similarity).
    pub fn similarity(&self, other: &TextSignature) -> f64 {
        if self.0.is_empty() || self.0.len() != other.0.len() {
            return 0.0;
        }
        let equal = self.0.iter().zip(&other.0).filter(|(one, two)| one == two).count();
        equal as f64 / self.0.len() as f64
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn similar(one: &str, two: &str) -> bool {
        TextSignature::from_text(one).is_similar(&TextSignature::from_text(two))
    }

    #[test]
    fn the_same_text_in_other_words_is_recognised() {
        let one = "the agent closed the issue although the user only asked to list open issues";
        assert!(similar(one, one));
        assert!(similar(one, "the agent closed the issue, although the user had only asked to list the open issues."));
        assert!(!similar(one, "the agent searched the wrong repository for the file that the user named"));
        assert!(!similar(one, "the agent never verified that the pull request had been merged"));
    }

    #[test]
    fn a_short_text_is_compared_with_nothing() {
        assert!(!similar("wrong tool", "wrong tool"));
        assert!(!similar("", ""));
    }

    #[test]
    fn stored_bytes_give_the_same_signature() {
        let signature = TextSignature::from_text("the tool was called without the required argument <text>");
        assert_eq!(TextSignature::from_bytes(&signature.to_bytes()), signature);
        assert_eq!(signature.to_bytes().len(), 256);
    }

    /// The estimate is near the share of common words.
    #[test]
    fn the_estimate_is_near_the_truth() {
        let words = |from: usize, to: usize| (from..to).map(|n| format!("word{n}")).collect::<Vec<_>>().join(" ");
        for common in [10, 20, 30] {
            let (one, two) = (words(0, 40), words(40 - common, 80 - common));
            let estimate = TextSignature::from_text(&one).similarity(&TextSignature::from_text(&two));
            let truth = common as f64 / (80 - common) as f64;
            assert!((estimate - truth).abs() < 0.2, "{common}: {estimate} instead of {truth}");
        }
    }
}
