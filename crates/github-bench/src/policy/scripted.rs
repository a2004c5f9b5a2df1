//! A chat model that answers from a script. It derives its position from the conversation alone and keeps no state, so
//! that retries and resumed sessions get the same reply. It answers with native tool calls where tools are offered, and
//! with ReAct text where they are not.

use gradus_llm::{CallError, ChatReply, ChatRequest, ChatToolCall, FinishReason, ModelCallFailure, PromptMessage};
use serde_json::Value;

use crate::suite::{AgentScript, ScriptReply};
use gradus_github_agent::agent::ChatModel;
use gradus_github_agent::tools::BoxFuture;

/// Implements [`ChatModel`] without a network. `name` is the policy, and appears as the model name in traces.
#[derive(Clone, Debug)]
pub struct ScriptedModel {
    name: String,
    script: AgentScript,
}

impl ScriptedModel {
    pub fn new(name: &str, script: AgentScript) -> ScriptedModel {
        ScriptedModel { name: name.to_owned(), script }
    }

    pub fn script(&self) -> &AgentScript {
        &self.script
    }

    /// Builds the next reply. A template that cannot be filled in is a malformed reply: it ends the run and is
    /// reported.
    fn reply(&self, chat: &ChatRequest<'_>) -> Result<ChatReply, ModelCallFailure> {
        let (played, observations) = collect_observations(chat.messages);
        let line = self.script.reply_at(played, &observations).map_err(|error| ModelCallFailure {
            error: CallError::BadReply(format!("the script cannot go on: {error}")),
            attempts: 1,
        })?;
        let native = !chat.tools.is_empty();
        let reply = |text: String, calls| ChatReply { text, calls, usage: None, stop: FinishReason::Done };
        Ok(match line {
            ScriptReply::Answer(answer) if native => reply(answer, Vec::new()),
            ScriptReply::Answer(answer) => {
                reply(format!("Thought: I can answer now.\nFinal Answer: {answer}"), Vec::new())
            }
            ScriptReply::Call { thought, tool, arguments } if native => {
                let id = format!("call_{}", played + 1);
                reply(thought, vec![ChatToolCall { id, name: tool, arguments: arguments.to_string() }])
            }
            ScriptReply::Call { thought, tool, arguments } => {
                reply(format!("Thought: {thought}\nAction: {tool}\nAction Input: {arguments}"), Vec::new())
            }
        })
    }
}

impl ChatModel for ScriptedModel {
    fn name(&self) -> &str {
        &self.name
    }

    fn ask<'a>(&'a self, chat: &'a ChatRequest<'a>) -> BoxFuture<'a, Result<ChatReply, ModelCallFailure>> {
        Box::pin(async move { self.reply(chat) })
    }
}

/// Returns one entry per assistant message: the observation that follows it, or null. The number of entries is the
/// number of steps so far. A shortened context would lose steps, so scripted runs have an unlimited context.
fn collect_observations(messages: &[PromptMessage]) -> (usize, Vec<Value>) {
    let mut observations: Vec<Value> = Vec::new();
    let mut waits = false;
    for message in messages {
        match message {
            PromptMessage::Assistant { .. } => {
                observations.push(Value::Null);
                waits = true;
            }
            PromptMessage::User { text } | PromptMessage::Tool { text, .. } if waits => {
                if let Some(last) = observations.last_mut() {
                    *last = parse_observation_json(text);
                }
                waits = false;
            }
            PromptMessage::User { .. } | PromptMessage::Tool { .. } => {}
        }
    }
    (observations.len(), observations)
}

/// Returns the first JSON value in an observation, ignoring the text around it. Text without JSON stays text.
fn parse_observation_json(text: &str) -> Value {
    let begin = text.find(['{', '[']).unwrap_or(text.len());
    let mut values = serde_json::Deserializer::from_str(&text[begin..]).into_iter::<Value>();
    match values.next() {
        Some(Ok(value)) => value,
        _ => Value::String(text.to_owned()),
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use gradus_llm::ChatToolDefinition;
    use serde_json::json;

    use super::*;
    use crate::suite::ScriptStep;

    fn scripted() -> ScriptedModel {
        let arguments = |value: Value| value.as_object().cloned().unwrap_or_default();
        ScriptedModel::new(
            "oracle",
            AgentScript {
                steps: vec![
                    ScriptStep {
                        thought: "Look.".into(),
                        tool: "read_file".into(),
                        arguments: arguments(json!({"path": "a"})),
                    },
                    ScriptStep {
                        thought: "Write.".into(),
                        tool: "update".into(),
                        arguments: arguments(json!({"sha": "{{1.sha}}"})),
                    },
                ],
                answer: "Wrote {{2.commit}}.".into(),
            },
        )
    }

    fn ask(messages: &[PromptMessage], tools: &[ChatToolDefinition]) -> ChatReply {
        let chat = ChatRequest { system: "", messages, tools, stop: &[], max_tokens: 100, temperature: None };
        scripted().reply(&chat).expect("a reply")
    }

    #[test]
    fn plays_native_calls() {
        let tools =
            [ChatToolDefinition { name: "read_file".into(), description: "".into(), parameters: Arc::new(json!({})) }];
        let mut messages = vec![PromptMessage::User { text: "Do it".into() }];
        for (call, seen) in
            [("{\"path\":\"a\"}", "{\"sha\":\"f00\"}"), ("{\"sha\":\"f00\"}", "{\"commit\":\"c1\"}\nNote: more")]
        {
            let reply = ask(&messages, &tools);
            assert_eq!(reply.calls[0].arguments, call);
            let (id, name) = (reply.calls[0].id.clone(), reply.calls[0].name.clone());
            messages.push(PromptMessage::Assistant { text: reply.text, calls: reply.calls });
            messages.push(PromptMessage::Tool { call_id: id, name, text: seen.into(), is_error: false });
        }
        let reply = ask(&messages, &tools);
        assert_eq!((reply.text.as_str(), reply.calls.len()), ("Wrote c1.", 0));
    }

    #[test]
    fn plays_react_text() {
        let mut messages = vec![PromptMessage::User { text: "Do it".into() }];
        let first = ask(&messages, &[]);
        assert_eq!(first.text, "Thought: Look.\nAction: read_file\nAction Input: {\"path\":\"a\"}");
        messages.push(PromptMessage::Assistant { text: first.text, calls: Vec::new() });
        messages.push(PromptMessage::User { text: "Observation: {\"sha\": \"f00\"}".into() });
        let second = ask(&messages, &[]);
        assert!(second.text.ends_with("{\"sha\":\"f00\"}"), "{}", second.text);
        messages.push(PromptMessage::Assistant { text: second.text, calls: Vec::new() });
        messages.push(PromptMessage::User { text: "Observation: {\"commit\": \"c1\"}".into() });
        assert!(ask(&messages, &[]).text.ends_with("Final Answer: Wrote c1."));
    }
}
