use super::*;

fn refs() -> Vec<RemoteRef> {
    let id = |n: u8| hex::encode([n; 20]);
    let plain = |name: &str, n| RemoteRef {
        name: name.to_owned(),
        id: id(n),
        peeled: None,
        target: None,
    };
    let annotated = |name: &str, n, to| RemoteRef {
        peeled: Some(id(to)),
        ..plain(name, n)
    };
    vec![
        RemoteRef {
            target: Some("refs/heads/trunk".to_owned()),
            ..plain("HEAD", 1)
        },
        plain("refs/heads/trunk", 1),
        plain("refs/heads/both", 2),
        plain("refs/heads/feature/x", 9),
        plain("refs/tags/both", 3),
        annotated("refs/tags/v1.2.0", 4, 5),
        plain("refs/tags/1.10.0", 6),
        plain("refs/tags/v2.0.0-rc.1", 7),
        plain("refs/tags/v1.10.0", 8),
        plain("refs/tags/nightly", 10),
    ]
}

fn commit_of(wanted: &Wanted) -> u8 {
    hex::decode(resolve(&refs(), wanted).unwrap().commit).unwrap()[0]
}

#[test]
fn git11_a_word_is_a_tag_before_it_is_a_branch_and_fields_say_which() {
    assert_eq!(commit_of(&Wanted::parse("both").unwrap()), 3);
    assert_eq!(commit_of(&Wanted::Branch("both".to_owned())), 2);
    assert_eq!(commit_of(&Wanted::Tag("both".to_owned())), 3);
    assert_eq!(commit_of(&Wanted::parse("refs/heads/both").unwrap()), 2);
    assert_eq!(commit_of(&Wanted::parse("feature/x").unwrap()), 9);
    let fields = Wanted::from_fields(Some("both"), Some("both"), None, None, None).unwrap();
    assert_eq!(commit_of(&fields), 3, "a tag wins over a branch");
    let fields = Wanted::from_fields(Some("b"), Some("t"), Some("1.x"), Some("refs/a"), None);
    assert_eq!(fields.unwrap(), Wanted::Name("refs/a".to_owned()));
}

#[test]
fn git11_an_annotated_tag_is_peeled_and_the_revision_names_the_commit() {
    let resolved = resolve(&refs(), &Wanted::Tag("v1.2.0".to_owned())).unwrap();
    assert_eq!(
        resolved.revision(),
        format!("v1.2.0@sha1:{}", hex::encode([5; 20]))
    );
}

#[test]
fn git11_a_short_commit_id_is_refused_with_the_reason() {
    let error = Wanted::from_fields(None, None, None, None, Some("abc1234")).unwrap_err();
    assert!(error.to_string().contains("40 hex digits"), "{error}");
    let error = resolve(&refs(), &Wanted::parse("abc1234").unwrap()).unwrap_err();
    assert!(error.to_string().contains("all 40 digits"), "{error}");
    let full = "ABCDEF0123456789abcdef0123456789abcdef01";
    let pinned = without_refs(&Wanted::parse(full).unwrap()).unwrap();
    assert_eq!(pinned.revision(), format!("sha1:{}", full.to_lowercase()));
}

#[test]
fn git02_without_a_ref_the_remote_head_counts() {
    let resolved = resolve(&refs(), &Wanted::parse("").unwrap()).unwrap();
    assert_eq!(resolved.name.as_deref(), Some("trunk"));
    assert_eq!(resolved.full_ref.as_deref(), Some("refs/heads/trunk"));
    let detached: Vec<_> = refs()
        .into_iter()
        .map(|r| RemoteRef { target: None, ..r })
        .collect();
    let resolved = resolve(&detached, &Wanted::Head).unwrap();
    assert_eq!(
        resolved.revision(),
        format!("sha1:{}", hex::encode([1; 20]))
    );
    assert!(
        resolve(&[], &Wanted::Head)
            .unwrap_err()
            .to_string()
            .contains("empty")
    );
}

#[test]
fn ranges_choose_the_highest_version_and_leave_pre_releases_out() {
    for (range, commit) in [
        ("1.2.0", 5),
        ("1.2", 5),
        ("~1.2.0", 5),
        ("1.x", 8),
        ("^1.0.0", 8),
        (">=1.0.0 <2.0.0", 8),
        (">= 1.0.0, < 1.5", 5),
        ("*", 8),
        ("<1.0 || 1.2.x", 5),
        ("1.0.0 - 1.9.9", 5),
        (">=1.0.0-0", 7),
        (">=2.0.0-beta", 7),
        ("v1.2.0", 5),
    ] {
        assert_eq!(
            commit_of(&Wanted::Semver(range.to_owned())),
            commit,
            "{range}"
        );
    }
    for range in [">=3", ">=2.0.0-rc.2", "=9.9.9"] {
        assert!(
            resolve(&refs(), &Wanted::Semver(range.to_owned())).is_err(),
            "{range}"
        );
    }
    for range in ["", "latest", "1.2.3.4", "||", ">>1"] {
        let parsed = Wanted::from_fields(None, None, Some(range), None, None);
        assert!(range.is_empty() || parsed.is_err(), "{range}");
    }
}

#[test]
fn names_that_are_no_refs_are_refused() {
    for name in [
        "-x", "a..b", "a b", "a^", "a:b", "a\nb", "/a", "a/", "@{-1}", "a*",
    ] {
        assert!(Wanted::parse(name).is_err(), "{name:?}");
    }
    let error = resolve(&refs(), &Wanted::Branch("v1.2.0".to_owned())).unwrap_err();
    assert!(error.to_string().contains("a tag of that name"), "{error}");
}
