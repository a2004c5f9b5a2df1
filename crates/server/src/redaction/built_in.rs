//! The built-in redaction patterns. They remove too much rather than too little, but prose must stay readable.
//!
//! Texts are often JSON, escaped once or twice. So no pattern may rely on a word boundary in front: in `\nghp_...` the
//! letter `n` precedes the secret. Where a secret contains `@` or `/`, their escaped forms count as well.

/// A built-in pattern. Several patterns may share a name, and a pattern may have several names: a user who selects all
/// credentials also gets patterns that are added later.
pub(super) struct BuiltInPattern {
    pub(super) names: &'static [&'static str],
    pub(super) pattern: &'static str,
    pub(super) check: RedactionMatchCheck,
}

/// A check that a match must pass in addition to the pattern, for patterns that would otherwise match prose.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum RedactionMatchCheck {
    None,
    /// It contains a digit: keys do, words do not.
    Digit,
    /// It contains the number of a payment card.
    Card,
    /// It decodes to `user:password` (HTTP basic authentication).
    BasicCredentials,
}

const fn define_pattern(
    names: &'static [&'static str],
    pattern: &'static str,
    check: RedactionMatchCheck,
) -> BuiltInPattern {
    BuiltInPattern { names, pattern, check }
}

/// Formats are those that the providers document, with their usual prefixes and lengths. Minimum lengths keep
/// placeholders such as `ghp_xxx` readable.
pub(super) const BUILT_IN_PATTERNS: [BuiltInPattern; 19] = [
    // The at sign as it is, in JSON, in an address of the web, and in HTML. Addresses that run into each other are one.
    define_pattern(
        &["emails"],
        r"(?:[A-Za-z0-9._%+'\u{C0}-\u{24F}-]|\\u00[0-9A-Fa-f]{2})+(?:(?:@|\\+u0040|%40|&#(?:64|[xX]40);)(?:[A-Za-z0-9\u{C0}-\u{24F}-]+\.)+[A-Za-z]{2,})+",
        RedactionMatchCheck::None,
    ),
    define_pattern(
        &["github_tokens"],
        r"gh[pousr]_[A-Za-z0-9]{30,}|github_pat_[A-Za-z0-9_]{22,}",
        RedactionMatchCheck::None,
    ),
    // Keys of Gradus.
    define_pattern(&["api_keys", "gradus_keys"], r"gradus_[0-9a-f]{64}", RedactionMatchCheck::None),
    // Model providers.
    define_pattern(
        &["api_keys"],
        r"AIza[A-Za-z0-9_-]{35}|ya29\.[A-Za-z0-9_-]{20,}|GOCSPX-[A-Za-z0-9_-]{24,}|hf_[A-Za-z0-9]{30,}|gsk_[A-Za-z0-9]{40,}|xai-[A-Za-z0-9]{40,}|pplx-[A-Za-z0-9]{40,}|r8_[A-Za-z0-9]{36,}|nvapi-[A-Za-z0-9_-]{40,}|lsv2_(?:pt|sk)_[0-9a-f]{32}_[0-9a-f]{8,}|dapi[0-9a-f]{32}",
        RedactionMatchCheck::None,
    ),
    // Chat, payment, mail.
    define_pattern(
        &["api_keys"],
        r"xox[abeoprs]-[A-Za-z0-9-]{10,}|xapp-[A-Za-z0-9-]{20,}|hooks\.slack\.com\\*/services(?:\\*/[A-Za-z0-9]+)+|discord(?:app)?\.com\\*/api\\*/webhooks\\*/[0-9]+\\*/[A-Za-z0-9_-]{40,}|[rs]k_(?:live|test)_[A-Za-z0-9]{16,}|whsec_[A-Za-z0-9+/=]{24,}|sq0[a-z]{3}-[A-Za-z0-9_-]{22,}|shp(?:at|ca|pa|ss)_[a-fA-F0-9]{32}|SG\.[A-Za-z0-9_-]{16,}\.[A-Za-z0-9_-]{16,}",
        RedactionMatchCheck::None,
    ),
    // Source code, packages, hosting, observation.
    define_pattern(
        &["api_keys"],
        r"gl(?:pat|ptt|dt|rt|cbt|oas|soat|ft|imt|agent)-[A-Za-z0-9_.-]{20,}|npm_[A-Za-z0-9]{36}|pypi-AgE[A-Za-z0-9_-]{50,}|dckr_(?:pat|oat)_[A-Za-z0-9_-]{20,}|do[opr]_v1_[a-f0-9]{64}|hv[sbr]\.[A-Za-z0-9_-]{24,}|atlasv1\.[A-Za-z0-9_-]{40,}|lin_api_[A-Za-z0-9]{32,}|ntn_[A-Za-z0-9]{40,}|glsa_[A-Za-z0-9]{32}_[0-9a-f]{8}|sntry[su]_[A-Za-z0-9+/=_-]{40,}|NRAK-[A-Z0-9]{27}|AGE-SECRET-KEY-1[0-9A-Z]{58}",
        RedactionMatchCheck::None,
    ),
    // A short prefix, which is also the end of words: `risk-assessment-...`.
    define_pattern(
        &["api_keys"],
        r"(?:^|[^A-Za-z0-9_-]|\\[nrtbf])(?<secret>sk-[A-Za-z0-9_-]{20,})",
        RedactionMatchCheck::Digit,
    ),
    // Azure's connection strings and signed addresses, and secrets that a field's name gives away.
    define_pattern(
        &["api_keys", "azure_keys"],
        r"(?i)(?:account|sharedaccess)key=(?<secret>(?:[a-z0-9+/=]|\\+/){20,})",
        RedactionMatchCheck::None,
    ),
    define_pattern(
        &["api_keys", "azure_keys"],
        r"[A-Za-z0-9_~.-]{3}[0-9]Q~[A-Za-z0-9_~.-]{31,34}",
        RedactionMatchCheck::None,
    ),
    define_pattern(
        &["api_keys"],
        r#"(?i)(?:api[_-]?key|client[_-]?secret)["'\s:=\\]{1,12}(?<secret>[a-z0-9_.+/=~-]{16,})"#,
        RedactionMatchCheck::Digit,
    ),
    define_pattern(
        &["bearer_tokens"],
        r"(?i)bearer(?:\s|\\+[nrt]|%20|\+)+(?<secret>(?:[a-z0-9._~+/=-]|\\+/){16,})",
        RedactionMatchCheck::Digit,
    ),
    // JSON web tokens, anywhere in a text.
    define_pattern(
        &["bearer_tokens"],
        r"eyJ[A-Za-z0-9_-]{8,}\.eyJ[A-Za-z0-9_-]{8,}\.[A-Za-z0-9_-]*",
        RedactionMatchCheck::None,
    ),
    define_pattern(
        &["bearer_tokens", "basic_auth"],
        r"(?i)basic(?:\s|\\+[nrt]|%20|\+)+(?<secret>(?:[a-z0-9+/_-]|\\+/){4,}={0,2})",
        RedactionMatchCheck::BasicCredentials,
    ),
    // `scheme://user:password@host`, and passwords and tokens in a query. A password may hold an at sign: it ends at
    // the last.
    define_pattern(
        &["bearer_tokens", "url_passwords"],
        r#"[A-Za-z][A-Za-z0-9+.-]{1,30}:(?:\\*/){2}[^\s/@:"'<>\\]*:(?<secret>[^\s/"'<>\\]+)@"#,
        RedactionMatchCheck::None,
    ),
    define_pattern(
        &["bearer_tokens", "url_passwords"],
        r#"(?i)(?:[?&;]|\\+u0026|&amp;)(?:password|passwd|pwd|access_token|auth_token|token|api[_-]?key|client_secret|secret|sig|signature|x-amz-signature)=(?<secret>[^\s&;"'<>\\#]{6,})"#,
        RedactionMatchCheck::None,
    ),
    define_pattern(&["aws_keys"], r"A(?:KIA|SIA|BIA|CCA)[A-Z0-9]{16}\b", RedactionMatchCheck::None),
    define_pattern(
        &["aws_keys"],
        r#"(?i)(?:secret_?(?:access_?)?key|session_?token)["'\s:=\\]{1,12}(?<secret>(?:[a-z0-9+/=]|\\+/){40,})"#,
        RedactionMatchCheck::None,
    ),
    // To its end marker, or to the end of the key if a recorder has truncated it.
    define_pattern(
        &["private_keys"],
        r"-----BEGIN (?:[A-Z0-9]+ )*PRIVATE KEY(?: BLOCK)?-----(?:[A-Za-z0-9+/=\s\\:,.()-]*?-----END (?:[A-Z0-9]+ )*PRIVATE KEY(?: BLOCK)?-----|[A-Za-z0-9+/=\s\\:,.()-]*)",
        RedactionMatchCheck::None,
    ),
    // The first digit leaves out nanoseconds since 1970, which traces are full of.
    define_pattern(
        &["credit_cards"],
        r"(?:^|[^A-Za-z0-9._]|\\[nrtbf])(?<secret>[2-6][0-9](?:[ -]?[0-9]){11,})",
        RedactionMatchCheck::Card,
    ),
];

