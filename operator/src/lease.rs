//! One writer: the holder of a `Lease`. [`decide`] is pure; the loop around it is thin. The process ends
//! when the lease is lost.
//!
//! Clocks of replicas are never compared: a lease is stale when *this* process has not seen it change for
//! its whole duration.

use std::time::Duration;

use k8s_openapi::api::coordination::v1::{Lease, LeaseSpec};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::MicroTime;
use k8s_openapi::jiff::Timestamp;
use kube::api::{ObjectMeta, PostParams};
use kube::{Api, Client};
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

/// How long a lease is good for without being renewed.
pub const DURATION: Duration = Duration::from_secs(15);
/// How often it is renewed.
pub const RENEW: Duration = Duration::from_secs(5);
/// When it could not be renewed for this long, it counts as lost.
pub const GIVE_UP: Duration = Duration::from_secs(10);
/// How soon it is tried again when it could not be renewed, and how long one try may take: an API server that is back
/// is found before the lease counts as lost.
const AGAIN: Duration = Duration::from_secs(1);
const TRY: Duration = Duration::from_secs(3);

/// What to do about a lease.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Decision {
    /// Take it.
    Acquire,
    /// Keep it.
    Renew,
    /// Look again after this time.
    Wait(Duration),
}

/// How a turn ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Turn {
    /// The lease is held now.
    Held,
    /// Somebody else holds it; look again after this time.
    Other(Duration),
    /// Somebody wrote it between reading and writing, perhaps this process in a turn that was cut off.
    Conflict,
}

/// What was seen of a lease, and when it last changed, by this process's clock.
#[derive(Debug, Clone)]
pub struct Seen {
    version: Option<String>,
    changed: Instant,
}

impl Seen {
    /// Nothing seen before.
    pub fn new(now: Instant) -> Self {
        Self {
            version: None,
            changed: now,
        }
    }

    /// Notes what is seen now.
    pub fn note(&mut self, lease: Option<&Lease>, now: Instant) {
        let version = lease.and_then(|lease| lease.metadata.resource_version.clone());
        if version != self.version {
            self.version = version;
            self.changed = now;
        }
    }
}

/// What to do about a lease as it is.
pub fn decide(lease: Option<&Lease>, me: &str, seen: &Seen, now: Instant) -> Decision {
    let Some(spec) = lease.and_then(|lease| lease.spec.as_ref()) else {
        return Decision::Acquire;
    };
    match spec.holder_identity.as_deref() {
        None | Some("") => Decision::Acquire,
        Some(holder) if holder == me => Decision::Renew,
        Some(_) => {
            let duration = spec
                .lease_duration_seconds
                .and_then(|seconds| u64::try_from(seconds).ok())
                .map_or(DURATION, Duration::from_secs);
            let age = now.saturating_duration_since(seen.changed);
            match duration.checked_sub(age) {
                Some(left) if !left.is_zero() => Decision::Wait(left.min(RENEW)),
                _ => Decision::Acquire,
            }
        }
    }
}

/// The lease and who wants it.
pub struct Holder {
    api: Api<Lease>,
    name: String,
    me: String,
}

/// The lease is gone.
#[derive(Debug, thiserror::Error)]
#[error("the lease {name} was lost: {why}")]
pub struct Lost {
    name: String,
    why: String,
}

impl Holder {
    /// A lease in a namespace.
    pub fn new(client: Client, namespace: &str, name: &str, me: &str) -> Self {
        Self {
            api: Api::namespaced(client, namespace),
            name: name.to_owned(),
            me: me.to_owned(),
        }
    }

    /// Waits until the lease is held; false when told to stop.
    pub async fn acquire(&self, stop: &CancellationToken) -> bool {
        let mut seen = Seen::new(Instant::now());
        loop {
            let pause = match self.turn(&mut seen).await {
                Ok(Turn::Held) => return true,
                Ok(Turn::Other(pause)) => pause,
                Ok(Turn::Conflict) => AGAIN,
                Err(error) => {
                    tracing::warn!(lease = self.name, %error, "the lease cannot be read or written");
                    RENEW
                }
            };
            if stop
                .run_until_cancelled(tokio::time::sleep(pause))
                .await
                .is_none()
            {
                return false;
            }
        }
    }

