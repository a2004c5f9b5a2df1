//! Any reply, any result, any event at any time: no panic, nothing out of order has an effect, and every run ends.

use std::time::Duration;

use gradus_llm::{ChatReply, Failure, Stop};
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
    let call =
        ("[a-c]{0,1}", name, text()).prop_map(|(id, name, arguments)| ToolCall { id, name, arguments });
    let stop = prop_oneof![Just(Stop::Done), Just(Stop::Length), Just(Stop::Refused)];
    (text(), proptest::collection::vec(call, 0..4), stop).prop_map(|(text, calls, stop)| ChatReply {
        text,
        calls,
        usage: None,
        stop,
    })
}

fn observation() -> impl Strategy<Value = Observation> {
    (text(), any::<bool>(), proptest::option::of(0_u64..1_000)).prop_map(|(text, is_error, seconds)| {
        Observation { text, is_error, retry_after: seconds.map(Duration::from_secs) }
    })
}

fn event() -> impl Strategy<Value = Event> {
    prop_oneof![
        text().prop_map(Event::Request),
        Just(Event::GoOn),
        reply().prop_map(|reply| Event::Replied(Ok(reply))),
        Just(too_long()),
        Just(Event::Replied(Err(Failure { error: CallError::CallLimit, attempts: 1 }))),
        Just(Event::Confirmed(Ok(()))),
        Just(Event::Confirmed(Err("no".to_owned()))),
        Just(Event::Begun),
        observation().prop_map(Event::Returned),
        Just(Event::Waited),
    ]
}

fn form() -> impl Strategy<Value = Form> {
    prop_oneof![Just(Form::Text), Just(Form::Native)]
}

proptest! {
    #[test]
    fn any_text_can_be_read(text in text()) {
        let _ = super::super::react::read(&text);
    }

    #[test]
    fn any_events_in_any_order(form in form(), events in proptest::collection::vec(event(), 0..60)) {
        let tools = Played::new(Vec::new());
        let mut machine = Machine::new(Settings::default(), &tools, State::new("s", form));
        for event in events {
            let before = machine.state().clone();
            if machine.handle(event).is_err() {
                prop_assert_eq!(&before, machine.state(), "an event out of order changed something");
            }
            prop_assert_eq!(machine.action(), machine.action());
            let kept = serde_json::to_string(machine.state()).expect("JSON");
            let back: State = serde_json::from_str(&kept).expect("a state");
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
        let settings = Settings { max_steps: 10, max_calls: 15, ..Settings::default() };
        let mut machine = Machine::new(settings, &tools, State::new("s", form));
        machine.handle(Event::Request("Do it.".to_owned())).expect("a request");
        let (mut replied, mut returned) = (0, 0);
        for round in 0.. {
            prop_assert!(round < 500, "no end: {:?}", machine);
            // Put down and taken up again at any moment, it goes on all the same.
            if stops && round % 3 == 0 {
                machine = Machine::new(settings, &tools, machine.state().clone());
            }
            let event = match machine.action() {
                Action::Rest => unreachable!("a request was made"),
                Action::Finish { .. } => break,
                Action::Ask => {
                    replied += 1;
                    Event::Replied(Ok(replies[replied % replies.len()].clone()))
                }
                Action::Confirm(_) => Event::Confirmed(if agrees { Ok(()) } else { Err("no".to_owned()) }),
                Action::Decline(_, observation) => Event::Returned(observation),
                Action::Call(_) if round % 2 == 0 => Event::Begun,
                Action::Call(_) => {
                    returned += 1;
                    Event::Returned(results[returned % results.len()].clone())
                }
                Action::Wait(..) => Event::Waited,
            };
            machine.handle(event).expect("what was to be done was done");
        }
        prop_assert!(replied <= 10);
        let mut open = Vec::new();
        for message in &machine.state().messages {
            match message {
                Message::Assistant { calls, .. } => {
                    prop_assert!(open.is_empty(), "a reply before all results are there");
                    open = calls.iter().map(|call| call.id.clone()).collect();
                }
                Message::Tool { call_id, .. } => {
                    prop_assert_eq!(&open.remove(0), call_id);
                }
                Message::User { .. } => prop_assert!(open.is_empty()),
            }
        }
        prop_assert!(open.is_empty());
    }
}
