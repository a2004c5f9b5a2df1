//! A server for one other process, such as a test: it listens on free loopback ports and ends with that process.

use std::io::{self, Read as _};
use std::net::SocketAddr;
use std::time::Duration;

use rustix::fs::FileType;
use rustix::process::getppid;
use tokio::signal::unix::{SignalKind, signal};
use tokio::sync::oneshot;

use crate::serve_section::ServeSection;
use crate::{LogFormat, RunningServer, ServerConfig, ServerStartError, build_runtime, logging, open_store};

/// A test reads its trace right after the agent has ended, so a trace is complete much earlier than on a server that
/// receives from a network. Late spans cause it to be reassembled.
const QUIET_S: f64 = 0.2;
const GIVE_UP_S: f64 = 2.0;
/// How often the parent process is checked, where standard input does not report its end.
const PARENT_POLL: Duration = Duration::from_millis(250);

/// Where an ephemeral server listens.
#[derive(Clone, Copy, Debug)]
pub struct EphemeralAddresses {
    /// OTLP over HTTP, the API and the pages.
    pub http: SocketAddr,
    pub grpc: SocketAddr,
}

/// Runs until SIGTERM, SIGINT or SIGHUP arrives, or the parent of this process has ended. `announce` is called once,
/// when the ports are open. Addresses of the configuration are replaced, and no key is needed. The caller removes the
/// data folder afterwards.
pub fn run_ephemeral_server(
    mut config: ServerConfig,
    format: LogFormat,
    announce: &dyn Fn(EphemeralAddresses) -> io::Result<()>,
) -> Result<(), ServerStartError> {
    // Before anything that takes time: a parent that ends meanwhile is noticed.
    let parent = getppid();
    let stdin_closed = watch_stdin();
    let loopback = || Some("127.0.0.1:0".to_owned());
    config.serve = ServeSection {
        http: loopback(),
        grpc: loopback(),
        phoenix_port: None,
        require_key: false,
        quiet_s: config.serve.quiet_s.or(Some(QUIET_S)),
        give_up_s: config.serve.give_up_s.or(Some(GIVE_UP_S)),
        ..config.serve
    };
    let (settings, reloadable) = config.to_settings()?;
    logging::init_logging(format);
    let store = open_store(&settings)?;
    let runtime = build_runtime()?;
    let served = runtime.block_on(async {
        let signals = [SignalKind::terminate(), SignalKind::interrupt(), SignalKind::hangup()];
        let [mut terminate, mut interrupt, mut hang_up] = signals.map(signal);
        let running = RunningServer::start(settings, reloadable, store).await?;
        announce(EphemeralAddresses { http: running.http, grpc: running.grpc }).map_err(ServerStartError::System)?;
        let stopped = async {
            tokio::select! {
                () = wait_for_signal(&mut terminate) => {}
                () = wait_for_signal(&mut interrupt) => {}
                () = wait_for_signal(&mut hang_up) => {}
                () = wait_for_parent_end(parent, stdin_closed) => {}
            }
        };
        stopped.await;
        running.stop().await;
        Ok(())
    });
    runtime.shutdown_timeout(Duration::from_secs(1));
    served
}

/// Waits for a signal. Never resolves if the handler could not be installed: the default action of the signal then
/// ends the process.
async fn wait_for_signal(signal: &mut io::Result<tokio::signal::unix::Signal>) {
    match signal {
        Ok(signal) => drop(signal.recv().await),
        Err(_) => std::future::pending().await,
    }
}

/// Resolves when standard input is closed, or when another process has become the parent of this one. Linux could send
/// a signal instead, but it does so when the thread ends that started this process, and tests start servers in threads.
async fn wait_for_parent_end(parent: Option<rustix::process::Pid>, stdin_closed: Option<oneshot::Receiver<()>>) {
    let closed = async move {
        match stdin_closed {
            Some(closed) => drop(closed.await),
            None => std::future::pending().await,
        }
    };
    let orphaned = async {
        while getppid() == parent {
            tokio::time::sleep(PARENT_POLL).await;
        }
    };
    tokio::select! {
        () = closed => {}
        () = orphaned => {}
    }
}

/// Watches standard input if it is a pipe or a socket, which the parent holds open. `/dev/null`, a file or a terminal
/// tell nothing about the parent.
fn watch_stdin() -> Option<oneshot::Receiver<()>> {
    let kind = FileType::from_raw_mode(rustix::fs::fstat(io::stdin()).ok()?.st_mode);
    if !matches!(kind, FileType::Fifo | FileType::Socket) {
        return None;
    }
    let (closed, is_closed) = oneshot::channel();
    // A thread of its own: it is blocked until the process ends, and no pool should wait for it.
    let reading = std::thread::Builder::new().name("stdin".to_owned()).spawn(move || {
        let mut bytes = [0; 512];
        let mut stdin = io::stdin().lock();
        loop {
            match stdin.read(&mut bytes) {
                Ok(1..) => {}
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Ok(0) | Err(_) => break,
            }
        }
        let _ = closed.send(());
    });
    reading.is_ok().then_some(is_closed)
}
