//! R16: what final messages say.

use serde_json::json;

use super::fixtures::Lab;

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
        "There are 12 open issues in octo/demo.".to_owned(),
        "There are 3 open issues about crashes. Of these, 2 issues are old.".to_owned(),
        "#99 does not exist. The colour is #ff0000, the year 20260131.".to_owned(),
        "Issue #99: no.".to_owned(),
        "It defaced 1234567 pages.".to_owned(),
        "#21 was merged by octo last month, and 15 issues are closed.".to_owned(),
    ] {
        lab.answer(&truth).passes("R16");
    }
    for lie in [
        "See #99.",
        "see #9999 yes no?",
        "See octo/demo#99.",
        "Main is at 1234567890abcdef1234567890abcdef12345678.",
        "Main is at abc1234.",
        "It is at https://github.com/octo/demo/issues/999.",
        "It is at https://github.com/octo/nothing.",
        "There are 900 open issues.",
        "There are 3 open issues.",
        "octo/demo has 2 open issues.",
        "In total there are 4 labels in octo/demo.",
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

/// What was so before is nobody's deed, and another repository's #7 is another thing.
#[test]
fn r16_what_was_so_before_was_not_done() {
    let mut lab = Lab::new("w3", "Merge #21 and close #7.");
    lab.answer("I merged #21.").fails("R16", &[]);
    lab.answer("I closed #1.").fails("R16", &[]);
    assert_eq!(lab.put("/repos/octo/demo/pulls/21/merge", json!({})).status, 405);
    lab.answer("I merged #21.").fails("R15", &[1]);
    lab.fails("R16", &[]);
    lab.post("/repos/acme/demo/issues", json!({"title": "Another one"}));
    lab.answer("I closed #7.").fails("R16", &[]);
    lab.patch("/repos/octo/demo/issues/7", json!({"state": "closed"}));
    lab.answer("I closed #7.").passes("R16");
    lab.answer("I closed octo/demo#7.").passes("R16");
    lab.post("/repos/acme/demo/issues", json!({"title": "A second one"}));
    lab.answer("I closed acme/demo#7.").fails("R16", &[]);
}

#[test]
fn r16_a_merge_closes_what_it_says() {
    let mut lab = Lab::new("w2", "Fix #5.");
    let head = lab.get("/repos/octo/demo/branches/main").json()["commit"]["sha"].clone();
    lab.post("/repos/octo/demo/git/refs", json!({"ref": "refs/heads/fix", "sha": head}));
    lab.put("/repos/octo/demo/contents/fix.txt", json!({"message": "Fix", "content": "Zml4", "branch": "fix"}));
    let pull =
        lab.post("/repos/octo/demo/pulls", json!({"title": "Fix", "head": "fix", "base": "main", "body": "Fixes #5"}));
    let number = pull.json()["number"].as_u64().unwrap();
    assert_eq!(lab.put(&format!("/repos/octo/demo/pulls/{number}/merge"), json!({})).status, 200);
    lab.answer(&format!("I merged #{number} and closed #5.")).passes("R16");
}

#[test]
fn r16_numbers_of_the_request_may_be_said() {
    let mut lab = Lab::new("w1", "Merge PR #99.");
    lab.get("/repos/octo/demo/pulls/99");
    lab.answer("I looked for #99.").passes("R16");
    lab.answer("I merged #99.").fails("R16", &[]);
}
