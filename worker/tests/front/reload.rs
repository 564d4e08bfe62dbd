//! Generations.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use ramen_group::{DesiredState, Reason};
use ramen_proto::REASON_HEADER;
use ramen_proto::v1::{self as proto, ReloadRequest, StatusRequest};
use ramen_worker::desired::Follower;
use serde_json::json;
use tonic::Code;

use crate::harness::{Group, Running, eventually, with_admin_key};
use crate::{group, setup};

fn request(desired: &DesiredState) -> tonic::Request<ReloadRequest> {
    let layer = |layer: &ramen_group::LayerRef| proto::Layer {
        key: layer.key.clone(),
        digest: layer.digest.clone(),
        size: layer.size,
    };
    with_admin_key(ReloadRequest {
        desired: Some(proto::DesiredState {
            revision: desired.revision.clone(),
            code: Some(layer(&desired.code)),
            deps: desired.deps.as_ref().map(layer),
            python: desired.python.clone(),
            exclude: desired.exclude.clone(),
        }),
    })
}

async fn status(running: &Running) -> proto::StatusResponse {
    running
        .admin()
        .await
        .status(with_admin_key(StatusRequest {}))
        .await
        .unwrap()
        .into_inner()
}

#[tokio::test]
async fn admin_reload_swaps_and_the_same_again_changes_nothing() {
    let running = setup().serve(&group(&["echo"])).await;
    let two = group(&["echo", "seen"])
        .publish(&running.store(), "two")
        .await;
    let mut admin = running.admin().await;
    let loaded = admin.reload(request(&two)).await.unwrap().into_inner();
    assert_eq!(
        (
            loaded.generation,
            loaded.tools,
            loaded.resources,
            loaded.prompts
        ),
        (2, 2, 0, 0)
    );
    let again = admin.reload(request(&two)).await.unwrap().into_inner();
    assert_eq!(again.generation, 2);
    let status = status(&running).await;
    assert_eq!((status.revision.as_str(), status.generation), ("two", 2));
}

#[tokio::test]
async fn another_revision_of_the_same_layers_keeps_the_hosts_and_their_calls() {
    let setup = setup();
    let file = setup.dir().join("desired.json");
    let desired = file.clone();
    let running = setup
        .with(|args| args.desired = Some(desired))
        .start()
        .await;
    let tools = group(&["wait", "release"]);
    let one = running.load(&tools, "one").await;
    let client = running.client().await;
    let hosts = async || {
        let mut hosts = status(&running).await.hosts;
        hosts.sort_by_key(|host| host.pid);
        let of = |host: proto::HostStatus| (host.pid, host.generation, host.restarts);
        hosts.into_iter().map(of).collect::<Vec<_>>()
    };
    let before = hosts().await;
    let waiting = tokio::spawn({
        let client = client.clone();
        async move { client.text("wait", json!({})).await }
    });
    eventually("it waits", async || {
        (running.metric("ramen_in_flight ").await == 1).then_some(())
    })
    .await;

    // By the operator, and by the file.
    let two = DesiredState {
        revision: "two".to_owned(),
        ..one
    };
    let mut admin = running.admin().await;
    let loaded = admin.reload(request(&two)).await.unwrap().into_inner();
    assert_eq!((loaded.generation, loaded.tools), (1, 2));
    assert_eq!(status(&running).await.revision, "two");
    let three = DesiredState {
        revision: "three".to_owned(),
        ..two
    };
    let new = file.with_extension("new");
    std::fs::write(&new, serde_json::to_vec(&three).unwrap()).unwrap();
    std::fs::rename(&new, &file).unwrap();
    eventually("the third", async || {
        (status(&running).await.revision == "three").then_some(())
    })
    .await;
    assert_eq!(hosts().await, before);
    let loads = "ramen_reloads_total{outcome=\"ok\"}";
    assert_eq!(running.metric(loads).await, 1);
    let hello = json!({
        "protocolVersion": "2025-11-25", "capabilities": {},
        "clientInfo": {"name": "test", "version": "1"},
    });
    let told = client.rpc("initialize", hello).await;
    assert_eq!(told["result"]["serverInfo"]["version"], "three", "{told}");
    assert_eq!(client.text("release", json!({})).await, "ok");
    assert_eq!(waiting.await.unwrap(), "released");

    // What has other layers is loaded as ever, and nothing is left of all three.
    running.load(&group(&["echo"]), "four").await;
    let old = format!("/proc/{}", before[0].0);
    eventually("the hosts are gone", async || {
        (!std::path::Path::new(&old).exists()).then_some(())
    })
    .await;
    eventually("one home folder is left", async || {
        let folders = folders(&running.store().join("unpacked"));
        let homes = folders.iter().filter(|name| !name.starts_with("sha256-"));
        (homes.count() == 1).then_some(())
    })
    .await;
}

