//! Labels of a random sample of the review page, as `GET /labels` exports them.

use std::collections::{BTreeMap, HashMap};
use std::fs::File;
use std::io::{self, BufRead, BufReader, Read};
use std::path::{Path, PathBuf};

use gradus_eval::calibration::{CaseLabel, CasePopulation, JudgedCase, LabelPopulation, LabelSampling, LabellerKind};
use gradus_eval::run::EvaluatorRecord;
use serde::Deserialize;

/// Maximum length of a line in bytes.
const MAX_LINE_BYTES: u64 = 1 << 20;

/// Why labels are not a random sample.
#[derive(Debug, thiserror::Error)]
pub(super) enum ReviewSampleError {
    #[error("{}: {source}", path.display())]
    Io { path: PathBuf, source: io::Error },
    #[error("{}:{line}: no label of the review page: {source}", path.display())]
    Line { path: PathBuf, line: usize, source: serde_json::Error },
    #[error("{}:{line}: longer than 1 MiB, so no label", path.display())]
    TooLong { path: PathBuf, line: usize },
    #[error(
        "{}: none of the labels is of a random sample\nhint: label with \"random sample, blind\" on /review, or give other \
         labels to --labels",
        path.display()
    )]
    NotDrawn { path: PathBuf },
    #[error("--evaluator: the file has samples of {known}; name one")]
    SeveralEvaluators { known: String },
    #[error(
        "{}:{line}: the label is about a verdict of {found}, the others about {expected}\nhint: the judge or the rubric \
         changed; label a new sample",
        path.display()
    )]
    OtherJudge { path: PathBuf, line: usize, found: String, expected: String },
    #[error(
        "{}:{line}: the label contradicts its own sample\nhint: download the labels again from /labels?format=jsonl",
        path.display()
    )]
    Contradiction { path: PathBuf, line: usize },
    #[error("{}: nobody has labelled the first case of the sample, so nothing of it is random", path.display())]
    NoBeginning { path: PathBuf },
}

/// A line of the export. Other fields are ignored.
#[derive(Deserialize)]
struct ExportedLabel {
    trajectory_id: String,
    step_index: Option<u32>,
    evaluator: String,
    judge_then: Option<String>,
    judge_label_then: Option<String>,
    label: String,
    #[serde(default)]
    author: String,
    #[serde(default)]
    identifier: String,
    rubric_hash: Option<String>,
    sample: Option<LabelSample>,
}

/// How the case was drawn.
#[derive(Clone, Deserialize)]
struct LabelSample {
    draw: String,
    project: String,
    until: String,
    sampling: LabelSampling,
    seed: u64,
    position: usize,
    /// False if the person had labelled the case before, and so had seen the verdict.
    is_blind: bool,
    labels: Vec<(String, f64)>,
    population: SamplePopulation,
}

impl LabelSample {
    /// Whether the label counts: not if the person had seen the verdict, or could not decide. A rubric may have a
    /// label of that name.
    fn is_decision(&self, label: &str) -> bool {
        self.is_blind && (label != "undecided" || self.labels.iter().any(|(known, _)| known == label))
    }
}

#[derive(Clone, Deserialize)]
struct SamplePopulation {
    digest: String,
    trajectories: u64,
    judged: u64,
    not_judged: u64,
    by_label: BTreeMap<String, u64>,
}

/// The labels of one sample.
#[derive(Debug)]
pub(super) struct ReviewSampleFile {
    pub(super) evaluator: EvaluatorRecord,
    pub(super) population: LabelPopulation,
    pub(super) by_label: BTreeMap<String, u64>,
    /// The beginning of the draw that somebody has labelled.
    pub(super) cases: Vec<JudgedCase>,
    pub(super) labels: Vec<CaseLabel>,
    /// Labels of other samples, and those beyond a gap.
    pub(super) skipped_count: usize,
}

