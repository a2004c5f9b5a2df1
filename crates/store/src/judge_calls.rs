//! Calls to judges on which several servers agree. Before a call a row says who asks what, and reserves its upper bound
//! from the daily budget of the rule. The answer closes the row in the transaction that adds the real cost, so that at
//! any moment the costs and the reservations together are at least what was spent.
//!
//! A server that dies leaves its rows open. Others charge them at their upper bound once the server has shown no sign of
//! life for the length of a lease: nobody knows whether the judge was reached.

use std::collections::HashSet;
use std::sync::{Mutex, MutexGuard, PoisonError};

use crate::Store;
use crate::buckets::{DAY_NS, bucket_index};
use crate::error::StoreError;
use crate::query::project_number;
use crate::ready_queue::LEASE_INTERVAL;
use crate::spend::{JudgeSpend, add_spend};
use crate::sql::{OptionalRow, SqlConnection, SqlError, SqlRow, ToSqlParam, params};

/// How long answers are stored for servers that take work over: longer than a budget or a judge delays it.
pub(crate) const ANSWER_RETENTION_NS: i64 = 7 * DAY_NS;
/// First key of the advisory locks of budgets: "grbu" in ASCII. The second one is a hash of the rule.
const BUDGET_LOCK: i64 = 0x6772_6275;

/// A call that is about to be made.
#[derive(Clone, Debug)]
pub struct JudgeCall {
    /// Hash of everything that may change the answer: content, rubric, judge. `None` for a call that shares its
    /// answer with no other.
    pub key: Option<[u8; 16]>,
    /// The rule whose budget pays.
    pub rule: String,
    pub project: String,
    pub trajectory_id: String,
    /// `None` for the whole trajectory.
    pub step: Option<u32>,
    pub rubric_hash: String,
    pub judge: String,
    /// Upper bound of its cost.
    pub max_cost_usd: f64,
    /// What the rule may spend in a UTC day; `None` without a limit.
    pub daily_budget_usd: Option<f64>,
}

/// Whether a call may be made.
#[derive(Clone, Debug, PartialEq)]
pub enum CallAdmission {
    /// Make it, and settle it with [`Store::settle_call`].
    Granted(CallTicket),
    /// It was made before, with this answer.
    Answered(String),
    /// Ask again later: it is under way elsewhere, or calls under way have reserved the rest of the budget.
    Later,
    /// The budget of the day does not suffice even if all calls under way cost nothing.
    Exhausted { spent_usd: f64 },
}

/// The right to make one call.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CallTicket {
    key: [u8; 16],
    /// Together with the server it is unique: a server that lost its row cannot settle the row of another call.
    fence: i64,
}

/// The calls of this process that are under way.
#[derive(Default)]
pub(crate) struct OpenCalls(Mutex<CallNumbers>);

#[derive(Default)]
struct CallNumbers {
    last: i64,
    open: HashSet<i64>,
}

impl OpenCalls {
    fn lock(&self) -> MutexGuard<'_, CallNumbers> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Numbers a call that is about to begin. Until it is forgotten, its row is not treated as a leftover.
    fn begin(&self) -> i64 {
        let mut numbers = self.lock();
        numbers.last += 1;
        let fence = numbers.last;
        numbers.open.insert(fence);
        fence
    }

    fn forget(&self, fence: i64) {
        self.lock().open.remove(&fence);
    }
}

impl Store {
    /// Reserves the upper bound of a call from the budget of its rule, unless the question is answered or being asked.
    /// Blocks the thread until the commit.
    pub fn begin_call(&self, call: &JudgeCall, now_ns: i64) -> Result<CallAdmission, StoreError> {
        let fence = self.calls.begin();
        let (call, node) = (call.clone(), self.node.name().to_owned());
        let own = self.calls.lock().open.clone();
        let now_ns = self.node.shared_time_ns(now_ns);
        let ticket = CallTicket { key: call.key.unwrap_or_else(|| make_unshared_key(&node, fence)), fence };
        let admitted = self.run_short_transaction(move |sql| admit_call(sql, &call, &ticket, &node, &own, now_ns));
        if !matches!(admitted, Ok(CallAdmission::Granted(_))) {
            self.calls.forget(fence);
        }
        admitted
    }

