//! The address, wire form, key and model of an endpoint.

use std::time::Duration;

use gradus_http::SecretString;

use crate::error::ModelSetupError;
use crate::local_server::LocalServer;

/// The wire format of an endpoint. Almost every server supports one of these two.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ModelProvider {
    /// `POST {base}/chat/completions`: OpenAI, Azure, vLLM, llama.cpp, Ollama, OpenRouter and many more.
    OpenAi,
    /// `POST {base}/v1/messages`.
    Anthropic,
}

impl ModelProvider {
    /// The name in options, configuration and reports.
    pub fn name(self) -> &'static str {
        match self {
            ModelProvider::OpenAi => "openai",
            ModelProvider::Anthropic => "anthropic",
        }
    }

    /// The address used when neither options nor environment name one.
    pub fn default_base_url(self) -> &'static str {
        match self {
            ModelProvider::OpenAi => "https://api.openai.com/v1",
            ModelProvider::Anthropic => "https://api.anthropic.com",
        }
    }

    /// The model used when none is named.
    pub fn default_model(self) -> &'static str {
        match self {
            ModelProvider::OpenAi => "gpt-4o",
            ModelProvider::Anthropic => "claude-sonnet-5-5",
        }
    }
}

/// One model at one endpoint. Debug output does not show the key.
#[derive(Clone, Debug)]
pub struct ModelEndpoint {
    pub provider: ModelProvider,
    /// The local server by whose name the endpoint was chosen.
    pub local_server: Option<LocalServer>,
    /// May carry a query, as Azure's `?api-version=`.
    pub base_url: String,
    pub key: SecretString,
    pub model: String,
    /// How long one call may take, from the first byte sent to the last one received.
    pub timeout: Duration,
}

impl ModelEndpoint {
    /// Provider, or local server, and model, as in `openai:gpt-4o` and `ollama:qwen3`.
    pub fn judge_name(&self) -> String {
        let prefix = self.local_server.map_or(self.provider.name(), LocalServer::name);
        format!("{prefix}:{}", self.model)
    }

    /// Builds the address that requests are posted to: the base address, with the path of the wire format appended if
    /// it is missing. The query is preserved.
    pub(crate) fn build_request_url(&self) -> Result<reqwest::Url, ModelSetupError> {
        let mut url = reqwest::Url::parse(&self.base_url).map_err(ModelSetupError::Address)?;
        if !matches!(url.scheme(), "http" | "https") {
            return Err(ModelSetupError::Scheme { shown_url: self.shown_url() });
        }
        let path = url.path().trim_end_matches('/').to_owned();
        let path = match self.provider {
            // Users may paste the address with or without its last path segment.
            ModelProvider::OpenAi if path.ends_with("/chat/completions") => path,
            ModelProvider::OpenAi => format!("{path}/chat/completions"),
            ModelProvider::Anthropic if path.ends_with("/v1/messages") => path,
            ModelProvider::Anthropic => format!("{}/v1/messages", path.trim_end_matches("/v1")),
        };
        url.set_path(&path);
        Ok(url)
    }

    /// The address without user, password and query, which may hold secrets.
    pub fn shown_url(&self) -> String {
        match reqwest::Url::parse(&self.base_url) {
            Ok(mut url) => {
                // Neither call fails for an address with a host; other addresses are shown unchanged.
                let _ = url.set_username("");
                let _ = url.set_password(None);
                url.set_query(None);
                url.set_fragment(None);
                url.to_string().trim_end_matches('/').to_owned()
            }
            Err(_) => "(no address)".to_owned(),
        }
    }

    /// Whether the host is Azure OpenAI, which takes the key in the header `api-key` instead of a bearer token.
    pub(crate) fn is_azure(&self) -> bool {
        let host = reqwest::Url::parse(&self.base_url).ok().and_then(|url| url.host_str().map(str::to_owned));
        host.is_some_and(|host| host.ends_with(".azure.com"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn url(provider: ModelProvider, base_url: &str) -> Result<String, ModelSetupError> {
        let endpoint = ModelEndpoint {
            provider,
            local_server: None,
            base_url: base_url.to_owned(),
            key: SecretString::default(),
            model: String::new(),
            timeout: Duration::from_secs(1),
        };
        endpoint.build_request_url().map(String::from)
    }

    #[test]
    fn completes_addresses_as_people_write_them() {
        let openai = |base| url(ModelProvider::OpenAi, base).expect("an address");
        assert_eq!(openai("http://127.0.0.1:8000/v1"), "http://127.0.0.1:8000/v1/chat/completions");
        assert_eq!(openai("http://127.0.0.1:8000/v1/"), "http://127.0.0.1:8000/v1/chat/completions");
        assert_eq!(openai("http://h/v1/chat/completions"), "http://h/v1/chat/completions");
        assert_eq!(
            openai("https://x.openai.azure.com/openai/deployments/d?api-version=2024-10-21"),
            "https://x.openai.azure.com/openai/deployments/d/chat/completions?api-version=2024-10-21"
        );
        let anthropic = |base| url(ModelProvider::Anthropic, base).expect("an address");
        assert_eq!(anthropic("https://api.anthropic.com"), "https://api.anthropic.com/v1/messages");
        assert_eq!(anthropic("https://api.anthropic.com/v1/"), "https://api.anthropic.com/v1/messages");
    }

    #[test]
    fn refuses_what_is_no_address() {
        assert!(url(ModelProvider::OpenAi, "localhost:8000").is_err());
        assert!(url(ModelProvider::OpenAi, "ftp://h/v1").is_err());
        assert!(url(ModelProvider::OpenAi, "").is_err());
    }

    #[test]
    fn secrets_in_an_address_are_not_shown() {
        let endpoint = ModelEndpoint {
            provider: ModelProvider::OpenAi,
            local_server: None,
            base_url: "https://me:pw@proxy.example/v1/?api-key=k".to_owned(),
            key: SecretString::default(),
            model: String::new(),
            timeout: Duration::from_secs(1),
        };
        assert_eq!(endpoint.shown_url(), "https://proxy.example/v1");
    }
}
