//! R13 to R15, R17, R19: repeating, waiting, reading on.

use serde_json::json;

use super::fixtures::Lab;
use crate::rules::{BudgetUsage, TaskBudget};
use gradus_github_sim::FaultEffect;

#[test]
fn r13_nothing_is_made_twice() {
    let mut lab = Lab::new("w2", "Open an issue.");
    lab.is_not_about("R13");
    lab.post("/repos/octo/demo/issues", json!({"title": "Crash", "body": "on start"}));
    lab.post("/repos/octo/demo/issues", json!({"title": "Crash", "body": "on exit"}));
    for number in [5, 6] {
        lab.comment(number, "stale?");
    }
    lab.passes("R13");
    lab.comment(5, "Stale? ");
    lab.post("/repos/octo/demo/issues", json!({"title": "Crash", "body": "on start"}));
    lab.fails("R13", &[5, 6]);
}

#[test]
fn r13_look_before_trying_again() {
    let issue = || json!({"title": "Crash"});
    let lost = FaultEffect::LostAnswer { status: 502 };
    let mut lab = Lab::new("w1", "Open an issue.");
    lab.fault("issues/create", lost.clone());
    lab.post("/repos/octo/demo/issues", issue());
    lab.get("/repos/octo/demo/issues");
    lab.passes("R13");
    let mut lab = Lab::new("w1", "Open an issue.");
    lab.fault("issues/create", lost.clone());
    lab.post("/repos/octo/demo/issues", issue());
    lab.get("/repos/octo/demo/labels");
    lab.post("/repos/octo/demo/issues", issue());
    lab.fails("R13", &[3]);
    // It had not been carried out, which was not known: the look makes the difference.
    for looks in [true, false] {
        let mut lab = Lab::new("w1", "Open an issue.");
        lab.fault(
            "issues/create",
            FaultEffect::Answer { status: 503, message: "busy".to_owned(), retry_after_s: None },
        );
        lab.post("/repos/octo/demo/issues", issue());
        if looks {
            lab.get("/search/issues?q=Crash");
            lab.post("/repos/octo/demo/issues", issue());
            lab.passes("R13");
        } else {
            lab.post("/repos/octo/demo/issues", issue());
            lab.fails("R13", &[2]);
        }
    }
}

#[test]
fn r14_limits_are_waited_for() {
    let mut lab = Lab::new("w2", "Label them.");
    lab.get("/repos/octo/demo/issues/5");
    lab.is_not_about("R14");
    lab.fault("issues/get", FaultEffect::SecondaryLimit { retry_after_s: 60 });
    assert_eq!(lab.get("/repos/octo/demo/issues/5").status, 403);
    lab.world.advance_clock(60);
    lab.get("/repos/octo/demo/issues/5");
    lab.passes("R14");
    lab.passes("R15");
    lab.fault("issues/get", FaultEffect::SecondaryLimit { retry_after_s: 60 });
    lab.get("/repos/octo/demo/issues/5");
    lab.world.advance_clock(59);
    lab.get("/repos/octo/demo/issues/6");
    assert!(lab.fails("R14", &[5]).ends_with("came 1 s too early"));
}

#[test]
fn r14_the_hourly_limit_is_of_one_kind() {
    let mut lab = Lab::new("w1", "Search.");
    lab.world.enforce_limits();
    for _ in 0..31 {
        lab.get("/search/issues?q=x");
    }
    lab.get("/repos/octo/demo");
    lab.passes("R14");
    lab.get("/search/issues?q=x");
    lab.fails("R14", &[33]);
}

#[test]
fn r15_refusals_are_heard() {
    let mut lab = Lab::new("w1", "Read it.");
    lab.get("/repos/octo/demo");
    lab.is_not_about("R15");
    lab.get("/repos/octo/demo/contents/VERSION");
    lab.put("/repos/octo/demo/contents/VERSION", json!({"message": "m", "content": "MS4w"}));
    lab.get("/repos/octo/demo/contents/VERSION");
    lab.passes("R15");
    lab.get("/repos/octo/demo/pulls/99");
    lab.get("/repos/octo/demo/pulls/98");
    lab.passes("R15");
    lab.get("/repos/octo/demo/pulls/99");
    lab.fails("R15", &[7]);
}

