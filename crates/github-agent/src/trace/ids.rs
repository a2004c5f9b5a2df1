//! Trace and span ids: random, or reproducible.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use opentelemetry::trace::{SpanId, TraceId};
use opentelemetry_sdk::trace::{IdGenerator, RandomIdGenerator};

/// The benchmark uses seeded ids, so that a repeated trial has the same trace.
#[derive(Clone, Debug, Default)]
pub enum TraceIdGenerator {
    #[default]
    Random,
    /// Hash of a seed and a counter.
    Counted { seed: Arc<str>, next: Arc<AtomicU64> },
}

impl TraceIdGenerator {
    /// Creates a generator. The same seed gives the same sequence of ids.
    pub fn from_seed(seed: &str) -> TraceIdGenerator {
        TraceIdGenerator::Counted { seed: Arc::from(seed), next: Arc::default() }
    }

    /// Returns a hash that is unique per call. Relaxed ordering suffices: only uniqueness matters.
    fn hash_next_number(seed: &str, next: &AtomicU64) -> [u8; 32] {
        let number = next.fetch_add(1, Ordering::Relaxed);
        *blake3::hash(format!("{number} {seed}").as_bytes()).as_bytes()
    }
}

impl IdGenerator for TraceIdGenerator {
    fn new_trace_id(&self) -> TraceId {
        match self {
            TraceIdGenerator::Random => RandomIdGenerator::default().new_trace_id(),
            TraceIdGenerator::Counted { seed, next } => {
                let bytes = TraceIdGenerator::hash_next_number(seed, next);
                TraceId::from_bytes(bytes[..16].try_into().unwrap_or([1; 16]))
            }
        }
    }

    fn new_span_id(&self) -> SpanId {
        match self {
            TraceIdGenerator::Random => RandomIdGenerator::default().new_span_id(),
            TraceIdGenerator::Counted { seed, next } => {
                let bytes = TraceIdGenerator::hash_next_number(seed, next);
                SpanId::from_bytes(bytes[..8].try_into().unwrap_or([1; 8]))
            }
        }
    }
}
