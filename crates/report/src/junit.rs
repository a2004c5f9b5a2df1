//! JUnit XML for CI systems: the gates are a suite, every evaluator is a suite, and every question is a test case.
//!
//! A test case fails only if the exit code does, too. Names are the same in every run of the same requests: they
//! contain no trace ids, and a digest distinguishes requests with the same beginning. Characters that XML 1.0 forbids
//! are spelled out in all text: one of them would make the whole document unreadable.

use std::borrow::Cow;
use std::collections::{HashMap, HashSet};
use std::io::Write;

use crate::metric_text::format_gate_value;
use gradus_core::trajectory::Trajectory;
use gradus_core::visible::make_printable;
use gradus_eval::evaluator::{OUTCOME, QUERY_TO_THOUGHT, REQUEST_TO_TOOL, SEQUENCE_OPTIMALITY, THOUGHT_TO_TOOL};
use gradus_eval::outcome::{OutcomeKind, OutcomeLine, OutcomeSpans};
use gradus_eval::report::{GateResult, GateVerdict, RunReader, excerpt_request};
use quick_junit::{NonSuccessKind, Report, TestCase, TestCaseStatus, TestSuite};

/// Maximum characters of the request in a name.
const MAX_NAME_CHARS: usize = 80;
/// Maximum characters of the request in the output of a test case.
const MAX_OUTPUT_CHARS: usize = 1_000;
/// The name of a trajectory whose trace has no request.
const UNNAMED_REQUEST: &str = "(no request)";

/// Which wrong verdicts are failures.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum JunitFailures {
    /// Those of evaluators on which a gate failed: the document has failures only if the exit code says so, too.
    #[default]
    FailedGates,
    /// All of them, whatever the exit code.
    WrongVerdicts,
}

/// Settings for the names and failures of test cases.
pub struct JunitSettings<'a> {
    pub gates: &'a [GateResult],
    pub failures: JunitFailures,
    /// The id of the dataset item that a trajectory belongs to. Without one, the request names it.
    pub item_id: &'a dyn Fn(&Trajectory) -> Option<String>,
}

impl std::fmt::Debug for JunitSettings<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("JunitSettings").field("gates", &self.gates).field("failures", &self.failures).finish()
    }
}

