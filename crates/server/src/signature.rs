//! The real author of an annotation: the name of the API key that it was sent with. It is stored in the metadata under
//! a reserved name that clients cannot write, and is separated from the client's metadata when it is read.

use serde_json::{Map, Value};

/// The reserved key in an annotation's metadata.
const KEY_NAME_FIELD: &str = "gradus_key";

/// Returns the metadata to store: a reserved entry of the client is removed, and the name of the key is added. `None`
/// if the metadata can stay as it is.
pub(super) fn sign_metadata(metadata: &str, key: &str) -> Option<String> {
    // A backslash may hide the reserved name in an escaped form, so such metadata is parsed as well.
    if key.is_empty() && !metadata.contains(KEY_NAME_FIELD) && !metadata.contains('\\') {
        return None;
    }
    let mut kept: Map<String, Value> = serde_json::from_str(metadata).unwrap_or_default();
    kept.remove(KEY_NAME_FIELD);
    if !key.is_empty() {
        kept.insert(KEY_NAME_FIELD.to_owned(), Value::from(key));
    }
    Some(Value::Object(kept).to_string())
}

/// Splits stored metadata into that of the client and the name of the key; `None` if no key was needed.
pub(super) fn split_signed_metadata(metadata: &str) -> (Value, Option<String>) {
    let mut kept: Value = serde_json::from_str(metadata).unwrap_or_default();
    let key = kept.as_object_mut().and_then(|kept| kept.remove(KEY_NAME_FIELD));
    (kept, key.and_then(|key| key.as_str().map(str::to_owned)))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_client_cannot_sign_for_another() {
        assert_eq!(sign_metadata(r#"{"a": 1}"#, ""), None);
        for forged in [r#"{"gradus_key": "ann", "a": 1}"#, r#"{"gradus\u005fkey": "ann", "a": 1}"#] {
            let kept = sign_metadata(forged, "eve").unwrap();
            assert_eq!(split_signed_metadata(&kept), (json!({"a": 1}), Some("eve".to_owned())), "{forged}");
            assert_eq!(split_signed_metadata(&sign_metadata(forged, "").unwrap()), (json!({"a": 1}), None), "{forged}");
        }
        assert_eq!(split_signed_metadata(&sign_metadata("", "eve").unwrap()), (json!({}), Some("eve".to_owned())));
        assert_eq!(split_signed_metadata("null"), (Value::Null, None));
    }
}
