//! Random walks through everything that can happen, against a model of the world.

use std::collections::HashSet;

use proptest::prelude::*;

use super::*;

/// What can happen to the world.
#[derive(Debug, Clone, Copy)]
enum Move {
    Push(u8),
    SetBack(u8),
    Poll,
    Finish,
    Disturb,
    Restart,
    Runtime(u8),
    Suspend(bool),
    Request,
    Unhealthy,
    Lose,
    RetryDue,
}

fn moves() -> impl Strategy<Value = Move> {
    prop_oneof![
        4 => (0..6u8).prop_map(Move::Push),
        1 => (0..6u8).prop_map(Move::SetBack),
        2 => Just(Move::Poll),
        12 => Just(Move::Finish),
        2 => Just(Move::Disturb),
        1 => Just(Move::Restart),
        1 => (0..3u8).prop_map(Move::Runtime),
        1 => any::<bool>().prop_map(Move::Suspend),
        1 => Just(Move::Request),
        1 => Just(Move::Unhealthy),
        1 => Just(Move::Lose),
        3 => Just(Move::RetryDue),
    ]
}

/// The world that the machine drives: a repository, a deploy step that judges by its inputs alone,
/// and workers.
#[derive(Default)]
struct World {
    memory: Memory,
    /// Tree of each commit.
    commits: Vec<u8>,
    head: usize,
    attempt: Option<Action>,
    restore: Option<Served>,
    /// What the workers have loaded.
    live: Option<Inputs>,
    /// Inputs that failed for good, or got sick, since somebody asked.
    bad: HashSet<Inputs>,
    store: HashSet<String>,
    requests: u32,
    served_once: bool,
    timers: usize,
}

impl World {
    /// 0: the deploy fails; 1: the load fails; else good.
    fn verdict(inputs: &Inputs) -> u8 {
        let number = |text: &str| text.bytes().fold(0u32, |sum, b| sum * 31 + u32::from(b));
        ((number(&inputs.tree) + 7 * number(&inputs.runtime)) % 4) as u8
    }

    fn head(&self) -> Revision {
        revision(&format!("c{}", self.head))
    }

    fn send(&mut self, event: Event) {
        let repairing = self.memory.lost;
        let news = matches!(event, Event::Observed(_) | Event::Configured(_));
        let before = self.memory.attempting.clone();
        let actions = step(&mut self.memory, event);
        if let Some(before) = before
            && news
            && self.memory.attempting.as_ref() != Some(&before)
        {
            // Given up for something newer: its end is not awaited any more.
            assert!(!before.repair && !matches!(before.stage, Stage::Reloading(_)));
            self.attempt = None;
        }
        for action in actions {
            match action {
                Action::Reload(served)
                    if self
                        .memory
                        .serving
                        .as_ref()
                        .is_some_and(|s| s.inputs == served.inputs)
                        && !self.is_candidate(&served) =>
                {
                    let same = matches!(
                        &self.attempt,
                        Some(Action::Reload(under_way)) if under_way.inputs == served.inputs
                    );
                    if same {
                        self.attempt = None;
                    }
                    self.restore = Some(*served);
                }
                Action::Fetch(_) | Action::Reload(_) => self.start(action),
                Action::Deploy { ref inputs, .. } => {
                    assert!(
                        !self.bad.contains(inputs) || repairing,
                        "tried again: {inputs:?}"
                    );
                    let serving = self.memory.serving.as_ref();
                    let serves = serving.is_some_and(|serving| serving.inputs == *inputs);
                    assert!(
                        !serves || repairing,
                        "deployed although it serves: {inputs:?}"
                    );
                    self.start(action);
                }
                Action::Prune(keep) => {
                    for served in self.memory.serving.iter().chain(&self.memory.previous) {
                        assert!(keep.contains(&served.desired.code), "{keep:?}");
                    }
                    self.store
                        .retain(|key| keep.iter().any(|layer| layer.key == *key));
                }
                Action::RetryAfter(_) => self.timers += 1,
                Action::Resolve | Action::Keep(_) => {}
            }
        }
        self.check();
    }

