//! The benchmark: tasks with a known correct result, scripted policies with known flaws, rules and replays that assess
//! a run, and trials of agents. It owns neither the simulator nor the agent: it runs the one against the other. It
//! never sees servers, stores or trace files.

mod occurrences;
pub mod policy;
pub mod record;
pub mod replay;
pub mod results;
pub mod rules;
pub mod suite;
pub mod trial;
