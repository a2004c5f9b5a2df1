//! One pass of a judge over the cases: the questions as they are, a repetition of them, or the same with a probe. A
//! pass is a run of the ordinary runner with a folder of its own, so that it is continued after an interruption.

use std::collections::{HashMap, HashSet};
use std::io::{BufRead, BufReader};
use std::sync::Arc;
use std::time::Duration;

use gradus_core::trajectory::Trajectory;
use gradus_eval::evaluator::Evaluator;
use gradus_eval::outcome::OutcomeLine;
use gradus_eval::prompt::ToolTexts;
use gradus_eval::run::{RunFolder, RunManifest, RunState, StateFolder, VerdictCache};
use gradus_eval::runner::{
    self, CostEstimator, JudgePanel, ProgressWatcher, QuestionSelection, RunLimits, RunPlan, RunProgress,
    RunTermination,
};
use gradus_judge_test::bias_probe::BiasProbe;
use gradus_judge_test::test_case::TestCase;
use gradus_judge_test::test_report::CaseVerdict;
use tokio::sync::mpsc;

use super::test_settings::TestedJudge;
use crate::cli::eval::{RunProgressBar, format_to_seconds, run_id, spawn_interrupt_listener};

/// How a pass shows the cases.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum PassKind {
    /// As they are, for the n-th time, from 0.
    Repeat(u32),
    Probe(BiasProbe),
}

/// The questions of one pass.
pub(super) struct TestPass {
    pub(super) kind: PassKind,
    pub(super) evaluators: Vec<Evaluator>,
    trajectories: Vec<Trajectory>,
    selection: QuestionSelection,
    /// The case of each question.
    cases: HashMap<(String, Option<u32>, String), usize>,
}

/// The result of a pass.
pub(super) struct FinishedPass {
    pub(super) end: RunTermination,
    pub(super) verdicts: Vec<CaseVerdict>,
    pub(super) answer_times: Vec<Duration>,
    /// Why questions failed, the first reason.
    pub(super) failure: Option<String>,
}

/// Limits and paths that all passes share.
pub(super) struct PassSettings<'s> {
    pub(super) state: &'s StateFolder,
    /// The folder of passes, separate from the runs of the user.
    pub(super) passes: &'s StateFolder,
    pub(super) max_calls: Option<u64>,
    pub(super) max_cost_usd: Option<f64>,
    pub(super) is_fresh: bool,
    pub(super) is_quiet: bool,
}

impl TestPass {
    /// Creates the pass that shows the cases in this way. `evaluators` are those of the judge, changed by the probe
    /// if it changes rubrics. Cases that a probe cannot change are left out.
    pub(super) fn new(kind: PassKind, cases: &[TestCase], evaluators: Vec<Evaluator>, seed: u64) -> TestPass {
        let repeat = match kind {
            PassKind::Repeat(number) => number,
            PassKind::Probe(_) => 0,
        };
        let mut pass = TestPass {
            kind,
            evaluators,
            trajectories: Vec::new(),
            selection: QuestionSelection::with_repeat(repeat),
            cases: HashMap::new(),
        };
        let mut known: HashSet<&str> = HashSet::new();
        for (number, case) in cases.iter().enumerate() {
            if !pass.evaluators.iter().any(|evaluator| *evaluator.name == *case.evaluator) {
                continue;
            }
            let id = &case.trajectory.trajectory_id;
            if !known.contains(id.as_str()) {
                let shown = match kind {
                    PassKind::Probe(probe) if !probe.changes_rubric() => probe.change_run(&case.trajectory, seed),
                    _ => Some(Trajectory::clone(&case.trajectory)),
                };
                let Some(shown) = shown else { continue };
                pass.trajectories.push(shown);
                known.insert(id);
            }
            pass.selection.add_question(id, case.step, &case.evaluator);
            pass.cases.insert((id.clone(), case.step, case.evaluator.clone()), number);
        }
        pass
    }

    pub(super) fn question_count(&self) -> usize {
        self.cases.len()
    }

