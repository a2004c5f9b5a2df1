//! A model endpoint, or any other HTTP server, for tests and benchmarks. It speaks just enough HTTP/1.1 to be fast (far over 20,000 requests a
//! second on one core), answers what a script tells it to, and can fail in every way that real ones do.

mod clock;
mod http;

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use tokio::net::TcpSocket;
use tokio::sync::oneshot;

/// What came in.
#[derive(Debug)]
pub struct Incoming<'r> {
    /// Counts from 0.
    pub number: u64,
    /// The request line and the headers.
    pub head: &'r [u8],
    pub body: &'r [u8],
}

impl<'r> Incoming<'r> {
    /// What is asked for, as `GET /v1/projects?limit=1`.
    pub fn what(&self) -> &'r str {
        let line = self.head.split(|byte| *byte == b'\r').next().unwrap_or_default();
        let line = std::str::from_utf8(line).unwrap_or_default();
        line.strip_suffix(" HTTP/1.1").unwrap_or(line)
    }

    pub fn header(&self, name: &str) -> Option<&'r str> {
        let mut lines = self.head.split(|byte| *byte == b'\n').skip(1);
        lines.find_map(|line| {
            let (key, value) = std::str::from_utf8(line).ok()?.split_once(':')?;
            key.eq_ignore_ascii_case(name).then(|| value.trim())
        })
    }

    pub fn contains(&self, text: &str) -> bool {
        let text = text.as_bytes();
        self.body.windows(text.len()).any(|window| window == text)
    }

    /// The same for the same request.
    pub fn digest(&self) -> u64 {
        let fold = |hash: u64, byte: &u8| (hash ^ u64::from(*byte)).wrapping_mul(0x0100_0000_01b3);
        self.body.iter().fold(0xcbf2_9ce4_8422_2325, fold)
    }

    /// A verdict in the form that was asked for.
    pub fn verdict(&self, label: &str) -> Answer {
        let explanation = "The call does what the thought sets out to do, with the objects that it names.";
        let json = format!("{{\\\"explanation\\\":\\\"{explanation}\\\",\\\"label\\\":\\\"{label}\\\"}}");
        if self.contains("\"tools\"") || self.contains("\"functions\"") {
            return Answer::ok(chat(&format!(
                "{{\"role\":\"assistant\",\"content\":null,\"tool_calls\":[{{\"id\":\"call_1\",\"type\":\"function\",\"function\":{{\"name\":\"record_response\",\"arguments\":\"{}\"}}}}]}}",
                json.replace("\\\"label\\\"", "\\\"response\\\"")
            )));
        }
        let content = if self.contains("\"response_format\"") {
            json
        } else {
            format!("EXPLANATION: {explanation}\\nLABEL: {label}")
        };
        Answer::ok(chat(&format!("{{\"role\":\"assistant\",\"content\":\"{content}\"}}")))
    }
}

fn chat(message: &str) -> String {
    format!(
        "{{\"id\":\"c\",\"object\":\"chat.completion\",\"created\":1,\"model\":\"gpt-4o\",\"choices\":[{{\"index\":0,\"message\":{message},\"finish_reason\":\"stop\"}}],\"usage\":{{\"prompt_tokens\":400,\"completion_tokens\":40,\"total_tokens\":440}}}}"
    )
}

/// What goes out.
#[derive(Clone, Debug)]
pub enum Answer {
    Reply {
        status: u16,
        headers: Vec<(&'static str, String)>,
        body: String,
    },
    /// The headers promise more than comes.
    Truncated,
    /// One byte now and then, for ever.
    SlowLoris,
    /// The connection is reset without an answer.
    Reset,
    /// The connection is closed without an answer.
    Closed,
    Late(Duration, Box<Answer>),
}

impl Answer {
    pub fn ok(body: String) -> Answer {
        Answer::status(200, body)
    }

