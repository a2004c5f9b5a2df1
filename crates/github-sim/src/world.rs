//! The world: state, rate limits, planted faults and journal. Requests go in and responses come out; nothing else
//! happens, and no other source of time or randomness exists.
//!
//! A request passes these stages:
//!
//! 1. Route: the operation and its arguments. `/api/v3` is removed and ids of repositories become names.
//! 2. Faults: every matching fault counts the request.
//! 3. Authentication: an unknown token is 401, a missing one is an anonymous caller.
//! 4. Rate limit: counted even for requests that fail later.
//! 5. API version, then faults that replace the response.
//! 6. Commits by others that faults plant.
//! 7. The operation. A write advances the clock by one second, unless it fails.
//! 8. Common headers, entity tag, conditional response.
//! 9. Faults that lose the response.
//! 10. Journal.
//!
//! So a lost response was executed and journaled, and an agent that retries blindly does something twice.

use std::collections::BTreeMap;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde_json::json;

use super::access::AuthenticatedActor;
use super::call::{OperationBody, OperationCall, OperationReply};
use super::difference::{WorldDifference, compare_inventories};
use super::error::{DOCS_URL, OperationError};
use super::fault::{self, FaultEffect, FaultImpact, SimulatedFault};
use super::http::{AcceptedMediaType, RequestMethod, RequestQuery, SimulatedRequest, SimulatedResponse};
use super::inventory::take_inventory;
use super::journal::{RecordedExchange, RequestJournal, RequestJournalEntry, SimulatorCounters};
use super::rate::{ApiRateLimits, ApiRateMeter, ApiRateResource};
use super::route::OperationRoute;
use super::state::{TokenAccess, WorldState};
use crate::call::PathArguments;

/// API versions that the `X-GitHub-Api-Version` header may name.
const VERSIONS: [&str; 2] = ["2022-11-28", "2026-03-10"];
/// Maximum total size in bytes of writes that a world accepts. Its memory grows with what is sent, and a looping
/// agent must not exhaust the machine.
const MAX_WRITTEN_BYTES: usize = 1 << 30;
/// Response headers that recorded exchanges keep.
const EXCHANGED_HEADERS: [&str; 4] = ["link", "retry-after", "x-ratelimit-remaining", "x-ratelimit-reset"];
/// Bytes that each write counts in addition to its body.
const WRITE_OVERHEAD_BYTES: usize = 1 << 10;

/// A state to return to. Git objects are shared, so a snapshot is cheap.
#[derive(Clone, Debug)]
pub struct WorldSnapshot {
    pub(super) state: WorldState,
    /// With their remaining counts, so that a restored world fails in the same way again.
    pub(super) faults: Vec<SimulatedFault>,
}

impl WorldSnapshot {
    pub fn state(&self) -> &WorldState {
        &self.state
    }
}

/// A simulated GitHub. It is `Clone`: a clone is an independent world.
#[derive(Clone, Debug)]
pub struct World {
    pub(super) state: WorldState,
    /// Not part of snapshots: `restore` keeps the present limits.
    pub(super) limits: ApiRateLimits,
    pub(super) faults: Vec<SimulatedFault>,
    pub(super) journal: RequestJournal,
    /// Named snapshots of the control API.
    pub(super) snapshots: BTreeMap<String, WorldSnapshot>,
    /// The initial state.
    pub(super) seed: WorldSnapshot,
    /// Usage within the rate limits.
    meter: ApiRateMeter,
    /// Bytes written so far, against `MAX_WRITTEN_BYTES`.
    written_bytes: usize,
    /// Whether `/_gradus` is served.
    has_control: bool,
}

impl World {
    /// Creates a world. `state` becomes the seed that `reset` returns to.
    pub fn new(mut state: WorldState, limits: ApiRateLimits, faults: Vec<SimulatedFault>) -> World {
        state.rebuild_name_index();
        let seed = WorldSnapshot { state: state.clone(), faults: faults.clone() };
        World {
            state,
            limits,
            faults,
            journal: RequestJournal::default(),
            snapshots: BTreeMap::new(),
            seed,
            meter: ApiRateMeter::default(),
            written_bytes: 0,
            has_control: true,
        }
    }

