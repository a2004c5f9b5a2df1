//! A folder to work in, and a server that behaves like Phoenix until it is told not to.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::process::{Command, Output};
use std::sync::{Arc, Mutex};

use gradus_test_endpoint::{Answer, Endpoint, Incoming};
use serde_json::{Value as Json, json};

/// Arguments of `gradus eval` for four outcomes of a trajectory with one step: three of the step, one of the whole. For
/// tests that count outcomes and do not depend on the default set.
pub(crate) const FOUR_EVALUATORS: [&str; 2] =
    ["--evaluators", "query_to_thought,thought_to_tool,sequence_optimality,call_validity"];

pub(crate) struct Lab {
    folder: tempfile::TempDir,
}

pub(crate) struct Ran {
    pub(crate) code: Option<i32>,
    pub(crate) out: String,
    pub(crate) err: String,
}

impl Ran {
    /// Asserts the exit code, and shows what was said if it is another one.
    pub(crate) fn exits_with(self, code: i32) -> Ran {
        assert_eq!(self.code, Some(code), "{}\n{}", self.out, self.err);
        self
    }

    pub(crate) fn says(self, text: &str) -> Ran {
        assert!(self.err.contains(text), "{text:?} is not in {}", self.err);
        self
    }

    pub(crate) fn lines(&self) -> Vec<Json> {
        self.out.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
    }
}

impl Lab {
    /// With little patience: nobody waits a minute for a test.
    pub(crate) fn new() -> Lab {
        let lab = Lab { folder: tempfile::tempdir().unwrap() };
        lab.write("gradus.toml", "[phoenix]\nretry_s = 0.2\ntimeout_s = 1\n");
        lab
    }

    /// The same, with abstentions: every outcome is written.
    pub(crate) fn with_abstentions() -> Lab {
        let lab = Lab::new();
        lab.write("gradus.toml", "[phoenix]\nretry_s = 0.2\ntimeout_s = 1\nabstentions = true\n");
        lab
    }

    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    pub(crate) fn write(&self, name: &str, text: &str) {
        std::fs::write(self.path(name), text).unwrap();
    }

    pub(crate) fn command(&self, arguments: &[&str]) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_gradus"));
        command.args(arguments).current_dir(self.folder.path());
        let of_others = |name: &str| {
            ["PHOENIX_", "OTEL_", "GRADUS_", "OPENAI_", "ANTHROPIC_"].iter().any(|it| name.starts_with(it))
                || name.to_ascii_lowercase().ends_with("_proxy")
        };
        for (name, _) in std::env::vars().filter(|(name, _)| of_others(name)) {
            command.env_remove(name);
        }
        command
    }

    pub(crate) fn run(&self, arguments: &[&str]) -> Ran {
        ran(self.command(arguments).output().unwrap())
    }

    pub(crate) fn run_with(&self, variables: &[(&str, &str)], arguments: &[&str]) -> Ran {
        ran(self.command(arguments).envs(variables.iter().copied()).output().unwrap())
    }

    /// Lines of a file of the latest run.
    pub(crate) fn of_run(&self, name: &str) -> Vec<Json> {
        let mut runs: Vec<PathBuf> =
            std::fs::read_dir(self.path(".gradus/runs")).unwrap().map(|entry| entry.unwrap().path()).collect();
        runs.sort();
        let text = std::fs::read_to_string(runs.last().unwrap().join(name)).unwrap_or_default();
        text.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
    }
}

fn ran(output: Output) -> Ran {
    let text = |bytes| String::from_utf8(bytes).unwrap();
    Ran { code: output.status.code(), out: text(output.stdout), err: text(output.stderr) }
}

/// Annotations by name, target and identifier: the key that Phoenix replaces by.
pub(crate) type Annotations = BTreeMap<(String, String, String), Json>;

#[derive(Default)]
pub(crate) struct Stored {
    pub(crate) spans: Vec<Json>,
    pub(crate) annotations: Annotations,
    /// What was asked for, in order.
    pub(crate) asked: Vec<String>,
}

/// A scripted Phoenix with the project `shop`, and `default` with the first half of the same spans.
pub(crate) struct Phoenix {
    endpoint: Endpoint,
    pub(crate) stored: Arc<Mutex<Stored>>,
}

impl Phoenix {
    pub(crate) fn start(spans: Vec<Json>) -> Phoenix {
        Phoenix::with_fault(spans, |_| None)
    }

