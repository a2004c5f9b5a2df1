//! Where else outcomes go: to Phoenix as annotations, over OTLP to any backend. The same for `eval` and `report`.
//!
//! Nothing is dropped in silence: what could not be written is told, kept in the run's folder, and written by a later
//! `gradus report RUN --log-to-phoenix`.

use std::path::PathBuf;

use clap::Args;
use gradus_eval::report::RunReader;
use gradus_eval::run::{EvaluatorRecord, Log, RunFolder};
use serde::Serialize;
use tokio::runtime::Runtime;

use super::Exit;
use super::sources::{complain, given_phoenix};
use crate::annotation::{Annotation, Annotations, NoTarget, Subject, Target, check_names};
use crate::carrier::Sender;
use crate::config::{Environment, PhoenixSection, TrajectoryTarget};
use crate::phoenix::{Address, Client, Writer};

#[derive(Args, Clone, Debug, Default)]
pub(super) struct Destinations {
    /// Write every outcome to Phoenix: the one that is read from, or --phoenix. Those of steps are put on the model call
    /// that held the thought, those of whole trajectories on the root span. Written again, they are replaced.
    #[arg(long, help_heading = "Outputs (- is standard output)")]
    log_to_phoenix: bool,
    /// Send every outcome to any backend over OTLP/HTTP: as EVALUATOR spans and as gen_ai.evaluation.result events.
    #[arg(long, value_name = "URL", help_heading = "Outputs (- is standard output)")]
    log_to_otlp: Option<String>,
}

/// Destinations that were found to be there.
#[derive(Debug)]
pub(super) struct Ready {
    runtime: Runtime,
    phoenix: Option<Client>,
    otlp: Option<String>,
    settings: PhoenixSection,
    environment: Environment,
}

impl Destinations {
    pub(super) fn go_to_phoenix(&self) -> bool {
        self.log_to_phoenix
    }

    /// Finds out whether all destinations can be reached before anything is spent on what goes there. `read_from` are the
    /// Phoenixes of the sources.
    pub(super) fn prepare(
        &self,
        phoenix: Option<&str>,
        read_from: &[&Address],
        settings: &PhoenixSection,
        evaluators: &[EvaluatorRecord],
    ) -> Result<Option<Ready>, String> {
        if !self.log_to_phoenix && self.log_to_otlp.is_none() {
            return Ok(None);
        }
        check_names(evaluators, &settings.names)?;
        let environment = Environment::read();
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
        let runtime = runtime.map_err(|error| error.to_string())?;
        let client = match self.log_to_phoenix {
            true => Some(Client::new(&target(phoenix, read_from, &environment)?, &environment, settings)?),
            false => None,
        };
        if let Some(client) = &client {
            runtime.block_on(Writer::greet(client)).map_err(|error| format!("--log-to-phoenix: {error}"))?;
        }
        if let Some(url) = &self.log_to_otlp {
            let sender = Sender::new(url, &environment, settings.retry_s, "", "")?;
            runtime.block_on(sender.greet()).map_err(|error| format!("--log-to-otlp: {error}"))?;
        }
        let (otlp, settings) = (self.log_to_otlp.clone(), settings.clone());
        Ok(Some(Ready { runtime, phoenix: client, otlp, settings, environment }))
    }
}

/// The Phoenix to write to: as named, else the one that is read from, else that of the environment.
fn target(given: Option<&str>, read_from: &[&Address], environment: &Environment) -> Result<Address, String> {
    let first = read_from.first().map(|address| Address::clone(address));
    if given.is_none()
        && read_from.iter().any(|other| first.as_ref().is_some_and(|one| one.base != other.base))
    {
        return Err(
            "--log-to-phoenix: sources are read from several Phoenixes; name one with --phoenix".to_owned()
        );
    }
    let address = match (given, first) {
        (None, Some(own)) => Some(own),
        _ => given_phoenix(given, environment)?,
    };
    address.ok_or_else(|| {
        "--log-to-phoenix: which one? Name it with --phoenix URL or PHOENIX_COLLECTOR_ENDPOINT".to_owned()
    })
}

/// The exit code of a run whose outcomes were also sent: a failed gate or a broken run say more.
pub(super) fn exit(of_run: Exit, of_sending: Exit) -> Exit {
    match (of_run, of_sending) {
        (_, Exit::Interrupted) => Exit::Interrupted,
        (Exit::Pass, other) => other,
        (other, _) => other,
    }
}

