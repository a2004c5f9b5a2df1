//! What the server counts, for `/metrics`.

use std::fmt::Write as _;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};

use gradus_eval::outcome::{OutcomeKind, OutcomeLine};
use gradus_otlp::{Rejected, Signal};
use gradus_store::Ingested;
use prometheus_client::encoding::text::encode;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::registry::Registry;

use super::connection::CloseReason;
use super::state::Server;
use crate::alert::Counts;

type Labels = Vec<(&'static str, String)>;
type Counters = Family<Labels, Counter>;

#[derive(Debug, Default)]
pub(super) struct Meters {
    requests: Counters,
    /// Requests with records that were not taken.
    refused: AtomicU64,
    records: Counters,
    bytes: Counters,
    outcomes: Counters,
    judge_calls: Counter,
    unpriced_calls: Counter,
    cost: Counter<f64, AtomicU64>,
    assembled: Counter,
    setbacks: Counters,
    alerts: Counters,
    /// Streams of HTTP/2 that were reset because the client did not read.
    stalled_streams: Counter,
    /// Deliveries of notices so far, as the dispatcher counts them.
    deliveries: Mutex<Counts>,
}

fn name(signal: Signal) -> &'static str {
    match signal {
        Signal::Span => "span",
        Signal::Log => "log",
    }
}

impl Meters {
    pub(super) fn answered(&self, signal: Signal, transport: &'static str, status: u16) {
        let labels = vec![
            ("signal", name(signal).to_owned()),
            ("transport", transport.to_owned()),
            ("status", status.to_string()),
        ];
        self.requests.get_or_create(&labels).inc();
        self.refused.fetch_add(u64::from(status >= 400), Ordering::Relaxed);
    }

    pub(super) fn refused(&self) -> u64 {
        self.refused.load(Ordering::Relaxed)
    }

    pub(super) fn received(&self, signal: Signal, bytes: usize, rejected: &Rejected) {
        self.bytes.get_or_create(&vec![("signal", name(signal).to_owned())]).inc_by(bytes as u64);
        self.count_records(signal, "rejected", rejected.count);
    }

    pub(super) fn ingested(&self, signal: Signal, ingested: &Ingested) {
        self.count_records(signal, "new", ingested.new);
        self.count_records(signal, "repeated", ingested.repeated);
        self.count_records(signal, "replaced", ingested.replaced);
    }

    fn count_records(&self, signal: Signal, result: &str, count: u64) {
        if count > 0 {
            let labels = vec![("signal", name(signal).to_owned()), ("result", result.to_owned())];
            self.records.get_or_create(&labels).inc_by(count);
        }
    }

    pub(super) fn assembled(&self, trajectories: usize) {
        self.assembled.inc_by(trajectories as u64);
    }

    /// A story, or a look at all that are due, came to nothing.
    pub(super) fn set_back(&self, reason: &'static str) {
        self.setbacks.get_or_create(&vec![("reason", reason.to_owned())]).inc();
    }

    pub(super) fn outcome(&self, line: &OutcomeLine) {
        let kind = match line.outcome {
            OutcomeKind::Scored => "scored",
            OutcomeKind::NotApplicable => "not_applicable",
            OutcomeKind::Failed => "failed",
        };
        let labels = vec![("evaluator", line.evaluator.to_string()), ("outcome", kind.to_owned())];
        self.outcomes.get_or_create(&labels).inc();
        self.judge_calls.inc_by(u64::from(line.calls));
        self.cost.inc_by(line.cost_usd.unwrap_or(0.0).max(0.0));
    }

    /// A judge was asked; nobody may know at what price.
    pub(super) fn asked(&self, calls: u64, is_priced: bool) {
        self.unpriced_calls.inc_by(if is_priced { 0 } else { calls });
    }

    pub(super) fn count_stalled_stream(&self) {
        self.stalled_streams.inc();
    }

    pub(super) fn alert(&self, rule: &str, kind: &str) {
        self.alerts.get_or_create(&vec![("rule", rule.to_owned()), ("kind", kind.to_owned())]).inc();
    }
}

impl Meters {
    pub(super) fn delivered(&self, counts: &Counts) {
        *self.deliveries.lock().unwrap_or_else(PoisonError::into_inner) = *counts;
    }
}

