//! The tables of `gradus.toml`. The reference page and `gradus config show` are made from these types: a documentation
//! comment is the meaning of a key, and the `x-` attributes are described in the server's `serve_section`.

use std::collections::BTreeMap;
use std::path::PathBuf;

use gradus_eval::annotation::{AnnotationNamePreset, TrajectoryTarget};
use gradus_eval::judge_selection::{self, JudgeConfig};
use gradus_llm::{LocalServer, RetryPolicy};
use gradus_phoenix::client::{DEFAULT_RETRY_TIME, DEFAULT_TIMEOUT};
use gradus_server::alert::AlertSection;
use gradus_server::{RuleSection, ServeSection};
use schemars::JsonSchema;
use serde::Deserialize;

/// The state folder if nothing names another one.
pub(crate) const DEFAULT_STATE_DIR: &str = ".gradus";
/// The set of evaluators if none are named.
const DEFAULT_EVALUATORS: [&str; 1] = [gradus_eval::evaluator_selection::CORE_SET];

/// The contents of `gradus.toml`; without a file, all fields have their defaults.
// Unknown keys are errors, so that a misspelled setting does not silently fall back to its default. Each section is
// also classified in `consent`.
#[derive(Debug, Default, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct ConfigFile {
    /// The file that was read; `None` when there is no file.
    #[serde(skip)]
    pub(crate) path: Option<PathBuf>,
    /// Folder of runs, verdict cache and store.
    #[schemars(extend(
        "x-type" = "path",
        "x-default" = DEFAULT_STATE_DIR,
        "x-option" = "--state-dir, --data",
        "x-trust" = "outside the folder"
    ))]
    pub(crate) state_dir: Option<PathBuf>,
    #[serde(default)]
    pub(crate) judge: JudgeSection,
    #[serde(default)]
    pub(crate) eval: EvalSection,
    #[serde(default)]
    pub(crate) phoenix: PhoenixSection,
    #[serde(default)]
    pub(crate) serve: ServeSection,
    #[serde(default)]
    pub(crate) rule: Vec<RuleSection>,
    #[serde(default)]
    pub(crate) alert: Vec<AlertSection>,
}

/// Who judges, and how. All keys but `name` apply to the rules of `gradus serve` as well.
#[derive(Debug, Default, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct JudgeSection {
    /// The judge: `offline`, a model, or a model of a local server.
    #[schemars(extend(
        "x-default-text" = "see [gradus eval](eval.md#judge)",
        "x-option" = "--judge",
        "x-trust" = "unless `offline`"
    ))]
    pub(crate) name: Option<String>,
    /// Address of the provider or local server that `name` names, otherwise of an OpenAI-compatible endpoint.
    #[schemars(extend(
        "x-type" = "URL",
        "x-default-text" = "of the provider",
        "x-option" = "--base-url",
        "x-trust" = "yes"
    ))]
    pub(crate) base_url: Option<String>,
    /// Questions in flight at most.
    #[schemars(extend("x-default-text" = concurrency_text(), "x-option" = "--concurrency"))]
    pub(crate) concurrency: Option<usize>,
    /// Timeout of one call, in seconds.
    #[schemars(extend("x-default-text" = timeout_text(), "x-option" = "--timeout"))]
    pub(crate) timeout_s: Option<f64>,
    /// How long to wait for a model server that is still loading its model, in seconds.
    #[schemars(extend(
        "x-default" = RetryPolicy::default().max_load_wait.as_secs(),
        "x-option" = "--load-wait"
    ))]
    pub(crate) load_wait_s: Option<f64>,
    /// Length of an answer at most.
    #[schemars(extend("x-default" = JudgeConfig::default().max_tokens, "x-option" = "--max-tokens"))]
    pub(crate) max_tokens: Option<u32>,
    /// Temperature of the model, 0 to 2.
    #[schemars(extend("x-default" = JudgeConfig::default().temperature, "x-option" = "--temperature"))]
    pub(crate) temperature: Option<f64>,
    /// Context window of the model; what does not fit is shortened, and marked.
    #[schemars(extend("x-default" = JudgeConfig::default().context_tokens, "x-option" = "--context-tokens"))]
    pub(crate) context_tokens: Option<usize>,
}

