//! The definition of a route. Each family of operations lists its own routes.

use super::call::{OperationCall, OperationResult};
use super::http::RequestMethod;

/// Handlers are plain functions, so that route tables can be constants.
pub(super) type OperationHandler = fn(&mut OperationCall<'_>) -> OperationResult;

/// One operation of GitHub's OpenAPI description.
#[derive(Clone, Copy, Debug)]
pub(super) struct OperationRoute {
    pub(super) method: RequestMethod,
    /// `{name}` matches one segment, `{name*}` any number of segments.
    pub(super) pattern: &'static str,
    /// GitHub's operation id, `issues/create`. Faults, counters and benchmark rules refer to it.
    pub(super) operation: &'static str,
    /// The page below `DOCS_URL` that error responses link to.
    pub(super) docs: &'static str,
    pub(super) handler: OperationHandler,
}

/// Creates a route. Keeps the tables readable.
pub(super) const fn define_route(
    method: RequestMethod,
    pattern: &'static str,
    operation: &'static str,
    docs: &'static str,
    handler: OperationHandler,
) -> OperationRoute {
    OperationRoute { method, pattern, operation, docs, handler }
}
