//! The raw answers of the judge, in a separate file of a run. Summaries and exports never read it, and neither the
//! verdict cache nor the store of a server contains them: an answer is only needed to check how it was parsed.

use std::collections::HashMap;
use std::fs::File;
use std::io::{BufRead, BufReader, ErrorKind, Read, Seek, SeekFrom};

use serde::{Deserialize, Serialize};

use super::question_key::QuestionKey;
use super::{RunFileError, RunFolder};
use crate::outcome::{JudgeVote, OutcomeLine};

/// Maximum stored bytes of an answer. Explanations are far shorter; reasoning of open models may be longer.
pub const MAX_RESPONSE_BYTES: usize = 8 << 10;

/// A line of `responses.jsonl`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct JudgeAnswer {
    /// The cache key of the question.
    pub k: String,
    pub trajectory_id: String,
    pub step_index: Option<u32>,
    pub evaluator: String,
    /// The last answer to the question, at most 8 KB of it. Absent if an identical question of this run was answered:
    /// then a line with the same key has it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub response: Option<String>,
    /// Bytes of the answer that were not stored.
    #[serde(default)]
    pub omitted_bytes: u64,
}

impl JudgeAnswer {
    /// Builds the answer to a question; without a text, a reference to the answer of an identical question. The
    /// client has already masked the secrets of the configuration.
    pub fn new(line: &OutcomeLine, key: QuestionKey, text: Option<&str>) -> JudgeAnswer {
        let cut = text.map(|text| &text[..text.floor_char_boundary(MAX_RESPONSE_BYTES)]);
        JudgeAnswer {
            k: key.to_string(),
            trajectory_id: line.trajectory_id.to_string(),
            step_index: line.step_index,
            evaluator: line.evaluator.to_string(),
            response: cut.map(str::to_owned),
            omitted_bytes: (text.map_or(0, str::len) - cut.map_or(0, str::len)) as u64,
        }
    }
}

/// Identifies an outcome without holding its texts: a digest of trajectory, step and evaluator.
type AnswerSubject = u128;

fn digest_subject(trajectory_id: &str, step_index: Option<u32>, evaluator: &str) -> AnswerSubject {
    let step = step_index.map_or_else(String::new, |step| step.to_string());
    gradus_core::stable_digest(format!("{trajectory_id}\0{step}\0{evaluator}").as_bytes())
}

/// The answers of a run, by outcome. Memory holds offsets, not texts.
#[derive(Debug)]
pub struct JudgeAnswers {
    file: Option<File>,
    path: std::path::PathBuf,
    /// Key of the question of each outcome; of a question that was asked again, the last one.
    keys: HashMap<AnswerSubject, String>,
    /// Offset and length of the line with the text, by key.
    line_positions: HashMap<String, (u64, usize)>,
}

impl JudgeAnswers {
    /// Indexes the file of a run. A run without a model has none.
    pub fn open(folder: &RunFolder) -> Result<JudgeAnswers, RunFileError> {
        let path = folder.responses_path();
        let io = |reason| RunFileError::new(&path, reason);
        let (mut keys, mut line_positions) = (HashMap::new(), HashMap::new());
        let file = match File::open(&path) {
            Ok(file) => file,
            Err(error) if error.kind() == ErrorKind::NotFound => {
                return Ok(JudgeAnswers { file: None, path, keys, line_positions });
            }
            Err(error) => return Err(io(error)),
        };
        let mut reader = BufReader::with_capacity(1 << 18, &file);
        let (mut line, mut at) = (Vec::new(), 0_u64);
        loop {
            line.clear();
            let length = reader.read_until(b'\n', &mut line).map_err(io)?;
            if length == 0 {
                break;
            }
            if let Ok(answer) = serde_json::from_slice::<JudgeAnswer>(&line) {
                if answer.response.is_some() {
                    line_positions.insert(answer.k.clone(), (at, length));
                }
                keys.insert(digest_subject(&answer.trajectory_id, answer.step_index, &answer.evaluator), answer.k);
            }
            at += length as u64;
        }
        Ok(JudgeAnswers { file: Some(file), path, keys, line_positions })
    }

