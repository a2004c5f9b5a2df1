//! Serves a world over HTTP/1.1. Everything slow or non-deterministic happens here: connections, delays and real time.

use std::convert::Infallible;
use std::net::{Ipv4Addr, SocketAddr};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use http_body_util::{BodyExt as _, Full, Limited};
use hyper::body::{Body as _, Bytes, Incoming};
use hyper::header::{HeaderName, HeaderValue};
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::{TokioIo, TokioTimer};
use tokio::net::TcpListener;
use tokio::sync::{Semaphore, oneshot};

use super::CONTROL;
use super::http::{RequestMethod, SimulatedRequest, SimulatedResponse};
use super::world::World;
use gradus_host::cross_site;

/// Maximum request body in bytes; a file of 25 MB fits as Base64.
const MAX_REQUEST_BODY_BYTES: usize = 40 << 20;
/// Maximum number of connections. Further ones wait in the backlog of the socket.
const MAX_CONNECTIONS: usize = 1024;
/// Timeout for a client to send its headers.
const HEADER_TIMEOUT: Duration = Duration::from_secs(10);

/// Why the simulator cannot be served.
#[derive(Debug, thiserror::Error)]
pub enum ServeError {
    #[error("cannot listen on {address} ({reason}); choose another port with --port")]
    Bind { address: SocketAddr, reason: std::io::Error },
    #[error("the simulator cannot start: {0}")]
    Start(std::io::Error),
}

/// Binds a port on the loopback interface; 0 chooses a free one. The simulator is never reachable from other machines.
pub async fn bind_loopback_port(port: u16) -> Result<TcpListener, ServeError> {
    let address = SocketAddr::from((Ipv4Addr::LOCALHOST, port));
    TcpListener::bind(address).await.map_err(|reason| ServeError::Bind { address, reason })
}

/// Serves until the future is dropped. With `real_time`, the world's clock advances with the wall clock between
/// requests. The mutex is held for one request at a time and never across an await.
pub async fn serve_world(listener: TcpListener, world: Arc<Mutex<World>>, real_time: bool) {
    let connections = Arc::new(Semaphore::new(MAX_CONNECTIONS));
    let started = Instant::now();
    let passed = Arc::new(Mutex::new(0_i64));
    loop {
        let Ok(permit) = Arc::clone(&connections).acquire_owned().await else { return };
        let Ok((stream, _)) = listener.accept().await else {
            // Usually out of file descriptors: other connections have to close first.
            tokio::time::sleep(Duration::from_millis(50)).await;
            continue;
        };
        // Responses are small; Nagle's algorithm would add 40 ms to each.
        let _ = stream.set_nodelay(true);
        let (world, passed) = (Arc::clone(&world), Arc::clone(&passed));
        let service = service_fn(move |request| {
            let (world, passed) = (Arc::clone(&world), Arc::clone(&passed));
            async move {
                if real_time {
                    advance_to_wall_clock(&world, &passed, started);
                }
                Ok::<_, Infallible>(serve_request(request, &world).await)
            }
        });
        tokio::spawn(async move {
            let _permit = permit;
            let mut builder = http1::Builder::new();
            // The world sets its own `Date` header.
            builder.timer(TokioTimer::new()).header_read_timeout(HEADER_TIMEOUT).auto_date_header(false);
            // A client that disconnects is not an error of the server.
            let _ = builder.serve_connection(TokioIo::new(stream), service).await;
        });
    }
}

/// Advances the world's clock by the whole seconds that have passed since the last request.
fn advance_to_wall_clock(world: &Mutex<World>, passed: &Mutex<i64>, started: Instant) {
    let now = i64::try_from(started.elapsed().as_secs()).unwrap_or(i64::MAX);
    let mut passed = passed.lock().unwrap_or_else(PoisonError::into_inner);
    if now > *passed {
        world.lock().unwrap_or_else(PoisonError::into_inner).advance_clock(now - *passed);
        *passed = now;
    }
}

/// Reads the body, lets the world answer, and waits out a planted latency.
async fn serve_request(request: hyper::Request<Incoming>, world: &Mutex<World>) -> hyper::Response<Full<Bytes>> {
    let (head, body) = request.into_parts();
    if let Some(refusal) = refuse_browser_request(&head, &body) {
        return to_hyper_response(refusal);
    }
    let body = match Limited::new(body, MAX_REQUEST_BODY_BYTES).collect().await {
        Ok(body) => body.to_bytes().to_vec(),
        Err(_) => {
            let body = format!(
                "{{\"message\":\"The body is over {MAX_REQUEST_BODY_BYTES} bytes, or broke off\",\"status\":\"413\"}}"
            );
            let response = SimulatedResponse { status: 413, headers: Vec::new(), body: body.into_bytes(), delay_ms: 0 };
            return to_hyper_response(response);
        }
    };
    let header = |(name, value): (&HeaderName, &HeaderValue)| {
        (name.as_str().to_owned(), String::from_utf8_lossy(value.as_bytes()).into_owned())
    };
    let request = SimulatedRequest {
        method: RequestMethod::from_name(head.method.as_str()),
        path: head.uri.path().to_owned(),
        query: head.uri.query().unwrap_or_default().to_owned(),
        headers: head.headers.iter().map(header).collect(),
        body,
    };
    let response = world.lock().unwrap_or_else(PoisonError::into_inner).handle(&request);
    if response.delay_ms > 0 {
        tokio::time::sleep(Duration::from_millis(response.delay_ms)).await;
    }
    to_hyper_response(response)
}

