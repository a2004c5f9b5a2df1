//! The first page: how well agents do, now and over time, with which tools and at which tasks they fail, and what it costs.

use crate::page::metric_value::metric;
use std::collections::BTreeMap;
use std::sync::Arc;

use askama::Template;
use axum::extract::State;
use axum::http::{HeaderMap, StatusCode};
use axum::response::Response;
use gradus_eval::report::Metric;
use gradus_store::{MetricFilter, MetricPeriod, Moments, NameKind, TaskRow, Usage, Waiting};
use serde::Deserialize;

use super::address::Address;
use super::amounts::Amounts;
use super::answer::{self, Asked, PageError};
use super::opened;
use super::over_time::{self, Range, Series, Time};
use super::tools::Tools;
use super::words::second;
use super::{Choosable, Frame, choosable};
use crate::clock::now_ns;
use crate::evaluators::is_wrong;
use crate::http_error::{ApiError, blocking};
use crate::queries;
use crate::settings::Reloadable;
use crate::state::Server;
use crate::time_text::show as show_time;
use gradus_report::html::number::{self, count};
use gradus_report::html::text;
use gradus_report::html::view::metrics::Card;

const MAX_TASKS: usize = 8;
/// Traces from the future that are counted.
const MAX_AHEAD: usize = 1_000;
/// Trajectories that wait for a model and are counted.
const MAX_WAITING: usize = 10_000;
/// Names that can be chosen among.
const MAX_NAMES: usize = 200;

#[derive(Clone, Default, Deserialize)]
#[serde(default)]
pub(super) struct Choice {
    project: Option<String>,
    agent: Option<String>,
    version: Option<String>,
    model: Option<String>,
    range: Option<String>,
    /// Days, in place of a range: what is shared stays what it was.
    from: Option<String>,
    to: Option<String>,
}

#[derive(Template)]
#[template(path = "overview.html")]
struct Page {
    frame: Frame,
    choice: Choice,
    projects: Vec<Choosable>,
    selects: Vec<Select>,
    ranges: Vec<Choosable>,
    /// The same without days, where days are given.
    without_days: Option<String>,
    cards: Vec<Dimension>,
    series: Vec<Series>,
    has_alarms: bool,
    /// Not all of the time could be looked at.
    is_cut: bool,
    /// Trajectories that a model has still to judge.
    waiting: Option<String>,
    /// Why what waits is not judged.
    stands_still: bool,
    /// Sums know of trajectories that are not kept any more: from when on they are.
    kept_from: Option<String>,
    /// In how many trajectories the dimension was judged that was judged most, and how many there are, where that differs.
    of_graded: Option<(String, String)>,
    ahead: Option<Ahead>,
    tools: Tools,
    tasks: Vec<Task>,
    amounts: Amounts,
    traces: String,
}

/// Traces whose clock is ahead of ours: they count nowhere on this page.
struct Ahead {
    words: String,
    href: String,
}

struct Select {
    name: &'static str,
    title: &'static str,
    options: Vec<Choosable>,
}

struct Dimension {
    card: Card,
    /// Against the time before; none where there is nothing to compare with.
    trend: Option<Trend>,
    /// Where the traces are that were found wrong.
    wrong: Option<String>,
}

struct Trend {
    class: &'static str,
    text: String,
}

struct Task {
    query: String,
    href: String,
    wrong: String,
    trajectories: String,
}

pub(super) async fn page(
    State(server): State<Arc<Server>>,
    headers: HeaderMap,
    Asked(choice): Asked<Choice>,
) -> Result<Response, PageError> {
    let choice = choice.without_blanks();
    let range = Range::named(choice.range.as_deref().unwrap_or("7d"))
        .ok_or_else(|| ApiError::bad("range: 24h, 7d, 30d or all"))?;
    let now = now_ns();
    let time = if choice.has_days() {
        Time::between(choice.from.as_deref(), choice.to.as_deref(), now).map_err(ApiError::bad)?
    } else {
        Time::last(range, now)
    };
    let frame = Frame::of("/", choice.project.as_deref(), &headers);
    let asked = format!("{} {} {:?}", frame.is_signed_in, range.name(), choice.all());
    // It is made once for all who ask for it, also when the first of them goes away.
    let kept = tokio::spawn(queries::with_caller(queries::current_caller(), async move {
        let make = blocking(&server, move |server| {
            let page = made(server, choice, range, &time, now, frame)?;
            page.render().map_err(|_| unmade())
        });
        server.kept_pages.page(asked, make).await
    }));
    Ok(answer::made(kept.await.unwrap_or_else(|_| Err(unmade()))?))
}

