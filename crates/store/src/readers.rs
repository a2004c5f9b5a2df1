//! Connections for reading. Readers never wait for the writer, nor it for them; at most so many read at once.

use std::ops::Deref;
use std::path::PathBuf;
use std::sync::{Condvar, Mutex, PoisonError};

use rusqlite::Connection;

use crate::connection::open_reader;
use crate::error::StoreError;

pub(crate) struct Readers {
    path: PathBuf,
    state: Mutex<State>,
    returned: Condvar,
}

struct State {
    idle: Vec<Connection>,
    /// How many more may be opened.
    left: usize,
}

const MOST_READERS: usize = 8;

impl Readers {
    pub(crate) fn new(path: PathBuf) -> Readers {
        Readers {
            path,
            state: Mutex::new(State { idle: Vec::new(), left: MOST_READERS }),
            returned: Condvar::new(),
        }
    }

    /// Takes a connection; waits if all are in use.
    pub(crate) fn take(&self) -> Result<Reader<'_>, StoreError> {
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        loop {
            if let Some(connection) = state.idle.pop() {
                return Ok(Reader { readers: self, connection: Some(connection) });
            }
            if state.left > 0 {
                state.left -= 1;
                drop(state);
                return match open_reader(&self.path) {
                    Ok(connection) => Ok(Reader { readers: self, connection: Some(connection) }),
                    Err(error) => {
                        self.state.lock().unwrap_or_else(PoisonError::into_inner).left += 1;
                        self.returned.notify_one();
                        Err(error)
                    }
                };
            }
            state = self.returned.wait(state).unwrap_or_else(PoisonError::into_inner);
        }
    }
}

/// A connection that goes back when it is dropped.
pub(crate) struct Reader<'r> {
    readers: &'r Readers,
    connection: Option<Connection>,
}

impl Deref for Reader<'_> {
    type Target = Connection;

    fn deref(&self) -> &Connection {
        match &self.connection {
            Some(connection) => connection,
            None => unreachable!("it is there until the reader is dropped"),
        }
    }
}

impl Drop for Reader<'_> {
    fn drop(&mut self) {
        let mut state = self.readers.state.lock().unwrap_or_else(PoisonError::into_inner);
        state.idle.extend(self.connection.take());
        self.readers.returned.notify_one();
    }
}
