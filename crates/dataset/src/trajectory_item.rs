//! An item from a recorded trajectory.

use gradus_core::trajectory::Trajectory;
use serde_json::{Map, Value as Json};

use crate::item::{DatasetItem, DatasetMessage, ExpectedTools, ToolExpectation, ToolMatchMode};

/// Which recorded parts become expectations. The request is always taken.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct RecordedExpectations {
    /// The recorded calls become `expected_tools`, compared in this mode.
    pub expected_tools: Option<ToolMatchMode>,
    /// The recorded answer becomes `reference`.
    pub with_reference: bool,
}

/// Makes an item of a trajectory; `None` if that has no request. The id is that of the trajectory. A request within a
/// conversation becomes `messages` with the turns before it.
pub fn item_from_trajectory(trajectory: &Trajectory, content: RecordedExpectations) -> Option<DatasetItem> {
    let query = trajectory.query.clone().filter(|query| !query.trim().is_empty())?.replace('\0', "");
    let mut item = DatasetItem { id: trajectory.trajectory_id.clone(), ..DatasetItem::default() };
    let mut messages = Vec::new();
    let mut add = |role: &str, text: &Option<String>| {
        if let Some(text) = text.as_ref().filter(|text| !text.trim().is_empty()) {
            messages.push(DatasetMessage { role: role.to_owned(), content: text.replace('\0', "") });
        }
    };
    for turn in &trajectory.earlier_turns {
        add("user", &turn.query);
        add("assistant", &turn.answer);
    }
    if messages.is_empty() {
        item.request = Some(query);
    } else {
        messages.push(DatasetMessage { role: "user".to_owned(), content: query });
        item.messages = Some(messages);
    }
    if let Some(mode) = content.expected_tools {
        let tools = trajectory.steps.iter().map(|step| step.tool.clone()).filter(|tool| !tool.trim().is_empty());
        item.expected_tools = Some(ExpectedTools::WithMode(ToolExpectation { mode, tools: tools.collect() }));
    }
    if content.with_reference {
        item.reference = trajectory.final_answer.clone().filter(|answer| !answer.trim().is_empty());
    }
    let tag = |name: &str, value: &Option<String>| value.as_ref().map(|value| format!("{name}:{value}"));
    item.tags.extend(tag("agent", &trajectory.agent));
    item.tags.extend(tag("session", &trajectory.session_id));
    let mut metadata = Map::new();
    metadata.insert("trace_ids".to_owned(), Json::from(trajectory.trace_ids.clone()));
    for (name, value) in [
        ("project", &trajectory.project),
        ("agent_version", &trajectory.agent_version),
        ("model", &trajectory.model),
        ("start", &trajectory.start),
    ] {
        if let Some(value) = value {
            metadata.insert(name.to_owned(), Json::from(value.clone()));
        }
    }
    item.metadata = metadata;
    Some(item)
}

#[cfg(test)]
mod tests {
    use super::*;
    use gradus_core::trajectory::{EarlierTurn, TrajectoryStep};
    use std::sync::Arc;

    fn recorded() -> Trajectory {
        Trajectory {
            trajectory_id: "t1".to_owned(),
            query: Some("And order 8?".to_owned()),
            final_answer: Some("Shipped.".to_owned()),
            agent: Some("shop".to_owned()),
            session_id: Some("s1".to_owned()),
            steps: vec![TrajectoryStep { tool: "find_order".to_owned(), ..TrajectoryStep::default() }],
            ..Trajectory::default()
        }
    }

    #[test]
    fn expectations_are_added_on_demand_only() {
        let plain = item_from_trajectory(&recorded(), RecordedExpectations::default()).expect("an item");
        assert_eq!((plain.id.as_str(), plain.request.as_deref()), ("t1", Some("And order 8?")));
        assert!(plain.expected_tools.is_none() && plain.reference.is_none() && !plain.has_checks());
        assert_eq!(plain.tags, ["agent:shop", "session:s1"]);
        let content = RecordedExpectations { expected_tools: Some(ToolMatchMode::InOrder), with_reference: true };
        let full = item_from_trajectory(&recorded(), content).expect("an item");
        assert_eq!(
            full.expected_tools.as_ref().map(|tools| tools.tools().to_vec()),
            Some(vec!["find_order".to_owned()])
        );
        assert_eq!(full.reference.as_deref(), Some("Shipped."));
        let failed = full.check_trajectory(&recorded());
        assert!(failed.iter().all(|check| check.outcome == crate::CheckOutcome::Passed), "{failed:?}");
        assert_eq!(item_from_trajectory(&Trajectory::default(), content), None);
    }

    #[test]
    fn turns_before_it_become_messages() {
        let turn = EarlierTurn {
            query: Some("Where is order 7?".to_owned()),
            answer: Some("Here.".to_owned()),
            ..EarlierTurn::default()
        };
        let trajectory = Trajectory { earlier_turns: vec![Arc::new(turn)], ..recorded() };
        let item = item_from_trajectory(&trajectory, RecordedExpectations::default()).expect("an item");
        let messages = item.request_messages();
        let roles: Vec<&str> = messages.iter().map(|message| message.role.as_str()).collect();
        assert_eq!(roles, ["user", "assistant", "user"]);
        assert_eq!(item.request_text(), "And order 8?");
    }
}
