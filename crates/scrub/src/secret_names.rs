//! Names of fields, options and variables that hold secrets, and what their values look like.

use crate::entropy::shannon_entropy;

/// Maximum length of a name.
pub(crate) const MAX_NAME_BYTES: usize = 80;
const MIN_PASSWORD_BYTES: usize = 4;
const MAX_PASSWORD_BYTES: usize = 4096;
const MIN_CREDENTIAL_BYTES: usize = 12;
const MIN_CREDENTIAL_ENTROPY: f64 = 3.0;
/// Maximum run of equal symbols in a secret. Longer runs mask one.
const MAX_SYMBOL_RUN: usize = 6;
/// Maximum number of words of a password. A longer value is a sentence about passwords.
const MAX_PASSWORD_WORDS: usize = 4;

/// What the name of a field says about its value.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct SecretName {
    /// The rule in the placeholder.
    pub(crate) rule: &'static str,
    pub(crate) strength: NameStrength,
}

/// How reliable a name is as evidence.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum NameStrength {
    /// Any value is a password, even a short or plain one.
    Password,
    /// A value is a key unless it is a sample.
    Key,
    /// `token` may be a word of a text: the value must look like a credential.
    Weak,
}

/// Ends of names without punctuation and case, the longer ones first where one ends in another.
const SECRET_NAME_ENDS: [(&str, &str, NameStrength); 34] = [
    ("password", "password", NameStrength::Password),
    ("passwd", "password", NameStrength::Password),
    ("passphrase", "password", NameStrength::Password),
    ("passcode", "password", NameStrength::Password),
    ("userpass", "password", NameStrength::Password),
    ("dbpass", "password", NameStrength::Password),
    ("pwd", "password", NameStrength::Password),
    ("apikey", "api-key", NameStrength::Key),
    ("apisecret", "api-key", NameStrength::Key),
    ("clientsecret", "client-secret", NameStrength::Key),
    ("secretkey", "secret-key", NameStrength::Key),
    ("secretaccesskey", "secret-key", NameStrength::Key),
    ("appsecret", "client-secret", NameStrength::Key),
    ("sharedsecret", "client-secret", NameStrength::Key),
    ("webhooksecret", "client-secret", NameStrength::Key),
    ("jwtsecret", "client-secret", NameStrength::Key),
    ("privatekey", "private-key", NameStrength::Key),
    ("encryptionkey", "secret-key", NameStrength::Key),
    ("signingkey", "secret-key", NameStrength::Key),
    ("masterkey", "secret-key", NameStrength::Key),
    ("accountkey", "secret-key", NameStrength::Weak),
    ("subscriptionkey", "api-key", NameStrength::Weak),
    ("accesskey", "api-key", NameStrength::Weak),
    ("accesskeyid", "api-key", NameStrength::Weak),
    ("secret", "client-secret", NameStrength::Weak),
    ("token", "token", NameStrength::Weak),
    ("authkey", "api-key", NameStrength::Weak),
    ("credential", "credential", NameStrength::Weak),
    ("credentials", "credential", NameStrength::Weak),
    ("authorization", "authorization", NameStrength::Weak),
    ("cookie", "cookie", NameStrength::Weak),
    ("connectionstring", "connection-string", NameStrength::Weak),
    ("storagekey", "secret-key", NameStrength::Weak),
    ("servicekey", "api-key", NameStrength::Weak),
];

/// Parts of names that the scan of a text looks for: each name above has one.
pub(crate) const NAME_STEMS: [&str; 18] = [
    "passw",
    "passphrase",
    "passcode",
    "userpass",
    "dbpass",
    "db_pass",
    "pwd",
    "apikey",
    "api_key",
    "api-key",
    "secret",
    "token",
    "_key",
    "-key",
    "ykey",
    "ekey",
    "skey",
    "credential",
];

/// Returns the kind of secret that a field of this name holds; `None` if it holds none.
pub(crate) fn classify_secret_name(name: &str) -> Option<SecretName> {
    if name.is_empty() || name.len() > MAX_NAME_BYTES {
        return None;
    }
    let plain: String =
        name.chars().filter(char::is_ascii_alphanumeric).map(|byte| byte.to_ascii_lowercase()).collect();
    // Numbered names are the same names: `password2`.
    let plain = plain.trim_end_matches(|character: char| character.is_ascii_digit());
    // Public by definition, or about a secret without being one.
    if plain.ends_with("publickey") || plain.ends_with("nexttoken") || plain.ends_with("pagetoken") {
        return None;
    }
    let (_, rule, strength) = SECRET_NAME_ENDS.iter().find(|(end, _, _)| plain.ends_with(end))?;
    Some(SecretName { rule, strength: *strength })
}

/// Whether the value of a field with this name is the secret, rather than a reference to it or a description.
pub(crate) fn is_secret_value(name: SecretName, value: &str) -> bool {
    match name.strength {
        NameStrength::Password => looks_like_password(value),
        NameStrength::Key => looks_like_password(value) && !is_sample(value),
        NameStrength::Weak => looks_like_credential(value),
    }
}