    /// Replaces a reservation by what was spent, and keeps the answer for other servers. If the reservation was charged
    /// meanwhile, because this server seemed dead, nothing is charged again. Blocks the thread until the commit.
    pub fn settle_call(
        &self,
        ticket: &CallTicket,
        spend: JudgeSpend,
        answer: Option<String>,
        now_ns: i64,
    ) -> Result<(), StoreError> {
        let (own, node) = (ticket.clone(), self.node.name().to_owned());
        let now_ns = self.node.shared_time_ns(now_ns);
        self.run_short_transaction(move |sql| close_call(sql, &own, &node, &spend, answer.as_deref(), now_ns))?;
        self.calls.forget(ticket.fence);
        Ok(())
    }

    /// Charges a call that was given up at its upper bound: it may have been billed.
    pub fn abandon_call(&self, ticket: &CallTicket) -> Result<(), StoreError> {
        let (own, node) = (ticket.clone(), self.node.name().to_owned());
        // If this fails, the question can be asked again, and the row is replaced or charged later.
        self.calls.forget(ticket.fence);
        self.run_short_transaction(move |sql| {
            const OWN: &str = "answer IS NULL AND key = ?1 AND owner = ?2 AND fence = ?3";
            charge_calls(sql, &find_open_calls(sql, OWN, params![own.key, node, own.fence])?)
        })
        .map(drop)
    }

    /// Charges the calls of servers that are gone at their upper bound. Returns their number.
    pub fn charge_lost_calls(&self) -> Result<usize, StoreError> {
        let node = self.node.name().to_owned();
        self.run_short_transaction(move |sql| charge_lost_calls(sql, &node))
    }

    /// Returns the dollars that the unfinished calls of a rule may cost.
    pub fn reserved_usd(&self, rule: &str) -> Result<f64, StoreError> {
        let reader = self.readers.take_reader()?;
        let sum = "SELECT coalesce(sum(reserved_usd), 0.0) FROM judge_call WHERE rule = ? AND answer IS NULL";
        Ok(reader.prepare_cached(sum)?.query_row([rule], |row| row.get(0))?)
    }
}

/// A call that is under way, or was when its server died.
struct OpenCall {
    key: [u8; 16],
    rule: String,
    project: i64,
    begun_ns: i64,
    reserved_usd: f64,
}

impl OpenCall {
    const COLUMNS: &str = "key, rule, project, begun_ns, reserved_usd";

    fn from_row(row: &SqlRow<'_>) -> Result<OpenCall, SqlError> {
        Ok(OpenCall {
            key: row.get(0)?,
            rule: row.get(1)?,
            project: row.get(2)?,
            begun_ns: row.get(3)?,
            reserved_usd: row.get(4)?,
        })
    }
}

/// SQL condition: whether the server that owns a row is alive, with the name of this server as the second parameter.
/// SQLite has no other servers.
fn is_owner_alive(sql: &SqlConnection) -> String {
    sql.choose(
        "owner = ?2".to_owned(),
        format!(
            "(owner = ?2 OR EXISTS (SELECT 1 FROM node WHERE node.name = judge_call.owner \
             AND node.seen_at > now() - {LEASE_INTERVAL}))"
        ),
    )
}

/// A key that no other call has.
fn make_unshared_key(node: &str, fence: i64) -> [u8; 16] {
    let digest = blake3::hash(format!("{node} {fence}").as_bytes());
    std::array::from_fn(|at| digest.as_bytes()[at])
}

