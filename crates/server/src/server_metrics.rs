//! Counters for `/metrics` in the Prometheus format. Names and help texts are set where they are registered.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};

use gradus_eval::outcome::{OutcomeKind, OutcomeLine};
use gradus_otlp::{RejectedRecords, TelemetrySignal};
use gradus_store::IngestCounts;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;

use crate::alert::DeliveryCounts;

/// Label names are fixed; values may come from settings (rule names), never from recorded data, which would make the
/// number of series unbounded.
pub(super) type MetricLabels = Vec<(&'static str, String)>;
pub(super) type CounterFamily = Family<MetricLabels, Counter>;

/// Counters since the start. All are atomics or concurrent maps and are updated without a lock of ours.
#[derive(Debug, Default)]
pub(super) struct PrometheusMetrics {
    /// By signal, transport and status.
    pub(super) requests: CounterFamily,
    /// OTLP requests that were answered with an error.
    pub(super) refused: AtomicU64,
    /// Received records by signal and result: new, repeated, replaced or rejected.
    pub(super) records: CounterFamily,
    /// Bytes of requests after decompression, by signal.
    pub(super) bytes: CounterFamily,
    pub(super) outcomes: CounterFamily,
    pub(super) judge_calls: Counter,
    /// Judge calls whose price is unknown: the counted cost is too low then.
    pub(super) unpriced_calls: Counter,
    pub(super) cost: Counter<f64, AtomicU64>,
    /// Trajectories that were stored, each time they were assembled.
    pub(super) assembled: Counter,
    /// Failed attempts to assemble, by reason.
    pub(super) assembly_failures: CounterFamily,
    pub(super) alerts: CounterFamily,
    /// Streams of HTTP/2 that were reset because the client did not read.
    pub(super) stalled_streams: Counter,
    /// The dispatcher's own counts of delivered notices, copied after each round.
    pub(super) deliveries: Mutex<DeliveryCounts>,
}

fn signal_name(signal: TelemetrySignal) -> &'static str {
    match signal {
        TelemetrySignal::Span => "span",
        TelemetrySignal::Log => "log",
    }
}

impl PrometheusMetrics {
    /// Counts a response. For gRPC, `status` is the gRPC code, where 0 is success and no code reaches 400.
    pub(super) fn record_response(&self, signal: TelemetrySignal, transport: &'static str, status: u16) {
        let labels = vec![
            ("signal", signal_name(signal).to_owned()),
            ("transport", transport.to_owned()),
            ("status", status.to_string()),
        ];
        self.requests.get_or_create(&labels).inc();
        self.refused.fetch_add(u64::from(status >= 400), Ordering::Relaxed);
    }

    pub(super) fn refused_request_count(&self) -> u64 {
        self.refused.load(Ordering::Relaxed)
    }

    /// Returns the number of new spans that were stored.
    pub(super) fn stored_span_count(&self) -> u64 {
        let labels = vec![("signal", signal_name(TelemetrySignal::Span).to_owned()), ("result", "new".to_owned())];
        self.records.get_or_create(&labels).get()
    }

    /// Counts a received request, once, after it is stored.
    pub(super) fn record_received(&self, signal: TelemetrySignal, bytes: usize, rejected: &RejectedRecords) {
        self.bytes.get_or_create(&vec![("signal", signal_name(signal).to_owned())]).inc_by(bytes as u64);
        self.count_records(signal, "rejected", rejected.count);
    }

    /// Counts the stored records of one batch by result. A repeated record has the digest of a stored one.
    pub(super) fn record_ingested(&self, signal: TelemetrySignal, ingested: &IngestCounts) {
        self.count_records(signal, "new", ingested.new);
        self.count_records(signal, "repeated", ingested.repeated);
        self.count_records(signal, "replaced", ingested.replaced);
    }

    fn count_records(&self, signal: TelemetrySignal, result: &str, count: u64) {
        if count > 0 {
            let labels = vec![("signal", signal_name(signal).to_owned()), ("result", result.to_owned())];
            self.records.get_or_create(&labels).inc_by(count);
        }
    }

    pub(super) fn record_assembled(&self, trajectories: usize) {
        self.assembled.inc_by(trajectories as u64);
    }

    /// Counts a trace group that could not be assembled, or a failed look at the ready queue.
    pub(super) fn record_assembly_failure(&self, reason: &'static str) {
        self.assembly_failures.get_or_create(&vec![("reason", reason.to_owned())]).inc();
    }

    /// Counts an outcome, with the judge's calls and cost, if it has any.
    pub(super) fn record_outcome(&self, line: &OutcomeLine) {
        let kind = match line.outcome {
            OutcomeKind::Scored => "scored",
            OutcomeKind::NotApplicable => "not_applicable",
            OutcomeKind::Abstained => "abstained",
            OutcomeKind::Failed => "failed",
        };
        let labels = vec![("evaluator", line.evaluator.to_string()), ("outcome", kind.to_owned())];
        self.outcomes.get_or_create(&labels).inc();
        self.judge_calls.inc_by(u64::from(line.calls));
        self.cost.inc_by(line.cost_usd.unwrap_or(0.0).max(0.0));
    }

    /// Counts calls to a judge whose price is unknown.
    pub(super) fn record_call_pricing(&self, calls: u64, is_priced: bool) {
        self.unpriced_calls.inc_by(if is_priced { 0 } else { calls });
    }

    /// Counts an HTTP/2 stream that was reset because its client did not read.
    pub(super) fn count_stalled_stream(&self) {
        self.stalled_streams.inc();
    }

    pub(super) fn record_alert(&self, rule: &str, kind: &str) {
        self.alerts.get_or_create(&vec![("rule", rule.to_owned()), ("kind", kind.to_owned())]).inc();
    }
}

impl PrometheusMetrics {
    pub(super) fn set_delivery_counts(&self, counts: &DeliveryCounts) {
        *self.deliveries.lock().unwrap_or_else(PoisonError::into_inner) = *counts;
    }
}
