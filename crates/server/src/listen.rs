//! Sockets: HTTP/1 and HTTP/2 on every port, with limits on the number of connections, on the memory that they hold and
//! on their time, and a shutdown that lets open requests finish.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use axum::body::Body;
use axum::extract::{ConnectInfo, Request};
use axum::http::header::{CONNECTION, RETRY_AFTER};
use axum::http::{HeaderMap, HeaderValue, Method, StatusCode, Version};
use axum::response::{IntoResponse as _, Response};
use http_body::Body as _;
use hyper::body::Incoming;
use hyper_util::rt::{TokioIo, TokioTimer};
use hyper_util::server::conn::auto::Builder;
use tokio::io::AsyncWriteExt as _;
use tokio::net::{TcpListener, TcpSocket, TcpStream};
use tokio::runtime::Handle;
use tokio::sync::{Semaphore, mpsc, oneshot, watch};
use tower::ServiceExt as _;

use super::client_address::ClientAddress;
use super::connection::{ConnectionCloseReason, ConnectionState};
use super::connections::ConnectionSlot;
use super::memory::{MemoryRefusal, MemoryUse};
use super::metered_stream::MeteredStream;
use super::request_body::RequestBody;
use super::response_body::{AnsweredRequest, StreamMemory, StreamProgress, TrackedBody};
use super::spilled_body::spill_body_to_file;
use super::state::ServerState;
use super::{auth, logging, phoenix};
use crate::throttled_log::ThrottledLog;

/// The read buffer of one HTTP/1 connection. It also bounds the head of a request.
const READ_BUFFER_BYTES: usize = 32 << 10;
/// How long requests may take to finish when the server stops.
const STOP_GRACE: Duration = Duration::from_secs(4);
/// How long a client has to read the notice that its connection is closed.
const CLOSE_NOTICE_GRACE: Duration = Duration::from_secs(1);
/// Maximum number of concurrent requests on one HTTP/2 connection.
const MAX_STREAMS: u32 = 100;
/// Flow-control window of HTTP/2: unread request bytes of one connection.
const RECEIVE_WINDOW: u32 = 256 << 10;
/// Response bytes of one HTTP/2 stream that hyper buffers before they are written to the socket.
const SEND_BUFFER: usize = 64 << 10;
/// Estimated memory of a request in addition to its headers and body: the task and the state of its stream.
const STREAM_BYTES: usize = 8 << 10;
/// Estimated memory of one header in addition to its name and value: the map entry, and copies that handlers make.
const HEADER_BYTES: usize = 300;
/// Maximum size of all headers of a request, counted as RFC 9113 section 6.5.2 does: 32 bytes each in addition to
/// name and value.
const MAX_HEADER_LIST_BYTES: u32 = 16 << 10;
/// Maximum number of streams in a row that are refused for lack of memory before an HTTP/2 connection is closed.
const MAX_REFUSED_STREAMS: usize = 8;
/// Maximum size of a response that is sent even when the memory budget is used up, such as a refusal.
const MAX_TINY_RESPONSE_BYTES: usize = 2 << 10;
/// Maximum size of a response in memory. Larger ones are written to a temporary file and sent from there.
const MAX_RESPONSE_IN_MEMORY: u64 = 1 << 20;
/// Maximum number of refused connections that are answered at the same time.
const MAX_ANSWERED_REFUSALS: usize = 32;
/// The backlog of the listening socket. The kernel may have a lower limit (`somaxconn`).
const LISTEN_BACKLOG: u32 = 4096;

/// An address that the server cannot listen on, with the option that chose it and what the user can do.
#[derive(Debug, thiserror::Error)]
#[error("cannot listen on {address} ({source}): {advice} with {option}")]
pub struct ListenerBindError {
    address: SocketAddr,
    option: &'static str,
    advice: &'static str,
    source: std::io::Error,
}

