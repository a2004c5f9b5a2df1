//! Errors of the store in answers of tools.

use gradus_mcp::ArchiveError;
use gradus_store::StoreError;

use crate::http_error::ApiError;

/// As the API reports them.
pub(super) fn describe_store_error(error: StoreError) -> ArchiveError {
    ArchiveError::Refused { reason: ApiError::from(error).message().to_owned() }
}
