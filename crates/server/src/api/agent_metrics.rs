//! What `/metrics` says about agents and judges: scores, outcomes, failure groups, spending and alerts. Numbers come from
//! the store, so a restart does not reset them.
//!
//! Names of projects and groups come from whoever sends traces, so each metric has a bounded number of series: scores
//! of the most recently active projects, outcomes of those with the most trajectories, groups with the most runs.

use std::collections::BTreeMap;
use std::sync::atomic::AtomicU64;

use gradus_eval::evaluator::OUTCOME;
use gradus_store::{FailureGroupOptions, MetricFilter, MetricGroup, StoreError};
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::registry::Registry;

use crate::alert::AlertState;
use crate::clock::{now_ns, today_ns};
use crate::evaluators::compute_mean_interval;
use crate::server_metrics::MetricLabels;
use crate::state::ServerState;
use gradus_report::html::text;

/// Maximum number of projects with series of their own.
const MAX_PROJECTS: usize = 20;
/// Maximum number of evaluators with series of their own, for each project.
const MAX_EVALUATORS: usize = 30;
const MAX_GROUPS: usize = 20;
/// Maximum number of characters of a label value that people wrote or that was recorded.
const MAX_LABEL_CHARS: usize = 100;
/// Maximum number of trajectories whose outcomes are counted.
const MAX_TRAJECTORIES: usize = 20_000;
const HOUR_NS: i64 = 3_600_000_000_000;

type GaugeFamily = Family<MetricLabels, Gauge<f64, AtomicU64>>;

/// Registers the metrics of agents and judges. Metrics that cannot be read are left out of this scrape.
pub(super) fn register_agent_metrics(server: &ServerState, registry: &mut Registry) {
    let parts = [register_scores, register_outcomes, register_groups, register_spending, register_alerts];
    for register in parts {
        if let Err(error) = register(server, registry) {
            crate::logging::report_store_failure(&error);
        }
    }
}

/// Truncates a recorded name and makes it printable, for a label value.
fn format_label_value(name: &str) -> String {
    text::format_display_line(name).chars().take(MAX_LABEL_CHARS).collect()
}

