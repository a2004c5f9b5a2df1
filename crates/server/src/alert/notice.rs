//! The notice that is sent when an alert fires, still fires or is resolved, and its JSON form.
//!
//! # The JSON form
//!
//! Stable: fields are added, never renamed or taken away, without another `schema`.
//!
//! | field | what |
//! |---|---|
//! | `schema` | [`NOTICE_SCHEMA_VERSION`] |
//! | `kind` | `fired`, `reminder`, `resolved`, or `test` for a notice that somebody asked for |
//! | `rule` | the rule's name |
//! | `project` | the rule's project, or null for all |
//! | `condition` | the condition as text |
//! | `subject` | what is watched: an evaluator's name, `failure_rate`, ... |
//! | `threshold`, `clear_at` | as shares, dollars or seconds; null for `unseen_tool` |
//! | `value` | what was measured, in the same unit; null if it is no number |
//! | `value_text` | the same for people, with its unit |
//! | `count` | how many steps, trajectories or questions the value is taken from |
//! | `unseen` | names of the tools, for `unseen_tool` |
//! | `since`, `at` | when it began to fire, and when this was found; RFC 3339 |
//! | `examples` | `trace_id`, `trajectory_id`, `step_index`, `summary`, `score`, `url`; the last is null without a base URL |

use jiff::Timestamp;
use serde_json::{Value as Json, json};

use super::rule::AlertRule;
use crate::alert::measurement::{AlertExample, AlertMeasurement};

/// The version of the JSON form.
pub const NOTICE_SCHEMA_VERSION: u32 = 1;
/// Maximum numbers of examples, unseen tools and characters of a text in a notice, so that it is readable and a queue
/// of notices stays small.
const MAX_EXAMPLES: usize = 10;
const MAX_NOTICE_UNSEEN_TOOLS: usize = 50;
const MAX_NOTICE_TEXT_CHARS: usize = 500;

/// A message about one change or reminder of a rule. It copies what it shows from the rule, so that a reload of the
/// settings does not change notices that are queued. The fields are those of the JSON form above.
#[derive(Clone, Debug, PartialEq)]
pub struct AlertNotice {
    pub kind: NoticeKind,
    pub rule: String,
    pub project: Option<String>,
    pub condition: String,
    pub subject: String,
    pub threshold: Option<f64>,
    pub clear_at: Option<f64>,
    pub value: f64,
    pub value_text: String,
    pub count: u64,
    pub unseen: Vec<String>,
    pub since: Timestamp,
    pub at: Timestamp,
    pub examples: Vec<AlertExample>,
}

/// `Reminder` and `Resolved` are only sent for an alert that was `Fired` before.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NoticeKind {
    Fired,
    /// The condition still holds after the cool-down.
    Reminder,
    Resolved,
    /// Sent by hand to test delivery.
    Test,
}

impl NoticeKind {
    pub fn name(self) -> &'static str {
        match self {
            NoticeKind::Fired => "fired",
            NoticeKind::Reminder => "reminder",
            NoticeKind::Resolved => "resolved",
            NoticeKind::Test => "test",
        }
    }
}

impl AlertNotice {
    /// Builds a notice. Names of tools are recorded text, so they are truncated and put on one line here, once for
    /// all outputs.
    pub(super) fn new(
        rule: &AlertRule,
        kind: NoticeKind,
        measured: AlertMeasurement,
        since: Timestamp,
        at: Timestamp,
    ) -> AlertNotice {
        let AlertMeasurement { value, count, mut unseen, .. } = measured;
        unseen.truncate(MAX_NOTICE_UNSEEN_TOOLS);
        for name in &mut unseen {
            *name = collapse_to_line(name, MAX_NOTICE_TEXT_CHARS);
        }
        AlertNotice {
            kind,
            rule: rule.name.clone(),
            project: rule.project.clone(),
            condition: rule.condition.to_string(),
            subject: rule.condition.subject.to_string(),
            threshold: rule.condition.bar.map(|bar| bar.threshold),
            clear_at: rule.clears_at(),
            value,
            value_text: rule.condition.format_measured_value(value),
            count,
            unseen,
            since,
            at,
            examples: Vec::new(),
        }
    }

    /// Builds a test notice, with the latest measurement if there is one.
    pub fn for_test(rule: &AlertRule, measured: Option<AlertMeasurement>, at: Timestamp) -> AlertNotice {
        AlertNotice::new(rule, NoticeKind::Test, measured.unwrap_or_default(), at, at)
    }

    /// Appends examples, worst first, up to the bound.
    pub fn add_examples(&mut self, examples: impl Iterator<Item = AlertExample>) {
        let room = MAX_EXAMPLES.saturating_sub(self.examples.len());
        self.examples.extend(examples.take(room).map(|mut example| {
            example.summary = collapse_to_line(&example.summary, MAX_NOTICE_TEXT_CHARS);
            example
        }));
    }