#[tokio::test]
async fn a_revision_that_does_not_load_never_replaces_one_that_serves() {
    let running = setup().serve(&group(&["echo"])).await;
    let client = running.client().await;
    let faults: [(&str, Group, &str); 3] = [
        (
            "import",
            group(&["echo", "refuses_to_load"]),
            "ImportError: on purpose",
        ),
        (
            "death",
            group(&["echo", "dies_at_load"]),
            "tools/dies_at_load",
        ),
        (
            "scan",
            group(&["echo"]).file("tools/odd/odd.json", "{"),
            "tools/odd",
        ),
    ];
    for (revision, group, text) in faults {
        let desired = group.publish(&running.store(), revision).await;
        let refused = running
            .admin()
            .await
            .reload(request(&desired))
            .await
            .unwrap_err();
        assert_eq!(refused.code(), Code::FailedPrecondition, "{revision}");
        assert!(
            refused.message().contains(text),
            "{revision}: {}",
            refused.message()
        );
        let status = status(&running).await;
        assert_eq!(
            (status.revision.as_str(), status.health.as_str()),
            ("one", "SERVING")
        );
        assert_eq!(status.desired_revision, revision);
        assert!(status.last_error.contains(text), "{}", status.last_error);
        assert_eq!(client.text("echo", json!({})).await, "{}");
    }
    assert_eq!(
        running
            .metric("ramen_reloads_total{outcome=\"refused\"}")
            .await,
        3
    );
}

#[tokio::test]
async fn loads_refused_at_the_same_time_each_get_their_own_reason() {
    let running = setup().serve(&group(&["echo"])).await;
    let good = group(&["echo"]).publish(&running.store(), "two").await;
    let admin = running.admin().await;
    let loads = (0..16).map(|n| {
        let (mut admin, mut desired) = (admin.clone(), good.clone());
        desired.python = format!("9.{n}");
        async move {
            let refused = admin.reload(request(&desired)).await.unwrap_err();
            (desired.python, refused.message().to_owned())
        }
    });
    for (python, message) in futures::future::join_all(loads).await {
        let own = format!("host program for Python {python}:");
        assert!(message.contains(&own), "{python}: {message}");
    }
}

#[tokio::test]
async fn packages_that_are_excluded_may_be_broken() {
    let running = setup().start().await;
    let group = group(&["echo", "refuses_to_load"]).file("tools/odd/odd.json", "{");
    let mut desired = group.publish(&running.store(), "partial").await;
    desired.exclude = vec!["tools/refuses_to_load".into(), "tools/odd".into()];
    let loaded = running
        .admin()
        .await
        .reload(request(&desired))
        .await
        .unwrap()
        .into_inner();
    assert_eq!(loaded.tools, 1);
}

fn reason_of(refused: &tonic::Status) -> &str {
    let named = refused.metadata().get(REASON_HEADER).unwrap();
    named.to_str().unwrap()
}

#[tokio::test]
async fn a_missing_or_damaged_layer_is_told_and_heals() {
    let running = setup().serve(&group(&["echo"])).await;
    let two = group(&["seen"]).publish(&running.store(), "two").await;
    let mut wrong = two.clone();
    wrong.code.digest = format!("sha256:{}", "0".repeat(64));
    let refused = running
        .admin()
        .await
        .reload(request(&wrong))
        .await
        .unwrap_err();
    assert_eq!(refused.code(), Code::FailedPrecondition);
    assert!(
        refused.message().contains("code layer"),
        "{}",
        refused.message()
    );
    assert!(running.admin().await.reload(request(&two)).await.is_ok());

    // Overwritten in the store by the same number of other bytes.
    let three = group(&["echo", "seen"]);
    let desired = three.publish(&running.store(), "three").await;
    let digest = desired.code.digest.strip_prefix("sha256:").unwrap();
    let blob = running.store().join(format!("blobs/{digest}.tar.zst"));
    let mut bytes = std::fs::read(&blob).unwrap();
    let middle = bytes.len() / 2;
    bytes[middle] ^= 0xff;
    std::fs::write(&blob, bytes).unwrap();
    let mut admin = running.admin().await;
    let refused = admin.reload(request(&desired)).await.unwrap_err();
    assert_eq!(refused.code(), Code::FailedPrecondition);
    assert_eq!(reason_of(&refused), Reason::LayerCorrupt.as_str());
    let status = status(&running).await;
    assert_eq!(
        (status.revision.as_str(), status.health.as_str()),
        ("two", "SERVING")
    );
    // It was taken out of the store, and whoever keeps that makes it again.
    let refused = admin.reload(request(&desired)).await.unwrap_err();
    assert_eq!(reason_of(&refused), Reason::LayerMissing.as_str());
    let again = three.publish(&running.store(), "three").await;
    assert_eq!(again.code, desired.code);
    assert!(admin.reload(request(&desired)).await.is_ok());
}

