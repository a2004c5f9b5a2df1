//! Scans a project: frameworks, tracing variables, sessions, the CI system, and what may be the agent.

use std::path::{Path, PathBuf};

use gradus_import::{FoundSessions, find_session_folders};

use super::dependency_files::{DependencyFile, read_node_file, read_python_files, read_text};
use super::frameworks::{AGENT_FRAMEWORKS, AgentFramework, PackageLanguage};
use crate::cli::git_folder::GitFolder;

/// The file for a GitLab job if a `.gitlab-ci.yml` exists.
pub(super) const GITLAB_INCLUDE_PATH: &str = "gradus.gitlab-ci.yml";
/// Maximum number of variables that are named.
const MAX_NAMED_VARIABLES: usize = 10;
/// Files that are often the agent, in the order in which they are tried.
const AGENT_FILES: [&str; 8] =
    ["agent.py", "src/agent.py", "app/agent.py", "main.py", "agent.ts", "src/agent.ts", "agent.js", "src/agent.js"];
/// Branches that a workflow may name; anything else is written as `main`.
const USUAL_BRANCHES: [&str; 4] = ["main", "master", "trunk", "develop"];

/// The CI system that a job is written for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum CiSystem {
    GitHub,
    GitLab,
    /// The folder is below the root of a repository, where CI files have no effect; or none is wanted.
    Nothing,
}

/// A framework, and how it was noticed.
#[derive(Debug)]
pub(super) struct FoundFramework {
    pub(super) framework: &'static AgentFramework,
    pub(super) package: &'static str,
    pub(super) file: String,
}

/// Everything that was found.
#[derive(Debug)]
pub(super) struct ProjectScan {
    pub(super) frameworks: Vec<FoundFramework>,
    /// Names of variables that begin with PHOENIX_ or OTEL_; their values may be secrets.
    pub(super) variables: Vec<String>,
    pub(super) sessions: Vec<FoundSessions>,
    pub(super) ci: CiSystem,
    /// The GitLab file is the user's own, so a job needs another one.
    pub(super) has_gitlab_file: bool,
    /// The root of the repository, if it is another folder.
    pub(super) outer_root: Option<PathBuf>,
    pub(super) is_repository: bool,
    pub(super) branch: &'static str,
    pub(super) tools: ProjectTools,
    /// A command that may run the agent. It is only suggested.
    pub(super) agent_command: Option<String>,
    /// Files that could not be used, one line each.
    pub(super) problems: Vec<String>,
}

/// How a job installs what the project needs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum ProjectTools {
    Uv,
    Pip,
    Npm,
    Unknown,
}

impl ProjectScan {
    /// Looks at a folder and at the environment. Nothing is run, and nothing can fail: what cannot be read is reported
    /// in `problems`.
    pub(super) fn read(folder: &Path) -> ProjectScan {
        let mut problems = Vec::new();
        let python = read_python_files(folder, &mut problems);
        let node = read_node_file(folder, &mut problems);
        let mut frameworks = find_frameworks(&python, PackageLanguage::Python);
        if let Some((file, _)) = &node {
            frameworks.extend(find_frameworks(std::slice::from_ref(file), PackageLanguage::Node));
        }
        // Most projects depend on a model's client; with a framework it adds no information.
        if frameworks.iter().any(|found| !found.framework.is_client) {
            frameworks.retain(|found| !found.framework.is_client);
        }
        let tools = if folder.join("uv.lock").is_file() {
            ProjectTools::Uv
        } else if !python.is_empty() {
            ProjectTools::Pip
        } else if node.is_some() {
            ProjectTools::Npm
        } else {
            ProjectTools::Unknown
        };
        let absolute = std::path::absolute(folder).and_then(|folder| folder.canonicalize()).ok();
        let git = absolute.as_deref().and_then(GitFolder::find);
        let outer_root = git.as_ref().map(|git| git.root.clone()).filter(|root| Some(root) != absolute.as_ref());
        let gitlab_file = read_text(folder, ".gitlab-ci.yml").ok().flatten();
        let is_gitlab = gitlab_file.is_some()
            || git.as_ref().is_some_and(|git| git.list_remote_urls().iter().any(|url| url.contains("gitlab")));
        let branch = git.as_ref().and_then(GitFolder::read_head).and_then(|head| head.branch);
        let usual = USUAL_BRANCHES.iter().find(|usual| branch.as_deref() == Some(**usual));
        ProjectScan {
            frameworks,
            variables: list_tracing_variables(),
            sessions: find_sessions(),
            ci: match (&outer_root, is_gitlab) {
                (Some(_), _) => CiSystem::Nothing,
                (None, true) => CiSystem::GitLab,
                (None, false) => CiSystem::GitHub,
            },
            // A second run finds the file of the first one, which is ours.
            has_gitlab_file: gitlab_file.is_some_and(|text| !text.contains("gradus experiment")),
            outer_root,
            is_repository: git.is_some(),
            branch: usual.copied().unwrap_or(USUAL_BRANCHES[0]),
            tools,
            agent_command: guess_agent_command(folder, tools, node.as_ref().map(|(_, json)| json)),
            problems,
        }
    }

    /// Returns remarks about the files for the user, one line each.
    pub(super) fn hints(&self) -> Vec<String> {
        let mut hints = Vec::new();
        if let (Some(root), CiSystem::Nothing) = (&self.outer_root, self.ci) {
            hints.push(format!(
                "no CI job: the repository begins at {}, and CI files count there only (or use --ci)",
                gradus_core::visible::printable_line(&root.display().to_string())
            ));
        }
        if self.has_gitlab_file && self.ci == CiSystem::GitLab {
            hints.push(format!("add to .gitlab-ci.yml: include: [{{ local: {GITLAB_INCLUDE_PATH} }}]"));
        }
        if !self.is_repository && self.ci != CiSystem::Nothing {
            hints.push("this folder is no git repository yet: the CI job runs once it is pushed".to_owned());
        }
        hints
    }
}

