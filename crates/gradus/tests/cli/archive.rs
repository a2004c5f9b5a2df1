//! `gradus store archive` into a folder: what takes the folder, and what does not. `tests/peers/archive_s3.py` has the rest.

use std::fs::File;

use super::{fixture, gradus};

#[test]
fn an_archive_without_traces_is_not_written() {
    let folder = tempfile::tempdir().unwrap();
    let target = folder.path().join("archive");
    let (target, source) = (target.to_str().unwrap(), &fixture("llamaindex-react"));
    let empty = gradus(&["store", "archive", target, source, "--from", "2200-01-01"]);
    assert_eq!(empty.code, Some(4), "{}", empty.err);
    assert!(empty.err.contains("not written: the sources have no traces"), "{}", empty.err);
    // It did not take the place of one that has some.
    let written = gradus(&["store", "archive", target, source]);
    assert_eq!(written.code, Some(0), "{}", written.err);
    let read = gradus(&["traces", target, "--format", "jsonl"]);
    assert_eq!((read.code, read.out.is_empty()), (Some(0), false), "{}", read.err);
    let again = gradus(&["store", "archive", target, source]);
    assert_eq!(again.code, Some(2));
    assert!(again.err.contains("there is an archive already"), "{}", again.err);
}

#[test]
fn one_process_at_a_time_writes_an_archive() {
    let folder = tempfile::tempdir().unwrap();
    let arguments = ["store", "archive", folder.path().to_str().unwrap(), &fixture("llamaindex-react")];
    // As another gradus holds it. The operating system releases it with the process, so what a killed one leaves is no lock.
    let draft = File::create(folder.path().join(".manifest.draft")).unwrap();
    draft.try_lock().unwrap();
    let refused = gradus(&arguments);
    assert_eq!(refused.code, Some(2));
    assert!(refused.err.contains("another gradus is writing this archive"), "{}", refused.err);
    drop(draft);
    let written = gradus(&arguments);
    assert_eq!(written.code, Some(0), "{}", written.err);
}
