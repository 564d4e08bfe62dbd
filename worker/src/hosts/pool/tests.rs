use super::*;
use crate::hosts::memory::Memory;

/// A pool that needs no hosts, and a call that waits in it.
async fn waiting() -> (Arc<Pool>, PoolCall) {
    let spec = PoolSpec {
        host: HostSpec {
            program: "/nonexistent".into(),
            home: "/".into(),
            secrets: Vec::new(),
            env: std::collections::BTreeMap::new(),
            output: None,
            memory: Memory::new(Some(0)),
        },
        load: Load {
            group: "group".into(),
            code_dir: "/".into(),
            deps_dir: None,
            packages: Vec::new(),
            env: std::collections::BTreeMap::new(),
            threads: 1,
            switch_interval_ms: 0,
        },
        limits: LoadLimits::default(),
        hosts: 1,
        threads: 1,
        max_rss: 0,
        max_calls: 0,
        on_restart: Arc::new(|_| {}),
    };
    let pool = Pool::start(spec).await.unwrap();
    let (pending, answer) = Pending::new(0, CallOptions::default());
    lock(&pool.state).queue.push_back((pending, Bytes::new()));
    let call = PoolCall {
        answer,
        pool: Arc::clone(&pool),
        done: false,
    };
    (pool, call)
}

#[tokio::test]
async fn a_call_that_still_waits_when_its_pool_is_retired_was_never_begun() {
    let (pool, call) = waiting().await;
    pool.retire(Duration::ZERO).await;
    let error = call.reply().await.unwrap_err();
    assert!(error.was_before_the_call(), "{error}");
}

#[tokio::test]
async fn a_call_that_waits_for_hosts_that_do_not_come_up_was_never_begun() {
    let (pool, call) = waiting().await;
    // Without a place none is left that could come up.
    pool.failed(0);
    let error = call.reply().await.unwrap_err();
    assert_eq!(error, PoolCallError::Host(CallError::NoHost));
    assert!(error.was_before_the_call());
}

#[test]
fn a_call_that_ran_or_may_have_run_is_not_told_as_never_begun() {
    let ended = EndCause::Retired;
    for error in [
        CallError::Crashed(Death::Exited(1)),
        CallError::Restarted(ended),
        CallError::Lost,
    ] {
        assert!(!PoolCallError::Host(error).was_before_the_call());
    }
}
