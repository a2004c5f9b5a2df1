//! Users and organizations.

use serde_json::{Map, Value, json};

use super::{ApiView, add_url_fields, extend_json_object, node_id};
use crate::state::{Account, AccountId, AccountKind};

/// URL templates of every user object. Most lead to paths that are not simulated.
const URLS: [(&str, &str); 9] = [
    ("followers_url", "/followers"),
    ("following_url", "/following{/other_user}"),
    ("gists_url", "/gists{/gist_id}"),
    ("starred_url", "/starred{/owner}{/repo}"),
    ("subscriptions_url", "/subscriptions"),
    ("organizations_url", "/orgs"),
    ("repos_url", "/repos"),
    ("events_url", "/events{/privacy}"),
    ("received_events_url", "/received_events"),
];

impl ApiView<'_> {
    /// Renders GitHub's "simple user"; null for a deleted account.
    pub(crate) fn render_simple_user(&self, id: AccountId) -> Value {
        match self.state.account(id) {
            Some(account) => self.render_simple_account(account),
            None => Value::Null,
        }
    }

    /// Renders the short form that other resources embed.
    pub(crate) fn render_simple_account(&self, account: &Account) -> Value {
        let mut object = Map::with_capacity(20);
        let url = format!("{}/users/{}", self.base, account.login);
        object.insert("login".to_owned(), json!(account.login));
        object.insert("id".to_owned(), json!(account.id.0));
        object.insert("node_id".to_owned(), json!(node_id(account.kind.name(), account.id.0)));
        object.insert("avatar_url".to_owned(), json!(format!("{}/avatars/u/{}?v=4", self.site_url(), account.id.0)));
        object.insert("gravatar_id".to_owned(), json!(""));
        object.insert("url".to_owned(), json!(url));
        object.insert("html_url".to_owned(), json!(format!("{}/{}", self.site_url(), account.login)));
        add_url_fields(&mut object, &url, &URLS);
        object.insert("type".to_owned(), json!(account.kind.name()));
        object.insert("user_view_type".to_owned(), json!("public"));
        object.insert("site_admin".to_owned(), json!(false));
        Value::Object(object)
    }

    /// Renders the public profile. Followers are not simulated.
    pub(crate) fn render_user(&self, account: &Account) -> Value {
        let mut object = self.render_simple_account(account);
        let repositories = self.state.repositories.values().filter(|one| one.owner == account.id);
        let gists = self.state.gists.values().filter(|one| one.owner == account.id);
        extend_json_object(
            &mut object,
            json!({
                "name": account.name,
                "company": account.company,
                "blog": "",
                "location": account.location,
                "email": account.email,
                "hireable": null,
                "bio": account.bio,
                "twitter_username": null,
                "public_repos": repositories.filter(|one| !one.private).count(),
                "public_gists": gists.filter(|one| one.public).count(),
                "followers": 0,
                "following": 0,
                "created_at": account.created_at,
                "updated_at": account.created_at,
            }),
        );
        object
    }

    /// Renders the profile with the additional fields that users see of themselves.
    pub(crate) fn render_private_user(&self, account: &Account) -> Value {
        let mut object = self.render_user(account);
        let private = self.state.repositories.values().filter(|one| one.owner == account.id && one.private).count();
        let gists = self.state.gists.values().filter(|one| one.owner == account.id && !one.public).count();
        extend_json_object(
            &mut object,
            json!({
                "user_view_type": "private",
                "private_gists": gists,
                "total_private_repos": private,
                "owned_private_repos": private,
                "disk_usage": 0,
                "collaborators": 0,
                // Neutral values that clients only display.
                "two_factor_authentication": true,
                "plan": {"name": "free", "space": 976_562_499, "private_repos": 10_000, "collaborators": 0},
            }),
        );
        object
    }

    /// Renders the full form of an organization.
    pub(crate) fn render_organization(&self, account: &Account) -> Value {
        let mut object = self.render_simple_organization(account);
        let public = self.state.repositories.values().filter(|one| one.owner == account.id && !one.private);
        extend_json_object(
            &mut object,
            json!({
                "name": account.display_name(),
                "blog": "",
                "has_organization_projects": true,
                "has_repository_projects": true,
                "public_repos": public.count(),
                "public_gists": 0,
                "followers": 0,
                "following": 0,
                "html_url": format!("{}/{}", self.site_url(), account.login),
                "created_at": account.created_at,
                "updated_at": account.created_at,
                "archived_at": null,
                "type": AccountKind::Organization.name(),
            }),
        );
        object
    }

    /// Renders the form in lists, which differs from a simple user.
    pub(crate) fn render_simple_organization(&self, account: &Account) -> Value {
        let url = format!("{}/orgs/{}", self.base, account.login);
        json!({
            "login": account.login,
            "id": account.id.0,
            "node_id": node_id("Organization", account.id.0),
            "url": url,
            "repos_url": format!("{url}/repos"),
            "events_url": format!("{url}/events"),
            "hooks_url": format!("{url}/hooks"),
            "issues_url": format!("{url}/issues"),
            "members_url": format!("{url}/members{{/member}}"),
            "public_members_url": format!("{url}/public_members{{/member}}"),
            "avatar_url": format!("{}/avatars/u/{}?v=4", self.site_url(), account.id.0),
            "description": account.bio,
        })
    }
}
