//! Versions against each other, and lists that are sorted, counted and exported.

use serde_json::json;

use crate::lab::{Lab, Server, json_lines};
use crate::pages::{page, post};
use crate::spans::{SECOND_NS, Visit, attributes, export, now_ns, trace_id};

/// Two versions of one agent over the same four requests; the second one makes a call that its tool cannot take in two of
/// them.
pub(crate) fn two_versions() -> (Lab, Server) {
    let lab = Lab::new();
    let server = lab.serve();
    for number in 0..8_u64 {
        let (task, is_new) = (number % 4, number >= 4);
        let arguments = if is_new && task < 2 { json!({"file": task}) } else { json!({"path": format!("{task}.md")}) };
        let visit = Visit {
            query: format!("Show me file {task} of the demo repository"),
            arguments: arguments.to_string(),
            start_ns: now_ns() - (100 - number) * SECOND_NS,
            ..Visit::new(u128::from(number) + 1)
        };
        let mut spans = visit.spans();
        let version = if is_new { "2.3.0" } else { "2.2.0" };
        for span in &mut spans {
            span.attributes.extend(attributes(&[("agent.version", version)]));
        }
        server.export(&export("shop", spans));
    }
    server.assembled();
    (lab, server)
}

/// The first link of a page that begins like this.
fn find_link(page: &str, begins: &str) -> String {
    let link = page.split("href=\"").find(|part| part.starts_with(begins)).unwrap();
    link.split('"').next().unwrap().replace("&#38;", "&").replace("&amp;", "&")
}

#[test]
fn two_versions_are_compared_as_the_command_does() {
    let (_lab, server) = two_versions();
    let listed = server.json("/api/v1/versions?project=shop");
    let names: Vec<_> = listed["items"].as_array().unwrap().iter().map(|one| one["name"].as_str().unwrap()).collect();
    assert_eq!(names, ["2.3.0", "2.2.0"]);
    assert_eq!(listed["items"][0]["trajectories"], 4);
    let compared = server.json("/api/v1/compare?by=version&a=2.2.0&b=2.3.0&project=shop");
    assert_eq!((&compared["pairing"], &compared["versions"][1]["runs"]), (&json!("task"), &json!(4)));
    let worse = compared["flips"][0]["worse"].as_array().unwrap();
    let flip = worse.iter().find(|flip| flip["dimension"] == "call_validity").unwrap();
    assert_eq!((&flip["before"], &flip["after"]), (&json!(1.0), &json!(0.0)));
    assert!(flip["after_path"].as_str().unwrap().contains("read_file ✗"), "{flip}");
    assert_eq!(compared["failure_groups"][0]["runs"], json!([0, 2]));
    // The page has the same, and leads to both runs side by side.
    let text = page(&server, "/compare?by=version&a=2.2.0&b=2.3.0&project=shop");
    assert!(text.contains("2.3.0 against 2.2.0") && text.contains("Worse in B than in A: "), "{text}");
    let steps = page(&server, &find_link(&text, "/compare/steps?"));
    assert!(steps.contains("other arguments: file, path"), "{steps}");
    // The API has the same rows.
    let link = find_link(&steps, "/api/v1/compare/steps?");
    let aligned = server.json(&link);
    let row = &aligned["rows"][0];
    assert_eq!((&row["relation"], &row["different_arguments"]), (&json!("other_arguments"), &json!(["file", "path"])));
    assert_eq!(row["a"]["step"]["tool"], "read_file");
    let flagged = ["a", "b"].map(|side| {
        let flags = row[side]["flags"].as_array().unwrap();
        flags.iter().any(|flag| flag["evaluator"] == "call_validity" && flag["score"] == 0.0)
    });
    assert_eq!(flagged, [false, true], "{row}");
    assert_eq!((&aligned["a"]["version"], &aligned["b"]["version"]), (&json!("2.2.0"), &json!("2.3.0")));
    assert_eq!((&aligned["row_count"], &aligned["differing_count"]), (&json!(1), &json!(1)));
    assert_eq!(server.json(&format!("{link}&offset=1"))["rows"], json!([]));
    // From the list of versions it is one click.
    let list = page(&server, "/versions?project=shop");
    assert!(list.contains("/compare?by=version&#38;project=shop&#38;range=30d&#38;a=2.2.0&#38;b=2.3.0"), "{list}");
    // Links keep what the page is about: range, days and names.
    let narrowed = "by=version&project=shop&agent=librarian";
    for query in [format!("{narrowed}&range=7d"), format!("{narrowed}&from=2026-01-01&to=2096-01-01")] {
        let list = page(&server, &format!("/versions?{query}"));
        assert!(list.contains("Remove agent librarian"), "{list}");
        let api = find_link(&list, "/api/v1/versions?");
        assert!(api.contains("&agent=librarian&from=") && !api.contains("range="), "{api}");
        assert_eq!(server.json(&api)["items"].as_array().unwrap().len(), 2, "{api}");
        let traces = find_link(&list, "/traces?project=shop&#38;");
        assert!(traces.contains("agent=librarian") && traces.contains("version=2.3.0"), "{traces}");
        let compared = page(&server, &find_link(&list, "/compare?"));
        let api = find_link(&compared, "/api/v1/compare?");
        assert!(api.contains("&from=") && server.get(&api).status == 200, "{api}");
    }
    for (path, status) in [
        ("/api/v1/compare?by=version&a=2.2.0&b=2.2.0", 400),
        ("/api/v1/compare?by=colour&a=1&b=2", 400),
        ("/api/v1/compare?by=version&a=2.2.0&b=9", 404),
        ("/api/v1/versions?by=colour", 400),
        ("/compare/steps?a=x&b=y", 404),
        ("/api/v1/compare/steps?a=x&b=y", 404),
        ("/api/v1/compare/steps?a=x&b=y&run_a=nothing", 404),
        ("/api/v1/compare/steps?a=x", 400),
        ("/api/v1/compare/steps?a=x&b=y&limit=0", 400),
    ] {
        assert_eq!(server.get(path).status, status, "{path}");
    }
}