    /// Estimates the questions of the pass, by evaluator.
    pub(super) fn estimate(&self, judge: &TestedJudge, cache: Option<VerdictCache>) -> anyhow::Result<CostEstimator> {
        let estimator = CostEstimator::new(
            self.evaluators.clone(),
            judge.judge.clone().map(JudgePanel::from),
            ToolTexts::default(),
            cache,
        );
        let mut estimator = estimator.with_selection(self.selection.clone());
        for trajectory in &self.trajectories {
            estimator.add(trajectory.clone())?;
        }
        Ok(estimator)
    }

    /// Asks the questions. Verdicts of an earlier process of the same pass are not asked for again.
    pub(super) fn run(&self, judge: &TestedJudge, settings: &PassSettings<'_>) -> anyhow::Result<FinishedPass> {
        let mut folder = self.begin(judge, settings)?;
        let mut cache = VerdictCache::open(&settings.state.cache_path())?;
        settings.passes.restore_cache(&mut cache)?;
        let plan = RunPlan {
            evaluators: self.evaluators.clone(),
            judge: judge.judge.clone().map(JudgePanel::from),
            tools: ToolTexts::default(),
            limits: RunLimits {
                concurrency: judge.concurrency,
                max_calls: settings.max_calls,
                max_cost_usd: settings.max_cost_usd,
                max_time: None,
            },
            ignore_cache: settings.is_fresh,
        };
        let mut watcher = PassWatcher {
            bar: RunProgressBar::new(settings.is_quiet, judge.judge.is_some()),
            answer_times: Vec::new(),
        };
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
        let selection = Some(self.selection.clone());
        let end = runtime.block_on(async {
            let (sender, trajectories) = mpsc::channel(1);
            let all = self.trajectories.clone();
            tokio::spawn(async move {
                for batch in all.chunks(32) {
                    if sender.send(batch.to_vec()).await.is_err() {
                        return;
                    }
                }
            });
            let interrupts = spawn_interrupt_listener();
            runner::run_selected(plan, selection, &folder, cache, trajectories, interrupts, &mut watcher).await
        });
        watcher.bar.finish();
        let end = end?;
        folder.record.state = if end == RunTermination::Finished { RunState::Finished } else { RunState::Stopped };
        folder.record.ended = Some(format_to_seconds(jiff::Timestamp::now()));
        folder.save_manifest()?;
        let (verdicts, failure) = self.read_verdicts(&folder)?;
        Ok(FinishedPass { end, verdicts, answer_times: watcher.answer_times, failure })
    }

    /// Continues an unfinished pass with the same questions, or begins a new one.
    fn begin(&self, judge: &TestedJudge, settings: &PassSettings<'_>) -> anyhow::Result<RunFolder> {
        let fingerprint = self.compute_fingerprint(judge);
        if !settings.is_fresh
            && let Some(mut folder) = settings.passes.resume_run(&fingerprint)
        {
            folder.record.state = RunState::Running;
            folder.save_manifest()?;
            return Ok(folder);
        }
        let started = jiff::Timestamp::now();
        Ok(settings.passes.create_run(RunManifest {
            run_id: run_id(started),
            fingerprint,
            state: RunState::Running,
            name: None,
            tags: Default::default(),
            commit: None,
            branch: None,
            stopped_because: None,
            started: format_to_seconds(started),
            ended: None,
            sources: vec![format!("judge test, {:?}", self.kind)],
            judge: judge.name.clone(),
            endpoint: judge.judge.as_ref().map(|judge| judge.client.shown_url().to_owned()),
            evaluators: self.evaluators.iter().map(Evaluator::to_record).collect(),
            priced: judge.judge.as_ref().is_none_or(|judge| judge.price.is_some()),
            gates: Vec::new(),
            early_gates: Vec::new(),
            panel: None,
            models: Vec::new(),
            prices: Default::default(),
            gradus_version: env!("CARGO_PKG_VERSION").to_owned(),
        })?)
    }

