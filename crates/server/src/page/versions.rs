//! Table of versions, models or agents: scores by evaluator, usage, and a form to compare two of them.

use std::sync::Arc;

use askama::Template;
use axum::extract::State;
use axum::http::HeaderMap;
use axum::response::Response;
use gradus_eval::evaluator::OUTCOME;
use gradus_report::html::number::{self, format_count};
use gradus_report::html::text;
use gradus_store::{MetricFilter, NameScoreRow, NameScoreTable, ScoreMoments};
use serde::Deserialize;

use super::address::PageUrl;
use super::display_text::format_duration;
use super::metric_timeline::{OverviewTimeRange, TimeRangePreset};
use super::metric_value::{FlagShare, build_metric_result};
use super::render::{self, PageError, PageQuery};
use super::{PageLayout, SelectOption, build_project_options, build_range_options};
use crate::clock::now_ns;
use crate::evaluators::{find_evaluator_title, gives_only_flags};
use crate::http_error::ApiError;
use crate::live_comparison::ComparedName;
use crate::settings::ReloadableSettings;
use crate::state::ServerState;
use crate::time_text::format_rfc3339;

/// Maximum number of rows in the table.
const MAX_NAMES: usize = 30;

/// Parameters of `/versions`, and of `/compare` as far as it is about live traffic.
#[derive(Clone, Default, Deserialize)]
#[serde(default)]
pub(super) struct VersionListQuery {
    /// `version`, `model` or `agent`.
    pub(super) by: Option<String>,
    pub(super) project: Option<String>,
    pub(super) agent: Option<String>,
    pub(super) version: Option<String>,
    pub(super) model: Option<String>,
    /// As on the overview.
    pub(super) range: Option<String>,
    pub(super) from: Option<String>,
    pub(super) to: Option<String>,
}

impl VersionListQuery {
    pub(super) fn without_blanks(mut self) -> VersionListQuery {
        let all = [
            &mut self.by,
            &mut self.project,
            &mut self.agent,
            &mut self.version,
            &mut self.model,
            &mut self.range,
            &mut self.from,
            &mut self.to,
        ];
        for value in all {
            *value = value.take().filter(|text| !text.is_empty());
        }
        self
    }

    /// Returns the compared kind of name; versions by default.
    pub(super) fn compared_name(&self) -> Result<ComparedName, ApiError> {
        let text = self.by.as_deref().unwrap_or("version");
        ComparedName::parse(text).ok_or_else(|| ApiError::bad_request("by: version, model or agent"))
    }

    /// Returns the selected preset; `otherwise` if none is given.
    fn preset(&self, otherwise: TimeRangePreset) -> Result<TimeRangePreset, ApiError> {
        match &self.range {
            None => Ok(otherwise),
            Some(name) => {
                TimeRangePreset::from_name(name).ok_or_else(|| ApiError::bad_request("range: 24h, 7d, 30d or all"))
            }
        }
    }

    /// Returns the filter of the trajectories. The compared name is left out.
    pub(super) fn to_filter(&self, by: ComparedName, otherwise: TimeRangePreset) -> Result<MetricFilter, ApiError> {
        let now = now_ns();
        let time = match self.from.is_some() || self.to.is_some() {
            true => OverviewTimeRange::from_days(self.from.as_deref(), self.to.as_deref(), now)
                .map_err(|error| ApiError::bad_request(error.to_string()))?,
            false => OverviewTimeRange::from_preset(self.preset(otherwise)?, now),
        };
        let other = |name: &Option<String>, kind: ComparedName| name.clone().filter(|_| kind != by);
        Ok(MetricFilter {
            project: self.project.clone(),
            agent: other(&self.agent, ComparedName::Agent),
            version: other(&self.version, ComparedName::Version),
            model: other(&self.model, ComparedName::Model),
            from_ns: time.from_ns,
            to_ns: Some(time.until_ns),
            ..MetricFilter::default()
        })
    }

