//! The inputs of builders of flawed runs: oracle, initial world and tools of a task. [`FlawedRunBuilder`] changes
//! script and truth together, so that they cannot disagree.

use serde_json::{Map, Value};

use crate::suite::BenchTask;
use crate::suite::{AgentScript, ScriptStep};
use gradus_github_agent::tools::{AgentTool, ToolEffect};
use gradus_github_sim::World;

/// Borrowed for the construction of all variants of one task.
#[derive(Clone, Copy, Debug)]
pub(super) struct FlawContext<'s> {
    pub(super) task: &'s BenchTask,
    /// The initial world.
    pub(super) world: &'s World,
    pub(super) tools: &'s [AgentTool],
}

impl<'s> FlawContext<'s> {
    pub(super) fn oracle(&self) -> &'s AgentScript {
        &self.task.oracle
    }

    pub(super) fn oracle_steps(&self) -> impl Iterator<Item = (usize, &'s ScriptStep)> {
        self.task.oracle.steps.iter().enumerate()
    }

    /// Finds a tool by name. None for tools that the agent is not offered; variants with them are left out.
    pub(super) fn find_tool(&self, name: &str) -> Option<&'s AgentTool> {
        self.tools.iter().find(|tool| &*tool.definition.name == name)
    }

    /// Whether the tool of a step has no side effect. Unknown tools count as writing.
    pub(super) fn is_read(&self, step: &ScriptStep) -> bool {
        self.find_tool(&step.tool).is_some_and(|tool| tool.effect == ToolEffect::Read)
    }

    /// Returns the index (from 0) of the last step that changes something.
    pub(super) fn last_write(&self) -> Option<usize> {
        self.oracle_steps().filter(|(_, step)| !self.is_read(step)).last().map(|(at, _)| at)
    }

    /// Returns the names of a tool's required parameters.
    pub(super) fn required_parameters(&self, tool: &str) -> Vec<&'s str> {
        let parameters = self.find_tool(tool).map(|tool| &tool.definition.parameters);
        let required = parameters.and_then(|schema| schema.get("required")?.as_array());
        required.into_iter().flatten().filter_map(Value::as_str).collect()
    }

    pub(super) fn has_tool_parameter(&self, tool: &str, parameter: &str) -> bool {
        let parameters = self.find_tool(tool).map(|tool| &tool.definition.parameters);
        parameters.is_some_and(|schema| schema.get("properties").is_some_and(|all| all.get(parameter).is_some()))
    }

    /// Returns owner and name of the repository that a step addresses. None if they come from an observation.
    pub(super) fn repository_of(&self, step: &ScriptStep) -> Option<(String, String)> {
        let text = |name: &str| {
            let value = step.arguments.get(name)?;
            let text = value.as_str().filter(|_| !super::is_template(value))?;
            Some(text.to_owned())
        };
        Some((text("owner")?, text("repo")?))
    }

    /// Returns the first repository of the oracle that exists in the initial world.
    pub(super) fn home_repository(&self) -> Option<(String, String)> {
        let named = self.oracle_steps().filter_map(|(_, step)| self.repository_of(step));
        let mut there = named.filter(|(owner, name)| self.world.state().repository_by_name(owner, name).is_some());
        there.next()
    }

    /// Returns the login that the task's token belongs to.
    pub(super) fn acting_login(&self) -> Option<&'s str> {
        self.world.tokens_with_logins().find(|(token, _)| *token == self.task.token).map(|(_, login)| login)
    }

    /// As [`FlawContext::home_repository`], restricted to repositories of the acting user. Falls back to any of them.
    pub(super) fn own_home(&self) -> Option<(String, String)> {
        let login = self.acting_login()?;
        let is_own = |(owner, _): &(String, String)| owner == login;
        let state = self.world.state();
        let first = || {
            let mut names = state.repositories.values().map(|repository| state.full_name(repository));
            names.find_map(|name| {
                let (owner, name) = name.split_once('/')?;
                Some((owner.to_owned(), name.to_owned())).filter(is_own)
            })
        };
        let named = self.oracle_steps().filter_map(|(_, step)| self.repository_of(step)).filter(is_own);
        let mut there = named.filter(|(owner, name)| state.repository_by_name(owner, name).is_some());
        there.next().or_else(first)
    }

    /// Whether request, thought or tool name contain a lower-case word. A substring match is enough: it errs towards
    /// leaving a variant out.
    pub(super) fn step_contains_word(&self, step: &ScriptStep, word: &str) -> bool {
        let texts = [&self.task.request, &step.thought, &step.tool];
        texts.iter().any(|text| text.to_lowercase().contains(word))
    }

    pub(super) fn request_contains_word(&self, word: &str) -> bool {
        self.task.request.to_lowercase().contains(word)
    }

    /// Whether GitHub refuses this step of the oracle even without a mistake, as when a repository of that name
    /// exists. The refusal is then the subject of the task.
    pub(super) fn fails_anyway(&self, step: &ScriptStep) -> bool {
        let login = self.acting_login();
        let name = step.arguments.get("name").and_then(Value::as_str);
        let is_there = |(login, name)| self.world.state().repository_by_name(login, name).is_some();
        step.tool == "create_repo" && login.zip(name).is_some_and(is_there)
    }

    /// Whether the request names something that does not exist or is ambiguous.
    pub(super) fn has_unclear_target(&self) -> bool {
        !self.task.charter.unclear_targets.is_empty()
    }

    /// Returns the call budget of the charter; a variant that exceeds it also breaks R19.
    pub(super) fn charter_call_limit(&self) -> Option<usize> {
        self.task.charter.budget.max_calls
    }
}

