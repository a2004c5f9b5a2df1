//! Checks a [`ServerConfig`] and turns it into typed settings. Every error is found here, before a port or the store is
//! opened.

use crate::server_config::{DemoPlayer, ServerConfig};
use std::error::Error;
use std::net::{SocketAddr, ToSocketAddrs};
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use gradus_core::duration_text::parse_duration_up_to;
use gradus_eval::annotation::AnnotationSettings;
use gradus_eval::evaluator::Evaluator;
use gradus_eval::evaluator_selection::{RULE_EVALUATORS, rubric_library};
use gradus_eval::judge::ModelJudge;
use gradus_eval::judge_selection::{JudgeConfigError, timeout_from_seconds};
use gradus_eval::rubric::{RubricLabels, RubricLibrary, RubricSubject};
use gradus_eval::scale::ScoreScale;
use gradus_llm::price::PriceTable;
use gradus_report::SupplementLoader;
use gradus_store::{NodeRow, RetentionPolicy, StoreLocation};

use super::client_address::IpNetwork;
use super::connection::ConnectionTimeouts;
use super::connections::ConnectionLimits;
use super::grading_rule::{
    GradingRule, GradingRuleError, build_grading_rules, find_evaluators_for_projects, is_flagging_evaluator,
};
use super::queries::QueryLimits;
use crate::alert;
use crate::live_calibration::LiveCalibrations;
use crate::node_settings::{describe_differing_nodes, describe_settings};
use crate::redaction::{Redaction, RedactionError};
use crate::serve_defaults as defaults;
use crate::serve_section::ServeSection;

/// Settings that are fixed until the next restart. Changing one of them needs new ports, pools or budgets.
#[derive(Debug)]
pub(crate) struct ServerSettings {
    /// The `gradus.toml` that the settings come from, to notice after SIGHUP that it has disappeared.
    pub(super) config_file: Option<PathBuf>,
    pub(super) http: SocketAddr,
    pub(super) grpc: SocketAddr,
    /// A second HTTP address on the port that Phoenix clients use by default (6006).
    pub(super) phoenix: Option<SocketAddr>,
    /// The state folder: the store, the runs, the verdict cache and temporary files.
    pub(super) data: PathBuf,
    pub(super) store: StoreLocation,
    /// The URL of this server for people; used for links in notices and to recognise requests of its own pages.
    pub(super) public_url: String,
    /// Whether `serve.public_url` is set, so that `public_url` is not a guess.
    pub(super) has_public_url: bool,
    /// A trace is assembled after this long without new spans if its root span has ended, and after `give_up`
    /// otherwise.
    pub(super) quiet: Duration,
    pub(super) give_up: Duration,
    /// Limit of one request body, before and after decompression.
    pub(super) max_request_bytes: usize,
    /// Bytes of one trace group that are read to assemble it. Later records stay stored and are not graded.
    pub(super) max_trace_bytes: usize,
    /// The memory budget of all requests and unread responses together.
    pub(super) memory_bytes: usize,
    /// The share of the memory budget that one client address may hold.
    pub(super) client_memory_bytes: usize,
    pub(super) connections: ConnectionLimits,
    pub(super) timeouts: ConnectionTimeouts,
    /// The rate for each key, or for each client address where no keys are needed; unlimited without it.
    pub(super) requests_per_second: Option<f64>,
    pub(super) cors_origins: Vec<String>,
    /// Limits on single OTLP records: size, nesting and number of attributes.
    pub(super) limits: gradus_otlp::RecordLimits,
    pub(super) queries: QueryLimits,
    /// Whether requests need an API key: always when an address is not loopback.
    pub(super) needs_key: bool,
    pub(super) supplements: SupplementLoader,
    pub(super) demo: Option<DemoPlayer>,
    pub(super) anchors: JudgeAnchorSettings,
    /// Private networks that alerts made on the page may send to.
    pub(super) alert_networks: Vec<IpNetwork>,
}

/// How judges are asked the same questions again, to detect that their answers changed.
#[derive(Clone, Copy, Debug)]
pub(crate) struct JudgeAnchorSettings {
    /// Questions of each evaluator that a model answers; 0 asks none.
    pub(super) count: usize,
    pub(super) every: Duration,
}