    pub fn state(&self) -> &WorldState {
        &self.state
    }

    /// Returns the counters. Requests of the control API do not count.
    pub fn counters(&self) -> &SimulatorCounters {
        &self.journal.counters
    }

    /// Returns the latest requests, oldest first.
    pub fn recent_requests(&self) -> impl Iterator<Item = &RequestJournalEntry> {
        self.journal.entries()
    }

    /// Records complete requests and responses from now on.
    pub fn start_recording_exchanges(&mut self) {
        self.journal.start_recording_exchanges();
    }

    /// Closes the control API for good: `/_gradus` becomes an unknown path. A tested agent must not be able to undo
    /// what it did, or to clear the journal.
    pub fn close_control(&mut self) {
        self.has_control = false;
    }

    /// Returns the recorded exchanges, oldest first.
    pub fn recorded_exchanges(&self) -> &[RecordedExchange] {
        self.journal.exchanges()
    }

    /// Returns the faults that are not used up.
    pub fn pending_faults(&self) -> &[SimulatedFault] {
        &self.faults
    }

    /// Adds a fault without validating it against the world; the control API and seeds validate before.
    pub fn add_fault(&mut self, fault: SimulatedFault) {
        self.faults.push(fault);
    }

    /// Makes rate limits refuse requests from now on.
    pub fn enforce_limits(&mut self) {
        self.limits.enforced = true;
    }

    /// Advances the clock. Negative values are ignored: simulated time never goes back, except by `restore`.
    pub fn advance_clock(&mut self, seconds: i64) {
        self.state.now = self.state.now.plus_seconds(seconds.max(0));
    }

    /// Takes a snapshot of state and pending faults, without limits and journal.
    pub fn snapshot(&self) -> WorldSnapshot {
        WorldSnapshot { state: self.state.clone(), faults: self.faults.clone() }
    }

    /// Returns to a snapshot, clock included. Rate limits start anew; the journal stays.
    pub fn restore(&mut self, snapshot: &WorldSnapshot) {
        self.state = snapshot.state.clone();
        self.faults.clone_from(&snapshot.faults);
        self.meter = ApiRateMeter::default();
    }

    /// Returns to the seed with an empty journal.
    pub fn reset(&mut self) {
        let seed = self.seed.clone();
        self.restore(&seed);
        self.journal.clear();
        self.written_bytes = 0;
    }

    /// Returns all differences from the seed, by path.
    pub fn changes_since_seed(&self) -> Vec<WorldDifference> {
        compare_inventories(&take_inventory(&self.seed.state), &take_inventory(&self.state))
    }

    /// Returns the tokens with the login of their account.
    pub fn tokens_with_logins(&self) -> impl Iterator<Item = (&str, &str)> {
        self.state.tokens.iter().map(|(token, one)| (token.as_str(), self.state.login(one.account)))
    }

    /// Whether the control API is open.
    pub(crate) fn has_control(&self) -> bool {
        self.has_control
    }

    /// Handles a request of GitHub's API: route, faults, authentication, rate limit, execution, journal, in this order.
    pub(crate) fn handle_api(&mut self, request: &SimulatedRequest) -> SimulatedResponse {
        // An action that cannot be recorded must not happen.
        if self.journal.is_full() {
            let error =
                OperationError::new(507, "The log of this run is full; nothing more is answered.").with_general_docs();
            return build_error_response(&error, DOCS_URL);
        }
        let from = self.state.now;
        let (base, path) = self.split_base_and_path(request);
        let found = crate::route_table::find_route(request.method, &path);
        let operation = found.as_ref().map(|(route, _)| route.operation);
        let trouble = fault::take_matching_faults(&mut self.faults, request, &path, operation);
        let actor = self.authenticate(request);
        let mut response = self.answer_request(request, &base, &path, found, &actor, &trouble);
        // Only successful responses can get lost: an error would look the same.
        if let Some(status) = trouble.lost.filter(|_| response.status < 400) {
            response = build_gateway_error(status);
        }
        response.delay_ms = trouble.delay_ms;
        let account = actor.ok().flatten().map(|actor| self.state.login(actor.account).to_owned());
        let number = self.journal.next_number();
        if self.journal.is_recording_exchanges() {
            self.journal.record_exchange(RecordedExchange {
                number,
                method: request.method.name().to_owned(),
                path: path.clone(),
                query: request.query.clone(),
                operation: operation.map(str::to_owned),
                account: account.clone(),
                status: response.status,
                from,
                to: self.state.now,
                fault: trouble.is_some(),
                body: String::from_utf8_lossy(&request.body).into_owned(),
                headers: EXCHANGED_HEADERS
                    .iter()
                    .filter_map(|name| Some(((*name).to_owned(), response.header(name)?.to_owned())))
                    .collect(),
                answer: String::from_utf8_lossy(&response.body).into_owned(),
            });
        }
        self.journal.record_entry(RequestJournalEntry {
            number,
            method: request.method.name(),
            path,
            query: request.query.clone(),
            operation,
            account,
            status: response.status,
            at: self.state.now,
            fault: trouble.is_some(),
        });
        if request.method == RequestMethod::Head {
            response.body.clear();
        }
        response
    }

