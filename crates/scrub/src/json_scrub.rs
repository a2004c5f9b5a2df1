//! Scrubs JSON values. It walks with a stack of its own, so that deep nesting costs no stack of the thread.

use std::borrow::Cow;

use serde_json::{Map, Value as Json};

use crate::finding::{Finding, FindingRank, ScrubCategory};
use crate::placeholder::{find_placeholders, subtract_placeholders};
use crate::scrubber::Scrubber;
use crate::secret_names::{classify_secret_name, is_secret_value};

/// Maximum nesting of JSON inside of JSON strings. Strings at deeper levels are scrubbed as texts.
const MAX_NESTED_JSON_LEVELS: usize = 6;
/// Maximum number of walks over a value. A secret that is named late may occur earlier without its name: the next
/// walk finds it.
const MAX_JSON_WALKS: usize = 4;
const MAX_ROUNDS_PER_STRING: usize = 8;
const MIN_SECRET_DIGITS: usize = 4;
/// Fields that hold the name of a sibling field `value`: in lists of headers and of environment variables.
const NAME_FIELDS: [&str; 5] = ["name", "key", "header", "variable", "field"];

impl Scrubber {
    /// Replaces secrets and personal data in all strings of a JSON value: in the strings themselves, in JSON that a
    /// string holds, in keys, and in the values of fields whose name says that they are secret.
    pub fn scrub_json(&mut self, value: &mut Json) {
        for walk in 0..MAX_JSON_WALKS {
            let known_before = self.known_secrets.len();
            JsonWalk { scrubber: self, level: 0, should_count: walk == 0, is_changed: false }.visit_all(value);
            if self.known_secrets.len() == known_before {
                break;
            }
        }
    }
}

struct JsonWalk<'s> {
    scrubber: &'s mut Scrubber,
    level: usize,
    should_count: bool,
    is_changed: bool,
}

