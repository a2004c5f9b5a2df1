//! From arguments, environment and file to what a server needs.

use crate::server_config::ServerConfig;
use std::net::{SocketAddr, ToSocketAddrs};
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use gradus_core::duration_text::parse_duration_up_to;
use gradus_eval::annotation::AnnotationSettings;
use gradus_eval::evaluator::CALL_VALIDITY;
use gradus_eval::judge::ModelJudge;
use gradus_eval::judge_selection::{rubric_library, timeout_from_seconds};
use gradus_eval::rubric::{RubricLibrary, RubricSubject};
use gradus_eval::scale::ScoreScale;
use gradus_report::SupplementLoader;
use gradus_store::RetentionPolicy;

use super::client_address::ProxyNetwork;
use super::connection::ConnectionTimeouts;
use super::connections::ConnectionLimits;
use super::grading_rule::{GradingRule, build_grading_rules};
use super::queries::QueryLimits;
use crate::alert;
use crate::redaction::Redaction;
use crate::serve_section::ServeSection;

/// What a server is told at its start.
#[derive(Debug)]
pub(crate) struct ServerSettings {
    /// The file that was read, if there was one.
    pub(super) config_file: Option<PathBuf>,
    pub(super) http: SocketAddr,
    pub(super) grpc: SocketAddr,
    /// Another address for HTTP, for those who look for Phoenix.
    pub(super) phoenix: Option<SocketAddr>,
    pub(super) data: PathBuf,
    /// Where people reach this server, for links.
    pub(super) public_url: String,
    pub(super) quiet: Duration,
    pub(super) give_up: Duration,
    pub(super) max_request_bytes: usize,
    /// Records of one trace that are assembled.
    pub(super) max_trace_bytes: usize,
    pub(super) memory_bytes: usize,
    /// What one client may hold of it.
    pub(super) client_memory_bytes: usize,
    pub(super) connections: ConnectionLimits,
    pub(super) timeouts: ConnectionTimeouts,
    pub(super) requests_per_second: Option<f64>,
    pub(super) cors_origins: Vec<String>,
    pub(super) limits: gradus_otlp::RecordLimits,
    pub(super) queries: QueryLimits,
    /// Whether callers have to show a key.
    pub(super) needs_key: bool,
    pub(super) supplements: SupplementLoader,
}

/// What can change while it runs.
#[derive(Debug)]
pub(crate) struct ReloadableSettings {
    pub(super) rules: Vec<GradingRule>,
    pub(super) alerts: Vec<alert::AlertRule>,
    pub(super) redaction: Redaction,
    pub(super) retention: RetentionPolicy,
    pub(super) library: RubricLibrary,
    /// What verdicts are called, and what they are about.
    pub(super) annotations: AnnotationSettings,
}

const MAX_AGE: Duration = Duration::from_secs(36_500 * 86_400);
const HTTP: &str = "127.0.0.1:4318";
const GRPC: &str = "127.0.0.1:4317";

