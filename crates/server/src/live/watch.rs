//! Evaluates the alert rules every few seconds and sends notices.

use std::sync::Arc;
use std::time::Duration;

use gradus_store::{ExampleRow, StoreError, TrajectoryWindow};
use tokio::sync::oneshot;

use super::measure;
use crate::alert::{
    self, AlertExample, AlertMeasurement, AlertMetric, AlertNotice, AlertRule, AlertState, NoticeDispatcher, ScoreWatch,
};
use crate::alert_changes::{delivery_settings, watch_state_key};
use crate::clock::now_ns;
use crate::state::ServerState;

/// How often alert rules are measured.
const EVALUATION_INTERVAL: Duration = Duration::from_secs(5);
const MAX_LOADED_EXAMPLES: usize = 5;

/// How long deliveries under way may take when the server stops.
const MAX_FINAL_NOTICE_WAIT: Duration = Duration::from_secs(5);

/// The alert loop. It ends when `stop` fires, after a last attempt to deliver pending notices.
pub(super) async fn watch_alerts(server: Arc<ServerState>, mut stop: oneshot::Receiver<()>) {
    let dispatcher = match NoticeDispatcher::start(delivery_settings(&server.settings)) {
        Ok(dispatcher) => dispatcher,
        Err(error) => {
            tracing::error!(%error, "failed to start alert delivery; no alerts are sent");
            return;
        }
    };
    let mut tick = tokio::time::interval(EVALUATION_INTERVAL);
    // A slow round must not be followed by a burst of rounds.
    tick.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
    loop {
        tokio::select! {
            _ = tick.tick() => {}
            _ = &mut stop => break,
        }
        // Of several servers on one database, only one sends alerts.
        if !server.store.is_leader() {
            continue;
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
        server.alerts.set_target_health(dispatcher.health());
    }
    // The store has recorded these notices as sent, so they are not repeated after a restart.
    let left = dispatcher.drain(MAX_FINAL_NOTICE_WAIT).await;
    if left > 0 {
        tracing::warn!(left, "alert notices were not delivered in time");
    }
}

/// Evaluates all rules once, and returns the notices to send. A rule that cannot be measured does not stop the
/// others.
fn evaluate_alert_rules(server: &ServerState) -> Vec<(AlertNotice, Vec<alert::AlertTarget>)> {
    let catalog = server.alerts.catalog();
    let (mut notices, mut firing) = (Vec::new(), Vec::new());
    for listed in &catalog.alerts {
        let rule = &listed.rule;
        match evaluate_alert_rule(server, rule) {
            Ok((after, notice)) => {
                notices.extend(notice.map(|notice| (notice, listed.notified_targets())));
                if matches!(after, AlertState::Firing { .. }) && listed.mute().is_none() {
                    firing.push(rule.name.clone());
                }
            }
            Err(error) => {
                server.alert_measurements.remove_after_failure(rule);
                tracing::error!(rule = rule.name, %error, "failed to evaluate an alert rule");
            }
        }
    }
    server.alerts.set_firing(firing);
    notices
}

/// Measures one rule, advances its state machine and stores the new state. Returns that state, and the notice that is
/// to be sent.
fn evaluate_alert_rule(
    server: &ServerState,
    rule: &AlertRule,
) -> Result<(AlertState, Option<AlertNotice>), StoreError> {
    let store = &server.store;
    let known = store.alert_state(&rule.name)?;
    let before: AlertState = known.as_deref().and_then(|text| serde_json::from_str(text).ok()).unwrap_or_default();
    let now = now_ns();
    let windows = measure::build_rule_windows(store, rule, now)?;
    let mut measured = measure::measure_condition(store, &rule.condition, &windows, now)?;
    let mut watch = load_score_watch(server, rule, &windows)?;
    if let (Some(watch), AlertMetric::Evaluator { name, best, gives_only_flags, .. }) =
        (&mut watch, &rule.condition.subject)
    {
        let undecided = gives_only_flags.then_some(*best);
        let waiting_since = now.saturating_sub(MAX_WAIT_NS);
        let (scores, cursor) = store.scores_after(name, undecided, &windows, watch.cursor, waiting_since)?;
        scores.into_iter().for_each(|score| watch.add(score));
        watch.cursor = cursor;
        if let Some(measured) = &mut measured {
            measured.is_proven = Some(watch.is_proven());
        }
    }
    server.alert_measurements.put(rule, measured.clone(), now);
    let is_over = measured.as_ref().is_some_and(|measured| is_clear(rule, measured));
    let (after, mut notice) = alert::advance_alert_state(rule, before, measured, jiff::Timestamp::now());
    if let Some(notice) = &mut notice {
        // Loaded last: examples cost queries, and most rounds send nothing.
        let rows = measure::load_alert_examples(store, &rule.condition, &notice.unseen, &windows, MAX_LOADED_EXAMPLES)?;
        notice.add_examples(rows.into_iter().map(to_alert_example));
    }
    let event = notice.as_ref().map(|notice| {
        let json = notice.to_json(Some(&server.settings.public_url));
        let kind = json["kind"].as_str().unwrap_or_default().to_owned();
        server.meters.record_alert(&rule.name, &kind);
        (kind, json.to_string())
    });
    if let Some(mut watch) = watch {
        if is_over && watch.is_proven() {
            watch.reset();
        }
        let text = serde_json::to_string(&watch).unwrap_or_default();
        // Stored before the state: the proof is not lost if the server ends in between.
        if store.alert_state(&watch_state_key(&rule.name))?.as_deref() != Some(&text) {
            store.put_alert_state(watch_state_key(&rule.name), text, None, now)?.wait()?;
        }
    }
    let state = serde_json::to_string(&after).unwrap_or_default();
    if event.is_some() || known.as_deref() != Some(&state) {
        // The state is on disk before the notice is sent, so that a crash in between loses one notice instead of
        // repeating it.
        store.put_alert_state(rule.name.clone(), state, event, now)?.wait()?;
    }
    Ok((after, notice))
}

/// How long a trajectory that waits for its judge holds back the scores of later ones: 15 minutes. Scores are added
/// in the order of arrival, so that slow verdicts do not bias the sample.
const MAX_WAIT_NS: i64 = 15 * 60 * 1_000_000_000;

/// Loads the score watch of a rule, or creates one that begins with the window.
fn load_score_watch(
    server: &ServerState,
    rule: &AlertRule,
    windows: &[TrajectoryWindow],
) -> Result<Option<ScoreWatch>, StoreError> {
    let Some(mut new) = ScoreWatch::new(rule, 0) else { return Ok(None) };
    let known = server.store.alert_state(&watch_state_key(&rule.name))?;
    let known: Option<ScoreWatch> = known.as_deref().and_then(|text| serde_json::from_str(text).ok());
    match (known.filter(|known| known.is_for_rule(rule)), windows.first()) {
        (Some(known), _) => Ok(Some(known)),
        (None, Some(window)) => {
            new.cursor = server.store.last_trajectory_before(window)?;
            Ok(Some(new))
        }
        // No project matches yet.
        (None, None) => Ok(None),
    }
}

/// Whether the value is past the clearing threshold.
fn is_clear(rule: &AlertRule, measured: &AlertMeasurement) -> bool {
    measured.count >= rule.condition.min_sample_count()
        && rule.condition.bar.is_some_and(|bar| rule.is_clear(&bar, measured.value))
}

/// Converts an example. Its summary is the label and tool of a verdict, a new tool, or the duration of a trajectory.
fn to_alert_example(row: ExampleRow) -> AlertExample {
    let of_step = match (&row.label, row.tool.is_empty()) {
        (Some(label), false) => format!("{label}: {}", row.tool),
        (Some(label), true) => label.clone(),
        // The example shows the new tool.
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
