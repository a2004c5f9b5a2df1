//! What is said in passing, and what came from nowhere.

use super::*;

fn desk() -> Vec<ToolDefinition> {
    vec![
        tool("list_tickets", "List the tickets of a project.", &["owner", "repo"]),
        tool("close_ticket", "Close a ticket.", &["number"]),
        tool("update_ticket", "Change a ticket.", &["number", "deadline"]),
        tool("update_deadline", "Change a deadline.", &["deadline"]),
        tool("add_tags", "Add tags to a ticket.", &["number", "tags"]),
        tool("list_tags", "List the tags of a project.", &["owner", "repo"]),
        tool("publish_release", "Publish a new release.", &["notes"]),
        tool("read_file", "Read a file.", &["owner", "repo", "path"]),
        tool("delete_file", "Delete a file.", &["path"]),
        tool("delete_tag", "Delete a tag.", &["tag"]),
        tool("list_invoices", "List the invoices of a customer.", &["customer"]),
        tool("get_weather", "Current weather of a city.", &["city"]),
    ]
}

/// The tool choice and the topic of the last step.
fn last(query: &str, steps: Vec<TrajectoryStep>) -> [&'static str; 2] {
    let trajectory = Trajectory { tools: desk().into(), ..run(query, steps, "Here it is.") };
    let offline = OfflineJudge::new(&trajectory);
    let at = trajectory.steps.len() - 1;
    [&offline.thought_to_tool(at), &offline.query_to_thought(at)].map(label)
}

fn choice(query: &str, thought: &str, tool: &str, arguments: Json) -> &'static str {
    last(query, vec![step(thought, tool, arguments, "ok")])[0]
}

#[test]
fn what_a_thing_will_do_is_no_plan() {
    let notes = json!({"notes": "Solves #5"});
    let thought = "A release with 'Solves #5' in its notes will close the ticket once it is out.";
    assert_eq!(choice("Make a release that closes ticket #5.", thought, "publish_release", notes), "good");
    let tags = json!({"number": "57", "tags": "old"});
    let query = "Put the tag old on the tickets 56 and 57.";
    assert_eq!(choice(query, "#57 also gets the tag.", "add_tags", tags), "good");
}

#[test]
fn what_is_set_by_a_parameter_needs_no_tool_of_its_own() {
    let arguments = json!({"number": "18", "deadline": "Friday"});
    let thought = "I begin with #18 and set its deadline to Friday.";
    assert_eq!(choice("Give all tickets the deadline Friday.", thought, "update_ticket", arguments), "good");
}

#[test]
fn a_tool_that_nobody_spoke_of_is_not_what_the_thought_wants() {
    let query = "Delete notes/old.txt.";
    let thought = "With that I can remove notes/old.txt, as the user asked.";
    assert_eq!(choice(query, thought, "list_invoices", json!({"customer": "c-1"})), "bad");
    assert_eq!(choice(query, thought, "delete_file", json!({"path": "notes/old.txt"})), "good");
    // What the call before gave is looked back on, and not what this one is for.
    let looked = step("I list the tags.", "list_tags", json!({"owner": "acme", "repo": "shop"}), "[]");
    let thought = "That gave me the tag list, which does not help. I read notes/old.txt.";
    let read = step(thought, "read_file", json!({"owner": "acme", "repo": "shop", "path": "notes/old.txt"}), "ok");
    assert_eq!(last(query, vec![looked, read])[0], "good");
    let thought = "Learning the piano takes patience; scales first, then a short waltz.";
    assert_eq!(choice("List the tickets of acme/shop.", thought, "get_weather", json!({"city": "Rome"})), "bad");
}

#[test]
fn values_that_came_from_nowhere() {
    let query = "List the tickets of acme/shop.";
    let place = |repo: &str| json!({"owner": "acme", "repo": repo});
    assert_eq!(choice(query, "I list the tickets.", "list_tickets", place("shop-old")), "bad");
    assert_eq!(choice(query, "I list the tickets.", "list_tickets", place("shop")), "good");
    let read = |path: &str| json!({"owner": "acme", "path": path, "repo": "shop"});
    let thought = "I need the text of the licence from acme/shop.";
    assert_eq!(choice("Copy the licence of acme/shop.", thought, "read_file", read("LICENSE")), "good");
    let query = "What does notes.md of acme/shop say?";
    assert_eq!(choice(query, "I read notes.md.", "read_file", read("notes-old.md")), "bad");
    assert_eq!(choice(query, "I read the old notes.md.", "read_file", read("notes-old.md")), "good");
    assert_eq!(choice(query, "I read notes.md.", "read_file", read("docs/notes.md")), "good");
    let thought = "With the note in place, #12 can be closed.";
    assert_eq!(choice("Close #12.", thought, "close_ticket", json!({"number": 912})), "bad");
    assert_eq!(choice("Close #12.", thought, "close_ticket", json!({"number": 12})), "good");
}

#[test]
fn taking_away_what_nobody_spoke_of_is_off_the_request() {
    let delete = |query: &str| {
        let thought = "While I am here I delete the tag drafts, which looks unused.";
        last(query, vec![step(thought, "delete_tag", json!({"tag": "drafts"}), "ok")])[1]
    };
    assert_eq!(delete("Which tags has acme/shop?"), "bad");
    for asked in ["Tidy up the tags.", "Remove old tags.", "What is the tag drafts for?"] {
        assert_ne!(delete(asked), "bad", "{asked}");
    }
    // What the run itself made may go again.
    let make = step("I add a tag.", "add_tags", json!({"number": 1, "tags": "drafts"}), "ok");
    let thought = "That was a mistake: I delete the tag drafts again.";
    let steps = vec![make, step(thought, "delete_tag", json!({"tag": "drafts"}), "ok")];
    assert_ne!(last("Tag ticket 1.", steps)[1], "bad");
}

#[test]
fn going_on_with_a_call_is_no_new_subject() {
    let place = || json!({"owner": "acme", "repo": "shop", "path": "a.txt"});
    let first = step("I read it.", "read_file", place(), "ok");
    let again = step("I will call read_file again to be sure.", "read_file", place(), "ok");
    assert_ne!(last("What is the weather in Oslo?", vec![first, again])[1], "bad");
    let query = "In notes.md, write what the weather in Oslo is.";
    let file = step("The file notes.md comes next.", "read_file", place(), "ok");
    assert_ne!(last(query, vec![file])[1], "bad");
}

#[test]
fn a_failure_whose_status_is_told_is_not_passed_over() {
    let steps = || {
        let failed = r#"{"error": "Server Error", "status": 502}"#;
        let look = json!({"customer": "c-77"});
        vec![
            step("I create the table guests.", "create_table", json!({"table": "guests"}), failed),
            step("I list the orders of c-77 next.", "list_orders", look, "[]"),
        ]
    };
    let query = "Create the table guests and list the orders of c-77.";
    assert_eq!(
        sequence(query, steps(), "The first reply was a 502, but the table is there. [] are the orders."),
        "good"
    );
    assert_eq!(sequence(query, steps(), "The table is there. [] are the orders."), "bad");
}
