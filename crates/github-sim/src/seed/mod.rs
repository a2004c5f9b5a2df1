//! Seeds: initial states as files. `docs/reference/simulate.md` describes the format. A seed can extend another one, so
//! a task adds only what it needs:
//!
//! ```toml
//! extends = "w0"
//!
//! [[accounts]]
//! login = "mona"
//!
//! [[tokens]]
//! token = "ghp_mona"
//! account = "mona"
//! scopes = ["repo"]
//!
//! [[repositories]]
//! name = "mona/demo"
//!
//! [[repositories.commits]]
//! message = "Add a README"
//! files = { "README.md" = "# demo\n" }
//!
//! [[repositories.issues]]
//! title = "The README has no license"
//! labels = ["documentation"]
//! ```
//!
//! Loading has two phases. Parsing checks syntax, keys and types, and knows lines. Applying checks references between
//! objects, such as an unknown account, and looks the line up afterwards. Events without a time follow each other by a
//! minute, so a seed without any times is still deterministic.

mod apply;
mod builder;
mod file;
mod history;
mod seed_issues;

use std::path::{Path, PathBuf};

pub use file::SeedFile;

use super::world::World;
use crate::source_file::{SourceFileProblem, TextFileError, from_json, from_toml, line_of, read_text};

/// The built-in worlds by name, from small to large.
pub const BUILT_IN_SEEDS: [(&str, &str); 5] = [
    ("w0", include_str!("../../seeds/w0.toml")),
    ("w1", include_str!("../../seeds/w1.toml")),
    ("w2", include_str!("../../seeds/w2.toml")),
    ("w3", include_str!("../../seeds/w3.toml")),
    ("w4", include_str!("../../seeds/w4.toml")),
];

/// Files are TOML or JSON; the control API takes JSON.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SeedFormat {
    Json,
    Toml,
}

/// Why a seed is refused.
#[derive(Debug, thiserror::Error)]
pub enum SeedError {
    #[error("there is no seed {name:?}: give a file (.toml or .json) or one of {known}")]
    Unknown { name: String, known: String },
    #[error("{}: {reason}", path.display())]
    Unreadable {
        path: PathBuf,
        #[source]
        reason: std::io::Error,
    },
    #[error("{origin}: line {line}: {reason}")]
    Syntax { origin: String, line: usize, reason: String },
    /// A value is wrong. `place` is the path of the field, and `line` is filled in where the text is known.
    #[error("{origin}: {}{place}: {reason}", line.map(|line| format!("line {line}: ")).unwrap_or_default())]
    Content { origin: String, line: Option<usize>, place: String, reason: String },
    /// Detected by the number of layers.
    #[error("{origin}: it extends {name:?}, which in the end extends it again")]
    Circle { origin: String, name: String },
    // Without the name: an answer must not tell whether there is such a file.
    #[error("{origin}: a seed that is sent can extend only the seeds that come with Gradus: {known}")]
    NotBuiltIn { origin: String, known: String },
}

/// Which seeds a seed may extend.
#[derive(Clone, Copy, PartialEq, Eq)]
enum SeedSources {
    BuiltIn,
    /// Built-in seeds and files in the folder of the seed.
    Files,
}

fn built_in_names() -> String {
    BUILT_IN_SEEDS.map(|(name, _)| name).join(", ")
}

/// Maximum length of a chain of extensions. A longer one is treated as a cycle.
const MAX_LAYERS: usize = 16;

impl SeedFile {
    /// Loads a built-in seed by name, or a file by path.
    pub fn load_named(name: &str) -> Result<SeedFile, SeedError> {
        SeedFile::load_extended(name, None)
    }