/// Whether a text is `user:password` in base64 or base64url, with or without padding. A backslash is skipped, because
/// JSON may escape a slash.
pub(super) fn is_basic_credentials(text: &str) -> bool {
    let mut decoded = Vec::with_capacity(text.len());
    let (mut bits, mut count) = (0_u32, 0_u32);
    for byte in text.bytes() {
        let value = match byte {
            b'A'..=b'Z' => byte - b'A',
            b'a'..=b'z' => byte - b'a' + 26,
            b'0'..=b'9' => byte - b'0' + 52,
            b'+' | b'-' => 62,
            b'/' | b'_' => 63,
            b'\\' => continue,
            _ => break,
        };
        bits = bits << 6 | u32::from(value);
        count += 6;
        if count >= 8 {
            count -= 8;
            decoded.push((bits >> count) as u8);
        }
    }
    let is_text = std::str::from_utf8(&decoded).is_ok_and(|text| !text.chars().any(char::is_control));
    is_text && decoded.contains(&b':')
}

/// Joins all names for the error message, each once.
pub(super) fn join_pattern_names() -> String {
    let mut names: Vec<&str> = Vec::new();
    for name in BUILT_IN_PATTERNS.iter().flat_map(|pattern| pattern.names) {
        if !names.contains(name) {
            names.push(name);
        }
    }
    names.join(", ")
}
