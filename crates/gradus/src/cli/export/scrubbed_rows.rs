//! Rows of an export without secrets and personal data.

use std::io::{self, Write};

use gradus_scrub::{LeakDetector, LeakKind, ScrubSettings, ScrubStatistics, Scrubber};
use serde_json::Value as Json;

/// Scrubs rows on their way to the file. A row in which a secret survives is not written, and neither are later ones.
pub(super) struct ScrubbedRows<'o> {
    out: &'o mut dyn Write,
    scrubber: &'o mut RowScrubber,
    /// The row that is being received.
    row: Vec<u8>,
}

/// Scrubs the rows of an export. The same value gets the same placeholder in all of its files.
pub(super) struct RowScrubber {
    scrubber: Scrubber,
    detector: LeakDetector,
    rows: u64,
}

/// Returns the environment variables that are valid UTF-8.
fn utf8_environment() -> Vec<(String, String)> {
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

impl RowScrubber {
    pub(super) fn new() -> Self {
        RowScrubber {
            scrubber: Scrubber::new(ScrubSettings::default()),
            detector: LeakDetector::new(utf8_environment()),
            rows: 0,
        }
    }

    /// Scrubs a value that is written next to the rows.
    pub(super) fn scrub_value(&mut self, value: &mut Json) {
        self.scrubber.scrub_json(value);
    }

    pub(super) fn statistics(&self) -> &ScrubStatistics {
        self.scrubber.statistics()
    }

    fn scrub_row(&mut self, row: &[u8]) -> io::Result<String> {
        self.rows += 1;
        let mut row: Json = serde_json::from_slice(row)?;
        self.scrubber.scrub_json(&mut row);
        let text = row.to_string();
        let Some(leak) = self.detector.find_leak(&text) else { return Ok(text) };
        let what = match leak.kind {
            LeakKind::EnvironmentSecret(name) => format!("the value of the environment variable {name}"),
            LeakKind::PrivateKey => "a private key".to_owned(),
            LeakKind::RandomToken => "a token that looks random".to_owned(),
        };
        Err(io::Error::other(SurvivingSecret { row: self.rows, what, excerpt: leak.masked_excerpt }))
    }
}

impl<'o> ScrubbedRows<'o> {
    pub(super) fn new(out: &'o mut dyn Write, scrubber: &'o mut RowScrubber) -> Self {
        ScrubbedRows { out, scrubber, row: Vec::new() }
    }
}

impl Write for ScrubbedRows<'_> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let end = bytes.iter().position(|byte| *byte == b'\n').map_or(bytes.len(), |at| at + 1);
        self.row.extend_from_slice(&bytes[..end]);
        if self.row.ends_with(b"\n") {
            let text = self.scrubber.scrub_row(&std::mem::take(&mut self.row))?;
            writeln!(self.out, "{text}")?;
        }
        Ok(end)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.out.flush()
    }
}
