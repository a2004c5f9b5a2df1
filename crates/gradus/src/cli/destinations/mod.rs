//! Export of outcomes: to Phoenix as annotations, over OTLP to any backend. The same for `eval`, `bench` and `report`.
//!
//! No outcome is dropped silently: those that could not be written are reported, listed in the folder of the run, and
//! written by a later `gradus report RUN --log-to-phoenix`. Writing twice does no harm, since both destinations
//! identify an outcome by a stable identifier.

mod undelivered;

use clap::Args;
use gradus_eval::report::RunReader;
use gradus_eval::run::{EvaluatorRecord, RunFolder};
use tokio::runtime::Runtime;
use tokio::signal::unix::{Signal, SignalKind, signal};

use super::CommandExit;
use super::sources::{SourceOptionsError, find_configured_phoenix, print_diagnostic};
use crate::config::{EnvironmentVariables, PhoenixSection};
use crate::otlp_exporter::{ExporterSettingsError, OtlpExportError, VerdictExporter};
use gradus_eval::annotation::{
    AnnotationBuilder, AnnotationSettings, OutcomeAnnotation, OutcomeTarget, TrajectoryTarget, UnplacedOutcome,
    check_annotation_names,
};
use gradus_phoenix::client::{AnnotationUploader, PhoenixAddress, PhoenixClient, PhoenixClientError};
use undelivered::{UndeliveredOutcomes, report_command};

#[derive(Args, Clone, Debug, Default)]
pub(super) struct DestinationOptions {
    /// Write outcomes to Phoenix: the one that is read from, or --phoenix. Those of steps are put on the model call that
    /// held the thought, those of whole trajectories on the root span. Written again, they are replaced. Outcomes that
    /// the judge cannot decide are left out, unless `[phoenix] abstentions` is set.
    #[arg(long, help_heading = "Outputs (- is standard output)")]
    log_to_phoenix: bool,
    /// Send every outcome to any backend over OTLP/HTTP: as EVALUATOR spans and as gen_ai.evaluation.result events.
    #[arg(long, value_name = "URL", help_heading = "Outputs (- is standard output)")]
    log_to_otlp: Option<String>,
}

