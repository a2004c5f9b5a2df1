//! Users, organizations, and the tokens that act for them.

use crate::state::ids::AccountId;
use std::collections::{BTreeMap, BTreeSet};

use serde::{Deserialize, Serialize};

use super::repository::RepositoryPermission;
use crate::state::ids::RepositoryId;
use crate::time::SimulatedTime;

/// The `type` of an account in GitHub's API.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub enum AccountKind {
    /// A person.
    #[default]
    User,
    /// Cannot have tokens on GitHub; a seed may give it one nevertheless.
    Organization,
    /// Like a user, but shown as `Bot`.
    Bot,
}

impl AccountKind {
    pub fn name(self) -> &'static str {
        match self {
            AccountKind::User => "User",
            AccountKind::Organization => "Organization",
            AccountKind::Bot => "Bot",
        }
    }
}

/// A user, an organization or a bot.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Account {
    pub id: AccountId,
    /// The unique name, compared case-insensitively.
    pub login: String,
    pub kind: AccountKind,
    /// The display name.
    pub name: Option<String>,
    /// The public email address, which commits carry.
    pub email: Option<String>,
    pub bio: Option<String>,
    pub company: Option<String>,
    pub location: Option<String>,
    /// Also shown as `updated_at`, since profiles cannot be changed.
    pub created_at: SimulatedTime,
    /// For an organization: its members, with their permission on all of its repositories.
    pub members: BTreeMap<AccountId, RepositoryPermission>,
    /// Starred repositories, and when.
    pub starred: BTreeMap<RepositoryId, SimulatedTime>,
}

impl Account {
    /// Creates an account without an id; `WorldState::add_account` assigns it.
    pub fn new(login: &str, kind: AccountKind, created_at: SimulatedTime) -> Account {
        Account {
            id: AccountId::default(),
            login: login.to_owned(),
            kind,
            name: None,
            email: None,
            bio: None,
            company: None,
            location: None,
            created_at,
            members: BTreeMap::new(),
            starred: BTreeMap::new(),
        }
    }

    /// Returns the name in commits.
    pub fn display_name(&self) -> &str {
        self.name.as_deref().unwrap_or(&self.login)
    }

    /// Returns the address in commits: GitHub's noreply address if the account has no public one.
    pub fn commit_email(&self) -> String {
        let hidden = || format!("{}+{}@users.noreply.github.com", self.id.0, self.login);
        self.email.clone().unwrap_or_else(hidden)
    }
}

/// A personal access token.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct AccessToken {
    pub account: AccountId,
    pub reach: TokenAccess,
}

/// What a token allows out of what its owner may do.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum TokenAccess {
    /// A classic token: OAuth scopes such as `repo`, `public_repo`, `delete_repo` and `gist`.
    Scopes(BTreeSet<String>),
    /// A fine-grained token: these repositories with at most these permissions. Other public repositories can be read.
    Repositories(BTreeMap<RepositoryId, RepositoryPermission>),
}

impl TokenAccess {
    /// Whether a classic token has a scope. Always false for fine-grained tokens.
    pub fn has_scope(&self, scope: &str) -> bool {
        match self {
            TokenAccess::Scopes(scopes) => scopes.contains(scope),
            TokenAccess::Repositories(_) => false,
        }
    }
}
