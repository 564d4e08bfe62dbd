//! Whose call it is: the peer, or what the trusted proxies say. One rule for every door.

use std::net::IpAddr;

use crate::cidr::CidrSet;

/// The header that proxies write. Pass all of its lines to [`caller_address`].
pub const FORWARDED_FOR: &str = "x-forwarded-for";
/// Longest `x-forwarded-for`, all lines together.
const MAX_BYTES: usize = 2048;
/// Most entries in it.
const MAX_ENTRIES: usize = 20;

/// How the caller's address is found.
#[derive(Debug, Clone, Default)]
pub struct AddressRule {
    /// How many proxies stand before us; 0: the header is not read.
    pub hops: usize,
    /// Peers whose header is believed; `None`: any.
    pub proxies: Option<CidrSet>,
}

/// The caller's address; `None` when a trusted header does not give one, which denies. `forwarded` are
/// the lines of [`FORWARDED_FOR`], in order.
pub fn caller_address<'h>(
    rule: &AddressRule,
    forwarded: impl IntoIterator<Item = &'h [u8]>,
    peer: IpAddr,
) -> Option<IpAddr> {
    let peer = peer.to_canonical();
    let believed = rule
        .proxies
        .as_ref()
        .is_none_or(|proxies| proxies.contains(peer));
    let mut lines = forwarded.into_iter().peekable();
    if rule.hops == 0 || !believed || lines.peek().is_none() {
        return Some(peer);
    }
    let mut bytes = 0;
    let mut entries: Vec<&str> = Vec::new();
    for line in lines {
        bytes += line.len();
        if bytes > MAX_BYTES {
            return None;
        }
        let plain = line.iter().all(|byte| matches!(byte, b'\t' | b' '..=b'~'));
        let text = std::str::from_utf8(line).ok().filter(|_| plain)?;
        entries.extend(text.split(','));
        if entries.len() > MAX_ENTRIES {
            return None;
        }
    }
    // Every entry that our proxies wrote must be an address: garbage among them means that the
    // number of hops is wrong.
    let ours = entries.len().checked_sub(rule.hops)?;
    let mut hops = entries.get(ours..)?.iter().map(|entry| parse_hop(entry));
    let caller = hops.next()??;
    hops.all(|hop| hop.is_some()).then_some(caller)
}

/// One entry: an address, maybe in brackets, maybe with a port.
fn parse_hop(entry: &str) -> Option<IpAddr> {
    let entry = entry.trim_matches([' ', '\t']);
    let address = if let Some(rest) = entry.strip_prefix('[') {
        let (address, port) = rest.split_once(']')?;
        if !(port.is_empty() || port.strip_prefix(':').is_some_and(is_port)) {
            return None;
        }
        let address: std::net::Ipv6Addr = address.parse().ok()?;
        IpAddr::V6(address)
    } else if let Some((address, port)) =
        entry.split_once(':').filter(|(host, _)| host.contains('.'))
    {
        if !is_port(port) {
            return None;
        }
        IpAddr::V4(address.parse().ok()?)
    } else {
        entry.parse().ok()?
    };
    Some(address.to_canonical())
}

fn is_port(text: &str) -> bool {
    text.len() <= 5 && !text.starts_with('+') && text.parse::<u16>().is_ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sec07_all_spellings_of_a_hop_are_one_address() {
        for (entry, address) in [
            ("[2001:db8::5]:443", Some("2001:db8::5")),
            ("[2001:db8::5]", Some("2001:db8::5")),
            (" 2001:db8::5\t", Some("2001:db8::5")),
            ("10.0.0.1:80", Some("10.0.0.1")),
            ("::ffff:10.0.0.1", Some("10.0.0.1")),
            ("unknown", None),
            ("", None),
            ("fe80::1%eth0", None),
            ("[fe80::1%eth0]", None),
            ("10.0.0.1:", None),
            ("10.0.0.1:+80", None),
            ("10.0.0.1:99999", None),
            ("010.0.0.1", None),
            ("[10.0.0.1]", None),
            ("[2001:db8::5]443", None),
            ("\"10.0.0.1\"", None),
        ] {
            let wanted = address.map(|address| address.parse::<IpAddr>().unwrap());
            assert_eq!(parse_hop(entry), wanted, "{entry:?}");
        }
    }
}
