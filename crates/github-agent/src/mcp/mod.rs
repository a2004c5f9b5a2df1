//! Tools of other programs over the Model Context Protocol: servers that are started as a command, or listen at an
//! address. What a server sends is as untrusted as a web page: it is bounded, and never printed unescaped.

mod content;
mod process;
mod server;

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use gradus_llm::ChatToolDefinition;
use rmcp::model::{
    CallToolRequestParams, ClientCapabilities, ClientConfig, Implementation, PaginatedRequestParams, ToolAnnotations,
};
use rmcp::service::RunningService;
use rmcp::transport::StreamableHttpClientTransport;
use rmcp::transport::streamable_http_client::StreamableHttpClientTransportConfig;
use rmcp::{RoleClient, ServiceError, ServiceExt as _};
use serde_json::{Value, json};

use crate::tools::{
    AgentTool, BoxFuture, CallObservation, ToolEffect, ToolRestrictions, ToolSet, convert_whole_floats,
    find_argument_problems, remove_needless_nulls,
};

use process::StderrTail;
pub use server::{McpServerSpec, ServerSpecError};

/// Timeout for starting a server and for each call.
pub const MCP_TIMEOUT: Duration = Duration::from_secs(60);
/// Maximum number of tools of one server; a model cannot choose from more.
const MAX_SERVER_TOOLS: usize = 500;
/// Maximum number of pages of a tool list that are requested.
const MAX_TOOL_LIST_PAGES: usize = 50;
/// Maximum size in bytes of a tool description that the model sees.
const MAX_TOOL_DESCRIPTION_BYTES: usize = 4_000;
/// Maximum size in bytes of the message for one schema violation, which quotes the server's schema.
const MAX_SCHEMA_VIOLATION_BYTES: usize = 400;
/// Maximum size of a schema in bytes; longer ones are replaced by a plain object.
const MAX_TOOL_SCHEMA_BYTES: usize = 20_000;
/// Maximum size in bytes of all definitions together, so that the conversation fits into the context.
const MAX_TOOL_DEFINITIONS_BYTES: usize = 200_000;

/// The tools of one server. Dropping it ends the connection, and the process of a server that was started.
pub struct McpTools {
    name: String,
    service: RunningService<RoleClient, ClientConfig>,
    /// End of the server's standard error, for messages when the server exits.
    stderr_tail: StderrTail,
    limits: ToolRestrictions,
    timeout: Duration,
    /// Original names of the tools, parallel to `tools`.
    offered: Vec<String>,
    tools: Vec<AgentTool>,
    /// Tools that the restrictions or the size limits exclude.
    withheld_tools: Vec<(String, ToolEffect)>,
}

/// Why a server cannot be used. Command lines and queries are not shown, since they may contain secrets.
#[derive(Debug, thiserror::Error)]
pub enum McpError {
    #[error("the MCP server {server} cannot be started: {reason}")]
    Start { server: String, reason: String },
    #[error("{server} does not answer as an MCP server: {reason}")]
    Handshake { server: String, reason: String },
    #[error("the MCP server {server} did not answer within {} s", timeout.as_secs_f64())]
    Silent { server: String, timeout: Duration },
    #[error("the MCP server {server} offers no tools{why}")]
    NoTools { server: String, why: &'static str },
}

impl fmt::Debug for McpTools {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("McpTools").field("name", &self.name).field("tools", &self.tools.len()).finish_non_exhaustive()
    }
}

impl McpTools {
    /// Starts or contacts the server and lists its tools, all within `timeout`. Families in the restrictions are
    /// GitHub's and are ignored here.
    pub async fn connect(
        server: &McpServerSpec,
        limits: ToolRestrictions,
        timeout: Duration,
    ) -> Result<McpTools, McpError> {
        let shown = server.to_string();
        let silent = |_| McpError::Silent { server: shown.clone(), timeout };
        tokio::time::timeout(timeout, connect_to_server(server, limits, timeout)).await.map_err(silent)?
    }

