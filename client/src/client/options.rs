//! What a caller chooses, and what it is told.

use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;

use futures::future::BoxFuture;
use ramen_mcp::model::Json;
use tokio::sync::mpsc;

use crate::cache::Cache;
use crate::guard::Guard;
use crate::limits::Limits;
use crate::oauth::SignIn;

/// What a connection needs beside its configuration.
#[derive(Clone, Debug, Default)]
pub struct Options {
    /// The bounds.
    pub limits: Limits,
    /// Where lists of tools are remembered; also which era a server spoke last.
    pub cache: Option<Cache>,
    /// Who answers what a server asks of a person. Without one that ability is not declared.
    pub person: Option<Elicit>,
    /// How a server that wants a sign-in gets one.
    pub sign_in: Option<SignIn>,
    /// Which addresses may be connected to; any when left out.
    pub addresses: Option<Addresses>,
    /// What ends servers that are programs, with all that they started, when this one is killed.
    pub guard: Option<Guard>,
}

/// Which addresses may be connected to. A name is looked up, every address that it has is judged, and the connection goes
/// to one of those: what the name has a moment later does not matter. Redirects are not followed.
#[derive(Clone)]
pub struct Addresses(Arc<dyn Fn(IpAddr) -> bool + Send + Sync>);

impl Addresses {
    /// Those for which this holds.
    pub fn new(allow: impl Fn(IpAddr) -> bool + Send + Sync + 'static) -> Self {
        Self(Arc::new(allow))
    }

    /// Whether it is one of them.
    pub(crate) fn allow(&self, address: IpAddr) -> bool {
        (self.0)(address)
    }
}

impl std::fmt::Debug for Addresses {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Addresses")
    }
}

/// Answers `elicitation/create`: its parameters in, its result (`{"action": ..}`) out.
#[derive(Clone)]
pub struct Elicit(Arc<dyn Fn(Json) -> BoxFuture<'static, Json> + Send + Sync>);

impl Elicit {
    /// Asks with this function.
    pub fn new<F, A>(ask: F) -> Self
    where
        F: Fn(Json) -> A + Send + Sync + 'static,
        A: Future<Output = Json> + Send + 'static,
    {
        Self(Arc::new(move |question| Box::pin(ask(question))))
    }

    pub(crate) fn ask(&self, question: Json) -> BoxFuture<'static, Json> {
        (self.0)(question)
    }
}

impl std::fmt::Debug for Elicit {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Elicit")
    }
}

/// How one request is made.
#[derive(Clone, Debug, Default)]
pub struct CallOptions {
    /// How long it may take; the configuration's or the default when left out.
    pub timeout: Option<Duration>,
    /// Where progress goes. What does not fit into the channel is left out.
    pub progress: Option<mpsc::Sender<Progress>>,
}

/// How far a request is.
#[derive(Clone, Debug, PartialEq)]
pub struct Progress {
    /// Rises with each report.
    pub progress: f64,
    /// Where it will end, when that is known.
    pub total: Option<f64>,
    /// What is being done.
    pub message: Option<String>,
}

/// How often each list was seen to change. For tools it counts once the new list can be had from [`crate::Client::tools`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Updates {
    /// The tools.
    pub tools: u64,
    /// The prompts.
    pub prompts: u64,
    /// The resources.
    pub resources: u64,
}
