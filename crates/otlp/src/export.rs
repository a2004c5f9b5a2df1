//! Export requests as a client writes them, and the reading of the server's response.

use gradus_core::span::{AttributeList, SpanId, TraceId};

use crate::encode::encode_attributes;
use crate::regroup::RejectedRecords;
use crate::wire::{WireFields, WireValue, write_bytes};

/// Appends a link to the body of a `Span` message, without attributes and trace state.
pub fn encode_link(trace_id: TraceId, span_id: SpanId, span: &mut Vec<u8>) {
    let mut link = Vec::new();
    write_bytes(&mut link, 1, &trace_id.0.to_be_bytes());
    write_bytes(&mut link, 2, &span_id.0.to_be_bytes());
    write_bytes(span, 13, &link);
}

/// Encodes an `ExportTraceServiceRequest` or `ExportLogsServiceRequest` with records of one resource and one scope.
/// Both messages have the same shape. `records` are bodies of `Span` or `LogRecord` messages.
pub fn encode_export<'r>(
    resource: &AttributeList<'_>,
    scope: &str,
    records: impl IntoIterator<Item = &'r [u8]>,
) -> Vec<u8> {
    let (mut attributes, mut named, mut in_scope) = (Vec::new(), Vec::new(), Vec::new());
    encode_attributes(resource, 1, &mut attributes);
    write_bytes(&mut named, 1, scope.as_bytes());
    write_bytes(&mut in_scope, 1, &named);
    for record in records {
        write_bytes(&mut in_scope, 2, record);
    }
    let (mut of_resource, mut export) = (Vec::new(), Vec::new());
    write_bytes(&mut of_resource, 1, &attributes);
    write_bytes(&mut of_resource, 2, &in_scope);
    write_bytes(&mut export, 1, &of_resource);
    export
}

/// Reads `partial_success` of an export response: how many records the server rejected, and why. `None` if all were
/// accepted, or if the body is not such a response. A message without a count is a warning of the server, and is
/// returned, too.
pub fn partial_success(body: &[u8]) -> Option<RejectedRecords> {
    let partial = find_bytes_field(body, 1)?;
    let mut rejected = RejectedRecords::default();
    let mut fields = WireFields::new(partial);
    while let Ok(Some((number, field))) = fields.next() {
        match (number, field) {
            (1, WireValue::Varint(count)) => rejected.count = count,
            (2, WireValue::Bytes(text)) => rejected.reason = Some(String::from_utf8_lossy(text).into_owned()),
            _ => {}
        }
    }
    (rejected.count > 0 || rejected.reason.is_some()).then_some(rejected)
}

/// The first length-delimited field with this number.
fn find_bytes_field(body: &[u8], wanted: u32) -> Option<&[u8]> {
    let mut fields = WireFields::new(body);
    while let Ok(Some((number, field))) = fields.next() {
        if let (WireValue::Bytes(bytes), true) = (field, number == wanted) {
            return Some(bytes);
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::reply::export_response;

    #[test]
    fn reads_what_receivers_answer() {
        assert!(partial_success(b"").is_none());
        assert!(partial_success(b"not protobuf at all").is_none());
        let mut rejected = RejectedRecords::default();
        rejected.add(3, || "too old".to_owned());
        let read = partial_success(&export_response(&rejected)).expect("a partial success");
        assert_eq!((read.count, read.reason.as_deref()), (3, Some("too old")));
    }
}