    pub(crate) fn with_fault(
        spans: Vec<Json>,
        fault: impl Fn(&Incoming<'_>) -> Option<Answer> + Send + Sync + 'static,
    ) -> Phoenix {
        let stored = Arc::new(Mutex::new(Stored { spans, ..Stored::default() }));
        let shared = Arc::clone(&stored);
        let endpoint = Endpoint::start(Arc::new(move |incoming: &Incoming<'_>| {
            let mut stored = shared.lock().unwrap();
            stored.asked.push(incoming.what().to_owned());
            fault(incoming)
                .unwrap_or_else(|| answer(incoming, &mut stored))
                .with_header("x-phoenix-server-version", "20.26.1")
        }));
        Phoenix { endpoint: endpoint.unwrap(), stored }
    }

    pub(crate) fn origin(&self) -> String {
        self.endpoint.origin()
    }

    pub(crate) fn source(&self) -> String {
        format!("{}/shop", self.origin().replace("http://", "phoenix://"))
    }

    pub(crate) fn annotations(&self) -> Annotations {
        self.stored.lock().unwrap().annotations.clone()
    }

    /// How many requests began like this.
    pub(crate) fn asked(&self, beginning: &str) -> usize {
        self.stored.lock().unwrap().asked.iter().filter(|what| what.starts_with(beginning)).count()
    }
}

