//! The client side of HTTP for every part of Gradus: one configuration, retries while a server fails for a while,
//! proxies of the environment, and secrets that no message shows.
//!
//! It knows nothing of models, of Phoenix or of traces: its callers decide what is requested.

mod client;
mod percent_code;
mod proxy;
mod retry_after;
mod secret;

pub use client::{
    HeaderListError, HttpFailure, HttpResponse, RetryBudget, http_client_builder, parse_header_list, response_message,
    root_cause,
};
pub use percent_code::{percent_decode, percent_encode};
pub use retry_after::{duration_from_seconds, duration_until, retry_after};
pub use secret::{SecretString, contains_secret, mask_secrets, register_secret, register_url_secrets};
