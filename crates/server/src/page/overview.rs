//! The overview: scores with trends, scores over time, failing tools and tasks, and usage.

use std::collections::BTreeMap;
use std::sync::Arc;

use askama::Template;
use axum::Extension;
use axum::extract::State;
use axum::http::{HeaderMap, Uri};
use axum::response::Response;
use gradus_eval::evaluator::OUTCOME;
use gradus_store::{
    FailureGroupOptions, GradingBacklog, MetricFilter, MetricPeriod, NameKind, ScoreMoments, TaskRow, TrajectoryUsage,
};

use super::address::PageUrl;
use super::alert_bands::ChartAlerts;
use super::display_text::format_timestamp;
use super::failure_groups::{
    FailureGroupScope, FailureGroupTable, MAX_ALL_GROUPS, MAX_LISTED_GROUPS, PeriodTotals, count_trajectories,
    load_example_value,
};
use super::loaded_trace;
use super::metric_timeline::{self, EvaluatorSeries, OverviewTimeRange, TimeRangePreset};
use super::overview_query::OverviewQuery;
use super::render::{self, PageError, PageQuery};
use super::run_endings::RunEndings;
use super::tools::ToolUsageTable;
use super::trend_card::DimensionTrendCard;
use super::usage_overview::UsageOverview;
use super::{PageLayout, SelectOption, build_project_options, build_range_options, start};
use crate::caller::RequestCaller;
use crate::clock::now_ns;
use crate::evaluators::find_evaluator_title;
use crate::http_error::{ApiError, run_short_query};
use crate::queries;
use crate::settings::ReloadableSettings;
use crate::state::ServerState;
use crate::time_text::format_rfc3339 as show_time;
use gradus_report::html::number::{self, format_count};
use gradus_report::html::text;

/// Maximum number of rows in the list of failing tasks.
const MAX_TASKS: usize = 8;
/// Maximum count of traces from the future.
const MAX_COUNTED_AHEAD: usize = 1_000;
/// Maximum count of the grading backlog.
const MAX_COUNTED_BACKLOG: usize = 10_000;
/// Maximum number of options in a drop-down list.
const MAX_NAMES: usize = 200;

/// All sections of the page. Sections without data show a note.
#[derive(Template)]
#[template(path = "overview.html")]
struct OverviewPage {
    frame: PageLayout,
    choice: OverviewQuery,
    projects: Vec<SelectOption>,
    selects: Vec<FilterDropdown>,
    ranges: Vec<SelectOption>,
    /// URL without the days, if days are selected.
    without_days: Option<String>,
    /// How the latest runs ended. None if the evaluator `outcome` judged none of them.
    endings: Option<RunEndings>,
    failures: FailureGroupTable,
    cards: Vec<DimensionTrendCard>,
    /// Titles of evaluators that fitted no case of the range. They have no card.
    inapplicable: Option<String>,
    /// The period that a point of a chart represents: `6 hours`.
    period: &'static str,
    /// URL of the page of versions with the same filter.
    versions_href: String,
    series: Vec<EvaluatorSeries>,
    /// Titles of evaluators without a score in the range. They have no chart.
    uncharted: Option<String>,
    has_alarms: bool,
    /// Not all rollups of the range could be read.
    is_cut: bool,
    /// Number of trajectories that wait for a judge model, in words.
    waiting: Option<String>,
    /// Whether a judge that they wait for is paused.
    is_judging_paused: bool,
    /// If rollups reach further back than stored trajectories: when the oldest stored trajectory began, in words.
    stored_since: Option<String>,
    /// Number of trajectories that the most frequent evaluator judged, and of all, if the numbers differ.
    graded_of_all: Option<(String, String)>,
    ahead: Option<FutureTraceNotice>,
    tools: ToolUsageTable,
    tasks: Vec<FailingTaskRow>,
    amounts: UsageOverview,
    /// URL of the list of traces with the same filter.
    traces: String,
}

/// A notice about traces whose clock is ahead. They are not counted on this page.
struct FutureTraceNotice {
    words: String,
    href: String,
}

