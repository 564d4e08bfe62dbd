//! One place of a pool: keeps a host in it.

use std::pin::pin;
use std::sync::{Arc, Weak};
use std::time::{Duration, Instant};

use tokio::sync::{Notify, watch};

use super::{Pool, PoolError, PoolSpec};
use crate::hosts::fate::{Death, EndCause};
use crate::hosts::process::HostProcess;

/// How often the memory of a host is looked at.
const MEMORY_EVERY: Duration = Duration::from_millis(100);
/// A host that lived as long as this, or answered a call, clears the record of its place.
const GOOD_LIFE: Duration = Duration::from_secs(30);
/// The first pause before a further start; doubled each time.
const BACKOFF: Duration = Duration::from_millis(50);
/// The longest pause.
const MAX_BACKOFF: Duration = Duration::from_secs(10);
/// How long a replaced host may take to finish its calls.
const LAST_CALLS: Duration = Duration::from_mins(10);

/// Starts a host and loads every package in it.
pub(super) async fn bring_up(spec: &PoolSpec) -> Result<HostProcess, PoolError> {
    let host = HostProcess::spawn(&spec.host)
        .await
        .map_err(PoolError::Host)?;
    let loaded = host
        .load(&spec.load, spec.limits, |_| {})
        .await
        .map_err(PoolError::Host)?;
    let complete = loaded.packages.len() == spec.load.packages.len();
    if complete && loaded.packages.iter().all(|package| package.ok) {
        Ok(host)
    } else {
        Err(PoolError::Packages(loaded))
    }
}

/// The pause before the next start, after so many ends in a row. The first two cost nothing: a
/// crash is usually a call's fault.
fn backoff(ends: u32) -> Duration {
    match ends.checked_sub(3) {
        None => Duration::ZERO,
        Some(more) => BACKOFF.saturating_mul(1 << more.min(10)).min(MAX_BACKOFF),
    }
}

/// What ended the life of a host in its place.
enum Turn {
    Died(Death),
    Condemned,
    Replace(EndCause),
}

/// Keeps a host in place `index` until the pool is retired or gone.
pub(super) async fn keep(pool: Weak<Pool>, index: usize, mut retired: watch::Receiver<bool>) {
    let Some((spec, replace)) = pool
        .upgrade()
        .and_then(|pool| Some((Arc::clone(&pool.spec), Arc::clone(pool.replace.get(index)?))))
    else {
        return;
    };
    let mut ends = 0;
    loop {
        let Some(host) = pool.upgrade().map(|pool| pool.host(index)) else {
            return;
        };
        if *retired.borrow() {
            return;
        }
        let turn = async {
            match host {
                None => start(&pool, index, &spec, &mut ends).await,
                Some(host) => watch_over(&pool, index, &spec, &replace, host, &mut ends).await,
            }
        };
        tokio::select! {
            () = turn => {}
            _ = retired.wait_for(|retired| *retired) => return,
        }
    }
}

async fn start(pool: &Weak<Pool>, index: usize, spec: &PoolSpec, ends: &mut u32) {
    tokio::time::sleep(backoff(*ends)).await;
    match bring_up(spec).await {
        Ok(host) => {
            if let Some(pool) = pool.upgrade() {
                pool.seat_host(index, Arc::new(host));
            }
        }
        Err(error) => {
            *ends += 1;
            if let Some(pool) = pool.upgrade() {
                let failures = pool.failed(index);
                let error = &error as &dyn std::error::Error;
                tracing::error!(failures, error, "a host process did not come up");
            }
        }
    }
}

