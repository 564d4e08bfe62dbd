use super::*;

#[test]
fn a_folder_lends_its_name_to_the_group() {
    assert_eq!(group_name("My_Group"), "my-group");
    assert_eq!(group_name("2024 tools "), "group-2024-tools");
    let temp = tempfile::tempdir().unwrap();
    std::fs::create_dir_all(temp.path().join("demo/mcp")).unwrap();
    let of = |dir: &str| {
        Plan::of_folder(&temp.path().join(dir))
            .unwrap()
            .groups
            .remove(0)
            .key
            .1
    };
    assert_eq!(
        (of("demo"), of("demo/mcp")),
        ("demo".to_owned(), "demo".to_owned())
    );
    assert!(Plan::of_folder(&temp.path().join("none")).is_err());
}

const GROUP: &str = "apiVersion: ramen.dev/v1alpha1\nkind: McpGroup\nmetadata: {name: NAME}\nspec:\n  source: {url: 'URL'}\n  \
     network: {allowedCIDRs: [127.0.0.0/8]}\n";

fn group(name: &str, url: &str, more: &str) -> String {
    format!(
        "---\n{}{more}",
        GROUP.replace("NAME", name).replace("URL", url)
    )
}

fn plan(text: &str) -> Result<Plan, String> {
    let file = tempfile::NamedTempFile::new().unwrap();
    std::fs::write(file.path(), text).unwrap();
    Plan::of_file(file.path())
}

#[test]
fn groups_and_their_secrets_come_from_one_file() {
    let text = group(
        "a",
        "https://example.com/a.git",
        "  secrets: [{name: s}]\n  keys: {secretRef: {name: k}}\n  worker: {hosts: 3, env: [{name: PIP_INDEX_URL, value: x}, {name: API_BASE, value: z}]}\n",
    ) + &group("b", "file:///srv/b.git", "")
        + "---\napiVersion: v1\nkind: Secret\nmetadata: {name: s}\ndata: {TOKEN: czNjcjN0}\nstringData: {other-one: plain}\n"
        + "---\napiVersion: v1\nkind: Secret\nmetadata: {name: k}\nstringData: {first: rmk_1}\n---\n"
        + "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: c}\n";
    let plan = plan(&text).unwrap();
    let [a, b] = plan.groups.as_slice() else {
        panic!("{plan:?}")
    };
    let secrets: Vec<_> = a
        .secrets
        .iter()
        .map(|(n, v)| (n.as_str(), v.to_str().unwrap()))
        .collect();
    assert_eq!(
        secrets,
        [
            ("RAMEN_SECRET_A__OTHER_ONE", "plain"),
            ("RAMEN_SECRET_A__TOKEN", "s3cr3t")
        ]
    );
    assert_eq!(a.keys.as_ref().unwrap()["first"], b"rmk_1");
    assert!(
        a.worker_env
            .contains(&("RAMEN_HOSTS".to_owned(), "3".into()))
    );
    assert!(
        a.worker_env
            .contains(&("RAMEN_ALLOWED_CIDRS".to_owned(), "127.0.0.0/8".into()))
    );
    let set = [
        ("PIP_INDEX_URL", "x"),
        ("API_BASE", "z"),
        ("RAMEN_HOST_ENV", "API_BASE"),
    ]
    .map(|(name, value)| (name.to_owned(), OsString::from(value)));
    assert_eq!(a.deploy_env, set);
    assert!(set.iter().all(|one| a.worker_env.contains(one)), "{a:?}");
    assert_eq!(
        b.deploy_env,
        [("RAMEN_HOST_ENV".to_owned(), OsString::new())]
    );
    assert!(b.keys.is_none() && b.interval == Duration::from_mins(5));
    assert_eq!(plan.remarks.len(), 1);
    assert!(plan.remarks[0].contains("ConfigMap"));
}

#[test]
fn a_variable_of_the_loader_is_left_out_with_a_remark() {
    let env = "  worker: {env: [{name: LD_PRELOAD, value: x}, {name: API_BASE, value: z}]}\n";
    let plan = plan(&group("a", "https://example.com/a.git", env)).unwrap();
    let names: Vec<_> = plan.groups[0]
        .deploy_env
        .iter()
        .map(|(n, _)| &**n)
        .collect();
    assert_eq!(names, ["API_BASE", "RAMEN_HOST_ENV"]);
    let [remark] = &plan.remarks[..] else {
        panic!("{:?}", plan.remarks)
    };
    assert!(
        remark.starts_with("a: ") && remark.contains("LD_PRELOAD"),
        "{remark}"
    );
}

#[test]
fn a_faulty_group_does_not_stand_in_the_way_of_the_others() {
    let good = group("good", "https://example.com/a.git", "");
    let bad = group(
        "bad",
        "ftp://example.com/a.git",
        "  keys: {secretRef: {name: none}}\n",
    );
    let two = plan(&format!("{good}{bad}")).unwrap();
    assert_eq!((two.groups.len(), two.faulty.len()), (1, 1));
    assert!(
        two.faulty[0]
            .1
            .iter()
            .any(|fault| fault.contains("spec.source.url")),
        "{two:?}"
    );
    let alone = plan(&bad).unwrap_err();
    assert!(alone.contains("spec.source.url"), "{alone}");
    let missing = group(
        "m",
        "https://example.com/a.git",
        "  keys: {secretRef: {name: none}}\n",
    );
    assert!(
        plan(&missing)
            .unwrap_err()
            .contains("the Secret none is not in the file")
    );
    assert!(
        plan(&format!("{good}{good}"))
            .unwrap_err()
            .contains("twice")
    );
    assert!(plan("a: [").is_err() && plan("").is_err());
    assert!(
        plan(&good)
            .unwrap()
            .listening(Some("127.0.0.1:1".parse().unwrap()))
            .is_ok()
    );
}