/// Settings that SIGHUP replaces as a whole. Readers take an `Arc` of one version and keep it for the whole operation.
#[derive(Debug)]
pub(crate) struct ReloadableSettings {
    pub(super) rules: Vec<GradingRule>,
    pub(super) alerts: Vec<alert::AlertRule>,
    pub(super) redaction: Redaction,
    pub(super) retention: RetentionPolicy,
    pub(super) library: RubricLibrary,
    /// Names and targets of the annotations that verdicts are shown as to Phoenix clients.
    pub(super) annotations: AnnotationSettings,
    /// For the cost of agents whose traces state none.
    pub(super) prices: PriceTable,
    pub(super) calibrations: LiveCalibrations,
}

/// Maximum age: a hundred years, which fit in nanoseconds as `i64`.
const MAX_RETENTION_AGE: Duration = Duration::from_secs(36_500 * 86_400);

/// A setting that cannot be used: its name in `gradus.toml`, its value, and how to write it. Each message is one
/// line.
#[derive(Debug, thiserror::Error)]
pub enum ServerSettingsError {
    #[error(transparent)]
    Store(#[from] gradus_store::StoreError),
    #[error("serve.{name} = {value}: give a number of seconds above 0")]
    Seconds { name: &'static str, value: f64 },
    #[error("serve.{name} = 0: give a number of megabytes above 0")]
    Megabytes { name: &'static str },
    #[error("serve.anchors = {given}: give 10 to 500, or 0 to ask nothing again")]
    AnchorCount { given: usize },
    #[error("serve.anchor_every = {text:?}: write it as \"1d\" or \"12h\"")]
    AnchorInterval { text: String },
    #[error("serve.connections = {given}: give 3 or more")]
    TooFewConnections { given: usize },
    #[error("serve.requests_per_second = {rate}: give a number above 0, or leave it out for no limit")]
    RequestRate { rate: f64 },
    #[error("serve.public_url = {url:?}: write it as https://gradus.example")]
    PublicUrl { url: String },
    #[error("serve.cors_origins: {origin:?} is no origin; name each page's as https://page.example")]
    CorsOrigin { origin: String },
    #[error(
        "serve.max_memory_mb must be at least four times serve.max_request_mb ({max_request_mb} MB): a request is held packed, unpacked and sorted"
    )]
    MemoryBelowRequest { max_request_mb: usize },
    #[error(
        "serve.max_memory_per_address_mb must be at least three times serve.max_request_mb ({max_request_mb} MB), or 0 for no limit"
    )]
    AddressMemoryBelowRequest { max_request_mb: usize },
    #[error("serve.alert_networks: {text:?} is no network; write it as 10.0.0.0/8 or 10.0.0.5")]
    AlertNetwork { text: String },
    #[error("serve.trusted_proxies: {text:?} is no address; write it as 10.0.0.5 or 10.0.0.0/8")]
    TrustedProxy { text: String },
    #[error("{option} {text:?}: {source}; write it as 127.0.0.1:4318")]
    Address { option: &'static str, text: String, source: std::io::Error },
    #[error("{option} {text:?} names no address")]
    NoAddress { option: &'static str, text: String },
    #[error("serve.retention.max_age = {text:?}: write it as \"30d\" or \"12h\", at most \"36500d\"")]
    RetentionAge { text: String },
    #[error("serve.retention.max_size = {text:?}: write it as \"20GB\" or \"500MB\"")]
    RetentionSize { text: String },
    #[error("two alerts are called {name:?}: give them different names")]
    DuplicateAlert { name: String },
    #[error(
        "alert {alert:?}: when: {evaluator} judges whole trajectories, not steps; write 'at least' and a number of trajectories"
    )]
    AlertCountsSteps { alert: String, evaluator: String },
    #[error(
        "alert {alert:?}: project: a model judges {evaluator} in some of its projects, and rules that give only flags in others, so there is no common score; write an alert for each"
    )]
    AlertMixesJudges { alert: String, evaluator: String },
    /// An `[[alert]]` table is wrong; the message names the alert.
    #[error(transparent)]
    Alert(Box<dyn Error + Send + Sync>),
    /// A file of rubrics is wrong; the message names the file.
    #[error(transparent)]
    Rubrics(Box<dyn Error + Send + Sync>),
    /// The file of `eval.prices` cannot be used.
    #[error(transparent)]
    Prices(Box<JudgeConfigError>),
    /// A calibration cannot be read; the message names the file.
    #[error("serve.calibration: {0}")]
    Calibration(Box<dyn Error + Send + Sync>),
    #[error(transparent)]
    Rule(#[from] GradingRuleError),
    #[error(transparent)]
    Redaction(#[from] RedactionError),
}

impl ServerConfig {
    /// Checks the whole configuration, before a port or the store is opened, so that a wrong setting has no effect.
    pub(crate) fn to_settings(&self) -> Result<(ServerSettings, ReloadableSettings), ServerSettingsError> {
        // Rules and alerts first: most mistakes are there, and their messages are the most specific.
        let reloadable = ReloadableSettings::from_config(self)?;
        let serve = &self.serve;
        let http = resolve_socket_address(serve.http.as_deref().unwrap_or(defaults::HTTP_ADDRESS), "--http")?;
        let grpc = resolve_socket_address(serve.grpc.as_deref().unwrap_or(defaults::GRPC_ADDRESS), "--grpc")?;
        let phoenix = serve.phoenix_port.map(|port| SocketAddr::new(http.ip(), port));
        let span = |value: Option<f64>, default: f64, name: &'static str| {
            let value = value.unwrap_or(default);
            timeout_from_seconds(value).ok_or(ServerSettingsError::Seconds { name, value })
        };
        let megabytes = |value: Option<u32>, default: u32, name: &'static str| match value.unwrap_or(default) {
            0 => Err(ServerSettingsError::Megabytes { name }),
            number => Ok(number as usize * (1 << 20)),
        };
        let max_request_bytes = megabytes(serve.max_request_mb, defaults::MAX_REQUEST_MB, "max_request_mb")?;
        let memory_bytes = megabytes(serve.max_memory_mb, defaults::MAX_MEMORY_MB, "max_memory_mb")?;
        // Eviction needs a free slot, one to serve and one to evict.
        if let Some(given @ 0..3) = serve.connections {
            return Err(ServerSettingsError::TooFewConnections { given });
        }
        if let Some(rate) = serve.requests_per_second.filter(|rate| !(rate.is_finite() && *rate > 0.0)) {
            return Err(ServerSettingsError::RequestRate { rate });
        }
        if let Some(url) = serve.public_url.as_ref().filter(|url| !is_web_address(url)) {
            return Err(ServerSettingsError::PublicUrl { url: url.clone() });
        }
        if let Some(origin) = serve.cors_origins.iter().find(|origin| !is_web_address(origin)) {
            return Err(ServerSettingsError::CorsOrigin { origin: origin.clone() });
        }
        // Smaller budgets would refuse the largest allowed request on an idle server.
        if memory_bytes < 4 * max_request_bytes {
            return Err(ServerSettingsError::MemoryBelowRequest { max_request_mb: max_request_bytes >> 20 });
        }
        Ok((
            ServerSettings {
                config_file: self.file.clone(),
                http,
                grpc,
                phoenix,
                data: self.data.clone(),
                store: match &self.store {
                    Some(address) => StoreLocation::from_address(address)?,
                    None => StoreLocation::Folder(self.data.clone()),
                },
                public_url: serve.public_url.clone().unwrap_or_else(|| format!("http://{http}")),
                has_public_url: serve.public_url.is_some(),
                quiet: span(serve.quiet_s, defaults::QUIET_S, "quiet_s")?,
                give_up: span(serve.give_up_s, defaults::GIVE_UP_S, "give_up_s")?,
                max_request_bytes,
                max_trace_bytes: megabytes(serve.max_trace_mb, defaults::MAX_TRACE_MB, "max_trace_mb")?,
                memory_bytes,
                client_memory_bytes: parse_client_memory(serve, memory_bytes, max_request_bytes)?,
                connections: parse_connection_limits(serve)?,
                timeouts: ConnectionTimeouts {
                    header: span(serve.header_timeout_s, defaults::HEADER_TIMEOUT_S, "header_timeout_s")?,
                    body: span(serve.body_timeout_s, defaults::BODY_TIMEOUT_S, "body_timeout_s")?,
                    idle: span(serve.idle_timeout_s, defaults::IDLE_TIMEOUT_S, "idle_timeout_s")?,
                    stall: span(serve.stall_timeout_s, defaults::STALL_TIMEOUT_S, "stall_timeout_s")?,
                },
                requests_per_second: serve.requests_per_second,
                cors_origins: serve.cors_origins.clone(),
                queries: QueryLimits::new(
                    span(serve.query_timeout_s, defaults::QUERY_TIMEOUT_S, "query_timeout_s")?,
                    span(serve.download_timeout_s, defaults::DOWNLOAD_TIMEOUT_S, "download_timeout_s")?,
                ),
                limits: gradus_otlp::RecordLimits {
                    record_bytes: max_request_bytes,
                    ..gradus_otlp::RecordLimits::default()
                },
                // Phoenix's port is on the address of HTTP, so it needs no condition of its own.
                needs_key: !http.ip().is_loopback() || !grpc.ip().is_loopback() || serve.require_key,
                supplements: self.supplements,
                demo: self.demo,
                anchors: parse_anchor_settings(serve)?,
                alert_networks: parse_alert_networks(serve)?,
            },
            reloadable,
        ))
    }
}

