//! The caller of a request and the scope that a request requires.

use gradus_store::KeyScopes;

/// The authenticated caller. The name is that of the key, and empty where no key is needed.
#[derive(Clone, Debug, Default)]
pub(super) struct RequestCaller {
    pub(super) name: String,
    /// The scopes of the key. `None` where no key is needed, which permits everything.
    pub(super) scopes: Option<KeyScopes>,
}

impl RequestCaller {
    /// Pages use this to hide actions that would be refused.
    pub(super) fn has_scope(&self, required: RequiredScope) -> bool {
        self.scopes.is_none_or(|scopes| required.is_met(scopes))
    }
}

/// The scope of a key that a request requires.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum RequiredScope {
    /// The request is answered without a key.
    NoKey,
    Ingest,
    Read,
    Admin,
}

impl RequiredScope {
    /// The scope `admin` includes all others.
    pub(super) fn is_met(self, scopes: KeyScopes) -> bool {
        scopes.admin
            || match self {
                RequiredScope::NoKey => true,
                RequiredScope::Ingest => scopes.ingest,
                RequiredScope::Read => scopes.read,
                RequiredScope::Admin => false,
            }
    }

    /// The name of the scope in `gradus keys add` and in refusals.
    pub(super) fn name(self) -> &'static str {
        match self {
            RequiredScope::NoKey => "none",
            RequiredScope::Ingest => "ingest",
            RequiredScope::Read => "read",
            RequiredScope::Admin => "admin",
        }
    }
}
