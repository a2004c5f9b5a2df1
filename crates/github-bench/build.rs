//! Puts the files of `tasks/` into the program, so that a task more is a file more and nothing else.

use std::fmt::Write as _;
use std::path::Path;
use std::{env, fs, io};

fn main() -> io::Result<()> {
    let var = |name: &str| env::var(name).map_err(|_| io::Error::other(format!("cargo sets {name}")));
    let folder = Path::new(&var("CARGO_MANIFEST_DIR")?).join("tasks");
    println!("cargo::rerun-if-changed={}", folder.display());
    let mut files = Vec::new();
    for entry in fs::read_dir(&folder)? {
        let path = entry?.path();
        if path.extension().is_some_and(|ending| ending == "toml") {
            files.push(path);
        }
    }
    files.sort();
    let mut code = String::from("&[\n");
    for path in files {
        let name = path.file_name().and_then(|name| name.to_str()).unwrap_or_default();
        let _ = writeln!(code, "    ({name:?}, include_str!({:?})),", path.display().to_string());
    }
    code.push_str("]\n");
    fs::write(Path::new(&var("OUT_DIR")?).join("tasks.rs"), code)
}