impl JsonWalk<'_> {
    fn visit_all(&mut self, value: &mut Json) {
        let mut pending: Vec<(Option<String>, &mut Json)> = vec![(None, value)];
        while let Some((field_name, value)) = pending.pop() {
            match value {
                Json::String(text) => self.visit_string(field_name.as_deref(), text),
                Json::Number(_) => self.visit_number(field_name.as_deref(), value),
                // The elements of a list are what its name says: `"phones": [..]`. In order, for the numbers of
                // placeholders.
                Json::Array(elements) => {
                    pending.extend(elements.iter_mut().rev().map(|element| (field_name.clone(), element)));
                }
                Json::Object(fields) => {
                    self.visit_keys(fields);
                    let value_name = find_sibling_name(fields);
                    pending.extend(fields.iter_mut().rev().map(|(name, field)| {
                        let is_named = name == "value" && value_name.is_some();
                        (if is_named { value_name.clone() } else { Some(name.clone()) }, field)
                    }));
                }
                Json::Null | Json::Bool(_) => {}
            }
        }
    }

    fn visit_string(&mut self, field_name: Option<&str>, text: &mut String) {
        if self.should_count {
            self.scrubber.statistics.text_count += 1;
            self.scrubber.statistics.text_bytes += text.len() as u64;
        }
        // Each round may uncover what another method finds: what is left must not change when it is scrubbed again.
        for _ in 0..MAX_ROUNDS_PER_STRING {
            if !self.scrub_string(field_name, text) {
                break;
            }
            self.is_changed = true;
        }
    }

    /// Scrubs a string once. Returns whether it changed.
    fn scrub_string(&mut self, field_name: Option<&str>, text: &mut String) -> bool {
        let name =
            field_name.and_then(classify_secret_name).filter(|_| self.scrubber.has_category(ScrubCategory::Secret));
        let statistics = name.map(|_| self.scrubber.statistics.clone());
        let scrubbed = self.scrubber.scrub_field(text, field_name);
        if let (Some(name), Some(statistics)) = (name, statistics)
            && is_secret_value(name, text)
            && has_plain_text(&scrubbed)
        {
            // The name makes all of it the secret. Where a rule found all of it, the rule has the better name.
            self.scrubber.statistics = statistics;
            *text = self.replace_whole_value(text, ScrubCategory::Secret, name.rule);
            return true;
        }
        if let Cow::Owned(scrubbed) = scrubbed {
            *text = scrubbed;
            return true;
        }
        self.scrub_nested_json(text)
    }

    /// Scrubs a string that is JSON: escapes hide values from the scan of the text, and names of fields are better
    /// evidence than their text. The text is rewritten only if something is found, since that loses the spaces
    /// between tokens.
    fn scrub_nested_json(&mut self, text: &mut String) -> bool {
        let is_json = text.trim_start().starts_with(['{', '[', '"']) && text.trim_end().ends_with(['}', ']', '"']);
        if !is_json || self.level >= MAX_NESTED_JSON_LEVELS {
            return false;
        }
        let Ok(mut nested) = serde_json::from_str::<Json>(text) else { return false };
        let mut walk =
            JsonWalk { scrubber: self.scrubber, level: self.level + 1, should_count: false, is_changed: false };
        walk.visit_all(&mut nested);
        if walk.is_changed {
            *text = nested.to_string();
            return true;
        }
        false
    }

    /// Returns the placeholder for a whole value.
    fn replace_whole_value(&mut self, text: &str, category: ScrubCategory, rule: &str) -> String {
        let finding = Finding { span: 0..text.len(), category, rank: FindingRank::NamedSecret, rule: rule.to_owned() };
        self.scrubber.statistics.record_replacement(&finding);
        self.scrubber.replace_value(text, category, rule)
    }

    /// Scrubs card numbers and numeric passwords. Other numbers stay: a phone number without `+` is a number.
    fn visit_number(&mut self, field_name: Option<&str>, value: &mut Json) {
        let text = value.to_string();
        let is_password = self.scrubber.has_category(ScrubCategory::Secret)
            && text.len() >= MIN_SECRET_DIGITS
            && text.bytes().all(|byte| byte.is_ascii_digit())
            && field_name.and_then(classify_secret_name).is_some_and(|name| name.rule == "password");
        if is_password {
            *value = Json::String(self.replace_whole_value(&text, ScrubCategory::Secret, "password"));
            self.is_changed = true;
            return;
        }
        if matches!(text.len(), 14..=16)
            && let scrubbed = self.scrubber.scrub_field(&text, None)
            && scrubbed.starts_with("<CARD:")
        {
            *value = Json::String(scrubbed.into_owned());
            self.is_changed = true;
        }
    }

    /// Scrubs keys that are secrets or personal data themselves, as in a map from e-mail addresses.
    fn visit_keys(&mut self, fields: &mut Map<String, Json>) {
        let scrubbed_keys: Vec<Option<String>> = fields
            .keys()
            .map(|key| match self.scrubber.scrub_field(key, None) {
                Cow::Owned(scrubbed) => Some(scrubbed),
                Cow::Borrowed(_) => None,
            })
            .collect();
        if scrubbed_keys.iter().all(Option::is_none) {
            return;
        }
        self.is_changed = true;
        for ((key, value), scrubbed) in std::mem::take(fields).into_iter().zip(scrubbed_keys) {
            let mut key = scrubbed.unwrap_or(key);
            // Two forms of one value (`A@x.org`, `a@x.org`) have one placeholder: no field may be lost.
            while fields.contains_key(&key) {
                key.push('_');
            }
            fields.insert(key, value);
        }
    }
}

/// Whether a text has anything besides placeholders.
fn has_plain_text(text: &str) -> bool {
    !subtract_placeholders(text, 0..text.len(), &find_placeholders(text)).is_empty()
}

