//! What the check of a caller takes.

use std::hint::black_box;
use std::net::{IpAddr, Ipv4Addr};
use std::time::Instant;

use anyhow::{Context as _, ensure};
use ramen_gateway::callers::{Callers, Limits};
use ramen_gateway::door::{Door, ONLY_POST};
use ramen_gateway::origin::Sites;
use ramen_group::{AddressRule, CidrSet};
use ramen_redact::KeySet;

use crate::lab::Lab;
use crate::report::Findings;
use crate::servers::random_key;

/// Keys of the group: more than any has.
const KEYS: usize = 100;
const CHECKS: u32 = 20_000;

/// The whole door before the body: headers, key, address, `Host`, rate.
pub(super) async fn keys(lab: &Lab, findings: &mut Findings) -> anyhow::Result<()> {
    let keys: Vec<String> = (0..KEYS)
        .map(|_| random_key("rmk_"))
        .collect::<Result<_, _>>()?;
    let set = KeySet::from_lines(&keys.join("\n"));
    let ranges = CidrSet::parse_list("127.0.0.0/8").ok().context("a range")?;
    let door = Door {
        address: AddressRule::default(),
        sites: Sites {
            loopback: true,
            ..Sites::default()
        },
        callers: Callers::new(Limits::default()),
    };
    let request = http::Request::post("/default/bench/mcp")
        .header("host", "127.0.0.1:8080")
        .header("authorization", format!("Bearer {}", keys[KEYS - 1]))
        .header("accept", "application/json, text/event-stream")
        .header("content-type", "application/json")
        .header("content-length", "120")
        .body(())?;
    let (parts, ()) = request.into_parts();
    let peer = IpAddr::V4(Ipv4Addr::LOCALHOST);
    let mut rounds = Vec::new();
    for _ in 0..lab.rounds {
        let started = Instant::now();
        for _ in 0..CHECKS {
            let entered = door.enter(&parts, peer, &set, &ranges, ONLY_POST).await;
            ensure!(black_box(entered).is_ok(), "a good key is refused");
        }
        rounds.push(started.elapsed().as_secs_f64() * 1e6 / f64::from(CHECKS));
    }
    let note = format!("a key among {KEYS}, with all that is judged before the body");
    findings.add("auth_us", rounds, note);
    Ok(())
}
