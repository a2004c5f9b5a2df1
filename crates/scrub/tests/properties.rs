//! Properties of scrubbing that must hold for any text.

use gradus_scrub::{LeakDetector, ScrubSettings, Scrubber};
use proptest::prelude::*;
use serde_json::{Value as Json, json};

/// Pieces that rules react to, so that random texts have findings that touch, overlap and nest.
const PIECES: [&str; 44] = [
    "password",
    "=",
    ": ",
    "\"",
    "\\\"",
    "'",
    "\n",
    "\\n",
    " ",
    "token",
    "api_key",
    "secret",
    "hunter2",
    "ghp_",
    "sk-ant-api03-",
    "x7Kq2mWv9RtYb3NcLz8PdFh5Jg1Sa4Ue6Xo0",
    "AKIAQ3EGRZ7JXMWK5N2T",
    "eyJhbGciOiJIUzI1NiJ9",
    ".",
    "eyJzdWIiOiIxMjM0NTY3ODkwIn0",
    "ann@example.org",
    "@",
    "/home/",
    "ann",
    "/Users/",
    "C:\\Users\\",
    "+49 151 2345 6789",
    "415-555-0132",
    "4111 1111 1111 1111",
    "DE89370400440532013000",
    "10.20.30.40",
    "fe80::1ff:fe23:4567:890a",
    "-----BEGIN PRIVATE KEY-----",
    "-----END PRIVATE KEY-----",
    "<SECRET:jwt:1>",
    "<EMAIL:1>",
    "<USER:2>",
    "https://",
    "user:",
    "Authorization: Bearer ",
    "--",
    "é",
    "{",
    "}",
];

fn any_text() -> impl Strategy<Value = String> {
    let piece = prop_oneof![
        6 => prop::sample::select(&PIECES[..]).prop_map(str::to_owned),
        1 => "[ -~]{0,12}",
        1 => "\\PC{0,6}",
        1 => "[A-Za-z0-9]{16,40}",
    ];
    prop::collection::vec(piece, 0..24).prop_map(|pieces| pieces.concat())
}

fn any_json() -> impl Strategy<Value = Json> {
    let leaf =
        prop_oneof![any_text().prop_map(Json::String), any::<i64>().prop_map(|number| json!(number)), Just(Json::Null)];
    leaf.prop_recursive(3, 24, 4, |inner| {
        let name = prop_oneof![
            prop::sample::select(&["password", "name", "value", "phone", "token", "x"][..]).prop_map(str::to_owned),
            any_text()
        ];
        prop_oneof![
            prop::collection::vec(inner.clone(), 0..4).prop_map(Json::Array),
            prop::collection::vec((name, inner.clone()), 0..4)
                .prop_map(|fields| Json::Object(fields.into_iter().collect())),
            // JSON in a string.
            inner.prop_map(|value| Json::String(value.to_string())),
        ]
    })
}

fn scrubber() -> Scrubber {
    Scrubber::new(ScrubSettings::default())
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn scrubbing_twice_changes_nothing(text in any_text()) {
        let mut first = scrubber();
        let once = first.scrub_text(&text).into_owned();
        prop_assert_eq!(first.scrub_text(&once), once.as_str(), "the same scrubber, text {:?}", text);
        prop_assert_eq!(scrubber().scrub_text(&once), once.as_str(), "another scrubber, text {:?}", text);
    }

    #[test]
    fn scrubbing_json_twice_changes_nothing(value in any_json()) {
        let mut first = scrubber();
        let mut once = value.clone();
        first.scrub_json(&mut once);
        let mut twice = once.clone();
        first.scrub_json(&mut twice);
        prop_assert_eq!(&twice, &once, "value {}", value);
    }

    #[test]
    fn known_secrets_never_survive(before in any_text(), after in any_text()) {
        let token = "ghp_x7Kq2mWv9RtYb3NcLz8PdFh5Jg1Sa4Ue6Xo0";
        let text = format!("{before} {token} {after}");
        prop_assert!(!scrubber().scrub_text(&text).contains(token), "{}", text);
    }

    #[test]
    fn the_detector_takes_any_text(text in any_text()) {
        let detector = LeakDetector::new([("MY_SECRET".to_owned(), "hunter2-and-more".to_owned())]);
        if let Some(leak) = detector.find_leak(&text) {
            prop_assert!(text.is_char_boundary(leak.offset));
        }
    }
}
