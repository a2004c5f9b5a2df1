//! The keys of `gradus.toml` as the types of the file declare them: names, types, defaults, meanings. Everything that
//! describes the file to people is made from this list.

use gradus_core::whitespace::collapse_whitespace;
use serde_json::{Map, Value as Json};

use super::sections::ConfigFile;

/// A table of the file with its own keys. Tables in it are tables of their own.
#[derive(Clone, Debug)]
pub(crate) struct ConfigTable {
    /// `serve.retention`; empty for the top level.
    pub(crate) path: String,
    /// `[[rule]]` can be given several times.
    pub(crate) is_array: bool,
    pub(crate) meaning: String,
    pub(crate) keys: Vec<ConfigKey>,
}

/// One key of a table.
#[derive(Clone, Debug)]
pub(crate) struct ConfigKey {
    pub(crate) name: String,
    /// For people: `list of paths`.
    pub(crate) type_text: String,
    pub(crate) default: KeyDefault,
    /// The command-line options that win over it.
    pub(crate) option: Option<String>,
    /// When a file that was found needs trust for it.
    pub(crate) trust: Option<String>,
    pub(crate) secret: Option<SecretForm>,
    pub(crate) meaning: String,
}

/// What applies where a key is not set.
#[derive(Clone, Debug)]
pub(crate) enum KeyDefault {
    Value(Json),
    /// It depends on something else, which the text names.
    Described(String),
    Nothing,
}

/// How much of a value that may be a secret is shown.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum SecretForm {
    /// Scheme and host.
    Url,
    /// The program, without its arguments.
    Command,
}

impl ConfigKey {
    /// Whether relative values start at the folder of the file.
    pub(crate) fn is_path(&self) -> bool {
        matches!(self.type_text.as_str(), "path" | "list of paths")
    }
}

/// Lists all tables, in the order of the types: the top level first.
pub(crate) fn list_config_tables() -> Vec<ConfigTable> {
    let schema = Json::from(schemars::schema_for!(ConfigFile));
    let mut tables = Vec::new();
    if let Some(root) = schema.as_object() {
        add_table("", false, root, &schema["$defs"], &mut tables);
    }
    tables
}

/// Adds a table, and the tables in it after it.
fn add_table(path: &str, is_array: bool, schema: &Map<String, Json>, defs: &Json, tables: &mut Vec<ConfigTable>) {
    let Some(properties) = schema.get("properties").and_then(Json::as_object) else { return };
    let place = tables.len();
    let meaning = one_line(schema.get("description"));
    tables.push(ConfigTable { path: path.to_owned(), is_array, meaning, keys: Vec::new() });
    for (name, property) in properties {
        match find_inner_table(property, defs) {
            Some((inner, is_array)) => {
                let path = if path.is_empty() { name.clone() } else { format!("{path}.{name}") };
                add_table(&path, is_array, inner, defs, tables);
            }
            None => tables[place].keys.push(describe_key(name, property)),
        }
    }
}

/// Returns the definition that a property refers to if that is a table, and whether the property is a list of them.
/// Optional tables are `anyOf` a reference and null.
fn find_inner_table<'s>(property: &'s Json, defs: &'s Json) -> Option<(&'s Map<String, Json>, bool)> {
    let is_array = property.get("items").is_some();
    let options = property.get("anyOf").and_then(Json::as_array).map(Vec::as_slice).unwrap_or_default();
    let candidates = [Some(property), property.get("items")].into_iter().flatten().chain(options);
    let reference = candidates.filter_map(|candidate| candidate.get("$ref")?.as_str()).next()?;
    let definition = defs.get(reference.strip_prefix("#/$defs/")?)?.as_object()?;
    // An enumeration is a definition as well, but not a table.
    definition.contains_key("properties").then_some((definition, is_array))
}

fn describe_key(name: &str, property: &Json) -> ConfigKey {
    let text = |attribute: &str| property.get(attribute).and_then(Json::as_str).map(str::to_owned);
    let default = match (property.get("x-default"), text("x-default-text")) {
        (Some(value), _) => KeyDefault::Value(value.clone()),
        (None, Some(words)) => KeyDefault::Described(words),
        (None, None) => KeyDefault::Nothing,
    };
    ConfigKey {
        name: name.to_owned(),
        type_text: text("x-type").unwrap_or_else(|| type_text(property)),
        default,
        option: text("x-option"),
        trust: text("x-trust"),
        secret: match text("x-secret").as_deref() {
            Some("url") => Some(SecretForm::Url),
            Some(_) => Some(SecretForm::Command),
            None => None,
        },
        meaning: one_line(property.get("description")),
    }
}

/// Returns the type in words. Optional types are a list of two, one of them null.
fn type_text(property: &Json) -> String {
    let name = match &property["type"] {
        Json::String(name) => name.as_str(),
        Json::Array(names) => names.iter().filter_map(Json::as_str).find(|name| *name != "null").unwrap_or_default(),
        _ => "",
    };
    match name {
        "string" => "text".to_owned(),
        "array" => format!("list of {}s", type_text(&property["items"])),
        other => other.to_owned(),
    }
}

/// Joins the lines of a documentation comment, which is wrapped.
fn one_line(text: Option<&Json>) -> String {
    collapse_whitespace(text.and_then(Json::as_str).unwrap_or_default())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_key_is_described() {
        let tables = list_config_tables();
        let paths: Vec<&str> = tables.iter().map(|table| table.path.as_str()).collect();
        let expected = ["", "judge", "eval", "phoenix", "serve", "serve.retention", "serve.redact", "rule", "alert"];
        assert_eq!(paths, expected);
        for table in &tables {
            assert_eq!(table.is_array, ["serve.redact", "rule", "alert"].contains(&table.path.as_str()));
            assert!(!table.meaning.is_empty() && !table.keys.is_empty(), "{}", table.path);
            for key in &table.keys {
                let is_described = !key.meaning.is_empty() && !key.type_text.is_empty();
                assert!(is_described && !key.meaning.contains('|'), "{}.{}: {key:?}", table.path, key.name);
            }
        }
        let count: usize = tables.iter().map(|table| table.keys.len()).sum();
        assert!(count > 60, "{count}");
    }
}
