//! Reasons why a calibration does not apply to the verdicts of a run.

/// Why a calibration does not apply to the verdicts of a run.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum CalibrationMismatch {
    #[error("the rubric has changed since (calibrated {calibrated}, now {current})")]
    Rubric { calibrated: String, current: String },
    #[error("it is of the judge {calibrated}, not {current}")]
    Judge { calibrated: String, current: String },
    #[error("{judge} escalates or audits otherwise than when it was calibrated")]
    Panel { judge: String },
    #[error("{judge} was answered by {calibrated} when it was calibrated, and by {current} in this run")]
    AnsweredBy { judge: String, calibrated: String, current: String },
    #[error("{judge} was asked {calibrated} when it was calibrated, and {current} in this run")]
    Parameters { judge: String, calibrated: String, current: String },
    #[error("it cannot correct this run: {reason}")]
    Unusable { reason: String },
    #[error("it expired at {expires}")]
    Expired { expires: String },
}
