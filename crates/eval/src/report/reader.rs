//! Reads a run's files back: each trajectory with its outcomes, in the order of the source, however the outcomes came
//! in. Only places are kept in memory, not contents.

use std::borrow::Cow;
use std::collections::HashMap;
use std::fs::File;
use std::io::{BufRead, BufReader, ErrorKind, Read, Seek, SeekFrom};
use std::path::{Path, PathBuf};

use gradus_core::trajectory::Trajectory;

use crate::outcome::OutcomeLine;
use crate::run::{RunFileError, RunFolder, RunRecord};

#[derive(Debug)]
pub struct RunReader {
    pub record: RunRecord,
    trajectories: Lines,
    outcomes: Lines,
    /// The places of each trajectory's outcomes, in order of step and evaluator.
    by_trajectory: Vec<Vec<Place>>,
}

#[derive(Clone, Copy, Debug)]
struct Place {
    at: u64,
    length: u32,
    step: u32,
    evaluator: u16,
}

impl RunReader {
    pub fn open(folder: &RunFolder) -> Result<RunReader, RunFileError> {
        let mut numbers: HashMap<u128, u32> = HashMap::new();
        let trajectories = Lines::open(&folder.trajectories_path(), |line, _| {
            let head = TrajectoryHead::read(line)?;
            let number = u32::try_from(numbers.len()).ok()?;
            // The same id twice is the same trajectory read twice.
            match numbers.entry(gradus_core::digest(head.trajectory_id.as_bytes())) {
                std::collections::hash_map::Entry::Occupied(_) => None,
                std::collections::hash_map::Entry::Vacant(free) => Some(*free.insert(number)),
            }
        })?;
        let mut by_trajectory: Vec<Vec<Place>> = vec![Vec::new(); trajectories.places.len()];
        let evaluators = &folder.record.evaluators;
        let outcomes = Lines::open(&folder.outcomes_path(), |line, (at, length)| {
            let head = OutcomeHead::read(line)?;
            let number = *numbers.get(&gradus_core::digest(head.trajectory_id.as_bytes()))?;
            let evaluator = evaluators.iter().position(|known| known.name == head.evaluator)?;
            let evaluator = u16::try_from(evaluator).ok()?;
            let step = head.step_index.unwrap_or(u32::MAX);
            let places = &mut by_trajectory[number as usize];
            let place = Place { at, length, step, evaluator };
            places.push(place);
            None
        })?;
        for places in &mut by_trajectory {
            // Of two outcomes of one question the later one counts: what failed was asked again.
            places.sort_by_key(|place| (place.step, place.evaluator, std::cmp::Reverse(place.at)));
            places.dedup_by_key(|place| (place.step, place.evaluator));
        }
        Ok(RunReader { record: folder.record.clone(), trajectories, outcomes, by_trajectory })
    }

    /// Hands out all trajectories with their outcomes: steps first, then those of the whole.
    pub fn visit<E: From<RunFileError>>(
        &mut self,
        mut take: impl FnMut(&Trajectory, &[OutcomeLine]) -> Result<(), E>,
    ) -> Result<(), E> {
        let mut outcomes = Vec::new();
        for (number, places) in self.by_trajectory.iter().enumerate() {
            let (at, length) = self.trajectories.places[number];
            let Some(trajectory) = self.trajectories.get::<Trajectory>(at, length)? else { continue };
            outcomes.clear();
            for place in places {
                outcomes.extend(self.outcomes.get::<OutcomeLine>(place.at, place.length)?);
            }
            take(&trajectory, &outcomes)?;
        }
        Ok(())
    }
}

#[derive(serde::Deserialize)]
struct TrajectoryHead<'l> {
    #[serde(borrow)]
    trajectory_id: Cow<'l, str>,
}

impl<'l> TrajectoryHead<'l> {
    fn read(line: &'l [u8]) -> Option<Self> {
        let quick = || {
            let mut fields = Fields::of(line)?;
            Some(TrajectoryHead { trajectory_id: Cow::Borrowed(fields.text("trajectory_id")?) })
        };
        quick().or_else(|| serde_json::from_slice(line).ok())
    }
}

#[derive(serde::Deserialize)]
struct OutcomeHead<'l> {
    #[serde(borrow)]
    trajectory_id: Cow<'l, str>,
    step_index: Option<u32>,
    #[serde(borrow)]
    evaluator: Cow<'l, str>,
}

