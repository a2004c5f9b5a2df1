//! Files of Harbor's run folders that hold no conversation. `agent/trajectory.json` in the same folder is ATIF.

use serde_json::{Map, Value as Json};

/// Whether an object is `result.json` of a trial: its reward and its times.
pub(crate) fn is_trial_result(object: &Map<String, Json>) -> bool {
    ["task_name", "trial_name", "trial_uri", "agent_info"].iter().all(|key| object.contains_key(*key))
}

/// Whether an object is `result.json` of a job: the sums over its trials.
pub(crate) fn is_job_result(object: &Map<String, Json>) -> bool {
    object.contains_key("n_total_trials") && object.contains_key("stats") && object.contains_key("started_at")
}

/// Whether an object is `config.json` of a trial or of a job.
pub(crate) fn is_run_config(object: &Map<String, Json>) -> bool {
    let trial = ["task", "trial_name", "trials_dir", "agent", "environment"];
    let job = ["job_name", "jobs_dir", "agents", "environment"];
    trial.iter().all(|key| object.contains_key(*key)) || job.iter().all(|key| object.contains_key(*key))
}
