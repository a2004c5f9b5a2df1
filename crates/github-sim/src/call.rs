//! One request on its way: who asks, what the path names, what the body says. Operations read all that through here, so
//! that bad input is refused in the same words everywhere.

use serde_json::{Map, Value};

use super::access::{self, Actor, Need};
use super::error::ApiError;
use super::git::Objects;
use super::http::{Media, Query, Request};
use super::page::Page;
use super::state::{AccountId, Repository, RepositoryId, State};
use super::time::Time;
use super::view::View;

pub(super) type Answer = Result<Reply, ApiError>;

/// What an operation answers, before headers that all answers share.
#[derive(Clone, Debug)]
pub(super) struct Reply {
    pub(super) status: u16,
    pub(super) body: Body,
    pub(super) headers: Vec<(&'static str, String)>,
    pub(super) modified: Option<Time>,
}

#[derive(Clone, Debug)]
pub(super) enum Body {
    None,
    Json(Value),
    Bytes(&'static str, Vec<u8>),
}

impl Reply {
    pub(super) fn new(status: u16, body: Value) -> Reply {
        Reply { status, body: Body::Json(body), headers: Vec::new(), modified: None }
    }

    pub(super) fn ok(body: Value) -> Reply {
        Reply::new(200, body)
    }

    /// 201, with the address of what was made.
    pub(super) fn created(body: Value) -> Reply {
        let location = body.get("url").and_then(Value::as_str).map(str::to_owned);
        let mut reply = Reply::new(201, body);
        reply.headers.extend(location.map(|location| ("location", location)));
        reply
    }

    pub(super) fn nothing() -> Reply {
        Reply { status: 204, body: Body::None, headers: Vec::new(), modified: None }
    }

    pub(super) fn bytes(content_type: &'static str, bytes: Vec<u8>) -> Reply {
        Reply { status: 200, body: Body::Bytes(content_type, bytes), headers: Vec::new(), modified: None }
    }

