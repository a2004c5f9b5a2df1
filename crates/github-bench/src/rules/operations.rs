//! Maps our tools to operations of GitHub's REST API, by the operation ids of its OpenAPI description. Rules work on
//! operations, so that they also apply to external programs.

/// Tools and their operations, the main one first. Tools that combine several operations are not listed.
const OPERATIONS: [(&str, &[&str]); 36] = [
    ("star_repo", &["activity/star-repo-for-authenticated-user"]),
    ("unstar_repo", &["activity/unstar-repo-for-authenticated-user"]),
    ("fork_repo", &["repos/create-fork"]),
    ("create_repo", &["repos/create-for-authenticated-user", "repos/create-in-org"]),
    ("get_repo", &["repos/get"]),
    ("update_repo", &["repos/update"]),
    ("delete_repo", &["repos/delete"]),
    ("read_file", &["repos/get-content", "repos/get-readme", "git/get-blob", "git/get-tree"]),
    ("list_directory", &["repos/get-content", "repos/get-readme", "git/get-blob", "git/get-tree"]),
    ("commit_file", &["repos/create-or-update-file-contents"]),
    ("update_file_content", &["repos/create-or-update-file-contents"]),
    ("push_files", &["git/create-tree"]),
    ("delete_file", &["repos/delete-file"]),
    ("create_branch", &["git/create-ref"]),
    ("create_tag", &["git/create-ref"]),
    ("update_branch", &["git/update-ref"]),
    ("delete_branch", &["git/delete-ref"]),
    ("create_commit", &["git/create-commit"]),
    ("merge_branches", &["repos/merge"]),
    ("open_issue", &["issues/create"]),
    ("update_issue", &["issues/update"]),
    ("close_issue", &["issues/update"]),
    ("comment_on_issue", &["issues/create-comment"]),
    ("add_labels", &["issues/add-labels"]),
    ("add_assignees", &["issues/add-assignees"]),
    ("remove_assignees", &["issues/remove-assignees"]),
    ("create_label", &["issues/create-label"]),
    ("update_label", &["issues/update-label"]),
    ("delete_label", &["issues/delete-label"]),
    ("create_milestone", &["issues/create-milestone"]),
    ("update_milestone", &["issues/update-milestone"]),
    ("create_pull_request", &["pulls/create"]),
    ("update_pull_request", &["pulls/update"]),
    ("merge_pull_request", &["pulls/merge"]),
    ("create_review", &["pulls/create-review"]),
    ("create_release", &["repos/create-release"]),
];

/// Returns the operations of a tool; empty if it is unknown or makes several different requests.
pub(crate) fn list_tool_operations(tool: &str) -> &'static [&'static str] {
    OPERATIONS.iter().find(|(name, _)| *name == tool).map_or(&[], |(_, operations)| operations)
}

/// Whether an operation belongs to a tool, or is the operation that `tool` names.
pub(super) fn is_tool_operation(tool: &str, operation: &str) -> bool {
    tool == operation || list_tool_operations(tool).contains(&operation)
}

#[cfg(test)]
#[test]
fn all_are_tools() {
    for (name, _) in OPERATIONS {
        assert!(gradus_github_agent::tools::all_tools().any(|(_, tool)| *tool.definition.name == *name), "{name}");
    }
}
