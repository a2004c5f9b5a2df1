//! The client that a request counts for: the address of the connection, or the one that a configured proxy reports.

use std::net::{IpAddr, Ipv6Addr};

use axum::http::HeaderMap;

/// An address as limits count it. A client with an IPv6 network can use any address of it, so IPv6 is counted by /64.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(super) struct ClientAddress(IpAddr);

/// The older header, which wins where a proxy sends both, and the one of RFC 7239.
const X_FORWARDED_FOR: &str = "x-forwarded-for";
const FORWARDED: &str = "forwarded";

tokio::task_local! {
    // Task-local, so that leases and write lanes deep inside a handler are charged to the right client without passing
    // it along.
    static CURRENT: ClientAddress;
}

impl ClientAddress {
    /// The address for the server's own work.
    const NONE: ClientAddress = ClientAddress(IpAddr::V6(Ipv6Addr::UNSPECIFIED));

    /// Returns the client of the request that this task answers; [`ClientAddress::NONE`] outside of a request.
    pub(super) fn current() -> ClientAddress {
        CURRENT.try_with(|client| *client).unwrap_or(ClientAddress::NONE)
    }

    /// Runs a future with this client as the current one.
    pub(super) async fn scope<T>(self, answering: impl Future<Output = T>) -> T {
        CURRENT.scope(self, answering).await
    }

    /// Maps IPv4-mapped IPv6 addresses to IPv4, and IPv6 addresses to their /64 network.
    pub(super) fn from_ip(ip: IpAddr) -> ClientAddress {
        ClientAddress(match ip.to_canonical() {
            IpAddr::V6(address) => {
                let [a, b, c, d, ..] = address.segments();
                // `::1` is one machine: its network would be `::`, which is [`ClientAddress::NONE`].
                let keeps_all = address.is_loopback();
                IpAddr::V6(if keeps_all { address } else { Ipv6Addr::new(a, b, c, d, 0, 0, 0, 0) })
            }
            address => address,
        })
    }

    /// Returns the client of a request. Headers count only when the connection comes from a trusted proxy; of the
    /// addresses in them, the last one that is not a trusted proxy is the client: a client can forge the addresses
    /// before it.
    pub(super) fn from_request(peer: IpAddr, headers: &HeaderMap, proxies: &[IpNetwork]) -> ClientAddress {
        let is_proxy = |ip: &IpAddr| proxies.iter().any(|network| network.contains(*ip));
        if !is_proxy(&peer) {
            return ClientAddress::from_ip(peer);
        }
        let mut client = peer;
        for ip in forwarded_addresses(headers).into_iter().rev() {
            // An unreadable address ends the chain: the addresses before it cannot be trusted.
            let Some(ip) = ip else { break };
            client = ip;
            if !is_proxy(&ip) {
                break;
            }
        }
        ClientAddress::from_ip(client)
    }
}

impl std::fmt::Display for ClientAddress {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        self.0.fmt(f)
    }
}

/// Returns the addresses that proxies reported, in the order of the hops; `None` for an unreadable one.
fn forwarded_addresses(headers: &HeaderMap) -> Vec<Option<IpAddr>> {
    let values = |name: &str| -> Vec<String> {
        let values = headers.get_all(name).iter().map(|value| value.to_str().unwrap_or("?"));
        values.flat_map(|value| value.split(',')).map(|one| one.trim().to_owned()).collect()
    };
    let plain = values(X_FORWARDED_FOR);
    if !plain.is_empty() {
        return plain.iter().map(|text| parse_node(text)).collect();
    }
    let find_node = |hop: &String| {
        let pairs = hop.split(';').filter_map(|pair| pair.trim().split_once('='));
        let mut nodes = pairs.filter(|(name, _)| name.eq_ignore_ascii_case("for"));
        nodes.next().and_then(|(_, node)| parse_node(node.trim_matches('"')))
    };
    values(FORWARDED).iter().map(find_node).collect()
}

/// Parses an address, which may have a port and brackets.
fn parse_node(text: &str) -> Option<IpAddr> {
    if let Ok(ip) = text.parse::<IpAddr>() {
        return Some(ip);
    }
    if let Ok(address) = text.parse::<std::net::SocketAddr>() {
        return Some(address.ip());
    }
    text.strip_prefix('[')?.strip_suffix(']')?.parse().ok()
}

/// A network of addresses, as `10.0.0.0/8` or a single address.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct IpNetwork {
    address: IpAddr,
    prefix: u8,
}

