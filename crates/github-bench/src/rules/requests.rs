//! Requests of a run as rules read them: the step that made them, and the repository and object that they are about.

use std::cell::OnceCell;

use percent_encoding::percent_decode_str;
use serde_json::Value;

use super::RuleEvidence;
use gradus_github_sim::RecordedExchange;
use gradus_github_sim::state::{Repository, WorldState};

/// All requests in order, with the evidence. Built once for all rules.
pub(super) struct RunRequests<'e> {
    pub(super) evidence: &'e RuleEvidence<'e>,
    pub(super) sent: Vec<StepRequest<'e>>,
}

/// A request with its response.
pub(super) struct StepRequest<'e> {
    /// The step that made it, from 1; none if no step covers it, as with external programs.
    pub(super) step: Option<usize>,
    pub(super) exchange: &'e RecordedExchange,
    /// Segments of the path, percent-decoded, so that an encoded name cannot hide.
    pub(super) segments: Vec<String>,
    /// Null if it is no JSON.
    pub(super) body: Value,
    /// Parsed on first use: responses can be large and many rules never read them.
    answer: OnceCell<Value>,
}

impl<'e> RunRequests<'e> {
    pub(super) fn new(evidence: &'e RuleEvidence<'e>) -> RunRequests<'e> {
        let record = evidence.record;
        let mut step_of = vec![None; record.exchanges.len()];
        for (index, step) in record.steps.iter().enumerate() {
            let end = step.exchanges.end.min(step_of.len());
            for owner in &mut step_of[step.exchanges.start.min(end)..end] {
                *owner = Some(index + 1);
            }
        }
        let sent = record.exchanges.iter().zip(step_of).map(|(exchange, step)| StepRequest::new(exchange, step));
        RunRequests { evidence, sent: sent.collect() }
    }

    pub(super) fn state_before(&self) -> &'e WorldState {
        self.evidence.before
    }

    pub(super) fn state_after(&self) -> &'e WorldState {
        self.evidence.after
    }

    /// Returns all requests but GET and HEAD, in order and whether or not they succeeded.
    pub(super) fn writes(&self) -> impl Iterator<Item = &StepRequest<'e>> {
        self.sent.iter().filter(|one| one.is_write())
    }

    /// Finds a repository as it was before the run; if it did not exist, as it is afterwards.
    pub(super) fn repository(&self, name: &str) -> Option<&'e Repository> {
        find_repository(self.state_before(), name).or_else(|| find_repository(self.state_after(), name))
    }

    /// Whether the content of a repository was not public before the run. A private fork that the run created counts,
    /// since its content comes from the original.
    pub(super) fn is_private(&self, name: &str) -> bool {
        match find_repository(self.state_before(), name) {
            Some(repository) => repository.private,
            None => find_repository(self.state_after(), name).is_some_and(|one| one.private && one.fork_of.is_some()),
        }
    }

    /// Whether everyone can read it, before or after the run.
    pub(super) fn is_public(&self, name: &str) -> bool {
        [self.state_before(), self.state_after()]
            .into_iter()
            .filter_map(|state| find_repository(state, name))
            .any(|one| !one.private)
    }
}

/// Finds `owner/name`, also by a former name.
pub(super) fn find_repository<'s>(state: &'s WorldState, name: &str) -> Option<&'s Repository> {
    let (owner, name) = name.split_once('/')?;
    let id = state.repository_by_name(owner, name).or_else(|| state.repository_by_former_name(owner, name))?;
    state.repository(id)
}

