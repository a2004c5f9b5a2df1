//! Server metrics in the OpenMetrics text format. Names and labels are an interface: dashboards and alerts use them.

use std::fmt::Write as _;
use std::sync::PoisonError;
use std::sync::atomic::{AtomicU64, Ordering};

use prometheus_client::encoding::text::encode;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::registry::Registry;

use super::agent_metrics::register_agent_metrics;
use crate::connection::ConnectionCloseReason;
use crate::judge_anchors::current_anchor_sets;
use crate::server_metrics::{CounterFamily, MetricLabels};
use crate::state::ServerState;

/// Renders all metrics with the prefix `gradus_`. The registry is built for each scrape, since gauges are read from
/// where they are kept; counters are shared handles. Reads the store, so it must not run on an async thread.
pub(super) fn render_prometheus_metrics(server: &ServerState) -> String {
    let mut registry = Registry::with_prefix("gradus");
    let meters = &server.meters;
    registry.register(
        "ingest_requests",
        "OTLP requests that were answered, by signal, transport and status",
        meters.requests.clone(),
    );
    registry.register(
        "ingest_records",
        "Spans and log records that were received, by what became of them",
        meters.records.clone(),
    );
    registry.register("ingest_bytes", "Bytes of OTLP requests after decompression", meters.bytes.clone());
    registry.register(
        "trajectories_assembled",
        "Trajectories that were assembled because they were new or changed",
        meters.assembled.clone(),
    );
    registry.register(
        "assembly_setbacks",
        "Attempts to assemble a trace that failed, by reason",
        meters.assembly_failures.clone(),
    );
    registry.register(
        "outcomes",
        "Verdicts and questions without one, by evaluator and outcome",
        meters.outcomes.clone(),
    );
    registry.register("judge_calls", "Requests that were sent to model judges", meters.judge_calls.clone());
    registry.register("judge_cost_usd", "Dollars spent on judges, as far as prices are known", meters.cost.clone());
    registry.register(
        "judge_unpriced_calls",
        "Requests to judges whose price is not known",
        meters.unpriced_calls.clone(),
    );
    registry.register("alerts", "Notices of alert rules, by rule and kind", meters.alerts.clone());
    registry.register(
        "streams_stalled",
        "Streams of HTTP/2 that were reset because the client did not read",
        meters.stalled_streams.clone(),
    );
    register_connection_counters(server, &mut registry);
    register_server_gauges(server, &mut registry);
    register_anchor_rounds(server, &mut registry);
    register_agent_metrics(server, &mut registry);
    let mut text = String::new();
    // OpenMetrics requires the `# EOF` marker; without it a scraper rejects the answer as truncated.
    if encode(&mut text, &registry).is_err() {
        let _ = writeln!(text, "# EOF");
    }
    text
}

/// Copies the counters of the connection registry into counters of this scrape.
fn register_connection_counters(server: &ServerState, registry: &mut Registry) {
    let mut counter = |name: &str, help: &str, value: u64| {
        let counter: Counter = Counter::default();
        counter.inc_by(value);
        registry.register(name, help, counter);
    };
    counter("memory_refusals", "Requests and responses that were refused for lack of memory", server.memory.refusals());
    counter(
        "connections_refused",
        "Connections that were refused because too many were open",
        server.connections.refused_count(),
    );
    let closed = CounterFamily::default();
    for reason in ConnectionCloseReason::ALL {
        let labels = vec![("reason", reason.name().to_owned())];
        closed.get_or_create(&labels).inc_by(server.connections.closed_count(reason));
    }
    registry.register("connections_closed", "Connections that the server closed, by reason", closed);
}

/// Registers the results of anchor rounds. Label values are names of the settings.
fn register_anchor_rounds(server: &ServerState, registry: &mut Registry) {
    let Ok(sets) = current_anchor_sets(&server.store, &server.reloadable().rules) else { return };
    let family = || Family::<MetricLabels, Gauge<f64, AtomicU64>>::default();
    let (changed, moved, rounds) = (family(), family(), family());
    for known in sets {
        let labels = vec![("rule", known.rule), ("evaluator", known.evaluator), ("judge", known.judge)];
        rounds.get_or_create(&labels).set(known.set.rounds as f64);
        if let Some(share) = known.set.changed_share() {
            changed.get_or_create(&labels).set(share);
            moved.get_or_create(&labels).set(f64::from(u8::from(known.set.has_drifted())));
        }
    }
    registry.register("judge_anchor_rounds", "Rounds of anchors after the first", rounds);
    registry.register("judge_anchor_changed_share", "Share of anchors with another label in the last round", changed);
    registry.register("judge_drift", "Whether the answers of a judge moved: 1 or 0", moved);
}

