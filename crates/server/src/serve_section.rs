//! The tables of `gradus.toml` that a server reads when it starts.
//!
//! The configuration reference is generated from these types: a documentation comment is the meaning of a key,
//! `x-default` its default, `x-type` its type where Rust's says too little, `x-option` the command-line option that
//! overrides it, `x-trust` when a found file needs trust for it, and `x-secret` that its value is never shown.

use schemars::JsonSchema;
use serde::Deserialize;
use std::path::PathBuf;

use crate::redaction::RedactSection;
use crate::serve_defaults as defaults;

/// Times are seconds above 0. An MB is 1,048,576 bytes.
// An unknown key is an error, so that a misspelt limit is noticed. Values are not checked here.
#[derive(Clone, Debug, Default, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct ServeSection {
    /// Address for HTTP: OTLP, the API and the web interface. May be the same as `grpc`.
    #[schemars(extend(
        "x-type" = "address",
        "x-default" = defaults::HTTP_ADDRESS,
        "x-option" = "--http",
        "x-trust" = "unless loopback"
    ))]
    pub http: Option<String>,
    /// Address for OTLP over gRPC.
    #[schemars(extend(
        "x-type" = "address",
        "x-default" = defaults::GRPC_ADDRESS,
        "x-option" = "--grpc",
        "x-trust" = "unless loopback"
    ))]
    pub grpc: Option<String>,
    /// Another HTTP port, where Phoenix's clients look by default: 6006.
    #[schemars(extend("x-option" = "--phoenix-port"))]
    pub phoenix_port: Option<u16>,
    /// Where people reach the server, for links in alerts.
    #[schemars(extend("x-type" = "URL", "x-default-text" = "the `http` address", "x-trust" = "yes"))]
    pub public_url: Option<String>,
    /// Seconds without a record after which a trace with an ended root span is assembled.
    #[schemars(extend("x-default" = defaults::QUIET_S))]
    pub quiet_s: Option<f64>,
    /// Seconds without a record after which a trace without an ended root span is assembled.
    #[schemars(extend("x-default" = defaults::GIVE_UP_S))]
    pub give_up_s: Option<f64>,
    /// Size of one request, compressed or decompressed.
    #[schemars(extend("x-default" = defaults::MAX_REQUEST_MB))]
    pub max_request_mb: Option<u32>,
    /// Records of one trace that are assembled, the first to arrive first.
    #[schemars(extend("x-default" = defaults::MAX_TRACE_MB))]
    pub max_trace_mb: Option<u32>,
    /// Memory budget of all requests and unread responses; at least 4 × `max_request_mb`.
    #[schemars(extend("x-default" = defaults::MAX_MEMORY_MB))]
    pub max_memory_mb: Option<u32>,
    /// Memory budget of one client address; at least 3 × `max_request_mb`; 0: no limit.
    #[schemars(extend(
        "x-default-text" = "half of `max_memory_mb`, or 4 × `max_request_mb` if that is more, up to three quarters of `max_memory_mb`"
    ))]
    pub max_memory_per_address_mb: Option<u32>,
    /// Open connections; at least 3.
    #[schemars(extend("x-default" = defaults::MAX_CONNECTIONS))]
    pub connections: Option<usize>,
    /// Open connections of one client address; 0: no limit.
    #[schemars(extend("x-default-text" = "three quarters of `connections`"))]
    pub max_connections_per_address: Option<usize>,
    /// Addresses or networks (`10.0.0.0/8`) of proxies, whose `X-Forwarded-For` and `Forwarded` headers count.
    #[serde(default)]
    #[schemars(extend("x-trust" = "yes"))]
    pub trusted_proxies: Vec<String>,
    /// Time for the headers of a request, and for the first request of a connection.
    #[schemars(extend("x-default" = defaults::HEADER_TIMEOUT_S))]
    pub header_timeout_s: Option<f64>,
    /// Time for the body of a request.
    #[schemars(extend("x-default" = defaults::BODY_TIMEOUT_S))]
    pub body_timeout_s: Option<f64>,
    /// Time without a request after which a connection is closed.
    #[schemars(extend("x-default" = defaults::IDLE_TIMEOUT_S))]
    pub idle_timeout_s: Option<f64>,
    /// Time without progress after which an unread response is dropped.
    #[schemars(extend("x-default" = defaults::STALL_TIMEOUT_S))]
    pub stall_timeout_s: Option<f64>,
    /// Requests per second of one key, or of one address where no keys are needed.
    #[schemars(extend("x-default-text" = "no limit"))]
    pub requests_per_second: Option<f64>,
    /// Time for a query: a page, a list or a search.
    #[schemars(extend("x-default" = defaults::QUERY_TIMEOUT_S))]
    pub query_timeout_s: Option<f64>,
    /// Time for a download, without the time that the client takes to read.
    #[schemars(extend("x-default" = defaults::DOWNLOAD_TIMEOUT_S))]
    pub download_timeout_s: Option<f64>,
    /// Origins whose pages may use the API (CORS).
    #[serde(default)]
    #[schemars(extend("x-type" = "list of URLs", "x-trust" = "yes"))]
    pub cors_origins: Vec<String>,
    /// Require a key on loopback as well.
    #[serde(default)]
    #[schemars(extend("x-default" = false))]
    pub require_key: bool,
    pub retention: Option<RetentionSection>,
    /// Files of [`gradus judge calibrate`](judge-calibrate.md) that scores of model judges are corrected by.
    #[serde(default)]
    #[schemars(extend("x-type" = "list of paths", "x-trust" = "outside the folder"))]
    pub calibration: Vec<PathBuf>,
    /// Questions that each model judge is [asked again](serve.md#anchors-of-judges), 10 to 500; 0 asks none.
    #[schemars(extend("x-default" = defaults::ANCHOR_COUNT))]
    pub anchors: Option<usize>,
    /// How often anchors are asked: `"1d"`, `"12h"`.
    #[schemars(extend("x-type" = "duration", "x-default" = defaults::ANCHOR_INTERVAL))]
    pub anchor_every: Option<String>,
    /// Private addresses or networks (`10.0.0.0/8`) that [alerts made on the page](alerts.md#alerts-from-the-page) may send to.
    #[serde(default)]
    #[schemars(extend("x-type" = "list of networks", "x-trust" = "yes"))]
    pub alert_networks: Vec<String>,
    #[serde(default)]
    pub redact: Vec<RedactSection>,
}

