//! The environment of a trial: a simulator on a loopback port, and tools that call it. It runs one trial at a time and
//! gets a fresh world for each.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use super::BenchError;
use gradus_github_agent::agent::AgentClock;
use gradus_github_agent::tools::{BoxFuture, GitHubTools, ToolRestrictions};
use gradus_github_sim::{self as simulator, World};

/// Bound to the runtime in which it was opened, since the server is a task of it. Dropping it stops the server.
#[derive(Debug)]
pub struct TrialEnvironment {
    /// Shared with the server. Locked for one request at a time.
    world: Arc<Mutex<World>>,
    url: String,
    serving: tokio::task::JoinHandle<()>,
    /// Tools by token, created once and reused by later trials.
    tools: BTreeMap<String, GitHubTools>,
}

impl TrialEnvironment {
    /// Starts the simulator. With `real_time` the clock of the world follows the wall clock, for external programs
    /// that cannot advance it.
    pub async fn open(world: World, real_time: bool) -> Result<TrialEnvironment, BenchError> {
        let listener = simulator::bind_loopback_port(0).await?;
        let address = listener.local_addr().map_err(simulator::ServeError::Start)?;
        let world = Arc::new(Mutex::new(world));
        let serving = tokio::spawn(simulator::serve_world(listener, Arc::clone(&world), real_time));
        Ok(TrialEnvironment { world, url: format!("http://{address}"), serving, tools: BTreeMap::new() })
    }

    /// Replaces the world. Control routes are closed from here on, so that the agent can change the world only as
    /// GitHub allows, and all requests are recorded.
    pub fn reset_world(&self, mut world: World) {
        world.close_control();
        world.start_recording_exchanges();
        *self.world() = world;
    }

    pub fn url(&self) -> &str {
        &self.url
    }

    /// Locks the world. Do not hold the guard across an await: the server needs the lock to answer.
    pub fn world(&self) -> MutexGuard<'_, World> {
        self.world.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn shared_world(&self) -> &Mutex<World> {
        &self.world
    }

    /// Creates all tools for a token, including destructive ones: the benchmark measures how they are used.
    pub fn prepare_tools(&mut self, token: &str) -> Result<(), BenchError> {
        if !self.tools.contains_key(token) {
            let limits = ToolRestrictions { allow_destructive: true, ..ToolRestrictions::default() };
            self.tools.insert(token.to_owned(), GitHubTools::new(&self.url, Some(token), limits)?);
        }
        Ok(())
    }

    /// Returns the tools that [`TrialEnvironment::prepare_tools`] created for this token.
    pub(super) fn known_tools(&self, token: &str) -> Option<&GitHubTools> {
        self.tools.get(token)
    }
}

impl Drop for TrialEnvironment {
    fn drop(&mut self) {
        self.serving.abort();
    }
}

/// Waiting costs only simulated time.
impl AgentClock for TrialEnvironment {
    /// Advances the simulated clock, rounded up to seconds, and returns at once.
    fn sleep(&self, time: Duration) -> BoxFuture<'_, ()> {
        let seconds = i64::try_from(time.as_secs()).unwrap_or(i64::MAX);
        let rest = i64::from(time.subsec_nanos() > 0);
        self.world().advance_clock(seconds.saturating_add(rest));
        Box::pin(std::future::ready(()))
    }
}
