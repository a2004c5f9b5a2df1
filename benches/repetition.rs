//! Pairs of calls on standard input, one JSON object a line (`prev_action` and `action`, each with `name` and
//! `arguments` or `raw`); for each whether the second repeats the first. For benches/measure_offline.py.

use std::io::{BufRead, Write};

use gradus_eval::offline::{ComparedCall, is_repetition};
use serde_json::Value as Json;

fn main() -> std::io::Result<()> {
    let mut out = std::io::stdout().lock();
    for line in std::io::stdin().lock().lines() {
        let pair: Json = serde_json::from_str(&line?)?;
        writeln!(out, "{}", is_repetition(call(&pair["prev_action"]), call(&pair["action"])))?;
    }
    Ok(())
}

fn call(json: &Json) -> ComparedCall<'_> {
    ComparedCall {
        tool: json["name"].as_str().unwrap_or_default(),
        arguments: json.get("arguments"),
        raw: json["raw"].as_str(),
    }
}
