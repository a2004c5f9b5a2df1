//! What finished runs come to. Their files do not change any more, and may take long to sum up.

use std::collections::{HashMap, VecDeque};
use std::sync::{Arc, Mutex, PoisonError};

use gradus_eval::report::{Gate, GateResult, GateVerdict, Metric, RunReader, Summary};
use gradus_eval::run::{RunFileError, RunFolder, RunRecord, RunState};

use crate::bench::report::BenchReport;
use crate::bench::tables::Table;
use crate::output::html::number;
use crate::output::html::text;

#[derive(Debug, Default)]
pub(in crate::serve) struct Summaries {
    whole: Mutex<VecDeque<Arc<Whole>>>,
    /// By the run's id.
    briefs: Mutex<HashMap<String, Brief>>,
}

/// All that a run's report is made of.
#[derive(Debug)]
pub(super) struct Whole {
    pub(super) summary: Summary,
    pub(super) gates: Vec<GateResult>,
    /// Of the bench that the run is about.
    pub(super) tables: Vec<Table>,
}

impl Whole {
    fn of(run: &RunFolder) -> Result<Whole, RunFileError> {
        let mut reader = RunReader::open(run)?;
        let mut summary = Summary::of(&mut reader)?;
        let mut bench = BenchReport::of_run(run.path()).unwrap_or_else(|error| {
            tracing::error!(error, "the bench of a run cannot be read; its report is shown without it");
            None
        });
        if let Some(bench) = &mut bench {
            bench.score(&mut reader)?;
            summary.metrics.extend(bench.metrics());
        }
        let mut gates: Vec<GateResult> =
            gates(&reader.record, bench.as_ref()).iter().map(|gate| gate.check(&summary, false)).collect();
        if let Some(bench) = &bench {
            gates.iter_mut().for_each(|gate| bench.explain(gate));
        }
        let tables = bench.map(|bench| bench.tables()).unwrap_or_default();
        Ok(Whole { summary, gates, tables })
    }
}

/// What the run had to meet.
fn gates(record: &RunRecord, bench: Option<&BenchReport>) -> Vec<Gate> {
    let measured = bench.map(BenchReport::own_metric_names).unwrap_or_default();
    let names = record.evaluators.iter().map(|known| known.name.as_str());
    let names: Vec<&str> = names.chain(measured.iter().map(String::as_str)).collect();
    record.gates.iter().filter_map(|text| Gate::parse(text, &names).ok()).collect()
}

/// What tells a run from others in the list.
#[derive(Clone, Debug, Default)]
pub(super) struct Brief {
    ended: Option<String>,
    pub(super) trajectories: String,
    /// Dimensions with their mean scores.
    pub(super) scores: String,
    pub(super) gates: Option<Gates>,
}

/// Whether a run met its gates, in a word.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Gates {
    pub(super) class: &'static str,
    pub(super) text: String,
}

impl Gates {
    fn of(results: &[GateResult]) -> Option<Gates> {
        let count = |verdict| results.iter().filter(|one| one.verdict == verdict).count();
        let (failed, unsure) = (count(GateVerdict::Fail), count(GateVerdict::Inconclusive));
        let all = results.len();
        let of = |some: usize, what: &str| match all {
            1 => what.to_owned(),
            _ => format!("{some} of {all} {what}"),
        };
        Some(match (all, failed, unsure) {
            (0, ..) => return None,
            (_, 0, 0) => Gates { class: "pass", text: of(all, "pass") },
            (_, 0, _) => Gates { class: "unsure", text: of(unsure, "inconclusive") },
            _ => Gates { class: "fail", text: of(failed, "fail") },
        })
    }
}

impl Summaries {
    const MOST: usize = 16;
    const MOST_BRIEFS: usize = 2_000;
    /// Runs with more outcomes than this are not summed up for a list.
    const MOST_BYTES: u64 = 8 << 20;

    /// None for runs that go on, and for those that would take long to sum up.
    pub(super) fn brief(&self, run: &RunFolder, may_read: bool) -> Option<Brief> {
        let record = &run.record;
        let lock = || self.briefs.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(known) = lock().get(&record.run_id).filter(|known| known.ended == record.ended) {
            return Some(known.clone());
        }
        let size = || std::fs::metadata(run.outcomes_path()).map_or(u64::MAX, |file| file.len());
        if !may_read || record.state == RunState::Running || size() > Self::MOST_BYTES {
            return None;
        }
        let Whole { summary, gates, .. } = Whole::of(run).ok()?;
        let score = |metric: &Metric| {
            let value = metric.value?;
            let value = if metric.is_share { number::percent(value) } else { number::score(value) };
            Some(format!("{}\u{a0}{value}", text::line(&metric.title)))
        };
        let brief = Brief {
            ended: record.ended.clone(),
            trajectories: number::count(summary.trajectories),
            scores: summary.metrics.iter().filter_map(score).collect::<Vec<_>>().join(", "),
            gates: Gates::of(&gates),
        };
        let mut kept = lock();
        if kept.len() >= Self::MOST_BRIEFS {
            kept.clear();
        }
        kept.insert(record.run_id.clone(), brief.clone());
        Some(brief)
    }

    pub(super) fn of(&self, run: &RunFolder) -> Result<Arc<Whole>, RunFileError> {
        let record = &run.record;
        let is_finished = record.state == RunState::Finished;
        let lock = || self.whole.lock().unwrap_or_else(PoisonError::into_inner);
        let is_same = |known: &&Arc<Whole>| {
            known.summary.run_id == record.run_id && known.summary.ended == record.ended
        };
        if let Some(known) = lock().iter().find(is_same).filter(|_| is_finished) {
            return Ok(Arc::clone(known));
        }
        let whole = Arc::new(Whole::of(run)?);
        if is_finished {
            let mut kept = lock();
            kept.truncate(Self::MOST - 1);
            kept.push_front(Arc::clone(&whole));
        }
        Ok(whole)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn gates_in_a_word() {
        let said = |verdicts: &[GateVerdict]| {
            let result = |verdict: &GateVerdict| GateResult {
                gate: String::new(),
                metric: String::new(),
                bar: 0.0,
                is_share: true,
                verdict: *verdict,
                value: None,
                interval: None,
                explanation: String::new(),
            };
            Gates::of(&verdicts.iter().map(result).collect::<Vec<_>>()).map(|gates| (gates.class, gates.text))
        };
        use GateVerdict::{Fail, Inconclusive, Pass};
        assert_eq!(said(&[]), None);
        assert_eq!(said(&[Pass]), Some(("pass", "pass".to_owned())));
        assert_eq!(said(&[Pass, Inconclusive, Pass]), Some(("unsure", "1 of 3 inconclusive".to_owned())));
        assert_eq!(said(&[Pass, Inconclusive, Fail]), Some(("fail", "1 of 3 fail".to_owned())));
    }
}
