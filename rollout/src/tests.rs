use ramen_group::{DesiredState, LayerRef, Outcome, Reason};

use crate::*;

mod walk;

fn revision(commit: &str) -> Revision {
    Revision {
        commit: commit.to_owned(),
        label: format!("main@{commit}"),
    }
}

fn layer(key: &str) -> LayerRef {
    LayerRef {
        key: key.to_owned(),
        digest: format!("sha256:{key}"),
        size: 1,
    }
}

fn desired(inputs: &Inputs) -> DesiredState {
    DesiredState {
        revision: String::new(),
        code: layer(&inputs.tree),
        deps: Some(layer(&format!("deps {} {}", inputs.tree, inputs.runtime))),
        python: "3.11".to_owned(),
        exclude: Vec::new(),
    }
}

fn failure(transient: bool) -> Failure {
    Failure {
        reason: Reason::ImportFailed,
        message: "boom".to_owned(),
        transient,
    }
}

fn layer_gone() -> Failure {
    Failure {
        reason: Reason::LayerMissing,
        message: "gone".to_owned(),
        transient: false,
    }
}

fn fetched(commit: &str, tree: &str) -> Event {
    Event::Fetched(Fetched {
        revision: revision(commit),
        tree: tree.to_owned(),
        code: Some(layer(tree)),
    })
}

fn deployed(inputs: &Inputs) -> Event {
    Event::Deployed {
        inputs: inputs.clone(),
        outcome: Outcome::Ok,
        desired: Some(desired(inputs)),
        failure: None,
    }
}

/// A memory in which `commit` with `tree` serves.
fn serving(memory: &mut Memory, commit: &str, tree: &str) -> Inputs {
    let inputs = memory.inputs(tree);
    step(memory, Event::Observed(revision(commit)));
    step(memory, fetched(commit, tree));
    step(memory, deployed(&inputs));
    step(memory, Event::Reloaded(inputs.clone()));
    assert_eq!(memory.serving.as_ref().unwrap().inputs, inputs);
    inputs
}

#[test]
fn a_revision_is_fetched_deployed_loaded_and_then_served() {
    let mut memory = Memory::default();
    assert_eq!(
        step(&mut memory, Event::Observed(revision("a"))),
        [Action::Fetch(revision("a"))]
    );
    let inputs = memory.inputs("t");
    let actions = step(&mut memory, fetched("a", "t"));
    assert_eq!(
        actions,
        [Action::Deploy {
            revision: revision("a"),
            inputs: inputs.clone(),
            code: Some(layer("t"))
        }]
    );
    let actions = step(&mut memory, deployed(&inputs));
    assert!(matches!(&*actions, [Action::Reload(served)] if served.inputs == inputs));
    assert_eq!(memory.serving, None, "nothing serves before it is loaded");
    let actions = step(&mut memory, Event::Reloaded(inputs.clone()));
    assert!(
        matches!(&*actions, [Action::Keep(Kept::UpToDate), Action::Prune(_)]),
        "{actions:?}"
    );
    assert!(memory.is_current());
    assert_eq!(memory.keep(), [layer("t"), desired(&inputs).deps.unwrap()]);
}

#[test]
fn a_commit_with_the_same_tree_is_recorded_without_a_deploy() {
    let mut memory = Memory::default();
    serving(&mut memory, "a", "t");
    step(&mut memory, Event::Observed(revision("b")));
    let actions = step(&mut memory, fetched("b", "t"));
    assert!(
        matches!(&*actions, [Action::Keep(Kept::SameTree), Action::Prune(_)]),
        "{actions:?}"
    );
    let serving = memory.serving.as_ref().unwrap();
    assert_eq!(
        (&*serving.revision.commit, &*serving.desired.revision),
        ("b", "main@b")
    );
    assert_eq!(
        step(&mut memory, Event::Observed(revision("b"))),
        [Action::Keep(Kept::UpToDate)]
    );
}

