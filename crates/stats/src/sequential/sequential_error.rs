//! Settings and values that a gate or a monitor cannot use.

use thiserror::Error;

#[derive(Clone, Debug, Error, PartialEq)]
pub enum SequentialError {
    #[error("cannot begin a sequential gate: {name} is {value}\nhint: {hint}")]
    InvalidSetting { name: &'static str, value: f64, hint: &'static str },
    #[error("cannot begin a score monitor: {name} is {value}\nhint: {hint}")]
    InvalidMonitor { name: &'static str, value: f64, hint: &'static str },
    #[error("cannot observe a run: {value} is no {expected}")]
    InvalidValue { value: f64, expected: &'static str },
    #[error(
        "cannot observe a run: all {population} runs of the population were observed\nhint: the population must count every run that is observed"
    )]
    PopulationExhausted { population: u64 },
}
