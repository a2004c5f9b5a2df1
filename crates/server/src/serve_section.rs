//! The tables of `gradus.toml` that a server reads when it starts.

use serde::Deserialize;
use std::path::PathBuf;

use crate::redaction::RedactSection;

/// The `[serve]` table of `gradus.toml`.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ServeSection {
    pub http: Option<String>,
    pub grpc: Option<String>,
    /// A second port for HTTP, where Phoenix's clients look by default.
    pub phoenix_port: Option<u16>,
    /// Where people reach the server, for links in alerts.
    pub public_url: Option<String>,
    /// How long nothing may come for a trace whose root has ended before it is judged.
    pub quiet_s: Option<f64>,
    /// The same for a trace whose root has not ended.
    pub give_up_s: Option<f64>,
    pub max_request_mb: Option<u32>,
    /// Records of one trace that are assembled; what came first is read.
    pub max_trace_mb: Option<u32>,
    /// What requests may hold in memory, all together.
    pub max_memory_mb: Option<u32>,
    /// The same of one address; 0 is no limit.
    pub max_memory_per_address_mb: Option<u32>,
    pub connections: Option<usize>,
    /// Of one address; 0 is no limit.
    pub max_connections_per_address: Option<usize>,
    /// Proxies whose `X-Forwarded-For` and `Forwarded` say who the client is.
    #[serde(default)]
    pub trusted_proxies: Vec<String>,
    /// How long a client may take to send its headers, and the first request of a connection.
    pub header_timeout_s: Option<f64>,
    /// To send a request's body.
    pub body_timeout_s: Option<f64>,
    /// Between requests.
    pub idle_timeout_s: Option<f64>,
    /// To take the next part of a response.
    pub stall_timeout_s: Option<f64>,
    /// Of one client or key.
    pub requests_per_second: Option<f64>,
    /// How long a query may run: a page, a list, a search.
    pub query_timeout_s: Option<f64>,
    /// The same for a download, without the time that its client takes to read it.
    pub download_timeout_s: Option<f64>,
    /// Pages of these origins may ask; none may without it.
    #[serde(default)]
    pub cors_origins: Vec<String>,
    /// Ask for a key even on loopback.
    #[serde(default)]
    pub require_key: bool,
    pub retention: Option<RetentionSection>,
    #[serde(default)]
    pub redact: Vec<RedactSection>,
}

/// The `[serve.retention]` table.
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
    /// The project's name; `*` at its end stands for anything. Without it: every project.
    pub project: Option<String>,
    pub evaluators: Option<Vec<String>>,
    /// As `gradus eval --judge`. Without it: `offline`, so that no traffic costs money by accident.
    pub judge: Option<String>,
    pub base_url: Option<String>,
    /// The share of trajectories that are judged.
    pub sample: Option<f64>,
    /// Judge every trajectory with an error, whatever the share.
    pub errors: Option<bool>,
    pub daily_budget_usd: Option<f64>,
    pub tools: Option<PathBuf>,
    pub tool_notes: Option<PathBuf>,
}
