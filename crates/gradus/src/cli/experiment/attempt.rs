//! One attempt of the agent at one item.

use std::sync::Arc;
use std::time::{Duration, Instant};

use gradus_core::trajectory::Trajectory;
use gradus_dataset::{DatasetItem, TrialEnd};
use gradus_server::RunningServer;

use super::folder::FinishedAttempt;
use super::http_agent::{AgentRequest, TrialContext};
use crate::program_runner::{ProgramEnd, ProgramInput, ProgramRunner};
use crate::received_traces::{read_received_traces, unique_trace_id};

/// The agent of an experiment, for any number of attempts at a time.
#[derive(Debug)]
pub(super) enum ExperimentAgent {
    Program(ProgramRunner),
    Http { request: Box<AgentRequest>, client: reqwest::Client, timeout: Duration },
}

/// Why an attempt could not be made, if the agent did not cause it.
#[derive(Debug, thiserror::Error)]
#[error("trial not run: {item_id}: {reason}")]
pub(super) struct AttemptError {
    item_id: String,
    reason: String,
}

/// An attempt, and whether the agent seems not to exist at all.
#[derive(Debug)]
pub(super) struct AttemptOutcome {
    pub(super) attempt: FinishedAttempt,
    /// The command was not found, or nothing listens at the address.
    pub(super) is_agent_missing: bool,
}

impl ExperimentAgent {
    pub(super) async fn attempt(
        &self,
        experiment_id: &str,
        item: Arc<DatasetItem>,
        trial: u32,
    ) -> Result<AttemptOutcome, AttemptError> {
        match self {
            ExperimentAgent::Program(program) => run_program(program, experiment_id, &item, trial).await,
            ExperimentAgent::Http { request, client, timeout } => {
                Ok(ask_agent(request, client, *timeout, experiment_id, &item, trial).await)
            }
        }
    }
}

/// Runs a program with a collector of its own, so that all spans in it belong to this attempt, whatever resource the
/// program gives them.
async fn run_program(
    program: &ProgramRunner,
    experiment_id: &str,
    item: &DatasetItem,
    trial: u32,
) -> Result<AttemptOutcome, AttemptError> {
    let failed = |reason: String| AttemptError { item_id: item.id.clone(), reason };
    let folder = tempfile::tempdir().map_err(|error| failed(error.to_string()))?;
    let collector = RunningServer::start_private(folder.path()).await.map_err(|error| failed(error.to_string()))?;
    let context = TrialContext {
        experiment_id: experiment_id.to_owned(),
        item_id: item.id.clone(),
        trial,
        trace_id: format!("{:032x}", fastrand::u128(1..)),
    };
    let messages = serde_json::to_string(&item.request_messages()).unwrap_or_default();
    let mut input = ProgramInput {
        stdin: item.request_text().to_owned(),
        variables: vec![
            ("GRADUS_REQUEST", item.request_text().into()),
            ("GRADUS_MESSAGES", messages.into()),
            ("GRADUS_ITEM_ID", (&item.id).into()),
            ("GRADUS_TRIAL", trial.to_string().into()),
            ("GRADUS_EXPERIMENT_ID", experiment_id.into()),
            ("OTEL_RESOURCE_ATTRIBUTES", context.baggage().into()),
        ],
        removed_variables: &[],
    };
    input.add_collector(&collector);
    let begun = Instant::now();
    let output = program.run(input).await;
    let seconds = begun.elapsed().as_secs_f64();
    let refused_exports = collector.refused_request_count();
    collector.stop().await;
    let name = format!("{experiment_id}/{}/{trial}", item.id);
    // Assembly takes time that other attempts must not wait for.
    let read = tokio::task::spawn_blocking(move || -> std::io::Result<Vec<Trajectory>> {
        let (trajectories, _) = read_received_traces(folder.path(), &|id| unique_trace_id(&name, id))?;
        Ok(trajectories)
    });
    let trajectories = match read.await {
        Ok(Ok(trajectories)) => trajectories,
        Ok(Err(error)) => return Err(failed(format!("its spans cannot be read: {error}"))),
        Err(error) => return Err(failed(error.to_string())),
    };
    let end = match &output.end {
        ProgramEnd::Answered => TrialEnd::Answered,
        ProgramEnd::NotStarted { .. } => TrialEnd::NotStarted,
        ProgramEnd::Exited { .. } if output.end.is_signal() => TrialEnd::Signalled,
        ProgramEnd::Exited { .. } => TrialEnd::Failed,
        ProgramEnd::TimedOut { .. } => TrialEnd::TimedOut,
        ProgramEnd::AnswerTooLong => TrialEnd::AnswerTooLong,
    };
    // A program that has sent spans exists, whatever it ended with.
    let is_agent_missing = (output.end.is_not_found() || end == TrialEnd::NotStarted) && trajectories.is_empty();
    let attempt = FinishedAttempt {
        item_id: item.id.clone(),
        trial,
        end,
        failure: output.end.failure(),
        // A cut answer is dropped: checks would look at a text that the agent did not write.
        answer: output.answer.filter(|answer| end != TrialEnd::AnswerTooLong && !answer.is_empty()),
        seconds,
        trajectories,
        trace_id: None,
        refused_exports,
    };
    Ok(AttemptOutcome { attempt, is_agent_missing })
}

async fn ask_agent(
    request: &AgentRequest,
    client: &reqwest::Client,
    timeout: Duration,
    experiment_id: &str,
    item: &DatasetItem,
    trial: u32,
) -> AttemptOutcome {
    // An attempt that was cut off by a kill may have sent spans, so each has a trace id of its own.
    let context = TrialContext {
        experiment_id: experiment_id.to_owned(),
        item_id: item.id.clone(),
        trial,
        trace_id: format!("{:032x}", fastrand::u128(1..)),
    };
    let begun = Instant::now();
    let response = request.ask(client, item, &context, timeout).await;
    let attempt = FinishedAttempt {
        item_id: item.id.clone(),
        trial,
        end: response.end,
        failure: response.failure,
        answer: response.answer.filter(|answer| !answer.is_empty()),
        seconds: begun.elapsed().as_secs_f64(),
        trajectories: Vec::new(),
        trace_id: Some(context.trace_id),
        refused_exports: 0,
    };
    AttemptOutcome { is_agent_missing: attempt.end == TrialEnd::NotStarted, attempt }
}
