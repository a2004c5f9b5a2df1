//! The context in which checks are evaluated: the world before a run and after it, and the record of the run. Worlds
//! are read through the same API that clients use, in copies without faults and with fresh rate limits, so that a check
//! never fails because of a fault that the task planted for the agent.

use std::collections::BTreeMap;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde_json::{Map, Value, json};

use super::source::{CheckSelection, CheckSource, CommitDescent, RequestPattern, split_file};
use crate::record::TrialRecord;
use gradus_github_sim::git::{is_ancestor, walk_history};
use gradus_github_sim::state::WorldState;
use gradus_github_sim::{
    ApiRateLimits, RecordedExchange, RequestMethod, SimulatedRequest, SimulatedTime, World, WorldDifference,
    compare_inventories, matches_glob, take_inventory,
};

/// Maximum number of pages of a list that are read. With 100 items a page it is far more than any task has; it bounds
/// a check that would follow `Link` headers forever.
const MAX_PAGES: usize = 50;

/// All that a selection can read. Borrowed from one trial and dropped after verification.
#[derive(Debug)]
pub(super) struct CheckContext<'s> {
    before: CheckedWorld<'s>,
    after: CheckedWorld<'s>,
    record: &'s TrialRecord,
    /// The token of the agent: checks see what it could see, and no more.
    token: &'s str,
    /// All differences between the two states, computed once.
    pub(super) changes: Vec<WorldDifference>,
    /// Values of lookups by name; `None` for a lookup that found nothing.
    pub(super) names: BTreeMap<String, Option<Value>>,
}

/// A state with a world that answers requests about it. The world is a copy and is made on the first request, since
/// many checks read neither side.
#[derive(Debug)]
struct CheckedWorld<'s> {
    state: &'s WorldState,
    world: Option<World>,
}

impl CheckedWorld<'_> {
    /// Follows `Link` headers and joins the pages of a list. 204 becomes `true`, since operations such as "is a
    /// collaborator" answer by status alone. None for any other status than 200.
    fn get(&mut self, target: &str, token: &str) -> Option<Value> {
        let state = self.state;
        let world = self.world.get_or_insert_with(|| World::new(state.clone(), ApiRateLimits::default(), Vec::new()));
        let mut target = target.to_owned();
        let mut all = Vec::new();
        for _ in 0..MAX_PAGES {
            let response = world.handle(&SimulatedRequest::new(RequestMethod::Get, &target).with_token(token));
            if response.status == 204 {
                return Some(Value::Bool(true));
            }
            if response.status != 200 {
                return None;
            }
            match response.json() {
                Value::Array(items) => all.extend(items),
                other => return Some(other),
            }
            match response.header("link").and_then(next_page) {
                Some(next) => target = next,
                None => break,
            }
        }
        Some(Value::Array(all))
    }
}

/// Returns path and query of the `rel="next"` entry of a `Link` header (RFC 8288), without scheme and host.
fn next_page(link: &str) -> Option<String> {
    let part = link.split(',').find(|part| part.contains("rel=\"next\""))?;
    let address = part.split_once('<')?.1.split_once('>')?.0;
    let path = address.split_once("://")?.1;
    path.find('/').map(|start| path[start..].to_owned())
}

/// A `{{name}}` that cannot be filled in.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub(super) enum LookupError {
    /// The lookup exists, but the run left nothing that it selects.
    #[error("there is no {0}")]
    Empty(String),
    /// The task defines no such lookup. `review` refuses such tasks, so this occurs only in tasks made in code.
    #[error("there is no lookup {0:?}")]
    Unknown(String),
}

