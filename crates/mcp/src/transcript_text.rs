//! The answer of `get_run`: a compact transcript with verdicts.

use std::collections::BTreeSet;

use gradus_core::trajectory::{Trajectory, TrajectoryStep};
use gradus_report::{format_count, format_counted_noun};

use crate::archive::{ArchiveError, RunArchive};
use crate::archived_run::ArchivedRun;
use crate::arguments::{GetRunArguments, non_empty_text};
use crate::bounded_response::BoundedResponse;
use crate::recorded_text::{TextWindow, quote_id, quote_name, quote_text};
use crate::verdict_text::{render_labels, render_verdicts};

/// Maximum characters of texts in the transcript of a whole run.
const MAX_REQUEST_CHARS: usize = 1_000;
const MAX_THOUGHT_CHARS: usize = 300;
const MAX_ARGUMENTS_CHARS: usize = 400;
const MAX_OBSERVATION_CHARS: usize = 400;
const MAX_REASON_CHARS: usize = 300;
/// Maximum characters of each text of a single step.
const MAX_LONG_CHARS: usize = 3_000;
const MAX_LONG_REASON_CHARS: usize = 600;
/// Maximum number of wrong steps listed in the head of a transcript; the rest is counted.
const MAX_LISTED_STEPS: usize = 40;

/// The step number of request and answer: steps are numbered from 1.
const REQUEST_AND_ANSWER: u32 = 0;

/// How much of each text of a step is shown.
#[derive(Clone, Copy)]
struct StepTextLimits {
    skip_chars: usize,
    thought: usize,
    arguments: usize,
    observation: usize,
    reason: usize,
}

const SHORT_TEXTS: StepTextLimits = StepTextLimits {
    skip_chars: 0,
    thought: MAX_THOUGHT_CHARS,
    arguments: MAX_ARGUMENTS_CHARS,
    observation: MAX_OBSERVATION_CHARS,
    reason: MAX_REASON_CHARS,
};

pub(crate) fn render_run(archive: &dyn RunArchive, arguments: &GetRunArguments) -> Result<String, ArchiveError> {
    let id = arguments.run.trim();
    if arguments.text_from.is_some() && arguments.step.is_none() {
        let reason = "give `step` too: it reads on in the texts of one step".to_owned();
        return Err(ArchiveError::BadArgument { argument: "text_from", reason });
    }
    let run = archive.load_run(non_empty_text(&arguments.evaluation).as_deref(), id)?;
    match arguments.step {
        Some(step) => render_single_step(&run, step, arguments.text_from.unwrap_or(0)),
        None => render_transcript(&run, arguments),
    }
}

/// A step, or the thought before the answer, which is numbered after the last step.
#[derive(Clone, Copy)]
enum TranscriptEntry<'t> {
    Step(&'t TrajectoryStep),
    FinalThought { index: u32, thought: &'t str },
}

impl TranscriptEntry<'_> {
    fn index(self) -> u32 {
        match self {
            TranscriptEntry::Step(step) => step.index,
            TranscriptEntry::FinalThought { index, .. } => index,
        }
    }
}

fn list_entries(trajectory: &Trajectory) -> Vec<TranscriptEntry<'_>> {
    let mut entries: Vec<TranscriptEntry<'_>> = trajectory.steps.iter().map(TranscriptEntry::Step).collect();
    let last = trajectory.final_thought_index().zip(trajectory.final_thought.as_deref());
    entries.extend(last.map(|(index, thought)| TranscriptEntry::FinalThought { index, thought }));
    entries
}

