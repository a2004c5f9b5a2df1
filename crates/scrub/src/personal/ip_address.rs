//! IPv4 and IPv6 addresses, without version numbers and without addresses that name no machine.

use std::net::{Ipv4Addr, Ipv6Addr};
use std::ops::Range;
use std::sync::LazyLock;

use regex::Regex;

use crate::char_classes::{byte_at, byte_before, text_before};

static IPV4: LazyLock<Regex> = LazyLock::new(|| compile(r"(?-u:[0-9]{1,3}(?:\.[0-9]{1,3}){3})"));
static IPV6: LazyLock<Regex> =
    LazyLock::new(|| compile(r"(?-u:[0-9A-Fa-f]{0,4}(?::[0-9A-Fa-f]{0,4}){2,8}(?:\.[0-9]{1,3}){0,3})"));

fn compile(pattern: &str) -> Regex {
    Regex::new(pattern).unwrap_or_else(|error| panic!("pattern of addresses: {error}"))
}

/// Adds addresses. Loopback, unspecified, multicast and documentation addresses and private networks are added only if
/// `include_reserved`.
pub(crate) fn find_ip_addresses(text: &str, include_reserved: bool, add: &mut impl FnMut(Range<usize>)) {
    for found in IPV4.find_iter(text) {
        let Ok(address) = found.as_str().parse::<Ipv4Addr>() else { continue };
        if is_standalone_address(text, found.range())
            && !is_version(text, found.range(), address)
            && (include_reserved || !is_reserved_v4(address) && !is_large_network(text, found.range()))
        {
            add(found.range());
        }
    }
    for found in IPV6.find_iter(text) {
        let Ok(address) = found.as_str().parse::<Ipv6Addr>() else { continue };
        if is_standalone_address(text, found.range())
            && has_address_shape(found.as_str())
            && (include_reserved || !is_reserved_v6(address) && !is_large_network(text, found.range()))
        {
            add(found.range());
        }
    }
}

/// Whether a text is a network of many machines: `198.18.0.0/15`, `4000::/3`.
fn is_large_network(text: &str, span: Range<usize>) -> bool {
    let address = &text[span.clone()];
    byte_at(text, span.end) == Some(b'/') && (address.ends_with(".0.0") || address.ends_with("::"))
}

fn is_standalone_address(text: &str, span: Range<usize>) -> bool {
    let is_before = byte_before(text, span.start).is_none_or(|byte| {
        let is_escape = text_before(text, span.start, 2).starts_with('\\') && matches!(byte, b'n' | b't' | b'r');
        is_escape
            || !(byte.is_ascii_alphanumeric()
                || matches!(byte, b'_' | b'.' | b':' | b'-' | b'+') && !is_port_colon(text, span.start))
    });
    let is_after = match byte_at(text, span.end) {
        Some(b'.') => byte_at(text, span.end + 1).is_none_or(|byte| !byte.is_ascii_alphanumeric()),
        Some(byte) => !(byte.is_ascii_alphanumeric() || matches!(byte, b'_')),
        None => true,
    };
    is_before && is_after
}

/// Whether the colon before an address separates a name: `host:10.0.0.7`.
fn is_port_colon(text: &str, at: usize) -> bool {
    byte_before(text, at) == Some(b':') && at >= 2 && text.as_bytes()[at - 2] != b':'
}

/// Whether four numbers are a version: after a word about versions, an operator of requirements, or the name of a
/// program (`Chrome/120.0.0.0`), or if they begin with three numbers of one digit and are not used as a host.
fn is_version(text: &str, span: Range<usize>, address: Ipv4Addr) -> bool {
    let octets = address.octets();
    let is_host = text_before(text, span.start, 3).ends_with("://") || byte_at(text, span.end) == Some(b':');
    if octets[..3].iter().all(|octet| *octet < 10) && (octets[3] < 10 || !is_host) {
        return true;
    }
    let before = text_before(text, span.start, 16).to_ascii_lowercase();
    let before = before.trim_end_matches([' ', '"', '\'', ':', '=', '(', '\\']);
    if ["version", "versions", "ver", "release", "build", "section", "assemblyversion", "fileversion"]
        .iter()
        .any(|word| before.ends_with(word))
    {
        return true;
    }
    let bytes = text.as_bytes();
    let is_program = span.start >= 2 && bytes[span.start - 1] == b'/' && bytes[span.start - 2].is_ascii_alphanumeric();
    let is_requirement = span.start >= 2
        && matches!(bytes[span.start - 1], b'=' | b'@' | b'^' | b'~')
        && matches!(bytes[span.start - 2], b'=' | b'>' | b'<' | b'~' | b'!');
    is_program || is_requirement || byte_before(text, span.start) == Some(b'^')
}

