//! Each flaw plants what it says, by seed, and says which rubrics must notice it.

use std::collections::BTreeSet;

use gradus_core::raw_json::RawJson;
use gradus_core::trajectory::{ToolDefinition, Trajectory, TrajectoryStep};
use serde_json::{Value, json};

use super::*;
use crate::right_run::{RunForm, RunMaterial};
use crate::run_text::occurs_anywhere;

fn tool(name: &str, required: &[&str]) -> ToolDefinition {
    let properties: serde_json::Map<String, Value> =
        required.iter().map(|name| ((*name).to_owned(), json!({"type": "string"}))).collect();
    let schema = json!({"type": "object", "properties": properties, "required": required});
    ToolDefinition {
        name: name.to_owned(),
        description: Some(format!("Does {name}.")),
        schema: RawJson::parse_object(&schema.to_string()),
    }
}

fn tools() -> Vec<ToolDefinition> {
    vec![
        tool("get_issue", &["repo", "number"]),
        tool("list_issues", &["repo"]),
        tool("close_issue", &["repo", "number"]),
        tool("list_labels", &["repo"]),
        tool("rename_label", &["repo", "name", "new_name"]),
        tool("delete_label", &["repo", "name"]),
        tool("list_milestones", &["repo"]),
        tool("read_file", &["repo", "path"]),
        tool("update_file", &["repo", "path"]),
    ]
}

fn run(task: &str, query: &str, steps: &[(&str, &str, Value, &str)], answer: &str) -> RightRun {
    let steps = steps.iter().map(|(thought, tool, arguments, observation)| TrajectoryStep {
        thought: Some((*thought).to_owned()),
        tool: (*tool).to_owned(),
        arguments: Some(arguments.clone()),
        observation: Some((*observation).to_owned()),
        ..TrajectoryStep::default()
    });
    let trajectory = Trajectory {
        query: Some(query.to_owned()),
        steps: steps.collect(),
        final_thought: Some("I can answer now.".to_owned()),
        final_answer: Some(answer.to_owned()),
        tools: tools().into(),
        ..Trajectory::default()
    };
    RightRun::new(trajectory, task, RunMaterial::Own, RunForm::React)
}

pub(crate) fn example_runs() -> Vec<RightRun> {
    let with_thoughts = [
        run(
            "close",
            "Close the issue of acme-shop about the login page.",
            &[
                (
                    "I list the issues of acme-shop to find its number.",
                    "list_issues",
                    json!({"repo": "acme-shop"}),
                    "[{\"number\": 41, \"title\": \"Login page\"}, {\"number\": 52, \"title\": \"Cart\"}]",
                ),
                (
                    "It is 41. I close issue 41 of acme-shop.",
                    "close_issue",
                    json!({"repo": "acme-shop", "number": 41}),
                    "{\"number\": 41, \"state\": \"closed\"}",
                ),
            ],
            "Issue 41 is closed.",
        ),
        run(
            "rename",
            "Rename the label defect of web-app to bug, and say so in its file NOTES.",
            &[
                (
                    "The label defect of web-app becomes bug.",
                    "rename_label",
                    json!({"repo": "web-app", "name": "defect", "new_name": "bug"}),
                    "{\"name\": \"bug\"}",
                ),
                (
                    "The file NOTES of web-app gets a line about it.",
                    "update_file",
                    json!({"repo": "web-app", "path": "NOTES"}),
                    "{\"path\": \"NOTES\"}",
                ),
            ],
            "The label is called bug now, and NOTES says so.",
        ),
        run(
            "version",
            "Which version does setup.cfg of data-tool state?",
            &[(
                "I read the file setup.cfg of data-tool.",
                "read_file",
                json!({"repo": "data-tool", "path": "setup.cfg"}),
                "[metadata]\nversion = 3.14.2",
            )],
            "setup.cfg states version 3.14.2.",
        ),
        run(
            "milestones",
            "Which milestones does big-game have?",
            &[(
                "I list the milestones of big-game to see which there are.",
                "list_milestones",
                json!({"repo": "big-game"}),
                "[\"alpha\", \"beta\"]",
            )],
            "There are two: alpha and beta.",
        ),
    ];
    with_thoughts.iter().cloned().chain(with_thoughts.iter().map(RightRun::without_thoughts)).collect()
}

