//! The filter of the list of traces, as parameters of its URL.

use gradus_store::{TraceFilter, TraceOrder};
use serde::Deserialize;

use super::address::PageUrl;
use super::display_text::format_timestamp;
use crate::clock::DAY_NS;
use crate::http_error::ApiError;
use crate::score_bound::score_bound;
use crate::time_text::parse_rfc3339 as read_time;

/// Parameters of `/traces`. Empty ones are fields of the form that were left blank.
#[derive(Clone, Default, Deserialize)]
#[serde(default)]
pub(super) struct TraceListQuery {
    pub(super) project: Option<String>,
    /// RFC 3339, local form as `datetime-local` inputs send it (read as UTC), or a day. `to` includes a whole day.
    pub(super) from: Option<String>,
    pub(super) to: Option<String>,
    pub(super) agent: Option<String>,
    pub(super) version: Option<String>,
    pub(super) model: Option<String>,
    pub(super) tool: Option<String>,
    /// Evaluator with a score below its best.
    pub(super) wrong: Option<String>,
    /// Key of a failure group.
    pub(super) group: Option<String>,
    /// As in the API: `LABEL` or `EVALUATOR=LABEL`, and `EVALUATOR<NUMBER` for scores.
    pub(super) label: Option<String>,
    pub(super) score: Option<String>,
    /// `true` or `false`.
    pub(super) error: Option<String>,
    /// Full-text search.
    pub(super) q: Option<String>,
    /// A filter expression of Phoenix that one span of the trace must match.
    #[serde(rename = "where")]
    pub(super) condition: Option<String>,
    /// `duration`, `steps`, `cost` or `wrong`, largest first; newest first without it. Not part of the filter.
    pub(super) sort: Option<String>,
    /// Where to continue; not part of the filter.
    pub(super) cursor: Option<String>,
}

impl TraceListQuery {
    /// The same filter for another path, without the cursor.
    pub(super) fn to_page_url(&self, path: &str) -> PageUrl {
        let mut address = PageUrl::from_path(path);
        for (name, value) in self.query_params() {
            address = address.with(name, value.as_deref());
        }
        address.with("sort", self.sort.as_deref())
    }

    /// The order that is asked for. `None` for newest first.
    pub(super) fn order(&self) -> Result<Option<TraceOrder>, ApiError> {
        match self.sort.as_deref() {
            None => Ok(None),
            Some("duration") => Ok(Some(TraceOrder::Duration)),
            Some("steps") => Ok(Some(TraceOrder::Steps)),
            Some("cost") => Ok(Some(TraceOrder::Cost)),
            Some("wrong") => Ok(Some(TraceOrder::Wrong)),
            Some(other) => Err(ApiError::bad_request(format!("sort={other}: duration, steps, cost or wrong"))),
        }
    }

