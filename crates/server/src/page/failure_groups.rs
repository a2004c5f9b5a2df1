//! Failure groups: what goes wrong, how often, since when. The list is part of the overview; each group has a page of
//! its own, where people name it, mute it, and write a note.

use std::sync::Arc;

use askama::Template;
use axum::Extension;
use axum::body::Body;
use axum::extract::{Path, State};
use axum::http::header::LOCATION;
use axum::http::{HeaderMap, HeaderValue, StatusCode};
use axum::response::{IntoResponse, Response};
use gradus_report::failure_list::find_example_value;
use gradus_report::html::number::{self, format_count, format_counted_noun};
use gradus_report::html::text;
use gradus_stats::interval::hit_share_interval;
use gradus_store::{
    FailureGroupList, FailureGroupNote, FailureGroupOptions, FailureGroupRow, FailureTrajectoryRow, MetricFilter,
};
use serde::Deserialize;

use super::address::{PageUrl, encode_path_segment};
use super::display_text::format_timestamp;
use super::render::{self, PageError};
use super::{PageLayout, form, loaded_trace};
use crate::caller::{RequestCaller, RequiredScope};
use crate::clock::now_ns;
use crate::derived_checks::derive_checks;
use crate::evaluators::find_evaluator_title;
use crate::http_error::{ApiError, run_short_query};
use crate::recorded_verdict::load_verdicts;
use crate::settings::ReloadableSettings;
use crate::state::ServerState;

/// Maximum number of groups on the overview, and if all are requested.
pub(super) const MAX_LISTED_GROUPS: usize = 10;
pub(super) const MAX_ALL_GROUPS: usize = 500;
/// Maximum number of trajectories on the page of a group.
const MAX_EXAMPLES: usize = 20;
/// Maximum number of characters of a name and of a note.
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
    /// The name that people gave it, else tool and reason.
    pub(super) title: String,
    /// A value of the example, for the first one that the title leaves out.
    pub(super) value: Option<String>,
    /// Evaluator and label.
    pub(super) about: String,
    /// None if the title has it.
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

/// How the share of trajectories changed. `class` is `worse` or `better` only for a statistically significant change.
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
    /// `traces` is the URL of the list of traces with the same filter; `find_value` gives the example value of a group.
    pub(super) fn new(
        settings: &ReloadableSettings,
        list: &FailureGroupList,
        totals: PeriodTotals,
        from_ns: Option<i64>,
        traces: &PageUrl,
        all: Option<String>,
        find_value: impl Fn(&FailureGroupRow) -> Option<String>,
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
            rows: list
                .groups
                .iter()
                .enumerate()
                .map(|(at, row)| FailureGroupView {
                    // Each reads the verdicts of a run.
                    value: if at < MAX_LISTED_GROUPS { find_value(row) } else { None },
                    ..FailureGroupView::new(settings, row, totals, from_ns, traces)
                })
                .collect(),
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
            value: None,
            about: format!(
                "{}: {}",
                find_evaluator_title(settings, &row.evaluator),
                text::format_display_line(&row.label)
            ),
            tool: (!row.tool.is_empty() && row.name.is_some()).then(|| text::format_display_line(&row.tool)),
            href: group_url(&row.key),
            runs: format_count(row.trajectories),
            share: number::format_percent(row.trajectories as f64 / totals.now.max(1) as f64),
            trend: FailureTrend::new(row, totals, is_new),
            first_seen: format_timestamp(row.first_seen_ns),
            versions: format_versions(row),
            is_muted: row.is_muted,
            example: row.example.as_ref().map(FailureExampleView::new),
            traces: traces.clone().with("group", Some(&row.key)).to_string(),
            review: review_url(&row.key),
            dataset: dataset_url(&row.key),
        }
    }
}

/// Returns the name, else tool and reason: groups of different tools can have the same reason.
pub(super) fn group_title(row: &FailureGroupRow) -> String {
    if let Some(name) = &row.name {
        return text::format_display_line(name);
    }
    // The first value in a reason of these rules is the tool itself.
    const TOOL_RULES: [&str; 5] =
        ["call.malformed", "call.schema", "call.unknown_tool", "request.unknown_tool", "thought.unknown_tool"];
    if !row.tool.is_empty()
        && TOOL_RULES.contains(&row.rule.as_str())
        && let Some((before, after)) = row.reason.split_once("<text>")
    {
        return text::format_reason_line(&format!("{before}`{}`{after}", row.tool));
    }
    let reason = text::format_reason_line(&row.reason);
    match row.tool.as_str() {
        "" => reason,
        tool if row.reason.contains(tool) => reason,
        tool => format!("{}: {reason}", text::format_display_line(tool)),
    }
}

