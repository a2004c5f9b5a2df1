//! `gradus config`: which values are in effect and where each came from, and the reference of all of them.

use std::io::{self, Write};

use clap::{Args, Subcommand};
use gradus_core::visible::printable_line;
use gradus_http::mask_secrets;
use serde_json::{Value as Json, json};

use super::serve::ServerOptions;
use super::{CommandExit, print_diagnostic};
use crate::config::{
    ConfigError, ConfigFile, EffectiveConfig, EffectiveValue, EnvironmentVariables, LocatedValues, ShownValue,
    UncheckedFile, ValueSource, format_value, list_variable_groups, render_reference,
};

#[derive(Args)]
pub(super) struct ConfigArguments {
    #[command(subcommand)]
    command: ConfigCommand,
}

#[derive(Subcommand)]
enum ConfigCommand {
    /// Print every setting with its value and where that came from. Secrets are masked.
    Show(Box<ConfigShowArguments>),
    /// Print the reference of all settings and environment variables, as Markdown.
    Reference,
}

#[derive(Args)]
#[command(after_help = EXAMPLES)]
struct ConfigShowArguments {
    /// Print one JSON object.
    #[arg(long)]
    json: bool,
    /// Leave out defaults.
    #[arg(long)]
    changed: bool,
    #[command(flatten)]
    server: ServerOptions,
}

const EXAMPLES: &str = "\
Examples:
  gradus config show                        every value, as a command in this folder sees it
  gradus config show --changed              what differs from the defaults
  gradus config show --config ci/gradus.toml
  gradus config show --json | jq '.values[] | select(.source.kind == \"environment\")'

The options are those of `gradus serve`: a value that one of them sets is shown as such.

Exit codes: 0 shown, 2 the file cannot be read, is not trusted, or `gradus serve` refuses its settings (they are shown all the same).";

/// Minimum number of characters for a part of a path with a digit in it to count as a key.
const MIN_PATH_KEY_CHARS: usize = 16;

/// Entry point of the command.
pub(super) fn run_config_command(arguments: &ConfigArguments) -> anyhow::Result<CommandExit> {
    match &arguments.command {
        ConfigCommand::Reference => {
            anstream::stdout().lock().write_all(render_reference().as_bytes())?;
            Ok(CommandExit::Pass)
        }
        ConfigCommand::Show(arguments) => match ShownConfig::read(arguments) {
            Ok(shown) => shown.print(arguments),
            Err(error) => {
                print_diagnostic(&printable_line(&error.to_string()));
                Ok(CommandExit::BadInput)
            }
        },
    }
}

/// Everything that is shown.
struct ShownConfig {
    file: FileState,
    values: Vec<EffectiveValue>,
    variables: Vec<SetVariable>,
    /// Why a command would not use these settings.
    refusal: Option<String>,
    /// Why no judge can be selected with these settings.
    judge_error: Option<String>,
    /// Why `gradus serve` would not start with them.
    server_error: Option<String>,
}

/// Which file the settings come from.
struct FileState {
    path: Option<String>,
    /// `named`, `found`, or `none`.
    origin: &'static str,
}

/// A variable of the reference that is set.
struct SetVariable {
    name: &'static str,
    /// `None` for a secret.
    value: Option<String>,
}

