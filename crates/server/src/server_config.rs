//! The unchecked configuration of a server, as command line, environment and `gradus.toml` give it.

use std::path::PathBuf;

use gradus_eval::annotation::AnnotationSettings;
use gradus_eval::judge_selection::{JudgeConfig, JudgeCredentials};
use gradus_report::SupplementLoader;

use crate::alert;
use crate::serve_section::{RuleSection, ServeSection};

/// The unchecked configuration of a server. The default serves on the usual ports of loopback and grades with the
/// offline judge only, so that it costs nothing.
#[derive(Clone, Debug)]
pub struct ServerConfig {
    /// The file that the tables were read from, if there was one.
    pub file: Option<PathBuf>,
    /// The state folder: the store, runs, the verdict cache and temporary files.
    pub data: PathBuf,
    /// The address of a store elsewhere, such as `postgres://…`; in the state folder without it.
    pub store: Option<String>,
    pub serve: ServeSection,
    /// Which projects are graded and by what. Without rules, one rule grades every project with the offline judge.
    pub rules: Vec<RuleSection>,
    pub alerts: Vec<alert::AlertSection>,
    /// The evaluators of rules that name none; all evaluators without it.
    pub evaluators: Option<Vec<String>>,
    /// Files and folders of rubrics in addition to the built-in ones. A rubric replaces a built-in one of the same
    /// name.
    pub rubrics: Vec<PathBuf>,
    /// Files with tool definitions and with notes on tools, for rules that name no file of their own.
    pub tools: Option<PathBuf>,
    pub tool_notes: Option<PathBuf>,
    /// Defaults of all rules that ask a model: endpoint, prices, timeouts, concurrency.
    pub judge: JudgeConfig,
    /// API keys and model names from the environment. This crate never reads the environment itself.
    pub credentials: JudgeCredentials,
    pub annotations: AnnotationSettings,
    /// Loads what a run's folder holds in addition to verdicts, such as the results of a benchmark. A function, because
    /// this crate does not know the benchmark.
    pub supplements: SupplementLoader,
    /// Plays the demo; `None` offers none. A function, because this crate does not know the benchmark.
    pub demo: Option<DemoPlayer>,
}

/// Receives the spans of the demo as OTLP export requests, one after another.
pub type DemoSink<'s> = &'s mut dyn FnMut(Vec<u8>) -> Result<(), DemoLoadError>;

/// Plays the demo and passes its spans on.
pub type DemoPlayer = fn(DemoSink<'_>) -> Result<(), DemoLoadError>;

/// Why the demo could not be played or stored: a line for the page and the log.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct DemoLoadError(pub String);

impl ServerConfig {
    /// The default configuration with this state folder.
    pub fn new(data: PathBuf) -> ServerConfig {
        ServerConfig {
            file: None,
            data,
            store: None,
            serve: ServeSection::default(),
            rules: Vec::new(),
            alerts: Vec::new(),
            evaluators: None,
            rubrics: Vec::new(),
            tools: None,
            tool_notes: None,
            judge: JudgeConfig::default(),
            credentials: JudgeCredentials::default(),
            annotations: AnnotationSettings::default(),
            supplements: |_| Ok(None),
            demo: None,
        }
    }
}
