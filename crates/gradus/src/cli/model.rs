//! The model of an agent. Options, variables and defaults are those of the judge of `gradus eval`, so the same
//! selection code is used, with the names of the options replaced in its messages.

use std::sync::Arc;

use clap::{Args, ValueEnum};
use gradus_eval::judge_selection::{JudgeChoice, JudgeConfig};
use gradus_llm::{ModelClient, ModelEndpoint, ModelProvider, RetryPolicy};

use super::judge_options::{ModelTemperature, temperature};
use super::sources::print_diagnostic;
use crate::config::EnvironmentVariables;

#[derive(Args, Clone, Debug)]
pub(super) struct ModelOptions {
    /// The model: a name (`gpt-4o`), or `openai:MODEL` / `anthropic:MODEL`. Without it: OPENAI_MODEL, or gpt-4o, if
    /// OPENAI_API_KEY or OPENAI_BASE_URL is set; claude-sonnet-5-5 if ANTHROPIC_API_KEY is.
    #[arg(long, value_name = "MODEL", help_heading = "Model")]
    pub(super) model: Option<String>,
    /// The endpoint's address; else OPENAI_BASE_URL or ANTHROPIC_BASE_URL.
    #[arg(long, value_name = "URL", help_heading = "Model")]
    base_url: Option<String>,
    /// The endpoint's wire form, where the model's name does not tell.
    #[arg(long, value_enum, value_name = "FORM", help_heading = "Model")]
    provider: Option<ProviderName>,
    /// The variable that holds the key [default: OPENAI_API_KEY or ANTHROPIC_API_KEY].
    #[arg(long, value_name = "VARIABLE", help_heading = "Model")]
    api_key_env: Option<String>,
    /// How long one reply may take, in seconds.
    #[arg(long, value_name = "SECONDS", default_value_t = 120.0, help_heading = "Model")]
    timeout: f64,
    /// Length of one reply at most.
    #[arg(long, value_name = "TOKENS", default_value_t = 4096, help_heading = "Model")]
    pub(super) max_tokens: u32,
    /// The model's context: what does not fit is shortened, and marked.
    #[arg(long, value_name = "TOKENS", default_value_t = 100_000, help_heading = "Model")]
    pub(super) context_tokens: usize,
    /// The model's temperature; `none` sends none [default: 0]. Anthropic takes none.
    #[arg(long, value_name = "T", value_parser = temperature, help_heading = "Model")]
    temperature: Option<ModelTemperature>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum ProviderName {
    Openai,
    Anthropic,
}

/// Why no model for the agent can be selected. Messages name the options of `gradus agent`; `gradus bench` replaces
/// them.
#[derive(Debug, thiserror::Error)]
pub(super) enum ModelOptionsError {
    #[error(
        "--context-tokens {context_tokens}: an agent needs at least 4000, and twice the {max_tokens} tokens of a reply"
    )]
    ContextTooSmall { context_tokens: usize, max_tokens: u32 },
    #[error("--api-key-env: {variable} is not set")]
    KeyNotSet { variable: String },
    #[error(
        "there is no model to think: set OPENAI_API_KEY or ANTHROPIC_API_KEY, or name an endpoint with --base-url and a model with --model"
    )]
    NoModel,
    /// The options and the environment do not select a model.
    #[error("{reason}")]
    Selection { reason: String },
    /// The endpoint has an address that no client can be made for.
    #[error("{reason}")]
    Client { reason: String },
}

impl ModelOptions {
    /// Returns the default options, for `gradus bench`: there, options of these names are about the judge.
    pub(super) fn from_model_name(model: &str, base_url: Option<&str>, api_key_env: Option<&str>) -> ModelOptions {
        ModelOptions {
            model: Some(model.to_owned()),
            base_url: base_url.map(str::to_owned),
            provider: None,
            api_key_env: api_key_env.map(str::to_owned),
            timeout: 120.0,
            max_tokens: 4096,
            context_tokens: 100_000,
            temperature: None,
        }
    }

    /// Returns the endpoint of the model. `gradus.toml` is not used: the model that it names is a judge.
    pub(super) fn endpoint(&self, environment: &EnvironmentVariables) -> Result<ModelEndpoint, ModelOptionsError> {
        // The context must hold the instructions, the tool definitions and a history in addition to the reply.
        if self.context_tokens < 4_000 || self.context_tokens < 2 * self.max_tokens as usize {
            return Err(ModelOptionsError::ContextTooSmall {
                context_tokens: self.context_tokens,
                max_tokens: self.max_tokens,
            });
        }
        // The judge selection takes the provider as a prefix of the model's name.
        let mut judge = self.model.clone();
        if let Some(provider) = self.provider {
            let name = match provider {
                ProviderName::Openai => "openai",
                ProviderName::Anthropic => "anthropic",
            };
            judge = Some(match &self.model {
                Some(model) if model.starts_with(&format!("{name}:")) => model.clone(),
                Some(model) => format!("{name}:{model}"),
                None => name.to_owned(),
            });
        }
        let config = JudgeConfig {
            judge,
            base_url: self.base_url.clone(),
            timeout_s: Some(self.timeout),
            ..JudgeConfig::default()
        };
        let mut credentials = environment.judge_credentials();
        if let Some(variable) = &self.api_key_env {
            let key = EnvironmentVariables::read_secret(variable)
                .ok_or_else(|| ModelOptionsError::KeyNotSet { variable: variable.clone() })?;
            (credentials.openai_key, credentials.anthropic_key) = (Some(key.clone()), Some(key));
        }
        match config.select(&credentials) {
            Ok(JudgeChoice::Model(endpoint)) => Ok(endpoint),
            Ok(JudgeChoice::Offline { .. }) => Err(ModelOptionsError::NoModel),
            // The messages are about a judge, and an agent cannot be offline.
            Err(error) => {
                let reason = error.to_string().replace(", or use --judge offline", "").replace("--judge", "--model");
                Err(ModelOptionsError::Selection { reason })
            }
        }
    }

    /// Creates a client for up to `concurrency` calls at a time. While a local model server loads its model, it
    /// prints a notice.
    pub(super) fn client(
        &self,
        environment: &EnvironmentVariables,
        concurrency: usize,
    ) -> Result<ModelClient, ModelOptionsError> {
        let client = ModelClient::new(self.endpoint(environment)?, concurrency, RetryPolicy::default())
            .map_err(|error| ModelOptionsError::Client { reason: error.to_string() })?;
        Ok(client.with_load_notice(Arc::new(|waited| {
            print_diagnostic(&format!("waiting for the model server to load its model ({} s)", waited.as_secs()));
        })))
    }

    /// Returns the temperature to send; `None` sends none. Anthropic's newer models reject the parameter.
    pub(super) fn temperature(&self, provider: ModelProvider) -> Option<f64> {
        let given = self.temperature.map_or(Some(0.0), |given| given.0);
        given.filter(|_| provider == ModelProvider::OpenAi)
    }
}
