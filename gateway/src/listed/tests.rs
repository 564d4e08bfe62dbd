//! Files of groups.

use super::*;

fn folder(groups: &str) -> tempfile::TempDir {
    let temp = tempfile::tempdir().unwrap();
    std::fs::write(temp.path().join("groups.yaml"), groups).unwrap();
    std::fs::write(temp.path().join("own"), "# made by hand\nrmk_own\n").unwrap();
    std::fs::write(temp.path().join("callers"), "rmk_a\nrmk_b\n").unwrap();
    temp
}

#[test]
fn a_group_has_keys_ranges_and_workers() {
    let temp = folder(
        "groups:\n- name: demo\n  keysFile: callers\n  workerKeyFile: own\n  allowedCidrs: [10.0.0.0/8]\n  workers: ['10.0.0.1:50051', '[::1]:1']\n  zones: {east: ['10.0.0.2:1']}\n",
    );
    let reading = read(&temp.path().join("groups.yaml")).unwrap();
    let [spec] = reading.specs.as_slice() else {
        panic!()
    };
    assert_eq!(spec.name.to_string(), "default/demo");
    assert!(spec.keys.admits("rmk_a") && spec.keys.admits("rmk_b") && !spec.keys.admits("rmk_own"));
    assert_eq!(spec.worker_key.expose(), "rmk_own");
    assert!(
        spec.ranges.contains([10, 1, 2, 3].into()) && !spec.ranges.contains([127, 0, 0, 1].into())
    );
    let workers: Vec<_> = spec
        .workers
        .iter()
        .map(|at| (at.address.as_str(), at.zone.as_deref()))
        .collect();
    assert_eq!(
        workers,
        [
            ("10.0.0.1:50051", None),
            ("[::1]:1", None),
            ("10.0.0.2:1", Some("east"))
        ]
    );
}

#[test]
fn what_the_values_of_upstreams_come_from_is_watched_like_keys() {
    let temp = folder(
        "groups:\n- {name: a, workers: [], workerKeyFile: own, upstreams: [{name: web, url: 'https://h/', headerFiles: {A: token}}]}\n",
    );
    let read = || read(&temp.path().join("groups.yaml")).unwrap();
    let missing = read();
    let before = missing.prints();
    assert!(missing.specs[0].upstreams[0].server.is_err());
    std::fs::write(temp.path().join("token"), "of the server").unwrap();
    assert_ne!(missing.prints(), before);
    assert!(read().specs[0].upstreams[0].server.is_ok());
}

#[test]
fn a_group_without_keys_or_ranges_lets_in_nobody_from_afar() {
    let temp = folder("groups:\n- name: demo\n  workerKeyFile: own\n  workers: []\n");
    let reading = read(&temp.path().join("groups.yaml")).unwrap();
    assert!(reading.specs[0].keys.is_empty());
    assert!(!reading.specs[0].ranges.contains([10, 0, 0, 1].into()));
}

#[test]
fn what_is_wrong_names_the_group() {
    for (groups, wanted) in [
        (
            "groups:\n- name: Demo\n  workerKeyFile: own\n  workers: []\n",
            "default/Demo: names are DNS labels",
        ),
        (
            "groups:\n- name: a\n  workerKeyFile: none\n  workers: []\n",
            "default/a: cannot read",
        ),
        (
            "groups:\n- name: a\n  workerKeyFile: own\n  workers: [host]\n",
            "`host` is no host:port",
        ),
        (
            "groups:\n- name: a\n  workerKeyFile: own\n  workers: []\n  allowedCidrs: [10.0.0.1/8]\n",
            "host bits",
        ),
        (
            "groups:\n- {name: a, workerKeyFile: own, workers: []}\n- {name: a, workerKeyFile: own, workers: []}\n",
            "a is there twice",
        ),
        (
            "groups:\n- {name: a, workers: [], workerKeyFile: own, worker: x}\n",
            "worker",
        ),
        (
            "groups:\n- {name: a, workers: [], workerKeyFile: own, workersName: x}\n",
            "workersCaFile is missing",
        ),
        (
            "groups:\n- {name: a, workers: [], workerKeyFile: own, upstreams: [{name: web}]}\n",
            "default/a: the upstream `web`: it needs either a url",
        ),
        (
            "groups:\n- {name: a, workers: [], workerKeyFile: own, upstreams: [{name: web, command: x}, {name: web, command: y}]}\n",
            "default/a: the upstream `web` is there twice",
        ),
        ("- a\n", "is no list of groups"),
    ] {
        let temp = folder(groups);
        let error = read(&temp.path().join("groups.yaml"))
            .unwrap_err()
            .to_string();
        assert!(error.contains(wanted), "{wanted} in {error}");
    }
}
