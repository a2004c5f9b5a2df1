//! The HTTP client, set up so that nothing happens behind the agent's back: no second try, no redirect, no proxy.

use std::time::Duration;

use hyper::Uri;
use hyper::header::{AUTHORIZATION, HeaderMap, HeaderValue};

use crate::tools::error::ToolsError;

const MAX_CONNECT: Duration = Duration::from_secs(10);

pub(super) fn build_github_client(
    base: &Uri,
    token: Option<&str>,
    timeout: Duration,
) -> Result<reqwest::Client, ToolsError> {
    let mut headers = HeaderMap::new();
    if let Some(token) = token {
        let value = HeaderValue::from_str(&format!("Bearer {token}"));
        let mut value = value.map_err(|_| ToolsError::BadToken)?;
        value.set_sensitive(true);
        headers.insert(AUTHORIZATION, value);
    }
    let client = gradus_http::http_client().default_headers(headers).no_proxy();
    let mut client = client.connect_timeout(timeout.min(MAX_CONNECT));
    if base.scheme_str() == Some("http") {
        // Reading the machine's certificates takes longer than a whole task on the simulator.
        client = client.tls_certs_only([]);
    }
    client.build().map_err(|error| ToolsError::Client(gradus_http::root_cause(&error)))
}