/// Registers current values as gauges. Values that cannot be read are left out of this scrape: a missing series is
/// visible, a zero would be wrong.
fn register_server_gauges(server: &ServerState, registry: &mut Registry) {
    let mut gauge = |name: &str, help: &str, value: f64| {
        let gauge: Gauge<f64, AtomicU64> = Gauge::default();
        gauge.set(value);
        registry.register(name, help, gauge);
    };
    gauge("uptime_seconds", "Seconds since the server started", server.started.elapsed().as_secs_f64());
    let (requests, responses) = server.memory.used_bytes();
    gauge("request_memory_bytes", "Bytes of memory that requests hold while they are received", requests as f64);
    gauge("response_memory_bytes", "Bytes of memory that responses hold until they are read", responses as f64);
    gauge(
        "memory_limit_bytes",
        "Bytes of memory that requests and responses may hold together",
        server.memory.total_bytes() as f64,
    );
    gauge(
        "response_file_bytes",
        "Bytes of large responses that wait on disk to be read",
        server.spilled.used_bytes().0 as f64,
    );
    let (open, keyed) = server.connections.open_count();
    gauge("connections_open", "Connections that are open", open as f64);
    gauge("connections_keyed", "Connections that have shown a valid key", keyed as f64);
    // None if the store is open for reading only.
    if let Some(status) = server.store.writer_status() {
        let number = |value: &AtomicU64| value.load(Ordering::Relaxed) as f64;
        gauge(
            "store_queue_bytes",
            "Bytes that wait to be written to the store",
            status.queued_bytes.load(Ordering::Relaxed) as f64,
        );
        gauge(
            "store_queue_tasks",
            "Tasks that wait to be written to the store",
            status.queued_tasks.load(Ordering::Relaxed) as f64,
        );
        gauge("store_commits", "Transactions of the store since the start", number(&status.commits));
        gauge(
            "store_failed_commits",
            "Transactions of the store that failed since the start",
            number(&status.failed_commits),
        );
        gauge(
            "store_commit_seconds",
            "Seconds spent in transactions of the store since the start",
            number(&status.commit_ns) / 1e9,
        );
    }
    // Totals, exported as gauges because the pool keeps the numbers itself.
    for (result, count) in server.queries.counts().by_result() {
        gauge(&format!("queries_{result}"), "Queries with this result since the start", count as f64);
    }
    let (under_way, waiting) = server.queries.under_way();
    gauge("queries_under_way", "Queries that are admitted and run or take turns", under_way as f64);
    gauge("queries_waiting", "Queries that wait to be admitted", waiting as f64);
    // A poisoned lock still holds valid numbers.
    let deliveries = *server.meters.deliveries.lock().unwrap_or_else(PoisonError::into_inner);
    for (kind, counts) in deliveries.iter() {
        let kind = kind.name();
        gauge(
            &format!("alert_{kind}_sent"),
            "Alert notices that this kind of target accepted since the start",
            counts.sent as f64,
        );
        gauge(
            &format!("alert_{kind}_failed"),
            "Alert notices to this kind of target that were given up since the start",
            counts.failed as f64,
        );
        gauge(
            &format!("alert_{kind}_dropped"),
            "Alert notices to this kind of target that a full queue dropped since the start",
            counts.dropped as f64,
        );
    }
    if let Ok((used, free)) = server.store.used_and_free_bytes() {
        gauge("store_used_bytes", "Bytes of the store's file that are in use", used as f64);
        gauge("store_free_bytes", "Bytes of the store's file that are free", free as f64);
    }
    if let Ok(due) = server.store.ready_queue_length() {
        gauge("traces_due", "Traces with records that have not been assembled yet", due as f64);
    }
    if let Ok(quarantined) = server.store.quarantined_count() {
        gauge(
            "traces_quarantined",
            "Traces that could not be assembled and are left alone until someone retries them",
            quarantined as f64,
        );
    }
    if let Ok(ungraded) = server.store.ungraded_count() {
        gauge("trajectories_ungraded", "Trajectories that wait for a model judge", ungraded as f64);
    }
}
