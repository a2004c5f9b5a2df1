//! The values that are in effect, each with its source: option, environment, file with line, or default.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use gradus_eval::judge_selection::{JudgeChoice, JudgeConfig};
use gradus_llm::ModelProvider;
use gradus_server::alert::WebhookUrl;
use serde_json::{Value as Json, json};
use toml::de::{DeTable, DeValue};

use super::environment::EnvironmentVariables;
use super::keys::{ConfigKey, ConfigTable, KeyDefault, SecretForm, list_config_tables};

/// Replaces values that may be secrets.
const MASK: &str = "[redacted]";

/// Where a value came from.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum ValueSource {
    Option { name: &'static str },
    Environment { name: &'static str },
    File { path: PathBuf, line: usize },
    Default,
}

/// One key with its value.
#[derive(Clone, Debug)]
pub(crate) struct EffectiveValue {
    /// `serve.quiet_s`, `rule[0].judge`.
    pub(crate) key: String,
    pub(crate) value: ShownValue,
    pub(crate) source: ValueSource,
}

/// A value without secrets.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum ShownValue {
    Value(Json),
    /// The default depends on something else, which the text names.
    Described(String),
    Nothing,
}

/// A value of the command line.
#[derive(Clone, Debug)]
pub(crate) struct ConfigOverride {
    /// `serve.http`.
    pub(crate) key: &'static str,
    pub(crate) option: &'static str,
    pub(crate) value: Json,
}

/// The keys of a file with their lines.
#[derive(Clone, Debug, Default)]
pub(crate) struct LocatedValues {
    path: PathBuf,
    /// By key as in `EffectiveValue`. Tables and lists of tables are in it as well.
    values: BTreeMap<String, (usize, Json)>,
}

impl LocatedValues {
    /// Finds the lines of all keys. `text` is what the settings were read from, so it is valid TOML.
    pub(super) fn parse(path: &Path, text: &str) -> Result<LocatedValues, toml::de::Error> {
        let values: Json = toml::from_str(text)?;
        let located = DeTable::parse(text)?;
        let mut found = LocatedValues { path: path.to_owned(), values: BTreeMap::new() };
        found.add_table("", located.get_ref(), &values, text);
        Ok(found)
    }

    fn add_table(&mut self, prefix: &str, table: &DeTable<'_>, values: &Json, text: &str) {
        for (name, located) in table {
            let plain: &str = name.get_ref();
            let key = if prefix.is_empty() { plain.to_owned() } else { format!("{prefix}.{plain}") };
            let value = &values[plain];
            let line = text[..name.span().start].matches('\n').count() + 1;
            match located.get_ref() {
                DeValue::Table(inner) => self.add_table(&key, inner, value, text),
                DeValue::Array(entries) => {
                    for (index, entry) in entries.iter().enumerate() {
                        if let DeValue::Table(inner) = entry.get_ref() {
                            self.add_table(&format!("{key}[{index}]"), inner, &value[index], text);
                        }
                    }
                }
                _ => {}
            }
            self.values.insert(key, (line, value.clone()));
        }
    }

    /// Returns how many entries a list of tables has.
    fn entry_count(&self, key: &str) -> usize {
        self.values.get(key).and_then(|(_, value)| value.as_array()).map_or(0, Vec::len)
    }
}

/// Collects the value of every key.
pub(crate) struct EffectiveConfig<'c> {
    pub(crate) overrides: &'c [ConfigOverride],
    pub(crate) environment: &'c EnvironmentVariables,
    pub(crate) file: &'c LocatedValues,
    /// The judge by the file alone.
    pub(crate) judge: &'c JudgeConfig,
}

