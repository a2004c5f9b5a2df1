//! The `gradus` command as a user meets it: good input, bad input, no input.

#![allow(clippy::unwrap_used, clippy::print_stdout, reason = "tests fail by panicking")]

#[cfg(feature = "parquet")]
mod archive;
mod configuration;
mod help;
mod init;
#[path = "../place/mod.rs"]
mod place;
mod shell_files;

use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};

use serde_json::{Value as Json, json};

struct Ran {
    code: Option<i32>,
    out: String,
    err: String,
}

fn gradus(arguments: &[&str]) -> Ran {
    finished(command(arguments).output().unwrap())
}

fn gradus_with_input(arguments: &[&str], input: &[u8]) -> Ran {
    let mut child =
        command(arguments).stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    let mut stdin = child.stdin.take().unwrap();
    let input = input.to_vec();
    let writer = std::thread::spawn(move || stdin.write_all(&input));
    let ran = finished(child.wait_with_output().unwrap());
    let _ = writer.join().unwrap();
    ran
}

fn command(arguments: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_gradus"));
    command.args(arguments).env_remove("CLICOLOR_FORCE");
    command
}

fn finished(output: Output) -> Ran {
    let text = |bytes| String::from_utf8(bytes).unwrap();
    Ran { code: output.status.code(), out: text(output.stdout), err: text(output.stderr) }
}

fn lines(text: &str) -> Vec<Json> {
    text.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
}

fn fixture(path: &str) -> String {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fixtures/captures").join(path).display().to_string()
}

/// A file in a folder of its own that goes away with it.
struct TempFile {
    _folder: tempfile::TempDir,
    path: PathBuf,
}

impl TempFile {
    fn new(name: &str, content: impl AsRef<[u8]>) -> TempFile {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join(name);
        std::fs::write(&path, content).unwrap();
        TempFile { _folder: folder, path }
    }

    fn path(&self) -> &str {
        self.path.to_str().unwrap()
    }
}

const SPAN: &str = r#"{"resourceSpans":[{"scopeSpans":[{"spans":[{"traceId":"0102030405060708090a0b0c0d0e0f10","spanId":"1112131415161718","name":"llm","startTimeUnixNano":"1","endTimeUnixNano":"2","attributes":[{"key":"openinference.span.kind","value":{"stringValue":"LLM"}},{"key":"llm.input_messages.0.message.role","value":{"stringValue":"user"}},{"key":"llm.input_messages.0.message.content","value":{"stringValue":"How many?"}},{"key":"llm.output_messages.0.message.role","value":{"stringValue":"assistant"}},{"key":"llm.output_messages.0.message.content","value":{"stringValue":"Twelve."}}]}]}]}]}"#;

#[test]
fn a_folder_is_listed_and_one_trajectory_is_shown() {
    let folder = fixture("llamaindex-react/s07_error_recovery");
    let list = gradus(&["traces", &folder]);
    let skipped = "gradus: skipped 1 of 2 files: no known traces; --coverage lists them\n";
    assert_eq!((list.code, list.err.as_str()), (Some(0), skipped), "the gold beside the trace is no trace");
    assert!(
        list.out.contains("read_file → search_code →") && list.out.contains("Show me the settings.yaml"),
        "{}",
        list.out
    );
    let id = list.out.lines().nth(1).unwrap().split_whitespace().next().unwrap();
    let shown = gradus(&["traces", "show", id, &folder]);
    assert_eq!(shown.code, Some(0));
    for part in [
        "Query: Show me",
        "Step 1\n",
        "Thought: I will read",
        "Action: read_file",
        "Observation (error): 404",
        "Step 3\n",
        "Final Answer: settings.yaml",
    ] {
        assert!(shown.out.contains(part), "{part} is not in {}", shown.out);
    }
}

#[test]
fn the_three_formats_hold_the_same() {
    let folder = fixture("langgraph-react/s23_multi_turn");
    let jsonl = lines(&gradus(&["traces", "--format", "jsonl", &folder]).out);
    let json: Vec<Json> = serde_json::from_str(&gradus(&["traces", "--format", "json", &folder]).out).unwrap();
    assert_eq!(jsonl, json);
    let queries: Vec<&str> = jsonl.iter().filter_map(|line| line["query"].as_str()).collect();
    assert_eq!(
        queries,
        ["List my repos.", "Open an issue about missing tests in the first one.", "Thanks! Which number did it get?"]
    );
    // Our own lines can be read again.
    let again = TempFile::new("lines", gradus(&["traces", "--format", "jsonl", &folder]).out);
    assert_eq!(lines(&gradus(&["traces", "--format", "jsonl", again.path()]).out), jsonl);
}

