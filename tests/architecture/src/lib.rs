//! Reads the modules of a crate and what they import, and finds modules that import each other in a circle.
//!
//! Only text is read, nothing is compiled. Code under `#[cfg(test)]` counts as nothing: a test may look anywhere.

mod import_circles;
mod module_tree;
mod path_reader;

pub use import_circles::{ImportCircle, find_circles};
pub use module_tree::{CrateModules, ModuleImport, SourceFiles};
