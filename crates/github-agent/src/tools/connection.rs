//! The HTTP client for GitHub. It has no retries, redirects or proxies of its own: the agent must see every response.

use std::time::Duration;

use hyper::Uri;
use hyper::header::{AUTHORIZATION, HeaderMap, HeaderValue};

use crate::tools::error::ToolsError;

/// Timeout for establishing a connection, within the timeout of the request.
const GITHUB_CONNECT_TIMEOUT: Duration = Duration::from_secs(10);

/// Builds the client. The token becomes a default header that is marked sensitive, so that it is not printed.
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
    let client = gradus_http::http_client_builder().default_headers(headers).no_proxy();
    let mut client = client.connect_timeout(timeout.min(GITHUB_CONNECT_TIMEOUT));
    if base.scheme_str() == Some("http") {
        // Loading the system's certificates takes longer than a whole task on the simulator.
        client = client.tls_certs_only([]);
    }
    client.build().map_err(|error| ToolsError::Client(gradus_http::root_cause(&error)))
}
