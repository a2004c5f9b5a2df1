//! Alert rules as they stand, and what they told.

use std::sync::Arc;

use askama::Template;
use axum::extract::State;
use axum::http::HeaderMap;
use axum::response::Response;
use serde_json::Value as Json;

use super::answer::{self, Asked, PageError};
use super::opened::{self, trace_id};
use super::words::second;
use super::{Frame, Looked};
use crate::output::html::number::minute;
use crate::output::html::text;
use crate::serve::api::blocking;
use crate::serve::state::Server;

const MOST_EVENTS: usize = 100;

#[derive(Template)]
#[template(path = "alerts.html")]
struct Page {
    frame: Frame,
    rules: Vec<Rule>,
    events: Vec<Event>,
}

struct Rule {
    name: String,
    project: String,
    condition: String,
    is_firing: bool,
    since: Option<String>,
    targets: String,
}

struct Event {
    at: String,
    rule: String,
    kind: String,
    class: &'static str,
    value: String,
    examples: Vec<(String, String)>,
}

pub(super) async fn page(
    State(server): State<Arc<Server>>,
    headers: HeaderMap,
    Asked(looked): Asked<Looked>,
) -> Result<Response, PageError> {
    let page = blocking(&server, move |server| {
        let mut rules = Vec::new();
        for rule in &server.reloadable().alerts {
            let state = server.store.alert_state(&rule.name)?;
            let state: Json = state.and_then(|text| serde_json::from_str(&text).ok()).unwrap_or_default();
            let targets: Vec<&str> = rule.targets.iter().map(|target| target.kind().name()).collect();
            rules.push(Rule {
                name: text::line(&rule.name),
                project: text::line(rule.project.as_deref().unwrap_or("all")),
                condition: text::line(&rule.condition.to_string()),
                is_firing: state["state"] == "firing",
                since: state["since"].as_str().map(minute),
                targets: if targets.is_empty() { "the log".to_owned() } else { targets.join(", ") },
            });
        }
        let events = server.store.alert_events(i64::MAX, MOST_EVENTS)?;
        let events = events.iter().map(|event| Event {
            at: second(event.at_ns),
            rule: text::line(&event.rule),
            class: if event.kind == "resolved" { "pass" } else { "fail" },
            kind: text::line(&event.kind),
            value: said(&event.body),
            examples: examples(&event.body),
        });
        Ok(Page { frame: Frame::of("/alerts", looked.project(), &headers), rules, events: events.collect() })
    })
    .await?;
    Ok(answer::page(&page))
}

fn said(body: &str) -> String {
    let notice: Json = serde_json::from_str(body).unwrap_or_default();
    text::line(notice["value_text"].as_str().unwrap_or_default())
}

/// Where examples are, and what they are about.
fn examples(body: &str) -> Vec<(String, String)> {
    let notice: Json = serde_json::from_str(body).unwrap_or_default();
    let example = |one: &Json| {
        let trace = one["trace_id"].as_str().filter(|id| trace_id(id).is_some())?;
        let step = one["step_index"].as_u64().and_then(|step| u32::try_from(step).ok());
        let address = opened::step_address(trace, one["trajectory_id"].as_str(), step);
        Some((address, text::line(one["summary"].as_str().unwrap_or("a trace"))))
    };
    notice["examples"].as_array().into_iter().flatten().filter_map(example).collect()
}
