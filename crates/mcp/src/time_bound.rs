//! Times in arguments: a timestamp, or a duration before now.

use jiff::{SignedDuration, Timestamp};

use crate::archive::ArchiveError;

/// Parses `2026-11-15T08:00:00Z`, or `30m`, `24h`, `7d`, `2w` before `now`.
pub(crate) fn parse_time_bound(argument: &'static str, text: &str, now: Timestamp) -> Result<Timestamp, ArchiveError> {
    let wrong = || ArchiveError::BadArgument {
        argument,
        reason: "write it as 2026-11-15T08:00:00Z, or as 30m, 24h, 7d or 2w for a time before now".to_owned(),
    };
    let text = text.trim();
    if let Ok(moment) = text.parse::<Timestamp>() {
        return Ok(moment);
    }
    let unit = text.chars().last().ok_or_else(wrong)?;
    let seconds: i64 = match unit {
        'm' => 60,
        'h' => 3_600,
        'd' => 86_400,
        'w' => 7 * 86_400,
        _ => return Err(wrong()),
    };
    let count: i64 = text[..text.len() - 1].trim().parse().map_err(|_| wrong())?;
    let span = count.checked_mul(seconds).filter(|_| count >= 0).ok_or_else(wrong)?;
    now.checked_sub(SignedDuration::from_secs(span)).map_err(|_| wrong())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn moments_and_spans() {
        let now: Timestamp = "2026-11-17T12:00:00Z".parse().unwrap();
        let parse = |text: &str| parse_time_bound("since", text, now).map(|time| time.to_string()).ok();
        assert_eq!(parse("2026-11-15T08:00:00Z").as_deref(), Some("2026-11-15T08:00:00Z"));
        assert_eq!(parse("90m").as_deref(), Some("2026-11-17T10:30:00Z"));
        assert_eq!(parse(" 2w").as_deref(), Some("2026-11-03T12:00:00Z"));
        for wrong in ["", "yesterday", "-3h", "3", "99999999999999999w", "é"] {
            assert_eq!(parse(wrong), None, "{wrong:?}");
        }
    }
}