fn unmade() -> ApiError {
    ApiError::new(StatusCode::INTERNAL_SERVER_ERROR, "The page could not be made.")
}

fn made(
    server: &Server,
    choice: Choice,
    range: Range,
    time: &Time,
    now: i64,
    frame: Frame,
) -> Result<Page, ApiError> {
    let settings = server.reloadable();
    let store = &server.store;
    let filter = MetricFilter {
        project: choice.project.clone(),
        agent: choice.agent.clone(),
        version: choice.version.clone(),
        model: choice.model.clone(),
        from_ns: time.from_ns,
        to_ns: Some(time.until_ns),
        ..MetricFilter::default()
    };
    // One look at the sums, for this time and for the time before.
    let wide = MetricFilter { from_ns: time.before_ns.or(time.from_ns), ..filter.clone() };
    let periods = store.metric_periods(&wide, time.period_ns)?;
    let is_current = |row: &&MetricPeriod| time.from_ns.is_none_or(|from| row.start_ns >= from);
    let current = summed(periods.rows.iter().filter(is_current));
    let before = summed(periods.rows.iter().filter(|row| !is_current(row)));
    // Of who asks for the future nothing is left out.
    let ahead = match time.is_ahead() {
        true => 0,
        false => store.traces_since(choice.project.as_deref(), time.ahead_ns, MAX_AHEAD)?,
    };
    let traces = choice.traces(time, ahead > 0);
    let cards = current
        .iter()
        .map(|(name, moments)| Dimension::of(&settings, name, moments, before.get(name), &traces))
        .collect();
    let graded = current.values().map(|moments| moments.trajectories).max().unwrap_or(0).unsigned_abs();
    let series = over_time::series(
        &settings,
        choice.project.as_deref(),
        periods.rows.iter().filter(is_current),
        time,
        now,
    );
    let latest = store.latest(&filter, MAX_TASKS)?;
    let usage = store.usage_periods(&filter, time.period_ns)?;
    let is_up_to_now = time.to_ns.is_none();
    let spent = Some(time.from_ns.unwrap_or(0))
        // What judging cost is not known by agent, version and model.
        .filter(|_| is_up_to_now && !choice.has_names())
        .map(|from| store.spent_since(from, None, choice.project.as_deref()));
    let selects = [
        ("agent", "Agent", NameKind::Agent, &choice.agent),
        ("version", "Version", NameKind::Version, &choice.version),
        ("model", "Model", NameKind::Model, &choice.model),
    ];
    let select = |(name, title, kind, chosen): (_, _, NameKind, &Option<String>)| {
        let names = store.names(&filter, kind, MAX_NAMES)?;
        Ok::<_, ApiError>(Select { name, title, options: choosable(names, chosen.as_deref()) })
    };
    Ok(Page {
        frame,
        projects: choosable(store.project_names()?, choice.project.as_deref()),
        selects: selects.into_iter().map(select).collect::<Result<_, _>>()?,
        ranges: Range::ALL
            .map(|one| Choosable {
                name: one.name().to_owned(),
                title: one.title().to_owned(),
                is_chosen: one == range,
            })
            .into(),
        without_days: choice
            .has_days()
            .then(|| choice.address().but("from", None).but("to", None).to_string()),
        cards,
        has_alarms: series.iter().any(|one| one.has_alarm),
        series,
        is_cut: periods.is_cut || usage.is_cut,
        ahead: Ahead::of(ahead, &choice, time),
        waiting: waiting(store.waiting(choice.project.as_deref(), MAX_WAITING)?, choice.project.is_some()),
        stands_still: settings.rules.iter().any(|rule| {
            let fits = choice.project.as_deref().is_none_or(|project| rule.fits(project));
            fits && server.standstills.of(&rule.name).is_some()
        }),
        kept_from: kept_from(store.first_start(choice.project.as_deref())?, &usage.rows, time.period_ns),
        of_graded: of_graded(graded, &usage.rows),
        tools: Tools::of(store, &settings, &filter, &traces)?,
        tasks: latest.tasks.iter().map(Task::of).collect(),
        amounts: Amounts::of(graded, &latest, &usage.rows, spent.transpose()?, time, now),
        traces: traces.to_string(),
        choice,
    })
}

