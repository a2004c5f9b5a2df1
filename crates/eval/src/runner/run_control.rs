//! Progress, interrupts, deadlines and the end of a run.

use std::time::Duration;

use gradus_llm::ModelClient;
use tokio::time::Instant;

use super::evaluation_runner::EvaluationRunner;
use super::run_plan::RunTermination;
use crate::run::RunFileError;

/// How long a stopped run waits for the questions in flight, which are already paid for.
const GRACE_PERIOD: Duration = Duration::from_secs(5);

impl EvaluationRunner<'_> {
    /// Writes results and then reports progress, so that everything that is shown as finished is on disk.
    pub(super) fn tick(&mut self) -> Result<(), RunFileError> {
        // What is shown as done is on disk.
        self.ledger.write_all()?;
        self.report_progress();
        Ok(())
    }

    fn report_progress(&mut self) {
        self.progress.elapsed = self.started.elapsed();
        self.progress.in_flight = self.tasks.len();
        let mut seen: Vec<&ModelClient> = Vec::new();
        let (mut calls, mut limit, mut loading) = (0, 0, None);
        for client in self.health.judges().map(|judge| &judge.client) {
            if !seen.iter().any(|other| client.shares_calls_with(other)) {
                calls += client.call_count();
            }
            seen.push(client);
            limit += client.limiter().limit();
            loading = loading.max(client.loading_for());
        }
        (self.progress.calls, self.progress.limit, self.progress.loading) = (calls, limit, loading);
        self.watcher.on_progress(&self.progress);
    }

    pub(super) fn handle_interrupt(&mut self) {
        // While the server is loading its model, no answers are expected.
        let is_loading = self.health.judges().any(|judge| judge.client.loading_for().is_some());
        if self.stopping == Some(RunTermination::Interrupted) || is_loading {
            self.stopping = Some(RunTermination::Interrupted);
            self.tasks.abort_all();
            return;
        }
        self.stopping = Some(RunTermination::Interrupted);
        self.deadline = Some(Instant::now() + GRACE_PERIOD);
    }

    /// The first deadline stops the run and starts the grace period; the second one drops the questions in flight.
    pub(super) fn handle_deadline(&mut self) {
        self.deadline = None;
        match (&self.stopping, self.limits.max_time) {
            (None, Some(time)) => {
                self.stopping = Some(RunTermination::Limit(format!("the limit of {} s is reached", time.as_secs())));
                self.deadline = Some(Instant::now() + GRACE_PERIOD);
            }
            _ => self.tasks.abort_all(),
        }
    }

    /// Closes the ledger. A run that ends in a row of failures counts as stopped by its endpoint, so that it can be
    /// resumed.
    pub(super) fn finish_run(mut self) -> Result<RunTermination, RunFileError> {
        self.close_open_ballots()?;
        self.ledger.close()?;
        self.report_progress();
        let died = self.health.find_failure_at_end().map(|reason| RunTermination::EndpointDied(reason.to_owned()));
        Ok(self.stopping.take().or(died).unwrap_or(RunTermination::Finished))
    }
}
