//! The names of the packages that a project depends on: `pyproject.toml`, `requirements*.txt`, `uv.lock`,
//! `package.json`. The files are the user's and may be anything: large, broken, a pipe, a link into nowhere.

use std::io::Read as _;
use std::path::Path;

use serde_json::{Map, Value as Json};

/// Maximum size of a file that is read. The largest lock files have a few megabytes.
const MAX_FILE_BYTES: u64 = 32 << 20;
/// Maximum number of files of requirements that are read.
const MAX_REQUIREMENT_FILES: usize = 50;

/// Packages of one file.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct DependencyFile {
    pub(super) name: String,
    /// Names of Python packages are normalised: lower case, with `-`.
    pub(super) packages: Vec<String>,
}

/// Error for one dependency file. Other files are still read.
#[derive(Debug, thiserror::Error)]
pub(super) enum DependencyError {
    #[error("skipped: {name}: {source}")]
    Unreadable { name: String, source: std::io::Error },
    #[error("skipped: {name}: larger than {} MB", MAX_FILE_BYTES >> 20)]
    TooLarge { name: String },
    #[error("skipped: {name}: {}", source.message().replace('\n', " "))]
    Toml { name: String, source: Box<toml::de::Error> },
    #[error("skipped: {name}: {source}")]
    Json { name: String, source: serde_json::Error },
}

/// Reads a regular file; `None` if it does not exist or is something else. Symlinks are followed.
/// This is safe, because only package names are extracted.
pub(super) fn read_text(folder: &Path, name: &str) -> Result<Option<String>, DependencyError> {
    let path = folder.join(name);
    let unreadable = |source| DependencyError::Unreadable { name: name.to_owned(), source };
    // Opening a pipe would wait for a writer, so the kind is looked at first.
    if !path.metadata().is_ok_and(|found| found.is_file()) {
        return Ok(None);
    }
    let mut bytes = Vec::new();
    let file = std::fs::File::open(&path).map_err(unreadable)?;
    file.take(MAX_FILE_BYTES + 1).read_to_end(&mut bytes).map_err(unreadable)?;
    if bytes.len() as u64 > MAX_FILE_BYTES {
        return Err(DependencyError::TooLarge { name: name.to_owned() });
    }
    Ok(Some(decode_text(&bytes)))
}

/// Decodes UTF-8, or UTF-16 with a byte order mark, as `pip freeze > requirements.txt` writes it in PowerShell. Names
/// are ASCII; the rest of the file does not matter.
fn decode_text(bytes: &[u8]) -> String {
    let decode_units = |rest: &[u8], read: fn([u8; 2]) -> u16| {
        let units: Vec<u16> = rest.chunks_exact(2).map(|pair| read([pair[0], pair[1]])).collect();
        String::from_utf16_lossy(&units)
    };
    match bytes {
        [0xff, 0xfe, rest @ ..] => decode_units(rest, u16::from_le_bytes),
        [0xfe, 0xff, rest @ ..] => decode_units(rest, u16::from_be_bytes),
        [0xef, 0xbb, 0xbf, rest @ ..] => String::from_utf8_lossy(rest).into_owned(),
        _ => String::from_utf8_lossy(bytes).into_owned(),
    }
}

/// Finds the packages in the text of a file; the first text is its name.
type PackageParser<'p> = &'p dyn Fn(&str, &str) -> Result<Vec<String>, DependencyError>;

/// Reads the Python dependency files. Direct dependencies come first; `uv.lock` also lists transitive ones.
pub(super) fn read_python_files(folder: &Path, problems: &mut Vec<String>) -> Vec<DependencyFile> {
    let mut files = Vec::new();
    let mut read = |name: &str, parse: PackageParser<'_>| {
        let packages = read_text(folder, name).and_then(|text| text.map(|text| parse(name, &text)).transpose());
        match packages {
            Ok(Some(packages)) => files.push(DependencyFile { name: name.to_owned(), packages }),
            Ok(None) => {}
            Err(error) => problems.push(error.to_string()),
        }
    };
    read("pyproject.toml", &parse_pyproject);
    for name in list_requirement_files(folder) {
        read(&name, &|_, text| Ok(text.lines().filter_map(parse_requirement_name).collect()));
    }
    read("uv.lock", &parse_uv_lock);
    files
}