#[test]
fn lists_are_counted_sorted_and_exported() {
    let (_lab, server) = two_versions();
    let text = page(&server, "/traces?wrong=call_validity");
    assert!(text.contains("2 matches") && text.contains("<option value=\"read_file\">"), "{text}");
    // What could not be judged in any of them has no column.
    assert!(text.contains("Call validity</bdi></th>") && !text.contains("Request to tool</bdi></th>"), "{text}");
    assert!(text.contains(">Export all matches<") && text.contains("most flagged"), "{text}");
    // With a condition on spans there is neither an order nor an export of everything.
    let with_condition = page(&server, "/traces?where=span_kind+%3D%3D+%27TOOL%27");
    assert!(with_condition.contains("Export selected"), "{with_condition}");
    assert!(!with_condition.contains("most flagged") && !with_condition.contains("Export all"), "{with_condition}");
    // Every one of the runs has a flagged verdict; equal ones stay newest first.
    let sorted = page(&server, "/traces?sort=wrong");
    assert!(sorted.split("data-id=\"").nth(1).unwrap().starts_with(trace_id(8).as_str()), "{sorted}");
    assert_eq!(server.request("GET", "/traces?sort=colour").header("accept", "text/html").send().status, 200);
    let lines = |query: &str| json_lines(server.get(&format!("/traces/export?{query}")).text().as_bytes());
    let selected = lines(&format!("trace={}&trace={}&format=jsonl", trace_id(1), trace_id(5)));
    assert_eq!(selected.len(), 2);
    assert_eq!(selected[1]["trajectory"]["agent_version"], "2.3.0");
    assert!(selected[1]["verdicts"].as_array().unwrap().iter().any(|line| line["label"] == "incorrect"));
    assert_eq!(lines("wrong=call_validity").len(), 2);
    let table = server.get("/traces/export?format=csv&version=2.2.0").text();
    assert!(table.starts_with("trace_id,trajectory_id,project,"), "{table}");
    assert_eq!(table.lines().count(), 5);
    assert_eq!(server.get("/traces/export?format=xml").status, 400);
    // The button below the list exports what is ticked, and not everything if nothing is.
    let none = server.get("/traces/export?selection=1&format=jsonl");
    assert!(none.status == 400 && none.text().contains("No trace is selected"), "{}", none.text());
    assert_eq!(lines(&format!("selection=1&trace={}&format=jsonl", trace_id(1))).len(), 1);
    // Programs get the same orders, page by page.
    let first = server.json("/api/v1/traces?sort=wrong&limit=3");
    assert_eq!(first["items"][0]["trace_id"], trace_id(8));
    let next =
        server.json(&format!("/api/v1/traces?sort=wrong&limit=3&cursor={}", first["next_cursor"].as_str().unwrap()));
    assert_eq!(
        (next["items"][0]["trace_id"].clone(), next["items"].as_array().unwrap().len()),
        (trace_id(5).into(), 3)
    );
}