    /// Returns the name that the server gives itself, reduced to plain characters.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Validates arguments against the server's schema, then calls the tool.
    async fn call_checked(&self, name: &str, arguments: &Value) -> CallObservation {
        let Some(at) = self.tools.iter().position(|tool| &*tool.definition.name == name) else {
            let message = ToolSet::withheld_reason(self, name);
            return build_error_observation(
                &message.unwrap_or_else(|| format!("there is no tool called {name:?}")),
                false,
            );
        };
        let schema = &self.tools[at].definition.parameters;
        // The arguments that are sent are the ones that were checked.
        let arguments = convert_whole_floats(schema, remove_needless_nulls(schema, arguments));
        let problems = find_argument_problems(schema, &arguments);
        let Value::Object(fields) = arguments else {
            return build_error_observation("the arguments: expected a JSON object", false);
        };
        if !problems.is_empty() {
            return build_problems_observation(&problems);
        }
        let params = CallToolRequestParams::new(self.offered[at].clone()).with_arguments(fields);
        let is_write = self.tools[at].effect != ToolEffect::Read;
        match tokio::time::timeout(self.timeout, self.service.call_tool(params)).await {
            Ok(Ok(result)) => content::observation_from_result(result),
            Ok(Err(ServiceError::McpError(error))) => {
                build_error_observation(&content::clean_short_line(&error.message), false)
            }
            // The process ended; its last output often says why.
            Ok(Err(ServiceError::TransportClosed)) => {
                let said = self.stderr_tail.last_line();
                let said = if said.is_empty() { said } else { format!(" (it said: {said})") };
                build_error_observation(&format!("the MCP server {} has ended{said}", self.name), is_write)
            }
            Ok(Err(error)) => {
                let reason = content::clean_short_line(&error.to_string());
                build_error_observation(&format!("the MCP server {} did not answer: {reason}", self.name), is_write)
            }
            Err(_) => {
                let seconds = self.timeout.as_secs_f64();
                build_error_observation(
                    &format!("the MCP server {} did not answer within {seconds} s", self.name),
                    is_write,
                )
            }
        }
    }
}

impl ToolSet for McpTools {
    fn tools(&self) -> &[AgentTool] {
        &self.tools
    }

    fn withheld_reason(&self, name: &str) -> Option<String> {
        let (_, effect) = self.withheld_tools.iter().find(|(one, _)| one == name)?;
        let refusal = self.limits.refusal_reason(name, *effect);
        Some(refusal.unwrap_or_else(|| format!("{name} is not among the tools that are allowed here")))
    }

    fn call<'c>(&'c self, name: &'c str, arguments: &'c Value) -> BoxFuture<'c, CallObservation> {
        Box::pin(self.call_checked(name, arguments))
    }
}

/// Builds an error for the model. For a write it says that the effect is unknown.
fn build_error_observation(message: &str, is_write: bool) -> CallObservation {
    let mut seen = json!({"error": message});
    if is_write {
        seen["note"] = crate::tools::UNKNOWN_EFFECT_NOTE.into();
    }
    CallObservation { text: seen.to_string(), is_error: true, retry_after: None }
}

/// Builds the same observation as for our own tools. Quotations of the server's schema are bounded.
fn build_problems_observation(problems: &[String]) -> CallObservation {
    let problems: Vec<String> = problems
        .iter()
        .map(|one| crate::tools::truncate_text(&content::clean_short_line(one), MAX_SCHEMA_VIOLATION_BYTES))
        .collect();
    let seen = json!({"error": "the arguments do not fit", "problems": problems});
    CallObservation { text: seen.to_string(), is_error: true, retry_after: None }
}

