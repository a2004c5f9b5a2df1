//! The list of traces: newest first, filtered by the parameters of the URL, and updated while traces arrive.

use std::sync::Arc;

use askama::Template;
use axum::extract::State;
use axum::http::HeaderMap;
use axum::response::Response;
use gradus_eval::evaluator::OUTCOME;
use gradus_store::{GroupTotals, ScoreRow, TraceRow};

use super::address::PageUrl;
use super::display_text::{format_duration, format_timestamp, format_whole_number};
use super::failure_groups::load_group_title;
use super::filter_suggestions::FilterSuggestions;
use super::loaded_trace;
use super::render::{self, PageError, PageQuery};
use super::score_cell::TraceScoreCell;
use super::session::build_session_url;
use super::time_bound::format_datetime_input;
use super::trace_export::MAX_EXPORTED;
use super::trace_list_query::TraceListQuery;
use super::trace_matches::{MATCHES_PER_PAGE, SortLink, build_sort_links, format_match_count, load_matches};
use super::{PageLayout, SelectOption, build_project_options};
use crate::evaluators;
use crate::evaluators::find_evaluator_title;
use crate::http_error::{ApiError, run_large_query, run_short_query};
use crate::settings::ReloadableSettings;
use crate::state::ServerState;
use gradus_report::html::number;
use gradus_report::html::text;

/// The rows of one page with their columns.
struct TraceListTable {
    /// How many match, in words. None on later pages, and where it is not counted.
    count: Option<String>,
    /// The part that was sorted, if not all matches were.
    sorted: Option<String>,
    /// Titles of the evaluators that occur on this page.
    columns: Vec<String>,
    orders: Vec<SortLink>,
    rows: Vec<TraceListRow>,
    next: Option<String>,
    /// URL of the export, without the selected traces.
    export: String,
    /// Text of the link that exports without a selection. None if there is no link.
    export_all: Option<String>,
    /// The page ended before it was full, because one request may not test more traces.
    is_short: bool,
    /// Whether a filter is set, which changes the text for an empty list.
    is_narrowed: bool,
}

/// A trace, ready to be displayed.
struct TraceListRow {
    /// URL of the first wrong step, or of the trace.
    href: String,
    id: String,
    /// Start in nanoseconds since the epoch. The script compares it to find new rows.
    at: i64,
    /// Request, agent and model are those of the first trajectory.
    query: Option<String>,
    name: String,
    project: String,
    agent: String,
    model: String,
    start: String,
    duration: String,
    steps: String,
    spans: String,
    /// Name and URL of the session of the first trajectory.
    session: Option<(String, String)>,
    /// `in 3 traces`, if a run goes on in traces that have no row of their own.
    folded: Option<String>,
    errors: Option<String>,
    /// One for each column.
    cells: Vec<TraceScoreCell>,
    /// Sum over trajectories with a known cost.
    cost: Option<String>,
    /// Not assembled yet.
    is_open: bool,
}

/// The list with its filters.
#[derive(Template)]
#[template(path = "traces.html")]
struct TraceListPage {
    frame: PageLayout,
    choice: TraceListQuery,
    /// Error message about a filter. The form stays filled in, so that it can be corrected.
    wrong: Option<String>,
    chips: Vec<FilterChip>,
    shortcuts: Vec<FilterShortcut>,
    projects: Vec<SelectOption>,
    suggestions: FilterSuggestions,
    rows: TraceListTable,
    /// URL that the script polls for the rows. None on later pages, which do not change.
    live: Option<String>,
    /// With a condition each poll tests only some traces, so the script adds new rows instead of replacing all.
    is_growing: bool,
    from: String,
    to: String,
    is_first: bool,
    first: String,
}

/// A filter that is set.
pub(super) struct FilterChip {
    pub(super) name: &'static str,
    pub(super) value: String,
    /// URL of the list without this filter.
    pub(super) without: String,
}

/// A suggested filter.
struct FilterShortcut {
    text: String,
    href: String,
}

/// The rows without the page around them, for polling.
#[derive(Template)]
#[template(path = "trace_rows.html")]
struct TraceRowsPart {
    rows: TraceListTable,
}

