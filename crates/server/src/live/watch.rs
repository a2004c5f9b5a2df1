//! Holds the alert rules against what is in the store, every few seconds.

use std::sync::Arc;
use std::time::Duration;

use gradus_store::{ExampleRow, StoreError};
use tokio::sync::oneshot;

use super::measure;
use crate::alert::{self, AlertExample, AlertNotice, AlertRule, AlertState, NoticeDispatcher};
use crate::clock::now_ns;
use crate::state::ServerState;

const EVERY: Duration = Duration::from_secs(5);
const EXAMPLES: usize = 5;

/// How long notices that are under way may take when the server stops.
const LAST_NOTICES: Duration = Duration::from_secs(5);

pub(super) async fn watch_alerts(server: Arc<ServerState>, mut stop: oneshot::Receiver<()>) {
    let settings = alert::DeliverySettings {
        base_url: Some(server.settings.public_url.clone()),
        ..alert::DeliverySettings::default()
    };
    let dispatcher = match NoticeDispatcher::start(settings) {
        Ok(dispatcher) => dispatcher,
        Err(error) => {
            tracing::error!(%error, "failed to start alert delivery; no alerts are sent");
            return;
        }
    };
    let mut tick = tokio::time::interval(EVERY);
    tick.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
    loop {
        tokio::select! {
            _ = tick.tick() => {}
            _ = &mut stop => break,
        }
        let looking = Arc::clone(&server);
        let looked = tokio::task::spawn_blocking(move || evaluate_alert_rules(&looking)).await;
        match looked {
            Ok(notices) => {
                for (notice, targets) in notices {
                    dispatcher.send(notice, &targets);
                }
            }
            Err(error) => tracing::error!(%error, "failed to evaluate alert rules"),
        }
        server.meters.set_delivery_counts(&dispatcher.counts());
    }
    // What the store says was told is told.
    let left = dispatcher.drain(LAST_NOTICES).await;
    if left > 0 {
        tracing::warn!(left, "alert notices were not delivered in time");
    }
}

fn evaluate_alert_rules(server: &ServerState) -> Vec<(AlertNotice, Vec<alert::AlertTarget>)> {
    let reloadable = server.reloadable();
    let mut notices = Vec::new();
    for rule in &reloadable.alerts {
        match look_at(server, rule) {
            Ok(Some(notice)) => notices.push((notice, rule.targets.clone())),
            Ok(None) => {}
            Err(error) => {
                server.readings.forget(rule);
                tracing::error!(rule = rule.name, %error, "failed to evaluate an alert rule");
            }
        }
    }
    notices
}

fn look_at(server: &ServerState, rule: &AlertRule) -> Result<Option<AlertNotice>, StoreError> {
    let store = &server.store;
    let known = store.alert_state(&rule.name)?;
    let before: AlertState = known.as_deref().and_then(|text| serde_json::from_str(text).ok()).unwrap_or_default();
    let now = now_ns();
    let windows = measure::build_rule_windows(store, rule, now)?;
    let measured = measure::measure_condition(store, &rule.condition, &windows, now)?;
    server.readings.put(rule, measured.clone(), now);
    let (after, mut notice) = alert::advance_alert_state(rule, before, measured, jiff::Timestamp::now());
    if let Some(notice) = &mut notice {
        // Looked for only now: mostly there is nothing to tell.
        let rows = measure::load_alert_examples(store, &rule.condition, &notice.unseen, &windows, EXAMPLES)?;
        notice.add_examples(rows.into_iter().map(to_alert_example));
    }
    let event = notice.as_ref().map(|notice| {
        let json = notice.to_json(Some(&server.settings.public_url));
        let kind = json["kind"].as_str().unwrap_or_default().to_owned();
        server.meters.record_alert(&rule.name, &kind);
        (kind, json.to_string())
    });
    let state = serde_json::to_string(&after).unwrap_or_default();
    if event.is_some() || known.as_deref() != Some(&state) {
        // The state is on disk before anybody is told: a restart does not tell twice.
        store.put_alert_state(rule.name.clone(), state, event, now)?.wait()?;
    }
    Ok(notice)
}

fn to_alert_example(row: ExampleRow) -> AlertExample {
    let of_step = match (&row.label, row.tool.is_empty()) {
        (Some(label), false) => format!("{label}: {}", row.tool),
        (Some(label), true) => label.clone(),
        // What is new is the tool.
        (None, false) => row.tool.clone(),
        (None, true) => format!("{:.1} s", row.duration_ns as f64 / 1e9),
    };
    AlertExample {
        trace_id: format!("{:032x}", row.trace_id),
        trajectory_id: row.trajectory_id,
        step_index: row.step,
        summary: format!("{of_step}: {}", row.query),
        score: row.score,
    }
}
