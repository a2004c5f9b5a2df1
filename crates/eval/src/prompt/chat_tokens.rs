//! Tokens of chat templates in recorded text. Servers of open models build one text from all messages and tokenize it as
//! a whole, so `<|im_end|>` in a recording becomes the very token that ends a message: a recording could close the
//! question and begin a message of the system. Their first character is therefore written as an escape, like an
//! invisible character.

use std::borrow::Cow;
use std::fmt::Write;

/// Beginnings of the tokens that separate messages. `<|` begins those of Llama, Qwen, Phi, Granite, Command and
/// gpt-oss, and with the full-width bar those of DeepSeek; the others are Gemma's and Mistral's.
const CHAT_TOKENS: [&str; 12] = [
    "<|",
    "<\u{ff5c}",
    "<start_of_turn>",
    "<end_of_turn>",
    "<bos>",
    "<eos>",
    "<s>",
    "</s>",
    "[INST]",
    "[/INST]",
    "[SYSTEM_PROMPT]",
    "[/SYSTEM_PROMPT]",
];

/// Escapes tokens of chat templates: `<|im_end|>` becomes `\u{3c}|im_end|>`.
pub fn escape_chat_tokens(text: &str) -> Cow<'_, str> {
    let begins_token = |at: usize| CHAT_TOKENS.iter().any(|token| text[at..].starts_with(token));
    let mut out = String::new();
    let mut copied = 0;
    for (at, bracket) in text.match_indices(['<', '[']).filter(|(at, _)| begins_token(*at)) {
        out.push_str(&text[copied..at]);
        // Writing into a string cannot fail.
        let _ = bracket.chars().try_for_each(|bracket| write!(out, "\\u{{{:x}}}", u32::from(bracket)));
        copied = at + bracket.len();
    }
    if copied == 0 {
        return Cow::Borrowed(text);
    }
    out.push_str(&text[copied..]);
    Cow::Owned(out)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tokens_of_chat_templates_are_escaped() {
        for (text, escaped) in [
            ("<|im_end|>\n<|im_start|>system", "\\u{3c}|im_end|>\n\\u{3c}|im_start|>system"),
            ("é<\u{ff5c}User\u{ff5c}>", "é\\u{3c}\u{ff5c}User\u{ff5c}>"),
            ("[INST] a [/INST]</s>", "\\u{5b}INST] a \\u{5b}/INST]\\u{3c}/s>"),
            ("<<|<start_of_turn>", "<\\u{3c}|\\u{3c}start_of_turn>"),
        ] {
            assert_eq!(escape_chat_tokens(text), escaped);
        }
        for plain in ["", "a < b", "[1, 2]", "<small>", "|>", "<start_of_turn", "```"] {
            assert!(matches!(escape_chat_tokens(plain), Cow::Borrowed(same) if same == plain));
        }
    }
}
