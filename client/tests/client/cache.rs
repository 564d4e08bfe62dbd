//! The schema cache: one file, keyed by name and fingerprint, whole at any time.

use std::os::unix::fs::MetadataExt as _;
use std::path::Path;
use std::sync::atomic::{AtomicUsize, Ordering};

use ramen_client::cache::{Cache, Entry};
use ramen_client::{Client, EraChoice, Options, ServerConfig, Tool};
use serde_json::json;

use crate::support::{Log, legacy, serve, soon, tool};

fn entry(config: &ServerConfig, tools: &[&str]) -> Entry {
    let tools = tools
        .iter()
        .map(|name| serde_json::from_value::<Tool>(tool(name)).unwrap())
        .collect();
    Entry::now(config.fingerprint(), "2025-11-25", None, tools)
}

fn config(arg: &str) -> ServerConfig {
    ServerConfig::stdio("server", [arg])
}

fn cache(folder: &Path) -> Cache {
    Cache::new(folder.join("mcp-cache.json"))
}

#[test]
fn net11_a_config_edit_invalidates_the_old_entry_rather_than_serving_stale_tools() {
    let dir = tempfile::tempdir().unwrap();
    let cache = cache(dir.path());
    cache.put("s", entry(&config("a"), &["one"])).unwrap();
    assert!(cache.get("s", &config("a").fingerprint()).is_some());
    assert!(cache.get("s", &config("b").fingerprint()).is_none());
    assert!(cache.get("other", &config("a").fingerprint()).is_none());
}

#[test]
fn the_cache_is_a_single_file_and_a_removed_server_leaves_none_behind() {
    let dir = tempfile::tempdir().unwrap();
    let cache = cache(&dir.path().join("made/when/needed"));
    for name in ["a", "b", "c"] {
        cache.put(name, entry(&config(name), &[name])).unwrap();
    }
    cache.retain(|name| name == "b").unwrap();
    assert_eq!(cache.entries().keys().collect::<Vec<_>>(), ["b"]);
    assert_eq!(
        names(cache.path().parent().unwrap()),
        ["mcp-cache.json", "mcp-cache.json.lock"]
    );
}

fn names(folder: &Path) -> Vec<String> {
    let mut files: Vec<_> = std::fs::read_dir(folder)
        .unwrap()
        .map(|file| file.unwrap().file_name().into_string().unwrap())
        .collect();
    files.sort();
    files
}

#[test]
fn the_cache_is_for_its_owner_alone() {
    use std::os::unix::fs::PermissionsExt as _;
    let dir = tempfile::tempdir().unwrap();
    let cache = cache(dir.path());
    cache.put("s", entry(&config("a"), &["one"])).unwrap();
    let mode = std::fs::metadata(cache.path())
        .unwrap()
        .permissions()
        .mode();
    assert_eq!(mode & 0o777, 0o600);
}

/// Two writers and a reader: every read is whole, and no write is lost.
#[test]
fn net11_a_save_is_atomic_and_writers_do_not_lose_each_others_entries() {
    let dir = tempfile::tempdir().unwrap();
    let cache = cache(dir.path());
    cache.put("first", entry(&config("x"), &["x"])).unwrap();
    std::thread::scope(|threads| {
        let writers: Vec<_> = (0..2)
            .map(|writer| {
                let cache = cache.clone();
                threads.spawn(move || {
                    for n in 0..25 {
                        let name = format!("{writer}-{n}");
                        cache
                            .put(&name, entry(&config(&name), &["t"; 5][..1]))
                            .unwrap();
                    }
                })
            })
            .collect();
        while writers.iter().any(|writer| !writer.is_finished()) {
            let text = std::fs::read_to_string(cache.path()).unwrap();
            serde_json::from_str::<serde_json::Value>(&text).expect("whole at any time");
        }
    });
    assert_eq!(cache.entries().len(), 51);
}

/// The name of the variable that makes the next test a writer that does not end.
const WRITE: &str = "RAMEN_TEST_CACHE";
const KILLED: &str = "cache::net11_a_writer_that_is_killed_leaves_the_old_or_the_new_file";

/// A process that does nothing but write is killed, in whatever it does at that moment.
#[test]
fn net11_a_writer_that_is_killed_leaves_the_old_or_the_new_file() {
    if let Some(path) = std::env::var_os(WRITE) {
        let cache = Cache::new(path);
        for n in 0_u64.. {
            let config = config(&n.to_string());
            cache.put("s", entry(&config, &["one"; 40])).unwrap();
        }
    }
    let dir = tempfile::tempdir().unwrap();
    let cache = cache(dir.path());
    cache.put("mine", entry(&config("a"), &["one"])).unwrap();
    for round in 0..12_u32 {
        let mut writer = std::process::Command::new(std::env::current_exe().unwrap())
            .args(["--exact", KILLED])
            .env(WRITE, cache.path())
            .stdout(std::process::Stdio::null())
            .spawn()
            .unwrap();
        let written = || std::fs::metadata(cache.path()).unwrap().ino();
        let before = written();
        while written() == before {
            assert!(writer.try_wait().unwrap().is_none(), "it does not write");
        }
        // At another moment of its round each time.
        for _ in 0..round * 400 {
            std::hint::black_box(written());
        }
        writer.kill().unwrap();
        writer.wait().unwrap();
        let text = std::fs::read_to_string(cache.path()).unwrap();
        serde_json::from_str::<serde_json::Value>(&text).expect("whole at any time");
        assert!(cache.get("mine", &config("a").fingerprint()).is_some());
        assert!(cache.entries()["s"].tools.len() == 40);
    }
    // Nothing of the dead is in the way of the living, or left for ever.
    cache.put("mine", entry(&config("b"), &["two"])).unwrap();
    assert_eq!(cache.entries()["mine"].tools[0].name, "two");
    assert_eq!(names(dir.path()), ["mcp-cache.json", "mcp-cache.json.lock"]);
}

