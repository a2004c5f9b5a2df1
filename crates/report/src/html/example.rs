//! Example runs for output tests: an ordinary one, an empty one, and one whose every string is hostile.

use std::collections::BTreeMap;

use gradus_eval::evaluator::OUTCOME;
use gradus_eval::outcome::{OutcomeKind, TokenCount};
use gradus_eval::report::{
    AgentCost, CorrectedMetric, CostSummary, EvaluationSummary, EvaluatorCost, FailureExample, FailureGroup,
    FindingVerdict, FlaggedCounts, GateResult, GateVerdict, MetricCalibration, MetricResult, ReasonCount,
    ReportFinding, ToolUse, UnpricedModel,
};
use gradus_stats::calibration::ShareEstimator;
use gradus_stats::interval::ConfidenceInterval;

pub(crate) const JUDGE: &str = "openai/gpt-4.1-mini";

/// Forty support conversations of a travel agent, judged by a model.
pub(crate) fn ordinary() -> (EvaluationSummary, Vec<GateResult>) {
    let mut metrics = vec![
        metric("thought_to_tool", "Thought to tool", (0.805, 0.924), (185, 212), (9, 3), ["correct", "incorrect"]),
        metric("query_to_thought", "Query to thought", (0.708, 0.866), (171, 215), (6, 3), ["relevant", "irrelevant"]),
        metric(
            "sequence_optimality",
            "Sequence optimality",
            (0.472, 0.782),
            (25, 39),
            (1, 0),
            ["optimal", "suboptimal"],
        ),
        MetricResult {
            judge: "rules".to_owned(),
            calibration: None,
            ..metric("call_validity", "Call validity", (0.925, 0.984), (216, 224), (0, 0), ["valid", "invalid"])
        },
    ];
    metrics[0].calibration = Some(MetricCalibration::Corrected(CorrectedMetric {
        value: 0.712,
        interval: ConfidenceInterval { low: 0.601, high: 0.803 },
        estimator: ShareEstimator::PostStratified,
        labelled_cases: 50,
        labelled_trajectories: 31,
    }));
    let mut combined = metric("combined", "Combined (both correct)", (0.63, 0.80), (148, 206), (12, 6), ["", ""]);
    let mut right = metric("trajectories_right", "Trajectories all right", (0.30, 0.63), (16, 35), (5, 0), ["", ""]);
    combined.labels.clear();
    right.labels.clear();
    let summary = EvaluationSummary {
        run_id: "2026-03-02-0941-k7qd".to_owned(),
        complete: true,
        stopped_because: None,
        judge: JUDGE.to_owned(),
        started: "2026-03-02T09:41:07Z".to_owned(),
        ended: Some("2026-03-02T09:46:52Z".to_owned()),
        sources: vec!["traces/travel/2026-02.jsonl".to_owned(), "traces/travel/2026-03.jsonl.zst".to_owned()],
        trajectories: 40,
        steps: 224,
        metrics,
        combined: Some(combined),
        trajectories_right: Some(right),
        early_gates: Vec::new(),
        flagged: FlaggedCounts { trajectories: 21, steps: 58 },
        tools: tools(),
        cost: cost(),
        agent_cost: agent_cost(),
        reasons: reasons(),
        failure_groups: failure_groups(),
        omitted_failure_groups: 0,
        findings: findings(),
        shortened: 7,
        panel: None,
    };
    (summary, gates())
}

