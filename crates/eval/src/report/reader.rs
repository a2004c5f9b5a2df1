//! Reads a run's files: each trajectory with its outcomes, in the order of the source, regardless of the order in
//! which outcomes arrived. Memory holds offsets, not contents.

use std::collections::hash_map::Entry;
use std::collections::{BTreeSet, HashMap, HashSet};
use std::fs::File;
use std::io::{BufRead, BufReader, ErrorKind, Read, Seek, SeekFrom};
use std::ops::ControlFlow;
use std::path::{Path, PathBuf};

use gradus_core::trajectory::Trajectory;
use gradus_llm::price::PriceTable;

use super::head::{AnswerHead, JudgedHead, OutcomeHead, TrajectoryHead, VerdictHead};
use crate::outcome::OutcomeLine;
use crate::run::{RunFileError, RunFolder, RunManifest};

/// An index of a run's files. Opening reads both files once; lines are then read by offset.
#[derive(Debug)]
pub struct RunReader {
    pub record: RunManifest,
    /// For estimating the cost of agents whose traces do not state it.
    prices: PriceTable,
    trajectories: LineFile,
    /// Offset and length of each trajectory's line, in the order of the source.
    trajectory_positions: Vec<(u64, u32)>,
    /// Trajectories that were written more than once. Some of their outcomes may be about steps that no longer exist.
    rewritten: BTreeSet<usize>,
    outcomes: LineFile,
    /// Offsets of each trajectory's outcomes, sorted by step and evaluator; outcomes of the whole come last.
    by_trajectory: Vec<Vec<OutcomePosition>>,
    /// Outcomes of questions that were asked again. Only their cost counts.
    superseded: Vec<OutcomePosition>,
    calibration_path: PathBuf,
}

/// The location of an outcome line, and its sort key. `step` is `u32::MAX` for the whole trajectory.
#[derive(Clone, Copy, Debug)]
struct OutcomePosition {
    at: u64,
    length: u32,
    step: u32,
    evaluator: u16,
}

impl RunReader {
    /// Indexes the files of a run. Missing files count as empty, and incomplete lines are skipped.
    pub fn open(folder: &RunFolder) -> Result<RunReader, RunFileError> {
        let mut numbers: HashMap<u128, usize> = HashMap::new();
        let mut trajectory_positions: Vec<(u64, u32)> = Vec::new();
        let mut rewritten = BTreeSet::new();
        let trajectories = LineFile::open_and_scan(&folder.trajectories_path(), |line, place| {
            let Some(head) = TrajectoryHead::read(line) else { return };
            match numbers.entry(gradus_core::stable_digest(head.trajectory_id.as_bytes())) {
                // The trajectory had grown when the run was resumed; its last version counts.
                Entry::Occupied(known) => {
                    trajectory_positions[*known.get()] = place;
                    rewritten.insert(*known.get());
                }
                Entry::Vacant(free) => {
                    free.insert(trajectory_positions.len());
                    trajectory_positions.push(place);
                }
            }
        })?;
        let mut by_trajectory: Vec<Vec<OutcomePosition>> = vec![Vec::new(); trajectory_positions.len()];
        let mut superseded = Vec::new();
        let evaluators = &folder.record.evaluators;
        let outcomes = LineFile::open_and_scan(&folder.outcomes_path(), |line, (at, length)| {
            let Some(head) = OutcomeHead::read(line) else { return };
            let number = numbers.get(&gradus_core::stable_digest(head.trajectory_id.as_bytes()));
            let evaluator = evaluators.iter().position(|known| known.name == head.evaluator);
            let (Some(number), Some(evaluator)) = (number, evaluator.and_then(|at| u16::try_from(at).ok())) else {
                return;
            };
            let step = head.step_index.unwrap_or(u32::MAX);
            by_trajectory[*number].push(OutcomePosition { at, length, step, evaluator });
        })?;
        for places in &mut by_trajectory {
            // If a question has two outcomes, the later one counts: failed questions are asked again.
            places.sort_by_key(|place| (place.step, place.evaluator, std::cmp::Reverse(place.at)));
            places.dedup_by(|later, first| {
                let is_same = (later.step, later.evaluator) == (first.step, first.evaluator);
                if is_same {
                    superseded.push(*later);
                }
                is_same
            });
        }
        let record = folder.record.clone();
        let mut prices = PriceTable::default();
        prices.add_prices(&record.prices);
        Ok(RunReader {
            record,
            prices,
            trajectories,
            trajectory_positions,
            rewritten,
            outcomes,
            by_trajectory,
            superseded,
            calibration_path: folder.calibration_path(),
        })
    }