/// Why outcomes cannot be exported; found before the run begins.
#[derive(Debug, thiserror::Error)]
pub(super) enum DestinationError {
    /// `[phoenix.names]` of the settings gives two evaluators one name, or an unusable name.
    #[error("{reason}")]
    Names { reason: String },
    #[error(transparent)]
    Runtime(#[from] std::io::Error),
    /// The address of Phoenix in an option or a variable cannot be read.
    #[error(transparent)]
    Address(#[from] SourceOptionsError),
    /// A setting of the client cannot be used: headers, timeouts.
    #[error("{reason}")]
    PhoenixClient { reason: String },
    #[error("--log-to-phoenix: {0}")]
    PhoenixUnreachable(#[source] PhoenixClientError),
    #[error(transparent)]
    Exporter(#[from] ExporterSettingsError),
    #[error("--log-to-otlp: {0}")]
    OtlpUnreachable(#[source] OtlpExportError),
    #[error("--log-to-phoenix: sources are read from several Phoenixes; name one with --phoenix")]
    SeveralPhoenixes,
    #[error("--log-to-phoenix: which one? Name it with --phoenix URL or PHOENIX_COLLECTOR_ENDPOINT")]
    NoPhoenix,
    /// The address comes from the manifest of a run and from nowhere else. A folder of runs may come from a stranger,
    /// so it must not decide who gets the key.
    #[error(
        "--log-to-phoenix: the run has read from {base}; say --phoenix {base} to send the key in PHOENIX_API_KEY there"
    )]
    UnconfirmedPhoenix { base: String },
}

/// Destinations that answered a first request.
#[derive(Debug)]
pub(super) struct ReachableDestinations {
    runtime: Runtime,
    phoenix: Option<PhoenixClient>,
    otlp: Option<String>,
    settings: PhoenixSection,
    environment: EnvironmentVariables,
}

impl DestinationOptions {
    /// Whether `--log-to-phoenix` is set.
    pub(super) fn logs_to_phoenix(&self) -> bool {
        self.log_to_phoenix
    }

    /// Sends a first request to every destination, before money is spent on outcomes that could not be exported.
    /// `phoenix` is the value of `--phoenix`, `read_from` are the Phoenixes of the sources. `None` if nothing is to be
    /// exported.
    pub(super) fn prepare(
        &self,
        phoenix: Option<&str>,
        read_from: &[&PhoenixAddress],
        settings: &PhoenixSection,
        evaluators: &[EvaluatorRecord],
    ) -> Result<Option<ReachableDestinations>, DestinationError> {
        if !self.log_to_phoenix && self.log_to_otlp.is_none() {
            return Ok(None);
        }
        check_annotation_names(evaluators, &settings.annotation_settings().names)
            .map_err(|error| DestinationError::Names { reason: error.to_string() })?;
        let environment = EnvironmentVariables::read();
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
        let client = match self.log_to_phoenix {
            true => {
                let address = choose_phoenix(phoenix, read_from, &environment)?;
                let client = PhoenixClient::new(&address, &settings.client_settings(&environment));
                Some(client.map_err(|error| DestinationError::PhoenixClient { reason: error.to_string() })?)
            }
            false => None,
        };
        if let Some(client) = &client {
            runtime
                .block_on(AnnotationUploader::check_connection(client))
                .map_err(DestinationError::PhoenixUnreachable)?;
        }
        if let Some(url) = &self.log_to_otlp {
            // The exporter of the run is made later, when its id and time are known.
            let sender = VerdictExporter::new(url, &environment, settings.retry_s, "", "")?;
            runtime.block_on(sender.probe()).map_err(DestinationError::OtlpUnreachable)?;
        }
        let (otlp, settings) = (self.log_to_otlp.clone(), settings.clone());
        Ok(Some(ReachableDestinations { runtime, phoenix: client, otlp, settings, environment }))
    }
}

/// Returns the Phoenix to write to: that of `--phoenix`, else the one that is read from, else
/// PHOENIX_COLLECTOR_ENDPOINT. Several Phoenixes among the sources are ambiguous, since an outcome belongs to spans
/// of one of them.
fn choose_phoenix(
    given: Option<&str>,
    read_from: &[&PhoenixAddress],
    environment: &EnvironmentVariables,
) -> Result<PhoenixAddress, DestinationError> {
    let first = read_from.first().map(|address| PhoenixAddress::clone(address));
    if given.is_none() && read_from.iter().any(|other| first.as_ref().is_some_and(|one| one.base != other.base)) {
        return Err(DestinationError::SeveralPhoenixes);
    }
    let address = match (given, first) {
        (None, Some(own)) => Some(own),
        _ => find_configured_phoenix(given, environment)?,
    };
    address.ok_or(DestinationError::NoPhoenix)
}

/// Returns the exit code of a run whose outcomes were also exported. A failed gate or a broken run takes precedence
/// over an incomplete export (5); an interrupt takes precedence over everything.
pub(super) fn combine_exits(of_run: CommandExit, of_sending: CommandExit) -> CommandExit {
    match (of_run, of_sending) {
        (_, CommandExit::Interrupted) => CommandExit::Interrupted,
        (CommandExit::Pass, other) => other,
        (other, _) => other,
    }
}

impl ReachableDestinations {
    /// Returns the command that exports the outcomes of a run to the same destinations later.
    pub(super) fn retry_command(&self, folder: &RunFolder) -> String {
        report_command(folder, self.phoenix.as_ref().map(PhoenixClient::base_url), self.otlp.as_deref())
    }

    /// Exports the outcomes of a run from its files, in batches, and reports the counts. Returns `NotWritten` if
    /// outcomes are missing at one of the destinations; the error is for files of the run that cannot be read or
    /// written.
    pub(super) fn send(self, folder: &RunFolder, reader: &mut RunReader) -> anyhow::Result<CommandExit> {
        let ReachableDestinations { runtime, phoenix, otlp, settings, environment } = self;
        let record = &folder.record;
        let time = record.ended.as_deref().unwrap_or(&record.started);
        let mut delivery = OutcomeDelivery {
            interrupts: InterruptSignals::listen(&runtime)?,
            runtime,
            phoenix: None,
            otlp: None,
            interrupted: false,
        };
        if let Some(client) = &phoenix {
            let again = report_command(folder, Some(client.base_url()), None);
            let shortfall = UndeliveredOutcomes::new(folder, "phoenix", again);
            delivery.phoenix = Some(DestinationState::new(AnnotationUploader::new(client.clone()), shortfall));
        }
        if let Some(url) = &otlp {
            let sender = VerdictExporter::new(url, &environment, settings.retry_s, &record.run_id, time);
            let shortfall = UndeliveredOutcomes::new(folder, "otlp", report_command(folder, None, Some(url)));
            delivery.otlp = Some(DestinationState::new(sender.map_err(anyhow::Error::msg)?, shortfall));
        }
        // Phoenix can annotate a trace; an OTLP export needs a span to link to.
        let annotations = settings.annotation_settings();
        let mut on_phoenix = AnnotationBuilder::new(record, &annotations);
        // A backend for OTLP filters by attribute; it gets every outcome.
        let on_spans =
            AnnotationSettings { trajectory_target: TrajectoryTarget::Span, include_abstentions: true, ..annotations };
        let mut carried = AnnotationBuilder::new(record, &on_spans);
        reader.visit_trajectories(|trajectory, outcomes| -> anyhow::Result<()> {
            if delivery.phoenix.is_some() {
                for annotation in on_phoenix.annotate_trajectory(trajectory, outcomes) {
                    delivery.add_to_phoenix(annotation)?;
                }
            }
            if delivery.otlp.is_some() {
                for annotation in carried.annotate_trajectory(trajectory, outcomes) {
                    delivery.add_to_otlp(trajectory.project.as_deref(), annotation)?;
                }
            }
            Ok(())
        })?;
        delivery.write_phoenix()?;
        delivery.write_otlp()?;
        let OutcomeDelivery { phoenix: to_phoenix, otlp: to_otlp, interrupted, .. } = delivery;
        let mut is_all_there = true;
        if let Some((client, lane)) = phoenix.zip(to_phoenix) {
            print_diagnostic(&format!("{} annotations are in Phoenix at {}", lane.done, client.base_url()));
            is_all_there &= lane.shortfall.report_undelivered()?;
        }
        if let Some((url, lane)) = otlp.zip(to_otlp) {
            let only =
                lane.to.logs_refused_reason().map(|why| format!(", as spans only: it takes no log records ({why})"));
            print_diagnostic(&format!("{} outcomes were sent to {url}{}", lane.done, only.unwrap_or_default()));
            lane.warnings.iter().for_each(|warning| print_diagnostic(&format!("{url} says: {warning}")));
            is_all_there &= lane.shortfall.report_undelivered()?;
        }
        Ok(match (interrupted, is_all_there) {
            (true, _) => CommandExit::Interrupted,
            (false, true) => CommandExit::Pass,
            (false, false) => CommandExit::NotWritten,
        })
    }
}

/// The state of one destination during an export. The destinations are independent: one that fails does not stop the
/// other.
struct DestinationState<T> {
    to: T,
    /// Why nothing more is sent there; every further outcome is recorded as undelivered with this reason.
    closed: Option<String>,
    done: u64,
    /// Messages of a backend about requests that it accepted.
    warnings: Vec<String>,
    shortfall: UndeliveredOutcomes,
}

/// Maximum number of warnings that are printed; a backend may send one with every batch.
const MAX_PRINTED_WARNINGS: usize = 3;

impl<T> DestinationState<T> {
    fn new(to: T, shortfall: UndeliveredOutcomes) -> DestinationState<T> {
        DestinationState { to, closed: None, done: 0, warnings: Vec::new(), shortfall }
    }

    fn mark_undelivered(&mut self, annotations: &[OutcomeAnnotation], reason: &str) -> anyhow::Result<()> {
        annotations.iter().try_for_each(|one| self.shortfall.add(&one.subject, reason))
    }
}

/// One export to all destinations. The methods are synchronous: they block on the runtime, since the files of the run
/// are read by a visitor that is not async.
struct OutcomeDelivery {
    runtime: Runtime,
    interrupts: InterruptSignals,
    phoenix: Option<DestinationState<AnnotationUploader>>,
    otlp: Option<DestinationState<VerdictExporter>>,
    interrupted: bool,
}

/// Reason of outcomes that were not sent because of Ctrl-C.
const INTERRUPTED: &str = "interrupted";

impl OutcomeDelivery {
    /// Adds an outcome, and writes the batch if it is full. An outcome without a place in Phoenix is undelivered at
    /// once.
    fn add_to_phoenix(&mut self, annotation: Result<OutcomeAnnotation, UnplacedOutcome>) -> anyhow::Result<()> {
        let Some(lane) = &mut self.phoenix else { return Ok(()) };
        match (annotation, &lane.closed) {
            (Err(UnplacedOutcome { subject, reason }), _) => lane.shortfall.add(&subject, reason),
            (Ok(annotation), Some(reason)) => lane.shortfall.add(&annotation.subject, reason),
            (Ok(annotation), None) => match lane.to.add(annotation) {
                true => self.write_phoenix(),
                false => Ok(()),
            },
        }
    }

    /// Writes the batch. Annotations that Phoenix refuses one by one are undelivered, an error of the connection closes
    /// the destination.
    fn write_phoenix(&mut self) -> anyhow::Result<()> {
        let Some(lane) = &mut self.phoenix else { return Ok(()) };
        let waiting = lane.to.pending();
        if let Some(reason) = lane.closed.clone() {
            lane.to.clear();
            return lane.mark_undelivered(&waiting, &reason);
        }
        let Some((batch, failed)) = self.interrupts.run_until_interrupt(&self.runtime, lane.to.write()) else {
            lane.mark_undelivered(&waiting, INTERRUPTED)?;
            self.close();
            return Ok(());
        };
        lane.done += batch.written as u64;
        for (annotation, reason) in batch.refused {
            lane.shortfall.add(&annotation.subject, &format_target_reason(&annotation, &reason))?;
        }
        if let Some((error, unwritten)) = failed {
            let reason = error.to_string();
            lane.mark_undelivered(&unwritten, &reason)?;
            lane.closed = Some(reason);
        }
        Ok(())
    }

    fn add_to_otlp(
        &mut self,
        project: Option<&str>,
        annotation: Result<OutcomeAnnotation, UnplacedOutcome>,
    ) -> anyhow::Result<()> {
        if self.otlp.as_ref().is_some_and(|lane| lane.closed.is_none() && lane.to.must_send_before(project)) {
            self.write_otlp()?;
        }
        let Some(lane) = &mut self.otlp else { return Ok(()) };
        match (annotation, &lane.closed) {
            (Err(UnplacedOutcome { subject, reason }), _) => lane.shortfall.add(&subject, reason),
            (Ok(annotation), Some(reason)) => lane.shortfall.add(&annotation.subject, reason),
            (Ok(annotation), None) => {
                lane.to.add(project, annotation);
                Ok(())
            }
        }
    }

    /// Sends the batch, as `write_phoenix` does.
    fn write_otlp(&mut self) -> anyhow::Result<()> {
        let Some(lane) = &mut self.otlp else { return Ok(()) };
        let waiting = lane.to.pending();
        if let Some(reason) = lane.closed.clone() {
            lane.to.clear_pending();
            return lane.mark_undelivered(&waiting, &reason);
        }
        match self.interrupts.run_until_interrupt(&self.runtime, lane.to.send()) {
            None => {
                lane.mark_undelivered(&waiting, INTERRUPTED)?;
                self.close();
            }
            Some(Ok(sent)) => {
                lane.done += sent.taken as u64;
                let room = MAX_PRINTED_WARNINGS.saturating_sub(lane.warnings.len());
                lane.warnings.extend(sent.warnings.into_iter().take(room));
                lane.shortfall.add_rejected(sent.rejected as u64, &sent.reasons)?;
            }
            Some(Err((error, unsent))) => {
                let reason = error.to_string();
                lane.mark_undelivered(&unsent, &reason)?;
                lane.closed = Some(reason);
            }
        }
        Ok(())
    }

    /// Closes every destination after an interrupt. A batch in flight may have arrived or not; it counts as
    /// undelivered, and sending it again replaces it.
    fn close(&mut self) {
        self.interrupted = true;
        if let Some(lane) = &mut self.phoenix {
            lane.closed.get_or_insert_with(|| INTERRUPTED.to_owned());
        }
        if let Some(lane) = &mut self.otlp {
            lane.closed.get_or_insert_with(|| INTERRUPTED.to_owned());
        }
    }
}

fn format_target_reason(annotation: &OutcomeAnnotation, reason: &str) -> String {
    match &annotation.target {
        OutcomeTarget::Span { span_id, .. } => format!("span {span_id}: {reason}"),
        OutcomeTarget::Trace { trace_id } => format!("trace {trace_id}: {reason}"),
    }
}

/// SIGINT and SIGTERM. The streams exist for the whole export, so that a signal between two batches is not lost.
struct InterruptSignals {
    pressed: Signal,
    terminated: Signal,
}

impl InterruptSignals {
    fn listen(runtime: &Runtime) -> std::io::Result<InterruptSignals> {
        let _inside = runtime.enter();
        Ok(InterruptSignals { pressed: signal(SignalKind::interrupt())?, terminated: signal(SignalKind::terminate())? })
    }

    /// Runs the future to its end; `None` if a signal came first, in which case the future is dropped. `biased` makes a
    /// signal win over work that is ready as well.
    fn run_until_interrupt<T>(&mut self, runtime: &Runtime, work: impl Future<Output = T>) -> Option<T> {
        runtime.block_on(async {
            tokio::select! {
                biased;
                _ = self.pressed.recv() => None,
                _ = self.terminated.recv() => None,
                done = work => Some(done),
            }
        })
    }
}