/// A filter by agent, version or model.
struct FilterDropdown {
    name: &'static str,
    title: &'static str,
    options: Vec<SelectOption>,
}

/// Trajectories with the same request, with their share of wrong verdicts.
struct FailingTaskRow {
    query: String,
    href: String,
    wrong: String,
    trajectories: String,
}

/// `GET /`. Pages are cached for a moment, since many people keep this page open. While nothing is graded, it is the
/// page that explains how to send traces.
pub(super) async fn render_overview_page(
    State(server): State<Arc<ServerState>>,
    Extension(caller): Extension<RequestCaller>,
    headers: HeaderMap,
    uri: Uri,
    PageQuery(choice): PageQuery<OverviewQuery>,
) -> Result<Response, PageError> {
    let choice = choice.without_blanks();
    if choice.is_blank() && !run_short_query(&server, |server| Ok(server.store.was_ever_graded()?)).await? {
        let frame = PageLayout::new("/", None, &headers);
        return render::render_page(&server, move |server| {
            start::build_start_page(server, &caller, frame, &headers, &uri)
        })
        .await;
    }
    let now = now_ns();
    let (range, time) = (choice.preset()?, choice.time_range(now)?);
    let frame = PageLayout::new("/", choice.project.as_deref(), &headers);
    // The key of the page cache: everything that the content depends on, the frame included.
    let asked = format!("{} {} {} {:?}", frame.is_signed_in, frame.firing_count, range.name(), choice.parameters());
    // The page is rendered once for everybody who asks for it at the same time. It is a task of its own, so that it is
    // finished even if the first client disconnects. The caller is passed on for the accounting of queries.
    let kept = tokio::spawn(queries::with_caller(queries::current_caller(), async move {
        let make = run_short_query(&server, move |server| {
            let page = build_overview_page(server, choice, range, &time, now, frame)?;
            page.render().map_err(|_| render::build_render_error())
        });
        server.cached_pages.get_or_render(asked, make).await
    }));
    Ok(render::respond_with_html(kept.await.unwrap_or_else(|_| Err(render::build_render_error()))?))
}

