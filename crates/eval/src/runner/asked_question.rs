//! A question to one judge, and the result of its task.

use std::time::Duration;

use gradus_llm::price::TokenPrice;

use super::plan::JudgeJob;
use crate::judge::JudgeResponse;
use crate::prompt::TruncatedValue;
use crate::run::{CachedVerdict, QuestionKey, RunFileError};

/// One question to one judge.
pub(super) struct JudgeAsk {
    pub(super) job: JudgeJob,
    /// Index of the judge in the panel.
    pub(super) judge: usize,
    /// Counts from 0.
    pub(super) repeat: u32,
    /// The ballot that the answer belongs to; `None` if the answer is the outcome.
    pub(super) ballot: Option<u64>,
}

/// The result of a question's task.
pub(super) struct AskedQuestion {
    pub(super) ask: JudgeAsk,
    pub(super) key: QuestionKey,
    pub(super) reserved_usd: f64,
    pub(super) elapsed: Duration,
    pub(super) judgement: JudgeResponse,
}

/// How the task of a question ended.
pub(super) enum FinishedTask {
    Asked(Box<AskedQuestion>),
    /// Nothing was sent.
    Unasked {
        ask: Box<JudgeAsk>,
        key: QuestionKey,
        reserved_usd: f64,
        result: Result<UnaskedReason, RunFileError>,
    },
}

/// Why this process did not ask.
pub(super) enum UnaskedReason {
    /// Another process asked. With the values that the judge would have seen only in part here.
    Answered(CachedVerdict, Vec<TruncatedValue>),
    /// A limit over all processes is reached.
    Refused(String),
    /// The limit is lifted later: the run stops.
    Exhausted(String),
}

impl AskedQuestion {
    /// Returns the reported cost, and the cost that counts against a budget: without a complete report, the upper
    /// bound.
    pub(super) fn costs(&self, price: Option<TokenPrice>) -> (f64, f64) {
        let reported_usd = price.zip(self.judgement.usage).map_or(0.0, |(price, usage)| price.cost_of_usage(usage));
        let counted_usd =
            if self.judgement.is_usage_partial { reported_usd.max(self.reserved_usd) } else { reported_usd };
        (reported_usd, counted_usd)
    }

    /// Returns the part of the answer that is cached; `None` without a verdict.
    pub(super) fn cached_verdict(&self) -> Option<CachedVerdict> {
        let reading = self.judgement.result.as_ref().ok()?;
        let verdict = CachedVerdict::new(reading, &self.judgement.prompt.shortened)
            .with_label_probability(self.judgement.label_probability)
            .with_answered_by(self.judgement.answered_by.clone());
        Some(verdict)
    }
}