impl<'s> CheckContext<'s> {
    /// Compares the two states immediately; worlds are built later, if a check needs them.
    pub(super) fn new(
        before: &'s WorldState,
        after: &'s WorldState,
        record: &'s TrialRecord,
        token: &'s str,
    ) -> CheckContext<'s> {
        CheckContext {
            changes: compare_inventories(&take_inventory(before), &take_inventory(after)),
            before: CheckedWorld { state: before, world: None },
            after: CheckedWorld { state: after, world: None },
            record,
            token,
            names: BTreeMap::new(),
        }
    }

    /// Returns the selected value; null if there is none. Fails only if the selection names a lookup without a value.
    pub(super) fn select_value(&mut self, selection: &CheckSelection) -> Result<Value, LookupError> {
        let mut found = self.read_source(&selection.source, selection.before)?;
        if let Value::Array(items) = &mut found {
            let mut wanted = Vec::new();
            for (path, value) in &selection.filter {
                wanted.push((path, self.fill_value(value)?));
            }
            // An element without the field compares as null.
            items.retain(|item| wanted.iter().all(|(path, value)| path.find(item).unwrap_or_default() == *value));
        }
        if let Some(path) = &selection.at {
            found = path.find(&found).unwrap_or_default();
        }
        let found = match (selection.read_as, &found) {
            (Some(reading), Value::String(text)) => reading.read(text),
            // Only texts can be read as lines, tables or numbers.
            (Some(_), _) => Value::Null,
            (None, _) => found,
        };
        Ok(match (selection.column, &found) {
            (Some(column), Value::Array(rows)) => {
                rows.iter().map(|row| row.get(column).cloned().unwrap_or_default()).collect()
            }
            _ => found,
        })
    }

    /// Returns the value of a source before filter, path, reading and column apply.
    fn read_source(&mut self, source: &CheckSource, before: bool) -> Result<Value, LookupError> {
        let token = self.token;
        Ok(match source {
            CheckSource::Get(path) => {
                let path = self.fill_text(path)?;
                self.select_world(before).get(&path, token).unwrap_or_default()
            }
            CheckSource::File(name) => {
                let name = self.fill_text(name)?;
                let Some((repository, reference, path)) = split_file(&name) else { return Ok(Value::Null) };
                let target = format!("/repos/{repository}/contents/{path}?ref={reference}");
                let file = self.select_world(before).get(&target, token).unwrap_or_default();
                // GitHub breaks base64 into lines of 60 characters.
                let packed: String = file["content"].as_str().unwrap_or_default().split_whitespace().collect();
                match (file["type"].as_str(), STANDARD.decode(packed)) {
                    (Some("file"), Ok(bytes)) => json!(String::from_utf8_lossy(&bytes)),
                    _ => Value::Null,
                }
            }
            CheckSource::Commits(name) => {
                let name = self.fill_text(name)?;
                self.new_commits(&name)
            }
            CheckSource::Changes { pattern, what } => {
                let pattern = self.fill_text(pattern)?;
                let fits = |one: &&WorldDifference| {
                    matches_glob(&pattern, &one.path) && what.is_none_or(|what| what == one.what)
                };
                // `name` is the part of the path that the glob left open, so that checks can compare names without the
                // prefix.
                let start = pattern.find('*').unwrap_or(0);
                let named = |one: &WorldDifference| {
                    let mut value = json!(one);
                    value["name"] = json!(one.path.get(start..));
                    value
                };
                Value::Array(self.changes.iter().filter(fits).map(named).collect())
            }
            CheckSource::Requests(pattern) => {
                let pattern = self.fill_pattern(pattern)?;
                let fitting = self.record.exchanges.iter().filter(|one| pattern.matches(one));
                Value::Array(fitting.map(exchange_to_json).collect())
            }
            CheckSource::Answer => json!(self.record.answer),
            CheckSource::Order(patterns) => {
                let patterns: Vec<_> = patterns.iter().map(|one| self.fill_pattern(one)).collect::<Result<_, _>>()?;
                Value::Bool(in_order(&patterns, &self.record.exchanges))
            }
            CheckSource::Descends(descent) => self.check_descent(descent)?,
            CheckSource::RetryAfterObeyed => Value::Bool(retry_after_obeyed(&self.record.exchanges)),
        })
    }

    fn select_world(&mut self, before: bool) -> &mut CheckedWorld<'s> {
        if before { &mut self.before } else { &mut self.after }
    }

    /// Returns commits that are reachable from the branch now and were not before. For a new branch, commits of any
    /// former branch or tag are not new either: a fresh branch off `main` has none of its own.
    fn new_commits(&mut self, name: &str) -> Value {
        let Some((full_name, branch)) = name.split_once('@') else { return Value::Null };
        let Some((owner, repository)) = full_name.split_once('/') else { return Value::Null };
        let (old, new) = (self.before.state, self.after.state);
        let found = new.repository_by_name(owner, repository).and_then(|id| new.repository(id));
        let Some(found) = found else { return Value::Null };
        let Some(head) = found.branch_head(branch) else { return Value::Null };
        let former = old.repository(found.id);
        let known: Vec<_> = match former.and_then(|former| former.branch_head(branch)) {
            Some(head) => vec![head],
            None => former.map(|former| former.refs.values().copied().collect()).unwrap_or_default(),
        };
        let objects = new.objects(found);
        let hidden = known.into_iter().flat_map(|id| gradus_github_sim::git::collect_ancestors(objects, id)).collect();
        let made = walk_history(objects, head, &hidden);
        let token = self.token;
        let shown = made.into_iter().filter_map(|id| {
            let commit = self.after.get(&format!("/repos/{full_name}/commits/{id}"), token)?;
            let files = commit["files"].as_array().cloned().unwrap_or_default();
            let files: Vec<Value> =
                files.iter().map(|file| json!({"path": file["filename"], "status": file["status"]})).collect();
            let parents = commit["parents"].as_array().cloned().unwrap_or_default();
            Some(json!({
                "sha": commit["sha"],
                "message": commit["commit"]["message"],
                "tree": commit["commit"]["tree"]["sha"],
                "author": commit["author"]["login"],
                "parents": parents.iter().map(|one| one["sha"].clone()).collect::<Vec<_>>(),
                "files": files,
            }))
        });
        Value::Array(shown.collect())
    }

    /// Returns whether one commit is an ancestor of the other in the history after the run. Null if a commit or the
    /// repository does not exist, so that the statement is not true.
    fn check_descent(&self, descent: &CommitDescent) -> Result<Value, LookupError> {
        let repository = self.fill_text(&descent.repository)?;
        let commit = |name: &str| -> Result<_, LookupError> {
            let name = self.fill_text(name)?;
            let (state, name) = match name.strip_prefix("before:") {
                Some(name) => (self.before.state, name),
                None => (self.after.state, name.as_str()),
            };
            let found = repository.split_once('/').and_then(|(owner, name)| state.repository_by_name(owner, name));
            let Some(found) = found.and_then(|id| state.repository(id)) else { return Ok(None) };
            // A name is a branch first, then a tag, then a SHA.
            let sha = || name.parse().ok();
            Ok(found.branch_head(name).or_else(|| found.tag_target(name)).or_else(sha))
        };
        let (Some(newer), Some(older)) = (commit(&descent.newer)?, commit(&descent.older)?) else {
            return Ok(Value::Null);
        };
        let state = self.after.state;
        let found = repository.split_once('/').and_then(|(owner, name)| state.repository_by_name(owner, name));
        let Some(found) = found.and_then(|id| state.repository(id)) else { return Ok(Value::Null) };
        Ok(Value::Bool(is_ancestor(state.objects(found), older, newer)))
    }

    /// Fills in the path of a pattern; other keys cannot contain lookups.
    fn fill_pattern(&self, pattern: &RequestPattern) -> Result<RequestPattern, LookupError> {
        let path = pattern.path.as_deref().map(|path| self.fill_text(path)).transpose()?;
        Ok(RequestPattern { path, ..pattern.clone() })
    }

    /// Replaces each `{{name}}` by what the lookup found. Texts are inserted as they are, other values as JSON.
    pub(super) fn fill_text(&self, text: &str) -> Result<String, LookupError> {
        let mut filled = String::new();
        let mut rest = text;
        while let Some((before, after)) = rest.split_once("{{") {
            let Some((name, after)) = after.split_once("}}") else { break };
            filled.push_str(before);
            match self.names.get(name.trim()) {
                Some(Some(Value::String(text))) => filled.push_str(text),
                Some(Some(other)) => filled.push_str(&other.to_string()),
                Some(None) => return Err(LookupError::Empty(name.trim().to_owned())),
                None => return Err(LookupError::Unknown(name.trim().to_owned())),
            }
            rest = after;
        }
        filled.push_str(rest);
        Ok(filled)
    }

    /// As [`CheckContext::fill_text`] for all texts of a value. A text that is one name and nothing else becomes the
    /// value itself, so that a number can be compared with a number.
    pub(super) fn fill_value(&self, value: &Value) -> Result<Value, LookupError> {
        Ok(match value {
            Value::String(text) => {
                let name = text.strip_prefix("{{").and_then(|rest| rest.strip_suffix("}}")).map(str::trim);
                match name.and_then(|name| self.names.get(name)) {
                    Some(Some(value)) => value.clone(),
                    _ => Value::String(self.fill_text(text)?),
                }
            }
            Value::Array(items) => {
                Value::Array(items.iter().map(|item| self.fill_value(item)).collect::<Result<_, _>>()?)
            }
            Value::Object(fields) => {
                let filled = fields.iter().map(|(name, item)| Ok((name.clone(), self.fill_value(item)?)));
                Value::Object(filled.collect::<Result<Map<_, _>, LookupError>>()?)
            }
            other => other.clone(),
        })
    }
}

