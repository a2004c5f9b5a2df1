//! The benchmark: tasks whose right end is known, policies that play them with known flaws, rules and replays that say
//! what a run was worth, and trials of agents against all of it. Owns no simulator and no agent: it plays the one in the
//! other. Never sees servers, stores or trace files.

mod occurrences;
pub mod policy;
pub mod record;
pub mod replay;
pub mod results;
pub mod rules;
pub mod suite;
pub mod trial;
