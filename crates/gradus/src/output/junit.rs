//! JUnit XML for CI systems: every evaluation is a suite, every question a test.

use std::io::Write;

use gradus_eval::outcome::{OutcomeKind, OutcomeLine};
use gradus_eval::report::RunReader;
use quick_junit::{NonSuccessKind, Report, TestCase, TestCaseStatus, TestSuite};

use super::printable;

/// `more` are suites of others, which come first.
pub(crate) fn write(reader: &mut RunReader, more: Vec<TestSuite>, out: &mut dyn Write) -> anyhow::Result<()> {
    let record = reader.record.clone();
    let mut suites: Vec<TestSuite> =
        record.evaluators.iter().map(|known| TestSuite::new(known.name.as_str())).collect();
    let is_right = |line: &OutcomeLine| {
        let known = record.evaluators.iter().find(|known| known.name == *line.evaluator);
        known.is_some_and(|known| known.is_right(line.score))
    };
    reader.visit(|trajectory, outcomes| -> anyhow::Result<()> {
        for line in outcomes {
            let at = trajectory.steps.binary_search_by_key(&line.step_index, |step| Some(step.index));
            let tool = at.ok().map_or("", |at| trajectory.steps[at].tool.as_str());
            let name = match line.step_index {
                Some(step) => format!("{} step {step} {tool}", line.trajectory_id),
                None => line.trajectory_id.to_string(),
            };
            let mut case = TestCase::new(printable(&name).as_ref(), status(line, is_right(line)));
            case.set_classname(format!("gradus.{}", line.evaluator));
            if let Some(query) = &trajectory.query {
                case.set_system_out(printable(query).as_ref());
            }
            if let Some(suite) = suites.iter_mut().find(|suite| suite.name.as_str() == &*line.evaluator) {
                suite.add_test_case(case);
            }
        }
        Ok(())
    })?;
    let mut report = Report::new("gradus");
    report.add_test_suites(more.into_iter().chain(suites));
    report.serialize(out)?;
    Ok(())
}

/// What is wrong fails, what could not be judged is an error, what does not apply is skipped.
fn status(line: &OutcomeLine, is_right: bool) -> TestCaseStatus {
    let reason = line.reason.as_deref().unwrap_or_default();
    match line.outcome {
        OutcomeKind::Scored if is_right => TestCaseStatus::success(),
        OutcomeKind::Scored => {
            let mut status = TestCaseStatus::non_success(NonSuccessKind::Failure);
            status.set_type(line.label.as_deref().unwrap_or_default());
            status.set_message(printable(line.explanation.as_deref().unwrap_or_default()).as_ref());
            status
        }
        OutcomeKind::Failed => {
            let mut status = TestCaseStatus::non_success(NonSuccessKind::Error);
            status.set_type("not judged");
            status.set_message(printable(reason).as_ref());
            status
        }
        OutcomeKind::NotApplicable => {
            let mut status = TestCaseStatus::skipped();
            status.set_message(printable(reason).as_ref());
            status
        }
    }
}
