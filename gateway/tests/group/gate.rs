//! Keys and addresses at the gate, as operators write them and as callers show them.

use std::net::IpAddr;

use http::request::Parts;
use http::{Request, StatusCode};
use ramen_gateway::answer::Refusal;
use ramen_gateway::callers::{Callers, Limits};
use ramen_gateway::door::{Door, ONLY_POST};
use ramen_gateway::listed;
use ramen_gateway::origin::Sites;
use ramen_group::{AddressRule, CidrSet};
use ramen_redact::KeySet;

use crate::support::{KEY, PATH, Running, call, spec};
use crate::worker::Worker;

/// A file of one group whose `allowedCidrs` are these, in JSON, and what is made of them.
fn ranges_of(allowed: &str, keys: &str) -> Result<CidrSet, String> {
    let temp = tempfile::tempdir().unwrap();
    let put = |name: &str, text: &str| std::fs::write(temp.path().join(name), text).unwrap();
    put("own", "rmk_own\n");
    put("callers", keys);
    put(
        "groups.yaml",
        &format!(
            "groups: [{{name: demo, keysFile: callers, workerKeyFile: own, allowedCidrs: {allowed}}}]\n"
        ),
    );
    let reading = listed::read(&temp.path().join("groups.yaml"));
    let mut specs = reading.map_err(|error| error.to_string())?.specs;
    Ok(specs.remove(0).ranges)
}

fn door(hops: usize, proxies: Option<&str>) -> Door {
    Door {
        address: AddressRule {
            hops,
            proxies: proxies.map(|text| CidrSet::parse_list(text).unwrap()),
        },
        sites: Sites::default(),
        callers: Callers::new(Limits::default()),
    }
}

fn request(forwarded: &[&str]) -> Parts {
    let mut request = Request::post(PATH)
        .header("host", "mcp.example.com")
        .header("authorization", format!("Bearer {KEY}"));
    for line in forwarded {
        request = request.header("x-forwarded-for", *line);
    }
    request.body(()).unwrap().into_parts().0
}

/// What the gate says to a caller with a good key from there.
async fn judged(door: &Door, allowed: &CidrSet, peer: &str, forwarded: &[&str]) -> Option<Refusal> {
    let peer: IpAddr = peer.parse().unwrap();
    let keys = KeySet::from_lines(KEY);
    let request = request(forwarded);
    let entered = door.enter(&request, peer, &keys, allowed, ONLY_POST).await;
    entered.err()
}

fn ten() -> CidrSet {
    CidrSet::parse_list("10.0.0.0/8").unwrap()
}

#[tokio::test]
async fn sec01_a_final_line_break_of_a_key_does_not_matter() {
    let temp = tempfile::tempdir().unwrap();
    let worker = Worker::start().await;
    let gateway = Running::start(&[worker.address]).await;
    let put = |name: &str, text: &str| std::fs::write(temp.path().join(name), text).unwrap();
    for (own, callers) in [
        ("rmk_own\n", "rmk_new\n"),
        ("rmk_own", "rmk_new"),
        ("\r\nrmk_own\r\n", "rmk_new\r\n\r\n"),
    ] {
        put("own", own);
        put("callers", callers);
        let at = worker.address;
        put(
            "groups.yaml",
            &format!(
                "groups: [{{name: demo, keysFile: callers, workerKeyFile: own, workers: ['{at}']}}]\n"
            ),
        );
        let reading = listed::read(&temp.path().join("groups.yaml")).unwrap();
        gateway.groups.replace(&reading.specs);
        let mut request = gateway.post(&call("echo"));
        request
            .headers_mut()
            .insert("authorization", "Bearer rmk_new".parse().unwrap());
        assert_eq!(gateway.send(request).await.status, StatusCode::OK);
        let sent = worker.state.metadata.lock().unwrap();
        let key = sent.get("authorization").unwrap().to_str().unwrap();
        assert_eq!(key, "Bearer rmk_own");
    }
}

#[tokio::test]
async fn sec02_without_keys_nobody_gets_in() {
    let worker = Worker::start().await;
    let gateway = Running::start(&[worker.address]).await;
    for keys in ["", "\n\n", "# rmk_caller\n"] {
        gateway.groups.set(&spec("demo", keys, &[worker.address]));
        for shown in [None, Some(""), Some("Bearer "), Some("Bearer rmk_caller")] {
            let mut request = gateway.post(&call("echo"));
            request.headers_mut().remove("authorization");
            if let Some(shown) = shown {
                request
                    .headers_mut()
                    .insert("authorization", shown.parse().unwrap());
            }
            let got = gateway.send(request).await;
            assert_eq!(got.status, StatusCode::UNAUTHORIZED, "{keys:?} {shown:?}");
        }
    }
    assert_eq!(worker.began(), 0);
}

