//! Tests of gates: parsing, bars, and what decides.

use std::collections::BTreeMap;

use gradus_stats::interval::ConfidenceInterval;

use super::gate::*;
use super::gate_bar::{BaselineOffset, GateBar};
use super::gate_vocabulary::{GateVocabulary, TrialMetricNames};
use super::{EvaluationSummary, MetricResult};
use crate::run::EvaluatorRecord;

fn evaluator(name: &str, of_steps: bool, best: f64) -> EvaluatorRecord {
    EvaluatorRecord {
        name: name.to_owned(),
        title: String::new(),
        of_steps,
        labels: vec![("good".to_owned(), best), ("bad".to_owned(), 0.0)],
        rubric_hash: String::new(),
        phoenix_name: String::new(),
        judge: String::new(),
    }
}

fn vocabulary() -> GateVocabulary {
    let evaluators = [
        ("thought_to_tool", true, 1.0),
        ("query_to_thought", true, 1.0),
        ("outcome", false, 1.0),
        ("stars", false, 5.0),
    ];
    let evaluators = evaluators.map(|(name, of_steps, best)| evaluator(name, of_steps, best)).to_vec();
    let trials = TrialMetricNames {
        shares: vec!["pass".to_owned()],
        amounts: vec!["calls_ratio".to_owned()],
        tags: ["refund".to_owned()].into(),
    };
    GateVocabulary::new(evaluators, Some(trials))
}

fn parse(text: &str) -> Result<QualityGate, GateError> {
    QualityGate::parse(text, &vocabulary())
}

fn summary(value: f64, low: f64, high: f64) -> EvaluationSummary {
    let metric = MetricResult {
        name: "thought_to_tool".to_owned(),
        value: Some(value),
        interval: Some(ConfidenceInterval { low, high }),
        is_share: true,
        denominator: 90,
        failed: 10,
        ..MetricResult::default()
    };
    let labels = [("answered".to_owned(), 8), ("crashed".to_owned(), 2)].into();
    let outcome = MetricResult { name: "outcome".to_owned(), labels, ..MetricResult::default() };
    let json = serde_json::json!({
        "run_id": "", "complete": true, "stopped_because": null, "judge": "", "started": "", "ended": null,
        "sources": [], "trajectories": 30, "steps": 90, "metrics": [metric, outcome], "combined": null,
        "trajectories_right": null, "tools": [], "reasons": [], "findings": [], "shortened": 0,
        "cost": {"calls": 0, "tokens": {"prompt": 0, "completion": 0, "cached_prompt": 0}, "usd": 2.5,
            "from_cache": 0, "by_evaluator": []},
    });
    serde_json::from_value(json).expect("a summary")
}

fn check_on(text: &str, summary: &EvaluationSummary, basis: GateBasis) -> GateResult {
    let baseline = BTreeMap::from([("thought_to_tool".to_owned(), 0.9)]);
    let context = GateContext { summary, more_metrics: &[], baseline: &baseline, basis, allow_partial: false };
    parse(text).expect(text).check(&context)
}

fn check(text: &str, summary: &EvaluationSummary) -> GateVerdict {
    check_on(text, summary, GateBasis::Estimate).verdict
}

