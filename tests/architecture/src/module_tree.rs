//! The modules of one crate, and their imports as absolute paths.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

use crate::path_reader::NamedPaths;

/// Where source comes from: the disk, or a test's own text.
pub trait SourceFiles {
    fn read(&self, path: &Path) -> Option<String>;
}

/// Files below a folder.
impl SourceFiles for PathBuf {
    fn read(&self, path: &Path) -> Option<String> {
        std::fs::read_to_string(self.join(path)).ok()
    }
}

impl SourceFiles for BTreeMap<&str, &str> {
    fn read(&self, path: &Path) -> Option<String> {
        self.get(path.to_str()?).map(|&text| text.to_owned())
    }
}

/// Modules by their path below the crate; the root has the empty one.
#[derive(Debug, Default)]
pub struct CrateModules {
    modules: BTreeMap<Vec<String>, ModuleContent>,
}

#[derive(Debug, Default)]
struct ModuleContent {
    paths: Vec<Vec<String>>,
    bindings: BTreeMap<String, Vec<String>>,
}

/// `from` names `item` of `to`.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct ModuleImport {
    pub from: Vec<String>,
    pub to: Vec<String>,
    pub item: String,
}

/// A re-export of a re-export of …; real ones end sooner.
const MAX_REEXPORTS: usize = 8;

impl CrateModules {
    /// The crate whose `src` folder these files are, from `lib.rs` or `main.rs` on.
    pub fn read(files: &dyn SourceFiles) -> Result<CrateModules, String> {
        let mut modules = CrateModules::default();
        let root = ["lib.rs", "main.rs"].into_iter().find(|root| files.read(Path::new(root)).is_some());
        modules.add_file(files, Path::new(root.ok_or("neither lib.rs nor main.rs")?), Vec::new())?;
        Ok(modules)
    }

    fn add_file(&mut self, files: &dyn SourceFiles, file: &Path, module: Vec<String>) -> Result<(), String> {
        let source = files.read(file).ok_or_else(|| format!("{}: cannot be read", file.display()))?;
        let named = NamedPaths::read(&source).map_err(|error| format!("{}: {error}", file.display()))?;
        let parent = file.parent().unwrap_or(Path::new(""));
        let is_folder =
            matches!(file.file_name().and_then(|name| name.to_str()), Some("lib.rs" | "main.rs" | "mod.rs"));
        let folder = if is_folder { parent.to_owned() } else { file.with_extension("") };
        for (name, given) in &named.file_modules {
            let candidates = match given {
                Some(given) => vec![parent.join(given)],
                None => vec![folder.join(format!("{name}.rs")), folder.join(name).join("mod.rs")],
            };
            let found = candidates.into_iter().find(|one| files.read(one).is_some());
            let found = found.ok_or_else(|| format!("{}: no file for mod {name}", file.display()))?;
            self.add_file(files, &found, child(&module, name))?;
        }
        self.add(module, named);
        Ok(())
    }

    fn add(&mut self, module: Vec<String>, named: NamedPaths) {
        for (name, inner) in named.inline_modules {
            self.add(child(&module, &name), inner);
        }
        self.modules
            .insert(module, ModuleContent { paths: named.paths, bindings: named.bindings.into_iter().collect() });
    }

    /// Names of the modules directly below `parent`.
    pub fn children(&self, parent: &[String]) -> BTreeSet<String> {
        let below = self.modules.keys().filter(|path| path.len() == parent.len() + 1 && path.starts_with(parent));
        below.map(|path| path[parent.len()].clone()).collect()
    }

    /// All modules that have modules.
    pub fn parents(&self) -> Vec<Vec<String>> {
        self.modules.keys().filter(|path| !self.children(path).is_empty()).cloned().collect()
    }

    /// Crates of this workspace that are named.
    pub fn crates(&self) -> BTreeSet<String> {
        let paths = self.modules.values().flat_map(|content| &content.paths);
        paths.filter_map(|path| path.first()).filter(|first| first.starts_with("gradus_")).cloned().collect()
    }

    /// What modules of this crate import of each other.
    pub fn imports(&self) -> BTreeSet<ModuleImport> {
        let mut imports = BTreeSet::new();
        for (from, content) in &self.modules {
            for path in &content.paths {
                let Some((to, item)) = self.absolute(from, path).and_then(|path| self.resolve(path)) else {
                    continue;
                };
                if to != *from {
                    imports.insert(ModuleImport { from: from.clone(), to, item });
                }
            }
        }
        imports
    }

    /// From the crate's root on; None for paths into other crates.
    fn absolute(&self, from: &[String], path: &[String]) -> Option<Vec<String>> {
        let (first, rest) = path.split_first()?;
        match first.as_str() {
            "crate" => Some(rest.to_vec()),
            "self" | "super" => {
                let ups = path.iter().filter(|part| *part == "super").count();
                let rest = path.iter().filter(|part| *part != "self" && *part != "super").cloned();
                let base = &from[..from.len().checked_sub(ups)?];
                Some(base.iter().cloned().chain(rest).collect())
            }
            name => self.children(from).contains(name).then(|| [from, path].concat()),
        }
    }

    /// The module that holds what is named, re-exports followed.
    fn resolve(&self, mut path: Vec<String>) -> Option<(Vec<String>, String)> {
        for _ in 0..MAX_REEXPORTS {
            let length = (0..=path.len()).rev().find(|&length| self.modules.contains_key(&path[..length]))?;
            let (module, rest) = path.split_at(length);
            let Some((item, below)) = rest.split_first() else {
                return Some((module.to_vec(), "self".to_owned()));
            };
            let target = self.modules[module].bindings.get(item);
            match target {
                Some(target) if target.as_slice() != [item.clone()] => match self.absolute(module, target) {
                    Some(absolute) => path = [absolute, below.to_vec()].concat(),
                    None => return None,
                },
                _ => return Some((module.to_vec(), item.clone())),
            }
        }
        None
    }
}

fn child(module: &[String], name: &str) -> Vec<String> {
    [module, &[name.to_owned()]].concat()
}