impl RequestPattern {
    /// Whether all keys that are present match. The case of method names is ignored.
    fn matches(&self, one: &RecordedExchange) -> bool {
        self.method.as_ref().is_none_or(|method| method.eq_ignore_ascii_case(&one.method))
            && self.path.as_ref().is_none_or(|pattern| matches_glob(pattern, &one.path))
            && self.query.as_ref().is_none_or(|pattern| matches_glob(pattern, &one.query))
            && self.operation.as_ref().is_none_or(|wanted| one.operation.as_ref() == Some(wanted))
            && self.ok.is_none_or(|ok| ok == (one.status < 400))
            && self.write.is_none_or(|write| write != RequestMethod::from_name(&one.method).is_read())
    }
}

/// Returns the fields of a request that checks may read. A body that is not JSON is null.
fn exchange_to_json(one: &RecordedExchange) -> Value {
    let body = serde_json::from_str::<Value>(&one.body).unwrap_or_default();
    json!({"method": one.method, "path": one.path, "query": one.query, "operation": one.operation, "status": one.status, "body": body})
}

/// Whether requests of each kind succeeded, all of one before the first of the next.
fn in_order(patterns: &[RequestPattern], exchanges: &[RecordedExchange]) -> bool {
    let mut last = None;
    patterns.iter().all(|pattern| {
        let fits = |one: &RecordedExchange| one.status < 400 && pattern.matches(one);
        let first = exchanges.iter().position(fits);
        let fits_after = first.is_some() && first > last;
        last = exchanges.iter().rposition(fits);
        fits_after
    })
}

/// Whether no request was sent during a `Retry-After` wait. Times are those of the simulated clock, so the speed of
/// the machine does not matter.
fn retry_after_obeyed(exchanges: &[RecordedExchange]) -> bool {
    let mut silent_until: Option<SimulatedTime> = None;
    exchanges.iter().all(|one| {
        let fits = silent_until.is_none_or(|until| one.from >= until);
        let asked = one.headers.iter().find(|(name, _)| name == "retry-after");
        if let Some(seconds) = asked.and_then(|(_, value)| value.parse().ok()) {
            silent_until = Some(one.to.plus_seconds(seconds));
        }
        fits
    })
}
