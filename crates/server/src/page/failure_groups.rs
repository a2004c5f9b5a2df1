//! Failure groups: what goes wrong, how often, since when. The list is part of the overview; each group has a page of its
//! own, where people name it, mute it, and write a note.

use std::sync::Arc;

use askama::Template;
use axum::body::Body;
use axum::extract::{Path, State};
use axum::http::header::LOCATION;
use axum::http::{HeaderMap, HeaderValue, StatusCode};
use axum::response::{IntoResponse, Response};
use gradus_report::html::number::{self, format_count, format_counted_noun};
use gradus_report::html::text;
use gradus_stats::interval::hit_share_interval;
use gradus_store::{
    FailureExampleRow, FailureGroupList, FailureGroupNote, FailureGroupOptions, FailureGroupRow, MetricFilter,
};
use serde::Deserialize;

use super::address::{PageUrl, encode_path_segment};
use super::display_text::format_timestamp;
use super::render::{self, PageError};
use super::{PageLayout, form, loaded_trace};
use crate::clock::now_ns;
use crate::derived_checks::describe_derived_checks;
use crate::evaluators::find_evaluator_title;
use crate::http_error::ApiError;
use crate::settings::ReloadableSettings;
use crate::state::ServerState;

/// Groups on the overview, and when all are asked for.
pub(super) const MAX_LISTED_GROUPS: usize = 10;
pub(super) const MAX_ALL_GROUPS: usize = 500;
/// Trajectories on the page of a group.
const MAX_EXAMPLES: usize = 20;
/// Characters of a name and of a note.
const MAX_NAME_CHARS: usize = 120;
const MAX_NOTE_CHARS: usize = 2_000;

/// The list on the overview.
pub(super) struct FailureGroupTable {
    pub(super) rows: Vec<FailureGroupView>,
    /// How many more there are, and how many are muted.
    pub(super) more: Option<String>,
    /// URL of the overview with all groups. None if it shows them already.
    pub(super) all: Option<String>,
}

/// A group as a row of the list.
pub(super) struct FailureGroupView {
    /// The name that people gave it, else the reason.
    pub(super) title: String,
    /// Evaluator and label.
    pub(super) about: String,
    pub(super) tool: Option<String>,
    pub(super) href: String,
    pub(super) runs: String,
    pub(super) share: String,
    pub(super) trend: FailureTrend,
    pub(super) first_seen: String,
    pub(super) versions: String,
    pub(super) is_muted: bool,
    pub(super) example: Option<FailureExampleView>,
    /// URL of all traces of the group.
    pub(super) traces: String,
    /// URL of the review queue with its verdicts only.
    pub(super) review: String,
    /// Downloads its requests.
    pub(super) dataset: String,
}

/// How the share of trajectories changed. `class` is `worse` or `better` only for a change that is surely none by chance.
pub(super) struct FailureTrend {
    pub(super) class: &'static str,
    pub(super) text: String,
}

/// A trajectory of a group.
pub(super) struct FailureExampleView {
    pub(super) query: String,
    pub(super) href: String,
    pub(super) start: String,
}

/// Numbers of trajectories in a period and in the one before.
#[derive(Clone, Copy)]
pub(super) struct PeriodTotals {
    pub(super) now: u64,
    /// `None` if there is no period before.
    pub(super) before: Option<u64>,
}

impl FailureGroupTable {
    /// `traces` is the URL of the list of traces with the same filter.
    pub(super) fn new(
        settings: &ReloadableSettings,
        list: &FailureGroupList,
        totals: PeriodTotals,
        from_ns: Option<i64>,
        traces: &PageUrl,
        all: Option<String>,
    ) -> FailureGroupTable {
        let shown = list.groups.iter().filter(|row| !row.is_muted).count() as u64;
        let hidden = (list.group_count - list.muted_count).saturating_sub(shown);
        let parts = [
            (hidden > 0).then(|| format_counted_noun(hidden, "more group", "more groups")),
            (list.muted_count > 0 && list.groups.iter().all(|row| !row.is_muted))
                .then(|| format_counted_noun(list.muted_count, "muted group", "muted groups")),
        ];
        let parts: Vec<String> = parts.into_iter().flatten().collect();
        FailureGroupTable {
            rows: list.groups.iter().map(|row| FailureGroupView::new(settings, row, totals, from_ns, traces)).collect(),
            all: all.filter(|_| !parts.is_empty()),
            more: (!parts.is_empty()).then(|| format!("And {}.", parts.join(", "))),
        }
    }
}

