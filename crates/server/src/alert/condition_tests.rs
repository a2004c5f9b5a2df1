//! Conditions, read and written again.

use proptest::prelude::*;

use super::*;
use crate::alert::LatencyPercentile;

const EVALUATORS: [AlertableEvaluator<'_>; 3] = [
    AlertableEvaluator { name: "thought_to_tool", worst: 0.0, best: 1.0, gives_only_flags: false },
    AlertableEvaluator { name: "query_to_thought", worst: 0.0, best: 1.0, gives_only_flags: false },
    AlertableEvaluator { name: "helpful", worst: 1.0, best: 5.0, gives_only_flags: false },
];

fn thought_to_tool() -> AlertMetric {
    AlertMetric::Evaluator { name: "thought_to_tool".to_owned(), worst: 0.0, best: 1.0, gives_only_flags: false }
}

fn read(text: &str) -> AlertCondition {
    AlertCondition::parse(text, &EVALUATORS).expect("a condition")
}

fn refused(text: &str) -> String {
    let error = AlertCondition::parse(text, &EVALUATORS).expect_err("no condition").to_string();
    assert!(!error.contains('\n'), "{error}");
    error
}

#[test]
fn reads_every_form() {
    let condition = read("thought_to_tool < 0.8 over 1h, at least 30 steps");
    assert_eq!(condition.subject, thought_to_tool());
    assert_eq!(condition.bar, Some(AlertThreshold { comparison: ThresholdComparison::Less, threshold: 0.8 }));
    assert_eq!((condition.window.as_secs(), condition.min_sample_count()), (3_600, 30));

    for (text, written) in [
        ("failure_rate>5% over 15m", "failure_rate > 0.05 over 15m"),
        ("  error_rate  >=  10 %  over 60m ,at least 1 trajectory", "error_rate >= 0.1 over 1h, at least 1 trajectory"),
        ("cost_per_hour > $5 over 1h", "cost_per_hour > $5 over 1h"),
        ("cost_per_hour > 0.5 over 1h", "cost_per_hour > $0.5 over 1h"),
        ("latency_p95 > 500ms over 90s", "latency_p95 > 0.5s over 90s"),
        ("latency_p50 <= 2m over 7d, at least 5", "latency_p50 <= 120s over 7d, at least 5"),
        ("helpful <= 3.50 over 1h", "helpful <= 3.5 over 1h"),
        ("unseen_tool OVER 7d, At Least 3 steps", "unseen_tool over 7d, at least 3 steps"),
    ] {
        let condition = read(text);
        assert_eq!(condition.to_string(), written);
        assert_eq!(read(written), condition);
    }
    assert_eq!(read("latency_p99 > 1s over 1h").subject, AlertMetric::Latency(LatencyPercentile::P99));
}

#[test]
fn little_data_is_none_but_no_cost_is_a_cost() {
    assert_eq!(read("error_rate > 0 over 1h").min_sample_count(), 1);
    assert_eq!(read("cost_per_hour > 1 over 1h").min_sample_count(), 0);
}

#[test]
fn says_what_is_wrong_and_what_would_be_right() {
    let texts = [
        "",
        "< 0.8 over 1h",
        "though_to_tool < 0.8 over 1h",
        "latency_p96 > 3s over 1h",
        "speed < 0.8 over 1h",
        "error_rate over 1h",
        "error_rate = 0.1 over 1h",
        "error_rate => 0.1 over 1h",
        "error_rate != 0.1 over 1h",
        "unseen_tool > 0 over 7d",
        "error_rate > 10 over 1h",
        "error_rate > $1 over 1h",
        "latency_p95 > 30 over 1h",
        "cost_per_hour > 5% over 1h",
        "error_rate > 100% over 1h",
        "thought_to_tool <= 1 over 1h",
        "thought_to_tool < 3 over 1h",
        "helpful < 7 over 1h",
        "helpful < 80% over 1h",
        "helpful < 1 over 1h",
        "helpful <= 5 over 1h",
        "latency_p50 < 0s over 1h",
        "error_rate > 0.1",
        "error_rate > 0.1 over",
        "error_rate > 0.1 over 1h30m",
        "error_rate > 0.1 over 1h, 30 trajectories",
        "error_rate > 0.1 over 1h, at least",
        "error_rate > 0.1 over 1h, at least 0",
        "error_rate > 0.1 over 1h, at least +3",
        "error_rate > 0.1 over 1h, at least 3 apples",
        "error_rate > 0.1 over 1h, at least 3 steps",
        "cost_per_hour > $1 over 1h, at least 4 trajectories",
        "thought_to_tool < 0.8 over 1h, at least 3 questions",
        "error_rate\n> x\u{1b}[31m over 1h",
    ];
    let messages = texts.map(|text| format!("{text:?}\n    {}", refused(text)));
    assert!(messages.iter().all(|message| !message.contains('\u{1b}')), "{messages:?}");
    insta::assert_snapshot!(messages.join("\n"));
}