    fn is_candidate(&self, served: &Served) -> bool {
        matches!(
            self.memory.attempting.as_ref().map(|attempt| &attempt.stage),
            Some(Stage::Reloading(candidate)) if **candidate == *served
        )
    }

    fn start(&mut self, action: Action) {
        assert!(self.attempt.is_none(), "two attempts at once");
        self.attempt = Some(action);
    }

    fn check(&mut self) {
        assert_eq!(self.attempt.is_some(), self.memory.attempting.is_some());
        let saved = Memory {
            restoring: None,
            ..self.memory.clone()
        };
        assert_eq!(serde_roundtrip(&self.memory), saved);
        let serving = self.memory.serving.as_ref();
        self.served_once |= serving.is_some();
        assert_eq!(
            serving.is_some(),
            self.served_once,
            "the last good revision was given up"
        );
        if let Some(serving) = serving {
            assert!(Self::verdict(&serving.inputs) > 1, "something bad serves");
            if self.memory.restoring.is_none() && !self.memory.lost {
                assert_eq!(self.live.as_ref(), Some(&serving.inputs));
            }
            if !self.memory.lost && self.memory.restoring.is_none() {
                assert!(
                    self.store.contains(&serving.desired.code.key),
                    "a served layer is gone"
                );
            }
        }
    }

    fn lacks(&self, served: &Served) -> bool {
        !self.store.contains(&served.desired.code.key)
    }

    /// The action under way ends as it must.
    fn finish(&mut self) {
        if let Some(served) = self.restore.take() {
            if self.lacks(&served) {
                return self.send(Event::ReloadFailed(served.inputs, layer_gone()));
            }
            self.live = Some(served.inputs.clone());
            return self.send(Event::Reloaded(served.inputs));
        }
        let Some(action) = self.attempt.take() else {
            return;
        };
        match action {
            Action::Fetch(revision) => {
                let at: usize = revision.commit[1..].parse().unwrap();
                let tree = format!("t{}", self.commits[at]);
                self.store.insert(tree.clone());
                self.send(Event::Fetched(Fetched {
                    revision,
                    code: Some(layer(&tree)),
                    tree,
                }));
            }
            Action::Deploy { inputs, .. } => {
                self.store.insert(inputs.tree.clone());
                if Self::verdict(&inputs) == 0 {
                    self.bad.insert(inputs.clone());
                    self.send(Event::Deployed {
                        inputs,
                        outcome: Outcome::Failed,
                        desired: None,
                        failure: Some(failure(false)),
                    });
                } else {
                    self.send(deployed(&inputs));
                }
            }
            Action::Reload(served) => {
                let lacks = self.lacks(&served);
                let inputs = served.inputs;
                if lacks {
                    self.give_up_after_retries(&inputs);
                    self.send(Event::ReloadFailed(inputs, layer_gone()));
                } else if Self::verdict(&inputs) == 1 {
                    self.bad.insert(inputs.clone());
                    self.send(Event::ReloadFailed(inputs, failure(false)));
                } else {
                    self.live = Some(inputs.clone());
                    self.send(Event::Reloaded(inputs));
                }
            }
            other => panic!("not an attempt: {other:?}"),
        }
    }

    /// The action under way breaks off for reasons of the surroundings.
    fn disturb(&mut self) {
        match self.attempt.take() {
            None => {}
            Some(Action::Fetch(revision)) => {
                self.send(Event::FetchFailed(revision, failure(true)));
            }
            Some(Action::Deploy { inputs, .. }) => {
                self.give_up_after_retries(&inputs);
                self.send(Event::DeployFailed(inputs, failure(true)));
            }
            Some(Action::Reload(served)) => {
                self.give_up_after_retries(&served.inputs);
                self.send(Event::ReloadFailed(served.inputs, failure(true)));
            }
            Some(other) => panic!("not an attempt: {other:?}"),
        }
    }

