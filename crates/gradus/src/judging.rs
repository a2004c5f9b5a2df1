//! Who judges, and by what: from options, environment and file to evaluators and a model that answers them. Shared by
//! `gradus eval` and by the server's live grading.

use std::path::{Path, PathBuf};
use std::time::Duration;

use clap::Args;
use gradus_eval::evaluator::{CALL_VALIDITY, Evaluator, OFFLINE};
use gradus_eval::judge::{JudgeSettings, ModelJudge};
use gradus_eval::prompt::PromptWindow;
use gradus_eval::rubric::{Library, Rubric};
use gradus_llm::price::PriceTable;
use gradus_llm::{Client, Endpoint, Provider, RetryPolicy, Secret};

use crate::config::{Environment, File};

/// How the judge is asked.
#[derive(Args, Clone, Debug)]
pub(crate) struct JudgeOptions {
    /// Who judges: `offline` (rules, no network), a model's name (`gpt-4o`), or `openai:MODEL` / `anthropic:MODEL`.
    /// Without it: `judge.name` of the settings file; OPENAI_MODEL, or gpt-4o, if OPENAI_API_KEY or OPENAI_BASE_URL is set;
    /// claude-sonnet-5-5 if ANTHROPIC_API_KEY is; else `offline`.
    #[arg(long, value_name = "JUDGE", help_heading = "Judge")]
    pub(crate) judge: Option<String>,
    /// The endpoint's address; else OPENAI_BASE_URL or ANTHROPIC_BASE_URL.
    #[arg(long, value_name = "URL", help_heading = "Judge")]
    pub(crate) base_url: Option<String>,
    /// Questions in flight at most; the endpoint's own limit is found below that [default: 200].
    #[arg(long, value_name = "N", help_heading = "Judge")]
    pub(crate) concurrency: Option<usize>,
    /// How long one call may take, in seconds [default: 120].
    #[arg(long, value_name = "SECONDS", help_heading = "Judge")]
    pub(crate) timeout: Option<f64>,
    /// How long to wait for a model server that is still loading its model, in seconds [default: 600].
    #[arg(long, value_name = "SECONDS", help_heading = "Judge")]
    pub(crate) load_wait: Option<f64>,
    /// How often a call that failed is tried again.
    #[arg(long, value_name = "N", default_value_t = 4, help_heading = "Judge")]
    pub(crate) retries: u32,
    /// How often an answer that cannot be read is asked for again.
    #[arg(long, value_name = "N", default_value_t = 2, help_heading = "Judge")]
    pub(crate) ask_again: u32,
    /// Length of an answer at most [default: 1024].
    #[arg(long, value_name = "TOKENS", help_heading = "Judge")]
    pub(crate) max_tokens: Option<u32>,
    /// The judge's context: what does not fit is shortened, and marked [default: 100000].
    #[arg(long, value_name = "TOKENS", help_heading = "Judge")]
    pub(crate) context_tokens: Option<usize>,
    /// The model's temperature; `none` sends none [default: 0]. Anthropic takes none.
    #[arg(long, value_name = "T", value_parser = temperature, help_heading = "Judge")]
    pub(crate) temperature: Option<Temperature>,
    /// Ask for plain text, even if the endpoint could answer in JSON.
    #[arg(long, help_heading = "Judge")]
    pub(crate) text_answers: bool,
    /// Prices of models (TOML: `["model"]`, input, output, cached_input in dollars for a million tokens); they win over
    /// those that are built in.
    #[arg(long, value_name = "FILE", help_heading = "Judge")]
    pub(crate) prices: Option<PathBuf>,
}

impl Default for JudgeOptions {
    /// As the command line has it when nothing is said.
    fn default() -> Self {
        JudgeOptions {
            judge: None,
            base_url: None,
            concurrency: None,
            timeout: None,
            load_wait: None,
            retries: 4,
            ask_again: 2,
            max_tokens: None,
            context_tokens: None,
            temperature: None,
            text_answers: false,
            prices: None,
        }
    }
}

#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Temperature(pub(crate) Option<f64>);

pub(crate) fn temperature(text: &str) -> Result<Temperature, String> {
    if text == "none" {
        return Ok(Temperature(None));
    }
    match text.parse::<f64>() {
        Ok(value) if (0.0..=2.0).contains(&value) => Ok(Temperature(Some(value))),
        _ => Err("a number from 0 to 2, or none".to_owned()),
    }
}

