use super::*;
use clap::Parser;

#[derive(Parser)]
struct Command {
    #[command(flatten)]
    serve: ServeArgs,
}

fn read(args: &[&str]) -> Result<Config, ConfigFaults> {
    let args = ["serve", "--store", "/tmp/store"].iter().chain(args);
    Config::read(Command::parse_from(args).serve)
}

#[test]
fn the_defaults_are_loopback_and_two_hosts_at_least() {
    let config = read(&[]).unwrap();
    assert!(config.ranges.contains([127, 0, 0, 1].into()));
    assert!(!config.ranges.contains([10, 0, 0, 1].into()));
    assert!(config.hosts >= 2);
    assert_eq!(config.max_inflight, 256);
    assert_eq!(config.hosts_memory_mib, None, "as much as there is");
    assert_eq!(config.import_timeout, Duration::from_secs(30));
    assert_eq!(config.cache_dir, Path::new("/tmp/store/unpacked"));
}

#[test]
fn an_empty_list_lets_nobody_in() {
    let config = read(&["--allowed-cidrs", ""]).unwrap();
    assert!(config.ranges.is_empty());
}

#[test]
fn all_faults_are_told_in_one_message() {
    let faults = read(&[
        "--listen",
        "nowhere",
        "--allowed-cidrs",
        "192.0.2.1/24, 010.0.0.0/8, ::ffff:0:0/96",
        "--max-inflight",
        "0",
        "--tls-cert",
        "/x",
        "--trust-proxy",
        "many",
        "--hosts-memory-mib",
        "1 GiB",
        "--import-timeout-secs",
        "0",
        "--host-env",
        "GOOD,RAMEN_KEYS_DIR",
    ])
    .err()
    .unwrap()
    .to_string();
    for part in [
        "RAMEN_LISTEN",
        "192.0.2.0/24",
        "010.0.0.0/8",
        "::ffff:0:0/96",
        "RAMEN_MAX_INFLIGHT",
        "RAMEN_TLS_CERT",
        "RAMEN_TRUST_PROXY",
        "RAMEN_HOSTS_MEMORY_MIB",
        "RAMEN_IMPORT_TIMEOUT_SECS",
        "RAMEN_HOST_ENV",
        "`RAMEN_KEYS_DIR` starts with RAMEN_",
    ] {
        assert!(faults.contains(part), "{part} in {faults}");
    }
}

#[test]
fn only_variables_that_are_named_are_handed_to_the_code() {
    let named = |text: &str| text.parse::<HostEnv>();
    let value = |name: &str| match name {
        "API_BASE" => Some("https://api".to_owned()),
        "EMPTY" => Some(String::new()),
        "OTHER" => Some("not named".to_owned()),
        _ => None,
    };
    let read = named(" API_BASE, EMPTY,,UNSET,").unwrap().read(value);
    let given = [("API_BASE", "https://api"), ("EMPTY", "")];
    assert_eq!(read, given.map(|(n, v)| (n.to_owned(), v.to_owned())));
    assert_eq!(named("").unwrap(), HostEnv::default());
    for refused in ["RAMEN_SECRET_G__A", "LD_PRELOAD", "A B", "1A", "A=b"] {
        assert!(named(refused).unwrap_err().contains(refused), "{refused}");
    }
}

#[test]
fn passwords_in_what_the_code_gets_are_found_also_without_a_scheme() {
    let vars = [
        ("HTTPS_PROXY", "http://user:first-word@proxy:3128"),
        ("http_proxy", "user:second-word@proxy:3128"),
        ("CONTACT", "mailto:team@corp.test"),
        ("NO_PROXY", "localhost"),
    ];
    let vars = vars.map(|(name, value)| (name.to_owned(), value.to_owned()));
    assert_eq!(passwords_in(&vars), ["first-word", "second-word"]);
}

#[derive(Parser)]
struct Deploying {
    #[command(flatten)]
    deploy: crate::deploy::DeployArgs,
}

#[test]
fn a_deploy_takes_the_same_numbers_as_the_worker() {
    let read = |flag: &str, value: &str| {
        let args = ["deploy", "--code-dir", "/c", "--store", "/s", "--out", "/o"];
        let args = args.into_iter().chain([flag, value]);
        Deploying::try_parse_from(args).map(|args| args.deploy)
    };
    for (flag, good, bad) in [
        ("--import-timeout", "86400", "0"),
        ("--import-timeout", "1", "86401"),
        ("--hosts-memory-mib", "1073741824", "1073741825"),
    ] {
        assert!(read(flag, good).is_ok(), "{flag} {good}");
        assert!(read(flag, bad).is_err(), "{flag} {bad}");
    }
    assert_eq!(
        read("--hosts-memory-mib", "0").unwrap().hosts_memory_mib,
        Some(0)
    );
}
