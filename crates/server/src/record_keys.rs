//! Names and times of trajectories in the form of the store's indexes.

/// Maximum number of bytes of agent, version, model, session and tool names.
const MAX_KEY_NAME_BYTES: usize = 200;

/// Converts a name to a key of an index. Senders choose names, so the length is bounded, and characters that an HTML
/// form cannot send back are replaced.
pub(crate) fn sanitize_name(name: &str) -> String {
    let beginning = &name[..name.floor_char_boundary(MAX_KEY_NAME_BYTES)];
    beginning.replace(['\n', '\r'], " ").replace('\0', "\u{fffd}")
}

/// Parses nanoseconds since 1970; 0 if the text is missing or invalid.
pub(crate) fn parse_timestamp_ns(text: Option<&str>) -> i64 {
    let time = text.and_then(|text| text.parse::<jiff::Timestamp>().ok());
    time.and_then(|time| i64::try_from(time.as_nanosecond()).ok()).unwrap_or(0)
}
