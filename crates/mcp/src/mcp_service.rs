//! The protocol: MCP over standard input and output, and over streamable HTTP without sessions.

use std::convert::Infallible;
use std::future::Future;
use std::sync::Arc;

use bytes::Bytes;
use http::{Request, Response};
use http_body_util::Full;
use http_body_util::combinators::BoxBody;
use rmcp::model::{
    CallToolRequestParams, CallToolResponse, CallToolResult, ContentBlock, ErrorData, Implementation, ListToolsResult,
    PaginatedRequestParams, ServerCapabilities, ServerConfig, Tool,
};
use rmcp::service::RequestContext;
use rmcp::transport::streamable_http_server::session::never::NeverSessionManager;
use rmcp::transport::streamable_http_server::{StreamableHttpServerConfig, StreamableHttpService};
use rmcp::{RoleServer, ServerHandler, ServiceExt as _};
use tower::ServiceExt as _;

use crate::archive::RunArchive;
use crate::instructions::{INSTRUCTIONS, LABEL_INSTRUCTIONS};
use crate::stdio_transport::connect_lines;
use crate::tool_call::{McpToolCall, ToolError};
use crate::tool_catalog::list_tools;

/// Runs tool calls where blocking is allowed. The server has its own implementation, which admits calls by caller.
pub trait ToolRunner: Send + Sync + 'static {
    /// Whether the tool `label_step` is offered.
    fn allows_labels(&self) -> bool;

    fn run_call(&self, call: McpToolCall) -> impl Future<Output = Result<String, ToolError>> + Send;
}

/// The server side of the protocol.
struct McpService<R>(Arc<R>);

impl<R: ToolRunner> ServerHandler for McpService<R> {
    fn get_info(&self) -> ServerConfig {
        let labels = if self.0.allows_labels() { LABEL_INSTRUCTIONS } else { "" };
        ServerConfig::new(ServerCapabilities::builder().enable_tools().build())
            .with_server_info(Implementation::new("gradus", env!("CARGO_PKG_VERSION")))
            .with_instructions(format!("{INSTRUCTIONS}{labels}"))
    }

    async fn list_tools(
        &self,
        _: Option<PaginatedRequestParams>,
        _: RequestContext<RoleServer>,
    ) -> Result<ListToolsResult, ErrorData> {
        Ok(ListToolsResult { tools: list_tools(self.0.allows_labels()), ..ListToolsResult::default() })
    }

    fn get_tool(&self, name: &str) -> Option<Tool> {
        list_tools(self.0.allows_labels()).into_iter().find(|tool| tool.name == name)
    }

    async fn call_tool(
        &self,
        request: CallToolRequestParams,
        context: RequestContext<RoleServer>,
    ) -> Result<CallToolResponse, ErrorData> {
        let arguments = request.arguments.unwrap_or_default();
        let call = match McpToolCall::parse(&request.name, arguments, self.0.allows_labels()) {
            Ok(call) => call,
            Err(error @ ToolError::UnknownTool { .. }) => return Err(ErrorData::invalid_params(error.to_line(), None)),
            Err(error) => return Ok(error_result(&error)),
        };
        // A client that disconnects or cancels stops the work.
        let answer = tokio::select! {
            answer = self.0.run_call(call) => answer,
            () = context.ct.cancelled() => Err(ToolError::NotPerformed { reason: "the call was cancelled".to_owned() }),
        };
        Ok(match answer {
            Ok(text) => CallToolResult::success(vec![ContentBlock::text(text)]).into(),
            Err(error) => error_result(&error),
        })
    }
}

fn error_result(error: &ToolError) -> CallToolResponse {
    CallToolResult::error(vec![ContentBlock::text(error.to_line())]).into()
}

/// Why serving on standard input and output failed.
#[derive(Debug, thiserror::Error)]
pub enum StdioError {
    #[error("the client on standard input does not speak MCP: {reason}")]
    Handshake { reason: String },
    #[error("the server ended: {reason}")]
    Ended { reason: String },
}

/// Runs calls on tokio's blocking thread pool.
struct BlockingRunner {
    archive: Arc<dyn RunArchive>,
    allows_labels: bool,
}

impl ToolRunner for BlockingRunner {
    fn allows_labels(&self) -> bool {
        self.allows_labels
    }

    async fn run_call(&self, call: McpToolCall) -> Result<String, ToolError> {
        let archive = Arc::clone(&self.archive);
        let done = tokio::task::spawn_blocking(move || call.perform(&*archive)).await;
        done.unwrap_or_else(|_| {
            Err(ToolError::NotPerformed { reason: "the call failed unexpectedly; this is a bug of Gradus".to_owned() })
        })
    }
}

/// Serves one client on standard input and output until it closes them.
pub async fn serve_stdio(archive: Arc<dyn RunArchive>, allows_labels: bool) -> Result<(), StdioError> {
    let service = McpService(Arc::new(BlockingRunner { archive, allows_labels }));
    let transport = connect_lines(tokio::io::stdin(), tokio::io::stdout());
    let served = match service.serve(transport.streams).await {
        Ok(serving) => {
            serving.waiting().await.map(drop).map_err(|error| StdioError::Ended { reason: error.to_string() })
        }
        // The client disconnected before it sent anything.
        Err(rmcp::service::ServerInitializeError::ConnectionClosed(_)) => Ok(()),
        Err(error) => Err(StdioError::Handshake { reason: error.to_string() }),
    };
    // The last answer must be written before the process ends, unless the client has disconnected.
    let _ = transport.writing.await;
    served
}

/// Answers one HTTP request. The caller has checked host, origin, key and size, and the answer is complete: no sessions
/// and no streams, so that nothing is held between requests.
pub async fn answer_http_request<R: ToolRunner>(
    runner: R,
    request: Request<Full<Bytes>>,
) -> Response<BoxBody<Bytes, Infallible>> {
    let runner = Arc::new(runner);
    let config = StreamableHttpServerConfig::default()
        .with_legacy_session_mode(false)
        .with_json_response(true)
        .with_sse_retry(None)
        .disable_allowed_hosts()
        .disable_allowed_origins();
    let service = StreamableHttpService::new(
        move || Ok(McpService(Arc::clone(&runner))),
        Arc::new(NeverSessionManager::default()),
        config,
    );
    match service.oneshot(request).await {
        Ok(response) => response,
        Err(never) => match never {},
    }
}