    /// Renews the lease until told to stop, then gives it back; an error when it is lost.
    pub async fn keep(&self, stop: &CancellationToken) -> Result<(), Lost> {
        let mut seen = Seen::new(Instant::now());
        let mut renewed = Instant::now();
        let mut pause = RENEW;
        loop {
            if stop
                .run_until_cancelled(tokio::time::sleep(pause))
                .await
                .is_none()
            {
                self.release().await;
                return Ok(());
            }
            let left = GIVE_UP.saturating_sub(renewed.elapsed());
            let turn = tokio::time::timeout(left.clamp(AGAIN, TRY), self.turn(&mut seen));
            let why = match turn.await {
                Ok(Ok(Turn::Held)) => {
                    renewed = Instant::now();
                    pause = RENEW;
                    continue;
                }
                Ok(Ok(Turn::Other(_))) => return Err(self.lost("another replica holds it")),
                Ok(Ok(Turn::Conflict)) => "it was written meanwhile".to_owned(),
                Ok(Err(error)) => error.to_string(),
                Err(_) => "the API server does not answer".to_owned(),
            };
            tracing::warn!(
                lease = self.name,
                error = why,
                "the lease cannot be renewed"
            );
            let left = GIVE_UP.saturating_sub(renewed.elapsed());
            if left.is_zero() {
                return Err(self.lost(&why));
            }
            pause = AGAIN.min(left);
        }
    }

    fn lost(&self, why: &str) -> Lost {
        Lost {
            name: self.name.clone(),
            why: why.to_owned(),
        }
    }

    /// Reads, decides, writes.
    async fn turn(&self, seen: &mut Seen) -> Result<Turn, kube::Error> {
        let lease = self.api.get_opt(&self.name).await?;
        let now = Instant::now();
        seen.note(lease.as_ref(), now);
        let decision = decide(lease.as_ref(), &self.me, seen, now);
        if let Decision::Wait(pause) = decision {
            return Ok(Turn::Other(pause));
        }
        let wanted = self.wanted(lease.as_ref(), decision);
        let params = PostParams::default();
        let written = match lease {
            None => self.api.create(&params, &wanted).await,
            // The version in it makes this fail when somebody else was faster.
            Some(_) => self.api.replace(&self.name, &params, &wanted).await,
        };
        match written {
            Ok(_) => Ok(Turn::Held),
            Err(kube::Error::Api(status)) if status.code == 409 => Ok(Turn::Conflict),
            Err(error) => Err(error),
        }
    }

    fn wanted(&self, lease: Option<&Lease>, decision: Decision) -> Lease {
        let now = MicroTime(Timestamp::now());
        let before = lease
            .and_then(|lease| lease.spec.clone())
            .unwrap_or_default();
        let taken = decision == Decision::Acquire;
        let transitions =
            before.lease_transitions.unwrap_or_default() + i32::from(taken && lease.is_some());
        Lease {
            metadata: ObjectMeta {
                name: Some(self.name.clone()),
                resource_version: lease.and_then(|lease| lease.metadata.resource_version.clone()),
                ..ObjectMeta::default()
            },
            spec: Some(LeaseSpec {
                holder_identity: Some(self.me.clone()),
                lease_duration_seconds: i32::try_from(DURATION.as_secs()).ok(),
                acquire_time: if taken {
                    Some(now.clone())
                } else {
                    before.acquire_time
                },
                renew_time: Some(now),
                lease_transitions: Some(transitions),
                ..LeaseSpec::default()
            }),
        }
    }