    /// Returns the base of URLs and the path below it. GitHub Enterprise's prefix `/api/v3` is accepted, and ids of
    /// repositories are replaced by names. The `Host` header is validated, since it is echoed in URLs.
    fn split_base_and_path(&self, request: &SimulatedRequest) -> (String, String) {
        let host = request.header("host").unwrap_or("localhost");
        let is_host = |c: char| c.is_ascii_alphanumeric() || matches!(c, '.' | ':' | '-' | '_' | '[' | ']');
        let host = if !host.is_empty() && host.chars().all(is_host) { host } else { "localhost" };
        let inner = request.path.strip_prefix("/api/v3").filter(|rest| rest.is_empty() || rest.starts_with('/'));
        let base = format!("http://{host}{}", if inner.is_some() { "/api/v3" } else { "" });
        let path = inner.unwrap_or(&request.path);
        let by_number = path.strip_prefix("/repositories/").and_then(|rest| {
            let (number, rest) =
                rest.split_once('/').map_or((rest, String::new()), |(number, rest)| (number, format!("/{rest}")));
            let repository = self.state.repository(super::state::RepositoryId(number.parse().ok()?))?;
            Some(format!("/repos/{}{rest}", self.state.full_name(repository)))
        });
        (base, by_number.unwrap_or_else(|| path.to_owned()))
    }

    /// Authenticates by `Bearer`, `token` or `Basic`. A request without the header is anonymous; an unknown token is
    /// 401.
    fn authenticate(&self, request: &SimulatedRequest) -> Result<Option<AuthenticatedActor>, OperationError> {
        let Some(header) = request.header("authorization") else { return Ok(None) };
        let bad = || OperationError::new(401, "Bad credentials").with_general_docs();
        let (scheme, value) = header.trim().split_once(' ').ok_or_else(bad)?;
        let token = match scheme.to_ascii_lowercase().as_str() {
            "bearer" | "token" => value.trim().to_owned(),
            "basic" => {
                let text = STANDARD.decode(value.trim()).ok().and_then(|bytes| String::from_utf8(bytes).ok());
                let text = text.ok_or_else(bad)?;
                let (user, password) = text.split_once(':').ok_or_else(bad)?;
                // Clients send the token as the password or as the user name.
                if self.state.tokens.contains_key(password) { password.to_owned() } else { user.to_owned() }
            }
            _ => return Err(bad()),
        };
        let known = self.state.tokens.get(&token).ok_or_else(bad)?;
        Ok(Some(AuthenticatedActor { account: known.account, reach: known.reach.clone(), token }))
    }

