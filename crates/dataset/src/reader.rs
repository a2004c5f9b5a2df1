//! Reads and writes datasets. Reading is strict: a misspelled field would silently check nothing.

use std::collections::HashMap;
use std::fs::File;
use std::io::{self, BufRead, BufReader, Read as _, Write};
use std::path::{Path, PathBuf};

use crate::check::compile_pattern;
use crate::item::{DatasetItem, ExpectedTools};

/// Maximum length of one line in bytes.
const MAX_LINE_BYTES: usize = 8 << 20;
/// Maximum length of an id in bytes.
const MAX_ID_BYTES: usize = 200;

/// The fields of an item, for suggestions.
const ITEM_FIELDS: [&str; 10] = [
    "id",
    "request",
    "messages",
    "reference",
    "expected_tools",
    "must_not_call",
    "answer_contains",
    "answer_matches",
    "tags",
    "metadata",
];

/// Why a dataset cannot be used. Each message is one line.
#[derive(Debug, thiserror::Error)]
pub enum DatasetError {
    #[error("dataset not readable: {}: {source}", path.display())]
    Unreadable { path: PathBuf, source: io::Error },
    #[error("dataset line refused: {}:{line}: {reason}; hint: {hint}", path.display())]
    Line { path: PathBuf, line: usize, reason: String, hint: String },
    #[error(
        "dataset line refused: {}:{line}: the id {id:?} is already used in line {first_line}; hint: results are paired by id, so each id must be unique",
        path.display()
    )]
    DuplicateId { path: PathBuf, line: usize, id: String, first_line: usize },
    #[error("dataset refused: {}: it has no items; hint: write one JSON object a line, with `id` and `request`", path.display())]
    Empty { path: PathBuf },
}

/// An item and its line number, from 1.
#[derive(Clone, Debug, PartialEq)]
pub struct DatasetLine {
    pub line: usize,
    pub item: DatasetItem,
}

/// What a file holds: its good lines, and what is wrong with the others.
#[derive(Debug, Default)]
pub struct DatasetReading {
    pub lines: Vec<DatasetLine>,
    pub errors: Vec<DatasetError>,
}

/// Reads the items of a dataset, in the order of the file. Any error refuses the whole file.
pub fn read_dataset(path: &Path) -> Result<Vec<DatasetItem>, DatasetError> {
    let reading = read_dataset_lines(path)?;
    match reading.errors.into_iter().next() {
        Some(error) => Err(error),
        None => Ok(reading.lines.into_iter().map(|line| line.item).collect()),
    }
}

/// Reads all lines of a dataset and collects all errors. Fails only if the file cannot be read. Empty lines are
/// skipped.
pub fn read_dataset_lines(path: &Path) -> Result<DatasetReading, DatasetError> {
    let unreadable = |source| DatasetError::Unreadable { path: path.to_owned(), source };
    let mut source = BufReader::new(File::open(path).map_err(unreadable)?);
    let mut reading = DatasetReading::default();
    let mut first_lines: HashMap<String, usize> = HashMap::new();
    let mut bytes = Vec::new();
    for line in 1.. {
        bytes.clear();
        let limit = MAX_LINE_BYTES as u64 + 1;
        if source.by_ref().take(limit).read_until(b'\n', &mut bytes).map_err(unreadable)? == 0 {
            break;
        }
        let parsed = if bytes.len() > MAX_LINE_BYTES {
            source.skip_until(b'\n').map_err(unreadable)?;
            let reason = format!("the line is longer than {} MiB", MAX_LINE_BYTES >> 20);
            Err((reason, "put large data elsewhere and name it in `metadata`".to_owned()))
        } else {
            match parse_line(&bytes, line) {
                Ok(None) => continue,
                Ok(Some(item)) => Ok(item),
                Err(found) => Err(found),
            }
        };
        match parsed {
            Err((reason, hint)) => {
                reading.errors.push(DatasetError::Line { path: path.to_owned(), line, reason, hint });
            }
            Ok(item) => match first_lines.get(&item.id) {
                Some(&first_line) => reading.errors.push(DatasetError::DuplicateId {
                    path: path.to_owned(),
                    line,
                    id: item.id,
                    first_line,
                }),
                None => {
                    first_lines.insert(item.id.clone(), line);
                    reading.lines.push(DatasetLine { line, item });
                }
            },
        }
    }
    if reading.lines.is_empty() && reading.errors.is_empty() {
        reading.errors.push(DatasetError::Empty { path: path.to_owned() });
    }
    Ok(reading)
}

/// Writes one item a line, in the order of the fields.
pub fn write_dataset<'a>(items: impl IntoIterator<Item = &'a DatasetItem>, out: &mut dyn Write) -> io::Result<()> {
    for item in items {
        serde_json::to_writer(&mut *out, item)?;
        out.write_all(b"\n")?;
    }
    out.flush()
}

/// A reason and a hint.
type LineFault = (String, String);

/// Parses one line; `None` for an empty line.
fn parse_line(bytes: &[u8], line: usize) -> Result<Option<DatasetItem>, LineFault> {
    let text = std::str::from_utf8(bytes).map_err(|error| {
        (format!("not UTF-8 at byte {}", error.valid_up_to() + 1), "save the file as UTF-8".to_owned())
    })?;
    // Editors on Windows write a byte order mark.
    let text = if line == 1 { text.trim_start_matches('\u{feff}') } else { text };
    // Without the line break, so that an object that is cut off ends in the column where it does.
    let text = text.trim_end();
    if text.is_empty() {
        return Ok(None);
    }
    // An array would be read as the fields in their order.
    if text.trim_start().starts_with('[') {
        return Err(("an array, not an object".to_owned(), "write exactly one JSON object a line".to_owned()));
    }
    let mut source = serde_json::Deserializer::from_str(text);
    let item: DatasetItem =
        serde_path_to_error::deserialize(&mut source).map_err(|error| explain_error(text, &error))?;
    source.end().map_err(|_| {
        ("text after the end of the object".to_owned(), "write exactly one JSON object a line".to_owned())
    })?;
    check_item_fields(&item)?;
    Ok(Some(item))
}

