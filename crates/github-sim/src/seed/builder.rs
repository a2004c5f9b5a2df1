//! A seed while it becomes a world.

use super::SeedError;
use crate::state::{AccountId, RepositoryId, WorldState};
use crate::time::SimulatedTime;

/// A world in the making, and where in which seed it is.
#[derive(Debug)]
pub(super) struct WorldBuilder<'s> {
    pub(super) state: WorldState,
    pub(super) origin: &'s str,
    /// The last moment that anything happened.
    pub(super) latest: SimulatedTime,
}

impl WorldBuilder<'_> {
    pub(super) fn content_error(&self, place: impl Into<String>, reason: impl Into<String>) -> SeedError {
        SeedError::Content { origin: self.origin.to_owned(), line: None, place: place.into(), reason: reason.into() }
    }

    /// The time that something happens: what it says, or a minute after what was before.
    pub(super) fn advance_clock(&mut self, given: Option<SimulatedTime>) -> SimulatedTime {
        let at = given.unwrap_or_else(|| self.state.now.plus_seconds(STEP_S));
        self.state.now = at;
        self.latest = self.latest.max(at);
        at
    }

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

/// How far things are apart that have no time of their own.
pub(super) const STEP_S: i64 = 60;
