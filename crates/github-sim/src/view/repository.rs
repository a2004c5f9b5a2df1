//! Repositories: the short form of lists, the full form, and branch protection.

use serde_json::{Map, Value, json};

use super::{ApiView, add_url_fields, extend_json_object, node_id};
use crate::access::resolve_permission;
use crate::git::{GitFileMode, GitObjectStore, find_tree_entry};
use crate::state::{BranchProtection, Repository, RepositoryPermission};

/// URL templates of every repository object. Most lead to paths that are not simulated.
const URLS: [(&str, &str); 37] = [
    ("forks_url", "/forks"),
    ("keys_url", "/keys{/key_id}"),
    ("collaborators_url", "/collaborators{/collaborator}"),
    ("teams_url", "/teams"),
    ("hooks_url", "/hooks"),
    ("issue_events_url", "/issues/events{/number}"),
    ("events_url", "/events"),
    ("assignees_url", "/assignees{/user}"),
    ("branches_url", "/branches{/branch}"),
    ("tags_url", "/tags"),
    ("blobs_url", "/git/blobs{/sha}"),
    ("git_tags_url", "/git/tags{/sha}"),
    ("git_refs_url", "/git/refs{/sha}"),
    ("trees_url", "/git/trees{/sha}"),
    ("statuses_url", "/statuses/{sha}"),
    ("languages_url", "/languages"),
    ("stargazers_url", "/stargazers"),
    ("contributors_url", "/contributors"),
    ("subscribers_url", "/subscribers"),
    ("subscription_url", "/subscription"),
    ("commits_url", "/commits{/sha}"),
    ("git_commits_url", "/git/commits{/sha}"),
    ("comments_url", "/comments{/number}"),
    ("issue_comment_url", "/issues/comments{/number}"),
    ("contents_url", "/contents/{+path}"),
    ("compare_url", "/compare/{base}...{head}"),
    ("merges_url", "/merges"),
    ("archive_url", "/{archive_format}{/ref}"),
    ("downloads_url", "/downloads"),
    ("issues_url", "/issues{/number}"),
    ("pulls_url", "/pulls{/number}"),
    ("milestones_url", "/milestones{/number}"),
    ("notifications_url", "/notifications{?since,all,participating}"),
    ("labels_url", "/labels{/name}"),
    ("releases_url", "/releases{/id}"),
    ("deployments_url", "/deployments"),
    ("url", ""),
];

