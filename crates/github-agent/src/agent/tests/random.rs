//! Any reply, any result, any event at any time: no panic, nothing out of order has an effect, and every run ends.

use std::time::Duration;

use gradus_llm::{ChatReply, FinishReason, ModelCallFailure};
use proptest::prelude::*;

use super::*;

fn text() -> impl Strategy<Value = String> {
    let word = prop_oneof![
        Just("Thought: ".to_owned()),
        Just("\nAction: ".to_owned()),
        Just("\nAction Input: ".to_owned()),
        Just("\nObservation: ".to_owned()),
        Just("\nFinal Answer: ".to_owned()),
        Just("\nAnswer: ".to_owned()),
        Just("read_file".to_owned()),
        Just("delete_repo".to_owned()),
        Just("{\"a\": 1}".to_owned()),
        Just("{\"a\": ".to_owned()),
        Just("```json\n".to_owned()),
        Just("```".to_owned()),
        Just("<think>".to_owned()),
        Just("</think>".to_owned()),
        Just("{\"action\": \"read_file\", \"action_input\": {}}".to_owned()),
        "\\PC{0,12}",
        "[(){}\\[\\]\"'`*:\\\\ \n]{0,6}",
    ];
    proptest::collection::vec(word, 0..10).prop_map(|words| words.concat())
}

fn reply() -> impl Strategy<Value = ChatReply> {
    let name = prop_oneof![
        Just("read_file".to_owned()),
        Just("open_issue".to_owned()),
        Just("delete_repo".to_owned()),
        "\\PC{0,20}"
    ];
    let call = ("[a-c]{0,1}", name, text()).prop_map(|(id, name, arguments)| ChatToolCall { id, name, arguments });
    let stop = prop_oneof![Just(FinishReason::Done), Just(FinishReason::Length), Just(FinishReason::Refused)];
    (text(), proptest::collection::vec(call, 0..4), stop).prop_map(|(text, calls, stop)| ChatReply {
        text,
        calls,
        usage: None,
        stop,
    })
}

fn observation() -> impl Strategy<Value = CallObservation> {
    (text(), any::<bool>(), proptest::option::of(0_u64..1_000)).prop_map(|(text, is_error, seconds)| CallObservation {
        text,
        is_error,
        retry_after: seconds.map(Duration::from_secs),
    })
}

fn event() -> impl Strategy<Value = AgentEvent> {
    prop_oneof![
        text().prop_map(AgentEvent::Request),
        Just(AgentEvent::GoOn),
        reply().prop_map(|reply| AgentEvent::Replied(Ok(reply))),
        Just(too_long()),
        Just(AgentEvent::Replied(Err(ModelCallFailure { error: CallError::CallLimit, attempts: 1 }))),
        Just(AgentEvent::Confirmed(Ok(()))),
        Just(AgentEvent::Confirmed(Err("no".to_owned()))),
        Just(AgentEvent::Begun),
        observation().prop_map(AgentEvent::Returned),
        Just(AgentEvent::Waited),
    ]
}

fn form() -> impl Strategy<Value = ToolCallMode> {
    prop_oneof![Just(ToolCallMode::Text), Just(ToolCallMode::Native)]
}

proptest! {
    #[test]
    fn any_text_can_be_read(text in text()) {
        let _ = gradus_react::react_text::read_text_reply(&text);
    }

    #[test]
    fn any_events_in_any_order(form in form(), events in proptest::collection::vec(event(), 0..60)) {
        let tools = Played::new(Vec::new());
        let mut machine = AgentStateMachine::new(AgentRunSettings::default(), &tools, AgentState::new("s", form));
        for event in events {
            let before = machine.state().clone();
            if machine.handle(event).is_err() {
                prop_assert_eq!(&before, machine.state(), "an event out of order changed something");
            }
            prop_assert_eq!(machine.next_action(), machine.next_action());
            let kept = serde_json::to_string(machine.state()).expect("JSON");
            let back: AgentState = serde_json::from_str(&kept).expect("a state");
            prop_assert_eq!(&back, machine.state());
        }
    }

    /// Whatever the model and the tools say, a request ends within its limits, and every native call has its result.
    #[test]
    fn every_run_ends(
        form in form(),
        replies in proptest::collection::vec(reply(), 1..8),
        results in proptest::collection::vec(observation(), 1..8),
        agrees in any::<bool>(),
        stops in any::<bool>(),
    ) {
        let tools = Played::new(Vec::new());
        let settings = AgentRunSettings { max_steps: 10, max_calls: 15, ..AgentRunSettings::default() };
        let mut machine = AgentStateMachine::new(settings, &tools, AgentState::new("s", form));
        machine.handle(AgentEvent::Request("Do it.".to_owned())).expect("a request");
        let (mut replied, mut returned) = (0, 0);
        for round in 0.. {
            prop_assert!(round < 500, "no end: {:?}", machine);
            // Put down and taken up again at any moment, it goes on all the same.
            if stops && round % 3 == 0 {
                machine = AgentStateMachine::new(settings, &tools, machine.state().clone());
            }
            let event = match machine.next_action() {
                AgentAction::Rest => unreachable!("a request was made"),
                AgentAction::Finish { .. } => break,
                AgentAction::Ask => {
                    replied += 1;
                    AgentEvent::Replied(Ok(replies[replied % replies.len()].clone()))
                }
                AgentAction::Confirm(_) => AgentEvent::Confirmed(if agrees { Ok(()) } else { Err("no".to_owned()) }),
                AgentAction::Decline(_, observation) => AgentEvent::Returned(observation),
                AgentAction::Call(_) if round % 2 == 0 => AgentEvent::Begun,
                AgentAction::Call(_) => {
                    returned += 1;
                    AgentEvent::Returned(results[returned % results.len()].clone())
                }
                AgentAction::Wait(..) => AgentEvent::Waited,
            };
            machine.handle(event).expect("what was to be done was done");
        }
        prop_assert!(replied <= 10);
        let mut open = Vec::new();
        for message in &machine.state().messages {
            match message {
                PromptMessage::Assistant { calls, .. } => {
                    prop_assert!(open.is_empty(), "a reply before all results are there");
                    open = calls.iter().map(|call| call.id.clone()).collect();
                }
                PromptMessage::Tool { call_id, .. } => {
                    prop_assert_eq!(&open.remove(0), call_id);
                }
                PromptMessage::User { .. } => prop_assert!(open.is_empty()),
            }
        }
        prop_assert!(open.is_empty());
    }
}
