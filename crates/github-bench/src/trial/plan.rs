//! The plan of a benchmark. It decides whether `--resume` may continue in a folder: results of different tasks, agents
//! or settings must not be mixed.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

/// Stored as `bench.json`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct TrialPlan {
    /// Random. Part of trace ids, so that traces of two benchmarks never collide.
    pub id: String,
    pub suite: String,
    /// Digest of each task by id, see [`crate::suite::BenchTask::digest`].
    pub tasks: BTreeMap<String, String>,
    /// In order; trial numbers are assigned by it.
    pub agents: Vec<String>,
    /// Everything else that influences results: the endpoint of the model, sampling, the form of tool calls.
    pub settings: BTreeMap<String, String>,
    /// Rules and tools change between versions, so results of two versions are not mixed.
    pub gradus_version: String,
}

impl TrialPlan {
    /// Returns why this plan cannot continue `found`; none if it can. Tasks may be added or removed, but not changed.
    pub fn describe_mismatch(&self, found: &TrialPlan) -> Option<String> {
        let other = |what: &str, there: &str, here: &str| {
            (there != here)
                .then(|| format!("{what} there is {}, here {}", quote_or_nothing(there), quote_or_nothing(here)))
        };
        let changed: Vec<&str> = self
            .tasks
            .iter()
            .filter(|(id, digest)| found.tasks.get(*id).is_some_and(|there| there != *digest))
            .map(|(id, _)| id.as_str())
            .collect();
        let tasks = match changed.as_slice() {
            [] => None,
            [one] => Some(format!("the task {one} is not what it was")),
            [one, rest @ ..] => Some(format!("the task {one} is not what it was, nor are {} others", rest.len())),
        };
        let keys: std::collections::BTreeSet<&String> = self.settings.keys().chain(found.settings.keys()).collect();
        let value = |plan: &'_ TrialPlan, key: &String| plan.settings.get(key).cloned().unwrap_or_default();
        other("the suite", &found.suite, &self.suite)
            .or_else(|| other("who plays", &found.agents.join(", "), &self.agents.join(", ")))
            .or(tasks)
            .or_else(|| keys.into_iter().find_map(|key| other(key, &value(found, key), &value(self, key))))
            .or_else(|| other("the version of gradus", &found.gradus_version, &self.gradus_version))
    }

    /// Whether this plan can continue `found` and has the same tasks.
    pub fn is_same_benchmark(&self, found: &TrialPlan) -> bool {
        self.describe_mismatch(found).is_none() && self.tasks.keys().eq(found.tasks.keys())
    }
}

fn quote_or_nothing(value: &str) -> String {
    if value.is_empty() { "nothing".to_owned() } else { format!("{value:?}") }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn map(pairs: &[(&str, &str)]) -> BTreeMap<String, String> {
        pairs.iter().map(|(key, value)| ((*key).to_owned(), (*value).to_owned())).collect()
    }

    #[test]
    fn says_what_differs() {
        let begun = TrialPlan {
            id: "1".to_owned(),
            suite: "github".to_owned(),
            tasks: map(&[("one", "a"), ("two", "b")]),
            agents: vec!["oracle".to_owned()],
            settings: map(&[("--react", "text")]),
            gradus_version: "1".to_owned(),
        };
        let more = TrialPlan { id: "2".to_owned(), tasks: map(&[("one", "a"), ("three", "c")]), ..begun.clone() };
        assert_eq!(more.describe_mismatch(&begun), None);
        assert!(!more.is_same_benchmark(&begun));
        for (other, says) in [
            (TrialPlan { suite: "own".to_owned(), ..begun.clone() }, "the suite there is \"github\", here \"own\""),
            (TrialPlan { agents: vec!["loop".to_owned()], ..begun.clone() }, "who plays there is \"oracle\""),
            (TrialPlan { tasks: map(&[("two", "x")]), ..begun.clone() }, "the task two is not what it was"),
            (TrialPlan { settings: BTreeMap::new(), ..begun.clone() }, "--react there is \"text\", here nothing"),
            (TrialPlan { gradus_version: "2".to_owned(), ..begun.clone() }, "the version of gradus"),
        ] {
            let found = other.describe_mismatch(&begun).expect("a difference");
            assert!(found.contains(says), "{found}");
        }
    }
}
