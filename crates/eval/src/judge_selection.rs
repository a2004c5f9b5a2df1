//! Selects the judge: from settings to a model endpoint. `gradus eval`, the benchmark and the server's live grading
//! share it, so the same settings mean the same everywhere.

use std::path::PathBuf;
use std::time::Duration;

use gradus_core::whitespace::collapse_whitespace;
use gradus_http::SecretString;
use gradus_llm::price::{ModelPrices, PriceError, PriceTable};
use gradus_llm::{LocalServer, ModelClient, ModelEndpoint, ModelProvider, ModelSetupError, RetryPolicy};

use crate::evaluator::OFFLINE_JUDGE;
use crate::judge::{JudgeSettings, ModelJudge};
use crate::learned_window::LearnedWindow;
use crate::prompt::PromptWindow;

/// Settings of the judge, merged from command line, environment and `gradus.toml` by the caller.
#[derive(Clone, Debug)]
pub struct JudgeConfig {
    /// `offline`, a model's name, `openai:MODEL` / `anthropic:MODEL`, or a model of a local server: `ollama:MODEL`,
    /// `llamacpp:MODEL`, `lmstudio:MODEL`, `vllm:MODEL`. It takes precedence over [`JudgeCredentials::openai_model`].
    pub judge: Option<String>,
    /// The judge if neither `judge` nor the environment names one, usually from `gradus.toml`.
    pub fallback_judge: Option<String>,
    /// The address of the endpoint. It takes precedence over the environment.
    pub base_url: Option<String>,
    /// The address of the provider or local server that `fallback_judge` names, by default OpenAI. It is not used for
    /// any other, because a key must not be sent to the wrong server.
    pub fallback_base_url: Option<String>,
    /// Maximum number of questions in flight. `None` for the default: 200, and fewer for local servers
    /// ([`LocalServer::default_concurrency`]).
    pub concurrency: Option<usize>,
    /// Maximum duration of one call, in seconds. `None` for the default: 120, and more for local servers
    /// ([`LocalServer::default_timeout`]).
    pub timeout_s: Option<f64>,
    /// How long to wait, in seconds, for a model server that is still loading its model; `None` for the default.
    pub load_wait_s: Option<f64>,
    /// Retries of a call after a transient failure; not counting the first attempt.
    pub retries: u32,
    /// How many times an unparseable answer is requested again.
    pub ask_again: u32,
    /// Maximum length of an answer, in tokens.
    pub max_tokens: u32,
    /// Context window of the model, in tokens: prompt and answer together.
    pub context_tokens: usize,
    /// `None` sends no temperature.
    pub temperature: Option<f64>,
    /// Requests plain text even from an endpoint that supports JSON schemas.
    pub is_plain_text: bool,
    /// Asks for the log-probabilities of an answer, from which the probability of its label is computed. Answers then
    /// have several times their size.
    pub wants_logprobs: bool,
    /// A TOML file of model prices, which take precedence over the built-in ones.
    pub prices: Option<PathBuf>,
}

/// Default limit of questions in flight, and default timeout of a call.
pub const DEFAULT_CONCURRENCY: usize = 200;
pub const DEFAULT_TIMEOUT: Duration = Duration::from_secs(120);
/// Most explanations of small models that come to an end are shorter.
const MAX_LOCAL_EXPLANATION_CHARS: u16 = 600;

impl Default for JudgeConfig {
    fn default() -> Self {
        JudgeConfig {
            judge: None,
            fallback_judge: None,
            base_url: None,
            fallback_base_url: None,
            concurrency: None,
            timeout_s: None,
            load_wait_s: None,
            retries: 4,
            ask_again: 2,
            max_tokens: 1024,
            context_tokens: 100_000,
            temperature: Some(0.0),
            is_plain_text: false,
            wants_logprobs: false,
            prices: None,
        }
    }
}

/// Keys and addresses of the providers, as found in the environment.
#[derive(Clone, Debug, Default)]
pub struct JudgeCredentials {
    pub openai_key: Option<SecretString>,
    pub openai_base_url: Option<String>,
    pub openai_model: Option<String>,
    pub anthropic_key: Option<SecretString>,
    pub anthropic_base_url: Option<String>,
}

/// The selected judge. `by_default` distinguishes an explicitly chosen offline judge from missing configuration,
/// which the caller reports.
#[derive(Debug)]
pub enum JudgeChoice {
    Offline { by_default: bool },
    Model(ModelEndpoint),
}