    /// Returns the folder of the run.
    pub fn run_folder(&self) -> Option<&Path> {
        self.calibration_path.parent()
    }

    /// See [`RunFolder::calibration_path`].
    pub fn calibration_path(&self) -> &Path {
        &self.calibration_path
    }

    /// Visits the outcomes that later ones replaced.
    pub(super) fn visit_superseded(&mut self, mut take: impl FnMut(&OutcomeLine)) -> Result<(), RunFileError> {
        for place in &self.superseded {
            if let Some(line) = self.outcomes.get::<OutcomeLine>(place.at, place.length)? {
                take(&line);
            }
        }
        Ok(())
    }

    /// Visits all trajectories with their outcomes: those of steps first, then those of the whole.
    pub fn visit_trajectories<E: From<RunFileError>>(
        &mut self,
        mut take: impl FnMut(&Trajectory, &[OutcomeLine]) -> Result<(), E>,
    ) -> Result<(), E> {
        let mut outcomes = Vec::new();
        for (number, places) in self.by_trajectory.iter().enumerate() {
            let (at, length) = self.trajectory_positions[number];
            let Some(trajectory) = self.trajectories.get::<Trajectory>(at, length)? else { continue };
            outcomes.clear();
            for place in places {
                if place.is_outcome_of(&trajectory) {
                    outcomes.extend(self.outcomes.get::<OutcomeLine>(place.at, place.length)?);
                }
            }
            take(&trajectory, &outcomes)?;
        }
        Ok(())
    }

    /// One trajectory with its outcomes. It scans the file, because the index holds only digests of ids.
    pub fn find_trajectory(&mut self, id: &str) -> Result<Option<(Trajectory, Vec<OutcomeLine>)>, RunFileError> {
        for (number, places) in self.by_trajectory.iter().enumerate() {
            let (at, length) = self.trajectory_positions[number];
            let Some(line) = self.trajectories.read_line(at, length)? else { continue };
            if JudgedHead::read(line).is_none_or(|head| head.trajectory_id != id) {
                continue;
            }
            let Some(trajectory) = self.trajectories.get::<Trajectory>(at, length)? else { continue };
            let mut outcomes = Vec::new();
            for place in places.iter().filter(|place| place.is_outcome_of(&trajectory)) {
                outcomes.extend(self.outcomes.get::<OutcomeLine>(place.at, place.length)?);
            }
            return Ok(Some((trajectory, outcomes)));
        }
        Ok(None)
    }

    /// Visits the trajectories with these ids and their outcomes. It scans the file once.
    pub fn visit_selected(
        &mut self,
        ids: &HashSet<String>,
        mut take: impl FnMut(&Trajectory, &[OutcomeLine]),
    ) -> Result<(), RunFileError> {
        if ids.is_empty() {
            return Ok(());
        }
        for (number, places) in self.by_trajectory.iter().enumerate() {
            let (at, length) = self.trajectory_positions[number];
            let Some(line) = self.trajectories.read_line(at, length)? else { continue };
            if TrajectoryHead::read(line).is_none_or(|head| !ids.contains(&*head.trajectory_id)) {
                continue;
            }
            let Some(trajectory) = self.trajectories.get::<Trajectory>(at, length)? else { continue };
            let mut outcomes = Vec::new();
            for place in places.iter().filter(|place| place.is_outcome_of(&trajectory)) {
                outcomes.extend(self.outcomes.get::<OutcomeLine>(place.at, place.length)?);
            }
            take(&trajectory, &outcomes);
        }
        Ok(())
    }

