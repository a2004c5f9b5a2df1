//! Agents behind HTTP.

use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::{Arc, Mutex};

use serde_json::{Value as Json, json};

use crate::place::Place;
use crate::spans::agent_trace;
use crate::{document, rate};

const ITEMS: &str = r#"{"id": "order 7", "request": "Where is \"order\" 7?", "expected_tools": ["find_order"], "answer_contains": "shipped"}
{"id": "b", "request": "Thank you!", "expected_tools": {"mode": "exact", "tools": []}}
"#;

/// What the agent was sent.
#[derive(Clone)]
struct SeenRequest {
    headers: String,
    body: Json,
}

/// How the agent marks its spans.
#[derive(Clone, Copy, PartialEq)]
enum SpanMarks {
    /// It continues the trace of `traceparent`.
    Trace,
    /// It begins a trace of its own and copies baggage to its spans.
    Baggage,
    Nothing,
}

fn read_message(stream: &TcpStream) -> (String, Vec<u8>) {
    let mut reader = BufReader::new(stream);
    let mut headers = String::new();
    while !headers.ends_with("\r\n\r\n") {
        assert!(reader.read_line(&mut headers).unwrap() > 0, "{headers}");
    }
    let length = header(&headers, "content-length").map_or(0, |text| text.parse().unwrap());
    let mut body = vec![0; length];
    reader.read_exact(&mut body).unwrap();
    (headers, body)
}

fn header(headers: &str, name: &str) -> Option<String> {
    headers.lines().find_map(|line| {
        let (found, value) = line.split_once(':')?;
        found.eq_ignore_ascii_case(name).then(|| value.trim().to_owned())
    })
}

fn send_spans(collector: SocketAddr, spans: &Json) {
    let mut stream = TcpStream::connect(collector).unwrap();
    let body = spans.to_string();
    write!(
        stream,
        "POST /v1/traces HTTP/1.1\r\nhost: localhost\r\ncontent-type: application/json\r\ncontent-length: {}\r\nconnection: close\r\n\r\n{body}",
        body.len()
    )
    .unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).unwrap();
    assert!(answer.starts_with("HTTP/1.1 200"), "{answer}");
}

/// An agent that answers `reply` and sends spans first. It ends with the test.
fn start_agent(
    collector: SocketAddr,
    marks: SpanMarks,
    reply: &'static str,
) -> (SocketAddr, Arc<Mutex<Vec<SeenRequest>>>) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    let seen = Arc::new(Mutex::new(Vec::new()));
    let log = Arc::clone(&seen);
    std::thread::spawn(move || {
        for (number, stream) in listener.incoming().enumerate() {
            let mut stream = stream.unwrap();
            let (headers, body) = read_message(&stream);
            let body: Json = serde_json::from_slice(&body).unwrap();
            let parent = header(&headers, "traceparent").unwrap();
            let parts: Vec<&str> = parent.split('-').collect();
            let baggage = header(&headers, "baggage").unwrap();
            let pairs: Vec<(&str, &str)> = baggage.split(',').map(|pair| pair.split_once('=').unwrap()).collect();
            let own = format!("{:032x}", number + 1);
            let tools: &[&str] = if body.to_string().contains("order") { &["find_order"] } else { &[] };
            let trace = match marks {
                SpanMarks::Trace => {
                    // The response counts, since the command says where the answer is in it.
                    agent_trace(parts[1], parts[2], "q", tools, Some("A draft."), &[("session.id", "same")])
                }
                SpanMarks::Baggage => agent_trace(&own, "", "q", tools, None, &pairs),
                SpanMarks::Nothing => agent_trace(&own, "", "q", tools, None, &[]),
            };
            send_spans(collector, &trace);
            log.lock().unwrap().push(SeenRequest { headers, body });
            write!(stream, "HTTP/1.1 200 OK\r\ncontent-length: {}\r\nconnection: close\r\n\r\n{reply}", reply.len())
                .unwrap();
        }
    });
    (address, seen)
}

