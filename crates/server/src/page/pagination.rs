//! Links between the pages of a long list.

/// `text` says which part is shown. The URLs are none at either end.
pub(super) struct PaginationLinks {
    pub(super) text: String,
    pub(super) earlier: Option<String>,
    pub(super) later: Option<String>,
}
