//! Prints the raw answers of the judge, so that people can check how they were parsed.

use std::io::{self, Write};

use gradus_core::visible::{make_printable, printable_line};
use gradus_eval::outcome::{JudgeVote, OutcomeLine};
use gradus_eval::run::JudgeAnswer;

use super::{BOLD, DIM, format_counted_noun};

/// Prints what was asked, the verdict and the answer, indented. Control characters in the answer are spelled out.
pub fn print_raw_response(line: &OutcomeLine, answer: Option<&JudgeAnswer>, out: &mut dyn Write) -> io::Result<()> {
    let step = line.step_index.map_or_else(String::new, |step| format!(" step {step}"));
    let verdict = match (&line.label, &line.reason) {
        (Some(label), _) => printable_line(label),
        (None, Some(reason)) => format!("no verdict ({})", printable_line(reason)),
        (None, None) => "no verdict".to_owned(),
    };
    let trajectory = printable_line(&line.trajectory_id);
    writeln!(out, "{BOLD}{trajectory}{step} {}{BOLD:#}: {verdict}", printable_line(&line.evaluator))?;
    print_response_text(line.cached, answer, out)
}

/// Like [`print_raw_response`], for one vote of a panel, with its judge.
pub fn print_raw_vote(
    line: &OutcomeLine,
    vote: &JudgeVote,
    answer: Option<&JudgeAnswer>,
    out: &mut dyn Write,
) -> io::Result<()> {
    let step = line.step_index.map_or_else(String::new, |step| format!(" step {step}"));
    let verdict = match (&vote.label, &vote.reason) {
        (Some(label), _) => printable_line(label),
        (None, Some(reason)) => format!("no verdict ({})", printable_line(reason)),
        (None, None) => "no verdict".to_owned(),
    };
    let (trajectory, evaluator) = (printable_line(&line.trajectory_id), printable_line(&line.evaluator));
    let (judge, repeat) = (printable_line(&vote.judge), vote.repeat + 1);
    writeln!(out, "{BOLD}{trajectory}{step} {evaluator}{BOLD:#} by {judge}, answer {repeat}: {verdict}")?;
    print_response_text(vote.cached, answer, out)
}

fn print_response_text(is_cached: bool, answer: Option<&JudgeAnswer>, out: &mut dyn Write) -> io::Result<()> {
    let Some(text) = answer.and_then(|answer| answer.response.as_deref()) else {
        let why = if is_cached { "the verdict is from the cache of an earlier run" } else { "none is stored" };
        return writeln!(out, "  {DIM}no response: {why}{DIM:#}");
    };
    for text_line in text.lines() {
        writeln!(out, "  {}", make_printable(text_line))?;
    }
    let omitted = answer.map_or(0, |answer| answer.omitted_bytes);
    if omitted > 0 {
        writeln!(out, "  {DIM}[cut: {} not stored]{DIM:#}", format_counted_noun(omitted, "byte", "bytes"))?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn line(label: Option<&str>, cached: bool) -> OutcomeLine {
        serde_json::from_value(serde_json::json!({
            "run_id": "1", "trajectory_id": "t\u{1b}[2J", "step_index": 2, "evaluator": "fit", "outcome": "scored",
            "label": label, "score": 1.0, "explanation": "why", "evidence": [], "reason": null, "judge": "m",
            "rubric_hash": "h", "tokens": null, "cost_usd": null, "cached": cached, "calls": 1,
        }))
        .expect("a line")
    }

    fn print_to_text(line: &OutcomeLine, response: Option<&str>, omitted_bytes: u64) -> String {
        let answer = response.map(|response| JudgeAnswer {
            k: String::new(),
            trajectory_id: String::new(),
            step_index: None,
            evaluator: String::new(),
            response: Some(response.to_owned()),
            omitted_bytes,
        });
        let mut printed = Vec::new();
        print_raw_response(line, answer.as_ref(), &mut printed).expect("printed");
        crate::example::show_styles(&printed)
    }

    #[test]
    fn an_answer_is_text_and_says_that_it_is_cut() {
        let printed = print_to_text(&line(Some("correct"), false), Some("one\u{1b}[31m\r\ntwo\u{202e}"), 12_345);
        assert!(!printed.contains(['\u{1b}', '\u{202e}', '\r']), "{printed:?}");
        assert!(printed.contains("step 2 fit</>: correct\n  one"), "{printed}");
        assert!(printed.contains("[cut: 12,345 bytes not stored]"), "{printed}");
    }

    #[test]
    fn verdicts_without_an_answer_say_why() {
        assert!(print_to_text(&line(Some("correct"), true), None, 0).contains("from the cache"));
        assert!(print_to_text(&line(None, false), None, 0).contains("no verdict\n  <dim>no response: none is stored"));
    }
}
