//! Failures of single trace groups as values, so that one bad group does not stop the others.

use std::panic::{AssertUnwindSafe, catch_unwind};

use gradus_store::StoreError;

/// Why a trace group could not be assembled.
#[derive(Debug, thiserror::Error)]
pub(super) enum AssemblyFailure {
    #[error("{0}")]
    Store(#[from] StoreError),
    #[error("a panic: {0}")]
    Panic(String),
}

impl AssemblyFailure {
    /// Returns the failure if it concerns this group only. An error of the whole store, such as a full disk, is
    /// returned as `Err`: other groups would fail as well.
    pub(super) fn into_group_failure(self) -> Result<AssemblyFailure, StoreError> {
        match self {
            AssemblyFailure::Store(error) if !error.is_data_error() => Err(error),
            own => Ok(own),
        }
    }

    /// The value of the label `reason` in `/metrics`.
    pub(super) fn kind(&self) -> &'static str {
        match self {
            AssemblyFailure::Store(_) => "unreadable",
            AssemblyFailure::Panic(_) => "panic",
        }
    }
}

/// Runs work on a trace group and turns a panic into a failure. After a panic the caller must discard whatever the work
/// has changed.
pub(super) fn catch_assembly_panic<T>(work: impl FnOnce() -> Result<T, StoreError>) -> Result<T, AssemblyFailure> {
    match catch_unwind(AssertUnwindSafe(work)) {
        Ok(result) => Ok(result?),
        Err(payload) => {
            let text = payload.downcast_ref::<&str>().copied();
            let text = text.or_else(|| payload.downcast_ref::<String>().map(String::as_str));
            Err(AssemblyFailure::Panic(text.unwrap_or("without a word").to_owned()))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_panic_is_a_failure_of_its_own() {
        let number = 7;
        let failure =
            catch_assembly_panic(|| -> Result<(), StoreError> { panic!("trace group {number}") }).unwrap_err();
        assert_eq!((failure.to_string().as_str(), failure.kind()), ("a panic: trace group 7", "panic"));
        assert!(failure.into_group_failure().is_ok());
    }

    #[test]
    fn trouble_of_the_whole_store_is_nobodys_own() {
        for error in [StoreError::DiskFull, StoreError::Busy, StoreError::Closed] {
            assert!(catch_assembly_panic::<()>(|| Err(error)).unwrap_err().into_group_failure().is_err());
        }
        let unreadable = StoreError::BadRow { what: "a block".to_owned(), reason: "cut".to_owned() };
        assert!(catch_assembly_panic::<()>(|| Err(unreadable)).unwrap_err().into_group_failure().is_ok());
        assert_eq!(catch_assembly_panic(|| Ok(3)).unwrap(), 3);
    }
}
