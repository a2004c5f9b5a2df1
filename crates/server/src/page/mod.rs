//! The web pages. They are rendered on the server, work without a script, and load nothing from other hosts.
//!
//! Each page has a file. `templates/` contains the markup, `page.css` extends the style sheet of reports, and `page.js`
//! adds keyboard shortcuts, live lists and texts that are loaded on request. Pages use the same store queries as the
//! JSON API.
//!
//! All recorded text is untrusted. Templates escape it, `text::format_display_line` and `format_display_block` remove
//! control characters, and every list has a bound.

mod address;
mod agent_tree;
mod agreement;
mod alert_badge;
mod alert_bands;
mod alert_forms;
mod alerts;
mod asset;
mod blind_sample;
mod bulk_trial_export;
mod bulk_trial_form;
mod bulk_trial_results;
mod bulk_trials;
mod compare;
mod compare_steps;
mod display_text;
mod failure_group;
mod failure_groups;
mod filter_suggestions;
mod flag_groups;
mod form;
mod gzip;
mod health;
mod label_authors;
mod label_export;
mod label_form;
mod label_retry;
mod label_undo;
mod labels;
mod loaded_trace;
mod metric_timeline;
mod metric_value;
mod model_call;
mod overview;
mod overview_query;
mod pagination;
mod refusal_page;
mod render;
mod review;
mod review_item;
mod review_query;
mod review_sample;
mod rubric_addresses;
mod rubrics;
mod run_addresses;
mod run_endings;
mod run_fact;
mod run_headline;
mod run_outcome;
mod run_trajectory;
mod runs;
mod score_cell;
mod search;
mod session;
mod session_list;
mod sign_in;
mod span_detail;
mod span_scan;
mod spans;
mod start;
mod step;
mod step_list;
mod step_mentions;
mod step_outline;
mod step_pages;
mod step_state;
mod step_verdicts;
mod text_preview;
mod time_bar;
mod time_bound;
mod tools;
mod trace;
mod trace_export;
mod trace_list_query;
mod trace_matches;
mod traces;
mod trend_card;
mod trials;
mod undoable_label;
mod unsent_text;
mod usage_overview;
mod verdict;
mod versions;

use std::sync::Arc;

use axum::Router;
use axum::http::header::{ACCEPT, HOST, ORIGIN};
use axum::http::{HeaderMap, Uri};
use axum::routing::{get, post};
use serde::Deserialize;

pub(super) use crate::page::refusal_page::{render_not_found, render_refusal};
pub(super) use sign_in::read_session_cookie;

use super::state::ServerState;
use address::PageUrl;
use gradus_report::html::charts;
use gradus_report::html::svg::Svg;
use gradus_report::html::text;
use metric_timeline::TimeRangePreset;

/// The routes of all pages. Authentication is a layer of the outer router; the layers here render error pages and
/// compress.
pub(super) fn build_page_routes(server: &Arc<ServerState>) -> Router<Arc<ServerState>> {
    Router::new()
        .route("/assets/{name}", get(asset::serve_asset))
        .route("/sign-in", get(sign_in::render_sign_in_page).post(sign_in::submit_sign_in))
        .route("/sign-out", post(sign_in::sign_out))
        .route("/", get(overview::render_overview_page))
        .route("/start", get(start::render_start_page))
        .route("/start/status", get(start::render_start_status))
        .route("/start/demo", post(start::submit_demo))
        .route("/groups/{key}", get(failure_group::render_failure_group).post(failure_group::submit_failure_group))
        .route("/traces", get(traces::render_trace_list))
        .route("/traces/rows", get(traces::render_trace_rows))
        .route("/traces/export", get(trace_export::export_traces))
        .route("/traces/{trace}", get(trace::render_trace_page))
        .route("/traces/{trace}/steps/{step}/verdicts", get(step_verdicts::render_step_verdicts))
        .route("/traces/{trace}/text", get(text_preview::serve_trace_text))
        .route("/traces/{trace}/spans", get(spans::render_spans_page))
        .route("/traces/{trace}/spans/rows", get(spans::render_span_rows))
        .route("/traces/{trace}/spans/{span}", get(spans::render_span_page))
        .route("/traces/{trace}/spans/{span}/part", get(spans::render_span_detail))
        .route("/sessions", get(session_list::render_session_list))
        .route("/sessions/{session}", get(session::render_session_page))
        .route("/session", get(session::render_session_by_id))
        .route("/labels", post(labels::submit_label).get(label_export::export_labels))
        .route("/labels/undo", post(label_undo::undo_label))
        .route("/review", get(review::render_review_page))
        .route("/agreement", get(agreement::render_agreement_page))
        .route("/runs", get(runs::render_runs_page))
        .route("/runs/{run}", get(runs::render_run_page))
        .route("/runs/{run}/trajectories/{trajectory}", get(run_trajectory::render_run_trajectory))
        .route("/runs/{run}/trajectories/{trajectory}/text", get(run_trajectory::serve_run_text))
        .route("/versions", get(versions::render_version_list))
        .route("/compare", get(compare::render_comparison_page))
        .route("/compare/steps", get(compare_steps::render_step_comparison))
        .route("/rubrics", get(rubrics::render_rubrics_page))
        .route("/rubrics/{rubric}", get(rubrics::render_rubric_page).post(rubrics::submit_rubric_trial))
        .route("/rubrics/{rubric}/trials", post(bulk_trials::submit_bulk_plan))
        .route(
            "/rubrics/{rubric}/trials/{trial}",
            get(bulk_trials::render_bulk_trial).post(bulk_trials::submit_bulk_action),
        )
        .route("/rubrics/{rubric}/trials/{trial}/progress", get(bulk_trials::render_bulk_progress))
        .route("/rubrics/{rubric}/trials/{trial}/results", get(bulk_trial_export::export_bulk_trial))
        .route("/rubrics/{rubric}/trials/{trial}/rubric", get(bulk_trials::download_tried_rubric))
        .route("/alerts", get(alerts::render_alerts_page).post(alert_forms::submit_alert_rule))
        .route("/alerts/firing", get(alerts::count_firing_alerts))
        .route("/alerts/edit", get(alert_forms::render_alert_form))
        .route("/alerts/delete", post(alert_forms::submit_alert_deletion))
        .route("/alerts/mute", post(alert_forms::submit_alert_mute))
        .route("/alerts/test", post(alert_forms::submit_alert_test))
        .route("/alerts/export", get(alert_forms::export_alerts))
        .route("/server", get(health::render_health_page))
        .route("/server/retry", post(health::submit_retry))
        .layer(axum::middleware::from_fn(crate::page::refusal_page::add_sign_out_button))
        .layer(axum::middleware::from_fn_with_state(Arc::clone(server), alert_badge::add_firing_count))
        .layer(axum::middleware::from_fn_with_state(Arc::clone(server), gzip::gzip_response))
}