/// `GET /traces`
pub(super) async fn render_trace_list(
    State(server): State<Arc<ServerState>>,
    headers: HeaderMap,
    PageQuery(choice): PageQuery<TraceListQuery>,
) -> Result<Response, PageError> {
    let choice = choice.without_blanks();
    run_list_query(&server, choice.condition.is_some(), move |server| {
        // A mistake in a filter is shown next to the form instead of on an error page.
        let (rows, wrong) = match load_trace_table(server, &choice) {
            Ok(rows) => (rows, None),
            Err(error) if error.status().is_client_error() => {
                (TraceListTable::empty(), Some(error.message().to_owned()))
            }
            Err(error) => return Err(error),
        };
        let address = choice.to_page_url("/traces");
        let is_first = choice.cursor.is_none();
        let group_title = match &choice.group {
            Some(key) => load_group_title(server, key)?,
            None => None,
        };
        Ok(render::respond_with_page(&TraceListPage {
            frame: PageLayout::new("/traces", choice.project.as_deref(), &headers),
            chips: build_filter_chips(&address, group_title.as_deref()),
            shortcuts: build_filter_shortcuts(&server.reloadable(), &address),
            projects: build_project_options(server.store.project_names()?, choice.project.as_deref()),
            suggestions: FilterSuggestions::load(server, choice.project.as_deref())?,
            is_growing: choice.condition.is_some(),
            from: format_datetime_input(choice.from.as_deref()),
            to: format_datetime_input(choice.to.as_deref()),
            live: (is_first && wrong.is_none()).then(|| choice.to_page_url("/traces/rows").to_string()),
            is_first,
            first: address.to_string(),
            rows,
            wrong,
            choice,
        }))
    })
    .await
}

/// `GET /traces/rows`: the rows alone, for polling. Answers 304 while nothing changes.
pub(super) async fn render_trace_rows(
    State(server): State<Arc<ServerState>>,
    headers: HeaderMap,
    PageQuery(choice): PageQuery<TraceListQuery>,
) -> Result<Response, PageError> {
    let choice = choice.without_blanks();
    run_list_query(&server, choice.condition.is_some(), move |server| {
        Ok(render::respond_with_fragment(&TraceRowsPart { rows: load_trace_table(server, &choice)? }, &headers))
    })
    .await
}

/// Runs a query of the list. A condition on spans reads whole traces, so it runs with the large queries, of which few
/// run at once.
async fn run_list_query(
    server: &Arc<ServerState>,
    has_condition: bool,
    make: impl FnOnce(&ServerState) -> Result<Response, ApiError> + Send + 'static,
) -> Result<Response, PageError> {
    Ok(match has_condition {
        true => run_large_query(server, make).await?,
        false => run_short_query(server, make).await?,
    })
}

/// Builds a chip for each parameter of the URL. A failure group is shown by its title, since its key says nothing.
pub(super) fn build_filter_chips(address: &PageUrl, group_title: Option<&str>) -> Vec<FilterChip> {
    let chip = |(name, value): &(&'static str, String)| FilterChip {
        name,
        value: match group_title.filter(|_| *name == "group") {
            Some(title) => title.to_owned(),
            None => text::format_display_line(value),
        },
        without: address.with_replaced(name, None).to_string(),
    };
    address.pairs().iter().filter(|(name, _)| *name != "sort").map(chip).collect()
}

/// Builds the most frequent searches: wrong verdicts of each evaluator of the rules, and errors.
fn build_filter_shortcuts(settings: &ReloadableSettings, address: &PageUrl) -> Vec<FilterShortcut> {
    let mut names: Vec<String> =
        settings.rules.iter().flat_map(|rule| &rule.evaluators).map(|evaluator| evaluator.name.to_string()).collect();
    names.sort_unstable();
    names.dedup();
    let wrong = names.into_iter().filter_map(|name| {
        let labels = evaluators::find_evaluator_labels(settings, &name);
        Some(FilterShortcut {
            text: format!("{}: {}", find_evaluator_title(settings, &name), describe_wrong_verdicts(&labels)?),
            href: address.with_replaced("label", None).with_replaced("wrong", Some(&name)).to_string(),
        })
    });
    let errors = FilterShortcut {
        text: "with errors".to_owned(),
        href: address.with_replaced("error", Some("true")).to_string(),
    };
    wrong.chain([errors]).collect()
}