/// All runs that a flaw can be planted into, with several seeds.
fn plant_everywhere(flaw: PlantedFlaw) -> Vec<FlawedRun> {
    let runs = example_runs();
    let seeds = 0..12;
    let planted = seeds.flat_map(|seed| runs.iter().map(move |run| (seed, run)));
    planted.filter_map(|(seed, run)| plant_flaw(flaw, run, &runs, seed, 0)).collect()
}

/// The only step that differs, of two runs of the same length.
fn changed_step(run: &FlawedRun) -> (&TrajectoryStep, &TrajectoryStep) {
    let pairs = run.trajectory.steps.iter().zip(&run.original.steps);
    let changed: Vec<_> = pairs.filter(|(one, other)| one != other).collect();
    assert_eq!((changed.len(), run.trajectory.steps.len()), (1, run.original.steps.len()), "{}", run.note);
    assert_eq!(Some(changed[0].0.index), run.step, "{}", run.note);
    changed[0]
}

#[test]
fn every_flaw_can_be_planted_and_keeps_its_promises() {
    for flaw in PlantedFlaw::ALL {
        let planted = plant_everywhere(flaw);
        assert!(planted.len() >= 6, "{}: {}", flaw.name(), planted.len());
        let noticed: BTreeSet<&str> = planted.iter().flat_map(|run| &run.expectations).map(|one| one.rubric).collect();
        let promised: BTreeSet<&str> = flaw.rubrics().iter().copied().collect();
        assert_eq!(noticed, promised, "{}", flaw.name());
        for run in &planted {
            assert_ne!(run.trajectory.trajectory_id, run.original.trajectory_id);
            assert_eq!(run.sources.len(), run.trajectory.steps.len());
            assert!(run.trajectory.steps.iter().map(|step| step.index).eq(1..=run.trajectory.steps.len() as u32));
            assert!(!run.note.is_empty());
        }
        let notes: BTreeSet<&str> = planted.iter().map(|run| run.note.as_str()).collect();
        assert!(notes.len() > 1, "{}: seeds choose places and wordings", flaw.name());
        assert_eq!(PlantedFlaw::from_name(flaw.name()), Some(flaw));
    }
}

#[test]
fn the_same_seed_plants_the_same() {
    let runs = example_runs();
    for flaw in PlantedFlaw::ALL {
        let ids = |seed| -> Vec<Option<String>> {
            let plant = |run| plant_flaw(flaw, run, &runs, seed, 1).map(|run| run.trajectory.trajectory_id);
            runs.iter().map(plant).collect()
        };
        assert_eq!(ids(3), ids(3), "{}", flaw.name());
        assert!((4..20).any(|seed| ids(seed) != ids(3)), "{}", flaw.name());
    }
}

#[test]
fn every_built_in_rubric_has_flaws_and_an_original_without() {
    for rubric in gradus_eval::rubric::RubricLibrary::built_in().iter() {
        assert!(!PlantedFlaw::list_for_rubric(&rubric.name).is_empty(), "{}", rubric.name);
    }
    for name in ["argument_provenance", "error_recovery"] {
        assert!(!PlantedFlaw::list_for_rubric(name).is_empty(), "{name}");
    }
}

