//! Labelling in the terminal: cases in the order of the draw, without the judge's verdict until a label is given. Every
//! label is in the file of the session before the next case is shown, so that labelling can continue at any time.

use std::fs::{self, File, OpenOptions};
use std::io::{self, BufRead, Write};
use std::path::{Path, PathBuf};

use gradus_core::trajectory::Trajectory;
use gradus_core::visible::printable_line;
use gradus_eval::calibration::{CaseLabel, LabellerKind};
use gradus_eval::outcome::OutcomeLine;
use gradus_report::{BOLD, DIM, transcript};
use serde::{Deserialize, Serialize};

use crate::cli::label_file::DrawnFrom;

/// The labels of one run, evaluator and draw, by all labellers. The last line about a case counts.
pub(super) struct LabelSession {
    path: PathBuf,
    draw: DrawnFrom,
    labels: Vec<CaseLabel>,
}

/// A line of the file.
#[derive(Serialize, Deserialize)]
struct LabelSessionLine {
    trajectory_id: String,
    step_index: Option<u32>,
    /// `undecided` if the person could not decide; `removed` if the label was taken back.
    label: String,
    labeller: String,
    at: String,
    draw: DrawnFrom,
}

const UNDECIDED: &str = "undecided";
const REMOVED: &str = "removed";

/// The answer of the person.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum LabelAnswer {
    Label(String),
    Undecided,
    /// Back to the case before.
    Back,
    Quit,
}

impl LabelSession {
    /// Opens the file of a session and reads the labels that it has. A line that a crash has cut off is ignored.
    pub(super) fn open(path: PathBuf, draw: DrawnFrom) -> io::Result<LabelSession> {
        let text = match fs::read_to_string(&path) {
            Ok(text) => text,
            Err(error) if error.kind() == io::ErrorKind::NotFound => String::new(),
            Err(error) => return Err(error),
        };
        let mut session = LabelSession { path, draw, labels: Vec::new() };
        for (line, number) in text.lines().zip(1_u64..) {
            let Ok(line) = serde_json::from_str::<LabelSessionLine>(line) else { continue };
            if line.draw == draw {
                session.apply_line(line, number);
            }
        }
        Ok(session)
    }

    pub(super) fn path(&self) -> &Path {
        &self.path
    }

    pub(super) fn labels(&self) -> &[CaseLabel] {
        &self.labels
    }

    /// Finds the label that a person gave to a case.
    pub(super) fn find(&self, trajectory_id: &str, step_index: Option<u32>, labeller: &str) -> Option<&CaseLabel> {
        let is_it = |label: &&CaseLabel| {
            label.trajectory_id == trajectory_id && label.step_index == step_index && label.labeller == labeller
        };
        self.labels.iter().find(is_it)
    }

    /// Records a label, or with `None` that the person could not decide.
    pub(super) fn add(
        &mut self,
        (trajectory_id, step_index): (&str, Option<u32>),
        label: Option<&str>,
        labeller: &str,
    ) -> io::Result<()> {
        self.append(trajectory_id, step_index, label.unwrap_or(UNDECIDED), labeller)
    }

    /// Takes a label back.
    pub(super) fn remove(
        &mut self,
        (trajectory_id, step_index): (&str, Option<u32>),
        labeller: &str,
    ) -> io::Result<()> {
        self.append(trajectory_id, step_index, REMOVED, labeller)
    }

    fn append(&mut self, trajectory_id: &str, step_index: Option<u32>, label: &str, labeller: &str) -> io::Result<()> {
        let line = LabelSessionLine {
            trajectory_id: trajectory_id.to_owned(),
            step_index,
            label: label.to_owned(),
            labeller: labeller.to_owned(),
            at: jiff::Timestamp::now().to_string(),
            draw: self.draw,
        };
        if let Some(folder) = self.path.parent() {
            fs::create_dir_all(folder)?;
        }
        let mut file: File = OpenOptions::new().create(true).append(true).open(&self.path)?;
        let mut text = serde_json::to_vec(&line)?;
        text.push(b'\n');
        file.write_all(&text)?;
        file.sync_data()?;
        self.apply_line(line, 0);
        Ok(())
    }

    fn apply_line(&mut self, line: LabelSessionLine, number: u64) {
        self.labels.retain(|known| {
            (&known.trajectory_id, known.step_index, &known.labeller)
                != (&line.trajectory_id, line.step_index, &line.labeller)
        });
        if line.label != REMOVED {
            self.labels.push(CaseLabel {
                trajectory_id: line.trajectory_id,
                step_index: line.step_index,
                label: (line.label != UNDECIDED).then_some(line.label),
                labeller: line.labeller,
                kind: LabellerKind::Human,
                location: format!("{}:{number}", self.path.display()),
            });
        }
    }
}

/// A case on the terminal.
pub(super) struct ShownCase<'c> {
    pub(super) trajectory: &'c Trajectory,
    pub(super) step_index: Option<u32>,
    /// Position in the draw, from 1, and how many there are.
    pub(super) number: usize,
    pub(super) total: usize,
    /// The question in one line.
    pub(super) question: &'c str,
    /// The labels, best first.
    pub(super) labels: &'c [(String, f64)],
}