impl ApiView<'_> {
    /// Returns the API URL, which all resources of a repository begin with.
    pub(crate) fn repository_url(&self, repository: &Repository) -> String {
        format!("{}/repos/{}", self.base, self.state.full_name(repository))
    }

    /// Returns the URL of the web page.
    pub(crate) fn repository_page(&self, repository: &Repository) -> String {
        format!("{}/{}", self.site_url(), self.state.full_name(repository))
    }

    /// The form in lists and inside other resources. `permissions` are those of the caller, and absent for anonymous
    /// ones.
    pub(crate) fn render_repository(&self, repository: &Repository) -> Value {
        let full_name = self.state.full_name(repository);
        let site = self.site_url();
        let host = site.split_once("://").map_or(site, |(_, host)| host);
        let page = format!("{site}/{full_name}");
        let mut object = Map::with_capacity(100);
        object.insert("id".to_owned(), json!(repository.id.0));
        object.insert("node_id".to_owned(), json!(node_id("Repository", repository.id.0)));
        object.insert("name".to_owned(), json!(repository.name));
        object.insert("full_name".to_owned(), json!(full_name));
        object.insert("private".to_owned(), json!(repository.private));
        object.insert("owner".to_owned(), self.render_simple_user(repository.owner));
        object.insert("html_url".to_owned(), json!(page));
        object.insert("description".to_owned(), json!(repository.description));
        object.insert("fork".to_owned(), json!(repository.fork_of.is_some()));
        add_url_fields(&mut object, &format!("{}/repos/{full_name}", self.base), &URLS);
        object.insert("git_url".to_owned(), json!(format!("git://{host}/{full_name}.git")));
        object.insert("ssh_url".to_owned(), json!(format!("git@{host}:{full_name}.git")));
        object.insert("clone_url".to_owned(), json!(format!("{page}.git")));
        object.insert("svn_url".to_owned(), json!(page));
        // Counts are computed on each request, so nothing can become inconsistent.
        let forks = self.state.repositories.values().filter(|one| one.fork_of == Some(repository.id)).count();
        let stars = self.state.accounts.values().filter(|one| one.starred.contains_key(&repository.id)).count();
        let open = repository.count_open_issues();
        let objects = self.state.objects(repository);
        let mut object = Value::Object(object);
        extend_json_object(
            &mut object,
            json!({
                "created_at": repository.created_at,
                "updated_at": repository.updated_at,
                "pushed_at": repository.pushed_at,
                "homepage": repository.homepage,
                // In kilobytes, and of the whole network.
                "size": objects.blob_bytes().div_ceil(1024),
                "stargazers_count": stars,
                "watchers_count": stars,
                "language": find_main_language(objects, repository),
                "has_issues": repository.has_issues,
                "has_projects": repository.has_projects,
                "has_downloads": true,
                "has_wiki": repository.has_wiki,
                "has_pages": false,
                "has_discussions": false,
            }),
        );
        extend_json_object(
            &mut object,
            json!({
                "forks_count": forks,
                "mirror_url": null,
                "archived": repository.archived,
                "disabled": false,
                "open_issues_count": open,
                "license": self.render_license(repository),
                "allow_forking": true,
                "is_template": false,
                "web_commit_signoff_required": false,
                "topics": repository.topics,
                "visibility": if repository.private { "private" } else { "public" },
                "forks": forks,
                "open_issues": open,
                "watchers": stars,
                "default_branch": repository.default_branch,
            }),
        );
        let right = resolve_permission(self.state, self.actor, repository);
        let may = |needed: RepositoryPermission| right >= Some(needed);
        if self.actor.is_some() {
            object["permissions"] = json!({
                "admin": may(RepositoryPermission::Admin),
                "maintain": may(RepositoryPermission::Maintain),
                "push": may(RepositoryPermission::Push),
                "triage": may(RepositoryPermission::Triage),
                "pull": may(RepositoryPermission::Pull),
            });
        }
        object
    }

    /// Renders the form of a single repository. Merge settings are visible only with push access.
    pub(crate) fn render_full_repository(&self, repository: &Repository) -> Value {
        let mut object = self.render_repository(repository);
        let stars = object["stargazers_count"].clone();
        let forks = object["forks_count"].clone();
        extend_json_object(
            &mut object,
            json!({"network_count": forks, "subscribers_count": stars, "temp_clone_token": ""}),
        );
        if resolve_permission(self.state, self.actor, repository) >= Some(RepositoryPermission::Push) {
            extend_json_object(
                &mut object,
                json!({
                    "allow_squash_merge": repository.allow_squash_merge,
                    "allow_merge_commit": repository.allow_merge_commit,
                    "allow_rebase_merge": repository.allow_rebase_merge,
                    "allow_auto_merge": false,
                    "allow_update_branch": false,
                    "delete_branch_on_merge": repository.delete_branch_on_merge,
                    "use_squash_pr_title_as_default": false,
                    "squash_merge_commit_title": "COMMIT_OR_PR_TITLE",
                    "squash_merge_commit_message": "COMMIT_MESSAGES",
                    "merge_commit_title": "MERGE_MESSAGE",
                    "merge_commit_message": "PR_TITLE",
                }),
            );
        }
        if let Some(parent) = repository.fork_of.and_then(|id| self.state.repository(id)) {
            // `parent` is the direct origin, `source` the root of the network.
            let source = self.state.repository(repository.network).unwrap_or(parent);
            object["parent"] = self.render_repository(parent);
            object["source"] = self.render_repository(source);
        }
        if let Some(owner) = self.state.account(repository.owner)
            && owner.kind == crate::state::AccountKind::Organization
        {
            object["organization"] = self.render_simple_account(owner);
        }
        object
    }

    /// Recognises a few licenses by their text; null without a license file.
    fn render_license(&self, repository: &Repository) -> Value {
        let objects = self.state.objects(repository);
        let found = repository.default_branch_head().and_then(|head| objects.commit(head)).and_then(|commit| {
            ["LICENSE", "LICENSE.md", "LICENSE.txt"]
                .into_iter()
                .find_map(|name| find_tree_entry(objects, commit.tree, name))
        });
        let Some(text) = found.and_then(|entry| objects.blob(entry.id)) else { return Value::Null };
        // The title of a license is at its beginning.
        let text = String::from_utf8_lossy(&text[..text.len().min(2000)]).to_lowercase();
        let known = [
            ("mit license", "mit", "MIT License", "MIT"),
            ("apache license", "apache-2.0", "Apache License 2.0", "Apache-2.0"),
            ("gnu general public license", "gpl-3.0", "GNU General Public License v3.0", "GPL-3.0"),
            ("mozilla public license", "mpl-2.0", "Mozilla Public License 2.0", "MPL-2.0"),
        ];
        let (key, name, spdx) = known
            .into_iter()
            .find(|(words, ..)| text.contains(words))
            .map_or(("other", "Other", "NOASSERTION"), |(_, key, name, spdx)| (key, name, spdx));
        json!({
            "key": key,
            "name": name,
            "spdx_id": spdx,
            "url": if key == "other" { Value::Null } else { json!(format!("{}/licenses/{key}", self.base)) },
            "node_id": node_id("License", key),
        })
    }

    /// Renders branch protection. GitHub omits the parts that are not enabled.
    pub(crate) fn render_branch_protection(
        &self,
        repository: &Repository,
        branch: &str,
        rule: &BranchProtection,
    ) -> Value {
        let url = format!("{}/branches/{}/protection", self.repository_url(repository), super::escape_path(branch));
        let mut object = json!({
            "url": url,
            "enabled": true,
            "enforce_admins": {"url": format!("{url}/enforce_admins"), "enabled": !rule.admins_bypass},
            "required_linear_history": {"enabled": false},
            "allow_force_pushes": {"enabled": false},
            "allow_deletions": {"enabled": false},
        });
        if rule.require_pull_request {
            object["required_pull_request_reviews"] = json!({
                "url": format!("{url}/required_pull_request_reviews"),
                "dismiss_stale_reviews": false,
                "require_code_owner_reviews": false,
                "required_approving_review_count": rule.required_approvals,
                "require_last_push_approval": false,
            });
        }
        if !rule.required_checks.is_empty() {
            object["required_status_checks"] = json!({
                "url": format!("{url}/required_status_checks"),
                "strict": false,
                "contexts": rule.required_checks,
                "contexts_url": format!("{url}/required_status_checks/contexts"),
                "checks": rule.required_checks.iter().map(|context| json!({"context": context, "app_id": null})).collect::<Vec<_>>(),
            });
        }
        object
    }
}

