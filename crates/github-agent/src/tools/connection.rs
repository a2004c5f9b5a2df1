//! octocrab, set up so that nothing happens behind the agent's back.

use std::sync::Arc;
use std::time::Duration;

use hyper::Uri;
use hyper::header::{HeaderValue, USER_AGENT};
use hyper_util::client::legacy::Client;
use hyper_util::client::legacy::connect::HttpConnector;
use hyper_util::rt::TokioExecutor;
use octocrab::service::middleware::auth_header::AuthHeaderLayer;
use octocrab::service::middleware::base_uri::BaseUriLayer;
use octocrab::service::middleware::extra_headers::ExtraHeadersLayer;
use octocrab::service::middleware::retry::RetryConfig;
use octocrab::{AuthState, OctoBody, Octocrab, OctocrabBuilder};

use super::github::ToolsError;

const AGENT: &str = concat!("gradus/", env!("CARGO_PKG_VERSION"));
const MAX_CONNECT: Duration = Duration::from_secs(10);

pub(super) fn connect(base: Uri, token: Option<&str>, timeout: Duration) -> Result<Octocrab, ToolsError> {
    if base.scheme_str() == Some("http") { plain(base, token, timeout) } else { secure(base, token, timeout) }
}

fn secure(base: Uri, token: Option<&str>, timeout: Duration) -> Result<Octocrab, ToolsError> {
    let failed = |error: octocrab::Error| ToolsError::Client(super::api::innermost(&error));
    let mut builder = Octocrab::builder()
        .base_uri(base)
        .map_err(failed)?
        .add_header(USER_AGENT, AGENT.to_owned())
        .add_retry_config(RetryConfig::None)
        .set_connect_timeout(Some(timeout.min(MAX_CONNECT)));
    if let Some(token) = token {
        builder = builder.personal_token(token.to_owned());
    }
    builder.build().map_err(failed)
}

/// Without the machine's certificates, which take longer to read than a whole task on the simulator.
fn plain(base: Uri, token: Option<&str>, timeout: Duration) -> Result<Octocrab, ToolsError> {
    let authorization = match token.map(|token| HeaderValue::from_str(&format!("Bearer {token}"))) {
        Some(Ok(mut value)) => {
            value.set_sensitive(true);
            Some(value)
        }
        Some(Err(_)) => return Err(ToolsError::BadToken),
        None => None,
    };
    let mut connector = HttpConnector::new();
    connector.set_nodelay(true);
    connector.set_connect_timeout(Some(timeout.min(MAX_CONNECT)));
    let client: Client<_, OctoBody> = Client::builder(TokioExecutor::new()).build(connector);
    let headers = vec![(USER_AGENT, HeaderValue::from_static(AGENT))];
    let made = OctocrabBuilder::new_empty()
        .with_service(client)
        .with_layer(&ExtraHeadersLayer::new(Arc::new(headers)))
        .with_layer(&BaseUriLayer::new(base.clone()))
        .with_layer(&AuthHeaderLayer::new(authorization, base.clone(), base))
        .with_auth(AuthState::None)
        .build();
    match made {
        Ok(octocrab) => Ok(octocrab),
        Err(never) => match never {},
    }
}