    /// Charges the rate limit, executes the request and adds the headers that all responses share.
    fn answer_request(
        &mut self,
        request: &SimulatedRequest,
        base: &str,
        path: &str,
        found: Option<(&'static OperationRoute, PathArguments)>,
        actor: &Result<Option<AuthenticatedActor>, OperationError>,
        trouble: &FaultImpact,
    ) -> SimulatedResponse {
        let resource = ApiRateResource::for_operation(found.as_ref().map_or("", |(route, _)| route.operation));
        let caller = actor.as_ref().ok().and_then(Option::as_ref);
        let name = caller.map_or("", |actor| actor.token.as_str()).to_owned();
        let docs =
            found.as_ref().map_or_else(|| DOCS_URL.to_owned(), |(route, _)| format!("{DOCS_URL}/{}", route.docs));
        let free = found.as_ref().is_some_and(|(route, _)| route.operation == "rate-limit/get");
        let spent = if free {
            Ok(())
        } else {
            let account = caller.map_or(0, |actor| actor.account.0);
            self.meter.charge_request(self.limits, &name, account, resource, self.state.now)
        };
        let result = match (actor, spent) {
            (Err(error), _) => Err(error.clone()),
            (Ok(_), Err(error)) => Err(error),
            (Ok(actor), Ok(())) => self.execute_request(request, base, path, found, actor.clone(), trouble),
        };
        let mut response = match result {
            Ok(reply) => self.build_response(request, reply),
            Err(error) => build_error_response(&error, &docs),
        };
        if response.status == 304 && !free {
            self.meter.refund_request(&name, resource, self.state.now);
        }
        if let Some(FaultEffect::SecondaryLimit { .. }) = trouble.before {
            self.meter.refund_request(&name, resource, self.state.now);
        }
        response.headers.extend(self.meter.headers(self.limits, &name, resource, self.state.now));
        response.headers.push(("date", self.state.now.to_http_date()));
        response.headers.push(("x-github-media-type", "github.v3; format=json".to_owned()));
        response.headers.push(("x-github-api-version-selected", VERSIONS[0].to_owned()));
        response.headers.push(("x-github-request-id", format!("{:08X}", self.journal.next_number())));
        if let Some(AuthenticatedActor { reach: TokenAccess::Scopes(scopes), .. }) = caller {
            let scopes: Vec<&str> = scopes.iter().map(String::as_str).collect();
            response.headers.push(("x-oauth-scopes", scopes.join(", ")));
        }
        response
    }

    /// Executes a request. Faults that replace the response come before it, concurrent commits just before the
    /// operation.
    fn execute_request(
        &mut self,
        request: &SimulatedRequest,
        base: &str,
        path: &str,
        found: Option<(&'static OperationRoute, PathArguments)>,
        actor: Option<AuthenticatedActor>,
        trouble: &FaultImpact,
    ) -> Result<OperationReply, OperationError> {
        if let Some(version) = request.header("x-github-api-version").filter(|one| !VERSIONS.contains(one)) {
            let message = format!(
                "\"{}\" is not a valid API version. Supported: {}.",
                version.escape_default(),
                VERSIONS.join(", ")
            );
            return Err(OperationError::new(400, message).with_general_docs());
        }
        match &trouble.before {
            Some(FaultEffect::SecondaryLimit { retry_after_s }) => {
                return Err(secondary_limit_error(*retry_after_s));
            }
            Some(FaultEffect::Answer { status, message, retry_after_s }) => {
                let mut error = OperationError::new(*status, message.clone());
                error.headers.extend(retry_after_s.map(|seconds| ("retry-after", seconds.to_string())));
                return Err(error);
            }
            _ => {}
        }
        let Some((route, arguments)) = found else { return Err(build_unrouted_error(request.method, path)) };
        for effect in &trouble.commits {
            self.state.now = self.state.now.plus_seconds(1);
            fault::apply_commit_fault(&mut self.state, effect);
        }
        if route.operation == "rate-limit/get" {
            let name = actor.as_ref().map_or("", |actor| actor.token.as_str());
            return Ok(OperationReply::ok(self.meter.overview_json(self.limits, name, self.state.now)));
        }
        let is_write = !request.method.is_read();
        if is_write && self.written_bytes > MAX_WRITTEN_BYTES {
            return Err(OperationError::new(
                507,
                "This simulator holds all it will; reset it with POST /_gradus/reset.",
            )
            .with_general_docs());
        }
        let before = self.state.now;
        if is_write {
            self.state.now = before.plus_seconds(1);
        }
        let mut call = OperationCall {
            state: &mut self.state,
            request,
            arguments,
            query: RequestQuery::parse(&request.query),
            actor,
            base: base.to_owned(),
            media: AcceptedMediaType::from_accept(request.header("accept")),
        };
        let result = (route.handler)(&mut call);
        match &result {
            // A failed operation changes nothing, so it takes no time either.
            Err(_) => self.state.now = before,
            Ok(_) if is_write => self.written_bytes += request.body.len() + WRITE_OVERHEAD_BYTES,
            Ok(_) => {}
        }
        result
    }

    /// Builds body, content type, and for successful reads `ETag`, `Last-Modified` and 304 for conditional requests.
    fn build_response(&self, request: &SimulatedRequest, reply: OperationReply) -> SimulatedResponse {
        let mut headers = reply.headers;
        let (content_type, body) = match reply.body {
            OperationBody::None => (None, Vec::new()),
            OperationBody::Json(value) => (Some("application/json; charset=utf-8"), value.to_string().into_bytes()),
            OperationBody::Bytes(kind, bytes) => (Some(kind), bytes),
        };
        headers.extend(content_type.map(|kind| ("content-type", kind.to_owned())));
        let mut response = SimulatedResponse { status: reply.status, headers, body, delay_ms: 0 };
        if !request.method.is_read() || reply.status != 200 {
            return response;
        }
        let tag = format!("W/\"{}\"", blake3::hash(&response.body).to_hex());
        let same = |wanted: &str| {
            wanted.split(',').any(|one| one.trim().trim_start_matches("W/") == &tag[2..] || one.trim() == "*")
        };
        let not_newer = |since: &str| {
            let since = super::time::SimulatedTime::parse_http(since);
            reply.modified.zip(since).is_some_and(|(modified, since)| modified <= since)
        };
        // `If-None-Match` takes precedence over `If-Modified-Since` (RFC 9110).
        let unchanged = match request.header("if-none-match") {
            Some(wanted) => same(wanted),
            None => request.header("if-modified-since").is_some_and(not_newer),
        };
        response.headers.push(("etag", tag));
        response.headers.push(("cache-control", "private, max-age=60, s-maxage=60".to_owned()));
        response.headers.push((
            "vary",
            "Accept, Authorization, Cookie, X-GitHub-OTP,Accept-Encoding, Accept, X-Requested-With".to_owned(),
        ));
        response.headers.extend(reply.modified.map(|modified| ("last-modified", modified.to_http_date())));
        if unchanged {
            response.status = 304;
            response.body.clear();
            response.headers.retain(|(name, _)| *name != "content-type");
        }
        response
    }
}

/// Builds an error response, which has neither an entity tag nor a modification time.
fn build_error_response(error: &OperationError, docs: &str) -> SimulatedResponse {
    let mut headers = error.headers.clone();
    headers.push(("content-type", "application/json; charset=utf-8".to_owned()));
    SimulatedResponse { status: error.status, headers, body: error.to_body(docs).to_string().into_bytes(), delay_ms: 0 }
}

/// Builds the response of a proxy that lost its upstream.
fn build_gateway_error(status: u16) -> SimulatedResponse {
    let body = json!({"message": "Server Error"}).to_string().into_bytes();
    SimulatedResponse {
        status,
        headers: vec![("content-type", "application/json; charset=utf-8".to_owned())],
        body,
        delay_ms: 0,
    }
}

/// Builds GitHub's error, whose message client libraries recognise.
fn secondary_limit_error(retry_after_s: u64) -> OperationError {
    let message = "You have exceeded a secondary rate limit. Please wait a few minutes before you try again.";
    let mut error = OperationError::new(403, message).with_general_docs();
    error.headers.push(("retry-after", retry_after_s.to_string()));
    error
}

/// Builds 501: GitHub may have this operation. Inventing a response would falsify results without notice.
fn build_unrouted_error(method: RequestMethod, path: &str) -> OperationError {
    let path: String = path.chars().take(200).collect();
    let mut error = OperationError::new(501, format!("Not simulated: {} {path}", method.name())).with_general_docs();
    error.extra.push(("simulator", "unrouted".to_owned()));
    error
}
