//! The list of sessions, latest first: what each one began with, how its runs ended, and what it cost.

use std::sync::Arc;

use askama::Template;
use axum::extract::State;
use axum::http::HeaderMap;
use axum::response::Response;
use gradus_eval::evaluator::OUTCOME;
use gradus_report::html::{number, text};
use gradus_store::{RunEndingRow, SessionFilter, SessionSummary};
use serde::Deserialize;

use super::address::PageUrl;
use super::display_text::{format_duration, format_timestamp, format_whole_number};
use super::render::{self, PageError, PageQuery};
use super::run_outcome::format_outcome_label;
use super::session::build_session_url;
use super::time_bound::{format_datetime_input, parse_time_bound};
use super::{PageLayout, SelectOption, build_project_options};
use crate::clock::DAY_NS;
use crate::http_error::ApiError;
use crate::state::ServerState;

/// Number of rows on one page.
const SESSIONS_PER_PAGE: usize = 50;

/// Parameters of `/sessions`. Empty ones are fields of the form that were left blank.
#[derive(Default, Deserialize)]
#[serde(default)]
pub(super) struct SessionListQuery {
    project: Option<String>,
    /// As those of the list of traces. A session is listed if one of its runs began in this time.
    from: Option<String>,
    to: Option<String>,
    /// Where to continue; not part of the filter.
    cursor: Option<String>,
}

#[derive(Template)]
#[template(path = "sessions.html")]
struct SessionListPage {
    frame: PageLayout,
    projects: Vec<SelectOption>,
    from: String,
    to: String,
    /// Error message about a filter. The form stays filled in, so that it can be corrected.
    wrong: Option<String>,
    rows: Vec<SessionListRow>,
    next: Option<String>,
    /// The page ended before it was full, because one request examines a bounded number of runs.
    is_short: bool,
    /// Whether a filter is set, which changes the text for an empty list.
    is_narrowed: bool,
    /// The list without a filter.
    all: String,
    /// URL of the first page, on later pages.
    newest: Option<String>,
    api: String,
}

/// A session, ready to be displayed.
struct SessionListRow {
    href: String,
    session: String,
    /// The first request.
    query: Option<String>,
    project: String,
    agent: String,
    runs: String,
    endings: Vec<SessionEndingCell>,
    /// Runs with a flagged verdict.
    flagged: Option<String>,
    cost: Option<String>,
    /// `2 runs without a known price`, which the cost does not contain.
    unpriced: Option<String>,
    duration: String,
    start: String,
}

/// Runs of a session that ended in the same way.
struct SessionEndingCell {
    class: &'static str,
    text: String,
}

/// `GET /sessions`
pub(super) async fn render_session_list(
    State(server): State<Arc<ServerState>>,
    headers: HeaderMap,
    PageQuery(query): PageQuery<SessionListQuery>,
) -> Result<Response, PageError> {
    let query = query.without_blanks();
    render::render_page(&server, move |server| SessionListPage::load(server, &query, &headers)).await
}

impl SessionListQuery {
    /// Trims all parameters and drops empty ones.
    fn without_blanks(mut self) -> SessionListQuery {
        for value in [&mut self.project, &mut self.from, &mut self.to, &mut self.cursor] {
            *value = value.take().map(|text| text.trim().to_owned()).filter(|text| !text.is_empty());
        }
        self
    }

    /// Returns the URL of the same filter on another path, without the cursor.
    fn to_page_url(&self, path: &str) -> PageUrl {
        PageUrl::from_path(path)
            .with("project", self.project.as_deref())
            .with("from", self.from.as_deref())
            .with("to", self.to.as_deref())
    }

    /// Returns the URL of the filter in the API, which accepts complete times only.
    fn to_api_url(&self, filter: &SessionFilter) -> String {
        let time = |ns: Option<i64>| ns.map(crate::time_text::format_rfc3339);
        PageUrl::from_path("/api/v1/sessions")
            .with("project", self.project.as_deref())
            .with("from", time(filter.from_ns).as_deref())
            .with("to", time(filter.to_ns).as_deref())
            .to_string()
    }

    /// Converts the parameters; 400 for times that cannot be parsed.
    fn to_session_filter(&self) -> Result<SessionFilter, ApiError> {
        Ok(SessionFilter {
            project: self.project.clone(),
            from_ns: parse_time_bound("from", self.from.as_deref(), 0)?,
            to_ns: parse_time_bound("to", self.to.as_deref(), DAY_NS)?,
        })
    }
}

impl SessionListPage {
    fn load(server: &ServerState, query: &SessionListQuery, headers: &HeaderMap) -> Result<SessionListPage, ApiError> {
        // A mistake in a filter is shown next to the form instead of on an error page.
        let (filter, wrong) = match query.to_session_filter() {
            Ok(filter) => (filter, None),
            Err(error) => (SessionFilter::default(), Some(error.message().to_owned())),
        };
        let cursor = query.cursor.as_deref().map(str::parse).transpose();
        let cursor = cursor.map_err(|()| ApiError::bad_request("cursor: not a position in the list"))?;
        let page = match wrong {
            None => server.store.session_summaries(&filter, OUTCOME, cursor, SESSIONS_PER_PAGE)?,
            Some(_) => gradus_store::SessionSummaryPage::default(),
        };
        let here = query.to_page_url("/sessions");
        let next = page.next.map(|cursor| here.clone().with("cursor", Some(&cursor.to_string())).to_string());
        Ok(SessionListPage {
            frame: PageLayout::new("/sessions", query.project.as_deref(), headers),
            projects: build_project_options(server.store.project_names()?, query.project.as_deref()),
            from: format_datetime_input(query.from.as_deref()),
            to: format_datetime_input(query.to.as_deref()),
            wrong,
            is_short: next.is_some() && page.sessions.len() < SESSIONS_PER_PAGE,
            rows: page.sessions.iter().map(SessionListRow::from_summary).collect(),
            next,
            is_narrowed: !here.pairs().is_empty(),
            all: "/sessions".to_owned(),
            newest: query.cursor.is_some().then(|| here.to_string()),
            api: query.to_api_url(&filter),
        })
    }
}

