//! Who really wrote an annotation: the name of the API key that it came with. It is kept with it under a name of our own,
//! which no client can write, and told apart from what the client keeps there.

use serde_json::{Map, Value};

/// Where it stands in an annotation's metadata.
const NAME: &str = "gradus_key";

/// Metadata as it is kept: what a client says of the key is taken out, and the key that there was is put in.
pub(super) fn sign_metadata(metadata: &str, key: &str) -> Option<String> {
    // A sign that is written in another way is the same sign.
    if key.is_empty() && !metadata.contains(NAME) && !metadata.contains('\\') {
        return None;
    }
    let mut kept: Map<String, Value> = serde_json::from_str(metadata).unwrap_or_default();
    kept.remove(NAME);
    if !key.is_empty() {
        kept.insert(NAME.to_owned(), Value::from(key));
    }
    Some(Value::Object(kept).to_string())
}

/// Metadata as the client gave it, and the name of the key; none where no key was needed.
pub(super) fn split_signed_metadata(metadata: &str) -> (Value, Option<String>) {
    let mut kept: Value = serde_json::from_str(metadata).unwrap_or_default();
    let key = kept.as_object_mut().and_then(|kept| kept.remove(NAME));
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
