//! How this program asks other servers.

/// The beginnings of a client: our name, one provider of cryptography, and no following to other places.
pub(crate) fn client() -> reqwest::ClientBuilder {
    // One provider for the whole process; setting it twice is no error.
    let _ = rustls::crypto::ring::default_provider().install_default();
    reqwest::Client::builder()
        .user_agent(concat!("gradus/", env!("CARGO_PKG_VERSION")))
        .redirect(reqwest::redirect::Policy::none())
}