#[tokio::test]
async fn a_cache_that_cannot_be_used_is_no_fault_of_the_revision() {
    let setup = setup();
    let cache = setup.dir().join("cache");
    std::fs::write(&cache, "a file where a folder belongs").unwrap();
    let setup = setup.with(|args| args.cache_dir = Some(cache.clone()));
    let running = setup.start().await;
    let desired = group(&["echo"]).publish(&running.store(), "one").await;
    let mut admin = running.admin().await;
    let refused = admin.reload(request(&desired)).await.unwrap_err();
    assert_eq!(reason_of(&refused), Reason::Internal.as_str());
    assert!(refused.message().contains("cache"), "{}", refused.message());
    std::fs::remove_file(&cache).unwrap();
    assert!(admin.reload(request(&desired)).await.is_ok());
}

#[tokio::test]
async fn a_python_without_a_host_program_is_refused_by_name() {
    let running = setup().start().await;
    let mut desired = group(&["echo"]).publish(&running.store(), "old").await;
    desired.python = "2.7".into();
    let refused = running
        .admin()
        .await
        .reload(request(&desired))
        .await
        .unwrap_err();
    assert!(
        refused.message().contains("Python 2.7"),
        "{}",
        refused.message()
    );
}

#[tokio::test]
async fn calls_of_the_old_generation_end_in_it_and_its_hosts_go() {
    let running = setup().serve(&group(&["wait", "release", "pid"])).await;
    let client = running.client().await;
    let old = client.text("pid", json!({})).await;
    let waiting = tokio::spawn({
        let client = client.clone();
        async move { client.try_tool("wait", json!({})).await }
    });
    eventually("it waits", async || {
        (running.metric("ramen_in_flight ").await == 1).then_some(())
    })
    .await;
    running.load(&group(&["pid"]), "two").await;
    let new = client.text("pid", json!({})).await;
    assert_ne!(old, new);
    assert!(
        std::path::Path::new(&format!("/proc/{old}")).exists(),
        "it still has a call"
    );
    waiting.abort();
    eventually("the old host is gone", async || {
        (!std::path::Path::new(&format!("/proc/{old}")).exists()).then_some(())
    })
    .await;
}

#[tokio::test]
async fn no_call_fails_over_many_reloads() {
    let setup = setup().with(|args| args.hosts = Some("2".into()));
    let running = setup.serve(&group(&["echo"])).await;
    let other = group(&["echo", "seen"]);
    let stop = Arc::new(AtomicBool::new(false));
    let done = Arc::new(AtomicUsize::new(0));
    let client = running.client().await;
    let callers: Vec<_> = (0..4)
        .map(|_| {
            let (client, stop, done) = (client.clone(), Arc::clone(&stop), Arc::clone(&done));
            tokio::spawn(async move {
                while !stop.load(Ordering::Relaxed) {
                    assert_eq!(client.text("echo", json!({})).await, "{}");
                    done.fetch_add(1, Ordering::Relaxed);
                }
            })
        })
        .collect();
    let one = group(&["echo"]);
    for round in 0..10 {
        let group = if round % 2 == 0 { &other } else { &one };
        running.load(group, &format!("r{round}")).await;
        let before = done.load(Ordering::Relaxed);
        eventually("calls go on", async || {
            (done.load(Ordering::Relaxed) > before + 4).then_some(())
        })
        .await;
    }
    stop.store(true, Ordering::Relaxed);
    for caller in callers {
        caller.await.unwrap();
    }
    // Nothing is left of nine generations.
    eventually("one home folder is left", async || {
        let folders = folders(&running.store().join("unpacked"));
        let homes = folders.iter().filter(|name| !name.starts_with("sha256-"));
        (homes.count() == 1).then_some(())
    })
    .await;
}

#[tokio::test]
async fn the_desired_state_file_is_followed() {
    let setup = setup();
    let file = setup.dir().join("desired.json");
    let desired = file.clone();
    let running = setup
        .with(|args| args.desired = Some(desired))
        .start()
        .await;
    let client = running.client().await;
    let write = |state: &str| {
        let temporary = file.with_extension("new");
        std::fs::write(&temporary, state).unwrap();
        std::fs::rename(&temporary, &file).unwrap();
    };
    let one = group(&["echo"]).publish(&running.store(), "one").await;
    write(&serde_json::to_string(&one).unwrap());
    eventually("the first", async || {
        client.try_tool("echo", json!({})).await.ok()
    })
    .await;
    write("not json");
    let two = group(&["seen"]).publish(&running.store(), "two").await;
    write(&serde_json::to_string(&two).unwrap());
    eventually("the second", async || {
        let answer = client.try_tool("seen", json!({})).await.ok()?;
        answer.get("result").map(|_| ())
    })
    .await;
    assert_eq!(status(&running).await.revision, "two");
}

