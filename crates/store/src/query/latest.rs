//! The latest trajectories that match a filter. Walks one index from the newest entry on, through all projects at once,
//! and stops at a bound.

use crate::sql::{SqlConnection, SqlValue, params, params_from_iter};

use super::metrics::list_project_numbers;
use super::trace_list_page::PORTION_GROWTH;
use super::trends::compute_bucket_bounds;
use super::{MetricFilter, project_number};
use crate::coarse_rollup::{HOUR_NS, NameKind};
use crate::error::StoreError;
use crate::records::FacetKind;

/// Maximum number of trajectories from which totals are computed.
pub(super) const MAX_LATEST_TRAJECTORIES: usize = 2_000;
/// Maximum number of trajectories that are examined in all projects together.
const MAX_EXAMINED_TRAJECTORIES: usize = 8_000;
/// Maximum number of projects in each of which a name is searched. If there are more, all trajectories are examined
/// by time instead.
const MAX_WALKS: usize = 16;

/// The columns of a trajectory that totals need.
pub(super) struct LatestTrajectory {
    pub(super) no: i64,
    pub(super) start_ns: i64,
    pub(super) took_ns: i64,
    pub(super) is_error: bool,
    pub(super) cost_usd: Option<f64>,
    pub(super) version: String,
}

/// The latest trajectories that match, newest first, and whether there are more than were examined.
pub(super) fn find_latest_trajectories(
    sql: &SqlConnection,
    filter: &MetricFilter,
) -> Result<(Vec<LatestTrajectory>, bool), StoreError> {
    let project = match &filter.project {
        None => None,
        Some(name) => match project_number(sql, name)? {
            Some(number) => Some(number),
            None => return Ok((Vec::new(), false)),
        },
    };
    let mut projects = project.map_or_else(|| list_project_numbers(sql), |one| Ok(vec![one]))?;
    projects.truncate(MAX_WALKS + 1);
    let way = if projects.len() > MAX_WALKS { None } else { DrivingFacet::find_rarest(sql, filter, &projects)? };
    let mut walks = LatestScan::default();
    match way {
        None => {
            let first: Vec<SqlValue> = project.map(SqlValue::Integer).into_iter().collect();
            let walk = LatestWalk::by_time(project.is_some());
            walks.scan_rows(sql, &walk, &first, filter, MAX_EXAMINED_TRAJECTORIES)?;
        }
        Some(DrivingFacet { kind, name, shares }) => {
            let all: u64 = shares.iter().sum();
            for (project, share) in projects.into_iter().zip(shares).filter(|(_, share)| *share > 0) {
                // Divided by share, so that all walks reach about equally far back.
                let most = (MAX_EXAMINED_TRAJECTORIES as u64).saturating_mul(share).div_ceil(all) as usize;
                let first =
                    [SqlValue::Integer(project), SqlValue::Integer(kind as i64), SqlValue::Text(name.to_owned())];
                walks.scan_rows(sql, &LatestWalk::by_facet(), &first, filter, most)?;
            }
        }
    }
    // Where one walk ended early, its older trajectories are unknown. The others are cut at the same time, so that the
    // result is complete for the time that it covers.
    if let Some(horizon) = walks.horizon {
        walks.seen.retain(|one| one.start_ns >= horizon);
    }
    let LatestScan { mut seen, horizon } = walks;
    seen.sort_by_key(|one| std::cmp::Reverse((one.start_ns, one.no)));
    let is_cut = horizon.is_some() || seen.len() > MAX_LATEST_TRAJECTORIES;
    seen.truncate(MAX_LATEST_TRAJECTORIES);
    Ok((seen, is_cut))
}

/// The name that drives the walk, and the number of trajectories of each project that have it.
struct DrivingFacet<'f> {
    kind: FacetKind,
    name: &'f str,
    shares: Vec<u64>,
}

impl<'f> DrivingFacet<'f> {
    /// Finds the name of the filter with the fewest trajectories; `None` if the filter has no name.
    fn find_rarest(
        sql: &SqlConnection,
        filter: &'f MetricFilter,
        projects: &[i64],
    ) -> Result<Option<DrivingFacet<'f>>, StoreError> {
        let named = [
            (FacetKind::Agent, NameKind::Agent, &filter.agent),
            (FacetKind::Version, NameKind::Version, &filter.version),
            (FacetKind::Model, NameKind::Model, &filter.model),
        ];
        let (from, to) = compute_bucket_bounds(filter, 24 * HOUR_NS);
        let mut count = sql.prepare_cached(COUNT_WITH_NAME)?;
        let mut ways = Vec::new();
        for (kind, of, name) in named {
            let Some(name) = name else { continue };
            let shares = projects.iter().map(|project| {
                let values = params![project, of as i64, name, from, to];
                // Rollups of whole days: an upper bound of the number.
                count.query_row(values, |row| Ok(u64::try_from(row.get::<i64>(0)?).unwrap_or(0)))
            });
            ways.push(DrivingFacet { kind, name, shares: shares.collect::<Result<_, _>>()? });
        }
        Ok(ways.into_iter().min_by_key(|way| way.shares.iter().sum::<u64>()))
    }
}

