//! The tools for GitHub's REST API: github.com, an Enterprise server or the simulator, depending on the address.

use crate::tools::error::ToolsError;
use std::fmt;
use std::sync::LazyLock;
use std::time::Duration;

use hyper::Uri;
use serde_json::{Map, Value, json};

use super::api::{RestClient, RestRequest, ToolOperationFailure, content_type};
use super::connection::build_github_client;
use super::operation::RegisteredTool;
use super::{
    AgentTool, BoxFuture, CallObservation, ToolEffect, ToolFamily, ToolRestrictions, ToolSet, argument_check, branches,
    commits, files, issues, labels, pulls, releases, repos, search, view,
};

/// Timeout for one response.
pub const GITHUB_RESPONSE_TIMEOUT: Duration = Duration::from_secs(30);

/// Every call is one request or a fixed sequence of requests, without retries.
pub struct GitHubTools {
    api: RestClient,
    /// For messages; contains no secret.
    base_url: String,
    has_token: bool,
    limits: ToolRestrictions,
    /// Tools that the restrictions allow, in the order of `tools`.
    entries: Vec<&'static RegisteredTool>,
    tools: Vec<AgentTool>,
}

impl fmt::Debug for GitHubTools {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("GitHubTools")
            .field("base_url", &self.base_url)
            .field("limits", &self.limits)
            .field("tools", &self.tools.len())
            .finish_non_exhaustive()
    }
}

impl GitHubTools {
    /// Creates the tools. Must be called and used within a tokio runtime. Sends nothing; see
    /// [`GitHubTools::check_connection`].
    pub fn new(base_url: &str, token: Option<&str>, limits: ToolRestrictions) -> Result<GitHubTools, ToolsError> {
        GitHubTools::with_timeout(base_url, token, limits, GITHUB_RESPONSE_TIMEOUT)
    }

    /// As [`GitHubTools::new`], with a timeout for each response.
    pub fn with_timeout(
        base_url: &str,
        token: Option<&str>,
        limits: ToolRestrictions,
        timeout: Duration,
    ) -> Result<GitHubTools, ToolsError> {
        let base = parse_base_url(base_url)?;
        let token = token.map(str::trim).filter(|token| !token.is_empty());
        if token.is_some_and(|token| !token.bytes().all(|byte| byte.is_ascii_graphic())) {
            return Err(ToolsError::BadToken);
        }
        let is_known = |name: &str| REGISTERED_TOOLS.iter().any(|one| &*one.tool.definition.name == name);
        if let Some(unknown) = limits.allowed.iter().find(|name| !is_known(name)) {
            return Err(ToolsError::UnknownTool(unknown.clone()));
        }
        let is_offered =
            |one: &RegisteredTool| limits.is_tool_offered(one.family, &one.tool.definition.name, one.tool.effect);
        let entries: Vec<_> = REGISTERED_TOOLS.iter().filter(|one| is_offered(one)).collect();
        if entries.is_empty() {
            return Err(ToolsError::NoTools);
        }
        let tools = entries.iter().map(|one| one.tool.clone()).collect();
        let api = RestClient::new(build_github_client(&base, token, timeout)?, base, timeout);
        let base_url = base_url.trim().trim_end_matches('/').to_owned();
        Ok(GitHubTools { api, base_url, has_token: token.is_some(), limits, entries, tools })
    }

    pub fn base_url(&self) -> &str {
        &self.base_url
    }

    /// Requests the rate limits, which costs nothing, to find out whether the address is GitHub and accepts the token.
    pub async fn check_connection(&self) -> Result<(), ToolsError> {
        let url = self.base_url.clone();
        let answer = match self.api.send_once(RestRequest::get("/rate_limit".to_owned())).await {
            Ok(answer) => answer,
            Err(ToolOperationFailure::NotJson { content_type }) => {
                return Err(not_github_error(url, &format!("with {content_type}")));
            }
            Err(ToolOperationFailure::Lost { reason, .. }) => {
                return Err(ToolsError::Unreachable { url, reason });
            }
            Err(_) => return Err(not_github_error(url, "strangely")),
        };
        let message = answer.body["message"].as_str().unwrap_or_default().to_owned();
        let is_json = content_type(&answer.headers).contains("json");
        match answer.status {
            200 if answer.body["resources"].is_object() => Ok(()),
            // An Enterprise server with its limits turned off.
            404 if message.contains("Rate limiting is not enabled") => Ok(()),
            // Rate-limited, but certainly by GitHub.
            403 | 429 if answer.headers.contains_key("x-github-request-id") => Ok(()),
            401 if is_json && self.has_token => Err(ToolsError::Unauthorized { url, message }),
            200 => Err(not_github_error(url, "with other JSON")),
            status if is_json => Err(not_github_error(url, &format!("{status} {message}"))),
            status => Err(not_github_error(url, &format!("{status} with {}", content_type(&answer.headers)))),
        }
    }

    fn find_tool(&self, name: &str) -> Option<&'static RegisteredTool> {
        self.entries.iter().copied().find(|one| &*one.tool.definition.name == name)
    }

    /// Validates arguments against the schema, checks restrictions, and runs the operation. Nothing is sent for invalid
    /// arguments.
    async fn run_checked_operation(&self, name: &str, arguments: &Value) -> Result<Value, ToolOperationFailure> {
        let Some(entry) = self.find_tool(name) else {
            let message = self.withheld_reason(name).unwrap_or_else(|| format!("there is no tool called {name:?}"));
            return Err(ToolOperationFailure::Unfit(message));
        };
        let schema = &entry.tool.definition.parameters;
        let arguments = argument_check::remove_needless_nulls(schema, arguments);
        let problems = argument_check::find_argument_problems(schema, &arguments);
        if !problems.is_empty() {
            return Err(ToolOperationFailure::Arguments(problems));
        }
        if let Some(refusal) = self.limits.refusal_reason(name, (entry.classify_effect)(arguments.clone())) {
            return Err(ToolOperationFailure::Unfit(refusal));
        }
        (entry.run)(&self.api, arguments).await
    }
}

