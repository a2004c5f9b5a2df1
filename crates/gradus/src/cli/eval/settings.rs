//! From arguments, environment and file to what a run needs. Everything that can be wrong is found here, before
//! anything is read or asked.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use gradus_core::trajectory::ToolDefinition;
use gradus_eval::evaluator::{CALL_VALIDITY, Evaluator, OFFLINE};
use gradus_eval::judge::{JudgeSettings, ModelJudge};
use gradus_eval::prompt::{PromptWindow, ToolTexts};
use gradus_eval::report::Gate;
use gradus_eval::rubric::{Library, Rubric};
use gradus_eval::runner::RunLimits;
use gradus_llm::price::PriceTable;
use gradus_llm::{Client, Endpoint, Provider, RetryPolicy, Secret};

use super::arguments::Arguments;
use crate::config::{Environment, File};
use crate::tool_file;

pub(super) struct Settings {
    pub(super) evaluators: Vec<Evaluator>,
    pub(super) judge: Option<Arc<ModelJudge>>,
    /// Whether `offline` was chosen because nothing else could be.
    pub(super) offline_by_default: bool,
    pub(super) given_tools: Vec<ToolDefinition>,
    pub(super) tool_notes: BTreeMap<String, String>,
    pub(super) limits: RunLimits,
    pub(super) gates: Vec<Gate>,
    pub(super) state_dir: PathBuf,
}

impl Settings {
    pub(super) fn read(arguments: &Arguments) -> Result<Settings, String> {
        let environment = Environment::read();
        let file = File::read(arguments.config.as_deref().or(environment.config.as_deref()))?;
        let choice = JudgeChoice::of(arguments, &environment, &file)?;
        let judge = match &choice {
            JudgeChoice::Offline { .. } => None,
            JudgeChoice::Model(endpoint) => Some(Arc::new(model_judge(endpoint, arguments, &file)?)),
        };
        if arguments.sample == Some(0) {
            return Err("--sample: give at least 1".to_owned());
        }
        let library = library(&arguments.rubrics, &file)?;
        let names = if arguments.evaluators.is_empty() {
            file.eval.evaluators.clone().unwrap_or_default()
        } else {
            arguments.evaluators.clone()
        };
        let evaluators = evaluators(&library, &names, judge.as_deref(), !arguments.text_answers)?;
        let gates = gates(arguments, &file, &evaluators)?;
        let tools = arguments.tools.as_ref().or(file.eval.tools.as_ref());
        let notes = arguments.tool_notes.as_ref().or(file.eval.tool_notes.as_ref());
        let state_dir =
            arguments.state_dir.clone().or(environment.state_dir).or_else(|| file.state_dir.clone());
        Ok(Settings {
            evaluators,
            offline_by_default: matches!(choice, JudgeChoice::Offline { by_default: true }),
            given_tools: tools.map(|path| tool_file::read_tools(path)).transpose()?.unwrap_or_default(),
            tool_notes: notes.map(|path| tool_file::read_notes(path)).transpose()?.unwrap_or_default(),
            limits: limits(arguments, judge.as_deref(), concurrency(arguments, &file)?)?,
            judge,
            gates,
            state_dir: state_dir.unwrap_or_else(|| PathBuf::from(".gradus")),
        })
    }

    pub(super) fn judge_name(&self) -> String {
        self.judge.as_ref().map_or_else(|| OFFLINE.to_owned(), |judge| judge.name())
    }

    pub(super) fn tool_texts(&self) -> ToolTexts {
        ToolTexts::new(self.given_tools.clone(), self.tool_notes.clone())
    }
}

/// The rubrics of this call.
pub(in crate::cli) fn library(paths: &[PathBuf], file: &File) -> Result<Library, String> {
    let mut library = Library::built_in();
    for path in file.eval.rubrics.iter().chain(paths) {
        library.add_path(path).map_err(|error| error.to_string())?;
    }
    Ok(library)
}

enum JudgeChoice {
    Offline { by_default: bool },
    Model(Endpoint),
}

impl JudgeChoice {
    fn of(arguments: &Arguments, environment: &Environment, file: &File) -> Result<JudgeChoice, String> {
        let of_environment = environment.openai_model.as_deref();
        let named = arguments.judge.as_deref().or(of_environment).or(file.judge.name.as_deref());
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
                    && arguments.base_url.is_none() =>
                {
                    (Provider::Anthropic, Some(name))
                }
                _ => (Provider::OpenAi, Some(name)),
            },
            None if environment.openai_key.is_some()
                || environment.openai_base_url.is_some()
                || arguments.base_url.is_some()
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
        let by_user = arguments.base_url.as_ref().or(from_environment.as_ref());
        let base_url = by_user.or(of_file);
        if let (None, Some(url), Some(_)) = (by_user, of_file, key)
            && file.is_found
            && !is_own_or_local(url, provider)
        {
            // A folder from elsewhere must not be able to send for the user's key.
            return Err(format!(
                "gradus.toml names the endpoint {url:?}, and {} would be sent there: say --base-url {url} or --config gradus.toml if that is right",
                key_variable(provider)
            ));
        }
        if key.is_none() && base_url.is_none() {
            let variable = key_variable(provider);
            return Err(format!(
                "no key for {}: set {variable}, or name an endpoint that needs none with --base-url, or use --judge offline",
                provider.name()
            ));
        }
        let timeout = arguments.timeout.or(file.judge.timeout_s).unwrap_or(120.0);
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

/// Whether an address is the provider's own, or on this machine.
fn is_own_or_local(url: &str, provider: Provider) -> bool {
    let host = |url: &str| {
        let rest = url.split_once("://").map_or(url, |(_, rest)| rest);
        let authority = rest.split(['/', '?', '#']).next().unwrap_or_default();
        let host = authority.rsplit('@').next().unwrap_or_default();
        host.rsplit_once(':').map_or(host, |(host, _)| host).to_ascii_lowercase()
    };
    let found = host(url);
    found == host(provider.default_base_url())
        || matches!(found.as_str(), "localhost" | "127.0.0.1" | "[::1]")
}

/// The variable that holds a provider's key.
pub(super) fn key_variable(provider: Provider) -> &'static str {
    match provider {
        Provider::OpenAi => "OPENAI_API_KEY",
        Provider::Anthropic => "ANTHROPIC_API_KEY",
    }
}

