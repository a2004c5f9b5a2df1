//! Reads sources (files, folders, standard input; compressed or not; in any known format; projects of a store, of a
//! server or of a Phoenix) into trajectories.
//!
//! Two passes: while a source is read, each span is put into the spool as bytes and only its trace and its links
//! are remembered; when all sources are read, the traces that belong together are taken out again, group by group,
//! and assembled. So memory is bounded by one group, and a trace may be spread over any number of files.

mod condition;
mod detect;
mod error;
mod groups;
mod intake;
mod json;
mod open;
mod parallel;
mod protobuf;
mod read_ahead;
mod selection;
mod server;
mod shapes;
mod spool;
mod stored;
mod text;

pub use condition::Condition;
pub use error::SourceError;
pub(crate) use intake::MAX_LINKED_ON_ARRIVAL;
pub use intake::{Intake, Sink, Summary};
pub use open::{Input, expand};
pub use selection::Selection;
pub use server::ServerSource;

pub use crate::phoenix::PhoenixSource;

use std::collections::VecDeque;
use std::io::BufRead;

use detect::Format;

/// Bounds on what a source may cost.
#[derive(Clone, Copy, Debug)]
pub struct Limits {
    pub record: gradus_otlp::Limits,
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

impl Default for Limits {
    fn default() -> Self {
        Limits {
            record: gradus_otlp::Limits::default(),
            expansion: 200,
            expansion_floor: 256 << 20,
            spool_memory: 32 << 20,
            threads: 1,
            group: GroupLimits::default(),
        }
    }
}

impl Limits {
    /// For a command that has the machine to itself: every core reads.
    pub fn for_command() -> Limits {
        Limits { threads: parallel::available_threads(), ..Limits::default() }
    }
}

/// Reads one input into the intake.
pub fn read(input: &Input, intake: &mut Intake<'_>) -> Result<(), SourceError> {
    match input {
        Input::Server(server) => server.read(intake),
        Input::Phoenix(phoenix) => phoenix.read(intake),
        Input::Store { path, project } => stored::read(path, project.as_deref(), intake),
        Input::File { .. } | Input::StandardInput => {
            let reader = open::open(input, intake.limits())?;
            read_opened(input, reader, intake)
        }
    }
}

/// Reads files one behind the other and says of each how that went. The next ones are opened meanwhile, so that they are
/// decompressed on other threads.
pub fn read_files(
    files: &[Input],
    intake: &mut Intake<'_>,
    told: &mut dyn FnMut(&mut Intake<'_>, Result<(), SourceError>),
) {
    let limits = *intake.limits();
    let ahead = if limits.threads > 1 { limits.threads } else { 0 };
    let mut unopened = files.iter();
    let mut opened = VecDeque::new();
    for file in files {
        let wanted = ahead + 1 - opened.len().min(ahead + 1);
        opened.extend(unopened.by_ref().take(wanted).map(|next| open::open(next, &limits)));
        let Some(reader) = opened.pop_front() else { return };
        let read = reader.and_then(|reader| read_opened(file, reader, intake));
        told(intake, read);
    }
}

fn read_opened(input: &Input, mut reader: open::Opened, intake: &mut Intake<'_>) -> Result<(), SourceError> {
    intake.begin_input(input.name());
    let head = reader.fill_head().map_err(|error| SourceError::io(input.name(), &error))?;
    if let (Input::File { path, .. }, true) = (input, head.bytes.starts_with(stored::MAGIC)) {
        return stored::read(path, None, intake);
    }
    let format = detect::detect(head.bytes, head.whole)
        .ok_or_else(|| SourceError::unrecognised(input.name(), head.bytes))?;
    let reader: &mut dyn BufRead = &mut reader;
    let mark = intake.mark();
    let read = match format {
        Format::Protobuf(framing) => protobuf::read(reader, framing, intake),
        Format::Json => json::read(reader, intake),
        Format::Transcript => text::read(reader, intake),
    };
    read.map_err(|error| {
        // The source as a whole is reported; its records need not be, too.
        intake.forget_bad_records(&mark);
        error.in_source(input.name())
    })
}