fn explain_error(text: &str, error: &serde_path_to_error::Error<serde_json::Error>) -> LineFault {
    let inner = error.inner();
    if inner.is_syntax() || inner.is_eof() {
        let reason = format!("not JSON: {}", without_position(&inner.to_string()));
        return (reason, "write exactly one JSON object a line".to_owned());
    }
    if let Ok(serde_json::Value::Object(object)) = serde_json::from_str(text)
        && let Some(unknown) = object.keys().find(|key| !ITEM_FIELDS.contains(&key.as_str()))
    {
        let hint = match suggest_field(unknown) {
            Some(field) => format!("did you mean {field:?}?"),
            None => format!("the fields are {}; put anything else into `metadata`", ITEM_FIELDS.join(", ")),
        };
        return (format!("unknown field {unknown:?}"), hint);
    }
    let path = error.path().to_string();
    let reason = without_position(&inner.to_string());
    let reason = if path == "." { reason } else { format!("{path}: {reason}") };
    (reason, "docs/reference/dataset.md describes the fields".to_owned())
}

/// Returns the message of serde_json without its position, which is useless without the line number of the file.
fn without_position(message: &str) -> String {
    match message.rsplit_once(" at line ") {
        Some((reason, position)) => match position.split_once("column ") {
            Some((_, column)) => format!("{reason} at column {column}"),
            None => reason.to_owned(),
        },
        None => message.to_owned(),
    }
}

/// Returns the field that was probably meant, by edit distance or as a known synonym.
fn suggest_field(unknown: &str) -> Option<&'static str> {
    // Words that other tools use for the same field.
    const SYNONYMS: [(&str, &str); 8] = [
        ("input", "request"),
        ("query", "request"),
        ("question", "request"),
        ("prompt", "request"),
        ("expected", "reference"),
        ("expected_output", "reference"),
        ("answer", "reference"),
        ("tools", "expected_tools"),
    ];
    let lower = unknown.to_lowercase();
    let nearest = ITEM_FIELDS.into_iter().map(|field| (strsim::levenshtein(&lower, field), field)).min();
    let nearest = nearest.filter(|(distance, field)| *distance <= 1 + field.len() / 5).map(|(_, field)| field);
    nearest.or_else(|| SYNONYMS.iter().find(|(word, _)| *word == lower).map(|(_, field)| *field))
}

/// Checks what the schema does not express, including checks that would always pass.
fn check_item_fields(item: &DatasetItem) -> Result<(), LineFault> {
    let fault = |reason: &str, hint: &str| Err((reason.to_owned(), hint.to_owned()));
    if item.id.trim().is_empty() {
        return fault("`id` is empty", "give each item an id that stays the same from version to version");
    }
    if item.id.len() > MAX_ID_BYTES || item.id.chars().any(char::is_control) {
        return fault("`id` is longer than 200 bytes or has control characters", "use a short, printable id");
    }
    match (&item.request, &item.messages) {
        (None, None) => return fault("neither `request` nor `messages`", "add what the agent is asked as `request`"),
        (Some(_), Some(_)) => return fault("both `request` and `messages`", "leave one of them out"),
        (Some(request), None) if request.trim().is_empty() => {
            return fault("`request` is empty", "say what the agent is asked");
        }
        (None, Some(messages)) if messages.is_empty() => {
            return fault("`messages` is empty", "the last message is what the agent is asked");
        }
        (None, Some(messages)) if messages.iter().any(|message| message.role.trim().is_empty()) => {
            return fault("a message has an empty `role`", "use user, assistant or system");
        }
        (None, Some(messages)) if messages.last().is_some_and(|message| message.role.trim() == "assistant") => {
            return fault("`messages` ends with the assistant", "the last message is what the agent is asked");
        }
        _ => {}
    }
    // A NUL cannot be passed in an environment variable.
    if item.request_messages().iter().any(|message| message.content.contains('\0')) {
        return fault("the request has a NUL character", "remove \\u0000");
    }
    if matches!(&item.expected_tools, Some(ExpectedTools::List(tools)) if tools.is_empty()) {
        return fault(
            "`expected_tools` is an empty list, which expects nothing",
            r#"{"mode": "exact", "tools": []} expects that no tool is called"#,
        );
    }
    let tools = item.expected_tools.iter().flat_map(ExpectedTools::tools);
    if tools.chain(&item.must_not_call).any(|name| name.trim().is_empty()) {
        return fault("the name of a tool is empty", "leave it out");
    }
    let mut tools = item.expected_tools.iter().flat_map(ExpectedTools::tools);
    if let Some(tool) = tools.find(|tool| item.must_not_call.contains(tool)) {
        return Err((
            format!("{tool:?} is in `expected_tools` and in `must_not_call`"),
            "leave it out of one of them".to_owned(),
        ));
    }
    if item.answer_contains.iter().chain(&item.answer_matches).any(|text| text.trim().is_empty()) {
        return fault("an expected text of the answer is empty, and every answer contains it", "leave it out");
    }
    for pattern in &item.answer_matches {
        if let Err(error) = compile_pattern(pattern) {
            let message = error.to_string();
            let last = message.lines().last().unwrap_or_default().trim_start_matches("error: ");
            return Err((
                format!("answer_matches: {pattern:?} is not a regular expression: {last}"),
                "the syntax is that of the regex crate: no look-around, no back-references".to_owned(),
            ));
        }
    }
    Ok(())
}
