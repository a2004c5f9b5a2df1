//! Files of labels: JSON Lines (of `--write-cases`, of the review page, of `gradus bench`, annotations of Phoenix) and
//! CSV with the same names as its header.

use std::fs::File;
use std::io::{self, BufRead, BufReader, Read};
use std::path::{Path, PathBuf};

use gradus_eval::calibration::{CaseLabel, LabelSampling, LabellerKind};
use serde::{Deserialize, Deserializer};

/// Maximum length of a line in bytes.
const MAX_LINE_BYTES: u64 = 1 << 20;
/// The labeller of lines that do not name one.
const UNNAMED_LABELLER: &str = "unnamed";
/// The labeller of truth by construction.
const BENCH_LABELLER: &str = "bench";

/// A label with the draw that its case is from, if it was drawn.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct FileLabel {
    pub(super) label: CaseLabel,
    /// The evaluator, or its name in Phoenix, where the line says it.
    pub(super) name: Option<String>,
    pub(super) draw: Option<DrawnFrom>,
    /// The span of an annotation, where the trajectory is not named.
    pub(super) span_id: Option<String>,
}

/// The draw that a case is from, as `--write-cases` notes it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize, serde::Serialize)]
pub(super) struct DrawnFrom {
    pub(super) sampling: LabelSampling,
    pub(super) seed: u64,
}

/// Why a file of labels cannot be read.
#[derive(Debug, thiserror::Error)]
pub(super) enum LabelFileError {
    #[error("{}: {source}", path.display())]
    Io { path: PathBuf, source: io::Error },
    #[error("{}:{line}: no label: {reason}", path.display())]
    Line { path: PathBuf, line: u64, reason: String },
    #[error("{}: no labels", path.display())]
    Empty { path: PathBuf },
}

/// A line of any of the formats. Unknown fields are ignored.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct LabelFileLine {
    trajectory_id: Option<String>,
    #[serde(deserialize_with = "read_index")]
    step_index: Option<u32>,
    evaluator: Option<String>,
    label: Option<String>,
    author: Option<String>,
    labeller: Option<String>,
    /// Only lines of a benchmark have it.
    policy: Option<String>,
    draw: Option<DrawnFrom>,
    // Annotations of Phoenix.
    span_id: Option<String>,
    name: Option<String>,
    annotator_kind: Option<String>,
    result: Option<AnnotationResult>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct AnnotationResult {
    label: Option<String>,
}

/// Reads a number, or its text as in CSV; `None` for an empty text.
fn read_index<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<u32>, D::Error> {
    #[derive(Deserialize)]
    #[serde(untagged)]
    enum IndexValue {
        Number(u32),
        Text(String),
    }
    match Option::<IndexValue>::deserialize(deserializer)? {
        None => Ok(None),
        Some(IndexValue::Number(number)) => Ok(Some(number)),
        Some(IndexValue::Text(text)) if text.trim().is_empty() => Ok(None),
        Some(IndexValue::Text(text)) => text.trim().parse().map(Some).map_err(serde::de::Error::custom),
    }
}

