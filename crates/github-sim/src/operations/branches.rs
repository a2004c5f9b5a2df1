//! Branches, and what protects them.

use crate::access::Need;
use crate::call::{Answer, Call, Reply};
use crate::error::ApiError;
use crate::git::ObjectId;
use crate::http::Method::Get;
use crate::route::{Route, route};
use crate::state::RepositoryId;

pub(super) const ROUTES: &[Route] = &[
    route(
        Get,
        "/repos/{owner}/{repo}/branches",
        "repos/list-branches",
        "branches/branches#list-branches",
        list,
    ),
    route(
        Get,
        "/repos/{owner}/{repo}/branches/{branch*}/protection",
        "repos/get-branch-protection",
        "branches/branch-protection#get-branch-protection",
        protection,
    ),
    route(
        Get,
        "/repos/{owner}/{repo}/branches/{branch*}",
        "repos/get-branch",
        "branches/branches#get-a-branch",
        get,
    ),
];

fn list(call: &mut Call<'_>) -> Answer {
    let id = call.repository(Need::Read)?;
    let repository = call.repo(id)?;
    let wanted = call.query.get("protected").map(|text| text == "true");
    let fits = |(name, _): &(&str, ObjectId)| {
        wanted.is_none_or(|wanted| repository.protection.contains_key(*name) == wanted)
    };
    let found: Vec<_> = repository.branches().filter(fits).collect();
    Ok(call.list(&found, |view, (name, id)| view.short_branch(repository, name, *id)))
}

fn named(call: &Call<'_>, id: RepositoryId) -> Result<(String, ObjectId), ApiError> {
    let name = call.argument("branch");
    let found = call.repo(id)?.branch(name).ok_or_else(|| ApiError::new(404, "Branch not found"))?;
    Ok((name.to_owned(), found))
}

fn get(call: &mut Call<'_>) -> Answer {
    let id = call.repository(Need::Read)?;
    let (name, commit) = named(call, id)?;
    Ok(Reply::ok(call.view().branch(call.repo(id)?, &name, commit)))
}

fn protection(call: &mut Call<'_>) -> Answer {
    let id = call.repository(Need::Push)?;
    let (name, _) = named(call, id)?;
    let repository = call.repo(id)?;
    let rule = repository.protection.get(&name).ok_or_else(|| ApiError::new(404, "Branch not protected"))?;
    Ok(Reply::ok(call.view().protection(repository, &name, rule)))
}