/// Builds the page. Rollups of both ranges come from one query, so that the trend compares the same state of the
/// store.
fn build_overview_page(
    server: &ServerState,
    choice: OverviewQuery,
    range: TimeRangePreset,
    time: &OverviewTimeRange,
    now: i64,
    frame: PageLayout,
) -> Result<OverviewPage, ApiError> {
    let settings = server.reloadable();
    let store = &server.store;
    let filter = choice.to_filter(time);
    // The preceding range ends where the selected one begins.
    let wide = MetricFilter { from_ns: time.before_ns.or(time.from_ns), ..filter.clone() };
    let periods = store.metric_periods(&wide, time.period_ns)?;
    let is_current = |row: &&MetricPeriod| time.from_ns.is_none_or(|from| row.start_ns >= from);
    let current = sum_by_evaluator(periods.rows.iter().filter(is_current));
    let before = sum_by_evaluator(periods.rows.iter().filter(|row| !is_current(row)));
    // If the future itself was selected, nothing is left out.
    let ahead = match time.is_ahead() {
        true => 0,
        false => store.count_traces_since(choice.project.as_deref(), time.ahead_ns, MAX_COUNTED_AHEAD)?,
    };
    let traces = choice.traces_url(time, ahead > 0);
    let mut shown: Vec<(&&str, &ScoreMoments)> = current.iter().collect();
    // The evaluator of how runs ended comes before those of steps; the sort is stable.
    shown.sort_by_key(|(name, _)| **name != OUTCOME);
    let (fitting, inapplicable): (Vec<_>, Vec<_>) = shown.into_iter().partition(|(_, moments)| is_applicable(moments));
    let mut cards = Vec::new();
    for &(name, moments) in &fitting {
        let calibration = match moments.scored {
            0 => None,
            _ => settings.calibrations.correct_score(&settings.rules, store, name, &filter)?,
        };
        cards.push(DimensionTrendCard::from_moments(&settings, name, moments, before.get(name), calibration, &traces));
    }
    // Rollups count trajectories by evaluator only, so this is a lower bound of the trajectories that were graded at
    // all.
    let graded = current.values().map(|moments| moments.trajectories).max().unwrap_or(0).unsigned_abs();
    // A chart without a point says nothing.
    let has_score = |row: &&MetricPeriod| current.get(&*row.evaluator).is_some_and(|moments| moments.scored > 0);
    let without_score = fitting.iter().filter(|(_, moments)| moments.scored == 0);
    let uncharted = join_titles(&settings, without_score.map(|(name, _)| **name));
    let inapplicable = join_titles(&settings, inapplicable.iter().map(|(name, _)| **name));
    let series = metric_timeline::build_all_series(
        &settings,
        &ChartAlerts::load(server)?,
        choice.project.as_deref(),
        periods.rows.iter().filter(is_current).filter(has_score),
        time,
        now,
    );
    let latest = store.latest_overview(&filter, MAX_TASKS, OUTCOME)?;
    let usage = store.usage_periods(&filter, time.period_ns)?;
    let with_all = choice.groups.as_deref() == Some("all");
    let options = FailureGroupOptions {
        before_ns: time.before_ns,
        with_muted: with_all,
        key: None,
        limit: if with_all { MAX_ALL_GROUPS } else { MAX_LISTED_GROUPS },
    };
    let failures = store.failure_groups(&filter, options)?;
    let totals = PeriodTotals::load(store, &filter, time, &usage.rows)?;
    let is_up_to_now = time.to_ns.is_none();
    let spent = Some(time.from_ns.unwrap_or(0))
        // Costs of judging are recorded by project and time only.
        .filter(|_| is_up_to_now && !choice.has_names())
        .map(|from| store.load_spend_since(from, None, choice.project.as_deref()));
    let selects = [
        ("agent", "Agent", NameKind::Agent, &choice.agent),
        ("version", "Version", NameKind::Version, &choice.version),
        ("model", "Model", NameKind::Model, &choice.model),
    ];
    let select = |(name, title, kind, chosen): (_, _, NameKind, &Option<String>)| {
        let names = store.list_names(&filter, kind, MAX_NAMES)?;
        Ok::<_, ApiError>(FilterDropdown { name, title, options: build_project_options(names, chosen.as_deref()) })
    };
    Ok(OverviewPage {
        frame,
        projects: build_project_options(store.project_names()?, choice.project.as_deref()),
        selects: selects.into_iter().map(select).collect::<Result<_, _>>()?,
        ranges: build_range_options(range),
        without_days: choice
            .has_days()
            .then(|| choice.to_url().with_replaced("from", None).with_replaced("to", None).to_string()),
        endings: RunEndings::new(&latest, &traces).or_else(|| {
            let errors = usage.rows.iter().map(|(_, usage)| usage.errors).sum::<i64>();
            RunEndings::from_recorded_errors(u64::try_from(errors).unwrap_or(0), totals.now, &traces)
        }),
        failures: FailureGroupTable::new(
            &settings,
            &failures,
            &FailureGroupScope {
                totals,
                from_ns: time.from_ns,
                traces: traces.clone(),
                overview: choice.to_url().with_replaced("groups", None),
            },
            (!with_all)
                .then(|| choice.to_url().with_replaced("groups", Some("all")).with_fragment("h-groups").to_string()),
            |row| load_example_value(server, row),
        ),
        cards,
        inapplicable,
        period: describe_period(time.period_ns),
        versions_href: choice.versions_url().to_string(),
        has_alarms: series.iter().any(|one| one.has_alarm),
        series,
        uncharted,
        is_cut: periods.is_cut || usage.is_cut,
        ahead: FutureTraceNotice::from_count(ahead, &choice, time),
        waiting: format_grading_backlog(
            store.grading_backlog(choice.project.as_deref(), MAX_COUNTED_BACKLOG)?,
            choice.project.is_some(),
        ),
        is_judging_paused: settings.rules.iter().any(|rule| {
            let fits = choice.project.as_deref().is_none_or(|project| rule.matches_project(project));
            fits && server.judge_pauses.find_for_rule(&rule.name).is_some()
        }),
        stored_since: stored_since(
            store.earliest_trajectory_start(choice.project.as_deref())?,
            &usage.rows,
            time.period_ns,
        ),
        graded_of_all: graded_of_all(graded, &usage.rows),
        tools: ToolUsageTable::load_from_store(store, &settings, &filter, &traces)?,
        tasks: latest.tasks.iter().map(FailingTaskRow::from_row).collect(),
        amounts: UsageOverview::new(graded, &latest, &usage.rows, spent.transpose()?, time, now),
        traces: traces.to_string(),
        choice,
    })
}