fn set_gauge(family: &GaugeFamily, labels: &[(&'static str, &str)], value: f64) {
    let labels: MetricLabels = labels.iter().map(|(name, value)| (*name, format_label_value(value))).collect();
    family.get_or_create(&labels).set(value);
}

fn register_scores(server: &ServerState, registry: &mut Registry) -> Result<(), StoreError> {
    let settings = server.reloadable();
    let [mean, low, high, verdicts] = [(); 4].map(|()| GaugeFamily::default());
    let mut projects = server.store.projects()?;
    projects.sort_by_key(|project| std::cmp::Reverse(project.last_ns));
    let from_ns = Some(now_ns() - HOUR_NS);
    for project in projects.into_iter().take(MAX_PROJECTS) {
        let filter = MetricFilter { project: Some(project.name.clone()), from_ns, ..MetricFilter::default() };
        for row in server.store.metrics(&filter, MetricGroup::All)?.into_iter().take(MAX_EVALUATORS) {
            let labels = [("project", project.name.as_str()), ("evaluator", row.evaluator.as_str())];
            let moments = row.moments;
            set_gauge(&verdicts, &labels, moments.scored as f64);
            if moments.scored > 0 {
                set_gauge(&mean, &labels, moments.sum / moments.scored as f64);
            }
            if let Some(interval) = compute_mean_interval(&settings, &row.evaluator, &moments) {
                set_gauge(&low, &labels, interval.low);
                set_gauge(&high, &labels, interval.high);
            }
        }
    }
    registry.register("score_mean", "Mean score of an evaluator in the last hour, for the 20 latest projects", mean);
    registry.register("score_low", "Lower end of the 95 % interval of the mean score in the last hour", low);
    registry.register("score_high", "Upper end of the 95 % interval of the mean score in the last hour", high);
    registry.register("score_verdicts", "Scored verdicts of an evaluator in the last hour", verdicts);
    Ok(())
}

fn register_outcomes(server: &ServerState, registry: &mut Registry) -> Result<(), StoreError> {
    let rows = server.store.recent_outcomes(OUTCOME, now_ns() - HOUR_NS, MAX_TRAJECTORIES)?;
    let mut by_project: BTreeMap<&str, u64> = BTreeMap::new();
    for row in &rows {
        *by_project.entry(&row.project).or_default() += row.trajectories;
    }
    let mut largest: Vec<(&str, u64)> = by_project.into_iter().collect();
    largest.sort_by_key(|(_, trajectories)| std::cmp::Reverse(*trajectories));
    largest.truncate(MAX_PROJECTS);
    let (outcomes, errors) = (GaugeFamily::default(), GaugeFamily::default());
    let mut errors_by_project: BTreeMap<&str, u64> = BTreeMap::new();
    for row in rows.iter().filter(|row| largest.iter().any(|(name, _)| *name == row.project)) {
        // The labels are those of a built-in evaluator, so there are few.
        let label = row.label.as_deref().unwrap_or("not_judged");
        set_gauge(&outcomes, &[("project", &row.project), ("outcome", label)], row.trajectories as f64);
        *errors_by_project.entry(&row.project).or_default() += row.errors;
    }
    for (project, count) in errors_by_project {
        set_gauge(&errors, &[("project", project)], count as f64);
    }
    registry.register(
        "runs",
        "Runs that began in the last hour, by how they ended; of the latest 20000 runs and the 20 largest projects",
        outcomes,
    );
    registry.register("run_errors", "Runs that began in the last hour and ended in an error", errors);
    Ok(())
}

fn register_groups(server: &ServerState, registry: &mut Registry) -> Result<(), StoreError> {
    let filter = MetricFilter { from_ns: Some(now_ns() - 24 * HOUR_NS), ..MetricFilter::default() };
    let options = FailureGroupOptions { before_ns: None, with_muted: false, key: None, limit: MAX_GROUPS };
    let list = server.store.failure_groups(&filter, options)?;
    let runs = GaugeFamily::default();
    for row in &list.groups {
        let title = row.name.as_deref().unwrap_or(&row.reason);
        let labels =
            [("group", row.key.as_str()), ("evaluator", &row.evaluator), ("tool", &row.tool), ("title", title)];
        set_gauge(&runs, &labels, row.trajectories as f64);
    }
    registry.register(
        "failure_group_runs",
        "Runs of the last 24 hours with a verdict of a failure group, for the 20 groups with the most runs",
        runs,
    );
    let count: Gauge<f64, AtomicU64> = Gauge::default();
    count.set(list.group_count.saturating_sub(list.muted_count) as f64);
    registry.register("failure_groups", "Failure groups of the last 24 hours that are not muted", count);
    Ok(())
}

fn register_spending(server: &ServerState, registry: &mut Registry) -> Result<(), StoreError> {
    let (spent, budget) = (GaugeFamily::default(), GaugeFamily::default());
    let today = today_ns();
    for rule in &server.reloadable().rules {
        let labels = [("rule", rule.name.as_str())];
        set_gauge(&spent, &labels, server.store.load_spend_since(today, Some(&rule.name), None)?.cost_usd);
        if let Some(dollars) = rule.daily_budget_usd {
            set_gauge(&budget, &labels, dollars);
        }
    }
    registry.register(
        "judge_spent_today_usd",
        "Dollars that a grading rule spent on its judge since 00:00 UTC, as far as prices are known",
        spent,
    );
    registry.register("judge_daily_budget_usd", "Dollars that a grading rule may spend in a UTC day", budget);
    Ok(())
}

fn register_alerts(server: &ServerState, registry: &mut Registry) -> Result<(), StoreError> {
    let (firing, muted) = (GaugeFamily::default(), GaugeFamily::default());
    for listed in &server.alerts.catalog().alerts {
        let state = server.store.alert_state(&listed.rule.name)?;
        let state: Option<AlertState> = state.and_then(|text| serde_json::from_str(&text).ok());
        let is_firing = matches!(state, Some(AlertState::Firing { .. }));
        let labels = [("rule", listed.rule.name.as_str())];
        set_gauge(&firing, &labels, f64::from(u8::from(is_firing)));
        set_gauge(&muted, &labels, f64::from(u8::from(listed.mute().is_some())));
    }
    registry.register("alert_firing", "Whether an alert rule fires: 1 or 0", firing);
    registry.register("alert_muted", "Whether an alert rule is muted: 1 or 0", muted);
    Ok(())
}
