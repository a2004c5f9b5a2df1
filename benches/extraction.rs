//! Decoding and extraction against decoding the same protobuf with `prost` alone, on the captures in `fixtures/`.
//!
//! Prints one JSON object: for each set of captures the CPU time of a pass, ours and prost's, and their ratio. Passes
//! alternate, and the fastest of each kind counts: machines are noisy, ratios of neighbours are not.

#![allow(clippy::print_stdout, reason = "its output is its result")]

use std::fs;
use std::io::Read;
use std::path::{Path, PathBuf};
use std::time::Instant;

use gradus_ingest::{RecordIntake, SourceLimits};
use opentelemetry_proto::tonic::collector::trace::v1::ExportTraceServiceRequest;
use prost::Message;

fn main() {
    let captures = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fixtures/captures");
    let rounds = std::env::var("GRADUS_BENCH_ROUNDS").ok().and_then(|rounds| rounds.parse().ok()).unwrap_or(40);
    let sets = [("llamaindex", "llamaindex-"), ("all protobuf captures", "")];
    let mut results = Vec::new();
    let wanted = std::env::var("GRADUS_BENCH_SET").unwrap_or_default();
    for (name, prefix) in sets.into_iter().filter(|(name, _)| name.contains(wanted.as_str())) {
        let folders = load(&captures, prefix);
        let bytes: usize = folders.iter().flatten().map(Vec::len).sum();
        let (mut ours, mut prosts) = (u128::MAX, u128::MAX);
        let mut found = (0, 0);
        for _ in 0..rounds {
            prosts = prosts.min(timed(|| decode_with_prost(&folders)).0);
            let (time, counts) = timed(|| extract(&folders));
            ours = ours.min(time);
            found = counts;
        }
        results.push(serde_json::json!({
            "set": name, "capture_folders": folders.len(), "protobuf_bytes": bytes,
            "trajectories": found.0, "steps": found.1,
            "prost_decode_us": prosts / 1000, "decode_and_extract_us": ours / 1000,
            "ratio_to_prost": (ours as f64 / prosts as f64 * 100.0).round() / 100.0,
        }));
    }
    let report = serde_json::to_string_pretty(&results).unwrap_or_default();
    println!("{report}");
}

/// The protobuf bodies of each capture folder, gzip taken off. Folders that hold JSON are left out.
fn load(captures: &Path, prefix: &str) -> Vec<Vec<Vec<u8>>> {
    let mut folders = Vec::new();
    for framework in entries(captures) {
        if !framework.file_name().is_some_and(|name| name.to_string_lossy().starts_with(prefix)) {
            continue;
        }
        for scenario in entries(&framework) {
            let bodies: Vec<Vec<u8>> = entries(&scenario)
                .iter()
                .filter(|path| path.extension().is_some_and(|extension| extension == "bin"))
                .filter(|path| !path.file_name().is_some_and(|name| name.to_string_lossy().starts_with("logs")))
                .map(|path| plain(fs::read(path).unwrap_or_default()))
                .collect();
            if bodies.iter().all(|body| ExportTraceServiceRequest::decode(body.as_slice()).is_ok()) {
                folders.push(bodies);
            }
        }
    }
    folders
}

fn entries(folder: &Path) -> Vec<PathBuf> {
    let read = fs::read_dir(folder).map(|entries| entries.flatten().map(|entry| entry.path()).collect());
    let mut paths: Vec<PathBuf> = read.unwrap_or_default();
    paths.sort();
    paths
}

fn plain(body: Vec<u8>) -> Vec<u8> {
    if !body.starts_with(&[0x1f, 0x8b]) {
        return body;
    }
    let mut out = Vec::new();
    let read = flate2::read::GzDecoder::new(body.as_slice()).read_to_end(&mut out);
    if read.is_ok() { out } else { body }
}

fn decode_with_prost(folders: &[Vec<Vec<u8>>]) -> usize {
    let mut spans = 0;
    for body in folders.iter().flatten() {
        let request = ExportTraceServiceRequest::decode(body.as_slice()).unwrap_or_default();
        spans += request.resource_spans.iter().flat_map(|r| &r.scope_spans).map(|s| s.spans.len()).sum::<usize>();
        std::hint::black_box(&request);
    }
    spans
}

/// All folders in one call, as with `gradus traces fixtures/captures`.
fn extract(folders: &[Vec<Vec<u8>>]) -> (usize, usize) {
    let (mut trajectories, mut steps) = (0, 0);
    let mut sink = |_, trajectory: gradus_core::trajectory::Trajectory| {
        trajectories += 1;
        steps += trajectory.steps.len();
        std::hint::black_box(&trajectory);
        Ok(())
    };
    let mut intake = RecordIntake::new(SourceLimits::default(), &mut sink);
    for body in folders.iter().flatten() {
        intake.add_export(body);
    }
    let _ = intake.finish();
    (trajectories, steps)
}

/// The fastest of many rounds on one thread is its time on the processor.
fn timed<T>(work: impl FnOnce() -> T) -> (u128, T) {
    let clock = Instant::now();
    let result = work();
    (clock.elapsed().as_nanos(), result)
}
