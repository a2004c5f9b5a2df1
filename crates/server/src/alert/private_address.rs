//! Which addresses are allowed for webhooks that were entered on the page. Services inside a network trust whoever
//! can reach them, so a page must not make the server reach them (server-side request forgery).

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

/// Whether an address is globally reachable, by the special-purpose registries of IANA (RFC 6890). Addresses that embed
/// an IPv4 address count as that one.
pub(super) fn is_public_address(ip: IpAddr) -> bool {
    match ip {
        IpAddr::V4(ip) => is_public_v4(ip),
        IpAddr::V6(ip) => match find_embedded_v4(ip) {
            Some(embedded) => is_public_v4(embedded),
            None => is_public_v6(ip),
        },
    }
}

fn is_public_v4(ip: Ipv4Addr) -> bool {
    let [a, b, c, _] = ip.octets();
    let is_special = ip.is_private()
        || ip.is_loopback()
        || ip.is_link_local()
        || ip.is_documentation()
        || ip.is_multicast()
        // "This network", shared address space of carriers, IETF protocols, benchmarking, reserved and broadcast.
        || a == 0
        || (a == 100 && (64..128).contains(&b))
        || (a == 192 && b == 0 && c == 0)
        || (a == 198 && (b == 18 || b == 19))
        || a >= 240;
    !is_special
}

fn is_public_v6(ip: Ipv6Addr) -> bool {
    let [first, second, ..] = ip.segments();
    // Global unicast is 2000::/3; everything else is loopback, unique local, link-local, multicast or unassigned. Of
    // it, 2001:0000::/23 is for protocols (Teredo among them) and 2001:db8::/32 and 3fff::/20 are for documentation.
    let is_global = (0x2000..0x4000).contains(&first);
    let is_special = (first == 0x2001 && (second < 0x200 || second == 0xdb8)) || (first == 0x3fff && second < 0x1000);
    is_global && !is_special
}

/// IPv4-mapped, IPv4-compatible, NAT64 (64:ff9b::/96) and 6to4 (2002::/16) addresses.
fn find_embedded_v4(ip: Ipv6Addr) -> Option<Ipv4Addr> {
    let last = || {
        let [.., a, b] = ip.segments();
        Ipv4Addr::from_bits(u32::from(a) << 16 | u32::from(b))
    };
    match ip.segments() {
        [0, 0, 0, 0, 0, 0xffff | 0, ..] | [0x64, 0xff9b, 0, 0, 0, 0, ..] => Some(last()),
        [0x2002, a, b, ..] => Some(Ipv4Addr::from_bits(u32::from(a) << 16 | u32::from(b))),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_inside_networks_are_not_public() {
        for text in [
            "127.0.0.1",
            "10.1.2.3",
            "172.31.255.255",
            "192.168.0.1",
            "169.254.169.254",
            "100.64.0.1",
            "0.0.0.0",
            "198.18.0.1",
            "192.0.0.8",
            "224.0.0.1",
            "255.255.255.255",
            "::1",
            "::",
            "fe80::1",
            "fc00::1",
            "fd12:3456::1",
            "ff02::1",
            "fec0::1",
            "2001:db8::1",
            "::ffff:127.0.0.1",
            "::127.0.0.1",
            "64:ff9b::a00:1",
            "2002:7f00:1::",
        ] {
            assert!(!is_public_address(text.parse().expect("an address")), "{text}");
        }
    }

    #[test]
    fn addresses_of_the_internet_are_public() {
        for text in ["1.1.1.1", "100.63.0.1", "172.32.0.1", "192.0.1.1", "2606:4700::1111", "64:ff9b::101:101"] {
            assert!(is_public_address(text.parse().expect("an address")), "{text}");
        }
    }
}
