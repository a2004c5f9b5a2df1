//! Whole trajectories, invented.