/// Reads the labels of the wanted evaluators and annotations, and those that name none. Lines without a label are
/// skipped: those of `--write-cases` that nobody has filled in.
pub(super) fn read_label_file(path: &Path, is_wanted: impl Fn(&str) -> bool) -> Result<Vec<FileLabel>, LabelFileError> {
    let io = |source| LabelFileError::Io { path: path.to_owned(), source };
    let file = File::open(path).map_err(io)?;
    let is_csv = path.extension().is_some_and(|extension| extension.eq_ignore_ascii_case("csv"));
    let lines = if is_csv { read_csv_lines(file, path)? } else { read_json_lines(file, path)? };
    if lines.is_empty() {
        return Err(LabelFileError::Empty { path: path.to_owned() });
    }
    let mut labels = Vec::new();
    for (number, line) in lines {
        let bad =
            |reason: &str| LabelFileError::Line { path: path.to_owned(), line: number, reason: reason.to_owned() };
        let name = line.evaluator.or(line.name);
        if name.as_deref().is_some_and(|name| !is_wanted(name)) {
            continue;
        }
        if line.trajectory_id.is_none() && line.span_id.is_none() {
            return Err(bad("it has no trajectory_id and no span_id"));
        }
        let text = line.label.or(line.result.and_then(|result| result.label));
        let Some(text) = text.filter(|text| !text.trim().is_empty()) else { continue };
        let kind = match (line.annotator_kind.as_deref(), &line.policy) {
            (Some("LLM" | "CODE"), _) => LabellerKind::Model,
            (_, Some(_)) => LabellerKind::Truth,
            _ => LabellerKind::Human,
        };
        // Gradus writes its own verdicts to Phoenix as annotations, which are not labels.
        if kind == LabellerKind::Model {
            continue;
        }
        let unnamed = if kind == LabellerKind::Truth { BENCH_LABELLER } else { UNNAMED_LABELLER };
        labels.push(FileLabel {
            label: CaseLabel {
                trajectory_id: line.trajectory_id.unwrap_or_default(),
                step_index: line.step_index,
                label: (text.trim() != "undecided").then(|| text.trim().to_owned()),
                labeller: line.labeller.or(line.author).unwrap_or_else(|| unnamed.to_owned()),
                kind,
                location: format!("{}:{number}", path.display()),
            },
            name,
            draw: line.draw,
            span_id: line.span_id,
        });
    }
    Ok(labels)
}

fn read_json_lines(file: File, path: &Path) -> Result<Vec<(u64, LabelFileLine)>, LabelFileError> {
    let io = |source| LabelFileError::Io { path: path.to_owned(), source };
    let mut reader = BufReader::new(file);
    let (mut lines, mut text) = (Vec::new(), Vec::new());
    for number in 1.. {
        text.clear();
        let bad = |reason: String| LabelFileError::Line { path: path.to_owned(), line: number, reason };
        let length = reader.by_ref().take(MAX_LINE_BYTES).read_until(b'\n', &mut text).map_err(io)?;
        if length == 0 {
            break;
        }
        if length as u64 == MAX_LINE_BYTES {
            return Err(bad("longer than 1 MiB".to_owned()));
        }
        if text.iter().all(u8::is_ascii_whitespace) {
            continue;
        }
        lines.push((number, serde_json::from_slice(&text).map_err(|error| bad(error.to_string()))?));
    }
    Ok(lines)
}

fn read_csv_lines(file: File, path: &Path) -> Result<Vec<(u64, LabelFileLine)>, LabelFileError> {
    let mut reader = csv::Reader::from_reader(file);
    let mut lines = Vec::new();
    for (record, number) in reader.deserialize::<CsvLabelLine>().zip(2..) {
        let bad = |error: csv::Error| LabelFileError::Line {
            path: path.to_owned(),
            line: error.position().map_or(number, csv::Position::line),
            reason: error.to_string(),
        };
        let line = record.map_err(bad)?;
        // The export guards cells that begin like a formula with an apostrophe.
        let plain = |text: Option<String>| text.map(|text| text.trim_start_matches('\'').to_owned());
        lines.push((
            number,
            LabelFileLine {
                trajectory_id: plain(line.trajectory_id),
                step_index: line.step_index,
                evaluator: plain(line.evaluator),
                label: plain(line.label),
                author: plain(line.author),
                labeller: plain(line.labeller),
                span_id: plain(line.span_id),
                ..LabelFileLine::default()
            },
        ));
    }
    Ok(lines)
}

