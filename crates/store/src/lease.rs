//! What several servers on one database agree on: who assembles a trace group, who judges a trajectory, and who sends
//! alerts. SQLite has one server only, which owns everything.
//!
//! A claim is a lease: it ends by the clock of the database if its server does not renew it, so clocks of servers may
//! differ. A server that lost its lease, for example because it stood still, may not write what it made of it.

use std::sync::atomic::{AtomicBool, AtomicI64, Ordering};
use std::sync::mpsc::{RecvTimeoutError, Sender, channel};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use crate::buckets::DAY_NS;
use crate::engine::StoreEngine;
use crate::error::StoreError;
use crate::judge_calls::{ANSWER_RETENTION_NS, charge_lost_calls, charge_own_calls, forget_answers};
use crate::random_digits::random_digits;
use crate::ready_queue::{LEASE_INTERVAL, fail_unfinished};
use crate::sql::{SqlConnection, params};

/// How often a lease is renewed: three times in its duration.
const HEARTBEAT_INTERVAL: Duration = Duration::from_secs(10);
/// Interval after which a failed heartbeat is repeated.
const HEARTBEAT_RETRY_INTERVAL: Duration = Duration::from_secs(2);
/// Session-level advisory lock of the server that sends alerts: "gral" in ASCII.
const LEADER_LOCK: i64 = 0x6772_616c;
/// Number of days for which partitions are created in advance.
const PARTITION_DAYS_AHEAD: i64 = 3;

/// This server among those that use the database.
pub(crate) struct ClusterNode {
    state: Arc<NodeState>,
    /// Dropped first, which ends the thread.
    stop: Option<Sender<()>>,
    thread: Option<JoinHandle<()>>,
}

/// Shared with the thread.
struct NodeState {
    /// Unique among all servers that ever used the database.
    name: String,
    is_leader: AtomicBool,
    /// Whether the last heartbeat could not be written.
    is_failing: AtomicBool,
    /// How far the clock of the database is ahead of this server's.
    clock_offset_ns: AtomicI64,
    /// The published settings of this server; empty until they are set.
    settings: Mutex<String>,
}

impl NodeState {
    fn new(is_leader: bool) -> Result<NodeState, StoreError> {
        Ok(NodeState {
            name: random_digits()?[..16].to_owned(),
            is_leader: AtomicBool::new(is_leader),
            is_failing: AtomicBool::new(false),
            clock_offset_ns: AtomicI64::new(0),
            settings: Mutex::default(),
        })
    }

    /// Time until the next heartbeat.
    fn pause(&self) -> Duration {
        if self.is_failing.load(Ordering::Relaxed) { HEARTBEAT_RETRY_INTERVAL } else { HEARTBEAT_INTERVAL }
    }

    fn settings(&self) -> String {
        self.settings.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }
}

impl ClusterNode {
    /// The only server of an embedded store.
    pub(crate) fn standalone() -> Result<ClusterNode, StoreError> {
        Ok(ClusterNode { state: Arc::new(NodeState::new(true)?), stop: None, thread: None })
    }

    /// Joins the servers of a database and starts to renew leases.
    pub(crate) fn join(engine: StoreEngine) -> Result<ClusterNode, StoreError> {
        let state = Arc::new(NodeState::new(false)?);
        let connection = engine.open_writer()?;
        // Whoever opens the store counts unfinished attempts itself, before its first one.
        write_heartbeat(&connection, &state, false)?;
        let (stop, stopped) = channel();
        let shared = Arc::clone(&state);
        let renew = move || {
            let mut connection = Some(connection);
            while let Err(RecvTimeoutError::Timeout) = stopped.recv_timeout(shared.pause()) {
                let is_done = try_heartbeat(&mut connection, &engine, &shared)
                    // A connection that was lost meanwhile is noticed by its first statement.
                    || try_heartbeat(&mut connection, &engine, &shared);
                shared.is_failing.store(!is_done, Ordering::Relaxed);
            }
            if let Some(connection) = &connection {
                let _ = release_leases(connection, &shared);
            }
        };
        let thread = std::thread::Builder::new()
            .name("leases".to_owned())
            .spawn(renew)
            .map_err(|error| StoreError::Sql(error.to_string()))?;
        Ok(ClusterNode { state, stop: Some(stop), thread: Some(thread) })
    }

    pub(crate) fn name(&self) -> &str {
        &self.state.name
    }

    /// Sets the settings that every heartbeat publishes from now on.
    pub(crate) fn set_settings(&self, settings: &str) {
        settings.clone_into(&mut self.state.settings.lock().unwrap_or_else(PoisonError::into_inner));
    }

