//! RUN04, RUN12 and the list of the issue: tools that end, hang or fill their host. The call gets a
//! clear error, calls in the other host do not notice, the host is replaced, and the process that
//! was started never dies.

use std::time::Duration;

use serde_json::json;
use tonic::Code;
use tonic_health::pb::health_check_response::ServingStatus;

use crate::harness::{LONG, Session, call, eventually, text_of};
use crate::parallel::{Gate, begin, hold, waiting};
use crate::served::{Served, Setup, each_python};

/// Waits until so many hosts were replaced, whatever for, and two are up.
pub(crate) async fn replaced(served: &Served, after: &str, times: u64) {
    let settled = async || {
        let restarts = served.metric("ramen_host_restarts_total").await;
        let ready = served.metric("ramen_hosts_ready").await;
        (restarts >= times && ready == 2).then_some(restarts)
    };
    let restarts = eventually(&format!("the host is replaced after {after}"), settled).await;
    assert_eq!(restarts, times, "{after}:\n{}", served.log.text());
}

/// `(tool, source)` of tools that take their process with them.
const DEADLY: &[(&str, &str)] = &[
    ("run04_exit", "import os\ndef run(): os._exit(9)"),
    (
        "run04_segfault",
        "import ctypes\ndef run(): ctypes.string_at(0)",
    ),
    ("kills", "import os\ndef run(): os.kill(os.getpid(), 9)"),
    ("aborts", "import os\ndef run(): os.abort()"),
    (
        "closes_fds",
        "import os\ndef run():\n    os.closerange(0, 4096)\n    return 'done'",
    ),
    (
        "closes_fds_and_stays",
        "import os, threading\ndef run():\n    os.closerange(0, 4096)\n    threading.Event().wait()",
    ),
    (
        "writes_to_the_channel",
        "import os, stat\n\
         def run():\n    for fd in map(int, os.listdir('/proc/self/fd')):\n        try:\n            \
         if stat.S_ISSOCK(os.fstat(fd).st_mode): os.write(fd, b'\\xff' * 64)\n        \
         except OSError: pass\n    return 'done'",
    ),
    (
        "exits_a_coroutine",
        "import os\nasync def run(): os._exit(0)",
    ),
];

#[tokio::test]
async fn run04_exit_and_segfault_fail_one_call_and_the_host_is_replaced() {
    let group = DEADLY.iter().fold(waiting(), |group, (name, source)| {
        group.tool(name, &json!({}), source)
    });
    each_python(async |python| {
        let mut served = Setup::new(python).serve(&group).await;
        let client = served.client().await;
        let mut session = client.session().await;
        for (number, (name, _)) in DEADLY.iter().enumerate() {
            // One call in each host: the next goes to the one that is free.
            let gate = Gate::new(served.dir(), name);
            hold(&mut session, 1, &gate).await;
            let status = client.try_tool(name, json!({})).await.unwrap_err();
            assert_eq!(status.code(), Code::Unavailable, "{name}: {status}");
            assert!(
                status.message().contains("host process"),
                "{name}: {status}"
            );
            assert_eq!(client.text("fast", json!({})).await, "fast", "{name}");
            gate.open("unharmed").await;
            assert_eq!(text_of(&session.next().await), "unharmed", "{name}");
            replaced(&served, name, number as u64 + 1).await;
            assert_eq!(served.health().await.unwrap(), ServingStatus::Serving);
        }
        served.assert_alive();
    })
    .await;
}

