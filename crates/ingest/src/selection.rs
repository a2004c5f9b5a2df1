//! Which traces of the sources are wanted: those that begin within a time range, those whose root has a name, those with
//! a span that a condition is true of. The same for every kind of source, so a file, a store and a server give the same trajectories.

use std::collections::HashSet;
use std::fmt;
use std::sync::Arc;

use gradus_core::span::{Span, TraceId};
use jiff::{SignedDuration, Timestamp};

/// Something that can be true of a span of a trace (`--where`).
pub trait SpanCondition: fmt::Debug + Send + Sync {
    /// As the user wrote it, by which it is known.
    fn text(&self) -> &str;
    /// The traces that have a span it is true of.
    fn matching_traces(&self, spans: &[Span<'_>]) -> HashSet<TraceId>;
}

impl PartialEq for dyn SpanCondition {
    fn eq(&self, other: &dyn SpanCondition) -> bool {
        self.text() == other.text()
    }
}

impl Eq for dyn SpanCondition {}

/// What is wanted; everything by default.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct TraceSelection {
    /// Begun at this time or later.
    pub from_ns: Option<u64>,
    /// Begun before this time.
    pub to_ns: Option<u64>,
    /// With a root span of one of these names; of any name if there are none.
    pub root_names: Vec<String>,
    /// With a span that this is true of.
    pub condition: Option<Arc<dyn SpanCondition>>,
    /// As the user wrote it: the same for the same command, also where times are counted back from now.
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
    /// Reads what a user wrote. `now` is what lengths of time are counted back from.
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

    pub fn is_everything(&self) -> bool {
        *self == TraceSelection::default()
    }

    /// The options that say it, for messages.
    pub fn active_option_names(&self) -> Vec<&'static str> {
        let given = [
            ("--from", self.from_ns.is_some()),
            ("--to", self.to_ns.is_some()),
            ("--root-name", !self.root_names.is_empty()),
            ("--where", self.condition.is_some()),
        ];
        given.into_iter().filter(|(_, is_given)| *is_given).map(|(name, _)| name).collect()
    }

    /// Whether it is within the time range that something began.
    pub fn holds_time(&self, start_ns: u64) -> bool {
        self.from_ns.is_none_or(|from| start_ns >= from) && self.to_ns.is_none_or(|to| start_ns < to)
    }

    pub fn holds_root(&self, name: &str) -> bool {
        self.root_names.is_empty() || self.root_names.iter().any(|wanted| wanted == name)
    }

    /// Whether something that is no trace is wanted: it has no root, and perhaps no time.
    pub(crate) fn holds_document(&self, start: Option<&str>) -> bool {
        if self.is_everything() {
            return true;
        }
        let start_ns = start.and_then(|text| text.parse::<Timestamp>().ok()).and_then(timestamp_to_ns);
        self.root_names.is_empty()
            && self.condition.is_none()
            && start_ns.is_some_and(|start_ns| self.holds_time(start_ns))
    }
}

/// A day, a time, or a length of time that is counted back from now. Without a zone, UTC is meant.
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
    fn the_beginning_is_within_and_the_end_is_not() {
        let selection = read(Some("2026-11-15T00:00:00Z"), Some("2026-11-16T00:00:00Z")).expect("a range");
        assert!(selection.holds_time(ns("2026-11-15T00:00:00Z")));
        assert!(!selection.holds_time(ns("2026-11-16T00:00:00Z")));
        assert!(selection.holds_document(Some("2026-11-15T10:00:00Z")));
        assert!(!selection.holds_document(Some("2026-11-17T10:00:00Z")) && !selection.holds_document(None));
        assert!(TraceSelection::default().holds_document(None));
    }
}