impl<'a> JunitSettings<'a> {
    /// Settings for trajectories that belong to no dataset.
    pub fn new(gates: &'a [GateResult], failures: JunitFailures) -> JunitSettings<'a> {
        JunitSettings { gates, failures, item_id: &|_| None }
    }

    /// Whether wrong verdicts of a metric are failures.
    pub fn fails_on(&self, metric: &str) -> bool {
        self.failures == JunitFailures::WrongVerdicts || self.has_failed_gate(metric)
    }

    /// Whether a gate failed that depends on this metric.
    fn has_failed_gate(&self, metric: &str) -> bool {
        let is_step = [THOUGHT_TO_TOOL, QUERY_TO_THOUGHT, REQUEST_TO_TOOL].contains(&metric);
        let is_part = |gate: &str| match gate {
            "combined" => is_step,
            "trajectories_right" => is_step || [SEQUENCE_OPTIMALITY, OUTCOME].contains(&metric),
            name => name == metric,
        };
        self.gates.iter().any(|gate| gate.verdict == GateVerdict::Fail && is_part(&gate.metric))
    }
}

/// Writes one report: the gates first, then the suites of `more`, then the evaluators. The document is built in memory,
/// because JUnit has the counts of a suite before its cases.
pub fn write_junit_report(
    reader: &mut RunReader,
    settings: &JunitSettings<'_>,
    more: Vec<TestSuite>,
    out: &mut dyn Write,
) -> anyhow::Result<()> {
    let record = reader.record.clone();
    let mut suites: Vec<TestSuite> =
        record.evaluators.iter().map(|known| TestSuite::new(sanitize_xml_text(&known.name).as_ref())).collect();
    let mut names = CaseNames::default();
    reader.visit_trajectories(|trajectory, outcomes| -> anyhow::Result<()> {
        let request = names.assign_name((settings.item_id)(trajectory).as_deref(), trajectory.query.as_deref());
        for line in outcomes {
            let Some(at) = record.evaluators.iter().position(|known| known.name == *line.evaluator) else { continue };
            let status = build_test_status(line, record.evaluators[at].is_right(line.score), settings);
            let name = format_case_name(&request, trajectory, line.step_index);
            let mut case = TestCase::new(sanitize_xml_text(&name).as_ref(), status);
            case.set_classname(sanitize_xml_text(&format!("gradus.{}", line.evaluator)).as_ref());
            case.set_system_out(sanitize_xml_text(&describe_case(trajectory, line)).as_ref());
            suites[at].add_test_case(case);
        }
        Ok(())
    })?;
    let mut report = Report::new("gradus");
    report.add_test_suites(build_gate_suite(settings.gates).into_iter().chain(more).chain(suites));
    report.serialize(out)?;
    Ok(())
}

/// One test case for each gate. A gate that is not decided is an error: the exit code is 6.
fn build_gate_suite(gates: &[GateResult]) -> Option<TestSuite> {
    let mut suite = TestSuite::new("gates");
    for gate in gates {
        let value = if gate.value.is_some() { format_gate_value(gate) } else { "no value".to_owned() };
        let message = format!("{value}: {}", gate.explanation);
        let status = match gate.verdict {
            GateVerdict::Pass => TestCaseStatus::success(),
            GateVerdict::Fail => build_status(Some(NonSuccessKind::Failure), "gate failed", &message),
            GateVerdict::Incomplete => build_status(Some(NonSuccessKind::Error), "incomplete", &message),
        };
        let mut case = TestCase::new(sanitize_xml_text(&gate.gate).as_ref(), status);
        case.set_classname("gradus.gates");
        suite.add_test_case(case);
    }
    (!gates.is_empty()).then_some(suite)
}

/// A status with a type and a message; `None` is a skipped test.
fn build_status(kind: Option<NonSuccessKind>, status_type: &str, message: &str) -> TestCaseStatus {
    let mut status = kind.map_or_else(TestCaseStatus::skipped, TestCaseStatus::non_success);
    status.set_type(sanitize_xml_text(status_type).as_ref());
    status.set_message(sanitize_xml_text(message).as_ref());
    status
}

/// Builds the status of a measured test, for suites other than those of evaluators. The gates on `metric` decide
/// whether it is a failure.
pub fn build_measured_status(
    is_well: bool,
    metric: &str,
    label: &str,
    message: &str,
    settings: &JunitSettings<'_>,
) -> TestCaseStatus {
    if is_well {
        return TestCaseStatus::success();
    }
    let kind = settings.fails_on(metric).then_some(NonSuccessKind::Failure);
    build_status(kind, label, message)
}

/// A wrong verdict is a failure and a question that could not be judged an error where a gate on it failed; otherwise
/// both are skipped, with the verdict as the message, as test runners show failures that are tolerated. A question that
/// does not apply or that the rules cannot decide is skipped.
fn build_test_status(line: &OutcomeLine, is_right: bool, settings: &JunitSettings<'_>) -> TestCaseStatus {
    let reason = line.reason.as_deref().unwrap_or_default();
    let label = line.label.as_deref().unwrap_or_default();
    let explanation = line.explanation.as_deref().unwrap_or_default();
    match line.outcome {
        OutcomeKind::Scored if is_right => TestCaseStatus::success(),
        // A label that is neither good nor bad, such as that of a run that gave up.
        OutcomeKind::Scored if line.score.is_none() => build_status(None, label, explanation),
        OutcomeKind::Scored => {
            let kind = settings.fails_on(&line.evaluator).then_some(NonSuccessKind::Failure);
            build_status(kind, label, explanation)
        }
        OutcomeKind::Failed => {
            let kind = settings.fails_on("failed").then_some(NonSuccessKind::Error);
            build_status(kind, "not judged", reason)
        }
        OutcomeKind::NotApplicable => build_status(None, "does not apply", reason),
        OutcomeKind::Abstained => build_status(None, "cannot judge", reason),
    }
}

/// Names of trajectories. A name that is cut ends in a digest of the whole text, so that requests that begin alike
/// keep their names in every run, whatever its order. The second trajectory of the same request gets the suffix
/// `(2)`.
#[derive(Debug, Default)]
struct CaseNames {
    counts: HashMap<u128, u32>,
    used: HashSet<u128>,
}

impl CaseNames {
    fn assign_name(&mut self, item: Option<&str>, request: Option<&str>) -> String {
        let excerpt = |text: &str| Some(excerpt_name(text)).filter(|name| !name.is_empty());
        let name = item.and_then(excerpt).or_else(|| request.and_then(excerpt));
        let name = name.unwrap_or_else(|| UNNAMED_REQUEST.to_owned());
        let count = self.counts.entry(gradus_core::stable_digest(name.as_bytes())).or_default();
        loop {
            *count += 1;
            let numbered = if *count == 1 { name.clone() } else { format!("{name} ({count})") };
            // The text of a request may itself end in such a suffix.
            if self.used.insert(gradus_core::stable_digest(numbered.as_bytes())) {
                return numbered;
            }
        }
    }
}

/// Returns the text on one line. Long text is cut to its beginning and eight digits of a digest.
fn excerpt_name(text: &str) -> String {
    let name = excerpt_request(text, MAX_NAME_CHARS);
    let line = excerpt_request(text, usize::MAX);
    if name == line {
        return name;
    }
    format!("{name} [{:08x}]", gradus_core::stable_digest(line.as_bytes()) >> 96)
}

/// `REQUEST: step 2 search_flights`. Steps are sorted by index, and indices may have gaps.
fn format_case_name(request: &str, trajectory: &Trajectory, step_index: Option<u32>) -> String {
    let Some(index) = step_index else { return request.to_owned() };
    match trajectory.steps.binary_search_by_key(&index, |step| step.index) {
        Ok(at) => format!("{request}: step {index} {}", excerpt_request(&trajectory.steps[at].tool, MAX_NAME_CHARS)),
        Err(_) => format!("{request}: step {index} (thought before the answer)"),
    }
}

/// Describes the trajectory and the step of the test case.
fn describe_case(trajectory: &Trajectory, line: &OutcomeLine) -> String {
    let mut text = format!("trajectory: {}", line.trajectory_id);
    if let Some(trace_id) = OutcomeSpans::new(trajectory, line.step_index).trace_id {
        text.push_str(&format!("\ntrace: {trace_id}"));
    }
    if let Some(query) = &trajectory.query {
        text.push_str(&format!("\nrequest: {}", excerpt_request(query, MAX_OUTPUT_CHARS)));
    }
    text
}

/// Text for an XML document: printable, and without characters that XML 1.0 forbids even as references (section 2.2,
/// `Char`). They are spelled out, so that a reader sees that something was there.
pub fn sanitize_xml_text(text: &str) -> Cow<'_, str> {
    let printable = make_printable(text);
    if !printable.contains(is_forbidden_in_xml) {
        return printable;
    }
    let mut legal = String::with_capacity(printable.len() + 16);
    for c in printable.chars() {
        if is_forbidden_in_xml(c) { legal.extend(c.escape_unicode()) } else { legal.push(c) }
    }
    Cow::Owned(legal)
}