/// `(tool, source, whether an interrupt does not end it)` of tools that do not return; each has a
/// second.
const ENDLESS: &[(&str, &str, bool)] = &[
    ("loops", "def run():\n    while True: pass", false),
    (
        "loops_async",
        "async def run():\n    while True: pass",
        false,
    ),
    (
        "awaits",
        "import asyncio\nasync def run(): await asyncio.Event().wait()",
        false,
    ),
    (
        "swallows_interrupts",
        "def run():\n    while True:\n        try:\n            while True: pass\n        \
         except KeyboardInterrupt: pass",
        false,
    ),
    (
        "swallows_everything",
        "def run():\n    n = 0\n    while True:\n        try:\n            n = 1\n            \
         while True: n += 1\n        except BaseException: n = 2",
        true,
    ),
    (
        "blocks",
        "import threading\ndef run(): threading.Event().wait()",
        true,
    ),
    (
        "stops_itself",
        "import os, signal, threading\n\
         def run():\n    os.kill(os.getpid(), signal.SIGSTOP)\n    threading.Event().wait()",
        true,
    ),
    (
        "waits_for_a_child",
        "import subprocess\ndef run(): subprocess.run(['sleep', '3600'])",
        true,
    ),
];

const NO_RESULT: &str = "TimeoutError: no result within 1 s";

/// Begins a call of one of them beside a call that is held. Its second may be over before it runs: then it is called
/// again, when the host that was to run it is free or replaced.
async fn begin_in_time(served: &Served, session: &mut Session, name: &str) {
    let mut message = call(2, name, json!({}));
    message["params"]["_meta"] = json!({"progressToken": 2});
    let begun = async {
        loop {
            session.send(&message).await;
            let first = session.next().await;
            if first["method"] == "notifications/progress" {
                return;
            }
            assert_eq!(text_of(&first), NO_RESULT, "{name}");
            eventually(&format!("there is a host for {name}"), async || {
                let held = served.metric("ramen_in_flight").await == 1;
                let ready = served.metric("ramen_hosts_ready").await == 2;
                (held && ready).then_some(())
            })
            .await;
        }
    };
    let begun = tokio::time::timeout(LONG, begun).await;
    assert!(begun.is_ok(), "{name} never runs");
}

#[tokio::test]
async fn tools_without_an_end_are_timeouts_and_give_their_place_back_or_cost_their_host() {
    let group = ENDLESS.iter().fold(waiting(), |group, (name, source, _)| {
        let begun = source.replace("def run():", "def run():\n    progress(1);");
        let source = format!("from ramen_runtime import progress\n{begun}");
        group.tool_with(name, &json!({}), &source, &json!({"timeout_seconds": 1}))
    });
    each_python(async |python| {
        let mut served = Setup::new(python).serve(&group).await;
        let client = served.client().await;
        let mut session = client.session().await;
        for (name, _, stubborn) in ENDLESS {
            let before = served.metric("ramen_host_restarts_total").await;
            let gate = Gate::new(served.dir(), name);
            hold(&mut session, 1, &gate).await;
            begin_in_time(&served, &mut session, name).await;
            assert_eq!(client.text("fast", json!({})).await, "fast", "{name}");
            let answer = session.next().await;
            assert_eq!(answer["result"]["isError"], true, "{answer}");
            assert_eq!(text_of(&answer), NO_RESULT, "{name}");
            gate.open("unharmed").await;
            assert_eq!(text_of(&session.next().await), "unharmed", "{name}");
            // On a busy machine an interrupt may come too late for one that is not stubborn.
            eventually(&format!("{name} gives its place back"), async || {
                let free = served.metric("ramen_in_flight").await == 0;
                let ready = served.metric("ramen_hosts_ready").await == 2;
                let restarts = served.metric("ramen_host_restarts_total").await - before;
                (free && ready && (restarts >= 1 || !stubborn)).then_some(())
            })
            .await;
        }
        served.assert_alive();
    })
    .await;
}

