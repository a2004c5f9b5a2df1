//! Judges on the user's own machine: servers by name, windows that are learned, probabilities of labels, and the list of
//! what runs.

use std::sync::Mutex;

use gradus_test_endpoint::{Answer, Incoming};
use serde_json::{Value as Json, json};

use crate::lab::{Lab, case, endpoint, eval, kind_endpoint};

/// What llama.cpp says about a prompt that does not fit into a window of 8,192 tokens, at four bytes a token.
fn refuse_beyond_window(prompt_bytes: usize) -> Option<Answer> {
    let tokens = prompt_bytes / 4;
    let message =
        format!("request ({tokens} tokens) exceeds the available context size (8192 tokens), try increasing it");
    let body = json!({"error": {"code": 400, "message": message, "type": "exceed_context_size_error",
        "n_prompt_tokens": tokens, "n_ctx": 8192}});
    (tokens > 8192).then(|| Answer::status(400, body.to_string()))
}

fn prompt_text(incoming: &Incoming<'_>) -> String {
    let body: Json = serde_json::from_slice(incoming.body).unwrap();
    let text = |at: usize| body["messages"][at]["content"].as_str().unwrap().to_owned();
    text(0) + &text(1)
}

/// A case whose agent had 59 tools, of which it called one.
fn case_with_many_tools(number: usize) -> Json {
    let mut trajectory = case(number);
    let called = trajectory["tools"][0].clone();
    let tools = (0..59).map(|number| match number {
        30 => called.clone(),
        _ => json!({"name": format!("adjust_lamp_{number}"), "description": "Changes a lamp. ".repeat(40),
            "schema": {"type": "object", "properties": {"brightness": {"type": "number"}}}}),
    });
    trajectory["tools"] = tools.collect::<Vec<_>>().into();
    trajectory
}

#[test]
fn a_refusal_that_names_the_window_teaches_it_to_all_questions() {
    static ACCEPTED: Mutex<Vec<String>> = Mutex::new(Vec::new());
    let lab = Lab::new();
    let cases: Vec<String> = (0..12).map(|number| case_with_many_tools(number).to_string() + "\n").collect();
    lab.write("cases.jsonl", &cases.concat());
    let endpoint = endpoint(|incoming| {
        let prompt = prompt_text(incoming);
        refuse_beyond_window(prompt.len()).unwrap_or_else(|| {
            ACCEPTED.lock().unwrap().push(prompt);
            incoming.verdict("correct")
        })
    });
    lab.run_at(&endpoint, &eval(&["--concurrency", "1"])).exits_with(0);
    let lines = lab.lines("out.jsonl");
    assert_eq!(lines.len(), 12);
    for line in &lines {
        assert_eq!(
            (&line["outcome"], &line["shortened"][0]["variable"]),
            (&"scored".into(), &"tool_definitions".into())
        );
    }
    assert_eq!(endpoint.received(), 13, "one refusal is enough for all");
    for prompt in ACCEPTED.lock().unwrap().iter() {
        assert!(prompt.contains("> read_file\ndescription:\n> Reads a file of a repository.\narguments:\n> {"));
        assert!(prompt.contains("> adjust_lamp_0\n") && prompt.contains("left out by gradus"), "names stay");
    }
}

#[test]
fn a_window_below_the_rubric_is_an_error_of_the_question() {
    let lab = Lab::with_cases(1);
    let endpoint = endpoint(|_| {
        let body =
            json!({"error": {"message": "request (900 tokens) exceeds the available context size (512 tokens)"}});
        Answer::status(400, body.to_string())
    });
    lab.run_at(&endpoint, &eval(&[]));
    let line = &lab.lines("out.jsonl")[0];
    assert_eq!(line["outcome"], "failed", "{line}");
    assert!(line["reason"].as_str().unwrap().contains("the prompt is too long for the model"), "{line}");
    assert!(endpoint.received() <= 5, "{}", endpoint.received());
}

#[test]
fn local_servers_are_named_and_get_no_key() {
    static KEYS: Mutex<Vec<Option<String>>> = Mutex::new(Vec::new());
    let lab = Lab::with_cases(1);
    let endpoint = endpoint(|incoming| {
        KEYS.lock().unwrap().push(incoming.header("authorization").map(str::to_owned));
        incoming.verdict("correct")
    });
    let elsewhere = kind_endpoint();
    for name in ["ollama:qwen3:8b", "llamacpp:q", "lmstudio:org/m", "vllm:m"] {
        // The address and the key of the environment belong to another server.
        let url = endpoint.url();
        lab.run_at(&elsewhere, &eval(&["--judge", name, "--base-url", &url, "--fresh"])).exits_with(0);
        let line = &lab.lines("out.jsonl")[0];
        assert_eq!((&line["judge"], &line["cost_usd"]), (&name.into(), &0.0.into()), "{line}");
    }
    lab.write("gradus.toml", &format!("[judge]\nname = \"vllm:other\"\nbase_url = \"{}\"\n", endpoint.url()));
    let mut command = lab.command(&eval(&["--config", "gradus.toml"]));
    assert!(command.status().unwrap().success());
    assert_eq!(lab.lines("out.jsonl")[0]["judge"], "vllm:other");
    assert_eq!(*KEYS.lock().unwrap(), vec![None; 5]);
    assert_eq!(elsewhere.received(), 0);
}

