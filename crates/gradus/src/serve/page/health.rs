//! The server itself: whether it is well, by which rules it grades, and who has keys.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use askama::Template;
use axum::extract::State;
use axum::http::HeaderMap;
use axum::response::Response;

use super::answer::{self, Asked, PageError};
use super::words::{self, LiveRule, duration, second, size, whole};
use super::{Frame, Looked};
use crate::output::html::number;
use crate::output::html::text;
use crate::serve::api::ApiError;
use crate::serve::live::{Standstill, Why};
use crate::serve::state::{Server, today_ns};

/// What waits for a rule is counted up to this.
const MOST_WAITING: usize = 10_000;

#[derive(Template)]
#[template(path = "health.html")]
struct Page {
    frame: Frame,
    is_well: bool,
    facts: Vec<(&'static str, String)>,
    projects: Vec<Project>,
    rules: Vec<Rule>,
    keys: Vec<Key>,
    needs_key: bool,
}

struct Project {
    name: String,
    href: String,
    traces: String,
    spans: String,
    trajectories: String,
    last: String,
}

struct Rule {
    rule: LiveRule,
    share: String,
    budget: String,
    spent: String,
    /// Why its model is not asked at the moment.
    standstill: Option<Still>,
    /// Empty for rules without a model: nothing ever waits for them.
    waiting: String,
}

struct Still {
    is_fault: bool,
    text: String,
}

impl Still {
    fn of(known: &Standstill) -> Still {
        let since = second(known.since_ns);
        let reason = text::line(&known.reason);
        match known.why {
            Why::Budget => {
                Still { is_fault: false, text: format!("rests since {since}, until midnight UTC: {reason}") }
            }
            Why::Judge => Still { is_fault: true, text: format!("cannot be asked since {since}: {reason}") },
        }
    }
}

struct Key {
    name: String,
    scopes: String,
    made: String,
    revoked: Option<String>,
}

pub(super) async fn page(
    State(server): State<Arc<Server>>,
    headers: HeaderMap,
    Asked(looked): Asked<Looked>,
) -> Result<Response, PageError> {
    let frame = Frame::of("/server", looked.project(), &headers);
    answer::of(&server, move |server| made(server, frame)).await
}

fn made(server: &Server, frame: Frame) -> Result<Page, ApiError> {
    let store = &server.store;
    let is_failing = store.status().is_none_or(|status| status.is_failing.load(Ordering::Relaxed));
    let (used, free) = store.size()?;
    let bytes = |bytes: u64| size(usize::try_from(bytes).unwrap_or(usize::MAX));
    let set_aside = store.set_aside_count()?;
    let facts = vec![
        ("Version", env!("CARGO_PKG_VERSION").to_owned()),
        ("Up for", duration(i64::try_from(server.started.elapsed().as_nanos()).unwrap_or(i64::MAX))),
        ("Takes spans", if is_failing { "no; see the log" } else { "yes" }.to_owned()),
        (
            "Store",
            match free {
                0 => bytes(used),
                free => format!("{}, {} of it free", bytes(used + free), bytes(free)),
            },
        ),
        ("Traces still arriving or to be assembled", whole(store.due_count()?)),
        ("Traces that could not be assembled", whole(set_aside)),
        ("Trajectories that wait for a model", whole(store.ungraded_count()?)),
    ];
    let settings = server.reloadable();
    let today = today_ns();
    let mut rules = Vec::new();
    for rule in &settings.rules {
        let spent = store.spent_since(today, Some(&rule.name), None)?;
        rules.push(Rule {
            rule: LiveRule::of(rule),
            share: match (rule.sample >= 1.0, rule.all_errors) {
                (true, _) => "all".to_owned(),
                (false, true) => format!("{} and all with errors", number::percent(rule.sample)),
                (false, false) => number::percent(rule.sample),
            },
            budget: rule.daily_budget_usd.map_or_else(|| "none".to_owned(), number::usd),
            spent: words::spent(spent),
            standstill: server.standstills.of(&rule.name).as_ref().map(Still::of),
            waiting: match rule.asks_a_model() {
                true => {
                    let found = store.waiting_for(&rule.name, MOST_WAITING)?;
                    format!("{}{}", number::count(found.count), if found.is_cut { " or more" } else { "" })
                }
                false => String::new(),
            },
        });
    }
    let projects = store.projects()?.into_iter().map(|row| Project {
        href: super::Address::of("/traces").with("project", Some(&row.name)).to_string(),
        name: text::line(&row.name),
        traces: whole(row.traces),
        spans: whole(row.spans),
        trajectories: whole(row.trajectories),
        last: row.last_ns.map(second).unwrap_or_default(),
    });
    let keys = store.keys()?.into_iter().map(|row| Key {
        name: text::line(&row.name),
        scopes: row.scopes.names().replace(',', ", "),
        made: second(row.created_ns),
        revoked: row.revoked_ns.map(second),
    });
    Ok(Page {
        frame,
        is_well: !is_failing
            && set_aside == 0
            && !rules.iter().any(|one| one.standstill.as_ref().is_some_and(|still| still.is_fault)),
        facts,
        projects: projects.take(200).collect(),
        rules,
        keys: keys.collect(),
        needs_key: server.settings.needs_key,
    })
}
