//! Archives in S3-compatible storage: `s3://BUCKET/PREFIX`. A part is a temporary file on this machine while it is
//! written and read, so memory is bounded by the chunks of an upload.

mod address;
mod client;
mod failure;
mod upload;

use std::fs::File;
use std::future::poll_fn;
use std::io::{self, Seek as _, Write as _};
use std::ops::ControlFlow;
use std::pin::Pin;

use futures_core::Stream;
use gradus_ingest::archive::{
    ArchiveError, ArchivePart, ArchiveStorage, MANIFEST_NAME, MAX_MANIFEST_BYTES, StoredObject,
};
use object_store::aws::AmazonS3;
use object_store::path::Path as ObjectPath;
use object_store::{
    Attribute, Attributes, Error as ObjectError, GetOptions, GetResult, ObjectStore, PutMode, PutOptions,
};
use tokio::runtime::Runtime;

use self::address::S3Address;
use self::client::S3Endpoint;
use self::failure::{S3Failure, error_code};
use self::upload::UploadFailure;
use crate::config::S3Variables;

/// Metadata of a part: the BLAKE3 that the manifest has, so that a repeated run knows which parts are stored already.
const CHECKSUM_METADATA: &str = "blake3";

/// An archive below a prefix of a bucket. Calls block, so it has an async runtime of its own.
#[derive(Debug)]
pub(crate) struct S3Storage {
    address: S3Address,
    endpoint: S3Endpoint,
    store: AmazonS3,
    runtime: Runtime,
}

impl S3Storage {
    /// Checks the address and the settings. Nothing is sent yet.
    pub(crate) fn open(address: &str, variables: &S3Variables) -> Result<S3Storage, ArchiveError> {
        let address = S3Address::parse(address)?;
        let (store, endpoint) = client::build_client(&address, variables)?;
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
        let runtime = runtime.map_err(|source| ArchiveError::Io { path: address.to_string(), source })?;
        Ok(S3Storage { address, endpoint, store, runtime })
    }

    fn object_path(&self, path: &str) -> Result<ObjectPath, ArchiveError> {
        let key = self.address.key_below(path);
        ObjectPath::parse(&key).map_err(|error| self.failure(path, &error.into()))
    }

    fn failure(&self, path: &str, error: &ObjectError) -> ArchiveError {
        let path = self.describe_path(path);
        S3Failure::classify(&self.address.bucket, path, self.endpoint.as_str(), error).into()
    }

    fn file_failure(&self, path: &str, source: io::Error) -> ArchiveError {
        S3Failure::TemporaryFile { path: self.describe_path(path), source }.into()
    }

    /// Gets an object; `None` if the bucket does not have it.
    fn get(&self, path: &str, options: GetOptions) -> Result<Option<GetResult>, ArchiveError> {
        let object = self.object_path(path)?;
        match self.runtime.block_on(self.store.get_opts(&object, options)) {
            Ok(found) => Ok(Some(found)),
            Err(error @ ObjectError::NotFound { .. }) if error_code(&error).as_deref() != Some("NoSuchBucket") => {
                Ok(None)
            }
            Err(error) => Err(self.failure(path, &error)),
        }
    }

    /// Passes a body to `write` piece by piece.
    fn read_body(
        &self,
        path: &str,
        found: GetResult,
        mut write: impl FnMut(&[u8]) -> io::Result<()>,
    ) -> Result<(), ArchiveError> {
        let mut body = found.into_stream();
        while let Some(piece) = self.runtime.block_on(next_item(&mut body)) {
            let piece = piece.map_err(|error| self.failure(path, &error))?;
            write(&piece).map_err(|error| self.file_failure(path, error))?;
        }
        Ok(())
    }

    fn is_stored(&self, part: &ArchivePart) -> Result<bool, ArchiveError> {
        let head = self.get(&part.path, GetOptions { head: true, ..GetOptions::default() })?;
        let checksum = Attribute::Metadata(CHECKSUM_METADATA.into());
        Ok(head.is_some_and(|head| {
            head.meta.size == part.bytes
                && head.attributes.get(&checksum).is_some_and(|stored| **stored == *part.checksum)
        }))
    }

    fn put_manifest(&self, text: &[u8], mode: PutMode) -> Result<(), ObjectError> {
        let object = ObjectPath::parse(self.address.key_below(MANIFEST_NAME))?;
        let options = PutOptions { mode, ..PutOptions::default() };
        self.runtime.block_on(self.store.put_opts(&object, text.to_vec().into(), options)).map(drop)
    }
}

