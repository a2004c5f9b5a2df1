//! A folder to work in, a server in it, and the means to talk to it: HTTP/1.1 by hand, so that a request can be as wrong,
//! as slow and as large as a test needs it, and gRPC over a real HTTP/2 client.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::{Arc, Mutex, mpsc};
use std::time::{Duration, Instant};

use http_body_util::{BodyExt as _, Full};
use hyper::body::Bytes;
use hyper_util::rt::{TokioExecutor, TokioIo};
use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value as Json;

use crate::place::Place;
pub(crate) use crate::place::Ran;

/// Nothing here takes as long, on however slow a machine.
const DEADLINE: Duration = Duration::from_secs(300);

/// Asks again and again until there is an answer.
pub(crate) fn eventually<T>(what: &str, mut ask: impl FnMut() -> Option<T>) -> T {
    let started = Instant::now();
    loop {
        if let Some(answer) = ask() {
            return answer;
        }
        assert!(started.elapsed() < DEADLINE, "still not: {what}");
        std::thread::sleep(Duration::from_millis(30));
    }
}

pub(crate) struct Lab {
    place: Place,
}

impl std::ops::Deref for Lab {
    type Target = Place;

    fn deref(&self) -> &Place {
        &self.place
    }
}

impl Lab {
    pub(crate) fn new() -> Lab {
        let lab = Lab { place: Place::new() };
        lab.configure("", "");
        lab
    }

    /// With more lines in the `[serve]` table of the settings, and more tables.
    pub(crate) fn with(serve: &str, tables: &str) -> Lab {
        let lab = Lab::new();
        lab.configure(serve, tables);
        lab
    }

    pub(crate) fn configure(&self, serve: &str, tables: &str) {
        self.write("gradus.toml", &format!("[serve]\nquiet_s = 0.3\ngive_up_s = 1\n{serve}\n{tables}\n"));
    }

    /// With the settings of this folder trusted: they are the test's own.
    pub(crate) fn command(&self, arguments: &[&str]) -> Command {
        let mut command = self.place.command(arguments);
        command.env("GRADUS_TRUST_CONFIG", "1");
        command
    }

    pub(crate) fn run(&self, arguments: &[&str]) -> Ran {
        Ran::from_output(self.command(arguments).output().unwrap())
    }

    /// As a user has it who came into this folder for the first time.
    pub(crate) fn untrusting_command(&self, arguments: &[&str]) -> Command {
        self.place.command(arguments)
    }

    /// Starts a server on free ports of the loopback and waits until it listens.
    pub(crate) fn serve(&self) -> Server {
        self.serve_with(&[])
    }

    pub(crate) fn serve_with(&self, arguments: &[&str]) -> Server {
        self.try_serve(arguments).unwrap_or_else(|log| panic!("the server does not come up: {log}"))
    }

    /// Starts a server that may not come up; then, its log.
    pub(crate) fn try_serve(&self, arguments: &[&str]) -> Result<Server, String> {
        let mut all = vec!["serve", "--log-format", "json"];
        if !arguments.contains(&"--http") {
            all.extend(["--http", "127.0.0.1:0"]);
        }
        if !arguments.contains(&"--grpc") {
            all.extend(["--grpc", "127.0.0.1:0"]);
        }
        all.extend(arguments);
        Server::try_start(self.command(&all))
    }

    /// Starts a server that is not expected to come up.
    pub(crate) fn serve_in_vain(&self, arguments: &[&str]) -> Ran {
        let mut all = vec!["serve", "--http", "127.0.0.1:0", "--grpc", "127.0.0.1:0"];
        if arguments.contains(&"--http") {
            all.truncate(1);
        }
        all.extend(arguments);
        in_vain(self.command(&all))
    }

    /// The store's file, beside the server.
    pub(crate) fn sql(&self) -> rusqlite::Connection {
        let sql = rusqlite::Connection::open(self.path(".gradus/gradus.db")).unwrap();
        sql.busy_timeout(DEADLINE).unwrap();
        sql
    }

