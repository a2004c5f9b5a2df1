//! Sockets: HTTP/1 and HTTP/2 on both ports, a bound on connections, and an end that lets requests finish.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use axum::extract::{ConnectInfo, Request};
use hyper::body::Incoming;
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use hyper_util::server::conn::auto::Builder;
use hyper_util::server::graceful::GracefulShutdown;
use hyper_util::service::TowerToHyperService;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{Semaphore, watch};
use tower::ServiceExt as _;

/// How long a client may take to send its headers.
const HEADERS: Duration = Duration::from_secs(10);
/// What one connection may hold beside the request that is taken in.
const BUFFER: usize = 32 << 10;
/// How long requests may take to finish when the server stops.
const GRACE: Duration = Duration::from_secs(10);

/// Opens a port; the error says what to do.
pub(super) async fn bind(address: SocketAddr, option: &str) -> Result<TcpListener, String> {
    TcpListener::bind(address).await.map_err(|error| {
        let advice = match error.kind() {
            std::io::ErrorKind::AddrInUse => "something else listens there; stop it, or choose another port",
            std::io::ErrorKind::PermissionDenied => "ports below 1024 need more rights; choose a higher one",
            std::io::ErrorKind::AddrNotAvailable => "this machine does not have that address",
            _ => "choose another address",
        };
        format!("cannot listen on {address} ({error}): {advice} with {option}")
    })
}

/// Serves connections until told to stop, then lets those that are open finish.
pub(super) async fn serve(
    listener: TcpListener,
    router: Router,
    connections: Arc<Semaphore>,
    mut stop: watch::Receiver<bool>,
) {
    let mut builder = Builder::new(TokioExecutor::new());
    builder.http1().timer(TokioTimer::new()).header_read_timeout(HEADERS).max_buf_size(BUFFER);
    builder
        .http2()
        .timer(TokioTimer::new())
        .max_concurrent_streams(256)
        .keep_alive_interval(Duration::from_secs(60));
    let graceful = GracefulShutdown::new();
    loop {
        let permit = tokio::select! {
            permit = Arc::clone(&connections).acquire_owned() => permit,
            _ = stop.wait_for(|stop| *stop) => break,
        };
        let accepted = tokio::select! {
            accepted = listener.accept() => accepted,
            _ = stop.wait_for(|stop| *stop) => break,
        };
        let (stream, peer) = match accepted {
            Ok(accepted) => accepted,
            Err(error) => {
                // Out of file handles, mostly: others have to close theirs first.
                tracing::warn!(%error, "a connection could not be accepted");
                tokio::time::sleep(Duration::from_millis(50)).await;
                continue;
            }
        };
        let (builder, router, watcher) = (builder.clone(), router.clone(), graceful.watcher());
        let mut stop = stop.clone();
        tokio::spawn(async move {
            let _permit = permit;
            // Until the first byte nothing tells which HTTP this is, and no timer of it runs.
            let mut first = [0];
            let speaks = tokio::select! {
                spoken = tokio::time::timeout(HEADERS, stream.peek(&mut first)) => matches!(spoken, Ok(Ok(1))),
                _ = stop.wait_for(|stop| *stop) => false,
            };
            if speaks {
                let io = TokioIo::new(ready(stream));
                let connection = builder.serve_connection_with_upgrades(io, service(router, peer));
                // A client that breaks off is its own business.
                let _ = watcher.watch(connection.into_owned()).await;
            }
        });
    }
    drop(listener);
    let _ = tokio::time::timeout(GRACE, graceful.shutdown()).await;
}

fn ready(stream: TcpStream) -> TcpStream {
    // Answers are small: waiting to fill a packet would cost 40 ms each.
    let _ = stream.set_nodelay(true);
    // Who is gone without a word, as a laptop that sleeps, is found out in some minutes.
    let _ = rustix::net::sockopt::set_socket_keepalive(&stream, true);
    let _ = rustix::net::sockopt::set_tcp_keepidle(&stream, Duration::from_secs(120));
    stream
}

fn service(
    router: Router,
    peer: SocketAddr,
) -> TowerToHyperService<
    impl tower::Service<
        Request<Incoming>,
        Response = axum::response::Response,
        Error = std::convert::Infallible,
        Future: Send,
    > + Clone,
> {
    let with_peer = router.map_request(move |request: Request<Incoming>| {
        let mut request = request.map(axum::body::Body::new);
        request.extensions_mut().insert(ConnectInfo(peer));
        request
    });
    TowerToHyperService::new(with_peer)
}