    /// Gives the lease back, so that the next replica need not wait.
    async fn release(&self) {
        let given_back = async {
            let Some(mut lease) = self.api.get_opt(&self.name).await? else {
                return Ok(());
            };
            let Some(spec) = lease.spec.as_mut() else {
                return Ok(());
            };
            if spec.holder_identity.as_deref() != Some(&self.me) {
                return Ok(());
            }
            spec.holder_identity = Some(String::new());
            self.api
                .replace(&self.name, &PostParams::default(), &lease)
                .await
                .map(drop)
        };
        match tokio::time::timeout(Duration::from_secs(3), given_back).await {
            Ok(Ok(())) => {}
            Ok(Err(error)) => tracing::warn!(%error, "the lease was not given back"),
            Err(_) => tracing::warn!("the lease was not given back in time"),
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn lease(holder: Option<&str>, version: &str) -> Lease {
        Lease {
            metadata: ObjectMeta {
                resource_version: Some(version.to_owned()),
                ..ObjectMeta::default()
            },
            spec: Some(LeaseSpec {
                holder_identity: holder.map(str::to_owned),
                lease_duration_seconds: Some(15),
                ..LeaseSpec::default()
            }),
        }
    }

    #[tokio::test(start_paused = true)]
    async fn free_own_and_stale_leases_are_taken_others_are_waited_for() {
        let start = Instant::now();
        let mut seen = Seen::new(start);
        assert_eq!(decide(None, "a", &seen, start), Decision::Acquire);
        for (holder, decision) in [
            (None, Decision::Acquire),
            (Some(""), Decision::Acquire),
            (Some("a"), Decision::Renew),
            (Some("b"), Decision::Wait(RENEW)),
        ] {
            let lease = lease(holder, "1");
            seen.note(Some(&lease), start);
            assert_eq!(
                decide(Some(&lease), "a", &seen, start),
                decision,
                "{holder:?}"
            );
        }
    }

    #[tokio::test(start_paused = true)]
    async fn a_lease_is_stale_when_it_was_not_seen_to_change_whatever_its_clock_says() {
        let start = Instant::now();
        let mut seen = Seen::new(start);
        let one = lease(Some("b"), "1");
        seen.note(Some(&one), start);
        let later = start + Duration::from_secs(14);
        seen.note(Some(&one), later);
        assert_eq!(
            decide(Some(&one), "a", &seen, later),
            Decision::Wait(Duration::from_secs(1))
        );
        let renewed = lease(Some("b"), "2");
        seen.note(Some(&renewed), later);
        let later = later + Duration::from_secs(14);
        assert_eq!(
            decide(Some(&renewed), "a", &seen, later),
            Decision::Wait(Duration::from_secs(1))
        );
        assert_eq!(
            decide(Some(&renewed), "a", &seen, later + Duration::from_secs(1)),
            Decision::Acquire
        );
    }

    /// Keeps a lease for so long, with an API server that is away at first and takes this long for each answer.
    async fn kept(away: Duration, slow: Duration, watched: Duration) -> Result<(), Lost> {
        let (client, mut server) = crate::testing::api();
        let holder = Holder::new(client, "ns", "ramen-operator", "a");
        let stop = CancellationToken::new();
        let began = Instant::now();
        let keep = async {
            tokio::select! {
                kept = holder.keep(&stop) => kept,
                () = tokio::time::sleep(watched) => Ok(()),
            }
        };
        let held = serde_json::to_value(lease(Some("a"), "1")).unwrap();
        let (kept, _) = server
            .serve_after(keep, slow, |asked| {
                if began.elapsed() < away {
                    let status = json!({ "kind": "Status", "status": "Failure", "code": 500 });
                    return (500, status);
                }
                if asked.verb == "GET" {
                    return (200, held.clone());
                }
                (200, asked.body.clone())
            })
            .await;
        kept
    }

    #[tokio::test(start_paused = true)]
    async fn an_api_server_that_comes_back_in_time_and_slowly_costs_no_lease() {
        // Each of the two answers of a turn takes more than half a second, whatever they say.
        let seconds = Duration::from_secs;
        let slow = Duration::from_millis(700);
        kept(seconds(7), slow, seconds(60)).await.unwrap();
        // One that is away for longer than a lease may be old has lost it.
        let lost = kept(seconds(30), slow, seconds(60)).await;
        assert!(lost.is_err_and(|lost| lost.to_string().contains("was lost")));
    }
}