    /// All that the store's folder holds, as bytes.
    pub(crate) fn stored_bytes(&self) -> Vec<u8> {
        let mut bytes = Vec::new();
        for entry in std::fs::read_dir(self.path(".gradus")).unwrap() {
            let path = entry.unwrap().path();
            if path.is_file() {
                bytes.extend(std::fs::read(path).unwrap());
            }
        }
        bytes
    }
}

/// Runs a server that should give up by itself.
pub(crate) fn in_vain(mut command: Command) -> Ran {
    let mut child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    let started = Instant::now();
    while child.try_wait().unwrap().is_none() {
        if started.elapsed() > Duration::from_secs(20) {
            child.kill().unwrap();
        }
        std::thread::sleep(Duration::from_millis(10));
    }
    let ran = Ran::from_output(child.wait_with_output().unwrap());
    assert!(ran.code.is_some(), "it came up: {}", ran.err);
    ran
}

pub(crate) fn json_lines(bytes: &[u8]) -> Vec<Json> {
    let lines = bytes.split(|byte| *byte == b'\n').filter(|line| !line.is_empty());
    lines.map(|line| serde_json::from_slice(line).unwrap()).collect()
}

pub(crate) fn fixture(path: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fixtures/captures").join(path)
}

/// A server that runs. It is killed when this is dropped.
pub(crate) struct Server {
    child: Child,
    pub(crate) http: SocketAddr,
    pub(crate) grpc: SocketAddr,
    log: Arc<Mutex<String>>,
    reader: Option<std::thread::JoinHandle<()>>,
}

impl Server {
    pub(crate) fn start(command: Command) -> Server {
        Server::try_start(command).unwrap_or_else(|log| panic!("the server does not come up: {log}"))
    }

    fn try_start(mut command: Command) -> Result<Server, String> {
        let mut child = command.stdout(Stdio::null()).stderr(Stdio::piped()).spawn().unwrap();
        let stderr = child.stderr.take().unwrap();
        let log = Arc::new(Mutex::new(String::new()));
        let (sender, receiver) = mpsc::channel();
        let shared = Arc::clone(&log);
        let reader = std::thread::spawn(move || {
            for line in BufReader::new(stderr).lines() {
                let Ok(line) = line else { return };
                if let Ok(event) = serde_json::from_str::<Json>(&line)
                    && event["message"] == "listening"
                {
                    let address = |name: &str| event[name].as_str().unwrap().parse::<SocketAddr>().unwrap();
                    let _ = sender.send((address("http"), address("grpc")));
                }
                let mut log = shared.lock().unwrap();
                log.push_str(&line);
                log.push('\n');
            }
        });
        let Ok((http, grpc)) = receiver.recv_timeout(DEADLINE) else {
            let _ = child.kill();
            let _ = child.wait();
            let _ = reader.join();
            return Err(log.lock().unwrap().clone());
        };
        Ok(Server { child, http, grpc, log, reader: Some(reader) })
    }

    pub(crate) fn log(&self) -> String {
        self.log.lock().unwrap().clone()
    }

    pub(crate) fn signal(&self, signal: Signal) {
        kill_process(Pid::from_child(&self.child), signal).unwrap();
    }

    /// SIGTERM: the exit code and the whole log.
    pub(crate) fn stop(mut self) -> (Option<i32>, String) {
        self.signal(Signal::TERM);
        let status = eventually("the server stops", || self.child.try_wait().unwrap());
        let _ = self.reader.take().unwrap().join();
        (status.code(), self.log())
    }

    /// SIGKILL.
    pub(crate) fn kill(mut self) {
        self.child.kill().unwrap();
        self.child.wait().unwrap();
    }

    pub(crate) fn request(&self, method: &str, path: &str) -> Request {
        Request::new(self.http, method, path)
    }

    pub(crate) fn get(&self, path: &str) -> Reply {
        self.request("GET", path).send()
    }

