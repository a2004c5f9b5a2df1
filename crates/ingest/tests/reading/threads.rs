//! However many threads read, what comes out is the same: trajectories, their order, and what could not be read.

use std::fs;
use std::io::Write;
use std::path::{Path, PathBuf};

use gradus_core::trajectory::Trajectory;
use gradus_ingest::{FilesOnly, InputSource, ReadSummary, RecordIntake, SourceLimits};

fn read(paths: &[PathBuf], limits: SourceLimits) -> (Vec<Trajectory>, ReadSummary) {
    let mut found = Vec::new();
    let mut sink = |_, trajectory| {
        found.push(trajectory);
        Ok(())
    };
    let mut intake = RecordIntake::new(limits, &mut sink);
    let file = |path: &PathBuf| InputSource::File { path: path.clone(), name: path.display().to_string() };
    let inputs: Vec<InputSource> = paths.iter().map(file).collect();
    gradus_ingest::read_files(&inputs, &FilesOnly, &mut intake, &mut |intake, read| match read {
        Ok(()) => {}
        Err(error) if error.is_unrecognised() => intake.skip_file(&error),
        Err(error) => intake.add_broken_file(&error.to_string()),
    });
    let summary = intake.finish().unwrap();
    (found, summary)
}

fn assert_same(paths: &[PathBuf], limits: SourceLimits, least: usize) {
    let (one, one_summary) = read(paths, SourceLimits { threads: 1, ..limits });
    let (several, several_summary) = read(paths, SourceLimits { threads: 4, ..limits });
    assert!(one.len() >= least, "{} trajectories", one.len());
    assert!(one == several, "the trajectories differ");
    let defects = |summary: &ReadSummary| format!("{:?} {:?}", summary.defects, summary.sources);
    assert_eq!(defects(&one_summary), defects(&several_summary));
    assert_eq!(one_summary.excluded_count, several_summary.excluded_count);
}

fn captures() -> Vec<PathBuf> {
    fn collect(folder: &Path, files: &mut Vec<PathBuf>) {
        for entry in fs::read_dir(folder).unwrap() {
            let path = entry.unwrap().path();
            match path.is_dir() {
                true => collect(&path, files),
                false => files.push(path),
            }
        }
    }
    let mut files = Vec::new();
    collect(&Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fixtures/captures"), &mut files);
    files.sort();
    files
}

#[test]
fn all_captures_at_once_are_the_same_with_any_number_of_threads() {
    let limits = SourceLimits::default();
    assert_same(&captures(), limits, 400);
    // Also when they are fetched from a file.
    assert_same(&captures(), SourceLimits { spool_memory: 1 << 20, ..limits }, 400);
}

/// One span of a ReAct trace on a line.
fn span_line(trace: usize, span: usize) -> String {
    let said = format!("Thought: it is number {trace}\nAction: look\nAction Input: {{\"number\": {trace}}}");
    let (kind, attributes) = match span {
        0 => ("AGENT", serde_json::json!([["input.value", format!("Look at {trace}.")], ["output.value", "done"]])),
        1 => (
            "LLM",
            serde_json::json!([
                ["llm.input_messages.0.message.role", "user"],
                ["llm.input_messages.0.message.content", format!("Look at {trace}.")],
                ["llm.output_messages.0.message.role", "assistant"],
                ["llm.output_messages.0.message.content", said],
            ]),
        ),
        _ => ("TOOL", serde_json::json!([["tool.name", "look"], ["output.value", "x".repeat(300)]])),
    };
    let mut listed = vec![serde_json::json!({"key": "openinference.span.kind", "value": {"stringValue": kind}})];
    for pair in attributes.as_array().unwrap() {
        listed.push(serde_json::json!({"key": pair[0], "value": {"stringValue": pair[1]}}));
    }
    let start = 1_700_000_000_000_000_000u64 + (trace * 10 + span) as u64 * 1_000_000;
    let mut span_json = serde_json::json!({
        "traceId": format!("{:032x}", trace + 1), "spanId": format!("{:016x}", span + 1), "name": kind,
        "startTimeUnixNano": start.to_string(), "endTimeUnixNano": (start + 500_000).to_string(),
        "attributes": listed, "status": {"code": 1},
    });
    if span > 0 {
        span_json["parentSpanId"] = format!("{:016x}", 1).into();
    }
    serde_json::json!({"resourceSpans": [{"scopeSpans": [{"spans": [span_json]}]}]}).to_string()
}

#[test]
fn lines_of_spans_are_the_same_with_any_number_of_threads() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("lines.jsonl");
    let mut file = fs::File::create(&path).unwrap();
    for trace in 0..1_200 {
        for span in 0..3 {
            writeln!(file, "{}", span_line(trace, span)).unwrap();
        }
        // What is broken, unknown or no span at all keeps its place among the others.
        match trace {
            500 => writeln!(file, "{{\"resourceSpans\": [{{\"scopeSpans\"").unwrap(),
            600 => writeln!(file, "{{\"role\": \"user\", \"content\": \"alone\"}}\n\n[1, 2]").unwrap(),
            700 => writeln!(file, "{{\"unknown\": true}}").unwrap(),
            _ => {}
        }
    }
    drop(file);
    assert!(fs::metadata(&path).unwrap().len() > 2 << 20);
    assert_same(&[path], SourceLimits::default(), 1_200);
}
