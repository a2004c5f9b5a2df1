//! Proxies of the environment. They are for other machines: servers on this one are contacted directly.

use reqwest::{ClientBuilder, NoProxy, Proxy};

const LOOPBACK_HOSTS: &str = "localhost,127.0.0.0/8,::1";

/// Configures the proxies of the environment, except for this machine. Lower-case names win over upper-case ones, as in
/// curl.
pub(crate) fn with_environment_proxies(builder: ClientBuilder) -> ClientBuilder {
    let read = |names: [&str; 2]| {
        names.into_iter().filter_map(|name| std::env::var(name).ok()).find(|value| !value.trim().is_empty())
    };
    let direct = no_proxy_hosts(read(["no_proxy", "NO_PROXY"]).as_deref());
    // In a CGI process, `HTTP_PROXY` is the `Proxy` header of a visitor (httpoxy).
    let is_cgi = std::env::var_os("REQUEST_METHOD").is_some();
    let http = read(["http_proxy", if is_cgi { "http_proxy" } else { "HTTP_PROXY" }]);
    let (https, all) = (read(["https_proxy", "HTTPS_PROXY"]), read(["all_proxy", "ALL_PROXY"]));
    [&http, &https, &all].into_iter().flatten().for_each(|url| crate::secret::register_url_secrets(url));
    let proxies = [
        http.and_then(|url| Proxy::http(url).ok()),
        https.and_then(|url| Proxy::https(url).ok()),
        all.and_then(|url| Proxy::all(url).ok()),
    ];
    let proxies = proxies.into_iter().flatten().map(|proxy| proxy.no_proxy(NoProxy::from_string(&direct)));
    proxies.fold(builder.no_proxy(), ClientBuilder::proxy)
}

/// Hosts that are contacted without a proxy.
fn no_proxy_hosts(given: Option<&str>) -> String {
    match given {
        Some(given) => format!("{given},{LOOPBACK_HOSTS}"),
        None => LOOPBACK_HOSTS.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_the_user_excepts_stays_excepted() {
        assert_eq!(no_proxy_hosts(Some("example.org")), "example.org,localhost,127.0.0.0/8,::1");
        assert_eq!(no_proxy_hosts(None), LOOPBACK_HOSTS);
    }
}
