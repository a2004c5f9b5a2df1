//! The review queue: where somebody is in it, taking a label back, labels that cannot be stored, failure groups.

use percent_encoding::{NON_ALPHANUMERIC, utf8_percent_encode};
use serde_json::{Value, json};

use crate::lab::{Reply, Server, eventually, json_lines};
use crate::pages::{filled, page, post};
use crate::spans::trace_id;

const ANN: &str = "gradus_author=ann";

/// A page as somebody sees it who gave a name before.
fn page_for(server: &Server, path: &str, cookie: &str) -> String {
    let reply = server.request("GET", path).header("accept", "text/html").header("cookie", cookie).send();
    assert_eq!(reply.status, 200, "{path}: {}", reply.text());
    reply.text()
}

fn post_as(server: &Server, path: &str, fields: &str, cookie: &str) -> Reply {
    let origin = format!("http://{}", server.http);
    let request = server.request("POST", path).header("origin", &origin).header("accept", "text/html");
    let request = request.header("content-type", "application/x-www-form-urlencoded").header("cookie", cookie);
    request.body(fields.as_bytes()).send()
}

/// The values of hidden fields in the form that is sent to `action`, as a body.
fn hidden_fields(text: &str, action: &str) -> String {
    let form = text.split(&format!("action=\"{action}\"")).nth(1).unwrap_or_else(|| panic!("{action} in {text}"));
    let form = form.split("</form>").next().unwrap();
    let field = |part: &str| {
        let (name, rest) = part.split_once("\" value=\"").unwrap();
        let value = rest.split('"').next().unwrap().replace("&#38;", "&");
        format!("{name}={}", utf8_percent_encode(&value, NON_ALPHANUMERIC))
    };
    form.split("<input type=\"hidden\" name=\"").skip(1).map(field).collect::<Vec<_>>().join("&")
}

/// Labels the verdict that the page shows; the address of the next page.
fn label(server: &Server, text: &str, label: &str) -> String {
    let fields = format!("{}&label={label}&note=as+typed&author=ann", hidden_fields(text, "/labels"));
    let reply = post(server, "/labels", &fields);
    assert_eq!(reply.status, 303, "{}", reply.text());
    reply.header("location").unwrap().to_owned()
}

fn labels(server: &Server) -> Vec<Value> {
    json_lines(&server.get("/labels").body)
}

#[test]
fn a_queue_says_where_its_verdict_stands_and_a_label_can_be_taken_back() {
    let (_lab, server) = filled();
    let queue = "/review?evaluator=call_validity";
    let first = page_for(&server, queue, ANN);
    assert!(first.contains("Verdict <b>1 of 3</b> · 3 left") && !first.contains("/labels/undo"), "{first}");
    let next = label(&server, &first, "correct");
    assert!(next.starts_with(&format!("{queue}&labelled=")), "{next}");
    let second = page_for(&server, &next, ANN);
    assert!(second.contains("Verdict <b>2 of 3</b> · 2 left"), "{second}");
    assert!(second.contains("Call validity, step 1 is <b><bdi>correct</bdi></b>"), "{second}");
    // Another person sees nothing of it, and takes nothing back.
    let fields = hidden_fields(&second, "/labels/undo");
    let other = page_for(&server, &next, "gradus_author=bob");
    assert!(!other.contains("/labels/undo") && other.contains("Verdict <b>1 of 3</b> · 3 left"), "{other}");
    assert_eq!(post_as(&server, "/labels/undo", &fields, "gradus_author=bob").status, 404);
    let undone = post_as(&server, "/labels/undo", &fields, ANN);
    assert_eq!(undone.status, 303, "{}", undone.text());
    assert_eq!(labels(&server), Vec::<Value>::new());
    // The verdict is back, with the note.
    let again = page_for(&server, undone.header("location").unwrap(), ANN);
    assert!(again.contains("Verdict <b>1 of 3</b> · 3 left") && again.contains("value=\"as typed\""), "{again}");
    assert_eq!(hidden_fields(&again, "/labels"), hidden_fields(&first, "/labels"));
    assert_eq!(post_as(&server, "/labels/undo", &fields, ANN).status, 404, "it is gone");
}

