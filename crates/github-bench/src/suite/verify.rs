//! The verifier: whether a run did what its task asks for, and nothing else. It reads the end state of the world and
//! the recorded requests. The final message counts only where the task asks for an answer, so an agent cannot pass by
//! claiming success.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::check::{CheckCondition, TaskCheck};
use super::check_context::{CheckContext, LookupError};
pub use super::collateral::CollateralChange;
use super::collateral::find_collateral_changes;
use super::expectation::{CheckExpectation, ExpectationMismatch};
use super::task::BenchTask;
use crate::record::TrialRecord;
use gradus_github_sim::state::WorldState;

/// The result of verifying one trial.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct TaskVerification {
    /// In the order of the task file.
    pub checks: Vec<CheckOutcome>,
    /// Changes that the task does not allow.
    pub collateral: Vec<CollateralChange>,
    /// Whether all checks hold, and there is no collateral change.
    pub passed: bool,
    /// Partial credit from 0 to 1. A task that groups checks into facts gives the share of facts whose checks all hold.
    /// Other tasks give 1 or 0. A run that passed always has 1.
    pub credit: f64,
}

/// The result of one check of a task, as it is written to `trials.jsonl`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct CheckOutcome {
    pub name: String,
    pub passed: bool,
    /// Why it does not hold.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub detail: String,
}

impl TaskVerification {
    /// Returns everything that must hold, as pairs of name and result. Replays compare these lists. Collateral
    /// changes count as one more check, so that a replay that leaves out a harmful step does not count as the same
    /// end.
    pub fn into_checks(self) -> Vec<(String, bool)> {
        let checks = self.checks.into_iter().map(|check| (check.name, check.passed));
        checks.chain([("nothing else has changed".to_owned(), self.collateral.is_empty())]).collect()
    }
}

impl BenchTask {
    /// Evaluates all checks. `before` is the world of the task as it began, `after` as the run left it. Lookups are
    /// resolved first and in order, since a later one can use the name of an earlier one.
    pub fn verify(&self, before: &WorldState, after: &WorldState, record: &TrialRecord) -> TaskVerification {
        let mut context = CheckContext::new(before, after, record, &self.token);
        for lookup in &self.lookups {
            // A lookup that finds nothing is not an error here: the checks that use its name fail and say so.
            let found = context.select_value(&lookup.selection).ok().filter(|value| !value.is_null());
            context.names.insert(lookup.name.clone(), found);
        }
        let mut facts: BTreeMap<&str, bool> = BTreeMap::new();
        let mut checks = Vec::new();
        for check in &self.checks {
            let result = evaluate_check(check, &mut context);
            if let Some(fact) = &check.fact {
                let holds = facts.entry(fact).or_insert(true);
                *holds &= result.is_ok();
            }
            let (passed, detail) = (result.is_ok(), result.err().map(|failure| failure.to_string()));
            checks.push(CheckOutcome { name: check.name.clone(), passed, detail: detail.unwrap_or_default() });
        }
        // After the checks, because allowed changes can be named after lookups.
        let collateral = find_collateral_changes(&self.allowed, &context);
        let passed = checks.iter().all(|check| check.passed) && collateral.is_empty();
        let credit = match (facts.len(), passed) {
            (_, true) => 1.0,
            (0, false) => 0.0,
            (all, false) => facts.values().filter(|holds| **holds).count() as f64 / all as f64,
        };
        TaskVerification { checks, collateral, passed, credit }
    }
}

/// Why a check does not hold; its text becomes [`CheckOutcome::detail`].
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
enum CheckFailure {
    /// A source that is true or false by itself, such as the order of requests, is false.
    #[error("it is not so")]
    FalseStatement,
    #[error(transparent)]
    Lookup(#[from] LookupError),
    #[error(transparent)]
    Mismatch(#[from] ExpectationMismatch),
    /// A check inside `any_of` or `all_of`.
    #[error("{name}: {reason}")]
    Part {
        name: String,
        #[source]
        reason: Box<CheckFailure>,
    },
    /// None of the checks of an `any_of` holds.
    #[error("{}", join_failures(.0))]
    NoAlternative(Vec<CheckFailure>),
}

fn join_failures(failures: &[CheckFailure]) -> String {
    failures.iter().map(CheckFailure::to_string).collect::<Vec<_>>().join("; ")
}

/// Evaluates a check and, for `any_of` and `all_of`, the checks in it. Depth is bounded by the TOML reader.
fn evaluate_check(check: &TaskCheck, context: &mut CheckContext<'_>) -> Result<(), CheckFailure> {
    let in_part = |part: &TaskCheck, reason| CheckFailure::Part { name: part.name.clone(), reason: Box::new(reason) };
    match &check.demand {
        CheckCondition::Holds(selection, expectations) => {
            let found = context.select_value(selection)?;
            // Only statements may stand without an expectation (`CheckKeyError::NoExpectation`); they are true or
            // false.
            if expectations.is_empty() {
                return if found == Value::Bool(true) { Ok(()) } else { Err(CheckFailure::FalseStatement) };
            }
            expectations.iter().try_for_each(|one| -> Result<(), CheckFailure> {
                let other = match one {
                    CheckExpectation::SameAs(other) => Some(context.select_value(other)?),
                    _ => None,
                };
                Ok(fill_expectation(one, context)?.check_value(&found, other.as_ref())?)
            })
        }
        CheckCondition::AnyOf(checks) => {
            let mut failures = Vec::new();
            for check in checks {
                match evaluate_check(check, context) {
                    Ok(()) => return Ok(()),
                    Err(reason) => failures.push(in_part(check, reason)),
                }
            }
            Err(CheckFailure::NoAlternative(failures))
        }
        CheckCondition::AllOf(checks) => {
            checks.iter().try_for_each(|check| evaluate_check(check, context).map_err(|reason| in_part(check, reason)))
        }
    }
}

/// Returns the expectation with `{{name}}` replaced by what the lookups found. Numbers keep their type if the whole
/// text is one name.
fn fill_expectation(
    expectation: &CheckExpectation,
    context: &CheckContext<'_>,
) -> Result<CheckExpectation, LookupError> {
    let values = |all: &[Value]| all.iter().map(|one| context.fill_value(one)).collect::<Result<Vec<_>, _>>();
    let texts = |all: &[String]| all.iter().map(|one| context.fill_text(one)).collect::<Result<Vec<_>, _>>();
    Ok(match expectation {
        CheckExpectation::Equals(value) => CheckExpectation::Equals(context.fill_value(value)?),
        CheckExpectation::OneOf(all) => CheckExpectation::OneOf(values(all)?),
        CheckExpectation::Set(all) => CheckExpectation::Set(values(all)?),
        CheckExpectation::Contains(all) => CheckExpectation::Contains(values(all)?),
        CheckExpectation::Lacks(all) => CheckExpectation::Lacks(values(all)?),
        CheckExpectation::Mentions(all) => CheckExpectation::Mentions(texts(all)?),
        CheckExpectation::MentionsAny(all) => CheckExpectation::MentionsAny(texts(all)?),
        CheckExpectation::MentionsNone(all) => CheckExpectation::MentionsNone(texts(all)?),
        other => other.clone(),
    })
}
