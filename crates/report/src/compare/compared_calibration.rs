//! Calibrations in a comparison: raw and corrected numbers of each version, for dimensions that a model judged.

use gradus_eval::report::MetricCalibration;
use schemars::JsonSchema;
use serde::Serialize;

use super::pairing_keys::version_letter;
use super::version_results::{ScoredDimension, VersionResults};

/// How far the judge of a dimension is known in one version.
#[derive(Clone, Debug, PartialEq, Serialize, JsonSchema)]
pub struct ComparedCalibration {
    pub dimension: String,
    /// The letter of the version.
    pub version: String,
    /// Whether the numbers are shares from 0 to 1.
    pub is_share: bool,
    /// The mean over all verdicts of the version. It differs from the mean of the comparison, where each task counts
    /// once. Null if the run has no calibration.
    pub raw: Option<f64>,
    pub calibration: MetricCalibration,
}

/// Collects one calibration for each dimension and version that a model judged.
pub(super) fn collect_calibrations(
    versions: &[VersionResults],
    scored: &[ScoredDimension],
) -> Vec<ComparedCalibration> {
    let mut all = Vec::new();
    for dimension in scored {
        for (at, results) in versions.iter().enumerate() {
            let Some(own) = results.header.dimensions.iter().find(|known| known.name == dimension.name) else {
                continue;
            };
            let known = results.header.calibrations.iter().find(|known| known.dimension == dimension.name);
            // Measured results have no judge.
            let unknown = || {
                Some(&own.judge).filter(|judge| !judge.is_empty()).and_then(|judge| MetricCalibration::for_judge(judge))
            };
            let Some(calibration) = known.map(|known| known.calibration.clone()).or_else(unknown) else { continue };
            all.push(ComparedCalibration {
                dimension: dimension.name.clone(),
                version: version_letter(at),
                is_share: own.scale().is_share(),
                raw: known.map(|known| known.raw),
                calibration,
            });
        }
    }
    all
}

impl ComparedCalibration {
    /// Whether nothing is known about the errors of the judge.
    pub(super) fn is_unknown(&self) -> bool {
        self.calibration == MetricCalibration::Uncalibrated
    }
}

/// Returns a sentence that names the dimensions for which no version has a calibration.
pub(super) fn describe_uncalibrated<'c>(
    calibrations: &'c [ComparedCalibration],
    title: impl Fn(&'c str) -> &'c str,
) -> Option<String> {
    let is_known = |name: &str| calibrations.iter().any(|one| one.dimension == name && !one.is_unknown());
    let mut titles: Vec<&str> = Vec::new();
    for one in calibrations.iter().filter(|one| !is_known(&one.dimension)) {
        if !titles.contains(&title(&one.dimension)) {
            titles.push(title(&one.dimension));
        }
    }
    (!titles.is_empty())
        .then(|| format!("Uncalibrated: {}. The errors of the judge are part of these numbers.", titles.join(", ")))
}
