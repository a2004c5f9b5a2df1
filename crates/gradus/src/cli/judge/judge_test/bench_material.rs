//! Right runs of the benchmark: the oracle runs every task on the simulator. The simulator also shows which planted
//! flaws are harmless: the calls of a flawed run are carried out, and its end is verified.

use std::collections::BTreeMap;
use std::sync::atomic::AtomicBool;

use gradus_core::trajectory::{ToolDefinition, Trajectory};
use gradus_github_agent::agent::ToolCallMode;
use gradus_github_bench::policy::{ScriptedModel, ScriptedPolicy};
use gradus_github_bench::suite::{AgentScript, BenchTask, ScriptStep, TaskSuite};
use gradus_github_bench::trial::{
    BenchError, FinishedTrial, OwnAgent, TrialConcurrency, TrialContestant, TrialJob, run_all, run_each,
};
use gradus_github_sim::World;
use gradus_ingest::{RecordIntake, SourceLimits};
use gradus_judge_test::case_plan::TruthCheck;
use gradus_judge_test::flaw::{FlawedRun, PlantedFlaw, ReplayResult, StepSource};
use gradus_judge_test::right_run::{RightRun, RunForm, RunMaterial};
use serde_json::Value;

/// Number of available tools in a run of the benchmark: those that it uses, some that resemble them, and others. All
/// 59 would make each question three times as long and no harder.
const OFFERED_TOOL_COUNT: usize = 20;
/// Prefix of the names of sessions.
const BENCH_NAME: &str = "judge-test";
/// A call without effect that replaces an omitted step. Templates that need the step cannot be filled then.
const IDLE_TOOL: &str = "get_me";
/// Text of the ReAct instructions before the list of tools.
const TOOL_LIST_HEADING: &str = "The tools, each with the JSON schema of its arguments:\n\n";

/// The tasks of the benchmark with their worlds.
pub(super) struct BenchMaterial {
    suite: TaskSuite,
    /// One for each task.
    worlds: Vec<World>,
}

impl BenchMaterial {
    pub(super) fn load() -> anyhow::Result<BenchMaterial> {
        let suite = TaskSuite::built_in()?;
        let worlds = suite.tasks.iter().map(BenchTask::world).collect::<Result<_, _>>()?;
        Ok(BenchMaterial { suite, worlds })
    }

    /// Runs the oracle in all forms. The seed chooses which tools are available.
    pub(super) fn play_right_runs(&self, seed: u64) -> anyhow::Result<Vec<RightRun>> {
        let mut runs = Vec::new();
        for (mode, form) in [(ToolCallMode::Text, RunForm::React), (ToolCallMode::Native, RunForm::Native)] {
            let mut played = self.play_oracle(mode)?;
            for task in &self.suite.tasks {
                let Some(mut trajectory) = played.remove(&task.id).filter(|run| !run.steps.is_empty()) else {
                    continue;
                };
                narrow_tools(&mut trajectory, &task.id, seed);
                let run = RightRun::new(hide_addresses(&trajectory)?, &task.id, RunMaterial::Bench, form);
                if form == RunForm::Native {
                    runs.push(run.without_thoughts());
                }
                runs.push(run);
            }
        }
        Ok(runs)
    }

    /// Runs the oracle in one form, and reads its traces as those of any agent are read. The result is by id of the
    /// task.
    fn play_oracle(&self, mode: ToolCallMode) -> anyhow::Result<BTreeMap<String, Trajectory>> {
        let contestants = [TrialContestant::Policy(ScriptedPolicy::Oracle)];
        let player = OwnAgent {
            contestants: &contestants,
            form: Some(mode),
            replays: false,
            project: BENCH_NAME,
            bench: BENCH_NAME,
        };
        let jobs: Vec<TrialJob<'_>> = self.tasks().map(|(task, world)| build_job(task, world, 0)).collect();
        let mut runs: BTreeMap<String, Trajectory> = BTreeMap::new();
        let mut keep = |_, trajectory: Trajectory| {
            let session = trajectory.session_id.clone().unwrap_or_default();
            if let Some(task) = session.split('/').nth(1) {
                runs.insert(task.to_owned(), trajectory);
            }
            Ok(())
        };
        let mut intake = RecordIntake::new(SourceLimits::for_command(), &mut keep);
        intake.begin_source(BENCH_NAME);
        run_all(
            replay_concurrency(),
            &jobs,
            &player,
            &AtomicBool::new(false),
            &mut |finished| -> Result<(), BenchError> {
                if finished.line.passed {
                    intake.add_export(&finished.otlp);
                }
                Ok(())
            },
        )?;
        intake.finish()?;
        Ok(runs)
    }

