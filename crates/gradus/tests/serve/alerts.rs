//! Alerts: told once, to everybody, with examples; and nobody waits for those who do not listen.

use std::io::{Read as _, Write as _};
use std::net::TcpListener;
use std::sync::{Arc, Mutex};

use serde_json::{Value as Json, json};

use crate::lab::{Lab, Server, eventually};
use crate::spans::{SECOND_NS, Visit, now_ns};

/// Takes what is posted.
struct Listener {
    port: u16,
    posted: Arc<Mutex<Vec<(String, Json)>>>,
}

impl Listener {
    fn start() -> Listener {
        let socket = TcpListener::bind("127.0.0.1:0").unwrap();
        let port = socket.local_addr().unwrap().port();
        let posted = Arc::new(Mutex::new(Vec::new()));
        let shared = Arc::clone(&posted);
        // Ends with the process.
        std::thread::spawn(move || {
            for stream in socket.incoming() {
                let Ok(mut stream) = stream else { return };
                let mut bytes = Vec::new();
                let mut piece = [0; 4096];
                loop {
                    let text = String::from_utf8_lossy(&bytes).into_owned();
                    if let Some((head, body)) = text.split_once("\r\n\r\n") {
                        let length = head
                            .lines()
                            .find_map(|line| {
                                line.to_ascii_lowercase().strip_prefix("content-length:")?.trim().parse::<usize>().ok()
                            })
                            .unwrap_or(0);
                        if body.len() >= length {
                            let path = head.split(' ').nth(1).unwrap_or_default().to_owned();
                            shared.lock().unwrap().push((path, serde_json::from_str(body).unwrap()));
                            let _ = stream
                                .write_all(b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\nconnection: close\r\n\r\nok");
                            break;
                        }
                    }
                    match stream.read(&mut piece) {
                        Ok(0) | Err(_) => break,
                        Ok(count) => bytes.extend(&piece[..count]),
                    }
                }
            }
        });
        Listener { port, posted }
    }

    fn posted(&self, path: &str) -> Vec<Json> {
        let posted = self.posted.lock().unwrap();
        posted.iter().filter(|(to, _)| to == path).map(|(_, body)| body.clone()).collect()
    }
}

fn settings(port: u16) -> String {
    format!(
        "[[alert]]\nname = \"calls\"\nproject = \"p\"\nwhen = \"call_validity < 0.8 over 1h, at least 5 steps\"\n\
         cool_down = \"1s\"\nwebhook = \"http://127.0.0.1:{port}/hook\"\nslack = \"http://127.0.0.1:{port}/slack\"\n\
         command = [\"sh\", \"-c\", \"cat >> notices.txt; echo >> notices.txt\"]\n"
    )
}

fn send(server: &Server, from: u128, count: u128, is_good: bool) {
    for number in from..from + count {
        let mut visit = Visit::new(number);
        visit.start_ns = now_ns() - 3 * SECOND_NS;
        if !is_good {
            visit.arguments = json!({"file": 7}).to_string();
        }
        server.export(&visit.export("p"));
    }
    server.assembled();
}

fn kinds(server: &Server) -> Vec<String> {
    let alerts = server.json("/api/v1/alerts");
    alerts["events"].as_array().unwrap().iter().map(|event| event["kind"].as_str().unwrap().to_owned()).collect()
}

#[test]
fn fires_tells_everybody_and_resolves() {
    let lab = Lab::new();
    let listener = Listener::start();
    lab.configure("public_url = \"https://gradus.example\"", &settings(listener.port).replace("1s", "1h"));
    let server = lab.serve();
    send(&server, 1, 4, false);
    let rule = server.json("/api/v1/alerts")["rules"][0].clone();
    assert_eq!((&rule["name"], &rule["project"]), (&json!("calls"), &json!("p")));
    send(&server, 5, 10, false);
    let notice = eventually("the webhook is told", || listener.posted("/hook").first().cloned());
    assert_eq!((&notice["kind"], &notice["rule"], &notice["project"]), (&json!("fired"), &json!("calls"), &json!("p")));
    assert!(notice["value"].as_f64().unwrap() < 0.8 && notice["count"].as_u64().unwrap() >= 5, "{notice}");
    let example = &notice["examples"][0];
    let link = example["url"].as_str().unwrap();
    let id = example["trace_id"].as_str().unwrap();
    assert!(link.starts_with(&format!("https://gradus.example/traces/{id}")), "{link}");
    assert_eq!(server.trace(id)["trajectories"].as_array().unwrap().len(), 1);
    let slack = eventually("Slack is told", || listener.posted("/slack").first().cloned());
    assert!(slack["text"].as_str().is_some() && slack["blocks"].as_array().is_some(), "{slack}");
    assert!(slack.to_string().contains(link), "{slack}");
    let path = lab.path("notices.txt");
    let text = eventually("the command has run", || {
        std::fs::read_to_string(&path).ok().filter(|text| text.ends_with("\n") && text.len() > 10)
    });
    let of_command: Json = serde_json::from_str(text.lines().next().unwrap()).unwrap();
    assert_eq!(of_command["rule"], "calls");
    assert!(server.log().contains("call_validity < 0.8"), "the log is told, too");
    assert_eq!(kinds(&server), ["fired"]);
    let state = server.json("/api/v1/alerts")["rules"][0]["state"].clone();
    assert_eq!(state["state"], "firing");
    // A restart neither forgets nor repeats it.
    server.kill();
    let server = lab.serve();
    send(&server, 100, 1, false);
    assert_eq!(server.json("/api/v1/alerts")["rules"][0]["state"], state);
    // Enough good ones end it.
    send(&server, 200, 120, true);
    eventually("it is over", || (kinds(&server) == ["resolved", "fired"]).then_some(()));
    let told = eventually("the webhook is told that", || {
        let posted = listener.posted("/hook");
        (posted.len() > 1).then_some(posted)
    });
    assert_eq!(told.iter().map(|notice| &notice["kind"]).collect::<Vec<_>>(), ["fired", "resolved"]);
    assert_eq!(server.json("/api/v1/alerts")["rules"][0]["state"]["state"], "quiet");
    assert_eq!(server.metric(r#"gradus_alerts_total{rule="calls",kind="resolved"}"#), Some(1.0));
    let page = server.json("/api/v1/alerts?limit=1");
    assert_eq!(page["events"].as_array().unwrap().len(), 1);
    let next = server.json(&format!("/api/v1/alerts?limit=1&cursor={}", page["next_cursor"]));
    assert_eq!(next["events"][0]["kind"], "fired");
}

#[test]
fn a_dead_webhook_stops_nothing() {
    let lab = Lab::new();
    // Takes connections and never answers.
    let silent = TcpListener::bind("127.0.0.1:0").unwrap();
    let listener = Listener::start();
    let port = silent.local_addr().unwrap().port();
    let dead = settings(port);
    // Known by the beginning of its project's name, and by trajectories instead of steps.
    let second = settings(listener.port).replace("\"calls\"", "\"also calls\"");
    let second = second.replace("project = \"p\"", "project = \"p*\"").replace("5 steps", "5 trajectories");
    lab.configure("", &format!("{dead}{second}"));
    let server = lab.serve();
    send(&server, 1, 10, false);
    // The other one is told, what comes is graded, and the links lead here.
    let notice = eventually("the living one is told", || listener.posted("/hook").first().cloned());
    let link = notice["examples"][0]["url"].as_str().unwrap().to_owned();
    assert!(link.starts_with(&format!("http://{}/traces/", server.http)), "{link}");
    send(&server, 100, 10, true);
    let scored = server.json("/api/v1/metrics?evaluator=call_validity")["items"][0]["scored"].clone();
    assert_eq!(scored, 20);
    assert_eq!(server.stop().0, Some(0), "it does not wait for ever");
}
