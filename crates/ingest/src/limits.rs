//! Limits of a source.

use crate::parallel;

/// Limits of a source. They bound memory and guard against decompression bombs and hostile traces.
#[derive(Clone, Copy, Debug)]
pub struct SourceLimits {
    pub record: gradus_otlp::RecordLimits,
    /// Ratio of decompressed to compressed size that is allowed once the output is larger than `expansion_floor` bytes.
    pub expansion: u64,
    pub expansion_floor: u64,
    /// Maximum bytes of spans in memory before they are spilled to a temporary file.
    pub spool_memory: usize,
    /// Threads that decode and assemble. The result does not depend on their number.
    pub threads: usize,
    /// Whether a personal session may come from standard input. For a file, the user is asked before it is read.
    pub accepts_personal_stdin: bool,
    pub group: GroupLimits,
}

/// Limits of the traces that are assembled together. Records beyond them are left out and reported.
#[derive(Clone, Copy, Debug)]
pub struct GroupLimits {
    /// Spans and log records together.
    pub spans: usize,
    /// Values of the attributes of all spans and log records, including those inside lists and maps; as many again for
    /// resources.
    pub values: usize,
    pub trajectories: usize,
}

impl Default for GroupLimits {
    /// No limits: users decide themselves which of their own files they read. A server sets limits.
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
            accepts_personal_stdin: true,
            group: GroupLimits::default(),
        }
    }
}

impl SourceLimits {
    /// For a command that has the machine to itself: one thread per core.
    pub fn for_command() -> SourceLimits {
        SourceLimits { threads: parallel::available_threads(), ..SourceLimits::default() }
    }
}