impl EffectiveConfig<'_> {
    /// Collects all values, in the order of the reference. A list of tables that is empty is one value.
    pub(crate) fn collect_values(&self) -> Vec<EffectiveValue> {
        let mut values = Vec::new();
        for table in list_config_tables() {
            if !table.is_array {
                self.add_table(&table, &table.path, &mut values);
                continue;
            }
            let count = self.file.entry_count(&table.path);
            if count == 0 {
                let (key, value) = (table.path.clone(), ShownValue::Value(json!([])));
                values.push(EffectiveValue { key, value, source: ValueSource::Default });
            }
            for index in 0..count {
                self.add_table(&table, &format!("{}[{index}]", table.path), &mut values);
            }
        }
        values
    }

    fn add_table(&self, table: &ConfigTable, path: &str, values: &mut Vec<EffectiveValue>) {
        for key in &table.keys {
            let name = if path.is_empty() { key.name.clone() } else { format!("{path}.{}", key.name) };
            let (value, source) = self.find_value(&name, key);
            values.push(EffectiveValue { key: name, value, source });
        }
    }

    fn find_value(&self, name: &str, key: &ConfigKey) -> (ShownValue, ValueSource) {
        if let Some(given) = self.overrides.iter().find(|given| given.key == name) {
            return (ShownValue::Value(given.value.clone()), ValueSource::Option { name: given.option });
        }
        if let Some((value, variable)) = self.find_variable(name) {
            return (ShownValue::Value(json!(value)), ValueSource::Environment { name: variable });
        }
        if let Some((line, value)) = self.file.values.get(name) {
            let source = ValueSource::File { path: self.file.path.clone(), line: *line };
            return (ShownValue::Value(self.show_file_value(key, value)), source);
        }
        let value = match &key.default {
            KeyDefault::Value(value) => ShownValue::Value(value.clone()),
            KeyDefault::Described(words) => ShownValue::Described(words.clone()),
            KeyDefault::Nothing => ShownValue::Nothing,
        };
        // The judge depends on more than its key, so that it is decided as a command decides it.
        match (name, self.judge.select(&self.environment.judge_credentials())) {
            ("judge.name", Ok(JudgeChoice::Offline { .. })) => {
                (ShownValue::Value(json!(gradus_eval::evaluator::OFFLINE_JUDGE)), ValueSource::Default)
            }
            ("judge.name", Ok(JudgeChoice::Model(endpoint))) => {
                (ShownValue::Value(json!(endpoint.model)), self.judge_reason())
            }
            ("judge.base_url", Ok(JudgeChoice::Model(endpoint))) => {
                (ShownValue::Value(json!(endpoint.base_url)), ValueSource::Default)
            }
            _ => (value, ValueSource::Default),
        }
    }

    /// Returns the variable that wins over a key of the file.
    fn find_variable(&self, name: &str) -> Option<(String, &'static str)> {
        let environment = self.environment;
        match name {
            "state_dir" => Some((environment.state_dir.as_ref()?.display().to_string(), "GRADUS_STATE_DIR")),
            "judge.name" => Some((environment.openai_model.clone()?, "OPENAI_MODEL")),
            "judge.base_url" => {
                // A key must not be sent to another provider's address, so the variable counts for its provider only.
                let choice = self.judge.select(&environment.judge_credentials()).ok()?;
                let JudgeChoice::Model(endpoint) = choice else { return None };
                match (endpoint.local_server, endpoint.provider) {
                    (Some(_), _) => None,
                    (None, ModelProvider::OpenAi) => Some((environment.openai_base_url.clone()?, "OPENAI_BASE_URL")),
                    (None, ModelProvider::Anthropic) => {
                        Some((environment.anthropic_base_url.clone()?, "ANTHROPIC_BASE_URL"))
                    }
                }
            }
            _ => None,
        }
    }

    /// Returns why a model judges that nobody named.
    fn judge_reason(&self) -> ValueSource {
        let environment = self.environment;
        let name = if environment.openai_key.is_some() {
            "OPENAI_API_KEY"
        } else if environment.openai_base_url.is_some() {
            "OPENAI_BASE_URL"
        } else if let Some((line, _)) = self.file.values.get("judge.base_url") {
            return ValueSource::File { path: self.file.path.clone(), line: *line };
        } else {
            "ANTHROPIC_API_KEY"
        };
        ValueSource::Environment { name }
    }

    /// Returns a value of the file as it is used: paths are relative to the working directory, and secrets are
    /// masked.
    fn show_file_value(&self, key: &ConfigKey, value: &Json) -> Json {
        if let Some(form) = key.secret {
            return json!(mask_value(form, value));
        }
        if let Some(url) = value.as_str() {
            gradus_http::register_url_secrets(url);
        }
        if !key.is_path() {
            return value.clone();
        }
        let folder = self.file.path.parent().unwrap_or(Path::new(""));
        let join = |path: &Json| path.as_str().map_or(Json::Null, |path| json!(folder.join(path)));
        match value.as_array() {
            Some(paths) => paths.iter().map(join).collect(),
            None => join(value),
        }
    }
}

