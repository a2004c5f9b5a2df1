//! Makes all attempts that are not in the journal yet, several at a time.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use gradus_dataset::{DatasetItem, TrialEnd};
use indicatif::ProgressBar;
use tokio::task::JoinSet;

use super::attempt::{AttemptError, AttemptOutcome, ExperimentAgent};
use super::folder::{AttemptMap, ExperimentFolder, ExperimentFolderError};

/// Why an experiment ended before all attempts were made.
#[derive(Debug, thiserror::Error)]
pub(super) enum ExperimentStop {
    #[error("interrupted")]
    Interrupted,
    #[error("agent not found: {agent}: {reason}; hint: {hint}")]
    AgentMissing { agent: String, reason: String, hint: &'static str },
    #[error(transparent)]
    Folder(#[from] ExperimentFolderError),
    #[error(transparent)]
    Attempt(#[from] AttemptError),
    #[error("trial not run: {0}")]
    Task(#[from] tokio::task::JoinError),
}

/// The work to do: which items, how often, how many at a time.
#[derive(Debug)]
pub(super) struct TrialSchedule<'a> {
    pub(super) items: &'a [DatasetItem],
    pub(super) trials: u32,
    pub(super) jobs: usize,
}

impl TrialSchedule<'_> {
    /// Returns item indexes and trials that are not done yet. They are ordered by trial, so that an interrupted
    /// experiment has about as many attempts at every item.
    pub(super) fn remaining_attempts(&self, attempts: &AttemptMap) -> Vec<(usize, u32)> {
        let all = (0..self.trials).flat_map(|trial| (0..self.items.len()).map(move |at| (at, trial)));
        all.filter(|(at, trial)| !attempts.contains_key(&(self.items[*at].id.clone(), *trial))).collect()
    }

    /// Makes the remaining attempts. Every finished attempt is in the journal before another one starts. Running
    /// attempts are finished after an interrupt, and dropped, which ends their programs, after an error.
    pub(super) async fn run(
        &self,
        agent: Arc<ExperimentAgent>,
        folder: &mut ExperimentFolder,
        attempts: &mut AttemptMap,
        stop: &AtomicBool,
        bar: Option<&ProgressBar>,
    ) -> Result<(), ExperimentStop> {
        let mut has_worked = attempts.values().any(|attempt| attempt.end != TrialEnd::NotStarted);
        let shared: HashMap<usize, Arc<DatasetItem>> =
            self.items.iter().enumerate().map(|(at, item)| (at, Arc::new(item.clone()))).collect();
        let mut waiting = self.remaining_attempts(attempts).into_iter();
        let mut running: JoinSet<Result<AttemptOutcome, AttemptError>> = JoinSet::new();
        loop {
            while running.len() < self.jobs && !stop.load(Ordering::Relaxed) {
                let Some((at, trial)) = waiting.next() else { break };
                let (agent, item, id) = (Arc::clone(&agent), Arc::clone(&shared[&at]), folder.plan.id.clone());
                running.spawn(async move { agent.attempt(&id, item, trial).await });
            }
            let Some(joined) = running.join_next().await else { break };
            let outcome = joined??;
            let attempt = outcome.attempt;
            if outcome.is_agent_missing && !has_worked {
                let reason = attempt.failure.unwrap_or_default();
                let (agent, hint) = (folder.plan.agent.clone(), missing_hint(&agent));
                return Err(ExperimentStop::AgentMissing { agent, reason, hint });
            }
            has_worked = true;
            folder.add_attempt(&attempt)?;
            attempts.insert((attempt.item_id.clone(), attempt.trial), attempt);
            if let Some(bar) = bar {
                bar.inc(1);
            }
        }
        match stop.load(Ordering::Relaxed) && waiting.next().is_some() {
            true => Err(ExperimentStop::Interrupted),
            false => Ok(()),
        }
    }
}

fn missing_hint(agent: &ExperimentAgent) -> &'static str {
    match agent {
        ExperimentAgent::Program(_) => "the command runs with `sh -c` in this folder; is it on PATH?",
        ExperimentAgent::Http { .. } => "start the agent first, or with --setup",
    }
}
