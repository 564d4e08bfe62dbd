//! RUN: calls beside each other. A tool that is to be in flight waits for a named pipe, and says by
//! its progress that it runs: nothing here waits for a time to pass.

use std::io::Write;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::pin::pin;
use std::process::Command;

use serde_json::{Value, json};
use tonic::Code;
use tonic_health::pb::health_check_response::ServingStatus;

use crate::harness::{Client, Group, Session, call, eventually, text_of};
use crate::served::{Setup, each_python, runs};

/// A named pipe that a tool waits for.
pub(crate) struct Gate(PathBuf);

impl Gate {
    pub(crate) fn new(dir: &Path, name: &str) -> Self {
        let path = dir.join(name);
        let made = Command::new("mkfifo").arg(&path).status().unwrap();
        assert!(made.success());
        Self(path)
    }

    pub(crate) fn path(&self) -> &str {
        self.0.to_str().unwrap()
    }

    /// Lets the tool return `text`.
    pub(crate) async fn open(&self, text: &str) {
        // Without a reader this fails instead of waiting.
        let mut pipe = eventually("a tool waits for the pipe", async || {
            let mut options = std::fs::OpenOptions::new();
            let flags = rustix::fs::OFlags::NONBLOCK.bits().cast_signed();
            options.write(true).custom_flags(flags).open(&self.0).ok()
        })
        .await;
        pipe.write_all(text.as_bytes()).unwrap();
    }
}

/// Tools that wait, write and answer at once.
pub(crate) fn waiting() -> Group {
    let path = json!({"path": {"type": "string"}});
    Group::new()
        .tool(
            "wait",
            &path,
            "from ramen_runtime import progress\n\
             def run(path):\n    progress(1)\n    with open(path) as pipe:\n        return pipe.read()",
        )
        .tool(
            "write",
            &path,
            "def run(path):\n    with open(path, 'w') as pipe:\n        pipe.write('written by a tool')\n    return 'wrote'",
        )
        .tool("fast", &json!({}), "def run(): return 'fast'")
}

/// Starts `wait` on a stream; it runs when this returns.
pub(crate) async fn hold(session: &mut Session, id: u32, gate: &Gate) {
    begin(session, call(id, "wait", json!({"path": gate.path()}))).await;
}

/// Sends the call of a tool that tells its progress first; it runs when this returns.
pub(crate) async fn begin(session: &mut Session, mut message: Value) {
    message["params"]["_meta"] = json!({ "progressToken": message["id"] });
    session.send(&message).await;
    let progress = session.next().await;
    assert_eq!(progress["method"], "notifications/progress", "{progress}");
    assert_eq!(progress["params"]["progressToken"], message["id"]);
}

/// What comes of `work`, while every call of `fast` beside it is answered.
pub(crate) async fn beside<T>(client: &Client, work: impl Future<Output = T>) -> T {
    let mut work = pin!(work);
    let mut answered = 0;
    loop {
        tokio::select! {
            done = &mut work => {
                assert!(answered > 0, "there were calls beside it");
                return done;
            }
            text = client.text("fast", json!({})) => {
                assert_eq!(text, "fast");
                answered += 1;
            }
        }
    }
}

/// `id text` of the next answer.
async fn answer(session: &mut Session) -> (Value, String) {
    let answer = session.next().await;
    (answer["id"].clone(), text_of(&answer))
}

#[tokio::test]
async fn run11_a_blocked_tool_holds_up_neither_health_nor_lists_nor_other_tools() {
    each_python(async |python| {
        let setup = Setup::new(python).set("RAMEN_HOSTS", "1");
        let served = setup.serve(&waiting()).await;
        let client = served.client().await;
        let mut session = client.session().await;
        let gates: Vec<_> = (1..=4)
            .map(|n| Gate::new(served.dir(), &format!("gate{n}")))
            .collect();
        hold(&mut session, 1, &gates[0]).await;
        assert_eq!(served.health().await.unwrap(), ServingStatus::Serving);
        assert_eq!(client.text("fast", json!({})).await, "fast");
        // Every thread of the only host.
        for (id, gate) in (1..).zip(&gates).skip(1) {
            hold(&mut session, id, gate).await;
        }
        assert_eq!(served.health().await.unwrap(), ServingStatus::Serving);
        let listed = client.rpc("tools/list", json!({})).await;
        assert_eq!(listed["result"]["tools"].as_array().unwrap().len(), 3);
        // One more waits its turn, and gets it.
        session.send(&call("queued", "fast", json!({}))).await;
        gates[2].open("third").await;
        let mut first_two = [answer(&mut session).await, answer(&mut session).await];
        first_two.sort_by_key(|(_, text)| text.clone());
        assert_eq!(
            first_two,
            [(json!("queued"), "fast".into()), (json!(3), "third".into())]
        );
        for (id, gate) in [(1, &gates[0]), (2, &gates[1]), (4, &gates[3])] {
            gate.open("late").await;
            assert_eq!(answer(&mut session).await, (json!(id), "late".into()));
        }
    })
    .await;
}

