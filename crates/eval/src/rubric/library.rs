//! The rubrics of a run: the built-in ones, and those of a user's folder, which add to them or replace them.

use std::path::{Path, PathBuf};

use super::{Rubric, RubricError, RubricOrigin};

/// The built-in rubrics, in the order of questions and of rows in reports.
const BUILT_IN: [&str; 11] = [
    include_str!("../../rubrics/query_to_thought.md"),
    include_str!("../../rubrics/thought_to_tool.md"),
    include_str!("../../rubrics/sequence_optimality.md"),
    include_str!("../../rubrics/request_to_tool.md"),
    include_str!("../../rubrics/parameter_quality.md"),
    include_str!("../../rubrics/misread_observation.md"),
    include_str!("../../rubrics/task_completion.md"),
    include_str!("../../rubrics/planning.md"),
    include_str!("../../rubrics/recovery_quality.md"),
    include_str!("../../rubrics/user_alignment.md"),
    include_str!("../../rubrics/policy.md"),
];

/// Rubrics by name. Names are unique; built-in ones come first.
#[derive(Clone, Debug)]
pub struct RubricLibrary {
    rubrics: Vec<Rubric>,
}

/// A file that is not a rubric, or a folder that cannot be read.
#[derive(Debug, thiserror::Error)]
pub enum LibraryError {
    #[error("{path}: {reason}")]
    Rubric {
        path: String,
        #[source]
        reason: RubricError,
    },
    #[error("{path}: {reason}")]
    Io {
        path: String,
        #[source]
        reason: std::io::Error,
    },
    #[error("{path}: the rubric {name:?} is in {other}, too")]
    Twice { path: String, name: String, other: String },
}

impl RubricLibrary {
    /// The rubrics that are compiled in. A test parses them, so this cannot fail.
    pub fn built_in() -> RubricLibrary {
        let parse = |text: &&str| match Rubric::parse(text, RubricOrigin::BuiltIn) {
            Ok(rubric) => rubric,
            Err(error) => unreachable!("the built-in rubrics are tested: {error}"),
        };
        RubricLibrary { rubrics: BUILT_IN.iter().map(parse).collect() }
    }

    /// Returns the file of a built-in rubric, for `gradus rubrics show`: a copy is a good start for a custom rubric.
    pub fn built_in_text(name: &str) -> Option<&'static str> {
        let named = |text: &&&str| Rubric::parse(text, RubricOrigin::BuiltIn).is_ok_and(|rubric| rubric.name == name);
        BUILT_IN.iter().find(named).copied()
    }

    /// Adds one file, or the `.md` files of a folder in alphabetical order. A rubric replaces the built-in one of its
    /// name. Two files with the same name are an error, since either could win.
    pub fn add_path(&mut self, path: &Path) -> Result<(), LibraryError> {
        for file in rubric_files(path)? {
            let rubric = read_file(&file)?;
            match self.rubrics.iter_mut().find(|known| known.name == rubric.name) {
                Some(known) => match &known.origin {
                    RubricOrigin::BuiltIn => *known = rubric,
                    RubricOrigin::File(other) => {
                        return Err(LibraryError::Twice {
                            path: file.display().to_string(),
                            name: rubric.name,
                            other: other.display().to_string(),
                        });
                    }
                },
                None => self.rubrics.push(rubric),
            }
        }
        Ok(())
    }

    /// Parses each rubric of a folder, or one file, and reports every error instead of the first one.
    pub fn check_path(path: &Path) -> Vec<Result<Rubric, LibraryError>> {
        match rubric_files(path) {
            Ok(files) => files.iter().map(|file| read_file(file)).collect(),
            Err(error) => vec![Err(error)],
        }
    }

    pub fn iter(&self) -> impl Iterator<Item = &Rubric> {
        self.rubrics.iter()
    }

    pub fn find(&self, name: &str) -> Option<&Rubric> {
        self.rubrics.iter().find(|rubric| rubric.name == name)
    }
}

/// Reads one rubric.
fn read_file(file: &Path) -> Result<Rubric, LibraryError> {
    let path = || file.display().to_string();
    let text = std::fs::read_to_string(file).map_err(|reason| LibraryError::Io { path: path(), reason })?;
    Rubric::parse(&text, RubricOrigin::File(file.to_owned()))
        .map_err(|reason| LibraryError::Rubric { path: path(), reason })
}

/// The `.md` files of a folder, without subfolders.
fn rubric_files(path: &Path) -> Result<Vec<PathBuf>, LibraryError> {
    if path.is_file() {
        return Ok(vec![path.to_owned()]);
    }
    let io = |reason| LibraryError::Io { path: path.display().to_string(), reason };
    let mut files = Vec::new();
    for entry in std::fs::read_dir(path).map_err(io)? {
        let file = entry.map_err(io)?.path();
        let is_rubric = file.extension().is_some_and(|extension| extension == "md");
        // A folder of rubrics may contain a README.
        let is_readme = file.file_stem().is_some_and(|stem| stem.eq_ignore_ascii_case("readme"));
        if is_rubric && !is_readme && file.is_file() {
            files.push(file);
        }
    }
    files.sort();
    Ok(files)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_built_in_rubrics_are_sound() {
        let library = RubricLibrary::built_in();
        assert_eq!(library.iter().count(), BUILT_IN.len());
        for rubric in library.iter() {
            assert!(rubric.about.ends_with('?') && rubric.about.len() < 60, "{}: a subtitle of pages", rubric.name);
            assert!(!rubric.phoenix_name.contains("GitHub"), "{}", rubric.name);
            let examples = rubric.source.lines().filter(|line| line.starts_with("- ")).count();
            assert!((2..=3).contains(&examples), "{}: {examples} examples", rubric.name);
            assert_eq!(rubric.labels.iter().map(|(_, score)| score).collect::<Vec<_>>(), [1.0, 0.0]);
            assert!(RubricLibrary::built_in_text(&rubric.name).is_some());
        }
    }

    /// What many cases share comes first, so that a provider's prompt cache covers it.
    #[test]
    fn built_in_prompts_put_shared_values_first() {
        use super::super::RubricVariable as V;
        let order = [V::ToolDefinitions, V::SystemPrompt, V::Conversation, V::OriginalQuestion, V::PreviousSteps];
        for rubric in RubricLibrary::built_in().iter() {
            let rank = |variable: V| order.iter().position(|known| *known == variable).unwrap_or(order.len());
            let ranks: Vec<usize> = rubric.template.variables().map(rank).collect();
            assert!(ranks.is_sorted(), "{}: {ranks:?}", rubric.name);
        }
    }
}
