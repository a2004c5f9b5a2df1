//! Trials of a rubric on many cases: on the latest traces of a project, or on those that people have labelled. A
//! trial is planned first, so that its questions and its price are known, and then run within its limits. Its files
//! survive a restart; an interrupted trial continues only on request, since it costs money.
//!
//! ```text
//! DATA/rubric-trials/ID/plan.json        the rubric, the cases, the limits
//! DATA/rubric-trials/ID/state.json       planned, running, finished or stopped, and why
//! DATA/rubric-trials/ID/journal.jsonl    what each question cost, and its outcome
//! ```

mod folder;
mod journal;
mod plan;
mod planner;
mod runner;

pub(crate) use folder::{BulkTrialFolder, list_bulk_trials};
pub(crate) use journal::BulkTrialRecord;
#[cfg(test)]
pub(crate) use plan::PresentVerdict;
pub(crate) use plan::{
    BulkTrialCase, BulkTrialLimits, BulkTrialPlan, BulkTrialSelection, BulkTrialState, BulkTrialStatus,
};
pub(crate) use planner::{BulkTrialRequest, plan_bulk_trial};
pub(crate) use runner::start_bulk_trial;
