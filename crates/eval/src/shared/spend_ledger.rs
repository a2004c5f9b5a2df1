//! The spending of all processes, in one small file that is changed under a lock. The maximum cost of a call is
//! reserved before the call. Each process holds the lock of its own file while it lives, so the reservations of dead
//! processes are found without clocks; they count as spent.

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::io::{ErrorKind, Write};
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

use super::file_locks::{open_lock_file, try_lock, wait_for_lock};
use super::shared_limits::SharedLimits;
use crate::run::RunFileError;

/// An amount in billionths of a dollar, so that sums are exact, and the number of requests.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct SpendAmount {
    nano_usd: u64,
    calls: u64,
}

impl SpendAmount {
    /// Rounded up, so that a budget is never exceeded by rounding.
    pub(super) fn new(cost_usd: f64, calls: u64) -> SpendAmount {
        #[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "clamped; saturates")]
        let nano_usd = (cost_usd.max(0.0) * 1e9).ceil() as u64;
        SpendAmount { nano_usd, calls }
    }

    fn plus(self, other: SpendAmount) -> SpendAmount {
        SpendAmount {
            nano_usd: self.nano_usd.saturating_add(other.nano_usd),
            calls: self.calls.saturating_add(other.calls),
        }
    }

    fn minus(self, other: SpendAmount) -> SpendAmount {
        SpendAmount {
            nano_usd: self.nano_usd.saturating_sub(other.nano_usd),
            calls: self.calls.saturating_sub(other.calls),
        }
    }
}

/// The file `spend.json`.
#[derive(Debug, Default, Serialize, Deserialize)]
struct SpendState {
    spent: SpendAmount,
    /// By process. A process without calls in flight has no entry.
    reserved: BTreeMap<String, SpendAmount>,
}

/// What was spent through a folder so far. Calls in flight count with their upper bound.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct SharedSpend {
    pub cost_usd: f64,
    pub calls: u64,
}

/// The answer to a request for a reservation.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Reservation {
    Granted,
    /// Not now: calls in flight may cost less than their bound.
    Later,
    Refused(String),
}

#[derive(Debug)]
pub(super) struct SpendLedger {
    folder: PathBuf,
    limits: SharedLimits,
    /// The name of this process, and the lock that shows that it is alive.
    owner: String,
    _alive: File,
}

impl SpendLedger {
    /// `owner` must be unique among all processes that ever use the folder.
    pub(super) fn open(folder: &Path, owner: String, limits: SharedLimits) -> Result<SpendLedger, RunFileError> {
        let path = owner_path(folder, &owner);
        let alive = open_lock_file(&path)?;
        try_lock(&alive, &path)?;
        Ok(SpendLedger { folder: folder.to_owned(), limits, owner, _alive: alive })
    }

    pub(super) fn reserve(&self, amount: SpendAmount) -> Result<Reservation, RunFileError> {
        self.update_state(|state| {
            if self.find_exceeded_limit(state.total().plus(amount)).is_none() {
                let own = state.reserved.entry(self.owner.clone()).or_default();
                *own = own.plus(amount);
                return Ok(Reservation::Granted);
            }
            self.settle_dead_processes(state)?;
            // Exceeded even if every call in flight cost nothing.
            match self.find_exceeded_limit(state.spent.plus(amount)) {
                Some(reason) => Ok(Reservation::Refused(reason)),
                None => Ok(Reservation::Later),
            }
        })
    }

    /// Replaces a reservation by what was spent.
    pub(super) fn settle(&self, reserved: SpendAmount, spent: SpendAmount) -> Result<(), RunFileError> {
        self.update_state(|state| {
            state.spent = state.spent.plus(spent);
            if let Some(own) = state.reserved.get_mut(&self.owner) {
                *own = own.minus(reserved);
                if *own == SpendAmount::default() {
                    state.reserved.remove(&self.owner);
                }
            }
            Ok(())
        })
    }

    /// Returns why an amount exceeds a limit; `None` if it does not.
    fn find_exceeded_limit(&self, total: SpendAmount) -> Option<String> {
        if let Some(most) = self.limits.max_calls
            && total.calls > most
        {
            return Some(format!("not asked: the limit of {most} calls over all processes is reached"));
        }
        if let Some(most) = self.limits.max_cost_usd
            && total.nano_usd > SpendAmount::new(most, 0).nano_usd
        {
            return Some(format!("not asked: the budget of ${most} over all processes is spent"));
        }
        None
    }

    /// Counts the reservations of dead processes as spent: the real cost of their calls is unknown.
    fn settle_dead_processes(&self, state: &mut SpendState) -> Result<(), RunFileError> {
        let others: Vec<String> = state.reserved.keys().filter(|owner| **owner != self.owner).cloned().collect();
        for owner in others {
            let path = owner_path(&self.folder, &owner);
            if try_lock(&open_lock_file(&path)?, &path)? {
                let reserved = state.reserved.remove(&owner).unwrap_or_default();
                state.spent = state.spent.plus(reserved);
                let _ = fs::remove_file(path);
            }
        }
        Ok(())
    }

