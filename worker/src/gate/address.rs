//! Whose call it is: the peer, or what the trusted proxies say.

use std::net::IpAddr;

use http::HeaderMap;
use ramen_group::CidrSet;

const FORWARDED_FOR: &str = "x-forwarded-for";
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

/// The caller's address; `None` when a trusted header does not give one, which denies.
pub fn caller_address(rule: &AddressRule, headers: &HeaderMap, peer: IpAddr) -> Option<IpAddr> {
    let peer = peer.to_canonical();
    let believed = rule
        .proxies
        .as_ref()
        .is_none_or(|proxies| proxies.contains(peer));
    if rule.hops == 0 || !believed || !headers.contains_key(FORWARDED_FOR) {
        return Some(peer);
    }
    let mut bytes = 0;
    let mut entries: Vec<&str> = Vec::new();
    for line in headers.get_all(FORWARDED_FOR) {
        bytes += line.len();
        if bytes > MAX_BYTES {
            return None;
        }
        entries.extend(line.to_str().ok()?.split(','));
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
pub(crate) fn parse_hop(entry: &str) -> Option<IpAddr> {
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
