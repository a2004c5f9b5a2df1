//! The form on the page of a rubric that plans a trial on many cases, and the list of earlier ones.

use std::sync::Arc;

use gradus_report::html::number;
use gradus_report::html::text;
use serde::Deserialize;

use super::address::PageUrl;
use super::display_text::format_timestamp;
use super::rubric_addresses::build_trial_url;
use super::{SelectOption, build_project_options};
use crate::bulk_trial::{BulkTrialFolder, BulkTrialPlan, BulkTrialSelection, BulkTrialStatus, list_bulk_trials};
use crate::http_error::{ApiError, run_short_query};
use crate::state::ServerState;

/// Maximum number of earlier trials in the list.
const MAX_EARLIER_TRIALS: usize = 10;
/// Default values of the form.
const DEFAULT_TRACES: usize = 50;
const DEFAULT_MAX_CALLS: u64 = 200;
const DEFAULT_MAX_USD: &str = "1.00";

/// The submitted fields, passed back in the URL when the trial could not be planned.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
pub(super) struct BulkTrialQuery {
    pub(super) bulk_project: Option<String>,
    pub(super) cases: Option<String>,
    pub(super) traces: Option<String>,
    pub(super) max_calls: Option<String>,
    pub(super) max_usd: Option<String>,
}

impl BulkTrialQuery {
    /// Adds the fields to a URL that reopens the form with the same content.
    pub(super) fn add_to_url(&self, url: PageUrl) -> PageUrl {
        url.with("bulk_project", self.bulk_project.as_deref())
            .with("cases", self.cases.as_deref())
            .with("traces", self.traces.as_deref())
            .with("max_calls", self.max_calls.as_deref())
            .with("max_usd", self.max_usd.as_deref())
    }
}

/// The form with its choices.
pub(super) struct BulkTrialForm {
    /// Projects whose rule asks a model. Empty if there are none.
    pub(super) projects: Vec<SelectOption>,
    pub(super) is_labelled: bool,
    pub(super) traces: String,
    pub(super) max_calls: String,
    pub(super) max_usd: String,
    /// Whether a judge has no known price, so that a dollar limit cannot apply to it.
    pub(super) lacks_price: bool,
    pub(super) earlier: Vec<BulkTrialRow>,
}

/// An earlier trial.
pub(super) struct BulkTrialRow {
    pub(super) href: String,
    pub(super) about: String,
    pub(super) state: &'static str,
    pub(super) when: String,
}

impl BulkTrialForm {
    /// Loads the form. Also returns the rubric text that the earlier trial `from` used.
    pub(super) async fn load_with_rubric_text(
        server: &Arc<ServerState>,
        rubric: &str,
        from: Option<String>,
        given: BulkTrialQuery,
    ) -> Result<(BulkTrialForm, Option<String>), ApiError> {
        let rubric = rubric.to_owned();
        run_short_query(server, move |server| {
            let settings = server.reloadable();
            let judge = |project: &str| {
                let rule = settings.rules.iter().find(|rule| rule.matches_project(project));
                rule.and_then(|rule| rule.judge.as_ref())
            };
            let names: Vec<String> =
                server.store.project_names()?.into_iter().filter(|name| judge(name).is_some()).collect();
            let lacks_price = names.iter().filter_map(|name| judge(name)).any(|judge| judge.price.is_none());
            let is_priced = names.iter().filter_map(|name| judge(name)).any(|judge| judge.price.is_some());
            let data = &server.settings.data;
            let earlier = list_bulk_trials(data, &rubric).into_iter().take(MAX_EARLIER_TRIALS);
            let earlier = earlier.map(|(plan, folder)| BulkTrialRow::new(server, &plan, &folder)).collect();
            let text = from.and_then(|id| BulkTrialFolder::find(data, &id)?.load_plan().ok());
            let text = text.filter(|plan| plan.rubric == rubric).map(|plan| plan.text);
            let form = BulkTrialForm {
                projects: match names.is_empty() {
                    true => Vec::new(),
                    false => build_project_options(names, given.bulk_project.as_deref()),
                },
                is_labelled: given.cases.as_deref() == Some("labelled"),
                traces: given.traces.unwrap_or_else(|| DEFAULT_TRACES.to_string()),
                max_calls: given.max_calls.unwrap_or_else(|| DEFAULT_MAX_CALLS.to_string()),
                max_usd: given.max_usd.unwrap_or_else(|| if is_priced { DEFAULT_MAX_USD } else { "" }.to_owned()),
                lacks_price,
                earlier,
            };
            Ok((form, text))
        })
        .await
    }
}

impl BulkTrialRow {
    fn new(server: &ServerState, plan: &BulkTrialPlan, folder: &BulkTrialFolder) -> BulkTrialRow {
        let cases = number::format_counted_noun(plan.cases.len() as u64, "case", "cases");
        let of = match plan.selection {
            BulkTrialSelection::Latest { .. } => "of the latest traces",
            BulkTrialSelection::Labelled => "that people labelled",
        };
        let status = folder.load_state().unwrap_or_default().status;
        BulkTrialRow {
            href: build_trial_url(&plan.rubric, &plan.id).to_string(),
            about: format!("{cases} {of}, {}", text::format_display_line(&plan.project)),
            state: describe_status(status, server.bulk_trials.is_running(&plan.id)),
            when: format_timestamp(plan.created_ns),
        }
    }
}

/// Returns one word for the list.
pub(super) fn describe_status(status: BulkTrialStatus, is_running: bool) -> &'static str {
    match (status, is_running) {
        (_, true) => "running",
        (BulkTrialStatus::Planned, _) => "planned",
        // No task runs it, so the server was restarted.
        (BulkTrialStatus::Running, false) => "interrupted",
        (BulkTrialStatus::Finished, _) => "finished",
        (BulkTrialStatus::Stopped, _) => "stopped",
    }
}
