//! One request during its execution: the caller, the arguments of the path, and the body. All operations read their
//! input through this module, so that invalid input is refused with the same message everywhere.

use serde_json::{Map, Value};

use super::access::{self, AuthenticatedActor, RequiredAccess};
use super::error::OperationError;
use super::git::GitObjectStore;
use super::http::{AcceptedMediaType, RequestQuery, SimulatedRequest};
use super::page::RequestedPage;
use super::state::{AccountId, Repository, RepositoryId, WorldState};
use super::time::SimulatedTime;
use super::view::ApiView;

/// The result of an operation handler. After an error, the state must be unchanged.
pub(super) type OperationResult = Result<OperationReply, OperationError>;

/// The reply of an operation, without the headers that all responses share.
#[derive(Clone, Debug)]
pub(super) struct OperationReply {
    pub(super) status: u16,
    pub(super) body: OperationBody,
    /// Names in lower case.
    pub(super) headers: Vec<(&'static str, String)>,
    /// When the shown resource was last modified, for `Last-Modified` and `If-Modified-Since`. `None` for lists.
    pub(super) modified: Option<SimulatedTime>,
}

/// The body of a reply. `Bytes` carries its content type.
#[derive(Clone, Debug)]
pub(super) enum OperationBody {
    None,
    Json(Value),
    Bytes(&'static str, Vec<u8>),
}

impl OperationReply {
    pub(super) fn new(status: u16, body: Value) -> OperationReply {
        OperationReply { status, body: OperationBody::Json(body), headers: Vec::new(), modified: None }
    }

    pub(super) fn ok(body: Value) -> OperationReply {
        OperationReply::new(200, body)
    }

    /// Returns 201 with a `Location` header, taken from the `url` of the body.
    pub(super) fn created(body: Value) -> OperationReply {
        let location = body.get("url").and_then(Value::as_str).map(str::to_owned);
        let mut reply = OperationReply::new(201, body);
        reply.headers.extend(location.map(|location| ("location", location)));
        reply
    }

    pub(super) fn no_content() -> OperationReply {
        OperationReply { status: 204, body: OperationBody::None, headers: Vec::new(), modified: None }
    }

    /// Returns 200 with a body that is not JSON: raw files, diffs, patches.
    pub(super) fn from_bytes(content_type: &'static str, bytes: Vec<u8>) -> OperationReply {
        OperationReply {
            status: 200,
            body: OperationBody::Bytes(content_type, bytes),
            headers: Vec::new(),
            modified: None,
        }
    }

