//! Responses of an OTLP/HTTP receiver: export responses with `partial_success`, and `google.rpc.Status` for errors, as
//! protobuf and as JSON. The specification demands the encoding of the request for both.

use crate::record::TelemetrySignal;
use crate::regroup::RejectedRecords;
use crate::wire::{write_bytes, write_number};

/// The body of an `ExportTraceServiceResponse` or `ExportLogsServiceResponse`. Empty if everything was accepted: the
/// specification says that `partial_success` must not be set then.
pub fn export_response(rejected: &RejectedRecords) -> Vec<u8> {
    let mut body = Vec::new();
    if let Some(reason) = &rejected.reason {
        let mut partial = Vec::new();
        write_number(&mut partial, 1, rejected.count);
        write_bytes(&mut partial, 2, reason.as_bytes());
        write_bytes(&mut body, 1, &partial);
    }
    body
}

/// The same in JSON, where protobuf's mapping writes 64-bit numbers as texts.
pub fn export_response_json(rejected: &RejectedRecords, signal: TelemetrySignal) -> String {
    let Some(reason) = &rejected.reason else { return "{}".to_owned() };
    let count = match signal {
        TelemetrySignal::Span => "rejectedSpans",
        TelemetrySignal::Log => "rejectedLogRecords",
    };
    serde_json::json!({"partialSuccess": {count: rejected.count.to_string(), "errorMessage": reason}}).to_string()
}

/// The body of a `google.rpc.Status`. `code` is a gRPC status code, not an HTTP status.
pub fn encode_rpc_status(code: u32, message: &str) -> Vec<u8> {
    let mut body = Vec::new();
    write_number(&mut body, 1, u64::from(code));
    write_bytes(&mut body, 2, message.as_bytes());
    body
}

/// A `google.rpc.Status` in JSON.
pub fn status_json(code: u32, message: &str) -> String {
    serde_json::json!({"code": code, "message": message}).to_string()
}

/// A `google.rpc.Status` with a `RetryInfo` detail: the client should wait this long and then send the request again.
pub fn retry_status(code: u32, message: &str, seconds: u32) -> Vec<u8> {
    let (mut delay, mut info, mut any) = (Vec::new(), Vec::new(), Vec::new());
    write_number(&mut delay, 1, u64::from(seconds));
    write_bytes(&mut info, 1, &delay);
    write_bytes(&mut any, 1, b"type.googleapis.com/google.rpc.RetryInfo");
    write_bytes(&mut any, 2, &info);
    let mut body = encode_rpc_status(code, message);
    write_bytes(&mut body, 3, &any);
    body
}
