//! Finds out what listens at an address: a model server and its models, something else, or nothing. It sends one
//! short request without a key, and only commands whose purpose is probing use it.

use std::time::Duration;

use gradus_http::{http_client_builder, root_cause};
use reqwest::{Client, StatusCode};
use serde::Deserialize;

use crate::loading::is_loading_message;
use crate::local_server::LocalServer;

/// A server on this machine lists its models within milliseconds, also while it answers questions.
const PROBE_TIMEOUT: Duration = Duration::from_secs(2);
/// Maximum bytes read of a list of models.
const MAX_LIST_BYTES: usize = 4 << 20;

/// What a probe found at one address.
#[derive(Clone, Debug, PartialEq)]
pub enum ProbeFinding {
    /// A server with OpenAI's wire form.
    ModelServer {
        /// Which server it is, if its list of models shows it.
        server: Option<LocalServer>,
        models: Vec<ServedModel>,
    },
    /// A model server that is still loading its model.
    Loading,
    /// Probably a model server: it lists its models only with a key.
    KeyRequired,
    /// A service that is not a model server.
    OtherService { answer: String },
    /// The connection is accepted, but no answer arrives in time.
    Silent,
    /// Nothing listens there.
    NotRunning,
}

/// A model that a server offers.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ServedModel {
    pub name: String,
    /// The context window that the server runs it with, if it says so.
    pub context_tokens: Option<u64>,
}

#[derive(Deserialize)]
struct ModelList {
    /// Null if there is none.
    data: Option<Vec<ListedModel>>,
}

#[derive(Deserialize)]
struct ListedModel {
    id: String,
    #[serde(default)]
    owned_by: Option<String>,
    /// vLLM's.
    #[serde(default)]
    max_model_len: Option<u64>,
    /// llama.cpp's.
    #[serde(default)]
    meta: Option<ModelMetadata>,
}

#[derive(Deserialize)]
struct ModelMetadata {
    #[serde(default)]
    n_ctx: Option<u64>,
}

/// Asks for the list of models below `base_url` (`http://127.0.0.1:8080/v1`).
pub async fn probe_model_server(base_url: &str) -> ProbeFinding {
    let base_url = base_url.trim_end_matches('/');
    let client = match http_client_builder().timeout(PROBE_TIMEOUT).build() {
        Ok(client) => client,
        Err(error) => return ProbeFinding::OtherService { answer: root_cause(&error) },
    };
    let (status, body) = match get_bounded(&client, &format!("{base_url}/models")).await {
        Ok(answer) => answer,
        Err(error) if error.is_timeout() => return ProbeFinding::Silent,
        Err(error) if error.is_connect() => return ProbeFinding::NotRunning,
        Err(error) => return ProbeFinding::OtherService { answer: root_cause(&error) },
    };
    let text = String::from_utf8_lossy(&body);
    match status {
        StatusCode::UNAUTHORIZED | StatusCode::FORBIDDEN => return ProbeFinding::KeyRequired,
        _ if is_loading_message(status.as_u16(), &text) => return ProbeFinding::Loading,
        _ => {}
    }
    let list = serde_json::from_slice::<ModelList>(&body).ok().filter(|_| status.is_success());
    let Some(list) = list else { return ProbeFinding::OtherService { answer: format!("HTTP {}", status.as_u16()) } };
    let listed = list.data.unwrap_or_default();
    let mut server = listed.iter().find_map(identify_server);
    // An empty list does not identify the server, and only Ollama runs without a model.
    if listed.is_empty() && is_ollama(&client, base_url).await {
        server = Some(LocalServer::Ollama);
    }
    let models = listed.into_iter().map(|model| ServedModel {
        context_tokens: model.max_model_len.or(model.meta.and_then(|meta| meta.n_ctx)),
        name: model.id,
    });
    ProbeFinding::ModelServer { server, models: models.collect() }
}

/// Identifies the server by a model of its list: each kind of server has its own value of `owned_by`.
fn identify_server(model: &ListedModel) -> Option<LocalServer> {
    match model.owned_by.as_deref()? {
        "llamacpp" => Some(LocalServer::LlamaCpp),
        "vllm" => Some(LocalServer::Vllm),
        "library" => Some(LocalServer::Ollama),
        "organization_owner" => Some(LocalServer::LmStudio),
        _ => None,
    }
}

