//! Cases as JSON Lines, for other programs that measure judges.

use std::io::{self, Write};

use gradus_core::trajectory::Trajectory;
use serde::Serialize;

use crate::flaw::PlantedFlaw;
use crate::right_run::{RunForm, RunMaterial};
use crate::test_case::{ExpectedVerdict, TestCase};

/// The format version of a line.
pub const CASE_SCHEMA: &str = "gradus.judge-case/1";

/// One line: a question with its right answer.
#[derive(Debug, Serialize)]
struct CaseLine<'c> {
    schema: &'static str,
    case_id: &'c str,
    pair_id: &'c str,
    evaluator: &'c str,
    step: Option<u32>,
    expected: ExpectedVerdict,
    expected_label: &'c str,
    /// Null for an original.
    flaw: Option<PlantedFlaw>,
    /// The flaw of the pair, also for an original.
    pair_flaw: PlantedFlaw,
    note: Option<&'c str>,
    cluster: &'c str,
    material: RunMaterial,
    form: RunForm,
    trajectory: &'c Trajectory,
}

/// Writes a case as one line. `labels` are the best and the worst label of its evaluator.
pub fn write_case_line(case: &TestCase, labels: (&str, &str), out: &mut dyn Write) -> io::Result<()> {
    let is_flawed = case.expected == ExpectedVerdict::Flawed;
    let line = CaseLine {
        schema: CASE_SCHEMA,
        case_id: &case.case_id,
        pair_id: &case.pair_id,
        evaluator: &case.evaluator,
        step: case.step,
        expected: case.expected,
        expected_label: if is_flawed { labels.1 } else { labels.0 },
        flaw: is_flawed.then_some(case.flaw),
        pair_flaw: case.flaw,
        note: is_flawed.then_some(case.note.as_str()),
        cluster: &case.cluster,
        material: case.material,
        form: case.form,
        trajectory: &case.trajectory,
    };
    serde_json::to_writer(&mut *out, &line)?;
    out.write_all(b"\n")
}
