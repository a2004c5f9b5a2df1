//! Asks judges their anchors again, once a day and within the budget of the rule.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use gradus_core::trajectory::Trajectory;
use gradus_eval::calibration::{CasePopulation, JudgedCase, LabelDraw, LabelSampling};
use gradus_eval::evaluator::Evaluator;
use gradus_eval::judge::{JudgeFailure, ModelJudge, build_answer_form};
use gradus_eval::prompt::{
    CachedPromptRenderer, EvaluationCase, JudgePrompt, PromptWindow, ToolText, explain_not_applicable,
};
use gradus_eval::rubric::Rubric;
use gradus_store::{JudgeCall, JudgeSpend, MetricFilter, StoreError};
use tokio::sync::oneshot;

use crate::call_reservation::{CallReservation, CallReservationError};
use crate::clock::now_ns;
use crate::grading_rule::GradingRule;
use crate::judge_anchors::{AnchorRound, AnchorSet, JudgeAnchor, KeyedAnchorSet, load_anchor_sets};
use crate::live_calibration::is_case_judged_by;
use crate::settings::ReloadableSettings;
use crate::state::ServerState;
use crate::trace_group::TraceGroupView;

/// Maximum and minimum time between two checks of the sets.
const MAX_TICK: Duration = Duration::from_secs(600);
const MIN_TICK: Duration = Duration::from_secs(1);
/// Maximum number of anchors without a verdict before a round ends: the judge is down, and each question costs money.
const MAX_FAILED_ANCHORS: u64 = 3;
/// Number of verdicts that are examined for each anchor of a new set. Some belong to projects of other rules.
const CANDIDATES_PER_ANCHOR: usize = 4;