impl ServerConfig {
    /// Checks the configuration as a start would, without opening a port or the store.
    pub fn summary(&self) -> Result<ServerSummary, ServerSettingsError> {
        let (settings, reloadable) = self.to_settings()?;
        let (rules, alerts) = (reloadable.rules.len(), reloadable.alerts.len());
        let judges = reloadable.rules.iter().filter(|rule| rule.asks_model());
        Ok(ServerSummary {
            text: format!("{rules} rules, {alerts} alerts"),
            judges: judges.filter_map(|rule| Some((rule.name.clone(), rule.judge.clone()?))).collect(),
            http: settings.http,
            grpc: settings.grpc,
            phoenix: settings.phoenix,
            data: settings.data,
            store: settings.store,
            needs_key: settings.needs_key,
            node_settings: describe_settings(&reloadable.rules),
        })
    }
}

fn parse_alert_networks(serve: &ServeSection) -> Result<Vec<IpNetwork>, ServerSettingsError> {
    let parse =
        |text: &String| IpNetwork::parse(text).ok_or_else(|| ServerSettingsError::AlertNetwork { text: text.clone() });
    serve.alert_networks.iter().map(parse).collect()
}

/// Parses the settings of anchors. A change is significant from 6 of 10 or 7 of 20 anchors on; with fewer than ten,
/// nearly all would have to change.
fn parse_anchor_settings(serve: &ServeSection) -> Result<JudgeAnchorSettings, ServerSettingsError> {
    let count = serve.anchors.unwrap_or(defaults::ANCHOR_COUNT);
    if !(count == 0 || (10..=500).contains(&count)) {
        return Err(ServerSettingsError::AnchorCount { given: count });
    }
    let text = serve.anchor_every.as_deref().unwrap_or(defaults::ANCHOR_INTERVAL);
    let every = parse_duration_up_to(text, MAX_RETENTION_AGE).filter(|every| !every.is_zero());
    let every = every.ok_or_else(|| ServerSettingsError::AnchorInterval { text: text.to_owned() })?;
    Ok(JudgeAnchorSettings { count, every })
}

