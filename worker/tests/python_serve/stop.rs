//! RUN14: the end of the worker, and of everything that it started.

use serde_json::json;

use crate::harness::{eventually, text_of};
use crate::parallel::{Gate, hold, waiting};
use crate::served::{Setup, each_python, runs};

const LEAVES_A_THREAD: &str = "import threading\n\
    def run():\n    threading.Thread(target=threading.Event().wait, daemon=False).start()\n    return 'left'";

#[tokio::test]
async fn run14_on_sigterm_calls_in_flight_are_answered_and_threads_of_tools_hold_up_nothing() {
    let group = waiting().tool("leaves", &json!({}), LEAVES_A_THREAD);
    each_python(async |python| {
        let served = Setup::new(python).serve(&group).await;
        let client = served.client().await;
        let mut session = client.session().await;
        for _ in 0..4 {
            assert_eq!(client.text("leaves", json!({})).await, "left");
        }
        let gate = Gate::new(served.dir(), "gate");
        hold(&mut session, 1, &gate).await;
        let hosts = served.children();
        assert!(hosts.len() >= 2, "{hosts:?}");
        served.terminate();
        served.log.message("stopping").await;
        gate.open("answered").await;
        assert_eq!(text_of(&session.next().await), "answered");
        let log = served.log.clone();
        let status = served.ended().await;
        assert!(status.success(), "{status}:\n{}", log.text());
        for host in hosts {
            assert!(!runs(host), "{host} is left behind");
        }
    })
    .await;
}

#[tokio::test]
async fn run14_a_call_that_does_not_end_is_told_so_when_the_drain_time_is_over() {
    each_python(async |python| {
        let setup = Setup::new(python).set("RAMEN_DRAIN_SECS", "1");
        let served = setup.serve(&waiting()).await;
        let client = served.client().await;
        let mut session = client.session().await;
        let gate = Gate::new(served.dir(), "gate");
        hold(&mut session, 1, &gate).await;
        let hosts = served.children();
        served.terminate();
        let lost = session.try_next().await;
        let lost = lost.unwrap().unwrap();
        assert_eq!(
            (&lost["id"], &lost["error"]["code"]),
            (&json!(1), &json!(-32603))
        );
        assert_eq!(lost["error"]["data"]["grpc"], "UNAVAILABLE", "{lost}");
        let status = served.ended().await;
        assert!(status.success(), "{status}");
        for host in hosts {
            assert!(!runs(host), "{host} is left behind");
        }
    })
    .await;
}

#[tokio::test]
async fn hosts_end_when_the_worker_is_killed() {
    let group = waiting().tool("leaves", &json!({}), LEAVES_A_THREAD);
    each_python(async |python| {
        let served = Setup::new(python).serve(&group).await;
        let client = served.client().await;
        assert_eq!(client.text("leaves", json!({})).await, "left");
        let gate = Gate::new(served.dir(), "gate");
        let mut session = client.session().await;
        hold(&mut session, 1, &gate).await;
        let hosts = served.children();
        assert!(hosts.len() >= 2, "{hosts:?}");
        drop(served);
        for host in hosts {
            eventually("the host is gone", async || (!runs(host)).then_some(())).await;
        }
    })
    .await;
}