/// Why a round ended early.
#[derive(Debug, thiserror::Error)]
enum AnchorError {
    #[error(transparent)]
    Store(#[from] StoreError),
    #[error("the judge gave no verdict: {0}")]
    Judge(#[source] JudgeFailure),
    #[error(transparent)]
    Budget(#[from] CallReservationError),
    #[error("{0}")]
    Task(#[from] tokio::task::JoinError),
}

/// The loop. It ends when `stop` fires or the server stops.
pub(super) async fn watch_drift(server: Arc<ServerState>, mut stop: oneshot::Receiver<()>) {
    let anchors = server.settings.anchors;
    if anchors.count == 0 {
        return;
    }
    let mut tick = tokio::time::interval(anchors.every.clamp(MIN_TICK, MAX_TICK));
    tick.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
    loop {
        tokio::select! {
            _ = tick.tick() => {}
            _ = &mut stop => return,
        }
        // Of several servers on one database, only one asks.
        if !server.store.is_leader() {
            continue;
        }
        let settings = server.reloadable();
        for rule in settings.rules.iter().filter(|rule| rule.asks_model()) {
            for evaluator in rule.evaluators.iter().filter(|evaluator| evaluator.asks_model()) {
                if server.is_stopping.load(Ordering::Relaxed) {
                    return;
                }
                if let Err(error) = draw_or_ask_anchors(&server, &settings, rule, evaluator).await {
                    let name = &evaluator.name;
                    tracing::warn!(rule = rule.name, evaluator = %name, %error, "the anchors of a judge could not be asked");
                }
            }
        }
    }
}

/// Draws the anchors of an evaluator, or asks them again when the next round is due.
async fn draw_or_ask_anchors(
    server: &Arc<ServerState>,
    settings: &Arc<ReloadableSettings>,
    rule: &GradingRule,
    evaluator: &Evaluator,
) -> Result<(), AnchorError> {
    let rubric = settings.library.find(&evaluator.name).filter(|rubric| rubric.hash == *evaluator.hash);
    let (Some(judge), Some(rubric)) = (&rule.judge, rubric) else { return Ok(()) };
    let (owner, rules, name, asked) = (Arc::clone(server), Arc::clone(settings), rule.name.clone(), evaluator.clone());
    let known = tokio::task::spawn_blocking(move || load_or_draw_anchors(&owner, &rules, &name, &asked)).await??;
    let Some(mut known) = known else { return Ok(()) };
    let now = now_ns();
    let every_ns = i64::try_from(server.settings.anchors.every.as_nanos()).unwrap_or(i64::MAX);
    if now.saturating_sub(known.set.tried_at_ns) < every_ns {
        return Ok(());
    }
    // Stored before anything is asked: a failing round must not be paid for again at the next tick.
    known.set.tried_at_ns = now;
    server.store.put_anchor_set(known.to_row())?.wait_async().await?;
    let mut round = AnchorRound { at_ns: now, asked: 0, changed: 0 };
    let (mut gone_count, mut failed_count) = (0_usize, 0);
    for anchor in &known.set.anchors {
        if server.is_stopping.load(Ordering::Relaxed) {
            return Ok(());
        }
        let (owner, rules, name) = (Arc::clone(server), Arc::clone(settings), rule.name.clone());
        let (wanted, asked) = (anchor.clone(), rubric.clone());
        let question =
            tokio::task::spawn_blocking(move || load_anchor_question(&owner, &rules, &name, &asked, &wanted)).await??;
        let Some(question) = question else {
            // Its trace was deleted by retention.
            gone_count += 1;
            continue;
        };
        match question.ask(server, rule, judge, rubric).await {
            Ok(label) => {
                round.asked += 1;
                round.changed += u64::from(label != anchor.label);
            }
            Err(AnchorError::Judge(failure)) => {
                failed_count += 1;
                if failed_count == MAX_FAILED_ANCHORS {
                    return Err(AnchorError::Judge(failure));
                }
            }
            Err(error) => return Err(error),
        }
    }
    // Too few questions show nothing, so a new set is drawn.
    if gone_count * 2 > known.set.anchors.len() {
        known.set = AnchorSet::default();
    } else {
        let was_moved = known.set.has_drifted();
        known.set.add_round(round);
        if known.set.has_drifted() && !was_moved {
            let (evaluator, judge) = (&known.evaluator, &known.judge);
            tracing::warn!(rule = rule.name, evaluator, judge, result = known.set.describe(), "the judge has moved");
        }
    }
    server.store.put_anchor_set(known.to_row())?.wait_async().await?;
    Ok(())
}

/// Loads the stored set, or draws a new one at random from the verdicts that this judge has given. `None` if these
/// are too few.
fn load_or_draw_anchors(
    server: &ServerState,
    settings: &ReloadableSettings,
    rule: &str,
    evaluator: &Evaluator,
) -> Result<Option<KeyedAnchorSet>, StoreError> {
    let record = evaluator.to_record();
    let is_it = |known: &KeyedAnchorSet| {
        known.rule == rule
            && known.evaluator == record.name
            && known.judge == record.judge
            && known.rubric_hash == record.rubric_hash
    };
    if let Some(known) = load_anchor_sets(&server.store)?.into_iter().find(is_it) {
        return Ok(Some(known));
    }
    let count = server.settings.anchors.count;
    let mut population = CasePopulation::default();
    server.store.visit_judged_cases(&MetricFilter::default(), &record.name, i64::MAX, |row| {
        if let (true, Some(label)) = (is_case_judged_by(&record, &row), row.label) {
            let (trajectory_id, step_index) = (row.trajectory_id, row.step);
            population.cases.push(JudgedCase { trajectory_id, step_index, label, uncertainty: None, votes: None });
        }
    })?;
    if population.cases.len() < count {
        return Ok(None);
    }
    let Some(rubric) = settings.library.find(&record.name) else { return Ok(None) };
    // A uniform draw needs no uncertainty, so it cannot fail.
    let Ok(draw) = LabelDraw::new(&population, LabelSampling::Uniform, 0) else { return Ok(None) };
    // The first round is due one interval later, so that nothing is asked twice on the first day.
    let mut set = AnchorSet { tried_at_ns: now_ns(), ..AnchorSet::default() };
    for at in draw.order().iter().take(CANDIDATES_PER_ANCHOR * count) {
        let case = &population.cases[*at];
        let anchor =
            JudgeAnchor { trajectory_id: case.trajectory_id.clone(), step: case.step_index, label: case.label.clone() };
        if load_anchor_question(server, settings, rule, rubric, &anchor)?.is_some() {
            set.anchors.push(anchor);
        }
        if set.anchors.len() == count {
            break;
        }
    }
    if set.anchors.len() < count {
        return Ok(None);
    }
    let known = KeyedAnchorSet {
        rule: rule.to_owned(),
        evaluator: record.name,
        judge: record.judge,
        rubric_hash: record.rubric_hash,
        set,
    };
    server.store.put_anchor_set(known.to_row())?.wait()?;
    Ok(Some(known))
}

/// An anchor with everything that is needed to ask it.
struct AnchorQuestion {
    trajectory: Trajectory,
    step: Option<usize>,
    tools: Arc<ToolText>,
    project: String,
}

/// Loads an anchor's question. `None` if the trajectory is gone or changed, or its project belongs to another rule:
/// data of a project is sent only to the endpoint that its rule names.
fn load_anchor_question(
    server: &ServerState,
    settings: &ReloadableSettings,
    rule: &str,
    rubric: &Rubric,
    anchor: &JudgeAnchor,
) -> Result<Option<AnchorQuestion>, StoreError> {
    let store = &server.store;
    let Some(trace) = store.trace_of_trajectory(&anchor.trajectory_id)? else { return Ok(None) };
    let Some(row) = store.trace(trace)? else { return Ok(None) };
    let own = settings.rules.iter().find(|rule| rule.matches_project(&row.project)).filter(|own| own.name == rule);
    let Some(own) = own else { return Ok(None) };
    let all = TraceGroupView::load(store, row.trace_group)?.trajectories;
    let Some(trajectory) = all.into_iter().find(|one| one.trajectory_id == anchor.trajectory_id) else {
        return Ok(None);
    };
    let step = anchor.step.map(|number| trajectory.steps.iter().position(|step| step.index == number));
    // The final thought before the answer is not a step.
    if step == Some(None) {
        return Ok(None);
    }
    let tools = own.tool_texts().get_or_render(&trajectory.tools);
    let question = AnchorQuestion { step: step.flatten(), trajectory, tools, project: row.project };
    let is_asked = explain_not_applicable(rubric, &question.as_evaluation_case()).is_none();
    Ok(is_asked.then_some(question))
}

impl AnchorQuestion {
    fn as_evaluation_case(&self) -> EvaluationCase<'_> {
        EvaluationCase { trajectory: &self.trajectory, step: self.step, tools: &self.tools }
    }

    fn render_prompt(&self, rubric: &Rubric, window: PromptWindow) -> JudgePrompt {
        let case = self.as_evaluation_case();
        CachedPromptRenderer::new(rubric, &case, window).render(&case)
    }

    /// Asks the judge. The cost is charged to the rule and limited by its daily budget.
    async fn ask(
        self,
        server: &Arc<ServerState>,
        rule: &GradingRule,
        judge: &Arc<ModelJudge>,
        rubric: &Rubric,
    ) -> Result<String, AnchorError> {
        let prompt = self.render_prompt(rubric, judge.settings.window);
        let most_usd = judge.max_question_cost_usd(&prompt);
        let call = JudgeCall {
            key: None,
            rule: rule.name.clone(),
            project: self.project.clone(),
            trajectory_id: self.trajectory.trajectory_id.clone(),
            step: self.step.and_then(|at| self.trajectory.steps.get(at)).map(|step| step.index),
            rubric_hash: rubric.hash.clone(),
            judge: judge.name(),
            max_cost_usd: most_usd.unwrap_or_default(),
            daily_budget_usd: rule.daily_budget_usd,
        };
        let mut hold = CallReservation::reserve(&server.store, call).await?;
        let form = build_answer_form(rubric, judge.settings.structured);
        let response = judge.judge(&form, &rubric.labels, prompt, |window| self.render_prompt(rubric, window)).await;
        let known_usd = judge.price.zip(response.usage).map(|(price, usage)| price.cost_of_usage(usage));
        // If the endpoint does not report all usage, the maximum is charged.
        let cost_usd = if response.is_usage_partial { most_usd.or(known_usd) } else { known_usd };
        let calls = u64::from(response.calls);
        server.meters.record_call_pricing(calls, cost_usd.is_some());
        let spend = JudgeSpend {
            rule: rule.name.clone(),
            calls,
            unpriced: if cost_usd.is_some() { 0 } else { calls },
            cost_usd: cost_usd.unwrap_or_default(),
        };
        hold.settle(spend, None).await?;
        response.result.map(|verdict| verdict.label.to_string()).map_err(AnchorError::Judge)
    }
}
