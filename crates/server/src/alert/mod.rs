//! Alerts of `gradus serve`: what a rule watches, when it fires and goes quiet, and how the word gets out.
//!
//! Nothing here sees the store. Whoever has the numbers hands them to [`advance`] as [`Measured`], keeps the [`State`]
//! that comes back, and gives the [`Notice`], if there is one, to the [`Dispatcher`].

mod condition;
mod deliver;
mod measurement;
mod nearest;
mod notice;
mod rule;
mod slack;
mod state;
mod subject;
mod target;

pub use crate::alert::measurement::{Example, Measured};
pub use condition::{Bar, Comparison, Condition, ConditionError, Floor};
pub use deliver::{Counts, Dispatcher, KindCounts, Settings, StartError};
pub use notice::{Notice, NoticeKind, SCHEMA};
pub use rule::{AlertRule, AlertSection, ClearAt};
pub use state::{State, advance};
pub use subject::{Percentile, Subject, Unit, Watchable};
pub use target::{Target, TargetKind, WebhookUrl};