impl ArchiveStorage for S3Storage {
    fn describe_path(&self, path: &str) -> String {
        self.address.describe(path)
    }

    fn visit_objects(&self, visit: &mut dyn FnMut(StoredObject) -> ControlFlow<()>) -> Result<(), ArchiveError> {
        let prefix = self.object_path("")?;
        let mut listing = self.store.list(Some(&prefix));
        while let Some(found) = self.runtime.block_on(next_item(&mut listing)) {
            let found = match found {
                Ok(found) => found,
                // An empty prefix is an empty list; only a bucket can be missing here.
                Err(ObjectError::NotFound { .. }) => {
                    let endpoint = self.endpoint.to_string();
                    return Err(S3Failure::NoBucket { bucket: self.address.bucket.clone(), endpoint }.into());
                }
                Err(error) => return Err(self.failure("", &error)),
            };
            // Consoles create an object for the prefix itself.
            let Some(path) = self.address.path_below(found.location.as_ref()) else { continue };
            if visit(StoredObject { path: path.to_owned(), bytes: found.size }).is_break() {
                break;
            }
        }
        Ok(())
    }

    fn read_manifest(&self) -> Result<Option<Vec<u8>>, ArchiveError> {
        let Some(found) = self.get(MANIFEST_NAME, GetOptions::default())? else { return Ok(None) };
        if found.meta.size > MAX_MANIFEST_BYTES {
            let path = self.describe_path(MANIFEST_NAME);
            return Err(ArchiveError::BadManifest { path, reason: format!("it has {} bytes", found.meta.size) });
        }
        let mut text = Vec::new();
        self.read_body(MANIFEST_NAME, found, |piece| text.write_all(piece))?;
        Ok(Some(text))
    }

    fn publish_manifest(&self, text: &[u8]) -> Result<(), ArchiveError> {
        let mut written = self.put_manifest(text, PutMode::Create);
        // Older servers know no conditional requests.
        if written.as_ref().is_err_and(|error| error_code(error).as_deref() == Some("NotImplemented")) {
            written = self.put_manifest(text, PutMode::Overwrite);
        }
        written.map_err(|error| match error {
            ObjectError::AlreadyExists { .. } | ObjectError::Precondition { .. } => {
                ArchiveError::Exists { path: self.describe_path("") }
            }
            error => self.failure(MANIFEST_NAME, &error),
        })
    }

    fn open_part(&self, path: &str) -> Result<Option<File>, ArchiveError> {
        let Some(found) = self.get(path, GetOptions::default())? else { return Ok(None) };
        let mut file = self.create_part(path)?;
        self.read_body(path, found, |piece| file.write_all(piece))?;
        file.rewind().map_err(|error| self.file_failure(path, error))?;
        Ok(Some(file))
    }

    fn create_part(&self, path: &str) -> Result<File, ArchiveError> {
        tempfile::tempfile().map_err(|error| self.file_failure(path, error))
    }

    fn store_part(&self, part: &ArchivePart, file: File, stored_bytes: Option<u64>) -> Result<(), ArchiveError> {
        if stored_bytes == Some(part.bytes) && self.is_stored(part)? {
            return Ok(());
        }
        let object = self.object_path(&part.path)?;
        let mut attributes = Attributes::new();
        attributes.insert(Attribute::Metadata(CHECKSUM_METADATA.into()), part.checksum.clone().into());
        let upload = upload::upload_file(&self.store, &object, file, part.bytes, attributes);
        self.runtime.block_on(upload).map_err(|error| match error {
            UploadFailure::Storage(error) => self.failure(&part.path, &error),
            UploadFailure::File(error) => self.file_failure(&part.path, error),
        })
    }

    fn remove_part(&self, path: &str) -> Result<(), ArchiveError> {
        let object = self.object_path(path)?;
        let removal = object_store::ObjectStoreExt::delete(&self.store, &object);
        self.runtime.block_on(removal).map_err(|error| self.failure(path, &error))
    }
}

async fn next_item<S: Stream + ?Sized>(stream: &mut Pin<Box<S>>) -> Option<S::Item> {
    poll_fn(|context| stream.as_mut().poll_next(context)).await
}