    /// Returns the URL of another page with the same selection.
    pub(super) fn to_url(&self, path: &str, by: ComparedName) -> PageUrl {
        PageUrl::from_path(path)
            .with("by", Some(by.noun()))
            .with("project", self.project.as_deref())
            .with("agent", self.agent.as_deref().filter(|_| by != ComparedName::Agent))
            .with("version", self.version.as_deref().filter(|_| by != ComparedName::Version))
            .with("model", self.model.as_deref().filter(|_| by != ComparedName::Model))
            .with("range", self.range.as_deref())
            .with("from", self.from.as_deref())
            .with("to", self.to.as_deref())
    }

    /// Returns the URL of the same selection in the API, which takes complete times and no preset.
    pub(super) fn to_api_url(&self, path: &str, by: ComparedName, filter: &MetricFilter) -> PageUrl {
        // A range that ends now has no end, so that the address includes what arrives later.
        let to_ns = filter.to_ns.filter(|_| self.to.is_some());
        self.to_url(path, by)
            .with_replaced("range", None)
            .with_replaced("from", filter.from_ns.map(format_rfc3339).as_deref())
            .with_replaced("to", to_ns.map(format_rfc3339).as_deref())
    }

    /// Returns the URL of the traces of one version, model or agent in this selection.
    pub(super) fn traces_url(&self, by: ComparedName, name: &str, filter: &MetricFilter) -> PageUrl {
        self.to_api_url("/traces", by, filter).with_replaced("by", None).with_replaced(by.noun(), Some(name))
    }

    /// Returns the names other than the compared one that narrow the selection.
    fn other_names(&self, by: ComparedName) -> Vec<(&'static str, &str)> {
        [
            ("agent", &self.agent, ComparedName::Agent),
            ("version", &self.version, ComparedName::Version),
            ("model", &self.model, ComparedName::Model),
        ]
        .into_iter()
        .filter_map(|(title, name, kind)| Some((title, name.as_deref().filter(|_| kind != by)?)))
        .collect()
    }
}

