//! Access control: API keys and their scopes, rate limits, host names, cross-site requests, and security headers on
//! every response.

use crate::caller::{RequestCaller, RequiredScope};
use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use axum::extract::{Request, State};
use axum::http::header::{
    AUTHORIZATION, CONTENT_SECURITY_POLICY, CONTENT_TYPE, REFERRER_POLICY, RETRY_AFTER, WWW_AUTHENTICATE,
    X_CONTENT_TYPE_OPTIONS, X_FRAME_OPTIONS,
};
use axum::http::request::Parts;
use axum::http::{HeaderMap, HeaderValue, Method, StatusCode, header};
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};
use gradus_host::cross_site;
use gradus_store::KeyScopes;
use http_body::Body as _;

use super::client_address::ClientAddress;
use super::connection::ConnectionState;
use super::state::ServerState;
use super::{mcp, page, phoenix, queries, receive};
use crate::clock::now_ns;
use crate::http_error::ApiError;

/// Returns the scope that a request requires. Arms are tried in order. Everything that is not listed and changes
/// state needs `admin`, so that a new route is closed by default.
fn required_scope(method: &Method, path: &str) -> RequiredScope {
    match path {
        _ if is_health_check(path) => RequiredScope::NoKey,
        phoenix::VERSION_PATH => RequiredScope::NoKey,
        _ if page::is_keyless_path(path) => RequiredScope::NoKey,
        // The MCP tools read, except for one, which checks its scope itself.
        mcp::MCP_PATH => RequiredScope::Read,
        // Phoenix clients send queries with POST.
        "/v1/spans" => RequiredScope::Read,
        "/v1/traces" | "/v1/logs" => RequiredScope::Ingest,
        _ if path.starts_with("/opentelemetry.") => RequiredScope::Ingest,
        _ if path.starts_with("/v1/") && method == Method::POST => RequiredScope::Ingest,
        // The only GETs that need more: exports have addresses of webhooks, which are secrets, and a form is for
        // those who may send it.
        "/alerts/edit" | "/alerts/export" | "/api/v1/alert-rules/export" => RequiredScope::Admin,
        _ if method == Method::GET || method == Method::HEAD => RequiredScope::Read,
        // A key that may send spans may annotate them, and may send those of the demo.
        "/api/v1/annotations" | "/labels" | "/labels/undo" | "/api/v1/demo" | "/start/demo" => RequiredScope::Ingest,
        _ => RequiredScope::Admin,
    }
}

/// Whether a request is answered without a key on every server.
pub(super) fn needs_no_key(method: &Method, path: &str) -> bool {
    required_scope(method, path) == RequiredScope::NoKey
}

/// Health checks must work on an overloaded server, so they are exempt from keys and restrictions.
fn is_health_check(path: &str) -> bool {
    matches!(path, "/healthz" | "/readyz")
}

/// The middleware in front of every route. Refusals are written in the protocol of the request: gRPC, Phoenix's text,
/// OTLP status, a page, or JSON.
pub(super) async fn authorize_request(State(guard): State<Arc<AuthGuard>>, request: Request, next: Next) -> Response {
    let is_grpc = is_grpc(request.headers());
    let origin = request.headers().get(header::ORIGIN).cloned();
    let (mut parts, body) = request.into_parts();
    let admitted = if guard.is_preflight(&parts, origin.as_ref()) {
        Err(None)
    } else {
        match guard.refuse_cross_site(&parts, !body.is_end_stream()) {
            Err(refused) => Err(Some(refused)),
            Ok(()) => guard.admit(&parts).map_err(Some),
        }
    };
    let mut response = match admitted {
        Ok(caller) => {
            // The query pool schedules fairly by key, and by address where no keys are needed.
            let name = match caller.name.is_empty() {
                true => charged_client_name(&parts),
                false => caller.name.clone(),
            };
            parts.extensions.insert(caller);
            queries::with_caller(name.into(), next.run(Request::from_parts(parts, body))).await
        }
        Err(None) => answer_preflight(),
        Err(Some(refusal)) if is_grpc => refusal.into_grpc_response(),
        Err(Some(refusal))
            if refusal.status == StatusCode::UNAUTHORIZED && phoenix::is_phoenix_path(parts.uri.path()) =>
        {
            phoenix::respond_invalid_token()
        }
        Err(Some(refusal)) if receive::is_otlp_path(parts.uri.path()) => refusal.into_otlp_response(&parts.headers),
        Err(Some(refusal)) if page::wants_error_page(&parts.uri, &parts.headers) => {
            let page = page::render_refusal(
                refusal.status,
                &refusal.message,
                refusal.lacks_scope,
                &parts.method,
                &parts.uri,
                &parts.headers,
            );
            refusal.with_status_headers(page)
        }
        Err(Some(refusal)) => refusal.into_http_response(),
    };
    guard.add_security_headers(response.headers_mut(), origin.as_ref());
    response
}

