//! API keys. Only their digests are stored: a key has 256 random bits, so a plain digest cannot be reversed, and
//! comparing digests does not reveal how much of a key was right. The same holds for the sessions of people who signed
//! in with a key.

use std::sync::{Mutex, PoisonError};

use crate::sql::{OptionalRow, SqlConnection, SqlError, params};

use crate::Store;
use crate::engine::StoreEngine;
use crate::error::StoreError;
use crate::location::StoreLocation;
use crate::random_digits::random_digits;
use crate::store_copy::require_no_copy;
use crate::writer::WriteHandle;

/// What a key may do. The scopes are independent of each other.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct KeyScopes {
    pub ingest: bool,
    pub read: bool,
    pub admin: bool,
}

/// An API key as it is listed. The key itself is not stored.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct KeyRow {
    pub name: String,
    pub scopes: KeyScopes,
    pub created_ns: i64,
    pub revoked_ns: Option<i64>,
}

/// Makes keys recognisable in logs and for secret scanners.
const PREFIX: &str = "gradus_";
/// Maximum length of a session. A session that lasts longer was begun by a clock that was ahead, and is not valid.
const MAX_SESSION_NS: i64 = 31 * 86_400_000_000_000;

/// A new key from the random source of the operating system.
pub fn new_key() -> Result<String, StoreError> {
    Ok(format!("{PREFIX}{}", random_digits()?))
}

/// BLAKE3 with a context of its own, so that the digest of a key cannot be used as that of a session.
fn hash_api_key(key: &str) -> [u8; 32] {
    *blake3::Hasher::new_derive_key("gradus 2026 api key").update(key.as_bytes()).finalize().as_bytes()
}

/// As [`hash_api_key`], with the context of sessions.
fn hash_session_token(session: &str) -> [u8; 32] {
    let mut hasher = blake3::Hasher::new_derive_key("gradus 2026 page session");
    *hasher.update(session.as_bytes()).finalize().as_bytes()
}

/// A list of scopes contains an unknown name.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("there is no scope {name:?}; there are ingest, read and admin")]
pub struct UnknownScope {
    pub name: String,
}

impl KeyScopes {
    /// The form in which scopes are stored and shown.
    pub fn join_names(self) -> String {
        let named = [(self.ingest, "ingest"), (self.read, "read"), (self.admin, "admin")];
        let names: Vec<&str> = named.into_iter().filter(|(has, _)| *has).map(|(_, name)| name).collect();
        names.join(",")
    }

    /// Reads a list as `ingest,read`. Blanks and empty entries are ignored, so an empty text is a key without a scope.
    pub fn parse(text: &str) -> Result<KeyScopes, UnknownScope> {
        let mut scopes = KeyScopes::default();
        for name in text.split(',').map(str::trim).filter(|name| !name.is_empty()) {
            match name {
                "ingest" => scopes.ingest = true,
                "read" => scopes.read = true,
                "admin" => scopes.admin = true,
                other => return Err(UnknownScope { name: other.to_owned() }),
            }
        }
        Ok(scopes)
    }
}

/// A connection that is used for key lookups only. Asynchronous callers use it directly: a lookup takes some ten
/// microseconds and never waits for another reader or the writer. Nothing is cached, so a revoked key is refused from
/// the next request on.
pub(crate) struct KeyReader {
    engine: StoreEngine,
    connection: Mutex<Option<SqlConnection>>,
}

impl KeyReader {
    pub(crate) fn new(engine: StoreEngine) -> KeyReader {
        KeyReader { engine, connection: Mutex::new(None) }
    }

    fn read<T>(&self, read: impl FnOnce(&SqlConnection) -> Result<T, SqlError>) -> Result<T, StoreError> {
        let mut connection = self.connection.lock().unwrap_or_else(PoisonError::into_inner);
        let opened = match connection.take() {
            Some(opened) => opened,
            None => self.engine.open_reader()?,
        };
        // Kept only if the lookup succeeded. After an error, the next lookup opens another connection.
        let found = read(&opened)?;
        *connection = Some(opened);
        Ok(found)
    }
}