/// The complement of `Char` in XML 1.0, except surrogates, which are no `char` in Rust.
fn is_forbidden_in_xml(c: char) -> bool {
    matches!(c, '\u{0}'..='\u{8}' | '\u{b}' | '\u{c}' | '\u{e}'..='\u{1f}' | '\u{fffe}' | '\u{ffff}')
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::example::open_example_run;

    fn gate(metric: &str, verdict: GateVerdict) -> GateResult {
        GateResult {
            gate: format!("{metric} >= 0.85"),
            metric: metric.to_owned(),
            bar: Some(0.85),
            is_share: true,
            verdict,
            value: Some(0.5),
            interval: None,
            count: 10,
            is_certain: true,
            more_runs: None,
            raw_value: None,
            is_uncalibrated: false,
            explanation: "missed".to_owned(),
        }
    }

    fn write_to_text(gates: &[GateResult], failures: JunitFailures) -> String {
        let folder = tempfile::tempdir().expect("a folder");
        let settings = JunitSettings::new(gates, failures);
        let mut written = Vec::new();
        write_junit_report(&mut open_example_run(folder.path()), &settings, Vec::new(), &mut written)
            .expect("a report is written");
        String::from_utf8(written).expect("XML is UTF-8")
    }

    #[test]
    fn a_report_has_a_suite_for_each_evaluator() {
        let gates = [gate(THOUGHT_TO_TOOL, GateVerdict::Fail), gate(SEQUENCE_OPTIMALITY, GateVerdict::Incomplete)];
        insta::assert_snapshot!(write_to_text(&gates, JunitFailures::FailedGates));
    }

    #[test]
    fn failures_agree_with_the_exit_code() {
        let count = |gates: &[GateResult], failures| {
            let written = write_to_text(gates, failures);
            (written.matches("<failure").count(), written.matches("<error").count())
        };
        assert_eq!(count(&[], JunitFailures::FailedGates), (0, 0));
        assert_eq!(count(&[], JunitFailures::WrongVerdicts), (2, 1));
        assert_eq!(count(&[gate(THOUGHT_TO_TOOL, GateVerdict::Pass)], JunitFailures::FailedGates), (0, 0));
        assert_eq!(count(&[gate(THOUGHT_TO_TOOL, GateVerdict::Incomplete)], JunitFailures::FailedGates), (0, 1));
        // The gate itself, and the wrong verdicts that it is about.
        assert_eq!(count(&[gate(THOUGHT_TO_TOOL, GateVerdict::Fail)], JunitFailures::FailedGates), (2, 0));
        assert_eq!(count(&[gate("combined", GateVerdict::Fail)], JunitFailures::FailedGates), (2, 0));
        assert_eq!(count(&[gate("trajectories_right", GateVerdict::Fail)], JunitFailures::FailedGates), (3, 0));
        assert_eq!(count(&[gate("failed", GateVerdict::Fail)], JunitFailures::FailedGates), (1, 1));
    }

    #[test]
    fn names_have_no_ids_and_are_unique() {
        let mut names = CaseNames::default();
        let mut name = |item, request| names.assign_name(item, request);
        assert_eq!(name(None, Some("Book\na flight")), "Book a flight");
        assert_eq!(name(None, Some("Book a flight (3)")), "Book a flight (3)");
        assert_eq!(name(None, Some("Book a flight")), "Book a flight (2)");
        assert_eq!(name(None, Some("Book a flight")), "Book a flight (4)");
        assert_eq!(name(Some("item-7"), Some("Book a flight")), "item-7");
        assert_eq!(name(None, None), UNNAMED_REQUEST);
        assert_eq!(name(Some(" "), Some("")), format!("{UNNAMED_REQUEST} (2)"));
    }

    #[test]
    fn requests_that_begin_alike_keep_their_names_in_any_order() {
        let (one, other) = (format!("{} one", "word ".repeat(20)), format!("{} other", "word ".repeat(20)));
        let assign = |requests: [&str; 2]| {
            let mut names = CaseNames::default();
            requests.map(|request| names.assign_name(None, Some(request)))
        };
        let [first, second] = assign([&one, &other]);
        assert_ne!(first, second);
        assert!(first.starts_with("word word") && !second.ends_with("(2)"), "{second}");
        assert_eq!(assign([&other, &one]), [second, first]);
    }

    /// `Char` of XML 1.0, as the standard writes it.
    fn is_char(c: char) -> bool {
        matches!(c, '\u{9}' | '\u{a}' | '\u{d}' | '\u{20}'..='\u{d7ff}' | '\u{e000}'..='\u{fffd}' | '\u{10000}'..='\u{10ffff}')
    }

    #[test]
    fn no_character_that_xml_forbids_is_written() {
        for c in '\0'..=char::MAX {
            let text = format!("a{c}b");
            let written = sanitize_xml_text(&text);
            assert!(written.chars().all(is_char), "{c:?}");
            assert!(written.starts_with('a') && written.ends_with('b') && written.len() > 2, "{c:?}");
        }
        assert_eq!(sanitize_xml_text("a\u{fffe}b\u{ffff}c\u{1b}"), "a\\u{fffe}b\\u{ffff}c\\u{1b}");
        for plain in ["plain", "two\nlines", "]]>", "\u{fffd} \u{1f600}"] {
            assert_eq!(sanitize_xml_text(plain), plain);
        }
    }
}
