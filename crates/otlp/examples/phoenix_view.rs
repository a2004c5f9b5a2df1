//! Prints spans as Phoenix would list them, one a line: what `tests/peers/phoenix_view.py` holds against a real one.
//!
//!   phoenix_view REQUEST.bin...
//!
//! Requests are OTLP traces in protobuf, not compressed.

use std::io::{self, BufWriter, Write};

use gradus_core::phoenix_view::PhoenixSpan;
use gradus_otlp::{Limits, Signal, decode_span, read_export};
use serde_json::json;

fn main() -> io::Result<()> {
    let limits = Limits::default();
    let mut out = BufWriter::new(io::stdout().lock());
    for path in std::env::args_os().skip(1) {
        let request = std::fs::read(&path)?;
        let mut failure = Ok(());
        let read = read_export(&request, &limits, &mut |record| {
            if record.signal == Signal::Span && failure.is_ok() {
                let span = decode_span(record.body, &record.scope.resource, &record.scope.name, &limits)?;
                let view = PhoenixSpan::of(&span);
                let line = json!({"listed": view.listed(), "kind": view.kind().as_str(), "nested": view.attributes()});
                failure = writeln!(out, "{line}");
            }
            Ok(())
        });
        failure?;
        read.map_err(|error| io::Error::other(format!("{}: {error}", path.display())))?;
    }
    out.flush()
}
