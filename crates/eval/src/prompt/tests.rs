//! What a judge gets to read, attacks included.

use std::sync::Arc;

use gradus_core::trajectory::{EarlierTurn, ToolDefinition, Trajectory, TrajectoryStep};

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
    let case = EvaluationCase { trajectory, step, tools: &tools };
    CachedPromptRenderer::new(rubric, &case, window).render(&case)
}

/// The second turn of a conversation with standing instructions and a thought before the answer.
fn later_turn() -> Trajectory {
    let first = EarlierTurn {
        query: Some("Who are you?".to_owned()),
        answer: Some("A bot.".to_owned()),
        ..EarlierTurn::default()
    };
    Trajectory {
        system_prompt: Some("Be brief.".into()),
        earlier_turns: vec![Arc::new(first)],
        turn_index: Some(2),
        final_thought: Some("I know enough.".to_owned()),
        final_answer: Some("A file.".to_owned()),
        ..trajectory()
    }
}

/// The prompt of one row; the number of steps is the final thought.
fn row_prompt(rubric: &str, trajectory: &Trajectory, step: usize) -> JudgePrompt {
    let library = RubricLibrary::built_in();
    let tools = ToolTexts::default().get_or_render(&trajectory.tools);
    let case = EvaluationCase { trajectory, step: Some(step), tools: &tools };
    CachedPromptRenderer::new(library.find(rubric).expect("built in"), &case, WIDE).render(&case)
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

#[test]
fn the_conversation_and_the_system_prompt_reach_the_judge() {
    let turn = later_turn();
    let prompt = row_prompt("query_to_thought", &turn, 0);
    assert!(prompt.system.contains("> Be brief."), "the system prompt belongs to the constant part");
    assert!(prompt.user.contains("turn 1:\nrequest:\n> Who are you?\nanswer:\n> A bot."), "{}", prompt.user);
    assert!(prompt.user.contains("(nothing in this turn)") && !prompt.user.contains("first step"));
    let first = row_prompt("query_to_thought", &trajectory(), 0);
    assert!(first.system.contains("(none recorded)") && first.user.contains("(nothing: this is the first turn)"));
    assert!(first.user.contains("(nothing: this is the first step)"));
}

#[test]
fn the_final_thought_is_a_row_without_a_tool() {
    let turn = later_turn();
    let prompt = row_prompt("thought_to_tool", &turn, turn.steps.len());
    assert!(prompt.user.contains("> I know enough.") && prompt.user.contains("\n(No tool used)\n"), "{}", prompt.user);
    let prompt = row_prompt("query_to_thought", &turn, turn.steps.len());
    assert!(prompt.user.contains("step 2:\nthought:\n> thought 2"), "all steps came before: {}", prompt.user);
    let prompt = row_prompt("misread_observation", &turn, 1);
    assert!(prompt.user.contains("tool: (No tool used)\nanswer:\n> A file."), "{}", prompt.user);
}

/// Questions about one trajectory are equal up to the first thing that differs, which comes behind what they share.
#[test]
fn steps_of_a_trajectory_share_their_beginning() {
    let turn = later_turn();
    let [one, other] = [0, 1].map(|step| row_prompt("request_to_tool", &turn, step));
    assert_eq!(one.system, other.system);
    let request = one.user.find("What the agent had done").expect("the heading behind the request");
    assert!(one.user[..request].contains("> What is in {tool_call}?"));
    assert_eq!(one.user[..request], other.user[..request]);
}

#[test]
fn a_run_without_calls_is_judged_by_its_answer() {
    let library = RubricLibrary::built_in();
    let silent = Trajectory { steps: Vec::new(), ..later_turn() };
    let tools = ToolTexts::default().get_or_render(&silent.tools);
    let why = |name: &str, trajectory: &Trajectory| {
        let case = EvaluationCase { trajectory, step: None, tools: &tools };
        explain_not_applicable(library.find(name).expect("built in"), &case)
    };
    assert_eq!(why("task_completion", &silent), None);
    assert_eq!(why("sequence_optimality", &silent).as_deref(), Some("the agent called no tool"));
    let no_prompt = Trajectory { system_prompt: None, ..later_turn() };
    assert_eq!(why("policy", &no_prompt).as_deref(), Some("the system prompt is not in the trace"));
    assert_eq!(why("recovery_quality", &later_turn()).as_deref(), Some("no call failed"));
}