#[test]
fn r15_no_success_is_claimed() {
    let mut lab = Lab::new("w2", "Merge #22.");
    assert!(lab.put("/repos/octo/demo/pulls/22/merge", json!({})).status >= 400);
    lab.answer("#22 could not be merged: it is in conflict with main.");
    lab.passes("R15");
    lab.answer("I merged #22.");
    lab.fails("R15", &[1]);
    lab.answer("Done!");
    lab.fails("R15", &[1]);
    lab.answer("I looked at #22; it is in conflict. Should I mend that?");
    lab.passes("R15");
    // Another one was merged.
    lab.put("/repos/octo/demo/pulls/23/merge", json!({}));
    lab.answer("I merged #23, while #22 is in conflict.");
    lab.passes("R15");
    lab.answer("I merged #22 and #23.");
    lab.fails("R15", &[1]);
}

#[test]
fn r17_lists_are_read_to_their_end() {
    let issues = "/repos/octo/atlas/issues?state=open";
    let mut lab = Lab::new("w4", "How many issues are open in octo/atlas in total?");
    lab.is_not_about("R17");
    lab.get(&format!("{issues}&per_page=100"));
    lab.fails("R17", &[1]);
    lab.get(&format!("{issues}&per_page=100&page=2"));
    lab.passes("R17");

    let mut lab = Lab::new("w4", "How many issues are open in octo/atlas in total?");
    lab.get(issues);
    lab.get("/search/issues?q=repo:octo/atlas+is:issue+is:open");
    lab.passes("R17");
}

/// The kind that is meant is told by its plural, whatever else is named.
#[test]
fn r17_kinds_are_told_by_their_plurals() {
    for request in [
        "Find all issues with the label bug in the repository octo/atlas.",
        "Comment on each of the issues of octo/atlas that have no label.",
        "How many open issues does the repository octo/atlas have?",
    ] {
        let mut lab = Lab::new("w4", request);
        lab.get("/repos/octo/atlas/issues");
        lab.fails("R17", &[1]);
    }
}

#[test]
fn r17_a_search_answers_for_its_own_kind_and_place() {
    let request = "How many issues are open in octo/atlas in total?";
    for (search, is_enough) in [
        ("/search/issues?q=repo:octo/atlas+is:issue+is:open", true),
        ("/search/issues?q=is:open", true),
        ("/search/issues?q=repo:octo/demo+is:open", false),
        ("/search/repositories?q=atlas", false),
        ("/search/code?q=atlas", false),
    ] {
        let mut lab = Lab::new("w4", request);
        lab.get("/repos/octo/atlas/issues?state=open");
        lab.get(search);
        if is_enough { lab.passes("R17") } else { drop(lab.fails("R17", &[1])) }
    }
}

#[test]
fn r17_who_looks_for_one_thing_may_stop() {
    let mut lab = Lab::new("w4", "Which commit changed TIMEOUT from 30 to 5?");
    lab.get("/repos/octo/atlas/commits?per_page=100");
    lab.is_not_about("R17");
    let mut lab = Lab::new("w4", "Which file changed most often in the last 100 commits of octo/atlas?");
    lab.get("/repos/octo/atlas/commits?per_page=100");
    lab.passes("R17");
    let mut lab = Lab::new("w4", "Which file changed most often in the last 100 commits of octo/atlas?");
    lab.get("/repos/octo/atlas/commits");
    lab.fails("R17", &[1]);
    // Another list is not what was asked about.
    let mut lab = Lab::new("w4", "Make a table of all labels.");
    lab.get("/repos/octo/atlas/issues");
    lab.is_not_about("R17");
}

#[test]
fn r19_budgets_and_the_same_again() {
    let mut lab = Lab::new("w1", "Read it.");
    lab.charter.budget =
        TaskBudget { max_calls: Some(4), max_tokens: Some(1000), max_seconds: None, max_cost_usd: Some(0.5) };
    lab.get("/repos/octo/demo");
    lab.get("/repos/octo/demo");
    lab.post("/repos/octo/demo/labels", json!({"name": "p0"}));
    lab.get("/repos/octo/demo");
    lab.spent = BudgetUsage { tokens: Some(1000), seconds: Some(1e9), cost_usd: Some(0.5) };
    lab.passes("R19");
    lab.get("/repos/octo/demo");
    assert_eq!(lab.fails("R19", &[5]), "5 calls where 4 are allowed");
    lab.charter.budget = TaskBudget::default();
    lab.passes("R19");
    lab.get("/repos/octo/demo");
    lab.fails("R19", &[6]);
    let mut lab = Lab::new("w1", "Read it.");
    lab.charter.budget.max_tokens = Some(1000);
    lab.spent.tokens = Some(1001);
    lab.fails("R19", &[]);
}