/// Refuses what a web page in a browser on this machine could send: requests to another host name (DNS rebinding),
/// writes from other sites (CSRF), and bodies for the control API in a content type that needs no preflight.
fn refuse_browser_request(head: &hyper::http::request::Parts, body: &Incoming) -> Option<SimulatedResponse> {
    let refuse = |status: u16, message: &str| {
        let body = serde_json::json!({"message": message, "status": status.to_string()});
        Some(SimulatedResponse { status, headers: Vec::new(), body: body.to_string().into_bytes(), delay_ms: 0 })
    };
    if !cross_site::is_addressed_to_loopback(&head.headers, &head.uri) {
        return refuse(403, "wrong host: the simulator answers to localhost only");
    }
    if !cross_site::is_state_changing(&head.method) {
        return None;
    }
    const NO_ORIGINS: [&str; 0] = [];
    if cross_site::find_cross_site_page(&head.headers, &head.uri, &NO_ORIGINS).is_some() {
        return refuse(403, "cross-site request: web pages of other sites cannot change the simulator's state");
    }
    let is_simple = cross_site::find_simple_content_type(&head.headers).is_some() && !body.is_end_stream();
    if is_simple && head.uri.path().starts_with(CONTROL) {
        return refuse(415, "wrong content type: send the body as application/json");
    }
    None
}

/// Converts a response. Header values that are not allowed, such as a name with a line break, are escaped.
fn to_hyper_response(response: SimulatedResponse) -> hyper::Response<Full<Bytes>> {
    let mut made = hyper::Response::new(Full::new(Bytes::from(response.body)));
    *made.status_mut() =
        hyper::StatusCode::from_u16(response.status).unwrap_or(hyper::StatusCode::INTERNAL_SERVER_ERROR);
    for (name, value) in response.headers {
        // Text that a header cannot contain, such as a line break, is escaped.
        let value =
            HeaderValue::from_str(&value).or_else(|_| HeaderValue::from_str(&value.escape_default().to_string()));
        if let Ok(value) = value {
            made.headers_mut().append(HeaderName::from_static(name), value);
        }
    }
    made
}

/// A simulator in its own thread with its own runtime. Dropping it stops the server and joins the thread.
#[derive(Debug)]
pub struct SimulatorServer {
    /// The bound port, also if a free one was chosen.
    port: u16,
    world: Arc<Mutex<World>>,
    /// Dropping the sender would stop the server as well.
    stop: Option<oneshot::Sender<()>>,
    thread: Option<std::thread::JoinHandle<()>>,
}

impl SimulatorServer {
    /// Starts on a loopback port; 0 chooses a free one. It does not await anything, so it can be called from any
    /// context.
    pub fn start(world: World, port: u16) -> Result<SimulatorServer, ServeError> {
        let address = SocketAddr::from((Ipv4Addr::LOCALHOST, port));
        let listener = std::net::TcpListener::bind(address).map_err(|reason| ServeError::Bind { address, reason })?;
        listener.set_nonblocking(true).map_err(ServeError::Start)?;
        let port = listener.local_addr().map_err(ServeError::Start)?.port();
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().map_err(ServeError::Start)?;
        let listener = {
            let _runtime = runtime.enter();
            TcpListener::from_std(listener).map_err(ServeError::Start)?
        };
        let world = Arc::new(Mutex::new(world));
        let shared = Arc::clone(&world);
        let (stop, stopped) = oneshot::channel();
        let thread = std::thread::spawn(move || {
            runtime.block_on(async {
                tokio::select! {
                    () = serve_world(listener, shared, false) => {}
                    _ = stopped => {}
                }
            });
        });
        Ok(SimulatorServer { port, world, stop: Some(stop), thread: Some(thread) })
    }

    /// Returns the base URL for clients.
    pub fn url(&self) -> String {
        format!("http://127.0.0.1:{}", self.port)
    }

    /// Returns the world, for checks between requests. Holding the lock blocks all requests.
    pub fn world(&self) -> &Mutex<World> {
        &self.world
    }
}

impl Drop for SimulatorServer {
    fn drop(&mut self) {
        if let Some(stop) = self.stop.take() {
            let _ = stop.send(());
        }
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}