/// Builds the arguments `owner` and `repo`, which most tools take.
pub(super) fn build_repository_arguments((owner, repo): &(String, String)) -> Map<String, Value> {
    let pair = [("owner", owner), ("repo", repo)];
    pair.into_iter().map(|(name, value)| (name.to_owned(), Value::String(value.clone()))).collect()
}

/// A variant under construction. Positions are from 0 in the arguments and from 1 in the truth.
#[derive(Clone, Debug)]
pub(super) struct FlawedRunBuilder {
    /// Script and truth are changed together by the methods below.
    pub(super) flawed_run: super::ScriptedRun,
}

impl FlawedRunBuilder {
    /// Starts with the oracle's run, without a mistake.
    pub(super) fn new(context: &FlawContext<'_>, variant: impl Into<String>) -> FlawedRunBuilder {
        FlawedRunBuilder { flawed_run: super::build_oracle_run(context.task, variant) }
    }

    /// Inserts a step that the oracle does not have, with the truth about it.
    #[must_use]
    pub(super) fn with(mut self, at: usize, step: ScriptStep, truth: super::StepTruth) -> FlawedRunBuilder {
        self.flawed_run.script.insert(at, step);
        self.flawed_run.truth.steps.insert(at, truth);
        self
    }

    /// States that the sequence is not optimal because of step `at` (from 0).
    #[must_use]
    pub(super) fn with_detour(mut self, at: usize, reason: impl Into<String>) -> FlawedRunBuilder {
        self.flawed_run.truth.step = Some(at + 1);
        self.flawed_run.truth.detour = Some(reason.into());
        self
    }

    /// States that step `at` (from 0) breaks these rules.
    #[must_use]
    pub(super) fn with_breaches(self, at: usize, rules: &[&str]) -> FlawedRunBuilder {
        self.add_breaches(Some(at + 1), rules)
    }

    /// States that the final message breaks these rules.
    #[must_use]
    pub(super) fn with_answer_breaches(self, rules: &[&str]) -> FlawedRunBuilder {
        self.add_breaches(None, rules)
    }

    /// Adds breaches, sorted and without duplicates, so that truths can be compared.
    fn add_breaches(mut self, step: Option<usize>, rules: &[&str]) -> FlawedRunBuilder {
        let breaches = rules.iter().map(|rule| super::ExpectedBreach { rule: (*rule).to_owned(), step });
        self.flawed_run.truth.broken.extend(breaches);
        self.flawed_run.truth.broken.sort();
        self.flawed_run.truth.broken.dedup();
        self
    }

    /// States that the outcome of these rules is open, see [`super::RunTruth::concerned`].
    #[must_use]
    pub(super) fn with_concerned_rules(mut self, rules: &[&str]) -> FlawedRunBuilder {
        self.flawed_run.truth.concerned.extend(rules.iter().map(|rule| (*rule).to_owned()));
        self
    }

    /// States that `count` of these steps (from 0) can be left out.
    #[must_use]
    pub(super) fn with_redundant_steps(mut self, among: &[usize], count: usize) -> FlawedRunBuilder {
        let among = among.iter().map(|at| at + 1).collect();
        self.flawed_run.truth.needless.get_or_insert_default().push(super::RedundantSteps { among, count });
        self
    }

    /// States that the verifier must fail the run. Nothing is then expected of a replay.
    #[must_use]
    pub(super) fn with_task_failure(mut self) -> FlawedRunBuilder {
        self.flawed_run.truth.passes = false;
        self.flawed_run.truth.needless = None;
        self
    }

    /// Adds R19 if the script is longer than the call budget, at the first call over it.
    pub(super) fn finish(mut self, context: &FlawContext<'_>, flaw: super::PolicyFlaw) -> super::ScriptedRun {
        flaw.name().clone_into(&mut self.flawed_run.truth.policy);
        if let Some(most) = context.charter_call_limit().filter(|most| self.flawed_run.script.steps.len() > *most) {
            self = self.with_breaches(most, &["R19"]);
        }
        self.flawed_run
    }
}
