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
    ] {
        assert!(faults.contains(part), "{part} in {faults}");
    }
}