    fn update_state<T>(
        &self,
        change: impl FnOnce(&mut SpendState) -> Result<T, RunFileError>,
    ) -> Result<T, RunFileError> {
        let _lock = wait_for_lock(&self.folder.join("spend.lock"))?;
        let mut state = read_state(&self.folder)?;
        let changed = change(&mut state)?;
        let path = self.folder.join("spend.json");
        let write = || -> std::io::Result<()> {
            let draft = self.folder.join(".spend.draft");
            let mut file = File::create(&draft)?;
            file.write_all(&serde_json::to_vec(&state)?)?;
            fs::rename(&draft, &path)
        };
        write().map_err(|reason| RunFileError::new(&path, reason))?;
        Ok(changed)
    }
}

impl Drop for SpendLedger {
    /// Removes the file of this process. If it has calls in flight, the file stays, so that others find its
    /// reservations.
    fn drop(&mut self) {
        let is_settled = read_state(&self.folder).is_ok_and(|state| !state.reserved.contains_key(&self.owner));
        if is_settled {
            let _ = fs::remove_file(owner_path(&self.folder, &self.owner));
        }
    }
}

impl SpendState {
    fn total(&self) -> SpendAmount {
        self.reserved.values().fold(self.spent, |sum, reserved| sum.plus(*reserved))
    }
}

/// Returns what was spent through a folder; 0 if it was never used.
pub(super) fn read_spend(folder: &Path) -> Result<SharedSpend, RunFileError> {
    let total = read_state(folder)?.total();
    #[allow(clippy::cast_precision_loss, reason = "dollars for people")]
    let cost_usd = total.nano_usd as f64 / 1e9;
    Ok(SharedSpend { cost_usd, calls: total.calls })
}

fn read_state(folder: &Path) -> Result<SpendState, RunFileError> {
    let path = folder.join("spend.json");
    match fs::read(&path) {
        // A damaged file must not count as an unused budget.
        Ok(text) => serde_json::from_slice(&text).map_err(|error| RunFileError::new(&path, error.into())),
        Err(error) if error.kind() == ErrorKind::NotFound => Ok(SpendState::default()),
        Err(error) => Err(RunFileError::new(&path, error)),
    }
}

fn owner_path(folder: &Path, owner: &str) -> PathBuf {
    folder.join("processes").join(owner)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn open(folder: &Path, owner: &str, max_cost_usd: f64) -> SpendLedger {
        fs::create_dir_all(folder.join("processes")).expect("a folder");
        let limits = SharedLimits { concurrency: 4, max_calls: None, max_cost_usd: Some(max_cost_usd) };
        SpendLedger::open(folder, owner.to_owned(), limits).expect("opened")
    }

    #[test]
    fn calls_in_flight_are_waited_for_and_a_spent_budget_refuses() {
        let folder = tempfile::tempdir().expect("a folder");
        let (one, two) = (open(folder.path(), "one", 1.0), open(folder.path(), "two", 1.0));
        let most = SpendAmount::new(0.6, 1);
        assert_eq!(one.reserve(most).expect("asked"), Reservation::Granted);
        assert_eq!(two.reserve(most).expect("asked"), Reservation::Later);
        one.settle(most, SpendAmount::new(0.1, 2)).expect("settled");
        assert_eq!(two.reserve(most).expect("asked"), Reservation::Granted);
        two.settle(most, SpendAmount::new(0.5, 1)).expect("settled");
        assert!(matches!(one.reserve(most).expect("asked"), Reservation::Refused(reason) if reason.contains("$1")));
        assert_eq!(read_spend(folder.path()).expect("read"), SharedSpend { cost_usd: 0.6, calls: 3 });
    }

    #[test]
    fn what_a_dead_process_reserved_counts_as_spent() {
        let folder = tempfile::tempdir().expect("a folder");
        let (dead, alive) = (open(folder.path(), "dead", 1.0), open(folder.path(), "alive", 1.0));
        let most = SpendAmount::new(0.6, 1);
        assert_eq!(dead.reserve(most).expect("asked"), Reservation::Granted);
        assert_eq!(alive.reserve(most).expect("asked"), Reservation::Later);
        drop(dead);
        assert!(matches!(alive.reserve(most).expect("asked"), Reservation::Refused(_)));
        assert_eq!(alive.reserve(SpendAmount::new(0.3, 1)).expect("asked"), Reservation::Granted);
    }

    #[test]
    fn a_damaged_ledger_is_an_error() {
        let folder = tempfile::tempdir().expect("a folder");
        fs::write(folder.path().join("spend.json"), "{").expect("written");
        let error = open(folder.path(), "one", 1.0).reserve(SpendAmount::new(0.1, 1));
        assert!(error.is_err_and(|error| error.to_string().contains("spend.json")));
    }
}