#[tokio::test]
async fn a_group_without_code_needs_no_host() {
    let prompt = json!({"type": "prompt", "name": "hello", "description": "d", "skill": "SKILL.md",
        "input": {"who": {"type": "string", "description": "w"}}});
    let group = Group::new()
        .file("prompts/hello/hello.json", prompt.to_string())
        .file("prompts/hello/SKILL.md", "Hello {{who}}\n");
    let running = setup().serve(&group).await;
    let client = running.client().await;
    let answer = client
        .rpc(
            "prompts/get",
            json!({"name": "hello", "arguments": {"who": "you"}}),
        )
        .await;
    assert!(
        answer["result"]["messages"][0]["content"]["text"]
            .as_str()
            .unwrap()
            .starts_with("Hello you")
    );
    assert_eq!(status(&running).await.health, "SERVING");
}

#[tokio::test]
async fn unpacked_layers_of_old_revisions_go_and_the_way_back_stays() {
    let running = setup().serve(&group(&["echo"])).await;
    running.load(&group(&["echo", "seen"]), "two").await;
    let (three, four) = (group(&["echo", "pid"]), group(&["seen"]));
    let mut wanted = Vec::new();
    for (revision, group) in [("three", &three), ("four", &four)] {
        let desired = running.load(group, revision).await;
        wanted.push(desired.code.digest.replace(':', "-"));
    }
    wanted.sort();
    // A host that is just being started holds each open file for a moment, also that of a layer
    // which could go: then it goes with the next swap.
    let mut round = 0;
    eventually(
        "only the layers of the last two revisions are there",
        async || {
            round += 1;
            let next = if round % 2 == 0 { &four } else { &three };
            running.load(next, &format!("r{round}")).await;
            let mut found = folders(&running.store().join("unpacked"));
            found.retain(|name| name.starts_with("sha256-"));
            (found == wanted).then_some(())
        },
    )
    .await;
}

/// The names of the folders in `dir`, in order.
fn folders(dir: &std::path::Path) -> Vec<String> {
    let entries = std::fs::read_dir(dir).unwrap().map(|entry| entry.unwrap());
    let mut names: Vec<String> = entries
        .filter(|entry| entry.path().is_dir())
        .map(|entry| entry.file_name().into_string().unwrap())
        .collect();
    names.sort();
    names
}

#[tokio::test]
async fn what_a_reload_took_the_place_of_does_not_come_back_by_the_file() {
    let setup = setup();
    let (file, pipe) = (setup.dir().join("desired.json"), setup.dir().join("pipe"));
    rustix::fs::mkfifoat(rustix::fs::CWD, &pipe, rustix::fs::Mode::RWXU).unwrap();
    let running = setup
        .secret("RAMEN_SECRET_G__PIPE", pipe.to_str().unwrap())
        .with(|args| args.desired = Some(file.clone()))
        .serve(&group(&["echo"]))
        .await;
    let write = |desired: &DesiredState| {
        let new = file.with_extension("new");
        std::fs::write(&new, serde_json::to_vec(desired).unwrap()).unwrap();
        std::fs::rename(new, &file).unwrap();
    };
    let one = group(&["echo"]).publish(&running.store(), "one").await;
    let two = group(&["echo", "waits_at_load"])
        .publish(&running.store(), "two")
        .await;
    let three = group(&["echo", "seen"])
        .publish(&running.store(), "three")
        .await;
    let mut admin = running.admin().await;
    let asked = request(&two);
    let reload = tokio::spawn(async move { admin.reload(asked).await });
    // Opens when the host of revision two reads: the load waits until it is dropped.
    let hold = tokio::task::spawn_blocking(move || std::fs::File::create(pipe))
        .await
        .unwrap()
        .unwrap();
    write(&one);
    let manager = Arc::clone(running.worker().manager());
    let mut follower = Follower::new(manager, file.clone());
    let (loaded, ()) = tokio::join!(
        async {
            drop(hold);
            reload.await.unwrap()
        },
        follower.look()
    );
    assert_eq!(loaded.unwrap().into_inner().generation, 2);
    // Neither while it loaded nor after it, as the file still names what was before.
    Follower::new(Arc::clone(running.worker().manager()), file.clone())
        .look()
        .await;
    let now = status(&running).await;
    assert_eq!((now.revision.as_str(), now.generation), ("two", 2));
    // News in the file counts, and the way back too once it has named what serves.
    write(&three);
    follower.look().await;
    assert_eq!(status(&running).await.revision, "three");
    write(&one);
    follower.look().await;
    assert_eq!(status(&running).await.revision, "one");
}
