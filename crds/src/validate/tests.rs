use proptest::prelude::*;

use super::*;

fn group(yaml: &str) -> McpGroup {
    serde_saphyr::from_str(yaml).unwrap()
}

fn minimal(extra: &str) -> McpGroup {
    group(&format!(
        "apiVersion: ramen.dev/v1alpha1\nkind: McpGroup\nmetadata: {{name: demo}}\nspec:\n  source: \
         {{url: https://git.example/demo.git}}\n  network: {{allowedCIDRs: [10.0.0.0/8]}}\n{extra}"
    ))
}

fn faults(group: &McpGroup) -> Vec<String> {
    validate(group)
        .unwrap_err()
        .iter()
        .map(ToString::to_string)
        .collect()
}

#[test]
fn the_smallest_group_gets_its_defaults() {
    let validated = validate(&minimal("")).unwrap();
    assert_eq!(validated.name.as_str(), "demo");
    assert_eq!(validated.source.reference, RefSpec::Default);
    assert_eq!(validated.source.interval, Duration::from_mins(5));
    assert_eq!(validated.zones.len(), 1);
    assert_eq!(validated.zones[0].replicas, Replicas::Fixed(1));
    assert_eq!(
        (validated.worker.threads, validated.worker.max_inflight),
        (8, 256)
    );
    assert_eq!(validated.worker.call_timeout, Duration::from_mins(2));
    assert_eq!(validated.history, 1);
    assert!(validated.rollout.canary && validated.rollout.auto_rollback);
}

#[test]
fn a_full_group_is_read_field_by_field() {
    let full = minimal(
        "  keys: {secretRef: {name: my-keys}}\n  secrets: [{name: api}]\n  zones:\n    - {name: eu, \
         replicas: 3, nodeSelector: {a: b}}\n    - {name: us, autoscaling: {minReplicas: 1, \
         maxReplicas: 4}}\n  worker: {python: '3.12', hosts: 2, callTimeout: 30s, env: [{name: \
         MODE, value: x}, {name: PIP_INDEX_URL, value: y}, {name: UV_INDEX, value: y}, {name: A, value: ''}]}\n  rollout: {canary: false}\n  history: 3\n",
    );
    let validated = validate(&full).unwrap();
    assert_eq!(
        validated.zones[1].replicas,
        Replicas::Scaled {
            min: 1,
            max: 4,
            cpu_percent: 70
        }
    );
    assert_eq!(validated.worker.python.as_ref().unwrap().as_str(), "3.12");
    assert_eq!(validated.worker.env[0], ("MODE".to_owned(), "x".to_owned()));
    assert_eq!(validated.worker.code_variables(), "MODE,A");
    assert!(!validated.rollout.canary && validated.rollout.auto_rollback);
}

#[test]
fn all_faults_are_named_with_their_fields() {
    let bad = group(
        "apiVersion: ramen.dev/v1alpha1\nkind: McpGroup\nmetadata: {name: a--b}\nspec:\n  source: \
         {url: 'https://tok3n@git.example/x', ref: {branch: a, tag: b}, path: ../x, interval: 5s}\n  \
         network: {allowedCIDRs: ['10.0.0.1/8', '::ffff:0:0/96'], trustedProxyHops: 9}\n  worker: \
         {python: '2.7', env: [{name: RAMEN_X, value: ''}, {name: A-B, value: ''}]}\n  history: 11\n",
    );
    let faults = faults(&bad);
    let fields: Vec<_> = faults
        .iter()
        .map(|fault| fault.split(": ").next().unwrap())
        .collect();
    assert_eq!(
        fields,
        [
            "metadata.name",
            "spec.source.url",
            "spec.source.ref",
            "spec.source.path",
            "spec.source.interval",
            "spec.network.allowedCIDRs[0]",
            "spec.network.allowedCIDRs[1]",
            "spec.network.trustedProxyHops",
            "spec.worker.python",
            "spec.worker.env[0].name",
            "spec.worker.env[1].name",
            "spec.history",
        ]
    );
    assert!(
        !faults.join("\n").contains("tok3n"),
        "an address with a token is never quoted"
    );
}

