//! An endpoint that fails in every way that real ones do: all questions end, with the right reason, once.

use std::collections::HashMap;
use std::sync::Mutex;
use std::time::{Duration, Instant};

use gradus_test_endpoint::Answer;

use crate::lab::{Lab, case_of, endpoint, eval};

/// What happens to a case: these pass after a while, those of `LASTING` never do.
const PASSING: [&str; 9] =
    ["none", "429", "429 storm", "500", "truncated", "slow-loris", "wrong JSON", "reset", "closed"];
const LASTING: [(&str, &str); 5] = [
    ("500 for ever", "HTTP 500: overloaded (tried 3 times)"),
    ("400", "HTTP 400: no such thing"),
    ("garbage for ever", "not a model's answer"),
    ("slow-loris for ever", "no answer within 0.5 s (tried 3 times)"),
    ("no label for ever", "the judge gave no label (asked 3 times)"),
];

#[test]
fn every_question_ends_as_it_should_whatever_the_endpoint_does() {
    const CASES: usize = 280;
    let lab = Lab::with_cases(CASES);
    let attempts: Mutex<HashMap<usize, u32>> = Mutex::new(HashMap::new());
    let storm_until: Mutex<Option<Instant>> = Mutex::new(None);
    let endpoint = endpoint(move |incoming| {
        let case = case_of(incoming);
        let attempt = {
            let mut attempts = attempts.lock().unwrap();
            let attempt = attempts.entry(case).or_default();
            *attempt += 1;
            *attempt
        };
        let kind = fate(case);
        let is_first = attempt == 1;
        let busy = || Answer::status(429, "{\"error\":{\"message\":\"slow down\"}}").with_header("retry-after", "0.2");
        match kind {
            "429" if is_first => busy(),
            "429 storm" => {
                // Everybody of this kind is refused for a while, from the first of them on.
                let mut until = storm_until.lock().unwrap();
                let end = *until.get_or_insert_with(|| Instant::now() + Duration::from_millis(700));
                if Instant::now() < end { busy() } else { incoming.verdict("correct") }
            }
            "500" if is_first => Answer::status(500, "oops"),
            "truncated" if is_first => Answer::Truncated,
            "slow-loris" if is_first => Answer::SlowLoris,
            "wrong JSON" if is_first => Answer::ok("{\"choices\": \"no\"}".to_owned()),
            "reset" if is_first => Answer::Reset,
            "closed" if is_first => Answer::Closed,
            "500 for ever" => Answer::status(500, "{\"error\":{\"message\":\"overloaded\"}}"),
            "400" => Answer::status(400, "{\"error\":{\"message\":\"no such thing\"}}"),
            "garbage for ever" => Answer::ok("<html>login</html>".to_owned()),
            "slow-loris for ever" => Answer::SlowLoris,
            "no label for ever" => {
                Answer::ok("{\"choices\":[{\"message\":{\"content\":\"Fine, I think.\"}}]}".to_owned())
            }
            _ => incoming.verdict("correct"),
        }
    });
    let arguments = eval(&["--retries", "2", "--timeout", "0.5", "--concurrency", "40"]);
    lab.run_at(&endpoint, &arguments).exits_with(0);
    let lines = lab.lines("out.jsonl");
    assert_eq!(lines.len(), CASES, "none lost, none doubled");
    for (number, line) in lines.iter().enumerate() {
        assert_eq!(line["trajectory_id"], format!("case-{number}"));
        let kind = fate(number);
        match LASTING.iter().find(|(lasting, _)| *lasting == kind) {
            Some((_, reason)) => {
                assert_eq!(line["outcome"], "failed", "{kind}: {line}");
                assert!(line["reason"].as_str().unwrap().starts_with(reason), "{kind}: {line}");
                assert!(line["score"].is_null());
            }
            None => {
                assert_eq!((&line["outcome"], &line["label"]), (&"scored".into(), &"correct".into()), "{kind}: {line}")
            }
        }
        if kind == "400" {
            assert_eq!(line["calls"], 1, "asking again cannot help");
        }
    }
}

/// Those that fail for ever end last, one behind the other: so many that a run takes the endpoint for dead would make what is
/// seen here a matter of luck.
const ALL_KINDS: usize = 126;

fn fate(case: usize) -> &'static str {
    let kinds = PASSING.len() + if case < ALL_KINDS { LASTING.len() } else { 0 };
    match case % kinds {
        kind if kind < PASSING.len() => PASSING[kind],
        kind => LASTING[kind - PASSING.len()].0,
    }
}

/// All calls wait while the endpoint asks for it, not only the one that was told.
#[test]
fn a_rate_limit_holds_for_all_calls() {
    let lab = Lab::with_cases(120);
    let times: &'static Mutex<Vec<Instant>> = Box::leak(Box::default());
    let endpoint = endpoint(move |incoming| {
        let mut times = times.lock().unwrap();
        times.push(Instant::now());
        if incoming.number == 30 {
            return Answer::status(429, "{}").with_header("retry-after", "1");
        }
        incoming.verdict("correct").after(Duration::from_millis(5))
    });
    lab.run_at(&endpoint, &eval(&["--concurrency", "8"])).exits_with(0);
    let times = times.lock().unwrap();
    assert_eq!(times.len(), 121);
    let longest = times.windows(2).map(|pair| pair[1] - pair[0]).max().unwrap();
    assert!(longest >= Duration::from_millis(900), "nobody asked for a second: {longest:?}");
}

/// An endpoint that says how much it still takes is not asked for more.
#[test]
fn an_allowance_is_not_overdrawn() {
    let lab = Lab::with_cases(30);
    let window: &'static Mutex<(Option<Instant>, u32)> = Box::leak(Box::default());
    let endpoint = endpoint(move |incoming| {
        // Ten requests in half a second.
        let mut window = window.lock().unwrap();
        let now = Instant::now();
        if window.0.is_none_or(|start| now - start >= Duration::from_millis(500)) {
            *window = (Some(now), 0);
        }
        window.1 += 1;
        if window.1 > 10 {
            return Answer::status(429, "{}").with_header("retry-after", "0.5");
        }
        let reset = Duration::from_millis(500).saturating_sub(now - window.0.unwrap());
        incoming
            .verdict("correct")
            .with_header("x-ratelimit-remaining-requests", (10 - window.1).to_string())
            .with_header("x-ratelimit-reset-requests", format!("{}ms", reset.as_millis() + 1))
    });
    lab.run_at(&endpoint, &eval(&["--concurrency", "1"])).exits_with(0);
    assert_eq!(endpoint.received(), 30, "never once refused");
}
