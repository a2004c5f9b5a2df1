//! The format as users meet it: the committed schema, the examples of the documentation, and messages about bad lines.

#![allow(clippy::unwrap_used, reason = "tests fail by panicking")]

mod schema_check;

use std::fs;
use std::path::{Path, PathBuf};

use gradus_dataset::{DatasetItem, read_dataset, read_dataset_lines, write_dataset};
use schema_check::find_violation;
use serde_json::Value as Json;

fn docs(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/reference").join(name)
}

fn committed_schema() -> Json {
    serde_json::from_str(&fs::read_to_string(docs("dataset.schema.json")).unwrap()).unwrap()
}

/// A file that is removed with the value.
struct TemporaryFile(PathBuf);

impl TemporaryFile {
    fn new(name: &str, content: impl AsRef<[u8]>) -> TemporaryFile {
        let path = Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("{}-{name}", std::process::id()));
        fs::write(&path, content).unwrap();
        TemporaryFile(path)
    }
}

impl Drop for TemporaryFile {
    fn drop(&mut self) {
        let _ = fs::remove_file(&self.0);
    }
}

/// `GRADUS_BLESS=1` writes it anew.
#[test]
fn the_committed_schema_is_that_of_the_code() {
    let schema = serde_json::to_string_pretty(&schemars::schema_for!(DatasetItem)).unwrap() + "\n";
    if std::env::var_os("GRADUS_BLESS").is_some() {
        fs::write(docs("dataset.schema.json"), &schema).unwrap();
    }
    let committed = fs::read_to_string(docs("dataset.schema.json")).unwrap_or_default();
    assert_eq!(committed, schema, "run `GRADUS_BLESS=1 cargo test -p gradus-dataset` and commit the file");
}

#[test]
fn the_examples_of_the_documentation_are_valid() {
    let pages = ["dataset.md", "../how-to/datasets-and-experiments.md"];
    let pages = pages.map(|name| fs::read_to_string(docs(name)).unwrap());
    let mut blocks: Vec<&str> = Vec::new();
    for page in &pages {
        let found = page.split("```jsonl\n").skip(1).map(|rest| rest.split("```").next().unwrap());
        let before = blocks.len();
        blocks.extend(found);
        assert!(blocks.len() > before, "a page has no example");
    }
    let schema = committed_schema();
    for (at, block) in blocks.iter().enumerate() {
        for line in block.lines() {
            let value: Json = serde_json::from_str(line).unwrap_or_else(|error| panic!("{line}: {error}"));
            assert_eq!(find_violation(&schema, &value), None, "{line}");
        }
        let file = TemporaryFile::new(&format!("example-{at}.jsonl"), block);
        let items = read_dataset(&file.0).unwrap();
        assert_eq!(items.len(), block.lines().count());
        let mut written = Vec::new();
        write_dataset(&items, &mut written).unwrap();
        let file = TemporaryFile::new(&format!("written-{at}.jsonl"), &written);
        assert_eq!(read_dataset(&file.0).unwrap(), items, "what is written is read again");
    }
}

