//! A model that plays a script, a GitHub, a folder, and the agent between them.

use std::io::{BufRead as _, BufReader};
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::time::{Duration, Instant};

use gradus_github_sim::{SeedFile, SimulatorServer};
use gradus_test_endpoint::{Answer, Endpoint, Incoming};
use serde_json::{Value as Json, json};

use crate::place::{Place, Ran};

pub(crate) const TOKEN: &str = "test_token_user1";

/// One reply of the model.
#[derive(Clone)]
pub(crate) struct Reply {
    pub(crate) thought: &'static str,
    pub(crate) calls: Vec<(&'static str, Json)>,
}

pub(crate) fn call(thought: &'static str, tool: &'static str, arguments: Json) -> Reply {
    Reply { thought, calls: vec![(tool, arguments)] }
}

pub(crate) fn answer(text: &'static str) -> Reply {
    Reply { thought: text, calls: Vec::new() }
}

/// A model that finds its place by counting what it said before, in whichever form it is asked.
pub(crate) fn model(script: Vec<Reply>) -> Endpoint {
    model_with(script, |_| None)
}

/// `meddle` may answer instead.
pub(crate) fn model_with(
    script: Vec<Reply>,
    meddle: impl Fn(&Incoming<'_>) -> Option<Answer> + Send + Sync + 'static,
) -> Endpoint {
    Endpoint::start(Arc::new(move |incoming: &Incoming<'_>| {
        if let Some(answer) = meddle(incoming) {
            return answer;
        }
        let asked: Json = serde_json::from_slice(incoming.body).unwrap();
        let said = asked["messages"].as_array().unwrap().iter().filter(|message| message["role"] == "assistant");
        let said = said.count();
        let reply = script.get(said).cloned().unwrap_or_else(|| answer("I have no more lines."));
        let native = asked.get("tools").is_some();
        Answer::ok(if incoming.what().ends_with("/v1/messages") {
            anthropic(&reply, said)
        } else if native {
            openai(&reply, said)
        } else {
            text(&reply)
        })
    }))
    .unwrap()
}

fn openai(reply: &Reply, said: usize) -> String {
    let calls: Vec<Json> = reply
        .calls
        .iter()
        .enumerate()
        .map(|(index, (tool, arguments))| {
            json!({"id": format!("call_{said}_{index}"), "type": "function",
                "function": {"name": tool, "arguments": arguments.to_string()}})
        })
        .collect();
    let mut message = json!({"role": "assistant", "content": reply.thought});
    if !calls.is_empty() {
        message["tool_calls"] = json!(calls);
    }
    completion(&message)
}

fn text(reply: &Reply) -> String {
    let content = match reply.calls.first() {
        Some((tool, arguments)) => {
            format!("Thought: {}\nAction: {tool}\nAction Input: {arguments}", reply.thought)
        }
        None => format!("Thought: I am done.\nFinal Answer: {}", reply.thought),
    };
    completion(&json!({"role": "assistant", "content": content}))
}

fn completion(message: &Json) -> String {
    json!({"choices": [{"message": message, "finish_reason": "stop"}],
        "usage": {"prompt_tokens": 100, "completion_tokens": 10}})
    .to_string()
}

fn anthropic(reply: &Reply, said: usize) -> String {
    let mut content = vec![json!({"type": "text", "text": reply.thought})];
    for (index, (tool, arguments)) in reply.calls.iter().enumerate() {
        let id = format!("toolu_{said}_{index}");
        content.push(json!({"type": "tool_use", "id": id, "name": tool, "input": arguments}));
    }
    json!({"content": content, "stop_reason": "tool_use", "usage": {"input_tokens": 100, "output_tokens": 10}})
        .to_string()
}

pub(crate) struct Lab {
    place: Place,
    pub(crate) github: SimulatorServer,
}

impl std::ops::Deref for Lab {
    type Target = Place;

    fn deref(&self) -> &Place {
        &self.place
    }
}

impl Lab {
    pub(crate) fn new(seed: &str) -> Lab {
        let world = SeedFile::load_named(seed).unwrap().to_world().unwrap();
        Lab { place: Place::new(), github: SimulatorServer::start(world, 0).unwrap() }
    }

    /// The command with everything it needs.
    pub(crate) fn agent(&self, model: &Endpoint, arguments: &[&str]) -> Command {
        let (url, github) = (model.url(), self.github.url());
        let mut all = vec!["agent", "--base-url", &url, "--model", "scripted"];
        if !arguments.contains(&"--github-url") {
            all.extend(["--github-url", &github]);
        }
        all.extend(arguments);
        let mut command = self.command(&all);
        command.env("GITHUB_TOKEN", TOKEN).env("OPENAI_API_KEY", "test");
        for variable in ["OTEL_EXPORTER_OTLP_ENDPOINT", "OTEL_EXPORTER_OTLP_HEADERS", "GITHUB_API_URL"] {
            command.env_remove(variable);
        }
        command
    }

    pub(crate) fn ask(&self, model: &Endpoint, arguments: &[&str]) -> Ran {
        Ran::from_output(self.agent(model, arguments).output().unwrap())
    }

    /// How many issues of octo/demo have this title.
    pub(crate) fn issues_called(&self, title: &str) -> usize {
        let world = self.github.world().lock().unwrap();
        let state = world.state();
        let repository =
            state.repositories.values().find(|repository| state.full_name(repository) == "octo/demo").unwrap();
        repository.issues.values().filter(|issue| issue.title == title).count()
    }
}

/// A `gradus serve` in a folder. It is killed when this is dropped.
pub(crate) struct Receiver {
    child: Child,
    pub(crate) address: String,
}

impl Receiver {
    pub(crate) fn start(place: &Place) -> Receiver {
        place.write("gradus.toml", "[serve]\nquiet_s = 0.3\ngive_up_s = 1\n");
        let arguments = ["serve", "--log-format", "json", "--http", "127.0.0.1:0", "--grpc", "127.0.0.1:0"];
        let mut child = place.command(&arguments).stdout(Stdio::null()).stderr(Stdio::piped()).spawn().unwrap();
        let mut lines = BufReader::new(child.stderr.take().unwrap()).lines();
        let address = lines.find_map(|line| {
            let event: Json = serde_json::from_str(&line.ok()?).ok()?;
            (event["message"] == "listening").then(|| event["http"].as_str().unwrap().to_owned())
        });
        // It goes on writing, and somebody has to read.
        std::thread::spawn(move || lines.for_each(drop));
        Receiver { child, address: address.expect("a server that listens") }
    }
}

impl Drop for Receiver {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Asks again and again until there is an answer.
pub(crate) fn eventually<T>(what: &str, mut ask: impl FnMut() -> Option<T>) -> T {
    let started = Instant::now();
    loop {
        if let Some(answer) = ask() {
            return answer;
        }
        assert!(started.elapsed() < Duration::from_secs(60), "still not: {what}");
        std::thread::sleep(Duration::from_millis(30));
    }
}
