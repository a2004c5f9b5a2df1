//! Restores answers into the verdict cache that only the outcome file of a run still contains: a power failure may
//! damage one file and not the other. A paid answer that is in either of them is not paid for again.

use std::fs::{self, File};
use std::io::{BufRead, BufReader, ErrorKind, Seek, SeekFrom};

use super::folder::{MAX_SEARCHED_RUNS, RunFolder, StateFolder};
use super::{CachedVerdict, QuestionKey, RunFileError, RunState, VerdictCache, parse_line_key};
use crate::outcome::{OutcomeKind, OutcomeLine};

impl StateFolder {
    /// Restores answers from the outcomes of interrupted runs that no process has locked.
    pub fn restore_cache(&self, cache: &mut VerdictCache) -> Result<(), RunFileError> {
        for id in self.run_ids().into_iter().take(MAX_SEARCHED_RUNS) {
            let Ok(folder) = self.read_run(&id) else { continue };
            if folder.record.state == RunState::Running && !self.is_held(&id) {
                folder.restore_cache(cache)?;
            }
        }
        Ok(())
    }
}

impl RunFolder {
    /// Restores answers from the part of this run's outcomes that has not been searched yet. The file `restored`
    /// holds the offset.
    pub(crate) fn restore_cache(&self, cache: &mut VerdictCache) -> Result<(), RunFileError> {
        let path = self.outcomes_path();
        let io = |reason| RunFileError::new(&path, reason);
        let mut file = match File::open(&path) {
            Ok(file) => file,
            Err(error) if error.kind() == ErrorKind::NotFound => return Ok(()),
            Err(error) => return Err(io(error)),
        };
        let mark = self.path().join("restored");
        let length = file.metadata().map_err(io)?.len();
        let looked_at: u64 = fs::read_to_string(&mark).ok().and_then(|text| text.trim().parse().ok()).unwrap_or(0);
        // The offset was stored for the present cache. An empty cache was lost or deleted, so everything is searched
        // again.
        let start = if looked_at > length || cache.is_empty() { 0 } else { looked_at };
        if start == length {
            return Ok(());
        }
        file.seek(SeekFrom::Start(start)).map_err(io)?;
        let mut reader = BufReader::with_capacity(1 << 18, file);
        let mut line = Vec::new();
        let mut at = start;
        loop {
            line.clear();
            let read = reader.read_until(b'\n', &mut line).map_err(io)?;
            // A line without an end was cut off, or is still being written.
            if read == 0 || !line.ends_with(b"\n") {
                break;
            }
            at += read as u64;
            match parse_line_key(&line) {
                Some(key) if cache.has(key) => {}
                Some(key) => restore_answer(cache, key, &line)?,
                None => restore_votes(cache, &line)?,
            }
        }
        cache.write()?;
        // If the offset cannot be stored, the next process searches again, which is only slower.
        let _ = fs::write(mark, at.to_string());
        Ok(())
    }
}

fn restore_answer(cache: &mut VerdictCache, key: QuestionKey, line: &[u8]) -> Result<(), RunFileError> {
    let Ok(outcome) = serde_json::from_slice::<OutcomeLine>(line) else { return Ok(()) };
    let (OutcomeKind::Scored, Some(label)) = (outcome.outcome, outcome.label) else { return Ok(()) };
    let explanation = outcome.explanation.unwrap_or_default();
    let OutcomeLine { shortened, label_probability, answered_by, .. } = outcome;
    cache.add(key, CachedVerdict { label, explanation, shortened, label_probability, answered_by })
}

