//! Who may do what: keys and their scopes, rates, hosts, and the headers that every answer carries.

use std::collections::HashMap;
use std::net::{IpAddr, SocketAddr};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use axum::extract::{ConnectInfo, Request, State};
use axum::http::header::{
    AUTHORIZATION, CONTENT_SECURITY_POLICY, CONTENT_TYPE, HOST, REFERRER_POLICY, RETRY_AFTER,
    WWW_AUTHENTICATE, X_CONTENT_TYPE_OPTIONS, X_FRAME_OPTIONS,
};
use axum::http::request::Parts;
use axum::http::{HeaderMap, HeaderValue, Method, StatusCode, header};
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};
use gradus_store::KeyScopes;

use super::api::ApiError;
use super::client_address::ClientAddress;
use super::connection::ConnectionState;
use super::state::{Server, now_ns};
use super::{page, phoenix, receive};

/// Who asks: the name of the key, or nobody in particular.
#[derive(Clone, Debug, Default)]
pub(super) struct Caller {
    pub(super) name: String,
    /// What the key may do; none where no key is needed, so everything may be done.
    pub(super) scopes: Option<KeyScopes>,
}

impl Caller {
    /// Whether something that is sent to this path would be taken: what would not be is not offered.
    pub(super) fn may_send(&self, path: &str) -> bool {
        self.scopes.is_none_or(|scopes| Need::of(&Method::POST, path).is_met(scopes))
    }
}

/// What a request needs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Need {
    Nothing,
    Ingest,
    Read,
    Admin,
}

impl Need {
    fn of(method: &Method, path: &str) -> Need {
        match path {
            "/healthz" | "/readyz" | phoenix::VERSION_PATH => Need::Nothing,
            _ if page::is_open(path) => Need::Nothing,
            // A question, though it is posted.
            "/v1/spans" => Need::Read,
            "/v1/traces" | "/v1/logs" => Need::Ingest,
            _ if path.starts_with("/opentelemetry.") => Need::Ingest,
            _ if path.starts_with("/v1/") && method == Method::POST => Need::Ingest,
            _ if method == Method::GET || method == Method::HEAD => Need::Read,
            // Who may add spans may add what is said of them.
            "/api/v1/annotations" | "/labels" => Need::Ingest,
            _ => Need::Admin,
        }
    }

    fn is_met(self, scopes: KeyScopes) -> bool {
        scopes.admin
            || match self {
                Need::Nothing => true,
                Need::Ingest => scopes.ingest,
                Need::Read => scopes.read,
                Need::Admin => false,
            }
    }

    fn name(self) -> &'static str {
        match self {
            Need::Nothing => "nothing",
            Need::Ingest => "ingest",
            Need::Read => "read",
            Need::Admin => "admin",
        }
    }
}

/// Stands before everything else.
pub(super) async fn guard(State(guard): State<Arc<Guard>>, request: Request, next: Next) -> Response {
    let is_grpc = is_grpc(request.headers());
    let origin = request.headers().get(header::ORIGIN).cloned();
    let (mut parts, body) = request.into_parts();
    let admitted = if guard.is_preflight(&parts, origin.as_ref()) {
        Err(None)
    } else {
        guard.admit(&parts).await.map_err(Some)
    };
    let mut response = match admitted {
        Ok(caller) => {
            parts.extensions.insert(caller);
            next.run(Request::from_parts(parts, body)).await
        }
        Err(None) => preflight(),
        Err(Some(refusal)) if is_grpc => refusal.grpc(),
        Err(Some(refusal))
            if refusal.status == StatusCode::UNAUTHORIZED && phoenix::is_phoenix(parts.uri.path()) =>
        {
            phoenix::invalid_token()
        }
        Err(Some(refusal)) if receive::is_otlp(parts.uri.path()) => refusal.otlp(&parts.headers),
        Err(Some(refusal)) if page::is_for_people(&parts.uri, &parts.headers) => {
            let page = page::refused(
                refusal.status,
                &refusal.message,
                refusal.lacks_scope,
                &parts.method,
                &parts.uri,
                &parts.headers,
            );
            refusal.with_headers(page)
        }
        Err(Some(refusal)) => refusal.http(),
    };
    guard.add_headers(response.headers_mut(), origin.as_ref());
    response
}

