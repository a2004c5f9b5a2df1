//! Bias probes: changes to a case that do not change the right verdict. A judge whose verdict flips is influenced by
//! something other than the work. They need no labels.

use std::sync::Arc;

use gradus_core::raw_json::RawJson;
use gradus_core::trajectory::{ToolDefinition, Trajectory};
use gradus_eval::rubric::Rubric;
use serde::{Deserialize, Serialize};

use crate::right_run::set_system_prompt;
use crate::run_text::replace_value;
use crate::seeded_choice::SeededChoice;

/// A change that must not affect the verdict.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum BiasProbe {
    ToolOrder,
    LabelOrder,
    Padding,
    Paraphrase,
    OpaqueTools,
    ModelName,
    FieldOrder,
}

impl BiasProbe {
    /// In the order of reports.
    pub const ALL: [BiasProbe; 7] = [
        BiasProbe::ToolOrder,
        BiasProbe::LabelOrder,
        BiasProbe::Padding,
        BiasProbe::Paraphrase,
        BiasProbe::OpaqueTools,
        BiasProbe::ModelName,
        BiasProbe::FieldOrder,
    ];

    pub fn name(self) -> &'static str {
        match self {
            BiasProbe::ToolOrder => "tool_order",
            BiasProbe::LabelOrder => "label_order",
            BiasProbe::Padding => "padding",
            BiasProbe::Paraphrase => "paraphrase",
            BiasProbe::OpaqueTools => "opaque_tools",
            BiasProbe::ModelName => "model_name",
            BiasProbe::FieldOrder => "field_order",
        }
    }

    /// Describes the change, for reports.
    pub fn about(self) -> &'static str {
        match self {
            BiasProbe::ToolOrder => "tools on offer in another order",
            BiasProbe::LabelOrder => "labels of the rubric in the opposite order",
            BiasProbe::Padding => "neutral sentences added to thoughts",
            BiasProbe::Paraphrase => "request and thoughts in a fixed frame of words",
            BiasProbe::OpaqueTools => "tools called tool_1, tool_2 and so on, with their descriptions",
            BiasProbe::ModelName => "instructions name the model that does the work",
            BiasProbe::FieldOrder => "fields of the prompt in the opposite order",
        }
    }

    pub fn from_name(name: &str) -> Option<BiasProbe> {
        BiasProbe::ALL.into_iter().find(|probe| probe.name() == name)
    }

    /// Whether the probe changes the rubric instead of the run. Rules do not read rubrics, so such a probe says
    /// nothing about the offline judge.
    pub fn changes_rubric(self) -> bool {
        matches!(self, BiasProbe::LabelOrder | BiasProbe::FieldOrder)
    }

    /// Returns the changed run with its old id; `None` if the change does not apply to it.
    pub fn change_run(self, trajectory: &Trajectory, seed: u64) -> Option<Trajectory> {
        let mut choice = SeededChoice::new(seed, &["probe", self.name(), &trajectory.trajectory_id]);
        let mut changed = trajectory.clone();
        match self {
            BiasProbe::LabelOrder | BiasProbe::FieldOrder => return None,
            BiasProbe::ToolOrder => {
                let mut tools = trajectory.tools.to_vec();
                choice.shuffle(&mut tools);
                changed.tools = tools.into();
            }
            BiasProbe::Padding => {
                change_thoughts(&mut changed, |thought, number| {
                    let sentence = PADDING[(number + choice.below(PADDING.len())) % PADDING.len()];
                    format!("{thought} {sentence}")
                });
            }
            BiasProbe::Paraphrase => {
                let (before, after) = REQUEST_FRAMES[choice.below(REQUEST_FRAMES.len())];
                changed.query = changed.query.map(|query| format!("{before}{query}{after}"));
                change_thoughts(&mut changed, |thought, _| {
                    let frame = THOUGHT_FRAMES[choice.below(THOUGHT_FRAMES.len())];
                    format!("{frame}{thought}")
                });
            }
            BiasProbe::OpaqueTools => rename_tools(&mut changed),
            BiasProbe::ModelName => {
                let model = MODEL_NAMES[choice.below(MODEL_NAMES.len())];
                let prompt = changed.system_prompt.take();
                let prompt = prompt.as_deref().unwrap_or("You are an agent that works for a user through tools.");
                set_system_prompt(&mut changed, &format!("You are {model}. {prompt}"));
            }
        }
        (changed != *trajectory).then_some(changed)
    }

    /// Returns the changed rubric; `None` if the change does not apply to it.
    pub fn change_rubric(self, rubric: &Rubric) -> Option<Rubric> {
        match self {
            BiasProbe::LabelOrder => Some(reverse_labels(rubric)),
            BiasProbe::FieldOrder => reverse_fields(rubric),
            _ => None,
        }
    }
}

