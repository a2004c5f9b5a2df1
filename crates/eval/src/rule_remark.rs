//! Remarks of rules, in a module of their own, so that the rules do not depend on outcomes.

use std::borrow::Cow;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// What a rule noticed without deciding anything: for the reader, and for a model that judges the same case.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct RuleRemark {
    /// The id of the rule.
    pub rule: Cow<'static, str>,
    pub text: String,
}