/// The rubrics of this call.
pub(crate) fn library(paths: &[PathBuf], file: &File) -> Result<Library, String> {
    let mut library = Library::built_in();
    for path in file.eval.rubrics.iter().chain(paths) {
        library.add_path(path).map_err(|error| error.to_string())?;
    }
    Ok(library)
}

/// Who is to judge.
pub(crate) enum JudgeChoice {
    Offline { by_default: bool },
    Model(Endpoint),
}

impl JudgeChoice {
    pub(crate) fn of(
        options: &JudgeOptions,
        environment: &Environment,
        file: &File,
    ) -> Result<JudgeChoice, String> {
        let of_environment = environment.openai_model.as_deref();
        let named = options.judge.as_deref().or(of_environment).or(file.judge.name.as_deref());
        let (provider, model) = match named {
            Some("") => return Err("--judge is empty: give `offline` or a model's name".to_owned()),
            Some(OFFLINE) => return Ok(JudgeChoice::Offline { by_default: false }),
            Some(name) => match name.split_once(':') {
                Some(("openai", model)) => (Provider::OpenAi, Some(model)),
                Some(("anthropic", model)) => (Provider::Anthropic, Some(model)),
                _ if name == "openai" => (Provider::OpenAi, of_environment),
                _ if name == "anthropic" => (Provider::Anthropic, None),
                // Without an endpoint of its own, Claude is at home at Anthropic.
                _ if name.starts_with("claude")
                    && environment.anthropic_key.is_some()
                    && environment.openai_base_url.is_none()
                    && options.base_url.is_none() =>
                {
                    (Provider::Anthropic, Some(name))
                }
                _ => (Provider::OpenAi, Some(name)),
            },
            None if environment.openai_key.is_some()
                || environment.openai_base_url.is_some()
                || options.base_url.is_some()
                || file.judge.base_url.is_some() =>
            {
                (Provider::OpenAi, None)
            }
            None if environment.anthropic_key.is_some() => (Provider::Anthropic, None),
            None => return Ok(JudgeChoice::Offline { by_default: true }),
        };
        let (key, from_environment) = match provider {
            Provider::OpenAi => (&environment.openai_key, &environment.openai_base_url),
            Provider::Anthropic => (&environment.anthropic_key, &environment.anthropic_base_url),
        };
        // The file's address is for the provider that the file names, OpenAI's form if it names none.
        let of_file = file.judge.base_url.as_ref().filter(|_| provider == provider_of_file(file));
        let base_url = options.base_url.as_ref().or(from_environment.as_ref()).or(of_file);
        // What is said about an address must not say its password.
        base_url.into_iter().for_each(|url| gradus_llm::register_url_secrets(url));
        if key.is_none() && base_url.is_none() {
            let variable = key_variable(provider);
            return Err(format!(
                "no key for {}: set {variable}, or name an endpoint that needs none with --base-url, or use --judge offline",
                provider.name()
            ));
        }
        let timeout = options.timeout.or(file.judge.timeout_s).unwrap_or(120.0);
        let timeout = seconds(timeout).ok_or("--timeout: give a number of seconds above 0")?;
        Ok(JudgeChoice::Model(Endpoint {
            provider,
            base_url: base_url.cloned().unwrap_or_else(|| provider.default_base_url().to_owned()),
            key: key.clone().unwrap_or_else(Secret::default),
            model: model.unwrap_or(provider.default_model()).to_owned(),
            timeout,
        }))
    }
}

fn provider_of_file(file: &File) -> Provider {
    match file.judge.name.as_deref() {
        Some(name) if name == "anthropic" || name.starts_with("anthropic:") => Provider::Anthropic,
        _ => Provider::OpenAi,
    }
}

/// The variable that holds a provider's key.
pub(crate) fn key_variable(provider: Provider) -> &'static str {
    match provider {
        Provider::OpenAi => "OPENAI_API_KEY",
        Provider::Anthropic => "ANTHROPIC_API_KEY",
    }
}

pub(crate) fn concurrency(options: &JudgeOptions, file: &File) -> Result<usize, String> {
    match options.concurrency.or(file.judge.concurrency).unwrap_or(200) {
        0 => Err("--concurrency: give at least 1".to_owned()),
        number => Ok(number),
    }
}