/// Returns words for wrong verdicts of an evaluator. With two labels it is the worse one; with more no single label
/// fits. None if the labels are not known. Labels are ordered from best to worst.
fn describe_wrong_verdicts(labels: &[(String, f64)]) -> Option<String> {
    match labels {
        [] => None,
        [.., (worst, _)] if labels.len() <= 2 => Some(text::format_display_line(worst)),
        _ => Some("flagged".to_owned()),
    }
}

/// Loads one page of rows, with one more query for each row to find its wrong step.
fn load_trace_table(server: &ServerState, choice: &TraceListQuery) -> Result<TraceListTable, ApiError> {
    let filter = choice.to_trace_filter()?;
    let (found, next, sorted) = load_matches(server, choice, &filter)?;
    let is_first = choice.cursor.is_none();
    let counted = match &choice.condition {
        None if is_first => Some(server.store.count_traces(&filter)?),
        _ => None,
    };
    // If not all matches were counted, there may be more than one export contains.
    let is_whole = counted.as_ref().is_some_and(|found| !found.is_cut && found.count <= MAX_EXPORTED as u64);
    let export_all = match is_whole {
        true => "Export all matches".to_owned(),
        false => format!("Export the latest {} matches", number::format_count(MAX_EXPORTED as u64)),
    };
    let settings = server.reloadable();
    // Columns are the evaluators that occur on this page: how a run ended, then the others in alphabetical order.
    let mut evaluators: Vec<&str> = found
        .iter()
        .flat_map(|trace| &trace.trajectories)
        .flat_map(|trajectory| &trajectory.scores)
        // A column in which nothing could be judged only takes space from the request.
        .filter(|score| score.scored > 0 || score.failed > 0 || score.evaluator == OUTCOME)
        .map(|score| score.evaluator.as_str())
        .collect();
    // If no rule asks how runs ended, recorded errors are shown.
    evaluators.extend(found.iter().flat_map(|trace| &trace.trajectories).any(|one| one.is_error).then_some(OUTCOME));
    evaluators.sort_unstable_by_key(|name| (*name != OUTCOME, *name));
    evaluators.dedup();
    let mut rows = Vec::with_capacity(found.len());
    let groups = server.store.list_group_totals(&found)?;
    for (trace, group) in found.iter().zip(groups) {
        // A trace without trajectories is either waiting to be assembled or contains no agent.
        let is_open = trace.trajectories.is_empty() && server.store.is_in_ready_queue(trace.trace_group)?;
        let row_url = find_wrong_step_url(server, trace, choice)?;
        rows.push(TraceListRow::from_row(&settings, trace, &evaluators, &row_url, is_open).with_group(trace, group));
    }
    Ok(TraceListTable {
        count: counted.map(format_match_count),
        sorted,
        // A condition on spans is neither sorted nor searched as a whole.
        export_all: choice.condition.is_none().then_some(export_all),
        orders: if choice.condition.is_none() { build_sort_links(choice) } else { Vec::new() },
        export: choice.to_page_url("/traces/export").with_replaced("sort", None).to_string(),
        columns: evaluators.iter().map(|name| find_evaluator_title(&settings, name)).collect(),
        is_short: next.is_some() && rows.len() < MATCHES_PER_PAGE,
        is_narrowed: choice.is_narrowed(),
        next: next.map(|cursor| choice.to_page_url("/traces").with("cursor", Some(&cursor)).to_string()),
        rows,
    })
}

impl TraceListTable {
    /// The table for a filter that cannot be applied.
    fn empty() -> TraceListTable {
        TraceListTable {
            count: None,
            sorted: None,
            columns: Vec::new(),
            orders: Vec::new(),
            rows: Vec::new(),
            next: None,
            export: String::new(),
            export_all: None,
            is_short: false,
            is_narrowed: true,
        }
    }
}