impl ShownConfig {
    fn read(arguments: &ConfigShowArguments) -> Result<ShownConfig, ConfigError> {
        let environment = EnvironmentVariables::read();
        let named = arguments.server.config_path().or(environment.config.as_deref());
        let found = UncheckedFile::find(named)?;
        let file = FileState {
            path: found.as_ref().map(|file| file.path.display().to_string()),
            origin: match (&found, named) {
                (None, _) => "none",
                (Some(_), Some(_)) => "named",
                (Some(_), None) => "found",
            },
        };
        // A file that nobody trusts is shown, so that people see what they would trust.
        let refusal = match &found {
            Some(file) if named.is_none() => file.check_trust(&environment).err().map(|error| error.to_string()),
            _ => None,
        };
        let (located, settings) = match found {
            Some(file) => (file.located.clone(), file.into_settings()),
            None => (LocatedValues::default(), ConfigFile::default()),
        };
        let judge = settings.judge_config();
        let judge_error = judge.select(&environment.judge_credentials()).err().map(|error| error.to_string());
        let overrides = arguments.server.overrides();
        let config =
            EffectiveConfig { overrides: &overrides, environment: &environment, file: &located, judge: &judge };
        let mut values = config.collect_values();
        if arguments.changed {
            values.retain(|value| value.source != ValueSource::Default);
        }
        // A file that is not trusted is refused before its settings are looked at.
        let server_error = match refusal {
            Some(_) => None,
            None => arguments.server.read_config()?.summary().err().map(|error| error.to_string()),
        };
        Ok(ShownConfig { file, values, variables: list_set_variables(), refusal, judge_error, server_error })
    }

    fn print(&self, arguments: &ConfigShowArguments) -> anyhow::Result<CommandExit> {
        let mut out = anstream::stdout().lock();
        if arguments.json {
            writeln!(out, "{}", serde_json::to_string_pretty(&self.to_json())?)?;
        } else {
            self.print_lines(&mut out)?;
        }
        if let Some(reason) = &self.judge_error {
            print_diagnostic(&format!("judge: {}", printable_line(&mask_secrets(reason))));
        }
        let server_error = self.server_error.as_ref().map(|reason| format!("`gradus serve` refuses: {reason}"));
        Ok(match self.refusal.clone().or(server_error) {
            Some(reason) => {
                print_diagnostic(&printable_line(&mask_secrets(&reason)));
                CommandExit::BadInput
            }
            None => CommandExit::Pass,
        })
    }

    /// Prints `key = value  # source`: lines that can be searched, and mostly copied into a file.
    fn print_lines(&self, out: &mut dyn Write) -> io::Result<()> {
        match &self.file.path {
            Some(path) => writeln!(out, "# configuration file: {} ({})", printable_line(path), self.file.origin)?,
            None => writeln!(out, "# configuration file: none")?,
        }
        for value in &self.values {
            let text = match &value.value {
                ShownValue::Value(json) => format_value(&mask_json(json)),
                ShownValue::Described(words) => format!("({})", words.replace('`', "")),
                ShownValue::Nothing => "none".to_owned(),
            };
            let source = match &value.source {
                ValueSource::Option { name } => format!("option {name}"),
                ValueSource::Environment { name } => format!("environment variable {name}"),
                ValueSource::File { path, line } => format!("{}:{line}", path.display()),
                ValueSource::Default => "default".to_owned(),
            };
            // Values of a file that nobody trusts must not repaint the terminal.
            let setting = printable_line(&mask_secrets(&format!("{} = {text}", value.key)));
            writeln!(out, "{setting}  # {}", printable_line(&mask_secrets(&source)))?;
        }
        writeln!(out, "# environment variables that are set")?;
        for variable in &self.variables {
            let text = variable.value.as_deref().unwrap_or("(set, not shown)");
            writeln!(out, "{}", printable_line(&mask_secrets(&format!("{}={text}", variable.name))))?;
        }
        Ok(())
    }

    fn to_json(&self) -> Json {
        let values: Vec<Json> = self.values.iter().map(describe_value).collect();
        let variables: Vec<Json> = self
            .variables
            .iter()
            .map(|variable| {
                json!({
                    "name": variable.name,
                    "value": variable.value.as_deref().map(mask_secrets),
                    "is_secret": variable.value.is_none(),
                })
            })
            .collect();
        json!({
            "file": {"path": self.file.path, "origin": self.file.origin},
            "refused": self.refusal,
            "judge_error": self.judge_error.as_deref().map(mask_secrets),
            "server_error": self.server_error.as_deref().map(mask_secrets),
            "values": values,
            "environment": variables,
        })
    }
}