impl ServerConfig {
    /// Checks all of it.
    pub(crate) fn to_settings(&self) -> Result<(ServerSettings, ReloadableSettings), String> {
        let reloadable = ReloadableSettings::from_config(self)?;
        let serve = &self.serve;
        let http = resolve_socket_address(serve.http.as_deref().unwrap_or(HTTP), "--http")?;
        let grpc = resolve_socket_address(serve.grpc.as_deref().unwrap_or(GRPC), "--grpc")?;
        let phoenix = serve.phoenix_port.map(|port| SocketAddr::new(http.ip(), port));
        let span = |value: Option<f64>, default: f64, name: &str| {
            let value = value.unwrap_or(default);
            timeout_from_seconds(value)
                .ok_or_else(|| format!("serve.{name} = {value}: give a number of seconds above 0"))
        };
        let megabytes = |value: Option<u32>, default: u32, name: &str| match value.unwrap_or(default) {
            0 => Err(format!("serve.{name} = 0: give a number of megabytes above 0")),
            number => Ok(number as usize * (1 << 20)),
        };
        let max_request_bytes = megabytes(serve.max_request_mb, 20, "max_request_mb")?;
        let memory_bytes = megabytes(serve.max_memory_mb, 128, "max_memory_mb")?;
        // One to be answered, and one that takes its place.
        if let Some(few @ 0..3) = serve.connections {
            return Err(format!("serve.connections = {few}: give 3 or more"));
        }
        if let Some(rate) = serve.requests_per_second.filter(|rate| !(rate.is_finite() && *rate > 0.0)) {
            return Err(format!(
                "serve.requests_per_second = {rate}: give a number above 0, or leave it out for no limit"
            ));
        }
        if let Some(url) = serve.public_url.as_ref().filter(|url| !is_web_address(url)) {
            return Err(format!("serve.public_url = {url:?}: write it as https://gradus.example"));
        }
        if let Some(origin) = serve.cors_origins.iter().find(|origin| !is_web_address(origin)) {
            return Err(format!(
                "serve.cors_origins: {origin:?} is no origin; name each page's as https://page.example"
            ));
        }
        if memory_bytes < 4 * max_request_bytes {
            return Err(format!(
                "serve.max_memory_mb must be at least four times serve.max_request_mb ({} MB): a request is held packed, unpacked and sorted",
                max_request_bytes >> 20
            ));
        }
        Ok((
            ServerSettings {
                config_file: self.file.clone(),
                http,
                grpc,
                phoenix,
                data: self.data.clone(),
                public_url: serve.public_url.clone().unwrap_or_else(|| format!("http://{http}")),
                quiet: span(serve.quiet_s, 5.0, "quiet_s")?,
                give_up: span(serve.give_up_s, 60.0, "give_up_s")?,
                max_request_bytes,
                max_trace_bytes: megabytes(serve.max_trace_mb, 64, "max_trace_mb")?,
                memory_bytes,
                client_memory_bytes: client_memory(serve, memory_bytes, max_request_bytes)?,
                connections: connection_limits(serve)?,
                timeouts: ConnectionTimeouts {
                    header: span(serve.header_timeout_s, 10.0, "header_timeout_s")?,
                    body: span(serve.body_timeout_s, 30.0, "body_timeout_s")?,
                    idle: span(serve.idle_timeout_s, 60.0, "idle_timeout_s")?,
                    stall: span(serve.stall_timeout_s, 30.0, "stall_timeout_s")?,
                },
                requests_per_second: serve.requests_per_second,
                cors_origins: serve.cors_origins.clone(),
                queries: QueryLimits::new(
                    span(serve.query_timeout_s, 10.0, "query_timeout_s")?,
                    span(serve.download_timeout_s, 300.0, "download_timeout_s")?,
                ),
                limits: gradus_otlp::RecordLimits {
                    record_bytes: max_request_bytes,
                    ..gradus_otlp::RecordLimits::default()
                },
                needs_key: !http.ip().is_loopback() || !grpc.ip().is_loopback() || serve.require_key,
                supplements: self.supplements,
            },
            reloadable,
        ))
    }
}

impl ServerConfig {
    /// Checks all of it, and says what it comes to.
    pub fn summary(&self) -> Result<ServerSummary, String> {
        let (settings, reloadable) = self.to_settings()?;
        let (rules, alerts) = (reloadable.rules.len(), reloadable.alerts.len());
        let judges = reloadable.rules.iter().filter(|rule| rule.asks_a_model());
        Ok(ServerSummary {
            text: format!("{rules} rules, {alerts} alerts"),
            judges: judges.filter_map(|rule| Some((rule.name.clone(), rule.judge.clone()?))).collect(),
            http: settings.http,
            grpc: settings.grpc,
            phoenix: settings.phoenix,
            data: settings.data,
            needs_key: settings.needs_key,
        })
    }
}

/// What one address may hold of all memory: half of it, and as much as the largest request needs. 0 is no limit.
fn client_memory(serve: &ServeSection, total: usize, max_request: usize) -> Result<usize, String> {
    match serve.max_memory_per_address_mb {
        Some(0) => Ok(total),
        Some(megabytes) if (megabytes as usize) << 20 < 3 * max_request => Err(format!(
            "serve.max_memory_per_address_mb must be at least three times serve.max_request_mb ({} MB), or 0 for no limit",
            max_request >> 20
        )),
        Some(megabytes) => Ok(((megabytes as usize) << 20).min(total)),
        None => Ok((total / 2).max((4 * max_request).min(total / 4 * 3))),
    }
}

fn connection_limits(serve: &ServeSection) -> Result<ConnectionLimits, String> {
    let total = serve.connections.unwrap_or(2000);
    let per_address = match serve.max_connections_per_address {
        Some(0) => None,
        Some(number) => Some(number),
        // The rest is for everybody else.
        None => Some((total * 3 / 4).max(1)),
    };
    let parse = |text: &String| {
        ProxyNetwork::parse(text)
            .ok_or_else(|| format!("serve.trusted_proxies: {text:?} is no address; write it as 10.0.0.5 or 10.0.0.0/8"))
    };
    let trusted_proxies = serve.trusted_proxies.iter().map(parse).collect::<Result<_, _>>()?;
    Ok(ConnectionLimits { total, per_address, trusted_proxies })
}

/// What `gradus doctor` looks at.
#[derive(Debug)]
pub struct ServerSummary {
    pub text: String,
    pub http: SocketAddr,
    pub grpc: SocketAddr,
    pub phoenix: Option<SocketAddr>,
    pub data: PathBuf,
    pub needs_key: bool,
    /// The models that rules ask, by rule.
    pub judges: Vec<(String, Arc<ModelJudge>)>,
}

