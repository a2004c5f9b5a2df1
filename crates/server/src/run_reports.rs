//! Reports of runs of `gradus eval` in the data folder. Reports of finished runs are cached, because computing one
//! reads all of its outcomes.

use std::collections::{HashMap, VecDeque};
use std::path::PathBuf;
use std::sync::{Arc, Mutex, PoisonError};

use gradus_eval::calibration::apply_run_calibration;
use gradus_eval::report::{EvaluationSummary, GateResult, GateVerdict, MetricResult, RunReader};
use gradus_eval::run::{RunFileError, RunFolder, RunManifest, RunState};
use gradus_report::html::{number, text};
use gradus_report::panel_text::build_panel_tables;
use gradus_report::{ReportTable, SupplementLoader, check_run_gates};

/// Two caches: whole reports for the page of a run, and one line for each run in the list.
#[derive(Debug)]
pub(super) struct RunReportCache {
    supplements: SupplementLoader,
    whole: Mutex<VecDeque<Arc<RunReportParts>>>,
    /// By run id. An entry is valid while the end of the run is the same, since a run can be resumed.
    briefs: Mutex<HashMap<String, RunListSummary>>,
}

/// Everything that the report of a run shows.
#[derive(Debug)]
pub(super) struct RunReportParts {
    pub(super) summary: EvaluationSummary,
    pub(super) gates: Vec<GateResult>,
    /// Tables of the supplement, such as benchmark results.
    pub(super) tables: Vec<ReportTable>,
    /// Whether a part could not be read. It may be readable next time, so the report is not cached.
    is_partial: bool,
}

impl RunReportParts {
    /// Reads all outcomes of a run. A broken supplement does not hide the verdicts.
    fn load_run(run: &RunFolder, supplements: SupplementLoader) -> Result<RunReportParts, RunFileError> {
        let mut reader = RunReader::open(run)?;
        let mut summary = EvaluationSummary::from_run(&mut reader)?;
        apply_run_calibration(&mut summary, &mut reader)?;
        let (mut supplement, is_partial) = match supplements(run.path()) {
            Ok(supplement) => (supplement, false),
            Err(error) => {
                tracing::error!(error, "failed to read the benchmark results of a run; reporting without them");
                (None, true)
            }
        };
        if let Some(supplement) = &mut supplement {
            supplement.score(&mut reader)?;
            summary.metrics.extend(supplement.metrics());
        }
        let gates = check_run_gates(&mut reader, supplement.as_deref(), &summary, &run.record.gates, None)?;
        let mut tables = supplement.map(|supplement| supplement.tables()).unwrap_or_default();
        tables.extend(build_panel_tables(&summary));
        Ok(RunReportParts { summary, gates, tables, is_partial })
    }
}

/// One run in the list. Texts are formatted, since they are cached.
#[derive(Clone, Debug, Default)]
pub(super) struct RunListSummary {
    ended: Option<String>,
    pub(super) trajectories: String,
    /// Dimensions with their mean scores, or with what rules flagged.
    pub(super) scores: String,
    pub(super) gates: Option<RunGateStatus>,
}

impl RunListSummary {
    fn from_report(record: &RunManifest, whole: &RunReportParts) -> RunListSummary {
        let score = |metric: &MetricResult| {
            let mean = metric.value?;
            // A mean of rules that only notice mistakes would describe the few cases that they decided.
            let value = match metric.wrong_count().filter(|_| metric.is_from_flagging_rules()) {
                Some(0) => "none\u{a0}flagged".to_owned(),
                Some(wrong) => format!("{}\u{a0}flagged", number::format_count(wrong)),
                None => number::format_mean(mean, metric.is_share),
            };
            Some(format!("{}\u{a0}{value}", text::format_display_line(&metric.title)))
        };
        RunListSummary {
            ended: record.ended.clone(),
            trajectories: number::format_count(whole.summary.trajectories),
            scores: whole.summary.metrics.iter().filter_map(score).collect::<Vec<_>>().join(", "),
            gates: RunGateStatus::from_results(&whole.gates),
        }
    }
}

/// The result of all gates in one word, with a CSS class. A failed gate outweighs an inconclusive one.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct RunGateStatus {
    pub(super) class: &'static str,
    pub(super) text: String,
}

impl RunGateStatus {
    /// Summarizes the gates; `None` for a run without gates.
    fn from_results(results: &[GateResult]) -> Option<RunGateStatus> {
        let count = |verdict| results.iter().filter(|one| one.verdict == verdict).count();
        let (failed, unsure) = (count(GateVerdict::Fail), count(GateVerdict::Incomplete));
        let all = results.len();
        let of = |some: usize, what: &str| match all {
            1 => what.to_owned(),
            _ => format!("{some} of {all} {what}"),
        };
        Some(match (all, failed, unsure) {
            (0, ..) => return None,
            (_, 0, 0) => RunGateStatus { class: "pass", text: of(all, "pass") },
            (_, 0, _) => RunGateStatus { class: "unsure", text: of(unsure, "incomplete") },
            _ => RunGateStatus { class: "fail", text: of(failed, "fail") },
        })
    }
}

impl RunReportCache {
    pub(super) fn new(supplements: SupplementLoader) -> RunReportCache {
        RunReportCache { supplements, whole: Mutex::default(), briefs: Mutex::default() }
    }

