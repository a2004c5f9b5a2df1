//! Alert rules: condition, hysteresis, cool-down and targets. Read from the `[[alert]]` tables of `gradus.toml`.

use std::fmt;
use std::time::Duration;

use gradus_host::child_environment::find_invalid_variable_name;
use schemars::JsonSchema;
use serde::Deserialize;

use super::condition::{AlertCondition, AlertThreshold, ConditionError};
use super::subject::{AlertMetric, AlertableEvaluator, round_to_nine_decimals};
use super::target::{AlertTarget, WebhookUrl, WebhookUrlError};
use gradus_core::duration_text::parse_duration;

/// A checked rule. State is stored under its name, so names are unique within the settings.
#[derive(Clone, Debug, PartialEq)]
pub struct AlertRule {
    pub name: String,
    /// Only this project; all projects if none is named.
    pub project: Option<String>,
    pub condition: AlertCondition,
    /// The alert is over once the value is back past this one; by default a tenth beyond the threshold. Without a
    /// distance between the two (hysteresis), a value that oscillates around the threshold fires again and again.
    pub clear_at: Option<f64>,
    /// Minimum time between two notices of the same rule. The notice that it is resolved is exempt.
    pub cool_down: Duration,
    /// Always contains the log.
    pub targets: Vec<AlertTarget>,
}

/// When people are notified, and how. Every notice is also logged.
// Attributes for the reference: see `serve_section`. The tables are as written, before any check.
#[derive(Clone, Default, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct AlertSection {
    /// Unique, 1 to 100 characters.
    #[schemars(extend("x-default-text" = "required"))]
    pub name: String,
    /// Only this project, as in a rule.
    #[schemars(extend("x-default-text" = "all projects"))]
    pub project: Option<String>,
    /// The [condition](alerts.md#conditions): `thought_to_tool < 0.8 over 1h, at least 30 steps`.
    #[schemars(extend("x-default-text" = "required"))]
    pub when: String,
    /// When the alert is over, in the form of the threshold in `when`: `0.85`, `"85%"`, `"25s"`.
    #[schemars(extend("x-type" = "number or text", "x-default-text" = "ten percent beyond the threshold"))]
    pub clear_at: Option<ClearingThreshold>,
    /// Minimum time between two notices.
    #[schemars(extend("x-type" = "duration", "x-default" = DEFAULT_COOL_DOWN))]
    pub cool_down: Option<String>,
    /// Receives the notice as JSON. `gradus config show` shows scheme and host only.
    #[schemars(extend("x-type" = "URL", "x-trust" = "yes", "x-secret" = "url"))]
    pub webhook: Option<String>,
    /// Receives a Slack-compatible payload.
    #[schemars(extend("x-type" = "URL", "x-trust" = "yes", "x-secret" = "url"))]
    pub slack: Option<String>,
    /// A program and its arguments, started without a shell.
    #[schemars(extend("x-trust" = "yes", "x-secret" = "command"))]
    pub command: Option<Vec<String>>,
    /// Variables that the command gets in addition to `PATH` and the like. A name may end in `*`.
    #[serde(default)]
    #[schemars(extend("x-trust" = "yes"))]
    pub env: Vec<String>,
}

/// Omits the addresses, which are secrets, and the command, which may contain some.
impl fmt::Debug for AlertSection {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("AlertSection")
            .field("name", &self.name)
            .field("project", &self.project)
            .field("when", &self.when)
            .finish_non_exhaustive()
    }
}

/// A threshold with a unit is a string in TOML, one without is a number.
#[derive(Clone, Debug, Deserialize, JsonSchema)]
#[serde(untagged, expecting = "clear_at takes a number, or a text as \"85%\" or \"25s\"")]
pub enum ClearingThreshold {
    Number(f64),
    Text(String),
}

/// Default of `cool_down`.
const DEFAULT_COOL_DOWN: &str = "30m";
/// Maximum length of a name. Names are used in logs, headings of messages and the environment of a command.
const MAX_RULE_NAME_CHARS: usize = 100;

/// Why an `[[alert]]` table is not a rule. The message is one line that names the rule, since a file may have many.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum AlertRuleError {
    /// The rule has no usable name, so the message cannot name it.
    #[error("an alert's name has 1 to {MAX_RULE_NAME_CHARS} characters on one line, as in name = \"tool choice\"")]
    Name,
    /// Boxed to keep the `Result` of a valid rule small.
    #[error("alert {rule:?}: {}: {error}", .error.key())]
    Setting {
        rule: String,
        #[source]
        error: Box<AlertSettingError>,
    },
}

