//! Workflows, derived from the files in `.github/workflows`, and their runs. Nothing is ever executed: a dispatched run
//! stays queued.

use serde_json::json;

use super::writing;
use crate::access::RequiredAccess;
use crate::call::{OperationCall, OperationReply, OperationResult};
use crate::error::OperationError;
use crate::git::{GitFileMode, find_tree_entry};
use crate::http::RequestMethod::{Get, Post};
use crate::route::{OperationRoute, define_route};
use crate::state::{Repository, RepositoryId, WorkflowRun, WorldState};
use crate::view::publication::WorkflowFile;

/// Jobs, logs, artifacts, secrets and re-runs are not simulated.
pub(super) const ROUTES: &[OperationRoute] = &[
    define_route(
        Get,
        "/repos/{owner}/{repo}/actions/workflows",
        "actions/list-repo-workflows",
        "actions/workflows#list-repository-workflows",
        list_workflows,
    ),
    define_route(
        Get,
        "/repos/{owner}/{repo}/actions/workflows/{workflow_id}",
        "actions/get-workflow",
        "actions/workflows#get-a-workflow",
        get_workflow,
    ),
    define_route(
        Post,
        "/repos/{owner}/{repo}/actions/workflows/{workflow_id}/dispatches",
        "actions/create-workflow-dispatch",
        "actions/workflows#create-a-workflow-dispatch-event",
        dispatch_workflow,
    ),
    define_route(
        Get,
        "/repos/{owner}/{repo}/actions/workflows/{workflow_id}/runs",
        "actions/list-workflow-runs",
        "actions/workflow-runs#list-workflow-runs-for-a-workflow",
        list_workflow_runs,
    ),
    define_route(
        Get,
        "/repos/{owner}/{repo}/actions/runs",
        "actions/list-workflow-runs-for-repo",
        "actions/workflow-runs#list-workflow-runs-for-a-repository",
        list_repository_runs,
    ),
    define_route(
        Get,
        "/repos/{owner}/{repo}/actions/runs/{run_id}",
        "actions/get-workflow-run",
        "actions/workflow-runs#get-a-workflow-run",
        get_workflow_run,
    ),
];

/// Where GitHub looks for workflow files; only on the default branch.
const WORKFLOW_FOLDER: &str = ".github/workflows";

/// Reads the workflow files of the default branch. Only `name:` and the presence of `workflow_dispatch` are evaluated,
/// without a YAML parser.
fn load_workflows(state: &WorldState, repository: &Repository) -> Vec<WorkflowFile> {
    let objects = state.objects(repository);
    let tree = repository.default_branch_head().and_then(|head| objects.commit(head)).map(|commit| commit.tree);
    let folder = tree
        .and_then(|tree| find_tree_entry(objects, tree, WORKFLOW_FOLDER))
        .filter(|entry| entry.mode == GitFileMode::Directory);
    let files = folder.and_then(|folder| objects.tree_entries(folder.id)).unwrap_or_default();
    let is_workflow = |name: &str| name.ends_with(".yml") || name.ends_with(".yaml");
    let read = |name: &str, text: &str| {
        let named = text.lines().find_map(|line| line.strip_prefix("name:"));
        let path = format!("{WORKFLOW_FOLDER}/{name}");
        let shown = named.map_or(path.as_str(), |named| named.trim().trim_matches(['"', '\'']));
        let has_dispatch =
            text.lines().any(|line| line.trim_start_matches(['-', ' ', '[']).contains("workflow_dispatch"));
        // The id is a hash of repository and path: it must not change when other workflows come and go.
        let digest = blake3::hash(format!("{}:{path}", repository.id.0).as_bytes());
        let id =
            u64::from(u32::from_le_bytes([digest.as_bytes()[0], digest.as_bytes()[1], digest.as_bytes()[2], 0])) + 1;
        WorkflowFile { id, name: shown.to_owned(), path: path.clone(), has_dispatch }
    };
    files
        .iter()
        .filter(|entry| is_workflow(&entry.name))
        .filter_map(|entry| Some(read(&entry.name, std::str::from_utf8(objects.blob(entry.id)?).ok()?)))
        .collect()
}

/// Sorted by file name.
fn list_workflows(call: &mut OperationCall<'_>) -> OperationResult {
    let id = call.require_repository(RequiredAccess::Read)?;
    let repository = call.repo(id)?;
    let found = load_workflows(call.state, repository);
    Ok(call.reply_with_counted_page("workflows", &found, |view, one| view.render_workflow(repository, one)))
}

/// Finds a workflow by id or by the name of its file.
fn find_workflow(call: &OperationCall<'_>, id: RepositoryId) -> Result<WorkflowFile, OperationError> {
    let wanted = call.path_argument("workflow_id");
    let is_it = |one: &WorkflowFile| one.id.to_string() == wanted || one.path.rsplit('/').next() == Some(wanted);
    load_workflows(call.state, call.repo(id)?).into_iter().find(is_it).ok_or_else(OperationError::not_found)
}