#[test]
fn reads_gates_as_people_write_them() {
    for text in ["thought_to_tool >= 0.85", "thought_to_tool>=85%", " thought_to_tool  >=  0.850 "] {
        assert_eq!(parse(text).expect(text).to_string(), "thought_to_tool >= 0.85");
    }
    assert_eq!(parse("cost < $5").expect("a gate").bar, GateBar::Value(5.0));
    for (text, shown) in [
        ("thought_to_tool >= baseline - 0.02", "thought_to_tool >= baseline - 0.02"),
        ("thought_to_tool>=baseline-2%", "thought_to_tool >= baseline - 0.02"),
        ("steps <= baseline + 1", "steps <= baseline + 1"),
        ("steps < baseline", "steps < baseline"),
        ("steps <= baseline + 10%", "steps <= baseline + 10%"),
        ("stars >= baseline-2.5%", "stars >= baseline - 2.5%"),
        ("steps{tag=refund} <= baseline", "steps{tag=refund} <= baseline"),
        ("pass{tag=refund} >= baseline - 2%", "pass{tag=refund} >= baseline - 0.02"),
        ("outcome.crashed <= 1%", "outcome.crashed <= 0.01"),
        ("thought_to_tool{tool=get_weather} >= 0.9", "thought_to_tool{tool=get_weather} >= 0.9"),
    ] {
        assert_eq!(parse(text).expect(text).to_string(), shown);
    }
    for text in [
        "",
        "thought_to_tool",
        "thought_to_tool = 1",
        "thought_to_tool >= x",
        "failed <=",
        "steps < baseline * 2",
        "steps < baseline \u{2013} 1",
    ] {
        assert!(matches!(parse(text), Err(GateError::Form(_))), "{text:?}");
    }
    for text in ["thought_to_tol > 1", "outcome. > 0", "outcome.craashed > 0"] {
        assert!(matches!(parse(text), Err(GateError::Metric { .. })), "{text}");
    }
    for text in ["thought_to_tool >= 85", "pass >= 85", "pass{tag=refund} >= 85", "thought_to_tool >= baseline - 2"] {
        let error = parse(text).expect_err(text);
        assert!(matches!(error, GateError::Bar { .. }) && error.to_string().contains("0.85 or 85%"), "{error}");
    }
    assert_eq!(parse("stars >= 4").expect("an own scale").bar, GateBar::Value(4.0));
    assert_eq!(parse("calls_ratio <= 1.5").expect("an amount").bar, GateBar::Value(1.5));
    assert!(matches!(parse("steps <= 10%"), Err(GateError::PercentOfAmount { .. })));
    assert!(matches!(parse("cost <= baseline"), Err(GateError::CostOfBaseline { .. })));
    let gate = parse("steps <= baseline").unwrap();
    assert!(matches!(gate.check_baseline(None), Err(GateError::NoBaseline { .. })));
    assert!(matches!(gate.check_baseline(Some(&BTreeMap::new())), Err(GateError::NotInBaseline { .. })));
    assert!(gate.check_baseline(Some(&BTreeMap::from([("steps".to_owned(), 2.0)]))).is_ok());
}

#[test]
fn gates_that_can_never_pass_are_refused() {
    for (text, why) in [
        ("steps{tool=x} > 0", "about whole runs"),
        ("outcome{tool=x} > 0", "about whole runs"),
        ("pass{tool=x} > 0", "about whole runs"),
        ("combined{tag=refund} > 0", "cannot be restricted"),
        ("outcome.crashed{tag=refund} > 0", "cannot be restricted"),
        ("thought_to_tool{tag=refnud} > 0", "no item has the tag \"refnud\"; there are refund"),
        ("trajectories_right > 0", "needs the evaluators thought_to_tool, query_to_thought, sequence_optimality"),
        ("thought_to_tool{tag=} > 0", "selects nothing"),
        ("thought_to_tool{size=3} > 0", "selects nothing"),
    ] {
        let error = parse(text).expect_err(text).to_string();
        assert!(error.contains(why), "{error}");
    }
    let without_trials = GateVocabulary::new(vec![evaluator("thought_to_tool", true, 1.0)], None);
    let error = QualityGate::parse("thought_to_tool{tag=x} > 0", &without_trials).expect_err("no tags").to_string();
    assert!(error.contains("this run has no tags"), "{error}");
}

#[test]
fn percent_of_an_amount_is_a_part_of_the_baseline() {
    assert_eq!(BaselineOffset::Part(0.1).apply(20.0), 22.0);
    assert_eq!(BaselineOffset::Difference(0.1).apply(20.0), 20.1);
    let GateBar::Baseline(offset) = parse("steps <= baseline + 10%").expect("a gate").bar else { panic!("relative") };
    assert_eq!(offset, BaselineOffset::Part(0.1));
    let GateBar::Baseline(offset) = parse("pass >= baseline - 2%").expect("a gate").bar else { panic!("relative") };
    assert_eq!(offset, BaselineOffset::Difference(-0.02));
}