fn summed<'r>(rows: impl Iterator<Item = &'r MetricPeriod>) -> BTreeMap<&'r str, Moments> {
    let mut sums: BTreeMap<&str, Moments> = BTreeMap::new();
    for row in rows {
        *sums.entry(&row.evaluator).or_default() += row.moments;
    }
    sums
}

impl Choice {
    fn without_blanks(mut self) -> Choice {
        let all = [
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

    fn has_names(&self) -> bool {
        [&self.agent, &self.version, &self.model].iter().any(|name| name.is_some())
    }

    fn has_days(&self) -> bool {
        self.from.is_some() || self.to.is_some()
    }

    fn all(&self) -> [(&'static str, &Option<String>); 7] {
        [
            ("project", &self.project),
            ("agent", &self.agent),
            ("version", &self.version),
            ("model", &self.model),
            ("range", &self.range),
            ("from", &self.from),
            ("to", &self.to),
        ]
    }

    fn address(&self) -> Address {
        self.all()
            .into_iter()
            .fold(Address::of("/"), |address, (name, value)| address.with(name, value.as_deref()))
    }

    /// The list of the traces that are looked at.
    fn traces(&self, time: &Time, has_ahead: bool) -> Address {
        // Without an end the list goes on with what arrives; what does not count is not in it.
        let to_ns = if has_ahead { Some(time.until_ns) } else { time.to_ns };
        let of = |ns: Option<i64>| ns.map(show_time);
        Address::of("/traces")
            .with("project", self.project.as_deref())
            .with("agent", self.agent.as_deref())
            .with("version", self.version.as_deref())
            .with("model", self.model.as_deref())
            .with("from", of(time.from_ns).as_deref())
            .with("to", of(to_ns).as_deref())
    }
}

/// When the first trajectory that is kept began, where sums go back further than that.
fn kept_from(first_ns: Option<i64>, usage: &[(i64, Usage)], period_ns: i64) -> Option<String> {
    let (begins_ns, _) = usage.first()?;
    match first_ns {
        None => Some("none of them is".to_owned()),
        Some(first) => {
            (first >= begins_ns.saturating_add(period_ns)).then(|| format!("from {} on", second(first)))
        }
    }
}

/// In how many the dimension was judged that was judged most, and how many there are. Of how many any was judged sums do not
/// know: rules of different projects judge different dimensions.
fn of_graded(graded: u64, usage: &[(i64, Usage)]) -> Option<(String, String)> {
    let all: i64 = usage.iter().map(|(_, usage)| usage.trajectories).sum();
    let all = u64::try_from(all).unwrap_or(0);
    (graded < all).then(|| (number::count(graded), number::count(all)))
}

fn waiting(found: Waiting, is_of_project: bool) -> Option<String> {
    let more = if found.is_cut { " or more" } else { "" };
    let of = if is_of_project { " of this project" } else { "" };
    (found.count > 0)
        .then(|| format!("{}{of}{more}", number::counted(found.count, "trajectory", "trajectories")))
}

impl Ahead {
    fn of(count: u64, choice: &Choice, time: &Time) -> Option<Ahead> {
        let more = if count >= MAX_AHEAD as u64 { " or more" } else { "" };
        (count > 0).then(|| Ahead {
            words: format!("{}{more}", number::counted(count, "trace", "traces")),
            href: Address::of("/traces")
                .with("project", choice.project.as_deref())
                .with("from", Some(&show_time(time.ahead_ns)))
                .to_string(),
        })
    }
}

impl Dimension {
    fn of(
        settings: &Reloadable,
        evaluator: &str,
        now: &Moments,
        before: Option<&Moments>,
        traces: &Address,
    ) -> Dimension {
        let now = metric(settings, evaluator, now);
        let before = before.map(|before| metric(settings, evaluator, before));
        Dimension {
            trend: Trend::of(&now, before.as_ref()),
            wrong: (now.value.is_some_and(|mean| is_wrong(settings, evaluator, mean)))
                .then(|| traces.clone().with("wrong", Some(evaluator)).to_string()),
            card: Card::of(&now, false, ""),
        }
    }
}

impl Trend {
    fn of(now: &Metric, before: Option<&Metric>) -> Option<Trend> {
        let (value, earlier) = (now.value?, before?.value?);
        let change = value - earlier;
        // Shares in points of a hundred, others on the scale that they have.
        let points = |by: f64| {
            if now.is_share { format!("{:.1} points", 100.0 * by) } else { number::score(by) }
        };
        let (class, word) = match change {
            change if change.abs() < if now.is_share { 0.0005 } else { 0.005 } => {
                ("same", "as in the time before".to_owned())
            }
            change if change > 0.0 => ("up", format!("▲ {} above the time before", points(change))),
            change => ("down", format!("▼ {} below the time before", points(-change))),
        };
        // Where the intervals meet, it may be chance.
        let is_sure = match (now.interval, before.and_then(|before| before.interval)) {
            (Some(a), Some(b)) => a.low > b.high || b.low > a.high,
            _ => false,
        };
        let unsure = if is_sure || class == "same" { "" } else { ", which may be chance" };
        Some(Trend { class: if is_sure { class } else { "same" }, text: format!("{word}{unsure}") })
    }
}

impl Task {
    fn of(row: &TaskRow) -> Task {
        Task {
            query: text::line(&row.query),
            href: opened::step_address(&format!("{:032x}", row.trace_id), Some(&row.trajectory_id), row.step),
            wrong: format!("{} of {}", count(row.wrong), count(row.scored)),
            trajectories: count(row.trajectories),
        }
    }
}

#[cfg(test)]
mod tests {
    use gradus_store::Latest;

    use super::*;
    use crate::page::asset;
    use crate::page::packed::gzip;

    /// Eight dimensions over forty periods, three hundred projects and as many names as there can be.
    #[test]
    fn the_first_page_is_small_however_much_there_is_to_show() {
        let settings = Reloadable::plain();
        let day = 86_400_000_000_000;
        let now = 20_000 * day;
        let time = Time::last(Range::Month, now);
        let mut random = fastrand::Rng::with_seed(1);
        let mut rows = Vec::new();
        for evaluator in 0..8 {
            for period in 0..40 {
                let scored = random.i64(20..900);
                let sum = (scored as f64 * random.f64()).round();
                let moments = Moments {
                    trajectories: scored,
                    scored_trajectories: scored,
                    scored,
                    sum,
                    sum_sum: sum,
                    sum_n: sum,
                    n_n: scored as f64,
                    failed: random.i64(0..9),
                    not_applicable: 0,
                };
                let evaluator = format!("dimension_{evaluator}");
                rows.push(MetricPeriod { evaluator, start_ns: now - (40 - period) * day, moments });
            }
        }
        let mut name = |number: usize| format!("{number}-{:016x}", random.u64(..));
        let mut names = |count: usize| -> Vec<String> { (0..count).map(&mut name).collect() };
        let usage: Vec<(i64, Usage)> = (0..40)
            .map(|period| {
                let usage = Usage { trajectories: 7, took_ns: 1e9 * period as f64, ..Usage::default() };
                (now - (40 - period) * day, usage)
            })
            .collect();
        let choice = Choice::default();
        let traces = choice.traces(&time, false);
        let cards = summed(rows.iter())
            .iter()
            .map(|(name, sum)| Dimension::of(&settings, name, sum, Some(sum), &traces))
            .collect();
        let page = Page {
            frame: Frame::of("/", None, &HeaderMap::new()),
            projects: choosable(names(300), None),
            selects: ["agent", "version", "model"]
                .map(|name| Select { name, title: name, options: choosable(names(200), None) })
                .into(),
            ranges: Vec::new(),
            without_days: None,
            cards,
            series: over_time::series(&settings, None, rows.iter(), &time, now),
            has_alarms: false,
            is_cut: false,
            ahead: None,
            waiting: None,
            stands_still: false,
            kept_from: None,
            of_graded: None,
            tools: Tools::none(),
            tasks: Vec::new(),
            amounts: Amounts::of(1, &Latest::default(), &usage, None, &time, now),
            traces: traces.to_string(),
            choice,
        };
        let text = page.render().unwrap();
        assert!(text.matches("<circle class=\"dot\"").count() >= 8 * 40 * 2);
        let packed = gzip(text.as_bytes()).unwrap().len();
        let files: usize = asset::texts().map(|text| gzip(text.as_bytes()).unwrap().len()).into_iter().sum();
        assert!(packed + files < 100_000, "{packed} and {files}");
    }
}
