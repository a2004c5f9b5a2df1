//! The first page: how well agents do, now and over time, with which tools and at which tasks they fail, and what it costs.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Instant;

use askama::Template;
use axum::extract::State;
use axum::http::{HeaderMap, StatusCode};
use axum::response::Response;
use gradus_eval::evaluator::{CALL_VALIDITY, THOUGHT_TO_TOOL};
use gradus_eval::interval::{Sums, of_sums};
use gradus_eval::report::Metric;
use gradus_store::{MetricCell, MetricFilter, Moments, TaskRow, Totals};
use serde::Deserialize;

use super::address::Address;
use super::answer::{self, PageError};
use super::over_time::{self, Range, Series};
use super::words::{duration, title};
use super::{Choosable, Frame, choosable};
use crate::output::html::charts::{Axis, Bar, Chart, Fill, Part, bars};
use crate::output::html::number::{self, count};
use crate::output::html::text;
use crate::output::html::view::metrics::Card;
use crate::serve::api::{ApiError, Params, blocking};
use crate::serve::settings::Reloadable;
use crate::serve::state::{Server, now_ns};

const MOST_TOOLS: usize = 12;
const MOST_TASKS: usize = 8;
/// Names that can be chosen among.
const MOST_NAMES: usize = 200;

#[derive(Clone, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub(super) struct Choice {
    project: Option<String>,
    agent: Option<String>,
    version: Option<String>,
    model: Option<String>,
    range: Option<String>,
}

#[derive(Template)]
#[template(path = "overview.html")]
struct Page {
    frame: Frame,
    projects: Vec<Choosable>,
    selects: Vec<Select>,
    ranges: Vec<Choosable>,
    cards: Vec<Dimension>,
    series: Vec<Series>,
    has_alarms: bool,
    tools: Vec<Tool>,
    tool_chart: Chart,
    tasks: Vec<Task>,
    facts: Vec<(&'static str, String)>,
    is_cut: bool,
    traces: String,
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

struct Tool {
    name: String,
    href: String,
    calls: String,
    choice: Option<String>,
    valid: Option<String>,
    unjudged: String,
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
    Params(choice): Params<Choice>,
) -> Result<Response, PageError> {
    let range = Range::named(choice.range.as_deref().filter(|range| !range.is_empty()).unwrap_or("7d"))
        .ok_or_else(|| ApiError::bad("range: 24h, 7d, 30d or all"))?;
    let blank = |text: Option<String>| text.filter(|text| !text.is_empty());
    let choice = Choice {
        project: blank(choice.project),
        agent: blank(choice.agent),
        version: blank(choice.version),
        model: blank(choice.model),
        range: choice.range,
    };
    let frame = Frame::of("/", choice.project.as_deref(), &headers);
    let asked = format!("{} {} {:?}", frame.is_signed_in, range.name(), choice.names());
    if let Some(text) = server.kept_pages.get(&asked) {
        return Ok(answer::made(text));
    }
    let begun = Instant::now();
    let text = blocking(&server, move |server| {
        let page = made(server, &choice, range, frame)?;
        page.render()
            .map_err(|_| ApiError::new(StatusCode::INTERNAL_SERVER_ERROR, "The page could not be made."))
    })
    .await?;
    server.kept_pages.put(asked, &text, begun);
    Ok(answer::made(text))
}

fn made(server: &Server, choice: &Choice, range: Range, frame: Frame) -> Result<Page, ApiError> {
    let settings = server.reloadable();
    let store = &server.store;
    let now = now_ns();
    let filter = MetricFilter {
        project: choice.project.clone(),
        agent: choice.agent.clone(),
        version: choice.version.clone(),
        model: choice.model.clone(),
        from_ns: range.start_ns(now),
        ..MetricFilter::default()
    };
    // One look at the sums for all that is made of them.
    let wide = MetricFilter {
        project: filter.project.clone(),
        from_ns: range.before(now).or_else(|| range.start_ns(now)),
        ..MetricFilter::default()
    };
    let cells = store.metric_cells(&wide, range.period_ns())?;
    let is_current = |cell: &&MetricCell| filter.from_ns.is_none_or(|from| cell.start_ns >= from);
    let fitting: Vec<&MetricCell> = cells.iter().filter(|cell| choice.fits(cell, "")).collect();
    let current = summed(fitting.iter().copied().filter(is_current));
    let before = summed(fitting.iter().copied().filter(|cell| !is_current(cell)));
    let cards = current
        .iter()
        .map(|(name, moments)| Dimension::of(&settings, name, moments, before.get(name), choice))
        .collect();
    let graded = current.values().map(|moments| moments.trajectories).max().unwrap_or(0).unsigned_abs();
    let series =
        over_time::series(&settings, &filter, fitting.iter().copied().filter(is_current), range, now);
    let mut uses = Vec::new();
    for evaluator in [THOUGHT_TO_TOOL, CALL_VALIDITY] {
        let filter = MetricFilter { evaluator: Some(evaluator.to_owned()), ..filter.clone() };
        uses.extend(store.tool_metrics(&filter)?);
    }
    let tools = tools(uses.iter().map(|row| (row.evaluator.as_str(), row.group.as_str(), &row.moments)));
    let totals = store.totals(&filter)?;
    let spent = range.start_ns(now).map(|from| store.spent_since(from, None, choice.project.as_deref()));
    let tasks = store.worst_tasks(&filter, MOST_TASKS)?;
    Ok(Page {
        frame,
        projects: choosable(store.project_names()?, choice.project.as_deref()),
        selects: selects(choice, &cells.iter().filter(is_current).collect::<Vec<_>>()),
        ranges: Range::ALL
            .map(|one| Choosable {
                name: one.name().to_owned(),
                title: one.title().to_owned(),
                is_chosen: one == range,
            })
            .into(),
        cards,
        has_alarms: series.iter().any(|one| one.has_alarm),
        series,
        tool_chart: tool_chart(&tools),
        tools: tools.iter().take(MOST_TOOLS).map(|tool| tool.shown(choice)).collect(),
        tasks: tasks.iter().map(Task::of).collect(),
        is_cut: totals.is_cut,
        facts: facts(graded, &totals, spent.transpose()?),
        traces: Address::of("/traces").with("project", choice.project.as_deref()).to_string(),
    })
}

fn summed<'c>(cells: impl Iterator<Item = &'c MetricCell>) -> BTreeMap<&'c str, Moments> {
    let mut sums: BTreeMap<&str, Moments> = BTreeMap::new();
    for cell in cells {
        *sums.entry(&cell.evaluator).or_default() += cell.moments;
    }
    sums
}

