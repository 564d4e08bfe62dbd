//! The transitions.

use ramen_group::{DesiredState, Outcome, Reason};

use crate::event::{Action, Event, Failure, Kept};
use crate::memory::{
    Attempt, Failed, Fetched, Inputs, Memory, Restore, Retry, Revision, Served, Settings, Stage,
};

/// Takes one step.
pub fn step(memory: &mut Memory, event: Event) -> Vec<Action> {
    let mut actions = Vec::new();
    match event {
        Event::Restarted => restarted(memory, &mut actions),
        Event::Configured(settings) => configured(memory, settings, &mut actions),
        Event::Observed(revision) => observed(memory, revision, &mut actions),
        Event::Fetched(fetched) => on_fetched(memory, &fetched, &mut actions),
        Event::FetchFailed(revision, failure) => {
            if memory.attempts(&revision.commit) {
                let inputs = memory.unread(&revision.commit);
                broke_off(memory, inputs, failure, None, &mut actions);
            }
        }
        Event::Deployed {
            inputs,
            outcome,
            desired,
            failure,
        } => {
            on_deployed(memory, inputs, outcome, desired, failure, &mut actions);
        }
        Event::DeployFailed(inputs, failure) => {
            if memory.deploys(&inputs) {
                let limit = memory.settings.max_retries;
                broke_off(memory, inputs, failure, Some(limit), &mut actions);
            }
        }
        Event::Reloaded(inputs) => reloaded(memory, &inputs, &mut actions),
        Event::ReloadFailed(inputs, failure) => {
            reload_failed(memory, inputs, failure, &mut actions);
        }
        Event::Unhealthy(inputs, failure) => {
            unhealthy(memory, &inputs, &failure, &mut actions);
        }
        Event::LayerLost => {
            memory.lost = memory.serving.is_some();
            next(memory, &mut actions);
        }
        Event::Access => {
            forget_unread(memory);
            memory.retry = None;
            actions.push(Action::Resolve);
            next(memory, &mut actions);
        }
        Event::Requested(token) => {
            if memory.requested.as_deref() != Some(&token) {
                memory.requested = Some(token);
                memory.failed.clear();
                memory.retry = None;
                actions.push(Action::Resolve);
                next(memory, &mut actions);
            }
        }
        Event::RetryDue => {
            if memory
                .restoring
                .as_ref()
                .is_some_and(|restore| restore.waiting)
            {
                restore(memory, &mut actions);
            }
            if let Some(retry) = &mut memory.retry {
                retry.waiting = false;
                next(memory, &mut actions);
            }
        }
    }
    actions
}

impl Memory {
    fn attempts(&self, commit: &str) -> bool {
        self.attempting.as_ref().is_some_and(|attempt| {
            attempt.revision.commit == commit && attempt.stage == Stage::Fetching
        })
    }

    fn deploys(&self, inputs: &Inputs) -> bool {
        self.attempting
            .as_ref()
            .is_some_and(|attempt| attempt.stage == Stage::Deploying(inputs.clone()))
    }

    fn reloads(&self, inputs: &Inputs) -> bool {
        match self.attempting.as_ref().map(|attempt| &attempt.stage) {
            Some(Stage::Reloading(candidate)) => candidate.inputs == *inputs,
            _ => false,
        }
    }
}

/// Attempts that are given up in a row: where pushes come faster than a deploy ends, one must end at last.
const MAX_SUPERSEDED: u32 = 3;

/// Gives up an attempt that can bring only what is not wanted any more: one that hangs must not hold up
/// the push that repairs it. What is being loaded, or made again for what serves, is not given up.
fn supersede(memory: &mut Memory, given_others: bool) {
    let Some(attempt) = &memory.attempting else {
        return;
    };
    let moved = memory
        .observed
        .as_ref()
        .is_none_or(|observed| observed.commit != attempt.revision.commit);
    let stale = match &attempt.stage {
        Stage::Fetching => moved,
        Stage::Deploying(inputs) => moved || given_others || *inputs != memory.inputs(&inputs.tree),
        Stage::Reloading(_) => false,
    };
    if !stale || attempt.repair || memory.settings.suspended || memory.superseded >= MAX_SUPERSEDED
    {
        return;
    }
    memory.superseded += 1;
    memory.attempting = None;
}

