//! Links between the pages of a long list.

/// `text` describes the shown part. A URL is none at its end of the list.
pub(super) struct PaginationLinks {
    pub(super) text: String,
    pub(super) earlier: Option<String>,
    pub(super) later: Option<String>,
}
