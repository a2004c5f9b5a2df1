//! How much of other people's data may be in memory at once. Whoever comes when there is no room is told to come again:
//! memory is bounded, whatever is sent.

use std::sync::Arc;

use tokio::sync::{OwnedSemaphorePermit, Semaphore};

/// Permits stand for this many bytes.
const UNIT: usize = 1024;

#[derive(Clone, Debug)]
pub(super) struct Admission {
    permits: Arc<Semaphore>,
    total: usize,
}

/// Room that is given back when this is dropped.
#[derive(Debug)]
pub(super) struct Room {
    permit: OwnedSemaphorePermit,
    permits: Arc<Semaphore>,
}

/// There is none at the moment.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Full;

impl Admission {
    pub(super) fn new(bytes: usize) -> Admission {
        let total = (bytes / UNIT).max(1);
        Admission { permits: Arc::new(Semaphore::new(total)), total }
    }

    pub(super) fn take(&self, bytes: usize) -> Result<Room, Full> {
        let permit = Arc::clone(&self.permits).try_acquire_many_owned(units(bytes)).map_err(|_| Full)?;
        Ok(Room { permit, permits: Arc::clone(&self.permits) })
    }

    pub(super) fn used_bytes(&self) -> usize {
        (self.total - self.permits.available_permits().min(self.total)) * UNIT
    }
}

impl Room {
    pub(super) fn grow(&mut self, bytes: usize) -> Result<(), Full> {
        let more = Arc::clone(&self.permits).try_acquire_many_owned(units(bytes)).map_err(|_| Full)?;
        self.permit.merge(more);
        Ok(())
    }
}

fn units(bytes: usize) -> u32 {
    u32::try_from(bytes.div_ceil(UNIT)).unwrap_or(u32::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn room_is_bounded_and_comes_back() {
        let admission = Admission::new(10 << 10);
        let mut room = admission.take(6 << 10).expect("room");
        assert_eq!(admission.take(6 << 10).expect_err("full"), Full);
        assert_eq!(room.grow(4 << 10), Ok(()));
        assert_eq!(room.grow(1), Err(Full));
        assert_eq!(admission.used_bytes(), 10 << 10);
        drop(room);
        assert_eq!(admission.used_bytes(), 0);
    }
}
