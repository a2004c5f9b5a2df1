//! What every program of Gradus shares about its machine: which requests a browser sent for another site, which
//! variables a child process may see, and how many files may be open. Contains no server and no client, and depends on
//! no other crate of Gradus.

pub mod child_environment;
pub mod cross_site;
mod open_files;

pub use open_files::{OpenFileLimitError, raise_open_file_limit};