#[test]
fn every_example_is_right() {
    for text in
        ["thought_to_tool", "helpful", "failure_rate", "error_rate", "cost_per_hour", "latency_p90", "unseen_tool"]
    {
        let subject = AlertMetric::from_name(text, &EVALUATORS).expect("a subject");
        assert_eq!(read(&subject.example_condition()).subject, subject);
    }
    read(FALLBACK_CONDITION_EXAMPLE);
}

fn condition() -> impl Strategy<Value = AlertCondition> {
    let subject = prop_oneof![
        Just(thought_to_tool()),
        Just(AlertMetric::Evaluator { name: "helpful".to_owned(), worst: 1.0, best: 5.0, gives_only_flags: false }),
        Just(AlertMetric::FailureRate),
        Just(AlertMetric::CostPerHour),
        Just(AlertMetric::Latency(LatencyPercentile::P90)),
        Just(AlertMetric::UnseenTool),
    ];
    let comparison = prop::sample::select(ThresholdComparison::ALL.as_slice());
    let min_sample = prop::option::of((1u64.., any::<bool>()));
    (subject, comparison, 0.000_001f64..0.999_999, 1.0f64..1e9, 1u64..31_000_000, min_sample).prop_map(
        |(subject, comparison, share, factor, window_s, min_sample)| {
            let (low, high) = subject.value_range();
            let threshold = if high.is_finite() { low + share * (high - low) } else { share * factor };
            let bar = (subject != AlertMetric::UnseenTool).then_some(AlertThreshold { comparison, threshold });
            let unit = subject.units().first().copied();
            let min_sample = min_sample.zip(unit);
            let min_sample =
                min_sample.map(|((count, named), unit)| MinSampleSize { count, unit: named.then_some(unit) });
            AlertCondition { subject, bar, window: Duration::from_secs(window_s), min_sample }
        },
    )
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn what_is_written_is_read_the_same(condition in condition()) {
        prop_assert_eq!(AlertCondition::parse(&condition.to_string(), &EVALUATORS), Ok(condition));
    }

    #[test]
    fn any_text_is_survived(text in ".*", words in prop::collection::vec("(error_rate|over|at|least|[<>=,$%. ]|[0-9]{1,25}|[smhd]|\\PC)", 0..12)) {
        for text in [text.clone(), words.concat(), words.join(" "), format!("error_rate > {text}"), format!("unseen_tool over {text}")] {
            if let Err(error) = AlertCondition::parse(&text, &EVALUATORS) {
                prop_assert!(!error.to_string().contains('\n'));
            }
        }
    }
}

#[test]
fn a_value_is_told_from_the_threshold_that_it_misses() {
    let condition = read("thought_to_tool < 0.95 over 1h");
    assert_eq!(condition.format_measured_value(0.7125), "0.713");
    assert_eq!(condition.format_measured_value(320.0 / 337.0), "0.94955");
    assert_eq!(condition.format_measured_value(0.95), "0.950");
    let condition = read("failure_rate > 5% over 1h");
    assert_eq!([0.05004, 0.1].map(|value| condition.format_measured_value(value)), ["5.0040%", "10.0%"]);
}
