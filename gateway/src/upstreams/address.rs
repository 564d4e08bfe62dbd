//! Which addresses are public: everything else may be a neighbour of the gateway that trusts whoever reaches it.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

/// Whether an address is one of the public internet. What is not sure is not.
pub(super) fn is_public(address: IpAddr) -> bool {
    match address {
        IpAddr::V4(address) => is_public_v4(address),
        IpAddr::V6(address) => is_public_v6(address),
    }
}

fn is_public_v4(address: Ipv4Addr) -> bool {
    let within = |net: [u8; 4], prefix: u32| {
        let mask = u32::MAX << (32 - prefix);
        u32::from(address) & mask == u32::from(Ipv4Addr::from(net))
    };
    let reserved = [
        ([0, 0, 0, 0], 8),
        ([10, 0, 0, 0], 8),
        // Between providers and their customers; pods and a cloud's metadata (100.100.100.200) are there, too.
        ([100, 64, 0, 0], 10),
        ([127, 0, 0, 0], 8),
        // Link-local, with the metadata of most clouds.
        ([169, 254, 0, 0], 16),
        ([172, 16, 0, 0], 12),
        // For protocols, with the metadata of one cloud (192.0.0.192).
        ([192, 0, 0, 0], 24),
        ([192, 0, 2, 0], 24),
        ([192, 88, 99, 0], 24),
        ([192, 168, 0, 0], 16),
        ([198, 18, 0, 0], 15),
        ([198, 51, 100, 0], 24),
        ([203, 0, 113, 0], 24),
        // Multicast, reserved, broadcast.
        ([224, 0, 0, 0], 3),
        // A public address that is a cloud's own agent on each of its machines.
        ([168, 63, 129, 16], 32),
    ];
    !reserved.iter().any(|(net, prefix)| within(*net, *prefix))
}

fn is_public_v6(address: Ipv6Addr) -> bool {
    // Written as IPv6, it goes to the IPv4 address all the same.
    if let Some(v4) = inner_v4(address) {
        return is_public_v4(v4);
    }
    let [first, second, ..] = address.segments();
    // Only 2000::/3 is given out: loopback, link-local, unique local, site-local and multicast are elsewhere.
    let global = first & 0xe000 == 0x2000;
    let reserved = match (first, second) {
        // For protocols and tunnels (2001::/23), documentation (2001:db8::/32), ...
        (0x2001, second) => second < 0x200 || second == 0xdb8,
        // ... and documentation again (3fff::/20).
        (0x3fff, second) => second < 0x1000,
        _ => false,
    };
    global && !reserved
}

/// The IPv4 address that an IPv6 one stands for: mapped, compatible, translated (`64:ff9b::/96`), or of a tunnel
/// (`2002::/16`).
fn inner_v4(address: Ipv6Addr) -> Option<Ipv4Addr> {
    let pair = |high: u16, low: u16| Ipv4Addr::from((u32::from(high) << 16) | u32::from(low));
    match address.segments() {
        [0, 0, 0, 0, 0, 0xffff | 0, high, low] | [0x64, 0xff9b, 0, 0, 0, 0, high, low] => {
            Some(pair(high, low))
        }
        [0x2002, high, low, ..] => Some(pair(high, low)),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_addresses_of_the_public_internet_are_public() {
        for public in [
            "1.1.1.1",
            "93.184.216.34",
            "100.63.255.255",
            "172.32.0.1",
            "2606:4700::1111",
            "2a00:1450::1",
            "64:ff9b::101:101",
            "2002:101:101::1",
            "::ffff:1.1.1.1",
        ] {
            assert!(is_public(public.parse().unwrap()), "{public}");
        }
        for closed in [
            "0.0.0.0",
            "10.96.0.1",
            "100.64.0.1",
            "100.100.100.200",
            "127.0.0.1",
            "127.8.8.8",
            "169.254.169.254",
            "169.254.170.2",
            "168.63.129.16",
            "172.16.0.1",
            "172.31.255.255",
            "192.0.0.192",
            "192.168.1.1",
            "198.18.0.1",
            "224.0.0.1",
            "240.0.0.1",
            "255.255.255.255",
            "::",
            "::1",
            "::7f00:1",
            "::ffff:127.0.0.1",
            "::ffff:169.254.169.254",
            "::ffff:10.0.0.1",
            "64:ff9b::a9fe:a9fe",
            "64:ff9b:1::1",
            "2002:7f00:1::",
            "2002:a00:1::1",
            "2001::1",
            "2001:db8::1",
            "3fff:1::1",
            "fe80::1",
            "fec0::1",
            "fc00::1",
            "fd00:ec2::254",
            "fd20:ce::254",
            "ff02::1",
            "100::1",
        ] {
            assert!(!is_public(closed.parse().unwrap()), "{closed}");
        }
    }
}
