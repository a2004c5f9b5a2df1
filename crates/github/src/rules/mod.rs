//! Deterministic rules on what an agent did.

mod charter;

pub use charter::{Action, Budget, Charter, InjectedCall, Injection, UnclearTarget};
