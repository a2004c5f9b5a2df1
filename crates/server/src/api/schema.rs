//! Reuses the JSON schemas of the line formats in the OpenAPI description.

use schemars::JsonSchema;
use schemars::generate::SchemaSettings;
use utoipa::openapi::schema::Object;
use utoipa::openapi::{RefOr, Schema};

/// The JSON schema of a type as an OpenAPI schema. Both are the same dialect since OpenAPI 3.1 (JSON Schema 2020-12).
/// Subschemas are inlined, because `$ref`s to `#/$defs` would not resolve in the larger document. Falls back to an
/// unconstrained object.
pub(super) fn generate_openapi_schema<T: JsonSchema>() -> RefOr<Schema> {
    let settings = SchemaSettings::draft2020_12().with(|settings| {
        settings.inline_subschemas = true;
        settings.meta_schema = None;
    });
    let json = settings.into_generator().into_root_schema_for::<T>().to_value();
    serde_json::from_value(json).unwrap_or_else(|_| RefOr::T(Schema::Object(Object::new())))
}