#[test]
fn compressed_sources_and_standard_input_are_read_alike() {
    let plain = gradus_with_input(&["traces", "--format", "jsonl", "-"], SPAN.as_bytes());
    assert_eq!(plain.code, Some(0), "{}", plain.err);
    let mut gzip = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::default());
    gzip.write_all(SPAN.as_bytes()).unwrap();
    let zstd = zstd::encode_all(SPAN.as_bytes(), 1).unwrap();
    for body in [gzip.finish().unwrap(), zstd] {
        let ran = gradus_with_input(&["traces", "--format", "jsonl", "-"], &body);
        assert_eq!((ran.code, ran.out), (Some(0), plain.out.clone()), "{}", ran.err);
    }
}

#[test]
fn a_trace_may_be_spread_over_files() {
    let folder = PathBuf::from(fixture("langgraph-react/s10_parallel"));
    let whole = gradus(&["traces", "--format", "jsonl", folder.to_str().unwrap()]);
    let mut files: Vec<String> =
        std::fs::read_dir(&folder).unwrap().map(|entry| entry.unwrap().path().display().to_string()).collect();
    files.retain(|name| name.ends_with(".bin"));
    files.sort();
    assert!(files.len() > 2);
    files.reverse();
    let arguments: Vec<&str> =
        ["traces", "--format", "jsonl"].into_iter().chain(files.iter().map(String::as_str)).collect();
    assert_eq!(gradus(&arguments).out, whole.out);
}

#[test]
fn phoenix_spans_nested_dumps_and_message_lists_are_told_apart_by_content() {
    let phoenix = json!({"data": [{"id": "1", "name": "llm", "context": {"trace_id": "0102030405060708090a0b0c0d0e0f10", "span_id": "1112131415161718"}, "span_kind": "LLM", "parent_id": null, "start_time": "2026-01-01T00:00:00Z", "end_time": "2026-01-01T00:00:01Z", "status_code": "OK", "attributes": {"llm.input_messages": [{"message": {"role": "user", "content": "How many?"}}], "llm": {"output_messages": [{"message": {"role": "assistant", "content": "Twelve."}}]}}, "events": []}], "next_cursor": null});
    let nested = json!({"trace_id": "0102030405060708090a0b0c0d0e0f10", "spans": [{"timestamp": "2026-01-01T00:00:00Z", "trace_id": "0102030405060708090a0b0c0d0e0f10", "span_id": "1112131415161718", "span_name": "main", "duration": "PT1S", "span_attributes": {}, "child_spans": [{"span_id": "1112131415161719", "trace_id": "0102030405060708090a0b0c0d0e0f10", "span_name": "llm", "timestamp": "2026-01-01T00:00:00Z", "duration": "PT0.5S", "span_attributes": {"openinference.span.kind": "LLM", "llm.input_messages.0.message.role": "user", "llm.input_messages.0.message.content": "How many?", "llm.output_messages.0.message.content": "Twelve."}, "child_spans": []}]}]});
    let openai =
        json!({"messages": [{"role": "user", "content": "How many?"}, {"role": "assistant", "content": "Twelve."}]});
    let one_a_line =
        "{\"role\": \"user\", \"content\": \"How many?\"}\n{\"role\": \"assistant\", \"content\": \"Twelve.\"}\n";
    let bare = json!([{"role": "user", "content": "How many?"}, {"role": "assistant", "content": [{"type": "text", "text": "Twelve."}]}]);
    let react = "Question: How many?\nThought: easy\nFinal Answer: Twelve.";
    let sources = [
        SPAN.to_owned(),
        serde_json::to_string_pretty(&phoenix).unwrap(),
        phoenix.to_string(),
        nested.to_string(),
        openai.to_string(),
        one_a_line.to_owned(),
        serde_json::to_string_pretty(&bare).unwrap(),
        react.to_owned(),
    ];
    for source in &sources {
        // The name is a lie in most cases, and must not matter.
        let file = TempFile::new("trace.pdf", source);
        let ran = gradus(&["traces", "--format", "jsonl", file.path()]);
        assert_eq!(ran.code, Some(0), "{source}: {}", ran.err);
        let found = lines(&ran.out);
        assert_eq!(
            (found.len(), &found[0]["query"], &found[0]["final_answer"]),
            (1, &json!("How many?"), &json!("Twelve.")),
            "{source}"
        );
    }
}

