//! Model servers that people run on their own machine, by name: `ollama:MODEL` is a model of the Ollama server on its
//! default port. All of them speak OpenAI's wire form.

use std::time::Duration;

/// A model server with a default port of its own.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LocalServer {
    Ollama,
    LlamaCpp,
    LmStudio,
    Vllm,
}

impl LocalServer {
    /// In the order of lists.
    pub const ALL: [LocalServer; 4] =
        [LocalServer::Ollama, LocalServer::LlamaCpp, LocalServer::LmStudio, LocalServer::Vllm];

    /// The prefix in the name of a judge, as in `ollama:MODEL`.
    pub fn name(self) -> &'static str {
        match self {
            LocalServer::Ollama => "ollama",
            LocalServer::LlamaCpp => "llamacpp",
            LocalServer::LmStudio => "lmstudio",
            LocalServer::Vllm => "vllm",
        }
    }

    /// The product name.
    pub fn title(self) -> &'static str {
        match self {
            LocalServer::Ollama => "Ollama",
            LocalServer::LlamaCpp => "llama.cpp",
            LocalServer::LmStudio => "LM Studio",
            LocalServer::Vllm => "vLLM",
        }
    }

    pub fn from_name(name: &str) -> Option<LocalServer> {
        LocalServer::ALL.into_iter().find(|server| server.name() == name)
    }

    pub fn default_port(self) -> u16 {
        match self {
            LocalServer::Ollama => 11434,
            LocalServer::LlamaCpp => 8080,
            LocalServer::LmStudio => 1234,
            LocalServer::Vllm => 8000,
        }
    }

    /// The address on this machine. By number, because `localhost` may be an IPv6 address, on which these servers do
    /// not listen by default.
    pub fn default_base_url(self) -> String {
        format!("http://127.0.0.1:{}/v1", self.default_port())
    }

    /// Default limit of calls in flight. All but vLLM answer one or a few at a time and queue the rest, so more calls
    /// would wait there until they time out. `None` leaves the limit to the client.
    pub fn default_concurrency(self) -> Option<usize> {
        match self {
            LocalServer::Ollama | LocalServer::LlamaCpp | LocalServer::LmStudio => Some(4),
            LocalServer::Vllm => None,
        }
    }

    /// Default timeout of a call. A model on a CPU reads about ten tokens per second, and a call waits for those
    /// before it.
    pub fn default_timeout(self) -> Duration {
        Duration::from_secs(600)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_lead_to_servers_and_ports_differ() {
        for server in LocalServer::ALL {
            assert_eq!(LocalServer::from_name(server.name()), Some(server));
            let same_port = LocalServer::ALL.iter().filter(|other| other.default_port() == server.default_port());
            assert_eq!(same_port.count(), 1, "{}", server.name());
        }
        assert_eq!(LocalServer::from_name("openai"), None);
        assert_eq!(LocalServer::Ollama.default_base_url(), "http://127.0.0.1:11434/v1");
    }
}
