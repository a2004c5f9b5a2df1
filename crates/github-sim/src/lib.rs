//! A simulated GitHub: the REST API over a world whose state is known.
//!
//! [`World`] takes requests and returns responses. It does no I/O and has only its own clock, so the same requests
//! always give the same bytes. [`serve_world`] puts it behind a socket. The crate knows nothing about agents, tasks or
//! verdicts.
//!
//! A request passes `dispatch` (GitHub's API or the control API), `route_table` (which operation), `operations` (checks
//! and changes of the `state`) and `view` (JSON). What is not simulated is answered with 501 and never with a guess.

mod access;
mod call;
mod control;
mod difference;
mod dispatch;
mod error;
mod fault;
pub mod git;
mod http;
mod inventory;
mod journal;
mod merging;
mod operations;
mod page;
mod rate;
mod route;
mod route_table;
mod search;
mod seed;
mod serve;
pub mod source_file;
pub mod state;
mod time;
mod unsimulated;
mod view;
mod world;

pub use crate::route_table::is_simulated;
pub use difference::{DifferenceKind, WorldDifference, compare_inventories};
pub use fault::matches_glob;
pub use fault::{FaultEffect, SimulatedFault};
pub use http::{RequestMethod, SimulatedRequest, SimulatedResponse};
pub use inventory::{WorldInventory, take_inventory};
pub use journal::{RecordedExchange, RequestJournalEntry, SimulatorCounters};
pub use page::item_range_of_page;
pub use rate::ApiRateLimits;
pub use seed::{BUILT_IN_SEEDS, SeedError, SeedFile};
pub use serve::{ServeError, SimulatorServer, bind_loopback_port, serve_world};
pub use time::SimulatedTime;
pub use world::{World, WorldSnapshot};

/// Paths below this one belong to the simulator's control API and not to GitHub.
pub const CONTROL: &str = "/_gradus";
