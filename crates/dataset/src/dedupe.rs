//! Finds items that ask the same.

use std::collections::HashMap;

use crate::check::fold_text;
use crate::item::DatasetItem;

/// An item that was removed, and the equal item that was kept.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MergedItem {
    pub kept_id: String,
    pub removed_id: String,
    /// Fields with expectations in which the two differ. Those of the item that was kept stay.
    pub differing_fields: Vec<&'static str>,
}

/// Keeps the first item of each request and adds the tags of the others to it. Returns the kept items in their order
/// and what was merged.
pub fn dedupe_items(items: Vec<DatasetItem>) -> (Vec<DatasetItem>, Vec<MergedItem>) {
    let mut kept: Vec<DatasetItem> = Vec::new();
    let mut merged = Vec::new();
    let mut positions: HashMap<String, usize> = HashMap::new();
    for item in items {
        let key = normalize_request(&item);
        match positions.get(&key) {
            None => {
                positions.insert(key, kept.len());
                kept.push(item);
            }
            Some(&at) => {
                let first = &mut kept[at];
                merged.push(MergedItem {
                    kept_id: first.id.clone(),
                    removed_id: item.id.clone(),
                    differing_fields: list_differing_fields(first, &item),
                });
                for tag in item.tags {
                    if !first.tags.contains(&tag) {
                        first.tags.push(tag);
                    }
                }
            }
        }
    }
    (kept, merged)
}

/// Returns the request in lower case, with single spaces and without final punctuation. Conversations are equal if
/// all their messages are.
pub fn normalize_request(item: &DatasetItem) -> String {
    let fold = |text: &str| fold_text(text).trim_end_matches(['.', '!', '?', ' ']).to_owned();
    match &item.messages {
        // A conversation of one message of the user asks the same as a plain request.
        Some(messages) if messages.len() != 1 || messages[0].role != "user" => {
            messages.iter().map(|message| format!("{}\0{}\0", message.role, fold(&message.content))).collect()
        }
        _ => fold(item.request_text()),
    }
}

fn list_differing_fields(kept: &DatasetItem, removed: &DatasetItem) -> Vec<&'static str> {
    let fields = [
        ("reference", kept.reference != removed.reference),
        ("expected_tools", kept.expected_tools != removed.expected_tools),
        ("must_not_call", kept.must_not_call != removed.must_not_call),
        ("answer_contains", kept.answer_contains != removed.answer_contains),
        ("answer_matches", kept.answer_matches != removed.answer_matches),
    ];
    fields.into_iter().filter(|(_, differs)| *differs).map(|(name, _)| name).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn item(text: &str) -> DatasetItem {
        serde_json::from_str(text).expect("an item")
    }

    #[test]
    fn the_first_of_equal_requests_stays() {
        let items = vec![
            item(r#"{"id": "a", "request": "Where is order 7?", "tags": ["x"]}"#),
            item(r#"{"id": "b", "request": "  where is\n order 7 ", "tags": ["y", "x"], "reference": "Here."}"#),
            item(r#"{"id": "c", "messages": [{"role": "user", "content": "Where is order 7!"}]}"#),
            item(r#"{"id": "d", "request": "Where is order 8?"}"#),
            item(
                r#"{"id": "e", "messages": [{"role": "system", "content": "s"}, {"role": "user", "content": "Where is order 7"}]}"#,
            ),
        ];
        let (kept, merged) = dedupe_items(items);
        let ids: Vec<&str> = kept.iter().map(|item| item.id.as_str()).collect();
        assert_eq!(ids, ["a", "d", "e"]);
        assert_eq!(kept[0].tags, ["x", "y"]);
        let removed: Vec<(&str, &str)> =
            merged.iter().map(|one| (one.removed_id.as_str(), one.kept_id.as_str())).collect();
        assert_eq!(removed, [("b", "a"), ("c", "a")]);
        assert_eq!(merged[0].differing_fields, ["reference"]);
        assert!(merged[1].differing_fields.is_empty());
        let (again, merged) = dedupe_items(kept.clone());
        assert!(merged.is_empty() && again == kept);
    }
}