fn mask_value(form: SecretForm, value: &Json) -> String {
    match form {
        SecretForm::Url => {
            let url = value.as_str().and_then(|text| WebhookUrl::parse(text).ok());
            url.map_or_else(|| MASK.to_owned(), |url| url.to_string())
        }
        SecretForm::Command => match value.as_array().map(Vec::as_slice) {
            Some([program]) => program.as_str().unwrap_or(MASK).to_owned(),
            Some([program, ..]) => format!("{} {MASK}", program.as_str().unwrap_or(MASK)),
            _ => MASK.to_owned(),
        },
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn show(text: &str, environment: &EnvironmentVariables) -> BTreeMap<String, (ShownValue, ValueSource)> {
        let file = LocatedValues::parse(Path::new("sub/gradus.toml"), text).expect("TOML");
        let settings: super::super::ConfigFile = toml::from_str(text).expect("settings");
        let judge = settings.judge_config();
        let config = EffectiveConfig { overrides: &[], environment, file: &file, judge: &judge };
        config.collect_values().into_iter().map(|one| (one.key, (one.value, one.source))).collect()
    }

    fn line(line: usize) -> ValueSource {
        ValueSource::File { path: PathBuf::from("sub/gradus.toml"), line }
    }

    #[test]
    fn values_have_the_line_that_sets_them() {
        let text = "state_dir = 'here'\n[serve]\nquiet_s = 2\nretention.max_age = '1d'\n\
            [[rule]]\nproject = 'a'\n[[rule]]\njudge = 'offline'\n[eval]\nrubrics = ['r', '/abs']\n";
        let shown = show(text, &EnvironmentVariables::default());
        assert_eq!(shown["state_dir"], (ShownValue::Value(json!("sub/here")), line(1)));
        assert_eq!(shown["serve.quiet_s"], (ShownValue::Value(json!(2)), line(3)));
        assert_eq!(shown["serve.retention.max_age"], (ShownValue::Value(json!("1d")), line(4)));
        assert_eq!(shown["rule[0].project"], (ShownValue::Value(json!("a")), line(6)));
        assert_eq!(shown["rule[0].judge"], (ShownValue::Value(json!("offline")), ValueSource::Default));
        assert_eq!(shown["rule[1].judge"], (ShownValue::Value(json!("offline")), line(8)));
        assert_eq!(shown["eval.rubrics"], (ShownValue::Value(json!(["sub/r", "/abs"])), line(10)));
        assert_eq!(shown["serve.give_up_s"], (ShownValue::Value(json!(60.0)), ValueSource::Default));
        assert_eq!(shown["alert"], (ShownValue::Value(json!([])), ValueSource::Default));
        assert_eq!(shown["judge.name"], (ShownValue::Value(json!("offline")), ValueSource::Default));
    }

    #[test]
    fn the_environment_wins_as_it_does_for_a_command() {
        let variable = |name| ValueSource::Environment { name };
        let environment = EnvironmentVariables {
            openai_key: Some(gradus_http::SecretString::new("sk-effective-test")),
            openai_base_url: Some("http://127.0.0.1:9/v1".to_owned()),
            state_dir: Some(PathBuf::from("/state")),
            ..EnvironmentVariables::default()
        };
        let shown = show("[judge]\nname = 'gpt-x'\nbase_url = 'http://file/v1'\n", &environment);
        assert_eq!(shown["judge.name"], (ShownValue::Value(json!("gpt-x")), line(2)));
        let url = ShownValue::Value(json!("http://127.0.0.1:9/v1"));
        assert_eq!(shown["judge.base_url"], (url, variable("OPENAI_BASE_URL")));
        assert_eq!(shown["state_dir"].1, variable("GRADUS_STATE_DIR"));
        // The variable is OpenAI's: a local server and the offline judge do not use it.
        let shown = show("[judge]\nname = 'ollama:m'\nbase_url = 'http://file/v1'\n", &environment);
        assert_eq!(shown["judge.base_url"], (ShownValue::Value(json!("http://file/v1")), line(3)));
        // Nobody names a judge: the key decides.
        assert_eq!(show("", &environment)["judge.name"].1, variable("OPENAI_API_KEY"));
    }

    #[test]
    fn secrets_are_masked() {
        let text = "[[alert]]\nname = 'a'\nwhen = 'w'\nwebhook = 'https://h.example/T0/secret-path'\nslack = 'nonsense'\n\
            command = ['page', '--token', 'hunter22']\n";
        let shown = show(text, &EnvironmentVariables::default());
        let all = format!("{shown:?}");
        assert!(!all.contains("secret-path") && !all.contains("hunter22") && !all.contains("nonsense"), "{all}");
        assert_eq!(shown["alert[0].command"].0, ShownValue::Value(json!("page [redacted]")));
        assert!(all.contains("h.example"), "{all}");
    }
}