#[test]
fn a_failed_revision_is_not_tried_again_before_something_changes() {
    let mut memory = Memory::default();
    let good = serving(&mut memory, "a", "good");
    step(&mut memory, Event::Observed(revision("b")));
    step(&mut memory, fetched("b", "bad"));
    let inputs = memory.inputs("bad");
    let failed = Event::Deployed {
        inputs: inputs.clone(),
        outcome: Outcome::Failed,
        desired: None,
        failure: Some(failure(false)),
    };
    let actions = step(&mut memory, failed);
    assert!(
        matches!(&*actions, [Action::Keep(Kept::Failed(_)), Action::Prune(_)]),
        "{actions:?}"
    );
    for event in [
        Event::Observed(revision("b")),
        Event::Restarted,
        Event::RetryDue,
    ] {
        let actions = step(&mut memory, event);
        let tries = |a: &Action| matches!(a, Action::Fetch(_) | Action::Deploy { .. });
        assert!(!actions.iter().any(tries), "{actions:?}");
    }
    assert_eq!(memory.serving.as_ref().unwrap().inputs, good);
    assert!(memory.observed_failure().is_some());
    let settings = Settings {
        runtime: "3.12".to_owned(),
        ..Settings::default()
    };
    let actions = step(&mut memory.clone(), Event::Configured(settings));
    assert!(
        matches!(&*actions, [Action::Deploy { .. }]),
        "another Python: {actions:?}"
    );
    let actions = step(&mut memory, Event::Requested("1".to_owned()));
    assert!(
        matches!(&*actions, [Action::Resolve, Action::Deploy { .. }]),
        "{actions:?}"
    );
    assert_eq!(
        step(&mut memory, Event::Requested("1".to_owned())),
        [],
        "a token asks once"
    );
}

#[test]
fn what_comes_while_a_revision_is_loaded_is_attempted_after_it() {
    let mut memory = Memory::default();
    step(&mut memory, Event::Observed(revision("a")));
    step(&mut memory, fetched("a", "ta"));
    let inputs = memory.inputs("ta");
    step(&mut memory, deployed(&inputs));
    assert_eq!(
        step(&mut memory, Event::Observed(revision("b"))),
        [Action::Keep(Kept::Busy)]
    );
    step(&mut memory, Event::Observed(revision("c")));
    let actions = step(&mut memory, Event::Reloaded(inputs));
    assert_eq!(actions, [Action::Fetch(revision("c"))]);
}

#[test]
fn ops09_a_deploy_that_hangs_does_not_hold_up_the_push_that_repairs_it() {
    let mut memory = Memory::default();
    step(&mut memory, Event::Observed(revision("a")));
    step(&mut memory, fetched("a", "ta"));
    let old = memory.inputs("ta");
    let actions = step(&mut memory, Event::Observed(revision("b")));
    assert_eq!(actions, [Action::Fetch(revision("b"))]);
    // What still comes from the old one changes nothing.
    let before = memory.clone();
    assert_eq!(step(&mut memory, deployed(&old)), []);
    assert_eq!(memory, before);
    let actions = step(&mut memory, fetched("b", "tb"));
    assert!(
        matches!(&*actions, [Action::Deploy { inputs, .. }] if inputs.tree == "tb"),
        "{actions:?}"
    );
    // Another image does the same.
    let settings = Settings {
        runtime: "image 2".to_owned(),
        ..Settings::default()
    };
    let actions = step(&mut memory, Event::Configured(settings));
    assert!(
        matches!(&*actions, [Action::Deploy { inputs, .. }] if inputs.runtime == "image 2"),
        "{actions:?}"
    );
    // The same settings again do not.
    let settings = memory.settings.clone();
    let actions = step(&mut memory, Event::Configured(settings));
    assert_eq!(actions, [Action::Keep(Kept::Busy)]);
}

#[test]
fn what_failed_is_tried_again_with_other_secrets_and_what_serves_goes_on() {
    let given = |secrets: &str| {
        let secrets = Some(secrets.to_owned());
        Event::Configured(Settings {
            secrets,
            ..Settings::default()
        })
    };
    let mut memory = Memory::default();
    step(&mut memory, given("1"));
    serving(&mut memory, "a", "good");
    // What serves is not deployed anew.
    let actions = step(&mut memory, given("2"));
    assert_eq!(actions, [Action::Keep(Kept::UpToDate)]);
    step(&mut memory, Event::Observed(revision("b")));
    step(&mut memory, fetched("b", "bad"));
    let inputs = memory.inputs("bad");
    let failed = Event::Deployed {
        inputs: inputs.clone(),
        outcome: Outcome::Failed,
        desired: None,
        failure: Some(failure(false)),
    };
    step(&mut memory, failed);
    let actions = step(&mut memory, given("2"));
    assert!(
        matches!(&*actions, [Action::Keep(Kept::Failed(_))]),
        "{actions:?}"
    );
    let again = [Action::Deploy {
        revision: revision("b"),
        inputs: inputs.clone(),
        code: Some(layer("bad")),
    }];
    assert_eq!(step(&mut memory, given("3")), again);
    // Nor is one that runs with those of before waited for.
    assert_eq!(step(&mut memory, given("4")), again);
    step(&mut memory, deployed(&inputs));
    step(&mut memory, Event::Reloaded(inputs.clone()));
    assert_eq!(memory.serving.map(|serving| serving.inputs), Some(inputs));
}

