//! Progress of the setup of this server: nothing arrived, spans arrived, the first trajectory is graded.

use gradus_store::{GradedTrajectory, StoreProgress};

use crate::demo_load::DemoLoadStatus;
use crate::http_error::ApiError;
use crate::state::ServerState;

/// Computed for each request; fixed once something is graded.
#[derive(Clone, Debug)]
pub(crate) struct StartStatus {
    pub(crate) progress: StoreProgress,
    /// Whether a grading rule asks a model. Without one, rules judge alone.
    pub(crate) has_model_judge: bool,
    /// Projects that no grading rule matches: nothing in them is ever graded.
    pub(crate) unmatched: Vec<String>,
    pub(crate) demo: DemoLoadStatus,
}

/// The stage of the setup.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum StartStage<'s> {
    Waiting,
    /// Spans are stored. A trace is graded when nothing more arrived for a while.
    Received,
    Graded(&'s GradedTrajectory),
}

impl StartStatus {
    pub(crate) fn load(server: &ServerState) -> Result<StartStatus, ApiError> {
        let settings = server.reloadable();
        let progress = server.store.store_progress()?;
        let is_unmatched = |name: &&String| !settings.rules.iter().any(|rule| rule.matches_project(name));
        Ok(StartStatus {
            unmatched: progress.projects.iter().filter(is_unmatched).cloned().collect(),
            has_model_judge: settings.rules.iter().any(crate::grading_rule::GradingRule::asks_model),
            demo: server.demo.status(),
            progress,
        })
    }

    pub(crate) fn stage(&self) -> StartStage<'_> {
        match &self.progress.first_graded {
            Some(graded) => StartStage::Graded(graded),
            None if self.progress.spans > 0 => StartStage::Received,
            None => StartStage::Waiting,
        }
    }
}
