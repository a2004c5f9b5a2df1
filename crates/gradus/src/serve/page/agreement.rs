//! How far people agree with the judge, dimension by dimension, and every label for whoever wants to look closer.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use askama::Template;
use axum::extract::State;
use axum::http::header::{CACHE_CONTROL, CONTENT_DISPOSITION, CONTENT_TYPE};
use axum::http::{HeaderMap, HeaderValue};
use axum::response::{IntoResponse, Response};
use gradus_eval::agreement::{Pair, agreement};
use gradus_store::LabelRow;
use serde::Deserialize;
use serde_json::json;

use super::address::Address;
use super::answer::{self, PageError};
use super::verdict::place;
use super::words::{labels, second, title};
use super::{Choosable, Frame, choosable};
use crate::output::csv::harmless;
use crate::output::html::charts::{Chart, IntervalBar, interval_bars};
use crate::output::html::number::{self, count};
use crate::output::html::text;
use crate::serve::api::{ApiError, Params, blocking, show_time};
use crate::serve::settings::Reloadable;
use crate::serve::state::Server;

/// Labels that are looked at beside a verdict, where the next one is waited for.
pub(super) const FEW: usize = 2_000;
/// Labels that are looked at, the latest.
const MOST: usize = 20_000;
/// Disagreements that are listed.
const MOST_LISTED: usize = 50;

#[derive(Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub(super) struct Choice {
    project: Option<String>,
    format: Option<String>,
}

/// A dimension as people and the judge see it.
pub(super) struct Dimension {
    pub(super) title: String,
    pub(super) kappa: Option<String>,
    pub(super) interval: Option<String>,
    /// Why there is no kappa.
    pub(super) note: &'static str,
    pub(super) agreed: String,
    pub(super) share: String,
    pub(super) people: String,
    /// The judge's labels down, people's across.
    pub(super) labels: Vec<String>,
    pub(super) table: Vec<(String, Vec<String>)>,
    value: Option<f64>,
    bounds: Option<gradus_eval::interval::Interval>,
}

struct Disagreement {
    href: String,
    what: String,
    judge: String,
    person: String,
    author: String,
    note: Option<String>,
    when: String,
}

#[derive(Template)]
#[template(path = "agreement.html")]
struct Page {
    frame: Frame,
    projects: Vec<Choosable>,
    dimensions: Vec<Dimension>,
    chart: Chart,
    disagreements: Vec<Disagreement>,
    count: String,
    is_cut: bool,
    jsonl: String,
    csv: String,
    review: String,
}

/// The latest labels.
pub(super) fn rows(server: &Server, project: Option<&str>, most: usize) -> Result<Vec<LabelRow>, ApiError> {
    Ok(server.store.labels(project, most)?)
}

pub(super) async fn page(
    State(server): State<Arc<Server>>,
    headers: HeaderMap,
    Params(choice): Params<Choice>,
) -> Result<Response, PageError> {
    let project = choice.project.filter(|name| !name.is_empty());
    let wanted = project.clone();
    let (rows, projects) = blocking(&server, move |server| {
        Ok((rows(server, wanted.as_deref(), MOST)?, server.store.project_names()?))
    })
    .await?;
    let settings = server.reloadable();
    let dimensions = dimensions(&settings, &rows);
    let export = Address::of("/labels").with("project", project.as_deref());
    let page = Page {
        frame: Frame::of("/review", project.as_deref(), &headers),
        projects: choosable(projects, project.as_deref()),
        chart: chart(&dimensions),
        dimensions,
        disagreements: disagreements(&settings, &rows),
        count: count(rows.len() as u64),
        is_cut: rows.len() == MOST,
        jsonl: export.but("format", Some("jsonl")).to_string(),
        csv: export.but("format", Some("csv")).to_string(),
        review: Address::of("/review").with("project", project.as_deref()).to_string(),
    };
    Ok(answer::page(&page))
}

pub(super) fn dimensions(settings: &Reloadable, rows: &[LabelRow]) -> Vec<Dimension> {
    let mut by_evaluator: BTreeMap<&str, Vec<&LabelRow>> = BTreeMap::new();
    for row in rows.iter().filter(|row| row.judge_label.is_some()) {
        by_evaluator.entry(&row.evaluator).or_default().push(row);
    }
    by_evaluator.into_iter().map(|(name, rows)| Dimension::of(settings, name, &rows)).collect()
}

