//! Calls to judges: reservations from a daily budget, answers that all servers share, and what a server leaves behind.

#![allow(clippy::unwrap_used)] // Also outside of the tests themselves.

mod lab;

use gradus_store::*;
use lab::*;

const DAY_NS: i64 = 86_400_000_000_000;
const NOON_NS: i64 = 20_000 * DAY_NS + DAY_NS / 2;

/// A call that may cost half a dollar of a dollar a day.
fn call(key: u8) -> JudgeCall {
    JudgeCall {
        key: Some([key; 16]),
        rule: "r".to_owned(),
        project: "shop".to_owned(),
        trajectory_id: "t".to_owned(),
        step: Some(1),
        rubric_hash: "hash".to_owned(),
        judge: "openai:gpt".to_owned(),
        max_cost_usd: 0.5,
        daily_budget_usd: Some(1.0),
    }
}

fn begin(lab: &Lab, call: &JudgeCall) -> CallAdmission {
    lab.store.begin_call(call, NOON_NS).unwrap()
}

fn granted(lab: &Lab, call: &JudgeCall) -> CallTicket {
    match begin(lab, call) {
        CallAdmission::Granted(ticket) => ticket,
        other => panic!("{other:?}"),
    }
}

fn settle(lab: &Lab, ticket: &CallTicket, cost_usd: f64, answer: Option<&str>) {
    let spend = JudgeSpend { rule: "r".to_owned(), calls: 1, unpriced: 0, cost_usd };
    lab.store.settle_call(ticket, spend, answer.map(str::to_owned), NOON_NS).unwrap();
}

fn spent(lab: &Lab) -> f64 {
    lab.store.load_spend_since(0, Some("r"), None).unwrap().cost_usd
}

#[test]
fn calls_under_way_count_with_their_upper_bound() {
    let lab = Lab::new();
    let (one, two) = (granted(&lab, &call(1)), granted(&lab, &call(2)));
    assert_eq!(lab.store.reserved_usd("r").unwrap(), 1.0);
    assert_eq!(begin(&lab, &call(3)), CallAdmission::Later);
    // The budget of another rule is its own, and a rule without one has no limit.
    let other = granted(&lab, &JudgeCall { rule: "s".to_owned(), ..call(4) });
    granted(&lab, &JudgeCall { daily_budget_usd: None, rule: "free".to_owned(), ..call(5) });
    settle(&lab, &one, 0.25, Some("one"));
    assert_eq!(begin(&lab, &call(3)), CallAdmission::Later, "0.25 is spent, 0.5 reserved");
    settle(&lab, &two, 0.25, Some("two"));
    let three = granted(&lab, &call(3));
    settle(&lab, &three, 0.5, None);
    assert_eq!((spent(&lab), lab.store.reserved_usd("r").unwrap()), (1.0, 0.0));
    assert_eq!(begin(&lab, &call(6)), CallAdmission::Exhausted { spent_usd: 1.0 });
    // Tomorrow is another day.
    let tomorrow = lab.store.begin_call(&call(6), NOON_NS + DAY_NS).unwrap();
    assert!(matches!(tomorrow, CallAdmission::Granted(_)), "{tomorrow:?}");
    lab.store.abandon_call(&other).unwrap();
    assert_eq!(lab.store.load_spend_since(0, Some("s"), None).unwrap().cost_usd, 0.5, "it may have been billed");
}

#[test]
fn a_question_is_asked_by_one_and_answered_for_all() {
    let lab = Lab::new();
    let ticket = granted(&lab, &call(1));
    assert_eq!(begin(&lab, &call(1)), CallAdmission::Later);
    settle(&lab, &ticket, 0.125, Some("{\"label\":\"good\"}"));
    let answered = CallAdmission::Answered("{\"label\":\"good\"}".to_owned());
    assert_eq!(begin(&lab, &call(1)), answered);
    // An answer needs no budget, and one that was given stays.
    assert_eq!(begin(&lab, &JudgeCall { daily_budget_usd: Some(0.0), ..call(1) }), answered);
    settle(&lab, &ticket, 0.125, Some("{\"label\":\"bad\"}"));
    assert_eq!((begin(&lab, &call(1)), spent(&lab)), (answered, 0.125));
    // Without an answer the question is open again.
    let failed = granted(&lab, &call(2));
    settle(&lab, &failed, 0.0, None);
    granted(&lab, &call(2));
    // Trials ask whatever others ask.
    let unshared = JudgeCall { key: None, max_cost_usd: 0.0, ..call(3) };
    assert_ne!(granted(&lab, &unshared), granted(&lab, &unshared));
}

#[test]
fn what_a_server_left_behind_counts_as_spent() {
    let lab = Lab::new();
    let ticket = granted(&lab, &call(1));
    let lab = lab.reopened();
    lab.store.charge_lost_calls().unwrap();
    assert_eq!((spent(&lab), lab.store.reserved_usd("r").unwrap()), (0.5, 0.0));
    // Whoever comes back from the dead is charged once.
    settle(&lab, &ticket, 0.25, Some("late"));
    assert_eq!(spent(&lab), 0.5);
    let again = granted(&lab, &call(1));
    assert_eq!(begin(&lab, &call(2)), CallAdmission::Later);
    settle(&lab, &again, 0.25, Some("again"));
    assert_eq!(begin(&lab, &call(2)), CallAdmission::Exhausted { spent_usd: 0.75 });
}

