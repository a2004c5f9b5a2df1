//! Models judge here: for each rule with a model, one run that goes on for as long as there is something to judge and
//! money to pay for it. What waits is in the store, so a restart goes on where it stopped.

use std::collections::HashMap;
use std::convert::Infallible;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use gradus_core::trajectory::Trajectory;
use gradus_eval::outcome::{OutcomeKind, OutcomeLine};
use gradus_eval::prompt::Shortened;
use gradus_eval::run::{CachedVerdict, Key, RunFileError, StateFolder, VerdictCache};
use gradus_eval::runner::{self, Done, Effort, Ledger, RunEnd, RunLimits, RunPlan};
use gradus_eval::verdict::Reading;
use gradus_store::{Left, OutcomeRecord, Spend, Store, StoreError, Ungraded, Written};
use tokio::sync::mpsc;
use tokio::task::JoinHandle;

use super::assemble::{outcome_record, run_id, trajectory_again};
use super::rule::Rule;
use crate::serve::settings::Reloadable;
use crate::serve::state::{Server, now_ns};

/// One task for each rule that asks a model.
pub(super) struct Graders {
    stop: Arc<AtomicBool>,
    all: JoinHandle<()>,
}

const POLL: Duration = Duration::from_millis(200);
const BATCH: usize = 32;
const SHORTEST_PAUSE: Duration = Duration::from_secs(2);
const LONGEST_PAUSE: Duration = Duration::from_secs(300);
const DAY_NS: i64 = 86_400_000_000_000;

impl Graders {
    pub(super) fn start(server: &Arc<Server>) -> Graders {
        Graders::start_after(server, None)
    }

    /// The old rules finish what they have asked; then the new ones go on with what waits.
    pub(super) fn restart(&mut self, server: &Arc<Server>) {
        self.stop.store(true, Ordering::Relaxed);
        let old = std::mem::replace(&mut self.all, tokio::spawn(async {}));
        *self = Graders::start_after(server, Some(old));
    }

    fn start_after(server: &Arc<Server>, before: Option<JoinHandle<()>>) -> Graders {
        let stop = Arc::new(AtomicBool::new(false));
        let reloadable = server.reloadable();
        let mut graders = Vec::new();
        for number in 0..reloadable.rules.len() {
            if reloadable.rules[number].asks_a_model() {
                graders.push(Grader {
                    server: Arc::clone(server),
                    reloadable: Arc::clone(&reloadable),
                    number,
                    stop: Arc::clone(&stop),
                });
            }
        }
        let all = tokio::spawn(async move {
            if let Some(before) = before {
                // Two at once would ask the same questions.
                let _ = before.await;
            }
            let mut tasks = tokio::task::JoinSet::new();
            graders.into_iter().for_each(|grader| drop(tasks.spawn(grader.run())));
            tasks.join_all().await;
        });
        Graders { stop, all }
    }

    pub(super) async fn stop(self) {
        self.stop.store(true, Ordering::Relaxed);
        let _ = self.all.await;
    }
}

struct Grader {
    server: Arc<Server>,
    reloadable: Arc<Reloadable>,
    number: usize,
    stop: Arc<AtomicBool>,
}

impl Grader {
    fn rule(&self) -> &Rule {
        &self.reloadable.rules[self.number]
    }

    fn is_stopping(&self) -> bool {
        self.stop.load(Ordering::Relaxed) || self.server.is_stopping.load(Ordering::Relaxed)
    }

    async fn run(self) {
        let rule = self.rule().name.clone();
        let mut pause = SHORTEST_PAUSE;
        while !self.is_stopping() {
            match self.run_once().await {
                Ok(RunEnd::Finished) => pause = SHORTEST_PAUSE,
                Ok(RunEnd::Limit(reason)) => {
                    tracing::warn!(rule, %reason, "judging rests; what waits is judged when there is money again");
                    self.sleep(LONGEST_PAUSE).await;
                }
                Ok(RunEnd::Interrupted) => {}
                Ok(RunEnd::Endpoint(failure)) => {
                    tracing::error!(rule, %failure, pause_s = pause.as_secs(), "the judge cannot be asked");
                    self.sleep(pause).await;
                    pause = (pause * 2).min(LONGEST_PAUSE);
                }
                Ok(RunEnd::EndpointDied(reason)) => {
                    tracing::error!(rule, %reason, pause_s = pause.as_secs(), "the judge stopped answering");
                    self.sleep(pause).await;
                    pause = (pause * 2).min(LONGEST_PAUSE);
                }
                Err(error) => {
                    tracing::error!(rule, %error, "judging failed");
                    self.sleep(pause).await;
                    pause = (pause * 2).min(LONGEST_PAUSE);
                }
            }
        }
    }

    async fn sleep(&self, pause: Duration) {
        let until = tokio::time::Instant::now() + pause;
        while tokio::time::Instant::now() < until && !self.is_stopping() {
            tokio::time::sleep(POLL).await;
        }
    }