/// Number of trajectories with a name in a period, from the coarse rollups.
const COUNT_WITH_NAME: &str = "SELECT coalesce(sum(trajectories), 0) FROM usage_long WHERE size = 24 AND project = ? \
                           AND kind = ? AND name = ? AND bucket >= ? AND bucket <= ?";
/// Columns of a walk, in the order in which [`LatestScan`] reads them. Parameters of every walk: agent, version, model,
/// beginning, and the number of rows. Those of its position follow, then its own.
const COLUMNS: &str = "t.no, t.start_ns, t.end_ns - t.start_ns, t.is_error, t.cost_usd, t.version, \
                       (?1 IS NULL OR t.agent = ?1) AND (?2 IS NULL OR t.version = ?2) \
                       AND (?3 IS NULL OR t.model = ?3)";
/// Number of [`COLUMNS`].
const COLUMN_COUNT: usize = 7;

/// A statement that walks trajectories from a position on. The match is a column of the result and not a condition, so
/// that the limit bounds the rows that are examined.
pub(super) struct LatestWalk {
    sql: String,
    /// Number of columns that its rows are ordered by, newest first. They follow [`COLUMNS`].
    key_columns: usize,
}

impl LatestWalk {
    /// A walk by time.
    pub(super) fn by_time(of_project: bool) -> LatestWalk {
        let (index, within) =
            if of_project { ("trajectory_by_project", "t.project = ?8 AND") } else { ("trajectory_by_start", "") };
        let sql = format!(
            "SELECT {COLUMNS}, t.start_ns, t.no FROM trajectory t INDEXED BY {index} \
             WHERE {within} t.start_ns >= ?4 AND (t.start_ns, t.no) < (?6, ?7) \
             ORDER BY t.start_ns DESC, t.no DESC LIMIT ?5"
        );
        LatestWalk { sql, key_columns: 2 }
    }

    /// A walk by facet. The position is within the trajectories of a trace, but an index knows only the trace.
    pub(super) fn by_facet() -> LatestWalk {
        let sql = format!(
            "SELECT {COLUMNS}, f.start_ns, f.trace, t.no \
             FROM facet f CROSS JOIN trajectory t INDEXED BY trajectory_by_trace ON t.trace = f.trace \
             WHERE f.project = ?9 AND f.kind = ?10 AND f.value = ?11 AND f.start_ns >= ?4 \
             AND (f.start_ns, f.trace) <= (?6, ?7) AND NOT (f.start_ns = ?6 AND f.trace = ?7 AND t.no >= ?8) \
             ORDER BY f.start_ns DESC, f.trace DESC, t.no DESC LIMIT ?5"
        );
        LatestWalk { sql, key_columns: 3 }
    }
}

/// The result of walking one project after the other.
#[derive(Default)]
pub(super) struct LatestScan {
    pub(super) seen: Vec<LatestTrajectory>,
    /// The latest time at which one of the walks ended before its end.
    pub(super) horizon: Option<i64>,
}

impl LatestScan {
    /// Examines the rows of a walk. `own` are the parameters behind those that every walk has.
    pub(super) fn scan_rows(
        &mut self,
        sql: &SqlConnection,
        walk: &LatestWalk,
        own: &[SqlValue],
        filter: &MetricFilter,
        most: usize,
    ) -> Result<(), StoreError> {
        // SQLite computes rows as they are read, PostgreSQL all of a statement before the first one is read.
        let portion = sql.choose(most, MAX_LATEST_TRAJECTORIES + 1);
        self.scan_portions(sql, walk, own, filter, most, portion)
    }