    fn tasks(&self) -> impl Iterator<Item = (&BenchTask, &World)> {
        self.suite.tasks.iter().zip(&self.worlds)
    }

    /// Carries out the calls of flawed runs. A run that could not be carried out has solved nothing.
    fn replay_runs(&self, runs: &[(usize, &FlawedRun)], needs_steps: bool) -> BTreeMap<usize, ReplayResult> {
        let tasks: Vec<(usize, &BenchTask, &World, AgentScript)> = runs
            .iter()
            .filter_map(|(number, run)| {
                let (task, world) = self.tasks().find(|(task, _)| task.id == run.cluster)?;
                Some((*number, task, world, build_script(task, run)))
            })
            .collect();
        let models: Vec<ScriptedModel> =
            tasks.iter().map(|(number, .., script)| ScriptedModel::new(&number.to_string(), script.clone())).collect();
        let contestants: Vec<TrialContestant<'_>> =
            models.iter().map(|model| TrialContestant::Model { model, price: None }).collect();
        let jobs: Vec<TrialJob<'_>> =
            tasks.iter().enumerate().map(|(at, (_, task, world, _))| build_job(task, world, at)).collect();
        let player = OwnAgent {
            contestants: &contestants,
            form: Some(ToolCallMode::Native),
            replays: needs_steps,
            project: BENCH_NAME,
            bench: BENCH_NAME,
        };
        let mut replays: BTreeMap<usize, ReplayResult> =
            runs.iter().map(|(number, _)| (*number, ReplayResult::default())).collect();
        let mut take = |finished: Result<FinishedTrial, BenchError>| -> Result<(), BenchError> {
            let Ok(FinishedTrial { line, .. }) = finished else { return Ok(()) };
            let needless = line.replay.map(|replay| replay.needless).unwrap_or_default();
            let needless_steps = needless.into_iter().filter_map(|step| u32::try_from(step).ok()).collect();
            if let Some((number, ..)) = tasks.get(line.trial as usize) {
                replays.insert(*number, ReplayResult { is_solved: line.passed, needless_steps });
            }
            Ok(())
        };
        // The callback never fails.
        let _ = run_each(replay_concurrency(), &jobs, &player, &AtomicBool::new(false), &mut take);
        replays
    }
}

impl TruthCheck for BenchMaterial {
    fn explain_harmless(&mut self, runs: &[&FlawedRun]) -> Vec<Option<String>> {
        let is_checked = |run: &&FlawedRun| run.material == RunMaterial::Bench && run.flaw.is_replayable();
        let needs_steps = |flaw: PlantedFlaw| {
            !matches!(
                flaw,
                PlantedFlaw::MissingStep
                    | PlantedFlaw::IgnoredError
                    | PlantedFlaw::PrematureAnswer
                    | PlantedFlaw::UnsupportedClaim
            )
        };
        let mut reasons = vec![None; runs.len()];
        for with_steps in [true, false] {
            let part: Vec<(usize, &FlawedRun)> = runs
                .iter()
                .copied()
                .enumerate()
                .filter(|(_, run)| is_checked(run) && needs_steps(run.flaw) == with_steps)
                .collect();
            for (number, replay) in self.replay_runs(&part, with_steps) {
                reasons[number] = runs[number].explain_harmless(&replay).map(str::to_owned);
            }
        }
        reasons
    }
}

fn replay_concurrency() -> TrialConcurrency {
    TrialConcurrency { threads: std::thread::available_parallelism().map_or(2, usize::from), slots: 1 }
}

fn build_job<'j>(task: &'j BenchTask, world: &'j World, number: usize) -> TrialJob<'j> {
    let trial = u32::try_from(number).unwrap_or(u32::MAX);
    TrialJob { task, world, trial, contestant: number, round: 0 }
}