/// Opens a store that a server may be using. Keys are few, and the writer of the server waits for this one.
fn open_shared(location: &StoreLocation) -> Result<SqlConnection, StoreError> {
    let StoreLocation::Folder(folder) = location else {
        let opened = location.engine()?.open_writer()?;
        return require_no_copy(&opened, &location.engine()?).map(|()| opened);
    };
    crate::create_private_folder(folder).map_err(|error| StoreError::not_writable(folder, &error))?;
    let path = folder.join(crate::DATABASE_FILE_NAME);
    // A running server of an older version does not expect its tables to change, so a migration needs the lock.
    let is_older = path.is_file() && crate::connection::needs_migration(&path)?;
    let _lock = is_older.then(|| crate::lock_store_folder(folder)).transpose()?;
    let opened = crate::connection::open_writer(&path).map(SqlConnection::Sqlite)?;
    require_no_copy(&opened, &location.engine()?).map(|()| opened)
}

fn read_keys(connection: &SqlConnection) -> Result<Vec<KeyRow>, StoreError> {
    let mut statement =
        connection.prepare_cached("SELECT name, scopes, created_ns, revoked_ns FROM api_key ORDER BY no")?;
    let rows = statement.query_map((), |row| {
        Ok(KeyRow {
            name: row.get(0)?,
            scopes: KeyScopes::parse(&row.get::<String>(1)?).unwrap_or_default(),
            created_ns: row.get(2)?,
            revoked_ns: row.get(3)?,
        })
    })?;
    Ok(rows.collect::<Result<_, _>>()?)
}

impl Store {
    /// Adds a key to a store, also while a server uses it. Returns false if the name is taken.
    pub fn add_key_at(
        location: &StoreLocation,
        name: &str,
        key: &str,
        scopes: KeyScopes,
        now_ns: i64,
    ) -> Result<bool, StoreError> {
        let added = open_shared(location)?.execute(
            "INSERT INTO api_key (name, hash, scopes, created_ns) VALUES (?, ?, ?, ?) ON CONFLICT DO NOTHING",
            params![name, &hash_api_key(key)[..], scopes.join_names(), now_ns],
        )?;
        Ok(added == 1)
    }

    /// Revokes a key, also while a server uses the store. Returns false if the key is unknown or was revoked before.
    pub fn revoke_key_at(location: &StoreLocation, name: &str, now_ns: i64) -> Result<bool, StoreError> {
        if let Some(path) =
            location.folder().map(|folder| folder.join(crate::DATABASE_FILE_NAME)).filter(|path| !path.is_file())
        {
            return Err(StoreError::Missing { path });
        }
        let changed = open_shared(location)?.execute(
            "UPDATE api_key SET revoked_ns = ? WHERE name = ? AND revoked_ns IS NULL",
            params![now_ns, name],
        )?;
        Ok(changed == 1)
    }

    /// All keys in the order of creation, revoked ones included.
    pub fn keys(&self) -> Result<Vec<KeyRow>, StoreError> {
        let reader = self.readers.take_reader()?;
        read_keys(&reader)
    }

    /// As [`Store::keys`], without opening the store. The table of keys is the same in every format, so a store of an
    /// older version is read as it is.
    pub fn list_keys_at(location: &StoreLocation) -> Result<Vec<KeyRow>, StoreError> {
        let StoreLocation::Folder(folder) = location else { return read_keys(&location.engine()?.open_reader()?) };
        let path = folder.join(crate::DATABASE_FILE_NAME);
        crate::check_existing_store(&path)?;
        let (connection, _) = crate::connection::open_any_version(&path)?;
        read_keys(&SqlConnection::Sqlite(connection))
    }

    /// Name and scopes of a key; `None` if it is unknown or revoked.
    pub fn find_key_scopes(&self, key: &str) -> Result<Option<(String, KeyScopes)>, StoreError> {
        let found: Option<(String, String)> = self.key_reader.read(|connection| {
            connection
                .prepare_cached("SELECT name, scopes FROM api_key WHERE hash = ? AND revoked_ns IS NULL")?
                .query_row([&hash_api_key(key)[..]], |row| Ok((row.get(0)?, row.get(1)?)))
                .optional()
        })?;
        Ok(found.map(|(name, scopes)| (name, KeyScopes::parse(&scopes).unwrap_or_default())))
    }

