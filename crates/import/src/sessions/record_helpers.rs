//! Helpers that readers share if their records are small enough to be parsed as JSON values: parsing a record, adding its
//! calls and results.

use gradus_core::message::ArgumentsText;
use gradus_core::trajectory::DefectKind;
use serde_json::Value as Json;

use super::record_text::{record_text, shorten_for_message};
use crate::import_sink::ImportSink;
use crate::session_builder::SessionBuilder;
use crate::turn_draft::{ImportedCall, ImportedResult};

/// Parses a record. Anything but an object is reported.
pub(crate) fn parse_record(record: &[u8], format: &str, sink: &mut dyn ImportSink) -> Option<Json> {
    match serde_json::from_str(&record_text(record)) {
        Ok(json @ Json::Object(_)) => Some(json),
        Ok(_) => {
            sink.report_bad_record(&format!("not a record of {format}: not an object"));
            None
        }
        Err(error) => {
            sink.report_bad_record(&format!("not a record of {format}: {error}"));
            None
        }
    }
}

/// Returns arguments as they were recorded: a text of the model, or a structure. `None` for null.
pub(crate) fn to_arguments_text(arguments: Option<&Json>) -> Option<ArgumentsText<'_>> {
    match arguments? {
        Json::Null => None,
        Json::String(text) => Some(ArgumentsText::Text(text.into())),
        other => Some(ArgumentsText::Json(other.to_string().into())),
    }
}

/// Adds a call and returns the number of its step. A missing name is recorded as a defect.
pub(crate) fn add_call_or_defect(
    builder: &mut SessionBuilder,
    id: Option<&str>,
    name: Option<&str>,
    arguments: Option<ArgumentsText<'_>>,
    at: Option<&str>,
) -> u32 {
    if name.is_none() {
        builder.add_defect(DefectKind::MissingToolName, "a tool call without the name of a tool");
    }
    builder.add_call(&ImportedCall { id, name: name.unwrap_or_default(), arguments }, at)
}

/// Adds a result to its call. One without a call is a defect of its turn, or reported if there is no turn.
pub(crate) fn add_result_or_defect(
    builder: &mut SessionBuilder,
    result: &ImportedResult<'_>,
    sink: &mut dyn ImportSink,
) {
    if result.id.is_some_and(|id| builder.has_call(id)) {
        builder.add_result(result);
        return;
    }
    let id = shorten_for_message(result.id.unwrap_or("without an id"));
    let detail = format!("the result {id} has no call in its turn");
    if builder.has_turn() {
        builder.add_defect(DefectKind::ToolRunOutsideSteps, &detail);
    } else {
        sink.report_bad_record(&detail);
    }
}
