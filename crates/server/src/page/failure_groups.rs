//! The failure groups of the overview: what goes wrong, how often, since when. `failure_group` is the page of one group.

use gradus_eval::outcome::OutcomeLine;
use gradus_report::failure_list::find_example_value;
use gradus_report::html::number::{self, format_count, format_counted_noun};
use gradus_report::html::text;
use gradus_stats::interval::hit_share_interval;
use gradus_store::{
    FailureGroupList, FailureGroupOptions, FailureGroupRow, FailureTrajectoryRow, MetricFilter, Store, TrajectoryUsage,
};

use super::address::{PageUrl, encode_path_segment};
use super::display_text::format_timestamp;
use super::loaded_trace;
use super::metric_timeline::OverviewTimeRange;
use crate::evaluators::find_evaluator_title;
use crate::http_error::ApiError;
use crate::settings::ReloadableSettings;
use crate::state::ServerState;

/// Maximum number of groups on the overview, and if all are requested.
pub(super) const MAX_LISTED_GROUPS: usize = 10;
pub(super) const MAX_ALL_GROUPS: usize = 500;

/// The list on the overview.
pub(super) struct FailureGroupTable {
    pub(super) rows: Vec<FailureGroupView>,
    /// How many more there are, and how many are muted.
    pub(super) more: Option<String>,
    /// URL of the overview with all groups. None if it shows them already.
    pub(super) all: Option<String>,
}

/// A group as a row of the list.
pub(super) struct FailureGroupView {
    /// The name that people gave it, else tool and reason.
    pub(super) title: String,
    /// A value of the example, for the first one that the title leaves out.
    pub(super) value: Option<String>,
    /// Evaluator and label.
    pub(super) about: String,
    /// None if the title has it.
    pub(super) tool: Option<String>,
    pub(super) href: String,
    pub(super) runs: String,
    pub(super) share: String,
    pub(super) trend: FailureTrend,
    pub(super) first_seen: String,
    pub(super) versions: String,
    pub(super) is_muted: bool,
    pub(super) example: Option<FailureExampleView>,
    /// URL of all traces of the group.
    pub(super) traces: String,
    /// URL of the review queue with its verdicts only, of the same runs.
    pub(super) review: String,
    /// Downloads the requests of the same runs.
    pub(super) dataset: String,
}

/// How the share of trajectories changed. `class` is `worse` or `better` only for a statistically significant change.
pub(super) struct FailureTrend {
    pub(super) class: &'static str,
    pub(super) text: String,
}

/// A trajectory of a group.
pub(super) struct FailureExampleView {
    pub(super) query: String,
    pub(super) href: String,
    pub(super) start: String,
}

/// Numbers of trajectories in a period and in the one before.
#[derive(Clone, Copy)]
pub(super) struct PeriodTotals {
    pub(super) now: u64,
    /// `None` if there is no period before.
    pub(super) before: Option<u64>,
}

/// The runs that groups are counted in.
pub(super) struct FailureGroupScope {
    pub(super) totals: PeriodTotals,
    pub(super) from_ns: Option<i64>,
    /// URL of the list of traces with the same filter.
    pub(super) traces: PageUrl,
    /// URL of the overview with the same filter.
    pub(super) overview: PageUrl,
}

impl PeriodTotals {
    /// `usage` is that of the selected time.
    pub(super) fn load(
        store: &Store,
        filter: &MetricFilter,
        time: &OverviewTimeRange,
        usage: &[(i64, TrajectoryUsage)],
    ) -> Result<PeriodTotals, ApiError> {
        let before = match (time.before_ns, time.from_ns) {
            (Some(before), Some(from)) => {
                let before = MetricFilter { from_ns: Some(before), to_ns: Some(from), ..filter.clone() };
                Some(count_trajectories(&store.usage_periods(&before, time.period_ns)?.rows))
            }
            _ => None,
        };
        Ok(PeriodTotals { now: count_trajectories(usage), before })
    }
}

pub(super) fn count_trajectories(usage: &[(i64, TrajectoryUsage)]) -> u64 {
    u64::try_from(usage.iter().map(|(_, usage)| usage.trajectories).sum::<i64>()).unwrap_or(0)
}

impl FailureGroupTable {
    /// `find_value` gives the example value of a group.
    pub(super) fn new(
        settings: &ReloadableSettings,
        list: &FailureGroupList,
        scope: &FailureGroupScope,
        all: Option<String>,
        find_value: impl Fn(&FailureGroupRow) -> Option<String>,
    ) -> FailureGroupTable {
        let shown = list.groups.iter().filter(|row| !row.is_muted).count() as u64;
        let hidden = (list.group_count - list.muted_count).saturating_sub(shown);
        let parts = [
            (hidden > 0).then(|| format_counted_noun(hidden, "more group", "more groups")),
            (list.muted_count > 0 && list.groups.iter().all(|row| !row.is_muted))
                .then(|| format_counted_noun(list.muted_count, "muted group", "muted groups")),
        ];
        let parts: Vec<String> = parts.into_iter().flatten().collect();
        FailureGroupTable {
            rows: list
                .groups
                .iter()
                .enumerate()
                .map(|(at, row)| FailureGroupView {
                    // Each reads the verdicts of a run.
                    value: if at < MAX_LISTED_GROUPS { find_value(row) } else { None },
                    ..FailureGroupView::new(settings, row, scope)
                })
                .collect(),
            all: all.filter(|_| !parts.is_empty()),
            more: (!parts.is_empty()).then(|| format!("And {}.", parts.join(", "))),
        }
    }
}