/// The outcome of a panel has no key; each of its votes has one. Their explanations come back shortened.
fn restore_votes(cache: &mut VerdictCache, line: &[u8]) -> Result<(), RunFileError> {
    const VOTES: &[u8] = b"\"votes\":[";
    if !line.windows(VOTES.len()).any(|window| window == VOTES) {
        return Ok(());
    }
    let Ok(outcome) = serde_json::from_slice::<OutcomeLine>(line) else { return Ok(()) };
    for vote in outcome.votes {
        let (Some(key), Some(label)) = (QuestionKey::parse(&vote.k), vote.label) else { continue };
        if !cache.has(key) {
            let verdict = CachedVerdict {
                label,
                explanation: vote.explanation.unwrap_or_default(),
                shortened: outcome.shortened.clone(),
                label_probability: vote.label_probability,
                answered_by: vote.answered_by,
            };
            cache.add(key, verdict)?;
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::super::AppendLog;
    use super::super::folder::test_record;
    use super::*;

    fn line(label: &str) -> OutcomeLine {
        serde_json::from_value(serde_json::json!({
            "run_id": "1", "trajectory_id": "t", "step_index": 1, "evaluator": "e", "outcome": "scored", "label": label,
            "score": 1.0, "explanation": "why", "evidence": [], "reason": null, "judge": "m", "rubric_hash": "h",
            "tokens": null, "cost_usd": null, "cached": false, "calls": 1,
        }))
        .expect("a line")
    }

    fn cached(label: &str) -> CachedVerdict {
        serde_json::from_value(serde_json::json!({"label": label, "explanation": ""})).expect("a verdict")
    }

    #[test]
    fn votes_of_a_panel_come_back() {
        let folder = tempfile::tempdir().expect("a folder");
        let state = StateFolder::open(folder.path()).expect("opened");
        let run = state.create_run(test_record("1", RunState::Running)).expect("created");
        let keys: Vec<QuestionKey> = (0..3_u8).map(|number| QuestionKey::from_parts(&[&[number]])).collect();
        let mut panel = line("correct");
        panel.votes = serde_json::from_value(serde_json::json!([
            {"k": keys[0].to_string(), "judge": "a", "label": "correct", "score": 1.0, "explanation": "so it is",
             "label_probability": 0.75, "answered_by": "a-2", "cost_usd": 0.1, "calls": 1, "cached": false},
            {"k": keys[1].to_string(), "judge": "b", "label": null, "score": null, "reason": "down", "cost_usd": null,
             "calls": 1, "cached": false},
            {"k": "no key", "judge": "c", "label": "correct", "score": 1.0, "cost_usd": 0.1, "calls": 1,
             "cached": false},
        ]))
        .expect("votes");
        let mut log = AppendLog::open(&run.outcomes_path()).expect("opened");
        log.add(&panel).expect("added");
        log.write().expect("written");
        let mut cache = VerdictCache::open(&state.cache_path()).expect("opened");
        run.restore_cache(&mut cache).expect("restored");
        let restored = cache.get(keys[0]).expect("read").expect("a verdict");
        assert_eq!((restored.label.as_str(), restored.explanation.as_str()), ("correct", "so it is"));
        assert_eq!((restored.label_probability, restored.answered_by.as_deref()), (Some(0.75), Some("a-2")));
        assert!(!cache.has(keys[1]), "no answer");
    }

    #[test]
    fn answers_of_a_run_that_was_cut_off_come_back() {
        let folder = tempfile::tempdir().expect("a folder");
        let state = StateFolder::open(folder.path()).expect("opened");
        let run = state.create_run(test_record("1", RunState::Running)).expect("created");
        let mut log = AppendLog::open(&run.outcomes_path()).expect("opened");
        let keys: Vec<QuestionKey> = (0..3_u8).map(|number| QuestionKey::from_parts(&[&[number]])).collect();
        log.add(&line("no key")).expect("added");
        log.add_keyed(keys[0], &line("correct")).expect("added");
        log.add_keyed(keys[1], &line("incorrect")).expect("added");
        log.write().expect("written");
        let label = |cache: &mut VerdictCache, key| cache.get(key).expect("read").map(|found| found.label);
        let mut cache = VerdictCache::open(&state.cache_path()).expect("opened");
        cache.add(keys[0], cached("kept")).expect("added");
        cache.write().expect("written");
        state.restore_cache(&mut cache).expect("restored");
        assert_eq!(label(&mut cache, keys[1]), None, "a process is at the run");
        drop(run);
        state.restore_cache(&mut cache).expect("restored");
        assert_eq!(label(&mut cache, keys[0]).as_deref(), Some("kept"));
        assert_eq!(label(&mut cache, keys[1]).as_deref(), Some("incorrect"));
        let length = fs::metadata(state.cache_path()).expect("a file").len();
        state.restore_cache(&mut cache).expect("restored");
        assert_eq!(fs::metadata(state.cache_path()).expect("a file").len(), length, "nothing twice");
        // More comes, and a cache that is gone comes back whole.
        log.add_keyed(keys[2], &line("correct")).expect("added");
        log.write().expect("written");
        state.restore_cache(&mut cache).expect("restored");
        assert_eq!(label(&mut cache, keys[2]).as_deref(), Some("correct"));
        fs::remove_file(state.cache_path()).expect("removed");
        let mut cache = VerdictCache::open(&state.cache_path()).expect("opened");
        state.restore_cache(&mut cache).expect("restored");
        assert!(keys.iter().all(|key| label(&mut cache, *key).is_some()));
    }
}
