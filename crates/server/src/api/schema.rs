//! Descriptions of the line formats, taken from where they are described already.

use schemars::JsonSchema;
use schemars::generate::SchemaSettings;
use utoipa::openapi::schema::Object;
use utoipa::openapi::{RefOr, Schema};

/// The JSON schema of a type as an OpenAPI schema: since 3.1 the one is the other.
pub(super) fn generate_openapi_schema<T: JsonSchema>() -> RefOr<Schema> {
    let settings = SchemaSettings::draft2020_12().with(|settings| {
        settings.inline_subschemas = true;
        settings.meta_schema = None;
    });
    let json = settings.into_generator().into_root_schema_for::<T>().to_value();
    serde_json::from_value(json).unwrap_or_else(|_| RefOr::T(Schema::Object(Object::new())))
}