impl TraceListRow {
    /// Builds a row. `row_url` is the URL that it links to.
    fn from_row(
        settings: &ReloadableSettings,
        trace: &TraceRow,
        evaluators: &[&str],
        row_url: &PageUrl,
        is_open: bool,
    ) -> TraceListRow {
        let first = trace.trajectories.first();
        let name = |text: Option<&String>| text.map(|text| text::format_display_line(text)).unwrap_or_default();
        let cost: Vec<f64> = trace.trajectories.iter().filter_map(|trajectory| trajectory.cost_usd).collect();
        TraceListRow {
            href: row_url.to_string(),
            at: trace.start_ns,
            id: trace.trace_id.to_string(),
            query: first
                .map(|trajectory| text::format_display_line(&trajectory.query))
                .filter(|query| !query.is_empty()),
            name: match text::format_display_line(&trace.name) {
                name if name.trim().is_empty() => "a run without a request".to_owned(),
                name => name,
            },
            project: text::format_display_line(&trace.project),
            agent: name(first.map(|trajectory| &trajectory.agent)),
            model: name(first.map(|trajectory| &trajectory.model)),
            start: format_timestamp(trace.start_ns),
            // A run can continue in other traces.
            duration: format_duration(
                trace
                    .trajectories
                    .iter()
                    .map(|one| one.end_ns)
                    .fold(trace.end_ns, i64::max)
                    .saturating_sub(trace.start_ns),
            ),
            steps: format_whole_number(trace.trajectories.iter().map(|trajectory| trajectory.steps).sum()),
            spans: number::format_counted_noun(u64::try_from(trace.spans).unwrap_or(0), "span", "spans"),
            session: first
                .map(|trajectory| trajectory.session.as_str())
                .filter(|name| !name.is_empty())
                .map(|name| (text::format_display_line(name), build_session_url(name, &trace.project).to_string())),
            folded: None,
            // A trajectory can fail without a failed span; that counts as one error.
            errors: (trace.errors > 0 || trace.trajectories.iter().any(|trajectory| trajectory.is_error))
                .then(|| number::format_counted_noun(trace.errors.max(1) as u64, "error", "errors")),
            cells: evaluators.iter().map(|name| TraceScoreCell::for_evaluator(settings, trace, name)).collect(),
            cost: (!cost.is_empty()).then(|| number::format_usd(cost.iter().sum())),
            is_open,
        }
    }

    /// Adds the totals of the run's other traces, which have no rows of their own.
    fn with_group(mut self, trace: &TraceRow, group: Option<GroupTotals>) -> TraceListRow {
        let Some(group) = group.filter(|group| group.traces > 1) else { return self };
        self.folded = Some(format!("in {} traces", number::format_count(group.traces)));
        self.spans = number::format_counted_noun(group.spans, "span", "spans");
        if group.errors > u64::try_from(trace.errors).unwrap_or(0) {
            self.errors = Some(number::format_counted_noun(group.errors, "error", "errors"));
        }
        self
    }
}

/// Finds the URL of the first wrong step that matches the filter, or of the trace.
fn find_wrong_step_url(server: &ServerState, trace: &TraceRow, choice: &TraceListQuery) -> Result<PageUrl, ApiError> {
    if let Some((trajectory, step)) = server.store.find_wrong_step(trace.no, &choice.to_trace_filter()?)? {
        let is_first = trace.trajectories.first().is_some_and(|first| first.trajectory_id == trajectory);
        let trajectory = Some(trajectory.as_str()).filter(|_| !is_first);
        let step = Some(step).filter(|step| *step > 0);
        return Ok(loaded_trace::build_step_url(&trace.trace_id.to_string(), trajectory, step));
    }
    Ok(first_wrong_step_url(trace, choice.evaluator()))
}