fn render_transcript(run: &ArchivedRun, arguments: &GetRunArguments) -> Result<String, ArchiveError> {
    let trajectory = &run.trajectory;
    let entries = list_entries(trajectory);
    let from_step = arguments.from_step.unwrap_or(0);
    let last = entries.last().map_or(0, |entry| entry.index());
    if from_step > 0 && from_step > last {
        let reason = format!("the run has {} steps", format_count(trajectory.steps.len() as u64));
        return Err(ArchiveError::BadArgument { argument: "from_step", reason });
    }
    let wrong_steps: BTreeSet<u32> = find_wrong_steps(run);
    let mut response = BoundedResponse::new();
    response.add_line(&format!("run {} of {}", quote_id(&trajectory.trajectory_id), run.origin));
    if from_step <= 1 {
        response.add_lines(&render_head(run, &wrong_steps));
    }
    let only_flagged = arguments.only_flagged.unwrap_or(false);
    let is_selected = |entry: &&TranscriptEntry<'_>| {
        entry.index() >= from_step && (!only_flagged || wrong_steps.contains(&entry.index()))
    };
    let selected: Vec<&TranscriptEntry<'_>> = entries.iter().filter(is_selected).collect();
    for entry in &selected {
        let text = format!("\n{}", render_entry(run, **entry, SHORT_TEXTS));
        if !response.try_add_item(&text) {
            let flagged = if only_flagged { ", only_flagged true" } else { "" };
            response.add_line(&format!("\nmore: get_run with from_step {}{flagged} and the same run", entry.index()));
            break;
        }
    }
    if only_flagged && selected.is_empty() {
        response.add_line("\nno step has a wrong verdict");
    }
    Ok(response.finish())
}

fn find_wrong_steps(run: &ArchivedRun) -> BTreeSet<u32> {
    run.verdicts.iter().filter(|verdict| verdict.is_wrong).filter_map(|verdict| verdict.line.step_index).collect()
}

/// Renders what concerns the whole run. It comes before the steps, since a long run does not fit into one answer.
fn render_head(run: &ArchivedRun, wrong_steps: &BTreeSet<u32>) -> String {
    let trajectory = &run.trajectory;
    let mut facts = Vec::new();
    facts.extend(trajectory.start.as_deref().map(quote_name));
    facts.extend(trajectory.project.as_deref().map(|name| format!("project {}", quote_name(name))));
    facts.extend(trajectory.agent.as_deref().map(|name| format!("agent {}", quote_name(name))));
    facts.extend(trajectory.agent_version.as_deref().map(|name| format!("version {}", quote_name(name))));
    facts.extend(trajectory.model.as_deref().map(|name| format!("model {}", quote_name(name))));
    facts.push(format_counted_noun(trajectory.steps.len() as u64, "step", "steps"));
    if trajectory.tokens.total() > 0 {
        facts.push(format!("{} tokens", format_count(trajectory.tokens.total())));
    }
    if trajectory.is_error {
        facts.push("ended in an error".to_owned());
    }
    let mut text = format!("{}\n", facts.join(", "));
    if let Some(trace) = trajectory.trace_ids.first() {
        text.push_str(&format!("trace {}\n", quote_id(trace)));
    }
    if !wrong_steps.is_empty() {
        let mut listed: Vec<String> = wrong_steps.iter().take(MAX_LISTED_STEPS).map(u32::to_string).collect();
        if wrong_steps.len() > MAX_LISTED_STEPS {
            listed.push(format!("and {} more", format_count((wrong_steps.len() - MAX_LISTED_STEPS) as u64)));
        }
        text.push_str(&format!("steps with a wrong verdict: {}\n", listed.join(", ")));
    }
    text.push_str(&render_request_and_answer(trajectory, TextWindow::first(MAX_REQUEST_CHARS)));
    let whole = render_verdicts(&run.verdicts, None, MAX_REASON_CHARS) + &render_labels(&run.labels, None);
    if !whole.is_empty() {
        text.push_str(&format!("\nverdicts on the whole run\n{whole}"));
    }
    for defect in trajectory.defects.iter().take(5) {
        text.push_str(&format!("defect of the recording: {}\n", defect.kind.name()));
    }
    text
}

/// Renders the request and the answer. A text that ends before the window is left out.
fn render_request_and_answer(trajectory: &Trajectory, window: TextWindow) -> String {
    let mut text = String::new();
    for (title, recorded) in [("request", &trajectory.query), ("answer", &trajectory.final_answer)] {
        match recorded {
            Some(recorded) => {
                text.push_str(&format!("\n{}", render_step_text(title, recorded, window, REQUEST_AND_ANSWER)))
            }
            None => text.push_str(&format!("\nno {title}\n")),
        }
    }
    text
}

