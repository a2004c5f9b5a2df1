//! A small MCP server to test with: over standard input and output, or with `--http` on a free port, which it prints.

#![allow(clippy::unwrap_used, reason = "a program for tests")]
#![allow(clippy::print_stdout, reason = "the port")]

use std::sync::Arc;
use std::time::Duration;

use hyper::server::conn::http1;
use hyper_util::rt::TokioIo;
use hyper_util::service::TowerToHyperService;
use rmcp::model::{
    CallToolRequestParams, CallToolResponse, CallToolResult, ContentBlock, ErrorData, Implementation, ListToolsResult,
    PaginatedRequestParams, ServerCapabilities, ServerConfig, Tool, ToolAnnotations,
};
use rmcp::service::RequestContext;
use rmcp::transport::streamable_http_server::session::local::LocalSessionManager;
use rmcp::transport::streamable_http_server::{StreamableHttpServerConfig, StreamableHttpService};
use rmcp::{RoleServer, ServerHandler, ServiceExt as _};
use serde_json::{Value, json};

#[derive(Clone, Default)]
struct Peer;

fn tool(name: &'static str, hints: Option<ToolAnnotations>, properties: &Value) -> Tool {
    let schema = json!({"type": "object", "properties": properties});
    let tool = Tool::new(name, format!("{name}, for a test"), Arc::new(schema.as_object().unwrap().clone()));
    match hints {
        Some(hints) => tool.with_annotations(hints),
        None => tool,
    }
}

impl ServerHandler for Peer {
    fn get_info(&self) -> ServerConfig {
        ServerConfig::new(ServerCapabilities::builder().enable_tools().build())
            .with_server_info(Implementation::new("test peer", "1"))
    }

    /// On two pages.
    async fn list_tools(
        &self,
        page: Option<PaginatedRequestParams>,
        _: RequestContext<RoleServer>,
    ) -> Result<ListToolsResult, ErrorData> {
        let reads = || Some(ToolAnnotations::new().read_only(true));
        let adds = || Some(ToolAnnotations::new().destructive(false));
        let numbers = json!({"a": {"type": "integer"}, "b": {"type": "integer"}});
        let told = json!({"page": {"type": "integer"}, "note": {"type": ["string", "null"]}});
        let mut listed = ListToolsResult::default();
        if page.and_then(|page| page.cursor).is_none() {
            listed.tools = vec![tool("math.add", reads(), &numbers), tool("get_me", reads(), &told)];
            listed.next_cursor = Some("more".to_owned());
        } else {
            let ms = json!({"ms": {"type": "integer"}});
            listed.tools = vec![
                tool("environment", reads(), &json!({})),
                tool("sleep", adds(), &ms),
                tool("die", adds(), &json!({})),
                tool("wipe", None, &json!({})),
            ];
        }
        Ok(listed)
    }

    async fn call_tool(
        &self,
        call: CallToolRequestParams,
        _: RequestContext<RoleServer>,
    ) -> Result<CallToolResponse, ErrorData> {
        let arguments = Value::Object(call.arguments.unwrap_or_default());
        let text = match &*call.name {
            "math.add" => match (arguments["a"].as_i64(), arguments["b"].as_i64()) {
                (Some(a), Some(b)) => (a + b).to_string(),
                _ => return Err(ErrorData::invalid_params("a and b must be numbers", None)),
            },
            "get_me" if arguments == json!({}) => "the peer".to_owned(),
            "get_me" => format!("the peer, given {arguments}"),
            "environment" => {
                let mut names: Vec<_> = std::env::vars().map(|(name, _)| name).collect();
                names.sort();
                names.join(" ")
            }
            "sleep" => {
                tokio::time::sleep(Duration::from_millis(arguments["ms"].as_u64().unwrap_or(0))).await;
                "awake".to_owned()
            }
            "die" => {
                eprintln!("first line\n\u{1b}[31mout of memory\n");
                std::process::exit(3);
            }
            _ => return Ok(CallToolResult::error(vec![ContentBlock::text("it would not go away")]).into()),
        };
        Ok(CallToolResult::success(vec![ContentBlock::text(text)]).into())
    }
}

#[tokio::main(flavor = "current_thread")]
async fn main() {
    match std::env::args().nth(1).as_deref() {
        Some("--http") => serve_http().await,
        Some("--silent") => std::future::pending().await,
        Some("--broken") => {
            eprintln!("no such table");
            std::process::exit(1);
        }
        _ => {
            let service = Peer.serve(rmcp::transport::io::stdio()).await.unwrap();
            service.waiting().await.unwrap();
        }
    }
}

async fn serve_http() {
    let service = StreamableHttpService::new(
        || Ok(Peer),
        Arc::new(LocalSessionManager::default()),
        StreamableHttpServerConfig::default(),
    );
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    println!("{}", listener.local_addr().unwrap().port());
    loop {
        let (stream, _) = listener.accept().await.unwrap();
        let service = TowerToHyperService::new(service.clone());
        tokio::spawn(http1::Builder::new().serve_connection(TokioIo::new(stream), service));
    }
}