impl IpNetwork {
    /// Reads CIDR notation. `None` if the address is invalid or the prefix is longer than the address.
    pub(super) fn parse(text: &str) -> Option<IpNetwork> {
        let (address, prefix) = match text.split_once('/') {
            Some((address, prefix)) => (address, Some(prefix.parse::<u8>().ok()?)),
            None => (text, None),
        };
        let address: IpAddr = address.trim().parse().ok()?;
        let bits = if address.is_ipv4() { 32 } else { 128 };
        let prefix = prefix.unwrap_or(bits);
        (prefix <= bits).then_some(IpNetwork { address, prefix })
    }

    /// An IPv4 network also contains the IPv4-mapped IPv6 form of its addresses.
    pub(super) fn contains(&self, ip: IpAddr) -> bool {
        let prefix = u32::from(self.prefix);
        match (self.address, ip.to_canonical()) {
            (IpAddr::V4(network), IpAddr::V4(ip)) => {
                // A prefix of 0 shifts by the full width, which `checked_shl` reports as `None`: the mask is empty
                // then.
                let mask = u32::MAX.checked_shl(32 - prefix).unwrap_or(0);
                (network.to_bits() ^ ip.to_bits()) & mask == 0
            }
            (IpAddr::V6(network), IpAddr::V6(ip)) => {
                let mask = u128::MAX.checked_shl(128 - prefix).unwrap_or(0);
                (network.to_bits() ^ ip.to_bits()) & mask == 0
            }
            _ => false,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ip(text: &str) -> IpAddr {
        text.parse().expect("an address")
    }

    #[test]
    fn networks_hold_their_addresses() {
        let holds = |network: &str, address: &str| IpNetwork::parse(network).expect("a network").contains(ip(address));
        assert!(holds("10.0.0.0/8", "10.255.0.1") && !holds("10.0.0.0/8", "11.0.0.1"));
        assert!(holds("0.0.0.0/0", "1.2.3.4") && !holds("0.0.0.0/0", "::2"));
        assert!(holds("127.0.0.2", "127.0.0.2") && !holds("127.0.0.2", "127.0.0.3"));
        assert!(holds("127.0.0.2", "::ffff:127.0.0.2"));
        assert!(holds("fd00::/8", "fd12::1") && !holds("fd00::/8", "fe00::1"));
        for wrong in ["", "10.0.0.0/33", "::/129", "proxy.example", "10.0.0.0/x"] {
            assert_eq!(IpNetwork::parse(wrong), None, "{wrong}");
        }
    }

    #[test]
    fn headers_count_only_from_proxies() {
        let proxies = [IpNetwork::parse("10.0.0.0/8").expect("a network")];
        let client = |peer: &str, header: &'static str, value: &'static str| {
            let mut headers = HeaderMap::new();
            headers.insert(header, value.parse().expect("a value"));
            ClientAddress::from_request(ip(peer), &headers, &proxies).to_string()
        };
        assert_eq!(client("1.1.1.1", X_FORWARDED_FOR, "9.9.9.9"), "1.1.1.1");
        assert_eq!(client("10.0.0.1", X_FORWARDED_FOR, "9.9.9.9"), "9.9.9.9");
        // What a client writes itself stands before what the proxy adds.
        assert_eq!(client("10.0.0.1", X_FORWARDED_FOR, "8.8.8.8, 9.9.9.9, 10.0.0.2"), "9.9.9.9");
        assert_eq!(client("10.0.0.1", X_FORWARDED_FOR, "8.8.8.8, nonsense"), "10.0.0.1");
        assert_eq!(client("10.0.0.1", FORWARDED, "for=\"[2001:db8::7]:80\";proto=https"), "2001:db8::");
        assert_eq!(client("10.0.0.1", FORWARDED, "for=9.9.9.9:1234, for=10.0.0.7"), "9.9.9.9");
        assert_eq!(client("10.0.0.1", "x-real-ip", "9.9.9.9"), "10.0.0.1");
    }

    #[test]
    fn one_network_is_one_client() {
        let key = |text: &str| ClientAddress::from_ip(ip(text));
        assert_eq!(key("2001:db8::1"), key("2001:db8::ffff:1"));
        assert_ne!(key("2001:db8:0:1::1"), key("2001:db8::1"));
        assert_eq!(key("::ffff:127.0.0.1"), key("127.0.0.1"));
    }
}