impl Ready {
    /// Sends a run's outcomes, and says what came of it.
    pub(super) fn send(self, folder: &RunFolder, reader: &mut RunReader) -> anyhow::Result<Exit> {
        let Ready { runtime, phoenix, otlp, settings, environment } = self;
        let record = &folder.record;
        let time = record.ended.as_deref().unwrap_or(&record.started);
        let mut delivery = Delivery {
            runtime,
            phoenix: phoenix.as_ref().map(|client| Lane::new(Writer::new(client.clone()))),
            otlp: None,
            interrupted: false,
            shortfall: Shortfall::new(folder),
        };
        if let Some(url) = &otlp {
            let sender = Sender::new(url, &environment, settings.retry_s, &record.run_id, time);
            delivery.otlp = Some(Lane::new(sender.map_err(anyhow::Error::msg)?));
        }
        let mut on_phoenix = Annotations::new(record, &settings);
        let on_spans = PhoenixSection { trajectory_target: TrajectoryTarget::Span, ..settings };
        let mut carried = Annotations::new(record, &on_spans);
        reader.visit(|trajectory, outcomes| -> anyhow::Result<()> {
            if delivery.phoenix.is_some() {
                for annotation in on_phoenix.of(trajectory, outcomes) {
                    delivery.add_to_phoenix(annotation)?;
                }
            }
            if delivery.otlp.is_some() {
                for annotation in carried.of(trajectory, outcomes) {
                    delivery.add_to_otlp(trajectory.project.as_deref(), annotation)?;
                }
            }
            Ok(())
        })?;
        delivery.write_phoenix()?;
        delivery.write_otlp()?;
        let where_to = [
            phoenix.as_ref().zip(delivery.phoenix.as_ref()).map(|(client, lane)| {
                format!("{} annotations are in Phoenix at {}", lane.done, client.base())
            }),
            otlp.as_ref().zip(delivery.otlp.as_ref()).map(|(url, lane)| {
                let only = if lane.to.takes_logs() { "" } else { ", as spans only: it takes no log records" };
                format!("{} outcomes were sent to {url}{only}", lane.done)
            }),
        ];
        where_to.into_iter().flatten().for_each(|line| complain(&line));
        let is_all_there = delivery.shortfall.tell(&record.run_id)?;
        Ok(match (delivery.interrupted, is_all_there) {
            (true, _) => Exit::Interrupted,
            (false, true) => Exit::Pass,
            (false, false) => Exit::NotWritten,
        })
    }
}

/// One way out, and why it is closed if it is.
#[derive(Debug)]
struct Lane<T> {
    to: T,
    closed: Option<String>,
    done: u64,
}

impl<T> Lane<T> {
    fn new(to: T) -> Lane<T> {
        Lane { to, closed: None, done: 0 }
    }
}

struct Delivery {
    runtime: Runtime,
    phoenix: Option<Lane<Writer>>,
    otlp: Option<Lane<Sender>>,
    interrupted: bool,
    shortfall: Shortfall,
}

const INTERRUPTED: &str = "interrupted";

impl Delivery {
    fn add_to_phoenix(&mut self, annotation: Result<Annotation, NoTarget>) -> anyhow::Result<()> {
        let Some(lane) = &mut self.phoenix else { return Ok(()) };
        match (annotation, &lane.closed) {
            (Err(NoTarget(subject)), _) => self.shortfall.add("phoenix", &subject, NO_SPAN),
            (Ok(annotation), Some(reason)) => self.shortfall.add("phoenix", &annotation.subject, reason),
            (Ok(annotation), None) => match lane.to.add(annotation) {
                true => self.write_phoenix(),
                false => Ok(()),
            },
        }
    }

    fn write_phoenix(&mut self) -> anyhow::Result<()> {
        let Some(lane) = &mut self.phoenix else { return Ok(()) };
        let waiting = lane.to.waiting();
        let Some((batch, failed)) = until_interrupted(&self.runtime, lane.to.write()) else {
            return self.interrupt("phoenix", &waiting);
        };
        lane.done += batch.written as u64;
        for (annotation, reason) in batch.refused {
            self.shortfall.add("phoenix", &annotation.subject, &about(&annotation, &reason))?;
        }
        if let Some((error, unwritten)) = failed {
            let reason = error.to_string();
            for annotation in unwritten {
                self.shortfall.add("phoenix", &annotation.subject, &reason)?;
            }
            lane.closed = Some(reason);
        }
        Ok(())
    }

    fn add_to_otlp(
        &mut self,
        project: Option<&str>,
        annotation: Result<Annotation, NoTarget>,
    ) -> anyhow::Result<()> {
        if self.otlp.as_ref().is_some_and(|lane| lane.closed.is_none() && lane.to.is_due(project)) {
            self.write_otlp()?;
        }
        let Some(lane) = &mut self.otlp else { return Ok(()) };
        match (annotation, &lane.closed) {
            (Err(NoTarget(subject)), _) => self.shortfall.add("otlp", &subject, NO_SPAN),
            (Ok(annotation), Some(reason)) => self.shortfall.add("otlp", &annotation.subject, reason),
            (Ok(annotation), None) => {
                lane.to.add(project, annotation);
                Ok(())
            }
        }
    }

