//! Computes the probability of a judge's label among the labels of the rubric, from the log-probabilities of its
//! tokens.
//!
//! A judge writes its label token by token. At each token, the probability that goes to continuations of the given
//! label is compared with the probability that goes to continuations of another label; tokens that lead to no label
//! are left out. The product of these shares over the tokens of the label is its probability, given that the judge
//! names a label where it did.

use gradus_llm::TokenLogprob;

use crate::rubric::RubricLabels;

/// Returns the probability of `label` among `labels` in an answer with these tokens. `None` if the answer has no
/// log-probabilities, or if the label cannot be located in it.
pub(crate) fn compute_label_probability(tokens: &[TokenLogprob], labels: &RubricLabels, label: &str) -> Option<f64> {
    let answer: String = tokens.iter().map(|token| token.text.as_str()).collect();
    // ASCII only: other characters may change their length, and the offsets have to fit the tokens.
    let (answer, label) = (answer.to_ascii_lowercase(), label.to_ascii_lowercase());
    let start = find_given_label(&answer, &label)?;
    let others: Vec<String> = labels.names().map(str::to_ascii_lowercase).filter(|other| *other != label).collect();
    let has_alternatives = tokens.iter().any(|token| token.alternatives.iter().any(|(text, _)| *text != token.text));
    let mut probability = 1.0;
    let mut at = 0;
    for token in tokens {
        let (begin, end) = (at, at + token.text.len());
        at = end;
        if end <= start || begin >= start + label.len() || token.text.is_empty() {
            continue;
        }
        let written = &label[..begin.saturating_sub(start)];
        let rivals = others.iter().filter_map(|other| other.strip_prefix(written));
        let rest = LabelContinuations { own: &label[written.len()..], rivals: rivals.collect() };
        // Even without alternatives, the probability of the token itself is known. The token may begin with a blank
        // or a quotation mark.
        probability *= match has_alternatives || rest.rivals.is_empty() {
            true => rest.share_of_own(token, written.is_empty()),
            false => token.logprob.exp().min(1.0),
        };
    }
    Some(probability)
}

/// The possible continuations of the labels at one position.
struct LabelContinuations<'l> {
    own: &'l str,
    rivals: Vec<&'l str>,
}

impl LabelContinuations<'_> {
    /// Returns the share of the given label at one token; 1 if no other label can follow.
    fn share_of_own(&self, token: &TokenLogprob, is_first: bool) -> f64 {
        if self.rivals.is_empty() {
            return 1.0;
        }
        let (mut own, mut rival) = (token.logprob.exp(), 0.0);
        for (text, logprob) in token.alternatives.iter().filter(|(text, _)| *text != token.text) {
            let text = text.to_ascii_lowercase();
            let text = if is_first { text.trim_start_matches(|c: char| !c.is_alphanumeric()) } else { text.as_str() };
            let leads_to_rival = self.rivals.iter().any(|rival| matches_label_start(text, rival));
            match (matches_label_start(text, self.own), leads_to_rival) {
                (true, false) => own += logprob.exp(),
                (false, true) => rival += logprob.exp(),
                // The token is compatible with both labels, or with none.
                _ => {}
            }
        }
        if own + rival > 0.0 { own / (own + rival) } else { 1.0 }
    }
}

/// Whether a token is a beginning of this text, or the whole text followed by the end of the word.
fn matches_label_start(token: &str, rest: &str) -> bool {
    if token.is_empty() || rest.is_empty() {
        return false;
    }
    match token.strip_prefix(rest) {
        Some(behind) => !behind.starts_with(|c: char| c.is_alphanumeric() || c == '_'),
        None => rest.starts_with(token),
    }
}