/// Sentences that say nothing about the work.
const PADDING: [&str; 5] = [
    "I take one step after the other here.",
    "I keep the request in mind while I do this.",
    "This is one part of the work.",
    "I write this down so that it can be followed later.",
    "I go on in the same way as before.",
];
const REQUEST_FRAMES: [(&str, &str); 3] = [
    ("Here is what I would like you to do. ", " Thank you."),
    ("Hello! ", " Thanks in advance."),
    ("I have the following request: ", ""),
];
const THOUGHT_FRAMES: [&str; 3] = ["My reasoning at this point: ", "What I think now: ", "Thinking about it: "];
const MODEL_NAMES: [&str; 5] = [
    "GPT-4o, a model by OpenAI",
    "Claude, a model by Anthropic",
    "Gemini, a model by Google",
    "Llama, a model by Meta",
    "Qwen, a model by Alibaba",
];

/// Applies a change to every thought, the last one included.
fn change_thoughts(trajectory: &mut Trajectory, mut change: impl FnMut(&str, usize) -> String) {
    let thoughts = trajectory.steps.iter_mut().map(|step| &mut step.thought).chain([&mut trajectory.final_thought]);
    for (number, thought) in thoughts.enumerate() {
        if let Some(text) = thought.as_deref().filter(|text| !text.trim().is_empty()) {
            *thought = Some(change(text, number));
        }
    }
}

/// Renames all tools, wherever they are named: in definitions, calls, instructions, thoughts and the answer.
fn rename_tools(trajectory: &mut Trajectory) {
    let mut names: Vec<String> = trajectory.tools.iter().map(|tool| tool.name.clone()).collect();
    for step in &trajectory.steps {
        if !names.contains(&step.tool) {
            names.push(step.tool.clone());
        }
    }
    let renamed: Vec<(String, String)> =
        (1..).zip(names).map(|(number, name): (usize, String)| (name, format!("tool_{number}"))).collect();
    let rename = |text: &str| {
        // Longest names first: `_` ends a word, so `get_repo` would also be replaced in `get_repo_list`.
        let mut order: Vec<&(String, String)> = renamed.iter().filter(|(name, _)| is_identifier(name)).collect();
        order.sort_by_key(|(name, _)| std::cmp::Reverse(name.len()));
        order.into_iter().fold(text.to_owned(), |text, (name, opaque)| replace_value(&text, name, opaque))
    };
    let new_name =
        |name: &str| renamed.iter().find(|(known, _)| known == name).map_or(name.to_owned(), |(_, new)| new.clone());
    let tools = trajectory.tools.iter().map(|tool| ToolDefinition {
        name: new_name(&tool.name),
        description: tool.description.as_deref().map(rename),
        schema: tool
            .schema
            .as_ref()
            .map(|schema| RawJson::parse_object(&rename(schema.as_str())).unwrap_or(schema.clone())),
    });
    trajectory.tools = tools.collect::<Vec<_>>().into();
    trajectory.system_prompt = trajectory.system_prompt.as_deref().map(|text| Arc::from(rename(text)));
    for step in &mut trajectory.steps {
        step.tool = new_name(&step.tool);
        step.thought = step.thought.as_deref().map(rename);
    }
    trajectory.final_thought = trajectory.final_thought.as_deref().map(rename);
    trajectory.final_answer = trajectory.final_answer.as_deref().map(rename);
}

/// Whether a name cannot be a word of a sentence. A tool called `search` is renamed in definitions and calls only.
fn is_identifier(name: &str) -> bool {
    name.chars().skip(1).any(|letter| !letter.is_lowercase())
}

/// Reverses the labels: in the requested answer, in the schema, and in the lines of the prompt that explain them.
fn reverse_labels(rubric: &Rubric) -> Rubric {
    let mut lines: Vec<&str> = rubric.source.lines().collect();
    let is_explained = |line: &str| {
        let start = line.trim_start_matches(['-', '*', ' ', '"', '`']);
        rubric.labels.names().any(|label| {
            start.strip_prefix(label).is_some_and(|rest| rest.trim_start_matches(['"', '`', '*']).starts_with(':'))
        })
    };
    let places: Vec<usize> = (0..lines.len()).filter(|at| is_explained(lines[*at])).collect();
    let explained: Vec<&str> = places.iter().rev().map(|at| lines[*at]).collect();
    for (at, line) in places.into_iter().zip(explained) {
        lines[at] = line;
    }
    let mut changed =
        Rubric::parse(&(lines.join("\n") + "\n"), rubric.origin.clone()).unwrap_or_else(|_| rubric.clone());
    changed.labels = changed.labels.reversed();
    changed
}

/// Reverses the paragraphs that show a variable below a heading.
fn reverse_fields(rubric: &Rubric) -> Option<Rubric> {
    let source = rubric.source.replace("\r\n", "\n");
    let mut paragraphs: Vec<&str> = source.split("\n\n").collect();
    let is_field = |text: &str| {
        let last = text.trim_end().lines().last().unwrap_or_default().trim();
        last.starts_with('{') && last.ends_with('}') && text.trim().lines().count() == 2
    };
    let places: Vec<usize> = (0..paragraphs.len()).filter(|at| is_field(paragraphs[*at])).collect();
    if places.len() < 2 {
        return None;
    }
    let fields: Vec<&str> = places.iter().rev().map(|at| paragraphs[*at].trim_end()).collect();
    for (at, field) in places.into_iter().zip(fields) {
        paragraphs[at] = field;
    }
    let changed = Rubric::parse(&(paragraphs.join("\n\n") + "\n"), rubric.origin.clone()).ok()?;
    Some(changed)
}