#[derive(Template)]
#[template(path = "versions.html")]
struct VersionListPage {
    frame: PageLayout,
    choice: VersionListQuery,
    noun: &'static str,
    /// Versions, models, agents: title, URL, and whether it is shown.
    tabs: Vec<(&'static str, String, bool)>,
    projects: Vec<SelectOption>,
    ranges: Vec<SelectOption>,
    /// Names that narrow the selection: parameter, value, value for display, URL without it.
    chips: Vec<(&'static str, String, String, String)>,
    /// Parameters that the form to compare passes on.
    hidden: Vec<(&'static str, String)>,
    columns: Vec<String>,
    rows: Vec<VersionListRow>,
    is_cut: bool,
    api: String,
}

/// A version, a model or an agent.
struct VersionListRow {
    /// As a value of a parameter, and for display.
    value: String,
    name: String,
    traces: String,
    trajectories: String,
    errors: String,
    duration: Option<String>,
    tokens: Option<String>,
    cost: Option<String>,
    cells: Vec<VersionScoreCell>,
    /// URL of the comparison with the row below, and its name.
    previous: Option<(String, String)>,
}

/// The score of one evaluator.
#[derive(Default)]
struct VersionScoreCell {
    value: String,
    interval: Option<String>,
}

/// `GET /versions`
pub(super) async fn render_version_list(
    State(server): State<Arc<ServerState>>,
    headers: HeaderMap,
    PageQuery(choice): PageQuery<VersionListQuery>,
) -> Result<Response, PageError> {
    let choice = choice.without_blanks();
    let frame = PageLayout::new("/versions", choice.project.as_deref(), &headers);
    render::render_page(&server, move |server| build_version_list(server, choice, frame)).await
}

fn build_version_list(
    server: &ServerState,
    choice: VersionListQuery,
    frame: PageLayout,
) -> Result<VersionListPage, ApiError> {
    let by = choice.compared_name()?;
    let range = choice.preset(TimeRangePreset::Month)?;
    let filter = choice.to_filter(by, TimeRangePreset::Month)?;
    let settings = server.reloadable();
    let table = server.store.name_scores(&filter, by.kind(), MAX_NAMES)?;
    let evaluators = list_evaluators(&table);
    let title = |name: &&str| match gives_only_flags(&settings, name) {
        true => format!("{}, not flagged", find_evaluator_title(&settings, name)),
        false => find_evaluator_title(&settings, name),
    };
    // The comparison is of all time unless a range is named.
    let has_days = choice.from.is_some() || choice.to.is_some();
    let compare = choice.to_url("/compare", by).with_replaced("range", Some(range.name()).filter(|_| !has_days));
    let here = choice.to_url("/versions", by);
    let row = |(at, row): (usize, &NameScoreRow)| {
        let traces = choice.traces_url(by, &row.name, &filter);
        let previous = table.rows.get(at + 1).map(|other| {
            let url = compare.clone().with("a", Some(&other.name)).with("b", Some(&row.name));
            (url.to_string(), text::format_display_line(&other.name))
        });
        VersionListRow::from_row(&settings, row, &evaluators, traces.to_string(), previous)
    };
    let rows = table.rows.iter().enumerate().map(row).collect();
    Ok(VersionListPage {
        frame,
        noun: by.noun(),
        tabs: [("Versions", ComparedName::Version), ("Models", ComparedName::Model), ("Agents", ComparedName::Agent)]
            .map(|(title, one)| (title, choice.to_url("/versions", one).to_string(), one == by))
            .into(),
        projects: build_project_options(server.store.project_names()?, choice.project.as_deref()),
        ranges: build_range_options(range),
        chips: choice
            .other_names(by)
            .into_iter()
            .map(|(title, name)| {
                let without = here.with_replaced(title, None).to_string();
                (title, name.to_owned(), text::format_display_line(name), without)
            })
            .collect(),
        hidden: compare.pairs().to_vec(),
        columns: evaluators.iter().map(title).collect(),
        rows,
        is_cut: table.is_cut,
        api: choice.to_api_url("/api/v1/versions", by, &filter).to_string(),
        choice,
    })
}

/// Lists the evaluators of the table: how runs ended, then the others in alphabetical order.
fn list_evaluators(table: &NameScoreTable) -> Vec<&str> {
    let mut names: Vec<&str> =
        table.rows.iter().flat_map(|row| &row.scores).map(|(evaluator, _)| evaluator.as_str()).collect();
    names.sort_unstable_by_key(|name| (*name != OUTCOME, *name));
    names.dedup();
    names
}

impl VersionListRow {
    fn from_row(
        settings: &ReloadableSettings,
        row: &NameScoreRow,
        evaluators: &[&str],
        traces: String,
        previous: Option<(String, String)>,
    ) -> VersionListRow {
        let usage = &row.usage;
        let positive = |number: i64| u64::try_from(number).unwrap_or(0);
        let each = |sum: f64| sum / usage.trajectories.max(1) as f64;
        let cell = |name: &&str| {
            let moments = row.scores.iter().find(|(evaluator, _)| evaluator == *name);
            moments.map(|(_, moments)| VersionScoreCell::from_moments(settings, name, moments)).unwrap_or_default()
        };
        VersionListRow {
            value: row.name.clone(),
            name: text::format_display_line(&row.name),
            traces,
            trajectories: format_count(positive(usage.trajectories)),
            errors: format_count(positive(usage.errors)),
            duration: (usage.took_ns > 0.0).then(|| format_duration(each(usage.took_ns) as i64)),
            tokens: (usage.tokens > 0).then(|| format_count(each(usage.tokens as f64) as u64)),
            cost: (usage.costed > 0).then(|| number::format_usd(usage.cost_usd / usage.costed as f64)),
            cells: evaluators.iter().map(cell).collect(),
            previous,
        }
    }
}

impl VersionScoreCell {
    /// Builds the cell. For rules that only notice mistakes it is the share of questions without a flag.
    fn from_moments(settings: &ReloadableSettings, evaluator: &str, moments: &ScoreMoments) -> VersionScoreCell {
        if gives_only_flags(settings, evaluator) {
            let Some(share) = FlagShare::from_moments(moments) else { return VersionScoreCell::default() };
            return VersionScoreCell {
                value: number::format_mean(share.unflagged, true),
                interval: share.interval.map(|interval| number::format_mean_interval(interval, true)),
            };
        }
        let known = build_metric_result(settings, evaluator, moments);
        let Some(value) = known.value else { return VersionScoreCell::default() };
        VersionScoreCell {
            value: number::format_mean(value, known.is_share),
            interval: known.interval.map(|interval| number::format_mean_interval(interval, known.is_share)),
        }
    }
}
