//! Error rates of a judge, and shares that are corrected for its errors.
//!
//! A judge labels every case of a population; people label some cases. A case is a step or a whole run, and the cases of
//! one run are a cluster. [`correct_share`] estimates the true share of right cases from both, with an interval that
//! knows the errors of the judge, the number of labels and the clusters.
//!
//! | labels are | the judge | estimator |
//! |---|---|---|
//! | a random sample of the population | narrows the interval | post-stratification on the judge's label |
//! | a random sample of the population | does not | the labels alone |
//! | of another population | is better than chance | Rogan and Gladen |
//! | of another population | is not | none: refused |

mod beta_sum;
mod confusion;
mod correction;
mod design_effect;
mod labelled;
mod labels_alone;
mod post_stratification;
mod repeats;
mod rogan_gladen;
mod sample_size;
mod stratum_merging;
#[cfg(test)]
mod tests;

pub use confusion::{ConfusionCounts, JudgeMeasure, JudgeMeasures, UnjudgedCases, measure_judge};
pub use correction::{CorrectedShare, MIN_LABELLED_RUNS, ShareEstimator, correct_share, share_from_labels};
pub use labelled::{CorrectionRefusal, JudgedRun, LabelOrigin, LabelledCase, LabelledRun};
pub use repeats::{JudgeRepeatability, RepeatedRun, VarianceComponents, VarianceTally, measure_repeats};
pub use rogan_gladen::{RoganGladenCounts, rogan_gladen_estimate, rogan_gladen_interval};
pub use sample_size::{
    LabelOutlook, LabelPlan, SampleSizeError, class_labels_needed, labels_needed, outlook_from_labels,
    plan_from_outlook,
};