impl FailureGroupView {
    /// Without an example value, which is not in the row.
    pub(super) fn new(
        settings: &ReloadableSettings,
        row: &FailureGroupRow,
        scope: &FailureGroupScope,
    ) -> FailureGroupView {
        let FailureGroupScope { totals, from_ns, traces, overview } = scope;
        let is_new = from_ns.is_some_and(|from| row.first_seen_ns >= from);
        let of_group = traces.clone().with("group", Some(&row.key));
        FailureGroupView {
            title: group_title(row),
            value: None,
            about: format!(
                "{}: {}",
                find_evaluator_title(settings, &row.evaluator),
                text::format_display_line(&row.label)
            ),
            tool: (!row.tool.is_empty() && row.name.is_some()).then(|| text::format_display_line(&row.tool)),
            href: overview.with_path(format_group_path(&row.key)).to_string(),
            runs: format_count(row.trajectories),
            share: number::format_percent(row.trajectories as f64 / totals.now.max(1) as f64),
            trend: FailureTrend::new(row, *totals, is_new),
            first_seen: format_timestamp(row.first_seen_ns),
            versions: format_versions(row),
            is_muted: row.is_muted,
            example: row.example.as_ref().map(FailureExampleView::new),
            review: of_group.with_path("/review").to_string(),
            dataset: traces
                .with_path(format!("/api/v1/failure-groups/{}/dataset", encode_path_segment(&row.key)))
                .to_string(),
            traces: of_group.to_string(),
        }
    }
}

/// Returns the name, else tool and reason: groups of different tools can have the same reason.
pub(super) fn group_title(row: &FailureGroupRow) -> String {
    if let Some(name) = &row.name {
        return text::format_display_line(name);
    }
    // The first value in a reason of these rules is the tool itself.
    const TOOL_RULES: [&str; 5] =
        ["call.malformed", "call.schema", "call.unknown_tool", "request.unknown_tool", "thought.unknown_tool"];
    if !row.tool.is_empty()
        && TOOL_RULES.contains(&row.rule.as_str())
        && let Some((before, after)) = row.reason.split_once("<text>")
    {
        return text::format_reason_line(&format!("{before}`{}`{after}", row.tool));
    }
    let reason = text::format_reason_line(&row.reason);
    match row.tool.as_str() {
        "" => reason,
        tool if row.reason.contains(tool) => reason,
        tool => format!("{}: {reason}", text::format_display_line(tool)),
    }
}

/// Loads the title of a group. None if there is no such group.
pub(super) fn load_group_title(server: &ServerState, key: &str) -> Result<Option<String>, ApiError> {
    let options = FailureGroupOptions { before_ns: None, with_muted: true, key: Some(key), limit: 1 };
    let list = server.store.failure_groups(&MetricFilter::default(), options)?;
    Ok(list.groups.first().map(group_title))
}

/// Loads a value of the example that the group's reason replaces by a placeholder, on one line. None for a named
/// group.
pub(super) fn load_example_value(server: &ServerState, row: &FailureGroupRow) -> Option<String> {
    let example = row.example.as_ref().filter(|_| row.name.is_none() && row.reason.contains('<'))?;
    // A title without an example is complete, too. Only this verdict is read: a long run has tens of thousands.
    let line = server.store.find_verdict_line(&example.trajectory_id, &row.evaluator, example.step).ok()??;
    let line: OutcomeLine = serde_json::from_str(&line).ok()?;
    if line.rule.as_deref().unwrap_or_default() != row.rule {
        return None;
    }
    let value = find_example_value(&row.reason, line.explanation.as_deref()?)?;
    // The tool is in the title already.
    Some(text::format_display_line(&value)).filter(|value| value.trim_matches('"') != row.tool)
}

/// Returns the stable path of a group's page.
pub(super) fn format_group_path(key: &str) -> String {
    format!("/groups/{}", encode_path_segment(key))
}

fn format_versions(row: &FailureGroupRow) -> String {
    let each = (row.versions.iter())
        .map(|(name, count)| format!("{} ({})", text::format_display_line(name), format_count(*count)));
    let listed = each.collect::<Vec<_>>().join(", ");
    match row.version_count.saturating_sub(row.versions.len() as u64) {
        0 => listed,
        more => format!("{listed} and {} more", format_count(more)),
    }
}

