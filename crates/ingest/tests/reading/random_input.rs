//! A random-input driver: whatever bytes come in, something comes out, and nothing breaks.
//!
//! Bounded here; `GRADUS_FUZZ_SECONDS=600 cargo test --release -p gradus-ingest --test reading random_input` goes on for ten minutes.

use std::fs;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use gradus_core::react;
use gradus_ingest::{FilesOnly, InputSource, RecordIntake, SourceLimits};

/// A small generator of our own: the seed alone tells how to come back to a failure.
struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0
    }

    fn below(&mut self, bound: usize) -> usize {
        (self.next() >> 11) as usize % bound.max(1)
    }
}

/// Rounds until the time is up, or a fixed number of them.
fn rounds(fixed: u64, mut round: impl FnMut(&mut Random)) {
    let seconds = std::env::var("GRADUS_FUZZ_SECONDS").ok().and_then(|seconds| seconds.parse().ok());
    let (start, limit) = (Instant::now(), seconds.map(Duration::from_secs));
    for seed in 1.. {
        match limit {
            Some(limit) if start.elapsed() > limit => break,
            None if seed > fixed => break,
            _ => {}
        }
        // Printed only when the test fails.
        println!("seed {seed}");
        round(&mut Random(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15)));
    }
}

fn corpus() -> Vec<Vec<u8>> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fixtures/captures");
    let mut paths: Vec<PathBuf> = Vec::new();
    for framework in fs::read_dir(root).unwrap() {
        let scenario =
            fs::read_dir(framework.unwrap().path()).unwrap().map(|entry| entry.unwrap().path()).min().unwrap();
        paths.extend(
            fs::read_dir(scenario)
                .unwrap()
                .map(|entry| entry.unwrap().path())
                .filter(|path| path.extension().is_some_and(|e| e == "bin"))
                .take(2),
        );
    }
    paths.sort();
    paths.iter().map(|path| plain(fs::read(path).unwrap())).filter(|body| body.len() < 60_000).collect()
}

fn plain(body: Vec<u8>) -> Vec<u8> {
    let mut out = Vec::new();
    let read = std::io::Read::read_to_end(&mut flate2::read::GzDecoder::new(body.as_slice()), &mut out);
    if read.is_ok() { out } else { body }
}

/// Changes, drops, doubles and swaps bytes.
fn damage(body: &[u8], random: &mut Random) -> Vec<u8> {
    let mut damaged = body.to_vec();
    for _ in 0..1 + random.below(12) {
        if damaged.is_empty() {
            break;
        }
        let at = random.below(damaged.len());
        match random.below(5) {
            0 => damaged[at] = random.next() as u8,
            1 => damaged.truncate(at),
            2 => drop(damaged.drain(at..(at + random.below(40)).min(damaged.len()))),
            3 => {
                let piece = damaged[at..(at + random.below(200)).min(damaged.len())].to_vec();
                let to = random.below(damaged.len());
                damaged.splice(to..to, piece);
            }
            _ => {
                let other = random.below(damaged.len());
                damaged.swap(at, other);
            }
        }
    }
    damaged
}

#[test]
fn damaged_captures_are_survived() {
    let corpus = corpus();
    assert!(corpus.len() > 30);
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("damaged");
    rounds(1_500, |random| {
        let body = damage(&corpus[random.below(corpus.len())], random);
        fs::File::create(&path).unwrap().write_all(&body).unwrap();
        let mut sink = |_, trajectory| {
            serde_json::to_vec(&trajectory)?;
            Ok(())
        };
        let mut intake = RecordIntake::new(SourceLimits::default(), &mut sink);
        let _ = gradus_ingest::read_input_source(
            &InputSource::File { path: path.clone(), name: "damaged".to_owned() },
            &FilesOnly,
            &mut intake,
        );
        intake.finish().unwrap();
    });
}

#[test]
fn any_react_text_is_survived() {
    const PIECES: [&str; 26] = [
        "Thought:",
        "Action:",
        "Action Input:",
        "Observation:",
        "Final Answer:",
        "Answer:",
        "Question:",
        "Thought 1:",
        "Action 2:",
        "\n",
        "\n\n",
        " ",
        "{",
        "}",
        "\"",
        "'",
        "[",
        "]",
        "(",
        "```",
        "```json\n",
        "<think>",
        "</think>",
        "<code>",
        "find(x='é')",
        "🐛\u{202e}",
    ];
    rounds(20_000, |random| {
        let text: String = (0..random.below(60)).map(|_| PIECES[random.below(PIECES.len())]).collect();
        let transcript = react::read_react_transcript(&text);
        assert!(transcript.steps.len() <= text.len());
        let _ = react::find_code_block(&text).map(|(_, code)| react::find_code_calls(code).len());
    });
}