#[tokio::test]
async fn sec03_a_mapped_range_is_refused_and_a_mapped_peer_is_judged_as_ipv4() {
    for range in ["::ffff:0:0/96", "::ffff:10.0.0.0/104"] {
        let error = ranges_of(&format!("['{range}']"), KEY).unwrap_err();
        assert!(error.contains(range), "{error}");
    }
    let door = door(0, None);
    assert_eq!(judged(&door, &ten(), "::ffff:10.1.2.3", &[]).await, None);
    for peer in ["8.8.8.8", "::ffff:8.8.8.8", "::1"] {
        let got = judged(&door, &ten(), peer, &[]).await;
        assert_eq!(got, Some(Refusal::Address), "{peer}");
    }
}

#[test]
fn sec04_sec05_sec06_ranges_are_read_by_one_rule_and_a_bad_one_is_named() {
    let good = ranges_of(
        "['10.0.0.0/8 ', ' 192.168.0.0/16', '203.0.113.7', '2001:db8::1']",
        KEY,
    );
    assert_eq!(
        good.unwrap().to_string(),
        "10.0.0.0/8,192.168.0.0/16,203.0.113.7/32,2001:db8::1/128"
    );
    for bad in [
        "192.0.2.1/24",
        "10.0.0.0/ 24",
        "10.0.0.0/+24",
        "010.0.0.0/8",
    ] {
        let error = ranges_of(&format!("['10.0.0.0/8', '{bad}']"), KEY).unwrap_err();
        assert!(
            error.contains(bad) && error.contains("default/demo"),
            "{error}"
        );
    }
}

#[tokio::test]
async fn sec07_all_spellings_of_a_forwarded_address_are_one_address() {
    let door = door(1, None);
    let allowed = CidrSet::parse_list("2001:db8::5").unwrap();
    for spelling in [
        "[2001:db8::5]:443",
        "[2001:db8::5]",
        "2001:db8::5",
        "2001:DB8:0::5",
    ] {
        let got = judged(&door, &allowed, "192.0.2.1", &[spelling]).await;
        assert_eq!(got, None, "{spelling}");
    }
    let got = judged(&door, &allowed, "192.0.2.1", &["2001:db8::6"]).await;
    assert_eq!(got, Some(Refusal::Address));
}

#[tokio::test]
async fn sec08_of_a_forwarded_list_the_right_most_entry_counts() {
    let door = door(1, None);
    for (forwarded, good) in [
        (vec!["10.0.0.5, 203.0.113.9"], false),
        (vec!["203.0.113.9, 10.0.0.5"], true),
        (vec!["10.0.0.5", "203.0.113.9"], false),
        (vec!["203.0.113.9", "10.0.0.5"], true),
    ] {
        let got = judged(&door, &ten(), "192.0.2.1", &forwarded).await;
        let wanted = (!good).then_some(Refusal::Address);
        assert_eq!(got, wanted, "{forwarded:?}");
    }
}

#[tokio::test]
async fn sec09_a_forwarded_address_counts_behind_a_proxy_alone_and_garbage_denies() {
    let denied = Some(Refusal::Address);
    let alone = door(0, None);
    assert_eq!(
        judged(&alone, &ten(), "203.0.113.9", &["10.0.0.5"]).await,
        denied
    );
    let behind = door(1, None);
    for garbage in [
        "unknown",
        "",
        "10.0.0.5, unknown",
        "10.0.0.5x",
        "10.0.0.5:x",
    ] {
        let got = judged(&behind, &ten(), "10.0.0.1", &[garbage]).await;
        assert_eq!(got, denied, "{garbage}");
    }
    // Only what our proxies write is believed.
    let ours = door(1, Some("192.0.2.0/24"));
    assert_eq!(
        judged(&ours, &ten(), "192.0.2.1", &["10.0.0.5"]).await,
        None
    );
    assert_eq!(
        judged(&ours, &ten(), "203.0.113.9", &["10.0.0.5"]).await,
        denied
    );
}

#[tokio::test]
async fn sec10_health_is_answered_without_key_and_whatever_the_address_and_nothing_else_is() {
    let worker = Worker::start().await;
    let gateway = Running::start(&[worker.address]).await;
    let mut far = spec("demo", KEY, &[worker.address]);
    far.ranges = ten();
    gateway.groups.set(&far);
    for path in ["/healthz", "/readyz"] {
        assert_eq!(gateway.get(path).await.status, StatusCode::OK, "{path}");
    }
    assert_eq!(gateway.call("echo").await.status, StatusCode::FORBIDDEN);
    assert_eq!(gateway.get(PATH).await.status, StatusCode::UNAUTHORIZED);
    assert_eq!(worker.began(), 0);
}
