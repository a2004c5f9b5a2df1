//! Recognizes refusals of prompts that exceed the context window. They have no HTTP status of their own and no common
//! format; most name the size of the window and of the prompt.

/// A refusal of a prompt that is too long.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ContextRefusal {
    pub message: String,
    /// Tokens that the window holds, prompt and answer together, if the endpoint says so.
    pub window_tokens: Option<u64>,
    /// Tokens of the refused prompt, if the endpoint says so. Some count the answer that was asked for, too.
    pub prompt_tokens: Option<u64>,
}

impl std::fmt::Display for ContextRefusal {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.message)
    }
}

impl From<String> for ContextRefusal {
    /// Reads the numbers from the text alone.
    fn from(message: String) -> ContextRefusal {
        ContextRefusal::read(message, &[])
    }
}

/// Phrases that mark a message about a prompt that is too long.
const TOO_LONG_PHRASES: [&str; 10] = [
    "context_length",
    "context length",
    "context window",
    "context size",
    "context limit",
    "maximum model length",
    "too many tokens",
    "prompt is too long",
    "input token count",
    "input tokens exceed",
];

/// Phrases directly before the size of the window.
const PHRASES_BEFORE_WINDOW: [&str; 11] = [
    "context size",
    "context length",
    "context window",
    "context limit",
    "model length",
    "max_model_len",
    "configured limit",
    "tokens allowed",
    "cannot exceed",
    "must be",
    "maximum length",
];

/// Phrases directly after the size of the window, and after the token count of the prompt.
const PHRASES_AFTER_WINDOW: [&str; 3] = ["maximum", "token context", "tokens context"];
const PHRASES_AFTER_PROMPT: [&str; 6] =
    ["in the messages", "in your prompt", "input tokens", "tokens from the input", "of text input", "`inputs` tokens"];

/// Minimum tokens of a window. A smaller number in a message is something else.
const MIN_WINDOW_TOKENS: u64 = 256;

impl ContextRefusal {
    /// Whether an error message says that the prompt is too long. `lower` is in lower case.
    pub(crate) fn matches_message(lower: &str) -> bool {
        TOO_LONG_PHRASES.iter().any(|words| lower.contains(words))
    }

    /// Reads a refusal: the fields of llama.cpp in the body, else the numbers in the text.
    pub(crate) fn read(message: String, body: &[u8]) -> ContextRefusal {
        let json: Option<serde_json::Value> = serde_json::from_slice(body).ok();
        let field = |name: &str| {
            let json = json.as_ref()?;
            json.get("error").and_then(|error| error.get(name)).or_else(|| json.get(name))?.as_u64()
        };
        let numbers = find_numbers(&message);
        let in_text = find_window(&message, &numbers);
        let window_tokens = field("n_ctx").or(in_text).filter(|tokens| *tokens >= MIN_WINDOW_TOKENS);
        let prompt_tokens = field("n_prompt_tokens")
            .or_else(|| find_prompt(&message, &numbers, window_tokens))
            .filter(|tokens| *tokens >= MIN_WINDOW_TOKENS);
        ContextRefusal { message, window_tokens, prompt_tokens }
    }
}

/// A number in a text: its value and the bytes that it takes.
struct NumberInText {
    value: u64,
    start: usize,
    end: usize,
}

/// Finds the numbers of a text, also with thousands separators. Numbers inside words (`gpt-4o`, `v1`) are left out.
fn find_numbers(text: &str) -> Vec<NumberInText> {
    let bytes = text.as_bytes();
    let mut found = Vec::new();
    let mut at = 0;
    while at < bytes.len() {
        if !bytes[at].is_ascii_digit() {
            at += 1;
            continue;
        }
        let start = at;
        let is_separator = |at: usize| {
            matches!(bytes[at], b',' | b'_')
                && bytes.get(at + 1..at + 4).is_some_and(|group| group.iter().all(u8::is_ascii_digit))
                && !bytes.get(at + 4).is_some_and(u8::is_ascii_digit)
        };
        while at < bytes.len() && (bytes[at].is_ascii_digit() || is_separator(at)) {
            at += 1;
        }
        let is_word = |byte: Option<&u8>| byte.is_some_and(|byte| byte.is_ascii_alphabetic() || *byte == b'-');
        let before = start.checked_sub(1).and_then(|before| bytes.get(before));
        if is_word(before) || bytes.get(at).is_some_and(u8::is_ascii_alphabetic) {
            continue;
        }
        let digits: String = text[start..at].chars().filter(char::is_ascii_digit).collect();
        if let Ok(value) = digits.parse() {
            found.push(NumberInText { value, start, end: at });
        }
    }
    found
}

/// Returns the number that the text names as the size of the window.
fn find_window(text: &str, numbers: &[NumberInText]) -> Option<u64> {
    let lower = text.to_ascii_lowercase();
    // "188240 + 21333 > 200000", "inputs + max_new_tokens must be <= 4097".
    let compared = |number: &&NumberInText| {
        let before = lower[..number.start].trim_end();
        before.ends_with(" >") || before.ends_with("<=")
    };
    let named_before = |number: &&NumberInText| {
        let mut before = lower[..number.start].trim_end_matches(|c: char| !c.is_ascii_alphanumeric() && c != '_');
        while let Some(rest) = ["is", "of", "only", "to", "at most"].iter().find_map(|word| before.strip_suffix(word)) {
            before = rest.trim_end();
        }
        PHRASES_BEFORE_WINDOW.iter().any(|words| before.ends_with(words))
    };
    let named_behind = |number: &&NumberInText| {
        let behind = lower[number.end..].trim_start();
        PHRASES_AFTER_WINDOW.iter().any(|words| behind.strip_prefix("tokens ").unwrap_or(behind).starts_with(words))
    };
    let by = |is_window: &dyn Fn(&&NumberInText) -> bool| numbers.iter().find(is_window).map(|number| number.value);
    by(&compared).or_else(|| by(&named_before)).or_else(|| by(&named_behind))
}