    /// Judges what waits until the day is over, the rule's money is spent or the judge gone.
    async fn run_once(&self) -> anyhow::Result<RunEnd> {
        let rule = self.rule();
        if self.waiting(0, 1).await?.is_empty() {
            self.sleep(POLL).await;
            return Ok(RunEnd::Finished);
        }
        let max_cost_usd = match rule.daily_budget_usd {
            None => None,
            Some(budget) => {
                let today = now_ns().div_euclid(DAY_NS) * DAY_NS;
                let (store, name) = (Arc::clone(&self.server.store), rule.name.clone());
                let spent = tokio::task::spawn_blocking(move || store.spent_since(today, Some(&name), None))
                    .await??;
                if spent >= budget {
                    return Ok(RunEnd::Limit(format!("today's budget of ${budget} is spent")));
                }
                Some(budget - spent)
            }
        };
        let plan = RunPlan {
            evaluators: rule.evaluators.iter().filter(|one| one.asks_a_model()).cloned().collect(),
            judge: rule.judge.clone(),
            tools: rule.tool_texts(),
            limits: RunLimits {
                concurrency: rule.concurrency,
                max_calls: None,
                max_cost_usd,
                max_time: None,
            },
            ignore_cache: false,
        };
        let at_work = AtWork::default();
        let mut ledger = StoreLedger {
            server: Arc::clone(&self.server),
            rule: rule.name.clone(),
            cache: open_cache(&self.server.settings.data)?,
            at_work: at_work.clone(),
        };
        let (sender, receiver) = mpsc::channel(2);
        let (interrupt, interrupts) = mpsc::unbounded_channel();
        let feeding = self.feed(at_work, sender);
        let id = run_id(rule);
        let mut nobody = ();
        let judging =
            runner::run_with(plan, &id, Done::default(), &mut ledger, receiver, interrupts, &mut nobody);
        tokio::select! {
            (end, fed) = async { tokio::join!(judging, feeding) } => {
                fed?;
                Ok(end?)
            }
            never = self.interrupt_when_stopping(interrupt) => match never {},
        }
    }

    /// What is in flight is waited for; what was only handed over is not: it waits in the store, too.
    async fn interrupt_when_stopping(&self, interrupt: mpsc::UnboundedSender<()>) -> Infallible {
        while !self.is_stopping() {
            tokio::time::sleep(POLL).await;
        }
        let _ = interrupt.send(());
        std::future::pending().await
    }

    async fn waiting(&self, after: i64, limit: usize) -> anyhow::Result<Vec<Ungraded>> {
        let (store, rule) = (Arc::clone(&self.server.store), self.rule().name.clone());
        Ok(tokio::task::spawn_blocking(move || store.ungraded(&rule, now_ns(), after, limit)).await??)
    }

    /// Hands over what waits until the day ends, and with it the budget.
    async fn feed(&self, at_work: AtWork, sender: mpsc::Sender<Vec<Trajectory>>) -> anyhow::Result<()> {
        let today = now_ns().div_euclid(DAY_NS);
        let mut after = 0;
        let mut has_sent = false;
        while now_ns().div_euclid(DAY_NS) == today && !sender.is_closed() && !self.is_stopping() {
            let waiting = self.waiting(after, BATCH).await?;
            let Some(last) = waiting.last() else {
                // A trajectory that changed waits under the number it had: the next look begins at the first again.
                after = 0;
                if !std::mem::take(&mut has_sent) {
                    tokio::time::sleep(POLL).await;
                }
                continue;
            };
            after = last.no;
            let mut batch = Vec::with_capacity(waiting.len());
            for one in waiting.into_iter().filter(|one| !at_work.has(&one.trajectory_id)) {
                let (store, wanted) = (Arc::clone(&self.server.store), one.clone());
                let found = tokio::task::spawn_blocking(move || {
                    trajectory_again(&store, wanted.story, &wanted.trajectory_id)
                });
                match found.await?? {
                    Some(trajectory) => {
                        at_work.begin(one, &trajectory);
                        batch.push(trajectory);
                    }
                    None => give_up(&self.server.store, &one)?,
                }
            }
            if !batch.is_empty() {
                has_sent = true;
                if sender.send(batch).await.is_err() {
                    break;
                }
            }
        }
        Ok(())
    }
}

/// A trajectory that its records do not give any more: nothing is left to judge.
fn give_up(store: &Store, one: &Ungraded) -> Result<(), StoreError> {
    store.judged(one, Vec::new(), Spend::default(), Left::Nothing, now_ns()).map(drop)
}

fn open_cache(data: &Path) -> Result<VerdictCache, RunFileError> {
    VerdictCache::open(&StateFolder::open(data)?.cache_path())
}

/// The trajectories that are being judged.
#[derive(Clone, Default)]
struct AtWork(Arc<Mutex<HashMap<String, Judging>>>);