#[test]
fn without_an_interval_the_lower_end_is_not_met() {
    let mut one_run = summary(0.9, 0.8, 0.95);
    one_run.metrics[0].interval = None;
    let gate = "thought_to_tool >= 0.85";
    assert_eq!(check_on(gate, &one_run, GateBasis::Estimate).verdict, GateVerdict::Pass);
    let lower = check_on(gate, &one_run, GateBasis::Lower);
    assert_eq!(lower.verdict, GateVerdict::Fail);
    assert!(lower.explanation.contains("it has no interval"), "{}", lower.explanation);
    let upper = check_on(gate, &one_run, GateBasis::Upper);
    assert_eq!(upper.verdict, GateVerdict::Pass);
    assert!(upper.explanation.contains("by the estimate"), "{}", upper.explanation);
    // A figure of the run itself is certain.
    let cost = check_on("cost <= 5", &one_run, GateBasis::Lower);
    assert_eq!(cost.verdict, GateVerdict::Pass);
    assert!(cost.explanation.contains("no estimate"), "{}", cost.explanation);
}

#[test]
fn the_estimate_decides_and_the_interval_tells_how_sure_that_is() {
    let gate = "thought_to_tool >= 0.85";
    assert_eq!(check(gate, &summary(0.9, 0.87, 0.93)), GateVerdict::Pass);
    assert_eq!(check(gate, &summary(0.7, 0.6, 0.8)), GateVerdict::Fail);
    let unsure = check_on(gate, &summary(0.9, 0.8, 0.95), GateBasis::Estimate);
    assert_eq!((unsure.verdict, unsure.is_certain), (GateVerdict::Pass, false));
    // The interval reaches 0.1 below the estimate and must reach 0.05: four times as many runs, times the ratio of
    // p (1 - p) at the bar and at the present end.
    assert_eq!(unsure.more_runs, Some(66));
    assert_eq!(unsure.explanation, "met, but the interval contains the bar; about 66 more runs would decide");
    // Wilson's interval of 30 right ones of 30; with 73 of 73 it begins at 0.95.
    let all_right = check_on("thought_to_tool >= 0.95", &summary(1.0, 0.8865, 1.0), GateBasis::Lower);
    assert_eq!(all_right.more_runs, Some(43));
    for (basis, value, verdict) in [
        (GateBasis::Lower, 0.9, GateVerdict::Fail),
        (GateBasis::Upper, 0.9, GateVerdict::Pass),
        (GateBasis::Upper, 0.83, GateVerdict::Pass),
        (GateBasis::Estimate, 0.83, GateVerdict::Fail),
    ] {
        let result = check_on(gate, &summary(value, 0.8, 0.95), basis);
        assert_eq!(result.verdict, verdict, "{basis:?} {value}: {}", result.explanation);
    }
    // For an upper bar the unfavourable end is the high one.
    assert_eq!(
        check_on("thought_to_tool <= 0.85", &summary(0.8, 0.7, 0.9), GateBasis::Lower).verdict,
        GateVerdict::Fail
    );
    let exact = check_on(gate, &summary(0.85, 0.8, 0.9), GateBasis::Estimate);
    assert_eq!((exact.verdict, exact.more_runs), (GateVerdict::Pass, None));
}