#[cfg(test)]
mod tests {
    use gradus_core::trajectory::TrajectoryStep;
    use gradus_eval::rubric::RubricLibrary;

    use super::*;

    fn trajectory() -> Trajectory {
        let tool = |name: &str| ToolDefinition {
            name: name.to_owned(),
            description: Some(format!("See also get_order and {name}.")),
            schema: None,
        };
        Trajectory {
            trajectory_id: "t".to_owned(),
            query: Some("Where is order 7?".to_owned()),
            system_prompt: Some("Use get_order_list with care.".into()),
            tools: ["get_order", "get_order_list", "search", "cancel_order"].map(tool).to_vec().into(),
            steps: vec![TrajectoryStep {
                index: 1,
                thought: Some("I search it with get_order.".to_owned()),
                tool: "get_order".to_owned(),
                ..TrajectoryStep::default()
            }],
            final_answer: Some("It is here.".to_owned()),
            ..Trajectory::default()
        }
    }

    #[test]
    fn probes_change_what_they_say_and_nothing_else() {
        let right = trajectory();
        let change = |probe: BiasProbe| probe.change_run(&right, 1).unwrap_or_else(|| panic!("{}", probe.name()));
        let shuffled =
            (0..20).filter_map(|seed| BiasProbe::ToolOrder.change_run(&right, seed)).next().expect("changed");
        let mut names: Vec<&str> = shuffled.tools.iter().map(|tool| tool.name.as_str()).collect();
        assert_ne!(names, ["get_order", "get_order_list", "search", "cancel_order"]);
        names.sort_unstable();
        assert_eq!(names, ["cancel_order", "get_order", "get_order_list", "search"]);
        let padded = change(BiasProbe::Padding);
        assert!(padded.steps[0].thought.as_ref().is_some_and(|text| text.starts_with("I search it with get_order. ")));
        assert_eq!((&padded.query, &padded.tools), (&right.query, &right.tools));
        let framed = change(BiasProbe::Paraphrase);
        assert!(framed.query.as_ref().is_some_and(|text| text.contains("Where is order 7?") && text.len() > 20));
        let named = change(BiasProbe::ModelName);
        assert!(named.system_prompt.as_ref().is_some_and(|text| text.ends_with("Use get_order_list with care.")));
        let opaque = change(BiasProbe::OpaqueTools);
        assert_eq!(opaque.steps[0].tool, "tool_1");
        assert_eq!(opaque.steps[0].thought.as_deref(), Some("I search it with tool_1."), "words stay words");
        assert_eq!(opaque.system_prompt.as_deref(), Some("Use tool_2 with care."));
        assert_eq!(opaque.tools[3].description.as_deref(), Some("See also tool_1 and tool_4."));
        for probe in BiasProbe::ALL {
            assert_eq!(BiasProbe::from_name(probe.name()), Some(probe));
            assert!(probe.change_run(&right, 1).is_none_or(|changed| changed.trajectory_id == "t"));
        }
        let silent = Trajectory { steps: Vec::new(), ..right };
        assert_eq!(BiasProbe::Padding.change_run(&silent, 1), None, "no thought to pad");
    }

    #[test]
    fn every_built_in_rubric_can_be_turned_round() {
        for rubric in RubricLibrary::built_in().iter() {
            let labels = BiasProbe::LabelOrder.change_rubric(rubric).expect("changed");
            assert!(labels.labels.names().eq(rubric.labels.names().collect::<Vec<_>>().into_iter().rev()));
            assert_eq!((labels.labels.best(), labels.labels.worst()), (rubric.labels.best(), rubric.labels.worst()));
            let explained = |rubric: &Rubric, label: &str| rubric.source.find(&format!("\n\"{label}\":"));
            let (best, worst) = (rubric.labels.best(), rubric.labels.worst());
            assert!(explained(rubric, best) < explained(rubric, worst), "{}", rubric.name);
            assert!(explained(&labels, best) > explained(&labels, worst), "{}", rubric.name);
            let fields = BiasProbe::FieldOrder.change_rubric(rubric).expect("changed");
            let variables = |rubric: &Rubric| {
                rubric.template.variables().map(gradus_eval::rubric::RubricVariable::name).collect::<Vec<_>>()
            };
            let reversed: Vec<&str> = variables(rubric).into_iter().rev().collect();
            assert_eq!(variables(&fields), reversed, "{}", rubric.name);
            assert!(BiasProbe::Padding.change_rubric(rubric).is_none());
        }
    }
}