    fn compute_fingerprint(&self, judge: &TestedJudge) -> String {
        let mut questions: Vec<String> = self.cases.keys().map(|question| format!("{question:?}")).collect();
        questions.sort();
        let evaluators: Vec<_> = self.evaluators.iter().map(Evaluator::to_record).collect();
        let text = serde_json::json!({
            "kind": format!("{:?}", self.kind),
            "questions": questions,
            "evaluators": evaluators,
            "judge": judge.judge.as_ref().map(|judge| format!("{:?}", judge.settings)),
            "endpoint": judge.judge.as_ref().map(|judge| judge.client.shown_url()),
            "version": env!("CARGO_PKG_VERSION"),
        });
        format!("{:032x}", gradus_core::stable_digest(text.to_string().as_bytes()))
    }

    /// Reads the verdicts in the journal of the pass, the latest one on each question. Returns also the first reason
    /// of a failure.
    fn read_verdicts(&self, folder: &RunFolder) -> anyhow::Result<(Vec<CaseVerdict>, Option<String>)> {
        let mut verdicts: HashMap<usize, CaseVerdict> = HashMap::new();
        let mut failure = None;
        let path = folder.outcomes_path();
        let file = std::fs::File::open(&path);
        let file = match file {
            Ok(file) => file,
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok((Vec::new(), None)),
            Err(error) => return Err(error.into()),
        };
        for line in BufReader::new(file).split(b'\n') {
            // An incomplete line, left by a crash, is not a verdict.
            let Ok(line) = serde_json::from_slice::<OutcomeLine>(&line?) else { continue };
            let question = (line.trajectory_id.to_string(), line.step_index, line.evaluator.to_string());
            let Some(case) = self.cases.get(&question).copied() else { continue };
            let earlier_cost = verdicts.get(&case).and_then(|earlier| earlier.cost_usd);
            failure = failure.or_else(|| line.reason.clone().filter(|_| line.label.is_none()));
            verdicts.insert(case, self.to_verdict(case, &line, earlier_cost));
        }
        let mut verdicts: Vec<CaseVerdict> = verdicts.into_values().collect();
        verdicts.sort_by_key(|verdict| verdict.case);
        Ok((verdicts, failure))
    }

    fn to_verdict(&self, case: usize, line: &OutcomeLine, earlier_cost: Option<f64>) -> CaseVerdict {
        let evaluator = self.evaluators.iter().find(|one| *one.name == *line.evaluator);
        let is_wrong = |score: f64| evaluator.is_some_and(|one| one.labels.scale().is_wrong(score));
        let (repeat, probe) = match self.kind {
            PassKind::Repeat(repeat) => (repeat, None),
            PassKind::Probe(probe) => (0, Some(probe)),
        };
        CaseVerdict {
            case,
            repeat,
            probe,
            label: line.label.clone(),
            is_flagged: line.score.is_some_and(is_wrong),
            cost_usd: line.cost_usd.map(|cost| cost + earlier_cost.unwrap_or(0.0)),
            is_cached: line.cached,
        }
    }
}

/// Selects the evaluators of a judge for a pass. A probe that changes rubrics gives others; without any, `None`.
pub(super) fn select_pass_evaluators(
    kind: PassKind,
    judge: &TestedJudge,
    rubrics: &[gradus_eval::rubric::Rubric],
) -> Option<Vec<Evaluator>> {
    let PassKind::Probe(probe) = kind else { return Some(judge.evaluators.clone()) };
    if !probe.changes_rubric() {
        return Some(judge.evaluators.clone());
    }
    let model: &Arc<_> = judge.judge.as_ref()?;
    let changed = rubrics.iter().filter_map(|rubric| probe.change_rubric(rubric));
    let evaluators: Vec<Evaluator> =
        changed.map(|rubric| Evaluator::with_model_judge(&rubric, &model.name(), judge.is_structured)).collect();
    (!evaluators.is_empty()).then_some(evaluators)
}

/// A progress bar that also records how long answers took.
struct PassWatcher {
    bar: RunProgressBar,
    answer_times: Vec<Duration>,
}

impl ProgressWatcher for PassWatcher {
    fn on_outcome(&mut self, line: &OutcomeLine) {
        self.bar.on_outcome(line);
    }

    fn on_answer_time(&mut self, _line: &OutcomeLine, elapsed: Duration) {
        self.answer_times.push(elapsed);
    }

    fn on_progress(&mut self, progress: &RunProgress) {
        self.bar.on_progress(progress);
    }
}
