//! Reads one file of a known format and prints its trajectories and spans as lines: `cargo run -p gradus-import
//! --example read_record FILE`. A development tool: `gradus traces` reads the same, and much more.

use std::io::{self, Write};

use gradus_core::span::Span;
use gradus_import::{
    ArchiveLimits, DOCUMENT_FORMATS, ImportSink, ImportedTurn, SESSION_FORMATS, UNREADABLE_FORMATS,
    read_inspect_archive,
};
use serde_json::Value as Json;

struct LinePrinter {
    out: io::Stdout,
}

impl ImportSink for LinePrinter {
    fn add_span(&mut self, span: &Span<'_>) {
        writeln!(self.out, "span {span:?}").ok();
    }

    fn add_turn(&mut self, turn: ImportedTurn) {
        let line = serde_json::to_string(&turn.trajectory).unwrap_or_default();
        writeln!(self.out, "{line}").ok();
        if !turn.subagents.is_empty() || turn.started_as.is_some() {
            writeln!(self.out, "subagents {:?} started as {:?}", turn.subagents, turn.started_as).ok();
        }
    }

    fn report_bad_record(&mut self, reason: &str) {
        writeln!(self.out, "bad record: {reason}").ok();
    }
}

fn main() -> io::Result<()> {
    let path = std::env::args().nth(1).ok_or_else(|| io::Error::other("usage: read_record FILE"))?;
    let mut sink = LinePrinter { out: io::stdout() };
    if path.ends_with(".eval") {
        let file = io::BufReader::new(std::fs::File::open(path)?);
        return read_inspect_archive(file, ArchiveLimits::default(), &mut sink).map_err(io::Error::other);
    }
    let text = std::fs::read_to_string(path)?;
    let whole: Option<Json> = serde_json::from_str(&text).ok();
    let records: Vec<Json> = match whole {
        Some(Json::Object(object)) => vec![Json::Object(object)],
        Some(Json::Array(items)) => items,
        _ => text.lines().filter_map(|line| serde_json::from_str(line).ok()).collect(),
    };
    if let Some(format) = SESSION_FORMATS.iter().find(|format| (format.matches)(&records[..records.len().min(20)])) {
        writeln!(sink.out, "format: {}", format.name)?;
        let mut reader = (format.open)();
        for record in &records {
            reader.read_record(record.to_string().as_bytes(), &mut sink);
        }
        reader.finish(&mut sink);
        return Ok(());
    }
    for record in records {
        let Json::Object(object) = record else { continue };
        match DOCUMENT_FORMATS.iter().find(|format| (format.matches)(&object)) {
            Some(format) => {
                writeln!(sink.out, "format: {}", format.name)?;
                if let Err(error) = (format.read)(object, &mut sink) {
                    writeln!(sink.out, "error: {error}")?;
                }
            }
            None if let Some(format) = UNREADABLE_FORMATS.iter().find(|format| (format.matches)(&object)) => {
                writeln!(sink.out, "known, not read: {}: {}", format.name, format.hint)?;
            }
            None => writeln!(sink.out, "unknown: {:?}", object.keys().collect::<Vec<_>>())?,
        }
    }
    Ok(())
}