/// Starts whatever comes next, or says why nothing does.
fn next(memory: &mut Memory, actions: &mut Vec<Action>) {
    if memory.attempting.is_some() {
        return actions.push(Action::Keep(Kept::Busy));
    }
    if memory.settings.suspended {
        return actions.push(Action::Keep(Kept::Suspended));
    }
    let kept = match memory.observed.clone() {
        None => Kept::NothingObserved,
        Some(target) => match consider(memory, target, actions) {
            None => return,
            Some(kept) => kept,
        },
    };
    // Whatever is newer comes first: once it serves, what was lost matters no more.
    if memory.lost
        && kept != Kept::Waiting
        && let Some(serving) = &memory.serving
    {
        let target = serving.revision.clone();
        if waiting_for(memory, &target) {
            return actions.push(Action::Keep(Kept::Waiting));
        }
        return fetch(memory, target, true, actions);
    }
    actions.push(Action::Keep(kept));
}

/// Whether a pause for this revision is not over; a pause for another one is forgotten.
fn waiting_for(memory: &mut Memory, target: &Revision) -> bool {
    match &memory.retry {
        Some(retry) if retry.commit == target.commit => retry.waiting,
        _ => {
            memory.retry = None;
            false
        }
    }
}

/// Starts what the observed revision needs, or says why it needs nothing. No attempt is under way.
fn consider(memory: &mut Memory, target: Revision, actions: &mut Vec<Action>) -> Option<Kept> {
    let known = memory
        .newest
        .as_ref()
        .filter(|newest| newest.revision.commit == target.commit);
    let Some(known) = known.cloned() else {
        if let Some(failed) = memory.failure(&memory.unread(&target.commit)) {
            return Some(Kept::Failed(Box::new(failed.clone())));
        }
        if waiting_for(memory, &target) {
            return Some(Kept::Waiting);
        }
        fetch(memory, target, false, actions);
        return None;
    };
    let known = Fetched {
        revision: target,
        ..known
    };
    memory.newest = Some(known.clone());
    let inputs = memory.inputs(&known.tree);
    if let Some(serving) = &mut memory.serving
        && serving.inputs == inputs
    {
        if serving.revision == known.revision {
            return Some(Kept::UpToDate);
        }
        serving.revision = known.revision.clone();
        serving.desired.revision.clone_from(&known.revision.label);
        return Some(Kept::SameTree);
    }
    if let Some(failed) = memory.failure(&inputs) {
        return Some(Kept::Failed(Box::new(failed.clone())));
    }
    if waiting_for(memory, &known.revision) {
        return Some(Kept::Waiting);
    }
    // The way back, or another try to load it: it was deployed before and its layers were kept.
    if let Some(ready) = memory
        .previous
        .iter()
        .chain(&memory.candidate)
        .find(|served| served.inputs == inputs)
    {
        let mut candidate = ready.clone();
        candidate.revision = known.revision.clone();
        candidate.desired.revision.clone_from(&known.revision.label);
        reload(memory, candidate, false, actions);
    } else {
        deploy(memory, &known, inputs, false, actions);
    }
    None
}

fn fetch(memory: &mut Memory, target: Revision, repair: bool, actions: &mut Vec<Action>) {
    memory.attempting = Some(Attempt {
        revision: target.clone(),
        stage: Stage::Fetching,
        repair,
    });
    actions.push(Action::Fetch(target));
}

fn deploy(
    memory: &mut Memory,
    fetched: &Fetched,
    inputs: Inputs,
    repair: bool,
    actions: &mut Vec<Action>,
) {
    memory.attempting = Some(Attempt {
        revision: fetched.revision.clone(),
        stage: Stage::Deploying(inputs.clone()),
        repair,
    });
    actions.push(Action::Deploy {
        revision: fetched.revision.clone(),
        inputs,
        code: fetched.code.clone(),
    });
}

fn reload(memory: &mut Memory, candidate: Served, repair: bool, actions: &mut Vec<Action>) {
    let candidate = Box::new(candidate);
    memory.attempting = Some(Attempt {
        revision: candidate.revision.clone(),
        stage: Stage::Reloading(candidate.clone()),
        repair,
    });
    actions.push(Action::Reload(candidate));
}

/// The attempt is over: look whether something newer waits, and sweep when nothing does.
fn ended(memory: &mut Memory, kept: Option<Kept>, actions: &mut Vec<Action>) {
    memory.attempting = None;
    let said = kept.is_some();
    actions.extend(kept.map(Action::Keep));
    let before = actions.len();
    next(memory, actions);
    // Say why once.
    let settled = |action: Option<&Action>| {
        matches!(
            action,
            Some(Action::Keep(
                Kept::UpToDate | Kept::Failed(_) | Kept::SameTree
            ))
        )
    };
    if said && settled(actions.get(before)) {
        actions.truncate(before);
    }
    if memory.attempting.is_none() {
        actions.push(Action::Prune(memory.keep()));
    }
}

fn restarted(memory: &mut Memory, actions: &mut Vec<Action>) {
    memory.attempting = None;
    memory.retry = None;
    memory.restoring = None;
    // The credentials may have been changed meanwhile.
    forget_unread(memory);
    restore(memory, actions);
    next(memory, actions);
}