#[test]
fn crashes_are_grouped_by_their_error_and_shown_where_no_rule_asks_for_them() {
    let crashed = |lab: &Lab| {
        let server = lab.serve();
        for (number, message) in
            ["Error code: 429 - quota of 20 reached", "Error code: 429 - quota of 30 reached", "connection reset"]
                .iter()
                .enumerate()
        {
            let mut visit = Visit::new(number as u128 + 1);
            visit.start_ns = now_ns() - 10 * SECOND_NS;
            let mut root = visit.root();
            root.attributes.retain(|one| one.key != "output.value");
            root.status =
                Some(opentelemetry_proto::tonic::trace::v1::Status { code: 2, message: (*message).to_owned() });
            server.export(&export("shop", vec![root]));
        }
        server.assembled();
        server
    };
    let lab = Lab::new();
    let server = crashed(&lab);
    let groups = server.json("/api/v1/failure-groups");
    let found: Vec<_> = (groups["items"].as_array().unwrap().iter())
        .map(|group| (group["reason"].as_str().unwrap(), group["trajectories"].as_u64().unwrap()))
        .collect();
    let quota = "The run ended in an error without an answer: Error code: `429` - quota of <number> reached";
    let reset = "The run ended in an error without an answer: connection reset";
    assert_eq!(found, [(quota, 2), (reset, 1)]);
    let home = page(&server, "/");
    assert!(home.contains("quota of … reached") && home.contains("e.g. <bdi>"), "{home}");
    // A rule of one's own need not ask how runs ended.
    let lab = Lab::with("", "[[rule]]\nname = \"own\"\nevaluators = [\"call_validity\", \"thought_to_tool\"]\n");
    let server = crashed(&lab);
    let list = page(&server, "/traces");
    assert!(list.contains("the run recorded that it ended in an error"), "{list}");
}

#[test]
fn the_verdicts_of_a_group_are_reviewed_alone_and_its_dataset_states_its_checks() {
    let (_lab, server) = two_versions();
    let group = server.json("/api/v1/failure-groups")["items"][0].clone();
    let key = group["key"].as_str().unwrap();
    let alone = server.json(&format!("/api/v1/failure-groups/{key}"));
    assert_eq!((&alone["reason"], &alone["examples"][0]), (&group["reason"], &group["example"]));
    assert_eq!(alone["examples"].as_array().unwrap().len() as u64, group["trajectories"].as_u64().unwrap());
    assert_eq!(server.get("/api/v1/failure-groups/nonsense").status, 404);
    let text = page(&server, &format!("/groups/{key}"));
    assert!(text.contains(&format!("&#38;group={key}\">Review these")) && text.contains("without checks"), "{text}");
    let review = page(&server, &format!("/review?group={key}"));
    assert!(review.contains("Only verdicts of the failure group"), "{review}");
    let items = json_lines(server.get(&format!("/api/v1/failure-groups/{key}/dataset")).text().as_bytes());
    assert_eq!(items[0]["metadata"]["checks"], "none");
}

/// What its definition list says under a name.
fn fact<'t>(text: &'t str, name: &str) -> &'t str {
    let found = text.split(&format!("<dt>{name}</dt>")).nth(1).unwrap_or_else(|| panic!("{name} in {text}"));
    found.split("</dd>").next().unwrap()
}