    /// What a path answers when all is well.
    pub(crate) fn json(&self, path: &str) -> Json {
        let reply = self.get(path);
        assert_eq!(reply.status, 200, "{path}: {}", reply.text());
        reply.json()
    }

    /// Sends spans, which have to be taken.
    pub(crate) fn export(&self, protobuf: &[u8]) {
        let reply = self.post_traces(protobuf);
        assert_eq!(reply.status, 200, "{}", reply.text());
    }

    pub(crate) fn post_traces(&self, protobuf: &[u8]) -> Reply {
        self.request("POST", "/v1/traces").header("content-type", "application/x-protobuf").body(protobuf).send()
    }

    pub(crate) fn post_logs(&self, protobuf: &[u8]) -> Reply {
        self.request("POST", "/v1/logs").header("content-type", "application/x-protobuf").body(protobuf).send()
    }

    /// The number behind a line of `/metrics` that begins so.
    pub(crate) fn metric(&self, line: &str) -> Option<f64> {
        let text = self.get("/metrics").text();
        let found = text.lines().find_map(|found| found.strip_prefix(line)?.strip_prefix(' '))?;
        found.trim().parse().ok()
    }

    /// The most memory that it has used, in MiB.
    pub(crate) fn peak_memory_mib(&self) -> f64 {
        let status = std::fs::read_to_string(format!("/proc/{}/status", self.child.id())).unwrap();
        let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:")).unwrap();
        line.trim().trim_end_matches(" kB").parse::<f64>().unwrap() / 1024.0
    }

    /// Waits until everything that came is assembled.
    pub(crate) fn assembled(&self) {
        eventually("all is assembled", || (self.metric("gradus_traces_due")? == 0.0).then_some(()));
    }

    /// Waits until nothing waits for a model any more.
    pub(crate) fn graded(&self) {
        self.assembled();
        eventually("all is graded", || (self.metric("gradus_trajectories_ungraded")? == 0.0).then_some(()));
    }

    /// The ids of a project's spans; none when there is no such project.
    pub(crate) fn spans(&self, project: &str) -> Vec<Json> {
        let reply = self.get(&format!("/api/v1/projects/{project}/spans"));
        if reply.status == 404 {
            return Vec::new();
        }
        assert_eq!(reply.status, 200, "{}", reply.text());
        json_lines(&reply.body)
    }

    /// One trace with all that is known of it.
    pub(crate) fn trace(&self, id: &str) -> Json {
        self.json(&format!("/api/v1/traces/{id}"))
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        if std::thread::panicking()
            && let Ok(Some(status)) = self.child.try_wait()
        {
            println!("--- the server had ended: {status} ---");
        }
        let _ = self.child.kill();
        let _ = self.child.wait();
        if std::thread::panicking() {
            println!("--- the server's log ---\n{}", self.log.lock().unwrap());
        }
    }
}

/// A request over HTTP/1.1, written by hand.
#[derive(Clone)]
pub(crate) struct Request {
    to: SocketAddr,
    method: String,
    path: String,
    headers: Vec<(String, String)>,
    body: Vec<u8>,
    is_chunked: bool,
}

impl Request {
    pub(crate) fn new(to: SocketAddr, method: &str, path: &str) -> Request {
        Request {
            to,
            method: method.to_owned(),
            path: path.to_owned(),
            headers: Vec::new(),
            body: Vec::new(),
            is_chunked: false,
        }
    }

    pub(crate) fn header(mut self, name: &str, value: &str) -> Request {
        self.headers.push((name.to_owned(), value.to_owned()));
        self
    }

    pub(crate) fn body(mut self, body: &[u8]) -> Request {
        self.body = body.to_vec();
        self
    }

    pub(crate) fn json(self, body: &Json) -> Request {
        self.header("content-type", "application/json").body(body.to_string().as_bytes())
    }

    /// In pieces, without saying how long it is.
    pub(crate) fn chunked(mut self) -> Request {
        self.is_chunked = true;
        self
    }

