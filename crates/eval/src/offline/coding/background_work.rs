//! Whether something runs in the background: then a look at its output is no repetition, whatever the result.

use gradus_core::trajectory::{EarlierCall, TrajectoryStep};
use serde_json::Value as Json;

use super::super::excerpt::take_prefix;
use super::super::vocabulary::contains_phrase;
use super::coding_action::CodingAction;
use super::shell_command::{only_looks, runs_in_background};

/// Maximum bytes of a result that are searched for a notice.
const MAX_NOTICE_BYTES: usize = 400;

/// Notices of tools that something runs on, in lower case.
const NOTICES: &str = "running in background|running in the background|working in the background|moved to background|\
    moved to the background|async agent launched";

/// Whether a step starts a command or an agent that goes on running.
pub(in super::super) fn starts_background_work(step: &TrajectoryStep) -> bool {
    let is_asked = ["run_in_background", "is_background"].iter().any(|name| {
        step.arguments.as_ref().and_then(|arguments| arguments.get(name)).and_then(Json::as_bool) == Some(true)
    });
    let is_shell_job =
        || matches!(CodingAction::from_step(step), CodingAction::Command(command) if runs_in_background(&command));
    !step.is_denied && (is_asked && !step.is_error || is_shell_job() || has_notice(step.observation.as_deref()))
}

/// The same for a call of an earlier turn.
pub(in super::super) fn started_background_work(call: &EarlierCall) -> bool {
    has_notice(call.observation.as_deref())
}

fn has_notice(result: Option<&str>) -> bool {
    contains_phrase(&take_prefix(result.unwrap_or_default(), MAX_NOTICE_BYTES).to_lowercase(), NOTICES)
}

/// Whether a step looks at what work in the background may have written: it lists files, runs a command that only reads,
/// or reads a log.
pub(in super::super) fn looks_for_progress(step: &TrajectoryStep) -> bool {
    const LISTING_TOOLS: &str = " ls glob list list_dir list_directory list_files ";
    match CodingAction::from_step(step) {
        CodingAction::Command(command) => only_looks(&command),
        CodingAction::Read(path) => path.ends_with(".output") || path.ends_with(".log"),
        CodingAction::Other => LISTING_TOOLS.contains(&format!(" {} ", step.tool.to_ascii_lowercase())),
        CodingAction::Edit(_) | CodingAction::Write(_) => false,
    }
}
