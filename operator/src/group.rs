//! One run for one `McpGroup`: `dereference` reads what it refers to, `validate` (pure) makes a group
//! that can be acted on, `rollout` steps the revision machine, `build` (pure) makes all children,
//! `apply` writes them, `status` tells how it went, on every path.

mod apply;
pub mod build;
mod context;
mod convergence;
mod dereference;
mod health;
mod rollout;
mod status;
mod tasks;
mod validate;
mod wake;

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use kube::ResourceExt as _;
use kube::core::DeserializeGuard;
use kube::runtime::controller::Action;
use ramen_crds::McpGroup;
use tokio::time::Instant;
use tracing::Instrument as _;

pub(crate) use self::apply::{Handed, REPLICAS};
pub(crate) use self::context::{Context, Operator, PodsBucket, State};
use self::dereference::Remembered;
use self::rollout::Rollout;
pub(crate) use self::tasks::Work;
use self::validate::Validated;
#[cfg(test)]
pub(crate) use self::validate::tests::{group as test_group, operator as test_operator};
pub(crate) use self::wake::{Runs, Wake};
use crate::error::Error;

/// What the watch gives: a group, or an object that is none.
pub(crate) type Guarded = DeserializeGuard<McpGroup>;

/// Namespace and name.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct GroupKey {
    /// The namespace.
    pub namespace: String,
    /// The name.
    pub name: String,
}

impl GroupKey {
    /// A key.
    pub fn new(namespace: impl Into<String>, name: impl Into<String>) -> Self {
        Self {
            namespace: namespace.into(),
            name: name.into(),
        }
    }
}

impl fmt::Display for GroupKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.namespace, self.name)
    }
}

/// Where a group stands. Waiting is a value, not an error.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Outcome {
    /// Wanted pods answer.
    Ready {
        /// Of the condition `Ready`.
        reason: &'static str,
        /// For people.
        message: String,
    },
    /// Something is under way, and will go on by itself.
    Progressing {
        /// Of the condition `Reconciling`.
        reason: &'static str,
        /// For people.
        message: String,
    },
    /// Nothing goes on before somebody changes something.
    Stalled {
        /// Of the condition `Stalled`.
        reason: &'static str,
        /// For people.
        message: String,
    },
}

impl Outcome {
    /// The word in metrics.
    fn state(&self) -> &'static str {
        match self {
            Self::Ready { .. } => "ready",
            Self::Progressing { .. } => "progressing",
            Self::Stalled { .. } => "stalled",
        }
    }
}

/// One run. Errors are in the status already when they are returned.
pub(crate) async fn reconcile(guarded: Arc<Guarded>, ctx: Arc<Context>) -> Result<Action, Error> {
    let group = match &guarded.0 {
        Ok(group) => group,
        Err(invalid) => {
            let meta = &invalid.metadata;
            tracing::warn!(
                group = meta.name.as_deref().unwrap_or_default(),
                namespace = meta.namespace.as_deref().unwrap_or_default(),
                error = invalid.error,
                "an object is no McpGroup; it is passed over"
            );
            let key = GroupKey::new(guarded.namespace().unwrap_or_default(), guarded.name_any());
            if meta.deletion_timestamp.is_none() && !ctx.knows_layers(&key) {
                recall(&ctx, &key, meta.uid.as_deref().unwrap_or_default()).await?;
            }
            return Ok(Action::await_change());
        }
    };
    let key = GroupKey::new(group.namespace().unwrap_or_default(), group.name_any());
    let span = tracing::info_span!(
        "reconcile",
        group = key.name,
        namespace = key.namespace,
        generation = group.metadata.generation
    );
    run(group, &key, &ctx).instrument(span).await
}

async fn run(group: &McpGroup, key: &GroupKey, ctx: &Arc<Context>) -> Result<Action, Error> {
    if group.metadata.deletion_timestamp.is_some() {
        ctx.forget(key);
        return Ok(Action::await_change());
    }
    let began = Instant::now();
    let state = ctx.state(key);
    let mut state = state.lock().await;
    state.begin(group.metadata.uid.as_deref().unwrap_or_default());
    let result = phases(group, key, ctx, &mut state).await;
    if result.is_err() || state.invalid.is_some() {
        status::look(ctx, group, key, &mut state);
    }
    let told = match &result {
        Err(error) if error.is_terminating() => Ok(()),
        result => status::write(ctx, group, key, &mut state, result.as_ref()).await,
    };
    let word = result.as_ref().map_or("error", Outcome::state);
    ctx.metrics.reconciled(word, began.elapsed());
    let rollout = state.rollout.as_ref();
    let fails = rollout.is_some_and(|rollout| rollout.trouble().is_some());
    state.counted.count(&ctx.metrics, word, fails);
    match (result, told) {
        (Err(error), _) if error.is_terminating() => Ok(Action::await_change()),
        (Err(error), _) | (Ok(_), Err(error)) => Err(error),
        (Ok(_), Ok(())) => {
            ctx.went_well(key);
            Ok(state
                .next_run()
                .map_or_else(Action::await_change, Action::requeue))
        }
    }
}

