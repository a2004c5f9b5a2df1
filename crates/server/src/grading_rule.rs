//! Which project is judged by what, how much of it, and for how much money.

use crate::serve_section::RuleSection;
use std::sync::Arc;

use gradus_core::trajectory::Trajectory;
use gradus_eval::evaluator::Evaluator;
use gradus_eval::judge::ModelJudge;
use gradus_eval::judge_selection::{JudgeChoice, JudgeConfig, select_evaluators};
use gradus_eval::prompt::ToolTexts;
use gradus_eval::rubric::RubricLibrary;
use gradus_eval::tool_file;

use crate::project_pattern;
use crate::server_config::ServerConfig;

/// How the trajectories of a project are judged.
#[derive(Debug)]
pub(crate) struct GradingRule {
    pub(crate) name: String,
    project: Option<String>,
    pub(crate) evaluators: Vec<Evaluator>,
    pub(crate) judge: Option<Arc<ModelJudge>>,
    pub(crate) concurrency: usize,
    pub(crate) sample: f64,
    pub(crate) all_errors: bool,
    pub(crate) daily_budget_usd: Option<f64>,
    tools: Vec<gradus_core::trajectory::ToolDefinition>,
    notes: std::collections::BTreeMap<String, String>,
}

/// The rules of the file; without any, everything is judged by rules that cost nothing.
pub(crate) fn build_grading_rules(config: &ServerConfig, library: &RubricLibrary) -> Result<Vec<GradingRule>, String> {
    let default = [RuleSection { evaluators: config.evaluators.clone(), ..RuleSection::default() }];
    let sections = if config.rules.is_empty() { &default[..] } else { &config.rules };
    let mut rules: Vec<GradingRule> = Vec::new();
    for section in sections {
        let rule = GradingRule::from_section(section, config, library)?;
        if rules.iter().any(|known| known.name == rule.name) {
            return Err(format!(
                "two rules are called {:?}: give one of them another name (without a name, a rule is called by its project)",
                rule.name
            ));
        }
        rules.push(rule);
    }
    Ok(rules)
}

impl GradingRule {
    fn from_section(
        section: &RuleSection,
        config: &ServerConfig,
        library: &RubricLibrary,
    ) -> Result<GradingRule, String> {
        let project = section.project.clone().filter(|project| project != "*");
        // What waits for a rule and what it spent are kept under its name, which must not depend on where it stands.
        let name = section.name.clone().or_else(|| project.clone()).unwrap_or_else(|| "default".to_owned());
        let wrong = |reason: String| format!("rule {name:?}: {reason}");
        let asked = JudgeConfig {
            judge: Some(section.judge.clone().unwrap_or_else(|| "offline".to_owned())),
            base_url: section.base_url.clone(),
            ..config.judge.clone()
        };
        let judge = match asked.select(&config.credentials).map_err(|error| wrong(error.to_string()))? {
            JudgeChoice::Offline { .. } => None,
            JudgeChoice::Model(endpoint) => {
                let mut judge = asked.model_judge(&endpoint).map_err(|error| wrong(error.to_string()))?;
                judge.client = judge.client.with_load_notice(Arc::new(|waited| {
                    let waited_s = waited.as_secs();
                    tracing::info!(waited_s, "waiting for the model server to load its model");
                }));
                Some(Arc::new(judge))
            }
        };
        let sample = section.sample.unwrap_or(1.0);
        if !(0.0..=1.0).contains(&sample) {
            return Err(wrong(format!("sample = {sample}: give a share from 0 to 1")));
        }
        if let Some(budget) = section.daily_budget_usd {
            if !(budget.is_finite() && budget >= 0.0) {
                return Err(wrong(format!("daily_budget_usd = {budget}: give an amount of dollars")));
            }
            if let Some(judge) = judge.as_ref().filter(|judge| judge.price.is_none()) {
                let model = &judge.client.endpoint().model;
                return Err(wrong(format!(
                    "daily_budget_usd: the price of {model:?} is not known; give it with eval.prices"
                )));
            }
            // Nothing at all is a way to let judging rest.
            if let Some(answer) = judge.as_ref().and_then(|judge| judge.most_an_answer_costs())
                && (f64::MIN_POSITIVE..answer).contains(&budget)
            {
                return Err(wrong(format!(
                    "daily_budget_usd = {budget}: one answer may cost ${answer:.4}, so nothing would ever be asked; give more, or set judge.max_tokens lower"
                )));
            }
        }
        if section.evaluators.as_ref().is_some_and(Vec::is_empty) {
            return Err(wrong("evaluators = []: name some, or leave it out for all".to_owned()));
        }
        let names = section.evaluators.clone().or_else(|| config.evaluators.clone()).unwrap_or_default();
        let tools = section.tools.as_ref().or(config.tools.as_ref());
        let notes = section.tool_notes.as_ref().or(config.tool_notes.as_ref());
        Ok(GradingRule {
            evaluators: select_evaluators(library, &names, judge.as_deref(), true, false)
                .map_err(|error| wrong(error.to_string()))?,
            judge,
            concurrency: asked.checked_concurrency().map_err(|error| wrong(error.to_string()))?,
            sample,
            all_errors: section.errors.unwrap_or(true),
            daily_budget_usd: section.daily_budget_usd,
            tools: tools
                .map(|path| tool_file::read_tools(path))
                .transpose()
                .map_err(|error| error.to_string())?
                .unwrap_or_default(),
            notes: notes
                .map(|path| tool_file::read_notes(path))
                .transpose()
                .map_err(|error| error.to_string())?
                .unwrap_or_default(),
            project,
            name,
        })
    }

    /// The name under which its verdicts are kept.
    pub(crate) fn run_id(&self) -> String {
        format!("live-{}", self.name)
    }

    pub(crate) fn matches_project(&self, project: &str) -> bool {
        self.project.as_deref().is_none_or(|pattern| project_pattern::is_project_match(pattern, project))
    }

    pub(crate) fn tool_texts(&self) -> ToolTexts {
        ToolTexts::new(self.tools.clone(), self.notes.clone())
    }

    /// Whether a trajectory is in the share that is judged: the same one always is, or never.
    pub(crate) fn should_grade(&self, trajectory: &Trajectory) -> bool {
        let has_error = trajectory.is_error || trajectory.steps.iter().any(|step| step.is_error);
        if self.sample >= 1.0 || (self.all_errors && has_error) {
            return true;
        }
        let lot = gradus_core::stable_digest(trajectory.trajectory_id.as_bytes()) >> 64;
        (lot as f64) < self.sample * 2f64.powi(64)
    }

    pub(crate) fn asks_a_model(&self) -> bool {
        self.judge.is_some() && self.evaluators.iter().any(Evaluator::asks_a_model)
    }

    pub(crate) fn project_pattern(&self) -> &str {
        self.project.as_deref().unwrap_or("*")
    }
}
