//! Addresses of a Phoenix: `phoenix://HOST:PORT/PROJECT`, or a URL as its own clients take it.

use std::fmt;

use reqwest::Url;

/// A server and optionally a project.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PhoenixAddress {
    /// Scheme, host, port and path prefix, without a slash at the end.
    pub base: String,
    /// The name of a project, not its id.
    pub project: Option<String>,
}

/// A text that is not an address. The message does not repeat it, because people put keys into addresses.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
#[error("write it as phoenix://HOST:PORT/PROJECT or http://HOST:PORT{0}")]
pub struct AddressError(&'static str);

/// The default HTTP port of Phoenix.
const PORT: u16 = 6006;

impl PhoenixAddress {
    /// Parses `phoenix://HOST:PORT/PROJECT`, or `phoenix+https://` for TLS. None for any other scheme, which may be a
    /// file. The project is everything behind the first slash and may contain slashes.
    pub fn from_source(source: &str) -> Option<Result<PhoenixAddress, AddressError>> {
        let (scheme, rest) = match source.split_once("://")? {
            ("phoenix", rest) => ("http", rest),
            ("phoenix+https", rest) => ("https", rest),
            _ => return None,
        };
        let (host, project) = rest.split_once('/').unwrap_or((rest, ""));
        let project = project.trim_end_matches('/');
        let has_port = host.rsplit_once(':').is_some_and(|(_, port)| port.parse::<u16>().is_ok());
        let port = if has_port || scheme == "https" { String::new() } else { format!(":{PORT}") };
        let read = PhoenixAddress::from_url(&format!("{scheme}://{host}{port}"));
        let project = (!project.is_empty()).then(|| project.to_owned());
        Some(read.map(|address| PhoenixAddress { project, ..address }))
    }

    /// Parses the value of `--phoenix` or `PHOENIX_COLLECTOR_ENDPOINT`: a URL, also one that ends with the path of the
    /// collector (`/v1/traces`), or the form of sources. Credentials and queries are refused.
    pub fn from_url(text: &str) -> Result<PhoenixAddress, AddressError> {
        if text.starts_with("phoenix")
            && let Some(read) = PhoenixAddress::from_source(text)
        {
            return read;
        }
        let url = Url::parse(text).map_err(|_| AddressError(""))?;
        if !matches!(url.scheme(), "http" | "https") || !url.has_host() {
            return Err(AddressError(""));
        }
        if !url.username().is_empty() || url.password().is_some() || url.query().is_some() {
            return Err(AddressError("; a key goes into PHOENIX_API_KEY"));
        }
        let path = url.path().trim_end_matches('/');
        let path = path.strip_suffix("/v1/traces").unwrap_or(path);
        let origin = url.origin().ascii_serialization();
        Ok(PhoenixAddress { base: format!("{origin}{path}"), project: None })
    }

    /// Whether the address can only be this machine. Names that resolve to it do not count.
    pub fn is_local(&self) -> bool {
        let host = Url::parse(&self.base).ok().and_then(|url| url.host_str().map(str::to_owned));
        host.is_some_and(|host| matches!(host.as_str(), "localhost" | "127.0.0.1" | "[::1]"))
    }
}

/// In the form of a source where that is possible, otherwise base and project. [`PhoenixAddress::from_source`] reads it
/// back.
impl fmt::Display for PhoenixAddress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let project = self.project.as_deref().unwrap_or_default();
        let (scheme, rest) = self.base.split_once("://").unwrap_or_default();
        let has_path = rest.contains('/');
        let has_port = rest.rsplit_once(':').is_some_and(|(_, port)| port.parse::<u16>().is_ok());
        match (scheme, has_path, project) {
            ("http", false, _) if has_port => write!(f, "phoenix://{rest}/{project}"),
            ("http", false, _) => write!(f, "phoenix://{rest}:80/{project}"),
            ("https", false, _) => write!(f, "phoenix+https://{rest}/{project}"),
            (_, _, "") => f.write_str(&self.base),
            _ => write!(f, "{} {project}", self.base),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn fine(base: &str, project: Option<&str>) -> Result<PhoenixAddress, AddressError> {
        Ok(PhoenixAddress { base: base.to_owned(), project: project.map(str::to_owned) })
    }

    #[test]
    fn sources() {
        let read = |text| PhoenixAddress::from_source(text).expect("an address of a Phoenix");
        assert_eq!(read("phoenix://localhost/shop"), fine("http://localhost:6006", Some("shop")));
        assert_eq!(read("phoenix://[::1]:7000/a/b c"), fine("http://[::1]:7000", Some("a/b c")));
        assert_eq!(read("phoenix+https://p.example/"), fine("https://p.example", None));
        assert!(read("phoenix:///shop").is_err());
        assert!(read("phoenix://user:secret@h/p").is_err());
        assert!(PhoenixAddress::from_source("gradus://h/p").is_none());
        assert!(PhoenixAddress::from_source("traces/today.json").is_none());
    }

    #[test]
    fn urls() {
        assert_eq!(PhoenixAddress::from_url("http://h:6006/"), fine("http://h:6006", None));
        assert_eq!(PhoenixAddress::from_url("http://h:6006/v1/traces"), fine("http://h:6006", None));
        assert_eq!(PhoenixAddress::from_url("https://h/s/team/"), fine("https://h/s/team", None));
        assert_eq!(PhoenixAddress::from_url("phoenix://h/shop"), fine("http://h:6006", Some("shop")));
        let with_key = PhoenixAddress::from_url("http://key@h:6006").expect_err("a key");
        assert!(with_key.to_string().contains("PHOENIX_API_KEY") && !with_key.to_string().contains("key@"));
        for wrong in ["", "h:6006", "ftp://h", "http://", "file:///etc/passwd", "http://h?api_key=k"] {
            assert!(PhoenixAddress::from_url(wrong).is_err(), "{wrong:?}");
        }
    }

    #[test]
    fn every_message() {
        let message = |url| PhoenixAddress::from_url(url).expect_err("no address").to_string();
        insta::assert_snapshot!(["h:6006", "http://key@h:6006"].map(message).join("\n"));
    }

    #[test]
    fn addresses_are_shown_as_they_are_read() {
        for base in ["http://h:6006", "http://h", "https://h", "https://h:1", "http://[::1]:5"] {
            for project in [None, Some("shop"), Some("a/b c")] {
                let address = PhoenixAddress { base: base.to_owned(), project: project.map(str::to_owned) };
                assert_eq!(PhoenixAddress::from_source(&address.to_string()), Some(Ok(address)), "{base}");
            }
        }
        let with_path = PhoenixAddress { base: "https://h/s/team".to_owned(), project: Some("p".to_owned()) };
        assert_eq!(with_path.to_string(), "https://h/s/team p");
    }

    #[test]
    fn local_is_this_machine_only() {
        let local = |url| PhoenixAddress::from_url(url).is_ok_and(|address| address.is_local());
        assert!(local("http://127.0.0.1:6006") && local("http://localhost") && local("http://[::1]:1"));
        assert!(!local("http://127.0.0.1.example.com") && !local("https://p.example"));
    }

    proptest! {
        /// Any text is an address or a line that does not repeat it, and an address is a base that requests can go to.
        #[test]
        fn any_text_is_read_or_refused(text in "(phoenix://|phoenix\\+https://|https?://)?.{0,40}") {
            for read in [Some(PhoenixAddress::from_url(&text)), PhoenixAddress::from_source(&text)].into_iter().flatten() {
                match read {
                    Ok(address) => {
                        let url = Url::parse(&address.base);
                        prop_assert!(!address.base.ends_with('/'));
                        prop_assert!(url.is_ok_and(|url| url.username().is_empty() && url.query().is_none()));
                    }
                    Err(error) => prop_assert!(!error.to_string().contains('\n')),
                }
            }
        }
    }
}
