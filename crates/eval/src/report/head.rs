//! Parses the first fields of lines in a run's files and skips the rest, which may be long. The fast path expects lines
//! exactly as Gradus writes them; anything else is parsed as a whole by serde.

use std::borrow::Cow;
use std::fmt;

use gradus_core::trajectory::{ModelUsage, TokenUsage};
use gradus_llm::price::PriceTable;
use serde::de::{IgnoredAny, SeqAccess, Visitor};
use serde::{Deserialize, Deserializer};

use super::agent_cost::StatedUsage;
use crate::outcome::OutcomeKind;

/// The id of a trajectory, which is enough for indexing.
#[derive(Debug, PartialEq, Deserialize)]
pub(super) struct TrajectoryHead<'l> {
    #[serde(borrow)]
    pub(super) trajectory_id: Cow<'l, str>,
}

/// The fields that identify an outcome.
#[derive(Debug, PartialEq, Deserialize)]
pub(super) struct OutcomeHead<'l> {
    #[serde(borrow)]
    pub(super) trajectory_id: Cow<'l, str>,
    pub(super) step_index: Option<u32>,
    #[serde(borrow)]
    pub(super) evaluator: Cow<'l, str>,
}

/// The fields of a trajectory that summaries and comparisons need in addition to its verdicts.
#[derive(Debug, PartialEq, Deserialize)]
pub struct JudgedHead<'l> {
    #[serde(borrow)]
    pub trajectory_id: Cow<'l, str>,
    #[serde(borrow, default)]
    pub query: Option<Cow<'l, str>>,
    #[serde(borrow, default)]
    pub session_id: Option<Cow<'l, str>>,
    #[serde(borrow, default)]
    pub agent_version: Option<Cow<'l, str>>,
    #[serde(default)]
    pub steps: ItemCount,
    #[serde(default)]
    pub tokens: TokenUsage,
    /// The agent's cost as the trace states it. [`RunReader`](super::RunReader) adds estimates.
    #[serde(default)]
    pub cost_usd: Option<f64>,
    #[serde(borrow, default)]
    pub model: Option<Cow<'l, str>>,
    #[serde(default)]
    pub model_usage: Vec<ModelUsage>,
    #[serde(borrow, default)]
    pub start: Option<Cow<'l, str>>,
    #[serde(borrow, default)]
    pub end: Option<Cow<'l, str>>,
}

/// The length of a JSON array whose items are skipped.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ItemCount(pub u32);

impl<'de> Deserialize<'de> for ItemCount {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<ItemCount, D::Error> {
        struct CountingVisitor;
        impl<'de> Visitor<'de> for CountingVisitor {
            type Value = ItemCount;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("an array")
            }

            fn visit_seq<A: SeqAccess<'de>>(self, mut items: A) -> Result<ItemCount, A::Error> {
                let mut count = 0_u32;
                while items.next_element::<IgnoredAny>()?.is_some() {
                    count = count.saturating_add(1);
                }
                Ok(ItemCount(count))
            }
        }
        deserializer.deserialize_seq(CountingVisitor)
    }
}

/// An outcome without explanation and evidence.
#[derive(Clone, Debug, PartialEq, Deserialize)]
pub struct VerdictHead {
    /// Index into the evaluators of the run's manifest.
    #[serde(skip)]
    pub evaluator: usize,
    pub step_index: Option<u32>,
    pub outcome: OutcomeKind,
    pub label: Option<String>,
    pub score: Option<f64>,
}

/// An outcome with the answers of each judge, without explanations.
#[derive(Clone, Debug, PartialEq, Deserialize)]
pub struct AnswerHead {
    /// Index into the evaluators of the run's manifest.
    #[serde(skip)]
    pub evaluator: usize,
    pub step_index: Option<u32>,
    pub outcome: OutcomeKind,
    pub label: Option<String>,
    pub score: Option<f64>,
    #[serde(default)]
    pub label_probability: Option<f64>,
    pub judge: String,
    #[serde(default)]
    pub answered_by: Option<String>,
    #[serde(default)]
    pub votes: Vec<VoteHead>,
    #[serde(default)]
    pub disagreement: Option<f64>,
}

/// One vote without its explanation.
#[derive(Clone, Debug, PartialEq, Deserialize)]
pub struct VoteHead {
    pub judge: String,
    pub label: Option<String>,
    pub score: Option<f64>,
    #[serde(default)]
    pub answered_by: Option<String>,
}