impl Choice {
    fn names(&self) -> [&Option<String>; 4] {
        [&self.project, &self.agent, &self.version, &self.model]
    }

    /// Whether trajectories are looked at; one of the choices can be left out of account.
    fn fits(&self, cell: &MetricCell, but: &str) -> bool {
        let named = [
            ("agent", &self.agent, &cell.agent),
            ("version", &self.version, &cell.version),
            ("model", &self.model, &cell.model),
        ];
        let fits =
            |wanted: &Option<String>, value: &String| wanted.as_ref().is_none_or(|wanted| wanted == value);
        named.into_iter().all(|(name, wanted, value)| name == but || fits(wanted, value))
    }
}

/// What there is to choose among, of what was graded in this time.
fn selects(choice: &Choice, cells: &[&MetricCell]) -> Vec<Select> {
    type Get = fn(&MetricCell) -> &String;
    let all: [(&str, &str, Get, &Option<String>); 3] = [
        ("agent", "Agent", |cell| &cell.agent, &choice.agent),
        ("version", "Version", |cell| &cell.version, &choice.version),
        ("model", "Model", |cell| &cell.model, &choice.model),
    ];
    let select = |(name, title, get, chosen): (&'static str, &'static str, Get, &Option<String>)| {
        let fitting = cells.iter().filter(|cell| choice.fits(cell, name));
        let names: BTreeSet<&String> =
            fitting.map(|cell| get(cell)).filter(|name| !name.is_empty()).collect();
        let names = names.into_iter().take(MOST_NAMES).cloned().collect();
        Select { name, title, options: choosable(names, chosen.as_deref()) }
    };
    all.into_iter().map(select).collect()
}

/// A metric as reports have it.
pub(super) fn metric(settings: &Reloadable, evaluator: &str, moments: &Moments) -> Metric {
    let sums = Sums {
        count: moments.scored as f64,
        sum: moments.sum,
        sum_sum: moments.sum_sum,
        sum_count: moments.sum_n,
        count_count: moments.n_n,
    };
    let positive = |number: i64| u64::try_from(number).unwrap_or(0);
    let is_share =
        super::words::labels(settings, evaluator).iter().all(|(_, score)| (0.0..=1.0).contains(score));
    Metric {
        name: evaluator.to_owned(),
        title: title(settings, evaluator),
        judge: String::new(),
        value: (moments.scored > 0).then(|| moments.sum / moments.scored as f64),
        interval: of_sums(&sums).filter(|_| is_share),
        is_share,
        numerator: moments.sum,
        denominator: positive(moments.scored),
        failed: positive(moments.failed),
        not_applicable: positive(moments.not_applicable),
        labels: BTreeMap::new(),
    }
}

impl Dimension {
    fn of(
        settings: &Reloadable,
        evaluator: &str,
        now: &Moments,
        before: Option<&Moments>,
        choice: &Choice,
    ) -> Dimension {
        let now = metric(settings, evaluator, now);
        let before = before.map(|before| metric(settings, evaluator, before));
        let worst = super::words::labels(settings, evaluator).pop();
        Dimension {
            trend: Trend::of(&now, before.as_ref()),
            wrong: worst.filter(|_| now.numerator < now.denominator as f64).map(|(label, _)| {
                Address::of("/traces")
                    .with("project", choice.project.as_deref())
                    .with("agent", choice.agent.as_deref())
                    .with("model", choice.model.as_deref())
                    .with("label", Some(&format!("{evaluator}={label}")))
                    .to_string()
            }),
            card: Card::of(&now, false, ""),
        }
    }
}

