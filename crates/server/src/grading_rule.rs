//! Grading rules: which projects are judged by which evaluators and judge, at what share, and within what budget.

use crate::serve_section::RuleSection;
use std::error::Error;
use std::sync::Arc;

use gradus_core::trajectory::Trajectory;
use gradus_eval::evaluator::Evaluator;
use gradus_eval::evaluator_selection::select_evaluators;
use gradus_eval::judge::ModelJudge;
use gradus_eval::judge_selection::{JudgeChoice, JudgeConfig};
use gradus_eval::prompt::ToolTexts;
use gradus_eval::report::MetricResult;
use gradus_eval::rubric::RubricLibrary;
use gradus_eval::tool_file;

use crate::project_pattern;
use crate::serve_defaults;
use crate::server_config::ServerConfig;

/// A checked `[[rule]]`. The first rule whose pattern matches a project grades it.
#[derive(Debug)]
pub(crate) struct GradingRule {
    /// Unique. The store keys verdicts, spending and the ungraded queue by it.
    pub(crate) name: String,
    /// The pattern of project names; `None` matches every project.
    project: Option<String>,
    pub(crate) evaluators: Vec<Evaluator>,
    /// `None` for the offline judge, which runs while traces are assembled.
    pub(crate) judge: Option<Arc<ModelJudge>>,
    pub(crate) concurrency: usize,
    /// The share of trajectories that are graded, from 0 to 1.
    pub(crate) sample: f64,
    /// Grade trajectories with an error even if they are not in the sample.
    pub(crate) all_errors: bool,
    pub(crate) daily_budget_usd: Option<f64>,
    tools: Vec<gradus_core::trajectory::ToolDefinition>,
    notes: std::collections::BTreeMap<String, String>,
}

/// Why a `[[rule]]` table cannot be used. `rule` is the name of the rule, also where the table does not give one.
#[derive(Debug, thiserror::Error)]
pub enum GradingRuleError {
    #[error(
        "two rules are called {rule:?}: give one of them another name (without a name, a rule is called by its project)"
    )]
    DuplicateName { rule: String },
    /// The judge, its endpoint, its concurrency or the evaluators cannot be used. Boxed, because `gradus-eval` reports
    /// each of them with a type of its own.
    #[error("rule {rule:?}: {source}")]
    Judging { rule: String, source: Box<dyn Error + Send + Sync> },
    #[error("rule {rule:?}: sample = {sample}: give a share from 0 to 1")]
    Sample { rule: String, sample: f64 },
    #[error("rule {rule:?}: daily_budget_usd = {budget}: give an amount of dollars")]
    Budget { rule: String, budget: f64 },
    /// A budget cannot be enforced without prices.
    #[error("rule {rule:?}: daily_budget_usd: the price of {model:?} is not known; give it with eval.prices")]
    UnknownPrice { rule: String, model: String },
    #[error(
        "rule {rule:?}: daily_budget_usd = {budget}: one answer may cost ${answer:.4}, so nothing would ever be asked; give more, or set judge.max_tokens lower"
    )]
    BudgetBelowOneAnswer { rule: String, budget: f64, answer: f64 },
    #[error("rule {rule:?}: evaluators = []: name some, or leave it out for all")]
    NoEvaluators { rule: String },
    /// The message names the file, and not the rule: several rules may share one file.
    #[error(transparent)]
    ToolFile(Box<dyn Error + Send + Sync>),
}

/// Builds the rules of the file; without any, one rule grades everything with the offline judge. Names are unique,
/// because the store keys verdicts and spending by them.
pub(crate) fn build_grading_rules(
    config: &ServerConfig,
    library: &RubricLibrary,
) -> Result<Vec<GradingRule>, GradingRuleError> {
    let default = [RuleSection { evaluators: config.evaluators.clone(), ..RuleSection::default() }];
    let sections = if config.rules.is_empty() { &default[..] } else { &config.rules };
    let mut rules: Vec<GradingRule> = Vec::new();
    for section in sections {
        let rule = GradingRule::from_section(section, config, library)?;
        if rules.iter().any(|known| known.name == rule.name) {
            return Err(GradingRuleError::DuplicateName { rule: rule.name });
        }
        rules.push(rule);
    }
    Ok(rules)
}

/// Whether the evaluator is answered by rules that notice mistakes and confirm nothing.
pub(crate) fn is_flagging_evaluator(evaluator: &Evaluator) -> bool {
    let (name, judge) = (evaluator.name.to_string(), evaluator.judge.to_string());
    MetricResult { name, judge, ..MetricResult::default() }.is_from_flagging_rules()
}

/// Finds the evaluators of a name in the rules that grade the projects of a pattern; `None` matches every project.
pub(crate) fn find_evaluators_for_projects<'r>(
    rules: &'r [GradingRule],
    evaluator: &str,
    projects: Option<&str>,
) -> Vec<&'r Evaluator> {
    let projects = projects.unwrap_or("*");
    let mut found = Vec::new();
    for rule in rules {
        let pattern = rule.project.as_deref().unwrap_or("*");
        if project_pattern::may_overlap(pattern, projects) {
            found.extend(rule.evaluators.iter().filter(|known| &*known.name == evaluator));
            // Later rules grade none of the projects. A pattern that begins with another one matches none but its projects.
            if project_pattern::is_project_match(pattern, projects) {
                break;
            }
        }
    }
    found
}

