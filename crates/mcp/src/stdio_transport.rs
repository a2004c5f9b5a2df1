//! Standard input and output as the transport of the protocol. Lines that are no JSON are answered with a JSON-RPC parse
//! error, so that a client with a broken encoder learns of it; the library drops them silently.

use std::io;

use tokio::io::{AsyncBufReadExt as _, AsyncRead, AsyncWrite, AsyncWriteExt as _, BufReader, DuplexStream, duplex};
use tokio::sync::mpsc;
use tokio::task::JoinHandle;

/// Maximum bytes of one message; requests of these tools are short.
const MAX_LINE_BYTES: usize = 4 << 20;
/// Buffer size of the pipes between this file and the library.
const PIPE_BYTES: usize = 64 << 10;
/// Maximum number of parse errors that are answered, so that a peer that echoes them cannot cause an endless loop.
const MAX_PARSE_ERRORS: usize = 100;

/// A client behind two streams.
pub(crate) struct LineTransport {
    /// Where the library reads and writes messages.
    pub(crate) streams: (DuplexStream, DuplexStream),
    /// Ends when the library has closed its side and everything is written.
    pub(crate) writing: JoinHandle<io::Result<()>>,
}

pub(crate) fn connect_lines(
    input: impl AsyncRead + Send + Unpin + 'static,
    output: impl AsyncWrite + Send + Unpin + 'static,
) -> LineTransport {
    let (to_service, service_input) = duplex(PIPE_BYTES);
    let (service_output, from_service) = duplex(PIPE_BYTES);
    let (errors, refused) = mpsc::channel(1);
    tokio::spawn(forward_input(input, to_service, errors));
    let writing = tokio::spawn(forward_output(from_service, refused, output));
    LineTransport { streams: (service_input, service_output), writing }
}

/// Forwards lines of JSON until the client closes its side.
async fn forward_input(
    input: impl AsyncRead + Send + Unpin,
    mut service: DuplexStream,
    errors: mpsc::Sender<String>,
) -> io::Result<()> {
    let mut input = BufReader::new(input);
    let mut answered = 0;
    loop {
        let Some(line) = read_line(&mut input).await? else { return Ok(()) };
        let parsed = match &line {
            InputLine::TooLong => Err(format!("the message is longer than {} MiB", MAX_LINE_BYTES >> 20)),
            InputLine::Text(text) if text.trim_ascii().is_empty() => continue,
            InputLine::Text(text) => match serde_json::from_slice::<serde::de::IgnoredAny>(text) {
                Ok(_) => Ok(text),
                Err(error) => Err(error.to_string()),
            },
        };
        match parsed {
            Ok(text) => service.write_all(text).await?,
            Err(reason) if answered < MAX_PARSE_ERRORS => {
                answered += 1;
                // It fails only if the client has disconnected.
                let _ = errors.send(reason).await;
            }
            Err(_) => {}
        }
    }
}

enum InputLine {
    /// With its line break.
    Text(Vec<u8>),
    TooLong,
}

/// `None` at the end of the input. A last line without a line break is a message that was cut off.
async fn read_line(input: &mut BufReader<impl AsyncRead + Unpin>) -> io::Result<Option<InputLine>> {
    let (mut line, mut is_long) = (Vec::new(), false);
    loop {
        let part = input.fill_buf().await?;
        if part.is_empty() {
            return Ok(None);
        }
        let end = part.iter().position(|byte| *byte == b'\n');
        let count = end.map_or(part.len(), |end| end + 1);
        is_long |= line.len() + count > MAX_LINE_BYTES;
        if !is_long {
            line.extend_from_slice(&part[..count]);
        }
        input.consume(count);
        if end.is_some() {
            return Ok(Some(if is_long { InputLine::TooLong } else { InputLine::Text(line) }));
        }
    }
}

/// Writes messages of the service, and parse errors between them, until the service has ended.
async fn forward_output(
    service: DuplexStream,
    mut refused: mpsc::Receiver<String>,
    mut output: impl AsyncWrite + Send + Unpin,
) -> io::Result<()> {
    let mut messages = BufReader::new(service);
    let mut line = Vec::new();
    let mut has_errors = true;
    loop {
        tokio::select! {
            // A partly read line stays in `line` if the other branch completes first.
            read = messages.read_until(b'\n', &mut line) => {
                if read? == 0 && line.is_empty() {
                    return Ok(());
                }
                output.write_all(&line).await?;
                line.clear();
            }
            reason = refused.recv(), if has_errors => match reason {
                Some(reason) => output.write_all(render_parse_error(&reason).as_bytes()).await?,
                None => has_errors = false,
            },
        }
        output.flush().await?;
    }
}

/// JSON-RPC 2.0 §5: without an id to name, it is null.
fn render_parse_error(reason: &str) -> String {
    let error = serde_json::json!({"code": -32700, "message": format!("Parse error: {reason}")});
    format!("{}\n", serde_json::json!({"jsonrpc": "2.0", "id": null, "error": error}))
}

#[cfg(test)]
mod tests {
    use super::*;
    use tokio::io::AsyncReadExt as _;

    #[tokio::test]
    async fn broken_lines_are_answered_and_good_ones_passed_on() {
        let (mut client, input) = duplex(1 << 10);
        let (output, mut answers) = duplex(1 << 20);
        let LineTransport { streams: (mut service_input, mut service_output), writing } = connect_lines(input, output);
        let long = "x".repeat(MAX_LINE_BYTES + 1);
        let sending = tokio::spawn(async move {
            let text = format!("not json\n\n{{\"id\": 1}}\n{{\"id\": \n{long}\n[2]\n{{\"cut off");
            client.write_all(text.as_bytes()).await.unwrap();
        });
        let mut passed = String::new();
        service_input.read_to_string(&mut passed).await.unwrap();
        sending.await.unwrap();
        assert_eq!(passed, "{\"id\": 1}\n[2]\n");
        service_output.write_all(b"{\"result\": 1}\n").await.unwrap();
        drop(service_output);
        writing.await.unwrap().unwrap();
        let mut written = String::new();
        answers.read_to_string(&mut written).await.unwrap();
        let lines: Vec<serde_json::Value> = written.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
        let codes: Vec<_> = lines.iter().filter_map(|line| line["error"]["code"].as_i64()).collect();
        assert_eq!(codes, [-32700, -32700, -32700], "{written}");
        assert!(lines.iter().all(|line| line.get("error").is_none() || line["id"].is_null()), "{written}");
        assert!(written.contains("{\"result\": 1}\n") && written.contains("longer than 4 MiB"), "{written}");
    }
}
