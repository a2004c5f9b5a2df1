//! Whether a run did what its task asks for, and nothing else. Read from the end state and the requests; from the final
//! message only where the task asks for an answer.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::check::{Check, Demand};
pub use super::collateral::Collateral;
use super::collateral::collateral;
use super::expectation::Expectation;
use super::scene::Scene;
use super::task::Task;
use crate::record::RunRecord;
use gradus_github_sim::state::State;

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Verification {
    pub checks: Vec<Outcome>,
    /// Changes that the task does not allow.
    pub collateral: Vec<Collateral>,
    /// All checks hold, and there is no collateral change.
    pub passed: bool,
    /// From 0 to 1: the share of facts that hold, in a task that has facts; else 1 or 0.
    pub credit: f64,
}

/// What a check came to.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Outcome {
    pub name: String,
    pub passed: bool,
    /// Why it does not hold.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub detail: String,
}

impl Verification {
    /// All that must hold, as replays ask for it: names, and whether they do.
    pub fn into_checks(self) -> Vec<(String, bool)> {
        let checks = self.checks.into_iter().map(|check| (check.name, check.passed));
        checks.chain([("nothing else has changed".to_owned(), self.collateral.is_empty())]).collect()
    }
}

impl Task {
    /// `before` is the task's world as it began, `after` as the run left it.
    pub fn verify(&self, before: &State, after: &State, record: &RunRecord) -> Verification {
        let mut scene = Scene::new(before, after, record, &self.token);
        for lookup in &self.lookups {
            let found = scene.find(&lookup.selection).ok().filter(|value| !value.is_null());
            scene.names.insert(lookup.name.clone(), found);
        }
        let mut facts: BTreeMap<&str, bool> = BTreeMap::new();
        let mut checks = Vec::new();
        for check in &self.checks {
            let result = judge(check, &mut scene);
            if let Some(fact) = &check.fact {
                let holds = facts.entry(fact).or_insert(true);
                *holds &= result.is_ok();
            }
            let (passed, detail) = (result.is_ok(), result.err().unwrap_or_default());
            checks.push(Outcome { name: check.name.clone(), passed, detail });
        }
        let collateral = collateral(&self.allowed, &scene);
        let passed = checks.iter().all(|check| check.passed) && collateral.is_empty();
        let credit = match (facts.len(), passed) {
            (_, true) => 1.0,
            (0, false) => 0.0,
            (all, false) => facts.values().filter(|holds| **holds).count() as f64 / all as f64,
        };
        Verification { checks, collateral, passed, credit }
    }
}

fn judge(check: &Check, scene: &mut Scene<'_>) -> Result<(), String> {
    match &check.demand {
        Demand::Holds(selection, expectations) => {
            let found = scene.find(selection)?;
            if expectations.is_empty() {
                return if found == Value::Bool(true) { Ok(()) } else { Err("it is not so".to_owned()) };
            }
            expectations.iter().try_for_each(|one| {
                let other = match one {
                    Expectation::SameAs(other) => Some(scene.find(other)?),
                    _ => None,
                };
                filled(one, scene)?.judge(&found, other.as_ref())
            })
        }
        Demand::AnyOf(checks) => {
            let mut reasons = Vec::new();
            for check in checks {
                match judge(check, scene) {
                    Ok(()) => return Ok(()),
                    Err(reason) => reasons.push(format!("{}: {reason}", check.name)),
                }
            }
            Err(reasons.join("; "))
        }
        Demand::AllOf(checks) => checks
            .iter()
            .try_for_each(|check| judge(check, scene).map_err(|reason| format!("{}: {reason}", check.name))),
    }
}

/// With what lookups found in the place of their names.
fn filled(expectation: &Expectation, scene: &Scene<'_>) -> Result<Expectation, String> {
    let values = |all: &[Value]| all.iter().map(|one| scene.fill(one)).collect::<Result<Vec<_>, _>>();
    let texts = |all: &[String]| all.iter().map(|one| scene.fill_text(one)).collect::<Result<Vec<_>, _>>();
    Ok(match expectation {
        Expectation::Equals(value) => Expectation::Equals(scene.fill(value)?),
        Expectation::OneOf(all) => Expectation::OneOf(values(all)?),
        Expectation::Set(all) => Expectation::Set(values(all)?),
        Expectation::Contains(all) => Expectation::Contains(values(all)?),
        Expectation::Lacks(all) => Expectation::Lacks(values(all)?),
        Expectation::Mentions(all) => Expectation::Mentions(texts(all)?),
        Expectation::MentionsAny(all) => Expectation::MentionsAny(texts(all)?),
        Expectation::MentionsNone(all) => Expectation::MentionsNone(texts(all)?),
        other => other.clone(),
    })
}