    pub(crate) fn head(&self) -> String {
        let mut head = format!("{} {} HTTP/1.1\r\nconnection: close\r\n", self.method, self.path);
        let has = |name: &str| self.headers.iter().any(|(known, _)| known == name);
        if !has("host") {
            head.push_str(&format!("host: {}\r\n", self.to));
        }
        if self.is_chunked {
            head.push_str("transfer-encoding: chunked\r\n");
        } else if !has("content-length") && self.method != "GET" {
            head.push_str(&format!("content-length: {}\r\n", self.body.len()));
        }
        for (name, value) in &self.headers {
            head.push_str(&format!("{name}: {value}\r\n"));
        }
        head + "\r\n"
    }

    /// Sends the head and so much of the body, and leaves the rest to the caller.
    pub(crate) fn begin(&self, bytes: usize) -> TcpStream {
        let mut stream = TcpStream::connect(self.to).unwrap();
        stream.set_read_timeout(Some(DEADLINE)).unwrap();
        stream.write_all(self.head().as_bytes()).unwrap();
        stream.write_all(&self.body[..bytes]).unwrap();
        stream
    }

    pub(crate) fn send(&self) -> Reply {
        self.try_send().unwrap()
    }

    /// The same from another address of this machine.
    pub(crate) fn send_from(&self, source: SocketAddr) -> Reply {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        let stream = runtime.block_on(async {
            let socket = tokio::net::TcpSocket::new_v4().unwrap();
            socket.bind(source).unwrap();
            socket.connect(self.to).await.unwrap().into_std().unwrap()
        });
        stream.set_nonblocking(false).unwrap();
        self.send_over(stream).unwrap()
    }

    /// `None` when the server is gone before it has answered.
    pub(crate) fn try_send(&self) -> Option<Reply> {
        self.send_over(TcpStream::connect(self.to).ok()?)
    }

    fn send_over(&self, mut stream: TcpStream) -> Option<Reply> {
        stream.set_read_timeout(Some(DEADLINE)).ok()?;
        stream.set_nodelay(true).ok()?;
        let mut bytes = self.head().into_bytes();
        if self.is_chunked {
            for piece in self.body.chunks(1000) {
                bytes.extend(format!("{:x}\r\n", piece.len()).as_bytes());
                bytes.extend(piece);
                bytes.extend(b"\r\n");
            }
            bytes.extend(b"0\r\n\r\n");
        } else {
            bytes.extend(&self.body);
        }
        // A server that refuses does not have to read to the end.
        let _ = stream.write_all(&bytes);
        Reply::read(stream)
    }
}

#[derive(Debug)]
pub(crate) struct Reply {
    pub(crate) status: u16,
    headers: Vec<(String, String)>,
    pub(crate) body: Vec<u8>,
}

impl Reply {
    pub(crate) fn read(mut stream: TcpStream) -> Option<Reply> {
        let mut bytes = Vec::new();
        let mut piece = [0; 64 << 10];
        loop {
            match stream.read(&mut piece) {
                Ok(0) | Err(_) => break,
                Ok(count) => bytes.extend(&piece[..count]),
            }
        }
        let end = bytes.windows(4).position(|window| window == b"\r\n\r\n")?;
        let head = String::from_utf8(bytes[..end].to_vec()).unwrap();
        let mut lines = head.split("\r\n");
        let status = lines.next()?.split(' ').nth(1)?.parse().ok()?;
        let headers: Vec<(String, String)> = lines
            .filter_map(|line| line.split_once(':'))
            .map(|(name, value)| (name.to_ascii_lowercase(), value.trim().to_owned()))
            .collect();
        let mut reply = Reply { status, headers, body: bytes.split_off(end + 4) };
        if reply.header("transfer-encoding") == Some("chunked") {
            reply.body = unchunked(&reply.body)?;
        } else if let Some(length) = reply.header("content-length") {
            // What was cut off is no answer.
            (reply.body.len() == length.parse::<usize>().unwrap()).then_some(())?;
        }
        Some(reply)
    }

