//! The pause that a server asks for before the next request.

use std::time::{Duration, SystemTime};

use reqwest::header::HeaderMap;

/// Reads `Retry-After` (RFC 9110) in seconds or as a date, and the more precise `retry-after-ms` of OpenAI.
pub fn retry_after(headers: &HeaderMap) -> Option<Duration> {
    let text = |name: &str| headers.get(name).and_then(|value| value.to_str().ok()).map(str::trim);
    if let Some(millis) = text("retry-after-ms").and_then(|value| value.parse::<f64>().ok()) {
        return duration_from_seconds(millis / 1000.0);
    }
    let value = text("retry-after")?;
    if let Ok(number) = value.parse::<f64>() {
        return duration_from_seconds(number);
    }
    let date = jiff::fmt::rfc2822::DateTimeParser::new().parse_timestamp(value).ok()?;
    Some(duration_until(date))
}

/// Converts seconds to a duration; `None` for negative numbers, infinity and NaN.
pub fn duration_from_seconds(number: f64) -> Option<Duration> {
    Duration::try_from_secs_f64(number).ok()
}

/// Returns the time until a date; zero for a date in the past.
pub fn duration_until(date: jiff::Timestamp) -> Duration {
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
}