#[test]
fn other_secrets_do_not_bring_back_what_was_taken_back() {
    let given = |secrets: &str| {
        let secrets = Some(secrets.to_owned());
        Event::Configured(Settings {
            secrets,
            ..Settings::default()
        })
    };
    let mut memory = Memory::default();
    step(&mut memory, given("1"));
    let old = serving(&mut memory, "a", "ta");
    let new = serving(&mut memory, "b", "tb");
    step(&mut memory, Event::Unhealthy(new.clone(), failure(false)));
    step(&mut memory, Event::Reloaded(old.clone()));
    let actions = step(&mut memory, given("2"));
    assert!(
        matches!(&*actions, [Action::Keep(Kept::Failed(failed))] if failed.inputs == new),
        "{actions:?}"
    );
    assert_eq!(memory.serving.as_ref().unwrap().inputs, old);
    let actions = step(&mut memory, Event::Requested("1".to_owned()));
    assert!(
        matches!(&*actions, [Action::Resolve, Action::Deploy { inputs, .. }] if *inputs == new),
        "{actions:?}"
    );
}

#[test]
fn a_deploy_ends_at_last_however_fast_pushes_come() {
    let mut memory = Memory::default();
    let mut given_up = 0;
    for n in 0..20 {
        let commit = format!("c{n}");
        let before = memory.attempting.clone();
        step(&mut memory, Event::Observed(revision(&commit)));
        step(&mut memory, fetched(&commit, &format!("t{n}")));
        given_up += u32::from(before.is_some() && memory.attempting != before);
    }
    let Some(Stage::Deploying(inputs)) = memory.attempting.clone().map(|attempt| attempt.stage)
    else {
        panic!("{:?}", memory.attempting);
    };
    assert!(
        given_up > 0 && inputs.tree != "t19",
        "{given_up} {inputs:?}"
    );
    step(&mut memory, deployed(&inputs));
    let actions = step(&mut memory, Event::Reloaded(inputs));
    assert_eq!(actions, [Action::Fetch(revision("c19"))]);
    assert_eq!(memory.superseded, 0);
}

#[test]
fn a_transient_failure_is_tried_again_after_growing_pauses_and_counts_in_the_end() {
    let mut memory = Memory::default();
    step(&mut memory, Event::Observed(revision("a")));
    step(&mut memory, fetched("a", "t"));
    let inputs = memory.inputs("t");
    let mut pauses = Vec::new();
    loop {
        let actions = step(
            &mut memory,
            Event::DeployFailed(inputs.clone(), failure(true)),
        );
        let Some(Action::RetryAfter(pause)) = actions.first() else {
            assert!(
                matches!(&actions[0], Action::Keep(Kept::Failed(_))),
                "{actions:?}"
            );
            break;
        };
        pauses.push(pause.as_secs());
        let waiting = step(&mut memory, Event::Observed(revision("a")));
        assert_eq!(waiting, [Action::Keep(Kept::Waiting)]);
        let actions = step(&mut memory, Event::RetryDue);
        assert!(matches!(&*actions, [Action::Deploy { .. }]), "{actions:?}");
    }
    assert_eq!(pauses, [5, 10, 20, 40, 80]);
}

#[test]
fn a_load_is_tried_again_without_a_deploy_and_counts_in_the_end() {
    let mut memory = Memory::default();
    let good = serving(&mut memory, "a", "good");
    step(&mut memory, Event::Observed(revision("b")));
    step(&mut memory, fetched("b", "bad"));
    let bad = memory.inputs("bad");
    step(&mut memory, deployed(&bad));
    let refused = Event::ReloadFailed(bad.clone(), failure(true));
    for _ in 0..memory.settings.max_retries {
        let actions = step(&mut memory, refused.clone());
        assert!(
            matches!(
                &*actions,
                [Action::RetryAfter(_), Action::Keep(Kept::Waiting)]
            ),
            "{actions:?}"
        );
        // It is deployed: that is not done once more.
        let actions = step(&mut memory, Event::RetryDue);
        assert!(
            matches!(&*actions, [Action::Reload(served)] if served.inputs == bad),
            "{actions:?}"
        );
    }
    let actions = step(&mut memory, refused);
    assert!(
        matches!(
            &*actions,
            [Action::Keep(Kept::Failed(failed)), Action::Prune(_)] if failed.inputs == bad
        ),
        "{actions:?}"
    );
    assert_eq!(memory.candidate, None);
    assert_eq!(memory.serving.as_ref().unwrap().inputs, good);
}

