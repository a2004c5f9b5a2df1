//! Which operation a request means. Each family of operations lists its own routes; here they are put together.

use super::call::{OperationCall, OperationResult};
use super::http::RequestMethod;

pub(super) type OperationHandler = fn(&mut OperationCall<'_>) -> OperationResult;

/// One operation of GitHub's description.
#[derive(Clone, Copy, Debug)]
pub(super) struct OperationRoute {
    pub(super) method: RequestMethod,
    /// `{name}` is one segment, `{name*}` as many as there are.
    pub(super) pattern: &'static str,
    /// GitHub's own name for it.
    pub(super) operation: &'static str,
    /// Where it is documented, below `DOCS`.
    pub(super) docs: &'static str,
    pub(super) handler: OperationHandler,
}

pub(super) const fn define_route(
    method: RequestMethod,
    pattern: &'static str,
    operation: &'static str,
    docs: &'static str,
    handler: OperationHandler,
) -> OperationRoute {
    OperationRoute { method, pattern, operation, docs, handler }
}
