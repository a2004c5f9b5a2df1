//! The filter of the list of traces, as parameters of its URL.

use gradus_store::TraceFilter;
use serde::Deserialize;

use super::address::PageUrl;
use super::time_bound::parse_time_bound;
use crate::clock::DAY_NS;
use crate::http_error::ApiError;
use crate::score_bound::score_bound;

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
    /// Returns the URL of the same filter on another path, without the cursor.
    pub(super) fn to_page_url(&self, path: &str) -> PageUrl {
        let mut address = PageUrl::from_path(path);
        for (name, value) in self.query_params() {
            address = address.with(name, value.as_deref());
        }
        address.with("sort", self.sort.as_deref())
    }

    /// Returns the filter as parameters, in the order of chips and URLs.
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

    /// Converts the parameters to the filter of the store. The condition on spans is not part of it. 400 for values
    /// that cannot be parsed.
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

    /// Returns the evaluator that a filter names, if any: links then lead to its wrong step.
    pub(super) fn evaluator(&self) -> Option<&str> {
        let of_label = || self.label.as_deref()?.split_once('=').map(|(evaluator, _)| evaluator);
        self.wrong.as_deref().or_else(of_label)
    }
}