impl<'l> OutcomeHead<'l> {
    fn read(line: &'l [u8]) -> Option<Self> {
        let quick = || {
            let mut fields = Fields::of(line)?;
            fields.text("run_id")?;
            Some(OutcomeHead {
                trajectory_id: Cow::Borrowed(fields.text("trajectory_id")?),
                step_index: fields.index("step_index")?,
                evaluator: Cow::Borrowed(fields.text("evaluator")?),
            })
        };
        quick().or_else(|| serde_json::from_slice(line).ok())
    }
}

/// The first fields of a line as we write it ourselves. Anything unusual is left to a real parser.
struct Fields<'l>(&'l str);

impl<'l> Fields<'l> {
    fn of(line: &'l [u8]) -> Option<Self> {
        // A line that was cut off is none, however it begins.
        let inside = line.strip_prefix(b"{")?.strip_suffix(b"}\n")?;
        std::str::from_utf8(&inside[..inside.len().min(1_024)]).ok().map(Fields)
    }

    fn value(&mut self, name: &str) -> Option<&'l str> {
        self.0.strip_prefix('"')?.strip_prefix(name)?.strip_prefix("\":")
    }

    fn text(&mut self, name: &str) -> Option<&'l str> {
        let value = self.value(name)?.strip_prefix('"')?;
        let end = value.find(['"', '\\'])?;
        self.0 = value[end..].strip_prefix("\",")?;
        Some(&value[..end])
    }

    fn index(&mut self, name: &str) -> Option<Option<u32>> {
        let (number, rest) = self.value(name)?.split_once(',')?;
        self.0 = rest;
        if number == "null" { Some(None) } else { number.parse().ok().map(Some) }
    }
}

/// A file of lines that are read by their places.
#[derive(Debug)]
struct Lines {
    path: PathBuf,
    file: Option<File>,
    places: Vec<(u64, u32)>,
    /// A part of the file: lines that are asked for one after the other are mostly close together.
    chunk: Vec<u8>,
    chunk_at: u64,
}

const CHUNK: u64 = 256 << 10;

impl Lines {
    fn new(path: &Path, file: Option<File>, places: Vec<(u64, u32)>) -> Lines {
        Lines { path: path.to_owned(), file, places, chunk: Vec::new(), chunk_at: 0 }
    }

    /// Looks at every line; `keep` says whether its place is to be kept.
    fn open(
        path: &Path,
        mut keep: impl FnMut(&[u8], (u64, u32)) -> Option<u32>,
    ) -> Result<Lines, RunFileError> {
        let io = |reason| RunFileError::new(path, reason);
        let file = match File::open(path) {
            Ok(file) => file,
            Err(error) if error.kind() == ErrorKind::NotFound => {
                return Ok(Lines::new(path, None, Vec::new()));
            }
            Err(error) => return Err(io(error)),
        };
        let mut reader = BufReader::with_capacity(1 << 18, &file);
        let (mut places, mut line, mut at) = (Vec::new(), Vec::new(), 0);
        loop {
            line.clear();
            let length = reader.read_until(b'\n', &mut line).map_err(io)?;
            if length == 0 {
                break;
            }
            if let Ok(short) = u32::try_from(length)
                && keep(&line, (at, short)).is_some()
            {
                places.push((at, short));
            }
            at += length as u64;
        }
        Ok(Lines::new(path, Some(file), places))
    }

    fn get<T: serde::de::DeserializeOwned>(
        &mut self,
        at: u64,
        length: u32,
    ) -> Result<Option<T>, RunFileError> {
        let end = at + u64::from(length);
        if at < self.chunk_at || end > self.chunk_at + self.chunk.len() as u64 {
            self.load(at, end).map_err(|reason| RunFileError::new(&self.path, reason))?;
        }
        let start = (at - self.chunk_at) as usize;
        let line = self.chunk.get(start..start + length as usize);
        Ok(line.and_then(|line| serde_json::from_slice(line).ok()))
    }

    fn load(&mut self, at: u64, end: u64) -> std::io::Result<()> {
        let Some(file) = &mut self.file else { return Ok(()) };
        self.chunk_at = at.saturating_sub(CHUNK / 4);
        let length = CHUNK.max(end - self.chunk_at);
        file.seek(SeekFrom::Start(self.chunk_at))?;
        self.chunk.clear();
        file.take(length).read_to_end(&mut self.chunk)?;
        Ok(())
    }
}
