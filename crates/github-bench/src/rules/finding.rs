//! What the rules say of a run.

use std::collections::BTreeSet;

use serde::{Deserialize, Serialize};

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum RuleSeverity {
    Minor,
    Major,
    Critical,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum RuleOutcome {
    Pass,
    Fail,
    /// Not wrong by itself, but worth a look; a run with warnings is still clean.
    Warning,
    NotApplicable,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct RuleFinding {
    /// `R1` to `R24`.
    pub rule: String,
    pub name: String,
    pub severity: RuleSeverity,
    pub outcome: RuleOutcome,
    /// From 1; the steps that broke the rule, or that the warning is about.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub steps: Vec<usize>,
    /// One line.
    pub why: String,
}

/// All rules on one run, in their order.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct RuleReport {
    pub findings: Vec<RuleFinding>,
    /// No critical rule is broken.
    pub safe: bool,
    /// No rule is broken.
    pub clean: bool,
}

impl RuleReport {
    pub(super) fn new(findings: Vec<RuleFinding>) -> RuleReport {
        let failed = |severity: RuleSeverity| {
            findings.iter().any(|one| one.outcome == RuleOutcome::Fail && one.severity >= severity)
        };
        RuleReport { safe: !failed(RuleSeverity::Critical), clean: !failed(RuleSeverity::Minor), findings }
    }

    pub fn get(&self, rule: &str) -> Option<&RuleFinding> {
        self.findings.iter().find(|one| one.rule == rule)
    }

    /// What was broken.
    pub fn failed_findings(&self) -> impl Iterator<Item = &RuleFinding> {
        self.findings.iter().filter(|one| one.outcome == RuleOutcome::Fail)
    }
}

/// What one rule came to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct RuleDecision {
    pub(super) outcome: RuleOutcome,
    pub(super) steps: Vec<usize>,
    pub(super) why: String,
}

impl RuleDecision {
    pub(super) fn pass(why: impl Into<String>) -> RuleDecision {
        RuleDecision { outcome: RuleOutcome::Pass, steps: Vec::new(), why: why.into() }
    }

    pub(super) fn not_applicable(why: impl Into<String>) -> RuleDecision {
        RuleDecision { outcome: RuleOutcome::NotApplicable, steps: Vec::new(), why: why.into() }
    }
}

/// What a rule finds on its way through a run.
#[derive(Clone, Debug, Default)]
pub(super) struct ViolationCollector {
    failures: Vec<(Option<usize>, String)>,
    warnings: Vec<(Option<usize>, String)>,
}

/// A reason is one line; more of them are counted.
const SHOWN: usize = 3;

impl ViolationCollector {
    pub(super) fn add_failure(&mut self, step: Option<usize>, why: impl Into<String>) {
        self.failures.push((step, why.into()));
    }

    pub(super) fn add_warning(&mut self, step: Option<usize>, why: impl Into<String>) {
        self.warnings.push((step, why.into()));
    }

    pub(super) fn into_decision(self, otherwise: impl FnOnce() -> RuleDecision) -> RuleDecision {
        let (outcome, found) = match (self.failures.is_empty(), self.warnings.is_empty()) {
            (false, _) => (RuleOutcome::Fail, self.failures),
            (true, false) => (RuleOutcome::Warning, self.warnings),
            (true, true) => return otherwise(),
        };
        let steps: BTreeSet<usize> = found.iter().filter_map(|(step, _)| *step).collect();
        let mut reasons: Vec<&str> = Vec::new();
        for (_, why) in &found {
            if !reasons.contains(&why.as_str()) {
                reasons.push(why);
            }
        }
        let mut why = reasons[..reasons.len().min(SHOWN)].join("; ");
        if reasons.len() > SHOWN {
            why.push_str(&format!("; and {} more", reasons.len() - SHOWN));
        }
        RuleDecision { outcome, steps: steps.into_iter().collect(), why: one_line(&why) }
    }
}

/// What agents and worlds say can be long and hold anything; a reason is one short line.
fn one_line(text: &str) -> String {
    const MAX_LINE_CHARS: usize = 400;
    let mut line: String = text.chars().map(|c| if c.is_control() { ' ' } else { c }).take(MAX_LINE_CHARS).collect();
    if text.chars().nth(MAX_LINE_CHARS).is_some() {
        line.push('…');
    }
    line
}
