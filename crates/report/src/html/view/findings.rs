//! The worst steps, with all that is needed to see why.

use gradus_eval::report::{Finding as Found, FindingVerdict, Summary};

use super::text::{self, Block};
use super::title;
use crate::html::count_text::count;

/// More evidence than this is left out, with a note.
const MAX_EVIDENCE: usize = 20;

#[derive(Debug)]
pub struct Findings {
    pub count: String,
    pub all: Vec<Finding>,
}

#[derive(Debug)]
pub struct Finding {
    pub trajectory_id: String,
    /// Where it can be looked at; in a page of the server only.
    pub href: Option<String>,
    /// None for a whole trajectory.
    pub step: Option<u32>,
    pub query: Option<Block>,
    pub thought: Option<Block>,
    pub tool: Option<String>,
    pub arguments: Option<Block>,
    pub verdicts: Vec<Verdict>,
}

#[derive(Debug)]
pub struct Verdict {
    pub evaluator: String,
    pub label: String,
    pub explanation: Block,
    pub evidence: Vec<Block>,
    pub omitted: Option<String>,
}

impl Findings {
    pub fn of(summary: &Summary) -> Findings {
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
