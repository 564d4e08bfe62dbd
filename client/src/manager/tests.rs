//! The manager over scripted servers, in paused time.

use std::sync::atomic::Ordering;
use std::time::Duration;

use serde_json::json;
use tokio::time::Instant;

use super::world::support::{Log, Server, soon};
use super::world::{Fate, World, cached, names, servers, soon_in_paused_time, until};
use super::*;

#[tokio::test(start_paused = true)]
async fn connect_all_dials_every_enabled_server_in_name_order_and_logs_in_it() {
    let log = Log::default();
    let _guard = log.start();
    let world = World::new();
    let mut all = servers(&["delta", "alpha", "off", "charlie", "bravo"]);
    all.get_mut("off").unwrap().enabled = false;
    world.fate("bravo", [Fate::Down]);
    let manager = world.manager(ManagerOptions::default());
    manager.start(all).await;
    assert_eq!(world.dialled(), ["alpha", "bravo", "charlie", "delta"]);
    let text = log.text();
    let at = |name: &str| {
        text.find(&format!("server=\"{name}\""))
            .unwrap_or_else(|| panic!("{name}: {text}"))
    };
    assert!(
        at("alpha") < at("bravo") && at("bravo") < at("charlie") && at("charlie") < at("delta")
    );
    assert_eq!(names(&manager), ["alpha", "charlie", "delta"]);
}