#[test]
fn a_newer_revision_does_not_wait_for_the_pause_of_an_older_one() {
    let mut memory = Memory::default();
    step(&mut memory, Event::Observed(revision("a")));
    step(
        &mut memory,
        Event::FetchFailed(revision("a"), failure(true)),
    );
    let actions = step(&mut memory, Event::Observed(revision("b")));
    assert_eq!(actions, [Action::Fetch(revision("b"))]);
}

#[test]
fn a_ref_set_back_is_served_without_a_deploy() {
    let mut memory = Memory::default();
    let old = serving(&mut memory, "a", "ta");
    let new = serving(&mut memory, "b", "tb");
    step(&mut memory, Event::Observed(revision("a")));
    let actions = step(&mut memory, fetched("a", "ta"));
    assert!(
        matches!(&*actions, [Action::Reload(served)] if served.inputs == old),
        "{actions:?}"
    );
    step(&mut memory, Event::Reloaded(old.clone()));
    assert_eq!(memory.serving.as_ref().unwrap().inputs, old);
    assert_eq!(memory.previous[0].inputs, new);
}

#[test]
fn a_bad_revision_that_got_through_is_rolled_back_once() {
    let mut memory = Memory::default();
    let old = serving(&mut memory, "a", "ta");
    let new = serving(&mut memory, "b", "tb");
    let actions = step(&mut memory, Event::Unhealthy(new.clone(), failure(false)));
    assert!(
        matches!(
            &*actions,
            [Action::Keep(Kept::RolledBack(_)), Action::Reload(served), Action::Keep(Kept::Failed(_))]
                if served.inputs == old
        ),
        "{actions:?}"
    );
    assert_eq!(memory.serving.as_ref().unwrap().inputs, old);
    let actions = step(&mut memory, Event::Unhealthy(old.clone(), failure(false)));
    assert!(
        matches!(&*actions, [Action::Keep(Kept::Failed(_))]),
        "nothing better: {actions:?}"
    );
    assert_eq!(memory.serving.as_ref().unwrap().inputs, old);
}

#[test]
fn a_bad_revision_stays_where_no_way_back_is_wanted() {
    let mut memory = Memory::default();
    serving(&mut memory, "a", "ta");
    let new = serving(&mut memory, "b", "tb");
    let settings = Settings {
        auto_rollback: false,
        ..Settings::default()
    };
    step(&mut memory, Event::Configured(settings));
    let actions = step(&mut memory, Event::Unhealthy(new.clone(), failure(false)));
    assert!(
        matches!(&*actions, [Action::Keep(Kept::Failed(_))]),
        "{actions:?}"
    );
    assert_eq!(memory.serving.as_ref().unwrap().inputs, new);
    assert_eq!(memory.observed_failure(), None);
}

#[test]
fn a_revision_whose_job_the_cluster_does_not_run_is_tried_for_ever() {
    let mut memory = Memory::default();
    step(&mut memory, Event::Observed(revision("a")));
    step(&mut memory, fetched("a", "t"));
    let inputs = memory.inputs("t");
    let refused = Failure {
        reason: Reason::DeployJobRefused,
        ..failure(true)
    };
    let mut last = 0;
    for _ in 0..50 {
        let actions = step(
            &mut memory,
            Event::DeployFailed(inputs.clone(), refused.clone()),
        );
        let Some(Action::RetryAfter(pause)) = actions.first() else {
            panic!("{actions:?}");
        };
        last = pause.as_secs();
        step(&mut memory, Event::RetryDue);
    }
    assert_eq!(last, 600);
    assert_eq!(memory.failed, []);
    // Once there is room, all is well.
    step(&mut memory, deployed(&inputs));
    step(&mut memory, Event::Reloaded(inputs.clone()));
    assert_eq!(memory.serving.as_ref().unwrap().inputs, inputs);
}

