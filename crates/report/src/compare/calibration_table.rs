//! The table of raw and corrected numbers of a comparison.

use super::version_comparison::VersionComparison;
use crate::metric_text::describe_calibration;
use crate::report_table::{ReportTable, TableColumn};

/// Builds the table of raw and corrected numbers. `None` if no version has a calibration.
pub(super) fn build_calibration_table(comparison: &VersionComparison) -> Option<ReportTable> {
    let mut calibrated: Vec<&str> =
        comparison.calibrations.iter().filter(|one| !one.is_unknown()).map(|one| one.dimension.as_str()).collect();
    calibrated.dedup();
    if calibrated.is_empty() {
        return None;
    }
    let shown = comparison.calibrations.iter().filter(|one| calibrated.contains(&one.dimension.as_str()));
    let rows = shown.map(|one| {
        let raw = one.raw.map(|raw| if one.is_share { format!("{:.1} %", 100.0 * raw) } else { format!("{raw:.2}") });
        vec![
            comparison.title(&one.dimension).to_owned(),
            one.version.clone(),
            raw.unwrap_or_default(),
            describe_calibration(&one.calibration, one.is_share),
        ]
    });
    let column = |name: &str, is_number| TableColumn { name: name.to_owned(), is_number };
    Some(ReportTable {
        title: "Corrected for errors of the judge",
        about: "",
        note: Some(
            "Raw numbers are over all verdicts of a version. The verdicts above compare raw numbers, task by task; \
             read the corrected ones before a small difference."
                .to_owned(),
        ),
        columns: vec![column("dimension", false), column("version", false), column("raw", true), column("", false)],
        rows: rows.collect(),
    })
}
