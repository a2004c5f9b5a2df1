//! The address of this server for people and for exporters.

use std::io::Write as _;
use std::net::SocketAddr;

use axum::http::header::HOST;
use axum::http::{HeaderMap, Uri};

use crate::settings::ServerSettings;

/// Maximum length of a host in bytes; DNS names have at most 253.
const MAX_HOST_BYTES: usize = 300;
const MAX_PREFIX_BYTES: usize = 200;

/// Returns the address that exporters send to, without a trailing slash: `serve.public_url`, else the address that
/// the client used. A proxy may have added a path prefix and TLS. The headers are those of the client that reads the
/// answer, so a forged one misleads nobody else; they are validated because the address is shown as code to copy.
pub(crate) fn find_own_address(settings: &ServerSettings, headers: &HeaderMap, uri: &Uri) -> String {
    let own = settings.public_url.trim_end_matches('/');
    if settings.has_public_url {
        return own.to_owned();
    }
    let text = |name: &str| headers.get(name).and_then(|value| value.to_str().ok());
    let host = text(HOST.as_str()).or_else(|| uri.authority().map(axum::http::uri::Authority::as_str));
    let Some(host) = host.filter(|host| is_host(host)) else { return own.to_owned() };
    let scheme = if text("x-forwarded-proto") == Some("https") { "https" } else { "http" };
    let prefix = text("x-forwarded-prefix").filter(|prefix| is_path_prefix(prefix)).unwrap_or("");
    format!("{scheme}://{host}{}", prefix.trim_end_matches('/'))
}

/// Whether a text is a host of RFC 3986 without user information, with an optional port.
fn is_host(text: &str) -> bool {
    let (name, port) = match text.strip_prefix('[') {
        Some(rest) => match rest.split_once(']') {
            Some((address, port)) => (address, port),
            None => return false,
        },
        None => text.split_at(text.find(':').unwrap_or(text.len())),
    };
    let is_bracketed = text.starts_with('[');
    let is_name = match is_bracketed {
        true => name.parse::<std::net::Ipv6Addr>().is_ok(),
        false => name.bytes().all(|byte| byte.is_ascii_alphanumeric() || matches!(byte, b'.' | b'-' | b'_')),
    };
    let is_port = port.is_empty() || port.strip_prefix(':').is_some_and(|port| port.parse::<u16>().is_ok());
    !name.is_empty() && text.len() <= MAX_HOST_BYTES && is_name && is_port
}

/// Whether a text is a path of unreserved characters.
fn is_path_prefix(text: &str) -> bool {
    let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'/' | b'-' | b'.' | b'_' | b'~');
    text.starts_with('/')
        && !text.contains("//")
        && !text.contains("..")
        && text.len() <= MAX_PREFIX_BYTES
        && text.bytes().all(is_plain)
}

/// Prints the address of the pages on standard output: the log on standard error is for programs as well.
pub(super) fn announce_address(settings: &ServerSettings, http: SocketAddr) {
    let address = match (settings.has_public_url, http.ip().is_unspecified()) {
        (true, _) => settings.public_url.clone(),
        // A browser cannot open 0.0.0.0.
        (false, true) => format!("http://localhost:{}", http.port()),
        (false, false) => format!("http://{http}"),
    };
    // Standard output may be closed, which is no reason to stop.
    let _ = writeln!(std::io::stdout().lock(), "Gradus is ready: open {address} in a browser");
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ServerConfig;

    fn address(public_url: Option<&str>, headers: &[(&'static str, &str)]) -> String {
        let mut config = ServerConfig::new("data".into());
        config.serve.public_url = public_url.map(str::to_owned);
        let (settings, _) = config.to_settings().expect("valid settings");
        let mut map = HeaderMap::new();
        for (name, value) in headers {
            map.insert(*name, value.parse().expect("a header"));
        }
        find_own_address(&settings, &map, &Uri::from_static("/"))
    }

    #[test]
    fn the_address_is_the_one_that_the_client_used() {
        assert_eq!(address(None, &[("host", "localhost:4318")]), "http://localhost:4318");
        assert_eq!(address(None, &[("host", "[::1]:4318")]), "http://[::1]:4318");
        assert_eq!(address(None, &[]), "http://127.0.0.1:4318");
        assert_eq!(address(Some("https://gradus.example/obs/"), &[("host", "x")]), "https://gradus.example/obs");
        let proxied = [("host", "g.example"), ("x-forwarded-proto", "https"), ("x-forwarded-prefix", "/obs/")];
        assert_eq!(address(None, &proxied), "https://g.example/obs");
    }

    #[test]
    fn what_is_no_host_is_not_shown() {
        for host in
            ["a b", "evil\"", "a<b>", "user@host", "a:b", "a:99999", "[::1", "[x]", "", ":80", "a/b", "a'b", "a$(b)"]
        {
            assert_eq!(address(None, &[("host", host)]), "http://127.0.0.1:4318", "{host}");
        }
        for prefix in ["obs", "//evil.example", "/a\"b", "/a b", "/../b"] {
            let headers = [("host", "g.example"), ("x-forwarded-prefix", prefix)];
            assert_eq!(address(None, &headers), "http://g.example", "{prefix}");
        }
    }
}
