//! What a bench adds to a run: its own numbers, beside those of the judge.

use std::collections::HashMap;
use std::io::{self, Write};
use std::path::Path;

use anyhow::Context as _;
use gradus_eval::report::{GateResult, Metric, RunReader};
use gradus_github::bench::TrialLine;
use quick_junit::TestSuite;

use super::super::outputs::Addition;
use crate::bench::report::{BenchReport, Kept};
use crate::bench::tables::Table;
use crate::bench::truth::Scores;

/// In a run's folder.
const FILE: &str = "bench.json";

pub(in crate::cli) struct BenchAddition {
    pub(in crate::cli) report: BenchReport,
}

impl BenchAddition {
    pub(in crate::cli) fn new(report: BenchReport) -> BenchAddition {
        BenchAddition { report }
    }

    /// The bench that a run is about, if it is about one.
    pub(in crate::cli) fn of_run(folder: &Path) -> Result<Option<BenchAddition>, String> {
        let path = folder.join(FILE);
        let text = match std::fs::read(&path) {
            Ok(text) => text,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
            Err(error) => return Err(format!("{}: {error}", path.display())),
        };
        let kept: Kept =
            serde_json::from_slice(&text).map_err(|error| format!("{}: {error}", path.display()))?;
        Ok(Some(BenchAddition::new(BenchReport::of(kept))))
    }
}

impl Addition for BenchAddition {
    fn metrics(&mut self, reader: &mut RunReader) -> anyhow::Result<Vec<Metric>> {
        let mut scores = Scores::default();
        let (mut by_id, mut by_session): (HashMap<&str, &TrialLine>, HashMap<&str, &TrialLine>) =
            (HashMap::new(), HashMap::new());
        for line in self.report.lines() {
            match &line.trajectory {
                Some(id) => by_id.insert(id, line),
                None => by_session.insert(&line.session, line),
            };
        }
        let mut trajectories: HashMap<String, String> = HashMap::new();
        reader.visit(|trajectory, outcomes| {
            let session = trajectory.session_id.as_deref().unwrap_or_default();
            let line = by_id.get(trajectory.trajectory_id.as_str()).or_else(|| by_session.get(session));
            if let Some(line) = line {
                scores.add(line, trajectory, outcomes);
                trajectories.insert(line.name(), trajectory.trajectory_id.clone());
            }
            anyhow::Ok(())
        })?;
        self.report.scores = Some(scores);
        self.report.trajectories = trajectories;
        Ok(self.report.metrics())
    }

    fn keep(&self, folder: &Path) -> anyhow::Result<()> {
        let path = folder.join(FILE);
        std::fs::write(&path, serde_json::to_vec(self.report.kept())?)
            .with_context(|| path.display().to_string())
    }

    fn is_enough(&self) -> bool {
        true
    }

    fn explain(&self, gate: &mut GateResult) {
        if let Some(reason) = self.report.why_none(&gate.metric).filter(|_| gate.value.is_none()) {
            gate.explanation = format!("{reason}, so the gate cannot pass");
        }
    }

    fn document(&self) -> anyhow::Result<Option<(&'static str, serde_json::Value)>> {
        Ok(Some(("bench", serde_json::to_value(&self.report)?)))
    }

    fn tables(&self) -> Vec<Table> {
        self.report.tables()
    }

    fn markdown(&self, out: &mut dyn Write) -> io::Result<()> {
        self.report.write_markdown(out)
    }

    fn csv(&self, folder: &Path) -> anyhow::Result<()> {
        self.report.write_csv(folder)
    }

    fn junit(&self) -> Vec<TestSuite> {
        self.report.junit()
    }

    fn lines(&self, run_id: &str, out: &mut dyn Write) -> io::Result<()> {
        self.report.write_lines(run_id, out)
    }

    fn print(&self, out: &mut dyn Write) -> io::Result<()> {
        self.report.print(out)
    }
}
