//! Detects secret values in text. The name of a file proves nothing: many `.env` files hold ports and public
//! addresses. Values that a redactor replaced count, since it replaced a secret.

use super::super::excerpt::take_prefix;

/// Maximum bytes of a result that are searched.
const MAX_RESULT_BYTES: usize = 64 << 10;
/// Minimum length of a secret. Shorter values are settings.
const MIN_SECRET_LENGTH: usize = 6;

/// Prefixes of variables that are public in web applications.
const PUBLIC_PREFIXES: [&str; 10] = [
    "VITE_",
    "NEXT_PUBLIC_",
    "REACT_APP_",
    "EXPO_PUBLIC_",
    "NUXT_PUBLIC_",
    "VUE_APP_",
    "GATSBY_",
    "STORYBOOK_",
    "PUBLIC_",
    "NG_APP_",
];
/// Words in a name that make its value secret.
const SECRET_WORDS: [&str; 14] = [
    "SECRET",
    "TOKEN",
    "PASSWORD",
    "PASSWD",
    "PASSPHRASE",
    "PASS",
    "PWD",
    "KEY",
    "APIKEY",
    "CREDENTIAL",
    "CREDENTIALS",
    "DSN",
    "AUTH",
    "PAT",
];
/// Words in a name that make its value public, or something other than the secret itself.
const HARMLESS_WORDS: [&str; 22] = [
    "PUBLIC",
    "PUBLISHABLE",
    "ANON",
    "URL",
    "URI",
    "HOST",
    "PATH",
    "FILE",
    "NAME",
    "ID",
    "TYPE",
    "TTL",
    "EXPIRY",
    "EXPIRES",
    "EXPIRATION",
    "LENGTH",
    "LIMIT",
    "HEADER",
    "ENABLED",
    "ALGORITHM",
    "ENDPOINT",
    "LIFETIME",
];
/// Prefixes of tokens of well-known services.
const TOKEN_PREFIXES: [&str; 13] = [
    "ghp_",
    "gho_",
    "ghs_",
    "github_pat_",
    "glpat-",
    "sk-",
    "sk_live_",
    "rk_live_",
    "AKIA",
    "xoxb-",
    "xoxp-",
    "AIza",
    "npm_",
];
/// Parts of placeholder values, in lower case.
const PLACEHOLDERS: [&str; 18] = [
    "example",
    "placeholder",
    "changeme",
    "change-me",
    "change_me",
    "change me",
    "your-",
    "your_",
    "yourkey",
    "dummy",
    "do-not-use",
    "do_not_use",
    "replace",
    "insert",
    "todo",
    "fixme",
    "not-a-secret",
    "...",
];

/// Words that no secret consists of.
const SETTING_WORDS: [&str; 20] = [
    "password",
    "secret",
    "postgres",
    "bearer",
    "string",
    "undefined",
    "super",
    "dev",
    "local",
    "test",
    "testing",
    "for",
    "not",
    "production",
    "key",
    "token",
    "jwt",
    "admin",
    "root",
    "default",
];

/// Whether a result shows a secret value.
pub(super) fn shows_secret(text: &str) -> bool {
    let text = take_prefix(text, MAX_RESULT_BYTES);
    text.contains("PRIVATE KEY-----")
        || text.lines().any(|line| has_secret_assignment(line) || has_url_password(line) || has_known_token(line))
}

/// `NAME=value`, `"name": "value"` with a name that says that the value is secret.
fn has_secret_assignment(line: &str) -> bool {
    let Some(at) = line.find(['=', ':']) else { return false };
    let is_name = |letter: char| letter.is_ascii_alphanumeric() || matches!(letter, '_' | '-' | '.');
    let before = line[..at].trim_end().trim_end_matches(['"', '\'']);
    let start = before
        .rfind(|letter| !is_name(letter))
        .map_or(0, |at| at + before[at..].chars().next().map_or(1, char::len_utf8));
    is_secret_name(&before[start..]) && is_secret_value(&line[at + 1..])
}