async fn watch_over(
    pool: &Weak<Pool>,
    index: usize,
    spec: &Arc<PoolSpec>,
    replace: &Notify,
    host: Arc<HostProcess>,
    ends: &mut u32,
) {
    let since = Instant::now();
    let mut grown = pin!(grows_over(spec.max_rss, host.pid()));
    let turn = loop {
        tokio::select! {
            death = host.died() => break Turn::Died(death),
            () = replace.notified() => {
                if host.channel().condemned().is_some() {
                    break Turn::Condemned;
                }
                if spec.max_calls > 0 && served(pool, index) >= spec.max_calls {
                    break Turn::Replace(EndCause::Recycled);
                }
                // Meant for the host before this one.
            }
            () = grown.as_mut() => break Turn::Replace(EndCause::Memory),
        }
    };
    // A host that answered was fine: what ended it was a call, and there is a breaker for those.
    if since.elapsed() >= GOOD_LIFE || served(pool, index) > 0 {
        *ends = 0;
    }
    match turn {
        Turn::Died(death) => {
            *ends += 1;
            tracing::warn!(pid = host.pid(), %death, "a host process ended");
            (spec.on_restart)(&death);
            if let Some(pool) = pool.upgrade() {
                pool.unseat(index);
            }
        }
        Turn::Condemned => {
            *ends += 1;
            if let Some(pool) = pool.upgrade() {
                pool.unseat(index);
            }
            let on_restart = Arc::clone(&spec.on_restart);
            tokio::spawn(async move {
                let death = host.died().await;
                tracing::warn!(pid = host.pid(), %death, "a host process was ended");
                on_restart(&death);
            });
        }
        Turn::Replace(cause) => {
            tracing::info!(pid = host.pid(), %cause, "a host process is being replaced");
            if cause == EndCause::Memory {
                // Its calls may finish, but not at any price, also not while the new one starts.
                tokio::spawn(end_over(Arc::clone(&host), spec.max_rss / 2 * 3));
            }
            match bring_up(spec).await {
                Ok(new) => {
                    if let Some(pool) = pool.upgrade() {
                        pool.unseat(index);
                        pool.seat_host(index, Arc::new(new));
                    }
                    (spec.on_restart)(&Death::Ended(cause));
                    tokio::spawn(end_when_idle(host, cause));
                }
                Err(error) => {
                    tracing::error!(
                        error = &error as &dyn std::error::Error,
                        "the replacement did not come up; the old one stays"
                    );
                    // Over its limit it asks again soon; this keeps it from asking at once.
                    tokio::time::sleep(MAX_BACKOFF).await;
                }
            }
        }
    }
}

/// Calls that the host in this place has answered.
fn served(pool: &Weak<Pool>, index: usize) -> u64 {
    pool.upgrade().map_or(0, |pool| pool.served(index))
}

async fn end_when_idle(host: Arc<HostProcess>, cause: EndCause) {
    let begin = Instant::now();
    while host.in_flight() > 0 && begin.elapsed() < LAST_CALLS {
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    host.kill(cause);
    host.died().await;
}

/// Ends the host when it is larger than `limit`.
async fn end_over(host: Arc<HostProcess>, limit: u64) {
    tokio::select! {
        _ = host.died() => {}
        () = grows_over(limit, host.pid()) => {
            tracing::warn!(pid = host.pid(), "a host process grew on while it was being replaced");
            host.kill(EndCause::Memory);
        }
    }
}

/// Ends when the process is larger than `limit`; never without a limit.
async fn grows_over(limit: u64, pid: u32) {
    loop {
        if limit > 0 && resident(pid) > limit {
            return;
        }
        if limit == 0 {
            std::future::pending::<()>().await;
        }
        tokio::time::sleep(MEMORY_EVERY).await;
    }
}

/// Resident bytes of a process; 0 when there is none.
pub(super) fn resident(pid: u32) -> u64 {
    let pages = std::fs::read_to_string(format!("/proc/{pid}/statm"))
        .ok()
        .and_then(|text| text.split(' ').nth(1)?.parse::<u64>().ok());
    pages.unwrap_or(0) * rustix::param::page_size() as u64
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_pause_doubles_from_the_third_end_on_and_has_an_end() {
        let pauses: Vec<_> = (0..8).map(|ends| backoff(ends).as_millis()).collect();
        assert_eq!(pauses, [0, 0, 0, 50, 100, 200, 400, 800]);
        assert_eq!(backoff(1000), MAX_BACKOFF);
    }
}
