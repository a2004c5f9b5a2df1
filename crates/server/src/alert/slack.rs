//! Notices in the message format of Slack's incoming webhooks (Block Kit), which other chat services accept as well.
//!
//! Slack rejects a message that exceeds one of its limits, so every text is cut well below them: 3,000 characters for a
//! section, 150 for a header, 50 blocks. Recorded text can neither mention people nor create links: `&`, `<` and `>`
//! are escaped, and `verbatim` stops Slack from detecting names and addresses.

use serde_json::{Value as Json, json};

use super::notice::{AlertNotice, NoticeKind, build_example_url, collapse_to_line};
use super::subject::AlertMetric;

/// Maximum numbers of examples, unseen tools and characters of a text. Lower than in the JSON form: a chat message
/// should fit on a screen.
const MAX_EXAMPLES: usize = 5;
const MAX_SLACK_UNSEEN_TOOLS: usize = 10;
const MAX_SLACK_HEADER_CHARS: usize = 150;
const MAX_SLACK_TEXT_CHARS: usize = 300;

impl AlertNotice {
    /// `text` is the fallback for notifications; clients that render blocks show the blocks only.
    pub fn to_slack_message(&self, base_url: Option<&str>) -> Json {
        let (sign, word) = match self.kind {
            NoticeKind::Fired => ("🔴", "Alert"),
            NoticeKind::Reminder => ("🟠", "Still firing"),
            NoticeKind::Resolved => ("🟢", "Resolved"),
            NoticeKind::Test => ("⚪", "Test of"),
        };
        let name = escape_truncated(&self.rule, MAX_SLACK_TEXT_CHARS);
        let mut blocks = vec![json!({
            "type": "header",
            "text": { "type": "plain_text", "text": format_headline(&format!("{sign} {word}"), &self.rule), "emoji": true },
        })];
        blocks.push(build_section_block(&self.format_summary()));
        if !self.unseen.is_empty() {
            blocks.push(build_section_block(&self.format_unseen_tools()));
        }
        // A resolved alert has nothing left to look at.
        if self.kind != NoticeKind::Resolved {
            blocks.extend(self.examples.iter().take(MAX_EXAMPLES).map(|example| {
                let score = example.score.map(|score| format!(" (score {score:.2})")).unwrap_or_default();
                let step = example.step_index.map(|index| format!(" step {index}")).unwrap_or_default();
                let label = format!("{}{step}", escape_truncated(&example.trajectory_id, 64));
                let label = match build_example_url(base_url, example) {
                    // In a link, `|` divides the address from its text.
                    Some(url) if url.len() <= 1_000 => {
                        format!("<{}|{}>", escape_mrkdwn(&url).replace('|', "%7C"), label.replace('|', "/"))
                    }
                    _ => label,
                };
                build_section_block(&format!(
                    "• {label}{score}: {}",
                    escape_truncated(&example.summary, MAX_SLACK_TEXT_CHARS)
                ))
            }));
        }
        let text = format!(
            "{sign} {word}: {name}: {} is {}",
            escape_truncated(&self.subject, 100),
            escape_mrkdwn(&self.value_text)
        );
        json!({ "text": text, "blocks": blocks })
    }

    fn format_summary(&self) -> String {
        let mut facts = format!(
            "*{}* is *{}* (from {}).\nRule: {}",
            escape_truncated(&self.subject, 100),
            escape_mrkdwn(&self.value_text),
            self.count,
            escape_truncated(&self.condition, MAX_SLACK_TEXT_CHARS),
        );
        if let Some(project) = &self.project {
            facts.push_str(&format!("\nProject: {}", escape_truncated(project, 100)));
        }
        facts.push_str(&format!("\nSince: {:.0}", self.since));
        facts
    }

    fn format_unseen_tools(&self) -> String {
        let names: Vec<String> =
            self.unseen.iter().take(MAX_SLACK_UNSEEN_TOOLS).map(|name| escape_truncated(name, 50)).collect();
        let what = if self.subject == AlertMetric::JudgeDrift.name() { "Judges" } else { "Tools" };
        match self.unseen.len().saturating_sub(MAX_SLACK_UNSEEN_TOOLS) {
            0 => format!("{what}: {}", names.join(", ")),
            more => format!("{what}: {} and {more} more", names.join(", ")),
        }
    }
}