#[test]
fn a_group_has_the_same_runs_in_its_row_on_its_page_and_in_the_review() {
    let (_lab, server) = two_versions();
    let bad = |trace: u128, seconds_ago: u64| Visit {
        arguments: json!({"file": 1}).to_string(),
        start_ns: now_ns() - seconds_ago * SECOND_NS,
        ..Visit::new(trace)
    };
    const DAY_S: u64 = 86_400;
    // One of another project, one before the period and one in the period before.
    server.export(&bad(21, 30).export("other"));
    server.export(&bad(22, 40 * DAY_S).export("shop"));
    server.export(&bad(23, 9 * DAY_S).export("shop"));
    server.assembled();
    let verdicts = |link: &str| {
        let text = page(&server, link);
        let of = text.split("Verdict <b>").nth(1).unwrap_or_else(|| panic!("{link}: {text}"));
        of.split("</b>").next().unwrap().rsplit(' ').next().unwrap().to_owned()
    };
    for (home, runs, all, queue) in [
        ("/?project=shop", "2", "8", "2"),
        ("/?project=shop&version=2.3.0", "2", "4", "2"),
        ("/?project=shop&range=all", "4", "10", "4"),
        ("/", "3", "9", "3"),
    ] {
        let text = page(&server, home);
        let row = text.split("<tr>").find(|row| row.contains("Call validity: ")).unwrap();
        assert!(row.contains(&format!(">{runs}</a></td><td data-label=\"Share\"")), "{home}: {row}");
        assert_eq!(verdicts(&find_link(row, "/review?")), queue, "{home}");
        // Equal requests are one item.
        let dataset = json_lines(server.get(&find_link(row, "/api/v1/failure-groups/")).text().as_bytes());
        assert_eq!(dataset.len().to_string(), runs, "{home}");
        // All that the row shows.
        let group = page(&server, &find_link(row, "/groups/"));
        let group = group.split("<main").nth(1).unwrap();
        assert!(fact(group, "Runs").contains(&format!(">{runs}</a> of {all}")), "{home}: {group}");
        let cell =
            |name: &str| row.split(&format!("data-label=\"{name}\"")).nth(1).unwrap().split("</td>").next().unwrap();
        let inner = |text: &str| text.split_once('>').unwrap().1.to_owned();
        assert_eq!(inner(fact(group, "Share")), inner(cell("Share")), "{home}");
        if !cell("Before").contains("\"></span>") {
            assert_eq!(inner(fact(group, "Before")), inner(cell("Before")), "{home}");
        }
        assert_eq!(inner(fact(group, "Versions")), inner(cell("Versions")), "{home}");
        assert_eq!(inner(fact(group, "Worst example")), inner(cell("Worst example")), "{home}");
        assert_eq!(inner(fact(group, "First seen, at any time")), inner(cell("First seen")), "{home}");
        for link in ["/review?", "/traces?", "/api/v1/failure-groups/"] {
            assert_eq!(find_link(group, link), find_link(row, link), "{home}");
        }
        assert!(group.contains("All stored runs with it</dt><dd><bdi>5</bdi>"), "{group}");
    }
    // The queue keeps its limits from verdict to verdict, names them, and lets each be removed.
    let home = page(&server, "/?project=shop&version=2.3.0");
    let row = home.split("<tr>").find(|row| row.contains("Call validity: ")).unwrap();
    let queue = page(&server, &find_link(row, "/review?"));
    for name in ["version", "from", "group"] {
        assert!(queue.contains(&format!("<input type=\"hidden\" name=\"{name}\" value=\"")), "{name}: {queue}");
    }
    assert!(queue.contains("aria-label=\"Remove version 2.3.0\"") && queue.contains("aria-label=\"Remove from 20"));
    let back = queue.split("name=\"back\" value=\"").nth(1).unwrap().split('"').next().unwrap();
    assert!(back.contains("version=2.3.0") && back.contains("&#38;from=20") && back.contains("&#38;group="), "{back}");
    let wrong = server.request("GET", "/review?from=soon").header("accept", "text/html").send();
    assert_eq!(wrong.status, 400);
    // A group without a run in the time leads to those that it has.
    let key = find_link(row, "/groups/").split(['/', '?']).nth(2).unwrap().to_owned();
    let none = page(&server, &format!("/groups/{key}?project=none"));
    assert!(fact(&none, "Runs").contains(">0</a> of 0") && none.contains("Show all stored runs with it"), "{none}");
    assert_eq!(server.get(&format!("/api/v1/failure-groups/{key}/dataset?project=none")).status, 404);
}