/// Adds up the periods of each evaluator. Moments are additive, so the interval of the sum is exact.
fn sum_by_evaluator<'r>(rows: impl Iterator<Item = &'r MetricPeriod>) -> BTreeMap<&'r str, ScoreMoments> {
    let mut sums: BTreeMap<&str, ScoreMoments> = BTreeMap::new();
    for row in rows {
        *sums.entry(&row.evaluator).or_default() += row.moments;
    }
    sums
}

/// Whether the evaluator fitted at least one case.
fn is_applicable(moments: &ScoreMoments) -> bool {
    moments.scored + moments.abstained + moments.failed > 0
}

/// The titles of evaluators, as a list in a sentence. None if there are none.
fn join_titles<'n>(settings: &ReloadableSettings, names: impl Iterator<Item = &'n str>) -> Option<String> {
    let titles: Vec<String> = names.map(|name| find_evaluator_title(settings, name)).collect();
    (!titles.is_empty()).then(|| titles.join(", "))
}

/// Describes the length of a period in words. Long ranges merge several of them into one point.
fn describe_period(period_ns: i64) -> &'static str {
    match period_ns / 3_600_000_000_000 {
        1 => "one hour",
        6 => "6 hours",
        _ => "one day or several, as the tooltip says",
    }
}

/// Formats when the oldest stored trajectory began, if rollups are older. Retention deletes trajectories but keeps
/// rollups.
fn stored_since(first_ns: Option<i64>, usage: &[(i64, TrajectoryUsage)], period_ns: i64) -> Option<String> {
    let (begins_ns, _) = usage.first()?;
    match first_ns {
        None => Some("none".to_owned()),
        Some(first) => {
            (first >= begins_ns.saturating_add(period_ns)).then(|| format!("from {} on", format_timestamp(first)))
        }
    }
}

/// Formats the number of trajectories with a verdict of the most frequent evaluator, and of all. Rollups do not tell
/// how many have any verdict, since projects may use different evaluators.
fn graded_of_all(graded: u64, usage: &[(i64, TrajectoryUsage)]) -> Option<(String, String)> {
    let all = count_trajectories(usage);
    (graded < all).then(|| (number::format_count(graded), number::format_count(all)))
}

/// None if nothing waits.
fn format_grading_backlog(found: GradingBacklog, is_of_project: bool) -> Option<String> {
    let more = if found.is_cut { " or more" } else { "" };
    let of = if is_of_project { " of this project" } else { "" };
    (found.count > 0)
        .then(|| format!("{}{of}{more}", number::format_counted_noun(found.count, "trajectory", "trajectories")))
}

impl FutureTraceNotice {
    /// Builds the notice; None without such traces.
    fn from_count(count: u64, choice: &OverviewQuery, time: &OverviewTimeRange) -> Option<FutureTraceNotice> {
        let more = if count >= MAX_COUNTED_AHEAD as u64 { " or more" } else { "" };
        (count > 0).then(|| FutureTraceNotice {
            words: format!("{}{more}", number::format_counted_noun(count, "trace", "traces")),
            href: PageUrl::from_path("/traces")
                .with("project", choice.project.as_deref())
                .with("from", Some(&show_time(time.ahead_ns)))
                .to_string(),
        })
    }
}

