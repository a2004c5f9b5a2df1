//! The tables of `gradus.toml` that a server reads when it starts.

use serde::Deserialize;
use std::path::PathBuf;

use crate::redaction::RedactSection;

/// The `[serve]` table of `gradus.toml`, unchecked. An unknown key is an error, so that a misspelt limit is noticed.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ServeSection {
    /// Addresses to listen on, as `HOST:PORT`. Both may be the same address.
    pub http: Option<String>,
    pub grpc: Option<String>,
    /// A second port for HTTP, where Phoenix's clients look by default.
    pub phoenix_port: Option<u16>,
    /// Where people reach the server, for links in alerts.
    pub public_url: Option<String>,
    /// Seconds without new spans after which a trace is assembled whose root span has ended.
    pub quiet_s: Option<f64>,
    /// Seconds without new spans after which a trace is assembled whose root span has not ended.
    pub give_up_s: Option<f64>,
    pub max_request_mb: Option<u32>,
    /// Megabytes of one trace that are assembled. The records that arrived first are read.
    pub max_trace_mb: Option<u32>,
    /// The memory budget of all requests and unread responses, in megabytes.
    pub max_memory_mb: Option<u32>,
    /// The share of one client address in it; 0 removes the limit.
    pub max_memory_per_address_mb: Option<u32>,
    /// Open connections in all.
    pub connections: Option<usize>,
    /// Open connections of one client address; 0 removes the limit.
    pub max_connections_per_address: Option<usize>,
    /// Addresses or networks (`10.0.0.0/8`) of proxies. Only their `X-Forwarded-For` and `Forwarded` headers are
    /// believed.
    #[serde(default)]
    pub trusted_proxies: Vec<String>,
    /// How long a client may take to send its headers, and the first request of a connection.
    pub header_timeout_s: Option<f64>,
    /// How long a client may take to send the body of a request.
    pub body_timeout_s: Option<f64>,
    /// How long a connection may stay open without a request.
    pub idle_timeout_s: Option<f64>,
    /// How long a client may take to read the next part of a response.
    pub stall_timeout_s: Option<f64>,
    /// Requests per second of one key, or of one address where no keys are needed.
    pub requests_per_second: Option<f64>,
    /// How long a query may run: a page, a list or a search.
    pub query_timeout_s: Option<f64>,
    /// How long a download may run, without the time that its client takes to read it.
    pub download_timeout_s: Option<f64>,
    /// Origins whose pages may send requests with CORS. Without any, only the server's own pages may.
    #[serde(default)]
    pub cors_origins: Vec<String>,
    /// Requires a key on loopback, too.
    #[serde(default)]
    pub require_key: bool,
    pub retention: Option<RetentionSection>,
    /// Files of `gradus judge calibrate` that scores of model judges are corrected by.
    #[serde(default)]
    pub calibration: Vec<PathBuf>,
    /// Questions that each model judge is asked again; 0 asks none.
    pub anchors: Option<usize>,
    /// How often, as `1d` or `12h`.
    pub anchor_every: Option<String>,
    #[serde(default)]
    pub redact: Vec<RedactSection>,
}

/// The `[serve.retention]` table: `max_age` as `30d` or `12h`, `max_size` as `20GB`. Whichever limit is reached first
/// deletes traces.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct RetentionSection {
    pub max_age: Option<String>,
    pub max_size: Option<String>,
}

/// A `[[rule]]` of `gradus.toml`.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct RuleSection {
    pub name: Option<String>,
    /// The name of the project. A `*` at the end matches any rest. Without it the rule is for every project.
    pub project: Option<String>,
    pub evaluators: Option<Vec<String>>,
    /// As `gradus eval --judge`. Without it: `offline`, so that no traffic costs money by accident.
    pub judge: Option<String>,
    pub base_url: Option<String>,
    /// The share of trajectories that are graded, from 0 to 1.
    pub sample: Option<f64>,
    /// Grade every trajectory with an error, whatever the share. True if left out.
    pub errors: Option<bool>,
    /// Dollars that the rule may spend on a UTC day. 0 pauses the rule.
    pub daily_budget_usd: Option<f64>,
    pub tools: Option<PathBuf>,
    pub tool_notes: Option<PathBuf>,
}
