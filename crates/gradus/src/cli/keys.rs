//! `gradus keys`: who may talk to a server that others can reach.

use std::path::PathBuf;

use clap::{Args, Subcommand};
use gradus_store::{FILE_NAME, KeyScopes, Store, StoreError, new_key};

use super::{CommandExit, print_diagnostic};
use crate::config::data_folder;
use gradus_core::visible::printable_line;
use gradus_server::now_ns;

#[derive(Args)]
pub(super) struct KeyArguments {
    #[command(subcommand)]
    command: KeyCommand,
    /// The server's folder [default: .gradus].
    #[arg(long, value_name = "DIR", global = true)]
    data: Option<PathBuf>,
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

pub(super) fn run_keys_command(arguments: &KeyArguments) -> anyhow::Result<CommandExit> {
    Ok(carry_out(arguments).unwrap_or_else(|reason| {
        print_diagnostic(&reason);
        CommandExit::BadInput
    }))
}

fn carry_out(arguments: &KeyArguments) -> Result<CommandExit, String> {
    let folder = data_folder(arguments.data.as_deref())?;
    let said = |error: StoreError| error.to_string();
    match &arguments.command {
        KeyCommand::Add { name, scopes } => {
            if name.trim().is_empty() || name.chars().any(char::is_control) {
                return Err("a key needs a name of printable characters".to_owned());
            }
            let scopes = KeyScopes::parse(scopes).map_err(|error| error.to_string())?;
            if scopes == KeyScopes::default() {
                return Err("a key without a scope may do nothing; give --scopes ingest,read".to_owned());
            }
            let key = new_key().map_err(said)?;
            if !Store::add_key_beside(&folder, name, &key, scopes, now_ns()).map_err(said)? {
                return Err(format!("there is, or was, a key called {name:?}; choose another name"));
            }
            print_diagnostic(&format!("key {name:?} may {}; it is not shown again:", scopes.join_names()));
            anstream::println!("{key}");
        }
        KeyCommand::List => {
            let store = Store::open_to_read(&folder.join(FILE_NAME)).map_err(said)?;
            for key in store.keys().map_err(said)? {
                let created = jiff::Timestamp::from_nanosecond(i128::from(key.created_ns)).unwrap_or_default();
                let created = created.round(jiff::Unit::Second).unwrap_or(created);
                let state = if key.revoked_ns.is_some() { "revoked" } else { "valid" };
                anstream::println!("{}\t{}\t{created}\t{state}", printable_line(&key.name), key.scopes.join_names());
            }
        }
        KeyCommand::Revoke { name } => {
            if !Store::revoke_key_beside(&folder, name, now_ns()).map_err(said)? {
                return Err(format!("there is no valid key called {name:?}; `gradus keys list` shows those there are"));
            }
            anstream::println!("{} is revoked", printable_line(name));
        }
    }
    Ok(CommandExit::Pass)
}
