//! Coarse rollups: sums over hours and days, and the rows that a trajectory is counted in. A query for one name, or for
//! none, reads one row per hour or day, however many trajectories and names there are. A query for several names reads
//! one row for each combination of names.

use std::borrow::Cow;

use crate::query::BUCKET_NS;

/// Lengths of coarse buckets in hours, shortest first.
pub(crate) const BUCKET_HOURS: [i64; 2] = [1, 24];
/// One hour. Coarse buckets are multiples of it.
pub(crate) const HOUR_NS: i64 = 3_600_000_000_000;
/// Number that stands for all projects together. Projects count from 1.
pub(crate) const ALL_PROJECTS: i64 = 0;

/// The dimension that a coarse rollup is grouped by. The values are stored.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum NameKind {
    /// None: all trajectories.
    All = 0,
    Agent = 1,
    Version = 2,
    Model = 3,
    /// Agent, version and model together.
    Combination = 4,
}

/// Names of agent, version and model; empty where there is none.
pub(crate) type DimensionNames<'r> = [&'r str; 3];

/// The names of [`NameKind::Combination`] as one text. A JSON list, so that all texts of one agent share a prefix and
/// can be found by range.
pub(crate) fn encode_dimensions(names: DimensionNames<'_>) -> String {
    serde_json::json!(names).to_string()
}

/// Decodes such a text; `None` if it is not one.
pub(crate) fn decode_dimensions(text: &str) -> Option<[String; 3]> {
    serde_json::from_str(text).ok()
}

/// The dimensions of a rollup: what trajectories are grouped by, and when they began.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct RollupDimensions<'r> {
    pub(crate) project: i64,
    /// Number of the five-minute bucket.
    pub(crate) bucket: i64,
    pub(crate) agent: &'r str,
    pub(crate) version: &'r str,
    pub(crate) model: &'r str,
}

/// The key of a coarse rollup that a trajectory is counted in.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct CoarseRollupKey<'r> {
    pub(crate) size: i64,
    pub(crate) project: i64,
    pub(crate) kind: NameKind,
    /// The names that the row is about; the others are empty.
    pub(crate) names: DimensionNames<'r>,
    pub(crate) bucket: i64,
}

impl<'r> CoarseRollupKey<'r> {
    /// The name as it is stored.
    pub(crate) fn name(&self) -> Cow<'r, str> {
        let [agent, version, model] = self.names;
        match self.kind {
            NameKind::All => Cow::Borrowed(""),
            NameKind::Agent => Cow::Borrowed(agent),
            NameKind::Version => Cow::Borrowed(version),
            NameKind::Model => Cow::Borrowed(model),
            NameKind::Combination => Cow::Owned(encode_dimensions(self.names)),
        }
    }
}

impl<'r> RollupDimensions<'r> {
    /// Returns the same dimensions for the first bucket of the hour: all buckets of an hour are counted in the same
    /// coarse rows.
    pub(crate) fn truncate_to_hour(self) -> RollupDimensions<'r> {
        const BUCKETS: i64 = HOUR_NS / BUCKET_NS;
        RollupDimensions { bucket: self.bucket.div_euclid(BUCKETS) * BUCKETS, ..self }
    }

    /// All coarse rows that a trajectory is counted in: for each length, for its project and for all projects, and for
    /// each dimension.
    pub(crate) fn coarse_keys(self) -> impl Iterator<Item = CoarseRollupKey<'r>> {
        let RollupDimensions { agent, version, model, .. } = self;
        let all = [agent, version, model];
        // With one name only, the row of that name is enough.
        let is_several = all.iter().filter(|name| !name.is_empty()).count() > 1;
        let named = [
            (NameKind::All, ["", "", ""], true),
            (NameKind::Agent, [agent, "", ""], !agent.is_empty()),
            (NameKind::Version, ["", version, ""], !version.is_empty()),
            (NameKind::Model, ["", "", model], !model.is_empty()),
            (NameKind::Combination, all, is_several),
        ];
        let named = named.into_iter().filter(|(_, _, is_there)| *is_there);
        named.flat_map(move |(kind, names, _)| {
            BUCKET_HOURS.into_iter().flat_map(move |size| {
                let bucket = self.bucket.div_euclid(size * HOUR_NS / BUCKET_NS);
                [ALL_PROJECTS, self.project].into_iter().map(move |project| CoarseRollupKey {
                    size,
                    project,
                    kind,
                    names,
                    bucket,
                })
            })
        })
    }
}