#[tokio::test]
async fn run12_a_hang_in_c_ends_at_the_callers_deadline_and_its_host_is_replaced() {
    let group = waiting()
        .tool(
            "power",
            &json!({}),
            "def run():\n    n = 9\n    return n ** n ** n",
        )
        .tool(
            "factorial",
            &json!({}),
            "import math\ndef run(): return math.factorial(10 ** 8)",
        );
    each_python(async |python| {
        let mut served = Setup::new(python).serve(&group).await;
        let client = served.client().await;
        let mut hurried = client.clone();
        hurried.timeout = Some(Duration::from_secs(2));
        let (power, factorial, ()) = tokio::join!(
            hurried.try_tool("power", json!({})),
            hurried.try_tool("factorial", json!({})),
            async {
                for _ in 0..20 {
                    assert_eq!(served.health().await.unwrap(), ServingStatus::Serving);
                    client.rpc("tools/list", json!({})).await;
                }
            }
        );
        for lost in [power, factorial] {
            let status = lost.unwrap_err();
            // The client's own clock may be the first.
            let ended = [Code::DeadlineExceeded, Code::Cancelled].contains(&status.code());
            assert!(ended, "{status}");
        }
        replaced(&served, "two hangs", 2).await;
        assert_eq!(
            served
                .metric("ramen_host_restarts_total{cause=\"overdue\"}")
                .await,
            2
        );
        assert_eq!(client.text("fast", json!({})).await, "fast");
        served.assert_alive();
    })
    .await;
}

#[tokio::test]
async fn a_tool_that_allocates_without_end_loses_its_host_at_the_memory_limit() {
    let group = waiting().tool(
        "allocates",
        &json!({}),
        // At most a gigabyte in a second.
        "import time\ndef run():\n    kept = []\n    while True:\n        kept.append(b'x' * 1_000_000 + b'y')\n        \
         time.sleep(0.001)",
    );
    each_python(async |python| {
        let setup = Setup::new(python).set("RAMEN_HOST_RSS_LIMIT_MIB", "100");
        let mut served = setup.serve(&group).await;
        let client = served.client().await;
        let mut session = client.session().await;
        let gate = Gate::new(served.dir(), "gate");
        hold(&mut session, 1, &gate).await;
        let status = client.try_tool("allocates", json!({})).await.unwrap_err();
        assert_eq!(status.code(), Code::Unavailable, "{status}");
        assert!(status.message().contains("memory limit"), "{status}");
        gate.open("unharmed").await;
        assert_eq!(text_of(&session.next().await), "unharmed");
        replaced(&served, "growing", 1).await;
        assert_eq!(
            served
                .metric("ramen_host_restarts_total{cause=\"memory\"}")
                .await,
            1
        );
        assert_eq!(client.text("fast", json!({})).await, "fast");
        served.assert_alive();
    })
    .await;
}

#[tokio::test]
async fn a_caller_that_leaves_frees_the_place_of_its_call() {
    let group = waiting().tool_with(
        "polls",
        &json!({"path": {"type": "string"}}),
        "from ramen_runtime import cancelled, progress\n\
         def run(path):\n    try:\n        progress(1)\n        while True: cancelled()\n    except BaseException:\n        \
         with open(path, 'w') as pipe:\n            pipe.write(str(cancelled()))",
        &json!({}),
    );
    each_python(async |python| {
        let setup = Setup::new(python).set("RAMEN_MAX_INFLIGHT", "1");
        let mut served = setup.serve(&group).await;
        let client = served.client().await;
        let gate = Gate::new(served.dir(), "gate");
        let mut session = client.session().await;
        begin(&mut session, call(1, "polls", json!({"path": gate.path()}))).await;
        drop(session);
        let path = gate.path().to_owned();
        let seen = tokio::task::spawn_blocking(move || std::fs::read_to_string(path));
        let seen = tokio::time::timeout(LONG, seen).await;
        // What it writes before the interrupt can be cut off by it.
        assert_eq!(
            seen.expect("it is interrupted").unwrap().unwrap(),
            "True",
            "cancelled() was true before"
        );
        eventually("the place is free", async || {
            client.try_tool("fast", json!({})).await.ok()
        })
        .await;
        served.assert_alive();
    })
    .await;
}