    /// Maximum number of cached reports and of cached lines: whole reports are large, lines are small.
    const MAX_SUMMARIES: usize = 16;
    const MAX_BRIEFS: usize = 2_000;
    /// Maximum size of a run that is summarised for the list, which waits for it.
    const MAX_BYTES: u64 = 16 << 20;

    /// Loads the line of a run. `None` for running runs, for large ones, and, without `may_read`, for those that are
    /// not cached.
    pub(super) fn load_list_summary(&self, run: &RunFolder, may_read: bool) -> Option<RunListSummary> {
        let record = &run.record;
        if record.state == RunState::Running {
            return None;
        }
        let lock = || self.briefs.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(known) = lock().get(&record.run_id).filter(|known| known.ended == record.ended) {
            return Some(known.clone());
        }
        let size = |path: PathBuf| std::fs::metadata(path).map_or(0, |file| file.len());
        if !may_read || size(run.outcomes_path()) + size(run.trajectories_path()) > Self::MAX_BYTES {
            return None;
        }
        // A failure is cached as well, so that a broken run is not read again for every list.
        let brief = RunReportParts::load_run(run, self.supplements)
            .map(|whole| RunListSummary::from_report(record, &whole))
            .unwrap_or_else(|error| {
                tracing::error!(%error, "failed to read a run");
                RunListSummary { ended: record.ended.clone(), ..RunListSummary::default() }
            });
        let mut kept = lock();
        if kept.len() >= Self::MAX_BRIEFS {
            kept.clear();
        }
        kept.insert(record.run_id.clone(), brief.clone());
        Some(brief)
    }

    /// Loads the report of a run, from the cache if the run is finished and unchanged.
    pub(super) fn load_report(&self, run: &RunFolder) -> Result<Arc<RunReportParts>, RunFileError> {
        let record = &run.record;
        let is_finished = record.state == RunState::Finished;
        let lock = || self.whole.lock().unwrap_or_else(PoisonError::into_inner);
        let is_same =
            |known: &&Arc<RunReportParts>| known.summary.run_id == record.run_id && known.summary.ended == record.ended;
        if let Some(known) = lock().iter().find(is_same).filter(|_| is_finished) {
            return Ok(Arc::clone(known));
        }
        let whole = Arc::new(RunReportParts::load_run(run, self.supplements)?);
        if is_finished && !whole.is_partial {
            let mut kept = lock();
            kept.truncate(Self::MAX_SUMMARIES - 1);
            kept.push_front(Arc::clone(&whole));
        }
        Ok(whole)
    }
}

#[cfg(test)]
mod tests {
    use gradus_eval::run::StateFolder;

    use super::*;

    #[test]
    fn gates_in_a_word() {
        let said = |verdicts: &[GateVerdict]| {
            let result = |verdict: &GateVerdict| GateResult {
                gate: String::new(),
                metric: String::new(),
                bar: None,
                is_share: true,
                verdict: *verdict,
                value: None,
                interval: None,
                count: 0,
                is_certain: false,
                more_runs: None,
                raw_value: None,
                is_uncalibrated: false,
                explanation: String::new(),
            };
            RunGateStatus::from_results(&verdicts.iter().map(result).collect::<Vec<_>>())
                .map(|gates| (gates.class, gates.text))
        };
        use GateVerdict::{Fail, Incomplete, Pass};
        assert_eq!(said(&[]), None);
        assert_eq!(said(&[Pass]), Some(("pass", "pass".to_owned())));
        assert_eq!(said(&[Pass, Incomplete, Pass]), Some(("unsure", "1 of 3 incomplete".to_owned())));
        assert_eq!(said(&[Pass, Incomplete, Fail]), Some(("fail", "1 of 3 fail".to_owned())));
    }

    #[test]
    fn a_gate_that_cannot_be_checked_has_not_passed() {
        let folder = tempfile::tempdir().unwrap();
        let record = serde_json::json!({
            "run_id": "r", "fingerprint": "f", "state": "finished", "stopped_because": null, "started": "2026-11-15T10:00:00Z",
            "ended": "2026-11-15T10:00:01Z", "sources": [], "judge": "offline", "endpoint": null, "evaluators": [], "priced": true,
            "gates": ["oracle.success >= 0.9", "cost <= 5"], "gradus_version": "0",
        });
        let path = folder.path().join("runs/r");
        std::fs::create_dir_all(&path).unwrap();
        std::fs::write(path.join("run.json"), record.to_string()).unwrap();
        let run = StateFolder::from_path(folder.path()).read_run("r").unwrap();
        let summaries = RunReportCache::new(|_| Ok(None));
        let whole = summaries.load_report(&run).unwrap();
        assert_eq!(whole.gates[0].verdict, GateVerdict::Incomplete);
        assert!(whole.gates[0].explanation.contains("cannot be checked here"), "{:?}", whole.gates[0]);
        assert_eq!(summaries.load_list_summary(&run, true).unwrap().gates.unwrap().class, "unsure");
        assert!(!whole.is_partial && summaries.whole.lock().unwrap().len() == 1);
        // A supplement that is being written, or broken, is looked for again the next time.
        let summaries = RunReportCache::new(|_| Err("broken".to_owned()));
        assert!(summaries.load_report(&run).unwrap().is_partial && summaries.whole.lock().unwrap().is_empty());
    }
}