/// What a page from an origin that is let in may send.
fn preflight() -> Response {
    let headers = [
        (header::ACCESS_CONTROL_ALLOW_METHODS, HeaderValue::from_static("GET, POST, DELETE")),
        (
            header::ACCESS_CONTROL_ALLOW_HEADERS,
            HeaderValue::from_static(
                "authorization, content-type, content-encoding, x-api-key, x-project-name",
            ),
        ),
        (header::ACCESS_CONTROL_MAX_AGE, HeaderValue::from_static("600")),
    ];
    (StatusCode::NO_CONTENT, headers).into_response()
}

pub(super) fn is_grpc(headers: &HeaderMap) -> bool {
    headers.get(CONTENT_TYPE).is_some_and(|kind| kind.as_bytes().starts_with(b"application/grpc"))
}

pub(super) struct Guard {
    server: Arc<Server>,
    rates: Rates,
    keys: Mutex<HashMap<String, (Instant, Caller, KeyScopes)>>,
}

/// How long a key that was looked up is believed: a revoked one works no longer than this.
const KEY_IS_FRESH: Duration = Duration::from_secs(5);
const MOST_KEYS: usize = 1000;

/// What somebody shows to be let in.
#[derive(Clone, Copy)]
enum Proof<'p> {
    Key(&'p str),
    /// Of somebody who signed in on the page.
    Session(&'p str),
}

impl Proof<'_> {
    /// A session is no key, even if it reads the same.
    fn name(self) -> String {
        match self {
            Proof::Key(key) => format!("key {key}"),
            Proof::Session(session) => format!("session {session}"),
        }
    }
}

struct Refused {
    status: StatusCode,
    grpc_code: u16,
    message: String,
    retry_after_s: Option<u32>,
    /// The key is known, and may not do that.
    lacks_scope: bool,
}

impl Refused {
    fn new(status: StatusCode, grpc_code: u16, message: impl Into<String>) -> Refused {
        Refused { status, grpc_code, message: message.into(), retry_after_s: None, lacks_scope: false }
    }

    fn http(self) -> Response {
        let response = ApiError::new(self.status, self.message.clone()).into_response();
        self.with_headers(response)
    }

    /// As OTLP asks: a status in the request's own encoding.
    fn otlp(self, headers: &HeaderMap) -> Response {
        let response = receive::status_response(self.status, self.grpc_code, &self.message, headers);
        self.with_headers(response)
    }

    fn with_headers(self, mut response: Response) -> Response {
        if self.status == StatusCode::UNAUTHORIZED {
            response.headers_mut().insert(WWW_AUTHENTICATE, HeaderValue::from_static("Bearer"));
        }
        if let Some(seconds) = self.retry_after_s {
            response.headers_mut().insert(RETRY_AFTER, HeaderValue::from(seconds));
        }
        response
    }

    fn grpc(self) -> Response {
        receive::grpc_error(self.grpc_code, &self.message, self.retry_after_s)
    }
}

impl Guard {
    pub(super) fn new(server: Arc<Server>) -> Guard {
        Guard { rates: Rates::new(server.settings.requests_per_second), server, keys: Mutex::default() }
    }

    /// Whether a browser asks if a page may ask. That carries no key, and needs none: it tells nothing.
    fn is_preflight(&self, request: &Parts, origin: Option<&HeaderValue>) -> bool {
        request.method == Method::OPTIONS
            && request.headers.contains_key(header::ACCESS_CONTROL_REQUEST_METHOD)
            && origin.is_some_and(|origin| self.is_known(origin))
    }

    fn is_known(&self, origin: &HeaderValue) -> bool {
        self.server.settings.cors_origins.iter().any(|known| known.as_bytes() == origin.as_bytes())
    }