/// Returns the default of `concurrency`, which depends on the server.
fn concurrency_text() -> String {
    let local = LocalServer::Ollama.default_concurrency().unwrap_or(judge_selection::DEFAULT_CONCURRENCY);
    format!("{}; {local} for local servers but vLLM", judge_selection::DEFAULT_CONCURRENCY)
}

/// Returns the default of `timeout_s`, which depends on the server.
fn timeout_text() -> String {
    let local = LocalServer::Ollama.default_timeout().as_secs();
    format!("{}; {local} for local servers", judge_selection::DEFAULT_TIMEOUT.as_secs())
}

/// Defaults of `gradus eval`, `gradus experiment` and `gradus bench`. `gradus serve` uses evaluators, rubrics, tools and
/// prices.
#[derive(Debug, Default, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct EvalSection {
    /// Evaluators and sets of evaluators, by name.
    #[schemars(extend("x-default" = DEFAULT_EVALUATORS, "x-option" = "--evaluators"))]
    pub(crate) evaluators: Option<Vec<String>>,
    /// Files and folders of rubrics, in addition to the built-in ones.
    #[serde(default)]
    #[schemars(extend("x-type" = "list of paths", "x-option" = "--rubrics", "x-trust" = "outside the folder"))]
    pub(crate) rubrics: Vec<PathBuf>,
    /// File with definitions of the agent's tools.
    #[schemars(extend("x-type" = "path", "x-option" = "--tools", "x-trust" = "outside the folder"))]
    pub(crate) tools: Option<PathBuf>,
    /// File with notes on tools, for the judge.
    #[schemars(extend("x-type" = "path", "x-option" = "--tool-notes", "x-trust" = "outside the folder"))]
    pub(crate) tool_notes: Option<PathBuf>,
    /// File with prices of models, which win over the built-in ones.
    #[schemars(extend(
        "x-type" = "path",
        "x-default-text" = "built-in prices",
        "x-option" = "--prices",
        "x-trust" = "outside the folder"
    ))]
    pub(crate) prices: Option<PathBuf>,
    /// File of [`gradus judge calibrate`](judge-calibrate.md); also for `gradus report`.
    #[schemars(extend("x-type" = "path", "x-option" = "--calibration", "x-trust" = "outside the folder"))]
    pub(crate) calibration: Option<PathBuf>,
    /// Gates. Those on the command line replace them.
    // Parsed when the metrics of the run are known.
    #[serde(default)]
    #[schemars(extend("x-option" = "--gate"))]
    pub(crate) gates: Vec<String>,
}

/// How requests are sent to Phoenix, and how verdicts appear there. The address of Phoenix cannot be set in the file,
/// because the key is sent there: use `--phoenix` or `PHOENIX_COLLECTOR_ENDPOINT`.
#[derive(Clone, Debug, Default, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct PhoenixSection {
    /// How long Phoenix may stay silent, in seconds.
    #[schemars(extend("x-default" = DEFAULT_TIMEOUT.as_secs()))]
    pub(crate) timeout_s: Option<f64>,
    /// How long to retry while Phoenix is unreachable, too busy or failing, in seconds; also for OTLP exports.
    #[schemars(extend("x-default" = DEFAULT_RETRY_TIME.as_secs()))]
    pub(crate) retry_s: Option<f64>,
    /// Annotate the root span of a trajectory, or its trace.
    #[serde(default)]
    #[schemars(extend("x-type" = "`\"span\"` or `\"trace\"`", "x-default" = "span"))]
    pub(crate) trajectory_target: TrajectoryTarget,
    /// Also write outcomes that the judge cannot decide, as annotations without a label.
    #[serde(default)]
    #[schemars(extend("x-default" = false))]
    pub(crate) abstentions: bool,
    /// Names of annotations. `"plain"`: the names of the rubrics. `"spec"`: `GitHub Tool Calling Eval
    /// (Thought-to-Tool)`, `GitHub Query Interpretation Eval (Query-to-Thought)` and `GitHub Sequence Optimality Eval`.
    #[serde(default)]
    #[schemars(extend("x-type" = "`\"plain\"` or `\"spec\"`", "x-default" = "plain"))]
    pub(crate) names_preset: AnnotationNamePreset,
    /// Annotation name of each evaluator: `thought_to_tool = "Right tool?"`.
    #[serde(default)]
    #[schemars(extend("x-type" = "table of texts", "x-default-text" = "those of `names_preset`"))]
    pub(crate) names: BTreeMap<String, String>,
}