/// Opens a listening socket. `option` is the command-line option that names the address, for the error message.
pub(super) fn bind_listener(address: SocketAddr, option: &'static str) -> Result<TcpListener, ListenerBindError> {
    let open = || {
        let socket = if address.is_ipv4() { TcpSocket::new_v4() } else { TcpSocket::new_v6() }?;
        socket.set_reuseaddr(true)?;
        socket.bind(address)?;
        socket.listen(LISTEN_BACKLOG)
    };
    open().map_err(|source: std::io::Error| {
        let advice = match source.kind() {
            std::io::ErrorKind::AddrInUse => "something else listens there; stop it, or choose another port",
            std::io::ErrorKind::PermissionDenied => "ports below 1024 need more rights; choose a higher one",
            std::io::ErrorKind::AddrNotAvailable => "this machine does not have that address",
            _ => "choose another address",
        };
        ListenerBindError { address, option, advice, source }
    })
}

/// Serves connections until the server stops, then lets those that are open finish.
pub(super) async fn serve_connections(
    listener: TcpListener,
    router: Router,
    server: Arc<ServerState>,
    stop: watch::Receiver<bool>,
) {
    // Each connection holds a clone of the sender. `recv` returns when the last one is dropped.
    let (open, mut all_closed) = mpsc::channel::<()>(1);
    let refusals = Arc::new(Semaphore::new(MAX_ANSWERED_REFUSALS));
    let runtime = Handle::current();
    let stopping = stop.clone();
    let take = move |stream: std::net::TcpStream, peer: SocketAddr| {
        // At the limit, a few connections get a 503. Beyond that they are dropped at once, since answering costs
        // memory, too.
        let Some(slot) = server.connections.admit(peer) else {
            if let Ok(permit) = Arc::clone(&refusals).try_acquire_owned() {
                runtime.spawn(async move {
                    if let Ok(stream) = TcpStream::from_std(stream) {
                        answer_refusal(stream).await;
                    }
                    drop(permit);
                });
            }
            return;
        };
        let (router, server, stop, open) = (router.clone(), Arc::clone(&server), stop.clone(), open.clone());
        runtime.spawn(async move {
            if let Ok(stream) = TcpStream::from_std(stream) {
                serve_connection(stream, slot, router, server, stop).await;
            }
            drop(open);
        });
    };
    let (ended, has_ended) = oneshot::channel::<()>();
    let accepting = std::thread::Builder::new().name("accept".to_owned()).spawn(move || {
        if let Err(error) = accept_connections(listener, stopping, take) {
            tracing::error!(%error, "stopped accepting connections");
        }
        drop(ended);
    });
    if let Err(error) = accepting {
        tracing::error!(%error, "failed to start accepting connections");
    }
    let _ = has_ended.await;
    let _ = tokio::time::timeout(STOP_GRACE, all_closed.recv()).await;
}

/// Accepts connections until the server stops, on a thread of its own. If the shared async threads did it, the kernel's
/// backlog would fill while they are busy, and a client whose SYN is dropped retries only after a second.
fn accept_connections(
    listener: TcpListener,
    mut stop: watch::Receiver<bool>,
    take: impl Fn(std::net::TcpStream, SocketAddr),
) -> std::io::Result<()> {
    let listener = listener.into_std()?;
    let failures = ThrottledLog::default();
    tokio::runtime::Builder::new_current_thread().enable_all().build()?.block_on(async {
        let listener = TcpListener::from_std(listener)?;
        loop {
            let accepted = tokio::select! {
                accepted = listener.accept() => accepted,
                () = wait_for_stop(&mut stop) => return Ok(()),
            };
            match accepted.and_then(|(stream, peer)| Ok((stream.into_std()?, peer))) {
                Ok((stream, peer)) => take(stream, peer),
                Err(error) => {
                    // Usually the process is out of file descriptors. Without the pause this loop would spin until one
                    // is free.
                    if let Some(times) = failures.record_occurrence() {
                        tracing::warn!(%error, times, "failed to accept a connection");
                    }
                    tokio::time::sleep(Duration::from_millis(50)).await;
                }
            }
        }
    })
}

/// Closes connections that exceed a timeout, for as long as the server runs. It checks four times within the shortest
/// timeout, and at least once a second.
pub(super) async fn close_overdue(server: Arc<ServerState>) {
    let timeouts = server.settings.timeouts;
    let shortest = timeouts.header.min(timeouts.idle).min(timeouts.stall);
    let pause = (shortest / 4).clamp(Duration::from_millis(25), Duration::from_secs(1));
    loop {
        tokio::time::sleep(pause).await;
        server.connections.close_overdue(&timeouts);
    }
}

