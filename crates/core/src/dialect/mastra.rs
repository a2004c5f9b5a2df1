//! Mastra: GenAI attributes, with request, answer and session of the agent under names of its own.

use crate::span::Span;

use super::{NormalizedSpan, fill_if_empty, read_text_attribute, text_or_json};

/// Reads the attributes that the GenAI conventions do not cover; `genai` reads the rest.
pub(super) fn read_mastra_span<'s>(span: &'s Span<'_>, facts: &mut NormalizedSpan<'s>) {
    for (key, value) in span.attributes.iter() {
        match key {
            "mastra.agent_run.input" => fill_if_empty(&mut facts.input_text, text_or_json(value)),
            "mastra.agent_run.output" => fill_if_empty(&mut facts.output_text, text_or_json(value)),
            "mastra.metadata.sessionId" | "mastra.metadata.threadId" => {
                fill_if_empty(&mut facts.session, read_text_attribute(value))
            }
            _ => {}
        }
    }
}
