//! Reads the sources in a thread of its own, so that judging begins while they are read. The channel is bounded: when
//! judging is slower, reading waits, and memory does not grow with the sources.

use std::collections::BinaryHeap;
use std::io;
use std::thread::JoinHandle;

use gradus_core::trajectory::Trajectory;
use tokio::sync::mpsc;

use super::super::sources::{ResolvedSources, SourceReadReport};

/// Sources, and how many of their trajectories are judged.
pub(super) struct SampledSource {
    pub(super) sources: ResolvedSources,
    pub(super) sample: Option<usize>,
    pub(super) seed: u64,
}

/// Number of trajectories per message: waking the other thread costs more than planning most trajectories.
const TRAJECTORIES_PER_BATCH: usize = 32;
/// Maximum number of messages that wait in the channel.
const MAX_WAITING_BATCHES: usize = 2;

/// The reading thread. Its result has the counts of the sources.
pub(super) type SourceReaderThread = JoinHandle<anyhow::Result<SourceReadReport>>;

/// Starts the reading thread. If the receiver is dropped, the thread ends with a broken pipe at the next batch.
pub(super) fn start_source_reader(
    source: SampledSource,
) -> io::Result<(mpsc::Receiver<Vec<Trajectory>>, SourceReaderThread)> {
    let (sender, receiver) = mpsc::channel(MAX_WAITING_BATCHES);
    let thread = std::thread::Builder::new().name("sources".to_owned()).spawn(move || {
        let stopped = |_| io::Error::new(io::ErrorKind::BrokenPipe, "judging has stopped");
        let mut batch = Vec::with_capacity(TRAJECTORIES_PER_BATCH);
        let read = source.read(&mut |trajectory| {
            batch.push(trajectory);
            if batch.len() < TRAJECTORIES_PER_BATCH {
                return Ok(());
            }
            sender
                .blocking_send(std::mem::replace(&mut batch, Vec::with_capacity(TRAJECTORIES_PER_BATCH)))
                .map_err(stopped)
        })?;
        sender.blocking_send(batch).map_err(stopped)?;
        Ok(read)
    })?;
    Ok((receiver, thread))
}

impl SampledSource {
    /// Passes all trajectories, or a random sample of them, to `take`, in the order of the sources. With a sample,
    /// nothing is passed on before everything is read.
    pub(super) fn read(&self, take: &mut dyn FnMut(Trajectory) -> io::Result<()>) -> anyhow::Result<SourceReadReport> {
        let Some(size) = self.sample else {
            return self.sources.read(&mut |_, trajectory| take(trajectory));
        };
        // Bottom-k sampling: the trajectories with the smallest digests of seed and id. The sample does not depend on
        // the order of the sources, and a larger sample contains the smaller one, whose verdicts are then in the cache.
        let mut chosen: BinaryHeap<SampledTrajectory> = BinaryHeap::with_capacity(size.min(1 << 16) + 1);
        let mut number = 0;
        let read = self.sources.read(&mut |_, trajectory| {
            let lot = gradus_core::stable_digest(format!("{}\0{}", self.seed, trajectory.trajectory_id).as_bytes());
            chosen.push(SampledTrajectory { lot, number, trajectory });
            number += 1;
            if chosen.len() > size {
                chosen.pop();
            }
            Ok(())
        })?;
        let mut chosen = chosen.into_vec();
        chosen.sort_by_key(|drawn| drawn.number);
        for drawn in chosen {
            take(drawn.trajectory)?;
        }
        Ok(read)
    }
}

/// An entry of the heap, ordered by digest; ties (the same id twice) by position.
struct SampledTrajectory {
    /// Digest of seed and trajectory id.
    lot: u128,
    number: u64,
    trajectory: Trajectory,
}

impl PartialEq for SampledTrajectory {
    fn eq(&self, other: &Self) -> bool {
        (self.lot, self.number) == (other.lot, other.number)
    }
}

impl Eq for SampledTrajectory {}

impl PartialOrd for SampledTrajectory {
    fn partial_cmp(&self, other: &Self) -> Option<std::cmp::Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for SampledTrajectory {
    fn cmp(&self, other: &Self) -> std::cmp::Ordering {
        (self.lot, self.number).cmp(&(other.lot, other.number))
    }
}