/// What is wrong with the value of one key of an `[[alert]]` table. No message repeats an address or a command, which
/// may contain secrets.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum AlertSettingError {
    #[error("a project's name has 1 to {MAX_RULE_NAME_CHARS} characters on one line")]
    Project,
    #[error(transparent)]
    Condition(ConditionError),
    /// `unseen_tool` and `judge_drift` compare no value, so there is none at which the alert could be over.
    #[error("{subject} has no value to come back; leave clear_at out")]
    NeedlessClearAt { subject: String },
    #[error("{text:?} does not fit {subject}; write {form}")]
    ClearAt { text: String, subject: String, form: String },
    /// The alert would be over while its condition still holds.
    #[error("{text} is on the bad side of '{condition}'; write a value {side} {threshold}")]
    ClearAtSide { text: String, condition: String, side: &'static str, threshold: String },
    #[error("{text:?} is no length of time; write 90s, 30m, 1h or 7d")]
    CoolDown { text: String },
    #[error(transparent)]
    Webhook(WebhookUrlError),
    #[error(transparent)]
    Slack(WebhookUrlError),
    #[error("the first text is the program, as in command = [\"notify\", \"--urgent\"]")]
    Command,
    #[error("{name:?} is not the name of a variable; write env = [\"SMTP_HOST\"]")]
    Variable { name: String },
    #[error("only a command has an environment; add command = [\"notify\"]")]
    NeedlessEnvironment,
}

impl AlertSettingError {
    /// The key of the table that the error is about.
    fn key(&self) -> &'static str {
        match self {
            AlertSettingError::Project => "project",
            AlertSettingError::Condition(_) => "when",
            AlertSettingError::NeedlessClearAt { .. }
            | AlertSettingError::ClearAt { .. }
            | AlertSettingError::ClearAtSide { .. } => "clear_at",
            AlertSettingError::CoolDown { .. } => "cool_down",
            AlertSettingError::Webhook(_) => "webhook",
            AlertSettingError::Slack(_) => "slack",
            AlertSettingError::Command => "command",
            AlertSettingError::Variable { .. } | AlertSettingError::NeedlessEnvironment => "env",
        }
    }
}