/// Many threads reserve at once, on one connection or on several: never more than the budget.
#[test]
fn a_budget_holds_whoever_reserves_at_the_same_time() {
    let lab = Lab::new();
    let second = location(lab.folder.path()).folder().is_none().then(|| open_store(&lab.folder));
    let stores: Vec<&Store> = std::iter::once(&lab.store).chain(&second).collect();
    let granted: usize = std::thread::scope(|scope| {
        let reserve = |number: u8| {
            let store = stores[usize::from(number) % stores.len()];
            scope.spawn(move || {
                let call = JudgeCall { max_cost_usd: 0.125, ..call(number) };
                let admitted = store.begin_call(&call, NOON_NS).unwrap();
                usize::from(matches!(admitted, CallAdmission::Granted(_)))
            })
        };
        let threads: Vec<_> = (0..40).map(reserve).collect();
        threads.into_iter().map(|thread| thread.join().unwrap()).sum()
    });
    assert_eq!((granted, lab.store.reserved_usd("r").unwrap()), (8, 1.0));
}

#[test]
fn answers_go_with_the_project_and_with_old_traces() {
    let lab = Lab::new();
    lab.ingest(vec![rooted(chunk(1, "shop", 10, &[span(1)]), "call", true)], NOON_NS);
    for key in [1, 2] {
        let ticket =
            granted(&lab, &JudgeCall { project: ["", "shop", "none"][usize::from(key)].to_owned(), ..call(key) });
        settle(&lab, &ticket, 0.0, Some("text of a trace"));
    }
    let shop = lab.store.project_named("shop").unwrap().unwrap().no;
    while lab.store.remove_project_step(shop).unwrap().wait().unwrap().has_more {}
    assert!(matches!(begin(&lab, &call(1)), CallAdmission::Granted(_)));
    assert!(matches!(begin(&lab, &call(2)), CallAdmission::Answered(_)));
    let retention = RetentionPolicy { max_age_ns: Some(DAY_NS), max_bytes: None };
    lab.store.run_retention_step(retention, NOON_NS + 2 * DAY_NS).unwrap().wait().unwrap();
    assert!(matches!(begin(&lab, &call(2)), CallAdmission::Granted(_)));
}

#[test]
fn a_removed_project_does_not_give_its_spending_back() {
    let lab = Lab::new();
    lab.ingest(vec![rooted(chunk(1, "shop", 10, &[span(1)]), "call", true)], NOON_NS);
    let (answered, under_way) = (granted(&lab, &call(1)), granted(&lab, &call(2)));
    settle(&lab, &answered, 0.25, Some("answer"));
    // Spending without a project in the same minutes: the rows become one.
    let other = JudgeSpend { rule: "r".to_owned(), calls: 1, unpriced: 0, cost_usd: 0.125 };
    lab.store.record_spend(other, "no project".to_owned(), NOON_NS).unwrap().wait().unwrap();
    let shop = lab.store.project_named("shop").unwrap().unwrap().no;
    while lab.store.remove_project_step(shop).unwrap().wait().unwrap().has_more {}
    assert_eq!(spent(&lab), 0.375);
    // Another project gets the number of the removed one on SQLite, and must not pay for it.
    lab.ingest(vec![rooted(chunk(2, "clinic", 10, &[span(1)]), "call", true)], NOON_NS);
    settle(&lab, &under_way, 0.25, Some("answer"));
    assert_eq!(spent(&lab), 0.625);
    assert_eq!(lab.store.load_spend_since(0, None, Some("clinic")).unwrap().cost_usd, 0.0);
    assert_eq!(begin(&lab, &call(3)), CallAdmission::Exhausted { spent_usd: 0.625 });
}

#[test]
fn servers_on_one_database_see_the_settings_of_each_other() {
    let lab = Lab::new();
    assert_eq!(lab.store.announce_settings("judges:a").unwrap(), []);
    if location(lab.folder.path()).folder().is_some() {
        assert_eq!(lab.store.live_nodes().unwrap(), [], "an embedded store has one server");
        return;
    }
    let second = open_store(&lab.folder);
    let seen = second.announce_settings("judges:b").unwrap();
    assert_eq!((seen.len(), seen[0].settings.as_str()), (1, "judges:a"));
    assert_eq!(seen[0].name, lab.store.node_name());
    let reader = Store::open_at_to_read(&location(lab.folder.path())).unwrap();
    let settings: Vec<String> = reader.live_nodes().unwrap().into_iter().map(|node| node.settings).collect();
    assert_eq!(settings, ["judges:a", "judges:b"]);
    drop(second);
    assert_eq!(reader.live_nodes().unwrap().len(), 1);
}