#[test]
fn message_lists_with_tool_calls_become_steps() {
    let anthropic = json!({"id": "run-7", "tools": [{"name": "count", "description": "Counts.", "input_schema": {"type": "object"}}], "messages": [
        {"role": "user", "content": "How many?"},
        {"role": "assistant", "content": [{"type": "text", "text": "I count."}, {"type": "tool_use", "id": "t1", "name": "count", "input": {"of": "issues"}}, {"type": "tool_use", "id": "t2", "name": "count", "input": {"of": "pulls"}}]},
        {"role": "user", "content": [{"type": "tool_result", "tool_use_id": "t2", "content": "2", "is_error": true}, {"type": "tool_result", "tool_use_id": "t1", "content": "12"}]},
        {"role": "assistant", "content": "Twelve."},
        {"role": "user", "content": "Thanks!"},
        {"role": "assistant", "content": "Welcome."},
    ]});
    let found = lines(&gradus_with_input(&["traces", "--format", "jsonl", "-"], anthropic.to_string().as_bytes()).out);
    assert_eq!(found.len(), 2);
    assert_eq!(
        (&found[0]["trajectory_id"], &found[1]["trajectory_id"], &found[1]["session_id"]),
        (&json!("run-7"), &json!("run-7-2"), &json!("run-7"))
    );
    let steps = found[0]["steps"].as_array().unwrap();
    assert_eq!(steps.iter().map(|step| &step["observation"]).collect::<Vec<_>>(), [&json!("12"), &json!("2")]);
    assert_eq!(
        (&steps[1]["parallel_with_previous"], &steps[1]["is_error"], &steps[1]["thought"]),
        (&json!(true), &json!(true), &json!("I count."))
    );
    assert_eq!(found[0]["tools"], json!([{"name": "count", "description": "Counts.", "schema": {"type": "object"}}]));
}

#[test]
fn coverage_counts_what_could_be_read() {
    let ran = gradus(&["traces", "--coverage", "--format", "json", &fixture("google-adk/s03_missing_param")]);
    assert_eq!(ran.code, Some(0), "{}", ran.err);
    let coverage: Json = serde_json::from_str(&ran.out).unwrap();
    let total = &coverage["total"];
    assert_eq!((&total["trajectories"], &total["steps_with_thought"]), (&json!(1), &json!(0)));
    assert!(
        total["steps"].as_u64() > Some(0) && total["defects"]["missing_thought"]["count"].as_u64() > Some(0),
        "{total}"
    );
    let text = gradus(&["traces", "--coverage", &fixture("google-adk/s03_missing_param")]).out;
    assert!(text.contains("missing_thought") && text.contains("  steps "), "{text}");
}

#[test]
fn bad_input_is_told_in_one_line_with_exit_code_2() {
    let cut = &std::fs::read(fixture("plain-openai-oi/s10_parallel/001.bin")).unwrap()[..60];
    let cases: [(&[u8], &str); 7] = [
        (b"", "the file is empty"),
        (b"hello world", "begins with \"hello world\""),
        (b"\xfd\xfe\x00\x01", "begins with the bytes"),
        (b"{\"a\": 1}", "neither spans nor messages"),
        (b"{\"resourceSpans\": [{\"scopeSpans\": [{\"spans\": [{]}", "line 1, column 48: key must be a string"),
        (b"[1, 2", "EOF"),
        (cut, ""),
    ];
    for (content, reason) in cases {
        let file = TempFile::new("bad", content);
        let ran = gradus(&["traces", file.path()]);
        assert_eq!((ran.code, ran.out.as_str()), (Some(2), ""), "{content:?}: {}", ran.err);
        assert_eq!(ran.err.lines().count(), 1, "{}", ran.err);
        assert!(ran.err.contains(file.path()) && ran.err.contains(reason), "{reason}: {}", ran.err);
    }
    let missing = gradus(&["traces", "no/such/file"]);
    assert_eq!((missing.code, missing.err.as_str()), (Some(2), "gradus: no/such/file: no such file or folder\n"));
    assert_eq!(gradus(&["traces"]).code, Some(2));
    assert_eq!(gradus(&["traces", "--format", "xml", "x"]).code, Some(2));
}

#[test]
fn a_bad_source_does_not_cost_the_good_ones() {
    let (good, bad) = (TempFile::new("good", SPAN), TempFile::new("bad", "hello"));
    let ran = gradus(&["traces", "--format", "jsonl", bad.path(), good.path()]);
    assert_eq!((ran.code, lines(&ran.out).len()), (Some(2), 1));
}

