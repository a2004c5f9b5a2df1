//! The selection of traces: those that begin within a time range, those whose root span has a given name, those with a
//! span that meets a condition. It works the same for every kind of source, so a file, a store and a server give the
//! same trajectories.

use std::collections::HashSet;
use std::fmt;
use std::sync::Arc;

use gradus_core::span::{Span, TraceId};
use jiff::{SignedDuration, Timestamp};

/// A condition on the spans of a trace (`--where`).
pub trait SpanCondition: fmt::Debug + Send + Sync {
    /// As the user wrote it. Two conditions with the same text are equal.
    fn text(&self) -> &str;
    /// The traces with at least one span that meets it.
    fn matching_traces(&self, spans: &[Span<'_>]) -> HashSet<TraceId>;
}

impl PartialEq for dyn SpanCondition {
    fn eq(&self, other: &dyn SpanCondition) -> bool {
        self.text() == other.text()
    }
}

impl Eq for dyn SpanCondition {}

/// The selected traces; all by default. All conditions must hold.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct TraceSelection {
    /// Begins at this time or later. Nanoseconds since the Unix epoch.
    pub from_ns: Option<u64>,
    /// Begins before this time.
    pub to_ns: Option<u64>,
    /// Has a root span with one of these names; any name if the list is empty.
    pub root_names: Vec<String>,
    /// Has a span that meets this condition.
    pub condition: Option<Arc<dyn SpanCondition>>,
    /// The options as the user wrote them. Part of the fingerprint of a run, so it must not contain times that were
    /// counted back from now.
    pub as_written: String,
}

/// Why the options that select traces cannot be used.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum TraceSelectionError {
    #[error(
        "{option} {text:?}: write a time as 2026-11-15, 2026-11-15T08:00:00Z or, counted back from now, 90m, 24h, 7d"
    )]
    BadTime { option: &'static str, text: String },
    #[error("--from is not before --to: no trace can begin between them")]
    EmptyRange,
}

impl TraceSelection {
    /// Parses the options. Lengths of time are counted back from `now`.
    pub fn read(
        from: Option<&str>,
        to: Option<&str>,
        root_names: &[String],
        condition: Option<Arc<dyn SpanCondition>>,
        now: Timestamp,
    ) -> Result<TraceSelection, TraceSelectionError> {
        let moment = |option: &'static str, text: Option<&str>| match text {
            None => Ok(None),
            Some(text) => parse_time_bound(text, now)
                .map(Some)
                .ok_or_else(|| TraceSelectionError::BadTime { option, text: text.to_owned() }),
        };
        let (from_ns, to_ns) = (moment("--from", from)?, moment("--to", to)?);
        if let (Some(from), Some(to)) = (from_ns, to_ns)
            && from >= to
        {
            return Err(TraceSelectionError::EmptyRange);
        }
        if from.is_none() && to.is_none() && root_names.is_empty() && condition.is_none() {
            return Ok(TraceSelection::default());
        }
        let text = condition.as_ref().map(|condition| condition.text());
        let as_written = format!("{from:?} {to:?} {root_names:?} {text:?}");
        Ok(TraceSelection { from_ns, to_ns, root_names: root_names.to_vec(), condition, as_written })
    }

    /// Whether nothing is excluded. Then links can be used as soon as they are read.
    pub fn is_everything(&self) -> bool {
        *self == TraceSelection::default()
    }

    /// Names of the options that are set, for messages.
    pub fn active_option_names(&self) -> Vec<&'static str> {
        let given = [
            ("--from", self.from_ns.is_some()),
            ("--to", self.to_ns.is_some()),
            ("--root-name", !self.root_names.is_empty()),
            ("--where", self.condition.is_some()),
        ];
        given.into_iter().filter(|(_, is_given)| *is_given).map(|(name, _)| name).collect()
    }

    /// Whether a start time is within the range. The end of the range is exclusive.
    pub fn includes_time(&self, start_ns: u64) -> bool {
        self.from_ns.is_none_or(|from| start_ns >= from) && self.to_ns.is_none_or(|to| start_ns < to)
    }

    /// Whether a root span of this name is selected.
    pub fn includes_root(&self, name: &str) -> bool {
        self.root_names.is_empty() || self.root_names.iter().any(|wanted| wanted == name)
    }

    /// Whether a document that is no trace is selected. It has no root span and no attributes, so it fails every
    /// condition on those, and also the time range if it has no time.
    pub(crate) fn includes_document(&self, start: Option<&str>) -> bool {
        if self.is_everything() {
            return true;
        }
        let start_ns = start.and_then(|text| text.parse::<Timestamp>().ok()).and_then(timestamp_to_ns);
        self.root_names.is_empty()
            && self.condition.is_none()
            && start_ns.is_some_and(|start_ns| self.includes_time(start_ns))
    }
}