/// Why the settings of a judge cannot be used. Messages name the option of `gradus eval`; the server puts the name of
/// its rule in front.
#[derive(Debug, thiserror::Error)]
pub enum JudgeConfigError {
    #[error("--judge is empty: give `offline` or a model's name")]
    EmptyJudge,
    #[error(
        "--judge {0}: no model is named: give `{0}:MODEL`; `gradus judge list` lists the models that run here",
        server.name()
    )]
    NoLocalModel { server: LocalServer },
    #[error(
        "no key for {}: set {}, or name an endpoint that needs none with --base-url, or use --judge offline",
        provider.name(),
        key_variable(*provider)
    )]
    NoKey { provider: ModelProvider },
    #[error("--timeout: give a number of seconds above 0")]
    Timeout,
    #[error("--load-wait: give a number of seconds above 0")]
    LoadWait,
    #[error("--concurrency: give at least 1")]
    Concurrency,
    #[error(
        "--context-tokens {context_tokens}: a judge needs at least 2000, and twice the {max_tokens} tokens of an answer"
    )]
    ContextTokens { context_tokens: usize, max_tokens: u32 },
    #[error("the temperature must be from 0 to 2")]
    Temperature,
    #[error("{}: {source}", path.display())]
    PriceFile { path: PathBuf, source: std::io::Error },
    /// TOML errors span several lines; a message is one line.
    #[error("{}: {}", path.display(), collapse_whitespace(&source.to_string()))]
    Prices { path: PathBuf, source: PriceError },
    /// The client of the model endpoint could not be made: a bad address, a key that is no header value, or no TLS.
    #[error(transparent)]
    Client(#[from] ModelSetupError),
}

impl JudgeConfig {
    /// Decides who judges. In order of precedence: `judge`, the model that the environment names, `fallback_judge`, the
    /// first provider that has a key or an address, and the offline judge.
    pub fn select(&self, credentials: &JudgeCredentials) -> Result<JudgeChoice, JudgeConfigError> {
        let of_environment = credentials.openai_model.as_deref();
        let named = self.judge.as_deref().or(of_environment).or(self.fallback_judge.as_deref());
        let (provider, model) = match named {
            Some("") => return Err(JudgeConfigError::EmptyJudge),
            Some(OFFLINE_JUDGE) => return Ok(JudgeChoice::Offline { by_default: false }),
            Some(name) if let Some((server, model)) = split_local_name(name) => {
                return self.select_local(server, model);
            }
            Some(name) => match name.split_once(':') {
                Some(("openai", model)) => (ModelProvider::OpenAi, Some(model)),
                Some(("anthropic", model)) => (ModelProvider::Anthropic, Some(model)),
                _ if name == "openai" => (ModelProvider::OpenAi, of_environment),
                _ if name == "anthropic" => (ModelProvider::Anthropic, None),
                // A Claude model without a base URL is served by Anthropic. With a base URL it may be behind any
                // OpenAI-compatible gateway.
                _ if name.starts_with("claude")
                    && credentials.anthropic_key.is_some()
                    && credentials.openai_base_url.is_none()
                    && self.base_url.is_none() =>
                {
                    (ModelProvider::Anthropic, Some(name))
                }
                _ => (ModelProvider::OpenAi, Some(name)),
            },
            None if credentials.openai_key.is_some()
                || credentials.openai_base_url.is_some()
                || self.base_url.is_some()
                || self.fallback_base_url.is_some() =>
            {
                (ModelProvider::OpenAi, None)
            }
            None if credentials.anthropic_key.is_some() => (ModelProvider::Anthropic, None),
            None => return Ok(JudgeChoice::Offline { by_default: true }),
        };
        let (key, from_environment) = match provider {
            ModelProvider::OpenAi => (&credentials.openai_key, &credentials.openai_base_url),
            ModelProvider::Anthropic => (&credentials.anthropic_key, &credentials.anthropic_base_url),
        };
        let fallback = self.fallback_base_url.as_ref().filter(|_| provider.name() == self.fallback_prefix());
        let base_url = self.base_url.as_ref().or(from_environment.as_ref()).or(fallback);
        // An address may contain a password, which must not appear in any message from here on.
        base_url.into_iter().for_each(|url| gradus_http::register_url_secrets(url));
        if key.is_none() && base_url.is_none() {
            return Err(JudgeConfigError::NoKey { provider });
        }
        let timeout = self.checked_timeout(DEFAULT_TIMEOUT)?;
        Ok(JudgeChoice::Model(ModelEndpoint {
            provider,
            local_server: None,
            base_url: base_url.cloned().unwrap_or_else(|| provider.default_base_url().to_owned()),
            key: key.clone().unwrap_or_else(SecretString::default),
            model: model.unwrap_or(provider.default_model()).to_owned(),
            timeout,
        }))
    }

    /// A model of a local server. Keys and addresses of the environment belong to other servers, so none is used.
    fn select_local(&self, server: LocalServer, model: &str) -> Result<JudgeChoice, JudgeConfigError> {
        if model.trim().is_empty() {
            return Err(JudgeConfigError::NoLocalModel { server });
        }
        let fallback = self.fallback_base_url.as_ref().filter(|_| server.name() == self.fallback_prefix());
        let base_url = self.base_url.as_ref().or(fallback);
        base_url.into_iter().for_each(|url| gradus_http::register_url_secrets(url));
        Ok(JudgeChoice::Model(ModelEndpoint {
            provider: ModelProvider::OpenAi,
            local_server: Some(server),
            base_url: base_url.cloned().unwrap_or_else(|| server.default_base_url()),
            key: SecretString::default(),
            model: model.to_owned(),
            timeout: self.checked_timeout(server.default_timeout())?,
        }))
    }