/// Returns the share of one client address: half of the budget, raised to what the largest request needs, and never
/// more than three quarters. The setting 0 removes the limit.
fn parse_client_memory(serve: &ServeSection, total: usize, max_request: usize) -> Result<usize, ServerSettingsError> {
    match serve.max_memory_per_address_mb {
        Some(0) => Ok(total),
        Some(megabytes) if (megabytes as usize) << 20 < 3 * max_request => {
            Err(ServerSettingsError::AddressMemoryBelowRequest { max_request_mb: max_request >> 20 })
        }
        Some(megabytes) => Ok(((megabytes as usize) << 20).min(total)),
        None => Ok((total / 2).max((4 * max_request).min(total / 4 * 3))),
    }
}

/// Reads the limits on connections. One address gets three quarters of all slots by default, so that a single client
/// cannot lock out the others.
fn parse_connection_limits(serve: &ServeSection) -> Result<ConnectionLimits, ServerSettingsError> {
    let total = serve.connections.unwrap_or(defaults::MAX_CONNECTIONS);
    let per_address = match serve.max_connections_per_address {
        Some(0) => None,
        Some(number) => Some(number),
        // The remaining quarter stays available to other addresses.
        None => Some((total * 3 / 4).max(1)),
    };
    let parse =
        |text: &String| IpNetwork::parse(text).ok_or_else(|| ServerSettingsError::TrustedProxy { text: text.clone() });
    let trusted_proxies = serve.trusted_proxies.iter().map(parse).collect::<Result<_, _>>()?;
    Ok(ConnectionLimits { total, per_address, trusted_proxies })
}