/// Serves one connection until the client or the server closes it. `slot` lives as long as the connection and is freed
/// on return.
async fn serve_connection(
    stream: TcpStream,
    slot: ConnectionSlot,
    router: Router,
    server: Arc<ServerState>,
    mut stop: watch::Receiver<bool>,
) {
    let timeouts = server.settings.timeouts;
    let state = Arc::clone(&slot.state);
    let executor = StreamExecutor { server: Arc::clone(&server) };
    let mut builder = Builder::new(executor);
    builder.http1().timer(TokioTimer::new()).header_read_timeout(timeouts.header).max_buf_size(READ_BUFFER_BYTES);
    builder
        .http2()
        .timer(TokioTimer::new())
        .max_concurrent_streams(MAX_STREAMS)
        .max_header_list_size(MAX_HEADER_LIST_BYTES)
        .initial_stream_window_size(RECEIVE_WINDOW)
        .initial_connection_window_size(RECEIVE_WINDOW)
        .max_send_buf_size(SEND_BUFFER)
        .keep_alive_interval(Duration::from_secs(60));
    let stream = MeteredStream::new(prepare_socket(stream), Arc::clone(&state), Arc::clone(&server));
    let answering = Arc::clone(&state);
    let service = hyper::service::service_fn(move |request: Request<Incoming>| {
        answer_request(router.clone(), Arc::clone(&server), Arc::clone(&answering), request)
    });
    let connection = builder.serve_connection(TokioIo::new(stream), service);
    tokio::pin!(connection);
    let mut is_stopping = false;
    let reason = loop {
        tokio::select! {
            // An error of the client is not logged: anyone can cause one.
            _ = connection.as_mut() => return,
            reason = state.close_requested() => break reason,
            () = wait_for_stop(&mut stop), if !is_stopping => {
                is_stopping = true;
                connection.as_mut().graceful_shutdown();
            }
        }
    };
    // These clients may still read: HTTP/2 sends GOAWAY. In all other cases the client does not read, and the socket is
    // closed at once.
    if matches!(reason, ConnectionCloseReason::Idle | ConnectionCloseReason::NoRequest | ConnectionCloseReason::Memory)
    {
        connection.as_mut().graceful_shutdown();
        let _ = tokio::time::timeout(CLOSE_NOTICE_GRACE, connection).await;
    }
}

/// Also returns when the sender is dropped, so that a server that was not stopped properly ends its tasks.
async fn wait_for_stop(stop: &mut watch::Receiver<bool>) {
    let _ = stop.wait_for(|stop| *stop).await;
}

/// Sends a 503 on a refused connection if a request arrives within a moment, and closes the connection. The request is
/// not parsed: its first bytes only tell HTTP/2 from HTTP/1.
async fn answer_refusal(mut stream: TcpStream) {
    // How long a refused connection may wait for its request. It holds a file descriptor meanwhile.
    const PATIENCE: Duration = Duration::from_millis(300);
    const HTTP1: &[u8] = b"HTTP/1.1 503 Service Unavailable\r\nretry-after: 1\r\nconnection: close\r\ncontent-type: application/json\r\ncontent-length: 60\r\n\r\n{\"error\":\"too many connections are open; try again later\"}\r\n";
    // An empty SETTINGS frame, and GOAWAY with ENHANCE_YOUR_CALM (0xb) and last stream 0: no stream was processed.
    const HTTP2: &[u8] = b"\0\0\0\x04\0\0\0\0\0\0\0\x08\x07\0\0\0\0\0\0\0\0\0\0\0\0\x0b";
    let mut head = [0; 4 << 10];
    let answering = async {
        stream.readable().await?;
        let read = stream.try_read(&mut head)?;
        let answer = if head[..read].starts_with(b"PRI") { HTTP2 } else { HTTP1 };
        stream.write_all(answer).await?;
        stream.shutdown().await
    };
    let _ = tokio::time::timeout(PATIENCE, answering).await;
}

