//! Datasets: requests for an agent with what is expected of each. Owns the JSON Lines format, its strict reader, the
//! deterministic checks of an item, splits, duplicates, and the results of the trials of an experiment.
//!
//! It starts no programs, asks no models and knows nothing of spans, stores or servers. An item is checked against a
//! [`gradus_core::trajectory::Trajectory`], wherever that came from.

mod check;
mod dedupe;
mod item;
mod item_trial;
mod reader;
mod split;
mod tool_match;
mod trajectory_item;

pub use check::{CheckOutcome, ItemCheck, TrialEvidence};
pub use dedupe::{MergedItem, dedupe_items, normalize_request};
pub use item::{DatasetItem, DatasetMessage, ExpectedTools, ToolExpectation, ToolMatchMode};
pub use item_trial::{ItemTrial, TrialEnd, TrialFileError, read_item_trials};
pub use reader::{DatasetError, DatasetLine, DatasetReading, read_dataset, read_dataset_lines, write_dataset};
pub use split::{SplitError, SplitPart, assign_part, parse_split_part};
pub use trajectory_item::{RecordedExpectations, item_from_trajectory};
