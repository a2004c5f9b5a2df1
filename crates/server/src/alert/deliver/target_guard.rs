//! Refuses private addresses for webhooks that were entered on the page. The server resolves names itself, and every
//! address that a name has must be public or allowed by `serve.alert_networks`; the connection then goes to the
//! checked addresses, so a name cannot change its meaning in between (DNS rebinding).

use std::net::{IpAddr, SocketAddr};
use std::time::Duration;

use reqwest::dns::{Addrs, Name, Resolve, Resolving};

use crate::alert::private_address::is_public_address;
use crate::alert::target::WebhookUrl;
use crate::client_address::IpNetwork;

/// Maximum time for resolving one name.
const LOOKUP_TIMEOUT: Duration = Duration::from_secs(5);

/// Why a target may not be reached. No message repeats more of the address than its host.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum TargetRefusal {
    #[error("{host} is or resolves to a private address; hint: the operator can allow it with serve.alert_networks")]
    Private { host: String },
    #[error("the name {host} cannot be resolved")]
    Unresolved { host: String },
}

/// The networks that are allowed although they are private.
#[derive(Clone, Debug, Default)]
pub(crate) struct TargetGuard {
    allowed: Vec<IpNetwork>,
}

impl TargetGuard {
    pub(crate) fn new(allowed: Vec<IpNetwork>) -> TargetGuard {
        TargetGuard { allowed }
    }

    fn may_reach(&self, ip: IpAddr) -> bool {
        is_public_address(ip) || self.allowed.iter().any(|network| network.contains(ip))
    }

    /// Resolves all addresses of a host. A single private address refuses the host: public names have none.
    async fn resolve_host(&self, host: &str, port: u16) -> Result<Vec<SocketAddr>, TargetRefusal> {
        let unresolved = || TargetRefusal::Unresolved { host: host.to_owned() };
        let lookup = tokio::net::lookup_host((host, port));
        let found = tokio::time::timeout(LOOKUP_TIMEOUT, lookup).await.map_err(|_| unresolved())?;
        let found: Vec<SocketAddr> = found.map_err(|_| unresolved())?.collect();
        match found.iter().all(|address| self.may_reach(address.ip())) {
            _ if found.is_empty() => Err(unresolved()),
            true => Ok(found),
            false => Err(TargetRefusal::Private { host: host.to_owned() }),
        }
    }

    /// Checks a target before it is stored, and again before each request: hosts that are written as numbers are
    /// connected to without the resolver.
    pub(crate) async fn check_target(&self, url: &WebhookUrl) -> Result<(), TargetRefusal> {
        let url = url.expose();
        // The brackets are not part of an IPv6 address.
        let host = url.host_str().unwrap_or_default().trim_matches(['[', ']']);
        self.resolve_host(host, url.port_or_known_default().unwrap_or(80)).await.map(drop)
    }
}

impl Resolve for TargetGuard {
    fn resolve(&self, name: Name) -> Resolving {
        let guard = self.clone();
        Box::pin(async move {
            // The client replaces port 0 by that of the address.
            let found = guard.resolve_host(name.as_str(), 0).await?;
            Ok(Box::new(found.into_iter()) as Addrs)
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    async fn check(allowed: &[&str], url: &str) -> Result<(), TargetRefusal> {
        let allowed = allowed.iter().map(|text| IpNetwork::parse(text).expect("a network")).collect();
        TargetGuard::new(allowed).check_target(&WebhookUrl::parse(url).expect("an address")).await
    }

    #[tokio::test]
    async fn private_addresses_are_refused_however_they_are_written() {
        for url in [
            "http://127.0.0.1:9000/secret",
            "http://[::1]/secret",
            "http://localhost/secret",
            "http://2130706433/secret",
            "http://0x7f.1/secret",
            "http://169.254.169.254/latest/meta-data",
            "http://[::ffff:10.0.0.1]/secret",
            "https://user:secret@192.168.1.1/secret",
        ] {
            let refusal = check(&[], url).await.expect_err(url);
            assert!(matches!(refusal, TargetRefusal::Private { .. }), "{url}: {refusal}");
            assert!(!refusal.to_string().contains("secret"), "{refusal}");
        }
        assert_eq!(check(&[], "http://1.1.1.1/hook").await, Ok(()));
    }

    #[tokio::test]
    async fn allowed_networks_are_reached() {
        assert_eq!(check(&["127.0.0.0/8"], "http://127.0.0.1:9000/").await, Ok(()));
        assert!(check(&["127.0.0.0/8"], "http://10.0.0.1/").await.is_err());
        let refusal = check(&["127.0.0.0/8"], "http://nowhere.invalid/").await.expect_err("no such name");
        assert!(matches!(refusal, TargetRefusal::Unresolved { .. }), "{refusal}");
    }
}
