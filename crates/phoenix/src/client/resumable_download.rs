//! The pages of a download so far, on disk: an interrupted download is resumed where it stopped, and nothing is
//! assembled from half a project.
//!
//! ```text
//! STATE/reads/KEY/read.json        what is read, and where to go on
//! STATE/reads/KEY/plan.json        the lists that are read, as they were when it began
//! STATE/reads/KEY/spans.bin        the spans: project, length, protobuf
//! ```

use std::fs::{self, File, OpenOptions};
use std::io::{self, BufReader, BufWriter, Read, Seek, SeekFrom, Write};
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

/// A download in progress. Without a folder it lives in an unlinked temporary file and cannot be resumed.
#[derive(Debug)]
pub(super) struct ResumableDownload {
    folder: Option<PathBuf>,
    /// Held open: the system releases the lock when the process ends, however it ends.
    _lock: Option<File>,
    spans: BufWriter<File>,
    progress: DownloadProgress,
}

/// The position up to which spans are stored.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct DownloadCursor {
    /// Lists of the plan that are complete.
    pub(super) lists: usize,
    /// Phoenix's cursor within the current list.
    pub(super) cursor: Option<String>,
}

/// Stored as `read.json`, after every page.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
struct DownloadProgress {
    /// Description of the source, for people who look into the folder.
    what: String,
    /// When the first attempt started; its age decides whether it may be resumed.
    began: Option<jiff::Timestamp>,
    place: DownloadCursor,
    /// Valid length of `spans.bin`. What is beyond it was written after the last page and is cut off on resumption.
    bytes: u64,
    spans: u64,
}

/// Maximum age at which an interrupted download is resumed: an older one is discarded, since the project has changed
/// too much.
const MAX_RESUME_AGE: Duration = Duration::from_secs(24 * 3600);

impl ResumableDownload {
    /// Resumes the download with this key, or starts it. `fresh` discards an earlier one. Where the folder cannot be
    /// written or another process holds it, the download is made without a folder.
    pub(super) fn open(state: Option<&Path>, key: u128, what: &str, fresh: bool) -> io::Result<ResumableDownload> {
        let Some(state) = state else { return ResumableDownload::without_folder(what) };
        let reads = state.join("reads");
        let folder = reads.join(format!("{key:032x}"));
        remove_stale_downloads(&reads);
        if create_download_dir(state, &folder).is_err() {
            return ResumableDownload::without_folder(what);
        }
        let lock = File::create(folder.join("lock"))?;
        if lock.try_lock().is_err() {
            return ResumableDownload::without_folder(what);
        }
        let known = if fresh { None } else { DownloadProgress::read(&folder) };
        let mut spans =
            OpenOptions::new().read(true).write(true).create(true).truncate(false).open(folder.join("spans.bin"))?;
        let known =
            // Without stored spans nothing is gained by resuming, and the lists may have changed. A file shorter than
            // recorded was tampered with or lost its tail.
            known.filter(|known| known.spans > 0 && spans.metadata().is_ok_and(|file| file.len() >= known.bytes));
        let progress = known.unwrap_or_else(|| DownloadProgress::new(what));
        spans.set_len(progress.bytes)?;
        spans.seek(SeekFrom::End(0))?;
        Ok(ResumableDownload { folder: Some(folder), _lock: Some(lock), spans: new_buffered_writer(spans), progress })
    }

    /// A download in an unlinked temporary file.
    fn without_folder(what: &str) -> io::Result<ResumableDownload> {
        let spans = new_buffered_writer(tempfile::tempfile()?);
        Ok(ResumableDownload { folder: None, _lock: None, spans, progress: DownloadProgress::new(what) })
    }

    /// When the download began, over all resumptions.
    pub(super) fn started_at(&self) -> Option<jiff::Timestamp> {
        self.progress.began
    }

    pub(super) fn cursor(&self) -> &DownloadCursor {
        &self.progress.place
    }

    /// Spans that are stored, including those since the last position.
    pub(super) fn span_count(&self) -> u64 {
        self.progress.spans
    }

    /// Whether the same command would resume this download.
    pub(super) fn is_resumable(&self) -> bool {
        self.folder.is_some() && self.progress.spans > 0
    }

    /// The stored plan of a resumed download. Without it the position has no meaning, so an unreadable plan restarts
    /// the download.
    pub(super) fn load_plan_or_restart<T: DeserializeOwned>(&mut self) -> io::Result<Option<T>> {
        let Some(folder) = self.folder.as_ref().filter(|_| self.progress.spans > 0) else { return Ok(None) };
        let text = fs::read(folder.join("plan.json")).ok();
        let plan = text.and_then(|text| serde_json::from_slice(&text).ok());
        if plan.is_none() {
            self.progress = DownloadProgress::new(&self.progress.what);
            self.spans.get_ref().set_len(0)?;
            self.spans.seek(SeekFrom::Start(0))?;
        }
        Ok(plan)
    }