/// Loads the title of a group. None if there is no such group.
pub(super) fn load_group_title(server: &ServerState, key: &str) -> Result<Option<String>, ApiError> {
    let options = FailureGroupOptions { before_ns: None, with_muted: true, key: Some(key), limit: 1 };
    let list = server.store.failure_groups(&MetricFilter::default(), options)?;
    Ok(list.groups.first().map(group_title))
}

/// Loads a value of the example that the group's reason replaces by a placeholder, on one line. None for a named
/// group.
pub(super) fn load_example_value(server: &ServerState, row: &FailureGroupRow) -> Option<String> {
    let example = row.example.as_ref().filter(|_| row.name.is_none() && row.reason.contains('<'))?;
    // A title without an example is complete, too.
    let verdicts = load_verdicts(server, &example.trajectory_id).ok()?;
    let of_group = verdicts.iter().filter(|given| {
        let line = &given.line;
        given.is_wrong && *line.evaluator == *row.evaluator && line.rule.as_deref().unwrap_or_default() == row.rule
    });
    let mut of_example = of_group.filter(|given| example.step.is_none() || given.line.step_index == example.step);
    let value = of_example.find_map(|given| find_example_value(&row.reason, given.line.explanation.as_deref()?))?;
    // The tool is in the title already.
    Some(text::format_display_line(&value)).filter(|value| value.trim_matches('"') != row.tool)
}

/// Returns the stable URL of a group.
pub(super) fn group_url(key: &str) -> String {
    format!("/groups/{}", encode_path_segment(key))
}

/// Returns the URL of the group's requests as a dataset.
fn dataset_url(key: &str) -> String {
    format!("/api/v1/failure-groups/{}/dataset", encode_path_segment(key))
}

/// Returns the URL of the review queue with the verdicts of a group only.
fn review_url(key: &str) -> String {
    PageUrl::from_path("/review").with("group", Some(key)).to_string()
}

/// Note on a dataset whose items are requests without checks.
const NO_CHECKS_NOTE: &str = "The dataset holds the requests without checks: none follows for certain from this failure. Add \
                         what you expect before you run an experiment.";