/// The frame around every page.
struct PageLayout {
    /// URLs of the static files, which contain a digest of their content.
    style: &'static str,
    script: &'static str,
    icon: &'static str,
    /// Symbol definitions that charts and icons refer to.
    symbols: Svg,
    /// The main navigation. Its links keep the selected project.
    navigation: Vec<NavigationLink>,
    version: &'static str,
    /// Whether the browser sent a session cookie, which decides on the button to sign out.
    is_signed_in: bool,
    /// Alerts that fire and are not muted.
    firing_count: usize,
}

/// An entry of the main navigation.
struct NavigationLink {
    title: &'static str,
    href: String,
    is_here: bool,
}

/// Title and path of the entries.
const NAVIGATION_ENTRIES: [(&str, &str); 9] = [
    ("Overview", "/"),
    ("Traces", "/traces"),
    ("Sessions", "/sessions"),
    ("Versions", "/versions"),
    ("Review", "/review"),
    ("Runs", "/runs"),
    ("Rubrics", "/rubrics"),
    ("Alerts", "/alerts"),
    ("Server", "/server"),
];

impl PageLayout {
    /// Returns the URL of an entry by its title; the overview for unknown titles.
    fn href(&self, title: &str) -> &str {
        self.navigation.iter().find(|place| place.title == title).map_or("/", |place| &place.href)
    }

    /// `here` is the path of the entry that is marked as current.
    fn new(here: &str, project: Option<&str>, headers: &HeaderMap) -> PageLayout {
        let place = |(title, path): (&'static str, &str)| NavigationLink {
            title,
            href: PageUrl::from_path(path).with("project", project).to_string(),
            is_here: path == here,
        };
        PageLayout {
            style: asset::stylesheet_url(),
            script: asset::script_url(),
            icon: asset::icon_url(),
            symbols: charts::load_chart_symbols(),
            navigation: NAVIGATION_ENTRIES.into_iter().map(place).collect(),
            version: env!("CARGO_PKG_VERSION"),
            is_signed_in: read_session_cookie(headers).is_some(),
            firing_count: alert_badge::read_firing_count(headers),
        }
    }
}

/// The selected project, on pages that do not depend on one. They pass it on to their links.
#[derive(Default, Deserialize)]
#[serde(default)]
struct NavigationQuery {
    project: Option<String>,
}

impl NavigationQuery {
    /// Returns the project; None for the empty string, which the form sends for all projects.
    fn project(&self) -> Option<&str> {
        self.project.as_deref().filter(|name| !name.is_empty())
    }
}

/// An option of a drop-down list.
struct SelectOption {
    name: String,
    /// Displayed text.
    title: String,
    is_chosen: bool,
}

/// Builds options for the presets of the time.
fn build_range_options(chosen: TimeRangePreset) -> Vec<SelectOption> {
    let option = |one: TimeRangePreset| SelectOption {
        name: one.name().to_owned(),
        title: one.title().to_owned(),
        is_chosen: one == chosen,
    };
    TimeRangePreset::ALL.map(option).into()
}