    /// Stores the plan. Must come before the first [`ResumableDownload::advance`], since a position without its plan is
    /// useless.
    pub(super) fn set_plan<T: Serialize>(&self, plan: &T) -> io::Result<()> {
        let Some(folder) = &self.folder else { return Ok(()) };
        replace_file(&folder.join("plan.json"), &serde_json::to_vec(plan)?)
    }

    /// Appends one span: project, length, protobuf, the numbers as little-endian u32. It counts after the next
    /// [`ResumableDownload::advance`].
    pub(super) fn add_span(&mut self, project: u32, span: &[u8]) -> io::Result<()> {
        let length = u32::try_from(span.len()).map_err(io::Error::other)?;
        self.spans.write_all(&project.to_le_bytes())?;
        self.spans.write_all(&length.to_le_bytes())?;
        self.spans.write_all(span)?;
        self.progress.bytes += 8 + u64::from(length);
        self.progress.spans += 1;
        Ok(())
    }

    /// Records that all spans before this position are stored.
    pub(super) fn advance(&mut self, place: DownloadCursor) -> io::Result<()> {
        self.spans.flush()?;
        self.progress.place = place;
        match &self.folder {
            Some(folder) => replace_file(&folder.join("read.json"), &serde_json::to_vec(&self.progress)?),
            None => Ok(()),
        }
    }

    /// Passes all spans on in order of arrival, and deletes the folder. The file is unlinked first, so that its space
    /// is freed however the process ends.
    pub(super) fn finish(self, mut take: impl FnMut(u32, &[u8]) -> io::Result<()>) -> io::Result<()> {
        let ResumableDownload { folder, spans, _lock, .. } = self;
        let mut file = spans.into_inner().map_err(io::IntoInnerError::into_error)?;
        if let Some(folder) = folder {
            fs::remove_dir_all(folder)?;
        }
        file.seek(SeekFrom::Start(0))?;
        let mut reader = BufReader::with_capacity(1 << 18, file);
        let (mut project, mut length, mut span) = ([0; 4], [0; 4], Vec::new());
        loop {
            match reader.read_exact(&mut project) {
                Ok(()) => {}
                Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => return Ok(()),
                Err(error) => return Err(error),
            }
            reader.read_exact(&mut length)?;
            span.resize(u32::from_le_bytes(length) as usize, 0);
            reader.read_exact(&mut span)?;
            take(u32::from_le_bytes(project), &span)?;
        }
    }
}

impl DownloadProgress {
    fn new(what: &str) -> DownloadProgress {
        DownloadProgress { what: what.to_owned(), began: Some(jiff::Timestamp::now()), ..DownloadProgress::default() }
    }

    /// The stored progress, unless it is unreadable or too old.
    fn read(folder: &Path) -> Option<DownloadProgress> {
        let text = fs::read(folder.join("read.json")).ok()?;
        let known: DownloadProgress = serde_json::from_slice(&text).ok()?;
        let age = jiff::Timestamp::now().duration_since(known.began?);
        (Duration::try_from(age).ok()? <= MAX_RESUME_AGE).then_some(known)
    }
}

/// 256 KiB, so that spans are written in few system calls.
fn new_buffered_writer(file: File) -> BufWriter<File> {
    BufWriter::with_capacity(1 << 18, file)
}

/// Creates the folder, and a `.gitignore` in the state folder, which may be inside of a repository.
fn create_download_dir(state: &Path, folder: &Path) -> io::Result<()> {
    fs::create_dir_all(folder)?;
    let ignore = state.join(".gitignore");
    if !ignore.exists() {
        fs::write(ignore, "*\n")?;
    }
    Ok(())
}

/// Writes to a new file and renames it: readers see the old content or the new.
fn replace_file(path: &Path, text: &[u8]) -> io::Result<()> {
    let new = path.with_extension("new");
    fs::write(&new, text)?;
    fs::rename(new, path)
}