impl ReviewSampleFile {
    /// Reads the sample of an evaluator. Of several, the one that ends last counts.
    pub(super) fn read(path: &Path, evaluator: Option<&str>) -> Result<ReviewSampleFile, ReviewSampleError> {
        let mut drawn = read_drawn_labels(path)?;
        if let Some(evaluator) = evaluator {
            drawn.retain(|(_, label, _)| label.evaluator == evaluator);
        }
        let mut names: Vec<&str> = drawn.iter().map(|(_, label, _)| label.evaluator.as_str()).collect();
        names.sort_unstable();
        names.dedup();
        if names.len() > 1 {
            return Err(ReviewSampleError::SeveralEvaluators { known: names.join(", ") });
        }
        let count = drawn.len();
        let latest = drawn.iter().map(|(_, _, sample)| sample).max_by(|a, b| a.until.cmp(&b.until)).cloned();
        let latest = latest.ok_or_else(|| ReviewSampleError::NotDrawn { path: path.to_owned() })?;
        // Retention and late arrivals change the population of a draw; labels of another one are another sample.
        let identify = |sample: &LabelSample| {
            (sample.draw.clone(), sample.project.clone(), sample.population.digest.clone(), sample.population.judged)
        };
        let wanted = identify(&latest);
        drawn.retain(|(_, _, sample)| identify(sample) == wanted);
        let record = describe_evaluator(path, &drawn, &latest)?;
        // Only a beginning of the draw without gaps is random.
        let mut by_position: BTreeMap<usize, JudgedCase> = BTreeMap::new();
        for (line, label, sample) in &drawn {
            let judge_label = label.judge_label_then.clone().unwrap_or_default();
            let is_known = sample.labels.iter().any(|(known, _)| *known == judge_label);
            let case = by_position.entry(sample.position).or_insert_with(|| JudgedCase {
                trajectory_id: label.trajectory_id.clone(),
                step_index: label.step_index,
                label: judge_label,
                uncertainty: None,
                votes: None,
            });
            let is_same = (&case.trajectory_id, case.step_index) == (&label.trajectory_id, label.step_index);
            if !is_known || !is_same {
                return Err(ReviewSampleError::Contradiction { path: path.to_owned(), line: *line });
            }
        }
        let cases: Vec<JudgedCase> = by_position
            .into_iter()
            .enumerate()
            .take_while(|(at, (position, _))| at == position)
            .map(|(_, (_, case))| case)
            .collect();
        if cases.is_empty() {
            return Err(ReviewSampleError::NoBeginning { path: path.to_owned() });
        }
        let known: HashMap<(&str, Option<u32>), usize> =
            cases.iter().enumerate().map(|(at, case)| ((case.trajectory_id.as_str(), case.step_index), at)).collect();
        let labels: Vec<CaseLabel> = drawn
            .iter()
            .filter(|(_, label, _)| known.contains_key(&(label.trajectory_id.as_str(), label.step_index)))
            .map(|(line, label, sample)| CaseLabel {
                trajectory_id: label.trajectory_id.clone(),
                step_index: label.step_index,
                label: sample.is_decision(&label.label).then(|| label.label.clone()),
                // With API keys, the name can be anybody's.
                labeller: if label.identifier.is_empty() { label.author.clone() } else { label.identifier.clone() },
                kind: LabellerKind::Human,
                location: format!("{}:{line}", path.display()),
            })
            .collect();
        let LabelSample { project, sampling, seed, population, until, .. } = latest;
        Ok(ReviewSampleFile {
            evaluator: record,
            population: LabelPopulation {
                run_id: format!("live until {until}"),
                sources: if project.is_empty() { Vec::new() } else { vec![project] },
                digest: population.digest,
                trajectories: population.trajectories,
                judged: population.judged,
                not_judged: population.not_judged,
                sampling,
                seed,
            },
            by_label: population.by_label,
            skipped_count: count - labels.len(),
            cases,
            labels,
        })
    }

    /// Returns the labelled cases as a population, for merging labels.
    pub(super) fn labelled_cases(&self) -> CasePopulation {
        CasePopulation { cases: self.cases.clone(), ..CasePopulation::default() }
    }
}

/// A label with its line number and its sample.
type DrawnLabel = (usize, ExportedLabel, LabelSample);

fn read_drawn_labels(path: &Path) -> Result<Vec<DrawnLabel>, ReviewSampleError> {
    let io = |source| ReviewSampleError::Io { path: path.to_owned(), source };
    let mut reader = BufReader::new(File::open(path).map_err(io)?);
    let (mut labels, mut text) = (Vec::new(), Vec::new());
    for line in 1.. {
        text.clear();
        let length = reader.by_ref().take(MAX_LINE_BYTES).read_until(b'\n', &mut text).map_err(io)?;
        if length == 0 {
            break;
        }
        if length as u64 == MAX_LINE_BYTES {
            return Err(ReviewSampleError::TooLong { path: path.to_owned(), line });
        }
        if text.iter().all(u8::is_ascii_whitespace) {
            continue;
        }
        let label: ExportedLabel = serde_json::from_slice(&text).map_err(|source| ReviewSampleError::Line {
            path: path.to_owned(),
            line,
            source,
        })?;
        if let Some(sample) = label.sample.clone() {
            labels.push((line, label, sample));
        }
    }
    Ok(labels)
}