/// The same forty conversations, judged by rules, which abstain from most questions.
pub(crate) fn by_rules() -> EvaluationSummary {
    let (ordinary, _) = ordinary();
    let by_rules = |name: &str, title: &str, judge: &str, counts: (u32, u32), abstained, not_applicable| MetricResult {
        judge: judge.to_owned(),
        abstained,
        labels: BTreeMap::new(),
        calibration: None,
        ..metric(name, title, (0.61, 0.98), counts, (0, not_applicable), ["", ""])
    };
    let outcome = MetricResult {
        of_steps: false,
        labels: [("answered", 34), ("gave_up", 3), ("crashed", 2), ("no_answer", 1)]
            .map(|(label, count)| (label.to_owned(), count))
            .into(),
        ..by_rules(OUTCOME, "Outcome", "rules", (34, 37), 3, 0)
    };
    let undecided = |name: &str, title: &str, abstained, not_applicable| MetricResult {
        value: None,
        interval: None,
        ..by_rules(name, title, "offline", (0, 0), abstained, not_applicable)
    };
    let reason = |evaluator: &str, outcome, reason: &str, count| ReasonCount {
        evaluator: evaluator.to_owned(),
        outcome,
        reason: reason.to_owned(),
        count,
    };
    EvaluationSummary {
        judge: "offline".to_owned(),
        metrics: vec![
            outcome,
            by_rules("thought_to_tool", "Thought to tool", "offline", (0, 4), 202, 18),
            undecided("query_to_thought", "Query to thought", 206, 18),
            by_rules("sequence_optimality", "Sequence optimality", "offline", (2, 6), 34, 0),
            by_rules("request_to_tool", "Request to tool", "offline", (1, 1), 17, 206),
            by_rules("call_validity", "Call validity", "rules", (216, 224), 0, 0),
        ],
        combined: Some(undecided("combined", "Combined (whole step correct)", 224, 0)),
        trajectories_right: Some(by_rules("trajectories_right", "Trajectories all right", "offline", (2, 2), 38, 0)),
        flagged: FlaggedCounts { trajectories: 11, steps: 12 },
        reasons: vec![
            reason("query_to_thought", OutcomeKind::Abstained, "no rule with hard evidence fired", 206),
            reason("request_to_tool", OutcomeKind::NotApplicable, "the step has a thought", 206),
            reason("thought_to_tool", OutcomeKind::Abstained, "the thought names no <tool>", 202),
            reason("thought_to_tool", OutcomeKind::NotApplicable, "the step has no thought", 18),
        ],
        cost: CostSummary::default(),
        failure_groups: Vec::new(),
        findings: Vec::new(),
        shortened: 0,
        ..ordinary
    }
}

/// A run that was stopped before anything was judged.
pub(crate) fn empty() -> EvaluationSummary {
    EvaluationSummary {
        run_id: "2026-03-02-1010-a1b2".to_owned(),
        complete: false,
        early_gates: Vec::new(),
        stopped_because: Some("interrupted".to_owned()),
        judge: "offline".to_owned(),
        started: "2026-03-02T10:10:00Z".to_owned(),
        ended: None,
        sources: Vec::new(),
        trajectories: 0,
        steps: 0,
        metrics: Vec::new(),
        combined: None,
        trajectories_right: None,
        flagged: FlaggedCounts::default(),
        tools: Vec::new(),
        cost: CostSummary::default(),
        agent_cost: AgentCost::default(),
        reasons: Vec::new(),
        failure_groups: Vec::new(),
        omitted_failure_groups: 0,
        findings: Vec::new(),
        shortened: 0,
        panel: None,
    }
}

/// Strings of a summary that are enum values, not content.
const OWN_WORDS: [&str; 6] = ["failed", "not_applicable", "abstained", "corrected", "uncalibrated", "post_stratified"];

/// The ordinary run with this in place of every string.
pub(crate) fn filled_with(text: &str) -> (EvaluationSummary, Vec<GateResult>) {
    fn fill(value: &mut serde_json::Value, text: &str) {
        match value {
            // Names of variants are ours.
            serde_json::Value::String(old) if OWN_WORDS.contains(&old.as_str()) => {}
            serde_json::Value::String(old) => text.clone_into(old),
            serde_json::Value::Array(values) => values.iter_mut().for_each(|value| fill(value, text)),
            serde_json::Value::Object(members) => {
                if let Some(serde_json::Value::Object(labels)) = members.get_mut("labels") {
                    *labels = [(text.to_owned(), 7.into())].into_iter().collect();
                }
                members.values_mut().for_each(|value| fill(value, text));
            }
            _ => {}
        }
    }
    let (summary, gates) = ordinary();
    let mut json =
        serde_json::to_value(EvaluationSummary { complete: false, stopped_because: Some(String::new()), ..summary })
            .expect("JSON");
    fill(&mut json, text);
    let gates = gates
        .into_iter()
        .map(|gate| GateResult { gate: text.to_owned(), explanation: text.to_owned(), ..gate })
        .collect();
    (serde_json::from_value(json).expect("a summary"), gates)
}

fn metric(
    name: &str,
    title: &str,
    (low, high): (f64, f64),
    (right, judged): (u32, u32),
    (failed, not_applicable): (u64, u64),
    [good, bad]: [&str; 2],
) -> MetricResult {
    MetricResult {
        name: name.to_owned(),
        title: title.to_owned(),
        judge: JUDGE.to_owned(),
        of_steps: !matches!(name, "sequence_optimality" | "trajectories_right"),
        value: Some(f64::from(right) / f64::from(judged)),
        interval: Some(ConfidenceInterval { low, high }),
        is_share: true,
        numerator: f64::from(right),
        denominator: u64::from(judged),
        failed,
        abstained: 0,
        not_applicable,
        labels: BTreeMap::from([(good.to_owned(), u64::from(right)), (bad.to_owned(), u64::from(judged - right))]),
        calibration: Some(MetricCalibration::Uncalibrated),
    }
}

