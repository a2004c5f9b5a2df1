//! Error responses in GitHub's format, in the few variants that clients know:
//!
//! ```text
//! {"message": "Not Found", "documentation_url": "https://docs.github.com/rest/...", "status": "404"}
//!
//! {"message": "Validation Failed",
//!  "errors": [{"resource": "Label", "field": "name", "code": "already_exists"}],
//!  "documentation_url": "...", "status": "422"}
//!
//! {"message": "Invalid request.\n\n\"title\" wasn't supplied.", "documentation_url": "...", "status": "422"}
//! ```
//!
//! The second form is a violated rule of the domain, the third a violated schema. GitHub distinguishes them by these
//! messages, and agents have to understand both.

use serde_json::{Map, Value, json};

/// URL of the general documentation, for errors that do not point to an operation.
pub(super) const DOCS_URL: &str = "https://docs.github.com/rest";

/// An error response of GitHub's API. Messages are copied from GitHub, since agents are judged by how they react to
/// them.
#[derive(Clone, Debug)]
pub(super) struct OperationError {
    pub(super) status: u16,
    pub(super) message: String,
    /// The `errors` list of a 422; omitted from the body if empty.
    pub(super) errors: Vec<Value>,
    /// Whether `documentation_url` points to the operation, which is the usual case, or to the general documentation.
    pub(super) names_operation: bool,
    /// Additional headers: `retry-after`, `location`.
    pub(super) headers: Vec<(&'static str, String)>,
    /// Additional top-level fields.
    pub(super) extra: Vec<(&'static str, String)>,
}

impl OperationError {
    pub(super) fn new(status: u16, message: impl Into<String>) -> OperationError {
        OperationError {
            status,
            message: message.into(),
            errors: Vec::new(),
            names_operation: true,
            headers: Vec::new(),
            extra: Vec::new(),
        }
    }

    /// Points to the general documentation, for errors that GitHub raises before it knows the operation.
    pub(super) fn with_general_docs(mut self) -> OperationError {
        self.names_operation = false;
        self
    }

    /// 404, also for resources that the caller must not know about.
    pub(super) fn not_found() -> OperationError {
        OperationError::new(404, "Not Found")
    }

    /// 401: the operation does not allow anonymous requests.
    pub(super) fn requires_authentication() -> OperationError {
        OperationError::new(401, "Requires authentication").with_general_docs()
    }

    /// The token is valid but lacks the permission.
    pub(super) fn token_lacks_permission() -> OperationError {
        OperationError::new(403, "Resource not accessible by personal access token")
    }

    /// The account itself lacks the permission, whatever its token.
    pub(super) fn needs_admin() -> OperationError {
        OperationError::new(403, "Must have admin rights to Repository.")
    }

    /// 409: git operations on a repository without commits.
    pub(super) fn empty_repository() -> OperationError {
        OperationError::new(409, "Git Repository is empty.")
    }

    /// A required field is absent.
    pub(super) fn missing_field(field: &str) -> OperationError {
        OperationError::new(422, format!("Invalid request.\n\n\"{field}\" wasn't supplied."))
    }

    /// A field has the wrong type. The received value is quoted, shortened.
    pub(super) fn wrong_type(field: &str, value: &Value, wanted: &str) -> OperationError {
        let shown = if value.is_null() { "nil".to_owned() } else { shorten_input(&value.to_string()) };
        OperationError::new(422, format!("Invalid request.\n\nFor 'properties/{field}', {shown} is not {wanted}."))
    }

    /// A field has a value outside of its enumeration.
    pub(super) fn not_one_of(field: &str, value: &str, allowed: &[&str]) -> OperationError {
        let allowed = allowed.join(", ");
        let value = shorten_input(value);
        OperationError::new(
            422,
            format!("Invalid request.\n\nFor 'properties/{field}', {value} is not a member of [{allowed}]."),
        )
    }

    /// A rule of the domain is violated. `code` is one of GitHub's: `missing`, `missing_field`, `invalid`,
    /// `already_exists`, `unprocessable`.
    pub(super) fn validation(resource: &str, field: &str, code: &str) -> OperationError {
        OperationError::validation_with_detail(json!({"resource": resource, "field": field, "code": code}))
    }

    /// The same with a custom detail object.
    pub(super) fn validation_with_detail(error: Value) -> OperationError {
        let mut made = OperationError::new(422, "Validation Failed");
        made.errors.push(error);
        made
    }

    /// A rule without a code of its own: the detail carries a message.
    pub(super) fn custom_validation(resource: &str, field: Option<&str>, message: impl Into<String>) -> OperationError {
        let mut error = json!({"resource": resource, "code": "custom", "message": message.into()});
        if let Some(field) = field {
            error["field"] = json!(field);
        }
        OperationError::validation_with_detail(error)
    }

    /// Error of review endpoints, whose `errors` is a list of texts.
    pub(super) fn unprocessable(reason: &str) -> OperationError {
        let mut made = OperationError::new(422, "Unprocessable Entity");
        made.errors.push(json!(reason));
        made
    }

    /// Builds the response body. `docs` is the documentation of the operation.
    pub(super) fn to_body(&self, docs: &str) -> Value {
        let mut body = Map::new();
        body.insert("message".to_owned(), json!(self.message));
        if !self.errors.is_empty() {
            body.insert("errors".to_owned(), Value::Array(self.errors.clone()));
        }
        for (key, value) in &self.extra {
            body.insert((*key).to_owned(), json!(value));
        }
        let docs = if self.names_operation { docs } else { DOCS_URL };
        body.insert("documentation_url".to_owned(), json!(docs));
        body.insert("status".to_owned(), json!(self.status.to_string()));
        Value::Object(body)
    }
}

/// Cuts quoted input of a client to 100 characters, so that a response cannot grow with the request.
fn shorten_input(text: &str) -> String {
    let mut short: String = text.chars().take(100).collect();
    if short.len() < text.len() {
        short.push_str("...");
    }
    short
}