/// Formats the header. It must not exceed 150 characters after escaping, and an escaped character takes up to five:
/// the name is cut further if the first attempt is too long.
fn format_headline(before: &str, name: &str) -> String {
    let whole = format!("{before}: {}", escape_truncated(name, 120));
    if whole.chars().count() <= MAX_SLACK_HEADER_CHARS {
        whole
    } else {
        format!("{before}: {}", escape_truncated(name, 120 / 5))
    }
}

fn build_section_block(text: &str) -> Json {
    json!({ "type": "section", "text": { "type": "mrkdwn", "text": text, "verbatim": true } })
}

/// Truncates before escaping: half an entity would be shown literally.
fn escape_truncated(text: &str, longest: usize) -> String {
    escape_mrkdwn(&collapse_to_line(text, longest))
}

fn escape_mrkdwn(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;")
}

#[cfg(test)]
mod tests {
    use crate::alert::notice::tests::{example, notice};
    use crate::alert::{AlertMeasurement, NoticeKind};

    #[test]
    fn a_message_for_each_kind_of_notice() {
        let measured = AlertMeasurement { value: 0.7125, count: 40, ..AlertMeasurement::default() };
        let mut notice = notice(measured, vec![example("calls rm without a reason"), example("calls rm twice")]);
        notice.examples[1].step_index = None;
        notice.examples[1].score = None;
        for kind in [NoticeKind::Fired, NoticeKind::Reminder, NoticeKind::Resolved] {
            notice.kind = kind;
            let message = notice.to_slack_message(Some("https://gradus.example"));
            insta::assert_snapshot!(kind.name(), format!("{message:#}"));
        }
    }

    #[test]
    fn unseen_tools_are_listed_without_links() {
        let unseen = (1..=12).map(|number| format!("tool_{number}")).collect();
        let measured = AlertMeasurement { value: 12.0, count: 90, unseen, is_proven: None };
        let notice = notice(measured, vec![example("calls tool_1")]);
        insta::assert_snapshot!(format!("{:#}", notice.to_slack_message(None)));
    }

    #[test]
    fn recorded_text_cannot_mention_or_link() {
        let mut odd = example("<!channel> & <https://evil.example|click>");
        odd.trajectory_id = "a|<b>".to_owned();
        let measured = AlertMeasurement { value: 0.5, count: 3, unseen: vec!["<!here>".to_owned()], is_proven: None };
        let notice = notice(measured, vec![odd]);
        let message = notice.to_slack_message(Some("https://gradus.example"));
        let text = message.to_string();
        assert!(!text.contains("<!") && !text.contains("<https://evil"), "{text}");
        let shown = message["blocks"][3]["text"]["text"].as_str().expect("a text");
        assert_eq!(
            shown,
            "• <https://gradus.example/traces/0af7651916cd43dd8448eb211c80319c?trajectory=a%7C%3Cb%3E#step-3|a/&lt;b&gt; step 3> \
             (score 0.00): &lt;!channel&gt; &amp; &lt;https://evil.example|click&gt;"
        );
        assert_eq!(message["text"], "🔴 Alert: tool &lt;choice&gt;: thought_to_tool is 0.500");
        assert!(message["blocks"][1]["text"]["verbatim"].as_bool().expect("a flag"));
    }

    #[test]
    fn the_largest_notice_is_within_the_limits() {
        let measured = AlertMeasurement { unseen: vec!["&".repeat(900); 99], ..AlertMeasurement::default() };
        let mut notice = notice(measured, vec![example(&"&".repeat(9_000)); 99]);
        notice.rule = "&".repeat(100);
        notice.project = Some("&".repeat(100));
        notice.condition = "&".repeat(1_000);
        notice.subject = "&".repeat(1_000);
        let message = notice.to_slack_message(Some(&format!("https://h/{}", "x".repeat(900))));
        let blocks = message["blocks"].as_array().expect("blocks");
        assert!(blocks.len() <= 50);
        for (index, block) in blocks.iter().enumerate() {
            let length = block["text"]["text"].as_str().expect("a text").chars().count();
            let limit = if index == 0 { 150 } else { 3_000 };
            assert!(length <= limit, "block {index} has {length} characters");
        }
    }
}