/// Returns each framework once, by the first file that has one of its packages.
fn find_frameworks(files: &[DependencyFile], language: PackageLanguage) -> Vec<FoundFramework> {
    let known = AGENT_FRAMEWORKS.iter().filter(|framework| framework.language == language);
    let find = |framework: &'static AgentFramework| {
        files.iter().find_map(|file| {
            let is_there = |package: &&&str| file.packages.iter().any(|found| found == **package);
            let package = *framework.packages.iter().find(is_there)?;
            Some(FoundFramework { framework, package, file: file.name.clone() })
        })
    };
    known.filter_map(find).collect()
}

/// Lists names only. Names that are not identifiers are left out, since they go into comments.
fn list_tracing_variables() -> Vec<String> {
    let is_plain = |name: &str| name.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'_');
    let set = std::env::vars_os().filter(|(_, value)| !value.is_empty());
    let names = set.filter_map(|(name, _)| name.into_string().ok());
    let mut names: Vec<String> =
        names.filter(|name| (name.starts_with("PHOENIX_") || name.starts_with("OTEL_")) && is_plain(name)).collect();
    // Phoenix's first: they decide about a section of the settings.
    names.sort_by_key(|name| (name.starts_with("OTEL_"), name.clone()));
    names.truncate(MAX_NAMED_VARIABLES);
    names
}

fn find_sessions() -> Vec<FoundSessions> {
    let Some(home) = std::env::home_dir().filter(|home| home.is_dir()) else { return Vec::new() };
    find_session_folders(&home, &|name| std::env::var_os(name))
}

/// Guesses the command of the agent, for a comment: by the file that is probably the agent.
fn guess_agent_command(folder: &Path, tools: ProjectTools, package: Option<&serde_json::Value>) -> Option<String> {
    let file = AGENT_FILES.iter().find(|file| folder.join(file).is_file());
    match (file, tools) {
        (Some(file), ProjectTools::Uv) if file.ends_with(".py") => Some(format!("uv run {file}")),
        (Some(file), _) if file.ends_with(".py") => Some(format!("python {file}")),
        (Some(file), _) if file.ends_with(".ts") => Some(format!("npx tsx {file}")),
        (Some(file), _) => Some(format!("node {file}")),
        (None, _) => package?.pointer("/scripts/start").map(|_| "npm run --silent start".to_owned()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn scan(files: &[(&str, &str)]) -> ProjectScan {
        let folder = tempfile::tempdir().expect("a folder");
        for (name, text) in files {
            let path = folder.path().join(name);
            std::fs::create_dir_all(path.parent().expect("a parent")).expect("folders");
            std::fs::write(path, text).expect("written");
        }
        ProjectScan::read(folder.path())
    }

    fn titles(scan: &ProjectScan) -> Vec<&'static str> {
        scan.frameworks.iter().map(|found| found.framework.title).collect()
    }

    #[test]
    fn frameworks_hide_the_clients_that_they_use() {
        let found = scan(&[("requirements.txt", "openai\nlanggraph\n"), ("agent.py", "")]);
        assert_eq!((titles(&found), found.tools), (vec!["LangGraph"], ProjectTools::Pip));
        assert_eq!(found.agent_command.as_deref(), Some("python agent.py"));
        let found = scan(&[("package.json", "{\"dependencies\": {\"ai\": \"7\"}, \"scripts\": {\"start\": \"x\"}}")]);
        assert_eq!((titles(&found), found.tools), (vec!["Vercel AI SDK"], ProjectTools::Npm));
        assert_eq!(found.agent_command.as_deref(), Some("npm run --silent start"));
        // `ai` of PyPI is something else.
        assert!(titles(&scan(&[("requirements.txt", "ai\n")])).is_empty());
        assert_eq!(titles(&scan(&[("requirements.txt", "anthropic\n")])), ["Anthropic's client"]);
        let both = scan(&[("pyproject.toml", ""), ("uv.lock", "[[package]]\nname = \"crewai\"\n"), ("main.py", "")]);
        assert_eq!((titles(&both), both.tools), (vec!["CrewAI"], ProjectTools::Uv));
        assert_eq!(both.agent_command.as_deref(), Some("uv run main.py"));
    }

    #[test]
    fn the_ci_system_is_that_of_the_repository() {
        let nothing = scan(&[]);
        assert_eq!((nothing.ci, nothing.is_repository), (CiSystem::GitHub, false));
        let head = (".git/HEAD", "ref: refs/heads/master\n");
        let gitlab = scan(&[head, (".git/config", "[remote \"origin\"]\n\turl = git@gitlab.example:a/b.git\n")]);
        assert_eq!((gitlab.ci, gitlab.branch, gitlab.has_gitlab_file), (CiSystem::GitLab, "master", false));
        let github = scan(&[head, (".git/config", "[remote \"origin\"]\n\turl = https://github.com/a/b\n")]);
        assert_eq!(github.ci, CiSystem::GitHub);
        let own = scan(&[(".gitlab-ci.yml", "test:\n  script: [make]\n")]);
        assert!(own.ci == CiSystem::GitLab && own.has_gitlab_file);
        // Below the root of a repository a CI file would have no effect.
        let folder = tempfile::tempdir().expect("a folder");
        std::fs::create_dir_all(folder.path().join(".git")).expect("folders");
        std::fs::create_dir_all(folder.path().join("agents/one")).expect("folders");
        let below = ProjectScan::read(&folder.path().join("agents/one"));
        assert!(below.ci == CiSystem::Nothing && below.hints()[0].starts_with("no CI job"), "{below:?}");
    }
}