impl AlertRule {
    /// Checks a table of the settings. Its condition may name one of `known_evaluators` or a built-in metric.
    pub fn from_section(
        section: AlertSection,
        known_evaluators: &[AlertableEvaluator<'_>],
    ) -> Result<AlertRule, AlertRuleError> {
        let AlertSection { name, project, when, clear_at, cool_down, webhook, slack, command, env } = section;
        let name = name.trim().to_owned();
        if !is_rule_name(&name) {
            return Err(AlertRuleError::Name);
        }
        let wrong = |error: AlertSettingError| AlertRuleError::Setting { rule: name.clone(), error: Box::new(error) };
        if project.as_deref().is_some_and(|project| !is_rule_name(project)) {
            return Err(wrong(AlertSettingError::Project));
        }
        let condition = AlertCondition::parse(&when, known_evaluators)
            .map_err(|error| wrong(AlertSettingError::Condition(error)))?;
        let clear_at = clear_at.map(|clear_at| read_clear_at(&condition, &clear_at)).transpose().map_err(wrong)?;
        let text = cool_down.unwrap_or_else(|| DEFAULT_COOL_DOWN.to_owned());
        let Some(cool_down) = parse_duration(text.trim()) else {
            return Err(wrong(AlertSettingError::CoolDown { text }));
        };
        // The log is always a target: a notice is then on record even if nothing else can be reached.
        let mut targets = vec![AlertTarget::Log];
        if let Some(url) = webhook {
            let url = WebhookUrl::parse(&url).map_err(|error| wrong(AlertSettingError::Webhook(error)))?;
            targets.push(AlertTarget::Webhook(url));
        }
        if let Some(url) = slack {
            let url = WebhookUrl::parse(&url).map_err(|error| wrong(AlertSettingError::Slack(error)))?;
            targets.push(AlertTarget::Slack(url));
        }
        if let Some(words) = command {
            let is_program = words.first().is_some_and(|program| !program.trim().is_empty());
            // The operating system ends arguments at a NUL, so one would silently cut the command.
            if !is_program || words.iter().any(|word| word.contains('\0')) {
                return Err(wrong(AlertSettingError::Command));
            }
            if let Some(name) = find_invalid_variable_name(&env) {
                return Err(wrong(AlertSettingError::Variable { name: name.to_owned() }));
            }
            targets.push(AlertTarget::Command { words, env });
        } else if !env.is_empty() {
            return Err(wrong(AlertSettingError::NeedlessEnvironment));
        }
        Ok(AlertRule { name, project, condition, clear_at, cool_down, targets })
    }

    /// Returns the value at which the alert is over. None for conditions without a comparison.
    pub fn clears_at(&self) -> Option<f64> {
        self.clear_at.or_else(|| Some(default_clear_at(&self.condition.subject, &self.condition.bar?)))
    }

    /// Whether the value is past the clearing threshold. A value that still meets the condition is never clear,
    /// whatever `clear_at` says.
    pub fn is_clear(&self, bar: &AlertThreshold, value: f64) -> bool {
        let clear_at = self.clears_at().unwrap_or(bar.threshold);
        let is_past = if bar.comparison.is_below() { value >= clear_at } else { value <= clear_at };
        is_past && !bar.is_met_by(value)
    }
}

/// Whether a text is a valid name: one line, not blank, without control characters, of bounded length.
fn is_rule_name(text: &str) -> bool {
    !text.trim().is_empty() && text.chars().count() <= MAX_RULE_NAME_CHARS && !text.chars().any(char::is_control)
}

/// Returns the default: a tenth of the distance from the worst possible value to the threshold, on the good side of
/// the threshold.
fn default_clear_at(subject: &AlertMetric, bar: &AlertThreshold) -> f64 {
    let (low, high) = subject.value_range();
    let margin = 0.1 * (bar.threshold - low);
    round_to_nine_decimals(match bar.comparison.is_below() {
        false => bar.threshold - margin,
        // A tenth above 0.95 exceeds the largest possible share and could never be reached, so the distance is at
        // most half of what is left.
        true => bar.threshold + margin.min((high - bar.threshold) / 2.0),
    })
}

/// Reads `clear_at` in the unit of the condition's threshold. It has to lie on the side where the condition does not
/// hold; the threshold itself is allowed.
fn read_clear_at(condition: &AlertCondition, clear_at: &ClearingThreshold) -> Result<f64, AlertSettingError> {
    let (subject, Some(bar)) = (&condition.subject, &condition.bar) else {
        return Err(AlertSettingError::NeedlessClearAt { subject: condition.subject.to_string() });
    };
    let text = match clear_at {
        ClearingThreshold::Number(number) => number.to_string(),
        ClearingThreshold::Text(text) => text.clone(),
    };
    let Some(value) = subject.parse_threshold(&text) else {
        let form = subject.threshold_form();
        return Err(AlertSettingError::ClearAt { text, subject: subject.to_string(), form });
    };
    let (is_good_side, side) = match bar.comparison.is_below() {
        true => (value >= bar.threshold, "at or above"),
        false => (value <= bar.threshold, "at or below"),
    };
    if is_good_side {
        return Ok(value);
    }
    Err(AlertSettingError::ClearAtSide {
        text,
        condition: condition.to_string(),
        side,
        threshold: subject.format_value(bar.threshold),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(toml: &str) -> Result<AlertRule, String> {
        let section = toml::from_str(toml).map_err(|error| error.message().to_owned())?;
        let shares = AlertableEvaluator { name: "thought_to_tool", worst: 0.0, best: 1.0, gives_only_flags: false };
        AlertRule::from_section(
            section,
            &[shares, AlertableEvaluator { name: "helpful", worst: 1.0, best: 5.0, gives_only_flags: false }],
        )
        .map_err(|error| error.to_string())
    }

    fn clears_at(when: &str) -> f64 {
        read(&format!("name = \"n\"\nwhen = \"{when}\"")).expect("a rule").clears_at().expect("a value")
    }

    #[test]
    fn reads_a_whole_table() {
        let rule = read(
            "name = \"tool choice\"\nproject = \"shop\"\nwhen = \"thought_to_tool < 0.8 over 1h, at least 30 steps\"\n\
             clear_at = 0.85\ncool_down = \"2h\"\nwebhook = \"https://h.example/x\"\nslack = \"https://s.example/y\"\n\
             command = [\"notify\", \"-u\"]",
        )
        .expect("a rule");
        assert_eq!((rule.name.as_str(), rule.project.as_deref()), ("tool choice", Some("shop")));
        assert_eq!((rule.clears_at(), rule.cool_down.as_secs()), (Some(0.85), 7200));
        let kinds: Vec<&str> = rule.targets.iter().map(|target| target.kind().name()).collect();
        assert_eq!(kinds, ["log", "webhook", "slack", "command"]);
    }

    #[test]
    fn what_is_left_out_has_a_default() {
        let rule = read("name = \"n\"\nwhen = \"unseen_tool over 7d\"").expect("a rule");
        assert_eq!((rule.cool_down.as_secs(), rule.clears_at()), (1800, None));
        assert_eq!(rule.targets, [AlertTarget::Log]);
    }

    #[test]
    fn the_margin_is_towards_the_good_side_and_can_be_reached() {
        let near = |value: f64, wanted: f64| assert!((value - wanted).abs() < 1e-9, "{value} is not {wanted}");
        near(clears_at("thought_to_tool < 0.8 over 1h"), 0.88);
        near(clears_at("thought_to_tool < 0.98 over 1h"), 0.99);
        near(clears_at("thought_to_tool < 1 over 1h"), 1.0);
        // On a scale of its own, by what is above its worst.
        near(clears_at("helpful < 3 over 1h"), 3.2);
        near(clears_at("helpful < 4.8 over 1h"), 4.9);
        near(clears_at("helpful > 2 over 1h"), 1.9);
        near(clears_at("error_rate > 10% over 1h"), 0.09);
        near(clears_at("error_rate > 0 over 1h"), 0.0);
        near(clears_at("latency_p95 > 30s over 1h"), 27.0);
        near(clears_at("latency_p95 < 1s over 1h"), 1.1);
    }

    #[test]
    fn clear_at_has_the_units_of_the_threshold() {
        let rule = |clear_at: &str| {
            read(&format!("name = \"n\"\nwhen = \"latency_p95 > 30s over 1h\"\nclear_at = {clear_at}"))
        };
        assert_eq!(rule("\"500ms\"").expect("a rule").clear_at, Some(0.5));
        assert!(rule("25").expect_err("no unit").contains("as 30s or 500ms"));
        assert!(rule("\"31s\"").expect_err("the bad side").contains("at or below 30s"));
        assert!(rule("true").expect_err("no number").contains("a number, or a text"));
    }

    #[test]
    fn errors_are_one_line_and_name_the_rule() {
        let when = "when = \"error_rate > 0.1 over 1h\"\n";
        let tables = [
            "name = \" \"\nwhen = \"x\"".to_owned(),
            "name = \"a\\nb\"\nwhen = \"x\"".to_owned(),
            "name = \"n\"\nwhen = \"eror_rate > 0.1 over 1h\"".to_owned(),
            format!("name = \"n\"\n{when}cool_down = \"soon\""),
            format!("name = \"n\"\n{when}webhook = \"ftp://h/secret\""),
            format!("name = \"n\"\n{when}command = []"),
            format!("name = \"n\"\n{when}clear_at = 0.2"),
            format!("name = \"n\"\n{when}project = \"\""),
            format!("name = \"n\"\n{when}channel = \"x\""),
            "name = \"n\"\nwhen = \"unseen_tool over 7d\"\nclear_at = 1".to_owned(),
            format!("name = \"n\"\n{when}clear_at = \"soon\""),
            format!("name = \"n\"\n{when}webhook = \"secret\""),
            format!("name = \"n\"\n{when}slack = \"ftp://h/secret\""),
            format!("name = \"n\"\n{when}command = [\"notify\"]\nenv = [\"A=1\"]"),
            format!("name = \"n\"\n{when}env = [\"SMTP_HOST\"]"),
        ];
        let messages = tables.map(|toml| read(&toml).expect_err("a wrong table"));
        for message in &messages {
            assert!(!message.contains('\n') && !message.contains("secret"), "{message}");
        }
        insta::assert_snapshot!(messages.join("\n"));
    }
}