    /// Visits the verdicts on all trajectories in the same order, without explanations and steps, which is much
    /// faster. `take` may stop the visit.
    pub fn visit_verdicts(
        &mut self,
        take: impl FnMut(&JudgedHead<'_>, &[VerdictHead]) -> ControlFlow<()>,
    ) -> Result<(), RunFileError> {
        self.visit_heads(VerdictHead::read, take)
    }

    /// Like [`RunReader::visit_verdicts`], with the answers behind each verdict, which takes longer.
    pub fn visit_answers(
        &mut self,
        take: impl FnMut(&JudgedHead<'_>, &[AnswerHead]) -> ControlFlow<()>,
    ) -> Result<(), RunFileError> {
        self.visit_heads(AnswerHead::read, take)
    }

    fn visit_heads<H>(
        &mut self,
        read: impl Fn(&[u8], usize) -> Option<H>,
        mut take: impl FnMut(&JudgedHead<'_>, &[H]) -> ControlFlow<()>,
    ) -> Result<(), RunFileError> {
        let mut verdicts = Vec::new();
        for (number, places) in self.by_trajectory.iter().enumerate() {
            let (at, length) = self.trajectory_positions[number];
            let Some(line) = self.trajectories.read_line(at, length)? else { continue };
            let Some(mut head) = JudgedHead::read(line) else { continue };
            head.estimate_cost(&self.prices);
            let steps: Option<Trajectory> =
                self.rewritten.contains(&number).then(|| serde_json::from_slice(line).ok()).flatten();
            verdicts.clear();
            for place in places {
                if steps.as_ref().is_none_or(|trajectory| place.is_outcome_of(trajectory))
                    && let Some(line) = self.outcomes.read_line(place.at, place.length)?
                {
                    verdicts.extend(read(line, usize::from(place.evaluator)));
                }
            }
            if take(&head, &verdicts).is_break() {
                break;
            }
        }
        Ok(())
    }
}

impl OutcomePosition {
    /// Whether the trajectory has the step that the outcome is about.
    fn is_outcome_of(self, trajectory: &Trajectory) -> bool {
        self.step == u32::MAX
            || trajectory.steps.binary_search_by_key(&self.step, |step| step.index).is_ok()
            || trajectory.final_thought_index() == Some(self.step)
    }
}

/// A file whose lines are read by offset.
#[derive(Debug)]
struct LineFile {
    path: PathBuf,
    file: Option<File>,
    /// A cached part of the file: consecutive lines are usually close together.
    chunk: Vec<u8>,
    chunk_at: u64,
}

/// Bytes per read.
const READ_CHUNK_BYTES: u64 = 256 << 10;

impl LineFile {
    fn new(path: &Path, file: Option<File>) -> LineFile {
        LineFile { path: path.to_owned(), file, chunk: Vec::new(), chunk_at: 0 }
    }

    /// Reads the file once and passes every line with its offset and length. A file that does not exist is empty.
    fn open_and_scan(path: &Path, mut look: impl FnMut(&[u8], (u64, u32))) -> Result<LineFile, RunFileError> {
        let io = |reason| RunFileError::new(path, reason);
        let file = match File::open(path) {
            Ok(file) => file,
            Err(error) if error.kind() == ErrorKind::NotFound => {
                return Ok(LineFile::new(path, None));
            }
            Err(error) => return Err(io(error)),
        };
        let mut reader = BufReader::with_capacity(1 << 18, &file);
        let (mut line, mut at) = (Vec::new(), 0);
        loop {
            line.clear();
            let length = reader.read_until(b'\n', &mut line).map_err(io)?;
            if length == 0 {
                break;
            }
            if let Ok(short) = u32::try_from(length) {
                look(&line, (at, short));
            }
            at += length as u64;
        }
        Ok(LineFile::new(path, Some(file)))
    }

    fn get<T: serde::de::DeserializeOwned>(&mut self, at: u64, length: u32) -> Result<Option<T>, RunFileError> {
        Ok(self.read_line(at, length)?.and_then(|line| serde_json::from_slice(line).ok()))
    }

    /// `None` if the file has become shorter since it was indexed.
    fn read_line(&mut self, at: u64, length: u32) -> Result<Option<&[u8]>, RunFileError> {
        let end = at + u64::from(length);
        if at < self.chunk_at || end > self.chunk_at + self.chunk.len() as u64 {
            self.load_chunk(at, end).map_err(|reason| RunFileError::new(&self.path, reason))?;
        }
        let start = (at - self.chunk_at) as usize;
        Ok(self.chunk.get(start..start + length as usize))
    }

    fn load_chunk(&mut self, at: u64, end: u64) -> std::io::Result<()> {
        let Some(file) = &mut self.file else { return Ok(()) };
        // A quarter of the chunk is before the line, since outcomes arrive slightly out of order.
        self.chunk_at = at.saturating_sub(READ_CHUNK_BYTES / 4);
        let length = READ_CHUNK_BYTES.max(end - self.chunk_at);
        file.seek(SeekFrom::Start(self.chunk_at))?;
        self.chunk.clear();
        file.take(length).read_to_end(&mut self.chunk)?;
        Ok(())
    }
}