    pub(super) fn modified(mut self, at: Time) -> Reply {
        self.modified = Some(at);
        self
    }
}

#[derive(Debug)]
pub(super) struct Call<'w> {
    pub(super) state: &'w mut State,
    pub(super) request: &'w Request,
    pub(super) arguments: Arguments,
    pub(super) query: Query,
    pub(super) actor: Option<Actor>,
    /// Scheme, host and prefix that answers' addresses begin with.
    pub(super) base: String,
    pub(super) media: Media,
}

impl Call<'_> {
    pub(super) fn view(&self) -> View<'_> {
        View { state: self.state, base: &self.base, actor: self.actor.as_ref(), media: self.media }
    }

    pub(super) fn now(&self) -> Time {
        self.state.now
    }

    /// Who asks; 401 for nobody.
    pub(super) fn account(&self) -> Result<AccountId, ApiError> {
        self.actor.as_ref().map(|actor| actor.account).ok_or_else(ApiError::requires_authentication)
    }

    pub(super) fn argument(&self, name: &str) -> &str {
        self.arguments.iter().find(|(key, _)| *key == name).map_or("", |(_, value)| value.as_str())
    }

    /// A number in the path; anything else names nothing.
    pub(super) fn number(&self, name: &str) -> Result<u64, ApiError> {
        self.argument(name).parse().map_err(|_| ApiError::not_found())
    }

    /// The repository that the path names, if it can be seen and the need is met.
    pub(super) fn repository(&self, need: Need) -> Result<RepositoryId, ApiError> {
        let id = self.visible()?;
        access::check(self.state, self.actor.as_ref(), self.repo(id)?, need)?;
        Ok(id)
    }

    fn visible(&self) -> Result<RepositoryId, ApiError> {
        let (owner, name) = (self.argument("owner"), self.argument("repo"));
        let seen = |id: &RepositoryId| {
            self.state
                .repository(*id)
                .is_some_and(|one| access::can_see(self.state, self.actor.as_ref(), one))
        };
        if let Some(id) = self.state.repository_by_name(owner, name).filter(seen) {
            return Ok(id);
        }
        match self.state.renamed(owner, name).filter(seen) {
            Some(id) => Err(self.moved(id)),
            None => Err(ApiError::not_found()),
        }
    }

    /// Where a renamed repository is now.
    fn moved(&self, id: RepositoryId) -> ApiError {
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
        let (status, message) =
            if is_read { (301, "Moved Permanently") } else { (307, "Temporary Redirect") };
        let mut error = ApiError::new(status, message);
        error.extra.push(("url", location.clone()));
        error.headers.push(("location", location));
        error
    }

    pub(super) fn repo(&self, id: RepositoryId) -> Result<&Repository, ApiError> {
        self.state.repository(id).ok_or_else(ApiError::not_found)
    }

    pub(super) fn repo_mut(&mut self, id: RepositoryId) -> Result<&mut Repository, ApiError> {
        self.state.repositories.get_mut(&id).ok_or_else(ApiError::not_found)
    }

    pub(super) fn objects(&self, id: RepositoryId) -> Result<&Objects, ApiError> {
        Ok(self.state.objects(self.repo(id)?))
    }

    pub(super) fn objects_mut(&mut self, id: RepositoryId) -> Result<&mut Objects, ApiError> {
        let network = self.repo(id)?.network;
        Ok(self.state.networks.entry(network).or_default())
    }

    /// Any JSON; an absent body is an empty object.
    pub(super) fn json(&self) -> Result<Value, ApiError> {
        if self.request.body.iter().all(u8::is_ascii_whitespace) {
            return Ok(Value::Object(Map::new()));
        }
        serde_json::from_slice(&self.request.body).map_err(|_| ApiError::new(400, "Problems parsing JSON"))
    }

    pub(super) fn fields(&self) -> Result<Fields, ApiError> {
        match self.json()? {
            Value::Object(fields) => Ok(Fields(fields)),
            _ => Err(ApiError::new(400, "Body should be a JSON object")),
        }
    }

    /// A page of a list.
    pub(super) fn list<T>(&self, items: &[T], view: impl Fn(&View<'_>, &T) -> Value) -> Reply {
        let (reply, shown) = self.page(items, view);
        Reply { body: Body::Json(Value::Array(shown)), ..reply }
    }

    /// A page of a list inside an object: `{"total_count": n, key: [...]}`.
    pub(super) fn counted<T>(&self, key: &str, items: &[T], view: impl Fn(&View<'_>, &T) -> Value) -> Reply {
        let (reply, shown) = self.page(items, view);
        let mut body = Map::new();
        body.insert("total_count".to_owned(), Value::from(items.len()));
        body.insert(key.to_owned(), Value::Array(shown));
        Reply { body: Body::Json(Value::Object(body)), ..reply }
    }

    fn page<T>(&self, items: &[T], view: impl Fn(&View<'_>, &T) -> Value) -> (Reply, Vec<Value>) {
        let page = Page::of(&self.query);
        let shown = page.of_items(items).iter().map(|item| view(&self.view(), item)).collect();
        let mut reply = Reply::ok(Value::Null);
        reply.headers.extend(page.link(&self.base, self.request, items.len()).map(|link| ("link", link)));
        (reply, shown)
    }

    /// Whether `direction` asks for rising order.
    pub(super) fn ascending(&self, default: bool) -> bool {
        match self.query.get("direction") {
            Some("asc") => true,
            Some("desc") => false,
            _ => default,
        }
    }
}

/// The fields of a body. Unknown ones are ignored, as GitHub does.
#[derive(Debug)]
pub(super) struct Fields(Map<String, Value>);

impl Fields {
    pub(super) fn of(value: &Value) -> Fields {
        Fields(value.as_object().cloned().unwrap_or_default())
    }

    pub(super) fn get(&self, name: &str) -> Option<&Value> {
        self.0.get(name)
    }

    pub(super) fn set(&mut self, name: &str, value: Value) {
        self.0.insert(name.to_owned(), value);
    }

    /// What is there and not null.
    fn given(&self, name: &str) -> Option<&Value> {
        self.0.get(name).filter(|value| !value.is_null())
    }

    pub(super) fn is_null(&self, name: &str) -> bool {
        self.0.get(name).is_some_and(Value::is_null)
    }

    pub(super) fn text(&self, name: &str) -> Result<Option<&str>, ApiError> {
        match self.given(name) {
            None => Ok(None),
            Some(Value::String(text)) => Ok(Some(text)),
            Some(other) => Err(ApiError::wrong_type(name, other, "a string")),
        }
    }

    pub(super) fn required_text(&self, name: &str) -> Result<&str, ApiError> {
        match self.get(name) {
            None => Err(ApiError::missing(name)),
            Some(Value::String(text)) => Ok(text),
            Some(other) => Err(ApiError::wrong_type(name, other, "a string")),
        }
    }

    /// A text that null or the empty text takes away: `None` is not given, `Some(None)` taken away.
    pub(super) fn clearable(&self, name: &str) -> Result<Option<Option<String>>, ApiError> {
        if self.is_null(name) {
            return Ok(Some(None));
        }
        Ok(self.text(name)?.map(|text| (!text.is_empty()).then(|| text.to_owned())))
    }

    pub(super) fn flag(&self, name: &str) -> Result<Option<bool>, ApiError> {
        match self.given(name) {
            None => Ok(None),
            Some(Value::Bool(flag)) => Ok(Some(*flag)),
            Some(other) => Err(ApiError::wrong_type(name, other, "a boolean")),
        }
    }

    pub(super) fn number(&self, name: &str) -> Result<Option<u64>, ApiError> {
        match self.given(name) {
            None => Ok(None),
            // Some clients send numbers as texts.
            Some(value) => match value.as_u64().or_else(|| value.as_str()?.parse().ok()) {
                Some(number) => Ok(Some(number)),
                None => Err(ApiError::wrong_type(name, value, "an integer")),
            },
        }
    }

    pub(super) fn time(&self, name: &str) -> Result<Option<Time>, ApiError> {
        let Some(text) = self.text(name)? else { return Ok(None) };
        match Time::parse(text) {
            Some(time) => Ok(Some(time)),
            None => Err(ApiError::wrong_type(name, &Value::from(text), "a date-time")),
        }
    }

    pub(super) fn list(&self, name: &str) -> Result<Option<&[Value]>, ApiError> {
        match self.given(name) {
            None => Ok(None),
            Some(Value::Array(items)) => Ok(Some(items)),
            Some(other) => Err(ApiError::wrong_type(name, other, "an array")),
        }
    }

    pub(super) fn texts(&self, name: &str) -> Result<Option<Vec<String>>, ApiError> {
        let Some(items) = self.list(name)? else { return Ok(None) };
        let text = |item: &Value| match item {
            Value::String(text) => Ok(text.clone()),
            other => Err(ApiError::wrong_type(name, other, "a string")),
        };
        items.iter().map(text).collect::<Result<_, _>>().map(Some)
    }

    pub(super) fn choice<'f>(&'f self, name: &str, allowed: &[&str]) -> Result<Option<&'f str>, ApiError> {
        let Some(text) = self.text(name)? else { return Ok(None) };
        if allowed.contains(&text) { Ok(Some(text)) } else { Err(ApiError::not_one_of(name, text, allowed)) }
    }
}

/// What stands in a path where the pattern has a name.
pub(super) type Arguments = Vec<(&'static str, String)>;