/// File extensions and their language.
const LANGUAGES: [(&str, &str); 12] = [
    ("py", "Python"),
    ("rs", "Rust"),
    ("js", "JavaScript"),
    ("ts", "TypeScript"),
    ("go", "Go"),
    ("java", "Java"),
    ("rb", "Ruby"),
    ("c", "C"),
    ("cpp", "C++"),
    ("sh", "Shell"),
    ("html", "HTML"),
    ("css", "CSS"),
];

/// Counts bytes by language on the default branch, largest first.
pub(crate) fn count_language_bytes(objects: &GitObjectStore, repository: &Repository) -> Vec<(&'static str, usize)> {
    let mut bytes: std::collections::BTreeMap<&str, usize> = std::collections::BTreeMap::new();
    let tree = repository.default_branch_head().and_then(|head| objects.commit(head)).map(|commit| commit.tree);
    // Computed for every rendered repository, so a sample of the entries has to be enough.
    let mut budget = 500;
    let mut waiting: Vec<_> = tree.into_iter().collect();
    while let Some(tree) = waiting.pop() {
        for entry in objects.tree_entries(tree).unwrap_or_default() {
            budget -= 1;
            if budget == 0 {
                waiting.clear();
                break;
            }
            let ending = entry.name.rsplit_once('.').map_or("", |(_, ending)| ending);
            match entry.mode {
                GitFileMode::Directory => waiting.push(entry.id),
                GitFileMode::File | GitFileMode::Executable => {
                    if let Some((_, language)) = LANGUAGES.iter().find(|(known, _)| *known == ending) {
                        *bytes.entry(language).or_default() += objects.blob(entry.id).map_or(0, <[u8]>::len);
                    }
                }
                GitFileMode::Link | GitFileMode::Submodule => {}
            }
        }
    }
    let mut found: Vec<_> = bytes.into_iter().filter(|(_, bytes)| *bytes > 0).collect();
    found.sort_by_key(|(name, bytes)| (std::cmp::Reverse(*bytes), *name));
    found
}

/// Returns the language with most bytes; `None` if no known extension occurs.
fn find_main_language(objects: &GitObjectStore, repository: &Repository) -> Option<&'static str> {
    count_language_bytes(objects, repository).first().map(|(name, _)| *name)
}
