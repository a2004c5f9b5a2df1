//! The schemas of the documentation are those that the code generates, and no change of the code breaks programs that were
//! written for an earlier one. `GRADUS_BLESS=1` writes them anew, if nothing was removed, renamed or retyped.

#![allow(clippy::unwrap_used, reason = "tests fail by panicking")]

mod compatibility;

use std::fs;
use std::path::{Path, PathBuf};

use gradus_core::coverage::SourceCoverage;
use gradus_core::trajectory::Trajectory;
use gradus_dataset::{DatasetItem, ItemTrial};
use gradus_eval::calibration::CalibrationFile;
use gradus_eval::outcome::ExportedOutcome;
use gradus_eval::report::EvaluationSummary;
use gradus_report::compare::VersionComparison;
use serde_json::{Value as Json, json};

use compatibility::{SchemaUse, break_each_field, find_breaking_changes};

/// Each format: the file of its schema in `docs`, who reads it, and the schema that the code generates now.
fn list_formats() -> Vec<(&'static str, SchemaUse, schemars::Schema)> {
    use SchemaUse::{Read, Written};
    vec![
        ("schemas/calibration", Written, schemars::schema_for!(CalibrationFile)),
        ("schemas/comparison", Written, schemars::schema_for!(VersionComparison)),
        ("schemas/coverage", Written, schemars::schema_for!(SourceCoverage)),
        ("schemas/outcome", Written, schemars::schema_for!(ExportedOutcome<'_>)),
        ("schemas/summary", Written, schemars::schema_for!(EvaluationSummary)),
        ("schemas/trajectory", Written, schemars::schema_for!(Trajectory)),
        ("schemas/trial", Written, schemars::schema_for!(ItemTrial)),
        // The file itself is written by a test of gradus-dataset.
        ("reference/dataset", Read, schemars::schema_for!(DatasetItem)),
    ]
}

fn repository() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

fn read_schema(path: &Path) -> Option<Json> {
    fs::read_to_string(path).ok().map(|text| serde_json::from_str(&text).unwrap())
}

#[test]
fn the_formats_are_described_by_their_schemas() {
    for (name, usage, schema) in list_formats() {
        let path = repository().join(format!("docs/{name}.schema.json"));
        let text = serde_json::to_string_pretty(&schema).unwrap() + "\n";
        let schema = serde_json::to_value(&schema).unwrap();
        if let Some(committed) = read_schema(&path) {
            let broken = find_breaking_changes(&committed, &schema, usage);
            assert!(broken.is_empty(), "{name}: programs that read it would break: {broken:#?}");
        }
        if std::env::var_os("GRADUS_BLESS").is_some() {
            fs::write(&path, &text).unwrap();
        }
        let committed = fs::read_to_string(&path).unwrap_or_default();
        assert_eq!(committed, text, "run `GRADUS_BLESS=1 cargo test -p gradus --test schema` and commit the file");
    }
}

/// Copies of the schemas of earlier versions, which nothing writes anew.
#[test]
fn programs_for_earlier_versions_still_work() {
    let mut compared = 0;
    for version in fs::read_dir(repository().join("fixtures/upgrade")).unwrap() {
        let version = version.unwrap().path();
        for (name, usage, schema) in list_formats() {
            let file = name.rsplit('/').next().unwrap();
            let Some(before) = read_schema(&version.join(format!("schemas/{file}.schema.json"))) else { continue };
            let broken = find_breaking_changes(&before, &serde_json::to_value(&schema).unwrap(), usage);
            assert!(broken.is_empty(), "{name} since {}: {broken:#?}", version.display());
            compared += 1;
        }
    }
    assert!(compared >= 3, "{compared} schemas were compared");
}

/// A check that finds nothing proves nothing: every field of every format, removed, renamed and retyped, is found.
#[test]
fn every_broken_field_is_found() {
    for (name, usage, schema) in list_formats() {
        let schema = serde_json::to_value(&schema).unwrap();
        assert_eq!(find_breaking_changes(&schema, &schema, usage), Vec::<String>::new(), "{name}");
        let broken = break_each_field(&schema);
        assert!(broken.len() > 10, "{name}");
        for (change, copy) in broken {
            assert!(!find_breaking_changes(&schema, &copy, usage).is_empty(), "{name}: {change} was not found");
        }
    }
}

#[test]
fn additions_break_nothing() {
    let before = json!({"type": "object", "properties": {"label": {"enum": ["right"], "type": "string"}}, "required": ["label"]});
    let after = json!({"type": "object", "required": ["label", "score"],
        "properties": {"label": {"enum": ["right", "wrong"], "type": "string"}, "score": {"type": "number"}}});
    assert_eq!(find_breaking_changes(&before, &after, SchemaUse::Written), Vec::<String>::new());
    assert_eq!(find_breaking_changes(&before, &after, SchemaUse::Read), [".score: required now"]);
    assert_eq!(
        find_breaking_changes(&after, &before, SchemaUse::Written),
        [".label: value \"wrong\" removed", ".score: removed"]
    );
    let optional = json!({"type": "object", "properties": {"label": {"enum": ["right"], "type": ["string", "null"]}}});
    assert_eq!(
        find_breaking_changes(&before, &optional, SchemaUse::Written),
        [".label: type {\"string\"} became {\"null\", \"string\"}", ".label: may be absent now"]
    );
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
