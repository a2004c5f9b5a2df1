//! Why storage cannot be used, in one line. Responses of servers are long XML, so only their code is repeated.

use std::error::Error;
use std::io;

use gradus_ingest::archive::ArchiveError;
use object_store::Error as ObjectError;
use object_store::client::{HttpError, HttpErrorKind};

/// Maximum number of characters of a reason that is not a known code.
const MAX_S3_REASON_CHARS: usize = 200;

#[derive(Debug, thiserror::Error)]
pub(super) enum S3Failure {
    #[error(
        "{address}: not an address in S3\nhint: write it as s3://BUCKET/PREFIX; keys go into AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY"
    )]
    BadAddress { address: String },
    #[error("{address}: no credentials\nhint: set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY")]
    NoCredentials { address: String },
    #[error("AWS_ENDPOINT_URL: {endpoint:?} is not an http or https address")]
    BadEndpoint { endpoint: String },
    #[error(
        "AWS_ENDPOINT_URL: {endpoint} is not encrypted and not on this machine\nhint: use https, or set AWS_ALLOW_HTTP=true"
    )]
    PlainHttp { endpoint: String },
    #[error("{address}: no client: {reason}")]
    Client { address: String, reason: String },
    #[error("s3://{bucket}: there is no such bucket at {endpoint}")]
    NoBucket { bucket: String, endpoint: String },
    #[error(
        "{path}: access denied ({code})\nhint: check AWS_ACCESS_KEY_ID, AWS_SECRET_ACCESS_KEY and the permissions of the key"
    )]
    Denied { path: String, code: String },
    #[error("{path}: nothing answers at {endpoint} ({reason})\nhint: check AWS_ENDPOINT_URL")]
    Unreachable { path: String, endpoint: String, reason: String },
    #[error("{path}: the storage refused the request: {reason}")]
    Request { path: String, reason: String },
    #[error("{path}: temporary file: {source}")]
    TemporaryFile { path: String, source: io::Error },
}

impl S3Failure {
    /// Classifies an error. `path` is the complete address of the object.
    pub(super) fn classify(bucket: &str, path: String, endpoint: &str, error: &ObjectError) -> S3Failure {
        let code = error_code(error);
        let endpoint = endpoint.to_owned();
        match error {
            ObjectError::NotFound { .. } if code.as_deref() == Some("NoSuchBucket") => {
                return S3Failure::NoBucket { bucket: bucket.to_owned(), endpoint };
            }
            ObjectError::PermissionDenied { .. } | ObjectError::Unauthenticated { .. } => {
                return S3Failure::Denied { path, code: code.unwrap_or_else(|| "no reason given".to_owned()) };
            }
            _ => {}
        }
        let reason = code.unwrap_or_else(|| gradus_http::root_cause(error).chars().take(MAX_S3_REASON_CHARS).collect());
        let kind = find_source::<HttpError>(error).map(HttpError::kind);
        match kind {
            Some(HttpErrorKind::Connect | HttpErrorKind::Timeout) => S3Failure::Unreachable { path, endpoint, reason },
            _ => S3Failure::Request { path, reason },
        }
    }
}

impl From<S3Failure> for ArchiveError {
    fn from(failure: S3Failure) -> ArchiveError {
        ArchiveError::Storage(Box::new(failure))
    }
}

/// Returns the code of S3's error document. The type that holds the document is private, its text is not.
pub(super) fn error_code(error: &ObjectError) -> Option<String> {
    let text = error.to_string();
    let (_, rest) = text.split_once("<Code>")?;
    let (code, _) = rest.split_once("</Code>")?;
    let is_code = !code.is_empty() && code.len() <= 64 && code.bytes().all(|byte| byte.is_ascii_alphanumeric());
    is_code.then(|| code.to_owned())
}

fn find_source<'e, T: Error + 'static>(error: &'e (dyn Error + 'static)) -> Option<&'e T> {
    let mut cause = Some(error);
    while let Some(error) = cause {
        if let Some(found) = error.downcast_ref::<T>() {
            return Some(found);
        }
        cause = error.source();
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    fn refused(body: &str) -> ObjectError {
        ObjectError::PermissionDenied { path: "a".to_owned(), source: body.to_owned().into() }
    }

    #[test]
    fn only_codes_are_repeated() {
        let known = refused("403: <Error><Code>SignatureDoesNotMatch</Code><StringToSign>x</StringToSign></Error>");
        assert_eq!(error_code(&known).as_deref(), Some("SignatureDoesNotMatch"));
        for body in ["", "<Code>", "<Code></Code>", "<Code>two words</Code>"] {
            assert_eq!(error_code(&refused(body)), None, "{body}");
        }
        let path = "s3://bucket/a/manifest.json".to_owned();
        let failure = S3Failure::classify("bucket", path, "http://127.0.0.1:1", &known);
        let line = "s3://bucket/a/manifest.json: access denied (SignatureDoesNotMatch)\nhint: ";
        assert!(failure.to_string().starts_with(line), "{failure}");
    }
}
