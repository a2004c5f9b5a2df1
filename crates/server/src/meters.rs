//! What the server counts, for `/metrics`.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};

use gradus_eval::outcome::{OutcomeKind, OutcomeLine};
use gradus_otlp::{RejectedRecords, TelemetrySignal};
use gradus_store::IngestCounts;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;

use crate::alert::DeliveryCounts;

pub(super) type MetricLabels = Vec<(&'static str, String)>;
pub(super) type CounterFamily = Family<MetricLabels, Counter>;

#[derive(Debug, Default)]
pub(super) struct PrometheusMetrics {
    pub(super) requests: CounterFamily,
    /// Requests with records that were not taken.
    pub(super) refused: AtomicU64,
    pub(super) records: CounterFamily,
    pub(super) bytes: CounterFamily,
    pub(super) outcomes: CounterFamily,
    pub(super) judge_calls: Counter,
    pub(super) unpriced_calls: Counter,
    pub(super) cost: Counter<f64, AtomicU64>,
    pub(super) assembled: Counter,
    pub(super) setbacks: CounterFamily,
    pub(super) alerts: CounterFamily,
    /// Streams of HTTP/2 that were reset because the client did not read.
    pub(super) stalled_streams: Counter,
    /// Deliveries of notices so far, as the dispatcher counts them.
    pub(super) deliveries: Mutex<DeliveryCounts>,
}

fn signal_name(signal: TelemetrySignal) -> &'static str {
    match signal {
        TelemetrySignal::Span => "span",
        TelemetrySignal::Log => "log",
    }
}

impl PrometheusMetrics {
    pub(super) fn record_response(&self, signal: TelemetrySignal, transport: &'static str, status: u16) {
        let labels = vec![
            ("signal", signal_name(signal).to_owned()),
            ("transport", transport.to_owned()),
            ("status", status.to_string()),
        ];
        self.requests.get_or_create(&labels).inc();
        self.refused.fetch_add(u64::from(status >= 400), Ordering::Relaxed);
    }

    pub(super) fn refused_count(&self) -> u64 {
        self.refused.load(Ordering::Relaxed)
    }

    pub(super) fn record_received(&self, signal: TelemetrySignal, bytes: usize, rejected: &RejectedRecords) {
        self.bytes.get_or_create(&vec![("signal", signal_name(signal).to_owned())]).inc_by(bytes as u64);
        self.count_records(signal, "rejected", rejected.count);
    }

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

    /// A trace group, or a look at all that are due, came to nothing.
    pub(super) fn set_back(&self, reason: &'static str) {
        self.setbacks.get_or_create(&vec![("reason", reason.to_owned())]).inc();
    }

    pub(super) fn record_outcome(&self, line: &OutcomeLine) {
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
    pub(super) fn record_call_pricing(&self, calls: u64, is_priced: bool) {
        self.unpriced_calls.inc_by(if is_priced { 0 } else { calls });
    }

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
