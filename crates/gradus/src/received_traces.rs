//! The traces in the store of a collector, as trajectories and as OTLP: what an agent has sent to `gradus bench` or
//! `gradus experiment`.

use std::io;
use std::path::Path;

use gradus_core::trajectory::Trajectory;
use gradus_ingest::{RecordIntake, SourceLimits};
use gradus_otlp::change_trace_ids;
use gradus_store::Store;

/// Returns a trace id that is unique among all trials. Programs with a fixed random seed send the same ids in every
/// trial, and their traces would be merged. `trial` identifies the trial among all that ever ran.
pub(crate) fn unique_trace_id(trial: &str, id: [u8; 16]) -> [u8; 16] {
    let mut hasher = blake3::Hasher::new();
    hasher.update(trial.as_bytes());
    hasher.update(b"/");
    hasher.update(&id);
    let mut unique = [0; 16];
    hasher.finalize_xof().fill(&mut unique);
    unique
}

/// Reads the contents of a collector's store, as trajectories and as one OTLP export request. Each trace gets the id
/// that `change_id` gives it.
pub(crate) fn read_received_traces(
    folder: &Path,
    change_id: &dyn Fn([u8; 16]) -> [u8; 16],
) -> io::Result<(Vec<Trajectory>, Vec<u8>)> {
    let mut otlp = Vec::new();
    visit_received_exports(folder, &mut |export| otlp.extend_from_slice(export))?;
    if otlp.is_empty() {
        return Ok((Vec::new(), otlp));
    }
    change_trace_ids(&mut otlp, change_id).map_err(|error| io::Error::other(error.to_string()))?;
    Ok((read_trajectories(&otlp)?, otlp))
}

/// Passes the export requests in a collector's store to `take`, project by project.
pub(crate) fn visit_received_exports(folder: &Path, take: &mut dyn FnMut(&[u8])) -> io::Result<()> {
    let path = folder.join(gradus_store::DATABASE_FILE_NAME);
    let other = |error: &dyn std::fmt::Display| io::Error::other(error.to_string());
    let store = Store::open_to_read(&path).map_err(|error| other(&error))?;
    for project in store.projects().map_err(|error| other(&error))? {
        let mut after = None;
        while let Some((page, last)) = store.read_project_page(&project.name, after).map_err(|error| other(&error))? {
            gradus_server::stored_records::write_otlp(&page, take);
            after = Some(last);
        }
    }
    Ok(())
}

/// Reads the trajectories in an OTLP export request.
pub(crate) fn read_trajectories(otlp: &[u8]) -> io::Result<Vec<Trajectory>> {
    let mut found = Vec::new();
    let mut take = |_: usize, trajectory: Trajectory| {
        found.push(trajectory);
        Ok(())
    };
    let mut intake = RecordIntake::new(SourceLimits::default(), &mut take);
    intake.add_export(otlp);
    intake.finish()?;
    Ok(found)
}