/// Deletes downloads that are too old to be resumed and that no process holds.
fn remove_stale_downloads(reads: &Path) {
    for entry in fs::read_dir(reads).into_iter().flatten().flatten() {
        let folder = entry.path();
        let changed = fs::metadata(folder.join("spans.bin")).and_then(|file| file.modified());
        let age = changed.ok().and_then(|changed| SystemTime::now().duration_since(changed).ok());
        let is_old = age.is_some_and(|age| age > MAX_RESUME_AGE);
        // Free unless another process holds the lock.
        let is_free = || File::open(folder.join("lock")).is_ok_and(|lock| lock.try_lock().is_ok());
        if is_old && is_free() {
            let _ = fs::remove_dir_all(folder);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn all(kept: ResumableDownload) -> Vec<(u32, Vec<u8>)> {
        let mut found = Vec::new();
        kept.finish(|project, span| {
            found.push((project, span.to_vec()));
            Ok(())
        })
        .expect("read");
        found
    }

    fn place(cursor: &str) -> DownloadCursor {
        DownloadCursor { lists: 0, cursor: Some(cursor.to_owned()) }
    }

    #[test]
    fn what_was_read_before_a_kill_is_taken_up() {
        let state = tempfile::tempdir().expect("a folder");
        let mut kept = ResumableDownload::open(Some(state.path()), 7, "x", false).expect("opened");
        assert_eq!(kept.load_plan_or_restart::<Vec<String>>().expect("read"), None);
        kept.set_plan(&["a", "b"]).expect("written");
        kept.add_span(0, b"one").expect("added");
        kept.advance(place("c1")).expect("advanced");
        kept.add_span(0, b"of a page that did not come to its end").expect("added");
        kept.spans.flush().expect("flushed");
        drop(kept);
        let mut kept = ResumableDownload::open(Some(state.path()), 7, "x", false).expect("opened");
        assert_eq!((kept.cursor(), kept.span_count()), (&place("c1"), 1));
        let plan = kept.load_plan_or_restart::<Vec<String>>().expect("read");
        assert_eq!(plan.as_deref(), Some(["a".to_owned(), "b".to_owned()].as_slice()));
        kept.add_span(3, b"two").expect("added");
        kept.advance(DownloadCursor { lists: 1, cursor: None }).expect("advanced");
        assert_eq!(all(kept), [(0, b"one".to_vec()), (3, b"two".to_vec())]);
        let again = ResumableDownload::open(Some(state.path()), 7, "x", false).expect("opened");
        assert_eq!(again.span_count(), 0, "a read that is complete is forgotten");
    }

    #[test]
    fn damaged_old_and_unwanted_reads_are_begun_anew() {
        let state = tempfile::tempdir().expect("a folder");
        let is_taken_up = |fresh| {
            let mut kept = ResumableDownload::open(Some(state.path()), 7, "x", fresh).expect("opened");
            let was = kept.load_plan_or_restart::<String>().expect("read").is_some();
            assert_eq!((was, was), (kept.span_count() > 0, *kept.cursor() != DownloadCursor::default()));
            kept.set_plan(&"lists").expect("written");
            kept.add_span(0, b"one").expect("added");
            kept.advance(place("c1")).expect("advanced");
            assert!(kept.is_resumable());
            was
        };
        assert_eq!([is_taken_up(false), is_taken_up(false), is_taken_up(true)], [false, true, false]);
        let folder = state.path().join(format!("reads/{:032x}", 7));
        fs::write(folder.join("spans.bin"), b"").expect("written");
        assert!(!is_taken_up(false), "spans are missing");
        fs::write(folder.join("read.json"), b"{\"what\":").expect("written");
        assert!(!is_taken_up(false), "half a record");
        let mut old: DownloadProgress =
            serde_json::from_slice(&fs::read(folder.join("read.json")).expect("read")).expect("a record");
        old.began = old.began.map(|began| began - jiff::SignedDuration::from_hours(25));
        fs::write(folder.join("read.json"), serde_json::to_vec(&old).expect("text")).expect("written");
        assert!(!is_taken_up(false), "a day old");
        fs::write(folder.join("plan.json"), b"[").expect("written");
        assert!(!is_taken_up(false), "half a plan");
        fs::remove_file(folder.join("plan.json")).expect("removed");
        assert!(!is_taken_up(false), "no plan");
        assert!(is_taken_up(false), "all is there again");
    }

    #[test]
    fn a_read_that_brought_nothing_yet_begins_at_its_beginning() {
        let state = tempfile::tempdir().expect("a folder");
        let mut kept = ResumableDownload::open(Some(state.path()), 7, "x", false).expect("opened");
        kept.set_plan(&["empty", "other"]).expect("written");
        kept.advance(DownloadCursor { lists: 1, cursor: None }).expect("advanced");
        drop(kept);
        let mut again = ResumableDownload::open(Some(state.path()), 7, "x", false).expect("opened");
        assert_eq!(again.load_plan_or_restart::<Vec<String>>().expect("read"), None, "there may be other lists by now");
        assert_eq!(again.cursor(), &DownloadCursor::default());
    }

    #[test]
    fn two_at_once_and_nowhere_to_write_still_read() {
        let state = tempfile::tempdir().expect("a folder");
        let first = ResumableDownload::open(Some(state.path()), 7, "x", false).expect("opened");
        let mut second = ResumableDownload::open(Some(state.path()), 7, "x", false).expect("opened");
        assert!(first.folder.is_some() && second.folder.is_none());
        second.add_span(0, b"one").expect("added");
        second.advance(place("c")).expect("advanced");
        assert!(!second.is_resumable());
        assert_eq!(all(second), [(0, b"one".to_vec())]);
        let nowhere = ResumableDownload::open(Some(Path::new("/dev/null/x")), 7, "x", false).expect("opened");
        assert!(nowhere.folder.is_none());
        assert!(ResumableDownload::open(None, 7, "x", false).expect("opened").folder.is_none());
    }
}
