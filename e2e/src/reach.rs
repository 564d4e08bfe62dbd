//! Finds the cluster that the tests run against, or says loudly that there is none.

use std::{env, fmt};

use anyhow::Context as _;
use kube::Client;

/// What a test needs; each tier has everything of those before it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Tier {
    /// etcd, API server, controller manager.
    T2,
    /// Real pods.
    T3,
    /// Network policies.
    T4,
}

impl Tier {
    fn from_number(number: &str) -> anyhow::Result<Self> {
        match number {
            "2" => Ok(Self::T2),
            "3" => Ok(Self::T3),
            "4" => Ok(Self::T4),
            other => anyhow::bail!("RAMEN_E2E_TIER is {other:?}, not 2, 3 or 4"),
        }
    }
}

impl fmt::Display for Tier {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(self, f)
    }
}

/// A cluster that tests may use.
#[derive(Clone)]
pub struct Cluster {
    /// As the administrator.
    pub client: Client,
    /// What it can do.
    pub tier: Tier,
}

impl Cluster {
    /// The cluster of `KUBECONFIG` when `RAMEN_E2E_TIER` says that it can do what the test needs. `None` is a skipped
    /// test, which was said. The variable guards everyone's own cluster: a kubeconfig
    /// alone is no permission to run tests in it.
    ///
    /// # Errors
    /// When a cluster is named and cannot be reached: that is a failure, not a reason to skip.
    pub async fn reach(needed: Tier) -> anyhow::Result<Option<Self>> {
        let Ok(number) = env::var("RAMEN_E2E_TIER") else {
            skip(needed, "no cluster: RAMEN_E2E_TIER is not set (make e2e)");
            return Ok(None);
        };
        let tier = Tier::from_number(&number)?;
        if tier < needed {
            skip(needed, &format!("the cluster can only do {tier}"));
            return Ok(None);
        }
        let client = Client::try_default()
            .await
            .context("KUBECONFIG names no cluster")?;
        client
            .apiserver_version()
            .await
            .context("the API server does not answer")?;
        Ok(Some(Self { client, tier }))
    }
}

fn skip(needed: Tier, why: &str) {
    ramen_skip::say(&format!("it needs {needed}: {why}"));
}
