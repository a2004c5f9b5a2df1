//! Which bytes of a text that Python printed are code, and which are inside quotes.

/// Walks over a text byte by byte. Quotes are single or double, and a backslash escapes the byte behind it.
#[derive(Debug, Default)]
pub(crate) struct QuoteTracker {
    /// The quote that is open.
    quote: Option<u8>,
    is_escaped: bool,
}

impl QuoteTracker {
    /// Advances by one byte and returns whether it is code: neither in quotes nor a quote itself.
    pub(crate) fn next_is_code(&mut self, byte: u8) -> bool {
        match self.quote {
            Some(_) if self.is_escaped => self.is_escaped = false,
            Some(_) if byte == b'\\' => self.is_escaped = true,
            Some(open) if byte == open => self.quote = None,
            Some(_) => {}
            None if matches!(byte, b'\'' | b'"') => self.quote = Some(byte),
            None => return true,
        }
        false
    }
}
