//! Who asks, and what that key may do.

use gradus_store::KeyScopes;

/// Who asks: the name of the key, or nobody in particular.
#[derive(Clone, Debug, Default)]
pub(super) struct RequestCaller {
    pub(super) name: String,
    /// What the key may do; none where no key is needed, so everything may be done.
    pub(super) scopes: Option<KeyScopes>,
}

impl RequestCaller {
    /// Whether this would be taken: what would not be is not offered.
    pub(super) fn has_scope(&self, required: RequiredScope) -> bool {
        self.scopes.is_none_or(|scopes| required.is_met(scopes))
    }
}

/// The scope of a key that a request requires.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum RequiredScope {
    /// It is answered without a key.
    NoKey,
    Ingest,
    Read,
    Admin,
}

impl RequiredScope {
    pub(super) fn is_met(self, scopes: KeyScopes) -> bool {
        scopes.admin
            || match self {
                RequiredScope::NoKey => true,
                RequiredScope::Ingest => scopes.ingest,
                RequiredScope::Read => scopes.read,
                RequiredScope::Admin => false,
            }
    }

    pub(super) fn name(self) -> &'static str {
        match self {
            RequiredScope::NoKey => "none",
            RequiredScope::Ingest => "ingest",
            RequiredScope::Read => "read",
            RequiredScope::Admin => "admin",
        }
    }
}