fn free_address() -> SocketAddr {
    TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap()
}

const REPLY: &str = r#"{"output": {"text": "It was shipped."}}"#;

fn experiment(place: &Place, marks: SpanMarks, words: &[&str]) -> (crate::place::Ran, Vec<SeenRequest>) {
    place.write("items.jsonl", ITEMS);
    let collector = free_address();
    let (agent, seen) = start_agent(collector, marks, REPLY);
    let (url, collector) = (format!("http://{agent}/chat"), collector.to_string());
    let fixed = ["experiment", "items.jsonl", "--agent-url", &url, "--collector", &collector, "--out", "out"];
    let more = ["--answer-path", "/output/text", "--span-wait", "0.2", "--json", "out.json"];
    let ran = place.run(&[&fixed[..], &more, words].concat()).exits_with(0);
    let seen = seen.lock().unwrap().clone();
    (ran, seen)
}

#[test]
fn an_agent_gets_a_body_and_a_trace_for_each_trial() {
    let place = Place::new();
    let template = r#"{"input": "Q: {request}", "history": "{messages}", "id": "{item_id}", "n": 1}"#;
    let (_, seen) = experiment(&place, SpanMarks::Trace, &["--body-template", template, "--trials", "2"]);
    assert_eq!(seen.len(), 4);
    let question = r#"Where is "order" 7?"#;
    let expected = json!({"input": format!("Q: {question}"), "history": [{"role": "user", "content": question}],
        "id": "order 7", "n": 1});
    assert!(seen.iter().any(|request| request.body == expected), "{:?}", seen[0].body);
    let baggage: Vec<String> = seen.iter().map(|request| header(&request.headers, "baggage").unwrap()).collect();
    assert!(baggage.iter().any(|text| text.contains("gradus.item.id=order%207,gradus.trial=1")), "{baggage:?}");
    let found = document(&place, "out.json");
    assert_eq!(rate(&found, "pass"), (1.0, 4), "{found}");
    assert_eq!(rate(&found, "expected_tools"), (1.0, 4));
    assert_eq!(found["experiment"]["unattributed_spans"], 0);
    assert_eq!(found["summary"]["trajectories"], 4, "trials that share a session are not one conversation");
    let trial = &place.lines("out/trials.jsonl")[0];
    assert_eq!((&trial["answer"], &trial["has_spans"]), (&json!("It was shipped."), &json!(true)));
}

#[test]
fn secrets_of_the_agent_are_sent_and_not_stored() {
    let place = Place::new();
    place.write("items.jsonl", ITEMS);
    let collector = free_address();
    let (agent, seen) = start_agent(collector, SpanMarks::Trace, REPLY);
    let collector = collector.to_string();
    let url = |key: &str| format!("http://bob:hunter-two@{agent}/chat?api={key}");
    let run = |url: &str, words: &[&str]| {
        let fixed = ["experiment", "items.jsonl", "--agent-url", url, "--collector", &collector, "--out", "out"];
        let more = ["--span-wait", "0.2", "--setup", "true --token setup-secret", "--json", "out.json"];
        let header = ["--agent-header", "Authorization: Bearer $AGENT_TOKEN"];
        let mut command = place.command(&[&fixed[..], &more, &header, words].concat());
        crate::place::Ran::from_output(command.env("AGENT_TOKEN", "header-secret").output().unwrap())
    };
    run(&url("first-secret"), &[]).exits_with(0);
    let first = seen.lock().unwrap()[0].clone();
    assert_eq!(header(&first.headers, "authorization").as_deref(), Some("Bearer header-secret"));
    assert!(first.headers.starts_with("POST /chat?api=first-secret"), "{}", first.headers);
    for secret in ["hunter-two", "first-secret", "setup-secret", "header-secret"] {
        for file in ["out/experiment.json", "out/trials.jsonl", "out/.journal.jsonl", "out.json"] {
            assert!(!place.read(file).contains(secret), "{secret} in {file}");
        }
    }
    assert!(place.read("out/experiment.json").contains("?api=[redacted]"), "{}", place.read("out/experiment.json"));
    // The same agent is recognised, and another secret is another agent.
    let asked = seen.lock().unwrap().len();
    run(&url("first-secret"), &[]).exits_with(0);
    assert_eq!(seen.lock().unwrap().len(), asked, "all trials are there");
    let other = run(&url("other-secret"), &[]).exits_with(2);
    assert!(other.err.contains("called with other secrets"), "{}", other.err);
    let unset = place.run(&["experiment", "items.jsonl", "--agent-url", "http://h", "--agent-header", "a: $NOT_SET"]);
    assert!(unset.exits_with(2).err.contains("the variable NOT_SET is not set"));
}

