//! Rows of an export without secrets and personal data.

use std::io::{self, Write};

use gradus_scrub::{LeakDetector, LeakKind, ScrubSettings, ScrubStatistics, Scrubber};
use serde_json::Value as Json;

/// Scrubs rows on their way to the file. A row in which something survives is not written, and neither is any behind it.
pub(super) struct ScrubbedRows<'o> {
    out: &'o mut dyn Write,
    scrubber: Scrubber,
    detector: LeakDetector,
    /// The row that is being received.
    row: Vec<u8>,
    rows: u64,
}

/// The environment, without what is no text.
fn text_variables() -> Vec<(String, String)> {
    std::env::vars_os()
        .filter_map(|(name, value)| Some((name.into_string().ok()?, value.into_string().ok()?)))
        .collect()
}

/// Something that looks like a secret is left in a scrubbed row. The text never shows it.
#[derive(Debug, thiserror::Error)]
#[error("row {row}: {what} is left after scrubbing: {excerpt}")]
pub(super) struct SurvivingSecret {
    row: u64,
    what: String,
    excerpt: String,
}

impl<'o> ScrubbedRows<'o> {
    pub(super) fn new(out: &'o mut dyn Write) -> Self {
        ScrubbedRows {
            out,
            scrubber: Scrubber::new(ScrubSettings::default()),
            detector: LeakDetector::new(text_variables()),
            row: Vec::new(),
            rows: 0,
        }
    }

    /// Scrubs what stands beside the rows.
    pub(super) fn scrub_value(&mut self, value: &mut Json) {
        self.scrubber.scrub_json(value);
    }

    pub(super) fn statistics(&self) -> &ScrubStatistics {
        self.scrubber.statistics()
    }

    fn write_row(&mut self) -> io::Result<()> {
        self.rows += 1;
        let mut row: Json = serde_json::from_slice(&std::mem::take(&mut self.row))?;
        self.scrubber.scrub_json(&mut row);
        let text = row.to_string();
        if let Some(leak) = self.detector.find_leak(&text) {
            let what = match leak.kind {
                LeakKind::EnvironmentSecret(name) => format!("the value of the environment variable {name}"),
                LeakKind::PrivateKey => "a private key".to_owned(),
                LeakKind::RandomToken => "a token that looks random".to_owned(),
            };
            return Err(io::Error::other(SurvivingSecret { row: self.rows, what, excerpt: leak.masked_excerpt }));
        }
        writeln!(self.out, "{text}")
    }
}

impl Write for ScrubbedRows<'_> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let end = bytes.iter().position(|byte| *byte == b'\n').map_or(bytes.len(), |at| at + 1);
        self.row.extend_from_slice(&bytes[..end]);
        if self.row.ends_with(b"\n") {
            self.write_row()?;
        }
        Ok(end)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.out.flush()
    }
}
