//! The parameters of the overview and of the page of a failure group: which runs, and of which time.

use gradus_store::MetricFilter;
use serde::Deserialize;

use super::address::PageUrl;
use super::metric_timeline::{OverviewTimeRange, TimeRangePreset};
use crate::http_error::ApiError;
use crate::time_text::format_rfc3339 as show_time;

/// Parameters of `/`.
#[derive(Clone, Default, Deserialize)]
#[serde(default)]
pub(super) struct OverviewQuery {
    pub(super) project: Option<String>,
    pub(super) agent: Option<String>,
    pub(super) version: Option<String>,
    pub(super) model: Option<String>,
    /// Name of a preset. Ignored if days are given.
    pub(super) range: Option<String>,
    /// First and last day as `2026-11-15`. A shared link with days always shows the same data; a preset moves with the
    /// time.
    pub(super) from: Option<String>,
    pub(super) to: Option<String>,
    /// `all` lists all failure groups, muted ones too.
    pub(super) groups: Option<String>,
}

impl OverviewQuery {
    /// Drops empty parameters, which are fields of the form that were left blank.
    pub(super) fn without_blanks(mut self) -> OverviewQuery {
        let all = [
            &mut self.project,
            &mut self.agent,
            &mut self.version,
            &mut self.model,
            &mut self.range,
            &mut self.from,
            &mut self.to,
            &mut self.groups,
        ];
        for value in all {
            *value = value.take().filter(|text| !text.is_empty());
        }
        self
    }

    /// Returns the preset; the last week if none is given.
    pub(super) fn preset(&self) -> Result<TimeRangePreset, ApiError> {
        TimeRangePreset::from_name(self.range.as_deref().unwrap_or("7d"))
            .ok_or_else(|| ApiError::bad_request("range: 24h, 7d, 30d or all"))
    }

    /// Returns the selected time: the days, else the preset.
    pub(super) fn time_range(&self, now_ns: i64) -> Result<OverviewTimeRange, ApiError> {
        let preset = self.preset()?;
        match self.has_days() {
            true => OverviewTimeRange::from_days(self.from.as_deref(), self.to.as_deref(), now_ns)
                .map_err(|error| ApiError::bad_request(error.to_string())),
            false => Ok(OverviewTimeRange::from_preset(preset, now_ns)),
        }
    }

    /// Returns the filter of the runs in the selected time.
    pub(super) fn to_filter(&self, time: &OverviewTimeRange) -> MetricFilter {
        MetricFilter {
            project: self.project.clone(),
            agent: self.agent.clone(),
            version: self.version.clone(),
            model: self.model.clone(),
            from_ns: time.from_ns,
            to_ns: Some(time.until_ns),
            ..MetricFilter::default()
        }
    }

    /// Whether nothing is selected, as when the server's address is opened.
    pub(super) fn is_blank(&self) -> bool {
        self.parameters().iter().all(|(_, value)| value.is_none())
    }

    /// Whether agent, version or model is selected.
    pub(super) fn has_names(&self) -> bool {
        [&self.agent, &self.version, &self.model].iter().any(|name| name.is_some())
    }

    /// Whether days are selected, which replace the preset.
    pub(super) fn has_days(&self) -> bool {
        self.from.is_some() || self.to.is_some()
    }

    /// All parameters by name, for URLs and for the key of the page cache.
    pub(super) fn parameters(&self) -> [(&'static str, &Option<String>); 8] {
        [
            ("project", &self.project),
            ("agent", &self.agent),
            ("version", &self.version),
            ("model", &self.model),
            ("range", &self.range),
            ("from", &self.from),
            ("to", &self.to),
            ("groups", &self.groups),
        ]
    }

    pub(super) fn to_url(&self) -> PageUrl {
        self.parameters()
            .into_iter()
            .fold(PageUrl::from_path("/"), |address, (name, value)| address.with(name, value.as_deref()))
    }

    /// URL of the page of versions with the same filter and range.
    pub(super) fn versions_url(&self) -> PageUrl {
        PageUrl::from_path("/versions")
            .with("project", self.project.as_deref())
            .with("agent", self.agent.as_deref())
            .with("model", self.model.as_deref())
            .with("range", self.range.as_deref())
            .with("from", self.from.as_deref())
            .with("to", self.to.as_deref())
    }

    /// URL of the list of traces with the same filter and range.
    pub(super) fn traces_url(&self, time: &OverviewTimeRange, has_ahead: bool) -> PageUrl {
        // Without an end the list includes what arrives later. If there are traces from the future, they have to be
        // excluded.
        let to_ns = if has_ahead { Some(time.until_ns) } else { time.to_ns };
        let of = |ns: Option<i64>| ns.map(show_time);
        PageUrl::from_path("/traces")
            .with("project", self.project.as_deref())
            .with("agent", self.agent.as_deref())
            .with("version", self.version.as_deref())
            .with("model", self.model.as_deref())
            .with("from", of(time.from_ns).as_deref())
            .with("to", of(to_ns).as_deref())
    }
}