#[test]
fn tools_are_replaced_by_other_tools() {
    for flaw in [PlantedFlaw::WrongTool, PlantedFlaw::NeighbouringTool] {
        for run in plant_everywhere(flaw) {
            let (changed, right) = changed_step(&run);
            assert_ne!(changed.tool, right.tool);
            assert_eq!(changed.thought, right.thought);
            assert!(tools().iter().any(|tool| tool.name == changed.tool), "{}", changed.tool);
        }
    }
    // Reading the same thing in another way is no mistake, and a look before a change is none for the request.
    let neighbours = plant_everywhere(PlantedFlaw::NeighbouringTool);
    let is_pair = |run: &FlawedRun, one: &str, other: &str| run.note.contains(&format!("{one} instead of {other}"));
    assert!(!neighbours.iter().any(|run| is_pair(run, "get_issue", "list_issues")));
    let careful: Vec<&FlawedRun> = neighbours.iter().filter(|run| is_pair(run, "get_issue", "close_issue")).collect();
    assert!(!careful.is_empty());
    assert!(careful.iter().all(|run| run.expectations.iter().all(|one| one.rubric != "request_to_tool")));
}

#[test]
fn arguments_are_swapped_corrupted_and_invented() {
    for run in plant_everywhere(PlantedFlaw::SwappedArgument) {
        let (changed, right) = changed_step(&run);
        let values = |step: &TrajectoryStep| -> BTreeSet<String> {
            step.arguments.iter().filter_map(Value::as_object).flatten().map(|(_, value)| value.to_string()).collect()
        };
        assert_eq!(values(changed), values(right), "the same values in other places: {}", run.note);
        assert_ne!(changed.arguments, right.arguments);
    }
    for flaw in [PlantedFlaw::CorruptedArgument, PlantedFlaw::InventedId] {
        for run in plant_everywhere(flaw) {
            let (changed, right) = changed_step(&run);
            let (changed, right) = (changed.arguments.as_ref(), right.arguments.as_ref());
            let pairs = changed.and_then(Value::as_object).into_iter().flatten();
            let new: Vec<&Value> = pairs
                .filter(|(name, value)| right.and_then(|all| all.get(*name)) != Some(*value))
                .map(|one| one.1)
                .collect();
            assert_eq!(new.len(), 1, "{}", run.note);
            let text = new[0].as_str().map_or_else(|| new[0].to_string(), str::to_owned);
            assert!(!occurs_anywhere(&run.original, &text), "{text} stands in the right run");
        }
    }
}

#[test]
fn steps_are_left_out_repeated_and_added() {
    for run in plant_everywhere(PlantedFlaw::MissingStep) {
        assert_eq!(run.trajectory.steps.len() + 1, run.original.steps.len());
        assert_eq!(run.trajectory.final_answer, run.original.final_answer);
    }
    for run in plant_everywhere(PlantedFlaw::RepeatedStep) {
        let at = run.step.expect("a step") as usize - 1;
        let (first, again) = (&run.trajectory.steps[at - 1], &run.trajectory.steps[at]);
        assert_eq!(
            (&first.tool, &first.arguments, &first.observation),
            (&again.tool, &again.arguments, &again.observation)
        );
        assert!(first.tool.starts_with("list") || first.tool.starts_with("read"), "{}", first.tool);
    }
    for run in plant_everywhere(PlantedFlaw::NeedlessStep) {
        let added = &run.trajectory.steps[run.step.expect("a step") as usize - 1];
        assert!(run.original.steps.iter().all(|step| step.tool != added.tool));
        assert_eq!(added.thought.is_some(), run.form == RunForm::React);
    }
}

#[test]
fn thoughts_contradict_their_call() {
    let planted = plant_everywhere(PlantedFlaw::ContradictingThought);
    for run in &planted {
        let (changed, right) = changed_step(run);
        assert_ne!(changed.thought, right.thought);
        assert_eq!((&changed.tool, &changed.arguments), (&right.tool, &right.arguments));
        assert_eq!(run.form, RunForm::React, "a run without thoughts has none to contradict");
    }
    for variant in ["another action", "instead of", "claims to be done", "another task"] {
        assert!(planted.iter().any(|run| run.note.contains(variant)), "{variant}");
    }
}