/// Returns a value as JSON. `value` is null if nothing is set; `described` then says in words what applies.
fn describe_value(value: &EffectiveValue) -> Json {
    let (shown, described) = match &value.value {
        ShownValue::Value(json) => (mask_json(json), None),
        ShownValue::Described(words) => (Json::Null, Some(words)),
        ShownValue::Nothing => (Json::Null, None),
    };
    let source = match &value.source {
        ValueSource::Option { name } => json!({"kind": "option", "name": name}),
        ValueSource::Environment { name } => json!({"kind": "environment", "name": name}),
        ValueSource::File { path, line } => json!({"kind": "file", "path": path, "line": line}),
        ValueSource::Default => json!({"kind": "default"}),
    };
    json!({"key": value.key, "value": shown, "described": described, "source": source})
}

/// Masks the texts of a value.
fn mask_json(value: &Json) -> Json {
    match value {
        Json::String(text) => json!(mask_secrets(&mask_address(text))),
        Json::Array(values) => values.iter().map(mask_json).collect(),
        Json::Object(entries) => entries.iter().map(|(name, value)| (name.clone(), mask_json(value))).collect(),
        other => other.clone(),
    }
}

/// Returns an address without possible secrets: user and password, long parts of the path, and the whole query. Other
/// texts stay as they are.
fn mask_address(text: &str) -> String {
    let (scheme, rest) = match text.split_once("://") {
        Some((scheme, rest)) => (format!("{scheme}://"), rest),
        None if text.contains('@') && !text.contains(char::is_whitespace) => (String::new(), text),
        None => return text.to_owned(),
    };
    let (address, query) = rest.split_once(['?', '#']).map_or((rest, ""), |(address, _)| (address, "?[redacted]"));
    let (authority, path) = address.find('/').map_or((address, ""), |at| address.split_at(at));
    let host = match authority.rsplit_once('@') {
        Some((_, host)) => format!("[redacted]@{host}"),
        None => authority.to_owned(),
    };
    let is_key = |part: &str| part.len() >= MIN_PATH_KEY_CHARS && part.contains(|c: char| c.is_ascii_digit());
    let path: Vec<&str> = path.split('/').map(|part| if is_key(part) { "[redacted]" } else { part }).collect();
    format!("{scheme}{host}{}{query}", path.join("/"))
}

/// Lists the variables of the reference that are set. Values of secrets are not read.
fn list_set_variables() -> Vec<SetVariable> {
    let groups = list_variable_groups();
    let entries = groups.iter().flat_map(|group| &group.entries);
    let named = entries.flat_map(|entry| entry.names.iter().map(|name| (*name, entry.is_secret)));
    let mut variables = Vec::new();
    for (name, is_secret) in named {
        let Some(value) = std::env::var_os(name).filter(|value| !value.is_empty()) else { continue };
        let value = value.to_string_lossy().into_owned();
        // An address may contain a password.
        gradus_http::register_url_secrets(&value);
        variables.push(SetVariable { name, value: (!is_secret).then(|| mask_address(&value)) });
    }
    variables
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_are_shown_without_what_may_be_secret() {
        for (address, shown) in [
            ("https://gw.example/v1", "https://gw.example/v1"),
            ("https://gw.example/v1/sk-proj-abcdefghij0123", "https://gw.example/v1/[redacted]"),
            ("https://ann:pw@gw.example:8/v1?token=short", "https://[redacted]@gw.example:8/v1?[redacted]"),
            ("ann:pw@gw.example:8", "[redacted]@gw.example:8"),
            ("http://gw.example#key", "http://gw.example?[redacted]"),
            ("127.0.0.1:4318", "127.0.0.1:4318"),
            ("a rule @ home", "a rule @ home"),
        ] {
            assert_eq!(mask_address(address), shown);
        }
    }
}
