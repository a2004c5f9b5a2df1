//! Errors of setting up tools. Errors of calls are observations.

/// Why tools cannot be offered. Each message says what to check.
#[derive(Debug, thiserror::Error)]
pub enum ToolsError {
    #[error("{url:?} is no address of GitHub's API: {reason}; give one such as {GITHUB_COM_API_URL}")]
    BadUrl { url: String, reason: String },
    #[error("the token cannot be sent: it has characters that a token cannot have")]
    BadToken,
    #[error("no HTTPS here: {0}")]
    Client(String),
    #[error("there is no tool called {0:?}; `gradus tools` lists them")]
    UnknownTool(String),
    #[error("with these limits there are no tools left")]
    NoTools,
    #[error("cannot reach GitHub at {url}: {reason}; check the address, and whether it is up")]
    Unreachable { url: String, reason: String },
    #[error("{url} is not GitHub's API: it answers {found}; {hint}")]
    NotGitHub { url: String, found: String, hint: &'static str },
    #[error("GitHub at {url} does not take the token ({message}); check that it is for this server, and not expired")]
    Unauthorized { url: String, message: String },
}

/// The API of github.com.
pub const GITHUB_COM_API_URL: &str = "https://api.github.com";
