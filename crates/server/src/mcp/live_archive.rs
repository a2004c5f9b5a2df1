//! The archive of a server: live traffic in its store, and the evaluations in its data folder.

use std::sync::Arc;

use gradus_mcp::{
    ArchiveError, ArchivedRun, EvaluationList, FlaggedScope, FolderArchive, FoundRunPage, GateReport, NewRunLabel,
    RunArchive, RunFilter, StoredFailureGroups, TrafficName,
};
use gradus_report::compare::VersionComparison;
use gradus_store::{MetricFilter, WriteLane};

use super::live_groups::load_live_groups;
use super::live_labels::store_live_label;
use super::live_runs::{find_live_runs, load_live_run, visit_live_flagged};
use crate::caller::RequestCaller;
use crate::live_comparison::{ComparedName, compare_live};
use crate::state::ServerState;

/// The archive as one caller sees it. Without an evaluation, tools are about live traffic.
pub(super) struct ServerArchive {
    server: Arc<ServerState>,
    caller: RequestCaller,
    lane: WriteLane,
    evaluations: FolderArchive,
}

impl ServerArchive {
    pub(super) fn new(server: Arc<ServerState>, caller: RequestCaller, lane: WriteLane) -> ServerArchive {
        let evaluations = FolderArchive::new(&server.settings.data, server.settings.supplements, None)
            .with_stop(|| gradus_store::check_query().is_err());
        ServerArchive { server, caller, lane, evaluations }
    }
}

impl RunArchive for ServerArchive {
    fn list_evaluations(&self, skip: usize, limit: usize) -> Result<EvaluationList, ArchiveError> {
        let default_scope = "live traffic".to_owned();
        if !self.evaluations.has_evaluations() {
            return Ok(EvaluationList { default_scope, ..EvaluationList::default() });
        }
        let list = self.evaluations.list_evaluations(skip, limit).map_err(hide_paths)?;
        Ok(EvaluationList { default_scope, ..list })
    }

    fn find_runs(&self, filter: &RunFilter, cursor: Option<&str>, limit: usize) -> Result<FoundRunPage, ArchiveError> {
        match filter.evaluation {
            Some(_) => self.evaluations.find_runs(filter, cursor, limit).map_err(hide_paths),
            None => find_live_runs(&self.server.store, filter, cursor, limit),
        }
    }

    fn load_run(&self, evaluation: Option<&str>, id: &str) -> Result<ArchivedRun, ArchiveError> {
        match evaluation {
            Some(_) => self.evaluations.load_run(evaluation, id).map_err(hide_paths),
            // An id can also be of an evaluation that the assistant has read about.
            None => match load_live_run(&self.server.store, id) {
                Err(unknown @ ArchiveError::UnknownRun { .. }) if self.evaluations.has_evaluations() => {
                    self.evaluations.load_run(None, id).map_err(|_| unknown)
                }
                loaded => loaded,
            },
        }
    }

    fn visit_flagged(
        &self,
        filter: &RunFilter,
        take: &mut dyn FnMut(&ArchivedRun),
    ) -> Result<FlaggedScope, ArchiveError> {
        match filter.evaluation {
            Some(_) => self.evaluations.visit_flagged(filter, take).map_err(hide_paths),
            None => visit_live_flagged(&self.server.store, filter, take),
        }
    }

    fn load_failure_groups(&self, filter: &RunFilter) -> Result<Option<StoredFailureGroups>, ArchiveError> {
        match filter.evaluation {
            Some(_) => Ok(None),
            None => load_live_groups(&self.server.store, filter).map(Some),
        }
    }

    fn compare_evaluations(&self, first: &str, second: &str) -> Result<VersionComparison, ArchiveError> {
        self.evaluations.compare_evaluations(first, second).map_err(hide_paths)
    }

    fn compare_traffic(
        &self,
        by: TrafficName,
        names: [&str; 2],
        project: Option<&str>,
    ) -> Result<VersionComparison, ArchiveError> {
        let by = match by {
            TrafficName::Version => ComparedName::Version,
            TrafficName::Model => ComparedName::Model,
            TrafficName::Agent => ComparedName::Agent,
        };
        let filter = MetricFilter { project: project.map(str::to_owned), ..MetricFilter::default() };
        compare_live(&self.server, by, names, &filter)
            .map_err(|error| ArchiveError::Refused { reason: error.message().to_owned() })
    }

    fn check_gates(
        &self,
        evaluation: Option<&str>,
        gate: Option<&str>,
        baseline: Option<&str>,
    ) -> Result<GateReport, ArchiveError> {
        self.evaluations.check_gates(evaluation, gate, baseline).map_err(hide_paths)
    }

    fn store_label(&self, label: &NewRunLabel) -> Result<String, ArchiveError> {
        store_live_label(&self.server, &self.caller, self.lane, label)
    }
}

/// Replaces an error that may contain paths of the server. It is logged and not returned.
fn hide_paths(error: ArchiveError) -> ArchiveError {
    match error {
        ArchiveError::File(error) => {
            tracing::error!(%error, "failed to read a run");
            let reason = "the files of this evaluation cannot be read; see the server log".to_owned();
            ArchiveError::Refused { reason }
        }
        other => other,
    }
}