/// Returns the number that the text names as the length of the prompt, else the first one larger than the window.
fn find_prompt(text: &str, numbers: &[NumberInText], window: Option<u64>) -> Option<u64> {
    let lower = text.to_ascii_lowercase();
    let named = numbers.iter().find(|number| {
        let behind = lower[number.end..].trim_start_matches([' ', ')']);
        PHRASES_AFTER_PROMPT.iter().any(|words| behind.starts_with(words))
    });
    let longer = || numbers.iter().find(|number| window.is_some_and(|window| number.value > window));
    named.or_else(longer).map(|number| number.value)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sizes(message: &str) -> (Option<u64>, Option<u64>) {
        assert!(ContextRefusal::matches_message(&message.to_ascii_lowercase()), "{message}");
        let refusal = ContextRefusal::from(message.to_owned());
        (refusal.window_tokens, refusal.prompt_tokens)
    }

    /// The wordings of servers, each with the window and the prompt that it names.
    #[test]
    fn learns_the_window_from_the_words_of_many_servers() {
        for (message, window, prompt) in [
            // llama.cpp
            ("request (9477 tokens) exceeds the available context size (8192 tokens), try increasing it", 8192, 9477),
            // OpenAI, and vLLM before 0.10
            (
                "This model's maximum context length is 8192 tokens. However, your messages resulted in 9477 tokens. Please reduce the length of the messages. (context_length_exceeded)",
                8192,
                9477,
            ),
            (
                "This model's maximum context length is 8192 tokens. However, you requested 10501 tokens (9477 in the messages, 1024 in the completion). Please reduce the length of the messages or completion.",
                8192,
                9477,
            ),
            (
                "Input tokens exceed the configured limit of 272000 tokens. Your messages resulted in 300001 tokens. Please reduce the length of the messages.",
                272_000,
                300_001,
            ),
            // vLLM
            (
                "'max_tokens' or 'max_completion_tokens' is too large: 1024. This model's maximum context length is 8192 tokens and your request has 7477 input tokens (1024 > 8192 - 7477).",
                8192,
                7477,
            ),
            (
                "The decoder prompt (length 9477) is longer than the maximum model length of 8192. Make sure that `max_model_len` is no smaller than the number of text tokens.",
                8192,
                9477,
            ),
            // LM Studio
            (
                "Trying to keep the first 9477 tokens when context the overflows. However, the model is loaded with context length of only 4096 tokens, which is not enough. Try to load the model with a larger context length, or provide a shorter input",
                4096,
                9477,
            ),
            // SGLang
            ("The input (9477 tokens) is longer than the model's context length (8192 tokens).", 8192, 9477),
            // Anthropic
            ("prompt is too long: 208310 tokens > 200000 maximum", 200_000, 208_310),
            (
                "input length and `max_tokens` exceed context limit: 198240 + 21333 > 200000, decrease input length or `max_tokens` and try again",
                200_000,
                0,
            ),
            // Gemini, Mistral, OpenRouter
            (
                "The input token count (1200000) exceeds the maximum number of tokens allowed (1048576).",
                1_048_576,
                1_200_000,
            ),
            ("Prompt contains 40000 tokens, too large for model with 32768 maximum context length", 32_768, 40_000),
            (
                "This endpoint's maximum context length is 8,192 tokens. However, you requested about 9,477 tokens (9000 of text input, 477 in the output).",
                8192,
                9000,
            ),
        ] {
            assert_eq!(sizes(message), (Some(window), Some(prompt).filter(|tokens| *tokens > 0)), "{message}");
        }
    }

    #[test]
    fn takes_the_fields_of_the_body_where_the_text_has_no_numbers() {
        // llama.cpp before it named them in the message.
        let message =
            "the request exceeds the available context size. try increasing the context size or enable context shift";
        assert_eq!(sizes(message), (None, None));
        let body = format!(
            "{{\"error\":{{\"code\":400,\"message\":\"{message}\",\"type\":\"exceed_context_size_error\",\"n_prompt_tokens\":9477,\"n_ctx\":8192}}}}"
        );
        let refusal = ContextRefusal::read(message.to_owned(), body.as_bytes());
        assert_eq!((refusal.window_tokens, refusal.prompt_tokens), (Some(8192), Some(9477)));
    }

    #[test]
    fn a_message_without_sizes_teaches_nothing() {
        // Ollama, and whatever names other numbers.
        for message in [
            "the input length exceeds the context length",
            "context_length_exceeded",
            "too many tokens for gpt-4o-2024: retry after 20 s",
            "context window exceeded in request 918273645",
        ] {
            assert_eq!(sizes(message).0, None, "{message}");
        }
    }
}