/// Whichever limit is reached first deletes traces. [Retention](serve.md#retention) describes what is deleted.
#[derive(Clone, Debug, Default, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct RetentionSection {
    /// Age of a trace, `"30d"` or `"12h"`; at most `"36500d"`.
    #[schemars(extend("x-type" = "duration", "x-default-text" = "no limit", "x-trust" = "yes"))]
    pub max_age: Option<String>,
    /// Size of the store, `"20GB"` or `"500MB"` (units of 1000: `KB`, `MB`, `GB`, `TB`).
    #[schemars(extend("x-type" = "size", "x-default-text" = "no limit", "x-trust" = "yes"))]
    pub max_size: Option<String>,
}

/// How projects are graded while traces arrive. The first rule that matches a project applies. Without any rule, the
/// offline judge grades every project.
#[derive(Clone, Debug, Default, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct RuleSection {
    /// Unique. Queue and spending of a rule are stored under its name.
    #[schemars(extend("x-default-text" = "the `project`, otherwise `default`"))]
    pub name: Option<String>,
    /// A project name; `*` at the end matches anything (`shop-*`).
    #[schemars(extend("x-default-text" = "every project"))]
    pub project: Option<String>,
    /// Which evaluators: names and sets.
    #[schemars(extend("x-default-text" = "`[eval] evaluators`"))]
    pub evaluators: Option<Vec<String>>,
    /// As `gradus eval --judge`. No rule asks a model that it does not name, whatever keys are set.
    #[schemars(extend("x-default" = gradus_eval::evaluator::OFFLINE_JUDGE, "x-trust" = "unless `offline`"))]
    pub judge: Option<String>,
    /// Address of the endpoint.
    #[schemars(extend("x-type" = "URL", "x-default-text" = "as for `gradus eval`", "x-trust" = "yes"))]
    pub base_url: Option<String>,
    /// Share of trajectories that are judged, 0 to 1.
    #[schemars(extend("x-default" = defaults::SAMPLE))]
    pub sample: Option<f64>,
    /// Also judge every trajectory with an error, whatever the share.
    #[schemars(extend("x-default" = defaults::GRADES_ERRORS))]
    pub errors: Option<bool>,
    /// Dollars for a UTC day. The price of the model must be known, and the budget must be enough for one answer; 0
    /// pauses judging.
    #[schemars(extend("x-default-text" = "no limit"))]
    pub daily_budget_usd: Option<f64>,
    /// As `[eval] tools`.
    #[schemars(extend("x-type" = "path", "x-default-text" = "`[eval] tools`", "x-trust" = "outside the folder"))]
    pub tools: Option<PathBuf>,
    /// As `[eval] tool_notes`.
    #[schemars(extend("x-type" = "path", "x-default-text" = "`[eval] tool_notes`", "x-trust" = "outside the folder"))]
    pub tool_notes: Option<PathBuf>,
}
