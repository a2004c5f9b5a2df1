//! One trajectory as a person would read it.

use std::io::{self, Write};

use gradus_core::trajectory::{Trajectory, TrajectoryStep};

use super::{BOLD, DIM, RED};
use gradus_core::visible::{printable, printable_line};

/// Longer texts are cut unless all is wanted.
const MAX_CHARS: usize = 1_500;

pub fn print(trajectory: &Trajectory, full: bool, out: &mut dyn Write) -> io::Result<()> {
    let text = |text: &str| shorten(text, full);
    writeln!(out, "{BOLD}Trajectory {}{BOLD:#}", printable_line(&trajectory.trajectory_id))?;
    for (name, value) in head(trajectory) {
        writeln!(out, "{DIM}{name:>9}{DIM:#}  {}", printable_line(&value))?;
    }
    section(out, "Query", &text(trajectory.query.as_deref().unwrap_or("(not in the trace)")))?;
    for step in &trajectory.steps {
        print_step(step, full, out)?;
    }
    section(out, "Final Answer", &text(trajectory.final_answer.as_deref().unwrap_or("(none)")))?;
    if !trajectory.tools.is_empty() {
        let names: Vec<String> = trajectory.tools.iter().map(|tool| printable_line(&tool.name)).collect();
        writeln!(out, "\n{BOLD}Tools on offer ({}){BOLD:#}  {}", names.len(), names.join(", "))?;
    }
    if !trajectory.defects.is_empty() {
        writeln!(out, "\n{BOLD}Defects ({}){BOLD:#}", trajectory.defects.len())?;
        for defect in &trajectory.defects {
            let span =
                defect.span_id.as_deref().map(|id| format!("  {DIM}span {}{DIM:#}", printable_line(id)));
            writeln!(
                out,
                "  {}: {}{}",
                defect.kind.name(),
                printable_line(&defect.detail),
                span.unwrap_or_default()
            )?;
        }
    }
    Ok(())
}

fn head(trajectory: &Trajectory) -> Vec<(&'static str, String)> {
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

fn print_step(step: &TrajectoryStep, full: bool, out: &mut dyn Write) -> io::Result<()> {
    let with = if step.parallel_with_previous { " (in the same reply as the step before)" } else { "" };
    writeln!(out, "\n{BOLD}Step {}{BOLD:#}{DIM}{with}{DIM:#}", step.index)?;
    if let Some(thought) = &step.thought {
        field(out, "Thought", &shorten(thought, full))?;
    }
    field(out, "Action", &printable_line(&step.tool))?;
    let input = match (&step.arguments, &step.arguments_raw) {
        (Some(json), _) => json.to_string(),
        (None, Some(raw)) => format!("{raw}  (malformed)"),
        (None, None) => "(none)".to_owned(),
    };
    field(out, "Action Input", &shorten(&input, full))?;
    let observation = step.observation.as_deref().unwrap_or("(not in the trace)");
    if step.is_error {
        field(out, &format!("{RED}Observation (error){RED:#}"), &shorten(observation, full))
    } else {
        field(out, "Observation", &shorten(observation, full))
    }
}

fn section(out: &mut dyn Write, name: &str, text: &str) -> io::Result<()> {
    writeln!(out, "\n{BOLD}{name}:{BOLD:#} {}", indented(text, "  "))
}

fn field(out: &mut dyn Write, name: &str, text: &str) -> io::Result<()> {
    writeln!(out, "  {name}: {}", indented(text, "    "))
}

/// Further lines stand below the first, moved in: no text can pass for a label of ours.
fn indented(text: &str, by: &str) -> String {
    text.trim_end().replace('\n', &format!("\n{by}"))
}

fn shorten(text: &str, full: bool) -> String {
    let safe = printable(text);
    match safe.char_indices().nth(MAX_CHARS) {
        Some((end, _)) if !full => {
            let more = safe[end..].chars().count();
            format!("{} … ({more} more characters; --full shows them)", &safe[..end])
        }
        _ => safe.into_owned(),
    }
}
