//! Phase five: tells how it went, on every path, and only when it differs from what is told already.

mod conditions;
mod view;
mod zones;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::{Condition, Time};
use k8s_openapi::jiff::Timestamp;
use kube::api::{Patch, PatchParams};
use kube::runtime::events::{Event, EventType};
use kube::{Api, Resource as _};
use ramen_crds::{McpGroup, McpGroupStatus, ZoneStatus};
use serde_json::json;

pub(crate) use self::view::View;
pub(crate) use self::zones::{ZoneView, overdue};
use super::build::{Children, Written};
use super::validate::{Invalid, Validated};
use super::{Context, GroupKey, Outcome, State};
use crate::error::Error;
use crate::{names, reasons};

/// Looks how the pods of a group are, whatever has become of its run.
pub(super) fn look(ctx: &Context, group: &McpGroup, key: &GroupKey, state: &mut State) {
    let pods = ctx.pods.workers(key);
    let rollout = state.rollout.as_ref();
    let mut zones = match &state.valid {
        Some(valid) => zones::see(&ctx.caches, valid, &pods, rollout),
        None => zones::live(&ctx.caches, key, &pods, rollout),
    };
    if let Some(rollout) = rollout {
        let told = state.status.as_ref().or(group.status.as_ref());
        let told = told.filter(|told| view::is_about(told, rollout.memory()));
        let told: &[ZoneStatus] = match told {
            Some(told) => &told.zones,
            None => &[],
        };
        zones::converge(&mut zones, &pods, rollout.convergence(), told);
    }
    state.zones = zones;
    state.hurdle = ctx.pods.hurdle(key);
}

/// Where the group stands after a run that went through.
pub(super) fn outcome(
    ctx: &Context,
    group: &McpGroup,
    valid: &Validated,
    state: &mut State,
    _written: &Children<Written>,
) -> Outcome {
    look(ctx, group, &valid.key, state);
    state.faults.clone_from(&valid.faults);
    View::of(state).map_or(
        Outcome::Progressing {
            reason: reasons::STARTING,
            message: "nothing is known yet".to_owned(),
        },
        |view| view.outcome(),
    )
}

/// Writes the status of a run, when it differs.
pub(super) async fn write(
    ctx: &Context,
    group: &McpGroup,
    key: &GroupKey,
    state: &mut State,
    result: Result<&Outcome, &Error>,
) -> Result<(), Error> {
    // What stalls a group stays told while the API server does not answer.
    let stalled = state.invalid.as_ref().map(Invalid::outcome);
    let result = match (&stalled, result) {
        (Some(outcome), Err(_)) => Ok(outcome),
        (_, result) => result,
    };
    let told = group.status.clone().unwrap_or_default();
    // What was written last may not have come back through the watch yet.
    let before = state.status.clone().unwrap_or_else(|| told.clone());
    let status = compute(group, state, &before, result, &now());
    if status == told || (state.status.as_ref() == Some(&status) && told == before) {
        state.status = Some(status);
        return Ok(());
    }
    let api: Api<McpGroup> = Api::namespaced(ctx.client.clone(), &key.namespace);
    let body = json!({
        "apiVersion": McpGroup::api_version(&()),
        "kind": McpGroup::kind(&()),
        "metadata": {"name": key.name},
        "status": status,
    });
    let params = PatchParams::apply(names::STATUS_MANAGER).force();
    match api
        .patch_status(&key.name, &params, &Patch::Apply(&body))
        .await
    {
        Ok(_) => {}
        // Removed meanwhile.
        Err(kube::Error::Api(status)) if status.code == 404 => return Ok(()),
        Err(source) => {
            return Err(Error::Api {
                verb: "write the status of",
                object: format!("McpGroup {key}"),
                source: Box::new(source),
            });
        }
    }
    ctx.metrics.wrote("McpGroup", "status");
    announce(ctx, group, &before, &status, result.is_err()).await;
    state.status = Some(status);
    Ok(())
}

/// The time as a status holds it: whole seconds.
fn now() -> Time {
    let now = Timestamp::now();
    Time(Timestamp::from_second(now.as_second()).unwrap_or(now))
}

/// The status that follows; deterministic but for the time of a condition that flips.
fn compute(
    group: &McpGroup,
    state: &State,
    before: &McpGroupStatus,
    result: Result<&Outcome, &Error>,
    now: &Time,
) -> McpGroupStatus {
    let generation = group.metadata.generation;
    let view = View::of(state);
    // What is not known in this process yet stays as it was told.
    let mut status = view.as_ref().map_or_else(|| before.clone(), View::status);
    status.observed_generation = generation;
    if let Some(invalid) = &state.invalid {
        view::tell_first(&mut status, invalid);
    }
    let conditions = conditions::all(view.as_ref(), result, &before.conditions);
    status.conditions = merge(&before.conditions, conditions, generation, now);
    status
}

/// Takes the time of the last change over from what was told before.
fn merge(
    before: &[Condition],
    conditions: Vec<conditions::Told>,
    generation: Option<i64>,
    now: &Time,
) -> Vec<Condition> {
    let conditions = conditions.into_iter().map(|told| {
        let same = before
            .iter()
            .find(|old| old.type_ == told.kind && old.status == told.status);
        Condition {
            type_: told.kind.to_owned(),
            status: told.status.to_owned(),
            reason: told.reason,
            message: told.message,
            observed_generation: generation,
            last_transition_time: same.map_or(now, |old| &old.last_transition_time).clone(),
        }
    });
    conditions.collect()
}

/// Events on transitions only.
async fn announce(
    ctx: &Context,
    group: &McpGroup,
    before: &McpGroupStatus,
    after: &McpGroupStatus,
    failed: bool,
) {
    let find = |status: &McpGroupStatus, kind: &str| {
        let found = status
            .conditions
            .iter()
            .find(|condition| condition.type_ == kind);
        found.cloned()
    };
    // Of a group that serves, nothing else tells that its runs fail.
    let serves = find(after, conditions::READY).is_some_and(|ready| ready.status == "True");
    let runs = (failed && serves).then_some(conditions::RECONCILING);
    let kinds = [
        conditions::READY,
        conditions::SOURCE_FETCHED,
        conditions::DEPLOYED,
        conditions::STALLED,
    ];
    for kind in kinds.into_iter().chain(runs) {
        let Some(new) = find(after, kind) else {
            continue;
        };
        let old = find(before, kind);
        let same = |old: &Condition| old.status == new.status && old.reason == new.reason;
        // What is under way is told by the condition; it would only fill the list.
        if new.status == "Unknown" || old.as_ref().is_some_and(same) {
            continue;
        }
        // The first look is told by what comes of it.
        let unknown = old.as_ref().is_none_or(|old| old.status == "Unknown");
        if kind == conditions::SOURCE_FETCHED && new.status == "True" && unknown {
            continue;
        }
        let was_good = old.is_some_and(|old| old.status == "True");
        let warning = match kind {
            conditions::STALLED | conditions::RECONCILING => true,
            conditions::DEPLOYED | conditions::SOURCE_FETCHED => new.status == "False",
            _ => failed || (new.status == "False" && was_good),
        };
        let event = Event {
            type_: if warning {
                EventType::Warning
            } else {
                EventType::Normal
            },
            reason: new.reason,
            note: Some(super::rollout::cut(&new.message, 1000)),
            action: kind.to_owned(),
            secondary: None,
        };
        if let Err(error) = ctx.recorder.publish(&event, &group.object_ref(&())).await {
            tracing::debug!(%error, "an event was not taken");
        }
    }
}

#[cfg(test)]
mod tests;