    /// As [`LatestScan::scan_rows`]. `portion` is the maximum number of rows of the first statement.
    pub(super) fn scan_portions(
        &mut self,
        sql: &SqlConnection,
        walk: &LatestWalk,
        own: &[SqlValue],
        filter: &MetricFilter,
        most: usize,
        mut portion: usize,
    ) -> Result<(), StoreError> {
        let mut statement = sql.prepare_cached(&walk.sql)?;
        let text = |name: &Option<String>| name.clone().map_or(SqlValue::Null, SqlValue::Text);
        let names = [text(&filter.agent), text(&filter.version), text(&filter.model)];
        // Everything before the end: no row has the smallest number.
        let mut position = vec![i64::MIN; walk.key_columns];
        position[0] = filter.to_ns.unwrap_or(i64::MAX);
        let (mut found, mut examined, mut last) = (0, 0, None);
        loop {
            portion = portion.min(most - examined);
            let mut values = names.to_vec();
            values.extend([filter.from_ns.unwrap_or(i64::MIN), portion as i64].map(SqlValue::Integer));
            values.extend(position.iter().copied().map(SqlValue::Integer));
            values.extend(own.iter().cloned());
            let mut rows = statement.query(params_from_iter(values))?;
            let mut read = 0;
            while let Some(row) = rows.next()? {
                read += 1;
                let start_ns = row.get(1)?;
                last = Some(start_ns);
                for (index, key) in position.iter_mut().enumerate() {
                    *key = row.get(COLUMN_COUNT + index)?;
                }
                if row.get(6)? {
                    found += 1;
                    self.seen.push(LatestTrajectory {
                        no: row.get(0)?,
                        start_ns,
                        took_ns: row.get(2)?,
                        is_error: row.get(3)?,
                        cost_usd: row.get(4)?,
                        version: row.get(5)?,
                    });
                }
                if found > MAX_LATEST_TRAJECTORIES {
                    break;
                }
            }
            examined += read;
            if found > MAX_LATEST_TRAJECTORIES || examined == most {
                self.horizon = self.horizon.max(last);
                return Ok(());
            }
            if read < portion {
                return Ok(());
            }
            portion *= PORTION_GROWTH;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::connection::{assert_plan, open_writer};

    #[test]
    fn what_is_looked_at_has_a_bound_and_is_not_sorted() {
        let folder = tempfile::tempdir().unwrap();
        let sql = open_writer(&folder.path().join("store.db")).unwrap();
        let [of_project, of_all, by_facet] =
            [LatestWalk::by_time(true), LatestWalk::by_time(false), LatestWalk::by_facet()].map(|walk| walk.sql);
        assert_plan(&sql, &of_project, "trajectory_by_project (project=? AND start_ns>? AND start_ns<?)");
        assert_plan(&sql, &of_all, "trajectory_by_start (start_ns>? AND start_ns<?)");
        assert_plan(&sql, &by_facet, "PRIMARY KEY (project=? AND kind=? AND value=? AND start_ns>?");
        assert_plan(&sql, COUNT_WITH_NAME, "size=? AND project=? AND kind=? AND name=? AND bucket>? AND bucket<?");
        // The name is a column and no condition, so that every examined row counts towards the limit.
        for statement in [of_project, of_all, by_facet] {
            let behind = statement.split(" WHERE ").nth(1).unwrap();
            assert!(!behind.contains("?1 ") && behind.ends_with("LIMIT ?5"), "{statement}");
        }
    }

    #[test]
    fn the_way_is_by_the_rarest_name() {
        let folder = tempfile::tempdir().unwrap();
        let sql = SqlConnection::Sqlite(open_writer(&folder.path().join("store.db")).unwrap());
        let came = [
            (1, NameKind::Agent, "a", 5),
            (2, NameKind::Agent, "a", 0),
            (1, NameKind::Model, "m", 1),
            (2, NameKind::Model, "m", 3),
        ];
        for (project, kind, name, trajectories) in came {
            sql.execute(
                "INSERT INTO usage_long VALUES (24, ?, ?, ?, 7, ?, 0, 0, 0, 0, 0, 0)",
                params![project, kind as i64, name, trajectories],
            )
            .unwrap();
        }
        let of = |agent: Option<&str>, model: Option<&str>, from_ns: Option<i64>| {
            let [agent, model] = [agent, model].map(|name| name.map(str::to_owned));
            let filter = MetricFilter { agent, model, from_ns, ..MetricFilter::default() };
            let way = DrivingFacet::find_rarest(&sql, &filter, &[1, 2]).unwrap();
            way.map(|way| (way.kind as i64, way.shares))
        };
        assert_eq!(of(None, None, None), None);
        assert_eq!(of(Some("a"), None, None), Some((FacetKind::Agent as i64, vec![5, 0])));
        assert_eq!(of(Some("a"), Some("m"), None), Some((FacetKind::Model as i64, vec![1, 3])));
        assert_eq!(of(Some("a"), None, Some(8 * 24 * HOUR_NS)), Some((FacetKind::Agent as i64, vec![0, 0])));
    }
}