/// The offset of the label that the answer gives: the last one directly behind the word `label`, as in `LABEL: x` and
/// `"label": "x"`, or else the one that ends the answer. Both texts are in lower case.
fn find_given_label(answer: &str, label: &str) -> Option<usize> {
    let is_whole = |at: usize| {
        let is_word = |c: char| c.is_alphanumeric() || c == '_';
        !answer[..at].ends_with(is_word) && !answer[at + label.len()..].starts_with(is_word)
    };
    let is_named = |at: usize| answer[..at].trim_end_matches(|c: char| !c.is_alphanumeric()).ends_with("label");
    let found: Vec<usize> = answer.match_indices(label).map(|(at, _)| at).filter(|at| is_whole(*at)).collect();
    let is_end = |at: &usize| !answer[at + label.len()..].contains(char::is_alphanumeric);
    found.iter().rev().find(|at| is_named(**at)).or_else(|| found.last().filter(|at| is_end(at))).copied()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn labels(names: &[&str]) -> RubricLabels {
        let table: Vec<(&str, f64)> = names.iter().map(|name| (*name, 0.0)).collect();
        RubricLabels::from_table(&table)
    }

    /// A token that was taken with this probability, and alternatives with theirs.
    fn token(text: &str, probability: f64, alternatives: &[(&str, f64)]) -> TokenLogprob {
        let alternatives = alternatives.iter().map(|(text, share)| ((*text).to_owned(), share.ln()));
        TokenLogprob { text: text.to_owned(), logprob: probability.ln(), alternatives: alternatives.collect() }
    }

    fn assert_near(found: Option<f64>, expected: f64) {
        assert!(found.is_some_and(|found| (found - expected).abs() < 1e-9), "{found:?} instead of {expected}");
    }

    #[test]
    fn without_alternatives_the_token_itself_counts() {
        let two = labels(&["correct", "incorrect"]);
        let answer = |token| [self::token("LABEL: ", 1.0, &[]), token];
        assert_near(compute_label_probability(&answer(token("correct", 0.6, &[])), &two, "correct"), 0.6);
        assert_near(
            compute_label_probability(&answer(token("correct", 0.6, &[("correct", 0.6)])), &two, "correct"),
            0.6,
        );
    }

    #[test]
    fn the_share_of_the_label_among_the_labels() {
        let two = labels(&["correct", "incorrect"]);
        let answer = [
            token("{\"explanation\": \"it is incorrect\", \"label\":", 0.9, &[]),
            token(" \"", 0.8, &[(" true", 0.2)]),
            token(
                "correct",
                0.5,
                &[("correct", 0.5), ("incorrect", 0.2), ("in", 0.05), ("Correct", 0.15), ("yes", 0.1)],
            ),
            token("\"}", 0.9, &[]),
        ];
        assert_near(compute_label_probability(&answer, &two, "correct"), 0.65 / 0.9);
        let text = [token("LABEL:", 1.0, &[]), token(" incorrect", 0.6, &[(" correct", 0.3), ("\n", 0.1)])];
        assert_near(compute_label_probability(&text, &two, "incorrect"), 0.6 / 0.9);
    }

    #[test]
    fn a_label_of_several_tokens_is_a_product() {
        let three = labels(&["fully_met", "fully_missed", "partly_met"]);
        let answer = [
            token("label: ", 1.0, &[]),
            token("fully", 0.7, &[("partly", 0.1), ("full", 0.2)]),
            token("_m", 0.9, &[]),
            token("et", 0.6, &[("issed", 0.2), ("e", 0.1), ("x", 0.1)]),
        ];
        assert_near(compute_label_probability(&answer, &three, "fully_met"), 0.7 / 0.8 * (0.7 / 0.9));
    }

    #[test]
    fn the_place_of_the_label_is_found_or_there_is_no_probability() {
        let two = labels(&["good", "bad"]);
        let given = |text: &str| compute_label_probability(&[token(text, 0.5, &[])], &two, "good");
        for answer in
            ["LABEL: good", "good", "So it is **good**.", "{\"label\":\"Good\"}", "**Label:** good\nIt is not bad."]
        {
            assert_near(given(answer), 0.5);
        }
        for answer in ["", "goodness", "good, or rather fine", "label: bad"] {
            assert_eq!(given(answer), None, "{answer}");
        }
        assert_eq!(compute_label_probability(&[], &two, "good"), None);
    }
}
