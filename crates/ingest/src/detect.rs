//! Detects the format of an input from its first bytes. Names and extensions are ignored: they are often wrong or
//! missing.

use gradus_otlp::{MessageFraming, looks_like_export};

/// The formats at the level of bytes. What a JSON document contains is decided later, in `shapes`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum SourceFormat {
    Protobuf(MessageFraming),
    Json,
    Transcript,
    /// Rows of cells with commas between. Whatever its cells say, it is no transcript.
    Table,
}

/// Detects the format; `None` if it is not known. `whole` says that `head` is the entire input.
pub(crate) fn detect_format(head: &[u8], whole: bool) -> Option<SourceFormat> {
    let text = head.strip_prefix(b"\xef\xbb\xbf").unwrap_or(head).trim_ascii_start();
    // A file that was cut off looks like the beginning of a longer one. Its reader reports where it ends.
    let export_framing = || looks_like_export(head, whole).or_else(|| looks_like_export(head, false));
    if begins_like_json(text) {
        // The length of a first message of 123 or 91 bytes is written as `{` or `[`. JSON has no control characters.
        let is_text = !head.iter().any(|byte| byte.is_ascii_control() && !byte.is_ascii_whitespace());
        let framing = if is_text { None } else { export_framing() };
        return Some(framing.map_or(SourceFormat::Json, SourceFormat::Protobuf));
    }
    if detect_program_log(head).is_some() {
        return None;
    }
    if let Some(framing) = export_framing() {
        return Some(SourceFormat::Protobuf(framing));
    }
    if gradus_import::read_table_header(head, whole).is_some() {
        return Some(SourceFormat::Table);
    }
    let text = match std::str::from_utf8(head) {
        Ok(text) => text,
        // The head may end in the middle of a character.
        Err(error) if error.error_len().is_none() && !whole => {
            std::str::from_utf8(&head[..error.valid_up_to()]).ok()?
        }
        Err(_) => return None,
    };
    gradus_core::react::read_react_transcript(text).is_react.then_some(SourceFormat::Transcript)
}

/// Whether a text is JSON by its first characters. A field mark of DSPy, `[[ ## name ## ]]`, and a section of a settings
/// file, `[name]`, begin like a list.
fn begins_like_json(text: &[u8]) -> bool {
    let Some(inside) = text.strip_prefix(b"[") else { return text.first() == Some(&b'{') };
    let inside = inside.trim_ascii_start();
    let is_word = inside.first().is_some_and(u8::is_ascii_alphabetic)
        && !["true", "false", "null"].iter().any(|word| inside.starts_with(word.as_bytes()));
    !is_word && !text.starts_with(b"[[ ##")
}

/// Returns the name of the program that wrote a plain-text log which is not read. Such a log quotes thoughts and
/// actions, but its structure cannot be distinguished from the text that it quotes.
pub(crate) fn detect_program_log(head: &[u8]) -> Option<&'static str> {
    // A few lines are enough: programs log their start.
    const MAX_LINES: usize = 20;
    let text = String::from_utf8_lossy(&head[..head.len().min(16 << 10)]);
    let lines = || text.lines().take(MAX_LINES);
    let is_hyper_agent = |line: &str| {
        let name = line.split_once(" - INFO - ").or_else(|| line.split_once(" - DEBUG - ")).map(|(name, _)| name);
        name.is_some_and(|name| {
            name.split(" - ").any(|part| part.trim_matches(['"', ' ', '[']).starts_with("HyperAgent"))
        })
    };
    // loguru: `2025-03-01 10:00:00.000 | INFO     | app.agent.base:run:140 - ...`
    let is_open_manus = |line: &str| {
        let mut columns = line.split(" | ");
        let level = columns.nth(1).is_some_and(|level| level.trim().chars().all(|c| c.is_ascii_uppercase()));
        level && columns.next().is_some_and(|module| module.starts_with("app.agent") || module.starts_with("app.llm"))
    };
    if lines().any(is_hyper_agent) {
        return Some("HyperAgent");
    }
    lines().any(is_open_manus).then_some("OpenManus")
}

/// Why a log is not read, and what to do.
pub(crate) fn describe_log(program: &str) -> String {
    format!("{program} log: plain-text logs are not read; export OpenTelemetry traces or message lists instead")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_settings_file_is_no_json() {
        assert_eq!(detect_format(b"[project]\nname = \"a\"\n", true), None);
        for list in ["[{\"a\": 1}]", "[ true ]", "[]", "[\"a\"]"] {
            assert_eq!(detect_format(list.as_bytes(), true), Some(SourceFormat::Json), "{list}");
        }
    }

    /// Messages that hold one resource span of every small size, so that some lengths are `{` and `[`.
    #[test]
    fn lengths_that_look_like_brackets_are_no_json() {
        use opentelemetry_proto::tonic::trace::v1::{ResourceSpans, ScopeSpans, Span, TracesData};
        use prost::Message;
        for padding in 1..120 {
            let span =
                Span { trace_id: vec![1; 16], span_id: vec![2; 8], name: "n".repeat(padding), ..Span::default() };
            let scope_spans = vec![ScopeSpans { spans: vec![span], ..ScopeSpans::default() }];
            let export = TracesData { resource_spans: vec![ResourceSpans { scope_spans, ..ResourceSpans::default() }] };
            let (single, delimited) = (export.encode_to_vec(), export.encode_length_delimited_to_vec());
            assert_eq!(detect_format(&single, true), Some(SourceFormat::Protobuf(MessageFraming::Single)), "{padding}");
            let framing = Some(SourceFormat::Protobuf(MessageFraming::Delimited));
            assert_eq!(detect_format(&delimited, true), framing, "{padding}");
        }
    }

    #[test]
    fn a_table_is_no_transcript() {
        let table = "name,text\nrun 1,\"Thought: look\nAction: find\nAction Input: {}\nObservation: 1\"\n";
        assert_eq!(detect_format(table.as_bytes(), true), Some(SourceFormat::Table));
    }

    #[test]
    fn logs_of_agents_are_no_transcripts() {
        let hyper = "HyperAgent_demo__repo-1 - INFO - Initialized tools\nHyperAgent_demo__repo-1 - INFO - Thought: look\nAction: find\n";
        let manus = "2025-03-01 10:00:00.000 | INFO     | app.agent.base:run:140 - Executing step 1/20\nThought: look\nAction: find\n";
        for (log, name) in [(hyper, "HyperAgent"), (manus, "OpenManus")] {
            assert_eq!((detect_format(log.as_bytes(), true), detect_program_log(log.as_bytes())), (None, Some(name)));
        }
        let transcript = "Thought: HyperAgent is a name.\nAction: find\nAction Input: {}\nObservation: 1 - INFO - 2\n";
        assert_eq!(detect_format(transcript.as_bytes(), true), Some(SourceFormat::Transcript));
    }
}