#[test]
fn an_error_is_ignored_where_the_original_recovers() {
    for run in plant_everywhere(PlantedFlaw::IgnoredError) {
        let failed = |trajectory: &Trajectory| trajectory.steps.iter().filter(|step| step.is_error).count();
        assert_eq!((failed(&run.trajectory), failed(&run.original)), (1, 1));
        let at = run.original_step.expect("a step") as usize - 1;
        let (attempt, again) = (&run.original.steps[at - 1], &run.original.steps[at]);
        assert!(attempt.is_error && !again.is_error && attempt.tool == again.tool);
        assert_eq!(run.trajectory.final_answer, run.original.final_answer);
        assert!(matches!(run.sources[run.step.expect("a step") as usize - 1], StepSource::Failed(_)));
    }
}

#[test]
fn answers_come_early_or_claim_too_much() {
    for run in plant_everywhere(PlantedFlaw::PrematureAnswer) {
        assert!(run.trajectory.steps.len() < run.original.steps.len());
        let announced = run.trajectory.final_thought_index();
        assert_eq!(announced, run.step, "the thought before the answer announces a call: {}", run.note);
    }
    let claims = plant_everywhere(PlantedFlaw::UnsupportedClaim);
    for run in &claims {
        assert_eq!(run.trajectory.steps, run.original.steps);
        assert_ne!(run.trajectory.final_answer, run.original.final_answer);
    }
    assert!(claims.iter().any(|run| run.note.contains("3.14.2")) && claims.iter().any(|run| run.note.contains("two")));
}

#[test]
fn rules_constraints_and_plans_are_shared_and_broken_once() {
    for run in plant_everywhere(PlantedFlaw::PolicyViolation) {
        assert_eq!(run.trajectory.system_prompt, run.original.system_prompt);
        assert!(run.trajectory.system_prompt.is_some());
        assert!(run.trajectory.steps != run.original.steps || run.trajectory.final_answer != run.original.final_answer);
    }
    for run in plant_everywhere(PlantedFlaw::ConstraintViolation) {
        assert_eq!(
            (&run.trajectory.query, &run.trajectory.system_prompt),
            (&run.original.query, &run.original.system_prompt)
        );
        if let Some(count) = run.note.split("more than ").nth(1).and_then(|text| text.split(' ').next()) {
            let most: usize = count.parse().expect("a number");
            let words = |run: &Trajectory| run.final_answer.as_deref().unwrap_or_default().split_whitespace().count();
            assert!(words(&run.original) <= most && words(&run.trajectory) > most);
        }
    }
    for run in plant_everywhere(PlantedFlaw::AbandonedPlan) {
        let plan = |run: &Trajectory| run.steps[0].thought.clone().unwrap_or_default();
        assert_eq!(plan(&run.trajectory), plan(&run.original));
        assert!(plan(&run.original).contains("(1)") && plan(&run.original).contains("(2)"));
        assert_ne!(run.trajectory.steps.len(), run.original.steps.len());
    }
}

#[test]
fn a_replay_tells_harmless_flaws() {
    let first = |flaw| plant_everywhere(flaw).into_iter().find(|run| run.step.is_some()).expect("planted");
    let replay = |is_solved, needless: &[u32]| ReplayResult { is_solved, needless_steps: needless.to_vec() };
    let call = first(PlantedFlaw::CorruptedArgument);
    let step = call.step.expect("a step");
    assert!(call.explain_harmless(&replay(true, &[])).is_some(), "needed for a solved task");
    assert!(
        call.explain_harmless(&replay(true, &[step])).is_none() && call.explain_harmless(&replay(false, &[])).is_none()
    );
    let repeated = first(PlantedFlaw::RepeatedStep);
    let step = repeated.step.expect("a step");
    assert!(repeated.explain_harmless(&replay(true, &[])).is_some());
    assert!(repeated.explain_harmless(&replay(true, &[step - 1])).is_none(), "either of the two");
    let missing = &plant_everywhere(PlantedFlaw::MissingStep)[0];
    assert!(
        missing.explain_harmless(&replay(true, &[])).is_some()
            && missing.explain_harmless(&replay(false, &[])).is_none()
    );
}
