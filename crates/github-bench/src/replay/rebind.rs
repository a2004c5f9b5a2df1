//! Values that change when steps are left out: numbers of issues move up, and commits get other SHAs because time and
//! parents differ. Later arguments are rewritten to the new values.

use std::collections::BTreeMap;

use serde_json::Value;

/// Recorded values and the values that replace them, learned from pairs of observations.
#[derive(Clone, Debug, Default)]
pub(super) struct ReplayBindings {
    /// SHAs, timestamps and addresses.
    texts: BTreeMap<String, String>,
    /// Numbers of issues, pull requests and milestones. Numbers that stayed the same are recorded too.
    numbers: BTreeMap<u64, u64>,
}

impl ReplayBindings {
    /// Compares the recorded observation of a step with the new one, field by field. Lists of different lengths are
    /// skipped, since their elements cannot be matched.
    pub(super) fn learn_from_observations(&mut self, old: &str, new: &str) {
        if old == new {
            return;
        }
        let parse = |text: &str| serde_json::from_str::<Value>(text);
        if let (Ok(old), Ok(new)) = (parse(old), parse(new)) {
            self.learn_from_values("", &old, &new);
        }
    }

    /// Compares two values. `key` is the name of their field.
    fn learn_from_values(&mut self, key: &str, old: &Value, new: &Value) {
        match (old, new) {
            (Value::Object(old), Value::Object(new)) => {
                for (key, old) in old {
                    if let Some(new) = new.get(key) {
                        self.learn_from_values(key, old, new);
                    }
                }
            }
            (Value::Array(old), Value::Array(new)) if old.len() == new.len() => {
                old.iter().zip(new).for_each(|(old, new)| self.learn_from_values(key, old, new));
            }
            (Value::String(old), Value::String(new))
                if old != new && is_world_assigned(old) && is_world_assigned(new) =>
            {
                self.texts.insert(old.clone(), new.clone());
            }
            // Only numbers of issues and the like: counts and sizes differ too, but must not be rewritten.
            (Value::Number(old), Value::Number(new)) if key.ends_with("number") => {
                if let (Some(old), Some(new)) = (old.as_u64(), new.as_u64()) {
                    self.numbers.insert(old, new);
                }
            }
            _ => {}
        }
    }

    pub(super) fn is_empty(&self) -> bool {
        self.texts.is_empty() && self.numbers.iter().all(|(old, new)| old == new)
    }

    pub(super) fn rebind_arguments(&self, arguments: &Value) -> Value {
        if self.is_empty() { arguments.clone() } else { self.rebind_value("", arguments) }
    }

    /// Replaces values. Numbers are replaced only in fields that are numbers of issues or milestones.
    fn rebind_value(&self, key: &str, value: &Value) -> Value {
        match value {
            Value::String(text) => Value::String(self.rebind_text(text)),
            Value::Number(number) if key.ends_with("number") || key == "milestone" => {
                let new = number.as_u64().and_then(|number| self.numbers.get(&number));
                new.map_or_else(|| value.clone(), |new| (*new).into())
            }
            Value::Array(items) => items.iter().map(|item| self.rebind_value(key, item)).collect(),
            Value::Object(fields) => fields
                .iter()
                .map(|(key, value)| (key.clone(), self.rebind_value(key, value)))
                .collect::<serde_json::Map<_, _>>()
                .into(),
            _ => value.clone(),
        }
    }

    /// Replaces SHAs anywhere, also abbreviated ones, and numbers after `#` or in the address of an issue or pull
    /// request.
    pub(super) fn rebind_text(&self, text: &str) -> String {
        if self.is_empty() {
            return text.to_owned();
        }
        let mut out = String::with_capacity(text.len());
        let mut word = String::new();
        let is_part = |c: char| c.is_alphanumeric() || c == '#';
        for c in text.chars().chain(['\n']) {
            if is_part(c) {
                word.push(c);
                continue;
            }
            let is_in_address = out.ends_with("/issues/") || out.ends_with("/pull/") || out.ends_with("/pulls/");
            out.push_str(&self.rebind_word(&word, is_in_address));
            word.clear();
            out.push(c);
        }
        out.pop();
        self.texts.get(text).cloned().unwrap_or(out)
    }

    /// Replaces one word. Abbreviated SHAs have at least seven digits, as git prints them.
    fn rebind_word(&self, word: &str, is_in_address: bool) -> String {
        const MIN_SHORT_SHA_DIGITS: usize = 7;
        let digits = word.strip_prefix('#').or_else(|| is_in_address.then_some(word));
        if let Some(new) = digits.and_then(|digits| digits.parse().ok()).and_then(|number| self.numbers.get(&number)) {
            return if word.starts_with('#') { format!("#{new}") } else { new.to_string() };
        }
        if let Some(new) = self.texts.get(word) {
            return new.clone();
        }
        let is_short =
            (MIN_SHORT_SHA_DIGITS..40).contains(&word.len()) && word.bytes().all(|byte| byte.is_ascii_hexdigit());
        if is_short {
            let whole =
                self.texts.iter().find(|(old, new)| old.len() == 40 && new.len() == 40 && old.starts_with(word));
            if let Some((_, new)) = whole {
                return new[..word.len()].to_owned();
            }
        }
        word.to_owned()
    }
}

/// Whether the world assigns such a value: SHAs, timestamps, addresses. Any other text may have been the agent's choice
/// and stays as it is.
fn is_world_assigned(text: &str) -> bool {
    let is_sha = text.len() == 40 && text.bytes().all(|byte| byte.is_ascii_hexdigit());
    let is_time = text.len() == 20 && text.ends_with('Z') && text.as_bytes().get(10) == Some(&b'T');
    is_sha || is_time || text.starts_with("http://") || text.starts_with("https://")
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn what_is_said_later_is_said_of_the_new() {
        let (old, new) = ("a".repeat(40), "b1".repeat(20));
        let mut bindings = ReplayBindings::default();
        bindings.learn_from_observations(
            &json!({"number": 26, "sha": old, "title": "x", "count": 3}).to_string(),
            &json!({"number": 25, "sha": new, "title": "y", "count": 4}).to_string(),
        );
        let arguments = json!({"issue_number": 26, "per_page": 26, "sha": old, "title": "x", "body": format!("Fixes #26 at {}, not #260", &old[..7])});
        let wanted = json!({"issue_number": 25, "per_page": 26, "sha": new, "title": "x", "body": format!("Fixes #25 at {}, not #260", &new[..7])});
        assert_eq!(bindings.rebind_arguments(&arguments), wanted);
        assert_eq!(bindings.rebind_text("http://h/o/r/issues/26 and 26"), "http://h/o/r/issues/25 and 26");
    }
}
