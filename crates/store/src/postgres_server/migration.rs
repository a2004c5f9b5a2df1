//! Creates and migrates the tables.

use ::postgres::Client;
use ::postgres::error::SqlState;

use crate::error::StoreError;

/// Migrations in order, each with the number of the schema that it leads to. The first one creates what SQLite's first
/// six migrations create, so that both engines have the same numbers. A released migration never changes.
const MIGRATIONS: &[(i64, &str)] = &[
    (6, include_str!("../../migrations/postgres/0006.sql")),
    (7, include_str!("../../migrations/postgres/0007.sql")),
    (8, include_str!("../../migrations/postgres/0008.sql")),
    (9, include_str!("../../migrations/postgres/0009.sql")),
    (10, include_str!("../../migrations/postgres/0010.sql")),
];

/// The schema that this program writes.
const SCHEMA_VERSION: i64 = 10;

/// The oldest schema whose programs can run at the same time as this one. It moves when a migration does more than
/// add.
const OLDEST_COMPATIBLE: i64 = 6;

/// Number of the advisory lock of migrations: "grad" in ASCII.
const MIGRATION_LOCK: i64 = 0x6772_6164;

/// Returns the schema of a database, and the oldest one whose programs can work with it; `None` without our tables.
fn read_schema_versions(client: &mut Client, address: &str) -> Result<Option<(i64, i64)>, StoreError> {
    let foreign = || StoreError::ForeignSchema { address: address.to_owned() };
    let is_there: bool = client
        .query_one("SELECT to_regclass('gradus.store_format') IS NOT NULL", &[])
        .map_err(|error| StoreError::from_postgres(&error))?
        .get(0);
    if !is_there {
        return if is_schema_occupied(client)? { Err(foreign()) } else { Ok(None) };
    }
    match client.query_opt("SELECT schema_version, oldest_compatible FROM gradus.store_format", &[]) {
        Ok(row) => Ok(row.map(|row| (row.get(0), row.get(1)))),
        Err(error) if error.code() == Some(&SqlState::UNDEFINED_COLUMN) => Err(foreign()),
        Err(error) => Err(StoreError::from_postgres(&error)),
    }
}

/// Whether our schema contains tables, but none of ours.
fn is_schema_occupied(client: &mut Client) -> Result<bool, StoreError> {
    let found = "SELECT EXISTS (SELECT 1 FROM pg_class WHERE relnamespace = to_regnamespace('gradus'))";
    Ok(client.query_one(found, &[]).map_err(|error| StoreError::from_postgres(&error))?.get(0))
}

/// Fails if a server could not start with this role, without changing anything.
pub(super) fn check_can_start(client: &mut Client, address: &str) -> Result<(), StoreError> {
    const READ_ONLY: &str = "SELECT pg_is_in_recovery() OR current_setting('transaction_read_only') = 'on'";
    let mut ask = |question: &str| -> Result<bool, StoreError> {
        Ok(client.query_one(question, &[]).map_err(|error| StoreError::from_postgres(&error))?.get(0))
    };
    if ask(READ_ONLY)? {
        return Err(StoreError::ReadOnlyServer);
    }
    let has_schema = ask("SELECT to_regnamespace('gradus') IS NOT NULL")?;
    let (question, reason) = match has_schema {
        true => {
            ("SELECT has_schema_privilege('gradus', 'CREATE')", "the role may not create tables in the schema gradus")
        }
        false => {
            ("SELECT has_database_privilege(current_database(), 'CREATE')", "the role may not create the schema gradus")
        }
    };
    // Ingest uses temporary tables, and old partitions are dropped, which only an owner may do.
    const OWNS: &str = "SELECT coalesce(bool_and(pg_has_role(relowner, 'USAGE')), true) FROM pg_class \
                        WHERE relnamespace = to_regnamespace('gradus')";
    let rights = [
        (question, reason),
        ("SELECT has_database_privilege(current_database(), 'TEMPORARY')", "the role may not create temporary tables"),
        (OWNS, "the role does not own the tables in the schema gradus"),
    ];
    for (question, reason) in rights {
        if !ask(question)? {
            return Err(StoreError::MissingRights { reason: reason.to_owned() });
        }
    }
    read_schema_versions(client, address).map(drop)
}

/// Fails if this program cannot work with the tables as they are.
pub(super) fn check_schema_compatible(client: &mut Client, address: &str) -> Result<(), StoreError> {
    let path = || address.into();
    match read_schema_versions(client, address)? {
        None => Err(StoreError::NoTables { address: address.to_owned() }),
        Some((found, oldest)) if oldest > SCHEMA_VERSION => {
            Err(StoreError::TooNew { path: path(), found, known: SCHEMA_VERSION })
        }
        Some((found, _)) if found < SCHEMA_VERSION => {
            Err(StoreError::TooOld { path: path(), found, known: SCHEMA_VERSION })
        }
        Some(_) => Ok(()),
    }
}

/// Runs the missing migrations in one transaction. If several servers start at once, the others wait here and find the
/// work done.
pub(super) fn migrate(client: &mut Client, address: &str) -> Result<(), StoreError> {
    if matches!(read_schema_versions(client, address)?, Some((found, _)) if found >= SCHEMA_VERSION) {
        return check_schema_compatible(client, address);
    }
    let mut transaction = client.transaction().map_err(|error| StoreError::from_postgres(&error))?;
    let run = |transaction: &mut ::postgres::Transaction<'_>| -> Result<(), ::postgres::Error> {
        transaction.execute("SELECT pg_advisory_xact_lock($1)", &[&MIGRATION_LOCK])?;
        transaction.batch_execute("CREATE SCHEMA IF NOT EXISTS gradus")?;
        transaction.batch_execute(
            "CREATE TABLE IF NOT EXISTS gradus.store_format (schema_version BIGINT NOT NULL, oldest_compatible BIGINT NOT NULL)",
        )?;
        let done: i64 =
            transaction.query_one("SELECT coalesce(max(schema_version), 0) FROM gradus.store_format", &[])?.get(0);
        for (_, sql) in MIGRATIONS.iter().filter(|(version, _)| *version > done) {
            transaction.batch_execute(sql)?;
        }
        if done < SCHEMA_VERSION {
            transaction.batch_execute("DELETE FROM gradus.store_format")?;
            transaction
                .execute("INSERT INTO gradus.store_format VALUES ($1, $2)", &[&SCHEMA_VERSION, &OLDEST_COMPATIBLE])?;
        }
        Ok(())
    };
    run(&mut transaction).and_then(|()| transaction.commit()).map_err(|error| StoreError::from_postgres(&error))?;
    check_schema_compatible(client, address)
}
