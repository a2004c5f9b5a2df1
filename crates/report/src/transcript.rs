//! One trajectory as a transcript in ReAct form: Thought, Action, Action Input, Observation. Missing parts are stated,
//! and defects are listed below.

use std::io::{self, Write};

use gradus_core::trajectory::{Trajectory, TrajectoryStep};

use super::{BOLD, DIM, RED};
use gradus_core::visible::{make_printable, printable_line};

/// Maximum characters of one text without `--full`: observations can be whole files.
const MAX_CHARS: usize = 1_500;

/// Maximum characters of a step that is only context.
const MAX_EARLIER_CHARS: usize = 200;

/// Prints the transcript; `full` prints long texts whole.
pub fn print_transcript(trajectory: &Trajectory, full: bool, out: &mut dyn Write) -> io::Result<()> {
    let text = |text: &str| truncate_transcript_text(text, full);
    writeln!(out, "{BOLD}Trajectory {}{BOLD:#}", printable_line(&trajectory.trajectory_id))?;
    for (name, value) in list_header_fields(trajectory) {
        writeln!(out, "{DIM}{name:>9}{DIM:#}  {}", printable_line(&value))?;
    }
    print_section(out, "Query", &text(trajectory.query.as_deref().unwrap_or("(not in the trace)")))?;
    for step in &trajectory.steps {
        print_step(step, full, out)?;
    }
    print_section(out, "Final Answer", &text(trajectory.final_answer.as_deref().unwrap_or("(none)")))?;
    if !trajectory.tools.is_empty() {
        let names: Vec<String> = trajectory.tools.iter().map(|tool| printable_line(&tool.name)).collect();
        writeln!(out, "\n{BOLD}Available tools ({}){BOLD:#}  {}", names.len(), names.join(", "))?;
    }
    if !trajectory.defects.is_empty() {
        writeln!(out, "\n{BOLD}Defects ({}){BOLD:#}", trajectory.defects.len())?;
        for defect in &trajectory.defects {
            let span = defect.span_id.as_deref().map(|id| format!("  {DIM}span {}{DIM:#}", printable_line(id)));
            writeln!(out, "  {}: {}{}", defect.kind.name(), printable_line(&defect.detail), span.unwrap_or_default())?;
        }
    }
    Ok(())
}

/// Prints what a person needs to judge one step: the request, the steps before it in a line each, and the step. The
/// index after the last step is the thought before the answer. `None` prints the whole trajectory.
pub fn print_case(trajectory: &Trajectory, step_index: Option<u32>, out: &mut dyn Write) -> io::Result<()> {
    let Some(index) = step_index else { return print_transcript(trajectory, false, out) };
    if let Some(prompt) = &trajectory.system_prompt {
        print_section(out, "System prompt", &truncate_transcript_text(prompt, false))?;
    }
    let query = trajectory.query.as_deref().unwrap_or("(not in the trace)");
    print_section(out, "Query", &truncate_transcript_text(query, false))?;
    for step in trajectory.steps.iter().take_while(|step| step.index < index) {
        let input = step.arguments_text().unwrap_or_default();
        let observation = step.observation.as_deref().unwrap_or("(not in the trace)");
        let line = format!("{} {} -> {}", step.tool, input, observation);
        let short: String = printable_line(&line).chars().take(MAX_EARLIER_CHARS).collect();
        writeln!(out, "{DIM}Step {}: {short}{DIM:#}", step.index)?;
    }
    match trajectory.steps.iter().find(|step| step.index == index) {
        Some(step) => print_step(step, false, out),
        None => {
            let thought = trajectory.final_thought.as_deref().unwrap_or("(not in the trace)");
            print_section(out, "Thought before the answer", &truncate_transcript_text(thought, false))?;
            let answer = trajectory.final_answer.as_deref().unwrap_or("(none)");
            print_section(out, "Final Answer", &truncate_transcript_text(answer, false))
        }
    }
}

/// Lists the known header fields of the trajectory; unknown ones are left out.
fn list_header_fields(trajectory: &Trajectory) -> Vec<(&'static str, String)> {
    let mut lines = Vec::new();
    let mut add = |name, value: Option<String>| lines.extend(value.map(|value| (name, value)));
    add("project", trajectory.project.clone());
    add("session", trajectory.session_id.clone());
    add("agent", trajectory.agent.clone());
    add("model", trajectory.model.clone());
    add(
        "parent",
        trajectory.parent_trajectory_id.as_ref().map(|id| match trajectory.parent_step_index {
            Some(step) => format!("{id}, step {step}"),
            None => id.clone(),
        }),
    );
    add("start", trajectory.start.clone());
    let tokens = trajectory.tokens;
    add("tokens", (tokens.total() > 0).then(|| format!("{} in, {} out", tokens.prompt, tokens.completion)));
    add("cost", trajectory.cost_usd.map(|cost| format!("${cost:.4}")));
    lines
}