fn format_versions(row: &FailureGroupRow) -> String {
    let each = (row.versions.iter())
        .map(|(name, count)| format!("{} ({})", text::format_display_line(name), format_count(*count)));
    let listed = each.collect::<Vec<_>>().join(", ");
    match row.version_count.saturating_sub(row.versions.len() as u64) {
        0 => listed,
        more => format!("{listed} and {} more", format_count(more)),
    }
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
    fn new(row: &FailureTrajectoryRow) -> FailureExampleView {
        let trace = format!("{:032x}", row.trace_id.0);
        FailureExampleView {
            query: match text::format_display_line(&row.query) {
                query if query.is_empty() => "a run without a request".to_owned(),
                query => query,
            },
            href: loaded_trace::format_step_url(&trace, Some(&row.trajectory_id), row.step),
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
    value: Option<String>,
    /// The reason, if the group has a name.
    reason: Option<String>,
    facts: Vec<(&'static str, String)>,
    /// Why the submitted form was not stored. It is shown again with what was typed.
    problem: Option<String>,
    name: String,
    note: String,
    is_muted: bool,
    /// Whether the key of this request may name and mute it.
    may_change: bool,
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
    Extension(caller): Extension<RequestCaller>,
    Path(key): Path<String>,
    headers: HeaderMap,
) -> Result<Response, PageError> {
    let frame = PageLayout::new("/", None, &headers);
    let may_change = caller.has_scope(RequiredScope::Admin);
    render::render_page(&server, move |server| build_group_page(server, &key, frame, may_change)).await
}

fn build_group_page(
    server: &ServerState,
    key: &str,
    frame: PageLayout,
    may_change: bool,
) -> Result<FailureGroupPage, ApiError> {
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
        ("Versions", format_versions(&row)),
    ];
    let examples = server.store.failure_trajectories(key, MAX_EXAMPLES)?;
    Ok(FailureGroupPage {
        frame,
        title: group_title(&row),
        value: load_example_value(server, &row),
        may_change,
        reason: row.name.is_some().then(|| text::format_reason_line(&row.reason)),
        facts: facts.into_iter().filter(|(_, value)| !value.is_empty()).collect(),
        problem: None,
        name: row.name.unwrap_or_default(),
        note: row.note.unwrap_or_default(),
        is_muted: row.is_muted,
        examples: examples.iter().map(FailureExampleView::new).collect(),
        action: group_url(key),
        traces: PageUrl::from_path("/traces").with("group", Some(key)).to_string(),
        review: review_url(key),
        dataset_about: derive_checks(&row.rule, &row.tool).map_or(NO_CHECKS_NOTE, |checks| checks.about),
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
    let submitted: FailureGroupForm = form::read_form(&server, &headers, body).await?;
    let redaction = &server.reloadable().redaction;
    let clean = |text: Option<String>, most: usize| {
        let text: Option<String> = text.map(|text| text.trim().chars().take(most).collect());
        text.map(|text| redaction.apply(&text).unwrap_or(text))
    };
    let annotation = FailureGroupNote {
        name: clean(submitted.name, MAX_NAME_CHARS),
        note: clean(submitted.note, MAX_NOTE_CHARS),
        is_muted: submitted.mute.map(|mute| mute == "on"),
    };
    let back = group_url(&key);
    let (stored_key, stored) = (key.clone(), annotation.clone());
    let is_known = crate::http_error::run_outside_pool(&server, move |server| {
        Ok(server.store.annotate_failure_group(&stored_key, stored, now_ns())?.wait()?)
    })
    .await;
    match is_known {
        Ok(true) => {}
        Ok(false) => return Err(PageError::not_found("There is no such failure group.")),
        Err(error) => return render_refused_form(&server, key, annotation, &headers, error).await,
    }
    let mut response = StatusCode::SEE_OTHER.into_response();
    if let Ok(back) = HeaderValue::from_str(&back) {
        response.headers_mut().insert(LOCATION, back);
    }
    Ok(response)
}

/// The page again, with what was typed: the store did not take it.
async fn render_refused_form(
    server: &Arc<ServerState>,
    key: String,
    submitted: FailureGroupNote,
    headers: &HeaderMap,
    error: ApiError,
) -> Result<Response, PageError> {
    let frame = PageLayout::new("/", None, headers);
    let mut page = run_short_query(server, move |server| build_group_page(server, &key, frame, true)).await?;
    page.problem = Some(error.message().to_owned());
    page.name = submitted.name.unwrap_or(page.name);
    page.note = submitted.note.unwrap_or(page.note);
    Ok(render::respond_with_status(error.status(), &page))
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
            version_count: 0,
            example: None,
        }
    }

    fn table(groups: Vec<FailureGroupRow>, group_count: u64, muted_count: u64, all: Option<&str>) -> FailureGroupTable {
        let list = FailureGroupList { groups, group_count, muted_count };
        let totals = PeriodTotals { now: 10, before: None };
        let traces = PageUrl::from_path("/traces");
        let settings = ReloadableSettings::without_rules();
        FailureGroupTable::new(&settings, &list, totals, None, &traces, all.map(str::to_owned), |_| None)
    }

    #[test]
    fn titles_tell_tools_apart_and_versions_say_how_many_there_are() {
        let of_tool = |tool: &str| FailureGroupRow { tool: tool.to_owned(), ..group("a", false) };
        assert_eq!(group_title(&of_tool("book")), "book: Parameter … is missing");
        assert_eq!(group_title(&of_tool("Parameter")), "Parameter … is missing", "the reason names it");
        let unfit = FailureGroupRow {
            rule: "call.schema".to_owned(),
            reason: "The call does not fit <text>. Parameter <text> is missing: it is required".to_owned(),
            ..of_tool("book")
        };
        assert_eq!(group_title(&unfit), "The call does not fit `book`. Parameter … is missing: it is required");
        let row = FailureGroupRow { versions: vec![("v2".to_owned(), 7)], version_count: 57, ..group("a", false) };
        assert_eq!(format_versions(&row), "v2 (7) and 56 more");
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