/// Socket options are best effort: a connection without them still works.
fn prepare_socket(stream: TcpStream) -> TcpStream {
    // Answers are small: waiting to fill a packet would cost 40 ms each.
    let _ = stream.set_nodelay(true);
    // A peer that vanished without closing, such as a sleeping laptop, is detected by keep-alive after some minutes.
    let _ = rustix::net::sockopt::set_socket_keepalive(&stream, true);
    let _ = rustix::net::sockopt::set_tcp_keepidle(&stream, Duration::from_secs(120));
    stream
}

/// Resets a new stream on a connection that is being closed for lack of memory.
#[derive(Debug, thiserror::Error)]
#[error("the connection is being closed")]
struct ConnectionClosing;

/// Answers one request. Memory for its head is leased before anything is parsed, and the response body keeps the
/// leases until its last byte is written.
async fn answer_request(
    router: Router,
    server: Arc<ServerState>,
    connection: Arc<ConnectionState>,
    request: Request<Incoming>,
) -> Result<Response<TrackedBody>, ConnectionClosing> {
    let is_http2 = request.version() == Version::HTTP_2;
    if is_http2 && connection.close_reason() == Some(ConnectionCloseReason::Memory) {
        return Err(ConnectionClosing);
    }
    let active = connection.begin_request();
    let proxies = server.connections.trusted_proxies();
    let client = ClientAddress::from_request(connection.peer.ip(), request.headers(), proxies);
    let memory = StreamMemory {
        request: server.memory.open_lease(client, MemoryUse::Request),
        response: server.memory.open_lease(client, MemoryUse::Response),
    };
    let is_keyless = auth::needs_no_key(request.method(), request.uri().path());
    let timeouts = match is_keyless {
        true => server.settings.timeouts.for_keyless(),
        false => server.settings.timeouts,
    };
    let mut answered =
        AnsweredRequest { connection: Arc::clone(&connection), active, memory, stall_timeout: timeouts.stall };
    let (header_list, headers) = measure_headers(request.headers());
    let head = STREAM_BYTES + headers + request.uri().path().len();
    let refused = answered.memory.request.grow_if_small_patiently(head).await.err();
    let refused_streams = connection.count_refused_stream(refused.is_some());
    if let Some(refusal) = refused {
        // The refusal exists until the client has read it, so it is counted even over the limit.
        answered.memory.request.grow_anyway(STREAM_BYTES);
        answered.stall_timeout = timeouts.for_keyless().stall;
        if is_http2 && refused_streams >= MAX_REFUSED_STREAMS {
            server.connections.close(&connection, ConnectionCloseReason::Memory);
        }
        return Ok(track_response(&server, answered, client, respond_memory_refusal(refusal)).await);
    }
    // hyper checks this for HTTP/2 only.
    if header_list > MAX_HEADER_LIST_BYTES as usize {
        let response = StatusCode::REQUEST_HEADER_FIELDS_TOO_LARGE.into_response();
        return Ok(track_response(&server, answered, client, response).await);
    }
    let may_have_body = !matches!(*request.method(), Method::GET | Method::HEAD | Method::DELETE)
        || phoenix::takes_body(request.uri().path());
    // A body that no handler reads is replaced by an empty one, so that the response does not wait for it.
    let mut request = request.map(|body| {
        if !may_have_body || body.is_end_stream() {
            return Body::empty();
        }
        let deadline = is_keyless.then_some(timeouts.body);
        let rate_window = timeouts.rate_window();
        let (budget, connection) = (server.memory.clone(), Arc::clone(&connection));
        Body::new(RequestBody::new(body, budget, client, connection, rate_window, deadline))
    });
    request.extensions_mut().insert(ConnectInfo(connection.peer));
    request.extensions_mut().insert(client);
    request.extensions_mut().insert(Arc::clone(&connection));
    let response = match client.scope(router.oneshot(request)).await {
        Ok(response) => response,
        Err(never) => match never {},
    };
    // Without a valid key a client gets the short timeouts, whatever it asked for.
    if server.settings.needs_key && !connection.is_keyed() {
        answered.stall_timeout = timeouts.for_keyless().stall;
    }
    Ok(track_response(&server, answered, client, response).await)
}