struct Judging {
    ungraded: Ungraded,
    tools: HashMap<u32, String>,
    /// Outcomes that are still to come; not known before the trajectory is planned.
    left: Option<usize>,
    outcomes: Vec<OutcomeRecord>,
    spend: Spend,
    /// All was handed to the store.
    is_written: bool,
    /// Some question got no answer.
    has_failed: bool,
}

/// How long a question that got no answer waits before it is asked again. After the last it stays without one.
const AGAIN_AFTER_S: [i64; 3] = [60, 600, 3_600];

impl Judging {
    /// Answers that were given are in the cache: only the others are asked for again.
    fn what_is_left(&self) -> Left {
        match AGAIN_AFTER_S.get(self.ungraded.attempts as usize) {
            Some(seconds) if self.has_failed => Left::AgainAt { ns: now_ns() + seconds * 1_000_000_000 },
            _ => Left::Nothing,
        }
    }
}

impl AtWork {
    /// It is at work until the store says that it waits no more: else it would be taken up again.
    async fn end(self, id: String, written: Written<()>) {
        if let Err(error) = written.done().await {
            tracing::error!(%error, "verdicts could not be stored; they are taken from the cache again");
        }
        self.lock().remove(&id);
    }

    fn begin(&self, ungraded: Ungraded, trajectory: &Trajectory) {
        let tools = trajectory.steps.iter().map(|step| (step.index, step.tool.clone())).collect();
        let spend = Spend { rule: ungraded.rule.clone(), ..Spend::default() };
        let judging = Judging {
            ungraded,
            tools,
            left: None,
            outcomes: Vec::new(),
            spend,
            is_written: false,
            has_failed: false,
        };
        self.lock().insert(trajectory.trajectory_id.clone(), judging);
    }

    fn has(&self, trajectory_id: &str) -> bool {
        self.lock().contains_key(trajectory_id)
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, HashMap<String, Judging>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Writes a run's outcomes to the store.
struct StoreLedger {
    server: Arc<Server>,
    rule: String,
    cache: VerdictCache,
    at_work: AtWork,
}

impl StoreLedger {
    fn failed(&self, error: &StoreError) -> RunFileError {
        RunFileError {
            path: self.server.store.path().display().to_string(),
            reason: std::io::Error::other(error.to_string()),
        }
    }
}

impl Ledger for StoreLedger {
    fn trajectory(&mut self, _trajectory: &mut Trajectory) -> Result<bool, RunFileError> {
        Ok(false)
    }

    fn planned(&mut self, trajectory_id: &str, questions: usize) {
        if let Some(judging) = self.at_work.lock().get_mut(trajectory_id) {
            judging.left = Some(questions);
        }
    }

    fn outcome(&mut self, line: &OutcomeLine) -> Result<(), RunFileError> {
        self.server.meters.outcome(line);
        if let Some(judging) = self.at_work.lock().get_mut(&*line.trajectory_id) {
            judging.outcomes.push(outcome_record(line, &judging.tools));
            judging.has_failed |= line.outcome == OutcomeKind::Failed;
            judging.left = judging.left.map(|left| left.saturating_sub(1));
        }
        Ok(())
    }

    /// A budget holds also where the endpoint does not say what it used.
    fn asked(&mut self, trajectory_id: &str, effort: Effort) {
        if let Some(judging) = self.at_work.lock().get_mut(trajectory_id) {
            judging.spend.calls += u64::from(effort.calls);
            judging.spend.cost_usd += effort.cost_usd;
        }
    }

    fn cached(&mut self, key: Key) -> Result<Option<CachedVerdict>, RunFileError> {
        self.cache.get(key)
    }

    fn cache(&mut self, key: Key, reading: &Reading, shortened: &[Shortened]) -> Result<(), RunFileError> {
        self.cache.add(key, CachedVerdict::of(reading, shortened))
    }

    /// Verdicts go to the cache first: they were paid for, and from there they are never lost.
    fn write(&mut self) -> Result<(), RunFileError> {
        self.cache.write()?;
        for (id, judging) in self.at_work.lock().iter_mut() {
            let is_done = judging.left == Some(0);
            let has_news = !judging.outcomes.is_empty() || judging.spend.calls > 0;
            if judging.is_written || !(has_news || is_done) {
                continue;
            }
            let outcomes = std::mem::take(&mut judging.outcomes);
            let spend =
                std::mem::replace(&mut judging.spend, Spend { rule: self.rule.clone(), ..Spend::default() });
            let left = if is_done { judging.what_is_left() } else { Left::More };
            let written = self.server.store.judged(&judging.ungraded, outcomes, spend, left, now_ns());
            let written = written.map_err(|error| self.failed(&error))?;
            judging.is_written = is_done;
            if is_done {
                tokio::spawn(self.at_work.clone().end(id.clone(), written));
            }
        }
        Ok(())
    }
}
