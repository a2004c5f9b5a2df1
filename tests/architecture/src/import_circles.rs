//! Circles between the modules directly below one module.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;

use crate::module_tree::{CrateModules, ModuleImport};

/// Modules each of which reaches all others by imports.
#[derive(Clone, Debug)]
pub struct ImportCircle {
    /// `a::b`; empty for the crate's root.
    pub parent: String,
    pub members: BTreeSet<String>,
    pub imports: Vec<ModuleImport>,
}

/// All circles between children of `parent`.
pub fn find_circles(modules: &CrateModules, parent: &[String]) -> Vec<ImportCircle> {
    let mut arrows: BTreeMap<String, BTreeSet<String>> = BTreeMap::new();
    let mut imports = Vec::new();
    for import in modules.imports() {
        if let (Some(from), Some(to)) = (child_of(&import.from, parent), child_of(&import.to, parent))
            && from != to
        {
            arrows.entry(from.clone()).or_default().insert(to.clone());
            imports.push((from, to, import));
        }
    }
    let reached: BTreeMap<&String, BTreeSet<String>> = arrows.keys().map(|from| (from, reach(&arrows, from))).collect();
    let mut circles: Vec<ImportCircle> = Vec::new();
    for (&from, there) in &reached {
        if !there.contains(from) || circles.iter().any(|circle| circle.members.contains(from)) {
            continue;
        }
        let returns = |one: &&String| reached.get(*one).is_some_and(|back| back.contains(from));
        let members: BTreeSet<String> = there.iter().filter(returns).cloned().collect();
        let within = imports.iter().filter(|(from, to, _)| members.contains(from) && members.contains(to));
        let imports = within.map(|(_, _, import)| import.clone()).collect();
        circles.push(ImportCircle { parent: parent.join("::"), members, imports });
    }
    circles
}

fn child_of(module: &[String], parent: &[String]) -> Option<String> {
    module.starts_with(parent).then(|| module.get(parent.len()).cloned())?
}

/// Everything that `from` imports, directly or not.
fn reach(arrows: &BTreeMap<String, BTreeSet<String>>, from: &String) -> BTreeSet<String> {
    let mut reached = BTreeSet::new();
    let mut next = vec![from];
    while let Some(one) = next.pop() {
        for to in arrows.get(one).into_iter().flatten() {
            if reached.insert(to.clone()) {
                next.push(to);
            }
        }
    }
    reached
}

impl fmt::Display for ImportCircle {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let members: Vec<&str> = self.members.iter().map(String::as_str).collect();
        let parent = if self.parent.is_empty() { "the crate" } else { &self.parent };
        writeln!(f, "{} import each other in {parent}:", members.join(", "))?;
        for import in &self.imports {
            writeln!(f, "  {} imports {}::{}", import.from.join("::"), import.to.join("::"), import.item)?;
        }
        Ok(())
    }
}
