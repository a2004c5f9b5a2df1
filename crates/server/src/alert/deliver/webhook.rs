//! Posts JSON to webhooks. Redirects are not followed: a notice goes to the configured address or nowhere, since a
//! redirect could send recorded text to another host.

use std::sync::Arc;
use std::time::Duration;

use reqwest::header::CONTENT_TYPE;
use serde_json::Value as Json;

use super::target_guard::TargetGuard;
use crate::alert::deliver::failure::DeliveryFailure;
use crate::alert::target::WebhookUrl;

/// The client that all webhooks share. `timeout` bounds one request from connecting to the end of the response.
pub(super) fn build_webhook_client(timeout: Duration) -> reqwest::Result<reqwest::Client> {
    gradus_http::http_client_builder().timeout(timeout).build()
}

/// A client for addresses that were entered on the page. It uses no proxy, which would resolve names without the guard.
pub(super) fn build_guarded_client(timeout: Duration, guard: TargetGuard) -> reqwest::Result<reqwest::Client> {
    gradus_http::http_client_builder().timeout(timeout).no_proxy().dns_resolver(Arc::new(guard)).build()
}

/// Any 2xx is a success. Redirects are permanent failures. Everything else is retried, 404 as well: a receiver that is
/// being deployed answers so, and it would be missed otherwise.
pub(super) async fn post_webhook(http: &reqwest::Client, url: &WebhookUrl, body: &Json) -> Result<(), DeliveryFailure> {
    let request = http.post(url.expose().clone()).header(CONTENT_TYPE, "application/json").body(body.to_string());
    let response = request.send().await.map_err(|error| {
        // The address is a secret, and `reqwest` errors contain it.
        let error = error.without_url();
        DeliveryFailure::transient(if error.is_timeout() {
            "no answer in time".to_owned()
        } else {
            gradus_http::root_cause(&error)
        })
    })?;
    let status = response.status();
    let reason = format!("HTTP {}", status.as_u16());
    match status.as_u16() {
        200..=299 => Ok(()),
        300..=399 => {
            Err(DeliveryFailure::Permanent { reason: format!("{reason}: it sends us elsewhere; check the address") })
        }
        _ => Err(DeliveryFailure::Transient { reason, retry_after: gradus_http::retry_after(response.headers()) }),
    }
}
