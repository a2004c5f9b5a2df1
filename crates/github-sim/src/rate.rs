//! Rate limits. Requests are always counted and limits reported, but requests are refused only if limits are enforced:
//! simulated time does not pass between requests, so a used-up window would never end.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use super::error::OperationError;
use super::time::SimulatedTime;

/// Limits per caller. Part of the seed format.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct ApiRateLimits {
    /// Whether requests over the limit are refused. Otherwise a new window begins, as if the client had waited.
    pub enforced: bool,
    /// Requests per hour with a token.
    pub core: u64,
    /// Requests per hour without a token.
    pub anonymous: u64,
    /// Searches per minute.
    pub search: u64,
    /// Code searches per minute.
    pub code_search: u64,
}

impl Default for ApiRateLimits {
    fn default() -> ApiRateLimits {
        ApiRateLimits { enforced: false, core: 5000, anonymous: 60, search: 30, code_search: 10 }
    }
}

/// GitHub counts these separately.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum ApiRateResource {
    Core,
    Search,
    CodeSearch,
}

impl ApiRateResource {
    /// Returns the resource of an operation, by GitHub's operation id.
    pub(super) fn for_operation(operation: &str) -> ApiRateResource {
        match operation {
            "search/code" => ApiRateResource::CodeSearch,
            _ if operation.starts_with("search/") => ApiRateResource::Search,
            _ => ApiRateResource::Core,
        }
    }

    fn name(self) -> &'static str {
        match self {
            ApiRateResource::Core => "core",
            ApiRateResource::Search => "search",
            ApiRateResource::CodeSearch => "code_search",
        }
    }

    /// Returns the length of a window in simulated seconds.
    fn window_s(self) -> i64 {
        if self == ApiRateResource::Core { 3600 } else { 60 }
    }
}

/// A fixed window: it begins with the first request and ends at `reset`.
#[derive(Clone, Copy, Debug)]
struct ApiRateWindow {
    used: u64,
    reset: SimulatedTime,
}

/// Usage per token and resource. All anonymous callers share the empty token.
#[derive(Clone, Debug, Default)]
pub(super) struct ApiRateMeter {
    windows: BTreeMap<(String, ApiRateResource), ApiRateWindow>,
}

/// Maximum number of windows. Tokens are validated before, so only tests come near it.
const MAX_WINDOWS: usize = 10_000;

impl ApiRateMeter {
    /// Returns the limit of a caller. Anonymous callers have a separate limit only for `core`.
    fn limit_for_caller(limits: ApiRateLimits, caller: &str, resource: ApiRateResource) -> u64 {
        match resource {
            ApiRateResource::Core if caller.is_empty() => limits.anonymous,
            ApiRateResource::Core => limits.core,
            ApiRateResource::Search => limits.search,
            ApiRateResource::CodeSearch => limits.code_search,
        }
    }

    /// Returns the window of a caller, renewed if it has ended.
    fn current_window(&mut self, caller: &str, resource: ApiRateResource, now: SimulatedTime) -> &mut ApiRateWindow {
        if self.windows.len() > MAX_WINDOWS {
            self.windows.pop_first();
        }
        let fresh = ApiRateWindow { used: 0, reset: now.plus_seconds(resource.window_s()) };
        let window = self.windows.entry((caller.to_owned(), resource)).or_insert(fresh);
        if window.reset <= now {
            *window = fresh;
        }
        window
    }

    /// Counts one request. 403 if the limit is exceeded and enforced.
    pub(super) fn charge_request(
        &mut self,
        limits: ApiRateLimits,
        caller: &str,
        account: u64,
        resource: ApiRateResource,
        now: SimulatedTime,
    ) -> Result<(), OperationError> {
        let limit = ApiRateMeter::limit_for_caller(limits, caller, resource);
        let window = self.current_window(caller, resource, now);
        if window.used < limit {
            window.used += 1;
            return Ok(());
        }
        if !limits.enforced {
            *window = ApiRateWindow { used: 1, reset: now.plus_seconds(resource.window_s()) };
            return Ok(());
        }
        let whose = if caller.is_empty() { "127.0.0.1".to_owned() } else { format!("user ID {account}") };
        let message = format!(
            "API rate limit exceeded for {whose}. If you reach out to GitHub Support for help, please include the request ID."
        );
        Err(OperationError::new(403, message).with_general_docs())
    }

    /// Uncounts a request: responses with 304 are free on GitHub.
    pub(super) fn refund_request(&mut self, caller: &str, resource: ApiRateResource, now: SimulatedTime) {
        let window = self.current_window(caller, resource, now);
        window.used = window.used.saturating_sub(1);
    }

    /// Returns the `x-ratelimit-*` headers of a response.
    pub(super) fn headers(
        &mut self,
        limits: ApiRateLimits,
        caller: &str,
        resource: ApiRateResource,
        now: SimulatedTime,
    ) -> [(&'static str, String); 5] {
        let limit = ApiRateMeter::limit_for_caller(limits, caller, resource);
        let window = *self.current_window(caller, resource, now);
        [
            ("x-ratelimit-limit", limit.to_string()),
            ("x-ratelimit-remaining", limit.saturating_sub(window.used).to_string()),
            ("x-ratelimit-used", window.used.to_string()),
            ("x-ratelimit-reset", window.reset.0.to_string()),
            ("x-ratelimit-resource", resource.name().to_owned()),
        ]
    }

    /// Returns the body of `GET /rate_limit`, which does not count against any limit. Resources that are not
    /// simulated are shown as unused.
    pub(super) fn overview_json(&mut self, limits: ApiRateLimits, caller: &str, now: SimulatedTime) -> Value {
        let mut told = |resource: ApiRateResource| {
            let limit = ApiRateMeter::limit_for_caller(limits, caller, resource);
            let window = *self.current_window(caller, resource, now);
            json!({
                "limit": limit,
                "used": window.used,
                "remaining": limit.saturating_sub(window.used),
                "reset": window.reset.0,
            })
        };
        let core = told(ApiRateResource::Core);
        let unused = |limit: u64, window_s: i64| json!({"limit": limit, "used": 0, "remaining": limit, "reset": now.plus_seconds(window_s).0});
        json!({
            "resources": {
                "core": core,
                "search": told(ApiRateResource::Search),
                "code_search": told(ApiRateResource::CodeSearch),
                "graphql": unused(5000, 3600),
                "integration_manifest": unused(5000, 3600),
            },
            "rate": core,
        })
    }
}
