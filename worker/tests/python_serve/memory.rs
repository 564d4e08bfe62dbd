//! Memory: a tool that takes it without end costs its own host. The process that was started lives,
//! and so do the calls in the other host.

use serde_json::json;
use tonic::Code;

use crate::harness::eventually;
use crate::hosts_lost::replaced;
use crate::parallel::{beside, waiting};
use crate::served::{Setup, each_python, runs};

/// Room for two hosts and little more.
const BUDGET: &str = "300";
/// What a call is told that was in a host which took more.
const ENDED: &str = "together may hold 300 MiB";

#[tokio::test]
async fn a_tool_that_allocates_without_end_loses_its_host_and_calls_in_others_are_answered() {
    let group = waiting().tool(
        "grows",
        &json!({}),
        "def run():\n    kept = []\n    while True: kept.append(b'x' * 1_000_000 + b'y')",
    );
    each_python(async |python| {
        let setup = Setup::new(python).set("RAMEN_HOSTS_MEMORY_MIB", BUDGET);
        let mut served = setup.serve(&group).await;
        let client = served.client().await;
        for times in 1..=3 {
            let lost = beside(&client, client.try_tool("grows", json!({}))).await;
            let lost = lost.unwrap_err();
            assert_eq!(lost.code(), Code::Unavailable, "{lost}");
            assert!(lost.message().contains(ENDED), "{lost}");
            replaced(&served, "growing", times).await;
        }
        let restarts = "ramen_host_restarts_total{cause=\"memory\"}";
        assert_eq!(served.metric(restarts).await, 3);
        // It costs others their calls no more: for a while it is not called at all.
        let paused = client.try_tool("grows", json!({})).await.unwrap_err();
        assert!(paused.message().contains("too often"), "{paused}");
        assert_eq!(client.text("fast", json!({})).await, "fast");
        served.assert_alive();
    })
    .await;
}

/// A tool that waits for a child, which tells its id and then takes memory without end.
fn forks(first: &str) -> String {
    format!(
        "import os\ndef run(path):\n    child = os.fork()\n    if child:\n        os.waitpid(child, 0)\n        \
         return 'outlived it'\n    {first}\n    with open(path, 'w') as file: file.write(str(os.getpid()))\n    \
         kept = []\n    while True: kept.append(b'x' * 1_000_000 + b'y')"
    )
}

#[tokio::test]
async fn what_a_child_of_a_tool_takes_counts_for_its_host_and_both_are_ended() {
    let path = json!({"path": {"type": "string"}});
    let group = waiting().tool("forks", &path, &forks("pass")).tool(
        "leaves_the_session",
        &path,
        &forks("os.setsid()"),
    );
    each_python(async |python| {
        let setup = Setup::new(python).set("RAMEN_HOSTS_MEMORY_MIB", BUDGET);
        let mut served = setup.serve(&group).await;
        let client = served.client().await;
        for (times, name) in (1..).zip(["forks", "leaves_the_session"]) {
            let file = served.dir().join(name);
            let call = client.try_tool(name, json!({ "path": file.to_str().unwrap() }));
            let lost = beside(&client, call).await.unwrap_err();
            assert!(lost.message().contains(ENDED), "{name}: {lost}");
            let child: u32 = std::fs::read_to_string(&file).unwrap().parse().unwrap();
            eventually(&format!("the child of {name} is gone"), async || {
                (!runs(child)).then_some(())
            })
            .await;
            replaced(&served, name, times).await;
        }
        served.assert_alive();
    })
    .await;
}

#[tokio::test]
async fn what_asks_for_far_too_much_at_once_is_an_error_of_that_call_alone() {
    let group = waiting()
        .tool("fills", &json!({}), "def run(): return len([0] * 10 ** 11)")
        .tool(
            "sets_aside",
            &json!({}),
            "def run(): return len(bytearray(32 << 30))",
        );
    each_python(async |python| {
        let setup = Setup::new(python).set("RAMEN_HOSTS_MEMORY_MIB", BUDGET);
        let mut served = setup.serve(&group).await;
        let client = served.client().await;
        let hosts = served.children();
        for name in ["fills", "sets_aside"] {
            let error = client.error(name, json!({})).await;
            assert!(error.starts_with("MemoryError"), "{name}: {error}");
        }
        assert_eq!(client.text("fast", json!({})).await, "fast");
        assert_eq!(served.children(), hosts, "the same processes");
        served.assert_alive();
    })
    .await;
}

#[tokio::test]
async fn without_a_word_there_is_a_bound_and_the_kernel_would_end_a_host_before_the_front() {
    each_python(async |python| {
        let served = Setup::new(python).serve(&waiting()).await;
        let starting = served.log.message("starting").await;
        assert!(
            starting["hosts_memory_mib"].as_u64() > Some(0),
            "{starting}"
        );
        let score = |pid: u32| {
            let text = std::fs::read_to_string(format!("/proc/{pid}/oom_score_adj"));
            text.unwrap().trim().parse::<i32>().unwrap()
        };
        let front = score(served.pid());
        let hosts = served.children();
        assert_eq!(hosts.len(), 2);
        for host in hosts {
            assert!(score(host) > front || front == 1000, "host {host}");
        }
    })
    .await;
}