/// A row of a CSV file. An empty cell counts as missing.
#[derive(Debug, Deserialize)]
struct CsvLabelLine {
    trajectory_id: Option<String>,
    #[serde(default, deserialize_with = "read_index")]
    step_index: Option<u32>,
    evaluator: Option<String>,
    label: Option<String>,
    author: Option<String>,
    labeller: Option<String>,
    span_id: Option<String>,
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(name: &str, text: &str) -> Result<Vec<FileLabel>, String> {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join(name);
        std::fs::write(&path, text).unwrap();
        let text = |error: LabelFileError| error.to_string().replace(&folder.path().display().to_string(), "DIR");
        read_label_file(&path, |name| ["thought_to_tool", "Tool choice"].contains(&name)).map_err(text)
    }

    type ShortLabel<'l> = (&'l str, Option<u32>, Option<&'l str>, &'l str, LabellerKind);

    fn short(labels: &[FileLabel]) -> Vec<ShortLabel<'_>> {
        fn shorten(one: &FileLabel) -> ShortLabel<'_> {
            let label = &one.label;
            (&label.trajectory_id, label.step_index, label.label.as_deref(), &label.labeller, label.kind)
        }
        labels.iter().map(shorten).collect()
    }

    #[test]
    fn lines_of_all_origins_are_labels() {
        let labels = read(
            "labels.jsonl",
            concat!(
                r#"{"trajectory_id":"a","step_index":1,"evaluator":"thought_to_tool","label":"correct","author":"ann"}"#,
                "\n\n",
                r#"{"trajectory_id":"a","step_index":2,"evaluator":"other","label":"x","author":"ann"}"#,
                "\n",
                r#"{"trajectory_id":"a","step_index":2,"evaluator":"thought_to_tool","label":null}"#,
                "\n",
                r#"{"trajectory_id":"b","step_index":null,"evaluator":"thought_to_tool","label":"incorrect","policy":"oracle"}"#,
                "\n",
                r#"{"trajectory_id":"c","label":"undecided","labeller":"bob","draw":{"sampling":"uniform","seed":3}}"#,
                "\n",
                r#"{"span_id":"f0","name":"Tool choice","annotator_kind":"HUMAN","result":{"label":"correct"}}"#,
                "\n",
                r#"{"span_id":"f1","name":"Tool choice","annotator_kind":"LLM","result":{"label":"correct"}}"#,
                "\n",
            ),
        )
        .unwrap();
        let human = LabellerKind::Human;
        assert_eq!(
            short(&labels),
            [
                ("a", Some(1), Some("correct"), "ann", human),
                ("b", None, Some("incorrect"), "bench", LabellerKind::Truth),
                ("c", None, None, "bob", human),
                ("", None, Some("correct"), "unnamed", human),
            ]
        );
        assert_eq!(labels[2].draw, Some(DrawnFrom { sampling: LabelSampling::Uniform, seed: 3 }));
        assert_eq!(labels[3].span_id.as_deref(), Some("f0"));
    }

    #[test]
    fn tables_have_the_names_as_their_header() {
        let text = "trajectory_id,step_index,evaluator,label,author\na,1,thought_to_tool,correct,ann\nb,,thought_to_tool,\
                    incorrect,'=bob\n";
        let labels = read("labels.csv", text).unwrap();
        let human = LabellerKind::Human;
        assert_eq!(
            short(&labels),
            [("a", Some(1), Some("correct"), "ann", human), ("b", None, Some("incorrect"), "=bob", human)]
        );
    }

    #[test]
    fn a_broken_line_is_named() {
        let message = |name, text| read(name, text).unwrap_err();
        assert_eq!(message("l.jsonl", "\n"), "DIR/l.jsonl: no labels");
        assert!(
            message("l.jsonl", "{\"label\":\"x\"}\n").starts_with("DIR/l.jsonl:1: no label: it has no trajectory_id")
        );
        assert!(message("l.jsonl", "{}\nnot json\n").starts_with("DIR/l.jsonl:2: no label: expected"));
        assert!(message("l.csv", "trajectory_id,step_index,label\na,second,x\n").starts_with("DIR/l.csv:2: no label:"));
    }
}
