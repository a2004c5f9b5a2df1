//! `gradus keys`: API keys of a server that other machines can reach. Keys can be changed while a server runs, which
//! sees a new or revoked key with its next request.

use std::path::PathBuf;

use clap::{Args, Subcommand};
use gradus_store::{KeyScopes, Store, StoreError, new_key};

use super::{CommandExit, print_diagnostic};
use crate::config::{StoreLocationError, store_location};
use gradus_core::visible::printable_line;
use gradus_server::now_ns;

#[derive(Args)]
pub(super) struct KeyArguments {
    #[command(subcommand)]
    command: KeyCommand,
    /// The server's folder [default: .gradus].
    #[arg(long, value_name = "DIR", global = true)]
    data: Option<PathBuf>,
    /// A store in PostgreSQL [env: GRADUS_STORE].
    #[arg(long, value_name = "ADDRESS", global = true)]
    store: Option<String>,
}

#[derive(Subcommand)]
enum KeyCommand {
    /// Makes a key and prints it, this once: only its digest is kept.
    Add {
        /// What it is for, so that it can be revoked by that name.
        name: String,
        /// What it may do: ingest (send traces and annotations), read (ask), admin (all).
        #[arg(long, value_name = "SCOPES", default_value = "ingest,read")]
        scopes: String,
    },
    /// Lists the keys there are.
    List,
    /// Revokes a key. A running server rejects it from the next request.
    Revoke { name: String },
}

/// Why a key could not be added, listed or revoked; printed as one line, exit code 2.
#[derive(Debug, thiserror::Error)]
enum KeyCommandError {
    #[error(transparent)]
    Location(#[from] StoreLocationError),
    #[error(transparent)]
    Store(#[from] StoreError),
    #[error("a key needs a name of printable characters")]
    UnprintableName,
    #[error(transparent)]
    UnknownScope(#[from] gradus_store::UnknownScope),
    #[error("a key without a scope may do nothing; give --scopes ingest,read")]
    NoScope,
    /// Names of revoked keys are not reused, so that a name in a log always means the same key.
    #[error("there is, or was, a key called {name:?}; choose another name")]
    NameTaken { name: String },
    #[error("there is no valid key called {name:?}; `gradus keys list` shows those there are")]
    NoValidKey { name: String },
}

/// Entry point of the command.
pub(super) fn run_keys_command(arguments: &KeyArguments) -> anyhow::Result<CommandExit> {
    Ok(run_key_action(arguments).unwrap_or_else(|error| {
        print_diagnostic(&error.to_string());
        CommandExit::BadInput
    }))
}

fn run_key_action(arguments: &KeyArguments) -> Result<CommandExit, KeyCommandError> {
    let location = store_location(arguments.store.as_deref(), arguments.data.as_deref())?;
    match &arguments.command {
        KeyCommand::Add { name, scopes } => {
            if name.trim().is_empty() || name.chars().any(char::is_control) {
                return Err(KeyCommandError::UnprintableName);
            }
            let scopes = KeyScopes::parse(scopes)?;
            if scopes == KeyScopes::default() {
                return Err(KeyCommandError::NoScope);
            }
            let key = new_key()?;
            if !Store::add_key_at(&location, name, &key, scopes, now_ns())? {
                return Err(KeyCommandError::NameTaken { name: name.clone() });
            }
            // The key alone goes to standard output, so that a script can store it; the store has only its digest.
            print_diagnostic(&format!("key {name:?} may {}; it is not shown again:", scopes.join_names()));
            anstream::println!("{key}");
        }
        KeyCommand::List => {
            for key in Store::list_keys_at(&location)? {
                let created = jiff::Timestamp::from_nanosecond(i128::from(key.created_ns)).unwrap_or_default();
                let created = created.round(jiff::Unit::Second).unwrap_or(created);
                let state = if key.revoked_ns.is_some() { "revoked" } else { "valid" };
                anstream::println!("{}\t{}\t{created}\t{state}", printable_line(&key.name), key.scopes.join_names());
            }
        }
        KeyCommand::Revoke { name } => {
            if !Store::revoke_key_at(&location, name, now_ns())? {
                return Err(KeyCommandError::NoValidKey { name: name.clone() });
            }
            anstream::println!("{} is revoked", printable_line(name));
        }
    }
    Ok(CommandExit::Pass)
}
