//! What an endpoint's headers say about its limits.

use std::time::{Duration, SystemTime};

use reqwest::header::HeaderMap;

/// Longest pause that is waited for.
pub(crate) const MAX_RETRY_AFTER: Duration = Duration::from_secs(600);

/// What is left before an endpoint's limit, and when it is filled up again.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Allowance {
    pub requests_left: u64,
    pub reset_in: Duration,
}

/// `Retry-After` in seconds or as a date, and the milliseconds form that some endpoints send beside it.
pub fn retry_after(headers: &HeaderMap) -> Option<Duration> {
    let text = |name: &str| headers.get(name).and_then(|value| value.to_str().ok()).map(str::trim);
    if let Some(millis) = text("retry-after-ms").and_then(|value| value.parse::<f64>().ok()) {
        return seconds(millis / 1000.0);
    }
    let value = text("retry-after")?;
    if let Ok(number) = value.parse::<f64>() {
        return seconds(number);
    }
    let date = jiff::fmt::rfc2822::DateTimeParser::new().parse_timestamp(value).ok()?;
    Some(until(date))
}

/// OpenAI's `x-ratelimit-*` and Anthropic's `anthropic-ratelimit-*` headers.
pub(crate) fn allowance(headers: &HeaderMap) -> Option<Allowance> {
    let text = |name: &str| headers.get(name).and_then(|value| value.to_str().ok()).map(str::trim);
    let both = |left: &str, reset: &str| {
        let requests_left = text(left)?.parse().ok()?;
        Some(Allowance { requests_left, reset_in: reset_in(text(reset)?)?.min(MAX_RETRY_AFTER) })
    };
    both("x-ratelimit-remaining-requests", "x-ratelimit-reset-requests")
        .or_else(|| both("anthropic-ratelimit-requests-remaining", "anthropic-ratelimit-requests-reset"))
}

/// `12ms`, `1s`, `6m0s`, `1h2m3.5s`, plain seconds, or a date.
fn reset_in(text: &str) -> Option<Duration> {
    if let Ok(number) = text.parse::<f64>() {
        return seconds(number);
    }
    if let Ok(date) = text.parse::<jiff::Timestamp>() {
        return Some(until(date));
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
    seconds(total)
}

fn seconds(number: f64) -> Option<Duration> {
    Duration::try_from_secs_f64(number).ok()
}

fn until(date: jiff::Timestamp) -> Duration {
    let at = SystemTime::from(date);
    at.duration_since(SystemTime::now()).unwrap_or_default()
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
    fn reads_every_form_of_retry_after() {
        assert_eq!(retry_after(&map(&[("retry-after", "2")])), Some(Duration::from_secs(2)));
        assert_eq!(retry_after(&map(&[("retry-after", "0.25")])), Some(Duration::from_millis(250)));
        assert_eq!(
            retry_after(&map(&[("retry-after", "9"), ("retry-after-ms", "40")])),
            Some(Duration::from_millis(40))
        );
        assert_eq!(retry_after(&map(&[("retry-after", "86400")])), Some(Duration::from_secs(86_400)));
        assert_eq!(retry_after(&map(&[("retry-after", "-1")])), None);
        assert_eq!(retry_after(&map(&[("retry-after", "soon")])), None);
        let past = retry_after(&map(&[("retry-after", "Wed, 21 Oct 2015 07:28:00 GMT")]));
        assert_eq!(past, Some(Duration::ZERO));
    }

    #[test]
    fn reads_the_allowance_of_both_providers() {
        let openai = [("x-ratelimit-remaining-requests", "3"), ("x-ratelimit-reset-requests", "6m0.5s")];
        let expected = Allowance { requests_left: 3, reset_in: Duration::from_millis(360_500) };
        assert_eq!(allowance(&map(&openai)), Some(expected));
        let soon = [("x-ratelimit-remaining-requests", "0"), ("x-ratelimit-reset-requests", "12ms")];
        assert_eq!(allowance(&map(&soon)).map(|found| found.reset_in), Some(Duration::from_millis(12)));
        let anthropic = [
            ("anthropic-ratelimit-requests-remaining", "0"),
            ("anthropic-ratelimit-requests-reset", "2020-01-01T00:00:00Z"),
        ];
        let expected = Allowance { requests_left: 0, reset_in: Duration::ZERO };
        assert_eq!(allowance(&map(&anthropic)), Some(expected));
        assert_eq!(allowance(&map(&[("x-ratelimit-remaining-requests", "3")])), None);
    }
}
