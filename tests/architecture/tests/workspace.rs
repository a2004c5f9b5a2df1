//! Which crate may see which, and that no modules import each other in a circle.

use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;

use gradus_architecture::{CrateModules, SourceFiles, find_circles};

/// What each crate may see, bottom up: a crate sees only those above it in this list.
const VISIBLE_CRATES: [(&str, &[&str]); 23] = [
    ("host", &[]),
    ("react", &[]),
    ("scrub", &[]),
    ("core", &["react"]),
    ("dataset", &["core"]),
    ("http", &["core"]),
    ("otlp", &["core"]),
    ("llm", &["http"]),
    ("stats", &[]),
    ("eval", &["core", "http", "llm", "stats"]),
    ("store", &["core"]),
    ("export", &["core"]),
    ("import", &["core"]),
    ("ingest", &["core", "otlp", "import"]),
    ("report", &["core", "stats", "eval"]),
    ("mcp", &["core", "stats", "eval", "report"]),
    ("phoenix", &["core", "otlp", "http", "eval", "ingest"]),
    (
        "server",
        &["host", "core", "otlp", "http", "llm", "stats", "eval", "store", "ingest", "report", "mcp", "phoenix"],
    ),
    ("github-sim", &["host"]),
    ("github-agent", &["react", "host", "http", "llm"]),
    ("github-bench", &["core", "llm", "stats", "eval", "report", "github-sim", "github-agent"]),
    ("judge-test", &["core", "stats", "eval"]),
    (
        "gradus",
        &[
            "host",
            "core",
            "dataset",
            "otlp",
            "http",
            "llm",
            "stats",
            "eval",
            "store",
            "scrub",
            "export",
            "import",
            "ingest",
            "report",
            "mcp",
            "phoenix",
            "server",
            "github-sim",
            "github-agent",
            "github-bench",
            "judge-test",
        ],
    ),
];

/// Circles that are still there: crate, parent, members. This list only gets shorter.
const KNOWN_CIRCLES: [(&str, &str, &[&str]); 0] = [];

fn crate_folder(name: &str) -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../crates").join(name)
}

fn read_crate(name: &str) -> CrateModules {
    CrateModules::read(&crate_folder(name).join("src")).unwrap_or_else(|error| panic!("{name}: {error}"))
}

fn planted(files: &[(&'static str, &'static str)]) -> CrateModules {
    let files: BTreeMap<&str, &str> = files.iter().copied().collect();
    CrateModules::read(&files).expect("planted source is read")
}

fn circle_members(modules: &CrateModules) -> Vec<Vec<String>> {
    let parents = modules.parents();
    let circles = parents.iter().flat_map(|parent| find_circles(modules, parent));
    circles.map(|circle| circle.members.into_iter().collect()).collect()
}

#[test]
fn crates_see_only_what_lies_below() {
    let mut below = BTreeSet::new();
    for (name, visible) in VISIBLE_CRATES {
        for other in visible {
            assert!(below.contains(other), "{name} may see {other}, which does not lie below it");
        }
        below.insert(name);
        let manifest = crate_folder(name).join("Cargo.toml");
        let manifest = std::fs::read_to_string(&manifest).unwrap_or_else(|error| panic!("{name}: {error}"));
        let dependencies = manifest.split("[dependencies]").nth(1).unwrap_or_default();
        let dependencies = dependencies.split("\n[").next().unwrap_or_default();
        let declared =
            dependencies.lines().filter_map(|line| line.strip_prefix("gradus-")?.split(['.', ' ', '=']).next());
        let named: Vec<String> =
            read_crate(name).crates().iter().map(|one| one["gradus_".len()..].replace('_', "-")).collect();
        for other in declared.chain(named.iter().map(String::as_str)) {
            assert!(other == name || visible.contains(&other), "{name} sees {other}, and may see {visible:?}");
        }
    }
}

#[test]
fn every_crate_is_in_the_list() {
    let folders = std::fs::read_dir(crate_folder("")).expect("crates are read");
    let found: BTreeSet<String> =
        folders.map(|one| one.expect("read").file_name().to_string_lossy().into_owned()).collect();
    let listed: BTreeSet<String> = VISIBLE_CRATES.iter().map(|(name, _)| (*name).to_owned()).collect();
    assert_eq!(found, listed);
}

#[test]
fn every_crate_says_what_it_owns() {
    for (name, _) in VISIBLE_CRATES {
        let root: PathBuf = crate_folder(name).join("src");
        let text = root.read("lib.rs".as_ref()).unwrap_or_else(|| panic!("{name} has no lib.rs"));
        let opening: Vec<&str> = text.lines().take_while(|line| line.starts_with("//!")).collect();
        assert!(opening.len() >= 2, "{name}: lib.rs says neither what it owns nor what it must never see");
    }
}