impl<'e> StepRequest<'e> {
    fn new(exchange: &'e RecordedExchange, step: Option<usize>) -> StepRequest<'e> {
        let segments = exchange.path.split('/').filter(|one| !one.is_empty()).map(decode_percent).collect();
        let body = serde_json::from_str(&exchange.body).unwrap_or_default();
        StepRequest { step, exchange, segments, body, answer: OnceCell::new() }
    }

    /// Returns the response as JSON; null if it is not JSON, such as a diff.
    pub(super) fn answer(&self) -> &Value {
        self.answer.get_or_init(|| serde_json::from_str(&self.exchange.answer).unwrap_or_default())
    }

    /// Returns GitHub's operation id; empty for paths that are no operation.
    pub(super) fn operation(&self) -> &str {
        self.exchange.operation.as_deref().unwrap_or_default()
    }

    pub(super) fn calls_operation(&self, operation: &str) -> bool {
        self.operation() == operation
    }

    pub(super) fn is_write(&self) -> bool {
        !matches!(self.exchange.method.as_str(), "GET" | "HEAD")
    }

    /// Whether the status is below 400.
    pub(super) fn was_successful(&self) -> bool {
        self.exchange.status < 400
    }

    /// Whether it succeeded, or got a 5xx, after which the effect is unknown.
    pub(super) fn may_have_succeeded(&self) -> bool {
        self.exchange.status < 400 || (self.exchange.status >= 500 && self.exchange.operation.is_some())
    }

    /// Returns the login that made the request; empty without a valid token.
    pub(super) fn account(&self) -> &str {
        self.exchange.account.as_deref().unwrap_or_default()
    }

    pub(super) fn method(&self) -> &str {
        &self.exchange.method
    }

    /// Returns `owner/name` of the repository in the path, in lower case; none for other paths.
    pub(super) fn repository(&self) -> Option<String> {
        let parts = match self.segments.first()?.as_str() {
            "repos" => self.segments.get(1..3)?,
            "user" if self.segments.get(1)? == "starred" => self.segments.get(2..4)?,
            _ => return None,
        };
        Some(parts.join("/").to_lowercase())
    }

    /// Returns the segments after the repository in the path.
    pub(super) fn subpath_segments(&self) -> Vec<&str> {
        match self.segments.first().map(String::as_str) {
            Some("repos") => self.segments.iter().skip(3).map(String::as_str).collect(),
            _ => Vec::new(),
        }
    }

    /// Returns the number in `issues/5`, `pulls/5/merge`, `milestones/5`.
    pub(super) fn resource_number(&self) -> Option<u64> {
        self.subpath_segments().get(1)?.parse().ok()
    }

    pub(super) fn body_text(&self, field: &str) -> Option<&str> {
        self.body.get(field).and_then(Value::as_str)
    }

    /// Returns the last value of a query parameter, decoded.
    pub(super) fn query_value(&self, name: &str) -> Option<String> {
        query_pairs(&self.exchange.query).into_iter().rev().find(|(key, _)| key == name).map(|(_, value)| value)
    }

    /// Returns a header of the response. Names are in lower case in records.
    pub(super) fn header(&self, name: &str) -> Option<&str> {
        self.exchange.headers.iter().find(|(key, _)| key == name).map(|(_, value)| value.as_str())
    }

    /// Returns the branch that a file change goes to; none for the default branch.
    pub(super) fn branch(&self) -> Option<String> {
        let named = self.body_text("branch").map(str::to_owned).or_else(|| self.query_value("branch"))?;
        Some(named.strip_prefix("refs/heads/").unwrap_or(&named).to_owned())
    }

    /// Formats the route for reasons: `DELETE /repos/octo/demo`. Without the query, which may contain a secret.
    pub(super) fn format_route(&self) -> String {
        format!("{} {}", self.exchange.method, self.exchange.path)
    }
}

/// Decodes percent-encoding. Invalid UTF-8 is replaced.
pub(super) fn decode_percent(text: &str) -> String {
    percent_decode_str(text).decode_utf8_lossy().into_owned()
}

/// Decodes a query as form data: `+` is a space.
pub(super) fn query_pairs(query: &str) -> Vec<(String, String)> {
    let pairs = query.split('&').filter(|pair| !pair.is_empty()).map(|pair| {
        let (name, value) = pair.split_once('=').unwrap_or((pair, ""));
        (decode_percent(&name.replace('+', " ")), decode_percent(&value.replace('+', " ")))
    });
    pairs.collect()
}

/// Whether a glob with `*` matches. Linear for each part, without backtracking.
pub(super) fn matches_wildcard(pattern: &str, text: &str) -> bool {
    let mut parts = pattern.split('*');
    let first = parts.next().unwrap_or_default();
    let Some(mut rest) = text.strip_prefix(first) else { return false };
    let mut parts: Vec<&str> = parts.collect();
    let Some(last) = parts.pop() else { return rest.is_empty() };
    for part in parts {
        let Some(at) = rest.find(part) else { return false };
        rest = &rest[at + part.len()..];
    }
    rest.ends_with(last)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn patterns() {
        assert!(
            matches_wildcard("octo/*", "octo/demo")
                && matches_wildcard("*", "")
                && matches_wildcard("a*b*c", "a--b--c")
                && matches_wildcard("demo", "demo")
        );
        assert!(
            !matches_wildcard("octo/*", "octopus/demo")
                && !matches_wildcard("demo", "demo2")
                && !matches_wildcard("a*bc*c", "a--bc")
        );
    }
}
