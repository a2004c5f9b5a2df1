//! A place where one trial at a time is played: a simulator behind a port, and tools that call it. Our own agent's place
//! is made once, and given another world for each trial.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use super::BenchError;
use gradus_github_agent::agent::AgentClock;
use gradus_github_agent::tools::{BoxFuture, GitHubTools, ToolRestrictions};
use gradus_github_sim::{self as simulator, World};

/// Lives in the runtime in which it was opened.
#[derive(Debug)]
pub struct TrialEnvironment {
    world: Arc<Mutex<World>>,
    url: String,
    serving: tokio::task::JoinHandle<()>,
    /// By token.
    tools: BTreeMap<String, GitHubTools>,
}

impl TrialEnvironment {
    /// With `real_time` the world's clock goes on as clocks do, for those who cannot move it on.
    pub async fn open(world: World, real_time: bool) -> Result<TrialEnvironment, BenchError> {
        let listener = simulator::bind_loopback_port(0).await?;
        let address = listener.local_addr().map_err(simulator::ServeError::Start)?;
        let world = Arc::new(Mutex::new(world));
        let serving = tokio::spawn(simulator::serve_world(listener, Arc::clone(&world), real_time));
        Ok(TrialEnvironment { world, url: format!("http://{address}"), serving, tools: BTreeMap::new() })
    }

    /// Begins anew, in this world; from here on it is GitHub and nothing else.
    pub fn reset_world(&self, mut world: World) {
        world.close_control();
        world.keep_exchanges();
        *self.world() = world;
    }

    pub fn url(&self) -> &str {
        &self.url
    }

    pub fn world(&self) -> MutexGuard<'_, World> {
        self.world.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn shared_world(&self) -> &Mutex<World> {
        &self.world
    }

    /// All tools there are, for whoever has this token.
    pub fn prepare_tools(&mut self, token: &str) -> Result<(), BenchError> {
        if !self.tools.contains_key(token) {
            let limits = ToolRestrictions { allow_destructive: true, ..ToolRestrictions::default() };
            self.tools.insert(token.to_owned(), GitHubTools::new(&self.url, Some(token), limits)?);
        }
        Ok(())
    }

    pub(super) fn known_tools(&self, token: &str) -> Option<&GitHubTools> {
        self.tools.get(token)
    }
}

impl Drop for TrialEnvironment {
    fn drop(&mut self) {
        self.serving.abort();
    }
}

/// Waiting costs simulated time only.
impl AgentClock for TrialEnvironment {
    fn sleep(&self, time: Duration) -> BoxFuture<'_, ()> {
        let seconds = i64::try_from(time.as_secs()).unwrap_or(i64::MAX);
        let rest = i64::from(time.subsec_nanos() > 0);
        self.world().advance_clock(seconds.saturating_add(rest));
        Box::pin(std::future::ready(()))
    }
}