impl Dimension {
    fn of(settings: &Reloadable, evaluator: &str, rows: &[&LabelRow]) -> Dimension {
        let judge = |row: &LabelRow| row.judge_label.clone().unwrap_or_default();
        let pairs: Vec<Pair<'_>> = rows
            .iter()
            .filter_map(|row| {
                let judge = row.judge_label.as_deref()?;
                Some(Pair { judge, person: &row.label, trajectory: row.trajectory })
            })
            .collect();
        let known = agreement(&pairs);
        let mut order: Vec<String> =
            labels(settings, evaluator).into_iter().map(|(label, _)| label).collect();
        let given: BTreeSet<String> = rows
            .iter()
            .flat_map(|row| [judge(row), row.label.clone()])
            .filter(|one| !order.contains(one))
            .collect();
        order.extend(given);
        let cell = |judged: &String, said: &String| {
            count(rows.iter().filter(|row| judge(row) == *judged && row.label == *said).count() as u64)
        };
        let table = order
            .iter()
            .map(|judged| (text::line(judged), order.iter().map(|said| cell(judged, said)).collect()))
            .collect();
        let people: BTreeSet<&str> = rows.iter().map(|row| row.author.as_str()).collect();
        Dimension {
            title: title(settings, evaluator),
            kappa: known.kappa.map(number::score),
            interval: known.interval.map(number::scores),
            note: if known.kappa.is_none() { "only one label was given so far" } else { "" },
            agreed: format!("{} of {}", count(known.agreed), count(known.count)),
            share: number::percent(known.agreed as f64 / (known.count.max(1)) as f64),
            people: number::counted(people.len() as u64, "person", "people"),
            labels: order.iter().map(|label| text::line(label)).collect(),
            table,
            value: known.kappa,
            bounds: known.interval,
        }
    }
}

fn chart(dimensions: &[Dimension]) -> Chart {
    let bars: Vec<IntervalBar> = dimensions
        .iter()
        .map(|one| IntervalBar {
            label: one.title.clone(),
            value: one.value.map(|value| value.max(0.0)),
            interval: one.bounds,
            bars: Vec::new(),
            note: one.kappa.clone().unwrap_or_else(|| "none yet".to_owned()),
        })
        .collect();
    interval_bars(
        &bars,
        "kappa × 100; below 0 is drawn at 0",
        "Kappa with its 95 % interval. The table has the same numbers.",
    )
}

fn disagreements(settings: &Reloadable, rows: &[LabelRow]) -> Vec<Disagreement> {
    let differs = |row: &&LabelRow| row.judge_label.as_ref().is_some_and(|judge| *judge != row.label);
    let shown = |row: &LabelRow| Disagreement {
        href: Address::of(format!("/traces/{:032x}", row.trace_id))
            .with("trajectory", Some(&row.trajectory_id))
            .at(place(row.step))
            .to_string(),
        what: match row.step {
            Some(step) => format!("{}, step {step}", title(settings, &row.evaluator)),
            None => title(settings, &row.evaluator),
        },
        judge: text::line(row.judge_label.as_deref().unwrap_or_default()),
        person: text::line(&row.label),
        author: text::line(&row.author),
        note: row.note.as_deref().map(text::line),
        when: second(row.updated_ns),
    };
    rows.iter().filter(differs).take(MOST_LISTED).map(shown).collect()
}

/// Every label with what the judge says, for other programs.
pub(super) async fn export(
    State(server): State<Arc<Server>>,
    Params(choice): Params<Choice>,
) -> Result<Response, PageError> {
    let project = choice.project.filter(|name| !name.is_empty());
    let is_csv = match choice.format.as_deref() {
        None | Some("jsonl") => false,
        Some("csv") => true,
        Some(other) => return Err(ApiError::bad(format!("format={other}: jsonl or csv")).into()),
    };
    let rows = blocking(&server, move |server| rows(server, project.as_deref(), MOST)).await?;
    let (kind, name, body) = if is_csv {
        ("text/csv; charset=utf-8", "labels.csv", csv(&rows))
    } else {
        ("application/x-ndjson", "labels.jsonl", jsonl(&rows).into_bytes())
    };
    let headers = [
        (CONTENT_TYPE, HeaderValue::from_static(kind)),
        (CACHE_CONTROL, HeaderValue::from_static("private, no-cache")),
    ];
    let mut response = (headers, body).into_response();
    if let Ok(value) = HeaderValue::from_str(&format!("attachment; filename={name}")) {
        response.headers_mut().insert(CONTENT_DISPOSITION, value);
    }
    Ok(response)
}

fn jsonl(rows: &[LabelRow]) -> String {
    let mut out = String::new();
    for row in rows {
        let line = json!({
            "project": row.project, "trace_id": format!("{:032x}", row.trace_id),
            "trajectory_id": row.trajectory_id, "step_index": row.step, "evaluator": row.evaluator,
            "judge": row.judge, "judge_label": row.judge_label, "label": row.label, "author": row.author,
            "note": row.note, "at": show_time(row.updated_ns),
        });
        out.push_str(&line.to_string());
        out.push('\n');
    }
    out
}

fn csv(rows: &[LabelRow]) -> Vec<u8> {
    let mut writer = csv::Writer::from_writer(Vec::new());
    let head = [
        "project",
        "trace_id",
        "trajectory_id",
        "step_index",
        "evaluator",
        "judge",
        "judge_label",
        "label",
        "author",
        "note",
        "at",
    ];
    // Writing to memory cannot fail.
    let _ = writer.write_record(head);
    for row in rows {
        let text = |text: &Option<String>| harmless(text.as_deref().unwrap_or_default());
        let _ = writer.write_record([
            harmless(&row.project),
            format!("{:032x}", row.trace_id),
            harmless(&row.trajectory_id),
            row.step.map(|step| step.to_string()).unwrap_or_default(),
            harmless(&row.evaluator),
            text(&row.judge),
            text(&row.judge_label),
            harmless(&row.label),
            harmless(&row.author),
            text(&row.note),
            show_time(row.updated_ns),
        ]);
    }
    writer.into_inner().unwrap_or_default()
}