/// The result of checking a configuration, for `gradus doctor`.
#[derive(Debug)]
pub struct ServerSummary {
    /// One line for people: how many rules and alerts there are.
    pub text: String,
    pub http: SocketAddr,
    pub grpc: SocketAddr,
    pub phoenix: Option<SocketAddr>,
    pub data: PathBuf,
    pub store: StoreLocation,
    pub needs_key: bool,
    /// Digests of the settings that servers on one database compare.
    node_settings: String,
    /// The model of each rule that asks one, by the name of the rule, so that doctor can test the endpoints.
    pub judges: Vec<(String, Arc<ModelJudge>)>,
}

impl ServerSummary {
    /// Describes in one line which servers on the database have other settings; `None` if all agree.
    pub fn describe_differing_nodes(&self, nodes: &[NodeRow]) -> Option<String> {
        describe_differing_nodes(&self.node_settings, nodes)
    }
}

impl ReloadableSettings {
    /// Reads rubrics, rules, alerts, redaction and retention. Alerts are checked against the rubrics, because a
    /// misspelt evaluator would never fire.
    fn from_config(config: &ServerConfig) -> Result<ReloadableSettings, ServerSettingsError> {
        let library = rubric_library(&config.rubrics).map_err(|error| ServerSettingsError::Rubrics(error.into()))?;
        let rules = build_grading_rules(config, &library)?;
        let mut alerts: Vec<alert::AlertRule> = Vec::new();
        for section in &config.alerts {
            let rule = check_alert_section(section.clone(), &library, &rules)?;
            // The store keys the state of an alert by its name.
            if alerts.iter().any(|known| known.name == rule.name) {
                return Err(ServerSettingsError::DuplicateAlert { name: rule.name });
            }
            alerts.push(rule);
        }
        Ok(ReloadableSettings {
            rules,
            alerts,
            redaction: Redaction::from_sections(&config.serve.redact)?,
            retention: parse_retention_policy(&config.serve)?,
            library,
            annotations: config.annotations.clone(),
            prices: config.judge.price_table().map_err(|error| ServerSettingsError::Prices(error.into()))?,
            calibrations: LiveCalibrations::load(&config.serve.calibration)
                .map_err(|error| ServerSettingsError::Calibration(error.into()))?,
        })
    }
}

/// Checks an alert against the rubrics and the grading rules. The caller checks that its name is unique.
pub(super) fn check_alert_section(
    section: alert::AlertSection,
    library: &RubricLibrary,
    rules: &[GradingRule],
) -> Result<alert::AlertRule, ServerSettingsError> {
    let rule_evaluators: Vec<Evaluator> = RULE_EVALUATORS.iter().map(|make| make()).collect();
    let mut known = list_alertable_evaluators(library, &rule_evaluators);
    let judged_by = |name: &str| find_evaluators_for_projects(rules, name, section.project.as_deref());
    for evaluator in &mut known {
        evaluator.gives_only_flags = judged_by(evaluator.name).into_iter().any(is_flagging_evaluator);
    }
    let mixed: Vec<&str> = known
        .iter()
        .filter(|known| known.gives_only_flags && !judged_by(known.name).into_iter().all(is_flagging_evaluator))
        .map(|known| known.name)
        .collect();
    let rule =
        alert::AlertRule::from_section(section, &known).map_err(|error| ServerSettingsError::Alert(error.into()))?;
    if let alert::AlertMetric::Evaluator { name, .. } = &rule.condition.subject
        && mixed.contains(&name.as_str())
    {
        return Err(ServerSettingsError::AlertMixesJudges { evaluator: name.clone(), alert: rule.name });
    }
    match find_trajectory_evaluator(&rule.condition, library) {
        Some(evaluator) => {
            Err(ServerSettingsError::AlertCountsSteps { evaluator: evaluator.to_owned(), alert: rule.name })
        }
        None => Ok(rule),
    }
}