/// Two groups that occur several times, and three reasons that occur once.
fn failure_groups() -> Vec<FailureGroup> {
    let group = |evaluator: &str, tool: Option<&str>, rule: Option<&str>, reason: &str, count: u64| FailureGroup {
        key: format!("{:016x}", reason.len()),
        evaluator: evaluator.to_owned(),
        tool: tool.map(str::to_owned),
        rule: rule.map(str::to_owned),
        label: "incorrect".to_owned(),
        reason: reason.to_owned(),
        count,
        trajectories: count.min(6),
        share: count.min(6) as f64 / 40.0,
        examples: vec![FailureExample {
            trajectory_id: format!("4bf92f3577b34da6a3ce929d0e0e473{count}"),
            trace_id: Some("4bf92f3577b34da6a3ce929d0e0e4736".to_owned()),
            step_index: tool.map(|_| 2),
            request: Some("Can I still move my Lisbon flight to Friday?".to_owned()),
        }],
    };
    let search = Some("search_flights");
    vec![
        group("call_validity", search, Some("call.schema"), "The call does not fit <text>", 8),
        group("sequence_optimality", None, None, "Step <number> repeats step <number>", 3),
        group("thought_to_tool", search, None, "The booking was needed first", 1),
        group("thought_to_tool", search, None, "The date <date> is in the past", 1),
        group("thought_to_tool", search, None, "The thought is about a hotel", 1),
    ]
}

fn agent_cost() -> AgentCost {
    AgentCost {
        usd: Some(0.42),
        recorded_runs: 0,
        estimated_runs: 38,
        unpriced_runs: 2,
        unmeasured_runs: 0,
        tokens: TokenCount { prompt: 120_000, completion: 9_000, cached_prompt: 40_000 },
        unpriced_models: vec![UnpricedModel { model: "model x".to_owned(), runs: 2 }],
    }
}

fn gates() -> Vec<GateResult> {
    let gate = |gate: &str, verdict, value, interval: Option<(f64, f64)>, explanation: &str| GateResult {
        gate: gate.to_owned(),
        metric: gate.split(' ').next().unwrap_or_default().to_owned(),
        bar: gate.split(' ').next_back().and_then(|bar| bar.parse().ok()),
        is_share: !gate.starts_with("cost"),
        verdict,
        value: Some(value),
        interval: interval.map(|(low, high)| ConfidenceInterval { low, high }),
        count: 212,
        is_certain: !explanation.contains("contains the bar"),
        more_runs: explanation.contains("more runs").then_some(61),
        raw_value: None,
        is_uncalibrated: false,
        explanation: explanation.to_owned(),
    };
    let unsure = "met, but the interval contains the bar; about 61 more runs would decide";
    vec![
        gate("thought_to_tool >= 0.85", GateVerdict::Pass, 185.0 / 212.0, Some((0.805, 0.924)), unsure),
        gate("call_validity >= 0.9", GateVerdict::Pass, 216.0 / 224.0, Some((0.925, 0.984)), "met"),
        gate("combined >= 0.85", GateVerdict::Fail, 148.0 / 206.0, Some((0.63, 0.80)), "missed"),
        gate("cost <= 1", GateVerdict::Incomplete, 0.2113, None, "not decided: the budget is spent; so far it is met"),
    ]
}

fn tools() -> Vec<ToolUse> {
    [
        ("search_flights", 71, 3, 69, 64),
        ("get_booking", 48, 0, 47, 46),
        ("search_hotels", 37, 2, 33, 27),
        ("change_booking", 29, 6, 27, 19),
        ("get_weather_forecast_for_destination", 18, 1, 16, 11),
        ("send_email", 14, 0, 14, 13),
        ("convert_currency", 7, 0, 6, 5),
    ]
    .map(|(tool, uses, errors, judged, right)| ToolUse { tool: tool.to_owned(), uses, errors, judged, right })
    .to_vec()
}