impl FailingTaskRow {
    /// Links to the wrong step of one of the trajectories.
    fn from_row(row: &TaskRow) -> FailingTaskRow {
        FailingTaskRow {
            query: text::format_display_line(&row.query),
            href: loaded_trace::format_step_url(&format!("{:032x}", row.trace_id), Some(&row.trajectory_id), row.step),
            wrong: format!("{} of {}", format_count(row.wrong), format_count(row.scored)),
            trajectories: format_count(row.trajectories),
        }
    }
}

#[cfg(test)]
mod tests {
    use gradus_store::LatestOverview;

    use super::*;
    use crate::page::asset;
    use crate::page::gzip::compress_gzip;
    use crate::settings::ReloadableSettings;

    /// Eight dimensions over forty periods, three hundred projects and as many names as there can be.
    #[test]
    fn the_first_page_is_small_however_much_there_is_to_show() {
        let settings = ReloadableSettings::without_rules();
        let day = 86_400_000_000_000;
        let now = 20_000 * day;
        let time = OverviewTimeRange::from_preset(TimeRangePreset::Month, now);
        let mut random = fastrand::Rng::with_seed(1);
        let mut rows = Vec::new();
        for evaluator in 0..8 {
            for period in 0..40 {
                let scored = random.i64(20..900);
                let sum = (scored as f64 * random.f64()).round();
                let moments = ScoreMoments {
                    trajectories: scored,
                    scored_trajectories: scored,
                    scored,
                    sum,
                    sum_sum: sum,
                    sum_n: sum,
                    n_n: scored as f64,
                    failed: random.i64(0..9),
                    not_applicable: 0,
                    abstained: 0,
                };
                let evaluator = format!("dimension_{evaluator}");
                rows.push(MetricPeriod { evaluator, start_ns: now - (40 - period) * day, moments });
            }
        }
        let mut name = |number: usize| format!("{number}-{:016x}", random.u64(..));
        let mut names = |count: usize| -> Vec<String> { (0..count).map(&mut name).collect() };
        let usage: Vec<(i64, TrajectoryUsage)> = (0..40)
            .map(|period| {
                let usage =
                    TrajectoryUsage { trajectories: 7, took_ns: 1e9 * period as f64, ..TrajectoryUsage::default() };
                (now - (40 - period) * day, usage)
            })
            .collect();
        let choice = OverviewQuery::default();
        let traces = choice.traces_url(&time, false);
        let cards = sum_by_evaluator(rows.iter())
            .iter()
            .map(|(name, sum)| DimensionTrendCard::from_moments(&settings, name, sum, Some(sum), None, &traces))
            .collect();
        let page = OverviewPage {
            frame: PageLayout::new("/", None, &HeaderMap::new()),
            projects: build_project_options(names(300), None),
            selects: ["agent", "version", "model"]
                .map(|name| FilterDropdown { name, title: name, options: build_project_options(names(200), None) })
                .into(),
            ranges: Vec::new(),
            without_days: None,
            endings: None,
            failures: FailureGroupTable { rows: Vec::new(), more: None, all: None },
            cards,
            inapplicable: None,
            period: "day",
            versions_href: String::new(),
            series: metric_timeline::build_all_series(
                &settings,
                &ChartAlerts::default(),
                None,
                rows.iter(),
                &time,
                now,
            ),
            uncharted: None,
            has_alarms: false,
            is_cut: false,
            ahead: None,
            waiting: None,
            is_judging_paused: false,
            stored_since: None,
            graded_of_all: None,
            tools: ToolUsageTable::empty(),
            tasks: Vec::new(),
            amounts: UsageOverview::new(1, &LatestOverview::default(), &usage, None, &time, now),
            traces: traces.to_string(),
            choice,
        };
        let text = page.render().unwrap();
        assert!(text.matches("<circle class=\"dot\"").count() >= 8 * 40 * 2);
        let packed = compress_gzip(text.as_bytes()).unwrap().len();
        let files: usize =
            asset::list_asset_texts().map(|text| compress_gzip(text.as_bytes()).unwrap().len()).into_iter().sum();
        assert!(packed + files < 100_000, "{packed} and {files}");
    }
}