impl ReloadableSettings {
    fn from_config(config: &ServerConfig) -> Result<ReloadableSettings, String> {
        let library = rubric_library(&config.rubrics).map_err(|error| error.to_string())?;
        let known = list_alertable_evaluators(&library);
        let mut alerts: Vec<alert::AlertRule> = Vec::new();
        for section in &config.alerts {
            let rule = alert::AlertRule::from_section(section.clone(), &known)?;
            // How an alert stands is kept under its name.
            if alerts.iter().any(|known| known.name == rule.name) {
                return Err(format!("two alerts are called {:?}: give them different names", rule.name));
            }
            if let Some(name) = judges_trajectories(&rule.condition, &library) {
                return Err(format!(
                    "alert {:?}: when: {name} judges whole trajectories, not steps; write 'at least' and a number of trajectories",
                    rule.name
                ));
            }
            alerts.push(rule);
        }
        Ok(ReloadableSettings {
            rules: build_grading_rules(config, &library)?,
            alerts,
            redaction: Redaction::from_sections(&config.serve.redact).map_err(|error| error.to_string())?,
            retention: parse_retention_policy(&config.serve)?,
            library,
            annotations: config.annotations.clone(),
        })
    }
}

#[cfg(test)]
impl ReloadableSettings {
    /// Without a rule or an alert.
    pub(super) fn without_rules() -> ReloadableSettings {
        ReloadableSettings {
            rules: Vec::new(),
            alerts: Vec::new(),
            redaction: Redaction::from_sections(&[]).unwrap(),
            retention: RetentionPolicy::default(),
            library: RubricLibrary::built_in(),
            annotations: AnnotationSettings::default(),
        }
    }
}

/// The evaluators that alerts can be about, each with its scale.
fn list_alertable_evaluators(library: &RubricLibrary) -> Vec<alert::AlertableEvaluator<'_>> {
    let rubrics = library.iter().map(|rubric| {
        let ScoreScale { worst, best } = rubric.labels.scale();
        alert::AlertableEvaluator { name: &rubric.name, worst, best }
    });
    rubrics.chain([alert::AlertableEvaluator { name: CALL_VALIDITY, worst: 0.0, best: 1.0 }]).collect()
}

/// The evaluator that a condition counts steps of, if it judges none.
fn judges_trajectories<'l>(condition: &alert::AlertCondition, library: &'l RubricLibrary) -> Option<&'l str> {
    let alert::AlertMetric::Evaluator { name, .. } = &condition.subject else { return None };
    let counts_steps = condition.floor.is_some_and(|floor| floor.unit == Some(alert::SampleUnit::Steps));
    let rubric = library.iter().find(|rubric| rubric.name == *name)?;
    (counts_steps && rubric.subject == RubricSubject::Trajectory).then_some(rubric.name.as_str())
}

fn is_web_address(text: &str) -> bool {
    reqwest::Url::parse(text).is_ok_and(|url| matches!(url.scheme(), "http" | "https") && url.has_host())
}

fn parse_retention_policy(section: &ServeSection) -> Result<RetentionPolicy, String> {
    let Some(retention) = &section.retention else { return Ok(RetentionPolicy::default()) };
    let max_age_ns = match &retention.max_age {
        Some(text) => {
            let age = parse_duration_up_to(text, MAX_AGE).ok_or_else(|| {
                format!("serve.retention.max_age = {text:?}: write it as \"30d\" or \"12h\", at most \"36500d\"")
            })?;
            Some(i64::try_from(age.as_nanos()).unwrap_or(i64::MAX))
        }
        None => None,
    };
    let max_bytes = match &retention.max_size {
        Some(text) => Some(
            parse_byte_size(text)
                .ok_or_else(|| format!("serve.retention.max_size = {text:?}: write it as \"20GB\" or \"500MB\""))?,
        ),
        None => None,
    };
    Ok(RetentionPolicy { max_age_ns, max_bytes })
}

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

fn resolve_socket_address(text: &str, name: &str) -> Result<SocketAddr, String> {
    let mut found =
        text.to_socket_addrs().map_err(|error| format!("{name} {text:?}: {error}; write it as 127.0.0.1:4318"))?;
    found.next().ok_or_else(|| format!("{name} {text:?} names no address"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes() {
        assert_eq!(parse_byte_size("20GB"), Some(20_000_000_000));
        assert_eq!(parse_byte_size("1.5 mb"), Some(1_500_000));
        assert_eq!(parse_byte_size("20"), None);
        assert_eq!(parse_byte_size("-1GB"), None);
    }
}