#[test]
fn undo_restores_the_whole_note() {
    let (_lab, server) = filled();
    let queue = "/review?evaluator=call_validity";
    let first = page_for(&server, queue, ANN);
    // Longer than what an address takes.
    let note = format!("{} <end>", "the tool has no such parameter, é. ".repeat(200));
    let encoded = utf8_percent_encode(&note, NON_ALPHANUMERIC);
    let fields = format!("{}&label=correct&note={encoded}&author=ann", hidden_fields(&first, "/labels"));
    let stored = post(&server, "/labels", &fields);
    let next = page_for(&server, stored.header("location").unwrap(), ANN);
    let undone = post_as(&server, "/labels/undo", &hidden_fields(&next, "/labels/undo"), ANN);
    let text = undone.text();
    assert_eq!((undone.status, labels(&server).len()), (200, 0), "{text}");
    let escaped = note.replace('<', "&#60;").replace('>', "&#62;");
    assert!(text.contains(&format!("name=\"note\" value=\"{escaped}\"")), "{text}");
    // It is the page of the queue, with its verdict and its address.
    assert!(text.contains("Verdict <b>1 of 3</b> · 3 left"), "{text}");
    assert!(text.contains(&format!("data-address=\"{}&#38;at=", queue.replace('&', "&#38;"))), "{text}");
    assert_eq!(hidden_fields(&text, "/labels"), hidden_fields(&first, "/labels"));
}

#[test]
fn how_a_run_ended_can_be_answered_with_every_label_of_the_evaluator() {
    let (_lab, server) = filled();
    for queue in ["/review?evaluator=outcome", "/review?evaluator=outcome&which=sample"] {
        // A sample has the verdicts before the present second.
        let text = eventually("a verdict", || {
            Some(page_for(&server, queue, ANN)).filter(|text| text.contains("action=\"/labels\""))
        });
        for label in ["asked_user", "crashed", "limit_reached", "no_answer", "gave_up"] {
            assert!(text.contains(&format!("name=\"label\" value=\"{label}\"")), "{label} in {queue}: {text}");
        }
    }
    let text = page_for(&server, "/review?evaluator=outcome", ANN);
    label(&server, &text, "gave_up");
    let stored = server.json("/api/v1/annotations?name=outcome")["items"][0].clone();
    assert_eq!((&stored["label"], &stored["score"]), (&json!("gave_up"), &Value::Null));
    let agreement = page(&server, "/agreement");
    assert!(agreement.contains("<bdi>gave_up</bdi>"), "{agreement}");
    let other = post(&server, "/labels", &format!("{}&label=odd&author=ann", hidden_fields(&text, "/labels")));
    assert_eq!(other.status, 400, "{}", other.text());
}

#[test]
fn an_earlier_label_comes_back_and_a_later_one_stays() {
    let (_lab, server) = filled();
    let first = page_for(&server, "/review?evaluator=call_validity", ANN);
    label(&server, &first, "correct");
    let next = label(&server, &first, "incorrect");
    let fields = hidden_fields(&page_for(&server, &next, ANN), "/labels/undo");
    assert_eq!(post_as(&server, "/labels/undo", &fields, ANN).status, 303);
    let kept = labels(&server);
    assert_eq!((kept.len(), &kept[0]["label"], &kept[0]["note"]), (1, &json!("correct"), &json!("as typed")));
    // A page from before does not take back what was said since.
    let next = label(&server, &first, "incorrect");
    let fields = hidden_fields(&page_for(&server, &next, ANN), "/labels/undo");
    label(&server, &first, "correct");
    assert_eq!(post_as(&server, "/labels/undo", &fields, ANN).status, 409);
    assert_eq!(labels(&server)[0]["label"], "correct");
}

