//! Alerts of `gradus serve`: what a rule watches, when it fires and resolves, and how notices are delivered.
//!
//! Nothing here reads the store. The caller measures, passes an [`AlertMeasurement`] to [`advance_alert_state`], stores
//! the [`AlertState`] that it returns, and hands the [`AlertNotice`], if there is one, to the [`NoticeDispatcher`].

mod condition;
mod deliver;
mod measurement;
mod name_suggestion;
mod notice;
mod private_address;
mod rule;
mod score_watch;
mod slack;
mod state;
mod stored_rule;
mod subject;
mod target;

pub use crate::alert::measurement::{AlertExample, AlertMeasurement};
pub use condition::{AlertCondition, AlertThreshold, ConditionError, MinSampleSize, ThresholdComparison};
pub(crate) use deliver::TargetGuard;
pub use deliver::{
    DeliveryCounts, DeliverySettings, DispatcherStartError, KindCounts, NoticeDispatcher, TargetFailure, TargetHealth,
    TargetRefusal, TestDelivery, deliver_test_notice,
};
pub use notice::{AlertNotice, NOTICE_SCHEMA_VERSION, NoticeKind};
pub use rule::{AlertRule, AlertRuleError, AlertSection, AlertSettingError, ClearingThreshold};
pub use score_watch::{MAX_FALSE_ALARM_PROBABILITY, ScoreWatch};
pub use state::{AlertState, advance_alert_state};
pub use stored_rule::{StoredAlertRule, export_rules_toml};
pub use subject::{AlertMetric, AlertableEvaluator, LatencyPercentile, SampleUnit};
pub use target::{AlertTarget, TargetKind, WebhookUrl, WebhookUrlError};