#[test]
fn programs_name_and_mute_failure_groups() {
    let (_lab, server) = two_versions();
    let key = server.json("/api/v1/failure-groups")["items"][0]["key"].as_str().unwrap().to_owned();
    let path = format!("/api/v1/failure-groups/{key}");
    let change = |body: serde_json::Value| server.request("PATCH", &path).json(&body).send();
    assert_eq!(change(json!({"name": "Old client", "note": "ann looks", "muted": true})).status, 204);
    let known = |group: &serde_json::Value| (group["name"].clone(), group["note"].clone(), group["muted"].clone());
    assert_eq!(known(&server.json(&path)), (json!("Old client"), json!("ann looks"), json!(true)));
    assert!(server.json("/api/v1/failure-groups")["items"].as_array().unwrap().iter().all(|one| one["key"] != key));
    // What is not named stays, and an empty text removes.
    assert_eq!(change(json!({"note": "", "muted": false})).status, 204);
    assert_eq!(known(&server.json(&path)), (json!("Old client"), json!(null), json!(false)));
    assert!(page(&server, "/").contains("<bdi>Old client</bdi>"));
    for (body, status) in [
        (json!({"name": "x".repeat(121)}), 400),
        (json!({"note": "x".repeat(2_001)}), 400),
        (json!({"title": "x"}), 400),
        (json!({"muted": "yes"}), 400),
    ] {
        assert_eq!(change(body.clone()).status, status, "{body}");
    }
    assert_eq!(server.request("PATCH", "/api/v1/failure-groups/none").json(&json!({"name": "x"})).send().status, 404);
    // As for the form of the page, a key needs the scope admin.
    let lab = Lab::with("require_key = true", "");
    let scopes = [("read", 403), ("ingest", 403), ("admin", 404)];
    let keys = scopes.map(|(scope, _)| lab.run(&["keys", "add", scope, "--scopes", scope]).exits_with(0).out);
    let server = lab.serve();
    for ((scope, status), key) in scopes.into_iter().zip(keys) {
        let bearer = format!("Bearer {}", key.trim());
        let request = server.request("PATCH", "/api/v1/failure-groups/none").json(&json!({"name": scope}));
        assert_eq!(request.header("authorization", &bearer).send().status, status, "{scope}");
    }
}

#[test]
fn a_group_form_that_is_refused_keeps_what_was_typed() {
    let (_lab, server) = two_versions();
    let key = server.json("/api/v1/failure-groups")["items"][0]["key"].as_str().unwrap().to_owned();
    let group = format!("/groups/{key}?project=shop");
    // Browsers count a line break as one character and send two.
    let lines = "a%0D%0A".repeat(1_000);
    assert_eq!(post(&server, &group, &format!("name=&note={lines}")).status, 303);
    let note = server.json(&format!("/api/v1/failure-groups/{key}"))["note"].as_str().unwrap().to_owned();
    assert_eq!(note, "a\n".repeat(1_000).trim());
    let refused = post(&server, &group, &format!("name=Wrong+file&note={}", "n".repeat(2_001)));
    let text = refused.text();
    assert_eq!(refused.status, 400, "{text}");
    assert!(text.contains("role=\"alert\">The note has 2001 characters; at most 2000 are kept."), "{text}");
    assert!(text.contains("value=\"Wrong file\"") && text.contains(&format!(">{}</textarea>", "n".repeat(2_001))));
    // Without a page for its form, the text is there to copy.
    let gone = post(&server, "/groups/gone", "name=Wrong+file&note=keep+%3Cthis%3E");
    let text = gone.text();
    assert!(gone.status == 404 && text.contains("failure group not found"), "{text}");
    assert!(
        text.contains("readonly>Wrong file</textarea>") && text.contains("readonly>keep &#60;this&#62;</textarea>")
    );
    // The script stays on the page and gets the reason as JSON.
    let send = |path: &str, fields: &str| {
        let origin = format!("http://{}", server.http);
        let request = server.request("POST", path).header("origin", &origin).header("accept", "application/json");
        request.header("content-type", "application/x-www-form-urlencoded").body(fields.as_bytes()).send()
    };
    let refused = send(&group, &format!("name={}", "n".repeat(121)));
    assert_eq!((refused.status, refused.json()["error"].is_string()), (400, true));
    assert_eq!(send(&group, "name=Wrong+file").json(), json!({"next": group}));
}

#[test]
fn a_group_form_that_cannot_be_stored_comes_back_with_what_was_typed() {
    let (lab, server) = two_versions();
    let key = server.json("/api/v1/failure-groups")["items"][0]["key"].as_str().unwrap().to_owned();
    let (log, away) = (lab.path(".gradus/gradus.db-wal"), lab.path("away"));
    std::fs::rename(&log, &away).unwrap();
    let refused = post(&server, &format!("/groups/{key}"), "name=Wrong+file&note=keep+%3Cthis%3E");
    let text = refused.text();
    assert_eq!(refused.status, 503, "{text}");
    assert!(text.contains("role=\"alert\"") && text.contains("gone or was replaced"), "{text}");
    assert!(text.contains("value=\"Wrong file\"") && text.contains(">keep &#60;this&#62;</textarea>"), "{text}");
    std::fs::rename(&away, &log).unwrap();
    assert!(!page(&server, &format!("/groups/{key}")).contains("Wrong file"));
}