    pub(crate) fn header(&self, name: &str) -> Option<&str> {
        self.headers.iter().find(|(known, _)| known == name).map(|(_, value)| value.as_str())
    }

    pub(crate) fn text(&self) -> String {
        String::from_utf8_lossy(&self.body).into_owned()
    }

    pub(crate) fn json(&self) -> Json {
        serde_json::from_slice(&self.body).unwrap_or_else(|error| panic!("{error}: {}", self.text()))
    }

    /// The one line that says what is wrong.
    pub(crate) fn error(&self) -> String {
        let error = self.json()["error"].as_str().unwrap().to_owned();
        assert!(!error.is_empty() && !error.contains('\n'), "{error}");
        error
    }
}

fn unchunked(mut bytes: &[u8]) -> Option<Vec<u8>> {
    let mut out = Vec::new();
    loop {
        let end = bytes.windows(2).position(|window| window == b"\r\n")?;
        let length = usize::from_str_radix(std::str::from_utf8(&bytes[..end]).ok()?, 16).ok()?;
        if length == 0 {
            return Some(out);
        }
        out.extend(bytes.get(end + 2..end + 2 + length)?);
        bytes = &bytes[end + 2 + length + 2..];
    }
}

/// What a unary call came to.
#[derive(Debug)]
pub(crate) struct GrpcReply {
    pub(crate) http_status: u16,
    pub(crate) headers: hyper::HeaderMap,
    /// Where they come when there is a message; else the status is among the headers.
    pub(crate) trailers: Option<hyper::HeaderMap>,
    pub(crate) body: Vec<u8>,
}

impl GrpcReply {
    pub(crate) fn status(&self) -> u32 {
        let found = self.trailers.as_ref().and_then(|trailers| trailers.get("grpc-status"));
        let found = found.or_else(|| self.headers.get("grpc-status")).unwrap();
        found.to_str().unwrap().parse().unwrap()
    }

    pub(crate) fn message(&self) -> String {
        self.headers.get("grpc-message").unwrap().to_str().unwrap().to_owned()
    }
}

pub(crate) const TRACE_SERVICE: &str = "/opentelemetry.proto.collector.trace.v1.TraceService/Export";
pub(crate) const LOGS_SERVICE: &str = "/opentelemetry.proto.collector.logs.v1.LogsService/Export";

/// A message as gRPC frames it.
pub(crate) fn frame(is_compressed: bool, message: &[u8]) -> Vec<u8> {
    let mut bytes = vec![u8::from(is_compressed)];
    bytes.extend((message.len() as u32).to_be_bytes());
    bytes.extend(message);
    bytes
}

/// Makes a call over HTTP/2 without TLS.
pub(crate) fn grpc(to: SocketAddr, path: &str, headers: &[(&str, &str)], body: Vec<u8>) -> GrpcReply {
    try_grpc(to, path, headers, body).unwrap()
}

/// The same with a server that may go away meanwhile.
pub(crate) fn try_grpc(
    to: SocketAddr,
    path: &str,
    headers: &[(&str, &str)],
    body: Vec<u8>,
) -> Result<GrpcReply, Box<dyn std::error::Error>> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    runtime.block_on(async {
        let stream = TokioIo::new(tokio::net::TcpStream::connect(to).await?);
        let (mut sender, connection) = hyper::client::conn::http2::handshake(TokioExecutor::new(), stream).await?;
        tokio::spawn(connection);
        let mut request = hyper::Request::post(format!("http://{to}{path}")).header("te", "trailers");
        if !headers.iter().any(|(name, _)| *name == "content-type") {
            request = request.header("content-type", "application/grpc");
        }
        for (name, value) in headers {
            request = request.header(*name, *value);
        }
        let response = sender.send_request(request.body(Full::new(Bytes::from(body)))?).await?;
        let (head, body) = response.into_parts();
        let collected = body.collect().await?;
        Ok(GrpcReply {
            http_status: head.status.as_u16(),
            headers: head.headers,
            trailers: collected.trailers().cloned(),
            body: collected.to_bytes().to_vec(),
        })
    })
}