    /// Returns the answer that an outcome was parsed from. `None` if no model was asked for it in this run.
    pub fn find_answer(&mut self, line: &OutcomeLine) -> Result<Option<JudgeAnswer>, RunFileError> {
        let subject = digest_subject(&line.trajectory_id, line.step_index, &line.evaluator);
        let place = self.keys.get(&subject).and_then(|key| self.line_positions.get(key)).copied();
        self.read_answer(place)
    }

    /// The answer of one vote.
    pub fn find_vote_answer(&mut self, vote: &JudgeVote) -> Result<Option<JudgeAnswer>, RunFileError> {
        let place = self.line_positions.get(&vote.k).copied();
        self.read_answer(place)
    }

    fn read_answer(&mut self, place: Option<(u64, usize)>) -> Result<Option<JudgeAnswer>, RunFileError> {
        let (Some((at, length)), Some(file)) = (place, &mut self.file) else { return Ok(None) };
        let mut bytes = vec![0; length];
        let read = file.seek(SeekFrom::Start(at)).and_then(|_| file.read_exact(&mut bytes));
        read.map_err(|reason| RunFileError::new(&self.path, reason))?;
        Ok(serde_json::from_slice(&bytes).ok())
    }
}

#[cfg(test)]
mod tests {
    use super::super::folder::test_record;
    use super::super::{AppendLog, RunState, StateFolder};
    use super::*;

    fn line(trajectory: &str, step_index: Option<u32>) -> OutcomeLine {
        serde_json::from_value(serde_json::json!({
            "run_id": "1", "trajectory_id": trajectory, "step_index": step_index, "evaluator": "e", "outcome": "scored",
            "label": "l", "score": 1.0, "explanation": "why", "evidence": [], "reason": null, "judge": "m",
            "rubric_hash": "h", "tokens": null, "cost_usd": null, "cached": false, "calls": 1,
        }))
        .expect("a line")
    }

    #[test]
    fn answers_are_found_by_outcome_and_shared_by_identical_questions() {
        let folder = tempfile::tempdir().expect("a folder");
        let state = StateFolder::open(folder.path()).expect("opened");
        let run = state.create_run(test_record("1", RunState::Running)).expect("created");
        assert_eq!(JudgeAnswers::open(&run).expect("opened").find_answer(&line("t", None)).expect("read"), None);
        let key = |number: u8| QuestionKey::from_parts(&[&[number]]);
        let mut log = AppendLog::open(&run.responses_path()).expect("opened");
        for answer in [
            JudgeAnswer::new(&line("t", None), key(1), Some("first")),
            JudgeAnswer::new(&line("u", None), key(1), None),
            JudgeAnswer::new(&line("t", Some(1)), key(2), Some("no label")),
            JudgeAnswer::new(&line("t", Some(1)), key(3), Some("asked again")),
        ] {
            log.add(&answer).expect("added");
        }
        log.write().expect("written");
        let mut answers = JudgeAnswers::open(&run).expect("opened");
        let mut text = |line: &OutcomeLine| answers.find_answer(line).expect("read").and_then(|found| found.response);
        assert_eq!(text(&line("t", None)).as_deref(), Some("first"));
        assert_eq!(text(&line("u", None)).as_deref(), Some("first"));
        assert_eq!(text(&line("t", Some(1))).as_deref(), Some("asked again"));
        assert_eq!(text(&line("v", None)), None);
    }

    #[test]
    fn long_answers_are_cut_and_say_so() {
        let long = "é".repeat(MAX_RESPONSE_BYTES);
        let answer = JudgeAnswer::new(&line("t", None), QuestionKey::from_parts(&[]), Some(&long));
        let stored = answer.response.expect("a text");
        assert_eq!((stored.len(), answer.omitted_bytes), (MAX_RESPONSE_BYTES, MAX_RESPONSE_BYTES as u64));
    }
}