/// Builds the script of a flawed run. Unchanged steps stay templates of the oracle, so that they follow the results
/// of the changed ones.
fn build_script(task: &BenchTask, run: &FlawedRun) -> AgentScript {
    let mut script = task.oracle.clone();
    let literal = |at: usize| {
        let step = &run.trajectory.steps[at];
        let arguments = step.arguments.as_ref().and_then(Value::as_object).cloned().unwrap_or_default();
        ScriptStep { thought: String::new(), tool: step.tool.clone(), arguments }
    };
    let idle = || ScriptStep { tool: IDLE_TOOL.to_owned(), ..ScriptStep::default() };
    let is_made = |step: usize| {
        run.sources
            .iter()
            .any(|source| matches!(source, StepSource::Unchanged(at) | StepSource::Changed(at) if *at == step))
    };
    for step in (0..script.steps.len()).filter(|step| !is_made(*step)) {
        script.steps[step] = idle();
    }
    for (at, source) in run.sources.iter().enumerate() {
        match source {
            StepSource::Changed(step) => script.steps[*step] = literal(at),
            StepSource::Inserted => script.insert(at, literal(at)),
            StepSource::Unchanged(_) | StepSource::Failed(_) => {}
        }
    }
    if run.flaw == PlantedFlaw::PrematureAnswer {
        script.steps.truncate(run.sources.len());
    }
    if matches!(run.flaw, PlantedFlaw::PrematureAnswer | PlantedFlaw::UnsupportedClaim) {
        script.answer = run.trajectory.final_answer.clone().unwrap_or_default();
    }
    script
}

/// Leaves some tools on offer: those that the run uses, then those that share a word with them, then others, each in an
/// order that seed and task decide. The list of tools in the instructions is shortened in the same way.
fn narrow_tools(trajectory: &mut Trajectory, task: &str, seed: u64) {
    let used: Vec<&str> = trajectory.steps.iter().map(|step| step.tool.as_str()).collect();
    let shares_word = |name: &str| {
        let words: Vec<&str> = used.iter().flat_map(|used| used.split('_')).collect();
        name.split('_').filter(|word| words.contains(word)).count()
    };
    let rank = |tool: &ToolDefinition| {
        let lot = gradus_core::stable_digest(format!("{seed}\0{task}\0{}", tool.name).as_bytes());
        // Every third of the other tools may come before those that resemble the used ones.
        let is_near = shares_word(&tool.name) > 0 && !lot.is_multiple_of(3);
        (!used.contains(&tool.name.as_str()), !is_near, lot)
    };
    let mut ranked: Vec<&ToolDefinition> = trajectory.tools.iter().collect();
    ranked.sort_by_key(|tool| rank(tool));
    ranked.truncate(OFFERED_TOOL_COUNT);
    let offered: Vec<ToolDefinition> =
        trajectory.tools.iter().filter(|tool| ranked.iter().any(|kept| kept.name == tool.name)).cloned().collect();
    if let Some((before, _)) = trajectory.system_prompt.as_deref().and_then(|text| text.split_once(TOOL_LIST_HEADING)) {
        let lines = offered.iter().map(|tool| {
            let schema = tool.schema.as_ref().map_or("{}", |schema| schema.as_str());
            format!("{}: {}\n  {schema}\n", tool.name, tool.description.as_deref().unwrap_or_default())
        });
        let text = format!("{before}{TOOL_LIST_HEADING}{}", lines.collect::<String>());
        trajectory.system_prompt = Some(text.trim_end().into());
    }
    trajectory.tools = offered.into();
}

/// Replaces the address of the simulator, which differs each time, so that the same seed gives the same texts.
fn hide_addresses(trajectory: &Trajectory) -> anyhow::Result<Trajectory> {
    const LOCAL: &str = "http://127.0.0.1:";
    let earlier_turns = trajectory.earlier_turns.clone();
    let text = serde_json::to_string(trajectory)?;
    let mut shown = String::with_capacity(text.len());
    let mut parts = text.split(LOCAL);
    shown.push_str(parts.next().unwrap_or_default());
    for part in parts {
        shown.push_str("https://git.example");
        shown.push_str(part.trim_start_matches(|letter: char| letter.is_ascii_digit()));
    }
    Ok(Trajectory { earlier_turns, ..serde_json::from_str(&shown)? })
}