    /// Loads an extended seed. Relative paths are resolved against the folder of the extending seed.
    fn load_extended(name: &str, folder: Option<&Path>) -> Result<SeedFile, SeedError> {
        if let Some((_, text)) = BUILT_IN_SEEDS.iter().find(|(known, _)| *known == name) {
            return SeedFile::parse(text, SeedFormat::Toml, name);
        }
        let path = folder.map_or_else(|| PathBuf::from(name), |folder| folder.join(name));
        let format = match path.extension().and_then(|ending| ending.to_str()) {
            Some("toml") => SeedFormat::Toml,
            Some("json") => SeedFormat::Json,
            _ => {
                return Err(SeedError::Unknown { name: name.to_owned(), known: built_in_names() });
            }
        };
        let text = read_text(&path).map_err(|reason| match reason {
            TextFileError::Unreadable(reason) => SeedError::Unreadable { path: path.clone(), reason },
            TextFileError::Mistake(mistake) => build_syntax_error(&path.display().to_string(), &mistake),
        })?;
        let mut seed = SeedFile::parse(&text, format, &path.display().to_string())?;
        seed.folder = path.parent().map(Path::to_owned);
        Ok(seed)
    }

    /// Parses a seed. `origin` names it in errors.
    pub fn parse(text: &str, format: SeedFormat, origin: &str) -> Result<SeedFile, SeedError> {
        let mut seed: SeedFile = match format {
            SeedFormat::Json => from_json(text),
            SeedFormat::Toml => from_toml(text),
        }
        .map_err(|mistake| build_syntax_error(origin, &mistake))?;
        origin.clone_into(&mut seed.origin);
        if format == SeedFormat::Toml {
            seed.text = text.into();
        }
        Ok(seed)
    }

    /// Sets the source of a seed that is a table of another file: the text of that file, the name of the table, the
    /// name of the file in errors, and the folder of files that it extends.
    #[must_use]
    pub fn with_source(mut self, text: &str, table: &'static str, origin: &str, folder: Option<&Path>) -> SeedFile {
        (self.text, self.table) = (text.into(), table);
        origin.clone_into(&mut self.origin);
        self.folder = folder.map(Path::to_owned);
        self
    }

    /// Builds the world, after all seeds that it extends.
    pub fn to_world(&self) -> Result<World, SeedError> {
        self.build_world(SeedSources::Files)
    }

    /// Builds the world for a seed from a request: it may extend only built-in seeds. Reading files would let any
    /// client of the port probe the file system.
    pub(super) fn world_without_files(&self) -> Result<World, SeedError> {
        self.build_world(SeedSources::BuiltIn)
    }

    fn build_world(&self, sources: SeedSources) -> Result<World, SeedError> {
        let mut layers = Vec::new();
        let mut above = self.extends.clone();
        let (mut origin, mut folder) = (self.origin.clone(), self.folder.clone());
        while let Some(name) = above {
            if layers.len() >= MAX_LAYERS {
                return Err(SeedError::Circle { origin, name });
            }
            if sources == SeedSources::BuiltIn && !BUILT_IN_SEEDS.iter().any(|(known, _)| *known == name) {
                return Err(SeedError::NotBuiltIn { origin, known: built_in_names() });
            }
            let layer = SeedFile::load_extended(&name, folder.as_deref())?;
            above = layer.extends.clone();
            origin.clone_from(&layer.origin);
            folder.clone_from(&layer.folder);
            layers.push(layer);
        }
        layers.reverse();
        // Errors are raised without a line; it is looked up in the text of the layer that the error names.
        apply::apply_seed_files(layers.iter().chain([self])).map_err(|error| match error {
            SeedError::Content { origin, line: None, place, reason } => {
                let seed = layers.iter().chain([self]).find(|seed| seed.origin == origin);
                let line = seed.and_then(|seed| seed.line_of(&place));
                SeedError::Content { origin, line, place, reason }
            }
            other => other,
        })
    }

    /// Returns the line of a field; `None` for seeds whose text is not TOML.
    fn line_of(&self, place: &str) -> Option<usize> {
        let is_known = !self.text.is_empty();
        is_known.then(|| line_of(&self.text, &format!("{}.{place}", self.table)))
    }
}

fn build_syntax_error(origin: &str, mistake: &SourceFileProblem) -> SeedError {
    SeedError::Syntax { origin: origin.to_owned(), line: mistake.line, reason: mistake.format_message() }
}
