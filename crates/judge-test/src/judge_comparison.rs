//! Compares judges on the same cases.

use gradus_stats::comparison::{
    ComparedDimension, ComparisonError, ComparisonReport, ComparisonSamples, ComparisonSettings, compare_versions,
};

use crate::test_case::{ExpectedVerdict, TestCase};
use crate::test_report::{CaseVerdict, JudgeRecord};

/// Compares all judges in pairs: for each rubric the share of right verdicts on flawed cases, and on originals. A case
/// without a verdict has no right one. Runs are the units: where each run gives one case, the test is McNemar's with the
/// mid-p value, else a sign-flip permutation over runs. All tests are corrected together.
pub fn compare_judges(cases: &[TestCase], records: &[JudgeRecord]) -> Result<ComparisonReport, ComparisonError> {
    let mut dimensions: Vec<(&str, ExpectedVerdict)> = Vec::new();
    for case in cases {
        if !dimensions.contains(&(&case.evaluator, case.expected)) {
            dimensions.push((&case.evaluator, case.expected));
        }
    }
    let name = |(evaluator, expected): &(&str, ExpectedVerdict)| match expected {
        ExpectedVerdict::Flawed => format!("{evaluator}: flaws detected"),
        ExpectedVerdict::Right => format!("{evaluator}: originals accepted"),
    };
    let compared = dimensions.iter().map(|dimension| ComparedDimension::score(name(dimension))).collect();
    let versions = records.iter().map(|record| record.judge.clone()).collect();
    let mut samples = ComparisonSamples::new(compared, versions);
    for (version, record) in records.iter().enumerate() {
        let first = |verdict: &&CaseVerdict| verdict.probe.is_none() && verdict.repeat == 0;
        for verdict in record.verdicts.iter().filter(first) {
            let Some(case) = cases.get(verdict.case) else { continue };
            let key = (case.evaluator.as_str(), case.expected);
            let Some(dimension) = dimensions.iter().position(|known| *known == key) else { continue };
            let is_right = verdict.label.is_some() && verdict.is_flagged == (case.expected == ExpectedVerdict::Flawed);
            samples.add_value(version, dimension, &case.cluster, f64::from(u8::from(is_right)))?;
        }
    }
    compare_versions(&samples, &ComparisonSettings::default())
}
