//! `s3://` addresses, and their error in a build without S3.

/// Whether a source or target is in S3, or was meant to be: a mistyped address is refused instead of used as a
/// folder.
pub(super) fn has_s3_scheme(name: &str) -> bool {
    name.get(..3).is_some_and(|scheme| scheme.eq_ignore_ascii_case("s3:"))
}

#[cfg(feature = "s3")]
pub(super) fn open_storage(
    address: &str,
) -> Result<std::sync::Arc<dyn gradus_ingest::archive::ArchiveStorage>, gradus_ingest::archive::ArchiveError> {
    let storage = crate::s3_storage::S3Storage::open(address, &crate::config::S3Variables::read())?;
    Ok(std::sync::Arc::new(storage))
}

/// The error of a build without S3.
#[derive(Debug, thiserror::Error)]
#[error("{address}: this build has no S3; build with `--features s3`")]
#[cfg(not(feature = "s3"))]
pub(super) struct NoS3Support {
    pub(super) address: String,
}

#[cfg(all(feature = "parquet", not(feature = "s3")))]
pub(super) fn open_storage(
    address: &str,
) -> Result<std::sync::Arc<dyn gradus_ingest::archive::ArchiveStorage>, gradus_ingest::archive::ArchiveError> {
    let missing = NoS3Support { address: address.to_owned() };
    Err(gradus_ingest::archive::ArchiveError::Storage(Box::new(missing)))
}
