//! What a judge gets to read, attacks included.

use std::sync::Arc;

use gradus_core::trajectory::{ToolDefinition, Trajectory, TrajectoryStep};

use super::*;
use crate::rubric::RubricLibrary;

fn trajectory() -> Trajectory {
    let step = |index: u32, tool: &str| TrajectoryStep {
        index,
        thought: Some(format!("thought {index}")),
        tool: tool.to_owned(),
        arguments: Some(serde_json::json!({"path": format!("{{thought}} {index}")})),
        observation: Some("seen".to_owned()),
        ..TrajectoryStep::default()
    };
    Trajectory {
        query: Some("What is in {tool_call}?".to_owned()),
        steps: vec![step(1, "list"), step(2, "read")],
        tools: vec![ToolDefinition { name: "read".to_owned(), description: Some("Reads.".to_owned()), schema: None }]
            .into(),
        ..Trajectory::default()
    }
}

fn prompt(rubric: &str, trajectory: &Trajectory, window: PromptWindow) -> JudgePrompt {
    let library = RubricLibrary::built_in();
    let rubric = library.find(rubric).expect("built in");
    let tools = ToolTexts::default().get_or_render(&trajectory.tools);
    let step = (rubric.subject == RubricSubject::Step).then_some(trajectory.steps.len() - 1);
    PromptRenderer::new(rubric, &tools, window).render(&EvaluationCase { trajectory, step, tools: &tools })
}

const WIDE: PromptWindow = PromptWindow { bytes: 300_000 };

#[test]
fn braces_in_data_are_not_read_again() {
    let prompt = prompt("thought_to_tool", &trajectory(), WIDE);
    assert!(prompt.user.contains("What is in {tool_call}?"));
    assert!(prompt.user.contains("{\"path\":\"{thought} 2\"}"));
}

#[test]
fn the_constant_part_comes_first_and_is_the_same_for_all_cases() {
    let one = trajectory();
    let mut other = trajectory();
    other.query = Some("Something else".to_owned());
    let (one, other) = (prompt("thought_to_tool", &one, WIDE), prompt("thought_to_tool", &other, WIDE));
    assert_eq!(one.system, other.system);
    assert!(
        one.system.contains("tool 1:\nname:\n> read\ndescription:\n> Reads."),
        "the tools belong to the constant part"
    );
    assert_ne!(one.user, other.user);
}

#[test]
fn a_window_is_kept_and_what_was_left_out_is_told() {
    let mut long = trajectory();
    for (number, step) in long.steps.iter_mut().enumerate() {
        step.thought = Some(format!("{number} {}", "long ".repeat(40_000)));
    }
    for rubric in ["thought_to_tool", "query_to_thought", "sequence_optimality"] {
        let window = PromptWindow { bytes: 20_000 };
        let prompt = prompt(rubric, &long, window);
        let size = prompt.system.len() + prompt.user.len();
        assert!(size <= window.bytes, "{rubric}: {size}");
        assert!(prompt.user.contains("left out by gradus"), "{rubric}");
        assert!(prompt.shortened.iter().any(|cut| cut.total_bytes > 100_000), "{rubric}: {:?}", prompt.shortened);
    }
    let whole = prompt("sequence_optimality", &trajectory(), WIDE);
    assert!(whole.shortened.is_empty());
}

#[test]
fn says_why_a_question_does_not_arise() {
    let library = RubricLibrary::built_in();
    let mut trajectory = trajectory();
    trajectory.steps[0].thought = Some("  ".to_owned());
    trajectory.query = None;
    let tools = ToolTexts::default().get_or_render(&Arc::from([]));
    let why = |name: &str, step| {
        let rubric = library.find(name).expect("built in");
        explain_not_applicable(rubric, &EvaluationCase { trajectory: &trajectory, step, tools: &tools })
    };
    assert_eq!(why("thought_to_tool", Some(0)).as_deref(), Some("the step has no thought"));
    assert_eq!(why("thought_to_tool", Some(1)), None);
    let no_request = Some("the user's request is not in the trace");
    assert_eq!(why("query_to_thought", Some(1)).as_deref(), no_request);
    assert_eq!(why("sequence_optimality", None).as_deref(), no_request);
}
