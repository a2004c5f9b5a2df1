//! JUnit XML for CI systems: every evaluator is a suite, every question a test case. Characters that XML 1.0 forbids
//! are spelled out, wherever a text comes from: one of them would make the whole document unreadable.

use std::borrow::Cow;
use std::io::Write;

use gradus_eval::outcome::{OutcomeKind, OutcomeLine};
use gradus_eval::report::RunReader;
use quick_junit::{NonSuccessKind, Report, TestCase, TestCaseStatus, TestSuite};

use gradus_core::visible::make_printable;

/// Writes one report; the suites of `more` come first. The document is built in memory, because JUnit has the counts of
/// a suite before its cases.
pub fn write_junit_report(reader: &mut RunReader, more: Vec<TestSuite>, out: &mut dyn Write) -> anyhow::Result<()> {
    let record = reader.record.clone();
    let mut suites: Vec<TestSuite> =
        record.evaluators.iter().map(|known| TestSuite::new(xml_text(&known.name).as_ref())).collect();
    let names: Vec<String> = record.evaluators.iter().map(|known| known.name.clone()).collect();
    let is_right = |line: &OutcomeLine| {
        let known = record.evaluators.iter().find(|known| known.name == *line.evaluator);
        known.is_some_and(|known| known.is_right(line.score))
    };
    reader.visit_trajectories(|trajectory, outcomes| -> anyhow::Result<()> {
        for line in outcomes {
            // Steps are sorted by index, and indices may have gaps.
            let at = trajectory.steps.binary_search_by_key(&line.step_index, |step| Some(step.index));
            let tool = at.ok().map_or("", |at| trajectory.steps[at].tool.as_str());
            let name = match line.step_index {
                Some(step) => format!("{} step {step} {tool}", line.trajectory_id),
                None => line.trajectory_id.to_string(),
            };
            let mut case = TestCase::new(xml_text(&name).as_ref(), build_test_status(line, is_right(line)));
            case.set_classname(xml_text(&format!("gradus.{}", line.evaluator)).as_ref());
            if let Some(query) = &trajectory.query {
                case.set_system_out(xml_text(query).as_ref());
            }
            if let Some(at) = names.iter().position(|name| **name == *line.evaluator) {
                suites[at].add_test_case(case);
            }
        }
        Ok(())
    })?;
    let mut report = Report::new("gradus");
    report.add_test_suites(more.into_iter().chain(suites));
    report.serialize(out)?;
    Ok(())
}

/// A wrong answer is a failure, a question that could not be judged is an error, and one that does not apply is
/// skipped: CI systems count the three separately.
fn build_test_status(line: &OutcomeLine, is_right: bool) -> TestCaseStatus {
    let reason = line.reason.as_deref().unwrap_or_default();
    match line.outcome {
        OutcomeKind::Scored if is_right => TestCaseStatus::success(),
        OutcomeKind::Scored => {
            let mut status = TestCaseStatus::non_success(NonSuccessKind::Failure);
            status.set_type(xml_text(line.label.as_deref().unwrap_or_default()).as_ref());
            status.set_message(xml_text(line.explanation.as_deref().unwrap_or_default()).as_ref());
            status
        }
        OutcomeKind::Failed => {
            let mut status = TestCaseStatus::non_success(NonSuccessKind::Error);
            status.set_type("not judged");
            status.set_message(xml_text(reason).as_ref());
            status
        }
        OutcomeKind::NotApplicable => {
            let mut status = TestCaseStatus::skipped();
            status.set_message(xml_text(reason).as_ref());
            status
        }
    }
}

/// Text for an XML document: printable, and without characters that XML 1.0 forbids even as references (section 2.2,
/// `Char`). They are spelled out, so that a reader sees that something was there.
pub fn xml_text(text: &str) -> Cow<'_, str> {
    let printable = make_printable(text);
    if !printable.contains(is_forbidden) {
        return printable;
    }
    let mut legal = String::with_capacity(printable.len() + 16);
    for c in printable.chars() {
        if is_forbidden(c) { legal.extend(c.escape_unicode()) } else { legal.push(c) }
    }
    Cow::Owned(legal)
}

/// The complement of `Char` in XML 1.0, except surrogates, which are no `char` in Rust.
fn is_forbidden(c: char) -> bool {
    matches!(c, '\u{0}'..='\u{8}' | '\u{b}' | '\u{c}' | '\u{e}'..='\u{1f}' | '\u{fffe}' | '\u{ffff}')
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::example::open_example_run;

    #[test]
    fn a_report_has_a_suite_for_each_evaluator() {
        let folder = tempfile::tempdir().expect("a folder");
        let mut more = TestSuite::new("gates");
        more.add_test_case(TestCase::new("thought_to_tool >= 0.85", TestCaseStatus::success()));
        let mut written = Vec::new();
        write_junit_report(&mut open_example_run(folder.path()), vec![more], &mut written)
            .expect("a report is written");
        insta::assert_snapshot!(String::from_utf8(written).expect("XML is UTF-8"));
    }

    /// `Char` of XML 1.0, as the standard writes it.
    fn is_char(c: char) -> bool {
        matches!(c, '\u{9}' | '\u{a}' | '\u{d}' | '\u{20}'..='\u{d7ff}' | '\u{e000}'..='\u{fffd}' | '\u{10000}'..='\u{10ffff}')
    }

    #[test]
    fn no_character_that_xml_forbids_is_written() {
        for c in '\0'..=char::MAX {
            let text = format!("a{c}b");
            let written = xml_text(&text);
            assert!(written.chars().all(is_char), "{c:?}");
            assert!(written.starts_with('a') && written.ends_with('b') && written.len() > 2, "{c:?}");
        }
        assert_eq!(xml_text("a\u{fffe}b\u{ffff}c\u{1b}"), "a\\u{fffe}b\\u{ffff}c\\u{1b}");
        for plain in ["plain", "two\nlines", "]]>", "\u{fffd} \u{1f600}"] {
            assert_eq!(xml_text(plain), plain);
        }
    }
}
