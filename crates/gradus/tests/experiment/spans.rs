//! Spans of a small agent, as OTLP JSON.

use serde_json::{Value as Json, json};

/// A shell function that sends a file to the collector: `send FILE`.
pub(crate) const SEND: &str = r#"send() {
  host=${OTEL_EXPORTER_OTLP_ENDPOINT#http://}
  exec 3<>/dev/tcp/${host%:*}/${host#*:}
  printf 'POST /v1/traces HTTP/1.1\r\nhost: localhost\r\ncontent-type: application/json\r\ncontent-length: %s\r\nconnection: close\r\n\r\n' $(wc -c <"$1") >&3
  cat "$1" >&3
  cat <&3 >/dev/null
  exec 3>&-
}
"#;

/// One run of an agent: request, calls of tools, answer. `attributes` are added to every span.
pub(crate) fn agent_trace(
    trace_id: &str,
    parent_id: &str,
    request: &str,
    tools: &[&str],
    answer: Option<&str>,
    attributes: &[(&str, &str)],
) -> Json {
    let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap().as_nanos();
    let span = |at: u128, id: &str, parent: &str, own: Vec<(&str, &str)>| {
        let pairs: Vec<Json> = own
            .iter()
            .chain(attributes)
            .map(|(key, value)| json!({"key": key, "value": {"stringValue": value}}))
            .collect();
        json!({"traceId": trace_id, "spanId": id, "parentSpanId": parent, "name": "one", "kind": 1,
            "startTimeUnixNano": (now + at * 1_000).to_string(), "endTimeUnixNano": (now + at * 1_000 + 500).to_string(),
            "attributes": pairs})
    };
    let kind = "openinference.span.kind";
    let mut agent = vec![(kind, "AGENT"), ("input.value", request)];
    agent.extend(answer.map(|answer| ("output.value", answer)));
    let mut spans = vec![span(0, "00000000000000a0", parent_id, agent)];
    for (at, tool) in tools.iter().enumerate() {
        let id = format!("00000000000000b{at}");
        let own = vec![(kind, "TOOL"), ("tool.name", *tool), ("input.value", "{}"), ("output.value", "12")];
        spans.push(span(at as u128 + 1, &id, "00000000000000a0", own));
    }
    json!({"resourceSpans": [{"scopeSpans": [{"spans": spans}]}]})
}