#[test]
fn explanations_of_local_models_come_to_an_end() {
    static LIMITS: Mutex<Vec<Json>> = Mutex::new(Vec::new());
    let lab = Lab::with_cases(1);
    let endpoint = endpoint(|incoming| {
        let body: Json = serde_json::from_slice(incoming.body).unwrap();
        let schema = &body["response_format"]["json_schema"]["schema"];
        LIMITS.lock().unwrap().push(schema["properties"]["explanation"]["maxLength"].clone());
        incoming.verdict("correct")
    });
    for judge in ["llamacpp:q", "openai:q"] {
        lab.run_at(&endpoint, &eval(&["--judge", judge, "--base-url", &endpoint.url(), "--fresh"])).exits_with(0);
    }
    assert_eq!(*LIMITS.lock().unwrap(), [json!(600), Json::Null], "hosted models refuse limits in a schema");
}

#[test]
fn a_local_server_without_a_model_is_refused() {
    let lab = Lab::with_cases(1);
    for name in ["ollama", "llamacpp:", "vllm: "] {
        let ran = lab.run(&eval(&["--judge", name])).exits_with(2);
        assert!(ran.err.contains("no model is named") && ran.err.contains("gradus judge list"), "{}", ran.err);
    }
}

/// An answer in JSON with the log-probabilities of its tokens.
fn answer_with_logprobs(label: &str, probability: f64, rival: &str) -> Answer {
    let token = |text: &str, probability: f64, others: &[(&str, f64)]| {
        let others: Vec<Json> =
            others.iter().map(|(text, share)| json!({"token": text, "logprob": share.ln()})).collect();
        json!({"token": text, "bytes": text.as_bytes(), "logprob": probability.ln(), "top_logprobs": others})
    };
    let beginning = "{\"explanation\":\"It fits.\",\"label\":\"";
    let content = format!("{beginning}{label}\"}}");
    let tokens = [
        token(beginning, 0.9, &[]),
        token(label, probability, &[(label, probability), (rival, 0.2), ("maybe", 0.1)]),
        token("\"}", 1.0, &[]),
    ];
    Answer::ok(
        json!({"choices": [{"message": {"content": content}, "finish_reason": "stop", "logprobs": {"content": tokens}}],
            "usage": {"prompt_tokens": 10, "completion_tokens": 3}})
        .to_string(),
    )
}

#[test]
fn probabilities_of_labels_are_kept_where_the_endpoint_gives_them() {
    let lab = Lab::with_cases(1);
    let endpoint = endpoint(|incoming| {
        let asks = incoming.contains("\"logprobs\":true") && incoming.contains("\"top_logprobs\":5");
        if asks { answer_with_logprobs("correct", 0.6, "incorrect") } else { incoming.verdict("correct") }
    });
    lab.run_at(&endpoint, &eval(&["--logprobs"])).exits_with(0);
    let probability = lab.lines("out.jsonl")[0]["label_probability"].as_f64().unwrap();
    assert!((probability - 0.75).abs() < 1e-9, "{probability}");
    lab.run_at(&endpoint, &eval(&["--fresh"])).exits_with(0);
    assert!(lab.lines("out.jsonl")[0].get("label_probability").is_none(), "nobody asked for it");
}

#[test]
fn endpoints_that_refuse_log_probabilities_are_asked_without() {
    let lab = Lab::with_cases(3);
    let endpoint = endpoint(|incoming| {
        if incoming.contains("logprobs") {
            let message = "Unsupported parameter: 'logprobs' is not supported with this model.";
            return Answer::status(400, json!({"error": {"message": message}}).to_string());
        }
        incoming.verdict("correct")
    });
    lab.run_at(&endpoint, &eval(&["--logprobs", "--concurrency", "1"])).exits_with(0);
    assert!(lab.lines("out.jsonl").iter().all(|line| line["outcome"] == "scored"));
    assert_eq!(endpoint.received(), 4, "one refusal teaches it");
}

#[test]
fn the_list_tells_model_servers_from_others() {
    let lab = Lab::new();
    let models = endpoint(|incoming| {
        let list =
            json!({"object": "list", "data": [{"id": "q\u{1b}[31m", "owned_by": "llamacpp", "meta": {"n_ctx": 4096}}]});
        match incoming.what() {
            "GET /v1/models" => Answer::ok(list.to_string()),
            _ => Answer::status(404, "no"),
        }
    });
    let other = endpoint(|_| Answer::ok("<html>hello</html>".to_owned()));
    let nobody = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().to_string();
    let (models, other) = (models.url(), other.url());
    let addresses = ["judge", "list", "--address", &models, "--address", &other, "--address", &nobody];
    let ran = lab.run(&addresses).exits_with(0);
    assert!(ran.out.contains(&format!("--base-url {models}  (context 4096)")), "{}", ran.out);
    assert!(ran.out.contains("something else listens there (HTTP 200)"), "{}", ran.out);
    assert!(ran.out.contains("not running") && !ran.out.contains('\u{1b}'), "{}", ran.out);
    let ran = lab.run(&[&addresses[..], &["--json"]].concat()).exits_with(0);
    let json: Json = serde_json::from_str(&ran.out).unwrap();
    let states: Vec<&str> = (0..3).map(|at| json["servers"][at]["state"].as_str().unwrap()).collect();
    assert_eq!(states, ["running", "other_service", "not_running"]);
    assert_eq!(json["servers"][0]["models"][0]["context_tokens"], 4096);
    let ran = lab.run(&["judge", "list", "--address", "ftp://x"]).exits_with(2);
    assert!(ran.err.contains("--address") && ran.err.contains("hint:"), "{}", ran.err);
}
