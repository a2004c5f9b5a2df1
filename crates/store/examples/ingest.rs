//! What taking in spans costs: CPU and wall time a span, bytes a span on disk.
//!
//! `cargo run --profile dist -p gradus-store --example ingest -- [SPANS] [SPANS A REQUEST] [FOLDER]`

#![allow(clippy::print_stdout)]

use std::sync::atomic::Ordering;
use std::time::Instant;

use gradus_core::span::{SpanId, TraceId};
use gradus_store::{BlockSignal, RootSpan, SpanKey, Store, StoreOptions, TraceChunk};

const SPAN_BYTES: usize = 4_000;
const SPANS_A_TRACE: usize = 10;

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let mut arguments = std::env::args().skip(1);
    let spans: usize = arguments.next().map_or(Ok(100_000), |text| text.parse())?;
    let a_request: usize = arguments.next().map_or(Ok(100), |text| text.parse())?;
    let (folder, _kept) = match arguments.next() {
        Some(folder) => (folder.into(), None),
        None => {
            let folder = tempfile::tempdir()?;
            (folder.path().to_owned(), Some(folder))
        }
    };
    let store = Store::open(&folder, StoreOptions::default())?;
    let mut random = fastrand::Rng::with_seed(1);
    let words: Vec<String> =
        (0..5_000).map(|_| (0..random.usize(2..11)).map(|_| random.lowercase()).collect()).collect();
    // Made before the clock runs: what a receiver has in its hands is bytes.
    let exports: Vec<Vec<u8>> = (0..spans / SPANS_A_TRACE).map(|_| export(&mut random, &words)).collect();
    let raw: usize = exports.iter().map(Vec::len).sum();
    let (cpu, wall) = (cpu_us(), Instant::now());
    let mut packing_us = 0.0;
    let mut waiting = std::collections::VecDeque::new();
    for (number, exports) in exports.chunks((a_request / SPANS_A_TRACE).max(1)).enumerate() {
        let before = Instant::now();
        let chunks = exports.iter().map(|export| chunk(&mut random, number, export)).collect();
        packing_us += before.elapsed().as_secs_f64() * 1e6;
        waiting.push_back(store.ingest(chunks, now_ns(number))?);
        // As many requests are under way as a busy server has.
        if waiting.len() > 16
            && let Some(oldest) = waiting.pop_front()
        {
            oldest.wait()?;
        }
    }
    for write in waiting {
        write.wait()?;
    }
    let (cpu, wall) = (cpu_us() - cpu, wall.elapsed());
    let status = store.writer_status().ok_or("no writer")?;
    let commits = status.commits.load(Ordering::Relaxed);
    let a_span = |us: f64| us / spans as f64;
    println!("{spans} spans of {} bytes, {a_request} a request", raw / spans);
    println!("cpu      {:7.1} us a span", a_span(cpu));
    println!("packing  {:7.1} us a span (wall, includes digests)", a_span(packing_us));
    println!("wall     {:7.1} us a span, {commits} commits", a_span(wall.as_secs_f64() * 1e6));
    println!("disk     {:7.1} bytes a span", store.used_and_free_bytes()?.0 as f64 / spans as f64);
    Ok(())
}

fn now_ns(request: usize) -> i64 {
    1_700_000_000_000_000_000 + request as i64 * 1_000_000
}

/// Spans of one trace: attributes that repeat, a conversation that grows, and texts that differ.
fn export(random: &mut fastrand::Rng, words: &[String]) -> Vec<u8> {
    let mut export = String::new();
    let mut history = String::new();
    for _ in 0..SPANS_A_TRACE {
        let start = export.len();
        export.push_str(&format!(
            "gen_ai.operation.name=chat gen_ai.request.model=gpt-4o span={:016x} start={} ",
            random.u64(..),
            random.u64(..)
        ));
        export.push_str(&history);
        let own = export.len();
        while export.len() - start < SPAN_BYTES {
            // Common words are common.
            let rank = (random.f64().powi(3) * words.len() as f64) as usize;
            export.push_str(&words[rank]);
            export.push(' ');
        }
        // The next prompt holds part of this one.
        let until = (own + 800).min(export.len());
        history.push_str(&export[own..until]);
        history.truncate(3_000);
    }
    export.into_bytes()
}

fn chunk(random: &mut fastrand::Rng, request: usize, export: &[u8]) -> TraceChunk {
    let mut chunk = TraceChunk::new(TraceId(random.u128(..)), "shop".into(), BlockSignal::Spans, export);
    chunk.start_ns = now_ns(request) as u64;
    chunk.end_ns = chunk.start_ns + 1_000_000;
    for part in export.chunks(SPAN_BYTES).take(SPANS_A_TRACE) {
        chunk.spans.push(SpanKey {
            span_id: SpanId(random.u64(..)),
            digest: gradus_core::stable_digest(part) as u64,
            has_ended: true,
            is_error: false,
        });
    }
    chunk.root = Some(RootSpan { name: "answer".to_owned(), has_ended: true });
    chunk
}

/// What this process has used so far, user and system, in microseconds.
fn cpu_us() -> f64 {
    let clock = rustix::time::clock_gettime(rustix::time::ClockId::ProcessCPUTime);
    clock.tv_sec as f64 * 1e6 + clock.tv_nsec as f64 / 1e3
}
