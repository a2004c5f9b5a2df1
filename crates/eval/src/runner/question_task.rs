//! The task of one question: waits for its turn among the processes that share limits, asks, and stores the answer.

use std::sync::Arc;

use gradus_llm::price::TokenPrice;
use tokio::time::Instant;

use super::asked_question::{AskedQuestion, FinishedTask, JudgeAsk, UnaskedReason};
use super::plan::PreparedQuestion;
use crate::judge::ModelJudge;
use crate::run::{QuestionKey, RunFileError};
use crate::shared::{QuestionCoordinator, QuestionIntent, QuestionPermit, QuestionTurn};

pub(super) struct QuestionTask {
    pub(super) ask: JudgeAsk,
    pub(super) key: QuestionKey,
    pub(super) reserved_usd: f64,
    pub(super) judge: Arc<ModelJudge>,
    pub(super) question: PreparedQuestion,
    /// The coordinator that decides when to ask; `None` for a run in a single process.
    pub(super) turn: Option<(Arc<dyn QuestionCoordinator>, QuestionIntent)>,
}

impl QuestionTask {
    pub(super) async fn run(mut self) -> FinishedTask {
        let permit = match self.turn.take() {
            None => None,
            Some((coordinator, intent)) => match coordinator.begin_question(intent).await {
                Ok(QuestionTurn::Granted(permit)) => Some(permit),
                Ok(QuestionTurn::Answered(verdict)) => {
                    let shortened = std::mem::take(&mut self.question.prompt.shortened);
                    return self.leave_unasked(Ok(UnaskedReason::Answered(verdict, shortened)));
                }
                Ok(QuestionTurn::Refused(reason)) => return self.leave_unasked(Ok(UnaskedReason::Refused(reason))),
                Ok(QuestionTurn::Exhausted(reason)) => return self.leave_unasked(Ok(UnaskedReason::Exhausted(reason))),
                Err(error) => return self.leave_unasked(Err(error)),
            },
        };
        let QuestionTask { ask, key, reserved_usd, judge, question, .. } = self;
        let PreparedQuestion { rubric, answer, prompt, renderer } = question;
        let begun = Instant::now();
        let render = |window| renderer.render_shortened(&ask.job, window);
        let judgement = judge.judge(&answer, &rubric.labels, prompt, render).await;
        let asked = AskedQuestion { ask, key, reserved_usd, elapsed: begun.elapsed(), judgement };
        match permit {
            Some(permit) => finish_shared_question(permit, asked, judge.price).await,
            None => FinishedTask::Asked(Box::new(asked)),
        }
    }

    fn leave_unasked(self, result: Result<UnaskedReason, RunFileError>) -> FinishedTask {
        FinishedTask::Unasked { ask: Box::new(self.ask), key: self.key, reserved_usd: self.reserved_usd, result }
    }
}

/// Stores the answer for all processes before the question is free again.
async fn finish_shared_question(
    permit: Box<dyn QuestionPermit>,
    asked: AskedQuestion,
    price: Option<TokenPrice>,
) -> FinishedTask {
    let (_, cost_usd) = asked.costs(price);
    match permit.finish(asked.cached_verdict(), cost_usd, asked.judgement.calls).await {
        Ok(()) => FinishedTask::Asked(Box::new(asked)),
        Err(error) => {
            let AskedQuestion { ask, key, reserved_usd, .. } = asked;
            FinishedTask::Unasked { ask: Box::new(ask), key, reserved_usd, result: Err(error) }
        }
    }
}