impl AnswerHead {
    pub(super) fn read(line: &[u8], evaluator: usize) -> Option<AnswerHead> {
        let read: AnswerHead = serde_json::from_slice(line).ok()?;
        Some(AnswerHead { evaluator, ..read })
    }
}

impl<'l> TrajectoryHead<'l> {
    pub(super) fn read(line: &'l [u8]) -> Option<Self> {
        let quick = || {
            let mut fields = JsonLineScanner::from_line(line)?;
            Some(TrajectoryHead { trajectory_id: Cow::Borrowed(fields.read_text("trajectory_id")?) })
        };
        quick().or_else(|| serde_json::from_slice(line).ok())
    }
}

impl<'l> OutcomeHead<'l> {
    pub(super) fn read(line: &'l [u8]) -> Option<Self> {
        let quick = || {
            let mut fields = JsonLineScanner::from_line(line)?;
            fields.read_text("run_id")?;
            Some(OutcomeHead {
                trajectory_id: Cow::Borrowed(fields.read_text("trajectory_id")?),
                step_index: fields.read_value("step_index")?,
                evaluator: Cow::Borrowed(fields.read_text("evaluator")?),
            })
        };
        quick().or_else(|| serde_json::from_slice(line).ok())
    }
}

impl<'l> JudgedHead<'l> {
    /// Fills in the cost of the agent from tokens and prices where the trace does not state it.
    pub(super) fn estimate_cost(&mut self, prices: &PriceTable) {
        let (model, model_usage) = (self.model.as_deref(), &self.model_usage[..]);
        let usage = StatedUsage { cost_usd: self.cost_usd, model, tokens: self.tokens, model_usage };
        self.cost_usd = usage.known_cost(prices);
    }

    pub(super) fn read(line: &'l [u8]) -> Option<Self> {
        serde_json::from_slice(line).ok()
    }

    /// Returns the seconds from the first to the last span; `None` if the trace has no times.
    pub fn duration_seconds(&self) -> Option<f64> {
        let parse = |text: &Option<Cow<'_, str>>| text.as_deref()?.parse::<jiff::Timestamp>().ok();
        let seconds = parse(&self.end)?.duration_since(parse(&self.start)?).as_secs_f64();
        (seconds >= 0.0).then_some(seconds)
    }
}

impl VerdictHead {
    pub(super) fn read(line: &[u8], evaluator: usize) -> Option<VerdictHead> {
        let read = Self::parse_fast(line).or_else(|| serde_json::from_slice(line).ok())?;
        Some(VerdictHead { evaluator, ..read })
    }

    /// Depends on the order of fields in `OutcomeLine`.
    fn parse_fast(line: &[u8]) -> Option<VerdictHead> {
        let mut fields = JsonLineScanner::from_line(line)?;
        fields.read_text("run_id")?;
        fields.read_text("trajectory_id")?;
        let step_index = fields.read_value("step_index")?;
        fields.read_text("evaluator")?;
        Some(VerdictHead {
            evaluator: 0,
            step_index,
            outcome: fields.read_value("outcome")?,
            label: fields.read_value("label")?,
            score: fields.read_value("score")?,
        })
    }
}

/// The unread rest of a line.
struct JsonLineScanner<'l>(&'l [u8]);

impl<'l> JsonLineScanner<'l> {
    /// `None` for an incomplete line, whatever its beginning.
    fn from_line(line: &'l [u8]) -> Option<Self> {
        // A line that was cut off does not count.
        let mut fields = line.strip_prefix(b"{")?.strip_suffix(b"}\n").map(JsonLineScanner)?;
        // Lines of answered questions begin with their cache key.
        let _ = fields.read_text("k");
        Some(fields)
    }

    /// The bytes of the next value, if the next field has this name.
    fn bytes_after_key(&self, name: &str) -> Option<&'l [u8]> {
        self.0.strip_prefix(b"\"")?.strip_prefix(name.as_bytes())?.strip_prefix(b"\":")
    }

    /// A string without escapes; `None` otherwise, which leaves the line to serde.
    fn read_text(&mut self, name: &str) -> Option<&'l str> {
        let value = self.bytes_after_key(name)?.strip_prefix(b"\"")?;
        let end = value.iter().position(|byte| matches!(byte, b'"' | b'\\'))?;
        self.0 = value[end..].strip_prefix(b"\",")?;
        std::str::from_utf8(&value[..end]).ok()
    }

    /// Any value that is not the last one of the line.
    fn read_value<T: Deserialize<'l>>(&mut self, name: &str) -> Option<T> {
        let rest = self.bytes_after_key(name)?;
        let mut values = serde_json::Deserializer::from_slice(rest).into_iter::<T>();
        let value = values.next()?.ok()?;
        self.0 = rest[values.byte_offset()..].strip_prefix(b",")?;
        Some(value)
    }
}