    /// Returns the JSON form for webhooks and commands. `base_url` is the address under which people open this
    /// server.
    pub fn to_json(&self, base_url: Option<&str>) -> Json {
        let examples = self.examples.iter().map(|example| {
            json!({
                "trace_id": example.trace_id,
                "trajectory_id": example.trajectory_id,
                "step_index": example.step_index,
                "summary": example.summary,
                "score": example.score,
                "url": build_example_url(base_url, example),
            })
        });
        json!({
            "schema": NOTICE_SCHEMA_VERSION,
            "kind": self.kind.name(),
            "rule": self.rule,
            "project": self.project,
            "condition": self.condition,
            "subject": self.subject,
            "threshold": self.threshold,
            "clear_at": self.clear_at,
            "value": self.value,
            "value_text": self.value_text,
            "count": self.count,
            "unseen": self.unseen,
            "since": self.since.to_string(),
            "at": self.at.to_string(),
            "examples": examples.collect::<Vec<Json>>(),
        })
    }
}

/// `{base_url}/traces/{trace_id}#step-N`, with `?trajectory=` where the trace contains several trajectories.
pub(super) fn build_example_url(base_url: Option<&str>, example: &AlertExample) -> Option<String> {
    let mut url = format!("{}/traces/", base_url?.trim_end_matches('/'));
    push_encoded_id(&mut url, &example.trace_id);
    if !example.trajectory_id.is_empty() && example.trajectory_id != example.trace_id {
        url.push_str("?trajectory=");
        push_encoded_id(&mut url, &example.trajectory_id);
    }
    if let Some(step) = example.step_index {
        url.push_str(&format!("#step-{step}"));
    }
    Some(url)
}

/// Percent-encodes everything but the unreserved characters of RFC 3986. Ids are usually hexadecimal, but a source may
/// use any text.
fn push_encoded_id(url: &mut String, id: &str) {
    for byte in id.bytes() {
        match byte {
            b'a'..=b'z' | b'A'..=b'Z' | b'0'..=b'9' | b'-' | b'.' | b'_' | b'~' => url.push(char::from(byte)),
            _ => url.push_str(&format!("%{byte:02X}")),
        }
    }
}

/// Collapses white space and control characters to single spaces and truncates to `longest` characters.
pub(super) fn collapse_to_line(text: &str, longest: usize) -> String {
    let mut line = String::new();
    // Reads a bounded part only: a recorded text may be megabytes of spaces.
    let mut letters = text.chars().take(8 * longest).map(|c| if c.is_control() { ' ' } else { c });
    let mut length = 0;
    while let Some(letter) = letters.next() {
        if letter.is_whitespace() && (line.is_empty() || line.ends_with(' ')) {
            continue;
        }
        if length + 1 >= longest && letters.next().is_some() {
            line.push('…');
            return line;
        }
        line.push(if letter.is_whitespace() { ' ' } else { letter });
        length += 1;
    }
    line.truncate(line.trim_end().len());
    line
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;
    use crate::alert::{AlertSection, AlertableEvaluator};

    pub(in crate::alert) fn notice(measured: AlertMeasurement, examples: Vec<AlertExample>) -> AlertNotice {
        let section = AlertSection {
            name: "tool <choice>".to_owned(),
            project: Some("shop".to_owned()),
            when: "thought_to_tool < 0.8 over 1h".to_owned(),
            ..AlertSection::default()
        };
        let rule = AlertRule::from_section(
            section,
            &[AlertableEvaluator { name: "thought_to_tool", worst: 0.0, best: 1.0, gives_only_flags: false }],
        )
        .expect("a rule");
        let since = Timestamp::from_second(1_700_000_000).expect("a time");
        let mut notice = AlertNotice::new(&rule, NoticeKind::Fired, measured, since, since);
        notice.add_examples(examples.into_iter());
        notice
    }

    pub(in crate::alert) fn example(summary: &str) -> AlertExample {
        AlertExample {
            trace_id: "0af7651916cd43dd8448eb211c80319c".to_owned(),
            trajectory_id: "t1".to_owned(),
            step_index: Some(3),
            summary: summary.to_owned(),
            score: Some(0.0),
        }
    }

    #[test]
    fn the_json_form_is_as_documented() {
        let measured = AlertMeasurement { value: 0.7125, count: 40, ..AlertMeasurement::default() };
        let json = notice(measured, vec![example("calls\n rm")]).to_json(Some("https://gradus.example/"));
        insta::assert_snapshot!(format!("{json:#}"));
        assert!(notice(AlertMeasurement::default(), vec![example("")]).to_json(None)["examples"][0]["url"].is_null());
    }

    #[test]
    fn links_stay_in_their_place() {
        let strange =
            AlertExample { trace_id: "../a?b#c d|é>".to_owned(), step_index: None, ..AlertExample::default() };
        assert_eq!(
            build_example_url(Some("http://h"), &strange).as_deref(),
            Some("http://h/traces/..%2Fa%3Fb%23c%20d%7C%C3%A9%3E")
        );
    }

    #[test]
    fn long_texts_are_cut() {
        assert_eq!(collapse_to_line("  a \n\t b\u{1b}[31m  ", 20), "a b [31m");
        assert_eq!(collapse_to_line("abcdef", 6), "abcdef");
        assert_eq!(collapse_to_line("abcdefg", 6), "abcde…");
        assert_eq!(collapse_to_line(&" ".repeat(1 << 20), 6), "");
        let notice = notice(AlertMeasurement::default(), vec![example(&"x".repeat(9_000)); 99]);
        assert_eq!((notice.examples.len(), notice.examples[0].summary.chars().count()), (10, 500));
    }
}
