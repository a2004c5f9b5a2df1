//! The library behind the `gradus` command.

pub mod source;