#[test]
fn one_bad_record_is_a_defect_and_the_rest_is_read() {
    let other = SPAN.replace("0102030405060708090a0b0c0d0e0f10", "ff02030405060708090a0b0c0d0e0f10");
    let file = TempFile::new("lines", format!("{SPAN}\n{{broken\n\n{other}\n"));
    let ran = gradus(&["traces", "--format", "jsonl", file.path()]);
    assert_eq!((ran.code, lines(&ran.out).len()), (Some(0), 2));
    assert!(ran.err.contains("line 2") && ran.err.contains(file.path()), "{}", ran.err);
    let coverage: Json =
        serde_json::from_str(&gradus(&["traces", "--coverage", "--format", "json", file.path()]).out).unwrap();
    assert_eq!(coverage["total"]["unreadable_records"], json!(1));
}

#[test]
fn nothing_to_show_is_exit_code_4() {
    let http = SPAN.replace("openinference.span.kind", "http.method").replace("llm.", "x.");
    let ran = gradus_with_input(&["traces", "-"], http.as_bytes());
    assert_eq!((ran.code, ran.out.as_str()), (Some(4), ""));
    assert!(ran.err.contains("of 1 spans and 0 documents none calls a model or a tool"), "{}", ran.err);
}

#[test]
fn bombs_and_deep_nesting_are_refused_by_a_named_limit() {
    // A span, and behind it 300 MB of a field that nobody knows, in a few kilobytes.
    let field = |tag: u8, body: &[u8]| {
        let mut bytes = vec![tag];
        let mut length = body.len();
        while length >= 0x80 {
            bytes.push(length as u8 | 0x80);
            length >>= 7;
        }
        bytes.push(length as u8);
        [bytes.as_slice(), body].concat()
    };
    let span = field(0x0a, &field(0x12, &field(0x12, &field(0x2a, &[b'n'; 70_000]))));
    let mut zstd = zstd::Encoder::new(Vec::new(), 1).unwrap();
    zstd.write_all(&span).unwrap();
    zstd.write_all(&field(0x7a, &vec![0; 300 << 20])).unwrap();
    let bomb = TempFile::new("bomb", zstd.finish().unwrap());
    let ran = gradus(&["traces", bomb.path()]);
    assert_eq!(ran.code, Some(2));
    assert!(ran.err.contains("limit 200") && ran.err.contains("decompression bomb"), "{}", ran.err);
    let deep = format!("{{\"messages\": {}{}}}", "[".repeat(100_000), "]".repeat(100_000));
    let ran = gradus_with_input(&["traces", "-"], deep.as_bytes());
    assert_eq!(ran.code, Some(2));
    assert!(ran.err.contains("limit 128"), "{}", ran.err);
}

#[test]
fn an_unknown_id_is_answered_with_advice() {
    let folder = fixture("langgraph-react/s23_multi_turn");
    let ran = gradus(&["traces", "show", "zzz", &folder]);
    assert_eq!(ran.code, Some(2));
    assert!(
        ran.err.contains("no trajectory's id begins with \"zzz\"") && ran.err.contains("the 3 that are there"),
        "{}",
        ran.err
    );
    let ran = gradus(&["traces", "show", "", &folder]);
    assert_eq!(ran.code, Some(2));
    assert!(ran.err.contains("3 trajectories begin with"), "{}", ran.err);
}

#[test]
fn nothing_of_a_trace_reaches_the_terminal_as_an_escape_sequence() {
    let evil =
        SPAN.replace("How many?", "\\u001b[2J\\u001b]0;owned\\u0007 \\u202eevil").replace("Twelve.", "\\u009b31m");
    let file = TempFile::new("evil", &evil);
    let id = "0102030405060708090a0b0c0d0e0f10";
    for arguments in [
        vec!["traces", file.path()],
        vec!["traces", "show", id, file.path()],
        vec!["traces", "--coverage", file.path()],
    ] {
        let mut command = command(&arguments);
        let ran = finished(command.env("CLICOLOR_FORCE", "1").output().unwrap());
        assert_eq!(ran.code, Some(0));
        let hostile = ran.out.chars().filter(|c| matches!(c, '\u{7}' | '\u{9b}' | '\u{202e}')).count();
        assert_eq!(hostile, 0, "{:?}", ran.out);
        assert!(!ran.out.contains("\u{1b}[2J") && !ran.out.contains("\u{1b}]0"), "{:?}", ran.out);
    }
}

#[test]
fn records_over_the_limit_are_passed_over_and_named() {
    let long = SPAN.replace("Twelve.", &"x".repeat(65 << 20));
    let file = TempFile::new("lines", format!("{SPAN}\n{long}\n"));
    let ran = gradus(&["traces", "--format", "jsonl", file.path()]);
    assert_eq!((ran.code, lines(&ran.out).len()), (Some(0), 1));
    assert!(ran.err.contains("line 2: longer than the limit of 67108864 bytes"), "{}", ran.err);
}

