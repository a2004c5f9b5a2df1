//! The options about the judge: the same for `eval`, `bench` and `demo`.

use std::path::PathBuf;

use clap::Args;
use gradus_eval::judge_selection::JudgeConfig;

use crate::config::ConfigFile;

/// How the judge is asked.
#[derive(Args, Clone, Debug)]
pub(super) struct JudgeOptions {
    /// Who judges: `offline` (rules, no network), a model's name (`gpt-4o`), or `openai:MODEL` / `anthropic:MODEL`.
    /// Without it: `judge.name` of the settings file; OPENAI_MODEL, or gpt-4o, if OPENAI_API_KEY or OPENAI_BASE_URL is
    /// set; claude-sonnet-5-5 if ANTHROPIC_API_KEY is; else `offline`.
    #[arg(long, value_name = "JUDGE", help_heading = "Judge")]
    pub(super) judge: Option<String>,
    /// The endpoint's address; else OPENAI_BASE_URL or ANTHROPIC_BASE_URL.
    #[arg(long, value_name = "URL", help_heading = "Judge")]
    pub(super) base_url: Option<String>,
    /// Questions in flight at most; the endpoint's own limit is found below that [default: 200].
    #[arg(long, value_name = "N", help_heading = "Judge")]
    pub(super) concurrency: Option<usize>,
    /// How long one call may take, in seconds [default: 120].
    #[arg(long, value_name = "SECONDS", help_heading = "Judge")]
    pub(super) timeout: Option<f64>,
    /// How long to wait for a model server that is still loading its model, in seconds [default: 600].
    #[arg(long, value_name = "SECONDS", help_heading = "Judge")]
    pub(super) load_wait: Option<f64>,
    /// How often a call that failed is tried again.
    #[arg(long, value_name = "N", default_value_t = 4, help_heading = "Judge")]
    pub(super) retries: u32,
    /// How often an answer that cannot be read is asked for again.
    #[arg(long, value_name = "N", default_value_t = 2, help_heading = "Judge")]
    pub(super) ask_again: u32,
    /// Length of an answer at most [default: 1024].
    #[arg(long, value_name = "TOKENS", help_heading = "Judge")]
    pub(super) max_tokens: Option<u32>,
    /// The judge's context: what does not fit is shortened, and marked [default: 100000].
    #[arg(long, value_name = "TOKENS", help_heading = "Judge")]
    pub(super) context_tokens: Option<usize>,
    /// The model's temperature; `none` sends none [default: 0]. Anthropic takes none.
    #[arg(long, value_name = "T", value_parser = temperature, help_heading = "Judge")]
    pub(super) temperature: Option<ModelTemperature>,
    /// Ask for plain text, even if the endpoint could answer in JSON.
    #[arg(long, help_heading = "Judge")]
    pub(super) text_answers: bool,
    /// Prices of models (TOML: `["model"]`, input, output, cached_input in dollars for a million tokens); they win over
    /// those that are built in.
    #[arg(long, value_name = "FILE", help_heading = "Judge")]
    pub(super) prices: Option<PathBuf>,
}

/// A temperature as given on the command line; `None` is the word `none`, for models that reject the parameter. An
/// absent option is `Option::None` around it and means the default.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct ModelTemperature(pub(super) Option<f64>);

/// A clap value parser, which prints its error after the name of the option.
pub(super) fn temperature(text: &str) -> Result<ModelTemperature, String> {
    if text == "none" {
        return Ok(ModelTemperature(None));
    }
    match text.parse::<f64>() {
        Ok(value) if (0.0..=2.0).contains(&value) => Ok(ModelTemperature(Some(value))),
        _ => Err("a number from 0 to 2, or none".to_owned()),
    }
}

impl JudgeOptions {
    /// Merges the options with `[judge]` of the file; options win. The judge's name and address stay apart from those
    /// of the file, because the environment ranks between them.
    pub(super) fn judge_config(&self, file: &ConfigFile) -> JudgeConfig {
        let of_file = file.judge_config();
        JudgeConfig {
            judge: self.judge.clone(),
            base_url: self.base_url.clone(),
            concurrency: self.concurrency.unwrap_or(of_file.concurrency),
            timeout_s: self.timeout.unwrap_or(of_file.timeout_s),
            load_wait_s: self.load_wait.or(of_file.load_wait_s),
            retries: self.retries,
            ask_again: self.ask_again,
            max_tokens: self.max_tokens.unwrap_or(of_file.max_tokens),
            context_tokens: self.context_tokens.unwrap_or(of_file.context_tokens),
            temperature: self.temperature.map_or(of_file.temperature, |given| given.0),
            is_plain_text: self.text_answers,
            prices: self.prices.clone().or(of_file.prices),
            fallback_judge: of_file.fallback_judge,
            fallback_base_url: of_file.fallback_base_url,
        }
    }
}
