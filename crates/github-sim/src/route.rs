//! Which operation a request means. Each family of operations lists its own routes; here they are put together.

use super::call::{Answer, Call};
use super::http::Method;

pub(super) type Handler = fn(&mut Call<'_>) -> Answer;

/// One operation of GitHub's description.
#[derive(Clone, Copy, Debug)]
pub(super) struct Route {
    pub(super) method: Method,
    /// `{name}` is one segment, `{name*}` as many as there are.
    pub(super) pattern: &'static str,
    /// GitHub's own name for it.
    pub(super) operation: &'static str,
    /// Where it is documented, below `DOCS`.
    pub(super) docs: &'static str,
    pub(super) handler: Handler,
}

pub(super) const fn route(
    method: Method,
    pattern: &'static str,
    operation: &'static str,
    docs: &'static str,
    handler: Handler,
) -> Route {
    Route { method, pattern, operation, docs, handler }
}