impl FailureGroupView {
    fn new(
        settings: &ReloadableSettings,
        row: &FailureGroupRow,
        totals: PeriodTotals,
        from_ns: Option<i64>,
        traces: &PageUrl,
    ) -> FailureGroupView {
        let is_new = from_ns.is_some_and(|from| row.first_seen_ns >= from);
        FailureGroupView {
            title: group_title(row),
            about: format!(
                "{}: {}",
                find_evaluator_title(settings, &row.evaluator),
                text::format_display_line(&row.label)
            ),
            tool: (!row.tool.is_empty()).then(|| text::format_display_line(&row.tool)),
            href: group_url(&row.key),
            runs: format_count(row.trajectories),
            share: number::format_percent(row.trajectories as f64 / totals.now.max(1) as f64),
            trend: FailureTrend::new(row, totals, is_new),
            first_seen: format_timestamp(row.first_seen_ns),
            versions: format_versions(&row.versions),
            is_muted: row.is_muted,
            example: row.example.as_ref().map(FailureExampleView::new),
            traces: traces.clone().with("group", Some(&row.key)).to_string(),
            review: review_url(&row.key),
            dataset: dataset_url(&row.key),
        }
    }
}

pub(super) fn group_title(row: &FailureGroupRow) -> String {
    row.name.as_deref().map_or_else(|| text::format_reason_line(&row.reason), text::format_display_line)
}

/// The stable address of a group.
pub(super) fn group_url(key: &str) -> String {
    format!("/groups/{}", encode_path_segment(key))
}

/// The requests of a group as a dataset.
fn dataset_url(key: &str) -> String {
    format!("/api/v1/failure-groups/{}/dataset", encode_path_segment(key))
}

/// The review queue with the verdicts of a group only.
fn review_url(key: &str) -> String {
    PageUrl::from_path("/review").with("group", Some(key)).to_string()
}

/// Said of a dataset whose items are requests without checks.
const NO_CHECKS: &str = "The dataset holds the requests without checks: none follows for certain from this failure. Add \
                         what you expect before you run an experiment.";

fn format_versions(versions: &[(String, u64)]) -> String {
    let each =
        versions.iter().map(|(name, count)| format!("{} ({})", text::format_display_line(name), format_count(*count)));
    each.collect::<Vec<_>>().join(", ")
}

impl FailureTrend {
    fn new(row: &FailureGroupRow, totals: PeriodTotals, is_new: bool) -> FailureTrend {
        let same = |text: String| FailureTrend { class: "same", text };
        let Some(all_before) = totals.before.filter(|before| *before > 0) else {
            return same(if is_new { "new".to_owned() } else { String::new() });
        };
        if row.trajectories_before == 0 {
            let is_first = if is_new { "new" } else { "not in the period before" };
            return same(is_first.to_owned());
        }
        let share = |count: u64, all: u64| count as f64 / all.max(1) as f64;
        let (now, before) = (share(row.trajectories, totals.now), share(row.trajectories_before, all_before));
        // Intervals that do not overlap are a conservative test of the difference.
        let interval_now = hit_share_interval(row.trajectories, totals.now.max(row.trajectories));
        let interval_before = hit_share_interval(row.trajectories_before, all_before.max(row.trajectories_before));
        let class = match (interval_now, interval_before) {
            (Some(a), Some(b)) if a.low > b.high => "worse",
            (Some(a), Some(b)) if b.low > a.high => "better",
            _ => "same",
        };
        let arrow = match now - before {
            change if change.abs() < 0.0005 => "same",
            change if change > 0.0 => "▲",
            _ => "▼",
        };
        FailureTrend { class, text: format!("{arrow} {} before", number::format_percent(before)) }
    }
}

impl FailureExampleView {
    fn new(row: &FailureExampleRow) -> FailureExampleView {
        let trace = format!("{:032x}", row.trace_id.0);
        FailureExampleView {
            query: match text::format_display_line(&row.query) {
                query if query.is_empty() => "a run without a request".to_owned(),
                query => query,
            },
            href: loaded_trace::step_address(&trace, Some(&row.trajectory_id), row.step),
            start: format_timestamp(row.start_ns),
        }
    }
}