#[cfg(test)]
mod tests {
    use gradus_core::trajectory::{Trajectory, TrajectoryStep};

    use super::*;
    use crate::outcome::OutcomeLine;

    fn line(value: &impl serde::Serialize) -> Vec<u8> {
        let mut line = serde_json::to_vec(value).unwrap();
        line.push(b'\n');
        line
    }

    #[test]
    fn heads_are_what_whole_lines_say() {
        for query in [None, Some("a \"b\" \\ c\nd, \"steps\":[] ß ☃"), Some("")] {
            let trajectory = Trajectory {
                trajectory_id: "t1".to_owned(),
                trace_ids: vec!["a,]".to_owned(), "b".to_owned()],
                session_id: query.map(|_| "s\"1".to_owned()),
                agent: Some("x\",\"query\":\"no".to_owned()),
                query: query.map(str::to_owned),
                steps: vec![TrajectoryStep::default(); 2],
                tokens: TokenUsage { prompt: 3, completion: 4, cached_prompt: 0 },
                start: Some("2026-11-17T10:00:00Z".to_owned()),
                end: Some("2026-11-17T10:00:01.5Z".to_owned()),
                ..Trajectory::default()
            };
            let line = line(&trajectory);
            let head = JudgedHead::read(&line).unwrap();
            assert_eq!((&*head.trajectory_id, head.query.as_deref(), head.steps), ("t1", query, ItemCount(2)));
            assert_eq!((head.tokens.total(), head.duration_seconds()), (7, Some(1.5)));
        }
        for (step_index, label, score) in
            [(Some(3), Some("correct"), Some(1.0)), (None, Some("a\"\n"), Some(-0.25)), (Some(1), None, None)]
        {
            let outcome = OutcomeLine {
                run_id: "r".into(),
                trajectory_id: "t1".into(),
                step_index,
                evaluator: "fit".into(),
                outcome: if score.is_some() { OutcomeKind::Scored } else { OutcomeKind::Failed },
                label: label.map(str::to_owned),
                score,
                label_probability: None,
                explanation: Some("\"label\":\"other\"".to_owned()),
                evidence: Vec::new(),
                rule: None,
                remarks: Vec::new(),
                reason: None,
                judge: "offline".into(),
                rubric_hash: "h".into(),
                tokens: None,
                cost_usd: None,
                cached: false,
                calls: 0,
                shortened: Vec::new(),
                votes: Vec::new(),
                vote_count: None,
                disagreement: None,
                escalated: None,
                first_label: None,
                answered_by: None,
            };
            let line = line(&outcome);
            let quick = VerdictHead::parse_fast(&line).unwrap();
            assert_eq!(quick, serde_json::from_slice(&line).unwrap());
            assert_eq!((quick.step_index, quick.label.as_deref(), quick.score), (step_index, label, score));
            assert_eq!(VerdictHead::read(&line, 7).unwrap().evaluator, 7);
            assert_eq!(OutcomeHead::read(&line).unwrap().step_index, step_index);
            // With the key that answers have.
            let keyed = [&b"{\"k\":\"0123456789abcdef0123456789abcdef\","[..], &line[1..]].concat();
            assert_eq!(VerdictHead::parse_fast(&keyed).unwrap(), quick);
        }
    }

    #[test]
    fn unusual_lines_are_read_whole_and_broken_ones_not_at_all() {
        let other = br#"{ "query": "q", "trajectory_id": "t\u0031" }"#;
        let head = JudgedHead::read(other).unwrap();
        assert_eq!((&*head.trajectory_id, head.query.as_deref()), ("t1", Some("q")));
        let cut = br#"{"trajectory_id":"t1","trace_ids":[],"session_id":null,"project":null,"agent":nu"#;
        assert_eq!(JudgedHead::read(cut), None);
        assert_eq!(TrajectoryHead::read(cut), None);
    }
}