    pub fn status(status: u16, body: impl Into<String>) -> Answer {
        Answer::Reply { status, headers: Vec::new(), body: body.into() }
    }

    #[must_use]
    pub fn with_header(mut self, name: &'static str, value: impl Into<String>) -> Answer {
        if let Answer::Reply { headers, .. } = &mut self {
            headers.push((name, value.into()));
        }
        self
    }

    /// The same verdict by a model of this name.
    #[must_use]
    pub fn answered_by(mut self, model: &str) -> Answer {
        if let Answer::Reply { body, .. } = &mut self {
            *body = body.replacen("\"model\":\"gpt-4o\"", &format!("\"model\":\"{model}\""), 1);
        }
        self
    }

    #[must_use]
    pub fn after(self, delay: Duration) -> Answer {
        Answer::Late(delay, Box::new(self))
    }
}

/// What an endpoint does with what comes in.
pub type Script = dyn Fn(&Incoming<'_>) -> Answer + Send + Sync;

/// Runs in a thread of its own until it is dropped.
#[derive(Debug)]
pub struct Endpoint {
    port: u16,
    counters: Arc<Counters>,
    stop: Option<oneshot::Sender<()>>,
    thread: Option<std::thread::JoinHandle<()>>,
}

#[derive(Debug, Default)]
pub(crate) struct Counters {
    received: AtomicU64,
    in_flight: AtomicU64,
    most_in_flight: AtomicU64,
}

impl Counters {
    fn begin(&self) -> u64 {
        let now = self.in_flight.fetch_add(1, Ordering::Relaxed) + 1;
        self.most_in_flight.fetch_max(now, Ordering::Relaxed);
        self.received.fetch_add(1, Ordering::Relaxed)
    }

    fn end(&self) {
        self.in_flight.fetch_sub(1, Ordering::Relaxed);
    }
}

impl Endpoint {
    /// Listens on a free port of the loopback.
    pub fn start(script: Arc<Script>) -> std::io::Result<Endpoint> {
        Endpoint::start_on(0, script)
    }

    pub fn start_on(port: u16, script: Arc<Script>) -> std::io::Result<Endpoint> {
        let counters = Arc::new(Counters::default());
        let (stop, stopped) = oneshot::channel();
        let shared = Arc::clone(&counters);
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
        let listener = {
            let _runtime = runtime.enter();
            let socket = TcpSocket::new_v4()?;
            socket.set_reuseaddr(true)?;
            socket.bind(([127, 0, 0, 1], port).into())?;
            // Thousands may knock at once.
            socket.listen(8192)?
        };
        let port = listener.local_addr()?.port();
        let thread = std::thread::spawn(move || {
            runtime.block_on(async {
                tokio::select! {
                    () = http::serve(listener, script, shared, clock::Clock::start()) => {}
                    _ = stopped => {}
                }
            });
        });
        Ok(Endpoint { port, counters, stop: Some(stop), thread: Some(thread) })
    }

    /// What belongs into `OPENAI_BASE_URL`.
    pub fn url(&self) -> String {
        format!("http://127.0.0.1:{}/v1", self.port)
    }

    /// The same without a path.
    pub fn origin(&self) -> String {
        format!("http://127.0.0.1:{}", self.port)
    }

    /// Requests so far.
    pub fn received(&self) -> u64 {
        self.counters.received.load(Ordering::Relaxed)
    }

    /// Requests that are not answered yet.
    pub fn in_flight(&self) -> u64 {
        self.counters.in_flight.load(Ordering::Relaxed)
    }

    pub fn most_in_flight(&self) -> u64 {
        self.counters.most_in_flight.load(Ordering::Relaxed)
    }

    /// Waits until it is stopped, which is never unless somebody kills the process.
    pub fn join(mut self) {
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

impl Drop for Endpoint {
    fn drop(&mut self) {
        if let Some(stop) = self.stop.take() {
            let _ = stop.send(());
        }
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}
