//! Who may run what: the gate's admission, the application's policy, and the guard on what goes out.

use std::fmt;
use std::net::IpAddr;
use std::panic::AssertUnwindSafe;
use std::sync::Arc;

use futures::FutureExt as _;
use futures::future::BoxFuture;
use serde_json::Value;

use super::descriptor::Descriptor;
use super::error::OpError;
use crate::door::{Caller, Recheck, Verify};

/// What an operation knows of its request.
#[derive(Clone)]
pub struct Context {
    /// Who calls. Set by the endpoint.
    pub actor: Option<Caller>,
    /// What is asked before anything runs. Set by the endpoint.
    pub authorize: Option<Arc<dyn Authorize>>,
    /// Where the request came from.
    pub peer: IpAddr,
    /// The session that an agent says it acts in.
    pub agent_session: Option<String>,
}

impl fmt::Debug for Context {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Context")
            .field("actor", &self.actor)
            .field("peer", &self.peer)
            .field("agent_session", &self.agent_session)
            .finish_non_exhaustive()
    }
}

/// Whether a credential may use an operation at all.
pub trait Admit: Send + Sync {
    /// Judges.
    fn admit(&self, caller: &Caller, operation: &Descriptor) -> Result<(), OpError>;
}

/// The application's own policy.
pub trait Authorize: Send + Sync {
    /// Judges.
    fn authorize<'a>(
        &'a self,
        context: &'a Context,
        actor: &'a Caller,
        operation: &'a Descriptor,
    ) -> BoxFuture<'a, Result<(), OpError>>;
}

/// The policy that adds nothing to what the gate admits.
#[derive(Debug, Clone, Copy, Default)]
pub struct DefaultPolicy;

impl Authorize for DefaultPolicy {
    fn authorize<'a>(
        &'a self,
        _: &'a Context,
        _: &'a Caller,
        _: &'a Descriptor,
    ) -> BoxFuture<'a, Result<(), OpError>> {
        Box::pin(std::future::ready(Ok(())))
    }
}

/// What an answer discloses.
#[derive(Debug, Clone, Copy)]
pub enum Disclosed<'a> {
    /// The result of a call.
    Result(&'a Value),
    /// The operations that a list names.
    Operations(&'a [&'a Descriptor]),
}

/// Checks what an answer discloses as it goes out.
pub trait Guard: Send + Sync {
    /// Judges. The operation is absent for a list.
    fn check<'a>(
        &'a self,
        context: &'a Context,
        operation: Option<&'a Descriptor>,
        disclosed: Disclosed<'a>,
    ) -> BoxFuture<'a, Result<(), OpError>>;
}

/// The gate of the operations.
#[derive(Clone)]
pub struct Gate {
    /// Says who bears a credential.
    pub verify: Option<Arc<dyn Verify>>,
    /// Says what a credential may use.
    pub admit: Option<Arc<dyn Admit>>,
    /// Largest body of an answer, in bytes.
    pub max_response: usize,
}

impl fmt::Debug for Gate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Gate")
            .field("max_response", &self.max_response)
            .finish_non_exhaustive()
    }
}

/// What a gate lacks.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum GateError {
    /// Nobody says who bears a credential.
    #[error("the gate has no verifier")]
    NoVerify,
    /// Nobody says what a credential may use.
    #[error("the gate admits nobody: it has no admission")]
    NoAdmit,
    /// No answer fits.
    #[error("the gate lets no answer out: its largest response has no bytes")]
    NoResponse,
}

impl Gate {
    /// Whether it can judge anything.
    pub fn validate(&self) -> Result<(), GateError> {
        match self {
            Self { verify: None, .. } => Err(GateError::NoVerify),
            Self { admit: None, .. } => Err(GateError::NoAdmit),
            Self {
                max_response: 0, ..
            } => Err(GateError::NoResponse),
            _ => Ok(()),
        }
    }

    /// Who judges again as an answer goes out.
    pub fn rechecker(&self) -> Option<&dyn Recheck> {
        self.verify.as_deref().and_then(Verify::rechecker)
    }
}

/// What a check is for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Purpose {
    /// To name the operation in a list, which never needs a session.
    List,
    /// To run it.
    Call,
}

/// What the application does, and a panic of it is an internal error.
pub(super) async fn caught<T>(
    what: &'static str,
    run: impl Future<Output = Result<T, OpError>>,
) -> Result<T, OpError> {
    let caught = AssertUnwindSafe(run).catch_unwind().await;
    caught.unwrap_or_else(|_panic| Err(OpError::Internal(format!("{what} panicked").into())))
}

/// Admission, then policy, then the agent's session.
pub(super) async fn check(
    gate: &Gate,
    context: &Context,
    operation: &Descriptor,
    purpose: Purpose,
) -> Result<(), OpError> {
    caught("the check", judged(gate, context, operation, purpose)).await
}

async fn judged(
    gate: &Gate,
    context: &Context,
    operation: &Descriptor,
    purpose: Purpose,
) -> Result<(), OpError> {
    let (Some(admit), Some(actor), Some(authorize)) =
        (&gate.admit, &context.actor, &context.authorize)
    else {
        return Err(OpError::Internal(
            "an operation was checked without gate, actor or policy".into(),
        ));
    };
    admit.admit(actor, operation)?;
    authorize.authorize(context, actor, operation).await?;
    if purpose == Purpose::Call && operation.flags.agent_session && context.agent_session.is_none()
    {
        return Err(OpError::Forbidden(
            "name the session that you act in: send `Ramen-Agent-Session`".into(),
        ));
    }
    Ok(())
}
