//! Protection of local servers against web pages of other sites. A browser sends requests to servers on its own machine
//! for any page that asks. Servers here refuse requests that another site caused, requests that reached them under
//! another host name (DNS rebinding), and bodies that a page of another site can send without a CORS preflight.

use std::net::{IpAddr, Ipv6Addr};

use http::header::{CONTENT_TYPE, HOST, HeaderName, ORIGIN, REFERER};
use http::uri::Authority;
use http::{HeaderMap, Method, Uri};

const SEC_FETCH_SITE: HeaderName = HeaderName::from_static("sec-fetch-site");

/// Content types that a form or a script of another site can send without a CORS preflight (Fetch, "CORS-safelisted
/// request-header").
const SIMPLE_CONTENT_TYPES: [&str; 3] = ["application/x-www-form-urlencoded", "multipart/form-data", "text/plain"];

/// Whether a method may change state. `GET` and `HEAD` never do here; `OPTIONS` is the preflight's.
pub fn is_state_changing(method: &Method) -> bool {
    !matches!(*method, Method::GET | Method::HEAD | Method::OPTIONS)
}

/// Whether every host that the request names is this machine. Without any name (HTTP/1.0) no browser sent it.
pub fn is_addressed_to_loopback(headers: &HeaderMap, uri: &Uri) -> bool {
    let authority = uri.authority().map(Authority::as_str);
    let mut hosts = headers.get_all(HOST).iter().map(|host| host.to_str().ok()).chain(authority.map(Some));
    hosts.all(|host| host.is_some_and(is_loopback_host))
}

/// Whether a host, with or without a port, is a loopback address or a name that always resolves to one (RFC 6761).
pub fn is_loopback_host(host: &str) -> bool {
    let name = match host.rsplit_once(':') {
        Some((name, port)) if port.bytes().all(|byte| byte.is_ascii_digit()) => name,
        _ => host,
    };
    if let Some(inner) = name.strip_prefix('[') {
        let address = inner.strip_suffix(']').and_then(|inner| inner.parse::<Ipv6Addr>().ok());
        return address.is_some_and(|address| address.is_loopback());
    }
    let name = name.to_ascii_lowercase();
    name == "localhost"
        || name.ends_with(".localhost")
        || name.parse::<IpAddr>().is_ok_and(|address| address.is_loopback())
}

/// Returns the page that caused a request, if the browser states that it belongs to another site. Pages of
/// `trusted_origins` are allowed.
///
/// `Sec-Fetch-Site` decides where a browser sends it. Otherwise `Origin` and `Referer` decide, because browsers leave
/// it out on plain HTTP between machines. Clients other than browsers send none of them.
pub fn find_cross_site_page(headers: &HeaderMap, uri: &Uri, trusted_origins: &[impl AsRef<str>]) -> Option<String> {
    let is_trusted = |origin: &str| trusted_origins.iter().any(|trusted| trusted.as_ref().eq_ignore_ascii_case(origin));
    let origins = header_values(headers, &ORIGIN);
    if !origins.is_empty() && origins.iter().all(|origin| is_trusted(origin)) {
        return None;
    }
    let sites = header_values(headers, &SEC_FETCH_SITE);
    if !sites.is_empty() {
        if sites.iter().all(|site| site == "same-origin") {
            return None;
        }
        if sites.iter().any(|site| site != "none") {
            let page = origins.into_iter().next();
            return Some(page.unwrap_or_else(|| "another site".to_owned()));
        }
    }
    let authority = uri.authority().map(|authority| authority.as_str().to_owned());
    let hosts: Vec<String> = header_values(headers, &HOST).into_iter().chain(authority).collect();
    let is_own = |origin: &str| {
        let rest = origin.split_once("://").map(|(_, rest)| rest);
        rest.is_some_and(|rest| hosts.iter().any(|host| host.eq_ignore_ascii_case(rest)))
    };
    if !origins.is_empty() {
        return origins.into_iter().find(|origin| !is_own(origin) && !is_trusted(origin));
    }
    header_values(headers, &REFERER)
        .iter()
        .map(|referer| origin_part(referer).to_owned())
        .find(|origin| !is_own(origin) && !is_trusted(origin))
}

/// Returns the content type of a body that a page of another site can send without a preflight. A missing one is the
/// empty text.
pub fn find_simple_content_type(headers: &HeaderMap) -> Option<String> {
    let kinds = header_values(headers, &CONTENT_TYPE);
    if kinds.is_empty() {
        return Some(String::new());
    }
    let essences = kinds.iter().map(|kind| kind.split(';').next().unwrap_or_default().trim());
    let mut essences = essences.map(str::to_ascii_lowercase);
    essences.find(|kind| kind.is_empty() || SIMPLE_CONTENT_TYPES.contains(&kind.as_str()))
}

/// Returns scheme and authority of an address: its origin.
pub fn origin_part(url: &str) -> &str {
    let start = url.find("://").map_or(0, |at| at + 3);
    let end = url[start..].find(['/', '?', '#']).map_or(url.len(), |at| start + at);
    &url[..end]
}