async fn is_ollama(client: &Client, base_url: &str) -> bool {
    let root = base_url.trim_end_matches("/v1");
    let answer = get_bounded(client, &format!("{root}/api/version")).await;
    answer.is_ok_and(|(status, body)| {
        let json: Option<serde_json::Value> = serde_json::from_slice(&body).ok();
        status.is_success() && json.is_some_and(|json| json["version"].is_string())
    })
}

/// Sends a GET request and reads at most `MAX_LIST_BYTES` bytes of the body: anything longer is not a list of models.
async fn get_bounded(client: &Client, url: &str) -> Result<(StatusCode, Vec<u8>), reqwest::Error> {
    let mut response = client.get(url).send().await?;
    let status = response.status();
    let mut body = Vec::new();
    while let Some(chunk) = response.chunk().await? {
        body.extend_from_slice(&chunk);
        if body.len() > MAX_LIST_BYTES {
            break;
        }
    }
    Ok((status, body))
}

#[cfg(test)]
mod tests {
    use tokio::io::{AsyncReadExt, AsyncWriteExt};
    use tokio::net::TcpListener;

    use super::*;

    /// What is found at an address that answers every request with these bytes and closes.
    async fn probe(answer: &'static str) -> ProbeFinding {
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
        let url = format!("http://{}/v1", listener.local_addr().expect("an address"));
        let serving = tokio::spawn(async move {
            while let Ok((mut stream, _)) = listener.accept().await {
                let mut head = [0; 1024];
                let read = stream.read(&mut head).await.unwrap_or(0);
                let asks_for_models = head[..read].starts_with(b"GET /v1/models ");
                let answer = if asks_for_models { answer } else { "HTTP/1.1 404 no\r\ncontent-length: 0\r\n\r\n" };
                // The client may be gone already.
                let _ = stream.write_all(answer.as_bytes()).await;
            }
        });
        let found = probe_model_server(&url).await;
        serving.abort();
        found
    }

    #[tokio::test]
    async fn tells_servers_apart_by_their_lists() {
        let model = |name: &str, context_tokens| ServedModel { name: name.to_owned(), context_tokens };
        let found = probe(
            "HTTP/1.1 200 OK\r\nconnection: close\r\n\r\n{\"object\":\"list\",\"data\":[{\"id\":\"q\",\"owned_by\":\"llamacpp\",\"meta\":{\"n_ctx\":8192}}]}",
        );
        let (server, models) = (Some(LocalServer::LlamaCpp), vec![model("q", Some(8192))]);
        assert_eq!(found.await, ProbeFinding::ModelServer { server, models });
        let found = probe(
            "HTTP/1.1 200 OK\r\nconnection: close\r\n\r\n{\"data\":[{\"id\":\"a\",\"owned_by\":\"vllm\",\"max_model_len\":4096},{\"id\":\"b\"}]}",
        );
        let (server, models) = (Some(LocalServer::Vllm), vec![model("a", Some(4096)), model("b", None)]);
        assert_eq!(found.await, ProbeFinding::ModelServer { server, models });
        let found = probe("HTTP/1.1 200 OK\r\nconnection: close\r\n\r\n{\"object\":\"list\",\"data\":null}");
        assert_eq!(found.await, ProbeFinding::ModelServer { server: None, models: Vec::new() });
    }

    #[tokio::test]
    async fn says_what_is_no_model_server() {
        let other = |answer: &str| ProbeFinding::OtherService { answer: answer.to_owned() };
        assert_eq!(probe("HTTP/1.1 404 no\r\ncontent-length: 0\r\n\r\n").await, other("HTTP 404"));
        assert_eq!(probe("HTTP/1.1 200 OK\r\ncontent-length: 6\r\n\r\n<html>").await, other("HTTP 200"));
        assert!(matches!(probe("SSH-2.0-OpenSSH_9.6\r\n").await, ProbeFinding::OtherService { .. }));
        assert_eq!(probe("HTTP/1.1 401 no\r\ncontent-length: 2\r\n\r\n{}").await, ProbeFinding::KeyRequired);
        let loading =
            "HTTP/1.1 503 no\r\nconnection: close\r\n\r\n{\"error\":{\"message\":\"Loading model\",\"code\":503}}";
        assert_eq!(probe(loading).await, ProbeFinding::Loading);
        let free = TcpListener::bind("127.0.0.1:0").await.expect("a port").local_addr().expect("an address");
        assert_eq!(probe_model_server(&format!("http://{free}/v1")).await, ProbeFinding::NotRunning);
    }
}
