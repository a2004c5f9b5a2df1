//! Who looks, and whose name is whose.

use std::collections::HashSet;

use axum::http::HeaderMap;
use gradus_report::html::text;
use gradus_store::{Store, StoreError};
use percent_encoding::percent_decode_str;

use super::sign_in::read_cookie;
use crate::caller::{RequestCaller, RequiredScope};
use crate::signature;

/// Who looks.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct LabelAuthor {
    /// Whose labels are whose: the key's name, which nobody else can give himself; without keys, the name that was given.
    pub(super) identifier: String,
    /// As it is shown.
    pub(super) name: String,
    /// Whether labels are taken from this person.
    pub(super) may_label: bool,
}

/// The names of keys, for telling whose key somebody used under another name.
pub(super) struct KeyNameSet(pub(super) HashSet<String>);

impl KeyNameSet {
    pub(super) fn load_from_store(store: &Store) -> Result<KeyNameSet, StoreError> {
        Ok(KeyNameSet(store.keys()?.into_iter().map(|key| key.name).collect()))
    }

    /// Who said something, as it is shown: the name that was given, which may be anybody's, what tells people apart where
    /// that is another, and whose key it was, where neither says so.
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
    /// Where nothing can be labelled.
    pub(super) fn read_only() -> LabelAuthor {
        LabelAuthor { identifier: String::new(), name: String::new(), may_label: false }
    }

    /// Who asks, by the name that was given last.
    pub(super) fn from_headers(headers: &HeaderMap, caller: &RequestCaller) -> LabelAuthor {
        let given = read_cookie(headers, AUTHOR_COOKIE)
            .and_then(|name| percent_decode_str(name).decode_utf8().ok().map(std::borrow::Cow::into_owned));
        LabelAuthor::from_name(given.as_deref().unwrap_or_default(), caller)
    }

    pub(super) fn from_name(given: &str, caller: &RequestCaller) -> LabelAuthor {
        let given = given[..given.floor_char_boundary(MAX_NAME)].trim();
        let name = if given.is_empty() { &caller.name } else { given };
        let identifier = if caller.name.is_empty() { name } else { &caller.name };
        let may_label = caller.has_scope(RequiredScope::Ingest);
        LabelAuthor { identifier: identifier.to_owned(), name: name.to_owned(), may_label }
    }
}

pub(super) const AUTHOR_COOKIE: &str = "gradus_author";

pub(super) const MAX_NAME: usize = 100;