impl SessionListRow {
    fn from_summary(one: &SessionSummary) -> SessionListRow {
        let totals = &one.totals;
        // If a session has more runs than are summed, the sums are lower bounds.
        let bound = if one.is_cut { "+" } else { "" };
        SessionListRow {
            href: build_session_url(&one.session, &one.project).to_string(),
            session: text::format_display_line(&one.session),
            query: Some(text::format_display_line(&one.query)).filter(|query| !query.is_empty()),
            project: text::format_display_line(&one.project),
            agent: text::format_display_line(&one.agent),
            runs: format!("{}{bound}", format_whole_number(totals.trajectories)),
            endings: one.endings.iter().map(SessionEndingCell::from_ending).collect(),
            flagged: (one.flagged > 0).then(|| format!("{}{bound}", format_whole_number(one.flagged))),
            cost: totals.cost_usd.map(|cost| format!("{}{bound}", number::format_usd(cost))),
            unpriced: totals
                .cost_usd
                .and_then(|_| u64::try_from(totals.unpriced).ok())
                .filter(|count| *count > 0)
                .map(|count| format!("{} not priced", number::format_counted_noun(count, "run", "runs"))),
            duration: format_duration(totals.end_ns.saturating_sub(totals.start_ns)),
            start: format_timestamp(totals.start_ns),
        }
    }
}

impl SessionEndingCell {
    fn from_ending(row: &RunEndingRow) -> SessionEndingCell {
        SessionEndingCell {
            class: match (row.is_wrong, row.is_scored) {
                (true, _) => "wrong",
                (false, true) => "right",
                (false, false) => "none",
            },
            text: format!("{}\u{a0}{}", number::format_count(row.trajectories), format_outcome_label(&row.label)),
        }
    }
}

#[cfg(test)]
mod tests {
    use gradus_store::SessionTotals;

    use super::*;

    fn summary() -> SessionSummary {
        let ending = |label: &str, trajectories, is_wrong| RunEndingRow {
            label: label.to_owned(),
            trajectories,
            is_wrong,
            is_scored: true,
        };
        SessionSummary {
            session: "<chat> 42/7".to_owned(),
            project: "travel".to_owned(),
            query: "Move my <Lisbon> flight".to_owned(),
            agent: "concierge".to_owned(),
            totals: SessionTotals {
                trajectories: 3,
                tokens: 1_234,
                cost_usd: Some(0.0123),
                unpriced: 1,
                start_ns: 1_772_444_467_000_000_000,
                end_ns: 1_772_444_469_500_000_000,
            },
            is_cut: false,
            flagged: 1,
            endings: vec![ending("answered", 2, false), ending("limit_reached", 1, true)],
        }
    }

    fn page(rows: Vec<SessionListRow>) -> SessionListPage {
        SessionListPage {
            frame: PageLayout::new("/sessions", None, &HeaderMap::new()),
            projects: Vec::new(),
            from: String::new(),
            to: String::new(),
            wrong: None,
            rows,
            next: None,
            is_short: false,
            is_narrowed: false,
            all: "/sessions".to_owned(),
            newest: None,
            api: "/api/v1/sessions".to_owned(),
        }
    }

    /// The part of a page between the form and its end.
    fn show_list(page: &SessionListPage) -> String {
        let shown = page.render().unwrap();
        let main = shown.split("</form>").nth(1).unwrap_or_default();
        main.split("</main>").next().unwrap_or_default().trim().to_owned()
    }

    #[test]
    fn a_session_has_its_first_request_endings_cost_and_time() {
        let long = SessionSummary { is_cut: true, flagged: 0, query: String::new(), endings: Vec::new(), ..summary() };
        let rows = [summary(), long].iter().map(SessionListRow::from_summary).collect();
        let shown = show_list(&SessionListPage { next: Some("/sessions?cursor=1.2.a".to_owned()), ..page(rows) });
        assert!(!shown.contains("<Lisbon>") && !shown.contains("<chat>"), "{shown}");
        insta::assert_snapshot!(shown);
    }

    #[test]
    fn a_list_without_sessions_says_why() {
        let narrowed = SessionListPage { is_narrowed: true, ..page(Vec::new()) };
        let short =
            SessionListPage { is_short: true, next: Some("/sessions?cursor=1.2.a".to_owned()), ..page(Vec::new()) };
        insta::assert_snapshot!(
            [page(Vec::new()), narrowed, short].iter().map(show_list).collect::<Vec<_>>().join("\n")
        );
    }

    #[test]
    fn the_api_gets_the_same_time() {
        let query = SessionListQuery { to: Some("2026-11-15".to_owned()), ..SessionListQuery::default() };
        let filter = query.to_session_filter().unwrap_or_default();
        assert_eq!(query.to_api_url(&filter), "/api/v1/sessions?to=2026-11-16T00:00:00Z");
    }
}
