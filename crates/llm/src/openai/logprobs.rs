//! Log-probabilities in a chat completion: `choices[].logprobs.content`, a list of tokens with their alternatives.

use serde::{Deserialize, Deserializer};

use crate::request::TokenLogprob;

/// Number of alternatives requested at each position. Every server with log-probabilities allows five. A label that
/// is not among them is less likely than each of them.
pub(super) const TOP_LOGPROBS: u32 = 5;

/// The field as servers send it: an object with a list, null, or something else.
#[derive(Deserialize)]
#[serde(untagged)]
enum LogprobsField {
    Tokens {
        content: Vec<ScoredToken>,
    },
    /// Not usable. A verdict does not depend on it, so this is not an error.
    Other(serde::de::IgnoredAny),
}

#[derive(Deserialize)]
struct ScoredToken {
    #[serde(default)]
    token: String,
    /// The bytes of a token that is a part of a character; `token` has replacement characters then, or none at all.
    bytes: Option<Vec<u8>>,
    /// Some servers write null for a probability of 0.
    logprob: Option<f64>,
    /// Only of tokens of the answer.
    #[serde(default)]
    top_logprobs: Vec<ScoredToken>,
}

impl ScoredToken {
    fn into_parts(self) -> (String, f64) {
        let text = match self.bytes {
            Some(bytes) if !bytes.is_empty() => String::from_utf8_lossy(&bytes).into_owned(),
            _ => self.token,
        };
        (text, self.logprob.filter(|logprob| !logprob.is_nan()).map_or(f64::NEG_INFINITY, |logprob| logprob.min(0.0)))
    }
}

/// Reads the field `logprobs` of a choice. Whatever has another form counts as absent.
pub(super) fn read_token_logprobs<'de, D: Deserializer<'de>>(field: D) -> Result<Vec<TokenLogprob>, D::Error> {
    let content = match LogprobsField::deserialize(field)? {
        LogprobsField::Tokens { content } => content,
        LogprobsField::Other(_) => return Ok(Vec::new()),
    };
    let tokens = content.into_iter().map(|mut field| {
        let alternatives = std::mem::take(&mut field.top_logprobs).into_iter().map(ScoredToken::into_parts).collect();
        let (text, logprob) = field.into_parts();
        TokenLogprob { text, logprob, alternatives }
    });
    Ok(tokens.collect())
}

#[cfg(test)]
mod tests {
    use super::super::decode_openai_reply;
    use super::*;

    fn tokens(logprobs: &str) -> Vec<TokenLogprob> {
        let body = format!(r#"{{"choices":[{{"message":{{"content":"hi"}},"logprobs":{logprobs}}}]}}"#);
        decode_openai_reply(body.as_bytes()).expect("an answer").token_logprobs
    }

    #[test]
    fn reads_tokens_with_their_alternatives() {
        let read = tokens(
            r#"{"content":[
                {"id":7,"token":"hi","bytes":[104,105],"logprob":-0.25,
                 "top_logprobs":[{"token":"hi","logprob":-0.25},{"token":"\ufffd","bytes":[195],"logprob":-1.5}]},
                {"token":"!","logprob":null}],"refusal":null}"#,
        );
        let first = TokenLogprob {
            text: "hi".to_owned(),
            logprob: -0.25,
            alternatives: vec![("hi".to_owned(), -0.25), ("\u{fffd}".to_owned(), -1.5)],
        };
        let second = TokenLogprob { text: "!".to_owned(), logprob: f64::NEG_INFINITY, alternatives: Vec::new() };
        assert_eq!(read, [first, second]);
    }

    #[test]
    fn an_odd_form_does_not_make_the_answer_unreadable() {
        for odd in ["null", r#"{"content":null}"#, r#"{"tokens":["hi"],"token_logprobs":[-0.1]}"#, "[1]", "\"no\""] {
            assert_eq!(tokens(odd), [], "{odd}");
        }
    }
}
