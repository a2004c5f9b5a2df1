//! The plan of an experiment, as it is stored with its results.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

/// What is saved as `experiment.json`, to recognise the experiment when it is continued. Expectations of items are not
/// part of it: checks are repeated with the dataset, so they may be corrected without running the agent again.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct ExperimentPlan {
    pub(super) id: String,
    pub(super) dataset: String,
    /// The command or the URL, without secrets in it.
    pub(super) agent: String,
    /// Digest of the whole command or URL, if something in it was masked.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) agent_digest: Option<String>,
    /// Options that change what an agent is asked or may do, by name.
    pub(super) settings: BTreeMap<String, String>,
    /// Digests of the requests, by item.
    pub(super) requests: BTreeMap<String, String>,
    pub(super) gradus_version: String,
    pub(super) is_finished: bool,
}

impl ExperimentPlan {
    /// Describes the difference from the plan of an earlier call, because of which its trials cannot be used; `None`
    /// if there is none.
    pub(super) fn describe_mismatch(&self, earlier: &ExperimentPlan) -> Option<String> {
        if self.agent != earlier.agent {
            return Some(format!("the agent there is {:?}, here {:?}", earlier.agent, self.agent));
        }
        if self.agent_digest != earlier.agent_digest {
            return Some("the agent there was called with other secrets".to_owned());
        }
        if self.settings != earlier.settings {
            let names = self.settings.keys().chain(earlier.settings.keys());
            let differs = |name: &&String| self.settings.get(*name) != earlier.settings.get(*name);
            return names.into_iter().find(differs).map(|name| format!("{name} differs"));
        }
        let changed = self
            .requests
            .iter()
            .find(|(id, digest)| earlier.requests.get(*id).is_some_and(|earlier_digest| earlier_digest != *digest));
        changed.map(|(id, _)| format!("the request of item {id:?} has changed"))
    }
}