/// Returns the size of the headers as HTTP/2 counts it, and the estimated memory that they take.
fn measure_headers(headers: &HeaderMap) -> (usize, usize) {
    let (mut count, mut bytes) = (0, 0);
    for (name, value) in headers {
        count += 1;
        bytes += name.as_str().len() + value.len();
    }
    (32 * count + bytes, HEADER_BYTES * count + bytes)
}

/// Builds the response without serde: the texts are constant, and this path must not allocate much. `NeverFits` has
/// no `Retry-After`, since a retry cannot succeed.
fn respond_memory_refusal(refusal: MemoryRefusal) -> Response {
    let (status, error) = match refusal {
        MemoryRefusal::Full => (StatusCode::SERVICE_UNAVAILABLE, "the server's memory is in use; try again later"),
        MemoryRefusal::ClientShare => {
            (StatusCode::TOO_MANY_REQUESTS, "this address holds its share of the server's memory; try again later")
        }
        MemoryRefusal::NeverFits => {
            let error = "the response is larger than one address may hold; ask for less at once";
            return (StatusCode::INSUFFICIENT_STORAGE, format!("{{\"error\":\"{error}\"}}")).into_response();
        }
    };
    let headers = [(RETRY_AFTER, HeaderValue::from(1)), (CONNECTION, HeaderValue::from_static("close"))];
    (status, headers, format!("{{\"error\":\"{error}\"}}")).into_response()
}

/// Wraps a response so that its unread bytes count against the memory budget. A streamed body is counted chunk by
/// chunk, a large one waits in a file, and a small one is leased as a whole.
async fn track_response(
    server: &Arc<ServerState>,
    mut answered: AnsweredRequest,
    client: ClientAddress,
    response: Response,
) -> Response<TrackedBody> {
    let (parts, body) = response.into_parts();
    let Some(length) = body.size_hint().exact() else {
        return Response::from_parts(parts, TrackedBody::from_stream(body, answered));
    };
    let bytes = usize::try_from(length).unwrap_or(usize::MAX);
    let refusal = if length > MAX_RESPONSE_IN_MEMORY {
        match server.spilled.acquire_lease(client, MemoryUse::Request, bytes) {
            Ok(disk) => match spill_body_to_file(body, &server.settings.data, disk).await {
                Ok(body) => return Response::from_parts(parts, TrackedBody::from_stream(body, answered)),
                Err(error) => {
                    logging::report_spill_failure(&error);
                    MemoryRefusal::Full
                }
            },
            Err(refusal) => refusal,
        }
    } else if bytes <= MAX_TINY_RESPONSE_BYTES {
        answered.memory.response.grow_anyway(bytes);
        return Response::from_parts(parts, TrackedBody::from_buffered(body, answered));
    } else {
        match answered.memory.response.grow_patiently(bytes).await {
            Ok(()) => return Response::from_parts(parts, TrackedBody::from_buffered(body, answered)),
            Err(refusal) => refusal,
        }
    };
    let (parts, body) = respond_memory_refusal(refusal).into_parts();
    Response::from_parts(parts, TrackedBody::from_buffered(body, answered))
}

/// Runs the tasks of HTTP/2 streams, and drops those whose client does not read.
#[derive(Clone)]
struct StreamExecutor {
    server: Arc<ServerState>,
}

impl<F> hyper::rt::Executor<F> for StreamExecutor
where
    F: Future + Send + 'static,
    F::Output: Send,
{
    fn execute(&self, answering: F) {
        let server = Arc::clone(&self.server);
        let stream = Arc::new(StreamProgress::default());
        // A quarter of the shortest timeout that a stream can have.
        let interval = server.settings.timeouts.for_keyless().stall / 4;
        tokio::spawn(async move {
            let watched = Arc::clone(&stream);
            tokio::select! {
                _ = stream.scope(answering) => {}
                // The stream is reset when its future is dropped.
                () = watched.wait_until_stalled(interval) => server.meters.count_stalled_stream(),
            }
        });
    }
}