/// Reads `package.json`.
pub(super) fn read_node_file(folder: &Path, problems: &mut Vec<String>) -> Option<(DependencyFile, Json)> {
    const NAME: &str = "package.json";
    let failed = |source| DependencyError::Json { name: NAME.to_owned(), source };
    let text = read_text(folder, NAME);
    let parsed = text.and_then(|text| text.map(|text| serde_json::from_str::<Json>(&text).map_err(failed)).transpose());
    match parsed {
        Ok(None) => None,
        Ok(Some(json)) => {
            let sections = ["dependencies", "devDependencies", "peerDependencies", "optionalDependencies"];
            let tables = sections.iter().filter_map(|section| json[*section].as_object());
            let packages = tables.flat_map(|table| table.keys().cloned()).collect();
            Some((DependencyFile { name: NAME.to_owned(), packages }, json))
        }
        Err(error) => {
            problems.push(error.to_string());
            None
        }
    }
}

/// Lists `requirements*.txt` files. File names end up in generated comments, so names with unusual characters are
/// skipped.
fn list_requirement_files(folder: &Path) -> Vec<String> {
    let is_plain = |name: &str| name.chars().all(|letter| letter.is_ascii_alphanumeric() || "._-".contains(letter));
    let entries = std::fs::read_dir(folder).into_iter().flatten().filter_map(Result::ok);
    let names = entries.filter_map(|entry| entry.file_name().into_string().ok());
    let mut names: Vec<String> =
        names.filter(|name| name.starts_with("requirements") && name.ends_with(".txt") && is_plain(name)).collect();
    names.sort();
    names.truncate(MAX_REQUIREMENT_FILES);
    names
}

/// Returns the package of a line such as `LangGraph[x]>=1 ; python_version > "3"`: PEP 508, without options and
/// comments.
fn parse_requirement_name(line: &str) -> Option<String> {
    let line = line.trim();
    let is_letter = |letter: char| letter.is_ascii_alphanumeric() || "._-".contains(letter);
    let name = &line[..line.find(|letter: char| !is_letter(letter)).unwrap_or(line.len())];
    (name.starts_with(|letter: char| letter.is_ascii_alphanumeric())).then(|| normalize_name(name))
}

/// Normalises a name by PEP 503: lower case, and a run of `-`, `_` and `.` becomes one `-`.
fn normalize_name(name: &str) -> String {
    let mut normalized = String::with_capacity(name.len());
    for letter in name.chars() {
        match letter {
            '-' | '_' | '.' if normalized.ends_with('-') => {}
            '-' | '_' | '.' => normalized.push('-'),
            letter => normalized.push(letter.to_ascii_lowercase()),
        }
    }
    normalized
}

fn parse_toml(name: &str, text: &str) -> Result<Json, DependencyError> {
    toml::from_str(text).map_err(|source| DependencyError::Toml { name: name.to_owned(), source: Box::new(source) })
}

/// Dependencies of PEP 621, PEP 735, poetry, pdm and old versions of uv.
fn parse_pyproject(name: &str, text: &str) -> Result<Vec<String>, DependencyError> {
    let project = parse_toml(name, text)?;
    let mut packages = Vec::new();
    let lists = ["/project/dependencies", "/tool/uv/dev-dependencies"];
    let tables_of_lists = ["/project/optional-dependencies", "/dependency-groups", "/tool/pdm/dev-dependencies"];
    let groups = tables_of_lists.iter().filter_map(|path| project.pointer(path)?.as_object());
    let lists = lists.iter().filter_map(|path| project.pointer(path)).chain(groups.flat_map(Map::values));
    for list in lists {
        let lines = list.as_array().into_iter().flatten().filter_map(Json::as_str);
        packages.extend(lines.filter_map(parse_requirement_name));
    }
    let poetry_groups = project.pointer("/tool/poetry/group").and_then(Json::as_object);
    let poetry_groups = poetry_groups.into_iter().flat_map(Map::values);
    let poetry = ["/tool/poetry/dependencies", "/tool/poetry/dev-dependencies"];
    let tables = poetry.iter().filter_map(|path| project.pointer(path));
    for table in tables.chain(poetry_groups.filter_map(|group| group.get("dependencies"))) {
        let names = table.as_object().into_iter().flat_map(Map::keys);
        packages.extend(names.map(|name| normalize_name(name)));
    }
    Ok(packages)
}

