//! HTTP/2 frame by frame, for clients that do what no library does.

use std::io::{Read as _, Write as _};
use std::net::{SocketAddr, TcpStream};
use std::time::Duration;

const PREFACE: &[u8] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";
const SETTINGS: u8 = 4;
const HEADERS: u8 = 1;
pub(crate) const GO_AWAY: u8 = 7;

pub(crate) struct Http2 {
    pub(crate) stream: TcpStream,
    unread: Vec<u8>,
}

fn frame(kind: u8, flags: u8, stream: u32, payload: &[u8]) -> Vec<u8> {
    let mut bytes = (payload.len() as u32).to_be_bytes()[1..].to_vec();
    bytes.extend([kind, flags]);
    bytes.extend(stream.to_be_bytes());
    bytes.extend(payload);
    bytes
}

impl Http2 {
    /// Opens a connection; responses may have so many bytes at first.
    pub(crate) fn connect(to: SocketAddr, window: Option<u32>) -> Http2 {
        let mut stream = TcpStream::connect(to).unwrap();
        let mut settings = Vec::new();
        if let Some(window) = window {
            settings.extend(4u16.to_be_bytes());
            settings.extend(window.to_be_bytes());
        }
        stream.write_all(PREFACE).unwrap();
        stream.write_all(&frame(SETTINGS, 0, 0, &settings)).unwrap();
        Http2 { stream, unread: Vec::new() }
    }

    /// Asks for a path.
    pub(crate) fn get(&mut self, stream: u32, path: &str) {
        // From the static table: GET, http; then authority and path as they are.
        let mut block = vec![0x82, 0x86, 0x01, 9];
        block.extend(b"localhost");
        block.extend([0x04, u8::try_from(path.len()).ok().filter(|length| *length < 127).unwrap()]);
        block.extend(path.as_bytes());
        const END_STREAM_AND_HEADERS: u8 = 0x5;
        self.stream.write_all(&frame(HEADERS, END_STREAM_AND_HEADERS, stream, &block)).unwrap();
    }

    /// The kinds of frames that came until the server closed the connection; `None` if it did not within this time.
    pub(crate) fn frames_until_closed(&mut self, patience: Duration) -> Option<Vec<u8>> {
        self.stream.set_read_timeout(Some(patience)).unwrap();
        let mut piece = [0; 16 << 10];
        loop {
            match self.stream.read(&mut piece) {
                Ok(0) => break,
                Ok(count) => self.unread.extend(&piece[..count]),
                Err(error) if error.kind() == std::io::ErrorKind::ConnectionReset => break,
                Err(_) => return None,
            }
        }
        let (mut kinds, mut at) = (Vec::new(), 0);
        while let Some(head) = self.unread.get(at..at + 9) {
            kinds.push(head[3]);
            at += 9 + u32::from_be_bytes([0, head[0], head[1], head[2]]) as usize;
        }
        Some(kinds)
    }
}