/// The API server does not judge again what it has: such a group is there after an upgrade and must go on.
#[test]
fn variables_of_the_loader_are_left_out_and_are_no_fault_of_the_group() {
    let mut group = minimal("");
    let variable = |name: &str| crate::EnvVar {
        name: name.to_owned(),
        value: "x".to_owned(),
    };
    group.spec.worker.env = ["LD_PRELOAD", "MODE", "LD_PRELOAD"].map(variable).into();
    let worker = validate(&group).unwrap().worker;
    assert_eq!(worker.env, [("MODE".to_owned(), "x".to_owned())]);
    assert_eq!(worker.code_variables(), "MODE");
    let told: Vec<_> = worker.left_out.iter().map(ToString::to_string).collect();
    assert_eq!(
        told,
        [
            "spec.worker.env[0].name: LD_PRELOAD would change how programs are loaded",
            "spec.worker.env[2].name: LD_PRELOAD would change how programs are loaded",
        ]
    );
}

/// As a worker judges them, word by word: the operator has the same parser.
#[test]
fn sec03_to_sec06_ranges_are_judged_as_a_worker_judges_them() {
    let mut group = minimal("");
    let mut judged = |ranges: &[&str]| {
        let ranges = ranges.iter().map(ToString::to_string);
        group.spec.network.allowed_cidrs = ranges.collect();
        validate(&group).map(|validated| validated.allowed.to_string())
    };
    let good = [
        " 10.0.0.0/8 ",
        "192.168.0.0/16",
        "203.0.113.7",
        "2001:db8::1",
    ];
    assert_eq!(
        judged(&good).unwrap(),
        "10.0.0.0/8,192.168.0.0/16,203.0.113.7/32,2001:db8::1/128"
    );
    for bad in [
        "192.0.2.1/24",
        "::ffff:0:0/96",
        "::ffff:10.0.0.0/104",
        "10.0.0.0/ 24",
        "10.0.0.0/+24",
        "010.0.0.0/8",
        "",
    ] {
        let faults = judged(&["10.0.0.0/8", bad]).unwrap_err();
        let [fault] = faults.as_slice() else {
            panic!("{bad}: {faults:?}");
        };
        let worker = bad.parse::<ramen_group::Cidr>().unwrap_err().to_string();
        assert_eq!(
            fault.to_string(),
            format!("spec.network.allowedCIDRs[1]: {worker}")
        );
    }
}

#[test]
fn an_empty_list_of_ranges_lets_nobody_in_and_is_refused() {
    let mut group = minimal("");
    group.spec.network.allowed_cidrs.clear();
    assert!(faults(&group)[0].starts_with("spec.network.allowedCIDRs: "));
}

#[test]
fn sec11_names_that_could_share_secret_variables_are_refused() {
    for bad in ["a--b", "a.b", "A", "-a", "a-", "1a", "", &"a".repeat(41)] {
        assert!(GroupName::parse(bad).is_err(), "{bad}");
    }
    for good in ["a", "a-b", "demo1", &"a".repeat(40)] {
        assert!(GroupName::parse(good).is_ok(), "{good}");
    }
}

#[test]
fn addresses_of_every_form_are_read() {
    for (text, plain) in [
        ("https://h.example/a/b.git", "https://h.example/a/b.git"),
        ("http://127.0.0.1:8080/x.git", "http://127.0.0.1:8080/x.git"),
        (
            "ssh://git@h.example:2222/a/b",
            "ssh://git@h.example:2222/a/b",
        ),
        ("git@h.example:a/b.git", "ssh://git@h.example/a/b.git"),
        ("h.example:a/b.git", "ssh://git@h.example/a/b.git"),
    ] {
        assert_eq!(
            GitUrl::parse(text, UrlPolicy::Remote).unwrap().as_str(),
            plain
        );
    }
    for bad in [
        "",
        "ext::sh -c x",
        "ftp://h/x",
        "https://user:pw@h/x",
        "https://tok@h/x",
        "ssh://git:pw@h/x",
        "https://h/",
        "https://h/x?y=1",
        "https://h/x#y",
        "https:///x",
        "git@-oProxyCommand=x:y",
        "-u@h:x",
        "git@h:2222/a/b",
        "file:///srv/x",
        "/srv/x",
        "../x",
        "https://h/a b",
    ] {
        assert!(GitUrl::parse(bad, UrlPolicy::Remote).is_err(), "{bad}");
    }
    let local = GitUrl::parse("/srv/x.git", UrlPolicy::Local).unwrap();
    assert_eq!(
        (local.as_str(), local.scheme()),
        ("file:///srv/x.git", Scheme::File)
    );
}

