//! Errors of the store in answers of tools.

use gradus_mcp::ArchiveError;
use gradus_store::StoreError;

use crate::http_error::ApiError;

/// Converts an error of the store, with the message of the API.
pub(super) fn to_archive_error(error: StoreError) -> ArchiveError {
    ArchiveError::Refused { reason: ApiError::from(error).message().to_owned() }
}