    /// The filter as parameters, in the order in which chips and URLs show them.
    pub(super) fn query_params(&self) -> [(&'static str, &Option<String>); 14] {
        [
            ("project", &self.project),
            ("from", &self.from),
            ("to", &self.to),
            ("agent", &self.agent),
            ("version", &self.version),
            ("model", &self.model),
            ("tool", &self.tool),
            ("wrong", &self.wrong),
            ("group", &self.group),
            ("label", &self.label),
            ("score", &self.score),
            ("error", &self.error),
            ("q", &self.q),
            ("where", &self.condition),
        ]
    }

    /// Trims all parameters and drops empty ones.
    pub(super) fn without_blanks(mut self) -> TraceListQuery {
        for value in [
            &mut self.project,
            &mut self.from,
            &mut self.to,
            &mut self.agent,
            &mut self.version,
            &mut self.model,
            &mut self.tool,
            &mut self.wrong,
            &mut self.group,
            &mut self.label,
            &mut self.score,
            &mut self.error,
            &mut self.q,
            &mut self.condition,
            &mut self.sort,
            &mut self.cursor,
        ] {
            *value = value.take().map(|text| text.trim().to_owned()).filter(|text| !text.is_empty());
        }
        self
    }

    /// Whether any filter is set.
    pub(super) fn is_narrowed(&self) -> bool {
        self.query_params().iter().any(|(_, value)| value.is_some())
    }

    /// The filter of the store. The condition on spans is not part of it. 400 for values that cannot be parsed.
    pub(super) fn to_trace_filter(&self) -> Result<TraceFilter, ApiError> {
        let error = match self.error.as_deref() {
            None => None,
            Some("true") => Some(true),
            Some("false") => Some(false),
            Some(other) => return Err(ApiError::bad_request(format!("error={other}: true or false"))),
        };
        Ok(TraceFilter {
            project: self.project.clone(),
            from_ns: parse_time_bound("from", self.from.as_deref(), 0)?,
            to_ns: parse_time_bound("to", self.to.as_deref(), DAY_NS)?,
            agent: self.agent.clone(),
            version: self.version.clone(),
            model: self.model.clone(),
            tool: self.tool.clone(),
            wrong: self.wrong.clone(),
            failure_group: self.group.clone(),
            label: self.label.clone(),
            score: self.score.as_deref().map(score_bound).transpose()?,
            error,
            text: self.q.clone(),
            is_folded: true,
        })
    }

    /// A time in the form of `datetime-local` inputs; empty if it cannot be parsed.
    pub(super) fn format_datetime_input(bound: Option<&String>) -> String {
        let ns = parse_time_bound("", bound.map(String::as_str), 0).ok().flatten();
        ns.map(|ns| format_timestamp(ns).replace(' ', "T")).unwrap_or_default()
    }

    /// The evaluator that a filter asks for, if any: links then lead to its wrong step.
    pub(super) fn evaluator(&self) -> Option<&str> {
        let of_label = || self.label.as_deref()?.split_once('=').map(|(evaluator, _)| evaluator);
        self.wrong.as_deref().or_else(of_label)
    }
}

/// Parses RFC 3339, a local date and time (read as UTC), or a day. `of_a_day_ns` is added to a day, so that an upper
/// bound includes it.
fn parse_time_bound(name: &str, text: Option<&str>, of_a_day_ns: i64) -> Result<Option<i64>, ApiError> {
    let Some(given) = text else { return Ok(None) };
    let ns = |time: jiff::civil::DateTime| {
        let zoned = time.to_zoned(jiff::tz::TimeZone::UTC).ok()?;
        i64::try_from(zoned.timestamp().as_nanosecond()).ok()
    };
    // An offset begins behind the date, whose own hyphens do not count.
    let is_bare = !given.ends_with(['Z', 'z']) && !given.get(10..).is_some_and(|rest| rest.contains(['+', '-']));
    if let Some(day) = given.parse::<jiff::civil::Date>().ok().filter(|_| given.len() == 10) {
        return Ok(ns(day.at(0, 0, 0, 0)).map(|ns| ns.saturating_add(of_a_day_ns)));
    }
    match given.parse::<jiff::civil::DateTime>() {
        Ok(time) if is_bare => Ok(ns(time)),
        _ => read_time(name, text),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_are_read_as_fields_and_programs_write_them() {
        let read = |text: &str, of_a_day| parse_time_bound("from", Some(text), of_a_day).ok().flatten();
        let eight = 1_794_729_600_000_000_000;
        for text in ["2026-11-15T08:00:00Z", "2026-11-15T08:00", "2026-11-15T08:00:00", "2026-11-15T10:00:00+02:00"] {
            assert_eq!(read(text, 0), Some(eight), "{text}");
        }
        let day = eight - 8 * 3_600_000_000_000;
        assert_eq!((read("2026-11-15", 0), read("2026-11-15", DAY_NS)), (Some(day), Some(day + DAY_NS)));
        assert!(parse_time_bound("from", Some("soon"), 0).is_err());
        assert_eq!(
            TraceListQuery::format_datetime_input(Some(&"2026-11-15T08:00:00Z".to_owned())),
            "2026-11-15T08:00:00"
        );
    }
}
