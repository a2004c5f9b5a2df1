//! The client of a bucket, with credentials and endpoint of the usual variables. Requests go through the HTTP client
//! that all of Gradus uses, with its proxies and its TLS.

use std::fmt;
use std::net::IpAddr;
use std::time::Duration;

use object_store::aws::{AmazonS3, AmazonS3Builder};
use object_store::client::{HttpClient, HttpConnector};
use object_store::{BackoffConfig, ClientOptions, RetryConfig};
use reqwest::Url;

use super::address::S3Address;
use super::failure::S3Failure;
use crate::config::S3Variables;

const DEFAULT_REGION: &str = "us-east-1";
const CONNECT_TIMEOUT: Duration = Duration::from_secs(10);
/// Time without data before a read fails. Long enough for a chunk on a slow line.
const READ_TIMEOUT: Duration = Duration::from_secs(120);

/// The address of the S3 server, without user and password.
#[derive(Clone, Debug)]
pub(super) struct S3Endpoint(String);

impl S3Endpoint {
    pub(super) fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for S3Endpoint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

#[derive(Debug)]
struct SharedConnector(reqwest::Client);

impl HttpConnector for SharedConnector {
    fn connect(&self, _: &ClientOptions) -> object_store::Result<HttpClient> {
        Ok(HttpClient::new(self.0.clone()))
    }
}

pub(super) fn build_client(address: &S3Address, variables: &S3Variables) -> Result<(AmazonS3, S3Endpoint), S3Failure> {
    let (Some(key), Some(secret)) = (&variables.access_key, &variables.secret_key) else {
        return Err(S3Failure::NoCredentials { address: address.to_string() });
    };
    let setup = |reason: String| S3Failure::Client { address: address.to_string(), reason };
    let client = gradus_http::http_client_builder().connect_timeout(CONNECT_TIMEOUT).read_timeout(READ_TIMEOUT).build();
    let client = client.map_err(|error| setup(gradus_http::root_cause(&error)))?;
    let region = variables.region.as_deref().unwrap_or(DEFAULT_REGION);
    let mut builder = AmazonS3Builder::new()
        .with_bucket_name(&address.bucket)
        .with_region(region)
        .with_access_key_id(key.expose())
        .with_secret_access_key(secret.expose())
        .with_http_connector(SharedConnector(client))
        .with_retry(retry_config());
    if let Some(token) = &variables.session_token {
        builder = builder.with_token(token.expose());
    }
    let mut endpoint = format!("https://s3.{region}.amazonaws.com");
    if let Some(url) = &variables.endpoint {
        let url = parse_endpoint(url, variables.allows_http)?;
        builder = builder.with_endpoint(url.as_str().trim_end_matches('/')).with_allow_http(url.scheme() == "http");
        endpoint = url.origin().ascii_serialization();
    }
    let store = builder.build().map_err(|error| setup(gradus_http::root_cause(&error)))?;
    Ok((store, S3Endpoint(endpoint)))
}

/// Returns the retries: a server that cannot be reached is reported after some ten seconds.
fn retry_config() -> RetryConfig {
    let backoff =
        BackoffConfig { init_backoff: Duration::from_millis(200), max_backoff: Duration::from_secs(5), base: 2.0 };
    RetryConfig { backoff, max_retries: 6, retry_timeout: Duration::from_secs(60) }
}

/// Parses the endpoint. Without TLS anyone on the network could read the traces, so plain HTTP needs a server on this
/// machine or consent.
fn parse_endpoint(text: &str, allows_http: bool) -> Result<Url, S3Failure> {
    gradus_http::register_url_secrets(text);
    let bad = || S3Failure::BadEndpoint { endpoint: text.to_owned() };
    let url = Url::parse(text).map_err(|_| bad())?;
    let host = url.host_str().ok_or_else(bad)?.trim_matches(['[', ']']);
    let is_local = host == "localhost" || host.parse::<IpAddr>().is_ok_and(|ip| ip.is_loopback());
    match url.scheme() {
        "https" => Ok(url),
        "http" if is_local || allows_http => Ok(url),
        "http" => Err(S3Failure::PlainHttp { endpoint: url.origin().ascii_serialization() }),
        _ => Err(bad()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn plain_http_stays_on_this_machine() {
        for url in ["http://127.0.0.1:9000", "http://localhost:9000/", "http://[::1]:9000", "https://s3.example.org"] {
            assert!(parse_endpoint(url, false).is_ok(), "{url}");
        }
        let refused = parse_endpoint("http://s3.example.org", false);
        assert!(matches!(refused, Err(S3Failure::PlainHttp { .. })), "{refused:?}");
        assert!(parse_endpoint("http://s3.example.org", true).is_ok());
        for url in ["s3.example.org", "ftp://127.0.0.1", ""] {
            assert!(matches!(parse_endpoint(url, true), Err(S3Failure::BadEndpoint { .. })), "{url}");
        }
    }

    #[test]
    fn credentials_are_required() {
        let address = S3Address::parse("s3://bucket/a").unwrap();
        let failure = build_client(&address, &S3Variables::default()).unwrap_err();
        assert!(matches!(failure, S3Failure::NoCredentials { .. }), "{failure:?}");
    }
}