/// Answers a CORS preflight request of a configured origin. Browsers cache it for ten minutes.
fn answer_preflight() -> Response {
    let headers = [
        (header::ACCESS_CONTROL_ALLOW_METHODS, HeaderValue::from_static("GET, POST, PUT, PATCH, DELETE")),
        (
            header::ACCESS_CONTROL_ALLOW_HEADERS,
            HeaderValue::from_static(
                "authorization, content-type, content-encoding, x-api-key, x-project-name, mcp-protocol-version, mcp-method, \
                 mcp-name",
            ),
        ),
        (header::ACCESS_CONTROL_MAX_AGE, HeaderValue::from_static("600")),
    ];
    (StatusCode::NO_CONTENT, headers).into_response()
}

/// By the content type, as gRPC over HTTP/2 requires; also true for `application/grpc+proto`.
pub(super) fn is_grpc(headers: &HeaderMap) -> bool {
    headers.get(CONTENT_TYPE).is_some_and(|kind| kind.as_bytes().starts_with(b"application/grpc"))
}

/// The state of the middleware.
pub(super) struct AuthGuard {
    server: Arc<ServerState>,
    rates: ClientRateLimiter,
}

/// What a request presents to be admitted.
#[derive(Clone, Copy)]
enum RequestCredential<'p> {
    Key(&'p str),
    /// The session cookie of a person who signed in on the page.
    Session(&'p str),
}

/// A refused request, before it is written in one of the protocols.
struct AccessRefusal {
    status: StatusCode,
    /// A code of `google.rpc.Code`: 3 invalid argument, 7 permission denied, 8 resource exhausted, 14 unavailable, 16
    /// unauthenticated.
    grpc_code: u16,
    message: String,
    retry_after_s: Option<u32>,
    /// The key is valid but lacks the scope, so that a page can offer to sign in with another one.
    lacks_scope: bool,
}

impl AccessRefusal {
    fn new(status: StatusCode, grpc_code: u16, message: impl Into<String>) -> AccessRefusal {
        AccessRefusal { status, grpc_code, message: message.into(), retry_after_s: None, lacks_scope: false }
    }

    fn into_http_response(self) -> Response {
        let response = ApiError::new(self.status, self.message.clone()).into_response();
        self.with_status_headers(response)
    }

    /// OTLP/HTTP requires a `google.rpc.Status` body in the encoding of the request.
    fn into_otlp_response(self, headers: &HeaderMap) -> Response {
        let response = receive::build_status_response(self.status, self.grpc_code, &self.message, headers);
        self.with_status_headers(response)
    }

    /// Headers that belong to the status: `WWW-Authenticate` with 401 (RFC 9110), and `Retry-After`.
    fn with_status_headers(self, mut response: Response) -> Response {
        if self.status == StatusCode::UNAUTHORIZED {
            response.headers_mut().insert(WWW_AUTHENTICATE, HeaderValue::from_static("Bearer"));
        }
        if let Some(seconds) = self.retry_after_s {
            response.headers_mut().insert(RETRY_AFTER, HeaderValue::from(seconds));
        }
        response
    }

    fn into_grpc_response(self) -> Response {
        receive::grpc_error(self.grpc_code, &self.message, self.retry_after_s)
    }
}

impl AuthGuard {
    pub(super) fn new(server: Arc<ServerState>) -> AuthGuard {
        AuthGuard { rates: ClientRateLimiter::new(server.settings.requests_per_second), server }
    }

    /// Whether this is a CORS preflight of a configured origin. Browsers send it without credentials, so it is answered
    /// without a key, and it reveals nothing.
    fn is_preflight(&self, request: &Parts, origin: Option<&HeaderValue>) -> bool {
        request.method == Method::OPTIONS
            && request.headers.contains_key(header::ACCESS_CONTROL_REQUEST_METHOD)
            && origin.is_some_and(|origin| self.is_allowed_origin(origin))
    }

    /// Origins are compared byte for byte, as browsers send them.
    fn is_allowed_origin(&self, origin: &HeaderValue) -> bool {
        self.server.settings.cors_origins.iter().any(|known| known.as_bytes() == origin.as_bytes())
    }

    /// Refuses cross-site requests: those that change state and were caused by a page of another site, and bodies
    /// that such a page can send without a CORS preflight. `GET` changes no state on any route.
    fn refuse_cross_site(&self, request: &Parts, has_body: bool) -> Result<(), AccessRefusal> {
        if !cross_site::is_state_changing(&request.method) {
            return Ok(());
        }
        let settings = &self.server.settings;
        let own = cross_site::origin_part(&settings.public_url);
        let trusted: Vec<&str> = settings.cors_origins.iter().map(String::as_str).chain([own]).collect();
        let page = cross_site::find_cross_site_page(&request.headers, &request.uri, &trusted);
        let refused = if page.is_some() {
            let message = "cross-site request: a web page of another site sent it; hint: add its origin to serve.cors_origins if it may";
            AccessRefusal::new(StatusCode::FORBIDDEN, 7, message)
        } else if has_body
            && !page::is_form_path(request.uri.path())
            && let Some(kind) = cross_site::find_simple_content_type(&request.headers)
        {
            let message = format!(
                "content type {kind:?} is not accepted here; hint: send application/json, or application/x-protobuf for OTLP"
            );
            AccessRefusal::new(StatusCode::UNSUPPORTED_MEDIA_TYPE, 3, message)
        } else if !settings.needs_key {
            return check_loopback_host(request);
        } else {
            return Ok(());
        };
        self.server.log_refusal(request.uri.path(), refused.status.as_u16(), &refused.message);
        Err(refused)
    }

    /// Decides who the caller is. Keys in headers count before the session cookie.
    fn admit(&self, request: &Parts) -> Result<RequestCaller, AccessRefusal> {
        let required = required_scope(&request.method, request.uri.path());
        let is_own = matches!(request.method, Method::GET | Method::HEAD)
            || page::is_own_page_request(&request.uri, &request.headers);
        if page::is_form_path(request.uri.path()) && !is_own {
            // The browser of a signed-in person sends the cookie along with a form of any site (CSRF).
            let message = "forms are taken from this server's own pages only";
            return Err(AccessRefusal::new(StatusCode::FORBIDDEN, 7, message));
        }
        let connection = request.extensions.get::<Arc<ConnectionState>>();
        if required == RequiredScope::NoKey {
            if !is_health_check(request.uri.path()) {
                self.check_restriction(connection)?;
            }
            // The sign-in form looks up a key, so guessing is rate limited here, too.
            if page::is_form_path(request.uri.path()) && request.method == Method::POST {
                self.rates.take_token(|| charged_client_name(request))?;
            }
            return Ok(RequestCaller::default());
        }
        if !self.server.settings.needs_key {
            self.check_restriction(connection)?;
            check_loopback_host(request)?;
            self.rates.take_token(|| charged_client_name(request))?;
            return Ok(RequestCaller::default());
        }
        // A browser attaches the cookie to every request. It is accepted for reading, and for requests that this
        // server's own pages sent.
        let shown = page::read_session_cookie(&request.headers).filter(|_| is_own).map(RequestCredential::Session);
        match self.authorize_credential(read_api_key(&request.headers).map(RequestCredential::Key).or(shown), required)
        {
            Ok(caller) => {
                if let Some(connection) = connection {
                    connection.mark_keyed();
                }
                self.rates.take_token(|| caller.name.clone())?;
                Ok(caller)
            }
            Err(refused) => {
                self.server.log_refusal(request.uri.path(), refused.status.as_u16(), &refused.message);
                // Failed attempts are charged to the address, so that guessing keys is slow.
                self.rates.take_token(|| charged_client_name(request))?;
                Err(refused)
            }
        }
    }

    /// On a restricted connection only health checks and requests with a valid key are answered.
    fn check_restriction(&self, connection: Option<&Arc<ConnectionState>>) -> Result<(), AccessRefusal> {
        let Some(connection) = connection.filter(|connection| connection.restriction().is_some()) else {
            return Ok(());
        };
        self.server.connections.report_restricted(connection);
        let message = "too many connections are open; try again later";
        let refused = AccessRefusal::new(StatusCode::SERVICE_UNAVAILABLE, 14, message);
        Err(AccessRefusal { retry_after_s: Some(1), ..refused })
    }

    /// Authenticates a credential and checks its scope: 401 without a valid credential, 403 without the scope.
    fn authorize_credential(
        &self,
        credential: Option<RequestCredential<'_>>,
        required: RequiredScope,
    ) -> Result<RequestCaller, AccessRefusal> {
        let Some(credential) = credential else {
            return Err(AccessRefusal::new(
                StatusCode::UNAUTHORIZED,
                16,
                "an API key is needed here: send it as `Authorization: Bearer KEY`; `gradus keys add` makes one",
            ));
        };
        let (caller, scopes) = self.look_up_credential(credential)?;
        if !required.is_met(scopes) {
            let message = format!("this key may not do that: it needs the scope {}", required.name());
            return Err(AccessRefusal { lacks_scope: true, ..AccessRefusal::new(StatusCode::FORBIDDEN, 7, message) });
        }
        Ok(caller)
    }

    /// Looks a key up in the store on every request, through a connection of its own. So a revoked key is refused at
    /// once, and a slow query never delays a sender.
    fn look_up_credential(
        &self,
        credential: RequestCredential<'_>,
    ) -> Result<(RequestCaller, KeyScopes), AccessRefusal> {
        let store = &self.server.store;
        let (found, unknown) = match credential {
            RequestCredential::Key(key) => (store.find_key_scopes(key), "this API key is not known, or it was revoked"),
            RequestCredential::Session(session) => (
                store.find_session_scopes(session, now_ns()),
                "you are signed in no more: it was too long ago, or the key was revoked",
            ),
        };
        match found {
            Ok(Some((name, scopes))) => Ok((RequestCaller { name, scopes: Some(scopes) }, scopes)),
            Ok(None) => Err(AccessRefusal::new(StatusCode::UNAUTHORIZED, 16, unknown)),
            Err(error) => {
                self.server.log_storing_failure(&error);
                let message = "keys cannot be looked up at the moment";
                Err(AccessRefusal::new(StatusCode::SERVICE_UNAVAILABLE, 14, message))
            }
        }
    }

    /// Security headers of every response. A handler may set a wider policy for its page before; the strict default
    /// applies otherwise.
    fn add_security_headers(&self, headers: &mut HeaderMap, origin: Option<&HeaderValue>) {
        headers.insert(X_CONTENT_TYPE_OPTIONS, HeaderValue::from_static("nosniff"));
        headers.insert(X_FRAME_OPTIONS, HeaderValue::from_static("DENY"));
        // Pages with scripts and styles bring their own policies.
        headers.entry(REFERRER_POLICY).or_insert(HeaderValue::from_static("no-referrer"));
        headers.entry(CONTENT_SECURITY_POLICY).or_insert(HeaderValue::from_static(
            "default-src 'none'; frame-ancestors 'none'; base-uri 'none'; form-action 'none'",
        ));
        if let Some(origin) = origin
            && self.is_allowed_origin(origin)
        {
            headers.insert(header::ACCESS_CONTROL_ALLOW_ORIGIN, origin.clone());
            headers.insert(header::VARY, HeaderValue::from_static("origin"));
        }
    }
}

/// Returns the client address that a request is charged to: behind a trusted proxy the client's own, and the /64
/// network of IPv6.
fn charged_client_name(request: &Parts) -> String {
    request.extensions.get::<ClientAddress>().map(ToString::to_string).unwrap_or_default()
}

/// Returns the key of a request: `Authorization: Bearer` of OTLP exporters, `api_key` of Phoenix clients, or
/// `x-api-key`.
fn read_api_key(headers: &HeaderMap) -> Option<&str> {
    let text = |name: &str| headers.get(name).and_then(|value| value.to_str().ok());
    let bearer = headers.get(AUTHORIZATION).and_then(|value| value.to_str().ok()).and_then(|value| {
        let (scheme, key) = value.split_once(' ')?;
        scheme.eq_ignore_ascii_case("bearer").then_some(key.trim())
    });
    bearer.or_else(|| text("api_key")).or_else(|| text("x-api-key")).filter(|key| !key.is_empty())
}

/// Without keys, the `Host` header must name loopback. This stops DNS rebinding, where a foreign page lets its own name
/// point to 127.0.0.1.
fn check_loopback_host(request: &Parts) -> Result<(), AccessRefusal> {
    if cross_site::is_addressed_to_loopback(&request.headers, &request.uri) {
        return Ok(());
    }
    Err(AccessRefusal::new(
        StatusCode::FORBIDDEN,
        7,
        "without keys this server answers to localhost only; bind it wider with --http and make keys with `gradus keys add`",
    ))
}

/// A token bucket for each client: it refills at `per_second` and holds two seconds' worth of requests.
struct ClientRateLimiter {
    per_second: Option<f64>,
    /// When a bucket was used last, and the tokens that were left.
    clients: Mutex<HashMap<String, (Instant, f64)>>,
}

/// Maximum number of buckets, so that many addresses cannot fill the memory.
const MAX_CLIENTS: usize = 10_000;

impl ClientRateLimiter {
    fn new(per_second: Option<f64>) -> ClientRateLimiter {
        ClientRateLimiter { per_second, clients: Mutex::default() }
    }

    /// Takes a token, or refuses with the time until the next one. `client` is a closure, because its name is not
    /// needed without a limit.
    fn take_token(&self, client: impl FnOnce() -> String) -> Result<(), AccessRefusal> {
        let Some(per_second) = self.per_second else { return Ok(()) };
        let most = (per_second * 2.0).max(1.0);
        let now = Instant::now();
        let mut clients = self.clients.lock().unwrap_or_else(PoisonError::into_inner);
        if clients.len() >= MAX_CLIENTS {
            // A bucket is full again after two seconds, so dropping those that were unused for ten forgets nothing.
            clients.retain(|_, (at, _)| at.elapsed() < Duration::from_secs(10));
        }
        let (at, left) = clients.entry(client()).or_insert((now, most));
        *left = (*left + now.duration_since(*at).as_secs_f64() * per_second).min(most);
        *at = now;
        if *left < 1.0 {
            let mut refused =
                AccessRefusal::new(StatusCode::TOO_MANY_REQUESTS, 8, "too many requests; try again later");
            refused.retry_after_s = Some(((1.0 - *left) / per_second).ceil().max(1.0) as u32);
            return Err(refused);
        }
        *left -= 1.0;
        Ok(())
    }
}
