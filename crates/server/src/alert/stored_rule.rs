//! Alert rules that people make on the page. They are stored as JSON and exported as TOML. They have no command: what
//! the server runs is named in `gradus.toml` only.

use serde::{Deserialize, Serialize};

use super::rule::{AlertSection, ClearingThreshold};

/// An `[[alert]]` table without `command` and `env`. Absent keys have the defaults of the file.
#[derive(Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct StoredAlertRule {
    pub name: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub project: Option<String>,
    pub when: String,
    /// In the form of the threshold in `when`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub clear_at: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cool_down: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub webhook: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub slack: Option<String>,
}

/// Omits the addresses, which are secrets.
impl std::fmt::Debug for StoredAlertRule {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("StoredAlertRule").field("name", &self.name).field("when", &self.when).finish_non_exhaustive()
    }
}

impl StoredAlertRule {
    /// The same rule as a table of the settings, to be checked like one.
    pub fn to_section(&self) -> AlertSection {
        let StoredAlertRule { name, project, when, clear_at, cool_down, webhook, slack } = self.clone();
        AlertSection {
            name,
            project,
            when,
            clear_at: clear_at.map(ClearingThreshold::Text),
            cool_down,
            webhook,
            slack,
            command: None,
            env: Vec::new(),
        }
    }
}

/// Rules as they can be pasted into `gradus.toml`, addresses included.
pub fn export_rules_toml(rules: &[StoredAlertRule]) -> String {
    #[derive(Serialize)]
    struct AlertTables<'r> {
        alert: &'r [StoredAlertRule],
    }
    // Fails only for values that TOML cannot express, of which a rule has none.
    toml::to_string(&AlertTables { alert: rules }).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::alert::{AlertRule, AlertableEvaluator};

    #[test]
    fn an_exported_rule_is_read_as_it_was() {
        let rule = StoredAlertRule {
            name: "tool \"choice\"\\".to_owned(),
            project: Some("shop-*".to_owned()),
            when: "fit < 80% over 1h, at least 30 steps".to_owned(),
            clear_at: Some("85%".to_owned()),
            cool_down: Some("2h".to_owned()),
            webhook: Some("https://hooks.example/x?token=k".to_owned()),
            slack: None,
        };
        #[derive(Deserialize)]
        struct Tables {
            alert: Vec<AlertSection>,
        }
        let text = export_rules_toml(&[rule.clone(), StoredAlertRule { name: "n".to_owned(), ..rule.clone() }]);
        let tables: Tables = toml::from_str(&text).expect("TOML");
        let known = [AlertableEvaluator { name: "fit", worst: 0.0, best: 1.0, gives_only_flags: false }];
        let read = |section| AlertRule::from_section(section, &known).expect("a rule");
        assert_eq!(tables.alert.len(), 2);
        assert_eq!(read(tables.alert[0].clone()), read(rule.to_section()));
    }

    #[test]
    fn no_stored_rule_has_a_command() {
        let text = r#"{"name": "n", "when": "unseen_tool over 7d", "command": ["sh"]}"#;
        assert!(serde_json::from_str::<StoredAlertRule>(text).is_err());
    }
}