/// Returns the evaluator that all labels are about. Fails with the first label that is about another judge or rubric.
fn describe_evaluator(
    path: &Path,
    drawn: &[DrawnLabel],
    sample: &LabelSample,
) -> Result<EvaluatorRecord, ReviewSampleError> {
    let about = |label: &ExportedLabel| {
        (label.judge_then.clone().unwrap_or_default(), label.rubric_hash.clone().unwrap_or_default())
    };
    let Some((_, first, _)) = drawn.first() else {
        return Err(ReviewSampleError::NotDrawn { path: path.to_owned() });
    };
    let (judge, rubric_hash) = about(first);
    for (line, label, _) in drawn {
        let found = about(label);
        if found != (judge.clone(), rubric_hash.clone()) {
            let text = |(judge, hash): (String, String)| {
                format!("{judge} by the rubric {}", hash.chars().take(12).collect::<String>())
            };
            return Err(ReviewSampleError::OtherJudge {
                path: path.to_owned(),
                line: *line,
                found: text(found),
                expected: text((judge, rubric_hash)),
            });
        }
    }
    Ok(EvaluatorRecord {
        name: first.evaluator.clone(),
        title: String::new(),
        of_steps: first.step_index.is_some(),
        labels: sample.labels.clone(),
        rubric_hash,
        phoenix_name: String::new(),
        judge,
    })
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn line(position: usize, label: &str, author: &str, draw: &str) -> String {
        let mut line = json!({
            "trajectory_id": format!("t{position}"), "step_index": 1, "evaluator": "thought_to_tool", "judge_then": "openai:a",
            "judge_label_then": "correct", "label": label, "author": author, "identifier": author, "rubric_hash": "h",
        });
        if !draw.is_empty() {
            line["sample"] = json!({
                "draw": draw, "project": "", "until": draw, "sampling": "uniform", "seed": 0, "position": position, "is_blind": true,
                "labels": [["correct", 1.0], ["incorrect", 0.0]],
                "population": {
                    "digest": "d", "trajectories": 90, "judged": 100, "not_judged": 0,
                    "by_label": {"correct": 80, "incorrect": 20},
                },
            });
        }
        line.to_string() + "\n"
    }

    fn read(text: &str) -> Result<ReviewSampleFile, ReviewSampleError> {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("labels.jsonl");
        std::fs::write(&path, text).unwrap();
        ReviewSampleFile::read(&path, None)
    }

    #[test]
    fn a_beginning_of_the_latest_draw_counts() {
        let text = [
            line(0, "correct", "ann", "1"),
            line(0, "correct", "ann", "2"),
            line(0, "incorrect", "bob", "2"),
            line(1, "undecided", "ann", "2"),
            line(2, "correct", "ann", "2").replace("\"is_blind\":true", "\"is_blind\":false"),
            line(4, "correct", "ann", "2"),
            line(9, "correct", "ann", ""),
        ];
        let found = read(&text.concat()).unwrap();
        let ids: Vec<&str> = found.cases.iter().map(|case| case.trajectory_id.as_str()).collect();
        assert_eq!(ids, ["t0", "t1", "t2"]);
        let labels: Vec<_> = found.labels.iter().map(|label| (label.label.as_deref(), &*label.labeller)).collect();
        assert_eq!(labels, [(Some("correct"), "ann"), (Some("incorrect"), "bob"), (None, "ann"), (None, "ann")]);
        assert_eq!((found.skipped_count, found.population.judged, &*found.evaluator.judge), (2, 100, "openai:a"));
    }

    #[test]
    fn what_is_no_sample_is_refused() {
        let message = |text: &str| read(text).unwrap_err().to_string();
        assert!(message(&line(0, "correct", "ann", "")).contains("none of the labels is of a random sample"));
        assert!(message(&line(2, "correct", "ann", "1")).contains("nobody has labelled the first case"));
        assert!(message("{}\n").contains("labels.jsonl:1: no label of the review page: missing field"));
        let foreign =
            line(0, "correct", "ann", "1").replace("\"judge_label_then\":\"correct\"", "\"judge_label_then\":\"odd\"");
        assert!(message(&foreign).contains("labels.jsonl:1: the label contradicts its own sample"));
        let other = line(1, "correct", "ann", "1").replace("openai:a", "openai:b");
        let mixed = message(&(line(0, "correct", "ann", "1") + &other));
        assert!(mixed.contains(":2: the label is about a verdict of openai:b by the rubric h"), "{mixed}");
    }
}