    fn checked_timeout(&self, default: Duration) -> Result<Duration, JudgeConfigError> {
        let Some(seconds) = self.timeout_s else { return Ok(default) };
        timeout_from_seconds(seconds).ok_or(JudgeConfigError::Timeout)
    }

    /// The name of the provider or local server that `fallback_base_url` belongs to.
    fn fallback_prefix(&self) -> &'static str {
        let name = self.fallback_judge.as_deref().unwrap_or_default();
        match split_local_name(name) {
            Some((server, _)) => server.name(),
            None if name == "anthropic" || name.starts_with("anthropic:") => ModelProvider::Anthropic.name(),
            None => ModelProvider::OpenAi.name(),
        }
    }

    /// Validates `concurrency`; 0 would start no question and never finish.
    pub fn checked_concurrency(&self) -> Result<usize, JudgeConfigError> {
        match self.concurrency {
            Some(0) => Err(JudgeConfigError::Concurrency),
            number => Ok(number.unwrap_or(DEFAULT_CONCURRENCY)),
        }
    }

    /// Reads the prices of the user's file; empty without a file.
    pub fn read_prices(&self) -> Result<ModelPrices, JudgeConfigError> {
        let Some(path) = &self.prices else { return Ok(ModelPrices::new()) };
        let text = std::fs::read_to_string(path)
            .map_err(|source| JudgeConfigError::PriceFile { path: path.clone(), source })?;
        PriceTable::parse_toml(&text).map_err(|source| JudgeConfigError::Prices { path: path.clone(), source })
    }

    /// The built-in prices with those of the user's file.
    pub fn price_table(&self) -> Result<PriceTable, JudgeConfigError> {
        let mut prices = PriceTable::default();
        prices.add_prices(&self.read_prices()?);
        Ok(prices)
    }

    /// Builds the judge for an endpoint. All settings are validated here, before anything is read or asked.
    pub fn model_judge(&self, endpoint: &ModelEndpoint) -> Result<ModelJudge, JudgeConfigError> {
        let price = match endpoint.local_server {
            // A local model is not billed, even if it has the name of a hosted one.
            Some(_) => Some(self.read_prices()?.get(&endpoint.model).copied().unwrap_or_default()),
            None => self.price_table()?.find_price(&endpoint.model),
        };
        let mut retry = RetryPolicy { attempts: self.retries.saturating_add(1), ..RetryPolicy::default() };
        if let Some(wait) = self.load_wait_s {
            retry.max_load_wait = timeout_from_seconds(wait).ok_or(JudgeConfigError::LoadWait)?;
        }
        let few = endpoint.local_server.and_then(LocalServer::default_concurrency);
        let concurrency = match (self.concurrency, few) {
            (None, Some(few)) => few,
            _ => self.checked_concurrency()?,
        };
        let client = ModelClient::new(endpoint.clone(), concurrency, retry)?;
        let (context_tokens, max_tokens) = (self.context_tokens, self.max_tokens);
        if context_tokens < 2 * max_tokens as usize || context_tokens < 2_000 {
            return Err(JudgeConfigError::ContextTokens { context_tokens, max_tokens });
        }
        if self.temperature.is_some_and(|value| !(0.0..=2.0).contains(&value)) {
            return Err(JudgeConfigError::Temperature);
        }
        let settings = JudgeSettings {
            max_tokens,
            // Anthropic gets no temperature. A value that is not sent must not change the cache key.
            temperature: self.temperature.filter(|_| endpoint.provider == ModelProvider::OpenAi),
            structured: !self.is_plain_text,
            // Local servers generate by the schema; others refuse a limit of length in it.
            max_explanation_chars: endpoint.local_server.map(|_| MAX_LOCAL_EXPLANATION_CHARS),
            max_reasks: self.ask_again,
            // The answer needs its share of the context window.
            window: PromptWindow::from_tokens(context_tokens - max_tokens as usize),
            wants_logprobs: self.wants_logprobs,
        };
        Ok(ModelJudge { client, settings, price, learned_window: LearnedWindow::default() })
    }
}

/// Server and model of a judge that is named after a local server; the model is empty if none is named.
fn split_local_name(name: &str) -> Option<(LocalServer, &str)> {
    let (prefix, model) = name.split_once(':').unwrap_or((name, ""));
    LocalServer::from_name(prefix).map(|server| (server, model))
}

/// The environment variable that holds the provider's key.
pub fn key_variable(provider: ModelProvider) -> &'static str {
    match provider {
        ModelProvider::OpenAi => "OPENAI_API_KEY",
        ModelProvider::Anthropic => "ANTHROPIC_API_KEY",
    }
}

/// `None` for 0, negative numbers and NaN. Larger values are capped at three years, so that adding one to a clock
/// cannot overflow.
pub fn timeout_from_seconds(number: f64) -> Option<Duration> {
    const MAX_S: f64 = 1e8;
    Duration::try_from_secs_f64(number.min(MAX_S)).ok().filter(|time| !time.is_zero())
}
