//! Sums over hours and days: in which of them a trajectory is counted. There are few rows however many trajectories and
//! names there are, as a row is about one name at most.

use crate::query::BUCKET_NS;

/// Lengths of buckets in hours, shortest first.
pub(crate) const SIZES: [i64; 2] = [1, 24];
pub(crate) const HOUR_NS: i64 = 3_600_000_000_000;
/// Stands for all projects together.
pub(crate) const ALL_PROJECTS: i64 = 0;

/// Whose name a sum is over.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum NameKind {
    /// Nobody's: all trajectories.
    All = 0,
    Agent = 1,
    Version = 2,
    Model = 3,
}

/// What trajectories are told apart by, and when they began.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Of<'r> {
    pub(crate) project: i64,
    /// Of five minutes.
    pub(crate) bucket: i64,
    pub(crate) agent: &'r str,
    pub(crate) version: &'r str,
    pub(crate) model: &'r str,
}

/// A row that a trajectory is counted in.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Place<'r> {
    pub(crate) size: i64,
    pub(crate) project: i64,
    pub(crate) kind: NameKind,
    pub(crate) name: &'r str,
    pub(crate) bucket: i64,
}

impl<'r> Of<'r> {
    /// All rows that these trajectories are counted in.
    pub(crate) fn places(self) -> impl Iterator<Item = Place<'r>> {
        let named = [
            (NameKind::All, ""),
            (NameKind::Agent, self.agent),
            (NameKind::Version, self.version),
            (NameKind::Model, self.model),
        ];
        let named = named.into_iter().filter(|(kind, name)| *kind == NameKind::All || !name.is_empty());
        named.flat_map(move |(kind, name)| {
            SIZES.into_iter().flat_map(move |size| {
                let bucket = self.bucket.div_euclid(size * HOUR_NS / BUCKET_NS);
                [ALL_PROJECTS, self.project].into_iter().map(move |project| Place {
                    size,
                    project,
                    kind,
                    name,
                    bucket,
                })
            })
        })
    }
}
