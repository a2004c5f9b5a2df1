//! Times in requests and responses of the API: RFC 3339.

use crate::http_error::ApiError;

/// RFC 3339 in UTC with as many fractional digits as necessary. Empty if the time is out of range.
pub(crate) fn format_rfc3339(ns: i64) -> String {
    jiff::Timestamp::from_nanosecond(i128::from(ns)).map(|time| time.to_string()).unwrap_or_default()
}

/// Parses an RFC 3339 time with an offset to nanoseconds since 1970. `name` is the parameter, for the error message.
pub(crate) fn parse_rfc3339(name: &str, text: Option<&str>) -> Result<Option<i64>, ApiError> {
    let Some(text) = text else { return Ok(None) };
    let time: Option<jiff::Timestamp> = text.parse().ok();
    let ns = time.and_then(|time| i64::try_from(time.as_nanosecond()).ok());
    ns.map(Some).ok_or_else(|| ApiError::bad_request(format!("{name}={text}: write it as 2026-11-15T08:00:00Z")))
}