/// Loads what serves, again.
fn restore(memory: &mut Memory, actions: &mut Vec<Action>) {
    if let Some(serving) = &memory.serving {
        let times = memory.restoring.take().map_or(0, |restore| restore.times);
        memory.restoring = Some(Restore {
            times,
            waiting: false,
        });
        actions.push(Action::Reload(Box::new(serving.clone())));
    }
}

/// Forgets failures of commits of which not even the tree could be read.
fn forget_unread(memory: &mut Memory) {
    memory
        .failed
        .retain(|failed| !failed.inputs.tree.starts_with("commit "));
}

fn configured(memory: &mut Memory, settings: Settings, actions: &mut Vec<Action>) {
    memory.previous.truncate(settings.history);
    let before = std::mem::replace(&mut memory.settings, settings);
    if before != memory.settings {
        memory.retry = None;
    }
    if before.source != memory.settings.source {
        memory.observed = None;
        memory.newest = None;
        forget_unread(memory);
        actions.push(Action::Resolve);
    }
    // Secrets that come or go are named in the spec, which makes other inputs.
    let given = (&before.secrets, &memory.settings.secrets);
    let given_others = matches!(given, (Some(before), Some(now)) if before != now);
    if given_others {
        // What was taken back had been deployed with good values: only a change of its own, or being asked for, brings it
        // back.
        memory.failed.retain(|failed| failed.served);
    }
    supersede(memory, given_others);
    next(memory, actions);
}

fn observed(memory: &mut Memory, revision: Revision, actions: &mut Vec<Action>) {
    memory.observed = Some(revision);
    supersede(memory, false);
    next(memory, actions);
}

fn on_fetched(memory: &mut Memory, fetched: &Fetched, actions: &mut Vec<Action>) {
    if !memory.attempts(&fetched.revision.commit) {
        return;
    }
    let repair = memory
        .attempting
        .take()
        .is_some_and(|attempt| attempt.repair);
    if let Some(serving) = &memory.serving
        && repair
        && memory.lost
        && serving.inputs.tree == fetched.tree
    {
        let inputs = serving.inputs.clone();
        return deploy(memory, fetched, inputs, true, actions);
    }
    let is_observed = |memory: &Memory| {
        memory
            .observed
            .as_ref()
            .is_some_and(|o| o.commit == fetched.revision.commit)
    };
    if is_observed(memory) || memory.newest.is_none() {
        memory.newest = Some(fetched.clone());
    }
    ended(memory, None, actions);
}

fn on_deployed(
    memory: &mut Memory,
    inputs: Inputs,
    outcome: Outcome,
    desired: Option<DesiredState>,
    failure: Option<Failure>,
    actions: &mut Vec<Action>,
) {
    if !memory.deploys(&inputs) {
        return;
    }
    let Some(attempt) = memory.attempting.clone() else {
        return;
    };
    memory.superseded = 0;
    if memory.failure(&inputs).is_some() {
        // It served, and was found to be bad while its layers were made again.
        return ended(memory, None, actions);
    }
    let Some(mut desired) = desired.filter(|_| outcome != Outcome::Failed) else {
        let failure = failure.unwrap_or_else(|| Failure {
            reason: Reason::NothingToServe,
            message: "nothing of the revision can be served".to_owned(),
            transient: false,
        });
        let limit = memory.settings.max_retries;
        return broke_off(memory, inputs, failure, Some(limit), actions);
    };
    memory.retry = None;
    // The deploy may have begun for an earlier commit of the same tree.
    desired.revision.clone_from(&attempt.revision.label);
    let candidate = Served {
        revision: attempt.revision,
        inputs,
        desired,
    };
    memory.candidate = Some(candidate.clone());
    reload(memory, candidate, attempt.repair, actions);
}