fn answer(incoming: &Incoming<'_>, stored: &mut Stored) -> Answer {
    let (path, query) = incoming.what().split_once('?').unwrap_or((incoming.what(), ""));
    match path {
        "GET /v1/projects" => Answer::ok(
            json!({"data": [{"id": "P1", "name": "shop"}, {"id": "P0", "name": "default"}], "next_cursor": null})
                .to_string(),
        ),
        "GET /v1/projects/P1/spans" => spans(query, &stored.spans),
        "GET /v1/projects/P0/spans" => spans(query, &stored.spans[..stored.spans.len() / 8 * 4]),
        "GET /v1/projects/P1/traces" => traces(query, &stored.spans),
        "POST /v1/span_annotations" => annotate(incoming.body, "span_id", stored),
        "POST /v1/trace_annotations" => annotate(incoming.body, "trace_id", stored),
        _ => Answer::status(404, r#"{"detail":"Not Found"}"#),
    }
}

/// The values of a parameter.
fn values(query: &str, name: &str) -> Vec<String> {
    let pairs = query.split('&').filter_map(|pair| pair.split_once('='));
    let decoded = |value: &str| value.replace("%3A", ":").replace("%20", " ");
    pairs.filter(|(key, _)| *key == name).map(|(_, value)| decoded(value)).collect()
}

/// Whether a time is within `start_time` and `end_time`.
fn is_within(query: &str, begun: &str) -> bool {
    let time = |text: &str| text.parse::<jiff::Timestamp>().unwrap();
    let moment = time(begun);
    let (from, to) = (values(query, "start_time"), values(query, "end_time"));
    from.iter().all(|from| moment >= time(from)) && to.iter().all(|to| moment < time(to))
}

fn spans(query: &str, all: &[Json]) -> Answer {
    let limit: usize = values(query, "limit")[0].parse().unwrap();
    let first: usize = values(query, "cursor").first().map_or(0, |cursor| cursor.parse().unwrap());
    let (traces, names) = (values(query, "trace_id"), values(query, "name"));
    let is_root = values(query, "parent_id") == ["null"];
    let found: Vec<&Json> = all
        .iter()
        .filter(|span| {
            (traces.is_empty() || traces.iter().any(|id| span["context"]["trace_id"] == id.as_str()))
                && (names.is_empty() || names.iter().any(|name| span["name"] == name.as_str()))
                && (!is_root || span["parent_id"].is_null())
                && is_within(query, span["start_time"].as_str().unwrap())
        })
        .collect();
    let page: Vec<&Json> = found.iter().skip(first).take(limit).copied().collect();
    let next = (first + limit < found.len()).then(|| (first + limit).to_string());
    Answer::ok(json!({"data": page, "next_cursor": next}).to_string())
}

fn traces(query: &str, all: &[Json]) -> Answer {
    let mut begins: BTreeMap<&str, &str> = BTreeMap::new();
    for span in all {
        let (id, start) = (span["context"]["trace_id"].as_str().unwrap(), span["start_time"].as_str().unwrap());
        let known = begins.entry(id).or_insert(start);
        *known = (*known).min(start);
    }
    let data: Vec<Json> =
        begins.iter().filter(|(_, start)| is_within(query, start)).map(|(id, _)| json!({"trace_id": id})).collect();
    Answer::ok(json!({"data": data, "next_cursor": null}).to_string())
}

fn annotate(body: &[u8], target: &str, stored: &mut Stored) -> Answer {
    let body: Json = serde_json::from_slice(body).unwrap();
    let rows = body["data"].as_array().unwrap();
    let text = |row: &Json, key: &str| row[key].as_str().unwrap().to_owned();
    let known: Vec<&str> = stored.spans.iter().map(|span| span["context"][target].as_str().unwrap()).collect();
    let missing: Vec<String> =
        rows.iter().map(|row| text(row, target)).filter(|id| !known.contains(&id.as_str())).collect();
    if !missing.is_empty() {
        return Answer::status(404, format!("Spans with IDs {} do not exist.", missing.join(", ")));
    }
    for row in rows {
        let key = (text(row, "name"), text(row, target), text(row, "identifier"));
        stored.annotations.insert(key, row.clone());
    }
    Answer::ok(json!({"data": rows.iter().map(|_| json!({"id": "A"})).collect::<Vec<_>>()}).to_string())
}

/// A trace: an agent that asks its model, calls a tool and answers. `number` makes its ids and its day.
pub(crate) fn trace(number: usize) -> Vec<Json> {
    let trace_id = format!("{:032x}", 0xabc0_0000 + number);
    let day = 1 + number % 28;
    let span = |place: usize, name: &str, kind: &str, attributes: Json| {
        json!({
            "id": format!("S{number}-{place}"), "name": name, "span_kind": kind,
            "context": {"trace_id": trace_id, "span_id": span_id(number, place)},
            "parent_id": (place > 0).then(|| span_id(number, 0)),
            "start_time": format!("2026-03-{day:02}T10:00:{place:02}.000000+00:00"),
            "end_time": format!("2026-03-{day:02}T10:00:{:02}.500000+00:00", place),
            "status_code": "OK", "status_message": "", "attributes": attributes, "events": [],
        })
    };
    let query = format!("How many lamps are in shop {number}?");
    vec![
        span(0, &format!("agent {}", number % 2), "AGENT", json!({"input.value": query, "output.value": "12 lamps."})),
        span(
            1,
            "ChatCompletion",
            "LLM",
            json!({
                "llm.model_name": "m",
                "llm.input_messages.0.message.role": "user", "llm.input_messages.0.message.content": query,
                "llm.output_messages.0.message.role": "assistant",
                "llm.output_messages.0.message.content": "I look up how many lamps there are.",
                "llm.output_messages.0.message.tool_calls.0.tool_call.id": "c1",
                "llm.output_messages.0.message.tool_calls.0.tool_call.function.name": "get_stock",
                "llm.output_messages.0.message.tool_calls.0.tool_call.function.arguments": "{\"article\":\"lamp\"}",
            }),
        ),
        span(
            2,
            "get_stock",
            "TOOL",
            json!({"tool.name": "get_stock", "tool.parameters.article": "lamp", "output.value": "12"}),
        ),
        span(
            3,
            "ChatCompletion",
            "LLM",
            json!({
                "llm.model_name": "m",
                "llm.input_messages.0.message.role": "user", "llm.input_messages.0.message.content": query,
                "llm.input_messages.1.message.role": "assistant",
                "llm.input_messages.1.message.tool_calls.0.tool_call.id": "c1",
                "llm.input_messages.1.message.tool_calls.0.tool_call.function.name": "get_stock",
                "llm.input_messages.1.message.tool_calls.0.tool_call.function.arguments": "{\"article\":\"lamp\"}",
                "llm.input_messages.2.message.role": "tool", "llm.input_messages.2.message.content": "12",
                "llm.input_messages.2.message.tool_call_id": "c1",
                "llm.output_messages.0.message.role": "assistant", "llm.output_messages.0.message.content": "12 lamps.",
            }),
        ),
    ]
}

pub(crate) fn span_id(number: usize, place: usize) -> String {
    format!("{:016x}", 0x1000 + number * 16 + place)
}

pub(crate) fn traces_of(count: usize) -> Vec<Json> {
    (0..count).flat_map(trace).collect()
}
