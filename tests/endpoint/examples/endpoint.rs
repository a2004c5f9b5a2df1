//! `endpoint [PORT] [LATENCY_MS]`: the endpoint as a program of its own, for benchmarks. Answers "correct" to everything; prints its address.

use std::io::Write;
use std::sync::Arc;
use std::time::Duration;

use gradus_test_endpoint::Endpoint;

fn main() -> std::io::Result<()> {
    let mut arguments = std::env::args().skip(1).map(|argument| argument.parse::<u64>().unwrap_or(0));
    let port = u16::try_from(arguments.next().unwrap_or(0)).unwrap_or(0);
    let latency = Duration::from_millis(arguments.next().unwrap_or(0));
    let endpoint = Endpoint::start_on(
        port,
        Arc::new(move |incoming| {
            let answer = incoming.verdict("correct");
            if latency.is_zero() { answer } else { answer.after(latency) }
        }),
    )?;
    writeln!(std::io::stdout(), "{}", endpoint.url())?;
    endpoint.join();
    Ok(())
}
