//! The operations of GitHub's REST API: one family per file, with its routes at the top. A new operation is an entry in
//! `ROUTES` and a handler.
//!
//! A handler reads and validates its whole input first and changes the state last, because a failed operation must
//! leave no trace. Statuses and messages follow GitHub's documentation and its observed behaviour.

mod accounts;
mod actions;
mod assignees;
mod branches;
mod collaborators;
mod comments;
mod commits;
mod compare;
mod contents;
mod forks;
mod gists;
mod git_objects;
mod issue_labels;
mod issue_lists;
mod issues;
mod labels;
mod merges;
mod milestones;
mod pull_merge;
mod pulls;
mod references;
mod releases;
mod repositories;
mod repository_lists;
mod review_comments;
mod reviews;
mod searches;
mod stars;
mod statuses;
pub(super) mod writing;

use super::route::OperationRoute;

/// Returns all routes in matching order: within a family, and where families overlap, literal segments come before
/// placeholders.
pub(super) fn list_operation_routes() -> impl Iterator<Item = &'static OperationRoute> {
    let families: [&'static [OperationRoute]; 29] = [
        accounts::ROUTES,
        repository_lists::ROUTES,
        repositories::ROUTES,
        forks::ROUTES,
        collaborators::ROUTES,
        contents::ROUTES,
        branches::ROUTES,
        references::ROUTES,
        git_objects::ROUTES,
        statuses::ROUTES,
        commits::ROUTES,
        compare::ROUTES,
        merges::ROUTES,
        comments::ROUTES,
        issue_labels::ROUTES,
        assignees::ROUTES,
        issue_lists::ROUTES,
        issues::ROUTES,
        labels::ROUTES,
        milestones::ROUTES,
        review_comments::ROUTES,
        reviews::ROUTES,
        pull_merge::ROUTES,
        pulls::ROUTES,
        searches::ROUTES,
        releases::ROUTES,
        actions::ROUTES,
        stars::ROUTES,
        gists::ROUTES,
    ];
    families.into_iter().flatten()
}
