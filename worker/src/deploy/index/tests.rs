use super::*;

fn vars(pairs: &[(&str, &str)]) -> BTreeMap<String, String> {
    pairs
        .iter()
        .map(|(name, value)| ((*name).to_owned(), (*value).to_owned()))
        .collect()
}

fn env<'a>(config: &'a IndexConfig, name: &str) -> Option<&'a str> {
    config.env.get(name).map(String::as_str)
}

#[test]
fn a_private_index_of_pip_is_never_passed_over() {
    let config = IndexConfig::new(
        &vars(&[
            ("PIP_INDEX_URL", "https://bot:s3cret%21@index.corp/simple"),
            ("PIP_EXTRA_INDEX_URL", "https://a.corp/x  https://b.corp/y"),
            ("PIP_TRUSTED_HOST", "index.corp"),
            ("PIP_NO_INDEX", "0"),
        ]),
        BTreeMap::new(),
    );
    assert_eq!(
        env(&config, "UV_DEFAULT_INDEX"),
        Some("https://bot:s3cret%21@index.corp/simple")
    );
    assert_eq!(
        env(&config, "UV_EXTRA_INDEX_URL"),
        Some("https://a.corp/x https://b.corp/y")
    );
    assert_eq!(env(&config, "UV_INSECURE_HOST"), Some("index.corp"));
    assert!(config.flags.is_empty());
    assert!(config.secrets.contains("s3cret!") && config.secrets.contains("s3cret%21"));
    assert!(
        !config.fingerprint.contains("s3cret"),
        "{}",
        config.fingerprint
    );
    assert!(
        config.fingerprint.contains("https://index.corp/simple"),
        "{}",
        config.fingerprint
    );
}

#[test]
fn the_installer_inherits_no_secret_and_nothing_that_moves_its_target() {
    let config = IndexConfig::new(
        &vars(&[
            ("RAMEN_SECRET_G__KEY", "x"),
            ("AWS_SECRET_ACCESS_KEY", "x"),
            ("UV_PYTHON", "3.9"),
            ("UV_CACHE_DIR", "/c"),
            ("https_proxy", "http://p"),
            ("PATH", "/bin"),
        ]),
        BTreeMap::new(),
    );
    let names: Vec<_> = config.env.keys().map(String::as_str).collect();
    assert_eq!(
        names,
        ["PATH", "UV_CACHE_DIR", "UV_NO_CONFIG", "https_proxy"]
    );
}

#[test]
fn a_uv_variable_wins_over_what_pip_says() {
    let config = IndexConfig::new(
        &vars(&[
            ("UV_INDEX_URL", "https://uv/simple"),
            ("PIP_INDEX_URL", "https://pip/simple"),
        ]),
        BTreeMap::new(),
    );
    assert_eq!(env(&config, "UV_INDEX_URL"), Some("https://uv/simple"));
    assert_eq!(env(&config, "UV_DEFAULT_INDEX"), None);
}

#[test]
fn pip_conf_is_read_and_a_variable_wins_over_it() {
    let mut options = BTreeMap::new();
    read_config(
        "# x\n[global]\nindex-url = https://conf/simple\nfind_links =\n    https://one/\n    https://two/\n\
         [install]\nno-index: true\n[list]\nformat = columns\n",
        &mut options,
    );
    assert_eq!(
        options["find-links"].split_whitespace().collect::<Vec<_>>(),
        ["https://one/", "https://two/"]
    );
    assert!(!options.contains_key("format"));
    let config = IndexConfig::new(&vars(&[("PIP_INDEX_URL", "https://env/simple")]), options);
    assert_eq!(env(&config, "UV_DEFAULT_INDEX"), Some("https://env/simple"));
    assert_eq!(
        env(&config, "UV_FIND_LINKS"),
        Some("https://one/,https://two/")
    );
    assert_eq!(config.flags, ["--no-index"]);
}

#[test]
fn folders_that_do_not_exist_are_passed_over_as_pip_does() {
    let config = IndexConfig::new(
        &vars(&[("PIP_FIND_LINKS", "/no/such/folder")]),
        BTreeMap::new(),
    );
    assert_eq!(env(&config, "UV_FIND_LINKS"), None);
    assert_eq!(config.notes.len(), 1);
}

#[test]
fn another_index_or_another_day_is_another_fingerprint_and_a_new_password_is_not() {
    let of =
        |url: &str| IndexConfig::new(&vars(&[("PIP_INDEX_URL", url)]), BTreeMap::new()).fingerprint;
    assert_ne!(of("https://a/simple"), of("https://b/simple"));
    assert_eq!(of("https://u:one@a/simple"), of("https://u:two@a/simple"));
}

#[test]
fn passwords_in_variables_of_their_own_are_masked_too() {
    let config = IndexConfig::new(
        &vars(&[
            ("UV_INDEX_CORP_USERNAME", "bot"),
            ("UV_INDEX_CORP_PASSWORD", "s3cret"),
            ("UV_PUBLISH_TOKEN", "t0ken"),
        ]),
        BTreeMap::new(),
    );
    assert_eq!(
        config.secrets,
        BTreeSet::from(["s3cret".into(), "t0ken".into()])
    );
}