/// By id or file name.
fn get_workflow(call: &mut OperationCall<'_>) -> OperationResult {
    let id = call.require_repository(RequiredAccess::Read)?;
    let workflow = find_workflow(call, id)?;
    Ok(OperationReply::ok(call.view().render_workflow(call.repo(id)?, &workflow)))
}

/// 204, or 200 with the new run if `return_run_details` is set. 422 if the workflow has no `workflow_dispatch` trigger
/// or the ref does not exist. `inputs` are accepted and ignored.
fn dispatch_workflow(call: &mut OperationCall<'_>) -> OperationResult {
    let id = call.require_repository(RequiredAccess::Push)?;
    let workflow = find_workflow(call, id)?;
    let fields = call.body_fields()?;
    let name = fields.required_text("ref")?;
    let details = fields.flag("return_run_details")?.unwrap_or(false);
    let repository = call.repo(id)?;
    let commit = writing::find_commit(call.state, repository, name)
        .ok_or_else(|| OperationError::new(422, format!("No ref found for: {name}")))?;
    if !workflow.has_dispatch {
        return Err(OperationError::new(422, "Workflow does not have 'workflow_dispatch' trigger"));
    }
    let number = repository.runs.values().filter(|run| run.path == workflow.path).count() as u64 + 1;
    let branch = name.trim_start_matches("refs/heads/").to_owned();
    let (run_id, now) = (call.state.next_id(), call.now());
    let run = WorkflowRun {
        id: run_id,
        number,
        path: workflow.path,
        branch,
        commit,
        event: "workflow_dispatch".to_owned(),
        status: "queued".to_owned(),
        conclusion: None,
        actor: call.require_account()?,
        created_at: now,
        updated_at: now,
    };
    call.repo_mut(id)?.runs.insert(run_id, run);
    if !details {
        return Ok(OperationReply::no_content());
    }
    let view = call.view();
    let repository = call.repo(id)?;
    Ok(OperationReply::ok(json!({
        "workflow_run_id": run_id,
        "run_url": format!("{}/actions/runs/{run_id}", view.repository_url(repository)),
        "html_url": format!("{}/actions/runs/{run_id}", view.repository_page(repository)),
    })))
}

/// Lists runs, newest first, with GitHub's filters. `status` also matches a conclusion, as on GitHub.
fn list_matching_runs(call: &OperationCall<'_>, id: RepositoryId, of: Option<&WorkflowFile>) -> OperationResult {
    let repository = call.repo(id)?;
    let query = &call.query;
    let workflows = load_workflows(call.state, repository);
    let fits = |run: &&WorkflowRun| {
        of.is_none_or(|workflow| workflow.path == run.path)
            && query.get("branch").is_none_or(|branch| run.branch == branch)
            && query.get("event").is_none_or(|event| run.event == event)
            && query.get("head_sha").is_none_or(|sha| run.commit.to_string() == sha)
            && query.get("actor").is_none_or(|login| call.state.login(run.actor).eq_ignore_ascii_case(login))
            && query
                .get("status")
                .is_none_or(|status| run.status == status || run.conclusion.as_deref() == Some(status))
    };
    // Ids ascend with time.
    let found: Vec<_> = repository.runs.values().rev().filter(fits).collect();
    Ok(call.reply_with_counted_page("workflow_runs", &found, |view, run| {
        view.render_workflow_run(repository, run, workflows.iter().find(|one| one.path == run.path))
    }))
}

/// Runs of all workflows.
fn list_repository_runs(call: &mut OperationCall<'_>) -> OperationResult {
    let id = call.require_repository(RequiredAccess::Read)?;
    list_matching_runs(call, id, None)
}

/// Runs of one workflow; 404 if its file is gone.
fn list_workflow_runs(call: &mut OperationCall<'_>) -> OperationResult {
    let id = call.require_repository(RequiredAccess::Read)?;
    let workflow = find_workflow(call, id)?;
    list_matching_runs(call, id, Some(&workflow))
}

/// A run survives its workflow file; its name is null then.
fn get_workflow_run(call: &mut OperationCall<'_>) -> OperationResult {
    let id = call.require_repository(RequiredAccess::Read)?;
    let number = call.path_number("run_id")?;
    let repository = call.repo(id)?;
    let run = repository.runs.get(&number).ok_or_else(OperationError::not_found)?;
    let workflows = load_workflows(call.state, repository);
    Ok(OperationReply::ok(call.view().render_workflow_run(
        repository,
        run,
        workflows.iter().find(|one| one.path == run.path),
    )))
}