#[test]
fn baggage_tells_trials_apart_where_the_trace_does_not() {
    let place = Place::new();
    experiment(&place, SpanMarks::Baggage, &["--no-grading"]);
    let found = document(&place, "out.json");
    assert_eq!(rate(&found, "expected_tools"), (1.0, 2));
    assert_eq!(found["experiment"]["unattributed_traces"], 0);
}

#[test]
fn spans_that_belong_to_no_trial_are_reported() {
    let place = Place::new();
    experiment(&place, SpanMarks::Nothing, &["--no-grading"]);
    let found = document(&place, "out.json");
    assert_eq!(
        (&found["experiment"]["unattributed_spans"], &found["experiment"]["unattributed_traces"]),
        (&json!(3), &json!(2))
    );
    assert_eq!(place.lines("out/trials.jsonl")[0]["checks"][0]["outcome"], "not_checked");
    let ran = place.run(&["report"]).exits_with(0);
    assert!(ran.out.contains("3 spans in 2 traces belong to no trial; hint:"), "{}", ran.out);
}

#[test]
fn an_agent_that_is_not_there_stops_the_experiment() {
    let place = Place::new();
    place.write("items.jsonl", ITEMS);
    // Nothing listens on port 1; a free port could be taken by then.
    let url = "http://127.0.0.1:1/chat";
    let ran = place.run(&["experiment", "items.jsonl", "--agent-url", url, "--span-wait", "0.1"]).exits_with(2);
    let last = ran.err.lines().last().unwrap();
    assert!(
        last.contains("agent not found: http://127.0.0.1") && last.contains("hint: start the agent first"),
        "{}",
        ran.err
    );
}

#[test]
fn bad_answers_fail_the_trial() {
    let place = Place::new();
    place.write("items.jsonl", "{\"id\": \"a\", \"request\": \"r\"}\n");
    for (reply, words, expected) in [
        ("HTTP/1.1 500 Oops\r\ncontent-length: 4\r\n\r\nfail", &[][..], "status 500: fail"),
        ("HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\n{}", &["--answer-path", "/x"], "the response has nothing at /x"),
        ("HTTP/1.1 200 OK\r\ncontent-length: 9\r\n\r\n{}", &[], "the response broke off"),
        ("HTTP/1.1 200 OK\r\n\r\n", &["--agent-timeout", "0.3"], "it took longer than 0.3 s"),
    ] {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let url = format!("http://{}/", listener.local_addr().unwrap());
        let is_slow = expected.contains("longer");
        let agent = std::thread::spawn(move || {
            let mut stream = listener.accept().unwrap().0;
            read_message(&stream);
            stream.write_all(reply.as_bytes()).unwrap();
            if is_slow {
                // Until the other side gives up.
                let _ = stream.read(&mut [0]);
            }
        });
        let fixed = [
            "experiment",
            "items.jsonl",
            "--agent-url",
            &url,
            "--span-wait",
            "0.1",
            "--out",
            "out",
            "--fresh",
            "--no-grading",
        ];
        place.run(&[&fixed[..], words].concat()).exits_with(0);
        agent.join().unwrap();
        let trial = place.lines("out/trials.jsonl").remove(0);
        assert!(trial["failure"].as_str().unwrap().starts_with(expected), "{trial}");
    }
}
