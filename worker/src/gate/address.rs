//! Whose call it is, out of the headers of a request. The rule is [`ramen_group::caller_address`].

use std::net::IpAddr;

use http::HeaderMap;
pub use ramen_group::AddressRule;

/// The caller's address; `None` when a trusted header does not give one, which denies.
pub fn caller_address(rule: &AddressRule, headers: &HeaderMap, peer: IpAddr) -> Option<IpAddr> {
    let forwarded = headers.get_all(ramen_group::FORWARDED_FOR);
    ramen_group::caller_address(
        rule,
        forwarded.iter().map(http::HeaderValue::as_bytes),
        peer,
    )
}