#[test]
fn json_is_read_alike_in_every_layout() {
    let document: Json = serde_json::from_str(SPAN).unwrap();
    let pretty = serde_json::to_string_pretty(&document).unwrap();
    let wanted = gradus_with_input(&["traces", "--format", "jsonl", "-"], SPAN.as_bytes()).out;
    let layouts = [
        pretty.clone(),
        format!("\u{feff}{pretty}"),
        pretty.replace('\n', "\r\n"),
        // A first line that was cut off, and one that is no JSON at all.
        format!("{{\"resourceSpans\": [{{\n{SPAN}\n"),
        format!("{{oops\n{SPAN}\n"),
    ];
    for layout in layouts {
        let ran = gradus_with_input(&["traces", "--format", "jsonl", "-"], layout.as_bytes());
        assert_eq!((ran.code, &ran.out), (Some(0), &wanted), "{layout}: {}", ran.err);
    }
}

#[test]
fn a_broken_file_in_a_folder_is_told_and_counts() {
    let folder = tempfile::tempdir().unwrap();
    std::fs::write(folder.path().join("good.json"), SPAN).unwrap();
    std::fs::write(folder.path().join("broken.json"), "{\"resourceSpans\": [").unwrap();
    std::fs::write(folder.path().join("notes.md"), "# Notes").unwrap();
    let path = folder.path().to_str().unwrap();
    let ran = gradus(&["traces", "--format", "jsonl", path]);
    assert_eq!((ran.code, lines(&ran.out).len(), ran.err.lines().count()), (Some(2), 1, 2), "{}", ran.err);
    assert!(ran.err.contains("skipped 1 of 3 files"), "{}", ran.err);
    let coverage = gradus(&["traces", "--coverage", "--format", "json", path]);
    let total = &serde_json::from_str::<Json>(&coverage.out).unwrap()["total"];
    assert_eq!((&total["unreadable_records"], &total["skipped_files"]), (&json!(1), &json!(1)));
    assert!(total["skipped_examples"][0].as_str().unwrap().contains("notes.md: it begins with"));
    std::fs::remove_file(folder.path().join("good.json")).unwrap();
    std::fs::remove_file(folder.path().join("broken.json")).unwrap();
    let ran = gradus(&["traces", path]);
    assert_eq!(ran.code, Some(4));
    assert!(ran.err.contains("none of 1 files is a trace"), "{}", ran.err);
}

#[test]
fn the_collectors_file_format_is_read() {
    let body = std::fs::read(fixture("plain-openai-oi/s10_parallel/001.bin")).unwrap();
    let mut plain = Vec::new();
    match std::io::Read::read_to_end(&mut flate2::read::GzDecoder::new(body.as_slice()), &mut plain) {
        Ok(_) => {}
        Err(_) => plain.clone_from(&body),
    }
    let wanted = gradus_with_input(&["traces", "--format", "jsonl", "-"], &plain).out;
    assert!(!wanted.is_empty());
    let prefixed = [&(plain.len() as u32).to_be_bytes(), plain.as_slice()].concat();
    let twice = prefixed.repeat(2);
    for stream in [prefixed, twice] {
        assert_eq!(gradus_with_input(&["traces", "--format", "jsonl", "-"], &stream).out, wanted);
    }
}

#[test]
fn hostile_attributes_are_survived() {
    let with = |key: &str, value: String| {
        let extra = json!({"key": key, "value": {"stringValue": value}}).to_string();
        SPAN.replacen("\"attributes\":[", &format!("\"attributes\":[{extra},"), 1)
    };
    let sources = [
        with("llm.tools", "[".repeat(200_000) + &"]".repeat(200_000)),
        with(
            "llm.tools.0.tool.json_schema",
            format!("{{\"name\": \"f\", \"parameters\": {{\n{}1{}}}}}", "\"a\": {".repeat(300), "}".repeat(300)),
        ),
        with("llm.token_count.prompt", u64::MAX.to_string()),
        with("llm.output_messages.0.message.contents.18446744073709551615.tool_call.id", "x".to_owned()),
        with("llm.input_messages.18446744073709551615.message.content", "x".to_owned()),
    ];
    for source in sources {
        let ran = gradus_with_input(&["traces", "--format", "jsonl", "-"], source.as_bytes());
        assert_eq!((ran.code, lines(&ran.out).len()), (Some(0), 1), "{}", ran.err);
    }
}
