//! The committed JSON Schemas are those the code generates. `GRADUS_BLESS=1` writes it anew.

#![allow(clippy::unwrap_used, reason = "tests fail by panicking")]

use std::fs;
use std::path::Path;

use gradus_core::trajectory::Trajectory;
use gradus_eval::calibration::CalibrationFile;
use gradus_eval::outcome::ExportedOutcome;
use gradus_eval::report::EvaluationSummary;
use serde_json::Value as Json;

#[test]
fn the_formats_are_described_by_their_schemas() {
    let schemas = [
        ("calibration", schemars::schema_for!(CalibrationFile)),
        ("trajectory", schemars::schema_for!(Trajectory)),
        ("outcome", schemars::schema_for!(ExportedOutcome<'_>)),
        ("summary", schemars::schema_for!(EvaluationSummary)),
    ];
    for (name, schema) in schemas {
        let path = Path::new(env!("CARGO_MANIFEST_DIR")).join(format!("../../docs/schemas/{name}.schema.json"));
        let schema = serde_json::to_string_pretty(&schema).unwrap() + "\n";
        if std::env::var_os("GRADUS_BLESS").is_some() {
            fs::write(&path, &schema).unwrap();
        }
        let committed = fs::read_to_string(&path).unwrap_or_default();
        assert_eq!(committed, schema, "run `GRADUS_BLESS=1 cargo test -p gradus --test schema` and commit the file");
    }
}

/// The promised names of an outcome, and that there are no scores where there is no verdict.
#[test]
fn an_outcome_has_the_promised_names() {
    let schema = serde_json::to_value(schemars::schema_for!(ExportedOutcome<'_>)).unwrap();
    let names = [
        "run_id",
        "trajectory_id",
        "step_index",
        "evaluator",
        "outcome",
        "label",
        "score",
        "explanation",
        "evidence",
        "reason",
        "judge",
        "rubric_hash",
        "tokens",
        "cost_usd",
        "cached",
        "trace_id",
        "span_ids",
    ];
    let missing: Vec<_> = names.iter().filter(|name| schema["properties"].get(**name).is_none()).collect();
    assert!(missing.is_empty(), "{missing:?}");
    let kinds = schema["$defs"]["OutcomeKind"].to_string();
    assert!(["scored", "not_applicable", "failed"].iter().all(|kind| kinds.contains(kind)), "{kinds}");
}

/// Tools are built on these names: they may be added to, never changed.
#[test]
fn the_promised_names_are_there() {
    let line = serde_json::to_value(Trajectory { steps: vec![Default::default()], ..Default::default() }).unwrap();
    let names = [
        "trajectory_id",
        "trace_ids",
        "session_id",
        "project",
        "agent",
        "model",
        "query",
        "final_answer",
        "steps",
        "tools",
        "tokens",
        "defects",
    ];
    let missing: Vec<_> = names.iter().filter(|name| line.get(**name).is_none()).collect();
    assert!(missing.is_empty(), "{missing:?}");
    let step: &Json = &line["steps"][0];
    let names = [
        "index",
        "thought",
        "tool",
        "tool_call_id",
        "arguments",
        "arguments_raw",
        "observation",
        "is_error",
        "parallel_with_previous",
        "span_ids",
        "start",
        "end",
    ];
    let missing: Vec<_> = names.iter().filter(|name| step.get(**name).is_none()).collect();
    assert!(missing.is_empty(), "{missing:?}");
    assert!(line["tokens"].get("prompt").is_some() && line["tokens"].get("completion").is_some());
}