    async fn admit(&self, request: &Parts) -> Result<Caller, Refused> {
        let need = Need::of(&request.method, request.uri.path());
        let peer = request.extensions.get::<ConnectInfo<SocketAddr>>().map(|info| info.0.ip());
        let is_own = matches!(request.method, Method::GET | Method::HEAD)
            || page::is_own(&request.uri, &request.headers);
        if page::is_form(request.uri.path()) && !is_own {
            // Whoever is here has a browser, which goes wherever another page sends it.
            let message = "forms are taken from this server's own pages only";
            return Err(Refused::new(StatusCode::FORBIDDEN, 7, message));
        }
        let client = request.extensions.get::<ClientAddress>().map(ToString::to_string);
        let address = client.or(peer.map(|ip| ip.to_string())).unwrap_or_default();
        let connection = request.extensions.get::<Arc<ConnectionState>>();
        if need == Need::Nothing {
            // A key that is tried is looked up: guessing is not for free here, either.
            if page::is_form(request.uri.path()) && request.method == Method::POST {
                self.rates.take(&address)?;
            }
            return Ok(Caller::default());
        }
        if !self.server.settings.needs_key {
            self.check_place(connection)?;
            check_host(request)?;
            self.rates.take(&address)?;
            return Ok(Caller::default());
        }
        // A browser shows its session with whatever it asks: that is believed for looking, and for what our own pages send.
        let shown = page::session(&request.headers).filter(|_| is_own).map(Proof::Session);
        match self.caller_of(given_key(&request.headers).map(Proof::Key).or(shown), need).await {
            Ok(caller) => {
                if let Some(connection) = connection {
                    connection.mark_keyed();
                }
                self.rates.take(&caller.name)?;
                Ok(caller)
            }
            Err(refused) => {
                self.server.tell_of_refusal(request.uri.path(), refused.status.as_u16(), &refused.message);
                // Guessing is not for free.
                self.rates.take(&address)?;
                Err(refused)
            }
        }
    }

    /// When all places are taken, those that are left are for health checks and for whoever shows a key.
    fn check_place(&self, connection: Option<&Arc<ConnectionState>>) -> Result<(), Refused> {
        let Some(connection) = connection.filter(|connection| connection.restriction().is_some()) else {
            return Ok(());
        };
        self.server.connections.report_restricted(connection);
        let message = "too many connections are open; try again later";
        let refused = Refused::new(StatusCode::SERVICE_UNAVAILABLE, 14, message);
        Err(Refused { retry_after_s: Some(1), ..refused })
    }

    async fn caller_of(&self, proof: Option<Proof<'_>>, need: Need) -> Result<Caller, Refused> {
        let Some(proof) = proof else {
            return Err(Refused::new(
                StatusCode::UNAUTHORIZED,
                16,
                "an API key is needed here: send it as `Authorization: Bearer KEY`; `gradus keys add` makes one",
            ));
        };
        let fresh = {
            let keys = self.keys.lock().unwrap_or_else(PoisonError::into_inner);
            keys.get(&proof.name())
                .filter(|(at, _, _)| at.elapsed() < KEY_IS_FRESH)
                .map(|(_, caller, scopes)| (caller.clone(), *scopes))
        };
        let (caller, scopes) = match fresh {
            Some(known) => known,
            None => self.look_up(proof).await?,
        };
        if !need.is_met(scopes) {
            let message = format!("this key may not do that: it needs the scope {}", need.name());
            return Err(Refused { lacks_scope: true, ..Refused::new(StatusCode::FORBIDDEN, 7, message) });
        }
        Ok(caller)
    }

    async fn look_up(&self, proof: Proof<'_>) -> Result<(Caller, KeyScopes), Refused> {
        let store = Arc::clone(&self.server.store);
        let (is_session, wanted) = match proof {
            Proof::Key(key) => (false, key.to_owned()),
            Proof::Session(session) => (true, session.to_owned()),
        };
        let found = tokio::task::spawn_blocking(move || {
            if is_session { store.scopes_of_session(&wanted, now_ns()) } else { store.scopes_of(&wanted) }
        })
        .await;
        match found {
            Ok(Ok(Some((name, scopes)))) => {
                let caller = Caller { name, scopes: Some(scopes) };
                let mut keys = self.keys.lock().unwrap_or_else(PoisonError::into_inner);
                if keys.len() >= MOST_KEYS {
                    keys.clear();
                }
                keys.insert(proof.name(), (Instant::now(), caller.clone(), scopes));
                Ok((caller, scopes))
            }
            Ok(Ok(None)) => Err(Refused::new(
                StatusCode::UNAUTHORIZED,
                16,
                match is_session {
                    true => "you are signed in no more: it was too long ago, or the key was revoked",
                    false => "this API key is not known, or it was revoked",
                },
            )),
            _ => Err(Refused::new(
                StatusCode::SERVICE_UNAVAILABLE,
                14,
                "keys cannot be looked up at the moment",
            )),
        }
    }