#[cfg(test)]
impl ReloadableSettings {
    /// Returns settings without rules, alerts, redaction and retention; with the built-in rubrics only.
    pub(super) fn without_rules() -> ReloadableSettings {
        ReloadableSettings {
            rules: Vec::new(),
            alerts: Vec::new(),
            redaction: Redaction::from_sections(&[]).unwrap(),
            retention: RetentionPolicy::default(),
            library: RubricLibrary::built_in(),
            annotations: AnnotationSettings::default(),
            prices: PriceTable::default(),
            calibrations: LiveCalibrations::default(),
        }
    }
}

/// Lists the evaluators that alert conditions may name, with the scale of their scores: all rubrics, and the
/// evaluators that are rules only. How they are judged is left open.
fn list_alertable_evaluators<'e>(
    library: &'e RubricLibrary,
    rule_evaluators: &'e [Evaluator],
) -> Vec<alert::AlertableEvaluator<'e>> {
    fn describe<'e>(name: &'e str, labels: &RubricLabels) -> alert::AlertableEvaluator<'e> {
        let ScoreScale { worst, best } = labels.scale();
        alert::AlertableEvaluator { name, worst, best, gives_only_flags: false }
    }
    let rubrics = library.iter().map(|rubric| describe(&rubric.name, &rubric.labels));
    rubrics.chain(rule_evaluators.iter().map(|known| describe(&known.name, &known.labels))).collect()
}

/// Returns the evaluator's name if a condition demands a minimum number of steps, and the evaluator judges whole
/// trajectories. Such an alert could never fire. `None` if the condition is valid.
fn find_trajectory_evaluator<'l>(condition: &alert::AlertCondition, library: &'l RubricLibrary) -> Option<&'l str> {
    let alert::AlertMetric::Evaluator { name, .. } = &condition.subject else { return None };
    let counts_steps = condition.min_sample.is_some_and(|min_sample| min_sample.unit == Some(alert::SampleUnit::Steps));
    let rubric = library.iter().find(|rubric| rubric.name == *name)?;
    (counts_steps && rubric.subject == RubricSubject::Trajectory).then_some(rubric.name.as_str())
}

/// Whether a text is an absolute `http` or `https` URL.
fn is_web_address(text: &str) -> bool {
    reqwest::Url::parse(text).is_ok_and(|url| matches!(url.scheme(), "http" | "https") && url.has_host())
}

/// Reads `[serve.retention]`. Without the table nothing is ever deleted.
fn parse_retention_policy(section: &ServeSection) -> Result<RetentionPolicy, ServerSettingsError> {
    let Some(retention) = &section.retention else { return Ok(RetentionPolicy::default()) };
    let max_age_ns = match &retention.max_age {
        Some(text) => {
            let age = parse_duration_up_to(text, MAX_RETENTION_AGE)
                .ok_or_else(|| ServerSettingsError::RetentionAge { text: text.clone() })?;
            Some(i64::try_from(age.as_nanos()).unwrap_or(i64::MAX))
        }
        None => None,
    };
    let max_bytes = match &retention.max_size {
        Some(text) => {
            Some(parse_byte_size(text).ok_or_else(|| ServerSettingsError::RetentionSize { text: text.clone() })?)
        }
        None => None,
    };
    Ok(RetentionPolicy { max_age_ns, max_bytes })
}

/// Reads sizes such as `20GB`, in decimal units (1 GB is 10^9 bytes). `None` without a unit, since a plain number would
/// be ambiguous.
fn parse_byte_size(text: &str) -> Option<u64> {
    let text = text.trim();
    let digits = text.trim_end_matches(|c: char| c.is_ascii_alphabetic()).trim_end();
    let factor = match text[digits.len()..].trim().to_ascii_uppercase().as_str() {
        "KB" => 1e3,
        "MB" => 1e6,
        "GB" => 1e9,
        "TB" => 1e12,
        _ => return None,
    };
    let number: f64 = digits.parse().ok()?;
    (number > 0.0).then_some((number * factor) as u64)
}

