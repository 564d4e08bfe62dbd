//! What callers of a hub see while its servers are being started, in paused time.

use std::time::Duration;

use ramen_mcp::{Era, RequestId};
use serde_json::{Value, json};
use tokio::sync::mpsc;

use super::*;
use crate::manager::ManagerOptions;
use crate::manager::world::support::soon;
use crate::manager::world::{Fate, World, cached, servers, until};

fn hub(world: &Arc<World>, options: ManagerOptions, names: &[&str], naming: Naming) -> Hub {
    Hub::start(world.manager(options), servers(names), naming)
}

async fn ask(hub: &Hub, method: &str, params: Value) -> Value {
    let asked = Asked {
        id: RequestId::number(1),
        era: Era::Modern,
        method: method.to_owned(),
        params: params.to_string(),
        progress: None,
        line: None,
    };
    let (out, _reports) = mpsc::channel(1);
    serde_json::from_slice(&hub.answer(&asked, &out).await).unwrap()
}

async fn list(hub: &Hub, member: &str) -> Vec<String> {
    let answer = ask(hub, &format!("{member}/list"), json!({})).await;
    let items = answer["result"][member].as_array().unwrap();
    items
        .iter()
        .map(|item| item["name"].as_str().unwrap().to_owned())
        .collect()
}

async fn call(hub: &Hub, tool: &str) -> Value {
    ask(hub, "tools/call", json!({ "name": tool })).await
}

fn stage(hub: &Hub) -> Stage {
    *hub.inner.stage.borrow()
}

#[tokio::test(start_paused = true)]
async fn a_list_does_not_wait_for_a_server_that_hangs_and_the_rest_is_told_when_it_comes() {
    let world = World::new();
    world.fate("slow", [Fate::Waits]);
    let hub = hub(
        &world,
        ManagerOptions::default(),
        &["good", "slow"],
        Naming::Prefixed,
    );
    assert_eq!(list(&hub, "tools").await, ["good_good_tool"]);
    let known = call(&hub, "good_good_tool").await;
    assert_eq!(known["result"]["content"][0]["text"], "ok");
    assert_eq!(list(&hub, "prompts").await, ["good_ask"]);
    assert_eq!(stage(&hub), Stage::Starting { known: false });
    let mut updates = hub.manager().updates();
    updates.mark_unchanged();
    world.go.notify_one();
    soon(updates.changed()).await.unwrap();
    until(hub.manager(), &["good", "slow"]).await;
    assert_eq!(
        list(&hub, "tools").await,
        ["good_good_tool", "slow_slow_tool"]
    );
}

#[tokio::test(start_paused = true)]
async fn a_list_waits_longer_while_there_is_nothing_at_all() {
    let world = World::new();
    world.fate("only", [Fate::Waits]);
    let hub = hub(&world, ManagerOptions::default(), &["only"], Naming::Plain);
    let listing = tokio::spawn({
        let hub = hub.clone();
        async move { list(&hub, "tools").await }
    });
    // Longer than a list waits for servers beside others.
    tokio::time::sleep(Duration::from_secs(9)).await;
    assert!(!listing.is_finished());
    world.go.notify_one();
    assert_eq!(soon(listing).await.unwrap(), ["only_tool"]);
}

#[tokio::test(start_paused = true)]
async fn a_list_of_nothing_is_given_in_the_end() {
    let world = World::new();
    world.fate("only", [Fate::Hangs]);
    let hub = hub(&world, ManagerOptions::default(), &["only"], Naming::Plain);
    assert!(list(&hub, "tools").await.is_empty());
}

#[tokio::test(start_paused = true)]
async fn what_the_cache_knows_is_listed_at_once_beside_a_server_that_hangs() {
    let dir = tempfile::tempdir().unwrap();
    let before = World::new().manager(cached(&dir));
    before.start(servers(&["good"])).await;
    before.close().await;

    let world = World::new();
    world.fate("slow", [Fate::Hangs]);
    let hub = hub(&world, cached(&dir), &["good", "slow"], Naming::Prefixed);
    let began = Instant::now();
    assert_eq!(list(&hub, "tools").await, ["good_good_tool"]);
    // Time stands still unless something is waited for.
    assert_eq!(Instant::now(), began);
    assert!(!world.dialled().contains(&"good".to_owned()));
}

#[tokio::test(start_paused = true)]
async fn a_call_of_something_that_is_not_listed_yet_waits_for_its_server() {
    let world = World::new();
    world.fate("slow", [Fate::Waits]);
    let hub = hub(
        &world,
        ManagerOptions::default(),
        &["good", "slow"],
        Naming::Prefixed,
    );
    let calling = tokio::spawn({
        let hub = hub.clone();
        async move { call(&hub, "slow_slow_tool").await }
    });
    until(hub.manager(), &["good"]).await;
    assert!(!calling.is_finished());
    world.go.notify_one();
    let answer = soon(calling).await.unwrap();
    assert_eq!(answer["result"]["content"][0]["text"], "ok");
}

/// Three that hang, each at the head of a bunch that is asked at once.
#[tokio::test(start_paused = true)]
async fn servers_that_hang_hold_up_a_list_together_and_not_one_after_the_other() {
    let dir = tempfile::tempdir().unwrap();
    let all: Vec<_> = (0..24).map(|n| format!("s{n:02}")).collect();
    let all: Vec<_> = all.iter().map(String::as_str).collect();
    let before = World::new().manager(cached(&dir));
    before.start(servers(&all)).await;
    before.close().await;

    let world = World::new();
    for name in ["s00", "s08", "s16"] {
        world.fate(name, [Fate::Hangs]);
    }
    let hub = hub(&world, cached(&dir), &all, Naming::Prefixed);
    let began = Instant::now();
    let listed = list(&hub, "prompts").await;
    assert!(began.elapsed() < Duration::from_secs(15));
    assert_eq!(listed.len(), 21);
    assert!(listed.is_sorted(), "{listed:?}");
}

#[tokio::test(start_paused = true)]
async fn a_known_server_that_hangs_when_it_is_used_is_left_out_of_a_list_and_connected_for_the_next()
 {
    let dir = tempfile::tempdir().unwrap();
    let before = World::new().manager(cached(&dir));
    before.start(servers(&["good", "slow"])).await;
    before.close().await;

    let world = World::new();
    world.fate("slow", [Fate::Waits]);
    let hub = hub(&world, cached(&dir), &["good", "slow"], Naming::Prefixed);
    assert_eq!(list(&hub, "prompts").await, ["good_ask"]);
    world.go.notify_one();
    until(hub.manager(), &["good", "slow"]).await;
    assert_eq!(list(&hub, "prompts").await, ["good_ask", "slow_ask"]);
}
