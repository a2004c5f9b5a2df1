//! What a source may cost.

use crate::parallel;

/// Bounds on what a source may cost.
#[derive(Clone, Copy, Debug)]
pub struct SourceLimits {
    pub record: gradus_otlp::RecordLimits,
    /// How many times its compressed size a source may grow to, once it is larger than `expansion_floor`.
    pub expansion: u64,
    pub expansion_floor: u64,
    /// Bytes of spans kept in memory before they are spilled to a temporary file.
    pub spool_memory: usize,
    /// Threads that decode and assemble; the result does not depend on it.
    pub threads: usize,
    pub group: GroupLimits,
}

/// How much of the traces that belong together is assembled; what comes behind that is left out, and reported.
#[derive(Clone, Copy, Debug)]
pub struct GroupLimits {
    /// Log records count, too.
    pub spans: usize,
    /// Attribute values of all spans and log records, those in lists and maps included; and as many of their resources.
    pub values: usize,
    pub trajectories: usize,
}

impl Default for GroupLimits {
    /// Whoever reads own files decides what they may cost.
    fn default() -> Self {
        GroupLimits { spans: usize::MAX, values: usize::MAX, trajectories: usize::MAX }
    }
}

impl Default for SourceLimits {
    fn default() -> Self {
        SourceLimits {
            record: gradus_otlp::RecordLimits::default(),
            expansion: 200,
            expansion_floor: 256 << 20,
            spool_memory: 32 << 20,
            threads: 1,
            group: GroupLimits::default(),
        }
    }
}

impl SourceLimits {
    /// For a command that has the machine to itself: every core reads.
    pub fn for_command() -> SourceLimits {
        SourceLimits { threads: parallel::available_threads(), ..SourceLimits::default() }
    }
}
