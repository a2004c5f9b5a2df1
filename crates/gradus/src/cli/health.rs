//! `gradus health`: one request to a running server, for health checks of containers, which have no shell and no curl.

use std::net::SocketAddr;
use std::time::Duration;

use clap::Args;
use gradus_core::visible::printable_line;
use gradus_http::{mask_secrets, register_url_secrets};

use super::{CommandExit, print_diagnostic};
use crate::config::{ConfigError, ConfigFile, EnvironmentVariables};

#[derive(Args)]
#[command(after_help = EXAMPLES)]
pub(super) struct HealthArguments {
    /// Address of the server [default: GRADUS_URL, else `[serve] http` of the settings, else http://127.0.0.1:4318].
    #[arg(value_name = "URL")]
    url: Option<String>,
    /// Only ask whether the process runs (/healthz), not whether it accepts spans (/readyz).
    #[arg(long)]
    live: bool,
    /// How long the server may take, in seconds.
    #[arg(long, value_name = "SECONDS", default_value_t = 5)]
    timeout: u64,
}

const EXAMPLES: &str = "\
Examples:
  gradus health                         the server of this machine
  gradus health http://gradus:4318      another one
  HEALTHCHECK CMD [\"gradus\", \"health\"]   in a container file

Exit codes: 0 the server is there and accepts spans, 1 it does not.";

/// Maximum size of a response. `/healthz` and `/readyz` send some hundred bytes, but another server at the address
/// may send anything.
const MAX_RESPONSE_BYTES: usize = 64 << 10;

/// Why a server is not healthy; printed as one line, exit code 1.
#[derive(Debug, thiserror::Error)]
enum HealthError {
    #[error("not healthy: {0}")]
    Config(#[from] ConfigError),
    #[error("not healthy: {url}: no address of a server; hint: write it as http://127.0.0.1:4318")]
    Address { url: String },
    #[error("not healthy: no HTTP client can be made: {0}")]
    Client(#[source] std::io::Error),
    #[error("not healthy: {url}: {reason}; hint: is `gradus serve` running there?")]
    Unreachable { url: String, reason: String },
    #[error("not healthy: {url}: HTTP {status}: {reason}")]
    Refused { url: String, status: u16, reason: String },
    /// Something else answers at this address.
    #[error("not healthy: {url}: another server than gradus answers")]
    OtherServer { url: String },
}

/// Entry point of the command. Every failure is exit code 1: container engines reserve 2.
pub(super) fn run_health_command(arguments: &HealthArguments) -> CommandExit {
    match check_health(arguments) {
        Ok(line) => {
            anstream::println!("{}", printable_line(&mask_secrets(&line)));
            CommandExit::Pass
        }
        Err(error) => {
            print_diagnostic(&printable_line(&mask_secrets(&error.to_string())));
            CommandExit::Unexpected
        }
    }
}

fn check_health(arguments: &HealthArguments) -> Result<String, HealthError> {
    let url = match &arguments.url {
        Some(url) => url.clone(),
        None => default_url()?,
    };
    register_url_secrets(&url);
    let base = parse_base_url(&url).ok_or_else(|| HealthError::Address { url: url.clone() })?;
    let timeout = Duration::from_secs(arguments.timeout.max(1));
    let ask = async {
        let http = gradus_http::http_client_builder().timeout(timeout).build();
        let http = http.map_err(|error| HealthError::Client(std::io::Error::other(error)))?;
        let health = ask_server(&http, &base, "healthz").await?;
        let Some(version) = health["version"].as_str().filter(|_| health["status"] == "ok") else {
            return Err(HealthError::OtherServer { url: base.clone() });
        };
        if arguments.live {
            return Ok(format!("ok: {base}: gradus {version} runs"));
        }
        ask_server(&http, &base, "readyz").await?;
        Ok(format!("ok: {base}: gradus {version} accepts spans"))
    };
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().map_err(HealthError::Client)?;
    runtime.block_on(ask)
}

/// Returns `GRADUS_URL`, else the address where a server with these settings listens.
fn default_url() -> Result<String, HealthError> {
    let environment = EnvironmentVariables::read();
    if let Some(url) = environment.gradus_url {
        return Ok(url);
    }
    let file = ConfigFile::read(environment.config.as_deref())?;
    let address = file.serve.http.as_deref().unwrap_or(gradus_server::HTTP_ADDRESS);
    Ok(match address.parse::<SocketAddr>() {
        // A server that listens everywhere is reached on loopback.
        Ok(socket) if socket.ip().is_unspecified() && socket.is_ipv6() => format!("http://[::1]:{}", socket.port()),
        Ok(socket) if socket.ip().is_unspecified() => format!("http://127.0.0.1:{}", socket.port()),
        _ => format!("http://{address}"),
    })
}

/// Adds the scheme where it is missing, and removes the slash at the end.
fn parse_base_url(text: &str) -> Option<String> {
    let text = text.trim();
    let text = if text.contains("://") { text.to_owned() } else { format!("http://{text}") };
    let url = reqwest::Url::parse(&text).ok()?;
    let is_base = matches!(url.scheme(), "http" | "https") && url.has_host() && url.query().is_none();
    is_base.then(|| text.trim_end_matches('/').to_owned())
}

async fn ask_server(http: &reqwest::Client, base: &str, path: &str) -> Result<serde_json::Value, HealthError> {
    let unreachable = |error: &reqwest::Error| HealthError::Unreachable {
        url: base.to_owned(),
        reason: if error.is_timeout() { "no answer in time".to_owned() } else { gradus_http::root_cause(error) },
    };
    let request = http.get(format!("{base}/{path}")).send().await;
    let mut response = request.map_err(|error| unreachable(&error))?;
    let status = response.status();
    let mut body = Vec::new();
    while let Some(chunk) = response.chunk().await.map_err(|error| unreachable(&error))? {
        body.extend_from_slice(&chunk);
        if body.len() > MAX_RESPONSE_BYTES {
            return Err(HealthError::OtherServer { url: base.to_owned() });
        }
    }
    let json: serde_json::Value = serde_json::from_slice(&body).unwrap_or_default();
    if status.is_success() {
        return Ok(json);
    }
    let reason = json["reason"].as_str().unwrap_or("not a healthy gradus server").to_owned();
    Err(HealthError::Refused { url: base.to_owned(), status: status.as_u16(), reason })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_are_completed() {
        for (given, base) in [
            ("127.0.0.1:4318", Some("http://127.0.0.1:4318")),
            (" http://gradus:4318/ ", Some("http://gradus:4318")),
            ("https://gradus.example/base/", Some("https://gradus.example/base")),
            ("[::1]:4318", Some("http://[::1]:4318")),
            ("ftp://gradus", None),
            ("http://", None),
            ("http://a/?b=c", None),
            ("", None),
        ] {
            assert_eq!(parse_base_url(given).as_deref(), base, "{given}");
        }
    }
}