#[tokio::test(start_paused = true)]
async fn a_server_that_hangs_at_the_start_holds_up_no_other() {
    let world = World::new();
    world.fate("alpha", [Fate::Hangs]);
    let manager = Arc::new(world.manager(ManagerOptions::default()));
    let starting = tokio::spawn({
        let manager = Arc::clone(&manager);
        async move { manager.start(servers(&["alpha", "bravo"])).await }
    });
    until(&manager, &["bravo"]).await;
    assert!(!starting.is_finished());
    manager.close().await;
    starting.await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn a_server_that_hangs_at_the_start_holds_up_none_of_many_others() {
    let world = World::new();
    world.fate("s00", [Fate::Hangs]);
    let many: Vec<_> = (0..30).map(|n| format!("s{n:02}")).collect();
    let many: Vec<_> = many.iter().map(String::as_str).collect();
    let manager = Arc::new(world.manager(ManagerOptions::default()));
    let starting = tokio::spawn({
        let (manager, all) = (Arc::clone(&manager), servers(&many));
        async move { manager.start(all).await }
    });
    until(&manager, &many[1..]).await;
    assert!(!starting.is_finished());
    manager.close().await;
    starting.await.unwrap();
}

/// Each of them would wait for an attempt of its own, one after the other.
#[tokio::test(start_paused = true)]
async fn whoever_waits_for_the_first_use_of_a_server_hears_of_its_failure_with_the_first() {
    let dir = tempfile::tempdir().unwrap();
    let before = World::new().manager(cached(&dir));
    before.start(servers(&["s"])).await;
    before.close().await;

    let world = World::new();
    world.fate("s", [Fate::Fails]);
    let manager = Arc::new(world.manager(cached(&dir)));
    manager.open_with(servers(&["s"])).await;
    let using: Vec<_> = (0..5)
        .map(|_| {
            let manager = Arc::clone(&manager);
            tokio::spawn(async move { manager.client("s").await.unwrap_err().to_string() })
        })
        .collect();
    while world.dialled().is_empty() {
        tokio::task::yield_now().await;
    }
    world.go.notify_one();
    for use_of_it in using {
        let why = soon(use_of_it).await.unwrap();
        assert!(why.contains("it is down"), "{why}");
    }
    assert_eq!(world.dialled().len(), 1);
    // Who comes later tries again.
    world.fate("s", [Fate::Up]);
    manager.client("s").await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn failures_are_logged_and_skipped_and_cost_that_servers_tools_only() {
    let log = Log::default();
    let _guard = log.start();
    let world = World::new();
    world.fate("bad", [Fate::Down]);
    let manager = world.manager(ManagerOptions::default());
    manager.start(servers(&["bad", "good"])).await;
    assert!(log.text().contains("it is down"), "{}", log.text());
    let good = manager.client("good").await.unwrap();
    assert_eq!(
        good.call_tool("good_tool", &crate::Json::from(&json!({})))
            .await
            .unwrap(),
        "ok"
    );
    assert!(
        manager
            .client("bad")
            .await
            .unwrap_err()
            .to_string()
            .contains("it is down")
    );
    assert!(manager.client("unknown").await.is_err());
    // By default a server that never was there is not tried again.
    tokio::time::advance(Duration::from_hours(1)).await;
    assert_eq!(world.times("bad").len(), 1);
}

#[tokio::test(start_paused = true)]
async fn a_server_that_failed_at_the_start_is_tried_again_when_asked_for() {
    let world = World::new();
    world.fate("late", [Fate::Down, Fate::Down, Fate::Up]);
    let manager = world.manager(ManagerOptions {
        retry_failed: true,
        ..ManagerOptions::default()
    });
    manager.start(servers(&["late"])).await;
    assert!(names(&manager).is_empty());
    until(&manager, &["late"]).await;
    assert_eq!(world.times("late").len(), 3);
}

#[tokio::test(start_paused = true)]
async fn no_more_servers_are_dialled_at_once_than_allowed() {
    let world = World::new();
    let many: Vec<_> = (0..30).map(|n| format!("s{n:02}")).collect();
    let many: Vec<_> = many.iter().map(String::as_str).collect();
    let manager = world.manager(ManagerOptions::default());
    manager.start(servers(&many)).await;
    assert_eq!(manager.clients().len(), 30);
    assert!(world.most.load(Ordering::SeqCst) <= 8);
    assert_eq!(world.dialled(), many);
}

#[tokio::test(start_paused = true)]
async fn a_server_whose_transport_dies_is_reconnected_with_backoff() {
    let world = World::new();
    world.fate(
        "s",
        [Fate::Up, Fate::Down, Fate::Down, Fate::Down, Fate::Up],
    );
    let manager = world.manager(ManagerOptions::default());
    manager.start(servers(&["s", "t"])).await;
    let first = manager.client("s").await.unwrap();
    world.kill("s");
    soon(first.done()).await;
    until(&manager, &["t"]).await;
    until(&manager, &["s", "t"]).await;
    let second = manager.client("s").await.unwrap();
    assert!(!Arc::ptr_eq(&first, &second));
    let times = world.times("s");
    let waits: Vec<_> = times.windows(2).map(|pair| pair[1] - pair[0]).collect();
    assert_eq!(waits.len(), 4);
    for (wait, step) in waits[1..].iter().zip([1000, 2000, 4000]) {
        let step = Duration::from_millis(step);
        assert!(
            *wait >= step / 2 && *wait <= step + Duration::from_millis(50),
            "{waits:?}"
        );
    }
    assert_eq!(world.times("t").len(), 1, "the other one is left alone");
}

/// Down for ten minutes, then there: back within one longest wait. It never gives up.
#[tokio::test(start_paused = true)]
async fn net06_a_server_that_is_down_for_long_comes_back_within_one_longest_wait() {
    let world = World::new();
    let manager = world.manager(ManagerOptions::default());
    manager.start(servers(&["s"])).await;
    world.fate("s", [Fate::Down]);
    world.kill("s");
    until(&manager, &[]).await;
    tokio::time::sleep_until(Instant::now() + Duration::from_mins(10)).await;
    assert!(names(&manager).is_empty());
    let tries = world.times("s").len();
    assert!((10..40).contains(&tries), "{tries}");
    world.fate("s", [Fate::Up]);
    let up = Instant::now();
    until(&manager, &["s"]).await;
    assert!(
        up.elapsed() <= Duration::from_secs(61),
        "{:?}",
        up.elapsed()
    );
}

/// One that starts and dies at once, for ever: the attempts are as far apart as if it did not start.
#[tokio::test(start_paused = true)]
async fn net06_a_server_that_dies_after_each_start_is_bounded_by_backoff_until_it_lives() {
    let world = World::new();
    let manager = world.manager(ManagerOptions::default());
    manager.start(servers(&["s"])).await;
    for _ in 0..9 {
        until(&manager, &["s"]).await;
        world.kill("s");
        until(&manager, &[]).await;
    }
    until(&manager, &["s"]).await;
    let times = world.times("s");
    assert!(
        times[9] - times[8] >= Duration::from_secs(30),
        "{:?}",
        times[9] - times[8]
    );
    // It lives: the next death starts the doubling anew.
    tokio::time::sleep_until(Instant::now() + Duration::from_secs(31)).await;
    world.kill("s");
    let died = Instant::now();
    until(&manager, &[]).await;
    until(&manager, &["s"]).await;
    assert!(
        died.elapsed() <= Duration::from_millis(600),
        "{:?}",
        died.elapsed()
    );
}

#[tokio::test(start_paused = true)]
async fn clients_is_a_copy_that_stays_while_servers_come_and_go() {
    let world = World::new();
    let manager = world.manager(ManagerOptions::default());
    manager.start(servers(&["a", "b"])).await;
    let snapshot = manager.clients();
    world.kill("a");
    until(&manager, &["b"]).await;
    assert_eq!(snapshot.keys().collect::<Vec<_>>(), ["a", "b"]);
    assert!(snapshot["a"].is_done() && !snapshot["b"].is_done());
    assert_eq!(
        snapshot["a"].tools().len(),
        1,
        "what it knew stays readable"
    );
}

/// Seeded interleavings: servers die and come back while others range over snapshots from other threads.
#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn clients_can_be_ranged_over_while_reconnects_are_in_flight() {
    let world = World::new();
    let quick = BackoffPolicy {
        first: Duration::from_micros(100),
        max: Duration::from_micros(500),
        stable: Duration::ZERO,
    };
    let manager = Arc::new(world.manager(ManagerOptions {
        backoff: quick,
        ..ManagerOptions::default()
    }));
    let all = ["a", "b", "c", "d"];
    manager.start(servers(&all)).await;
    let stop = CancellationToken::new();
    let readers: Vec<_> = (0..3)
        .map(|_| {
            let (manager, stop) = (Arc::clone(&manager), stop.clone());
            tokio::spawn(async move {
                let mut seen = 0;
                while !stop.is_cancelled() {
                    for (name, client) in manager.clients() {
                        assert_eq!(client.name(), name);
                        assert_eq!(client.tools()[0].name, format!("{name}_tool"));
                        seen += 1;
                    }
                    for status in manager.status() {
                        assert_eq!(status.tools.len(), 1, "known whether it is up or down");
                    }
                    tokio::task::yield_now().await;
                }
                seen
            })
        })
        .collect();
    for round in 0..60_usize {
        let name = all[(round * 7 + round / 3) % all.len()];
        let before = world.times(name).len();
        world.kill(name);
        soon(async {
            while world.times(name).len() == before || !manager.clients().contains_key(name) {
                tokio::task::yield_now().await;
            }
        })
        .await;
    }
    stop.cancel();
    for reader in readers {
        assert!(reader.await.unwrap() > 0);
    }
    soon(manager.close()).await;
    assert!(manager.clients().is_empty());
}

#[tokio::test(start_paused = true)]
async fn close_shuts_every_connected_server_down_and_supervision_with_it() {
    let world = World::new();
    let manager = world.manager(ManagerOptions::default());
    manager.start(servers(&["a", "b"])).await;
    let clients = manager.clients();
    let log = Log::default();
    let guard = log.start();
    soon(manager.close()).await;
    drop(guard);
    assert!(clients.values().all(|client| client.is_done()));
    // Nobody who watches them is left when they are closed.
    assert!(!log.text().contains("went away"), "{}", log.text());
    assert!(manager.clients().is_empty());
    assert!(manager.inner.supervisors.is_empty());
    tokio::time::sleep_until(Instant::now() + Duration::from_hours(1)).await;
    assert_eq!(
        world.dialled(),
        ["a", "b"],
        "the shutdown is not taken for a crash"
    );
    assert!(manager.client("a").await.is_err());
    soon(manager.close()).await;
}

#[tokio::test(start_paused = true)]
async fn close_unblocks_a_backoff_sleep_in_progress() {
    let world = World::new();
    let manager = world.manager(ManagerOptions {
        backoff: BackoffPolicy {
            first: Duration::from_secs(5000),
            max: Duration::from_secs(5000),
            stable: Duration::from_secs(1),
        },
        ..ManagerOptions::default()
    });
    manager.start(servers(&["s"])).await;
    world.kill("s");
    until(&manager, &[]).await;
    let before = Instant::now();
    manager.close().await;
    assert!(before.elapsed() < Duration::from_secs(1));
    assert_eq!(world.times("s").len(), 1);
}

#[tokio::test(start_paused = true)]
async fn close_unblocks_a_reconnect_that_hangs() {
    let world = World::new();
    world.fate("s", [Fate::Up, Fate::Hangs]);
    let manager = world.manager(ManagerOptions::default());
    manager.start(servers(&["s"])).await;
    world.kill("s");
    soon_in_paused_time(async {
        while world.times("s").len() < 2 {
            tokio::time::sleep_until(Instant::now() + Duration::from_millis(10)).await;
        }
    })
    .await;
    let before = Instant::now();
    manager.close().await;
    assert!(before.elapsed() < Duration::from_secs(1));
}

/// `close` at every moment of a reconnect: whatever it meets, nothing is connected afterwards and nothing stays open.
#[tokio::test(start_paused = true)]
async fn close_at_any_moment_of_a_reconnect_leaves_nothing_connected() {
    for moment in 0..120_u64 {
        let world = World::new();
        let manager = world.manager(ManagerOptions::default());
        manager.start(servers(&["s"])).await;
        world.kill("s");
        // First by turns of the runtime, then by time across the wait.
        for _ in 0..moment.min(60) {
            tokio::task::yield_now().await;
        }
        if moment > 60 {
            tokio::time::advance(Duration::from_millis((moment - 60) * 9)).await;
        }
        manager.close().await;
        assert!(manager.clients().is_empty(), "{moment}");
        assert!(manager.inner.supervisors.is_empty(), "{moment}");
        let dialled = world.times("s").len();
        soon(async {
            while world.still_open("s") {
                tokio::task::yield_now().await;
            }
        })
        .await;
        tokio::time::advance(Duration::from_mins(10)).await;
        tokio::task::yield_now().await;
        assert_eq!(world.times("s").len(), dialled, "{moment}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_dropped_manager_stops_its_supervision() {
    let world = World::new();
    let manager = world.manager(ManagerOptions::default());
    manager.start(servers(&["s"])).await;
    let inner = Arc::downgrade(&manager.inner);
    drop(manager);
    soon(async {
        while inner.upgrade().is_some() || world.still_open("s") {
            tokio::task::yield_now().await;
        }
    })
    .await;
}

#[tokio::test]
async fn connect_all_dials_every_server_whatever_the_cache_knows() {
    let dir = tempfile::tempdir().unwrap();
    for round in 1..=2 {
        let world = World::new();
        let manager = world.manager(cached(&dir));
        manager.start(servers(&["a", "b"])).await;
        assert_eq!(world.dialled(), ["a", "b"], "{round}");
        manager.close().await;
    }
}

#[tokio::test]
async fn open_trusts_the_cache_and_connects_on_first_use() {
    let dir = tempfile::tempdir().unwrap();
    let world = World::new();
    let manager = world.manager(cached(&dir));
    manager.open_with(servers(&["a", "b"])).await;
    assert_eq!(world.dialled(), ["a", "b"], "nothing is known yet");
    manager.close().await;

    let world = World::new();
    let manager = world.manager(cached(&dir));
    let mut all = servers(&["a", "b", "new"]);
    all.insert("b".to_owned(), ServerConfig::stdio("b", ["edited"]));
    manager.open_with(all).await;
    assert_eq!(world.dialled(), ["b", "new"], "what changed is not trusted");
    let status = manager.status();
    assert_eq!(
        (status[0].name.as_str(), &status[0].state),
        ("a", &State::Cached)
    );
    assert_eq!(status[0].tools[0].name, "a_tool");
    assert_eq!(names(&manager), ["b", "new"]);

    // Many first uses at once are one connection.
    let uses = futures::future::join_all((0..10).map(|_| manager.client("a"))).await;
    let first = uses[0].as_ref().unwrap();
    assert!(
        uses.iter()
            .all(|client| Arc::ptr_eq(client.as_ref().unwrap(), first))
    );
    assert_eq!(world.times("a").len(), 1);
    // And it is supervised from then on.
    world.kill("a");
    until(&manager, &["b", "new"]).await;
    until(&manager, &["a", "b", "new"]).await;
}

#[tokio::test]
async fn a_first_use_that_fails_can_be_tried_again_and_keeps_the_known_tools() {
    let dir = tempfile::tempdir().unwrap();
    let world = World::new();
    let manager = world.manager(cached(&dir));
    manager.open_with(servers(&["a"])).await;
    manager.close().await;
    let world = World::new();
    world.fate("a", [Fate::Down, Fate::Up]);
    let manager = world.manager(cached(&dir));
    manager.open_with(servers(&["a"])).await;
    assert!(manager.client("a").await.is_err());
    assert_eq!(manager.status()[0].tools.len(), 1);
    assert!(manager.client("a").await.is_ok());
}

/// Seeded interleavings: a first use and the end of everything, from other threads.
#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn close_at_the_same_time_as_a_first_use_leaves_nothing_connected() {
    let dir = tempfile::tempdir().unwrap();
    let before = World::new().manager(cached(&dir));
    before.start(servers(&["a"])).await;
    before.close().await;
    for seed in 0..500_u32 {
        let world = World::new();
        let manager = Arc::new(world.manager(cached(&dir)));
        manager.open_with(servers(&["a"])).await;
        let using = tokio::spawn({
            let manager = Arc::clone(&manager);
            async move { manager.client("a").await }
        });
        for _ in 0..seed % 64 {
            tokio::task::yield_now().await;
        }
        manager.close().await;
        let client = soon(using).await.unwrap();
        assert!(manager.clients().is_empty(), "{seed}");
        if let Ok(client) = client {
            soon(client.done()).await;
        }
        let left = || world.servers().get("a").is_some_and(Server::still_open);
        soon(async {
            while left() {
                tokio::task::yield_now().await;
            }
        })
        .await;
    }
}

#[tokio::test]
async fn a_reconnect_writes_the_cache_again() {
    let dir = tempfile::tempdir().unwrap();
    let world = World::new();
    let options = cached(&dir);
    let cache = options.client.cache.clone().unwrap();
    let manager = world.manager(ManagerOptions {
        backoff: BackoffPolicy {
            first: Duration::from_millis(1),
            ..BackoffPolicy::default()
        },
        ..options
    });
    manager.start(servers(&["a"])).await;
    std::fs::remove_file(cache.path()).unwrap();
    world.kill("a");
    until(&manager, &[]).await;
    until(&manager, &["a"]).await;
    assert_eq!(cache.entries()["a"].tools[0].name, "a_tool");
}

#[tokio::test(start_paused = true)]
async fn servers_that_are_told_again_are_no_news_and_what_lists_other_things_is() {
    let world = World::new();
    let manager = world.manager(ManagerOptions::default());
    let set = |refused: &str| {
        let named = servers(&["alpha", "charlie"]).into_iter();
        let mut all: BTreeMap<_, _> = named.map(|(name, config)| (name, Ok(config))).collect();
        all.insert("bravo".to_owned(), Err(refused.to_owned()));
        all
    };
    manager.replace(set("no Secret"));
    until(&manager, &["alpha", "charlie"]).await;
    let mut updates = manager.updates();
    let mut is_news = |servers| {
        updates.borrow_and_update();
        manager.replace(servers);
        updates.has_changed().unwrap()
    };
    assert!(!is_news(set("no Secret")));
    assert!(is_news(set("no key")));
    assert!(!is_news(set("no key")));
    let mut changed = set("no key");
    let alpha = changed.get_mut("alpha").unwrap().as_mut().unwrap();
    // The same tools, for all that is known.
    alpha.timeout = Some(Duration::from_secs(1));
    assert!(!is_news(changed.clone()));
    let alpha = changed.get_mut("alpha").unwrap().as_mut().unwrap();
    alpha.allowed_tools = vec!["none".to_owned()];
    assert!(is_news(changed.clone()));
    changed.remove("charlie");
    assert!(is_news(changed));
    manager.close().await;
}