/// All of it in Prometheus' text form.
pub(super) fn exposition(server: &Server) -> String {
    let mut registry = Registry::with_prefix("gradus");
    let meters = &server.meters;
    registry.register("ingest_requests", "OTLP requests by answer", meters.requests.clone());
    registry.register(
        "ingest_records",
        "Spans and log records by what became of them",
        meters.records.clone(),
    );
    registry.register("ingest_bytes", "Bytes of OTLP requests, unpacked", meters.bytes.clone());
    registry.register(
        "trajectories_assembled",
        "Trajectories that were new or changed",
        meters.assembled.clone(),
    );
    registry.register("assembly_setbacks", "Traces that could not be assembled", meters.setbacks.clone());
    registry.register("outcomes", "Verdicts by evaluator", meters.outcomes.clone());
    registry.register("judge_calls", "Requests to judges", meters.judge_calls.clone());
    registry.register(
        "judge_cost_usd",
        "Dollars spent on judges, as far as prices are known",
        meters.cost.clone(),
    );
    registry.register(
        "judge_unpriced_calls",
        "Requests to judges whose price is not known",
        meters.unpriced_calls.clone(),
    );
    registry.register("alerts", "Notices by rule", meters.alerts.clone());
    registry.register(
        "streams_stalled",
        "Streams of HTTP/2 that were reset because the client did not read",
        meters.stalled_streams.clone(),
    );
    register_connections(server, &mut registry);
    register_state(server, &mut registry);
    let mut text = String::new();
    if encode(&mut text, &registry).is_err() {
        let _ = writeln!(text, "# EOF");
    }
    text
}

fn register_connections(server: &Server, registry: &mut Registry) {
    let mut counter = |name: &str, help: &str, value: u64| {
        let counter: Counter = Counter::default();
        counter.inc_by(value);
        registry.register(name, help, counter);
    };
    counter("memory_refusals", "Requests and responses that found no memory", server.memory.refusals());
    counter("connections_refused", "Connections that found no place", server.connections.refused_count());
    let closed = Counters::default();
    for reason in CloseReason::ALL {
        let labels = vec![("reason", reason.name().to_owned())];
        closed.get_or_create(&labels).inc_by(server.connections.closed_count(reason));
    }
    registry.register("connections_closed", "Connections that the server closed, by reason", closed);
}

fn register_state(server: &Server, registry: &mut Registry) {
    let mut gauge = |name: &str, help: &str, value: f64| {
        let gauge: Gauge<f64, AtomicU64> = Gauge::default();
        gauge.set(value);
        registry.register(name, help, gauge);
    };
    gauge("uptime_seconds", "Since the server started", server.started.elapsed().as_secs_f64());
    let (requests, responses) = server.memory.used_bytes();
    gauge("request_memory_bytes", "Held by requests that are being taken in", requests as f64);
    gauge("response_memory_bytes", "Held by responses that wait to be read", responses as f64);
    gauge("memory_limit_bytes", "What requests and responses may hold", server.memory.total_bytes() as f64);
    gauge(
        "response_file_bytes",
        "Large responses that wait on disk to be read",
        server.spilled.used_bytes().0 as f64,
    );
    let (open, keyed) = server.connections.open_count();
    gauge("connections_open", "Connections that are open", open as f64);
    gauge("connections_keyed", "Connections that have shown a valid key", keyed as f64);
    if let Some(status) = server.store.status() {
        let number = |value: &AtomicU64| value.load(Ordering::Relaxed) as f64;
        gauge(
            "store_queue_bytes",
            "Waiting to be written",
            status.queued_bytes.load(Ordering::Relaxed) as f64,
        );
        gauge(
            "store_queue_tasks",
            "Waiting to be written",
            status.queued_tasks.load(Ordering::Relaxed) as f64,
        );
        gauge("store_commits", "Transactions so far", number(&status.commits));
        gauge("store_failed_commits", "Transactions that failed so far", number(&status.failed_commits));
        gauge("store_commit_seconds", "Time spent in transactions so far", number(&status.commit_ns) / 1e9);
    }
    let deliveries = *server.meters.deliveries.lock().unwrap_or_else(PoisonError::into_inner);
    for (kind, counts) in deliveries.iter() {
        let kind = kind.name();
        gauge(&format!("alert_{kind}_sent"), "Notices that went out so far", counts.sent as f64);
        gauge(&format!("alert_{kind}_failed"), "Notices that were given up so far", counts.failed as f64);
        gauge(&format!("alert_{kind}_dropped"), "Notices that found no room so far", counts.dropped as f64);
    }
    if let Ok((used, free)) = server.store.size() {
        gauge("store_used_bytes", "Of the store's file, in use", used as f64);
        gauge("store_free_bytes", "Of the store's file, free", free as f64);
    }
    if let Ok(due) = server.store.due_count() {
        gauge("traces_due", "Traces that something came for since they were assembled", due as f64);
    }
    if let Ok(set_aside) = server.store.set_aside_count() {
        gauge(
            "traces_set_aside",
            "Traces that could not be assembled and wait to be tried again",
            set_aside as f64,
        );
    }
    if let Ok(ungraded) = server.store.ungraded_count() {
        gauge("trajectories_ungraded", "Trajectories that wait for a model", ungraded as f64);
    }
}
