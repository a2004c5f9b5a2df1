//! Concurrency over processes: a call in flight holds the lock of one of N files, so that there are never more than N.

use std::collections::HashMap;
use std::fs::File;
use std::path::PathBuf;
use std::time::Duration;

use tokio::sync::Mutex;

use super::file_locks::{open_lock_file, try_lock};
use crate::run::RunFileError;

/// Minimum and maximum wait between two scans of all slots. It grows while no slot is free.
const MIN_WAIT: Duration = Duration::from_millis(10);
const MAX_WAIT: Duration = Duration::from_millis(200);

#[derive(Debug)]
pub(super) struct CallSlots {
    folder: PathBuf,
    slot_count: usize,
    /// Files that are open and not locked by this process. The mutex also ensures that only one task of a process
    /// scans for a slot, however many wait.
    idle_files: Mutex<HashMap<usize, File>>,
}

/// A slot in use. Closing the file releases the lock.
#[derive(Debug)]
pub(super) struct CallSlot {
    _file: File,
}

impl CallSlots {
    pub(super) fn new(folder: PathBuf, slot_count: usize) -> CallSlots {
        CallSlots { folder, slot_count: slot_count.max(1), idle_files: Mutex::default() }
    }

    /// Waits for a slot. `first` is where the search begins; different numbers spread the processes over the files.
    pub(super) async fn acquire(&self, first: usize) -> Result<CallSlot, RunFileError> {
        let mut idle = self.idle_files.lock().await;
        let mut wait = MIN_WAIT;
        loop {
            for offset in 0..self.slot_count {
                let number = (first.wrapping_add(offset)) % self.slot_count;
                let path = self.folder.join(format!("{number:04}"));
                let file = match idle.remove(&number) {
                    Some(file) => file,
                    None => open_lock_file(&path)?,
                };
                if try_lock(&file, &path)? {
                    return Ok(CallSlot { _file: file });
                }
                idle.insert(number, file);
            }
            tokio::time::sleep(wait).await;
            wait = (wait * 2).min(MAX_WAIT);
        }
    }
}