#[test]
fn net11_a_torn_file_is_ignored_with_a_warning_and_replaced() {
    let dir = tempfile::tempdir().unwrap();
    let cache = cache(dir.path());
    cache.put("s", entry(&config("a"), &["one"])).unwrap();
    let whole = std::fs::read(cache.path()).unwrap();
    for end in [0, 1, whole.len() / 2, whole.len() - 1] {
        let log = Log::default();
        let _guard = log.start();
        std::fs::write(cache.path(), &whole[..end]).unwrap();
        assert!(cache.entries().is_empty());
        assert!(log.text().contains("torn"), "{}", log.text());
        cache.put("s", entry(&config("a"), &["one"])).unwrap();
        assert_eq!(cache.entries().len(), 1);
    }
}

#[test]
fn a_foreign_file_is_ignored_with_a_warning_and_left_alone() {
    let dir = tempfile::tempdir().unwrap();
    let cache = cache(dir.path());
    for foreign in [
        "{}",
        "[1]",
        r#"{"format":"ramen-mcp-cache/2","servers":{}}"#,
        r#"{"mcpServers":{}}"#,
    ] {
        let log = Log::default();
        let _guard = log.start();
        std::fs::write(cache.path(), foreign).unwrap();
        assert!(cache.entries().is_empty());
        assert!(log.text().contains("not of this program"), "{}", log.text());
        assert!(cache.put("s", entry(&config("a"), &["one"])).is_err());
        assert_eq!(std::fs::read_to_string(cache.path()).unwrap(), foreign);
    }
}

#[test]
fn the_cache_tells_what_a_server_last_advertised_and_when() {
    let dir = tempfile::tempdir().unwrap();
    let cache = cache(dir.path());
    let before = std::time::SystemTime::now();
    cache
        .put("s", entry(&config("a"), &["one", "two"]))
        .unwrap();
    let entries = cache.entries();
    let since = before
        .duration_since(std::time::UNIX_EPOCH)
        .unwrap()
        .as_secs();
    assert!(entries["s"].saved_at >= since);
    let names: Vec<_> = entries["s"]
        .tools
        .iter()
        .map(|tool| tool.name.as_str())
        .collect();
    assert_eq!(names, ["one", "two"]);
}

#[test]
fn no_value_of_the_configuration_is_in_the_file() {
    let dir = tempfile::tempdir().unwrap();
    let cache = cache(dir.path());
    let secret =
        ServerConfig::stdio("server", ["--token=planted-arg"]).with("TOKEN", "planted-env");
    cache.put("s", entry(&secret, &["one"])).unwrap();
    let text = std::fs::read_to_string(cache.path()).unwrap();
    assert!(!text.contains("planted"), "{text}");
}

/// The initial connection, and a refresh that a notification triggers. (A reconnect is a connection.)
#[tokio::test]
async fn the_cache_is_written_after_every_real_tools_list() {
    let dir = tempfile::tempdir().unwrap();
    let cache = cache(dir.path());
    let count = AtomicUsize::new(0);
    let (reads, writes, server) = serve(move |message, out| {
        if message["method"] == "tools/list" {
            let n = count.fetch_add(1, Ordering::SeqCst);
            out.result(message, &json!({"tools": [tool(&format!("v{n}"))]}));
        } else {
            legacy(message, out, &json!([]));
        }
    });
    let options = Options {
        cache: Some(cache.clone()),
        ..Options::default()
    };
    let client = Client::over_streams("s", reads, writes, EraChoice::Auto, &options)
        .await
        .unwrap();
    let saved = cache.entries();
    assert_eq!(saved["s"].tools[0].name, "v0");
    assert_eq!(saved["s"].protocol_version, "2025-11-25");
    assert_eq!(saved["s"].server_info.as_ref().unwrap().name, "scripted");
    let mut updates = client.updates();
    server.out().notify("notifications/tools/list_changed");
    soon(updates.wait_for(|updates| updates.tools == 1))
        .await
        .unwrap();
    assert_eq!(cache.entries()["s"].tools[0].name, "v1");
}

#[tokio::test]
async fn a_cache_that_cannot_be_written_costs_a_warning_only() {
    let log = Log::default();
    let _guard = log.start();
    let dir = tempfile::tempdir().unwrap();
    std::fs::write(dir.path().join("file"), "").unwrap();
    let (reads, writes, _server) = serve(|message, out| {
        legacy(message, out, &json!([tool("one")]));
    });
    let options = Options {
        cache: Some(Cache::new(dir.path().join("file/below/cache.json"))),
        ..Options::default()
    };
    let client = Client::over_streams("s", reads, writes, EraChoice::Auto, &options)
        .await
        .unwrap();
    assert_eq!(client.tools().len(), 1);
    assert!(log.text().contains("not remembered"), "{}", log.text());
}