/// Shows a case and reads the answer. The end of the input means quit.
pub(super) fn ask_person(
    case: &ShownCase<'_>,
    input: &mut dyn BufRead,
    out: &mut dyn Write,
) -> io::Result<LabelAnswer> {
    writeln!(out, "\n{BOLD}Case {} of {}{BOLD:#}", case.number, case.total)?;
    transcript::print_case(case.trajectory, case.step_index, out)?;
    writeln!(out, "\n{BOLD}{}{BOLD:#}", printable_line(case.question))?;
    let choices: Vec<String> =
        case.labels.iter().zip(1..).map(|((label, _), key)| format!("{key} {}", printable_line(label))).collect();
    loop {
        write!(out, "  {}   {DIM}s cannot decide, b back, q save and quit{DIM:#}  > ", choices.join("   "))?;
        out.flush()?;
        let mut line = String::new();
        if input.read_line(&mut line)? == 0 {
            writeln!(out)?;
            return Ok(LabelAnswer::Quit);
        }
        let answer = line.trim();
        let by_key = answer.parse::<usize>().ok().and_then(|key| case.labels.get(key.checked_sub(1)?));
        let by_name = || case.labels.iter().find(|(label, _)| label == answer);
        match (by_key.or_else(by_name), answer) {
            (Some((label, _)), _) => return Ok(LabelAnswer::Label(label.clone())),
            (None, "s") => return Ok(LabelAnswer::Undecided),
            (None, "b") => return Ok(LabelAnswer::Back),
            (None, "q") => return Ok(LabelAnswer::Quit),
            _ => writeln!(out, "  type one of the keys")?,
        }
    }
}

/// Prints what the judge said, after the decision.
pub(super) fn reveal_verdict(
    verdict: Option<&OutcomeLine>,
    answer: &LabelAnswer,
    out: &mut dyn Write,
) -> io::Result<()> {
    let Some(line) = verdict else { return Ok(()) };
    let label = line.label.as_deref().unwrap_or("nothing");
    let word = match answer {
        LabelAnswer::Label(own) if own == label => "The judge agrees",
        _ => "The judge says",
    };
    let explanation: String =
        printable_line(line.explanation.as_deref().unwrap_or_default()).chars().take(300).collect();
    writeln!(out, "  {DIM}{word}: {}. {explanation}{DIM:#}", printable_line(label))
}

#[cfg(test)]
mod tests {
    use gradus_eval::calibration::LabelSampling;

    use super::*;

    #[test]
    fn labels_are_there_after_a_crash_and_can_be_taken_back() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("labels/run.jsonl");
        let draw = DrawnFrom { sampling: LabelSampling::Uniform, seed: 1 };
        let mut session = LabelSession::open(path.clone(), draw).unwrap();
        session.add(("a", Some(1)), Some("correct"), "ann").unwrap();
        session.add(("a", Some(1)), Some("incorrect"), "bob").unwrap();
        session.add(("b", None), None, "ann").unwrap();
        session.add(("a", Some(1)), Some("incorrect"), "ann").unwrap();
        session.add(("c", None), Some("correct"), "ann").unwrap();
        session.remove(("c", None), "ann").unwrap();
        drop(session);
        let mut file = OpenOptions::new().append(true).open(&path).unwrap();
        file.write_all(b"{\"trajectory_id\":\"d\",\"step").unwrap();
        let found = LabelSession::open(path.clone(), draw).unwrap();
        let label = |id, step, person| found.find(id, step, person).map(|label| label.label.clone());
        assert_eq!(label("a", Some(1), "ann"), Some(Some("incorrect".to_owned())), "the last one counts");
        assert_eq!(label("a", Some(1), "bob"), Some(Some("incorrect".to_owned())));
        assert_eq!((label("b", None, "ann"), label("c", None, "ann")), (Some(None), None));
        let other = LabelSession::open(path, DrawnFrom { seed: 2, ..draw }).unwrap();
        assert!(other.labels().is_empty(), "labels of another draw");
    }

    #[test]
    fn answers_are_keys_or_labels_and_nothing_else() {
        let trajectory = Trajectory { query: Some("\u{1b}[2Jwipe".to_owned()), ..Trajectory::default() };
        let labels = [("correct".to_owned(), 1.0), ("incorrect".to_owned(), 0.0)];
        let case = ShownCase {
            trajectory: &trajectory,
            step_index: Some(1),
            number: 1,
            total: 9,
            question: "Does the tool fit?",
            labels: &labels,
        };
        let ask = |input: &str| {
            let mut out = Vec::new();
            let answer = ask_person(&case, &mut input.as_bytes(), &mut out).unwrap();
            assert!(
                !String::from_utf8_lossy(&out).contains("[2J\u{7}") && !out.windows(4).any(|part| part == b"\x1b[2J")
            );
            answer
        };
        assert_eq!(ask("2\n"), LabelAnswer::Label("incorrect".to_owned()));
        assert_eq!(ask("7\n0\nwhat\ncorrect\n"), LabelAnswer::Label("correct".to_owned()));
        assert_eq!(
            [ask("s\n"), ask("b\n"), ask("q\n")],
            [LabelAnswer::Undecided, LabelAnswer::Back, LabelAnswer::Quit]
        );
        assert_eq!(ask(""), LabelAnswer::Quit);
    }
}
