//! Users, organizations and the tokens that speak for them.

use crate::state::ids::AccountId;
use std::collections::{BTreeMap, BTreeSet};

use serde::{Deserialize, Serialize};

use super::repository::RepositoryPermission;
use crate::state::ids::RepositoryId;
use crate::time::SimulatedTime;

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub enum AccountKind {
    #[default]
    User,
    Organization,
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

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Account {
    pub id: AccountId,
    pub login: String,
    pub kind: AccountKind,
    pub name: Option<String>,
    pub email: Option<String>,
    pub bio: Option<String>,
    pub company: Option<String>,
    pub location: Option<String>,
    pub created_at: SimulatedTime,
    /// Of an organization: who belongs to it, and with what right to all its repositories.
    pub members: BTreeMap<AccountId, RepositoryPermission>,
    pub starred: BTreeMap<RepositoryId, SimulatedTime>,
}

impl Account {
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

    /// As commits name them.
    pub fn display_name(&self) -> &str {
        self.name.as_deref().unwrap_or(&self.login)
    }

    pub fn commit_email(&self) -> String {
        let hidden = || format!("{}+{}@users.noreply.github.com", self.id.0, self.login);
        self.email.clone().unwrap_or_else(hidden)
    }
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct AccessToken {
    pub account: AccountId,
    pub reach: TokenAccess,
}

/// What a token may do of what its owner may do.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum TokenAccess {
    /// A classic token's scopes.
    Scopes(BTreeSet<String>),
    /// A fine-grained token: these repositories, with at most these rights. Others are read if they are public.
    Repositories(BTreeMap<RepositoryId, RepositoryPermission>),
}

impl TokenAccess {
    pub fn has_scope(&self, scope: &str) -> bool {
        match self {
            TokenAccess::Scopes(scopes) => scopes.contains(scope),
            TokenAccess::Repositories(_) => false,
        }
    }
}