/// Performs the handshake, lists the tools and selects those that are allowed.
async fn connect_to_server(
    server: &McpServerSpec,
    limits: ToolRestrictions,
    timeout: Duration,
) -> Result<McpTools, McpError> {
    let shown = server.to_string();
    let client =
        ClientConfig::new(ClientCapabilities::default(), Implementation::new("gradus", env!("CARGO_PKG_VERSION")));
    let (service, stderr_tail) = match server {
        McpServerSpec::Command { .. } => {
            let (transport, stderr_tail) = process::start_server_process(server)
                .map_err(|error| McpError::Start { server: shown.clone(), reason: error.to_string() })?;
            (client.serve(transport).await, stderr_tail)
        }
        McpServerSpec::Http { url, token } => {
            let http = build_mcp_http_client()
                .map_err(|error| McpError::Start { server: shown.clone(), reason: error.to_string() })?;
            let mut config = StreamableHttpClientTransportConfig::with_uri(url.as_str());
            config.auth_header.clone_from(token);
            let transport = StreamableHttpClientTransport::with_client(http, config);
            (client.serve(transport).await, StderrTail::default())
        }
    };
    let service = match service {
        Ok(service) => service,
        Err(error) => {
            let mut reason = content::clean_short_line(strip_rust_types(&error.to_string()));
            // A program prints the reason after it has closed its output.
            tokio::time::sleep(Duration::from_millis(50)).await;
            let said = stderr_tail.last_line();
            if !said.is_empty() {
                reason = format!("{reason} (it said: {said})");
            }
            return Err(McpError::Handshake { server: shown, reason });
        }
    };
    let listed = list_server_tools(&service).await.map_err(|error| McpError::Handshake {
        server: shown.clone(),
        reason: content::clean_short_line(&error.to_string()),
    })?;
    let name = match service.peer_info().and_then(|info| info.server_info.clone()) {
        Some(info) if !info.name.is_empty() => sanitize_mcp_name(&info.name, 24),
        _ => server.short_name(),
    };
    let is_empty = listed.is_empty();
    let (mut offered, mut tools, mut withheld_tools) = (Vec::new(), Vec::new(), Vec::new());
    let mut room = MAX_TOOL_DEFINITIONS_BYTES;
    for tool in listed {
        let effect = infer_tool_effect(tool.annotations.as_ref());
        let name = sanitize_mcp_name(&tool.name, 64);
        if !limits.is_mcp_tool_offered(&name, effect) {
            withheld_tools.push((name, effect));
            continue;
        }
        let (description, parameters) =
            limit_tool_size(tool.description.as_deref().unwrap_or_default(), &tool.input_schema);
        let size = name.len() + description.len() + parameters.to_string().len();
        if size > room {
            withheld_tools.push((name, effect));
            continue;
        }
        room -= size;
        let definition = ChatToolDefinition {
            name: Arc::from(make_unique_name(name, &tools)),
            description: Arc::from(description),
            parameters: Arc::new(parameters),
        };
        offered.push(tool.name.into_owned());
        tools.push(AgentTool { definition, effect });
    }
    if tools.is_empty() {
        let why = if is_empty { "" } else { " that are allowed here" };
        return Err(McpError::NoTools { server: shown, why });
    }
    Ok(McpTools { name, service, stderr_tail, limits, timeout, offered, tools, withheld_tools })
}

/// Returns description and schema within their limits.
fn limit_tool_size(description: &str, schema: &serde_json::Map<String, Value>) -> (String, Value) {
    let mut description = crate::tools::truncate_text(description, MAX_TOOL_DESCRIPTION_BYTES);
    let schema = Value::Object(schema.clone());
    if schema.to_string().len() <= MAX_TOOL_SCHEMA_BYTES {
        return (description, schema);
    }
    description.push_str(" [its schema is too long to be shown: give the arguments that the description speaks of]");
    (description, json!({"type": "object"}))
}

/// Requests all pages of the list, up to [`MAX_SERVER_TOOLS`] tools.
async fn list_server_tools(
    service: &RunningService<RoleClient, ClientConfig>,
) -> Result<Vec<rmcp::model::Tool>, ServiceError> {
    let (mut found, mut cursor) = (Vec::new(), None);
    for _ in 0..MAX_TOOL_LIST_PAGES {
        let page = PaginatedRequestParams::default().with_cursor(cursor);
        let page = service.list_tools(Some(page)).await?;
        found.extend(page.tools);
        cursor = page.next_cursor;
        if cursor.is_none() || found.len() >= MAX_SERVER_TOOLS {
            break;
        }
    }
    found.truncate(MAX_SERVER_TOOLS);
    Ok(found)
}

