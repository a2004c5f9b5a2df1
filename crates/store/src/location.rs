//! Where a store is, as a user states it.

use std::fmt;
use std::path::{Path, PathBuf};

use crate::engine::StoreEngine;
use crate::error::StoreError;
use crate::{DATABASE_FILE_NAME, Store, StoreOptions};

/// A folder with a SQLite file, or a database on a PostgreSQL server.
#[derive(Clone, PartialEq, Eq)]
pub enum StoreLocation {
    Folder(PathBuf),
    /// The address, which may contain a password.
    Postgres(String),
}

impl StoreLocation {
    /// Reads `postgres://…`, or `sqlite:FOLDER`.
    pub fn from_address(address: &str) -> Result<StoreLocation, StoreError> {
        if is_postgres_address(address) {
            return Ok(StoreLocation::Postgres(address.to_owned()));
        }
        match address.strip_prefix("sqlite:") {
            Some(folder) if !folder.is_empty() => Ok(StoreLocation::Folder(folder.into())),
            _ => Err(StoreError::BadAddress {
                address: "the address of a store".to_owned(),
                reason: "its scheme or its folder is missing".to_owned(),
            }),
        }
    }

    /// The folder; `None` for a database server.
    pub fn folder(&self) -> Option<&Path> {
        match self {
            StoreLocation::Folder(folder) => Some(folder),
            StoreLocation::Postgres(_) => None,
        }
    }

    pub(crate) fn engine(&self) -> Result<StoreEngine, StoreError> {
        match self {
            StoreLocation::Folder(folder) => Ok(StoreEngine::File(folder.join(DATABASE_FILE_NAME))),
            #[cfg(feature = "postgres")]
            StoreLocation::Postgres(address) => {
                let server = crate::postgres_server::PostgresServer::from_address(address)?;
                Ok(StoreEngine::Postgres(Box::new(server)))
            }
            #[cfg(not(feature = "postgres"))]
            StoreLocation::Postgres(_) => Err(StoreError::BadAddress {
                address: "the store".to_owned(),
                reason: "this gradus was built without PostgreSQL (feature postgres)".to_owned(),
            }),
        }
    }
}

/// Whether a text is the address of a PostgreSQL database.
pub fn is_postgres_address(address: &str) -> bool {
    ["postgres://", "postgresql://"].iter().any(|scheme| address.starts_with(scheme))
}

impl From<&Path> for StoreLocation {
    fn from(folder: &Path) -> StoreLocation {
        StoreLocation::Folder(folder.to_owned())
    }
}

/// Without the address, which may contain a password.
impl fmt::Debug for StoreLocation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            StoreLocation::Folder(folder) => f.debug_tuple("Folder").field(folder).finish(),
            StoreLocation::Postgres(_) => f.write_str("Postgres(…)"),
        }
    }
}

impl Store {
    /// Opens a store for writing; see [`Store::open`]. In PostgreSQL, any number of servers may do so at the same time.
    pub fn open_at(location: &StoreLocation, options: StoreOptions) -> Result<Store, StoreError> {
        match location {
            StoreLocation::Folder(folder) => Store::open(folder, options),
            StoreLocation::Postgres(_) => Store::with_engine(location.engine()?, None, options)?.require_complete(),
        }
    }

    /// Fails if a server could not start with this store. Does nothing for a folder: opening it is the check.
    pub fn check_can_start(location: &StoreLocation) -> Result<(), StoreError> {
        match location.engine()? {
            StoreEngine::File(_) => Ok(()),
            #[cfg(feature = "postgres")]
            StoreEngine::Postgres(server) => server.check_can_start(),
        }
    }

    /// Opens a store for reading; see [`Store::open_to_read`].
    pub fn open_at_to_read(location: &StoreLocation) -> Result<Store, StoreError> {
        match location {
            StoreLocation::Folder(folder) => Store::open_to_read(&folder.join(DATABASE_FILE_NAME)),
            StoreLocation::Postgres(_) => Store::with_engine_to_read(location.engine()?)?.require_complete(),
        }
    }
}