/// Returns the URL of the first wrong verdict of any evaluator, or of `wanted`, by the loaded score summaries.
fn first_wrong_step_url(trace: &TraceRow, wanted: Option<&str>) -> PageUrl {
    let id = trace.trace_id.to_string();
    let fits = |score: &&ScoreRow| wanted.is_none_or(|wanted| wanted == score.evaluator);
    let first = trace.trajectories.iter().enumerate().find_map(|(at, trajectory)| {
        let wrong = trajectory.scores.iter().filter(fits).filter_map(|score| score.first_wrong);
        // A step is preferred to the whole trajectory, for which the store writes 0.
        let step = wrong.min_by_key(|step| (*step == 0, *step))?;
        Some((at, trajectory, step))
    });
    match first {
        Some((at, trajectory, step)) => {
            let trajectory = Some(trajectory.trajectory_id.as_str()).filter(|_| at > 0);
            let step = Some(step).filter(|step| *step > 0);
            loaded_trace::build_step_url(&id, trajectory, step)
        }
        None => loaded_trace::build_trace_url(&id, None, None),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_rows_of_a_page() {
        let cell = |class, text: &str, about: &str| TraceScoreCell {
            class,
            text: text.to_owned(),
            about: about.to_owned(),
            unjudged: None,
        };
        let row = TraceListRow {
            href: "/traces/0af7651916cd43dd8448eb211c80319c#step-2".to_owned(),
            id: "0af7651916cd43dd8448eb211c80319c".to_owned(),
            at: 1_772_444_467_000_000_000,
            query: Some("Move my <Lisbon> flight".to_owned()),
            name: "chat".to_owned(),
            project: "travel".to_owned(),
            agent: "concierge".to_owned(),
            model: "gpt-4.1".to_owned(),
            start: "2026-03-02 09:41:07".to_owned(),
            duration: "1.5 s".to_owned(),
            steps: "3".to_owned(),
            spans: "14 spans".to_owned(),
            session: Some(("<chat> 7".to_owned(), "/sessions/7?project=travel".to_owned())),
            folded: Some("in 3 traces".to_owned()),
            errors: Some("1 error".to_owned()),
            cells: vec![
                TraceScoreCell { unjudged: Some("1 not judged".to_owned()), ..cell("fail", "50 %", "1 of 2 right") },
                cell("", "", "not judged"),
            ],
            cost: Some("$0.0123".to_owned()),
            is_open: false,
        };
        let open = TraceListRow {
            href: "/traces/b".to_owned(),
            id: "b".to_owned(),
            at: 1_772_444_467_000_000_000,
            query: None,
            name: "chat".to_owned(),
            project: "travel".to_owned(),
            agent: String::new(),
            model: String::new(),
            start: "2026-03-02 09:41:07".to_owned(),
            duration: String::new(),
            steps: String::new(),
            spans: "1 span".to_owned(),
            session: None,
            folded: None,
            errors: None,
            cells: vec![cell("", "", ""), cell("", "", "")],
            cost: None,
            is_open: true,
        };
        let table = TraceListTable {
            count: Some("2 matches".to_owned()),
            sorted: None,
            orders: build_sort_links(&TraceListQuery { sort: Some("cost".to_owned()), ..TraceListQuery::default() }),
            export: "/traces/export".to_owned(),
            export_all: Some("Export all matches".to_owned()),
            columns: vec!["Thought to tool".to_owned(), "Call validity".to_owned()],
            rows: vec![row, open],
            next: Some("/traces?after=b".to_owned()),
            is_short: false,
            is_narrowed: false,
        };
        let shown = TraceRowsPart { rows: table }.render().unwrap().replace("><", ">\n<");
        assert!(!shown.contains("<Lisbon>"), "{shown}");
        insta::assert_snapshot!(shown);
    }

    #[test]
    fn a_page_without_rows_says_why() {
        let shown = |is_short, is_narrowed| {
            let rows = TraceListTable { is_short, is_narrowed, ..TraceListTable::empty() };
            TraceRowsPart { rows }.render().unwrap()
        };
        insta::assert_snapshot!([shown(false, false), shown(false, true), shown(true, true)].join("\n"));
    }

    #[test]
    fn a_shortcut_says_what_it_leads_to() {
        let labels =
            |names: &[&str]| -> Vec<(String, f64)> { names.iter().map(|name| ((*name).to_owned(), 0.0)).collect() };
        assert_eq!(describe_wrong_verdicts(&[]), None);
        assert_eq!(describe_wrong_verdicts(&labels(&["correct", "incorrect"])).as_deref(), Some("incorrect"));
        assert_eq!(describe_wrong_verdicts(&labels(&["good", "fair", "bad"])).as_deref(), Some("flagged"));
    }
}