impl Trend {
    fn of(now: &Metric, before: Option<&Metric>) -> Option<Trend> {
        let (value, earlier) = (now.value?, before?.value?);
        let change = 100.0 * (value - earlier);
        let (class, word) = match change {
            change if change.abs() < 0.05 => ("same", "as in the time before".to_owned()),
            change if change > 0.0 => ("up", format!("▲ {change:.1} points above the time before")),
            change => ("down", format!("▼ {:.1} points below the time before", -change)),
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

/// What is known of a tool.
#[derive(Default)]
struct Use {
    name: String,
    choice: Moments,
    valid: Moments,
}

fn tools<'r>(rows: impl Iterator<Item = (&'r str, &'r str, &'r Moments)>) -> Vec<Use> {
    let mut by_name: BTreeMap<&str, Use> = BTreeMap::new();
    for (evaluator, tool, moments) in rows {
        let known = by_name.entry(tool).or_insert_with(|| Use { name: tool.to_owned(), ..Use::default() });
        match evaluator {
            THOUGHT_TO_TOOL => known.choice += *moments,
            CALL_VALIDITY => known.valid += *moments,
            _ => {}
        }
    }
    let mut all: Vec<Use> = by_name.into_values().collect();
    // Those with the most that is wrong first.
    let wrong = |known: &Use| {
        let points = [known.choice, known.valid].map(|one| one.scored as f64 - one.sum);
        points[0] + points[1]
    };
    all.sort_by(|a, b| wrong(b).total_cmp(&wrong(a)).then(b.calls().cmp(&a.calls())));
    all
}

impl Use {
    fn calls(&self) -> i64 {
        [self.choice, self.valid]
            .map(|one| one.scored + one.failed + one.not_applicable)
            .into_iter()
            .max()
            .unwrap_or(0)
    }

    fn shown(&self, choice: &Choice) -> Tool {
        let share = |one: &Moments| (one.scored > 0).then(|| number::percent(one.sum / one.scored as f64));
        let unjudged = self.calls() - self.choice.scored;
        Tool {
            name: text::line(&self.name),
            href: Address::of("/traces")
                .with("project", choice.project.as_deref())
                .with("tool", Some(&self.name))
                .to_string(),
            calls: count(u64::try_from(self.calls()).unwrap_or(0)),
            choice: share(&self.choice),
            valid: share(&self.valid),
            unjudged: count(u64::try_from(unjudged).unwrap_or(0)),
        }
    }
}

fn tool_chart(tools: &[Use]) -> Chart {
    let rows: Vec<Bar> = tools
        .iter()
        .take(MOST_TOOLS)
        .map(|tool| {
            let right = tool.choice.sum;
            let part = |fill, value| Part { fill, value };
            Bar {
                label: text::line(&tool.name),
                parts: vec![
                    part(Fill::Right, right),
                    part(Fill::Wrong, (tool.choice.scored as f64 - right).max(0.0)),
                    part(Fill::Unjudged, (tool.calls() - tool.choice.scored).max(0) as f64),
                ],
                below: None,
                note: count(u64::try_from(tool.calls()).unwrap_or(0)),
                nothing: None,
            }
        })
        .collect();
    let axis = Axis { title: "calls", whole: true, format: |value| count(value as u64) };
    bars(&rows, axis, "Calls of each tool, by whether the choice was right. The table has the same numbers.")
}

impl Task {
    fn of(row: &TaskRow) -> Task {
        Task {
            query: text::line(&row.query),
            href: Address::of(format!("/traces/{:032x}", row.trace_id))
                .with("trajectory", Some(&row.trajectory_id))
                .to_string(),
            wrong: format!("{} of {}", count(row.wrong), count(row.scored)),
            trajectories: count(row.trajectories),
        }
    }
}

fn facts(graded: u64, totals: &Totals, judging_usd: Option<f64>) -> Vec<(&'static str, String)> {
    let rank = |share: f64| {
        let last = totals.durations_ns.len().checked_sub(1)?;
        totals.durations_ns.get((share * last as f64).round() as usize).map(|ns| duration(*ns))
    };
    let of_all = |number: u64| format!("{} of {}", count(number), count(totals.trajectories));
    let mut facts = vec![
        ("Graded trajectories", count(graded)),
        ("Ended in an error", of_all(totals.errors)),
        ("Steps", count(totals.steps)),
    ];
    facts.extend(rank(0.5).map(|time| ("Took, median", time)));
    facts.extend(rank(0.95).map(|time| ("Took, 95 of 100 less than", time)));
    facts.push(("Tokens of agents", count(totals.tokens)));
    facts.push(("Cost of agents", totals.cost_usd.map_or_else(|| "not recorded".to_owned(), number::usd)));
    facts.extend(judging_usd.map(|cost| ("Cost of judging", number::usd(cost))));
    facts
}
