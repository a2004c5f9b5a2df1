//! Holds the alert rules against what is in the store, every few seconds.

use std::sync::Arc;
use std::time::Duration;

use gradus_store::{BUCKET_NS, ExampleRow, MetricFilter, MetricGroup, Store, StoreError, Window};
use tokio::sync::oneshot;

use crate::alert::{self, Dispatcher, Example, Measured, Notice, Rule, State, Subject};
use crate::serve::state::{Server, now_ns};

const EVERY: Duration = Duration::from_secs(5);
const EXAMPLES: usize = 5;
/// What counts as new for `unseen_tool`.
const RECENT: Duration = Duration::from_secs(600);

/// How long notices that are under way may take when the server stops.
const LAST_NOTICES: Duration = Duration::from_secs(5);

pub(super) async fn run(server: Arc<Server>, mut stop: oneshot::Receiver<()>) {
    let settings =
        alert::Settings { base_url: Some(server.settings.public_url.clone()), ..alert::Settings::default() };
    let dispatcher = match Dispatcher::start(settings) {
        Ok(dispatcher) => dispatcher,
        Err(error) => {
            tracing::error!(%error, "alerts cannot be sent");
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
        let looked = tokio::task::spawn_blocking(move || look(&looking)).await;
        match looked {
            Ok(notices) => {
                for (notice, targets) in notices {
                    dispatcher.send(notice, &targets);
                }
            }
            Err(error) => tracing::error!(%error, "alert rules could not be looked at"),
        }
        server.meters.delivered(&dispatcher.counts());
    }
    // What the store says was told is told.
    let left = dispatcher.drain(LAST_NOTICES).await;
    if left > 0 {
        tracing::warn!(left, "notices could not be delivered in time");
    }
}

fn look(server: &Server) -> Vec<(Notice, Vec<alert::Target>)> {
    let reloadable = server.reloadable();
    let mut notices = Vec::new();
    for rule in &reloadable.alerts {
        match look_at(server, rule) {
            Ok(Some(notice)) => notices.push((notice, rule.targets.clone())),
            Ok(None) => {}
            Err(error) => tracing::error!(rule = rule.name, %error, "an alert rule could not be looked at"),
        }
    }
    notices
}

fn look_at(server: &Server, rule: &Rule) -> Result<Option<Notice>, StoreError> {
    let store = &server.store;
    let known = store.alert_state(&rule.name)?;
    let before: State = known.as_deref().and_then(|text| serde_json::from_str(text).ok()).unwrap_or_default();
    let now = now_ns();
    let measured = measure(store, rule, now)?;
    let (after, notice) = alert::advance(rule, before, measured, jiff::Timestamp::now());
    let event = notice.as_ref().map(|notice| {
        let json = notice.json(Some(&server.settings.public_url));
        let kind = json["kind"].as_str().unwrap_or_default().to_owned();
        server.meters.alert(&rule.name, &kind);
        (kind, json.to_string())
    });
    let state = serde_json::to_string(&after).unwrap_or_default();
    if event.is_some() || known.as_deref() != Some(&state) {
        // The state is on disk before anybody is told: a restart does not tell twice.
        store.put_alert_state(rule.name.clone(), state, event, now)?.wait()?;
    }
    Ok(notice)
}

/// What a rule's condition looks at, as it is now.
fn measure(store: &Store, rule: &Rule, now_ns: i64) -> Result<Option<Measured>, StoreError> {
    let condition = &rule.condition;
    let window_ns = i64::try_from(condition.window.as_nanos()).unwrap_or(i64::MAX);
    // Trajectories count by when they began, and one that begins now has a time of now.
    let window = Window {
        project: rule.project.clone(),
        from_ns: now_ns.saturating_sub(window_ns),
        to_ns: now_ns.saturating_add(60_000_000_000),
    };
    let filter = |evaluator: Option<&str>| MetricFilter {
        project: window.project.clone(),
        evaluator: evaluator.map(str::to_owned),
        from_ns: Some(window.from_ns),
        ..MetricFilter::default()
    };
    let of = |value: f64, count: u64, rows: Vec<ExampleRow>| {
        let examples = rows.into_iter().map(example).collect();
        Ok(Some(Measured { value, count, examples, unseen: Vec::new() }))
    };
    match &condition.subject {
        Subject::Evaluator(name) => {
            let rows = store.metrics(&filter(Some(name)), MetricGroup::All)?;
            let (sum, scored) = rows
                .iter()
                .fold((0.0, 0), |(sum, scored), row| (sum + row.moments.sum, scored + row.moments.scored));
            if scored == 0 {
                return Ok(None);
            }
            let worst = store.worst_verdicts(&window, Some(name), false, EXAMPLES)?;
            of(sum / scored as f64, scored as u64, worst)
        }
        Subject::FailureRate => {
            let rows = store.metrics(&filter(None), MetricGroup::All)?;
            let (failed, scored) = rows.iter().fold((0, 0), |(failed, scored), row| {
                (failed + row.moments.failed, scored + row.moments.scored)
            });
            if failed + scored == 0 {
                return Ok(None);
            }
            let examples = store.worst_verdicts(&window, None, true, EXAMPLES)?;
            of(failed as f64 / (failed + scored) as f64, (failed + scored) as u64, examples)
        }
        Subject::ErrorRate => {
            let (count, errors) = store.error_counts(&window)?;
            if count == 0 {
                return Ok(None);
            }
            of(errors as f64 / count as f64, count, store.worst_trajectories(&window, false, EXAMPLES)?)
        }
        Subject::CostPerHour => {
            let spent = store.spent_since(window.from_ns, None, rule.project.as_deref())?;
            // Spending is summed in buckets: what is counted goes back to where the first of them begins.
            let from_ns = window.from_ns.div_euclid(BUCKET_NS) * BUCKET_NS;
            let hours = now_ns.saturating_sub(from_ns) as f64 / 3.6e12;
            of(spent / hours, 0, Vec::new())
        }
        Subject::Latency(percentile) => {
            let mut durations = store.durations_ns(&window)?;
            if durations.is_empty() {
                return Ok(None);
            }
            let at =
                ((durations.len() as f64 * percentile.share()).ceil() as usize).clamp(1, durations.len()) - 1;
            let (_, value, _) = durations.select_nth_unstable(at);
            let seconds = *value as f64 / 1e9;
            of(seconds, durations.len() as u64, store.worst_trajectories(&window, true, EXAMPLES)?)
        }
        Subject::UnseenTool => {
            let (unseen, count) = store.unseen_tools(&window, RECENT.as_nanos() as i64)?;
            Ok(Some(Measured { value: unseen.len() as f64, count, examples: Vec::new(), unseen }))
        }
    }
}

fn example(row: ExampleRow) -> Example {
    let of_step = match (&row.label, row.tool.is_empty()) {
        (Some(label), false) => format!("{label}: {}", row.tool),
        (Some(label), true) => label.clone(),
        (None, _) => format!("{:.1} s", row.duration_ns as f64 / 1e9),
    };
    Example {
        trace_id: format!("{:032x}", row.trace_id),
        trajectory_id: row.trajectory_id,
        step_index: row.step,
        summary: format!("{of_step}: {}", row.query),
        score: row.score,
    }
}
