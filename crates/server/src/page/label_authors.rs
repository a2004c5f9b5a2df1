//! Identity of people who label, and how authors are displayed.

use std::collections::HashSet;

use axum::http::HeaderMap;
use gradus_report::html::text;
use gradus_store::{Store, StoreError};
use percent_encoding::percent_decode_str;

use super::sign_in::read_cookie;
use crate::caller::{RequestCaller, RequiredScope};
use crate::signature;

/// The person who looks at a page or sends a label.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct LabelAuthor {
    /// Decides whose labels replace each other: the name of the API key, which nobody else can use. Without keys it is
    /// the name that the person gave.
    pub(super) identifier: String,
    /// Displayed name, chosen freely.
    pub(super) name: String,
    /// Whether the key has the scope to write.
    pub(super) may_label: bool,
}

/// Names of all API keys, to distinguish identifiers that are keys from freely chosen names.
pub(super) struct KeyNameSet(pub(super) HashSet<String>);

impl KeyNameSet {
    pub(super) fn load_from_store(store: &Store) -> Result<KeyNameSet, StoreError> {
        Ok(KeyNameSet(store.keys()?.into_iter().map(|key| key.name).collect()))
    }

    /// Formats the displayed author of an annotation: the chosen name, which may be anybody's, then in brackets the
    /// identifier and the key where they differ. A person who uses another name can thus be recognised.
    pub(super) fn format_author(&self, author: &str, identifier: &str, metadata: &str) -> String {
        let (_, key) = signature::split_signed_metadata(metadata);
        let mut more = Vec::new();
        if !identifier.is_empty() && identifier != author {
            let is_key = key.as_deref() == Some(identifier) || self.0.contains(identifier);
            more.push(if is_key { format!("key {identifier}") } else { identifier.to_owned() });
        }
        let hidden = key.filter(|key| key != identifier && key != author);
        more.extend(hidden.map(|key| format!("key {key}")));
        let name = if author.is_empty() { "someone" } else { author };
        text::format_display_line(&if more.is_empty() {
            name.to_owned()
        } else {
            format!("{name} ({})", more.join(", "))
        })
    }
}

impl LabelAuthor {
    /// The author on pages where nothing can be labelled.
    pub(super) fn read_only() -> LabelAuthor {
        LabelAuthor { identifier: String::new(), name: String::new(), may_label: false }
    }

    /// Returns the person by the name in the cookie, which is the last one that was entered.
    pub(super) fn from_headers(headers: &HeaderMap, caller: &RequestCaller) -> LabelAuthor {
        let given = read_cookie(headers, AUTHOR_COOKIE)
            .and_then(|name| percent_decode_str(name).decode_utf8().ok().map(std::borrow::Cow::into_owned));
        LabelAuthor::from_name(given.as_deref().unwrap_or_default(), caller)
    }

    /// The name is cut to its maximum length at a character boundary. Without a name it is that of the key.
    pub(super) fn from_name(given: &str, caller: &RequestCaller) -> LabelAuthor {
        let given = given[..given.floor_char_boundary(MAX_WRITTEN_NAME_BYTES)].trim();
        let name = if given.is_empty() { &caller.name } else { given };
        let identifier = if caller.name.is_empty() { name } else { &caller.name };
        let may_label = caller.has_scope(RequiredScope::Ingest);
        LabelAuthor { identifier: identifier.to_owned(), name: name.to_owned(), may_label }
    }
}

/// Name of the cookie with the percent-encoded name of the person. It is not a credential.
pub(super) const AUTHOR_COOKIE: &str = "gradus_author";

/// Maximum length of a name in bytes.
pub(super) const MAX_WRITTEN_NAME_BYTES: usize = 100;