impl ToolSet for GitHubTools {
    fn tools(&self) -> &[AgentTool] {
        &self.tools
    }

    fn classify_effect(&self, name: &str, arguments: &Value) -> ToolEffect {
        match self.find_tool(name) {
            Some(entry) => {
                let arguments = argument_check::remove_needless_nulls(&entry.tool.definition.parameters, arguments);
                (entry.classify_effect)(arguments)
            }
            None => ToolEffect::Read,
        }
    }

    fn withheld_reason(&self, name: &str) -> Option<String> {
        if self.find_tool(name).is_some() {
            return None;
        }
        let known = REGISTERED_TOOLS.iter().find(|one| &*one.tool.definition.name == name)?;
        let refusal = self.limits.refusal_reason(name, known.tool.effect);
        Some(refusal.unwrap_or_else(|| format!("{name} is not among the tools that are allowed here")))
    }

    fn call<'c>(&'c self, name: &'c str, arguments: &'c Value) -> BoxFuture<'c, CallObservation> {
        Box::pin(async move {
            match self.run_checked_operation(name, arguments).await {
                Ok(value) => {
                    CallObservation { text: view::format_observation(value), is_error: false, retry_after: None }
                }
                Err(failure) => observation_from_failure(failure),
            }
        })
    }
}

/// Returns all tools without an address, for listings and for validating scripts.
pub fn all_tools() -> impl ExactSizeIterator<Item = (ToolFamily, &'static AgentTool)> {
    REGISTERED_TOOLS.iter().map(|one| (one.family, &one.tool))
}

/// All tools. Built once: generating schemas takes a while, and they never change.
static REGISTERED_TOOLS: LazyLock<Vec<RegisteredTool>> = LazyLock::new(|| {
    [
        repos::list_repo_tools(),
        files::list_file_tools(),
        branches::list_branch_tools(),
        commits::list_commit_tools(),
        issues::list_issue_tools(),
        labels::list_label_tools(),
        pulls::list_pull_tools(),
        search::list_search_tools(),
        releases::list_release_tools(),
    ]
    .concat()
});

/// Added to errors of writes whose effect is unknown.
pub(crate) const UNKNOWN_EFFECT_NOTE: &str = "It is not known whether this was carried out: look before you try again.";

/// Builds the observation for a failed call. It has a `retry_after` only if the call certainly had no effect.
fn observation_from_failure(failure: ToolOperationFailure) -> CallObservation {
    let mut retry_after = None;
    let seen = match failure {
        ToolOperationFailure::Arguments(problems) => {
            json!({"error": "the arguments do not fit", "problems": problems})
        }
        ToolOperationFailure::Unfit(message) => json!({"error": message}),
        ToolOperationFailure::Lost { reason, is_write } => {
            let mut seen = json!({"error": format!("GitHub did not answer: {reason}")});
            if is_write {
                seen["note"] = UNKNOWN_EFFECT_NOTE.into();
            }
            seen
        }
        ToolOperationFailure::NotJson { content_type } => {
            json!({"error": format!("this is not GitHub's answer: not JSON but {content_type}")})
        }
        ToolOperationFailure::Refused { status, mut body, retry_after: wait, is_write } => {
            let mut seen = Map::new();
            let message = body["message"].as_str().unwrap_or("no reason given").to_owned();
            seen.insert("error".to_owned(), message.into());
            seen.insert("status".to_owned(), status.into());
            if let Some(errors) = body.as_object_mut().and_then(|body| body.shift_remove("errors")) {
                seen.insert("errors".to_owned(), errors);
            }
            if let Some(wait) = wait {
                seen.insert("retry_after_s".to_owned(), wait.as_secs().into());
            }
            if is_write && status >= 500 {
                seen.insert("note".to_owned(), UNKNOWN_EFFECT_NOTE.into());
            }
            // A caller that waits may repeat the call. A write that may have had an effect must not be repeated.
            retry_after = wait.filter(|_| !(is_write && status >= 500));
            Value::Object(seen)
        }
    };
    CallObservation { text: view::format_observation(seen), is_error: true, retry_after }
}

/// Builds an error with a hint at the addresses of github.com and of Enterprise servers.
fn not_github_error(url: String, found: &str) -> ToolsError {
    let hint = "github.com's is https://api.github.com, an Enterprise server's https://HOST/api/v3";
    ToolsError::NotGitHub { url, found: view::truncate_text(found, 200), hint }
}

/// Parses the address. Refuses one with a user name, since what is before the `@` may be a password, without quoting
/// it.
fn parse_base_url(base_url: &str) -> Result<Uri, ToolsError> {
    let base_url = base_url.trim().trim_end_matches('/');
    // Text before an `@` may be a password and is not quoted.
    let shown = base_url.rsplit_once('@').map_or(base_url, |(_, host)| host);
    let bad = |reason: &str| ToolsError::BadUrl { url: shown.to_owned(), reason: reason.to_owned() };
    if shown != base_url {
        return Err(bad("there is a user name in it, but a token is given by itself"));
    }
    let base: Uri = base_url.parse().map_err(|_| bad("it cannot be read"))?;
    if !matches!(base.scheme_str(), Some("http" | "https")) || base.host().is_none_or(str::is_empty) {
        return Err(bad("it does not begin with http:// or https:// and a host"));
    }
    if base.query().is_some() {
        return Err(bad("there is a question mark in it"));
    }
    Ok(base)
}