/// Builds options for the names. The selected project is added if it is missing: it may have no traces any more, or
/// exceed the bound.
fn build_project_options(projects: Vec<String>, chosen: Option<&str>) -> Vec<SelectOption> {
    // Any sender can create projects by naming them, so the drop-down list is bounded.
    const MAX_LISTED_PROJECTS: usize = 500;
    let is_chosen = |name: &String| Some(name.as_str()) == chosen;
    let mut all: Vec<SelectOption> = projects
        .into_iter()
        .take(MAX_LISTED_PROJECTS)
        .map(|name| SelectOption { is_chosen: is_chosen(&name), title: text::format_display_line(&name), name })
        .collect();
    if let Some(name) = chosen.filter(|_| !all.iter().any(|one| one.is_chosen)) {
        all.push(SelectOption { name: name.to_owned(), title: text::format_display_line(name), is_chosen: true });
    }
    all
}

/// Whether a path is a page for people. The other paths are interfaces for programs, which get JSON errors.
pub(super) fn is_page_path(path: &str) -> bool {
    let is_for_programs = ["/api/", "/v1/", "/opentelemetry."].iter().any(|beginning| path.starts_with(beginning))
        || matches!(
            path,
            "/healthz" | "/readyz" | "/metrics" | "/openapi.json" | "/graphql" | "/arize_phoenix_version"
        );
    !is_for_programs
}

/// Whether an error should be answered with a page: the path is a page, and the client accepts HTML.
pub(super) fn wants_error_page(uri: &Uri, headers: &HeaderMap) -> bool {
    let accepts = headers.get(ACCEPT).and_then(|accept| accept.to_str().ok()).unwrap_or_default();
    is_page_path(uri.path()) && accepts.contains("text/html")
}

/// Whether a path accepts forms of our pages. Requests to these have to pass `is_own_page_request`.
pub(super) fn is_form_path(path: &str) -> bool {
    matches!(path, "/sign-in" | "/sign-out" | "/labels" | "/labels/undo" | "/server/retry" | "/start/demo")
        || path == "/alerts"
        || path.starts_with("/alerts/")
        || path.starts_with("/rubrics/")
        || path.starts_with("/groups/")
}

/// Whether a path needs no key. Such paths must not reveal recorded data.
pub(super) fn is_keyless_path(path: &str) -> bool {
    path.starts_with("/assets/") || matches!(path, "/sign-in" | "/sign-out")
}

/// Protection against cross-site request forgery: whether the browser states that the request comes from a page of this
/// server. A page of another site can send forms here, but it cannot forge these headers.
pub(super) fn is_own_page_request(uri: &Uri, headers: &HeaderMap) -> bool {
    let text = |name: &str| headers.get(name).and_then(|value| value.to_str().ok());
    // Fetch Metadata, which browsers send on trustworthy connections. Otherwise `Origin` is compared with `Host`.
    if let Some(site) = text("sec-fetch-site") {
        return site == "same-origin";
    }
    let Some((_, origin)) = text(ORIGIN.as_str()).and_then(|origin| origin.split_once("://")) else {
        return false;
    };
    let host = text(HOST.as_str()).or_else(|| uri.authority().map(axum::http::uri::Authority::as_str));
    host.is_some_and(|host| host.eq_ignore_ascii_case(origin))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn forms_are_taken_from_our_own_pages_only() {
        let own = |host: &str, origin: &str| {
            let mut headers = HeaderMap::new();
            headers.insert(HOST, host.parse().unwrap());
            if !origin.is_empty() {
                headers.insert(ORIGIN, origin.parse().unwrap());
            }
            is_own_page_request(&Uri::from_static("/labels"), &headers)
        };
        assert!(own("localhost:4318", "http://localhost:4318"));
        assert!(own("gradus.example", "https://gradus.example"));
        for origin in ["", "null", "http://localhost:8000", "http://evil.example", "http://localhost:4318.evil.example"]
        {
            assert!(!own("localhost:4318", origin), "{origin}");
        }
        let mut headers = HeaderMap::new();
        for (site, is_ours) in [("same-origin", true), ("same-site", false), ("cross-site", false), ("none", false)] {
            headers.insert("sec-fetch-site", site.parse().unwrap());
            assert_eq!(is_own_page_request(&Uri::from_static("/labels"), &headers), is_ours, "{site}");
        }
    }

    #[test]
    fn what_programs_ask_is_no_page() {
        for path in ["/", "/traces", "/traces/abc", "/nowhere"] {
            assert!(is_page_path(path), "{path}");
        }
        for path in ["/api/v1/traces", "/v1/traces", "/metrics", "/openapi.json"] {
            assert!(!is_page_path(path), "{path}");
        }
    }
}