fn parse_uv_lock(name: &str, text: &str) -> Result<Vec<String>, DependencyError> {
    let lock = parse_toml(name, text)?;
    let packages = lock["package"].as_array().into_iter().flatten();
    Ok(packages.filter_map(|package| package["name"].as_str()).map(normalize_name).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn declared_packages_are_found_in_every_form() {
        let pyproject = r#"
            [project]
            dependencies = ["LangGraph[x]>=1 ; python_version > '3'", "openai"]
            optional-dependencies = { dev = ["llama_index.core==0.14"] }
            [dependency-groups]
            test = ["crewai", {include-group = "dev"}]
            [tool.poetry.dependencies]
            python = "^3.12"
            Smolagents = "*"
            [tool.poetry.group.dev.dependencies]
            dspy = "3"
            [tool.uv]
            dev-dependencies = ["google-adk~=2.0"]
        "#;
        let found = parse_pyproject("pyproject.toml", pyproject).expect("packages");
        for name in ["langgraph", "openai", "llama-index-core", "crewai", "smolagents", "dspy", "google-adk"] {
            assert!(found.iter().any(|package| package == name), "{name}: {found:?}");
        }
        let lines = "# openai\n-r other.txt\n  Strands_Agents>=1\nA__b.-_c\nai @ https://x.example/ai.zip\n\n\
                     --hash=sha256:0\n";
        let found: Vec<String> = lines.lines().filter_map(parse_requirement_name).collect();
        assert_eq!(found, ["strands-agents", "a-b-c", "ai"]);
        let lock = "version = 1\n[[package]]\nname = \"pydantic-ai\"\nversion = \"2\"\n";
        assert_eq!(parse_uv_lock("uv.lock", lock).expect("packages"), ["pydantic-ai"]);
    }

    #[test]
    fn files_of_other_encodings_are_read() {
        let folder = tempfile::tempdir().expect("a folder");
        let text = "langgraph==1.2\r\nopenai\r\n";
        let little = text.encode_utf16().flat_map(u16::to_le_bytes);
        let little: Vec<u8> = [0xff, 0xfe].into_iter().chain(little).collect();
        let big: Vec<u8> = [0xfe, 0xff].into_iter().chain(text.encode_utf16().flat_map(u16::to_be_bytes)).collect();
        for (name, bytes) in [("requirements-a.txt", little), ("requirements-b.txt", big)] {
            std::fs::write(folder.path().join(name), bytes).expect("written");
        }
        let mut problems = Vec::new();
        for file in read_python_files(folder.path(), &mut problems) {
            assert_eq!(file.packages, ["langgraph", "openai"], "{}", file.name);
        }
        let marked = "\u{feff}{\"dependencies\": {\"@openai/agents\": \"1\"}}";
        std::fs::write(folder.path().join("package.json"), marked).expect("written");
        let (file, _) = read_node_file(folder.path(), &mut problems).expect("packages");
        assert_eq!((file.packages, problems), (vec!["@openai/agents".to_owned()], Vec::new()));
    }

    #[test]
    fn broken_files_are_reported_and_the_others_read() {
        let folder = tempfile::tempdir().expect("a folder");
        std::fs::write(folder.path().join("pyproject.toml"), "[project\n").expect("written");
        std::fs::write(folder.path().join("package.json"), "{\"dependencies\": ").expect("written");
        std::fs::write(folder.path().join("requirements-dev.txt"), b"langgraph\n\xff\n").expect("written");
        std::fs::create_dir(folder.path().join("uv.lock")).expect("a folder");
        let mut problems = Vec::new();
        let files = read_python_files(folder.path(), &mut problems);
        assert_eq!(files.iter().map(|file| file.name.as_str()).collect::<Vec<_>>(), ["requirements-dev.txt"]);
        assert_eq!(files[0].packages, ["langgraph"]);
        assert!(read_node_file(folder.path(), &mut problems).is_none());
        assert_eq!(problems.len(), 2, "{problems:?}");
        assert!(problems.iter().all(|problem| problem.starts_with("skipped: p") && !problem.contains('\n')));
        // Types that nobody expects.
        let odd = r#"{"project": [1], "tool": {"poetry": {"group": 3}}}"#;
        assert!(
            parse_pyproject("p", &toml::to_string(&serde_json::from_str::<Json>(odd).expect("JSON")).expect("TOML"))
                .is_ok()
        );
        for text in ["[]", "3", "{\"dependencies\": []}"] {
            std::fs::write(folder.path().join("package.json"), text).expect("written");
            assert!(read_node_file(folder.path(), &mut problems).is_some_and(|(file, _)| file.packages.is_empty()));
        }
    }
}
