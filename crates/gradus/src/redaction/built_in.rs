//! The built-in patterns. They err on the side of taking out too much, but not so far that prose disappears.
//!
//! Texts are often JSON, once or twice escaped: no pattern may rely on a word boundary in front, as in `\nghp_...` the
//! `n` stands there; and where a secret has an `@` or a `/`, their escaped forms count, too.

/// A built-in pattern; several can share a name.
pub(super) struct BuiltIn {
    pub(super) name: &'static str,
    pub(super) pattern: &'static str,
    pub(super) check: Check,
}

/// What a match has to pass besides the pattern.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Check {
    None,
    /// There is a digit in it: words have none, keys do.
    Digit,
    /// There is the number of a payment card in it.
    Card,
}

pub(super) const BUILT_IN: [BuiltIn; 10] = [
    // The at sign as it is, in JSON, in an address of the web, and in HTML. Addresses that run into each other are one.
    BuiltIn {
        name: "emails",
        pattern: r"(?:[A-Za-z0-9._%+'\u{C0}-\u{24F}-]|\\u00[0-9A-Fa-f]{2})+(?:(?:@|\\+u0040|%40|&#(?:64|[xX]40);)(?:[A-Za-z0-9\u{C0}-\u{24F}-]+\.)+[A-Za-z]{2,})+",
        check: Check::None,
    },
    BuiltIn {
        name: "github_tokens",
        pattern: r"gh[pousr]_[A-Za-z0-9]{30,}|github_pat_[A-Za-z0-9_]{22,}",
        check: Check::None,
    },
    // Model providers, chat, payment, source code and packages: those whose keys have a prefix.
    BuiltIn {
        name: "api_keys",
        pattern: r"AIza[A-Za-z0-9_-]{35}|xox[abeoprs]-[A-Za-z0-9-]{10,}|xapp-[A-Za-z0-9-]{20,}|[rs]k_(?:live|test)_[A-Za-z0-9]{16,}|hf_[A-Za-z0-9]{30,}|gsk_[A-Za-z0-9]{40,}|xai-[A-Za-z0-9]{40,}|glpat-[A-Za-z0-9_-]{20,}|npm_[A-Za-z0-9]{36}|SG\.[A-Za-z0-9_-]{16,}\.[A-Za-z0-9_-]{16,}|hooks\.slack\.com\\*/services(?:\\*/[A-Za-z0-9]+)+",
        check: Check::None,
    },
    // A short prefix, which is also the end of words: `risk-assessment-...`.
    BuiltIn {
        name: "api_keys",
        pattern: r"(?:^|[^A-Za-z0-9_-]|\\[nrtbf])(?<secret>sk-[A-Za-z0-9_-]{20,})",
        check: Check::Digit,
    },
    BuiltIn {
        name: "bearer_tokens",
        pattern: r"(?i)bearer(?:\s|\\+[nrt]|%20|\+)+(?<secret>(?:[a-z0-9._~+/=-]|\\+/){16,})",
        check: Check::Digit,
    },
    // JSON web tokens, wherever they stand.
    BuiltIn {
        name: "bearer_tokens",
        pattern: r"eyJ[A-Za-z0-9_-]{8,}\.eyJ[A-Za-z0-9_-]{8,}\.[A-Za-z0-9_-]*",
        check: Check::None,
    },
    BuiltIn { name: "aws_keys", pattern: r"A(?:KIA|SIA|BIA|CCA)[A-Z0-9]{16}\b", check: Check::None },
    BuiltIn {
        name: "aws_keys",
        pattern: r#"(?i)(?:secret_?(?:access_?)?key|session_?token)["'\s:=\\]{1,12}(?<secret>(?:[a-z0-9+/=]|\\+/){40,})"#,
        check: Check::None,
    },
    // To its end, or as far as it goes where a recorder has cut it.
    BuiltIn {
        name: "private_keys",
        pattern: r"-----BEGIN (?:[A-Z0-9]+ )*PRIVATE KEY(?: BLOCK)?-----(?:[A-Za-z0-9+/=\s\\:,.()-]*?-----END (?:[A-Z0-9]+ )*PRIVATE KEY(?: BLOCK)?-----|[A-Za-z0-9+/=\s\\:,.()-]*)",
        check: Check::None,
    },
    // The first digit leaves out nanoseconds since 1970, which traces are full of.
    BuiltIn {
        name: "credit_cards",
        pattern: r"(?:^|[^A-Za-z0-9._]|\\[nrtbf])(?<secret>[2-6][0-9](?:[ -]?[0-9]){11,})",
        check: Check::Card,
    },
];

/// Every name once.
pub(super) fn names() -> String {
    let mut names: Vec<&str> = BUILT_IN.iter().map(|pattern| pattern.name).collect();
    names.dedup();
    names.join(", ")
}