/// Reads what is remembered of a group. The layers that it needs stay from then on, whatever keeps it from being run.
async fn recall(ctx: &Context, key: &GroupKey, uid: &str) -> Result<Remembered, Error> {
    let remembered = dereference::remembered(ctx, key, uid).await?;
    if let Some(layers) = rollout::layers(&remembered) {
        ctx.keeps(key, layers);
    }
    Ok(remembered)
}

async fn phases(
    group: &McpGroup,
    key: &GroupKey,
    ctx: &Arc<Context>,
    state: &mut State,
) -> Result<Outcome, Error> {
    if state.rollout.is_none() {
        let uid = group.metadata.uid.as_deref().unwrap_or_default();
        let remembered = recall(ctx, key, uid).await?;
        state.rollout = Some(Rollout::load(key, &remembered)?);
    }
    let referenced = dereference::read(ctx, group, key, state).await?;
    let validated = match validate::validate(group, key, referenced.clone(), &ctx.operator) {
        Ok(validated) => Arc::new(validated),
        Err(invalid) => {
            let outcome = invalid.outcome();
            state.invalid = Some(invalid);
            if let Some(valid) = &state.valid {
                let held = valid.held(group, &referenced);
                hold(ctx, &held, state).await?;
            }
            return Ok(outcome);
        }
    };
    state.invalid = None;
    state.valid = Some(Arc::clone(&validated));
    let in_vain = ctx.work.artifacts.take_lost(key);
    let look = ctx.wake.take_look(key) | state.is_marked(group);
    let before = state.layers();
    let rollout = state.rollout()?;
    if let Some(serving) = rollout.looks_for(in_vain)
        && matches!(ctx.work.artifacts.holds(&serving).await, Ok(false))
    {
        rollout.lost();
    }
    let now = Instant::now();
    rollout.advance(&validated, &ctx.operator, look, now);
    let pods = ctx.pods.workers(key);
    let overdue = status::overdue(&ctx.caches, &validated);
    if rollout.observe(&validated, &pods, overdue.as_deref(), now) {
        ctx.metrics.rolled_back();
    }
    let children = build::build(&validated, &ctx.operator, &rollout.wanted()?);
    // Pods read the one or the other until all is written.
    ctx.keeps(key, [before, state.layers()].concat());
    let applied = apply::apply(ctx, &validated, children, &mut state.applied).await?;
    ctx.keeps(key, state.layers());
    // Saved by now: what is lost in a crash is asked for again at the next start.
    if let Some(rollout) = &mut state.rollout {
        rollout.act(&validated, &ctx.operator, &ctx.work, &ctx.wake);
    }
    Ok(status::outcome(ctx, group, &validated, state, &applied))
}

/// Keeps the children of a group that cannot be acted on as they were wanted last.
async fn hold(ctx: &Context, group: &Validated, state: &mut State) -> Result<(), Error> {
    let wanted = state.rollout()?.wanted()?;
    let children = build::build(group, &ctx.operator, &wanted);
    let applied = apply::apply(ctx, group, children, &mut state.applied).await;
    applied.map(drop)
}

/// What to do after an error: an object that is refused waits like all others, for longer each time.
#[expect(clippy::needless_pass_by_value, reason = "the controller calls it so")]
pub(crate) fn on_error(guarded: Arc<Guarded>, error: &Error, ctx: Arc<Context>) -> Action {
    let key = GroupKey::new(guarded.namespace().unwrap_or_default(), guarded.name_any());
    let pause = ctx.pause(&key);
    tracing::warn!(
        group = key.name,
        namespace = key.namespace,
        reason = error.category(),
        %error,
        retry_secs = pause.as_secs(),
        "a run failed"
    );
    Action::requeue(pause.max(Duration::from_millis(100)))
}

#[cfg(test)]
mod tests;
