//! How large an annotation may be. Lists read many annotations at a time, and metadata is parsed each time, so one
//! large annotation would make every later query slow.

use gradus_store::NewAnnotation;

use super::json_size::estimate_parsed_size;

/// Maximum size of an explanation. Judges may quote much of a trajectory, so it is the largest limit.
const MAX_EXPLANATION_BYTES: usize = 128 << 10;
const MAX_METADATA_BYTES: usize = 64 << 10;
/// Maximum size of every other text: target, name, identifier, author, label.
const MAX_TEXT_BYTES: usize = 4 << 10;
/// Maximum number of bytes that metadata may take as parsed values, as estimated by [`estimate_parsed_size`].
const MAX_PARSED_METADATA_BYTES: usize = 1 << 20;

/// Why an annotation is too large. Handlers answer it with status 413.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub(super) enum AnnotationSizeError {
    #[error("{field} has {length} bytes; an annotation keeps at most {limit}")]
    FieldTooLong { field: &'static str, length: usize, limit: usize },
    #[error("metadata has too many values; an annotation keeps some thousands at most")]
    TooManyValues,
}

/// Checks the size of each text, and then the estimated size of the parsed metadata.
pub(super) fn check_annotation_size(annotation: &NewAnnotation) -> Result<(), AnnotationSizeError> {
    let texts = [
        ("target", annotation.target.len(), MAX_TEXT_BYTES),
        ("name", annotation.name.len(), MAX_TEXT_BYTES),
        ("identifier", annotation.identifier.len(), MAX_TEXT_BYTES),
        ("author", annotation.author.len(), MAX_TEXT_BYTES),
        ("label", annotation.label.as_ref().map_or(0, String::len), MAX_TEXT_BYTES),
        ("explanation", annotation.explanation.as_ref().map_or(0, String::len), MAX_EXPLANATION_BYTES),
        ("metadata", annotation.metadata.len(), MAX_METADATA_BYTES),
    ];
    if let Some((field, length, limit)) = texts.into_iter().find(|(_, length, limit)| length > limit) {
        return Err(AnnotationSizeError::FieldTooLong { field, length, limit });
    }
    match estimate_parsed_size(annotation.metadata.as_bytes()) {
        0..=MAX_PARSED_METADATA_BYTES => Ok(()),
        // A short text of nested empty lists parses to many times its size.
        _ => Err(AnnotationSizeError::TooManyValues),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn large_and_dense_annotations_are_refused() {
        let with_metadata = |metadata: String| NewAnnotation { metadata, ..NewAnnotation::default() };
        let numbers = |count: usize| format!("{{\"a\":[{}0]}}", "0,".repeat(count));
        assert_eq!(check_annotation_size(&with_metadata(numbers(5000))), Ok(()));
        assert!(check_annotation_size(&with_metadata(numbers(20_000))).is_err());
        assert!(check_annotation_size(&with_metadata(numbers(40_000))).is_err());
        let explained = |length: usize| NewAnnotation {
            explanation: Some("x".repeat(length)),
            metadata: "{}".to_owned(),
            ..NewAnnotation::default()
        };
        assert_eq!(check_annotation_size(&explained(100_000)), Ok(()));
        assert!(check_annotation_size(&explained(200_000)).is_err());
    }
}