#[test]
fn no_modules_import_each_other_in_a_circle() {
    let mut found = Vec::new();
    for (name, _) in VISIBLE_CRATES {
        let modules = read_crate(name);
        for parent in modules.parents() {
            for circle in find_circles(&modules, &parent) {
                let members: Vec<String> = circle.members.iter().cloned().collect();
                let is_known = KNOWN_CIRCLES.iter().any(|(known, parent, known_members)| {
                    *known == name && *parent == circle.parent && *known_members == members
                });
                if !is_known {
                    found.push(format!("{name}: {circle}"));
                }
            }
        }
    }
    assert!(found.is_empty(), "{}", found.join("\n"));
}

#[test]
fn a_known_circle_that_is_gone_leaves_the_list() {
    for (name, parent, members) in KNOWN_CIRCLES {
        let parent: Vec<String> = parent.split("::").filter(|part| !part.is_empty()).map(str::to_owned).collect();
        let circles = find_circles(&read_crate(name), &parent);
        let is_there =
            circles.iter().any(|circle| circle.members.iter().map(String::as_str).eq(members.iter().copied()));
        assert!(is_there, "{name}: {members:?} is no circle any more; take it off the list");
    }
}

#[test]
fn circles_are_found() {
    let root = ("lib.rs", "mod a; mod b;");
    let circle = vec![vec!["a".to_owned(), "b".to_owned()]];
    for (a, b) in [
        ("use crate::b::Two;", "use crate::a::One;"),
        ("use super::b::{Two, Three as Four};", "fn f() { let one = crate::a::one(); }"),
        ("pub fn one() { println!(\"{}\", crate::b::two()); }", "pub(crate) use super::a::*;"),
    ] {
        assert_eq!(circle_members(&planted(&[root, ("a.rs", a), ("b.rs", b)])), circle, "{a} {b}");
    }
}

#[test]
fn a_reexport_hides_no_circle() {
    let root = ("lib.rs", "mod a; mod b; pub use b::Two;");
    let modules = planted(&[root, ("a.rs", "use crate::Two;"), ("b.rs", "use crate::a::One; pub struct Two;")]);
    assert_eq!(circle_members(&modules), vec![vec!["a".to_owned(), "b".to_owned()]]);
}

#[test]
fn circles_below_the_root_are_found() {
    let files = [
        ("lib.rs", "mod a;"),
        ("a/mod.rs", "mod one; mod two { use super::one::X; }"),
        ("a/one.rs", "pub struct X; fn f() -> super::two::Y {}"),
    ];
    assert_eq!(circle_members(&planted(&files)), vec![vec!["one".to_owned(), "two".to_owned()]]);
}

#[test]
fn tests_comments_and_visibility_are_no_imports() {
    let a = "
        // use crate::b::X;
        const TEXT: &str = \"crate::b::X\";
        pub(in crate::b) fn f() {}
        #[cfg(test)]
        mod tests { use crate::b::X; }
        #[cfg(test)]
        use crate::b::{Y, Z};
    ";
    let modules = planted(&[("lib.rs", "mod a; mod b;"), ("a.rs", a), ("b.rs", "use crate::a::f;")]);
    assert_eq!(circle_members(&modules), Vec::<Vec<String>>::new());
    assert_eq!(modules.imports().len(), 1, "b imports a: {:?}", modules.imports());
}

#[test]
fn crates_of_the_workspace_are_found() {
    let modules = planted(&[("lib.rs", "use gradus_core::Span; fn f() { gradus_store::open(); }")]);
    assert_eq!(modules.crates().into_iter().collect::<Vec<_>>(), ["gradus_core", "gradus_store"]);
}

/// Packages with a level of their own in a profile of the workspace, with that level.
fn package_levels(manifest: &str, profile: &str) -> BTreeMap<String, String> {
    let prefix = format!("[profile.{profile}.package.");
    let mut lines = manifest.lines();
    let mut levels = BTreeMap::new();
    while let Some(line) = lines.next() {
        if let Some(package) = line.strip_prefix(&prefix).and_then(|rest| rest.strip_suffix(']')) {
            let level = lines.next().and_then(|line| line.strip_prefix("opt-level = ")).unwrap_or_default();
            levels.insert(package.trim_matches('"').to_owned(), level.to_owned());
        }
    }
    levels
}

#[test]
fn what_release_leaves_unoptimised_is_optimised_when_it_is_installed() {
    let manifest = std::fs::read_to_string(concat!(env!("CARGO_MANIFEST_DIR"), "/../../Cargo.toml")).unwrap();
    let (release, dist) = (package_levels(&manifest, "release"), package_levels(&manifest, "dist"));
    assert!(release.len() > 10 && release.values().all(|level| level == "0"), "{release:?}");
    // `dist` inherits the levels of `release`.
    let inherited: Vec<&String> =
        release.keys().filter(|package| dist.get(*package).is_none_or(|level| level == "0")).collect();
    assert!(inherited.is_empty(), "not optimised in dist: {inherited:?}");
}
