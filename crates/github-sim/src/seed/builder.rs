//! The state of a world while seeds are applied.

use super::SeedError;
use crate::state::{AccountId, RepositoryId, WorldState};
use crate::time::SimulatedTime;

/// A world under construction.
#[derive(Debug)]
pub(super) struct WorldBuilder<'s> {
    pub(super) state: WorldState,
    /// The name of the seed that is being applied, for errors.
    pub(super) origin: &'s str,
    /// The latest time of any event so far. The simulation starts after it.
    pub(super) latest: SimulatedTime,
}

impl WorldBuilder<'_> {
    /// Builds an error about a field. Its line is filled in later.
    pub(super) fn content_error(&self, place: impl Into<String>, reason: impl Into<String>) -> SeedError {
        SeedError::Content { origin: self.origin.to_owned(), line: None, place: place.into(), reason: reason.into() }
    }

    /// Returns the time of an event: `given`, or a minute after the previous event.
    pub(super) fn advance_clock(&mut self, given: Option<SimulatedTime>) -> SimulatedTime {
        let at = given.unwrap_or_else(|| self.state.now.plus_seconds(STEP_S));
        self.state.now = at;
        self.latest = self.latest.max(at);
        at
    }

    /// Finds an account. It must be defined before it is used, in this seed or an extended one.
    pub(super) fn find_account(&self, login: &str, place: &str) -> Result<AccountId, SeedError> {
        let found = self.state.account_by_login(login).map(|account| account.id);
        found.ok_or_else(|| self.content_error(place, format!("there is no account {login:?}; add it to [[accounts]]")))
    }

    pub(super) fn find_repository(&self, name: &str, place: &str) -> Result<RepositoryId, SeedError> {
        let found = name.split_once('/').and_then(|(owner, name)| self.state.repository_by_name(owner, name));
        found.ok_or_else(|| {
            self.content_error(place, format!("there is no repository {name:?}; add it to [[repositories]]"))
        })
    }
}

/// Seconds between events without a time of their own.
pub(super) const STEP_S: i64 = 60;