fn admit_call(
    sql: &SqlConnection,
    call: &JudgeCall,
    ticket: &CallTicket,
    node: &str,
    own: &HashSet<i64>,
    now_ns: i64,
) -> Result<CallAdmission, StoreError> {
    lock_budget(sql, &call.rule)?;
    let is_alive = is_owner_alive(sql);
    let known: Option<(String, i64, Option<String>, bool)> = sql
        .prepare_cached(&format!("SELECT owner, fence, answer, {is_alive} FROM judge_call WHERE key = ?1"))?
        .query_row(params![ticket.key, node], |row| Ok((row.get(0)?, row.get(1)?, row.get(2)?, row.get(3)?)))
        .optional()?;
    match known {
        Some((_, _, Some(answer), _)) => return Ok(CallAdmission::Answered(answer)),
        Some((owner, number, None, true)) if owner != node || own.contains(&number) => {
            return Ok(CallAdmission::Later);
        }
        // Nobody waits for this call any more.
        Some(_) => {
            charge_calls(sql, &find_open_calls(sql, "answer IS NULL AND key = ?1", params![ticket.key])?)?;
        }
        None => {}
    }
    if let Some(budget) = call.daily_budget_usd {
        let (spent_usd, reserved_usd) = load_budget_use(sql, &call.rule, now_ns)?;
        if spent_usd + call.max_cost_usd > budget {
            return Ok(CallAdmission::Exhausted { spent_usd });
        }
        if spent_usd + reserved_usd + call.max_cost_usd > budget {
            return Ok(CallAdmission::Later);
        }
    }
    insert_call(sql, call, ticket, node, now_ns)
}

/// Writes the row. Another rule, whose lock is another one, may have been faster with the same question.
fn insert_call(
    sql: &SqlConnection,
    call: &JudgeCall,
    ticket: &CallTicket,
    node: &str,
    now_ns: i64,
) -> Result<CallAdmission, StoreError> {
    let project = project_number(sql, &call.project)?.unwrap_or(0);
    let inserted = sql
        .prepare_cached(
            "INSERT INTO judge_call (key, rule, project, trajectory_id, step, rubric_hash, judge, owner, fence, begun_ns, \
             reserved_usd) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?) ON CONFLICT (key) DO NOTHING",
        )?
        .execute(params![
            ticket.key,
            call.rule,
            project,
            call.trajectory_id,
            call.step.unwrap_or(0),
            call.rubric_hash,
            call.judge,
            node,
            ticket.fence,
            now_ns,
            call.max_cost_usd
        ])?;
    Ok(match inserted {
        0 => CallAdmission::Later,
        _ => CallAdmission::Granted(ticket.clone()),
    })
}

/// Servers reserve from one budget one after the other. SQLite has one writer only.
fn lock_budget(sql: &SqlConnection, rule: &str) -> Result<(), StoreError> {
    if sql.sqlite().is_none() {
        // The hash fills the lower half; budgets of rules with the same hash only wait for each other.
        sql.prepare_cached(
            "SELECT 1 FROM pg_advisory_xact_lock((CAST(? AS BIGINT) << 32) | (hashtext(?) & 2147483647))",
        )?
        .exists(params![BUDGET_LOCK, rule])?;
    }
    Ok(())
}

/// What a rule has spent today, and what its calls under way have reserved. In one statement, so that a call that is
/// settled at this moment counts in one of the two.
fn load_budget_use(sql: &SqlConnection, rule: &str, now_ns: i64) -> Result<(f64, f64), StoreError> {
    let today_ns = now_ns.div_euclid(DAY_NS) * DAY_NS;
    Ok(sql
        .prepare_cached(
            "SELECT (SELECT coalesce(sum(cost_usd), 0.0) FROM spend WHERE bucket >= ?1 AND rule = ?2), \
             (SELECT coalesce(sum(reserved_usd), 0.0) FROM judge_call WHERE rule = ?2 AND answer IS NULL)",
        )?
        .query_row(params![bucket_index(today_ns), rule], |row| Ok((row.get(0)?, row.get(1)?)))?)
}