    fn write_otlp(&mut self) -> anyhow::Result<()> {
        let Some(lane) = &mut self.otlp else { return Ok(()) };
        let waiting = lane.to.waiting();
        match until_interrupted(&self.runtime, lane.to.send()) {
            None => return self.interrupt("otlp", &waiting),
            Some(Ok(sent)) => {
                lane.done += sent.taken as u64;
                for (count, reason) in sent.rejected {
                    self.shortfall.reject(count, &reason)?;
                }
            }
            Some(Err((error, unsent))) => {
                let reason = error.to_string();
                for annotation in unsent {
                    self.shortfall.add("otlp", &annotation.subject, &reason)?;
                }
                lane.closed = Some(reason);
            }
        }
        Ok(())
    }

    /// Closes every way out; what was on its way may be there or not, and sending it again does no harm.
    fn interrupt(&mut self, to: &'static str, on_their_way: &[Annotation]) -> anyhow::Result<()> {
        self.interrupted = true;
        if let Some(lane) = &mut self.phoenix {
            lane.closed.get_or_insert_with(|| INTERRUPTED.to_owned());
        }
        if let Some(lane) = &mut self.otlp {
            lane.closed.get_or_insert_with(|| INTERRUPTED.to_owned());
        }
        on_their_way.iter().try_for_each(|one| self.shortfall.add(to, &one.subject, INTERRUPTED))
    }
}

const NO_SPAN: &str = "it is about no span: its source has none";

fn about(annotation: &Annotation, reason: &str) -> String {
    match &annotation.target {
        Target::Span { span_id, .. } => format!("span {span_id}: {reason}"),
        Target::Trace { trace_id } => format!("trace {trace_id}: {reason}"),
    }
}

/// `None` when somebody pressed Ctrl-C, or the system wants us to end.
fn until_interrupted<T>(runtime: &Runtime, work: impl Future<Output = T>) -> Option<T> {
    use tokio::signal::unix::{SignalKind, signal};
    runtime.block_on(async {
        let terminated = async {
            match signal(SignalKind::terminate()) {
                Ok(mut terminate) => terminate.recv().await,
                Err(_) => std::future::pending().await,
            }
        };
        tokio::select! {
            done = work => Some(done),
            _ = tokio::signal::ctrl_c() => None,
            _ = terminated => None,
        }
    })
}

/// What could not be written: a few on the terminal, all of them in the run's folder.
struct Shortfall {
    path: PathBuf,
    log: Option<Log>,
    count: u64,
    shown: Vec<String>,
}

#[derive(Serialize)]
struct Line<'l> {
    to: &'l str,
    #[serde(flatten)]
    subject: Option<&'l Subject>,
    reason: &'l str,
}

const SHOWN: usize = 10;
const WRITE_EVERY: usize = 1 << 20;

impl Shortfall {
    fn new(folder: &RunFolder) -> Shortfall {
        let path = folder.path().join("unwritten.jsonl");
        // What is said there is about the last time.
        let _ = std::fs::remove_file(&path);
        Shortfall { path, log: None, count: 0, shown: Vec::new() }
    }

    fn add(&mut self, to: &str, subject: &Subject, reason: &str) -> anyhow::Result<()> {
        self.count += 1;
        if self.shown.len() < SHOWN {
            self.shown.push(format!("not written to {to}: {subject}: {reason}"));
        }
        self.write(&Line { to, subject: Some(subject), reason })
    }

    /// What a backend says of a batch as a whole.
    fn reject(&mut self, count: u64, reason: &str) -> anyhow::Result<()> {
        self.count += count;
        let reason = format!("{count} {reason}");
        if self.shown.len() < SHOWN {
            self.shown.push(format!("not taken over OTLP: {reason}"));
        }
        self.write(&Line { to: "otlp", subject: None, reason: &reason })
    }

    fn write(&mut self, line: &Line<'_>) -> anyhow::Result<()> {
        let log = match &mut self.log {
            Some(log) => log,
            None => self.log.insert(Log::open(&self.path)?),
        };
        log.add(line)?;
        if log.buffered() > WRITE_EVERY {
            log.write()?;
        }
        Ok(())
    }

    /// Says what is missing; true when nothing is.
    fn tell(mut self, run_id: &str) -> anyhow::Result<bool> {
        if let Some(log) = &mut self.log {
            log.write()?;
        }
        self.shown.iter().for_each(|line| complain(line));
        if self.log.is_none() {
            return Ok(self.count == 0);
        }
        complain(&format!(
            "{} outcomes could not be written, all listed in {}; `gradus report {run_id}` with the same --log-to option \
             writes them again",
            self.count,
            self.path.display()
        ));
        Ok(self.count == 0)
    }
}
