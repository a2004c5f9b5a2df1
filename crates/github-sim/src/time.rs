//! Simulated time in whole seconds, as GitHub's API shows it.

use std::fmt;

use serde::{Deserialize, Deserializer, Serialize, Serializer};

/// Seconds since 1970, UTC. Serialized like GitHub's times, `2026-01-31T09:00:00Z`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct SimulatedTime(pub i64);

impl SimulatedTime {
    /// Parses RFC 3339, or a date alone, which means midnight UTC.
    pub fn parse(text: &str) -> Option<SimulatedTime> {
        let whole = text.parse::<jiff::Timestamp>().map(jiff::Timestamp::as_second).ok();
        whole
            .or_else(|| format!("{text}T00:00:00Z").parse::<jiff::Timestamp>().map(jiff::Timestamp::as_second).ok())
            .map(SimulatedTime)
    }

    /// Formats the time for HTTP headers (RFC 9110).
    pub fn to_http_date(self) -> String {
        let text = jiff::Timestamp::from_second(self.0).unwrap_or_default();
        text.strftime("%a, %d %b %Y %H:%M:%S GMT").to_string()
    }

    /// Parses the time of an HTTP header; `None` for another format.
    pub fn parse_http(text: &str) -> Option<SimulatedTime> {
        jiff::fmt::rfc2822::parse(text).ok().map(|zoned| SimulatedTime(zoned.timestamp().as_second()))
    }

    /// Adds seconds, saturating, so that a hostile `advance_s` cannot overflow.
    #[must_use]
    pub fn plus_seconds(self, seconds: i64) -> SimulatedTime {
        SimulatedTime(self.0.saturating_add(seconds))
    }
}

impl fmt::Display for SimulatedTime {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        jiff::Timestamp::from_second(self.0).unwrap_or_default().fmt(f)
    }
}

impl Serialize for SimulatedTime {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for SimulatedTime {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<SimulatedTime, D::Error> {
        let text = String::deserialize(deserializer)?;
        SimulatedTime::parse(&text)
            .ok_or_else(|| serde::de::Error::custom(format!("{text:?} is no time; write it like 2026-01-31T09:00:00Z")))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn written_as_github_does() {
        let time = SimulatedTime::parse("2026-01-31T09:00:00Z").unwrap();
        assert_eq!(time.to_string(), "2026-01-31T09:00:00Z");
        assert_eq!(SimulatedTime::parse("2026-01-31T10:00:00+01:00"), Some(time));
        assert_eq!(SimulatedTime::parse("2026-01-31"), Some(time.plus_seconds(-9 * 3600)));
        assert_eq!(time.to_http_date(), "Sat, 31 Jan 2026 09:00:00 GMT");
        assert_eq!(SimulatedTime::parse_http(&time.to_http_date()), Some(time));
        assert_eq!(SimulatedTime::parse("yesterday"), None);
    }
}