#[tokio::test]
async fn run18_a_tool_may_wait_for_what_another_does() {
    each_python(async |python| {
        for hosts in ["1", "2"] {
            let setup = Setup::new(python).set("RAMEN_HOSTS", hosts);
            let served = setup.serve(&waiting()).await;
            let client = served.client().await;
            let gate = Gate::new(served.dir(), "event");
            let path = json!({"path": gate.path()});
            let (waited, wrote) = tokio::join!(
                client.text("wait", path.clone()),
                client.text("write", path.clone())
            );
            assert_eq!((&*waited, &*wrote), ("written by a tool", "wrote"));
        }
    })
    .await;
}

#[tokio::test]
async fn run19_one_call_too_many_is_refused_at_once_and_the_others_finish() {
    each_python(async |python| {
        let setup = Setup::new(python).set("RAMEN_MAX_INFLIGHT", "2");
        let served = setup.serve(&waiting()).await;
        let client = served.client().await;
        let mut session = client.session().await;
        let gates = [
            Gate::new(served.dir(), "one"),
            Gate::new(served.dir(), "two"),
        ];
        hold(&mut session, 1, &gates[0]).await;
        hold(&mut session, 2, &gates[1]).await;
        let status = client.try_tool("fast", json!({})).await.unwrap_err();
        assert_eq!(status.code(), Code::ResourceExhausted, "{status}");
        session.send(&call(3, "fast", json!({}))).await;
        let refused = session.next().await;
        assert_eq!(refused["id"], 3);
        assert_eq!(
            refused["error"]["data"]["grpc"], "RESOURCE_EXHAUSTED",
            "{refused}"
        );
        assert_eq!(served.health().await.unwrap(), ServingStatus::Serving);
        for (id, gate) in [(1, &gates[0]), (2, &gates[1])] {
            gate.open("done").await;
            assert_eq!(answer(&mut session).await, (json!(id), "done".into()));
        }
        eventually("the places are free", async || {
            client.try_tool("fast", json!({})).await.ok()
        })
        .await;
    })
    .await;
}

#[tokio::test]
async fn run13_a_tool_that_forks_is_answered_once_and_leaves_no_child() {
    let group = waiting()
        .tool(
            "pool",
            &json!({}),
            "import concurrent.futures, multiprocessing\n\
             def square(n): return n * n\n\
             def run():\n    context = multiprocessing.get_context('fork')\n    \
             with concurrent.futures.ProcessPoolExecutor(2, mp_context=context) as pool:\n        \
             squares = list(pool.map(square, range(4)))\n        pids = list(pool._processes)\n    \
             return {'squares': squares, 'pids': pids}",
        )
        .tool(
            "returns_twice",
            &json!({}),
            "import os\ndef run(): return {'child': os.fork(), 'pid': os.getpid()}",
        )
        .tool(
            "child_raises",
            &json!({}),
            "import os\ndef run():\n    child = os.fork()\n    if child == 0:\n        raise ValueError('child')\n    \
             return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])",
        );
    each_python(async |python| {
        let mut served = Setup::new(python).serve(&group).await;
        let client = served.client().await;
        // Beside calls that run in other threads of the hosts.
        let mut session = client.session().await;
        let gates = [
            Gate::new(served.dir(), "one"),
            Gate::new(served.dir(), "two"),
        ];
        hold(&mut session, 1, &gates[0]).await;
        hold(&mut session, 2, &gates[1]).await;
        let text = client.text("pool", json!({})).await;
        let pool: Value = serde_json::from_str(&text).unwrap();
        assert_eq!(pool["squares"], json!([0, 1, 4, 9]));
        for pid in pool["pids"].as_array().unwrap() {
            assert!(
                !runs(u32::try_from(pid.as_u64().unwrap()).unwrap()),
                "{pool}"
            );
        }
        let text = client.text("returns_twice", json!({})).await;
        let twice: Value = serde_json::from_str(&text).unwrap();
        let child = u32::try_from(twice["child"].as_u64().unwrap()).unwrap();
        assert!(child != 0, "the parent answers");
        eventually("the child is gone", async || (!runs(child)).then_some(())).await;
        assert_eq!(client.text("child_raises", json!({})).await, "1");
        for (id, gate) in [(1, &gates[0]), (2, &gates[1])] {
            gate.open("done").await;
            assert_eq!(answer(&mut session).await, (json!(id), "done".into()));
        }
        served.assert_alive();
        assert_eq!(served.metric("ramen_host_restarts_total").await, 0);
    })
    .await;
}
