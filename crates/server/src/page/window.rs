//! Which part of many is shown, and where the others are.

pub(super) struct PaginationLinks {
    pub(super) text: String,
    pub(super) earlier: Option<String>,
    pub(super) later: Option<String>,
}
