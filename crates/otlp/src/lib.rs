//! OTLP on the wire: the protobuf and JSON forms of traces and logs (OTLP 1.x). Files, sockets and the meaning of
//! attributes belong to other crates.
//!
//! An [`ExportRecord`] is one span or one log record, still in its protobuf form: cheap to keep, to spill and to store.
//! It is decoded into a [`gradus_core::span::Span`] only when its trace is assembled. The protobuf reader is our own
//! because it borrows (no copy per attribute) and because it can walk a message larger than memory. It is checked
//! against `prost` on random messages.
//!
//! Everything here reads untrusted input. Lengths and counts are checked against [`RecordLimits`] before memory is
//! allocated for them, recursion is bounded, and no input panics.

mod decode;
mod encode;
mod export;
mod json;
mod limits;
mod log_event;
mod record;
mod regroup;
mod reply;
mod rewrite;
mod stream;
mod trace_ids;
mod transcode;
mod wire;

pub use crate::log_event::LogEvent;
pub use decode::{SpanHead, decode_log, decode_resource, decode_span, decode_span_head};
pub use encode::{encode_log, encode_span};
pub use export::{encode_export, encode_link, partial_success};
pub use json::{ExportList, JsonRecord, RecordExtras, is_export_key, read_export_json, span_from_json};
pub use limits::RecordLimits;
pub use record::{ExportRecord, RecordScope, TelemetrySignal, detect_signal, read_export};
pub use regroup::{
    RecordOutline, RegroupedExport, RejectedRecords, TracePart, WireRecord, WireResource, WireScope, regroup_export,
    regroup_with_budget,
};
pub use reply::{encode_rpc_status, export_response, export_response_json, retry_status, status_json};
pub use rewrite::{TextChange, TextKind, rewrite_resource_texts, rewrite_scope_texts, rewrite_texts};
pub use stream::{MessageFraming, StreamError, looks_like_export, stream_export};
pub use trace_ids::change_trace_ids;
pub use transcode::{export_from_json, export_from_spans};
pub use wire::WireError;
