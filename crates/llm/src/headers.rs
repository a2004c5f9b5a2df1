//! Rate limits in the headers of a response.

use std::time::Duration;

use gradus_http::{duration_from_seconds, duration_until};
use reqwest::header::HeaderMap;

/// Maximum pause that a call waits for. A longer one is an error, so that the user can decide.
pub(crate) const MAX_RETRY_AFTER: Duration = Duration::from_secs(600);

/// Requests left in the current rate-limit window, and the time until the next window.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct RemainingQuota {
    pub requests_left: u64,
    pub reset_in: Duration,
}

/// Reads OpenAI's `x-ratelimit-*` and Anthropic's `anthropic-ratelimit-*` headers. Returns `None` unless both numbers
/// are present and valid. Token limits are ignored: the tokens of a request are not known before its answer.
pub(crate) fn parse_remaining_quota(headers: &HeaderMap) -> Option<RemainingQuota> {
    let text = |name: &str| headers.get(name).and_then(|value| value.to_str().ok()).map(str::trim);
    let both = |left: &str, reset: &str| {
        let requests_left = text(left)?.parse().ok()?;
        Some(RemainingQuota { requests_left, reset_in: parse_reset_duration(text(reset)?)?.min(MAX_RETRY_AFTER) })
    };
    both("x-ratelimit-remaining-requests", "x-ratelimit-reset-requests")
        .or_else(|| both("anthropic-ratelimit-requests-remaining", "anthropic-ratelimit-requests-reset"))
}

/// Reads `12ms`, `1s`, `6m0s` and `1h2m3.5s` (OpenAI), plain seconds, or a timestamp of RFC 3339 (Anthropic).
fn parse_reset_duration(text: &str) -> Option<Duration> {
    if let Ok(number) = text.parse::<f64>() {
        return duration_from_seconds(number);
    }
    if let Ok(date) = text.parse::<jiff::Timestamp>() {
        return Some(duration_until(date));
    }
    let mut total = 0.0;
    let mut rest = text;
    while !rest.is_empty() {
        let digits = rest.find(|c: char| !c.is_ascii_digit() && c != '.')?;
        let number: f64 = rest[..digits].parse().ok()?;
        rest = &rest[digits..];
        let unit = rest.find(|c: char| c.is_ascii_digit()).unwrap_or(rest.len());
        total += number
            * match &rest[..unit] {
                "ms" => 0.001,
                "s" => 1.0,
                "m" => 60.0,
                "h" => 3600.0,
                "d" => 86_400.0,
                _ => return None,
            };
        rest = &rest[unit..];
    }
    duration_from_seconds(total)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn map(entries: &[(&'static str, &'static str)]) -> HeaderMap {
        let mut map = HeaderMap::new();
        for (name, value) in entries {
            map.insert(*name, reqwest::header::HeaderValue::from_static(value));
        }
        map
    }

    #[test]
    fn reads_the_allowance_of_both_providers() {
        let openai = [("x-ratelimit-remaining-requests", "3"), ("x-ratelimit-reset-requests", "6m0.5s")];
        let expected = RemainingQuota { requests_left: 3, reset_in: Duration::from_millis(360_500) };
        assert_eq!(parse_remaining_quota(&map(&openai)), Some(expected));
        let soon = [("x-ratelimit-remaining-requests", "0"), ("x-ratelimit-reset-requests", "12ms")];
        assert_eq!(parse_remaining_quota(&map(&soon)).map(|found| found.reset_in), Some(Duration::from_millis(12)));
        let anthropic = [
            ("anthropic-ratelimit-requests-remaining", "0"),
            ("anthropic-ratelimit-requests-reset", "2020-01-01T00:00:00Z"),
        ];
        let expected = RemainingQuota { requests_left: 0, reset_in: Duration::ZERO };
        assert_eq!(parse_remaining_quota(&map(&anthropic)), Some(expected));
        assert_eq!(parse_remaining_quota(&map(&[("x-ratelimit-remaining-requests", "3")])), None);
    }
}
