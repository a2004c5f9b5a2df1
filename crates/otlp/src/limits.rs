//! What a single record may cost. Traces are written by strangers: every allocation they can ask for has a bound, and
//! the error that refuses them names it.

/// Bounds on one record. The defaults are far above what instrumentations emit.
#[derive(Clone, Copy, Debug)]
pub struct RecordLimits {
    /// Bytes of one span, log record or JSON document that has to be held at once.
    pub record_bytes: usize,
    /// Attributes of one span with its events and links, which count themselves, too, and all values inside of values.
    pub attributes: usize,
    /// Depth of arrays and maps inside one attribute.
    pub nesting: usize,
}

impl Default for RecordLimits {
    fn default() -> Self {
        RecordLimits { record_bytes: 64 << 20, attributes: 65_536, nesting: 64 }
    }
}