pub(crate) fn model_judge(
    endpoint: &Endpoint,
    options: &JudgeOptions,
    file: &File,
) -> Result<ModelJudge, String> {
    let mut prices = PriceTable::default();
    if let Some(path) = options.prices.as_ref().or(file.eval.prices.as_ref()) {
        let text = read_text(path)?;
        prices.add(&text).map_err(|error| format!("{}: {}", path.display(), one_line(&error.to_string())))?;
    }
    let mut retry = RetryPolicy { attempts: options.retries.saturating_add(1), ..RetryPolicy::default() };
    if let Some(wait) = options.load_wait.or(file.judge.load_wait_s) {
        retry.max_load_wait = seconds(wait).ok_or("--load-wait: give a number of seconds above 0")?;
    }
    let client = Client::new(endpoint.clone(), concurrency(options, file)?, retry)?;
    let context_tokens = options.context_tokens.or(file.judge.context_tokens).unwrap_or(100_000);
    let max_tokens = options.max_tokens.or(file.judge.max_tokens).unwrap_or(1024);
    if context_tokens < 2 * max_tokens as usize || context_tokens < 2_000 {
        return Err(format!(
            "--context-tokens {context_tokens}: a judge needs at least 2000, and twice the {max_tokens} tokens of an answer"
        ));
    }
    let temperature = match options.temperature {
        Some(given) => given.0,
        None => Some(file.judge.temperature.unwrap_or(0.0)),
    };
    if temperature.is_some_and(|value| !(0.0..=2.0).contains(&value)) {
        return Err("the temperature must be from 0 to 2".to_owned());
    }
    // Anthropic takes none; a number that is not sent must not make questions differ.
    let temperature = temperature.filter(|_| endpoint.provider == Provider::OpenAi);
    let settings = JudgeSettings {
        max_tokens,
        temperature,
        structured: !options.text_answers,
        asks_again: options.ask_again,
        window: PromptWindow::of_tokens(context_tokens - max_tokens as usize),
    };
    let price = prices.find(&endpoint.model);
    Ok(ModelJudge { client, settings, price })
}

/// The names of all evaluations that there are.
pub(crate) fn known_evaluators(library: &Library) -> Vec<&str> {
    library.iter().map(|rubric| rubric.name.as_str()).chain([CALL_VALIDITY]).collect()
}

/// Those of these names, or all. Of all, what a judge cannot judge is left out, unless that is `is_strict`.
pub(crate) fn evaluators(
    library: &Library,
    names: &[String],
    judge: Option<&ModelJudge>,
    structured: bool,
    is_strict: bool,
) -> Result<Vec<Evaluator>, String> {
    let known = known_evaluators(library);
    if let Some(unknown) = names.iter().find(|name| !known.contains(&name.as_str())) {
        return Err(format!("there is no evaluation {unknown:?}; there are {}", known.join(", ")));
    }
    let wanted = |name: &str| names.is_empty() || names.iter().any(|named| named == name);
    let mut evaluators = Vec::new();
    for rubric in library.iter().filter(|rubric| wanted(&rubric.name)) {
        match evaluator(rubric, judge, structured) {
            Ok(evaluator) => evaluators.push(evaluator),
            // Nobody asked for it by name: it waits for a model.
            Err(_) if names.is_empty() && !is_strict => {}
            Err(reason) => return Err(reason),
        }
    }
    if wanted(CALL_VALIDITY) {
        evaluators.push(Evaluator::call_validity());
    }
    Ok(evaluators)
}

fn evaluator(rubric: &Rubric, judge: Option<&ModelJudge>, structured: bool) -> Result<Evaluator, String> {
    match judge {
        Some(judge) => Ok(Evaluator::model(rubric, &judge.name(), structured)),
        None => Evaluator::offline(rubric).ok_or_else(|| {
            format!(
                "the offline judge has no rules for {:?}: choose a model as the judge, or name evaluators without it",
                rubric.name
            )
        }),
    }
}

pub(crate) fn seconds(number: f64) -> Option<Duration> {
    const MAX_S: f64 = 1e8;
    Duration::try_from_secs_f64(number.min(MAX_S)).ok().filter(|time| !time.is_zero())
}

fn read_text(path: &Path) -> Result<String, String> {
    std::fs::read_to_string(path).map_err(|error| format!("{}: {error}", path.display()))
}

fn one_line(text: &str) -> String {
    text.split_whitespace().collect::<Vec<_>>().join(" ")
}