fn is_secret_name(name: &str) -> bool {
    let name = name.to_ascii_uppercase();
    if name.len() > 100 || PUBLIC_PREFIXES.iter().any(|prefix| name.starts_with(prefix)) {
        return false;
    }
    let words = || name.split(['_', '-', '.']);
    words().any(|word| SECRET_WORDS.contains(&word)) && !words().any(|word| HARMLESS_WORDS.contains(&word))
}

fn is_secret_value(value: &str) -> bool {
    let value = value.trim().trim_end_matches([',', ';']);
    let value = match value.chars().next() {
        Some(quote @ ('"' | '\'')) => value[1..].split(quote).next().unwrap_or_default(),
        _ => value.split_whitespace().next().unwrap_or_default(),
    };
    let lower = value.to_lowercase();
    let is_reference = value.starts_with(['$', '<', '{', '%', '(', '[', '@']) && !lower.contains("redacted");
    // Numbers, durations, flags and single ordinary words are settings.
    let is_setting = value.chars().next().is_some_and(|first| first.is_ascii_digit())
        && value.len() <= 8
        && value.trim_start_matches(|letter: char| letter.is_ascii_digit()).len() <= 2;
    let is_filler = value.chars().all(|letter| matches!(letter, 'x' | 'X' | '*' | '.' | '-' | '_'));
    let is_word = lower.split(['-', '_', '.']).all(|word| SETTING_WORDS.contains(&word));
    value.len() >= MIN_SECRET_LENGTH
        && !is_reference
        && !is_setting
        && !is_filler
        && !is_word
        && !PLACEHOLDERS.iter().any(|placeholder| lower.contains(placeholder))
}

/// `postgres://user:password@host`.
fn has_url_password(line: &str) -> bool {
    line.match_indices("://").take(4).any(|(at, _)| {
        let rest = &line[at + 3..];
        let authority = rest.split(['/', ' ', '"', '\'', '?']).next().unwrap_or_default();
        let password =
            authority.rsplit_once('@').and_then(|(user, _)| user.split_once(':')).map(|(_, password)| password);
        password.is_some_and(is_secret_value)
    })
}

fn has_known_token(line: &str) -> bool {
    let words = line.split(|letter: char| !(letter.is_ascii_alphanumeric() || matches!(letter, '_' | '-')));
    words.filter(|word| word.len() >= 20).any(|word| {
        TOKEN_PREFIXES.iter().any(|prefix| word.starts_with(prefix))
            && word.bytes().any(|byte| byte.is_ascii_digit())
            && is_secret_value(word)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn secrets_and_what_only_looks_like_one() {
        for text in [
            "PORT=3000\nJWT_SECRET=k9Fv2mPq7Z",
            "     3→DB_PASSWORD=\"hunter22\"",
            "DATABASE_URL=postgres://app:s3cr3tpw@db.internal:5432/app",
            "-----BEGIN OPENSSH PRIVATE KEY-----\nb3Bl",
            "export API_KEY=REDACTED",
            "\"auth\": \"dXNlcjpwYXNzd29yZA==\",",
        ] {
            assert!(shows_secret(text), "{text}");
        }
        for text in [
            "",
            "A=1",
            "LOCAL_DEV=1\nPORT=3000",
            "VITE_API_KEY=k9Fv2mPq7Z\nNEXT_PUBLIC_TOKEN=k9Fv2mPq7Z",
            "API_KEY=your-api-key",
            "API_KEY=",
            "API_KEY=${SECRET}",
            "JWT_SECRET=do-not-use-in-production",
            "SESSION_SECRET=super-secret-for-testing",
            "TOKEN_TTL=3600\nTOKEN_URL=https://example.org/token",
            "TOKEN_LIFETIME=15m\nMAX_TOKEN=4096",
            "DATABASE_URL=postgres://localhost:5432/app",
            "SUPABASE_ANON_KEY=k9Fv2mPq7Z",
        ] {
            assert!(!shows_secret(text), "{text}");
        }
    }
}