/// Derives the effect from hints, with the defaults of the protocol: a tool without hints may write, and a writing
/// tool may destroy.
fn infer_tool_effect(hints: Option<&ToolAnnotations>) -> ToolEffect {
    let hint = |of: fn(&ToolAnnotations) -> Option<bool>| hints.and_then(of);
    if hint(|hints| hints.read_only_hint).unwrap_or(false) {
        ToolEffect::Read
    } else if hint(|hints| hints.destructive_hint).unwrap_or(true) {
        ToolEffect::Destructive
    } else {
        ToolEffect::Write
    }
}

/// Reduces a name to letters, digits, `_` and `-`, as model providers require.
fn sanitize_mcp_name(name: &str, most: usize) -> String {
    let plain = |c: char| if c.is_ascii_alphanumeric() || c == '-' { c } else { '_' };
    let name: String = name.chars().take(most).map(plain).collect();
    if name.is_empty() { "unnamed".to_owned() } else { name }
}

/// Makes a name unique among `taken`: different names can become equal when they are reduced to plain characters.
fn make_unique_name(name: String, taken: &[AgentTool]) -> String {
    let is_taken = |name: &str| taken.iter().any(|tool| &*tool.definition.name == name);
    if !is_taken(&name) {
        return name;
    }
    let stem: String = name.chars().take(60).collect();
    (2..).map(|n| format!("{stem}_{n}")).find(|name| !is_taken(name)).unwrap_or(stem)
}

/// Removes the Rust type names from a message of the MCP library.
fn strip_rust_types(message: &str) -> &str {
    message.split_once("] error: ").filter(|(before, _)| before.contains("::")).map_or(message, |(_, told)| told)
}

/// The TLS library or the system's certificates cannot be used.
#[derive(Debug, thiserror::Error)]
#[error("no HTTPS here: {}", describe_build_error(.0))]
struct NoHttpClient(#[from] reqwest::Error);

fn describe_build_error(error: &reqwest::Error) -> String {
    content::clean_short_line(&error.to_string())
}

/// Builds a client that follows no redirects: the token is for no other host, and a changed method would lose the
/// message.
fn build_mcp_http_client() -> Result<reqwest::Client, NoHttpClient> {
    // No redirects: the token is for no other host, and a changed method would lose the message.
    Ok(gradus_http::http_client_builder().connect_timeout(Duration::from_secs(10)).tcp_nodelay(true).build()?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hints_that_are_not_given_are_what_the_protocol_says() {
        assert_eq!(infer_tool_effect(None), ToolEffect::Destructive);
        assert_eq!(infer_tool_effect(Some(&ToolAnnotations::new())), ToolEffect::Destructive);
        assert_eq!(infer_tool_effect(Some(&ToolAnnotations::new().read_only(true))), ToolEffect::Read);
        assert_eq!(infer_tool_effect(Some(&ToolAnnotations::new().destructive(false))), ToolEffect::Write);
        assert_eq!(
            infer_tool_effect(Some(&ToolAnnotations::new().read_only(true).destructive(true))),
            ToolEffect::Read
        );
    }

    #[test]
    fn long_schemas_are_not_shown() {
        let schema = |length: usize| {
            let schema = json!({"type": "object", "properties": {"x": {"description": "y".repeat(length)}}});
            schema.as_object().cloned().unwrap_or_default()
        };
        assert_eq!(limit_tool_size("Does it.", &schema(10)), ("Does it.".to_owned(), Value::Object(schema(10))));
        let (description, shown) = limit_tool_size("Does it.", &schema(1_000_000));
        assert_eq!(shown, json!({"type": "object"}));
        assert!(description.contains("too long to be shown"));
    }

    #[test]
    fn messages_name_no_types() {
        let message = "Send message error Transport [rmcp::transport::Worker<a::B<c::D>>] error: HTTP 404, when send initialize request";
        assert_eq!(strip_rust_types(message), "HTTP 404, when send initialize request");
        assert_eq!(strip_rust_types("[x] error: y"), "[x] error: y");
    }

    #[test]
    fn names_are_plain() {
        assert_eq!(sanitize_mcp_name("files/read.text", 64), "files_read_text");
        assert_eq!(sanitize_mcp_name("", 64), "unnamed");
        assert_eq!(sanitize_mcp_name(&"x".repeat(100), 64).len(), 64);
    }
}