/// An attempt failed: for good, or for now.
fn broke_off(
    memory: &mut Memory,
    inputs: Inputs,
    failure: Failure,
    limit: Option<u32>,
    actions: &mut Vec<Action>,
) {
    let Some(attempt) = memory.attempting.take() else {
        return;
    };
    memory.superseded = 0;
    let times = match &memory.retry {
        Some(retry) if retry.commit == attempt.revision.commit => retry.times + 1,
        _ => 1,
    };
    // What did not even run says nothing about the revision.
    let limit = limit.filter(|_| failure.reason != Reason::DeployJobRefused);
    if failure.transient && (attempt.repair || limit.is_none_or(|limit| times <= limit)) {
        let retry = Retry {
            commit: attempt.revision.commit,
            times,
            waiting: true,
        };
        actions.push(Action::RetryAfter(retry.delay()));
        memory.retry = Some(retry);
        return next(memory, actions);
    }
    if attempt.repair {
        // It cannot be made again (a commit that is gone): go back if there is a way back, and do
        // not stand in the way of what comes.
        memory.lost = false;
        memory.retry = None;
        let serving = memory
            .serving
            .as_ref()
            .map(|serving| serving.inputs.clone());
        if let Some(serving) = serving
            && unhealthy(memory, &serving, &failure, actions)
        {
            return;
        }
        return ended(memory, None, actions);
    }
    memory.retry = None;
    if memory
        .candidate
        .as_ref()
        .is_some_and(|candidate| candidate.inputs == inputs)
    {
        memory.candidate = None;
    }
    let failed = Failed {
        inputs,
        revision: attempt.revision,
        reason: failure.reason,
        message: failure.message,
        served: false,
    };
    memory.remember_failure(failed.clone());
    ended(memory, Some(Kept::Failed(Box::new(failed))), actions);
}

fn reloaded(memory: &mut Memory, inputs: &Inputs, actions: &mut Vec<Action>) {
    if memory
        .serving
        .as_ref()
        .is_some_and(|serving| serving.inputs == *inputs)
    {
        memory.restoring = None;
    }
    if !memory.reloads(inputs) {
        return;
    }
    if memory.failure(inputs).is_some() {
        // Loaded, but found to be bad meanwhile.
        restore(memory, actions);
        return ended(memory, None, actions);
    }
    let Some(Attempt {
        stage: Stage::Reloading(candidate),
        ..
    }) = memory.attempting.take()
    else {
        return;
    };
    memory.retry = None;
    memory.lost = false;
    memory.restoring = None;
    memory.candidate = None;
    memory.previous.retain(|served| served.inputs != *inputs);
    if let Some(before) = memory.serving.replace(*candidate)
        && before.inputs != *inputs
    {
        memory.previous.insert(0, before);
    }
    memory.previous.truncate(memory.settings.history);
    ended(memory, None, actions);
}

fn reload_failed(memory: &mut Memory, inputs: Inputs, failure: Failure, actions: &mut Vec<Action>) {
    let layer_gone = matches!(failure.reason, Reason::LayerMissing | Reason::LayerCorrupt);
    if memory.reloads(&inputs) {
        let failure = Failure {
            transient: failure.transient || layer_gone,
            ..failure
        };
        if layer_gone {
            // Made again from the start.
            memory.candidate = None;
            memory.previous.retain(|served| served.inputs != inputs);
            memory.newest = None;
        }
        let limit = memory.settings.max_retries;
        return broke_off(memory, inputs, failure, Some(limit), actions);
    }
    // What serves could not be loaded again, after a restart or a roll back.
    let serves = memory
        .serving
        .as_ref()
        .is_some_and(|serving| serving.inputs == inputs);
    if !serves || memory.restoring.is_none() {
        return;
    }
    if layer_gone {
        memory.restoring = None;
        memory.lost = true;
        return next(memory, actions);
    }
    if !failure.transient && unhealthy(memory, &inputs, &failure, actions) {
        return;
    }
    // Nothing better is known: go on trying.
    let times = memory.restoring.take().map_or(0, |restore| restore.times) + 1;
    let pause = Restore {
        times,
        waiting: true,
    };
    actions.push(Action::RetryAfter(pause.delay()));
    memory.restoring = Some(pause);
}

/// Rolls back to the newest revision that is not known to be bad; false when there is none, or when it is
/// not wanted.
fn unhealthy(
    memory: &mut Memory,
    inputs: &Inputs,
    failure: &Failure,
    actions: &mut Vec<Action>,
) -> bool {
    let Some(serving) = memory
        .serving
        .as_ref()
        .filter(|serving| serving.inputs == *inputs)
    else {
        return false;
    };
    let failed = Failed {
        inputs: inputs.clone(),
        revision: serving.revision.clone(),
        reason: failure.reason,
        message: failure.message.clone(),
        served: true,
    };
    let good = memory
        .previous
        .iter()
        .position(|served| memory.failure(&served.inputs).is_none())
        .filter(|_| memory.settings.auto_rollback);
    let Some(good) = good else {
        actions.push(Action::Keep(Kept::Failed(Box::new(failed))));
        return false;
    };
    memory.remember_failure(failed.clone());
    let before = memory.previous.remove(good);
    if memory.reloads(&before.inputs) {
        // On its way already: one order, one answer.
        memory.attempting = None;
    }
    memory.serving = Some(before);
    memory.lost = false;
    memory.restoring = None;
    actions.push(Action::Keep(Kept::RolledBack(Box::new(failed))));
    restore(memory, actions);
    if memory.attempting.is_none() {
        next(memory, actions);
    }
    true
}
