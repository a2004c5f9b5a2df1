//! The worst steps, with all that is needed to see why.

use gradus_eval::report::{Finding as Found, FindingVerdict, Summary};

use super::text::{self, Block};
use super::title;
use crate::output::html::number::count;

/// More evidence than this is left out, with a note.
const MAX_EVIDENCE: usize = 20;

pub(crate) struct Findings {
    pub(crate) count: String,
    pub(crate) all: Vec<Finding>,
}

pub(crate) struct Finding {
    pub(crate) trajectory_id: String,
    /// Where it can be looked at; in a page of the server only.
    pub(crate) href: Option<String>,
    /// None for a whole trajectory.
    pub(crate) step: Option<u32>,
    pub(crate) query: Option<Block>,
    pub(crate) thought: Option<Block>,
    pub(crate) tool: Option<String>,
    pub(crate) arguments: Option<Block>,
    pub(crate) verdicts: Vec<Verdict>,
}

pub(crate) struct Verdict {
    pub(crate) evaluator: String,
    pub(crate) label: String,
    pub(crate) explanation: Block,
    pub(crate) evidence: Vec<Block>,
    pub(crate) omitted: Option<String>,
}

impl Findings {
    pub(crate) fn of(summary: &Summary) -> Findings {
        Findings {
            count: count(summary.findings.len() as u64),
            all: summary.findings.iter().map(|found| Finding::of(found, summary)).collect(),
        }
    }
}

impl Finding {
    fn of(found: &Found, summary: &Summary) -> Finding {
        Finding {
            trajectory_id: text::line(&found.trajectory_id),
            href: None,
            step: found.step_index,
            query: found.query.as_deref().map(text::block),
            thought: found.thought.as_deref().map(text::block),
            tool: found.tool.as_deref().map(text::line),
            arguments: found.arguments.as_deref().map(text::json),
            verdicts: found.verdicts.iter().map(|verdict| Verdict::of(verdict, summary)).collect(),
        }
    }
}

impl Verdict {
    fn of(verdict: &FindingVerdict, summary: &Summary) -> Verdict {
        let more = verdict.evidence.len().saturating_sub(MAX_EVIDENCE);
        Verdict {
            evaluator: title(summary, &verdict.evaluator),
            label: text::line(&verdict.label),
            explanation: text::block(&verdict.explanation),
            evidence: verdict.evidence.iter().take(MAX_EVIDENCE).map(|piece| text::block(piece)).collect(),
            omitted: (more > 0).then(|| count(more as u64)),
        }
    }
}
