//! Measures how fast a session file is read: `cargo run --profile dist -p gradus-import --example measure_session
//! FILE`. A development tool.

use std::io::{self, BufRead, BufReader, Write};
use std::time::Instant;

use gradus_core::span::Span;
use gradus_import::{ImportSink, ImportedTurn, SESSION_FORMATS};

#[derive(Default)]
struct TurnCounter {
    turn_count: usize,
    step_count: usize,
    bad_count: usize,
}

impl ImportSink for TurnCounter {
    fn add_span(&mut self, _span: &Span<'_>) {}

    fn add_turn(&mut self, turn: ImportedTurn) {
        self.turn_count += 1;
        self.step_count += turn.trajectory.steps.len();
    }

    fn report_bad_record(&mut self, _reason: &str) {
        self.bad_count += 1;
    }
}

fn main() -> io::Result<()> {
    let path = std::env::args().nth(1).ok_or_else(|| io::Error::other("usage: measure_session FILE"))?;
    let first: Vec<serde_json::Value> = BufReader::new(std::fs::File::open(&path)?)
        .lines()
        .take(20)
        .filter_map(|line| serde_json::from_str(&line.ok()?).ok())
        .collect();
    let format = SESSION_FORMATS.iter().find(|format| (format.matches)(&first));
    let format = format.ok_or_else(|| io::Error::other("unknown format"))?;
    let started = Instant::now();
    let mut counter = TurnCounter::default();
    let mut reader = (format.open)();
    let mut file = BufReader::with_capacity(1 << 20, std::fs::File::open(&path)?);
    let (mut line, mut bytes) = (Vec::new(), 0);
    while file.read_until(b'\n', &mut line)? > 0 {
        bytes += line.len();
        reader.read_record(line.trim_ascii(), &mut counter);
        line.clear();
    }
    reader.finish(&mut counter);
    let seconds = started.elapsed().as_secs_f64();
    let TurnCounter { turn_count, step_count, bad_count } = counter;
    let rate = bytes as f64 / 1e6 / seconds;
    let name = format.name;
    writeln!(
        io::stdout(),
        "{name}: {turn_count} turns, {step_count} steps, {bad_count} bad, {seconds:.2} s, {rate:.0} MB/s"
    )
}
