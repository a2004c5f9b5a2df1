//! Records how the program is built, for `gradus --version --verbose`.

#![allow(clippy::print_stdout, reason = "cargo reads the output of build scripts")]

use std::env;
use std::path::Path;

#[allow(dead_code, reason = "the program uses more of it")]
#[path = "src/cli/git_folder.rs"]
mod git_folder;

use git_folder::GitFolder;

fn main() {
    let variable = |name: &str| env::var(name).unwrap_or_default();
    let profile = profile_name(&variable("OUT_DIR")).unwrap_or_else(|| variable("PROFILE"));
    let mut features: Vec<String> = env::vars()
        .filter_map(|(name, _)| Some(name.strip_prefix("CARGO_FEATURE_")?.to_ascii_lowercase()))
        .filter(|feature| feature != "default")
        .collect();
    features.sort_unstable();
    // Packagers build without a git folder and name the commit themselves.
    println!("cargo::rerun-if-env-changed=GRADUS_COMMIT");
    println!("cargo::rerun-if-changed=build.rs");
    let given = env::var("GRADUS_COMMIT").ok().filter(|commit| !commit.is_empty());
    let commit = given.or_else(|| read_commit(Path::new(&variable("CARGO_MANIFEST_DIR")), &profile));
    println!("cargo::rustc-env=GRADUS_BUILD_COMMIT={}", commit.unwrap_or_default());
    println!("cargo::rustc-env=GRADUS_BUILD_TARGET={}", variable("TARGET"));
    println!("cargo::rustc-env=GRADUS_BUILD_PROFILE={profile}");
    println!("cargo::rustc-env=GRADUS_BUILD_FEATURES={}", features.join(", "));
}

/// The name of the profile is only in the path: `target/[TRIPLE/]PROFILE/build/gradus-HASH/out`. `PROFILE` knows debug
/// and release only.
fn profile_name(out_dir: &str) -> Option<String> {
    Path::new(out_dir).ancestors().nth(3)?.file_name()?.to_str().map(str::to_owned)
}

/// The commit of this repository. Debug builds have none: every commit would otherwise build and link everything anew.
fn read_commit(manifest: &Path, profile: &str) -> Option<String> {
    if profile == "debug" {
        return None;
    }
    // Only the folder of the workspace: sources that were copied into another repository do not have its commit.
    let workspace = manifest.join("../..");
    let git = GitFolder::find(&workspace).filter(|git| git.root == workspace)?;
    for path in git.list_head_files() {
        println!("cargo::rerun-if-changed={}", path.display());
    }
    git.read_head()?.commit
}
