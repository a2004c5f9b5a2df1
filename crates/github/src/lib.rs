//! What Gradus knows of GitHub: a simulator of its REST API, so that agents can be run, repeated and checked without the
//! real one. It sees nothing else of ours.

pub mod simulator;