    /// Begins a session for the owner of this key; `None` if the key is unknown. Until `until_ns`, the session has the
    /// scopes of the key.
    pub fn begin_session(
        &self,
        key: &str,
        now_ns: i64,
        until_ns: i64,
    ) -> Result<WriteHandle<Option<String>>, StoreError> {
        let (key, session) = (hash_api_key(key), random_digits()?);
        self.writer()?.submit(200, move |writing| {
            // Expired sessions are removed when the next one begins.
            writing.sql.prepare_cached("DELETE FROM page_session WHERE until_ns < ?")?.execute([now_ns])?;
            let begun = writing
                .sql
                .prepare_cached(
                    "INSERT INTO page_session (hash, key, until_ns) \
                     SELECT ?, no, ? FROM api_key WHERE hash = ? AND revoked_ns IS NULL",
                )?
                .execute(params![&hash_session_token(&session)[..], until_ns, &key[..]])?;
            Ok((begun == 1).then(|| session.clone()))
        })
    }

    /// Name and scopes of the key of a session; `None` if the session is unknown or expired, or its key is revoked.
    pub fn find_session_scopes(&self, session: &str, now_ns: i64) -> Result<Option<(String, KeyScopes)>, StoreError> {
        let found: Option<(String, String)> = self.key_reader.read(|connection| {
            connection
                .prepare_cached(
                    "SELECT name, scopes FROM page_session JOIN api_key ON api_key.no = page_session.key \
                     WHERE page_session.hash = ?1 AND until_ns > ?2 AND until_ns < ?3 AND revoked_ns IS NULL",
                )?
                .query_row(
                    params![&hash_session_token(session)[..], now_ns, now_ns.saturating_add(MAX_SESSION_NS)],
                    |row| Ok((row.get(0)?, row.get(1)?)),
                )
                .optional()
        })?;
        Ok(found.map(|(name, scopes)| (name, KeyScopes::parse(&scopes).unwrap_or_default())))
    }

    /// Signs out. Unknown sessions are ignored.
    pub fn end_session(&self, session: &str) -> Result<WriteHandle<()>, StoreError> {
        let hash = hash_session_token(session);
        self.writer()?.submit(100, move |writing| {
            writing.sql.prepare_cached("DELETE FROM page_session WHERE hash = ?")?.execute([&hash[..]])?;
            Ok(())
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::StoreOptions;

    #[test]
    fn a_session_is_as_good_as_its_key_until_it_ends() {
        let folder = tempfile::tempdir().unwrap();
        let scopes = KeyScopes { read: true, ..KeyScopes::default() };
        let key = new_key().unwrap();
        assert!(Store::add_key_at(&folder.path().into(), "ann", &key, scopes, 1).unwrap());
        let store = Store::open(folder.path(), StoreOptions::default()).unwrap();
        let begin = |key: &str, now| store.begin_session(key, now, now + 100).unwrap().wait().unwrap();
        let known = |session: &str, now| store.find_session_scopes(session, now).unwrap();
        assert_eq!(begin("gradus_wrong", 1), None);
        let [first, second] = [1, 2].map(|now| begin(&key, now).unwrap());
        assert!(first != second && !first.contains(&key[7..]) && !key.contains(&first), "{first}");
        assert_eq!(known(&first, 50), Some(("ann".to_owned(), scopes)));
        // A key is no session, and a session is no key.
        assert_eq!((known(&key, 50), store.find_key_scopes(&first).unwrap()), (None, None));
        assert_eq!(known(&first, 101), None);
        store.end_session(&first).unwrap().wait().unwrap();
        assert_eq!((known(&first, 50), known(&second, 50).is_some()), (None, true));
        // What is over is not kept.
        let third = begin(&key, 1_000).unwrap();
        assert_eq!((known(&second, 50), known(&third, 1_000).is_some()), (None, true));
        // One that was begun by a clock that was ahead.
        let ahead = begin(&key, 2 * MAX_SESSION_NS).unwrap();
        assert_eq!((known(&ahead, 1), known(&ahead, 2 * MAX_SESSION_NS).is_some()), (None, true));
        assert!(Store::revoke_key_at(&folder.path().into(), "ann", 1_000).unwrap());
        assert_eq!((known(&third, 1_000), begin(&key, 1_000)), (None, None));
    }
}