fn render_single_step(run: &ArchivedRun, step: u32, skip_chars: usize) -> Result<String, ArchiveError> {
    let mut response = BoundedResponse::new();
    response.add_line(&format!("run {} of {}", quote_id(&run.trajectory.trajectory_id), run.origin));
    if step == REQUEST_AND_ANSWER {
        response.add_lines(&render_request_and_answer(
            &run.trajectory,
            TextWindow { skip_chars, max_chars: MAX_LONG_CHARS },
        ));
        return Ok(response.finish());
    }
    let entries = list_entries(&run.trajectory);
    let Some(entry) = entries.iter().find(|entry| entry.index() == step) else {
        let reason = format!("the run has {} steps", format_count(run.trajectory.steps.len() as u64));
        return Err(ArchiveError::BadArgument { argument: "step", reason });
    };
    let limits = StepTextLimits {
        skip_chars,
        thought: MAX_LONG_CHARS,
        arguments: MAX_LONG_CHARS,
        observation: MAX_LONG_CHARS,
        reason: MAX_LONG_REASON_CHARS,
    };
    response.add_lines(&render_entry(run, *entry, limits));
    Ok(response.finish())
}

fn render_entry(run: &ArchivedRun, entry: TranscriptEntry<'_>, limits: StepTextLimits) -> String {
    let index = entry.index();
    let part = |title: &str, text: &str, max_chars: usize| {
        render_step_text(title, text, TextWindow { skip_chars: limits.skip_chars, max_chars }, index)
    };
    let mut text = String::new();
    match entry {
        TranscriptEntry::FinalThought { thought, .. } => {
            text.push_str(&format!("step {index}, the thought before the answer\n"));
            text.push_str(&part("thought", thought, limits.thought));
        }
        TranscriptEntry::Step(step) => {
            text.push_str(&format!("step {index}: {}{}\n", quote_name(&step.tool), describe_step(step)));
            if let Some(thought) = step.thought.as_deref().filter(|thought| !thought.trim().is_empty()) {
                text.push_str(&part("thought", thought, limits.thought));
            }
            if let Some(arguments) = step.arguments_text() {
                text.push_str(&part("arguments", &arguments, limits.arguments));
            }
            match &step.observation {
                Some(observation) => text.push_str(&part("observation", observation, limits.observation)),
                None => text.push_str("no observation\n"),
            }
        }
    }
    text.push_str(&render_verdicts(&run.verdicts, Some(index), limits.reason));
    text.push_str(&render_labels(&run.labels, Some(index)));
    text
}

/// Describes what is unusual about a step, such as an error.
fn describe_step(step: &TrajectoryStep) -> String {
    let mut facts = Vec::new();
    if step.is_error {
        facts.push("failed".to_owned());
    }
    if step.is_denied {
        facts.push("denied".to_owned());
    }
    if step.parallel_with_previous {
        facts.push("in the same reply as the step before".to_owned());
    }
    facts.extend(step.agent.as_deref().map(|agent| format!("agent {}", quote_name(agent))));
    if facts.is_empty() { String::new() } else { format!(" ({})", facts.join(", ")) }
}

/// Renders one text of a step. A text that ends before the window is left out; one that continues says how to read
/// on.
fn render_step_text(title: &str, text: &str, window: TextWindow, step: u32) -> String {
    let block = quote_text(text, window);
    if window.skip_chars > 0 && window.skip_chars >= block.total_chars {
        return String::new();
    }
    let (shown, total) = (format_count(block.shown_chars as u64), format_count(block.total_chars as u64));
    let cut = match block.is_cut() {
        true => format!(" (cut at {shown} of {total} characters; more: step {step}, text_from {})", block.shown_chars),
        false => String::new(),
    };
    format!("{title}{cut}\n{}", block.lines)
}
