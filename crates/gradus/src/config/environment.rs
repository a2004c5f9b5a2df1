//! The environment variables that select settings, read in one place. `variables` describes them, and all others.

use std::path::PathBuf;

use gradus_eval::judge_selection::JudgeCredentials;
use gradus_http::SecretString;

use super::trust::{TrustError, TrustStore};
use super::variables::is_listed;

/// All environment variables that Gradus reads, except tokens in variables that the user names (`read_secret`). Keys
/// are `SecretString`s, which register themselves for masking: no message prints them.
#[derive(Clone, Debug, Default)]
pub(crate) struct EnvironmentVariables {
    pub(crate) openai_key: Option<SecretString>,
    pub(crate) openai_base_url: Option<String>,
    pub(crate) openai_model: Option<String>,
    pub(crate) anthropic_key: Option<SecretString>,
    pub(crate) anthropic_base_url: Option<String>,
    pub(crate) state_dir: Option<PathBuf>,
    /// GRADUS_STORE: the address of a store outside of the state folder, which may contain a password.
    pub(crate) store: Option<SecretString>,
    pub(crate) config: Option<PathBuf>,
    /// GRADUS_URL: the server that `gradus health` asks.
    pub(crate) gradus_url: Option<String>,
    /// GRADUS_API_KEY: the key for `gradus://` sources.
    pub(crate) gradus_key: Option<SecretString>,
    /// The PHOENIX_* variables have the names and the format of Phoenix's own clients.
    pub(crate) phoenix_url: Option<String>,
    pub(crate) phoenix_key: Option<SecretString>,
    pub(crate) phoenix_headers: Option<SecretString>,
    pub(crate) phoenix_project: Option<String>,
    /// The OTEL_EXPORTER_OTLP_* variables of the OpenTelemetry specification. The headers can hold a key.
    pub(crate) otlp_headers: Option<SecretString>,
    pub(crate) otlp_endpoint: Option<String>,
    /// GITHUB_API_URL, as GitHub Actions sets it.
    pub(crate) github_url: Option<String>,
    /// GRADUS_TRUST_CONFIG: trusts whatever `gradus.toml` is found, for CI jobs where nobody can confirm it.
    pub(crate) trusts_found_config: bool,
    /// XDG_STATE_HOME and HOME: where the list of trusted files is stored.
    pub(super) state_home: Option<PathBuf>,
    pub(super) home: Option<PathBuf>,
    /// USER: who labels.
    pub(crate) user_name: Option<String>,
}

impl EnvironmentVariables {
    /// Reads the environment now; nothing is cached.
    pub(crate) fn read() -> EnvironmentVariables {
        let text = read_variable;
        EnvironmentVariables {
            openai_key: text("OPENAI_API_KEY").map(SecretString::new),
            openai_base_url: text("OPENAI_BASE_URL"),
            openai_model: text("OPENAI_MODEL"),
            anthropic_key: text("ANTHROPIC_API_KEY").map(SecretString::new),
            anthropic_base_url: text("ANTHROPIC_BASE_URL"),
            state_dir: text("GRADUS_STATE_DIR").map(PathBuf::from),
            store: text("GRADUS_STORE").map(SecretString::from_address),
            config: text("GRADUS_CONFIG").map(PathBuf::from),
            gradus_url: text("GRADUS_URL"),
            gradus_key: text("GRADUS_API_KEY").map(SecretString::new),
            phoenix_url: text("PHOENIX_COLLECTOR_ENDPOINT"),
            phoenix_key: text("PHOENIX_API_KEY").map(SecretString::new),
            phoenix_headers: text("PHOENIX_CLIENT_HEADERS").map(SecretString::new),
            phoenix_project: text("PHOENIX_PROJECT_NAME"),
            otlp_headers: text("OTEL_EXPORTER_OTLP_HEADERS").map(SecretString::new),
            otlp_endpoint: text("OTEL_EXPORTER_OTLP_ENDPOINT"),
            github_url: text("GITHUB_API_URL"),
            trusts_found_config: text("GRADUS_TRUST_CONFIG").is_some_and(|value| is_yes(&value)),
            state_home: text("XDG_STATE_HOME").map(PathBuf::from),
            home: text("HOME").map(PathBuf::from),
            user_name: text("USER"),
        }
    }

    /// Returns the part of the environment that selects a judge. `eval` does not read the environment itself.
    pub(crate) fn judge_credentials(&self) -> JudgeCredentials {
        JudgeCredentials {
            openai_key: self.openai_key.clone(),
            openai_base_url: self.openai_base_url.clone(),
            openai_model: self.openai_model.clone(),
            anthropic_key: self.anthropic_key.clone(),
            anthropic_base_url: self.anthropic_base_url.clone(),
        }
    }

    /// Returns the list of trusted files. Fails when neither XDG_STATE_HOME nor HOME is an absolute path.
    pub(crate) fn trust_store(&self) -> Result<TrustStore, TrustError> {
        TrustStore::from_folders(self.state_home.as_deref(), self.home.as_deref())
    }

    /// Reads a key or token in a variable that the user named with an option; `None` if it is unset or empty.
    pub(crate) fn read_secret(name: &str) -> Option<SecretString> {
        std::env::var(name).ok().map(SecretString::new).filter(|secret| !secret.is_empty())
    }
}

/// Credentials and endpoint of S3-compatible storage, with the names of Amazon's own tools.
#[cfg(feature = "s3")]
#[derive(Clone, Debug, Default)]
pub(crate) struct S3Variables {
    pub(crate) access_key: Option<SecretString>,
    pub(crate) secret_key: Option<SecretString>,
    pub(crate) session_token: Option<SecretString>,
    pub(crate) region: Option<String>,
    pub(crate) endpoint: Option<String>,
    pub(crate) allows_http: bool,
}

#[cfg(feature = "s3")]
impl S3Variables {
    pub(crate) fn read() -> S3Variables {
        S3Variables {
            access_key: read_variable("AWS_ACCESS_KEY_ID").map(SecretString::new),
            secret_key: read_variable("AWS_SECRET_ACCESS_KEY").map(SecretString::new),
            session_token: read_variable("AWS_SESSION_TOKEN").map(SecretString::new),
            region: read_variable("AWS_REGION").or_else(|| read_variable("AWS_DEFAULT_REGION")),
            endpoint: read_variable("AWS_ENDPOINT_URL_S3").or_else(|| read_variable("AWS_ENDPOINT_URL")),
            allows_http: read_variable("AWS_ALLOW_HTTP").is_some_and(|value| is_yes(&value)),
        }
    }
}

/// Reads a variable. An empty one counts as unset: CI systems set variables of missing secrets to the empty string.
fn read_variable(name: &str) -> Option<String> {
    debug_assert!(is_listed(name), "{name} is not in the reference: add it to `variables`");
    std::env::var(name).ok().filter(|value| !value.trim().is_empty())
}

fn is_yes(value: &str) -> bool {
    value == "1" || value.eq_ignore_ascii_case("true")
}
