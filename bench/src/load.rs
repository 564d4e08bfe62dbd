//! Load: as many calls as a server answers (closed loop), or a fixed rate (open loop). Every answer is looked at.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use anyhow::{Context as _, bail};
use bytes::Bytes;
use tokio::task::JoinSet;

use crate::{grpc, http, stats};

/// Connections of a gRPC load: as four gateways or bridges would hold.
pub(crate) const CONNECTIONS: usize = 4;

/// Where a load goes.
#[derive(Clone)]
pub(crate) enum Target {
    /// `ramen.v1.Mcp/Call`, with a key or without.
    Grpc {
        address: String,
        key: Option<String>,
    },
    /// A POST, with a key or without.
    Http {
        address: String,
        path: String,
        key: Option<String>,
        /// Whether each connection names a session of its own, for a server that is faster with one.
        session: bool,
    },
}

/// What a load saw.
#[derive(Default)]
pub(crate) struct Outcome {
    pub(crate) calls: u64,
    pub(crate) failed: u64,
    pub(crate) first_failure: Option<String>,
    pub(crate) seconds: f64,
    /// Microseconds, sorted.
    pub(crate) latencies: Vec<u32>,
}

impl Outcome {
    #[expect(clippy::cast_precision_loss, reason = "far below 2^52 calls")]
    pub(crate) fn per_second(&self) -> f64 {
        (self.calls - self.failed) as f64 / self.seconds
    }

    pub(crate) fn quantile_us(&self, q: f64) -> f64 {
        stats::quantile(&self.latencies, q)
    }

    /// An error when more than this part of the calls failed; those that did count for nothing.
    #[expect(clippy::cast_precision_loss, reason = "far below 2^52 calls")]
    pub(crate) fn mostly_good(self, what: &str, part: f64) -> anyhow::Result<Self> {
        if self.failed as f64 <= self.calls as f64 * part {
            return Ok(self);
        }
        self.good(what)
    }

    /// An error when a call failed: a benchmark of errors measures nothing.
    pub(crate) fn good(self, what: &str) -> anyhow::Result<Self> {
        if self.failed > 0 {
            bail!(
                "{what}: {} of {} calls failed: {}",
                self.failed,
                self.calls,
                self.first_failure.unwrap_or_default()
            );
        }
        Ok(self)
    }

    fn note(&mut self, started: Instant, answer: Result<bool, String>) {
        self.calls += 1;
        self.latencies
            .push(u32::try_from(started.elapsed().as_micros()).unwrap_or(u32::MAX));
        let failure = match answer {
            Ok(true) => return,
            Ok(false) => "the answer does not hold what was asked for".to_owned(),
            Err(error) => error,
        };
        self.failed += 1;
        self.first_failure.get_or_insert(failure);
    }

    fn merge(&mut self, other: Self) {
        self.calls += other.calls;
        self.failed += other.failed;
        if self.first_failure.is_none() {
            self.first_failure = other.first_failure;
        }
        self.latencies.extend(other.latencies);
    }
}

/// `in_flight` callers, each sending its next call when the last is answered, for about `time`.
pub(crate) async fn closed(
    target: &Target,
    in_flight: usize,
    time: Duration,
    body: &Bytes,
    wanted: &'static str,
) -> anyhow::Result<Outcome> {
    let stop = Arc::new(AtomicBool::new(false));
    let mut callers = JoinSet::new();
    match target {
        Target::Grpc { address, key } => {
            let mut clients = Vec::new();
            for _ in 0..in_flight.min(CONNECTIONS) {
                clients.push(grpc::Client::connect(address, key.as_deref()).await?);
            }
            for index in 0..in_flight {
                let mut client = clients[index % clients.len()].clone();
                let (stop, body) = (stop.clone(), body.clone());
                callers.spawn(async move {
                    let mut seen = Outcome::default();
                    while !stop.load(Ordering::Relaxed) {
                        let started = Instant::now();
                        let answer = client.call(body.clone()).await;
                        seen.note(
                            started,
                            answer.map(|a| holds(&a, wanted)).map_err(|e| e.to_string()),
                        );
                    }
                    seen
                });
            }
        }
        Target::Http {
            address,
            path,
            key,
            session,
        } => {
            for index in 0..in_flight {
                let session = session.then(|| format!("bench-{index}"));
                let request =
                    http::request(address, path, key.as_deref(), session.as_deref(), body);
                let mut connection = http::Connection::connect(address)
                    .await
                    .context("cannot connect")?;
                let stop = stop.clone();
                callers.spawn(async move {
                    let mut seen = Outcome::default();
                    while !stop.load(Ordering::Relaxed) {
                        let started = Instant::now();
                        let answer = connection.send(&request).await;
                        let broken = answer.is_err();
                        seen.note(
                            started,
                            answer.map(|a| holds(a, wanted)).map_err(|e| e.to_string()),
                        );
                        if broken {
                            break;
                        }
                    }
                    seen
                });
            }
        }
    }
    let started = Instant::now();
    tokio::time::sleep(time).await;
    stop.store(true, Ordering::Relaxed);
    let mut outcome = Outcome::default();
    while let Some(seen) = callers.join_next().await {
        outcome.merge(seen?);
    }
    outcome.seconds = started.elapsed().as_secs_f64();
    outcome.latencies.sort_unstable();
    Ok(outcome)
}

/// Starts `rate` calls per second whatever the answers do, until `stop` is set.
pub(crate) async fn paced(
    client: &grpc::Client,
    rate: u32,
    stop: Arc<AtomicBool>,
    body: &Bytes,
    wanted: &'static str,
) -> anyhow::Result<Outcome> {
    let started = Instant::now();
    let mut ticks = tokio::time::interval(Duration::from_secs(1) / rate);
    ticks.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Burst);
    let mut calls = JoinSet::new();
    let mut outcome = Outcome::default();
    while !stop.load(Ordering::Relaxed) {
        ticks.tick().await;
        let (mut client, body) = (client.clone(), body.clone());
        calls.spawn(async move {
            let started = Instant::now();
            let answer = client.call(body).await;
            (
                started,
                answer.map(|a| holds(&a, wanted)).map_err(|e| e.to_string()),
            )
        });
        while let Some(done) = calls.try_join_next() {
            let (started, answer) = done?;
            outcome.note(started, answer);
        }
    }
    while let Some(done) = calls.join_next().await {
        let (started, answer) = done?;
        outcome.note(started, answer);
    }
    outcome.seconds = started.elapsed().as_secs_f64();
    outcome.latencies.sort_unstable();
    Ok(outcome)
}

fn holds(answer: &[u8], wanted: &str) -> bool {
    answer
        .windows(wanted.len())
        .any(|window| window == wanted.as_bytes())
}