    fn give_up_after_retries(&mut self, inputs: &Inputs) {
        let times = self.memory.retry.as_ref().map_or(0, |retry| retry.times);
        let repair = self
            .memory
            .attempting
            .as_ref()
            .is_some_and(|attempt| attempt.repair);
        if times >= self.memory.settings.max_retries && !repair {
            self.bad.insert(inputs.clone());
        }
    }

    fn apply(&mut self, change: Move) {
        match change {
            Move::Push(tree) => {
                self.commits.push(tree);
                self.head = self.commits.len() - 1;
                self.send(Event::Observed(self.head()));
            }
            Move::SetBack(by) => {
                self.head = self.head.saturating_sub(usize::from(by));
                if !self.commits.is_empty() {
                    self.send(Event::Observed(self.head()));
                }
            }
            Move::Poll if self.commits.is_empty() => {}
            Move::Poll => self.send(Event::Observed(self.head())),
            Move::Finish => self.finish(),
            Move::Disturb => self.disturb(),
            Move::Restart => {
                self.attempt = None;
                self.restore = None;
                self.timers = 0;
                self.send(Event::Restarted);
            }
            Move::Runtime(runtime) => {
                let settings = Settings {
                    runtime: format!("r{runtime}"),
                    ..self.memory.settings.clone()
                };
                self.send(Event::Configured(settings));
            }
            Move::Suspend(suspended) => {
                let settings = Settings {
                    suspended,
                    ..self.memory.settings.clone()
                };
                self.send(Event::Configured(settings));
            }
            Move::Request => {
                self.requests += 1;
                self.bad.clear();
                self.send(Event::Requested(self.requests.to_string()));
            }
            Move::Unhealthy => {
                if let Some(serving) = self.memory.serving.clone()
                    && self.restore.is_none()
                {
                    if self
                        .memory
                        .previous
                        .iter()
                        .any(|p| self.memory.failure(&p.inputs).is_none())
                    {
                        self.bad.insert(serving.inputs.clone());
                    }
                    self.send(Event::Unhealthy(serving.inputs, failure(false)));
                }
            }
            Move::Lose => {
                if let Some(serving) = &self.memory.serving {
                    self.store.remove(&serving.desired.code.key);
                    self.send(Event::LayerLost);
                }
            }
            Move::RetryDue => {
                self.timers = self.timers.saturating_sub(1);
                self.send(Event::RetryDue);
            }
        }
    }

    /// Everything that is under way ends, every pause runs out.
    fn settle(&mut self) {
        self.apply(Move::Suspend(false));
        self.apply(Move::Poll);
        for _ in 0..200 {
            if self.attempt.is_some() || self.restore.is_some() {
                self.finish();
            } else if self
                .memory
                .retry
                .as_ref()
                .is_some_and(|retry| retry.waiting)
                || self
                    .memory
                    .restoring
                    .as_ref()
                    .is_some_and(|restore| restore.waiting)
            {
                assert!(self.timers > 0, "a pause that nobody ends");
                self.apply(Move::RetryDue);
            } else {
                return;
            }
        }
        panic!("it never settles");
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 400, ..ProptestConfig::default() })]

    #[test]
    fn random_walks_keep_the_promises(walk in proptest::collection::vec(moves(), 1..120)) {
        let mut world = World::default();
        for change in walk {
            world.apply(change);
        }
        world.settle();
        if world.commits.is_empty() {
            return Ok(());
        }
        let memory = &world.memory;
        prop_assert_eq!(memory.observed.as_ref(), Some(&world.head()));
        let wanted = memory.inputs(&format!("t{}", world.commits[world.head]));
        let serves = memory.serving.as_ref().is_some_and(|serving| serving.inputs == wanted);
        prop_assert!(
            serves || world.bad.contains(&wanted),
            "the newest revision was lost: {:?}", memory
        );
        prop_assert!(!memory.lost, "a lost layer was never made again");
        prop_assert_eq!(&memory.restoring, &None);
    }
}