/// Returns all values of a header. Invalid UTF-8 is replaced, and so matches nothing.
fn header_values(headers: &HeaderMap, name: &HeaderName) -> Vec<String> {
    let values = headers.get_all(name).iter();
    values.map(|value| String::from_utf8_lossy(value.as_bytes()).trim().to_owned()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn headers(pairs: &[(&'static str, &str)]) -> HeaderMap {
        let mut headers = HeaderMap::new();
        for (name, value) in pairs {
            headers.append(HeaderName::from_static(name), value.parse().unwrap());
        }
        headers
    }

    fn cross_site(pairs: &[(&'static str, &str)]) -> Option<String> {
        let trusted = ["https://page.example", "https://gradus.example"];
        find_cross_site_page(&headers(pairs), &Uri::from_static("/x"), &trusted)
    }

    #[test]
    fn pages_of_other_sites_are_found_by_any_of_the_headers() {
        let host = ("host", "127.0.0.1:4318");
        for pairs in [
            &[host, ("sec-fetch-site", "cross-site")][..],
            &[host, ("sec-fetch-site", "same-site")],
            &[host, ("sec-fetch-site", "same-site"), ("origin", "http://127.0.0.1:4318")],
            &[host, ("sec-fetch-site", "same-origin"), ("sec-fetch-site", "cross-site")],
            &[host, ("sec-fetch-site", "what")],
            &[host, ("sec-fetch-site", "none"), ("origin", "https://evil.example")],
            &[host, ("origin", "https://evil.example")],
            &[host, ("origin", "null")],
            &[host, ("origin", "http://127.0.0.1:9999")],
            &[host, ("origin", "http://localhost:4318")],
            &[host, ("origin", "http://127.0.0.1:4318"), ("origin", "https://evil.example")],
            &[host, ("origin", "https://page.example"), ("origin", "https://evil.example")],
            &[host, ("origin", "https://page.example.evil.example")],
            &[host, ("origin", "")],
            &[host, ("referer", "https://evil.example/127.0.0.1:4318")],
            &[("origin", "http://127.0.0.1:4318")],
        ] {
            assert!(cross_site(pairs).is_some(), "{pairs:?}");
        }
    }

    #[test]
    fn own_pages_trusted_origins_and_clients_that_are_no_browsers_pass() {
        let host = ("host", "127.0.0.1:4318");
        for pairs in [
            &[host][..],
            &[],
            &[host, ("sec-fetch-site", "same-origin")],
            &[host, ("sec-fetch-site", "none")],
            // Behind a proxy that rewrites Host.
            &[host, ("sec-fetch-site", "same-origin"), ("origin", "https://elsewhere.example")],
            &[host, ("origin", "https://gradus.example")],
            &[host, ("sec-fetch-site", "cross-site"), ("origin", "https://page.example")],
            &[host, ("origin", "http://127.0.0.1:4318")],
            &[("host", "Gradus.Local"), ("origin", "https://gradus.local")],
            &[host, ("referer", "http://127.0.0.1:4318/traces?q=1")],
        ] {
            assert_eq!(cross_site(pairs), None, "{pairs:?}");
        }
    }

    #[test]
    fn bodies_that_a_page_can_send_unasked_are_known() {
        for kind in ["text/plain", "TEXT/PLAIN;charset=UTF-8", "multipart/form-data; boundary=x", "", " ; x"] {
            assert!(find_simple_content_type(&headers(&[("content-type", kind)])).is_some(), "{kind:?}");
        }
        assert_eq!(find_simple_content_type(&headers(&[])).as_deref(), Some(""));
        let disguised = headers(&[("content-type", "text/plain; application/json")]);
        assert_eq!(find_simple_content_type(&disguised).as_deref(), Some("text/plain"));
        let twice = headers(&[("content-type", "application/json"), ("content-type", "text/plain")]);
        assert!(find_simple_content_type(&twice).is_some());
        for kind in ["application/json", "application/json; charset=utf-8", "application/x-protobuf"] {
            assert_eq!(find_simple_content_type(&headers(&[("content-type", kind)])), None, "{kind}");
        }
    }

    #[test]
    fn only_loopback_hosts_are_loopback() {
        for host in ["localhost", "LOCALHOST:1", "127.0.0.1", "127.8.0.1:80", "[::1]", "[::1]:4318", "a.localhost:1"] {
            assert!(is_loopback_host(host), "{host}");
        }
        for host in [
            "",
            "evil.example",
            "127.0.0.1.evil.example",
            "127.0.0.1:x@evil.example",
            "localhost.evil.example:80",
            "10.0.0.1",
            "[2001:db8::1]:80",
            "[::1",
            "0.0.0.0",
        ] {
            assert!(!is_loopback_host(host), "{host}");
        }
        let both = headers(&[("host", "localhost"), ("host", "evil.example")]);
        assert!(!is_addressed_to_loopback(&both, &Uri::from_static("/")));
        let absolute = Uri::from_static("http://evil.example/x");
        assert!(!is_addressed_to_loopback(&headers(&[("host", "localhost")]), &absolute));
        assert!(is_addressed_to_loopback(&headers(&[]), &Uri::from_static("/")));
    }
}
