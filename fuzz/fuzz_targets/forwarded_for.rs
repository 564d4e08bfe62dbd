//! `x-forwarded-for` as anyone may send it: never a panic; what a caller writes to the left of the hops that we trust
//! changes nothing.
#![no_main]

use std::net::{IpAddr, Ipv4Addr};

use http::{HeaderMap, HeaderValue};
use libfuzzer_sys::fuzz_target;

#[path = "../../worker/src/gate/address.rs"]
mod address;

use address::{AddressRule, caller_address};

const PEER: IpAddr = IpAddr::V4(Ipv4Addr::new(10, 0, 0, 1));

fuzz_target!(|data: &[u8]| {
    let Some((&hops, text)) = data.split_first() else {
        return;
    };
    let rule = AddressRule {
        hops: usize::from(hops % 4),
        proxies: None,
    };
    let mut headers = HeaderMap::new();
    for line in text.split(|byte| *byte == b'\n') {
        if let Ok(value) = HeaderValue::from_bytes(line) {
            headers.append("x-forwarded-for", value);
        }
    }
    let caller = caller_address(&rule, &headers, PEER);
    if rule.hops == 0 {
        assert_eq!(caller, Some(PEER), "an untrusted header is not read");
    }
    // A forged entry in front.
    let mut forged = HeaderMap::new();
    forged.append("x-forwarded-for", HeaderValue::from_static("192.0.2.66"));
    forged.extend(
        headers
            .iter()
            .map(|(name, value)| (name.clone(), value.clone())),
    );
    let with_forgery = caller_address(&rule, &forged, PEER);
    if !headers.is_empty() && caller.is_some() && with_forgery.is_some() {
        assert_eq!(with_forgery, caller, "a forged entry is believed");
    }
});