fn cost() -> CostSummary {
    let part = |evaluator: &str, calls, prompt, completion, cached_prompt, usd, from_cache| EvaluatorCost {
        evaluator: evaluator.to_owned(),
        judge: if calls == 0 { "rules" } else { JUDGE }.to_owned(),
        calls,
        tokens: TokenCount { prompt, completion, cached_prompt },
        usd: Some(usd),
        from_cache,
    };
    CostSummary {
        usd_unknown: None,
        calls: 419,
        tokens: TokenCount { prompt: 398_214, completion: 38_902, cached_prompt: 121_344 },
        usd: Some(0.2113),
        from_cache: 68,
        by_evaluator: vec![
            part("thought_to_tool", 190, 176_310, 16_733, 62_208, 0.0921, 34),
            part("query_to_thought", 189, 141_882, 15_911, 49_920, 0.0788, 34),
            part("sequence_optimality", 40, 80_022, 6_258, 9_216, 0.0404, 0),
            part("call_validity", 0, 0, 0, 0, 0.0, 0),
        ],
    }
}

fn reasons() -> Vec<ReasonCount> {
    [
        ("thought_to_tool", OutcomeKind::Failed, "the judge gave no label that the rubric knows, after 3 tries", 6),
        ("query_to_thought", OutcomeKind::Failed, "the endpoint answered 529 (overloaded), after 5 tries", 6),
        ("thought_to_tool", OutcomeKind::NotApplicable, "the step has no thought", 3),
        ("query_to_thought", OutcomeKind::NotApplicable, "the step has no thought", 3),
        ("thought_to_tool", OutcomeKind::Failed, "the judge's answer was cut off at 1,024 tokens", 3),
        ("sequence_optimality", OutcomeKind::Failed, "the judge declined to answer", 1),
    ]
    .map(|(evaluator, outcome, reason, count)| ReasonCount {
        evaluator: evaluator.to_owned(),
        outcome,
        reason: reason.to_owned(),
        count,
    })
    .to_vec()
}

fn findings() -> Vec<ReportFinding> {
    let verdict = |evaluator: &str, label: &str, explanation: &str, evidence: &[&str]| FindingVerdict {
        evaluator: evaluator.to_owned(),
        label: label.to_owned(),
        explanation: explanation.to_owned(),
        evidence: evidence.iter().map(|&piece| piece.to_owned()).collect(),
    };
    let changed = ReportFinding {
        trajectory_id: "4bf92f3577b34da6a3ce929d0e0e4736".to_owned(),
        step_index: Some(3),
        query: Some("Can you tell me whether I can still move my Lisbon flight to Friday, and what it would cost? Please do not change anything yet.".to_owned()),
        thought: Some("The customer wants to fly on Friday instead. I will change the booking to the Friday flight.".to_owned()),
        tool: Some("change_booking".to_owned()),
        arguments: Some(r#"{"booking":"TP-88213","new_flight":{"number":"TP 573","date":"2026-03-06"},"passengers":["A. Moreau","L. Moreau"],"notify":true,"max_fee_eur":120.00}"#.to_owned()),
        verdicts: vec![
            verdict("query_to_thought", "irrelevant", "The customer asked for the price and said that nothing is to be changed yet. The thought plans to change the booking.", &["Please do not change anything yet.", "I will change the booking to the Friday flight."]),
            verdict("thought_to_tool", "incorrect", "A quote was needed. change_booking changes the booking at once; quote_change was on offer and has no side effects.", &["\"notify\":true"]),
        ],
    };
    let whole = ReportFinding {
        trajectory_id: "0af7651916cd43dd8448eb211c80319c".to_owned(),
        step_index: None,
        query: Some("Find me a hotel in Porto under 90 euros for two nights.".to_owned()),
        thought: None,
        tool: None,
        arguments: None,
        verdicts: vec![verdict(
            "sequence_optimality",
            "suboptimal",
            "search_hotels is called four times with the same arguments; one call was enough.",
            &["steps 2, 3, 4 and 5 are the same"],
        )],
    };
    let broken = ReportFinding {
        trajectory_id: "d4cda95b652f4a1592b449d5929fda1b".to_owned(),
        step_index: Some(1),
        query: Some("מה מזג האוויר בליסבון מחר?".to_owned()),
        thought: Some("The user asks about the weather in Lisbon.".to_owned()),
        tool: Some("get_weather_forecast_for_destination".to_owned()),
        arguments: Some("{\"city\": \"Lisbon\", \"day\": tomorrow}".to_owned()),
        verdicts: vec![verdict("call_validity", "invalid", "The arguments are no JSON.", &[])],
    };
    vec![changed, whole, broken]
}