/// Parses a day, a time, or a length of time before now. Without a time zone, UTC is meant. `None` also for times
/// before 1970.
fn parse_time_bound(text: &str, now: Timestamp) -> Option<u64> {
    let text = text.trim();
    if let Some(ago) = gradus_core::duration_text::parse_duration(text) {
        return timestamp_to_ns(now - SignedDuration::try_from(ago).ok()?);
    }
    let utc = || {
        let time: jiff::civil::DateTime = text.parse().ok()?;
        time.to_zoned(jiff::tz::TimeZone::UTC).ok().map(|time| time.timestamp())
    };
    text.parse().ok().or_else(utc).and_then(timestamp_to_ns)
}

fn timestamp_to_ns(time: Timestamp) -> Option<u64> {
    u64::try_from(time.as_nanosecond()).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(from: Option<&str>, to: Option<&str>) -> Result<TraceSelection, TraceSelectionError> {
        TraceSelection::read(from, to, &[], None, "2026-11-15T12:00:00Z".parse().expect("a time"))
    }

    fn ns(text: &str) -> u64 {
        text.parse::<Timestamp>().ok().and_then(timestamp_to_ns).expect("a time")
    }

    #[test]
    fn times_are_days_moments_and_lengths_of_time() {
        let from = |text| read(Some(text), None).expect("a time").from_ns;
        assert_eq!(from("2026-11-15"), Some(ns("2026-11-15T00:00:00Z")));
        assert_eq!(from("2026-11-15T08:30"), Some(ns("2026-11-15T08:30:00Z")));
        assert_eq!(from("2026-11-15T08:30:00.5+02:00"), Some(ns("2026-11-15T06:30:00.5Z")));
        assert_eq!(from("24h"), Some(ns("2026-11-14T12:00:00Z")));
        for wrong in ["", "yesterday", "24", "2026-13-01", "1969-01-01", "-1h"] {
            let error = read(Some(wrong), None).expect_err("no time").to_string();
            assert!(error.contains("--from") && !error.contains('\n'), "{error}");
        }
        assert!(read(Some("1h"), Some("2h")).is_err());
    }

    #[test]
    fn every_message() {
        let errors = [
            TraceSelectionError::BadTime { option: "--from", text: "yesterday".to_owned() },
            TraceSelectionError::EmptyRange,
        ];
        insta::assert_snapshot!(errors.map(|error| error.to_string()).join("\n"));
    }

    #[test]
    fn the_beginning_is_within_and_the_end_is_not() {
        let selection = read(Some("2026-11-15T00:00:00Z"), Some("2026-11-16T00:00:00Z")).expect("a range");
        assert!(selection.includes_time(ns("2026-11-15T00:00:00Z")));
        assert!(!selection.includes_time(ns("2026-11-16T00:00:00Z")));
        assert!(selection.includes_document(Some("2026-11-15T10:00:00Z")));
        assert!(!selection.includes_document(Some("2026-11-17T10:00:00Z")) && !selection.includes_document(None));
        assert!(TraceSelection::default().includes_document(None));
    }
}
