//! R16: what final messages say.

use serde_json::json;

use super::lab::Lab;

#[test]
fn r16_what_is_named_is_there() {
    let mut lab = Lab::new("w2", "What is going on in octo/demo?");
    lab.is_not_about("R16");
    let head = lab.get("/repos/octo/demo/branches/main").json()["commit"]["sha"].as_str().unwrap().to_owned();
    for truth in [
        "See #5 and octo/demo#7.".to_owned(),
        format!("Main is at {head}, or {}.", &head[..7]),
        "It is at https://github.com/octo/demo/issues/5, see also https://example.com/issues/999.".to_owned(),
        "There are 9 open issues.".to_owned(),
        "#99 does not exist. The colour is #ff0000, the year 20260131.".to_owned(),
        "It defaced 1234567 pages.".to_owned(),
        "#21 was merged by octo last month, and 15 issues are closed.".to_owned(),
    ] {
        lab.answer(&truth).passes("R16");
    }
    for lie in [
        "See #99.",
        "See octo/demo#99.",
        "Main is at 1234567890abcdef1234567890abcdef12345678.",
        "Main is at abc1234.",
        "It is at https://github.com/octo/demo/issues/999.",
        "It is at https://github.com/octo/nothing.",
        "There are 900 open issues.",
    ] {
        lab.answer(lie).fails("R16", &[]);
    }
}

#[test]
fn r16_what_was_done_was_done() {
    let mut lab = Lab::new("w2", "Close #7 and #8.");
    lab.answer("I closed #7.").fails("R16", &[]);
    lab.patch("/repos/octo/demo/issues/7", json!({"state": "closed", "state_reason": "not_planned"}));
    lab.answer("I closed #7 as not planned.").passes("R16");
    lab.answer("I have created a new label.").fails("R16", &[]);
    lab.answer("Closed 3 issues.").fails("R16", &[]);
    lab.answer("Closed issues: 15").passes("R16");
    lab.answer("I closed 3 issues.").fails("R16", &[]);
    lab.answer("I closed 1 issue. Would you like me to have it merged?").passes("R16");
    lab.put("/repos/octo/demo/pulls/23/merge", json!({}));
    lab.answer("I merged #23 into main and closed #7.").passes("R16");
    lab.answer("I merged #24.").fails("R16", &[]);
}

#[test]
fn r16_numbers_of_the_request_may_be_said() {
    let mut lab = Lab::new("w1", "Merge PR #99.");
    lab.get("/repos/octo/demo/pulls/99");
    lab.answer("I looked for #99.").passes("R16");
    lab.answer("I merged #99.").fails("R16", &[]);
}