#[test]
fn a_commit_that_could_not_be_fetched_is_tried_again_with_other_credentials_and_after_a_restart() {
    for again in [Event::Access, Event::Restarted] {
        let mut memory = Memory::default();
        step(&mut memory, Event::Observed(revision("a")));
        let refused = Event::FetchFailed(revision("a"), failure(false));
        step(&mut memory, refused);
        let kept = step(&mut memory, Event::Observed(revision("a")));
        assert!(
            matches!(&*kept, [Action::Keep(Kept::Failed(_))]),
            "{kept:?}"
        );
        let actions = step(&mut memory, again);
        assert!(
            actions.contains(&Action::Fetch(revision("a"))),
            "{actions:?}"
        );
    }
}

#[test]
fn after_a_restart_the_last_good_revision_is_loaded_first() {
    let mut memory = Memory::default();
    let good = serving(&mut memory, "a", "ta");
    step(&mut memory, Event::Observed(revision("b")));
    step(&mut memory, fetched("b", "tb"));
    let saved = serde_roundtrip(&memory);
    let mut memory = saved;
    let actions = step(&mut memory, Event::Restarted);
    assert!(
        matches!(&*actions, [Action::Reload(served), Action::Deploy { .. }] if served.inputs == good),
        "{actions:?}"
    );
    let actions = step(
        &mut memory,
        Event::ReloadFailed(good.clone(), failure(true)),
    );
    assert!(matches!(&*actions, [Action::RetryAfter(_)]), "{actions:?}");
    let actions = step(&mut memory, Event::RetryDue);
    assert!(matches!(&*actions, [Action::Reload(_)]), "{actions:?}");
}

#[test]
fn a_lost_layer_is_made_again_and_loaded() {
    let mut memory = Memory::default();
    let inputs = serving(&mut memory, "a", "ta");
    assert_eq!(
        step(&mut memory, Event::LayerLost),
        [Action::Fetch(revision("a"))]
    );
    let actions = step(&mut memory, fetched("a", "ta"));
    assert!(matches!(&*actions, [Action::Deploy { .. }]), "{actions:?}");
    step(&mut memory, deployed(&inputs));
    step(&mut memory, Event::Reloaded(inputs.clone()));
    assert!(!memory.lost);
    assert_eq!(memory.previous, [], "it is not its own predecessor");
}

#[test]
fn a_suspended_group_starts_nothing_and_catches_up() {
    let mut memory = Memory::default();
    serving(&mut memory, "a", "ta");
    let suspended = Settings {
        suspended: true,
        ..memory.settings.clone()
    };
    step(&mut memory, Event::Configured(suspended));
    let actions = step(&mut memory, Event::Observed(revision("b")));
    assert_eq!(actions, [Action::Keep(Kept::Suspended)]);
    let actions = step(&mut memory, Event::Configured(Settings::default()));
    assert_eq!(actions, [Action::Fetch(revision("b"))]);
}

#[test]
fn another_source_forgets_what_was_observed() {
    let mut memory = Memory::default();
    serving(&mut memory, "a", "ta");
    let settings = Settings {
        source: "other path".to_owned(),
        ..memory.settings.clone()
    };
    let actions = step(&mut memory, Event::Configured(settings));
    assert_eq!(
        actions,
        [Action::Resolve, Action::Keep(Kept::NothingObserved)]
    );
    let actions = step(&mut memory, Event::Observed(revision("a")));
    assert_eq!(
        actions,
        [Action::Fetch(revision("a"))],
        "the same commit, perhaps another tree"
    );
}

#[test]
fn answers_that_nobody_waits_for_change_nothing() {
    let mut memory = Memory::default();
    let inputs = serving(&mut memory, "a", "ta");
    let before = memory.clone();
    for event in [
        fetched("z", "tz"),
        deployed(&inputs),
        Event::DeployFailed(inputs.clone(), failure(false)),
        Event::Reloaded(memory.inputs("tz")),
        Event::ReloadFailed(inputs.clone(), failure(false)),
        Event::FetchFailed(revision("a"), failure(false)),
        Event::RetryDue,
    ] {
        assert_eq!(step(&mut memory, event.clone()), [], "{event:?}");
    }
    assert_eq!(memory, before);
}

fn serde_roundtrip(memory: &Memory) -> Memory {
    serde_json::from_str(&serde_json::to_string(memory).unwrap()).unwrap()
}

#[test]
fn of_a_failure_no_more_words_are_remembered_than_fit() {
    let mut memory = Memory::default();
    memory.remember_failure(Failed {
        inputs: memory.inputs("t"),
        revision: revision("a"),
        reason: Reason::ReloadFailed,
        message: "é".repeat(2000),
        served: false,
    });
    let message = &memory.failed[0].message;
    assert!(
        message.len() <= 1024 && message.ends_with("é…"),
        "{message}"
    );
}
