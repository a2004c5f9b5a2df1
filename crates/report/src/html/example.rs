//! Runs for tests to print: an ordinary one, one without anything, and one whose every string means harm.

use std::collections::BTreeMap;

use gradus_eval::interval::ConfidenceInterval;
use gradus_eval::outcome::{OutcomeKind, TokenCount};
use gradus_eval::report::{
    CostSummary, EvaluationSummary, EvaluatorCost, FindingVerdict, GateResult, GateVerdict, MetricResult, ReasonCount,
    ReportFinding, ToolUse,
};

pub(crate) const JUDGE: &str = "openai/gpt-4.1-mini";

/// Forty support conversations of a travel agent, judged by a model.
pub(crate) fn ordinary() -> (EvaluationSummary, Vec<GateResult>) {
    let metrics = vec![
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
            ..metric("call_validity", "Call validity", (0.925, 0.984), (216, 224), (0, 0), ["valid", "invalid"])
        },
    ];
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
        tools: tools(),
        cost: cost(),
        reasons: reasons(),
        findings: findings(),
        shortened: 7,
    };
    (summary, gates())
}

/// A run that was stopped before anything was judged.
pub(crate) fn empty() -> EvaluationSummary {
    EvaluationSummary {
        run_id: "2026-03-02-1010-a1b2".to_owned(),
        complete: false,
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
        tools: Vec::new(),
        cost: CostSummary::default(),
        reasons: Vec::new(),
        findings: Vec::new(),
        shortened: 0,
    }
}

/// The ordinary run with this in place of every string.
pub(crate) fn filled_with(text: &str) -> (EvaluationSummary, Vec<GateResult>) {
    fn fill(value: &mut serde_json::Value, text: &str) {
        match value {
            // The only string that is ours.
            serde_json::Value::String(old) if matches!(old.as_str(), "failed" | "not_applicable") => {}
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
        value: Some(f64::from(right) / f64::from(judged)),
        interval: Some(ConfidenceInterval { low, high }),
        is_share: true,
        numerator: f64::from(right),
        denominator: u64::from(judged),
        failed,
        not_applicable,
        labels: BTreeMap::from([(good.to_owned(), u64::from(right)), (bad.to_owned(), u64::from(judged - right))]),
    }
}

fn gates() -> Vec<GateResult> {
    let gate = |gate: &str, verdict, value, interval: Option<(f64, f64)>, explanation: &str| GateResult {
        gate: gate.to_owned(),
        metric: gate.split(' ').next().unwrap_or_default().to_owned(),
        bar: gate.split(' ').next_back().and_then(|bar| bar.parse().ok()).unwrap_or_default(),
        is_share: !gate.starts_with("cost"),
        verdict,
        value: Some(value),
        interval: interval.map(|(low, high)| ConfidenceInterval { low, high }),
        explanation: explanation.to_owned(),
    };
    let unsure = "it is met, but the interval holds the bar; more trajectories would tell";
    vec![
        gate("thought_to_tool >= 0.85", GateVerdict::Inconclusive, 185.0 / 212.0, Some((0.805, 0.924)), unsure),
        gate("call_validity >= 0.9", GateVerdict::Pass, 216.0 / 224.0, Some((0.925, 0.984)), "met"),
        gate("combined >= 0.85", GateVerdict::Fail, 148.0 / 206.0, Some((0.63, 0.80)), "missed"),
        gate("cost <= 1", GateVerdict::Pass, 0.2113, None, "met"),
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