impl FailureTrend {
    fn new(row: &FailureGroupRow, totals: PeriodTotals, is_new: bool) -> FailureTrend {
        let same = |text: String| FailureTrend { class: "same", text };
        let Some(all_before) = totals.before.filter(|before| *before > 0) else {
            return same(if is_new { "new".to_owned() } else { String::new() });
        };
        if row.trajectories_before == 0 {
            let is_first = if is_new { "new" } else { "not in the period before" };
            return same(is_first.to_owned());
        }
        let share = |count: u64, all: u64| count as f64 / all.max(1) as f64;
        let (now, before) = (share(row.trajectories, totals.now), share(row.trajectories_before, all_before));
        // Intervals that do not overlap are a conservative test of the difference.
        let interval_now = hit_share_interval(row.trajectories, totals.now.max(row.trajectories));
        let interval_before = hit_share_interval(row.trajectories_before, all_before.max(row.trajectories_before));
        let class = match (interval_now, interval_before) {
            (Some(a), Some(b)) if a.low > b.high => "worse",
            (Some(a), Some(b)) if b.low > a.high => "better",
            _ => "same",
        };
        let arrow = match now - before {
            change if change.abs() < 0.0005 => "same",
            change if change > 0.0 => "▲",
            _ => "▼",
        };
        FailureTrend { class, text: format!("{arrow} {} before", number::format_percent(before)) }
    }
}

impl FailureExampleView {
    pub(super) fn new(row: &FailureTrajectoryRow) -> FailureExampleView {
        let trace = format!("{:032x}", row.trace_id.0);
        FailureExampleView {
            query: match text::format_display_line(&row.query) {
                query if query.is_empty() => "a run without a request".to_owned(),
                query => query,
            },
            href: loaded_trace::format_step_url(&trace, Some(&row.trajectory_id), row.step),
            start: format_timestamp(row.start_ns),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn group(key: &str, is_muted: bool) -> FailureGroupRow {
        FailureGroupRow {
            key: key.to_owned(),
            evaluator: "call_validity".to_owned(),
            tool: String::new(),
            rule: String::new(),
            label: "incorrect".to_owned(),
            reason: "Parameter <text> is missing".to_owned(),
            first_seen_ns: 0,
            name: None,
            note: None,
            is_muted,
            trajectories: 1,
            trajectories_before: 0,
            verdicts: 1,
            versions: Vec::new(),
            version_count: 0,
            example: None,
        }
    }

    fn table(groups: Vec<FailureGroupRow>, group_count: u64, muted_count: u64, all: Option<&str>) -> FailureGroupTable {
        let list = FailureGroupList { groups, group_count, muted_count };
        let scope = FailureGroupScope {
            totals: PeriodTotals { now: 10, before: None },
            from_ns: None,
            traces: PageUrl::from_path("/traces").with("project", Some("shop")).with("from", Some("2026-11-15")),
            overview: PageUrl::from_path("/").with("project", Some("shop")).with("range", Some("30d")),
        };
        let settings = ReloadableSettings::without_rules();
        FailureGroupTable::new(&settings, &list, &scope, all.map(str::to_owned), |_| None)
    }

    #[test]
    fn titles_tell_tools_apart_and_versions_say_how_many_there_are() {
        let of_tool = |tool: &str| FailureGroupRow { tool: tool.to_owned(), ..group("a", false) };
        assert_eq!(group_title(&of_tool("book")), "book: Parameter … is missing");
        assert_eq!(group_title(&of_tool("Parameter")), "Parameter … is missing", "the reason names it");
        let unfit = FailureGroupRow {
            rule: "call.schema".to_owned(),
            reason: "The call does not fit <text>. Parameter <text> is missing: it is required".to_owned(),
            ..of_tool("book")
        };
        assert_eq!(group_title(&unfit), "The call does not fit `book`. Parameter … is missing: it is required");
        let row = FailureGroupRow { versions: vec![("v2".to_owned(), 7)], version_count: 57, ..group("a", false) };
        assert_eq!(format_versions(&row), "v2 (7) and 56 more");
    }

    #[test]
    fn a_list_that_leaves_groups_out_leads_to_all_of_them() {
        let few = table(vec![group("a", false)], 3, 1, Some("/?groups=all"));
        assert_eq!(
            (few.more.as_deref(), few.all.as_deref()),
            (Some("And 1 more group, 1 muted group."), Some("/?groups=all"))
        );
        let all = table(vec![group("a", false), group("b", false), group("c", true)], 3, 1, None);
        assert_eq!((all.more, all.all), (None, None));
        assert_eq!((all.rows[0].title.as_str(), all.rows[2].is_muted), ("Parameter … is missing", true));
        let complete = table(vec![group("a", false)], 1, 0, Some("/?groups=all"));
        assert_eq!((complete.more, complete.all), (None, None));
    }

    #[test]
    fn links_of_a_row_lead_to_the_runs_that_it_counts() {
        let row = &table(vec![group("a b", false)], 1, 0, None).rows[0];
        let same_runs = "project=shop&from=2026-11-15";
        assert_eq!(row.href, "/groups/a%20b?project=shop&range=30d");
        assert_eq!(row.traces, format!("/traces?{same_runs}&group=a%20b"));
        assert_eq!(row.review, format!("/review?{same_runs}&group=a%20b"));
        assert_eq!(row.dataset, format!("/api/v1/failure-groups/a%20b/dataset?{same_runs}"));
    }
}