fn find_sibling_name(fields: &Map<String, Json>) -> Option<String> {
    fields.get("value")?;
    NAME_FIELDS.iter().find_map(|name| fields.get(*name)?.as_str()).map(str::to_owned)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::settings::ScrubSettings;

    fn scrub(mut value: Json) -> Json {
        Scrubber::new(ScrubSettings::default()).scrub_json(&mut value);
        value
    }

    #[test]
    fn secrets_are_found_by_their_field() {
        let scrubbed = scrub(json!({
            "password": "hunter2", "again": {"db_password": "hunter2"}, "max_tokens": 12, "token": "hello",
            "headers": [{"name": "X-Api-Key", "value": "k-123456"}, {"name": "Accept", "value": "text/html"}],
        }));
        assert_eq!(scrubbed["password"], "<SECRET:password:1>");
        assert_eq!(scrubbed["again"]["db_password"], "<SECRET:password:1>");
        assert_eq!(scrubbed["token"], "hello");
        assert_eq!(scrubbed["headers"][0]["value"], "<SECRET:api-key:1>");
        assert_eq!(scrubbed["headers"][1]["value"], "text/html");
    }

    #[test]
    fn json_in_a_string_keeps_its_form_where_it_can() {
        let scrubbed = scrub(json!({"arguments": "{ \"password\":  \"hunter2\" }"}));
        assert_eq!(scrubbed["arguments"], "{ \"password\":  \"<SECRET:password:1>\" }");
        // The escape hides the address from a scan of the text.
        let scrubbed = scrub(json!({"arguments": "{\"to\": \"ann\\u0040example.org\", \"n\": 1}"}));
        assert_eq!(scrubbed["arguments"], "{\"to\":\"<EMAIL:1>\",\"n\":1}");
    }

    #[test]
    fn keys_and_numbers_are_scrubbed() {
        let scrubbed = scrub(
            json!({"ann@example.org": 1, "ANN@example.org": 2, "card": 4111111111111111_u64, "pin": 12, "password": 123456}),
        );
        assert_eq!(
            scrubbed,
            json!({"<EMAIL:1>": 1, "<EMAIL:1>_": 2, "card": "<CARD:1>", "pin": 12, "password": "<SECRET:password:1>"})
        );
    }

    #[test]
    fn a_secret_that_is_named_late_is_found_early() {
        let scrubbed = scrub(json!({"a": "it is q8Zr2Lm4Xw9Tb7Kd.", "b": {"password": "q8Zr2Lm4Xw9Tb7Kd"}}));
        assert_eq!(scrubbed["a"], "it is <SECRET:password:1>.");
    }

    #[test]
    fn deep_nesting_does_not_overflow() {
        let mut value = json!("ann@example.org");
        for _ in 0..1000 {
            // The macro would copy the value with a recursion of its own.
            value = Json::Object(Map::from_iter([("inner".to_owned(), Json::Array(vec![value]))]));
        }
        Scrubber::new(ScrubSettings::default()).scrub_json(&mut value);
        let mut inner = &value;
        while let Some(next) = inner.get("inner").and_then(|list| list.get(0)) {
            inner = next;
        }
        assert_eq!(inner, "<EMAIL:1>");
        let text = format!("{}\"password\": \"hunter2\"{}", "[".repeat(1000), "]".repeat(1000));
        let scrubbed = scrub(json!({ "text": text }));
        assert!(scrubbed["text"].as_str().is_some_and(|text| !text.contains("hunter2")));
    }

    #[test]
    fn statistics_count_each_string_once() {
        let mut scrubber = Scrubber::new(ScrubSettings::default());
        scrubber
            .scrub_json(&mut json!({"a": "q8Zr2Lm4Xw9Tb7Kd", "password": "q8Zr2Lm4Xw9Tb7Kd", "b": "{\"c\": \"d\"}"}));
        assert_eq!(scrubber.statistics().text_count, 3);
        assert_eq!(scrubber.statistics().replacement_count(), 2);
        let mut scrubber = Scrubber::new(ScrubSettings::default());
        let mut value = json!({"token": "ghp_x7Kq2mWv9RtYb3NcLz8PdFh5Jg1Sa4Ue6Xo0"});
        scrubber.scrub_json(&mut value);
        assert_eq!(value["token"], "<SECRET:github-pat:1>");
        assert_eq!(scrubber.statistics().replacement_count(), 1);
    }
}
