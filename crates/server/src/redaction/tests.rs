//! What is taken out, what stays, and what a configuration may say.

use proptest::prelude::*;

use super::*;

fn built_in(names: &[&str]) -> Redaction {
    let builtin = names.iter().map(|name| (*name).to_owned()).collect();
    let section = RedactSection { builtin, ..RedactSection::default() };
    Redaction::from_sections(&[section]).expect("built-in patterns")
}

fn everything() -> Redaction {
    let names = built_in::join_pattern_names();
    built_in(&names.split(", ").collect::<Vec<_>>())
}

fn own(name: &str, pattern: &str) -> RedactSection {
    RedactSection { name: Some(name.to_owned()), pattern: Some(pattern.to_owned()), ..RedactSection::default() }
}

fn refused(section: RedactSection) -> String {
    let error = Redaction::from_sections(&[section]).expect_err("a wrong table").to_string();
    assert!(!error.contains('\n'), "{error}");
    error
}

/// A secret put together here, so that scanners of source code are not alarmed.
fn secret(prefix: &str, length: usize) -> String {
    let letters: String = "aB3dE5gH7jK9mN1pQ2rS4tU6vW8xY0z".chars().cycle().take(length).collect();
    format!("{prefix}{letters}")
}

#[test]
fn emails_in_plain_and_in_escaped_text() {
    let redaction = built_in(&["emails"]);
    for (text, wanted) in [
        ("ask alice.b+c@mail.example.com, please", "ask [redacted:emails], please"),
        (r#"{"to":"bob\u0040example.com"}"#, r#"{"to":"[redacted:emails]"}"#),
        (r#""{\"to\":\"bob\\u0040example.com\"}""#, r#""{\"to\":\"[redacted:emails]\"}""#),
        (r"hi\nbob@example.com\nbye", r"hi\n[redacted:emails]\nbye"),
        (r"hi\\nbob@example.com\\nbye", r"hi\\n[redacted:emails]\\nbye"),
        (r"\u003cbob@example.com\u003e", r"[redacted:emails]\u003e"),
        (r"jos\u00e9@example.com", "[redacted:emails]"),
        ("https://h/?mail=bob%40example.com&x=1", "https://h/?mail=[redacted:emails]&x=1"),
        ("bob&#64;example.com", "[redacted:emails]"),
        ("josé@exämple.org; 请联系bob@example.com。", "[redacted:emails]; 请联系[redacted:emails]。"),
    ] {
        assert_eq!(redaction.apply(text).as_deref(), Some(wanted), "{text}");
    }
    for text in ["", "me @ home", "package@1.2.3", "@decorator", "a@b", "50% of 40 users"] {
        assert_eq!(redaction.apply(text), None, "{text}");
    }
}

#[test]
fn what_is_json_stays_json() {
    let redaction = everything();
    let key = secret("ghp_", 36);
    let pem = "-----BEGIN RSA PRIVATE KEY-----\nMIIEow\nIBAAKCAQEA==\n-----END RSA PRIVATE KEY-----\n";
    let cut = "-----BEGIN PRIVATE KEY-----\nMIIEow\n";
    let value = serde_json::json!({
        "a": format!("x\n{key}\t{key}\\"), "b": pem, "c": ["me@example.com\n", "\u{8}bob@example.com"],
        "d": format!("Authorization: Bearer {}\n\"", secret("", 40)), "e": cut, "f": "\n4111 1111 1111 1111",
    });
    let mut text = value.to_string();
    // As it is, and as a text inside JSON inside JSON.
    for depth in 0..3 {
        let redacted = redaction.apply(&text).expect("secrets");
        let mut read: serde_json::Value = serde_json::from_str(&redacted).expect(&redacted);
        for _ in 0..depth {
            read = serde_json::from_str(read.as_str().expect("a text")).expect(&redacted);
        }
        assert_eq!(read["a"], "x\n[redacted:github_tokens]\t[redacted:github_tokens]\\");
        assert_eq!(read["c"], serde_json::json!(["[redacted:emails]\n", "\u{8}[redacted:emails]"]));
        assert_eq!(read["f"], "\n[redacted:credit_cards]");
        for gone in [key.as_str(), "MIIE", "IBAAK", "4111", "example.com", "aB3dE5"] {
            assert!(!redacted.contains(gone), "{gone} in {redacted}");
        }
        text = serde_json::Value::String(text).to_string();
    }
}

#[test]
fn keys_and_tokens() {
    let redaction = everything();
    for (name, text) in [
        ("github_tokens", secret("ghs_", 36)),
        ("github_tokens", secret("github_pat_", 60)),
        ("api_keys", secret("sk-proj-", 40)),
        ("api_keys", secret("sk-ant-api03-", 60)),
        ("api_keys", secret("AIza", 35)),
        ("api_keys", secret("xoxb-", 30)),
        ("api_keys", secret("sk_live_", 24)),
        ("api_keys", secret("hf_", 34)),
        ("api_keys", format!("gradus_{}", "0af7651916cd43dd8448eb211c80319c".repeat(2))),
        ("api_keys", secret("GOCSPX-", 28)),
        ("api_keys", secret("glpat-", 20)),
        ("api_keys", secret("npm_", 36)),
        ("api_keys", secret("pypi-AgEIcHlwaS5vcmcC", 60)),
        ("api_keys", secret("dckr_pat_", 27)),
        ("api_keys", secret("pplx-", 48)),
        ("api_keys", format!("dapi{}", "0af7651916cd43dd8448eb211c80319c")),
        ("api_keys", secret("xapp-1-", 40)),
        ("api_keys", secret("whsec_", 32)),
        ("api_keys", secret("abc8Q~", 34)),
        ("api_keys", secret(r"hooks.slack.com\/services\/T0\/B0\/", 24)),
        ("aws_keys", format!("AKIA{}", "ABCDEFGH23456789")),
        ("bearer_tokens", format!("{}.{}.{}", secret("eyJ", 20), secret("eyJ", 30), secret("", 30))),
        ("private_keys", "-----BEGIN OPENSSH PRIVATE KEY-----\\nb3Bl\\n-----END OPENSSH PRIVATE KEY-----".to_owned()),
    ] {
        for (before, after) in [("", ""), ("see ", " there"), ("\\n", "\\n"), ("\"", "\"")] {
            let redacted = redaction.apply(&format!("{before}{text}{after}"));
            assert_eq!(redacted, Some(format!("{before}[redacted:{name}]{after}")), "{text}");
        }
    }
    let token = secret("", 20) + "/" + &secret("", 20);
    let escaped = token.replace('/', "\\/");
    assert_eq!(redaction.apply(&format!("bearer {token}.")).as_deref(), Some("bearer [redacted:bearer_tokens]"));
    assert_eq!(
        redaction.apply(&format!("Bearer%20{escaped}\"")).as_deref(),
        Some("Bearer%20[redacted:bearer_tokens]\"")
    );
    let aws = format!("{{\\\"SecretAccessKey\\\": \\\"{escaped}\\\"}}");
    assert_eq!(redaction.apply(&aws).as_deref(), Some("{\\\"SecretAccessKey\\\": \\\"[redacted:aws_keys]\\\"}"));
}

#[test]
fn credentials_that_words_announce() {
    let redaction = everything();
    for (text, wanted) in [
        ("Authorization: Basic dXNlcjpwYXNzd29yZA==", "Authorization: Basic [redacted:bearer_tokens]"),
        (r#"{"authorization":"basic dTpw"}"#, r#"{"authorization":"basic [redacted:bearer_tokens]"}"#),
        ("see postgres://app:hunter2@db:5432/x", "see postgres://app:[redacted:bearer_tokens]@db:5432/x"),
        ("amqp://:p@ss@queue", "amqp://:[redacted:bearer_tokens]@queue"),
        (r"http:\/\/me:secret\/@h", r"http:\/\/me:secret\/@h"),
        (r#"{"u":"https:\/\/me:pw@h\/"}"#, r#"{"u":"https:\/\/me:[redacted:bearer_tokens]@h\/"}"#),
        ("/db?user=me&password=hunter22&x=1", "/db?user=me&password=[redacted:bearer_tokens]&x=1"),
        ("https://b/c?sv=2024&sig=aB3dE5gH7%2Bj%3D", "https://b/c?sv=2024&sig=[redacted:bearer_tokens]"),
        (
            "AccountName=a;AccountKey=aB3dE5gH7jK9mN1pQ2rS4tU6vW8xY0z==;EndpointSuffix=x",
            "AccountName=a;AccountKey=[redacted:api_keys];EndpointSuffix=x",
        ),
        ("api-key: aB3dE5gH7jK9mN1pQ2rS", "api-key: [redacted:api_keys]"),
    ] {
        let redacted = redaction.apply(text);
        assert_eq!(redacted.as_deref().unwrap_or(text), wanted, "{text}");
    }
}

/// What a sender could put anywhere else than into a text.
#[test]
fn keys_numbers_bytes_and_unknown_fields_are_redacted() {
    use gradus_core::span::{AttributeValue, Span};
    let redaction = everything();
    let mut span = Span { name: "s".into(), ..Span::default() };
    let mut push = |key: &'static str, value: AttributeValue<'static>| span.attributes.0.push((key.into(), value));
    push("card", AttributeValue::Int(4_111_111_111_111_111));
    push("card_float", AttributeValue::Double(4_111_111_111_111_111.0));
    push("llm.token_count.prompt", AttributeValue::Int(4_111));
    push("user.bob@example.com", AttributeValue::Bool(true));
    push("session.id", AttributeValue::Str("x".into()));
    push("raw", AttributeValue::Bytes(b"\xff bob@example.com".to_vec().into()));
    let mut record = Vec::new();
    gradus_otlp::encode_span(&span, &mut record);
    // Field 900, a text; field 901, a message with a text in it; field 902, a number.
    let field = |number: u32, body: &[u8]| {
        let tag = number << 3 | 2;
        let mut bytes = vec![(tag & 0x7f) as u8 | 0x80, (tag >> 7) as u8, body.len() as u8];
        bytes.extend_from_slice(body);
        bytes
    };
    record.extend(field(900, b"bob@example.com"));
    record.extend(field(901, b"\x0a\x0fbob@example.com\xff"));
    record.extend(field(903, b"harmless"));
    let (limits, signal) = (gradus_otlp::RecordLimits::default(), gradus_otlp::TelemetrySignal::Span);
    let mut change = |kind, text: &str| redaction.apply_in_record(kind, text);
    let redacted =
        gradus_otlp::rewrite_texts(&record, signal, &limits, &mut change).expect("a record").expect("a change");
    let shown = String::from_utf8_lossy(&redacted);
    assert!(!shown.contains("bob") && shown.contains("harmless"), "{shown}");
    let read = gradus_otlp::decode_span(&redacted, &span.resource, "", &limits).expect("a span");
    let card = AttributeValue::Str("[redacted:credit_cards]".into());
    assert_eq!(read.attributes.get("card"), Some(&card));
    assert_eq!(read.attributes.get("card_float"), Some(&card));
    assert_eq!(read.attributes.get("llm.token_count.prompt"), Some(&AttributeValue::Int(4_111)));
    assert_eq!(read.attributes.get("session.id"), Some(&AttributeValue::Str("x".into())));
    assert_eq!(
        read.attributes.get("user.[redacted:emails]").or(read.attributes.get("[redacted:emails]")),
        Some(&AttributeValue::Bool(true))
    );
}

#[test]
fn names_of_conventions_stay() {
    let redaction =
        Redaction::from_sections(&[own("wide", "session|token|message|TOPSECRET|[0-9]{8}")]).expect("a table");
    let key = |text: &str| redaction.apply_in_record(gradus_otlp::TextKind::Key, text);
    for name in ["session.id", "llm.token_count.prompt", "llm.input_messages.0.message.content", "message"] {
        assert_eq!(key(name), None, "{name}");
    }
    for name in ["TOPSECRET", "TOPSECRET.id", "llm.metadata.12345678", "my session"] {
        assert!(key(name).is_some(), "{name}");
    }
}

#[test]
fn prose_and_other_numbers_stay() {
    let redaction = everything();
    for text in [
        "the bearer of acknowledgements-and-more",
        "a risk-assessment-framework-document-2024",
        "the sk-learn-and-other-packages-of-python",
        "trace 0af7651916cd43dd8448eb211c80319c at 1700000000000000000",
        "-----BEGIN CERTIFICATE-----\nMIIE\n-----END CERTIFICATE-----",
        "0.4111111111111111 id4111111111111111",
        "a basic understanding of basic functionality, Basic authentication, basic: yes",
        "the file at https://example.org:8080/a/b@c?page=2&sort=asc#top and mailto:x",
        "ratio 16:9 @home, 10:30@noon, std::string@v2, http://[::1]:4318/v1/traces",
        "550e8400-e29b-41d4-a716-446655440000 da39a3ee5e6b4b0d3255bfef95601890afd80709",
        "sha256:e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855",
        "data:image/png;base64,iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg==",
        "api_key = os.environ['OPENAI_API_KEY'], client_secret: str, api key: required",
        "token_count=1234567 max_tokens=1024&next_page_token=abcdefgh",
        "gradus_store gradus_eval::run gradus_core",
    ] {
        assert_eq!(redaction.apply(text), None, "{text}");
    }
}

#[test]
fn cards_among_other_numbers() {
    let redaction = built_in(&["credit_cards"]);
    for (text, wanted) in [
        ("card 1: 4111 1111 1111 1111 12/27, 123", "card 1: [redacted:credit_cards] 12/27, 123"),
        ("1 4111-1111-1111-1111", "1 [redacted:credit_cards]"),
        ("2024 3782 822463 10005", "2024 [redacted:credit_cards]"),
        (r"\n4111111111111111\n5555555555554444", r"\n[redacted:credit_cards]\n[redacted:credit_cards]"),
    ] {
        assert_eq!(redaction.apply(text).as_deref(), Some(wanted), "{text}");
    }
    assert_eq!(redaction.apply("4111 1111 1111 1112 and 6011-2024-0000-0000-1"), None);
}

#[test]
fn patterns_of_ones_own() {
    let mut replaced = own("orders", r"ORD-\d+");
    replaced.replacement = Some("$0<order>".to_owned());
    let redaction =
        Redaction::from_sections(&[replaced, own("passwords", r"password=(?<secret>\S+)")]).expect("tables");
    assert_eq!(
        redaction.apply("ORD-12 password=hunter2 ok").as_deref(),
        Some("$0<order> password=[redacted:passwords] ok")
    );
    assert_eq!(redaction.apply("nothing"), None);
    assert!(Redaction::from_sections(&[]).expect("no tables").is_empty());
}

#[test]
fn all_that_overlaps_is_taken_out() {
    let redaction =
        Redaction::from_sections(&[own("first", "abc"), own("second", "cde+"), own("third", "ab")]).expect("tables");
    assert_eq!(
        redaction.apply("xabcdeee abc cde").as_deref(),
        Some("x[redacted:first] [redacted:first] [redacted:second]")
    );
}

#[test]
fn records_are_redacted_in_their_bytes() {
    use gradus_core::span::{AttributeValue, Span};
    let mut span = Span { name: "mail bob@example.com".into(), ..Span::default() };
    span.attributes
        .0
        .push(("input".into(), AttributeValue::Array(vec![AttributeValue::Str("to bob@example.com".into())])));
    let mut record = Vec::new();
    gradus_otlp::encode_span(&span, &mut record);
    let (redaction, limits) = (built_in(&["emails"]), gradus_otlp::RecordLimits::default());
    let signal = gradus_otlp::TelemetrySignal::Span;
    let mut change = |kind, text: &str| redaction.apply_in_record(kind, text);
    let redacted = gradus_otlp::rewrite_texts(&record, signal, &limits, &mut change);
    let redacted = redacted.expect("a record").expect("a change");
    let read = gradus_otlp::decode_span(&redacted, &span.resource, "", &limits).expect("a span");
    assert_eq!(read.name, "mail [redacted:emails]");
    assert_eq!(
        read.attributes.get("input"),
        Some(&AttributeValue::Array(vec![AttributeValue::Str("to [redacted:emails]".into())]))
    );
    let again = gradus_otlp::rewrite_texts(&redacted, signal, &limits, &mut change);
    assert_eq!(again, Ok(None));
}

#[test]
fn wrong_tables_are_explained() {
    let with = |replacement: &str| RedactSection { replacement: Some(replacement.to_owned()), ..own("n", "x") };
    for (section, wanted) in [
        (RedactSection::default(), "neither or both"),
        (RedactSection { builtin: vec!["emails".to_owned()], ..own("n", "x") }, "neither or both"),
        (
            RedactSection { builtin: vec!["phones".to_owned()], ..RedactSection::default() },
            "there are emails, github_tokens, api_keys, gradus_keys",
        ),
        (own("a b", "x"), "is no name"),
        (own("n", "a(b"), "unclosed group"),
        (own("n", "(?<=a)b"), "look-around"),
        (own("n", r"\w{500}{500}"), "too large"),
        (own("n", "x*"), "matches the empty text"),
        (with("a\"b"), "would break recorded JSON"),
        (with("a\nb"), "would break recorded JSON"),
    ] {
        let error = refused(section);
        assert!(error.contains(wanted), "{error}");
    }
    let unknown = toml::from_str::<RedactSection>("patern = \"x\"").expect_err("a wrong key");
    assert!(unknown.message().contains("patern"));
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, cases: 64, ..ProptestConfig::default() })]

    #[test]
    fn any_text_is_survived_and_nothing_is_left(text in ".*", parts in prop::collection::vec("(bob@example.com|\\\\|n|\"|4111111111111111| |\\\\u0040|é|[a-z])", 0..20)) {
        let redaction = everything();
        for text in [text, parts.concat()] {
            let redacted = redaction.apply(&text).unwrap_or_else(|| text.clone());
            prop_assert!(!redacted.contains("@example.com"), "{text} became {redacted}");
        }
    }
}