/// Resolves an address, which may be a host name. The first of several addresses is used.
fn resolve_socket_address(text: &str, option: &'static str) -> Result<SocketAddr, ServerSettingsError> {
    let mut found = text.to_socket_addrs().map_err(|source| ServerSettingsError::Address {
        option,
        text: text.to_owned(),
        source,
    })?;
    found.next().ok_or_else(|| ServerSettingsError::NoAddress { option, text: text.to_owned() })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_message() {
        let text = || "10.0.0".to_owned();
        let rule = || "shop".to_owned();
        let name = || "order_numbers".to_owned();
        let errors: Vec<ServerSettingsError> = vec![
            ServerSettingsError::Seconds { name: "query_seconds", value: -1.0 },
            ServerSettingsError::Megabytes { name: "max_request_mb" },
            ServerSettingsError::TooFewConnections { given: 2 },
            ServerSettingsError::RequestRate { rate: 0.0 },
            ServerSettingsError::PublicUrl { url: "gradus.example".to_owned() },
            ServerSettingsError::CorsOrigin { origin: "*".to_owned() },
            ServerSettingsError::MemoryBelowRequest { max_request_mb: 64 },
            ServerSettingsError::AddressMemoryBelowRequest { max_request_mb: 64 },
            ServerSettingsError::AlertNetwork { text: text() },
            ServerSettingsError::TrustedProxy { text: text() },
            ServerSettingsError::Address {
                option: "--listen",
                text: text(),
                source: std::io::Error::other("invalid socket address"),
            },
            ServerSettingsError::NoAddress { option: "--listen", text: text() },
            ServerSettingsError::RetentionAge { text: "forever".to_owned() },
            ServerSettingsError::RetentionSize { text: "20".to_owned() },
            ServerSettingsError::DuplicateAlert { name: "tool choice".to_owned() },
            ServerSettingsError::AlertCountsSteps {
                alert: "short paths".to_owned(),
                evaluator: "sequence_optimality".to_owned(),
            },
            ServerSettingsError::AlertMixesJudges {
                alert: "tool choice".to_owned(),
                evaluator: "thought_to_tool".to_owned(),
            },
            ServerSettingsError::Alert("alert \"n\": project".into()),
            ServerSettingsError::Rubrics("mine/tone.md: the prompt is empty".into()),
            GradingRuleError::DuplicateName { rule: rule() }.into(),
            GradingRuleError::Judging { rule: rule(), source: "--judge is empty".into() }.into(),
            GradingRuleError::Sample { rule: rule(), sample: 1.5 }.into(),
            GradingRuleError::Budget { rule: rule(), budget: -1.0 }.into(),
            GradingRuleError::UnknownPrice { rule: rule(), model: "local".to_owned() }.into(),
            GradingRuleError::BudgetBelowOneAnswer { rule: rule(), budget: 0.001, answer: 0.0123 }.into(),
            GradingRuleError::NoEvaluators { rule: rule() }.into(),
            GradingRuleError::ToolFile("tools.json: no tools found".into()).into(),
            RedactionError::Form.into(),
            RedactionError::Name("order numbers".to_owned()).into(),
            RedactionError::BuiltIn("mails".to_owned()).into(),
            RedactionError::Syntax { name: name(), reason: "unclosed group".to_owned() }.into(),
            RedactionError::TooLarge { name: name() }.into(),
            RedactionError::Empty { name: name() }.into(),
            RedactionError::Replacement { name: name() }.into(),
            RedactionError::TooLargeTogether.into(),
        ];
        let messages: Vec<String> = errors.iter().map(ToString::to_string).collect();
        insta::assert_snapshot!(messages.join("\n"));
    }

    #[test]
    fn sizes() {
        assert_eq!(parse_byte_size("20GB"), Some(20_000_000_000));
        assert_eq!(parse_byte_size("1.5 mb"), Some(1_500_000));
        assert_eq!(parse_byte_size("20"), None);
        assert_eq!(parse_byte_size("-1GB"), None);
    }
}
