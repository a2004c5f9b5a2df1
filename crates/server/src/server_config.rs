//! All that a server can be told.

use std::path::PathBuf;

use gradus_eval::annotation::AnnotationSettings;
use gradus_eval::judge_selection::{JudgeConfig, JudgeCredentials};
use gradus_report::SupplementLoader;

use crate::alert;
use crate::serve_section::{RuleSection, ServeSection};

/// All that a server can be told, before it is checked. The default is a server that needs nothing else: on the usual
/// ports, with rules that cost nothing.
#[derive(Clone, Debug)]
pub struct ServerConfig {
    /// The file that the tables were read from, if there was one.
    pub file: Option<PathBuf>,
    /// Where everything is kept.
    pub data: PathBuf,
    pub serve: ServeSection,
    /// How projects are judged; none is everything by rules that cost nothing.
    pub rules: Vec<RuleSection>,
    pub alerts: Vec<alert::AlertSection>,
    /// Of rules that name none; all without it.
    pub evaluators: Option<Vec<String>>,
    /// Files and folders of rubrics beside those that are built in.
    pub rubrics: Vec<PathBuf>,
    /// Tool definitions, and texts that are added to them, for rules that name none.
    pub tools: Option<PathBuf>,
    pub tool_notes: Option<PathBuf>,
    pub judge: JudgeConfig,
    pub credentials: JudgeCredentials,
    pub annotations: AnnotationSettings,
    /// Finds what a run's folder holds beside verdicts.
    pub supplements: SupplementLoader,
}

impl ServerConfig {
    /// A server that keeps everything in this folder.
    pub fn new(data: PathBuf) -> ServerConfig {
        ServerConfig {
            file: None,
            data,
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
        }
    }
}