    fn add_headers(&self, headers: &mut HeaderMap, origin: Option<&HeaderValue>) {
        headers.insert(X_CONTENT_TYPE_OPTIONS, HeaderValue::from_static("nosniff"));
        headers.insert(X_FRAME_OPTIONS, HeaderValue::from_static("DENY"));
        // Pages say for themselves what they need.
        headers.entry(REFERRER_POLICY).or_insert(HeaderValue::from_static("no-referrer"));
        headers.entry(CONTENT_SECURITY_POLICY).or_insert(HeaderValue::from_static(
            "default-src 'none'; frame-ancestors 'none'; base-uri 'none'; form-action 'none'",
        ));
        if let Some(origin) = origin
            && self.is_known(origin)
        {
            headers.insert(header::ACCESS_CONTROL_ALLOW_ORIGIN, origin.clone());
            headers.insert(header::VARY, HeaderValue::from_static("origin"));
        }
    }
}

/// A key as OTLP exporters, Phoenix's clients and people send it.
fn given_key(headers: &HeaderMap) -> Option<&str> {
    let text = |name: &str| headers.get(name).and_then(|value| value.to_str().ok());
    let bearer = headers.get(AUTHORIZATION).and_then(|value| value.to_str().ok()).and_then(|value| {
        let (scheme, key) = value.split_once(' ')?;
        scheme.eq_ignore_ascii_case("bearer").then_some(key.trim())
    });
    bearer.or_else(|| text("api_key")).or_else(|| text("x-api-key")).filter(|key| !key.is_empty())
}

/// Without keys, only this machine may ask: a page from elsewhere that has its name point here may not.
fn check_host(request: &Parts) -> Result<(), Refused> {
    let authority = request.uri.authority().map(|authority| authority.as_str().to_owned());
    let host = request.headers.get(HOST).and_then(|host| host.to_str().ok()).map(str::to_owned).or(authority);
    let Some(host) = host else { return Ok(()) };
    let name = match host.rsplit_once(':') {
        Some((name, port)) if port.bytes().all(|byte| byte.is_ascii_digit()) => name,
        _ => &host,
    };
    let bare = name.trim_start_matches('[').trim_end_matches(']');
    let is_local = bare.eq_ignore_ascii_case("localhost")
        || bare.to_ascii_lowercase().ends_with(".localhost")
        || bare.parse::<IpAddr>().is_ok_and(|ip| ip.is_loopback());
    if is_local {
        return Ok(());
    }
    Err(Refused::new(
        StatusCode::FORBIDDEN,
        7,
        "without keys this server answers to localhost only; bind it wider with --http and make keys with `gradus keys add`",
    ))
}

/// So many requests a second for each client, with twice that at once.
struct Rates {
    per_second: Option<f64>,
    clients: Mutex<HashMap<String, (Instant, f64)>>,
}

const MOST_CLIENTS: usize = 10_000;

impl Rates {
    fn new(per_second: Option<f64>) -> Rates {
        Rates { per_second, clients: Mutex::default() }
    }

    fn take(&self, client: &str) -> Result<(), Refused> {
        let Some(per_second) = self.per_second else { return Ok(()) };
        let most = (per_second * 2.0).max(1.0);
        let now = Instant::now();
        let mut clients = self.clients.lock().unwrap_or_else(PoisonError::into_inner);
        if clients.len() >= MOST_CLIENTS {
            // Whoever was quiet for a while has all his requests again anyway.
            clients.retain(|_, (at, _)| at.elapsed() < Duration::from_secs(10));
        }
        let (at, left) = clients.entry(client.to_owned()).or_insert((now, most));
        *left = (*left + now.duration_since(*at).as_secs_f64() * per_second).min(most);
        *at = now;
        if *left < 1.0 {
            let mut refused =
                Refused::new(StatusCode::TOO_MANY_REQUESTS, 8, "too many requests; try again later");
            refused.retry_after_s = Some(((1.0 - *left) / per_second).ceil().max(1.0) as u32);
            return Err(refused);
        }
        *left -= 1.0;
        Ok(())
    }
}