fn is_reserved_v4(address: Ipv4Addr) -> bool {
    let octets = address.octets();
    // 240/4 is reserved; in texts it is netmasks and broadcasts. `10.0.0.0` names a network that everybody has.
    let is_private_network =
        octets[3] == 0 && octets[2] == 0 && (address.is_private() || address.is_link_local() || octets[0] == 100);
    octets[0] == 0
        || octets[0] >= 240
        || address.is_multicast()
        || address.is_loopback()
        || address.is_documentation()
        || is_private_network
}

fn is_reserved_v6(address: Ipv6Addr) -> bool {
    let segments = address.segments();
    let is_documentation =
        segments[0] == 0x2001 && segments[1] == 0x0db8 || segments[0] == 0x3fff && segments[1] < 0x1000;
    address.is_loopback()
        || address.is_unspecified()
        || is_documentation
        || address.to_ipv4_mapped().is_some_and(is_reserved_v4)
}

/// Paths of code (`ab::cd`) parse as addresses. A short address needs a first group as networks have it (`fe80::1`).
fn has_address_shape(text: &str) -> bool {
    let groups: Vec<&str> = text.split(':').filter(|group| !group.is_empty()).collect();
    let has_digit = text.bytes().any(|byte| byte.is_ascii_digit());
    let is_network = groups.first().is_some_and(|first| {
        first.len() >= 3 && first.bytes().any(|byte| byte.is_ascii_digit()) || *first == "fd" || *first == "fc"
    });
    has_digit && (groups.len() >= 4 || is_network && !text.starts_with("::"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn find(text: &str) -> Vec<&str> {
        let mut found = Vec::new();
        find_ip_addresses(text, false, &mut |span| found.push(&text[span]));
        found
    }

    #[test]
    fn addresses_are_found_with_ports_and_masks() {
        assert_eq!(
            find("http://10.20.30.40:8080/x, 192.168.1.7/24 and [fe80::1ff:fe23:4567:890a]."),
            ["10.20.30.40", "192.168.1.7", "fe80::1ff:fe23:4567:890a"]
        );
        assert_eq!(find("inet6 2a01:4f8:c17:1::2/64"), ["2a01:4f8:c17:1::2"]);
        assert_eq!(find(r"from\n81.2.69.160."), ["81.2.69.160"]);
        assert_eq!(find("2001:0470:0000:0000:0000:0000:0000:0001 x"), ["2001:0470:0000:0000:0000:0000:0000:0001"]);
    }

    #[test]
    fn versions_times_paths_and_reserved_addresses_stay() {
        for text in [
            "127.0.0.1:80",
            "0.0.0.0",
            "255.255.255.0",
            "192.0.2.7",
            "v10.20.30.40",
            "Chrome/120.0.6099.71",
            "pkg==10.2.30.4",
            "version 10.20.30.40",
            "1.2.3.4",
            "section 7.1.4.34",
            "10.0.0.0/8",
            "198.18.0.0/15",
            "4000::/3",
            "224.0.0.1",
            "1.3.6.1.4.1",
            "12:34:56",
            "std::fs",
            "ab::cd",
            "::1",
            "2001:db8::1",
            "aa:bb:cc:dd:ee:ff",
            "999.1.1.1",
        ] {
            assert!(find(text).is_empty(), "{text}");
        }
        let mut count = 0;
        find_ip_addresses("127.0.0.1 2001:db8::1", true, &mut |_| count += 1);
        assert_eq!(count, 2);
    }
}
