//! The options about the judge: the same for `eval`, `bench` and `demo`.

use std::path::PathBuf;

use clap::Args;
use gradus_eval::evaluator::OFFLINE_JUDGE;
use gradus_eval::judge_selection::JudgeConfig;

use crate::config::ConfigFile;

/// The temperature of repeats. High enough that doubt shows, low enough that answers make sense.
const REPEAT_TEMPERATURE: f64 = 0.7;

/// How the judge is asked.
#[derive(Args, Clone, Debug)]
pub(super) struct JudgeOptions {
    /// Who judges: `offline` (rules, no network), a model's name (`gpt-4o`), `openai:MODEL` / `anthropic:MODEL`, or a
    /// model on this machine: `ollama:MODEL`, `llamacpp:MODEL`, `lmstudio:MODEL`, `vllm:MODEL` (`gradus judge list`).
    /// Without it: `judge.name` of the settings file; OPENAI_MODEL, or gpt-4o, if OPENAI_API_KEY or OPENAI_BASE_URL is
    /// set; claude-sonnet-5-5 if ANTHROPIC_API_KEY is; else `offline`. Several judges are a panel: each question is asked
    /// of all, and the most votes decide.
    #[arg(long, value_name = "JUDGE", help_heading = "Judge")]
    pub(super) judge: Vec<String>,
    /// How often each judge is asked each question; the most votes decide [default: 1].
    #[arg(long, value_name = "K", help_heading = "Judge")]
    pub(super) repeats: Option<u32>,
    /// A better judge, for questions where the first one is unsure.
    #[arg(long, value_name = "JUDGE", help_heading = "Judge")]
    pub(super) escalate_to: Option<String>,
    /// The first judge is unsure of a label that it finds less probable than this. It is asked for log-probabilities;
    /// where the endpoint gives none, it is asked three times, and unsure if its answers differ.
    #[arg(long, value_name = "P", default_value_t = 0.9, requires = "escalate_to", help_heading = "Judge")]
    pub(super) escalate_below: f64,
    /// Escalate this share of the other questions, too, to measure how often the first judge errs.
    #[arg(long, value_name = "SHARE", default_value_t = 0.05, requires = "escalate_to", help_heading = "Judge")]
    pub(super) audit: f64,
    #[command(flatten)]
    pub(super) call: JudgeCallOptions,
}

/// How a judge is asked, whoever it is: the same for all commands that ask one.
#[derive(Args, Clone, Debug)]
pub(super) struct JudgeCallOptions {
    /// The endpoint's address; else OPENAI_BASE_URL or ANTHROPIC_BASE_URL.
    #[arg(long, value_name = "URL", help_heading = "Judge")]
    pub(super) base_url: Option<String>,
    /// Questions in flight at most; the endpoint's own limit is found below that [default: 200; 4 for
    /// local servers but vLLM].
    #[arg(long, value_name = "N", help_heading = "Judge")]
    pub(super) concurrency: Option<usize>,
    /// How long one call may take, in seconds [default: 120; 600 for local servers].
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
    /// The model's temperature; `none` sends none [default: 0; 0.7 for repeated votes of `eval`]. Anthropic takes none.
    #[arg(long, value_name = "T", value_parser = temperature, help_heading = "Judge")]
    pub(super) temperature: Option<ModelTemperature>,
    /// Ask for plain text, even if the endpoint could answer in JSON.
    #[arg(long, help_heading = "Judge")]
    pub(super) text_answers: bool,
    /// Ask for log-probabilities and keep how probable each label was, where the endpoint gives them.
    #[arg(long, help_heading = "Judge")]
    pub(super) logprobs: bool,
    /// Prices of models (TOML: `["model"]`, input, output, cached_input in dollars for a million tokens); they win over
    /// those that are built in.
    #[arg(long, value_name = "FILE", help_heading = "Judge")]
    pub(super) prices: Option<PathBuf>,
}

/// A temperature as given on the command line; `None` is the word `none`, for models that reject the parameter. An
/// absent option is `Option::None` around it and means the default.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct ModelTemperature(pub(super) Option<f64>);

/// Parses a temperature for clap, which prints the error after the name of the option.
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
    /// Sets the judge to `offline` without `--judge`, whatever keys are set.
    pub(super) fn judge_offline_by_default(&mut self) {
        if self.judge.is_empty() {
            self.judge.push(OFFLINE_JUDGE.to_owned());
        }
    }

    /// Whether the options say that only rules judge.
    pub(super) fn asks_no_model(&self) -> bool {
        !self.judge.is_empty() && self.judge.iter().all(|judge| judge == OFFLINE_JUDGE) && self.escalate_to.is_none()
    }

    /// Whether one judge may be asked one question several times.
    fn is_repeated(&self) -> bool {
        match self.repeats {
            Some(repeats) => repeats > 1,
            None => self.escalate_to.is_some() && self.judge.len() <= 1,
        }
    }

    /// Returns the settings of the first judge: options, then `[judge]` of the file.
    pub(super) fn judge_config(&self, file: &ConfigFile) -> JudgeConfig {
        // Log-probabilities show doubt in one answer; without them it takes several.
        let wants_logprobs = self.call.logprobs || self.escalate_to.is_some();
        JudgeConfig {
            wants_logprobs,
            ..self.call.judge_config(self.judge.first().map(String::as_str), file, self.is_repeated())
        }
    }

    /// Returns the same for the judge of `--escalate-to`, which is asked once.
    pub(super) fn escalation_config(&self, file: &ConfigFile) -> JudgeConfig {
        self.call.judge_config(self.escalate_to.as_deref(), file, false)
    }
}

impl JudgeCallOptions {
    /// Merges the options with `[judge]` of the file; options win. The judge's name and address stay apart from those
    /// of the file, because the environment ranks between them. `judge` is `None` without `--judge`.
    pub(super) fn judge_config(&self, judge: Option<&str>, file: &ConfigFile, is_repeated: bool) -> JudgeConfig {
        let of_file = file.judge_config();
        JudgeConfig {
            judge: judge.map(str::to_owned),
            base_url: self.base_url.clone(),
            concurrency: self.concurrency.or(of_file.concurrency),
            timeout_s: self.timeout.or(of_file.timeout_s),
            load_wait_s: self.load_wait.or(of_file.load_wait_s),
            retries: self.retries,
            ask_again: self.ask_again,
            max_tokens: self.max_tokens.unwrap_or(of_file.max_tokens),
            context_tokens: self.context_tokens.unwrap_or(of_file.context_tokens),
            temperature: match self.temperature {
                Some(given) => given.0,
                // At temperature 0 most endpoints repeat themselves, and repeats would show nothing.
                None if is_repeated && file.judge.temperature.is_none() => Some(REPEAT_TEMPERATURE),
                None => of_file.temperature,
            },
            is_plain_text: self.text_answers,
            wants_logprobs: self.logprobs,
            prices: self.prices.clone().or(of_file.prices),
            fallback_judge: of_file.fallback_judge,
            fallback_base_url: of_file.fallback_base_url,
        }
    }
}
