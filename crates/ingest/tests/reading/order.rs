//! The same spans in any order, any number of times and in any number of pieces give the same trajectories.

use std::fs;
use std::path::{Path, PathBuf};

use gradus_core::trajectory::Trajectory;
use gradus_ingest::{FilesOnly, InputSource, RecordIntake, SourceLimits};
use proptest::prelude::*;

/// One small capture of each kind: rooted, bare with sessions, bare without, several turns, agents in agents.
const CAPTURES: [&str; 8] = [
    "langgraph-react/s10_parallel",
    "langchain-classic-react/s07_error_recovery",
    "plain-openai-oi/s23_multi_turn",
    "plain-openai-traceloop/s23_multi_turn",
    "plain-openai-v2/s07_error_recovery",
    "openai-agents-handoff/s34_handoff_transfer",
    "vercel-ai/s03_missing_param",
    "google-adk-openinference/s10_parallel",
];

fn bodies(capture: &str) -> Vec<PathBuf> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fixtures/captures").join(capture);
    let mut paths: Vec<PathBuf> = fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path()).collect();
    paths.retain(|path| path.extension().is_some_and(|extension| extension == "bin"));
    paths.sort();
    paths
}

fn read(paths: &[PathBuf]) -> Vec<Trajectory> {
    let mut found = Vec::new();
    let mut sink = |_, trajectory| {
        found.push(trajectory);
        Ok(())
    };
    let mut intake = RecordIntake::new(SourceLimits::default(), &mut sink);
    for path in paths {
        let name = path.display().to_string();
        gradus_ingest::read_input_source(&InputSource::File { path: path.clone(), name }, &FilesOnly, &mut intake)
            .unwrap();
    }
    intake.finish().unwrap();
    found
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::with_cases(24) })]

    #[test]
    fn order_and_repetition_change_nothing(
        capture in prop::sample::select(CAPTURES.to_vec()),
        order in prop::collection::vec(any::<prop::sample::Index>(), 0..40),
        seed in any::<u64>(),
    ) {
        let paths = bodies(capture);
        let wanted = read(&paths);
        prop_assert!(!wanted.is_empty());
        // Every request at least once, some twice, shuffled.
        let mut shuffled = paths.clone();
        shuffled.extend(order.iter().map(|index| index.get(&paths).clone()));
        let mut state = seed | 1;
        for at in (1..shuffled.len()).rev() {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            shuffled.swap(at, (state >> 33) as usize % (at + 1));
        }
        prop_assert_eq!(read(&shuffled), wanted);
    }
}
