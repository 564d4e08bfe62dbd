//! Bad surroundings: servers that hang or refuse, damaged layers, an index that is away.

use std::io::{Read as _, Write as _};
use std::net::TcpListener;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use ramen_source::testing::FreePort;
use serde_json::json;

use crate::files::{call, document, push};
use crate::support::Place;
use crate::{OTHER, TOOL};

/// A server that reads a request, counts it and says `answer`; without one it stays silent for ever.
fn server(answer: Option<&'static str>) -> (String, Arc<AtomicUsize>) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    let count = Arc::<AtomicUsize>::default();
    let counted = Arc::clone(&count);
    std::thread::spawn(move || {
        let mut silent = Vec::new();
        for mut stream in listener.incoming().flatten() {
            counted.fetch_add(1, Ordering::SeqCst);
            if let Some(answer) = answer {
                let _ = stream.read(&mut [0; 4096]);
                let _ = stream.write_all(answer.as_bytes());
            } else {
                silent.push(stream);
            }
        }
    });
    (format!("http://{address}/repo.git"), count)
}

fn at(name: &str, url: &str, more: &str) -> String {
    let group = document(name, Path::new("/x"), "");
    group
        .replace("file:///x", url)
        .replace("    interval: 1h\n", &format!("    interval: 1h\n{more}"))
}

#[test]
fn a_git_server_that_hangs_is_given_up_and_no_other_group_waits_for_it() {
    let place = Place::new();
    let repo = place.repo("good");
    let (url, _) = server(None);
    let text = document("good", &repo.bare, "") + &at("hangs", &url, "    timeout: 1s\n");
    let file = place.write("groups.yaml", &text);
    let mut up = place.up(&["-f", file.to_str().unwrap()]);
    up.until("the good one serves", "good", |s| {
        s["ready"] == true && s["revision"].is_string()
    });
    let commit = push(&place, &repo, OTHER, "good");
    up.until("the good one follows", "good", |s| {
        s["revision"].as_str().is_some_and(|r| r.ends_with(&commit))
    });
    let hangs = up.until("the other is given up", "hangs", |s| {
        s["errors"] != json!([])
    });
    assert_eq!(hangs["errors"][0]["reason"], "FetchTimeout");
    assert_eq!(up.stop(), Some(0));
    place.until_nothing_runs();
}

#[test]
fn git07_git08_a_refused_login_is_told_once_without_the_password() {
    let place = Place::new();
    let refuse = "HTTP/1.1 401 Unauthorized\r\nWWW-Authenticate: Basic realm=\"x\"\r\nContent-Length: 0\r\nConnection: close\r\n\r\n";
    let (url, count) = server(Some(refuse));
    let secret = "---\napiVersion: v1\nkind: Secret\nmetadata: {name: login}\nstringData: {username: u, password: s3cr3t-password}\n";
    let text = at("locked", &url, "    secretRef: {name: login}\n") + secret;
    let file = place.write("groups.yaml", &text);
    let mut up = place.up(&["-f", file.to_str().unwrap()]);
    let refused = up.until("the refusal is told", "locked", |s| {
        s["errors"] != json!([])
    });
    assert_eq!(refused["errors"][0]["reason"], "AuthenticationFailed");
    assert!(count.load(Ordering::SeqCst) <= 2, "{count:?} requests");
    assert!(!format!("{:?}{}", up.all(), up.log()).contains("s3cr3t"));
    assert_eq!(up.stop(), Some(0));
}

#[test]
fn a_kill_in_the_middle_of_a_fetch_leaves_nothing_and_the_next_start_serves() {
    let place = Place::new();
    let repo = place.repo("demo");
    let (url, count) = server(None);
    let file = place.write("groups.yaml", &at("demo", &url, "    timeout: 10m\n"));
    let up = place.up(&["-f", file.to_str().unwrap()]);
    while count.load(Ordering::SeqCst) == 0 {
        std::thread::yield_now();
    }
    up.kill();
    place.until_nothing_runs();
    place.write("groups.yaml", &document("demo", &repo.bare, ""));
    let mut up = place.up(&["-f", file.to_str().unwrap()]);
    up.until("it serves", "demo", |s| {
        s["ready"] == true && s["revision"].is_string()
    });
    assert_eq!(call(&place, "demo"), "42\n");
    assert_eq!(up.stop(), Some(0));
}