fn concurrency(arguments: &Arguments, file: &File) -> Result<usize, String> {
    match arguments.concurrency.or(file.judge.concurrency).unwrap_or(200) {
        0 => Err("--concurrency: give at least 1".to_owned()),
        number => Ok(number),
    }
}

fn model_judge(endpoint: &Endpoint, arguments: &Arguments, file: &File) -> Result<ModelJudge, String> {
    let mut prices = PriceTable::default();
    if let Some(path) = arguments.prices.as_ref().or(file.eval.prices.as_ref()) {
        let text = read_text(path)?;
        prices.add(&text).map_err(|error| format!("{}: {}", path.display(), one_line(&error.to_string())))?;
    }
    let retry = RetryPolicy { attempts: arguments.retries.saturating_add(1), ..RetryPolicy::default() };
    let client = Client::new(endpoint.clone(), concurrency(arguments, file)?, retry)?;
    let context_tokens = arguments.context_tokens.or(file.judge.context_tokens).unwrap_or(100_000);
    let max_tokens = arguments.max_tokens.or(file.judge.max_tokens).unwrap_or(1024);
    if context_tokens < 2 * max_tokens as usize || context_tokens < 2_000 {
        return Err(format!(
            "--context-tokens {context_tokens}: a judge needs at least 2000, and twice the {max_tokens} tokens of an answer"
        ));
    }
    let temperature = match arguments.temperature {
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
        structured: !arguments.text_answers,
        asks_again: arguments.ask_again,
        window: PromptWindow::of_tokens(context_tokens - max_tokens as usize),
    };
    let price = prices.find(&endpoint.model);
    Ok(ModelJudge { client: client.with_max_calls(arguments.max_calls), settings, price })
}

fn evaluators(
    library: &Library,
    names: &[String],
    judge: Option<&ModelJudge>,
    structured: bool,
) -> Result<Vec<Evaluator>, String> {
    let known: Vec<&str> = library.iter().map(|rubric| rubric.name.as_str()).chain([CALL_VALIDITY]).collect();
    if let Some(unknown) = names.iter().find(|name| !known.contains(&name.as_str())) {
        return Err(format!("there is no evaluation {unknown:?}; there are {}", known.join(", ")));
    }
    let wanted = |name: &str| names.is_empty() || names.iter().any(|named| named == name);
    let mut evaluators = Vec::new();
    for rubric in library.iter().filter(|rubric| wanted(&rubric.name)) {
        evaluators.push(evaluator(rubric, judge, structured)?);
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
                "the offline judge has no rules for {:?}: name a model with --judge, or leave it out with --evaluators",
                rubric.name
            )
        }),
    }
}

fn gates(arguments: &Arguments, file: &File, evaluators: &[Evaluator]) -> Result<Vec<Gate>, String> {
    let names: Vec<&str> = evaluators.iter().map(|evaluator| &*evaluator.name).collect();
    let given = if arguments.outputs.gate.is_empty() { &file.eval.gates } else { &arguments.outputs.gate };
    given.iter().map(|text| Gate::parse(text, &names).map_err(|error| error.to_string())).collect()
}

fn limits(
    arguments: &Arguments,
    judge: Option<&ModelJudge>,
    concurrency: usize,
) -> Result<RunLimits, String> {
    if let Some(cost) = arguments.max_cost {
        if !cost.is_finite() || cost < 0.0 {
            return Err("--max-cost: give an amount of dollars".to_owned());
        }
        if let Some(judge) = judge.filter(|judge| judge.price.is_none()) {
            let model = &judge.client.endpoint().model;
            return Err(format!(
                "--max-cost: the price of {model:?} is not known; give it with --prices FILE ([\"{model}\"] input = ..., output = ...)"
            ));
        }
    }
    let max_time = match arguments.max_time {
        Some(time) => Some(seconds(time).ok_or("--max-time: give a number of seconds above 0")?),
        None => None,
    };
    Ok(RunLimits { concurrency, max_calls: arguments.max_calls, max_cost_usd: arguments.max_cost, max_time })
}

fn seconds(number: f64) -> Option<Duration> {
    const LONGEST_S: f64 = 1e8;
    Duration::try_from_secs_f64(number.min(LONGEST_S)).ok().filter(|time| !time.is_zero())
}

fn read_text(path: &Path) -> Result<String, String> {
    std::fs::read_to_string(path).map_err(|error| format!("{}: {error}", path.display()))
}

fn one_line(text: &str) -> String {
    text.split_whitespace().collect::<Vec<_>>().join(" ")
}