/// The page of one group.
#[derive(Template)]
#[template(path = "failure_group.html")]
struct FailureGroupPage {
    frame: PageLayout,
    title: String,
    /// The reason, if the group has a name.
    reason: Option<String>,
    facts: Vec<(&'static str, String)>,
    name: String,
    note: String,
    is_muted: bool,
    examples: Vec<FailureExampleView>,
    action: String,
    traces: String,
    review: String,
    dataset: String,
    /// Which checks the items of the dataset have.
    dataset_about: &'static str,
    max_name: usize,
    max_note: usize,
}

/// `GET /groups/{key}`
pub(super) async fn render_failure_group(
    State(server): State<Arc<ServerState>>,
    Path(key): Path<String>,
    headers: HeaderMap,
) -> Result<Response, PageError> {
    let frame = PageLayout::new("/", None, &headers);
    render::render_page(&server, move |server| build_group_page(server, &key, frame)).await
}

fn build_group_page(server: &ServerState, key: &str, frame: PageLayout) -> Result<FailureGroupPage, ApiError> {
    let options = FailureGroupOptions { before_ns: None, with_muted: true, key: Some(key), limit: 1 };
    let list = server.store.failure_groups(&MetricFilter::default(), options)?;
    let row = list.groups.into_iter().next().ok_or_else(|| ApiError::not_found("There is no such failure group."))?;
    let settings = server.reloadable();
    let facts = vec![
        ("Evaluator", find_evaluator_title(&settings, &row.evaluator)),
        ("Verdict", text::format_display_line(&row.label)),
        ("Tool", text::format_display_line(&row.tool)),
        ("Found by", if row.rule.is_empty() { "a model".to_owned() } else { format!("rule {}", row.rule) }),
        ("Stored runs with it", format_count(row.trajectories)),
        ("Such verdicts", format_count(row.verdicts)),
        ("First seen", format_timestamp(row.first_seen_ns)),
        ("Versions", format_versions(&row.versions)),
    ];
    let examples = server.store.failure_examples(key, MAX_EXAMPLES)?;
    Ok(FailureGroupPage {
        frame,
        title: group_title(&row),
        reason: row.name.is_some().then(|| text::format_display_line(&row.reason)),
        facts: facts.into_iter().filter(|(_, value)| !value.is_empty()).collect(),
        name: row.name.unwrap_or_default(),
        note: row.note.unwrap_or_default(),
        is_muted: row.is_muted,
        examples: examples.iter().map(FailureExampleView::new).collect(),
        action: group_url(key),
        traces: PageUrl::from_path("/traces").with("group", Some(key)).to_string(),
        review: review_url(key),
        dataset_about: describe_derived_checks(&row.rule, &row.tool).map_or(NO_CHECKS, |checks| checks.about),
        dataset: dataset_url(key),
        max_name: MAX_NAME_CHARS,
        max_note: MAX_NOTE_CHARS,
    })
}

/// Body of `POST /groups/{key}`.
#[derive(Deserialize)]
struct FailureGroupForm {
    name: Option<String>,
    note: Option<String>,
    /// `on` to mute, `off` to show again.
    mute: Option<String>,
}

/// `POST /groups/{key}`: stores name, note or muting, and returns to the page.
pub(super) async fn submit_failure_group(
    State(server): State<Arc<ServerState>>,
    Path(key): Path<String>,
    headers: HeaderMap,
    body: Body,
) -> Result<Response, PageError> {
    let given: FailureGroupForm = form::read_form(&server, &headers, body).await?;
    let redaction = &server.reloadable().redaction;
    let clean = |text: Option<String>, most: usize| {
        let text: Option<String> = text.map(|text| text.trim().chars().take(most).collect());
        text.map(|text| redaction.apply(&text).unwrap_or(text))
    };
    let said = FailureGroupNote {
        name: clean(given.name, MAX_NAME_CHARS),
        note: clean(given.note, MAX_NOTE_CHARS),
        is_muted: given.mute.map(|mute| mute == "on"),
    };
    let back = group_url(&key);
    let known = crate::http_error::blocking_sender(&server, move |server| {
        Ok(server.store.annotate_failure_group(&key, said, now_ns())?.wait()?)
    })
    .await?;
    if !known {
        return Err(PageError::new(StatusCode::NOT_FOUND, "There is no such failure group."));
    }
    let mut response = StatusCode::SEE_OTHER.into_response();
    if let Ok(back) = HeaderValue::from_str(&back) {
        response.headers_mut().insert(LOCATION, back);
    }
    Ok(response)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn group(key: &str, is_muted: bool) -> FailureGroupRow {
        FailureGroupRow {
            key: key.to_owned(),
            evaluator: "call_validity".to_owned(),
            tool: String::new(),
            rule: String::new(),
            label: "incorrect".to_owned(),
            reason: "Parameter <text> is missing".to_owned(),
            first_seen_ns: 0,
            name: None,
            note: None,
            is_muted,
            trajectories: 1,
            trajectories_before: 0,
            verdicts: 1,
            versions: Vec::new(),
            example: None,
        }
    }

    fn table(groups: Vec<FailureGroupRow>, group_count: u64, muted_count: u64, all: Option<&str>) -> FailureGroupTable {
        let list = FailureGroupList { groups, group_count, muted_count };
        let totals = PeriodTotals { now: 10, before: None };
        let traces = PageUrl::from_path("/traces");
        let settings = ReloadableSettings::without_rules();
        FailureGroupTable::new(&settings, &list, totals, None, &traces, all.map(str::to_owned))
    }

    #[test]
    fn a_list_that_leaves_groups_out_leads_to_all_of_them() {
        let few = table(vec![group("a", false)], 3, 1, Some("/?groups=all"));
        assert_eq!(
            (few.more.as_deref(), few.all.as_deref()),
            (Some("And 1 more group, 1 muted group."), Some("/?groups=all"))
        );
        let all = table(vec![group("a", false), group("b", false), group("c", true)], 3, 1, None);
        assert_eq!((all.more, all.all), (None, None));
        assert_eq!((all.rows[0].title.as_str(), all.rows[2].is_muted), ("Parameter … is missing", true));
        let complete = table(vec![group("a", false)], 1, 0, Some("/?groups=all"));
        assert_eq!((complete.more, complete.all), (None, None));
    }
}
