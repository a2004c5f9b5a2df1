//! `gradus --version --verbose`: details for a bug report.

use std::fmt;

/// How this program was built, and which formats it writes.
pub(super) struct VersionDetails;

/// Returns the short form, as `--version` prints it.
pub(super) fn format_version() -> String {
    format!("gradus {}", env!("CARGO_PKG_VERSION"))
}

/// Returns the text, or `otherwise` if the build script left it empty because it is unknown.
fn text_or<'t>(text: &'t str, otherwise: &'t str) -> &'t str {
    if text.is_empty() { otherwise } else { text }
}

impl fmt::Display for VersionDetails {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "{}", format_version())?;
        writeln!(f, "commit: {}", text_or(env!("GRADUS_BUILD_COMMIT"), "not recorded"))?;
        writeln!(f, "target: {}", env!("GRADUS_BUILD_TARGET"))?;
        writeln!(f, "profile: {}", env!("GRADUS_BUILD_PROFILE"))?;
        writeln!(f, "features: {}", text_or(env!("GRADUS_BUILD_FEATURES"), "none"))?;
        writeln!(f, "store schema: {}", gradus_store::schema_version())?;
        write!(f, "sqlite: {}", gradus_store::sqlite_version())
    }
}