/// One step. Malformed arguments are shown as the model wrote them.
fn print_step(step: &TrajectoryStep, full: bool, out: &mut dyn Write) -> io::Result<()> {
    let with = if step.parallel_with_previous { " (in the same reply as the previous step)" } else { "" };
    writeln!(out, "\n{BOLD}Step {}{BOLD:#}{DIM}{with}{DIM:#}", step.index)?;
    if let Some(thought) = &step.thought {
        print_field(out, "Thought", &truncate_transcript_text(thought, full))?;
    }
    print_field(out, "Action", &printable_line(&step.tool))?;
    let input = match (&step.arguments, &step.arguments_raw) {
        (Some(json), _) => json.to_string(),
        (None, Some(raw)) => format!("{raw}  (malformed)"),
        (None, None) => "(none)".to_owned(),
    };
    print_field(out, "Action Input", &truncate_transcript_text(&input, full))?;
    let observation = step.observation.as_deref().unwrap_or("(not in the trace)");
    if step.is_error {
        print_field(out, &format!("{RED}Observation (error){RED:#}"), &truncate_transcript_text(observation, full))
    } else {
        print_field(out, "Observation", &truncate_transcript_text(observation, full))
    }
}

/// A part of the whole trajectory: query or answer.
fn print_section(out: &mut dyn Write, name: &str, text: &str) -> io::Result<()> {
    writeln!(out, "\n{BOLD}{name}:{BOLD:#} {}", indent_continuation_lines(text, "  "))
}

/// A part of a step.
fn print_field(out: &mut dyn Write, name: &str, text: &str) -> io::Result<()> {
    writeln!(out, "  {name}: {}", indent_continuation_lines(text, "    "))
}

/// Indents all lines but the first, so that no line of a text can look like a label of the transcript.
fn indent_continuation_lines(text: &str, by: &str) -> String {
    text.trim_end().replace('\n', &format!("\n{by}"))
}

/// A printable text, cut unless `full` is set; the number of missing characters is stated.
fn truncate_transcript_text(text: &str, full: bool) -> String {
    let safe = make_printable(text);
    match safe.char_indices().nth(MAX_CHARS) {
        Some((end, _)) if !full => {
            let more = safe[end..].chars().count();
            format!("{} … ({more} more characters; --full shows them)", &safe[..end])
        }
        _ => safe.into_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::example::{booking_trajectory, show_styles, sparse_trajectory, trajectory_filled_with};

    fn print_to_text(trajectory: &Trajectory, full: bool) -> String {
        let mut printed = Vec::new();
        print_transcript(trajectory, full, &mut printed).expect("a transcript is printed");
        show_styles(&printed)
    }

    #[test]
    fn a_case_has_its_step_and_what_came_before() {
        let mut printed = Vec::new();
        print_case(&booking_trajectory(), Some(2), &mut printed).expect("a case is printed");
        insta::assert_snapshot!(show_styles(&printed));
    }

    #[test]
    fn shows_everything_that_is_there() {
        insta::assert_snapshot!(print_to_text(&booking_trajectory(), true));
    }

    #[test]
    fn says_what_is_missing() {
        insta::assert_snapshot!(print_to_text(&sparse_trajectory(), false));
    }

    #[test]
    fn long_texts_are_shortened_unless_all_is_wanted() {
        let mut trajectory = booking_trajectory();
        trajectory.steps.truncate(1);
        trajectory.steps[0].observation = Some("0123456789".repeat(200));
        assert!(print_to_text(&trajectory, true).contains(&"0123456789".repeat(200)));
        insta::assert_snapshot!(print_to_text(&trajectory, false));
    }

    #[test]
    fn hostile_text_cannot_control_the_terminal() {
        let hostile = "a\u{1b}[31mb\u{1b}]0;title\u{7}c\r\nThought: d\u{202e}e\u{200b}f\u{9b}g\0h";
        let printed = print_to_text(&trajectory_filled_with(hostile), false);
        assert!(!printed.contains(|c: char| (c.is_control() && c != '\n') || c == '\u{202e}'), "{printed:?}");
        assert!(!printed.lines().any(|line| line.starts_with("Thought:")), "{printed}");
        insta::assert_snapshot!(printed);
    }
}