    /// Sets the time for `Last-Modified` and 304 responses.
    pub(super) fn with_modified_at(mut self, at: SimulatedTime) -> OperationReply {
        self.modified = Some(at);
        self
    }
}

/// Everything that an operation handler may use.
#[derive(Debug)]
pub(super) struct OperationCall<'w> {
    /// Handlers change it last, after all checks.
    pub(super) state: &'w mut WorldState,
    pub(super) request: &'w SimulatedRequest,
    /// Values of the route's placeholders, percent-decoded.
    pub(super) arguments: PathArguments,
    /// Decoded query parameters.
    pub(super) query: RequestQuery,
    /// `None` for requests without a token. Invalid tokens never get here.
    pub(super) actor: Option<AuthenticatedActor>,
    /// Scheme, host and prefix of all URLs in the response. They follow the `Host` header, so that clients stay on the
    /// simulator.
    pub(super) base: String,
    /// The representation that the `Accept` header asks for.
    pub(super) media: AcceptedMediaType,
}

impl OperationCall<'_> {
    /// Returns a renderer for the current state and this caller.
    pub(super) fn view(&self) -> ApiView<'_> {
        ApiView { state: self.state, base: &self.base, actor: self.actor.as_ref(), media: self.media }
    }

    /// Returns the simulated time. A write has advanced it by one second before the handler runs.
    pub(super) fn now(&self) -> SimulatedTime {
        self.state.now
    }

    /// Returns the caller's account; 401 for anonymous requests.
    pub(super) fn require_account(&self) -> Result<AccountId, OperationError> {
        self.actor.as_ref().map(|actor| actor.account).ok_or_else(OperationError::requires_authentication)
    }

    /// Returns the value of a placeholder; empty if the route does not have it.
    pub(super) fn path_argument(&self, name: &str) -> &str {
        self.arguments.iter().find(|(key, _)| *key == name).map_or("", |(_, value)| value.as_str())
    }

    /// Returns a number in the path. Anything else is 404, since it identifies nothing.
    pub(super) fn path_number(&self, name: &str) -> Result<u64, OperationError> {
        self.path_argument(name).parse().map_err(|_| OperationError::not_found())
    }

    /// Returns the repository that the path names, if the caller can see it and has the required access. Every
    /// handler calls this first, so that nothing leaks about invisible repositories.
    pub(super) fn require_repository(&self, need: RequiredAccess) -> Result<RepositoryId, OperationError> {
        let id = self.find_visible_repository()?;
        access::check_access(self.state, self.actor.as_ref(), self.repo(id)?, need)?;
        Ok(id)
    }

    /// Looks up the current name, then former names, which redirect.
    fn find_visible_repository(&self) -> Result<RepositoryId, OperationError> {
        let (owner, name) = (self.path_argument("owner"), self.path_argument("repo"));
        let seen = |id: &RepositoryId| {
            self.state.repository(*id).is_some_and(|one| access::can_see(self.state, self.actor.as_ref(), one))
        };
        if let Some(id) = self.state.repository_by_name(owner, name).filter(seen) {
            return Ok(id);
        }
        match self.state.repository_by_former_name(owner, name).filter(seen) {
            Some(id) => Err(self.redirect_error(id)),
            None => Err(OperationError::not_found()),
        }
    }

    /// Builds the redirect for a renamed repository: 301 for reads and 307 for writes, with its address by id in
    /// `Location`.
    fn redirect_error(&self, id: RepositoryId) -> OperationError {
        let path = self.request.path.strip_prefix("/api/v3").unwrap_or(&self.request.path);
        let rest: Vec<&str> = path.trim_matches('/').split('/').skip(3).collect();
        let mut location = format!("{}/repositories/{}", self.base, id.0);
        if !rest.is_empty() {
            location = format!("{location}/{}", rest.join("/"));
        }
        if !self.request.query.is_empty() {
            location = format!("{location}?{}", self.request.query);
        }
        let is_read = self.request.method.is_read();
        let (status, message) = if is_read { (301, "Moved Permanently") } else { (307, "Temporary Redirect") };
        let mut error = OperationError::new(status, message);
        error.extra.push(("url", location.clone()));
        error.headers.push(("location", location));
        error
    }

    /// Returns a repository; 404 if it no longer exists.
    pub(super) fn repo(&self, id: RepositoryId) -> Result<&Repository, OperationError> {
        self.state.repository(id).ok_or_else(OperationError::not_found)
    }

    pub(super) fn repo_mut(&mut self, id: RepositoryId) -> Result<&mut Repository, OperationError> {
        self.state.repositories.get_mut(&id).ok_or_else(OperationError::not_found)
    }

    /// Returns the object store, which the repository shares with its forks.
    pub(super) fn objects(&self, id: RepositoryId) -> Result<&GitObjectStore, OperationError> {
        Ok(self.state.objects(self.repo(id)?))
    }

    /// Returns the object store for changes. Creates the store of a network on first use.
    pub(super) fn objects_mut(&mut self, id: RepositoryId) -> Result<&mut GitObjectStore, OperationError> {
        let network = self.repo(id)?.network;
        Ok(self.state.networks.entry(network).or_default())
    }

    /// Parses the body as any JSON. A missing body counts as an empty object, as on GitHub. 400 for invalid JSON.
    pub(super) fn json_body(&self) -> Result<Value, OperationError> {
        if self.request.body.iter().all(u8::is_ascii_whitespace) {
            return Ok(Value::Object(Map::new()));
        }
        serde_json::from_slice(&self.request.body).map_err(|_| OperationError::new(400, "Problems parsing JSON"))
    }

    /// Parses the body as an object; 400 for other JSON.
    pub(super) fn body_fields(&self) -> Result<BodyFields, OperationError> {
        match self.json_body()? {
            Value::Object(fields) => Ok(BodyFields(fields)),
            _ => Err(OperationError::new(400, "Body should be a JSON object")),
        }
    }

    /// Replies with a page of a list as a JSON array, with the `Link` header.
    pub(super) fn reply_with_page<T>(&self, items: &[T], view: impl Fn(&ApiView<'_>, &T) -> Value) -> OperationReply {
        let (reply, shown) = self.paginate(items, view);
        OperationReply { body: OperationBody::Json(Value::Array(shown)), ..reply }
    }

    /// Replies with a page of a list inside an object: `{"total_count": n, key: [...]}`.
    pub(super) fn reply_with_counted_page<T>(
        &self,
        key: &str,
        items: &[T],
        view: impl Fn(&ApiView<'_>, &T) -> Value,
    ) -> OperationReply {
        let (reply, shown) = self.paginate(items, view);
        let mut body = Map::new();
        body.insert("total_count".to_owned(), Value::from(items.len()));
        body.insert(key.to_owned(), Value::Array(shown));
        OperationReply { body: OperationBody::Json(Value::Object(body)), ..reply }
    }

    /// Renders only the items of the requested page.
    fn paginate<T>(&self, items: &[T], view: impl Fn(&ApiView<'_>, &T) -> Value) -> (OperationReply, Vec<Value>) {
        let page = RequestedPage::from_query(&self.query);
        let shown = page.slice_items(items).iter().map(|item| view(&self.view(), item)).collect();
        let mut reply = OperationReply::ok(Value::Null);
        reply.headers.extend(page.link_header(&self.base, self.request, items.len()).map(|link| ("link", link)));
        (reply, shown)
    }

    /// Whether `direction` asks for ascending order; unknown values give the default.
    pub(super) fn is_ascending(&self, default: bool) -> bool {
        match self.query.get("direction") {
            Some("asc") => true,
            Some("desc") => false,
            _ => default,
        }
    }
}

/// The fields of a body, with GitHub's validation messages. Unknown fields are ignored, as on GitHub.
#[derive(Debug)]
pub(super) struct BodyFields(Map<String, Value>);

impl BodyFields {
    /// Takes the fields of a nested object. Anything else counts as empty, so required fields are reported as
    /// missing.
    pub(super) fn from_object_or_empty(value: &Value) -> BodyFields {
        BodyFields(value.as_object().cloned().unwrap_or_default())
    }

    pub(super) fn get(&self, name: &str) -> Option<&Value> {
        self.0.get(name)
    }

    /// Sets a field, for clients that send fields in the query.
    pub(super) fn set(&mut self, name: &str, value: Value) {
        self.0.insert(name.to_owned(), value);
    }

    /// Returns a field that is present and not null: GitHub mostly treats null as absent.
    fn non_null(&self, name: &str) -> Option<&Value> {
        self.0.get(name).filter(|value| !value.is_null())
    }

    /// Whether a field is explicitly null, which clears some fields.
    pub(super) fn is_null(&self, name: &str) -> bool {
        self.0.get(name).is_some_and(Value::is_null)
    }

    /// Returns a string; `None` if absent or null, 422 for another type.
    pub(super) fn text(&self, name: &str) -> Result<Option<&str>, OperationError> {
        match self.non_null(name) {
            None => Ok(None),
            Some(Value::String(text)) => Ok(Some(text)),
            Some(other) => Err(OperationError::wrong_type(name, other, "a string")),
        }
    }

    /// Returns a string; 422 if absent. Unlike in `text`, null is a wrong type.
    pub(super) fn required_text(&self, name: &str) -> Result<&str, OperationError> {
        match self.get(name) {
            None => Err(OperationError::missing_field(name)),
            Some(Value::String(text)) => Ok(text),
            Some(other) => Err(OperationError::wrong_type(name, other, "a string")),
        }
    }

    /// Returns a text that null or the empty text clears: `None` if absent, `Some(None)` if cleared.
    pub(super) fn clearable_text(&self, name: &str) -> Result<Option<Option<String>>, OperationError> {
        if self.is_null(name) {
            return Ok(Some(None));
        }
        Ok(self.text(name)?.map(|text| (!text.is_empty()).then(|| text.to_owned())))
    }

    /// Returns a boolean. Strings are not accepted.
    pub(super) fn flag(&self, name: &str) -> Result<Option<bool>, OperationError> {
        match self.non_null(name) {
            None => Ok(None),
            Some(Value::Bool(flag)) => Ok(Some(*flag)),
            Some(other) => Err(OperationError::wrong_type(name, other, "a boolean")),
        }
    }

    /// Returns a number, also from a string, which some clients send.
    pub(super) fn number(&self, name: &str) -> Result<Option<u64>, OperationError> {
        match self.non_null(name) {
            None => Ok(None),
            // Some clients send numbers as strings.
            Some(value) => match value.as_u64().or_else(|| value.as_str()?.parse().ok()) {
                Some(number) => Ok(Some(number)),
                None => Err(OperationError::wrong_type(name, value, "an integer")),
            },
        }
    }

    /// Returns an RFC 3339 time; 422 otherwise.
    pub(super) fn time(&self, name: &str) -> Result<Option<SimulatedTime>, OperationError> {
        let Some(text) = self.text(name)? else { return Ok(None) };
        match SimulatedTime::parse(text) {
            Some(time) => Ok(Some(time)),
            None => Err(OperationError::wrong_type(name, &Value::from(text), "a date-time")),
        }
    }

    /// Returns a list; `None` if absent or null.
    pub(super) fn list(&self, name: &str) -> Result<Option<&[Value]>, OperationError> {
        match self.non_null(name) {
            None => Ok(None),
            Some(Value::Array(items)) => Ok(Some(items)),
            Some(other) => Err(OperationError::wrong_type(name, other, "an array")),
        }
    }

    /// Returns a list of strings; 422 if an element is not one.
    pub(super) fn text_list(&self, name: &str) -> Result<Option<Vec<String>>, OperationError> {
        let Some(items) = self.list(name)? else { return Ok(None) };
        let text = |item: &Value| match item {
            Value::String(text) => Ok(text.clone()),
            other => Err(OperationError::wrong_type(name, other, "a string")),
        };
        items.iter().map(text).collect::<Result<_, _>>().map(Some)
    }

    /// Returns a text out of a fixed set; 422 otherwise.
    pub(super) fn text_one_of<'f>(&'f self, name: &str, allowed: &[&str]) -> Result<Option<&'f str>, OperationError> {
        let Some(text) = self.text(name)? else { return Ok(None) };
        if allowed.contains(&text) { Ok(Some(text)) } else { Err(OperationError::not_one_of(name, text, allowed)) }
    }
}

/// Names and values of a route's placeholders, in no particular order.
pub(super) type PathArguments = Vec<(&'static str, String)>;
