//! A labelled case: one question about one run, and the verdict that is right.

use std::sync::Arc;

use gradus_core::trajectory::Trajectory;
use gradus_eval::rubric::RubricSubject;
use serde::{Deserialize, Serialize};

use crate::flaw::PlantedFlaw;
use crate::right_run::{RunForm, RunMaterial};

/// The verdict that is right.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ExpectedVerdict {
    /// The judge must give the best label.
    Right,
    /// The judge must give any other label.
    Flawed,
}

/// A question whose answer is known.
#[derive(Clone, Debug)]
pub struct TestCase {
    /// The same for the same question, whatever the seed.
    pub case_id: String,
    /// A flawed run and its original share it.
    pub pair_id: String,
    pub evaluator: String,
    /// The number of the step as in outcome lines; `None` for the whole trajectory.
    pub step: Option<u32>,
    pub expected: ExpectedVerdict,
    /// The flaw of the pair; an original has none itself.
    pub flaw: PlantedFlaw,
    /// What was planted, in words.
    pub note: String,
    pub cluster: String,
    pub material: RunMaterial,
    pub form: RunForm,
    pub trajectory: Arc<Trajectory>,
}

/// An evaluator under test, and the flaws that it must notice.
#[derive(Clone, Debug)]
pub struct TestedEvaluator {
    pub name: String,
    pub subject: RubricSubject,
    pub flaws: Vec<PlantedFlaw>,
    /// Whether the built-in table of flaws applies. A rubric of one's own must notice the flaws that the user names,
    /// wherever they are planted.
    pub is_built_in: bool,
}
