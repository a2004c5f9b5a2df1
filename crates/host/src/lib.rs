//! What every program of Gradus must know about the machine it runs on: which requests a browser sent for another site,
//! which variables a child process may see, and how many files may be open. Owns no server and no client; sees no other
//! crate of Gradus.

pub mod child_environment;
pub mod cross_site;
mod open_files;

pub use open_files::{OpenFileLimit, raise_open_file_limit};