#[test]
fn refs_follow_the_rules_of_git() {
    let branch = |name: &str| {
        let reference = crate::GitRef {
            branch: Some(name.to_owned()),
            ..Default::default()
        };
        RefSpec::parse(Some(&reference))
    };
    assert_eq!(
        branch("feature/x").unwrap(),
        RefSpec::Branch("feature/x".to_owned())
    );
    for bad in [
        "", "-x", "a..b", "a b", "a~1", "x.lock", "/a", "a/", "@", "a@{1}", "a//b",
    ] {
        assert!(branch(bad).is_err(), "{bad}");
    }
    let semver = crate::GitRef {
        semver: Some(">=1.2, <2".to_owned()),
        ..Default::default()
    };
    assert!(matches!(
        RefSpec::parse(Some(&semver)),
        Ok(RefSpec::Semver(_))
    ));
    let name = |name: &str| crate::GitRef {
        name: Some(name.to_owned()),
        ..Default::default()
    };
    assert_eq!(
        RefSpec::parse(Some(&name("refs/tags/v1"))).unwrap(),
        RefSpec::Name("refs/tags/v1".to_owned())
    );
    assert!(RefSpec::parse(Some(&name("a b"))).is_err());
    let two = crate::GitRef {
        branch: Some("main".to_owned()),
        ..name("main")
    };
    assert!(RefSpec::parse(Some(&two)).unwrap_err().contains("only one"));
    let short = crate::GitRef {
        commit: Some("abc".to_owned()),
        ..Default::default()
    };
    assert!(RefSpec::parse(Some(&short)).is_err());
}

#[test]
fn times_are_read_as_people_write_them() {
    let millis = |text| Interval::parse(text).map(|interval| interval.duration().as_millis());
    assert_eq!(millis("1h30m"), Ok(5_400_000));
    assert_eq!(millis("250ms"), Ok(250));
    for bad in [
        "",
        "5",
        "m",
        "5 m",
        "-5m",
        "5m5m",
        "1s1m",
        "5M",
        "99999999999999999999h",
        "1.5h",
    ] {
        assert!(millis(bad).is_err(), "{bad}");
    }
}

#[test]
fn paths_stay_in_the_repository() {
    assert_eq!(InnerPath::parse("./a//b/").unwrap().as_str(), "a/b");
    assert_eq!(InnerPath::parse("").unwrap().as_str(), "");
    for bad in ["/a", "a/../b", "..", ".git/x", "a\\b"] {
        assert!(InnerPath::parse(bad).is_err(), "{bad}");
    }
}

#[test]
fn fingerprints_change_with_what_they_stand_for() {
    let base = validate(&minimal("")).unwrap();
    let other = validate(&minimal("  worker: {allowSdist: true}\n")).unwrap();
    assert_ne!(base.deploy_fingerprint(), other.deploy_fingerprint());
    assert_eq!(base.source_fingerprint(), other.source_fingerprint());
    let mut moved = minimal("");
    moved.spec.source.path = Some("sub".to_owned());
    let moved = validate(&moved).unwrap();
    assert_ne!(base.source_fingerprint(), moved.source_fingerprint());
}

proptest! {
    #[test]
    fn no_text_makes_a_parser_panic(text in ".{0,60}") {
        let _ = GitUrl::parse(&text, UrlPolicy::Local);
        let _ = GitUrl::parse(&text, UrlPolicy::Remote);
        let _ = Interval::parse(&text);
        let _ = InnerPath::parse(&text);
        let _ = GroupName::parse(&text);
        let _ = PythonVersion::parse(&text);
        let _ = text.parse::<ramen_group::Cidr>();
    }

    #[test]
    fn what_is_printed_is_read_again(v4 in any::<u32>(), v6 in any::<u128>(), p4 in 0..=32u8, p6 in 0..=128u8) {
        let texts = [
            format!("{}/{p4}", std::net::Ipv4Addr::from(v4)),
            format!("{}/{p6}", std::net::Ipv6Addr::from(v6)),
        ];
        for text in texts {
            if let Ok(range) = text.parse::<ramen_group::Cidr>() {
                prop_assert_eq!(range.to_string().parse::<ramen_group::Cidr>().unwrap(), range);
                prop_assert!(range.contains(range.address()));
            }
        }
    }
}