/// Whether a value looks like a credential: one word of letters and digits in no order that a name would have.
pub(crate) fn looks_like_credential(value: &str) -> bool {
    let value = value.trim();
    (MIN_CREDENTIAL_BYTES..=MAX_PASSWORD_BYTES).contains(&value.len())
        && !value.contains(char::is_whitespace)
        && !value.contains("://")
        && !value.starts_with(['/', '.', '~', '$', '{', '<', '%', '@'])
        && value.bytes().any(|byte| byte.is_ascii_digit())
        && value.bytes().any(|byte| byte.is_ascii_alphabetic())
        && !is_reference(value)
        && !is_sample(value)
        && shannon_entropy(value.as_bytes()) >= MIN_CREDENTIAL_ENTROPY
}

/// Whether a value looks like a password: anything that is not a reference, a type, a mask or a sentence.
pub(crate) fn looks_like_password(value: &str) -> bool {
    let value = value.trim();
    (MIN_PASSWORD_BYTES..=MAX_PASSWORD_BYTES).contains(&value.len())
        && value.split_whitespace().nth(MAX_PASSWORD_WORDS).is_none()
        && !is_reference(value)
        && !is_mask(value)
        && !is_descriptor(value)
}

/// Whether a value refers to a secret elsewhere: `${NAME}`, `{{ name }}`, `<name>`, `$NAME`, `%NAME%`,
/// `os.environ["NAME"]`, `settings.password`, `secret()`.
fn is_reference(value: &str) -> bool {
    let is_name = |text: &str| {
        !text.is_empty()
            && text.starts_with(|first: char| first.is_ascii_alphabetic() || first == '_')
            && text.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'_')
    };
    let is_dotted_name =
        value.contains('.') && value.split('.').all(is_name) && value.split('.').all(|part| part.len() < 24);
    value.starts_with(['<', '{', '[', '('])
        || value.contains("${")
        || value.contains("{{")
        || value.strip_prefix('$').is_some_and(is_name)
        || (value.starts_with('%') && value.ends_with('%'))
        || ["env:", "env.", "process.env", "os.environ", "getenv", "vault:", "secrets.", "file:", "ref:"]
            .iter()
            .any(|start| value.starts_with(start))
        || value.ends_with(')')
        || is_dotted_name
}

/// Whether a value is masked already: `****`, `xxxxxx`, `[redacted]`.
fn is_mask(value: &str) -> bool {
    let mut bytes = value.bytes();
    let first = bytes.next();
    let is_one_symbol = bytes.all(|byte| Some(byte) == first);
    is_one_symbol || value.contains("***") || value.contains("...") || value.contains('…') || value.contains("••")
}

/// Whether a value is from documentation: `sk-xxxxxxxxxxxx`, `AKIAIOSFODNN7EXAMPLE`.
fn is_sample(value: &str) -> bool {
    let longest_run = value.as_bytes().chunk_by(|left, right| left == right).map(<[u8]>::len).max().unwrap_or(0);
    let plain = value.to_ascii_lowercase();
    longest_run >= MAX_SYMBOL_RUN
        || ["example", "redacted", "your_", "your-", "placeholder", "...", "***"]
            .iter()
            .any(|word| plain.contains(word))
}

/// Whether a value is a type, a flag, or words about passwords (`your_password`, `new-password`).
fn is_descriptor(value: &str) -> bool {
    const WORDS: [&str; 24] = [
        "string",
        "text",
        "true",
        "false",
        "null",
        "none",
        "undefined",
        "required",
        "optional",
        "integer",
        "number",
        "boolean",
        "object",
        "array",
        "redacted",
        "hidden",
        "masked",
        "empty",
        "missing",
        "invalid",
        "unknown",
        "default",
        "bearer",
        "unset",
    ];
    let plain = value.to_ascii_lowercase();
    if WORDS.contains(&plain.as_str()) {
        return true;
    }
    let has_digit = plain.bytes().any(|byte| byte.is_ascii_digit());
    let about = [
        "password",
        "passwd",
        "secret",
        "api_key",
        "apikey",
        "api-key",
        "token",
        "your",
        "placeholder",
        "redacted",
        "example",
    ];
    !has_digit && about.iter().any(|word| plain.contains(word))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_compared_without_case_and_punctuation() {
        for name in [
            "password",
            "DB_PASSWORD",
            "user.passwd",
            "apiKey",
            "X-API-Key",
            "OPENAI_API_KEY",
            "clientSecret",
            "password2",
        ] {
            assert!(classify_secret_name(name).is_some_and(|found| found.strength != NameStrength::Weak), "{name}");
        }
        for name in [
            "password_file",
            "tokens",
            "max_tokens",
            "key",
            "public_key",
            "passwordless",
            "next_token",
            "session.id",
            "author",
            "",
        ] {
            assert_eq!(classify_secret_name(name), None, "{name}");
        }
        assert!(classify_secret_name("access_token").is_some_and(|found| found.strength == NameStrength::Weak));
    }

    #[test]
    fn references_types_and_masks_are_no_passwords() {
        for value in ["hunter2", "correct horse battery staple", "S3cr3t!", "password123", "p@ss"] {
            assert!(looks_like_password(value), "{value}");
        }
        for value in [
            "${DB_PASSWORD}",
            "$PASSWORD",
            "<SECRET:password:1>",
            "string",
            "********",
            "settings.db.password",
            "your_password",
        ] {
            assert!(!looks_like_password(value), "{value}");
        }
        assert!(!looks_like_password("The password must have at least eight characters"));
    }
}