/// Lines that the schema and the parser agree on, good and bad.
#[test]
fn the_parser_and_the_schema_agree() {
    let schema = committed_schema();
    let cases = [
        (true, r#"{"id": "a", "request": "r"}"#),
        (true, r#"{"id": "a", "messages": [{"role": "user", "content": ""}]}"#),
        (true, r#"{"id": "a", "request": "r", "expected_tools": ["t"]}"#),
        (true, r#"{"id": "a", "request": "r", "expected_tools": {"mode": "exact", "tools": []}}"#),
        (true, r#"{"id": "a", "request": "r", "answer_contains": "x", "answer_matches": ["y", "z"]}"#),
        (true, r#"{"id": "a", "request": "r", "tags": [], "metadata": {"any": [1, null]}}"#),
        (false, r#"{"id": "a"}"#),
        (false, r#"{"request": "r"}"#),
        (false, r#"{"id": "", "request": "r"}"#),
        (false, r#"{"id": 7, "request": "r"}"#),
        (false, r#"{"id": "a", "request": ""}"#),
        (false, r#"{"id": "a", "request": null}"#),
        (false, r#"{"id": "a", "request": "r", "messages": [{"role": "user", "content": "r"}]}"#),
        (false, r#"{"id": "a", "messages": []}"#),
        (false, r#"{"id": "a", "messages": [{"role": "user"}]}"#),
        (false, r#"{"id": "a", "messages": [{"role": "user", "content": "r", "name": "n"}]}"#),
        (false, r#"{"id": "a", "request": "r", "expected_tools": []}"#),
        (false, r#"{"id": "a", "request": "r", "expected_tools": "t"}"#),
        (false, r#"{"id": "a", "request": "r", "expected_tools": {"tools": ["t"]}}"#),
        (false, r#"{"id": "a", "request": "r", "expected_tools": {"mode": "sorted", "tools": ["t"]}}"#),
        (false, r#"{"id": "a", "request": "r", "expected_tools": {"mode": "exact", "tools": ["t"], "x": 1}}"#),
        (false, r#"{"id": "a", "request": "r", "must_not_call": "t"}"#),
        (false, r#"{"id": "a", "request": "r", "answer_contains": ""}"#),
        (false, r#"{"id": "a", "request": "r", "answer_contains": 3}"#),
        (false, r#"{"id": "a", "request": "r", "tags": [1]}"#),
        (false, r#"{"id": "a", "request": "r", "metadata": []}"#),
        (false, r#"{"id": "a", "request": "r", "unknown": 1}"#),
        (false, r#"["a"]"#),
    ];
    for (at, (is_valid, line)) in cases.iter().enumerate() {
        let value: Json = serde_json::from_str(line).unwrap();
        assert_eq!(find_violation(&schema, &value).is_none(), *is_valid, "the schema: {line}");
        let file = TemporaryFile::new(&format!("agree-{at}.jsonl"), line);
        let read = read_dataset(&file.0);
        assert_eq!(read.is_ok(), *is_valid, "the parser: {line}: {read:?}");
    }
}

#[test]
fn a_bad_line_is_refused_with_its_number_and_a_hint() {
    let cases: [(&str, &str); 16] = [
        ("{\"id\": \"b\", \"request\": ", ":2: not JSON: EOF while parsing a value"),
        ("{'id': 'b'}", ":2: not JSON: key must be a string at column 2; hint: write exactly one JSON object a line"),
        (
            r#"{"id": "b", "request": "r", "expected_tool": ["t"]}"#,
            r#":2: unknown field "expected_tool"; hint: did you mean "expected_tools"?"#,
        ),
        (r#"{"id": "b", "question": "r"}"#, r#":2: unknown field "question"; hint: did you mean "request"?"#),
        (r#"{"id": "b", "request": "r", "colour": 1}"#, r#":2: unknown field "colour"; hint: the fields are id,"#),
        (r#"{"id": "a", "request": "r"}"#, r#":2: the id "a" is already used in line 1; hint:"#),
        (r#"{"id": "b", "request": 7}"#, ":2: request: invalid type: integer `7`, expected a string"),
        (r#"{"id": "b", "id": "c", "request": "r"}"#, ":2: duplicate field `id`"),
        (r#"{"id": "b"}"#, ":2: neither `request` nor `messages`; hint:"),
        (r#"{"id": "b", "request": "r"} {"id": "c"}"#, ":2: text after the end of the object; hint:"),
        (r#"{"id": "b", "request": "r\u0000"}"#, ":2: the request has a NUL character; hint:"),
        (
            r#"{"id": "b", "request": "r", "answer_matches": "(a"}"#,
            r#":2: answer_matches: "(a" is not a regular expression: unclosed group; hint:"#,
        ),
        (
            r#"{"id": "b", "request": "r", "expected_tools": {"mode": "sorted", "tools": []}}"#,
            ":2: expected_tools: unknown variant `sorted`, expected one of `exact`, `in_order`",
        ),
        (r#"{"id": "b", "request": "r", "expected_tools": []}"#, ":2: `expected_tools` is an empty list"),
        (
            r#"{"id": "b", "request": "r", "expected_tools": ["t", "u"], "must_not_call": ["u"]}"#,
            r#":2: "u" is in `expected_tools` and in `must_not_call`; hint:"#,
        ),
        (
            r#"{"id": "b", "messages": [{"role": "user", "content": "r"}, {"role": "assistant", "content": "a"}]}"#,
            ":2: `messages` ends with the assistant; hint:",
        ),
    ];
    for (at, (line, expected)) in cases.iter().enumerate() {
        let text = format!("{{\"id\": \"a\", \"request\": \"r\"}}\n{line}\n");
        let file = TemporaryFile::new(&format!("bad-{at}.jsonl"), text);
        let message = read_dataset(&file.0).unwrap_err().to_string();
        assert!(message.starts_with("dataset line refused: ") && message.contains(expected), "{message}");
        assert!(message.contains("; hint: ") && !message.contains('\n'), "{message}");
    }
}

#[test]
fn every_bad_line_is_reported() {
    let text = "\u{feff}{\"id\": \"a\", \"request\": \"r\"}\r\n\n{\n{\"id\": \"b\", \"request\": \"r\"}\n{\"id\": \"a\", \"request\": \"s\"}";
    let file = TemporaryFile::new("several.jsonl", text);
    let reading = read_dataset_lines(&file.0).unwrap();
    let lines: Vec<usize> = reading.lines.iter().map(|line| line.line).collect();
    assert_eq!((lines, reading.errors.len()), (vec![1, 4], 2), "{:?}", reading.errors);
}

#[test]
fn a_file_without_items_is_refused() {
    for (name, content) in [("empty.jsonl", &b""[..]), ("blank.jsonl", b"\n  \n")] {
        let file = TemporaryFile::new(name, content);
        let message = read_dataset(&file.0).unwrap_err().to_string();
        assert!(message.contains("it has no items; hint:"), "{message}");
    }
    let file = TemporaryFile::new("latin.jsonl", b"{\"id\": \"\xe9\", \"request\": \"r\"}");
    assert!(read_dataset(&file.0).unwrap_err().to_string().contains(":1: not UTF-8 at byte 9; hint:"));
    let missing = read_dataset(Path::new("no/such.jsonl")).unwrap_err().to_string();
    assert!(missing.starts_with("dataset not readable: no/such.jsonl: "), "{missing}");
}

#[test]
fn a_line_without_end_is_not_read_into_memory() {
    let mut text = vec![b'x'; 9 << 20];
    text.extend_from_slice(b"\n{\"id\": \"a\", \"request\": \"r\"}\n");
    let file = TemporaryFile::new("long.jsonl", text);
    let reading = read_dataset_lines(&file.0).unwrap();
    assert_eq!(reading.lines.len(), 1, "the next line is read");
    assert!(reading.errors[0].to_string().contains(":1: the line is longer than 8 MiB; hint:"), "{:?}", reading.errors);
}