impl GradingRule {
    /// Checks one table. Prices and budgets are checked together, because a budget cannot be enforced without a
    /// price.
    fn from_section(
        section: &RuleSection,
        config: &ServerConfig,
        library: &RubricLibrary,
    ) -> Result<GradingRule, GradingRuleError> {
        let project = section.project.clone().filter(|project| project != "*");
        // The store keys spending and the ungraded queue by this name, so it must not depend on the order of the
        // tables.
        let name = section.name.clone().or_else(|| project.clone()).unwrap_or_else(|| "default".to_owned());
        let wrong = |source: Box<dyn Error + Send + Sync>| GradingRuleError::Judging { rule: name.clone(), source };
        let asked = JudgeConfig {
            judge: Some(section.judge.clone().unwrap_or_else(|| "offline".to_owned())),
            base_url: section.base_url.clone(),
            ..config.judge.clone()
        };
        let judge = match asked.select(&config.credentials).map_err(|error| wrong(error.into()))? {
            JudgeChoice::Offline { .. } => None,
            JudgeChoice::Model(endpoint) => {
                let mut judge = asked.model_judge(&endpoint).map_err(|error| wrong(error.into()))?;
                judge.client = judge.client.with_load_notice(Arc::new(|waited| {
                    let waited_s = waited.as_secs();
                    tracing::info!(waited_s, "waiting for the model server to load its model");
                }));
                Some(Arc::new(judge))
            }
        };
        let sample = section.sample.unwrap_or(serve_defaults::SAMPLE);
        if !(0.0..=1.0).contains(&sample) {
            return Err(GradingRuleError::Sample { rule: name, sample });
        }
        if let Some(budget) = section.daily_budget_usd {
            if !(budget.is_finite() && budget >= 0.0) {
                return Err(GradingRuleError::Budget { rule: name, budget });
            }
            if let Some(judge) = judge.as_ref().filter(|judge| judge.price.is_none()) {
                let model = judge.client.endpoint().model.clone();
                return Err(GradingRuleError::UnknownPrice { rule: name, model });
            }
            // A budget of 0 is allowed: it pauses the rule. A budget above 0 that cannot pay for one answer is a
            // mistake.
            if let Some(answer) = judge.as_ref().and_then(|judge| judge.max_answer_cost_usd())
                && (f64::MIN_POSITIVE..answer).contains(&budget)
            {
                return Err(GradingRuleError::BudgetBelowOneAnswer { rule: name, budget, answer });
            }
        }
        if section.evaluators.as_ref().is_some_and(Vec::is_empty) {
            return Err(GradingRuleError::NoEvaluators { rule: name });
        }
        let names = section.evaluators.clone().or_else(|| config.evaluators.clone()).unwrap_or_default();
        let tools = section.tools.as_ref().or(config.tools.as_ref());
        let notes = section.tool_notes.as_ref().or(config.tool_notes.as_ref());
        Ok(GradingRule {
            evaluators: select_evaluators(library, &names, judge.as_deref(), true, false)
                .map_err(|error| wrong(error.into()))?
                .evaluators,
            judge,
            concurrency: asked.checked_concurrency().map_err(|error| wrong(error.into()))?,
            sample,
            all_errors: section.errors.unwrap_or(serve_defaults::GRADES_ERRORS),
            daily_budget_usd: section.daily_budget_usd,
            tools: match tools {
                Some(path) => tool_file::read_tools(path).map_err(|error| GradingRuleError::ToolFile(error.into()))?,
                None => Vec::new(),
            },
            notes: match notes {
                Some(path) => tool_file::read_notes(path).map_err(|error| GradingRuleError::ToolFile(error.into()))?,
                None => std::collections::BTreeMap::new(),
            },
            project,
            name,
        })
    }

    /// Returns the id of the endless run that holds the verdicts of this rule.
    pub(crate) fn run_id(&self) -> String {
        format!("live-{}", self.name)
    }

    /// Whether the rule matches a project. The caller takes the first rule that matches.
    pub(crate) fn matches_project(&self, project: &str) -> bool {
        self.project.as_deref().is_none_or(|pattern| project_pattern::is_project_match(pattern, project))
    }

    /// Returns tool definitions and notes from files, which a prompt uses where the trace does not record the tools
    /// on offer.
    pub(crate) fn tool_texts(&self) -> ToolTexts {
        ToolTexts::new(self.tools.clone(), self.notes.clone())
    }

    /// Whether a trajectory is graded. Sampling hashes the trajectory id, so that the decision is the same after a
    /// restart and when the trajectory is assembled again.
    pub(crate) fn should_grade(&self, trajectory: &Trajectory) -> bool {
        let has_error = trajectory.is_error || trajectory.steps.iter().any(|step| step.is_error);
        if self.sample >= 1.0 || (self.all_errors && has_error) {
            return true;
        }
        // The upper 64 bits of the digest are uniform on 0..2^64.
        let lot = gradus_core::stable_digest(trajectory.trajectory_id.as_bytes()) >> 64;
        (lot as f64) < self.sample * 2f64.powi(64)
    }

    /// Whether the rule has questions for a model. A rule with a model and offline evaluators only never asks it.
    pub(crate) fn asks_model(&self) -> bool {
        self.judge.is_some() && self.evaluators.iter().any(Evaluator::asks_model)
    }

    /// Returns the displayed pattern: `*` if the rule has none.
    pub(crate) fn project_pattern(&self) -> &str {
        self.project.as_deref().unwrap_or("*")
    }
}