/// Closes a row and charges what the call cost.
fn close_call(
    sql: &SqlConnection,
    ticket: &CallTicket,
    node: &str,
    spend: &JudgeSpend,
    answer: Option<&str>,
    now_ns: i64,
) -> Result<(), StoreError> {
    let project: Option<i64> = match answer {
        Some(answer) => sql
            .prepare_cached(
                "UPDATE judge_call SET answer = ?4, answered_ns = ?5, reserved_usd = 0 \
                 WHERE key = ?1 AND owner = ?2 AND fence = ?3 AND answer IS NULL RETURNING project",
            )?
            .query_row(params![ticket.key, node, ticket.fence, answer, now_ns], |row| row.get(0)),
        None => sql
            .prepare_cached(
                "DELETE FROM judge_call WHERE key = ?1 AND owner = ?2 AND fence = ?3 AND answer IS NULL \
                 RETURNING project",
            )?
            .query_row(params![ticket.key, node, ticket.fence], |row| row.get(0)),
    }
    .optional()?;
    match project {
        Some(project) => add_spend(sql, spend, Some(project), now_ns),
        None => Ok(()),
    }
}

/// Finds unfinished calls that a condition selects, in an order in which servers do not wait for each other in
/// circles.
fn find_open_calls(
    sql: &SqlConnection,
    condition: &str,
    params: &[&dyn ToSqlParam],
) -> Result<Vec<OpenCall>, StoreError> {
    // A call that another server settles at this moment is skipped.
    let lock = sql.choose("", "FOR UPDATE SKIP LOCKED");
    let columns = OpenCall::COLUMNS;
    let mut statement = sql.prepare(&format!(
        "SELECT {columns} FROM judge_call WHERE {condition} ORDER BY rule, project, begun_ns {lock}"
    ))?;
    Ok(statement.query_map(params, OpenCall::from_row)?.collect::<Result<_, _>>()?)
}

/// Charges calls at their upper bound, and removes their rows. Returns their number.
fn charge_calls(sql: &SqlConnection, calls: &[OpenCall]) -> Result<usize, StoreError> {
    for call in calls {
        let unpriced = u64::from(call.reserved_usd == 0.0);
        let spend = JudgeSpend { rule: call.rule.clone(), calls: 1, unpriced, cost_usd: call.reserved_usd };
        add_spend(sql, &spend, Some(call.project), call.begun_ns)?;
        sql.prepare_cached("DELETE FROM judge_call WHERE key = ?")?.execute([&call.key])?;
    }
    Ok(calls.len())
}

/// Charges the calls of servers that are gone, by their lease.
pub(crate) fn charge_lost_calls(sql: &SqlConnection, node: &str) -> Result<usize, StoreError> {
    // The name is the second parameter of the condition, so there has to be a first one.
    let lost = format!("answer IS NULL AND begun_ns <= ?1 AND NOT {}", is_owner_alive(sql));
    charge_calls(sql, &find_open_calls(sql, &lost, params![i64::MAX, node])?)
}

/// Charges the calls of a server that ends in good order.
pub(crate) fn charge_own_calls(sql: &SqlConnection, node: &str) -> Result<usize, StoreError> {
    charge_calls(sql, &find_open_calls(sql, "answer IS NULL AND owner = ?1", params![node])?)
}

/// Removes answers from before a time.
pub(crate) fn forget_answers(sql: &SqlConnection, before_ns: i64) -> Result<(), StoreError> {
    // SQLite has no index for it, and next to no rows.
    sql.prepare("DELETE FROM judge_call WHERE answer IS NOT NULL AND answered_ns < ?")?.execute([before_ns])?;
    Ok(())
}

/// Removes the answers to questions about a trajectory: they quote it. Only servers that share a store keep any.
pub(crate) fn forget_trajectory_answers(sql: &SqlConnection, trajectory: i64) -> Result<(), StoreError> {
    if sql.sqlite().is_none() {
        sql.prepare(
            "DELETE FROM judge_call WHERE answer IS NOT NULL \
             AND trajectory_id = (SELECT trajectory_id FROM trajectory WHERE no = ?)",
        )?
        .execute([trajectory])?;
    }
    Ok(())
}