#[test]
fn other_numbers_and_baselines() {
    let any = summary(0.9, 0.8, 0.95);
    assert_eq!(check("failed <= 0.1", &any), GateVerdict::Pass);
    assert_eq!(check("failed <= 0.02", &any), GateVerdict::Fail);
    assert_eq!(check("cost <= 5", &any), GateVerdict::Pass);
    assert_eq!(check("combined >= 0", &any), GateVerdict::Fail, "nothing judged never passes");
    assert_eq!(check("outcome.crashed <= 0.2", &any), GateVerdict::Pass);
    assert_eq!(check("outcome.crashed <= 0.1", &any), GateVerdict::Fail);
    assert_eq!(check("outcome.no_answer <= 0", &any), GateVerdict::Pass, "none is a share of 0");
    assert_eq!(check("thought_to_tool >= baseline", &any), GateVerdict::Pass);
    assert_eq!(check("thought_to_tool > baseline", &any), GateVerdict::Fail);
    assert_eq!(check("thought_to_tool >= baseline - 0.02", &summary(0.879, 0.8, 0.9)), GateVerdict::Fail);
    assert_eq!(check("failed <= baseline", &any), GateVerdict::Fail, "the baseline has no such number");
    let mut abstained = any;
    abstained.metrics[0].abstained = 900;
    assert_eq!(check("failed <= 0.1", &abstained), GateVerdict::Pass, "an abstention is no failure");
    abstained.metrics[0] = MetricResult { value: None, interval: None, denominator: 0, ..abstained.metrics[0].clone() };
    assert_eq!(check("thought_to_tool >= 0", &abstained), GateVerdict::Fail, "an abstention is no verdict");
}

#[test]
fn a_run_that_ended_early_decides_nothing() {
    let mut partial = summary(0.9, 0.87, 0.93);
    (partial.complete, partial.stopped_because) = (false, Some("the budget is spent".to_owned()));
    let result = check_on("thought_to_tool >= 0.85", &partial, GateBasis::Estimate);
    assert_eq!(result.verdict, GateVerdict::Incomplete);
    assert_eq!(result.explanation, "not decided: the budget is spent; so far it is met");
    let baseline = BTreeMap::new();
    let context = GateContext {
        summary: &partial,
        more_metrics: &[],
        baseline: &baseline,
        basis: GateBasis::Estimate,
        allow_partial: true,
    };
    assert_eq!(parse("thought_to_tool >= 0.85").unwrap().check(&context).verdict, GateVerdict::Pass);
}

/// The mean of 15 runs with a price says nothing about the other 25.
#[test]
fn a_cost_that_is_known_in_part_does_not_pass() {
    let summary = summary(0.9, 0.8, 0.95);
    let cost = MetricResult {
        name: "agent_cost".to_owned(),
        value: Some(0.5),
        denominator: 15,
        failed: 25,
        ..MetricResult::default()
    };
    let check = |text: &str, failed: u64, allow_partial: bool| {
        let metrics = [MetricResult { failed, ..cost.clone() }];
        let baseline = BTreeMap::new();
        let basis = GateBasis::Estimate;
        let context =
            GateContext { summary: &summary, more_metrics: &metrics, baseline: &baseline, basis, allow_partial };
        let mut result = parse(text).unwrap().check(&context);
        super::explain_unpriced_runs(&mut result, &context);
        (result.verdict, result.explanation)
    };
    let (verdict, explanation) = check("agent_cost <= 1", 25, false);
    assert_eq!(verdict, GateVerdict::Incomplete);
    assert!(explanation.contains("25 of 40 runs have no known price"), "{explanation}");
    let (verdict, explanation) = check("agent_cost <= 1", 25, true);
    assert_eq!(verdict, GateVerdict::Pass);
    assert!(explanation.contains("25 of 40 runs"), "{explanation}");
    assert_eq!(check("agent_cost <= 0.1", 25, false).0, GateVerdict::Fail);
    let (verdict, explanation) = check("agent_cost <= 1", 0, false);
    assert_eq!((verdict, explanation.contains("price")), (GateVerdict::Pass, false));
}

#[test]
fn a_dataset_without_tags_is_named_as_that() {
    let trials = TrialMetricNames { shares: vec!["pass".to_owned()], ..TrialMetricNames::default() };
    let error = QualityGate::parse("pass{tag=q} >= 0.5", &GateVocabulary::new(Vec::new(), Some(trials)));
    assert!(error.unwrap_err().to_string().contains("this run has no tags"));
}
