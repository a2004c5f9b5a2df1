//! The kinds of formats, and what a reader of each must do.

use serde_json::{Map, Value as Json};

use crate::import_sink::{ImportError, ImportSink};

/// Reads the records of one file in their order.
pub trait SessionReader {
    /// Reads one record, as the bytes of its JSON. A record that cannot be used is reported to the sink, with what is
    /// wrong but without its position: the caller adds file and line.
    fn read_record(&mut self, record: &[u8], sink: &mut dyn ImportSink);

    /// Hands over what is incomplete at the end of the file.
    fn finish(self: Box<Self>, sink: &mut dyn ImportSink);
}

/// A format of sessions.
#[derive(Clone, Copy, Debug)]
pub struct SessionFormat {
    /// As users know it: `Claude Code session`.
    pub name: &'static str,
    /// Whether the first records of a file (20 at most) prove the format.
    pub matches: fn(&[Json]) -> bool,
    pub open: fn() -> Box<dyn SessionReader>,
    /// Whether a coding agent writes it on the machine of its user. Such a session is sent nowhere without consent.
    pub is_personal: bool,
}

impl SessionFormat {
    /// Describes a format of a coding agent on the machine of its user.
    pub(crate) const fn written_by_coding_agent(
        name: &'static str,
        matches: fn(&[Json]) -> bool,
        open: fn() -> Box<dyn SessionReader>,
    ) -> SessionFormat {
        SessionFormat { name, matches, open, is_personal: true }
    }

    /// Describes a format of a harness.
    pub(crate) const fn written_by_harness(
        name: &'static str,
        matches: fn(&[Json]) -> bool,
        open: fn() -> Box<dyn SessionReader>,
    ) -> SessionFormat {
        SessionFormat { name, matches, open, is_personal: false }
    }
}

/// Reads a document and hands over what it holds.
pub type DocumentReadFn = fn(Map<String, Json>, &mut dyn ImportSink) -> Result<(), ImportError>;

/// A format of JSON objects that are complete in themselves.
#[derive(Clone, Copy, Debug)]
pub struct DocumentFormat {
    /// As users know it: `LangSmith run`.
    pub name: &'static str,
    /// Whether the keys and values of an object prove the format.
    pub matches: fn(&Map<String, Json>) -> bool,
    pub read: DocumentReadFn,
}

/// A format that is recognised and not read.
#[derive(Clone, Copy, Debug)]
pub struct UnreadableFormat {
    /// As users know it: `LangSmith dataset`.
    pub name: &'static str,
    pub matches: fn(&Map<String, Json>) -> bool,
    /// Why it is not read, and what to export instead.
    pub hint: &'static str,
}
