//! The little HTTP that an endpoint needs.

use std::sync::Arc;
use std::time::Duration;

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};

use crate::clock::Clock;
use crate::{Answer, Counters, Incoming, Script};

pub(crate) async fn serve(listener: TcpListener, script: Arc<Script>, counters: Arc<Counters>, clock: Arc<Clock>) {
    loop {
        let Ok((stream, _)) = listener.accept().await else { continue };
        let (script, counters, clock) = (Arc::clone(&script), Arc::clone(&counters), Arc::clone(&clock));
        tokio::spawn(async move {
            // A client that went away is its own business.
            let _ = connection(stream, &*script, &counters, &clock).await;
        });
    }
}

async fn connection(mut stream: TcpStream, script: &Script, counters: &Counters, clock: &Clock) -> std::io::Result<()> {
    stream.set_nodelay(true)?;
    let mut buffer: Vec<u8> = Vec::with_capacity(16 << 10);
    loop {
        let (head, length) = loop {
            if let Some(found) = head_of(&buffer) {
                break found;
            }
            if stream.read_buf(&mut buffer).await? == 0 {
                return Ok(());
            }
        };
        while buffer.len() < head + length {
            if stream.read_buf(&mut buffer).await? == 0 {
                return Ok(());
            }
        }
        let in_flight = InFlight::begin(counters);
        let body = &buffer[head..head + length];
        let answer = script(&Incoming { number: in_flight.number, head: &buffer[..head], body });
        buffer.drain(..head + length);
        let goes_on = send(&mut stream, answer, clock).await?;
        drop(in_flight);
        if !goes_on {
            return Ok(());
        }
    }
}

struct InFlight<'c> {
    counters: &'c Counters,
    number: u64,
}

impl<'c> InFlight<'c> {
    fn begin(counters: &'c Counters) -> Self {
        InFlight { number: counters.begin(), counters }
    }
}

impl Drop for InFlight<'_> {
    fn drop(&mut self) {
        self.counters.end();
    }
}

/// Where the body begins, and how long it is.
fn head_of(buffer: &[u8]) -> Option<(usize, usize)> {
    let end = buffer.windows(4).position(|window| window == b"\r\n\r\n")?;
    let length = buffer[..end].split(|byte| *byte == b'\n').find_map(|line| {
        let line = std::str::from_utf8(line).ok()?;
        let (name, value) = line.split_once(':')?;
        name.eq_ignore_ascii_case("content-length").then(|| value.trim().parse().ok()).flatten()
    });
    Some((end + 4, length.unwrap_or(0)))
}

/// False when the connection is over.
async fn send(stream: &mut TcpStream, mut answer: Answer, clock: &Clock) -> std::io::Result<bool> {
    while let Answer::Late(delay, then) = answer {
        clock.sleep(delay).await;
        answer = *then;
    }
    match answer {
        Answer::Reply { status, headers, body } => {
            let mut head = format!("HTTP/1.1 {status} x\r\ncontent-length: {}\r\n", body.len());
            if !headers.iter().any(|(name, _)| *name == "content-type") {
                head.push_str("content-type: application/json\r\n");
            }
            for (name, value) in headers {
                head.push_str(&format!("{name}: {value}\r\n"));
            }
            head.push_str("\r\n");
            head.push_str(&body);
            stream.write_all(head.as_bytes()).await?;
            return Ok(true);
        }
        Answer::Truncated => {
            stream.write_all(b"HTTP/1.1 200 x\r\ncontent-length: 5000\r\n\r\n{\"choices\":[{\"mess").await?;
        }
        Answer::SlowLoris => {
            stream.write_all(b"HTTP/1.1 200 x\r\ncontent-length: 5000\r\n\r\n").await?;
            loop {
                stream.write_all(b" ").await?;
                tokio::time::sleep(Duration::from_millis(50)).await;
            }
        }
        Answer::Reset => stream.set_zero_linger()?,
        Answer::Closed | Answer::Late(..) => {}
    }
    Ok(false)
}
