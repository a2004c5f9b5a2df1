//! Alerts on the charts of evaluators: thresholds, and the times in which they fired.

use serde_json::Value as Json;

use crate::alert::{AlertMetric, AlertState};
use crate::clock::now_ns;
use crate::http_error::ApiError;
use crate::project_pattern;
use crate::state::ServerState;

/// Maximum number of notices that are read for the times in which alerts fired; the latest ones.
const MAX_NOTICES: usize = 500;

/// The alerts that watch evaluators.
#[derive(Default)]
pub(super) struct ChartAlerts(Vec<ChartAlert>);

/// One alert. `fired_ns` are times from and to, in no order.
pub(super) struct ChartAlert {
    evaluator: String,
    project: Option<String>,
    pub(super) threshold: f64,
    pub(super) is_below: bool,
    pub(super) fired_ns: Vec<(i64, i64)>,
}

impl ChartAlerts {
    /// Loads alerts with their firing times: from the state while an alert fires, and from its notice once it is
    /// resolved.
    pub(super) fn load(server: &ServerState) -> Result<ChartAlerts, ApiError> {
        let catalog = server.alerts.catalog();
        let is_needed = catalog.rules().any(|rule| matches!(rule.condition.subject, AlertMetric::Evaluator { .. }));
        let notices = if is_needed { server.store.alert_events(i64::MAX, MAX_NOTICES)? } else { Vec::new() };
        let mut all = Vec::new();
        for rule in catalog.rules() {
            let (AlertMetric::Evaluator { name, .. }, Some(bar)) = (&rule.condition.subject, rule.condition.bar) else {
                continue;
            };
            let resolved = notices.iter().filter(|notice| notice.rule == rule.name && notice.kind == "resolved");
            let mut fired_ns: Vec<(i64, i64)> =
                resolved.filter_map(|notice| Some((read_since(&notice.body)?, notice.at_ns))).collect();
            let state = server.store.alert_state(&rule.name)?;
            let state: Option<AlertState> = state.and_then(|text| serde_json::from_str(&text).ok());
            if let Some(AlertState::Firing { since, .. }) = state {
                fired_ns.extend(i64::try_from(since.as_nanosecond()).ok().map(|since| (since, now_ns())));
            }
            all.push(ChartAlert {
                evaluator: name.clone(),
                project: rule.project.clone(),
                threshold: bar.threshold,
                is_below: bar.comparison.is_below(),
                fired_ns,
            });
        }
        Ok(ChartAlerts(all))
    }

    /// Finds the alerts on an evaluator that apply to the selected project. Without a project only those for all
    /// projects apply.
    pub(super) fn find<'a>(
        &'a self,
        evaluator: &'a str,
        project: Option<&'a str>,
    ) -> impl Iterator<Item = &'a ChartAlert> {
        self.0.iter().filter(move |alert| {
            let applies = match (alert.project.as_deref(), project) {
                (pattern, _) if project_pattern::matches_every_project(pattern) => true,
                (Some(pattern), Some(project)) => project_pattern::is_project_match(pattern, project),
                _ => false,
            };
            applies && alert.evaluator == evaluator
        })
    }
}

fn read_since(notice: &str) -> Option<i64> {
    let notice: Json = serde_json::from_str(notice).ok()?;
    let since: jiff::Timestamp = notice["since"].as_str()?.parse().ok()?;
    i64::try_from(since.as_nanosecond()).ok()
}
