//! Limits of a single record. Anyone may have written a trace, so every allocation that a trace can cause is bounded,
//! and the error that refuses a record names the limit.

/// Limits of one record. The defaults are far above what instrumentations emit.
#[derive(Clone, Copy, Debug)]
pub struct RecordLimits {
    /// Bytes of one span, log record or JSON document that has to be held at once.
    pub record_bytes: usize,
    /// Attributes of one span, its events, its links, and all values inside of values. Events and links count as one
    /// each, because even an empty one takes memory.
    pub attributes: usize,
    /// Depth of arrays and maps inside one attribute.
    pub nesting: usize,
}

impl Default for RecordLimits {
    fn default() -> Self {
        RecordLimits { record_bytes: 64 << 20, attributes: 65_536, nesting: 64 }
    }
}