    /// Whether the last heartbeat could not be written.
    pub(crate) fn is_failing(&self) -> bool {
        self.state.is_failing.load(Ordering::Relaxed)
    }

    /// Whether this server runs the tasks that only one server may run.
    pub(crate) fn is_leader(&self) -> bool {
        self.state.is_leader.load(Ordering::Relaxed)
    }

    /// A time of this server by the clock that all servers share.
    pub(crate) fn shared_time_ns(&self, now_ns: i64) -> i64 {
        now_ns.saturating_add(self.state.clock_offset_ns.load(Ordering::Relaxed))
    }
}

impl Drop for ClusterNode {
    fn drop(&mut self) {
        drop(self.stop.take());
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

/// Sends one heartbeat, on a new connection if the old one is lost. Returns whether it was written.
fn try_heartbeat(connection: &mut Option<SqlConnection>, engine: &StoreEngine, state: &NodeState) -> bool {
    if connection.as_ref().is_none_or(SqlConnection::is_broken) {
        // The leader lock was lost with the connection.
        state.is_leader.store(false, Ordering::Relaxed);
        *connection = engine.open_writer().ok();
    }
    match connection.as_ref().map(|connection| write_heartbeat(connection, state, true)) {
        // Another server was in the way, which says nothing about the database.
        Some(Ok(()) | Err(StoreError::Conflict { .. })) => true,
        Some(Err(_)) | None => false,
    }
}

/// Renews the leases of this server, takes over from servers that are gone, and tries to become the leader.
fn write_heartbeat(sql: &SqlConnection, state: &NodeState, takes_over: bool) -> Result<(), StoreError> {
    let before_ns = system_time_ns();
    let database_ns: i64 = sql
        .prepare_cached("SELECT CAST(extract(epoch FROM clock_timestamp()) * 1000000 AS BIGINT)")?
        .query_row((), |row| row.get::<i64>(0))?
        .saturating_mul(1000);
    // Half of the round trip. Differences below a second are network and scheduling, and are ignored.
    let offset_ns = database_ns - before_ns.midpoint(system_time_ns());
    let offset_ns = if offset_ns.abs() < 1_000_000_000 { 0 } else { offset_ns };
    state.clock_offset_ns.store(offset_ns, Ordering::Relaxed);
    sql.prepare_cached(
        "INSERT INTO node (name, started_at, seen_at, program, settings, address) \
         VALUES (?, now(), now(), ?, ?, coalesce(host(inet_client_addr()), 'a local socket')) \
         ON CONFLICT (name) DO UPDATE SET seen_at = now(), settings = excluded.settings",
    )?
    .execute(params![state.name, env!("CARGO_PKG_VERSION"), state.settings()])?;
    for table in ["due", "ungraded"] {
        let renew = format!(
            "UPDATE {table} SET leased_until = now() + {LEASE_INTERVAL} WHERE owner = ? AND leased_until > now()"
        );
        sql.prepare_cached(&renew)?.execute([&state.name])?;
    }
    if takes_over {
        // Failed steps are left to the next heartbeat; the rest of this one must not wait for them.
        let _ = sql.transact(|| fail_unfinished(sql, database_ns));
        let _ = sql.transact(|| charge_lost_calls(sql, &state.name));
        forget_answers(sql, database_ns - ANSWER_RETENTION_NS)?;
    }
    sql.execute("DELETE FROM node WHERE seen_at < now() - interval '1 day'", ())?;
    for day in 0..PARTITION_DAYS_AHEAD {
        sql.prepare_cached("SELECT 1 FROM make_partitions(?)")?.exists([database_ns / DAY_NS + day])?;
    }
    let is_leader = state.is_leader.load(Ordering::Relaxed)
        || sql.prepare_cached("SELECT pg_try_advisory_lock(?)")?.query_row([LEADER_LOCK], |row| row.get(0))?;
    state.is_leader.store(is_leader, Ordering::Relaxed);
    Ok(())
}

/// Ends all leases, so that others need not wait, and charges unfinished calls. Attempts that are not finished then
/// count as failed, as after a crash.
fn release_leases(sql: &SqlConnection, state: &NodeState) -> Result<(), StoreError> {
    sql.execute("UPDATE due SET leased_until = now() WHERE owner = ?", [&state.name])?;
    sql.execute("UPDATE ungraded SET owner = NULL, leased_until = NULL WHERE owner = ?", [&state.name])?;
    sql.transact(|| charge_own_calls(sql, &state.name))?;
    sql.execute("DELETE FROM node WHERE name = ?", [&state.name])?;
    Ok(())
}

fn system_time_ns() -> i64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    i64::try_from(since.as_nanos()).unwrap_or(i64::MAX)
}
