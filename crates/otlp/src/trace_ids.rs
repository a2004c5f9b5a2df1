//! Replaces the trace ids of an export request, so that traces of several programs cannot collide. Ids have a fixed
//! length, so they are overwritten in place and nothing moves.

use crate::record::{TelemetrySignal, detect_signal};
use crate::wire::{WireError, WireFields, WireValue};

/// Applies `change` to every trace id of one or more concatenated export requests: in spans, log records and span links.
/// Ids of a wrong length stay as they are. After an error nothing was changed.
pub fn change_trace_ids(export: &mut [u8], change: &dyn Fn([u8; 16]) -> [u8; 16]) -> Result<(), WireError> {
    let mut offsets = Vec::new();
    collect_id_offsets(IdBearingMessage::Export, export, 0, &mut offsets)?;
    for offset in offsets {
        if let Some(id) = export.get_mut(offset..).and_then(|rest| rest.first_chunk_mut::<16>()) {
            *id = change(*id);
        }
    }
    Ok(())
}

/// Message types on the path to a trace id.
#[derive(Clone, Copy)]
enum IdBearingMessage {
    Export,
    /// All of one resource.
    Resource,
    /// All of one scope.
    Scope,
    Span,
    Log,
    Link,
}

/// Collects the offsets of ids in a message that begins at `start`. Recursion ends at the link, five levels down.
fn collect_id_offsets(
    message: IdBearingMessage,
    bytes: &[u8],
    start: usize,
    offsets: &mut Vec<usize>,
) -> Result<(), WireError> {
    let mut fields = WireFields::new(bytes);
    while let Some((number, field)) = fields.next()? {
        let WireValue::Bytes(content) = field else { continue };
        // The content is the last part of a field, so its start follows from what is left.
        let begin = start + bytes.len() - fields.bytes_left() - content.len();
        let inner = match (message, number) {
            (IdBearingMessage::Export, 1) => IdBearingMessage::Resource,
            (IdBearingMessage::Resource, 2) => IdBearingMessage::Scope,
            (IdBearingMessage::Scope, 2) => match detect_signal(content) {
                TelemetrySignal::Span => IdBearingMessage::Span,
                TelemetrySignal::Log => IdBearingMessage::Log,
            },
            (IdBearingMessage::Span, 13) => IdBearingMessage::Link,
            (IdBearingMessage::Span | IdBearingMessage::Link, 1) | (IdBearingMessage::Log, 9) => {
                offsets.extend((content.len() == 16).then_some(begin));
                continue;
            }
            _ => continue,
        };
        collect_id_offsets(inner, content, begin, offsets)?;
    }
    Ok(())
}
