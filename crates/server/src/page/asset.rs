//! Static files of pages. They are compiled into the program. Their URLs contain a digest of the content, so browsers
//! may cache them for ever.

use std::sync::LazyLock;

use axum::extract::Path;
use axum::http::header::{CACHE_CONTROL, CONTENT_TYPE};
use axum::http::{HeaderValue, StatusCode};
use axum::response::{IntoResponse, Response};

use gradus_report::html;

/// Built on first use; the address and the content never change while the program runs.
struct StaticAsset {
    address: String,
    kind: &'static str,
    text: String,
}

impl StaticAsset {
    /// The address contains 64 bits of the digest.
    fn new(stem: &str, ending: &str, kind: &'static str, text: String) -> StaticAsset {
        let digest = gradus_core::stable_digest(text.as_bytes()) >> 64;
        StaticAsset { address: format!("/assets/{stem}-{digest:016x}.{ending}"), kind, text }
    }
}

static STYLE: LazyLock<StaticAsset> = LazyLock::new(|| {
    // The style sheet of reports comes first, so that pages can override it.
    let sheets = [
        html::STYLE,
        include_str!("page.css"),
        include_str!("trace.css"),
        include_str!("lists.css"),
        include_str!("review.css"),
        include_str!("start/start.css"),
        include_str!("alerts.css"),
        include_str!("print.css"),
    ];
    let text = sheets.join("\n");
    StaticAsset::new("gradus", "css", "text/css; charset=utf-8", text)
});
static SCRIPT: LazyLock<StaticAsset> = LazyLock::new(|| {
    let scripts =
        [include_str!("page.js"), include_str!("lists.js"), include_str!("review.js"), include_str!("start/start.js")];
    let text = scripts.join("\n");
    StaticAsset::new("gradus", "js", "text/javascript; charset=utf-8", text)
});
static ICON: LazyLock<StaticAsset> =
    LazyLock::new(|| StaticAsset::new("icon", "svg", "image/svg+xml", include_str!("icon.svg").to_owned()));

/// URLs for the frame of a page.
pub(super) fn stylesheet_url() -> &'static str {
    &STYLE.address
}

pub(super) fn script_url() -> &'static str {
    &SCRIPT.address
}

pub(super) fn icon_url() -> &'static str {
    &ICON.address
}

/// `GET /assets/{name}`. A name with another digest is not found, since it comes from a page of another version.
pub(super) async fn serve_asset(Path(name): Path<String>) -> Response {
    let known = [&*STYLE, &*SCRIPT, &*ICON];
    let Some(asset) = known.into_iter().find(|asset| asset.address.strip_prefix("/assets/") == Some(name.as_str()))
    else {
        return StatusCode::NOT_FOUND.into_response();
    };
    let headers = [
        (CONTENT_TYPE, HeaderValue::from_static(asset.kind)),
        (CACHE_CONTROL, HeaderValue::from_static("public, max-age=31536000, immutable")),
    ];
    (headers, asset.text.as_str()).into_response()
}

/// Returns the texts of all static files.
#[cfg(test)]
pub(super) fn list_asset_texts() -> [&'static str; 3] {
    [&STYLE.text, &SCRIPT.text, &ICON.text]
}
