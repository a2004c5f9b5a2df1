//! Normalises times to RFC 3339 in UTC, the form of the output lines.

use jiff::Timestamp;
use serde_json::Value as Json;

/// Normalises RFC 3339 text, and seconds, milliseconds, microseconds or nanoseconds since the epoch, whose unit is
/// detected by size.
pub(crate) fn normalize_timestamp(value: &Json) -> Option<String> {
    match value {
        Json::String(text) => normalize_timestamp_text(text),
        Json::Number(number) => {
            let mut seconds = number.as_f64()?;
            // A time after 1973 and before 5138 in one of these units.
            while seconds.abs() >= 1e11 {
                seconds /= 1e3;
            }
            Timestamp::from_microsecond((seconds * 1e6) as i64).ok().map(|at| at.to_string())
        }
        _ => None,
    }
}

/// Normalises RFC 3339 text. A time without a zone counts as UTC, because harnesses write such times on servers.
pub(crate) fn normalize_timestamp_text(text: &str) -> Option<String> {
    let zoned = text.parse::<Timestamp>().ok();
    let local = || text.parse::<jiff::civil::DateTime>().ok()?.to_zoned(jiff::tz::TimeZone::UTC).ok();
    zoned.or_else(|| local().map(|zoned| zoned.timestamp())).map(|at| at.to_string())
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn units_are_told_apart_by_their_size() {
        let expected = Some("2026-11-17T12:00:00Z".to_owned());
        for value in [
            json!(1_794_916_800),
            json!(1_794_916_800_000_u64),
            json!(1_794_916_800_000_000_u64),
            json!(1_794_916_800_000_000_000_u64),
            json!("2026-11-17T12:00:00Z"),
            json!("2026-11-17T12:00:00"),
            json!("2026-11-17 13:00:00+01:00"),
        ] {
            assert_eq!(normalize_timestamp(&value), expected, "{value}");
        }
        assert_eq!(normalize_timestamp(&json!("yesterday")), None);
    }
}
