use super::*;

fn gate(ranges: &str, hops: usize) -> Gate {
    let gate = Gate {
        mcp: Door::new(CidrSet::parse_list(ranges).unwrap()),
        admin: Door::new(CidrSet::parse_list("127.0.0.0/8").unwrap()),
        address: AddressRule {
            hops,
            proxies: None,
        },
        in_flight: InFlight::new(4),
    };
    gate.mcp.set_keys(
        KeySet::from_lines("rmk_one\nrmk_two\n"),
        KeySet::from_lines("rmk_gateway"),
    );
    gate
}

fn headers(pairs: &[(&'static str, &str)]) -> HeaderMap {
    let mut headers = HeaderMap::new();
    for (name, value) in pairs {
        headers.append(*name, value.parse().unwrap());
    }
    headers
}

const NEAR: [u8; 4] = [10, 0, 0, 5];
const FAR: [u8; 4] = [203, 0, 113, 9];

#[test]
fn sec02_no_keys_deny_all() {
    let gate = gate("0.0.0.0/0", 0);
    gate.mcp.set_keys(KeySet::empty(), KeySet::empty());
    for value in ["Bearer ", "Bearer", "Bearer rmk_one", "", "Basic cm1r"] {
        let refusal = gate
            .mcp(&headers(&[("authorization", value)]), NEAR.into())
            .unwrap_err();
        assert_eq!(
            refusal.status().code(),
            tonic::Code::Unauthenticated,
            "{value:?}"
        );
    }
    assert_eq!(
        gate.mcp(&HeaderMap::new(), NEAR.into()),
        Err(Refusal::NoKey)
    );
    assert_eq!(
        gate.admin(&headers(&[("x-ramen-admin-key", "x")]), NEAR.into()),
        Err(Refusal::WrongKey)
    );
}

#[test]
fn each_of_several_keys_opens_and_other_forms_do_not() {
    let gate = gate("10.0.0.0/8", 0);
    for (value, verdict) in [
        ("Bearer rmk_one", Ok(())),
        ("bearer  rmk_two", Ok(())),
        ("Bearer rmk_three", Err(Refusal::WrongKey)),
        ("rmk_one", Err(Refusal::NoKey)),
        ("Basic rmk_one", Err(Refusal::NoKey)),
    ] {
        let judged = gate.mcp(&headers(&[("authorization", value)]), NEAR.into());
        assert_eq!(judged, verdict, "{value}");
    }
    let twice = headers(&[
        ("authorization", "Bearer rmk_one"),
        ("authorization", "Bearer rmk_one"),
    ]);
    assert_eq!(gate.mcp(&twice, NEAR.into()), Err(Refusal::NoKey));
    let long = format!("Bearer {}", "x".repeat(MAX_CREDENTIAL));
    assert_eq!(
        gate.mcp(&headers(&[("authorization", &long)]), NEAR.into()),
        Err(Refusal::NoKey)
    );
}

#[test]
fn the_key_is_answered_before_the_address() {
    let gate = gate("10.0.0.0/8", 0);
    let good = headers(&[("authorization", "Bearer rmk_one")]);
    let bad = headers(&[("authorization", "Bearer no")]);
    assert_eq!(gate.mcp(&good, FAR.into()), Err(Refusal::Address));
    assert_eq!(gate.mcp(&bad, FAR.into()), Err(Refusal::WrongKey));
    assert_eq!(gate.mcp(&HeaderMap::new(), FAR.into()), Err(Refusal::NoKey));
}

#[test]
fn an_empty_list_of_ranges_lets_nobody_in() {
    let gate = gate("", 0);
    let good = headers(&[("authorization", "Bearer rmk_one")]);
    for peer in [[127, 0, 0, 1], NEAR] {
        assert_eq!(gate.mcp(&good, peer.into()), Err(Refusal::Address));
    }
}

#[test]
fn sec03_a_mapped_peer_is_judged_as_ipv4() {
    let gate = gate("10.0.0.0/8", 0);
    let good = headers(&[("authorization", "Bearer rmk_one")]);
    assert_eq!(gate.mcp(&good, "::ffff:10.1.2.3".parse().unwrap()), Ok(()));
    assert_eq!(
        gate.mcp(&good, "::ffff:8.8.8.8".parse().unwrap()),
        Err(Refusal::Address)
    );
}

#[test]
fn sec08_the_right_most_entry_counts() {
    let gate = gate("10.0.0.0/8", 1);
    let key = ("authorization", "Bearer rmk_one");
    for (lines, verdict) in [
        (vec!["10.0.0.5, 203.0.113.9"], Err(Refusal::Address)),
        (vec!["203.0.113.9, 10.0.0.5"], Ok(())),
        (vec!["10.0.0.5", "203.0.113.9"], Err(Refusal::Address)),
        (vec!["garbage, 10.0.0.5"], Ok(())),
    ] {
        let mut pairs = vec![key];
        pairs.extend(lines.iter().map(|line| ("x-forwarded-for", *line)));
        assert_eq!(gate.mcp(&headers(&pairs), FAR.into()), verdict, "{lines:?}");
    }
}

#[test]
fn sec09_the_header_counts_only_behind_a_proxy_and_garbage_denies() {
    let key = ("authorization", "Bearer rmk_one");
    let allowed = headers(&[key, ("x-forwarded-for", "10.0.0.5")]);
    assert_eq!(
        gate("10.0.0.0/8", 0).mcp(&allowed, FAR.into()),
        Err(Refusal::Address)
    );
    let gate = gate("10.0.0.0/8", 1);
    for line in ["unknown", "", "10.0.0.5,", "10.0.0.5 10.0.0.6"] {
        let judged = gate.mcp(&headers(&[key, ("x-forwarded-for", line)]), NEAR.into());
        assert_eq!(judged, Err(Refusal::Address), "{line:?}");
    }
    assert_eq!(
        gate.mcp(&headers(&[key]), NEAR.into()),
        Ok(()),
        "no header: the peer"
    );
    let many = vec!["10.0.0.5"; 21].join(",");
    let judged = gate.mcp(&headers(&[key, ("x-forwarded-for", &many)]), NEAR.into());
    assert_eq!(judged, Err(Refusal::Address));
}

#[test]
fn with_two_hops_the_second_entry_from_the_right_counts() {
    let gate = gate("10.0.0.0/8", 2);
    let key = ("authorization", "Bearer rmk_one");
    for (line, verdict) in [
        ("203.0.113.9, 10.0.0.5, 192.0.2.1", Ok(())),
        ("10.0.0.5, 203.0.113.9, 192.0.2.1", Err(Refusal::Address)),
        ("10.0.0.5, what", Err(Refusal::Address)),
        ("10.0.0.5", Err(Refusal::Address)),
    ] {
        let judged = gate.mcp(&headers(&[key, ("x-forwarded-for", line)]), NEAR.into());
        assert_eq!(judged, verdict, "{line}");
    }
}

#[test]
fn a_header_from_a_peer_that_is_no_proxy_is_ignored() {
    let mut gate = gate("10.0.0.0/8", 1);
    gate.address.proxies = Some(CidrSet::parse_list("192.0.2.0/24").unwrap());
    let spoofed = headers(&[
        ("authorization", "Bearer rmk_one"),
        ("x-forwarded-for", "10.0.0.5"),
    ]);
    assert_eq!(gate.mcp(&spoofed, FAR.into()), Err(Refusal::Address));
    assert_eq!(gate.mcp(&spoofed, [192, 0, 2, 7].into()), Ok(()));
}

#[test]
fn key_files_of_a_folder_are_read_and_hidden_names_are_not() {
    let dir = tempfile::tempdir().unwrap();
    std::fs::write(dir.path().join("a"), "rmk_a\n# rmk_no\n").unwrap();
    std::fs::write(dir.path().join("b"), "rmk_b").unwrap();
    std::fs::create_dir(dir.path().join("sub")).unwrap();
    std::fs::write(dir.path().join("..hidden"), "rmk_hidden").unwrap();
    std::fs::write(dir.path().join("sub/gateway"), "rmk_gateway").unwrap();
    let opened = |dir: std::path::PathBuf, gateway: Option<std::path::PathBuf>| {
        let gate = gate("10.0.0.0/8", 0);
        let files = DoorFiles {
            mcp: KeyFiles {
                dir: Some(dir),
                file: None,
            },
            gateway: KeyFiles {
                dir: None,
                file: gateway,
            },
            admin: KeyFiles::default(),
        };
        files.open(&gate);
        move |key: &str, peer: [u8; 4]| {
            let value = format!("Bearer {key}");
            gate.mcp(&headers(&[("authorization", &value)]), peer.into())
        }
    };
    let here = opened(dir.path().into(), Some(dir.path().join("sub/gateway")));
    assert_eq!(here("rmk_a", NEAR), Ok(()));
    assert_eq!(here("rmk_b", NEAR), Ok(()));
    assert_eq!(here("rmk_b", FAR), Err(Refusal::Address));
    assert_eq!(here("rmk_hidden", NEAR), Err(Refusal::WrongKey));
    assert_eq!(here("rmk_gateway", FAR), Ok(()));
    let nothing = opened(dir.path().join("none"), None);
    for key in ["rmk_a", "rmk_one", "rmk_gateway"] {
        assert_eq!(nothing(key, NEAR), Err(Refusal::WrongKey));
    }
}

#[test]
fn a_gateways_key_opens_from_anywhere_and_the_admin_door_not_at_all() {
    let gate = gate("10.0.0.0/8", 1);
    let own = headers(&[
        ("authorization", "Bearer rmk_gateway"),
        ("x-ramen-admin-key", "rmk_gateway"),
    ]);
    assert_eq!(gate.mcp(&own, FAR.into()), Ok(()));
    assert_eq!(gate.mcp(&own, NEAR.into()), Ok(()));
    assert_eq!(
        gate.admin(&own, [127, 0, 0, 1].into()),
        Err(Refusal::WrongKey)
    );
    // Gone from the file, it is a key like any other that is not valid.
    gate.mcp
        .set_keys(KeySet::from_lines("rmk_one"), KeySet::empty());
    assert_eq!(gate.mcp(&own, FAR.into()), Err(Refusal::WrongKey));
}
