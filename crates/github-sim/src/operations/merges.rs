//! Merging a branch into another one without a pull request.

use super::writing;
use crate::access::RequiredAccess;
use crate::call::{OperationCall, OperationReply, OperationResult};
use crate::error::OperationError;
use crate::git::is_ancestor;
use crate::http::RequestMethod::Post;
use crate::merging;
use crate::route::{OperationRoute, define_route};
use crate::view::CommitParts;

/// `merge-upstream` is not simulated.
pub(super) const ROUTES: &[OperationRoute] = &[define_route(
    Post,
    "/repos/{owner}/{repo}/merges",
    "repos/merge",
    "branches/branches#merge-a-branch",
    merge_branches,
)];

/// 201 with the merge commit, 204 if there is nothing to merge, 409 for conflicts and for protected branches. There is
/// never a fast-forward.
fn merge_branches(call: &mut OperationCall<'_>) -> OperationResult {
    let id = call.require_repository(RequiredAccess::Push)?;
    let fields = call.body_fields()?;
    let base_name = fields.required_text("base")?.to_owned();
    let head_name = fields.required_text("head")?.to_owned();
    let message = fields.text("commit_message")?.map(str::to_owned);
    let repository = call.repo(id)?;
    let base = repository.branch_head(&base_name).ok_or_else(|| OperationError::new(404, "Base does not exist"))?;
    let head = writing::find_commit(call.state, repository, &head_name)
        .ok_or_else(|| OperationError::new(404, "Head does not exist"))?;
    let objects = call.objects(id)?;
    // Nothing to merge is a success without a body.
    if is_ancestor(objects, head, base) {
        return Ok(OperationReply::no_content());
    }
    writing::check_may_change_branch(call, id, &base_name)?;
    let plan = merging::plan_merge(objects, base, head).map_err(|_| OperationError::new(409, "Merge conflict"))?;
    let message = message.unwrap_or_else(|| format!("Merge {head_name} into {base_name}"));
    let (author, committer) = (
        writing::account_signature(call.state, call.require_account()?, call.now()),
        writing::build_github_signature(call.now()),
    );
    let made = merging::merge_commit(call.objects_mut(id)?, plan, (base, head), (author, committer), message);
    writing::move_branch(call.state, id, &base_name, made);
    Ok(OperationReply::created(call.view().render_commit(call.repo(id)?, made, CommitParts::Files)))
}
