//! The reference page of all settings, as Markdown: `docs/reference/configuration.md` is what this module writes.

use std::fmt::Write as _;

use gradus_host::child_environment::PASSED_VARIABLES;
use serde_json::Value as Json;

use super::keys::{ConfigKey, ConfigTable, KeyDefault, list_config_tables};
use super::variables::{PROGRAM_VARIABLES, list_variable_groups};

const INTRODUCTION: &str = "\
# Configuration

<!-- Generated from the code by `gradus config reference`. Change the documentation comments of the types instead. -->

This page lists every key of the configuration file and every environment variable. [`gradus config show`](config.md) \
prints the value of each and where it came from.

Gradus reads the file named with `--config` or `GRADUS_CONFIG`, otherwise `gradus.toml` in the working directory. A \
command-line option overrides the environment, the environment overrides the file, the file overrides the default. \
Unknown keys are an error with file and line. API keys are never in the file.

Relative paths start at the folder of the file. A file that is found, and not named, needs [trust](trust.md) before it \
may run programs, name addresses or models, listen for other machines, leave its folder or delete traces. The column \
*trust* marks these keys.

[`gradus init`](init.md) writes a commented file to begin with.
";

const RELOADING: &str = "\
## Reloading

`gradus serve` reloads `[[rule]]`, `[[alert]]`, `[[serve.redact]]`, `[serve.retention]`, `calibration`, `[phoenix]` and \
rubrics on `SIGHUP`. Other keys need a restart.
";

const VARIABLES: &str = "\
## Environment variables

An empty variable counts as not set. Keys are taken from the environment only, never from the file. \
`gradus agent --api-key-env`, `gradus agent --token-env`, `gradus bench --model-key-env` and `$NAME` in \
`gradus experiment --agent-header` name other variables. `gradus export --scrub` reads the values of all variables, to \
find secrets in texts.
";

const PROGRAMS: &str = "\
### Variables for programs

Programs that Gradus starts get a [cleaned environment](trust.md#programs-that-gradus-starts): of the variables above and \
of all others, only those of the first row, unless you name more.
";

/// Renders the whole page.
pub(crate) fn render_reference() -> String {
    let mut page = INTRODUCTION.to_owned();
    for table in list_config_tables() {
        write_table(&mut page, &table);
    }
    page.push('\n');
    page.push_str(RELOADING);
    page.push('\n');
    page.push_str(VARIABLES);
    for group in list_variable_groups() {
        let _ = write!(page, "\n### {}\n\n| variable | option | meaning |\n|---|---|---|\n", group.title);
        for entry in group.entries {
            let option = entry.option.map(format_options).unwrap_or_default();
            let secret = if entry.is_secret { " (secret: never shown)" } else { "" };
            let _ = writeln!(page, "| {} | {option} | {}{secret} |", format_names(&entry.names), entry.meaning);
        }
    }
    page.push('\n');
    page.push_str(PROGRAMS);
    page.push_str("\n| program | variables | described in |\n|---|---|---|\n");
    let _ = writeln!(
        page,
        "| every program | {}, `LC_*` | [gradus trust](trust.md#programs-that-gradus-starts) |",
        format_names(&PASSED_VARIABLES)
    );
    for (program, names, link) in PROGRAM_VARIABLES {
        let _ = writeln!(page, "| {program} | {} | {link} |", format_names(names));
    }
    page
}

fn write_table(page: &mut String, table: &ConfigTable) {
    let (path, level) = (&table.path, if table.path.contains('.') { "###" } else { "##" });
    let heading = match (path.as_str(), table.is_array) {
        ("", _) => "Top level".to_owned(),
        (path, true) => format!("[[{path}]]"),
        (path, false) => format!("[{path}]"),
    };
    let _ = write!(page, "\n{level} {heading}\n\n");
    // The text of the top level is the introduction.
    if !path.is_empty() {
        let _ = write!(page, "{}\n\n", table.meaning);
    }
    page.push_str("| key | type | default | option | trust | meaning |\n|---|---|---|---|---|---|\n");
    for key in &table.keys {
        let _ = writeln!(
            page,
            "| `{}` | {} | {} | {} | {} | {} |",
            key.name,
            key.type_text,
            format_default(key),
            key.option.as_deref().map(format_options).unwrap_or_default(),
            key.trust.as_deref().unwrap_or_default(),
            key.meaning
        );
    }
}

fn format_default(key: &ConfigKey) -> String {
    match &key.default {
        KeyDefault::Value(value) => format!("`{}`", format_value(value)),
        KeyDefault::Described(words) => words.clone(),
        KeyDefault::Nothing => "none".to_owned(),
    }
}

/// Formats a value as TOML. Whole numbers have no decimals, whatever their type is.
pub(crate) fn format_value(value: &Json) -> String {
    match value.as_f64() {
        Some(number) if value.is_f64() && number.fract() == 0.0 => format!("{number:.0}"),
        _ => value.to_string(),
    }
}

/// Formats `--state-dir, --data` as two pieces of code.
fn format_options(options: &str) -> String {
    options.split(", ").map(|option| format!("`{option}`")).collect::<Vec<_>>().join(", ")
}

fn format_names(names: &[&str]) -> String {
    names.iter().map(|name| format!("`{name}`")).collect::<Vec<_>>().join(", ")
}