/// The archives of the store.
fn archives(dir: &Path) -> Vec<PathBuf> {
    let mut found = Vec::new();
    for entry in std::fs::read_dir(dir).unwrap().flatten() {
        if entry.file_type().unwrap().is_dir() {
            found.extend(archives(&entry.path()));
        } else if std::fs::read(entry.path())
            .unwrap()
            .starts_with(&[0x28, 0xb5, 0x2f, 0xfd])
        {
            found.push(entry.path());
        }
    }
    found
}

#[test]
fn layers_that_are_damaged_or_gone_are_made_again() {
    let place = Place::new();
    let repo = place.repo("demo");
    let file = place.write("group.yaml", &document("demo", &repo.bare, ""));
    let mut up = place.up(&["-f", file.to_str().unwrap()]);
    up.until("it serves", "demo", |s| {
        s["ready"] == true && s["revision"].is_string()
    });
    assert_eq!(up.stop(), Some(0));
    for damage in ["flip", "cut", "remove"] {
        let layers = archives(&place.path("state/store"));
        assert!(!layers.is_empty(), "no layers before {damage}");
        for layer in layers {
            let mut bytes = std::fs::read(&layer).unwrap();
            let middle = bytes.len() / 2;
            match damage {
                "flip" => bytes[middle] ^= 0xff,
                "cut" => bytes.truncate(middle),
                _ => {
                    std::fs::remove_file(&layer).unwrap();
                    continue;
                }
            }
            std::fs::write(&layer, bytes).unwrap();
        }
        std::fs::remove_dir_all(place.path("state/cache")).unwrap();
        let mut up = place.up(&["-f", file.to_str().unwrap()]);
        up.until(damage, "demo", |s| s["ready"] == true && s["tools"] == 1);
        assert_eq!(call(&place, "demo"), "42\n", "{damage}");
        assert_eq!(up.stop(), Some(0));
    }
}

#[test]
fn an_index_that_is_away_keeps_what_serves() {
    let place = Place::new();
    let repo = place.repo("demo");
    let nobody = FreePort::nobody().unwrap();
    let env =
        format!("  worker: {{env: [{{name: PIP_INDEX_URL, value: 'http://{nobody}/simple'}}]}}\n");
    let file = place.write("group.yaml", &document("demo", &repo.bare, &env));
    let mut up = place.up(&["-f", file.to_str().unwrap()]);
    let first = up.until("it serves", "demo", |s| {
        s["ready"] == true && s["revision"].is_string()
    });
    let requirements = repo.work.join("mcp/requirements.txt");
    std::fs::write(&requirements, "some-package==1.0\n").unwrap();
    push(&place, &repo, OTHER, "demo");
    let away = up.until("the index is missed", "demo", |s| s["errors"] != json!([]));
    assert_eq!(
        (&away["errors"][0]["reason"], &away["revision"]),
        (&json!("IndexUnreachable"), &first["revision"])
    );
    assert_eq!(call(&place, "demo"), "42\n");
    std::fs::write(&requirements, "").unwrap();
    let commit = push(&place, &repo, OTHER, "demo");
    up.until("a push without it serves", "demo", |s| {
        s["revision"].as_str().is_some_and(|r| r.ends_with(&commit))
    });
    assert_eq!(call(&place, "demo"), "43\n");
    assert_eq!(up.stop(), Some(0));
}

#[test]
fn a_repository_without_a_good_package_serves_nothing_and_says_why() {
    let place = Place::new();
    let repo = place.repo("demo");
    for kept in ["mcp/resources", "mcp/prompts", "mcp/tests.yaml"] {
        let path = repo.work.join(kept);
        if path.is_dir() {
            std::fs::remove_dir_all(path)
        } else {
            std::fs::remove_file(path)
        }
        .unwrap();
    }
    std::fs::write(repo.work.join(TOOL), crate::BROKEN).unwrap();
    place.push(&repo);
    let file = place.write("group.yaml", &document("demo", &repo.bare, ""));
    let mut up = place.up(&["-f", file.to_str().unwrap()]);
    let refused = up.until("it is refused", "demo", |s| s["errors"] != json!([]));
    assert_eq!(
        (&refused["ready"], &refused["errors"][0]["reason"]),
        (&json!(false), &json!("ImportFailed"))
    );
    let commit = push(&place, &repo, OTHER, "demo");
    up.until("the mended one serves", "demo", |s| {
        s["ready"] == true && s["revision"].as_str().is_some_and(|r| r.ends_with(&commit))
    });
    assert_eq!(up.stop(), Some(0));
}
