//! A steady load of calls on every pod of a group, counted.

use std::{
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};

use serde_json::Value;
use tokio::{sync::watch, task::JoinSet, time::MissedTickBehavior};

use crate::caller::{Caller, Refusal};

/// How one call went.
#[derive(Debug, Clone, PartialEq)]
pub struct Outcome {
    /// Which pod was asked.
    pub pod: String,
    /// Text, or why there is none.
    pub answer: Result<String, Refusal>,
}

/// Calls under way until it is stopped.
pub struct Load {
    outcomes: Arc<Mutex<Vec<Outcome>>>,
    stop: watch::Sender<bool>,
    tasks: JoinSet<()>,
}

impl Load {
    /// Calls one tool on each of the pods, `per_second` times a second in each, never waiting for the call before.
    pub fn start(
        callers: &[(String, Caller)],
        tool: &'static str,
        arguments: &Value,
        per_second: u32,
    ) -> Self {
        let outcomes = Arc::<Mutex<Vec<Outcome>>>::default();
        let (stop, stopped) = watch::channel(false);
        let mut tasks = JoinSet::new();
        for (pod, caller) in callers {
            let (pod, caller) = (pod.clone(), caller.clone());
            let (outcomes, arguments) = (Arc::clone(&outcomes), arguments.clone());
            let mut stopped = stopped.clone();
            tasks.spawn(async move {
                let mut beat = tokio::time::interval(Duration::from_secs(1) / per_second);
                beat.set_missed_tick_behavior(MissedTickBehavior::Delay);
                let mut calls = JoinSet::new();
                while !*stopped.borrow_and_update() {
                    tokio::select! {
                        _ = beat.tick() => {}
                        _ = stopped.changed() => break,
                    }
                    let (pod, caller) = (pod.clone(), caller.clone());
                    let (outcomes, arguments) = (Arc::clone(&outcomes), arguments.clone());
                    calls.spawn(async move {
                        let answer = caller.tool(tool, arguments).await;
                        lock(&outcomes).push(Outcome { pod, answer });
                    });
                    while calls.try_join_next().is_some() {}
                }
                calls.join_all().await;
            });
        }
        Self {
            outcomes,
            stop,
            tasks,
        }
    }

    /// What has been answered so far.
    pub fn so_far(&self) -> Vec<Outcome> {
        lock(&self.outcomes).clone()
    }

    /// Ends it when every call that was begun has ended.
    pub async fn stop(self) -> Vec<Outcome> {
        // Nobody listens any more when every task has ended by itself.
        let _ = self.stop.send(true);
        self.tasks.join_all().await;
        let outcomes = lock(&self.outcomes);
        outcomes.clone()
    }
}

fn lock(outcomes: &Mutex<Vec<Outcome>>) -> std::sync::MutexGuard<'_, Vec<Outcome>> {
    outcomes.lock().unwrap_or_else(PoisonError::into_inner)
}
