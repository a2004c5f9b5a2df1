//! A GitHub whose state is known: `World` takes requests and gives answers, with no I/O and no clock but its own, so the
//! same requests always give the same bytes. `serve` puts it behind a socket. Never sees agents, tasks or verdicts.

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
pub use page::span_of_page;
pub use rate::ApiRateLimits;
pub use seed::{BUILT_IN, SeedError, SeedFile};
pub use serve::{ServeError, SimulatorServer, bind_loopback_port, serve_world};
pub use time::SimulatedTime;
pub use world::{World, WorldSnapshot};

/// Paths below are not GitHub's but the simulator's own.
pub const CONTROL: &str = "/_gradus";