#[test]
fn a_label_that_cannot_be_stored_comes_back_with_what_was_typed() {
    let (_lab, server) = filled();
    let first = page_for(&server, "/review?evaluator=call_validity", ANN);
    let typed = "note=keep+%3Cthis%3E&author=ann";
    let changed = first.replace("name=\"seen\" value=\"", "name=\"seen\" value=\"0");
    let refused = post(&server, "/labels", &format!("{}&label=correct&{typed}", hidden_fields(&changed, "/labels")));
    let text = refused.text();
    assert_eq!(refused.status, 409, "{text}");
    assert!(
        text.contains("The verdict changed after you opened the page") && text.contains("role=\"alert\""),
        "{text}"
    );
    assert!(
        text.contains("value=\"keep &#60;this&#62;\"") && text.contains("You chose <b><bdi>correct</bdi></b>"),
        "{text}"
    );
    // Its form works: it has the verdict as it is now.
    let reply = post(&server, "/labels", &format!("{}&label=correct&{typed}", hidden_fields(&text, "/labels")));
    assert_eq!(reply.status, 303, "{}", reply.text());
    assert_eq!(labels(&server)[0]["note"], "keep <this>");
    // Without a name, too.
    let nameless = post(&server, "/labels", &format!("{}&label=correct&note=n", hidden_fields(&first, "/labels")));
    assert!(nameless.status == 400 && nameless.text().contains("value=\"n\""), "{}", nameless.text());
    // A verdict that is gone leaves the note to copy.
    let id = server.trace(&trace_id(3))["trajectories"][0]["trajectory_id"].as_str().unwrap().to_owned();
    let fields = hidden_fields(&first, "/labels").replace(&id, "gone");
    let gone = post(&server, "/labels", &format!("{fields}&label=correct&{typed}"));
    assert!(gone.status == 404 && gone.text().contains("readonly>keep &#60;this&#62;</textarea>"), "{}", gone.text());
    // The script gets the same as JSON and stays on the page.
    let send = |fields: &str| {
        let origin = format!("http://{}", server.http);
        let request = server.request("POST", "/labels").header("origin", &origin).header("accept", "application/json");
        request.header("content-type", "application/x-www-form-urlencoded").body(fields.as_bytes()).send()
    };
    let refused = send(&format!("{}&label=correct&{typed}", hidden_fields(&changed, "/labels")));
    assert_eq!(refused.status, 409);
    assert!(refused.json()["error"].as_str().unwrap().starts_with("The verdict changed"));
    let stored = send(&format!("{}&label=correct&{typed}", hidden_fields(&first, "/labels")));
    assert!(stored.json()["next"].as_str().unwrap().starts_with("/review?evaluator=call_validity&labelled="));
}

#[test]
fn a_failure_group_is_reviewed_alone() {
    let (_lab, server) = filled();
    let groups = server.json("/api/v1/failure-groups");
    let group = groups["items"].as_array().unwrap().iter().find(|group| group["evaluator"] == "call_validity").unwrap();
    let key = group["key"].as_str().unwrap();
    let queue = format!("/review?group={}", utf8_percent_encode(key, NON_ALPHANUMERIC));
    let text = page_for(&server, &queue, ANN);
    assert!(text.contains("Verdict <b>1 of 1</b> · 1 left") && text.contains("Only verdicts of the failure group"));
    assert!(text.contains("<bdi>Call validity</bdi>: <bdi>incorrect</bdi>"), "{text}");
    // The filter is kept by the form and by the way on.
    assert!(text.contains(&format!("name=\"group\" value=\"{key}\"")), "{text}");
    let done = page_for(&server, &label(&server, &text, "incorrect"), ANN);
    assert!(done.contains("Nothing is left to look at") && done.contains("Verdict <b>of 1</b> · 0 left"), "{done}");
    let unknown = page(&server, "/review?group=unknown");
    assert!(unknown.contains("does not exist") && unknown.contains("Nothing is left to look at"), "{unknown}");
}
