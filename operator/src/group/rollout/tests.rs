use super::*;

pub(crate) fn named(tree: &str) -> (Inputs, Revision) {
    let inputs = Inputs {
        tree: tree.to_owned(),
        runtime: "image".to_owned(),
        spec: String::new(),
    };
    let revision = Revision {
        commit: format!("{tree}{tree}"),
        label: format!("main@sha1:{tree}{tree}"),
    };
    (inputs, revision)
}

use std::time::Duration as Time;

use ramen_group::{Reason, Report};
use serde_json::json;

use crate::group::dereference::Referenced;
use crate::group::tasks::Stored;
use crate::group::validate::tests::{data, operator, referenced, validated};

fn group() -> Validated {
    validated(json!({}), referenced())
}

fn rollout() -> Rollout {
    Rollout::load(&group().key, &Remembered::default()).unwrap()
}

fn run(rollout: &mut Rollout, group: &Validated) {
    rollout.advance(group, &operator(), false, Instant::now());
}

fn tell(rollout: &mut Rollout, group: &Validated, done: Done) {
    rollout.inbox.lock().unwrap().push(done);
    run(rollout, group);
}

fn resolved(commit: &str) -> Done {
    Done::Resolved(Ok(Resolved {
        name: Some("main".to_owned()),
        full_ref: Some("refs/heads/main".to_owned()),
        on_branch: None,
        commit: commit.to_owned(),
    }))
}

/// Up to where the code of the first commit is there.
fn fetch_first(rollout: &mut Rollout, group: &Validated) {
    run(rollout, group);
    tell(rollout, group, resolved("1"));
    let Some(Action::Fetch(revision)) = rollout.pending.pop_front() else {
        panic!("a fetch is next");
    };
    let stored = Stored {
        commit: "1".to_owned(),
        label: revision.label.clone(),
        code: code("t1"),
    };
    tell(rollout, group, Done::Fetched(revision, Ok(stored)));
}

fn code(tree: &str) -> LayerRef {
    LayerRef {
        key: tree.to_owned(),
        digest: format!("sha256:{tree}"),
        size: 1,
    }
}

fn report(tree: &str, outcome: &str) -> Box<Report> {
    Box::new(
        serde_json::from_value(json!({
            "revision": "main@sha1:1", "python": "3.11", "code": code(tree), "outcome": outcome,
            "packages": [{"kind": "tool", "name": "add", "ok": true}],
            "errors": if outcome == "ok" { json!([]) } else {
                json!([{"package": "tools/x", "reason": "ImportFailed", "message": "boom"}])
            },
        }))
        .unwrap(),
    )
}

/// Brings a revision to where it is deployed with this outcome.
pub(crate) fn deploy(
    rollout: &mut Rollout,
    group: &Validated,
    commit: &str,
    tree: &str,
    outcome: &str,
) {
    tell(rollout, group, resolved(commit));
    let Some(Action::Fetch(revision)) = rollout.pending.pop_front() else {
        panic!("a fetch is next");
    };
    let stored = Stored {
        commit: commit.to_owned(),
        label: revision.label.clone(),
        code: code(tree),
    };
    tell(rollout, group, Done::Fetched(revision, Ok(stored)));
    let Some(Action::Deploy {
        revision, inputs, ..
    }) = rollout.pending.pop_front()
    else {
        panic!("a deploy is next");
    };
    tell(
        rollout,
        group,
        Done::Deployed(revision, inputs, Ok(report(tree, outcome))),
    );
}

pub(crate) fn serve(rollout: &mut Rollout, group: &Validated, commit: &str, tree: &str) {
    deploy(rollout, group, commit, tree, "ok");
    let Some(Action::Reload(served)) = rollout.pending.pop_front() else {
        panic!("a reload is next");
    };
    tell(
        rollout,
        group,
        Done::Reloaded(served.inputs, Ok(crate::reload::Reloaded::default())),
    );
}

/// Makes the next look due at this time.
pub(crate) fn look_at(rollout: &mut Rollout, at: Instant) {
    rollout.look_at = Some(at);
}

#[tokio::test(start_paused = true)]
async fn a_new_group_is_looked_at_fetched_deployed_and_served() {
    let (group, mut rollout) = (group(), rollout());
    run(&mut rollout, &group);
    assert!(rollout.want_look);
    assert_eq!(rollout.wanted().unwrap().desired, None);
    deploy(&mut rollout, &group, "1", "t1", "ok");
    // Pods start with the first candidate; nothing serves before they were told.
    assert_eq!(rollout.wanted().unwrap().desired.unwrap().code, code("t1"));
    assert!(rollout.memory().serving.is_none());
    let Some(Action::Reload(served)) = rollout.pending.pop_front() else {
        panic!("a reload is next");
    };
    tell(
        &mut rollout,
        &group,
        Done::Reloaded(served.inputs, Ok(crate::reload::Reloaded::default())),
    );
    assert!(rollout.memory().is_current());
    assert_eq!(rollout.last().unwrap().tools, 1);
}

#[tokio::test(start_paused = true)]
async fn a_bad_push_leaves_what_pods_serve_as_it_is() {
    let (group, mut rollout) = (group(), rollout());
    run(&mut rollout, &group);
    serve(&mut rollout, &group, "1", "t1");
    let before = rollout.wanted().unwrap().desired;
    deploy(&mut rollout, &group, "2", "t2", "failed");
    assert_eq!(rollout.wanted().unwrap().desired, before);
    assert!(rollout.pending.is_empty());
    assert_eq!(
        rollout.memory().observed_failure().unwrap().reason,
        Reason::ImportFailed
    );
    // The same commit again is not tried again; a request makes it so.
    tell(&mut rollout, &group, resolved("2"));
    assert!(rollout.pending.is_empty());
    let asked = Validated {
        requested: Some("now".to_owned()),
        ..group
    };
    run(&mut rollout, &asked);
    assert!(matches!(
        rollout.pending.pop_front(),
        Some(Action::Deploy { .. })
    ));
}

#[tokio::test(start_paused = true)]
async fn a_restart_goes_on_from_what_is_remembered() {
    let (group, mut rollout) = (group(), rollout());
    run(&mut rollout, &group);
    serve(&mut rollout, &group, "1", "t1");
    let memory = rollout.wanted().unwrap().remembered;
    let remembered = Remembered {
        memory: Some(memory.clone()),
        desired: None,
    };
    let mut again = Rollout::load(&group.key, &remembered).unwrap();
    run(&mut again, &group);
    assert_eq!(
        again.wanted().unwrap().desired,
        rollout.wanted().unwrap().desired
    );
    // What serves is pushed once more, for pods that missed it.
    assert!(matches!(again.pending.pop_front(), Some(Action::Reload(_))));
    assert_eq!(
        again
            .known(&again.memory().serving.clone().unwrap().inputs)
            .unwrap()
            .tools,
        1
    );
}

#[tokio::test(start_paused = true)]
async fn pods_go_on_serving_when_the_memory_is_lost() {
    let remembered = Remembered {
        memory: None,
        desired: Some(
            json!({"revision": "main@sha1:1", "python": "3.11", "code": code("t1")}).to_string(),
        ),
    };
    let group = group();
    let mut rollout = Rollout::load(&group.key, &remembered).unwrap();
    run(&mut rollout, &group);
    assert_eq!(rollout.wanted().unwrap().desired.unwrap().code, code("t1"));
    let broken = Remembered {
        memory: Some("{".to_owned()),
        desired: None,
    };
    assert_eq!(
        Rollout::load(&group.key, &broken).unwrap_err().category(),
        "MemoryUnreadable"
    );
    // Its layers stay all the same.
    for (memory, desired, wanted) in [
        (None, remembered.desired.clone(), Some(vec![code("t1")])),
        (
            broken.memory.clone(),
            remembered.desired,
            Some(vec![code("t1")]),
        ),
        (broken.memory.clone(), None, Some(Vec::new())),
        (None, None, Some(Vec::new())),
        (broken.memory.clone(), broken.memory, None),
    ] {
        assert_eq!(layers(&Remembered { memory, desired }), wanted);
    }
}

#[tokio::test(start_paused = true)]
async fn another_image_comes_in_with_what_was_deployed_with_it() {
    let (old, mut rollout) = (group(), rollout());
    run(&mut rollout, &old);
    serve(&mut rollout, &old, "1", "t1");
    assert_eq!(
        rollout.wanted().unwrap().image.as_deref(),
        Some("ramen-worker:1")
    );
    let new = validated(json!({"worker": {"image": "other:2"}}), referenced());
    run(&mut rollout, &new);
    // Pods stay until the same tree was deployed with the new image.
    assert_eq!(
        rollout.wanted().unwrap().image.as_deref(),
        Some("ramen-worker:1")
    );
    let Some(Action::Deploy {
        revision, inputs, ..
    }) = rollout.pending.pop_front()
    else {
        panic!("a deploy is next");
    };
    tell(
        &mut rollout,
        &new,
        Done::Deployed(revision, inputs, Ok(report("t1", "ok"))),
    );
    let Some(Action::Reload(served)) = rollout.pending.pop_front() else {
        panic!("a reload is next");
    };
    tell(
        &mut rollout,
        &new,
        Done::Reloaded(served.inputs, Ok(crate::reload::Reloaded::default())),
    );
    assert_eq!(rollout.wanted().unwrap().image.as_deref(), Some("other:2"));
}

#[tokio::test(start_paused = true)]
async fn a_source_that_does_not_answer_is_asked_again_later_each_time() {
    let (group, mut rollout) = (group(), rollout());
    run(&mut rollout, &group);
    let mut pauses = Vec::new();
    for _ in 0..8 {
        let trouble = Trouble {
            finding: Finding::group(Reason::SourceUnreachable, "no route"),
            transient: true,
        };
        rollout.resolving = true;
        rollout.want_look = false;
        tell(&mut rollout, &group, Done::Resolved(Err(trouble)));
        let pause = rollout.next_timer().unwrap() - Instant::now();
        pauses.push(pause);
        tokio::time::advance(pause).await;
        run(&mut rollout, &group);
        assert!(rollout.want_look);
    }
    for (pause, wanted) in pauses.iter().zip([10, 20, 40, 80, 160, 320, 600, 600]) {
        let wanted = Time::from_secs(wanted);
        assert!(
            *pause >= wanted.mul_f64(0.89) && *pause <= wanted.mul_f64(1.11),
            "{pause:?}"
        );
    }
    rollout.resolving = true;
    tell(&mut rollout, &group, resolved("1"));
    assert_eq!(rollout.trouble(), None);
}

#[tokio::test(start_paused = true)]
async fn a_suspended_group_does_not_look_and_what_is_asked_of_it_waits() {
    let group = |suspend: bool| {
        let source = json!({"url": "https://git.example/x/y", "suspend": suspend});
        let mut group = validated(json!({ "source": source }), referenced());
        group.requested = Some("now".to_owned());
        group
    };
    let mut rollout = Rollout::load(&group(true).key, &Remembered::default()).unwrap();
    let trouble = Trouble {
        finding: Finding::group(Reason::SourceUnreachable, "no route"),
        transient: true,
    };
    tell(&mut rollout, &group(true), Done::Resolved(Err(trouble)));
    assert!(!rollout.want_look);
    assert_eq!(rollout.next_timer(), None);
    assert_eq!(
        rollout.trouble(),
        None,
        "nobody asks whether it is still so"
    );
    assert_eq!(rollout.memory().requested, None);
    run(&mut rollout, &group(false));
    assert!(rollout.want_look);
    assert_eq!(rollout.memory().requested.as_deref(), Some("now"));
}

#[tokio::test(start_paused = true)]
async fn layers_that_are_gone_are_made_again_by_another_job() {
    let (group, mut rollout) = (group(), rollout());
    run(&mut rollout, &group);
    assert_eq!(rollout.looks_for(false), None);
    serve(&mut rollout, &group, "1", "t1");
    // Looked for when a pod asked in vain, not at every run.
    assert_eq!(rollout.looks_for(false), None);
    assert_eq!(rollout.looks_for(true).unwrap().code, code("t1"));
    let before = rollout.repair();
    rollout.lost();
    run(&mut rollout, &group);
    assert!(matches!(
        rollout.pending.pop_front(),
        Some(Action::Fetch(_))
    ));
    assert_ne!(rollout.repair(), before);
    assert_eq!(rollout.wanted().unwrap().desired.unwrap().code, code("t1"));
}

#[tokio::test(start_paused = true)]
async fn what_was_refused_is_asked_again_at_once_with_other_credentials() {
    let (group, mut rollout) = (group(), rollout());
    run(&mut rollout, &group);
    // As `act` does when it asks.
    rollout.want_look = false;
    rollout.asked_with = Some(Arc::clone(&group.remote.credentials));
    let refused = Trouble {
        finding: Finding::group(Reason::AuthenticationFailed, "401"),
        transient: false,
    };
    tell(&mut rollout, &group, Done::Resolved(Err(refused)));
    run(&mut rollout, &group);
    assert!(!rollout.want_look, "the same would be refused again");

    let mut other = self::group();
    let files = [("bearerToken".to_owned(), b"t".to_vec())].into();
    other.remote.credentials = Arc::new(Credentials::from_files(&files).unwrap());
    run(&mut rollout, &other);
    assert!(rollout.want_look);
}

fn crashing(name: &str, restarts: u32) -> PodView {
    PodView {
        ready: false,
        address: None,
        restarts,
        trouble: Some(Box::new(crate::pods::Trouble {
            reason: "OOMKilled".to_owned(),
            message: "it ran out of memory".to_owned(),
            kind: crate::pods::TroubleKind::Died,
        })),
        ..crate::pods::tests::worker(name)
    }
}

#[tokio::test(start_paused = true)]
async fn a_revision_whose_pods_end_again_and_again_is_taken_back_where_that_is_wanted() {
    for (wanted, spec) in [
        (true, json!({})),
        (false, json!({"rollout": {"autoRollback": false}})),
    ] {
        let group = validated(spec, referenced());
        let mut rollout = Rollout::load(&group.key, &Remembered::default()).unwrap();
        run(&mut rollout, &group);
        serve(&mut rollout, &group, "1", "t1");
        serve(&mut rollout, &group, "2", "t2");
        let well = [crate::pods::tests::worker("p")];
        assert!(!rollout.observe(&group, &well, None, Instant::now()));
        assert!(!rollout.observe(&group, &[crashing("p", 2)], None, Instant::now()));
        let back = rollout.observe(&group, &[crashing("p", 3)], None, Instant::now());
        assert_eq!(back, wanted);
        let code_of = if wanted { "t1" } else { "t2" };
        assert_eq!(
            rollout.wanted().unwrap().desired.unwrap().code,
            code(code_of)
        );
        let failed = rollout.memory().observed_failure();
        assert_eq!(failed.is_some(), wanted);
        if let Some(failed) = failed {
            assert!(failed.served && failed.message == "pod p: it ran out of memory");
            // The pods are told, and what they did before is not held against what serves now.
            assert!(matches!(
                rollout.pending.pop_front(),
                Some(Action::Reload(_))
            ));
        }
        assert!(!rollout.observe(&group, &[crashing("p", 5)], None, Instant::now()));
    }
}

#[tokio::test(start_paused = true)]
async fn another_operator_goes_on_counting_the_ends_of_pods() {
    let group = group();
    let mut rollout = rollout();
    run(&mut rollout, &group);
    serve(&mut rollout, &group, "1", "t1");
    serve(&mut rollout, &group, "2", "t2");
    let well = [crate::pods::tests::worker("p")];
    assert!(!rollout.observe(&group, &well, None, Instant::now()));
    let twice = [crashing("p", 2)];
    assert!(!rollout.observe(&group, &twice, None, Instant::now()));
    let memory = rollout.wanted().unwrap().remembered;
    for _ in 0..2 {
        let remembered = Remembered {
            memory: Some(memory.clone()),
            ..Remembered::default()
        };
        rollout = Rollout::load(&group.key, &remembered).unwrap();
        run(&mut rollout, &group);
        assert!(!rollout.observe(&group, &twice, None, Instant::now()));
        assert_eq!(rollout.wanted().unwrap().remembered, memory);
    }
    assert!(rollout.observe(&group, &[crashing("p", 3)], None, Instant::now()));
    assert_eq!(rollout.wanted().unwrap().desired.unwrap().code, code("t1"));
}

#[tokio::test(start_paused = true)]
async fn an_image_whose_pods_do_not_come_up_in_time_is_taken_back() {
    let (old, mut rollout) = (group(), rollout());
    run(&mut rollout, &old);
    serve(&mut rollout, &old, "1", "t1");
    let new = validated(json!({"worker": {"image": "other:2"}}), referenced());
    run(&mut rollout, &new);
    let Some(Action::Deploy {
        revision, inputs, ..
    }) = rollout.pending.pop_front()
    else {
        panic!("a deploy is next");
    };
    let done = Done::Deployed(revision, inputs, Ok(report("t1", "ok")));
    tell(&mut rollout, &new, done);
    let Some(Action::Reload(served)) = rollout.pending.pop_front() else {
        panic!("a reload is next");
    };
    let done = Done::Reloaded(served.inputs, Ok(crate::reload::Reloaded::default()));
    tell(&mut rollout, &new, done);
    let pods = [crate::pods::tests::worker("old")];
    let late = Some("ReplicaSet calc-default-2 has timed out progressing.");
    // What the Deployment says may still be about what was before.
    assert!(!rollout.observe(&new, &pods, late, Instant::now()));
    tokio::time::advance(Time::from_secs(301)).await;
    assert!(!rollout.observe(&new, &pods, None, Instant::now()));
    // Without pods of the old image nothing tells that the new one is at fault.
    let others = [PodView {
        image: "other:2".to_owned(),
        ..crate::pods::tests::worker("new")
    }];
    assert!(!rollout.observe(&new, &others, late, Instant::now()));
    assert!(rollout.observe(&new, &pods, late, Instant::now()));
    assert_eq!(
        rollout.wanted().unwrap().image.as_deref(),
        Some("ramen-worker:1")
    );
    let failed = rollout.memory().observed_failure().unwrap();
    assert_eq!(failed.reason, Reason::ReloadFailed);
    assert!(
        failed.message.contains("timed out progressing"),
        "{}",
        failed.message
    );
}

#[tokio::test(start_paused = true)]
async fn what_pods_say_of_themselves_is_asked_for_and_counts() {
    let (group, mut rollout) = (group(), rollout());
    run(&mut rollout, &group);
    serve(&mut rollout, &group, "1", "t1");
    serve(&mut rollout, &group, "2", "t2");
    let silent = PodView {
        ready: false,
        ..crate::pods::tests::worker("p")
    };
    let pods = [silent];
    assert!(!rollout.observe(&group, &pods, None, Instant::now()));
    assert!(!rollout.want_inspection);
    tokio::time::advance(Time::from_secs(20)).await;
    assert!(!rollout.observe(&group, &pods, None, Instant::now()));
    assert!(std::mem::take(&mut rollout.want_inspection));
    let ailment = crate::reload::Ailment {
        pod: "p".to_owned(),
        message: "its host processes end again and again".to_owned(),
        blames: true,
    };
    let inputs = rollout.memory().serving.clone().unwrap().inputs;
    tell(&mut rollout, &group, Done::Inspected(inputs, vec![ailment]));
    assert!(rollout.observe(&group, &pods, None, Instant::now()));
    assert_eq!(rollout.wanted().unwrap().desired.unwrap().code, code("t1"));
}

#[tokio::test(start_paused = true)]
async fn while_a_revision_loads_pods_that_do_not_answer_set_no_timer() {
    let silent = [PodView {
        ready: false,
        ..crate::pods::tests::worker("p")
    }];
    for before in [None, Some("1")] {
        let (group, mut rollout) = (group(), rollout());
        run(&mut rollout, &group);
        if let Some(commit) = before {
            serve(&mut rollout, &group, commit, "t1");
        }
        deploy(&mut rollout, &group, "2", "t2", "ok");
        for _ in 0..2 {
            run(&mut rollout, &group);
            assert!(!rollout.observe(&group, &silent, None, Instant::now()));
            // No run takes it away before the load ends.
            let due = rollout.next_timer().is_some_and(|at| at <= Instant::now());
            assert!(!due, "{before:?}");
            tokio::time::advance(Time::from_mins(1)).await;
        }
    }
}

#[tokio::test(start_paused = true)]
async fn what_is_remembered_fits_into_a_config_map_whatever_deploys_find() {
    let (group, mut rollout) = (group(), rollout());
    run(&mut rollout, &group);
    serve(&mut rollout, &group, "0", "t0");
    let text = |long: usize| "\u{1}".repeat(long);
    let errors: Vec<_> = (0..60)
        .map(|_| {
            json!({
                "package": format!("tools/{}", "x".repeat(64)), "reason": "ImportFailed",
                "message": text(200), "path": "p".repeat(600),
            })
        })
        .collect();
    let packages: Vec<_> = (0..600)
        .map(|n| json!({"kind": "tool", "name": format!("{n:064}"), "ok": false}))
        .collect();
    for commit in 1..=9 {
        let (commit, tree) = (commit.to_string(), format!("t{commit}"));
        deploy(&mut rollout, &group, &commit, &tree, "failed");
        let known = rollout.last().unwrap().clone();
        let report: Report = serde_json::from_value(json!({
            "errors": errors, "packages": packages, "outcome": "failed",
        }))
        .unwrap();
        let done = Known::new(known.inputs, known.revision, &report);
        rollout.learn(done.clone());
        assert_eq!(rollout.last(), Some(&done));
    }
    let remembered = rollout.wanted().unwrap().remembered;
    assert!(remembered.len() < 900 << 10, "{}", remembered.len());
    let serving = rollout.memory().serving.clone().unwrap();
    assert!(rollout.known(&serving.inputs).is_some());
    assert!(
        rollout.saved.known.len() > 3,
        "{}",
        rollout.saved.known.len()
    );
}

#[tokio::test(start_paused = true)]
async fn pods_that_a_push_did_not_reach_are_asked_what_they_serve() {
    use crate::pods::tests::worker;
    use crate::reload::{Answer, Reloaded, Said};
    let asked = |rollout: &mut Rollout, group: &Validated, pods: &[PodView]| {
        assert!(!rollout.observe(group, pods, None, Instant::now()));
        let asked = std::mem::take(&mut rollout.to_ask);
        let names = asked.into_iter().map(|pod| pod.name);
        names.collect::<Vec<_>>()
    };
    let reached = |pods: &[&str]| Reloaded {
        pods: pods.iter().map(|pod| (*pod).to_owned()).collect(),
        unreachable: 0,
    };
    let (group, mut rollout) = (group(), rollout());
    run(&mut rollout, &group);
    deploy(&mut rollout, &group, "1", "t1", "ok");
    let pods = [worker("p"), worker("q")];
    assert!(
        asked(&mut rollout, &group, &pods).is_empty(),
        "it is on its way"
    );
    let Some(Action::Reload(served)) = rollout.pending.pop_front() else {
        panic!("a reload is next");
    };
    let inputs = served.inputs;
    let done = Done::Reloaded(inputs.clone(), Ok(reached(&["p"])));
    tell(&mut rollout, &group, done);
    assert_eq!(asked(&mut rollout, &group, &pods), ["q"]);
    let said = Said {
        pod: "q".to_owned(),
        answer: Answer::Behind("it serves nothing".to_owned()),
    };
    tell(
        &mut rollout,
        &group,
        Done::Surveyed(inputs.clone(), vec![said]),
    );
    assert!(asked(&mut rollout, &group, &pods).is_empty());
    let behind = rollout.convergence().behind(pods.iter());
    assert_eq!(behind.as_deref(), Some("pod q: it serves nothing"));
    tokio::time::advance(Time::from_secs(30)).await;
    assert_eq!(asked(&mut rollout, &group, &pods), ["q"]);

    // Another process tells all of them once more what serves; whom that reaches is not asked.
    let remembered = Remembered {
        memory: Some(rollout.wanted().unwrap().remembered),
        ..Remembered::default()
    };
    let mut rollout = Rollout::load(&group.key, &remembered).unwrap();
    run(&mut rollout, &group);
    assert!(asked(&mut rollout, &group, &pods).is_empty());
    let done = Done::Reloaded(inputs, Ok(reached(&["p", "q"])));
    tell(&mut rollout, &group, done);
    assert!(asked(&mut rollout, &group, &pods).is_empty());
    assert_eq!(rollout.convergence().count(pods.iter()), (2, 0));
}

#[tokio::test(start_paused = true)]
async fn after_a_push_that_a_pod_refused_all_are_asked_what_they_serve() {
    use crate::pods::tests::worker;
    use crate::reload::Reloaded;
    let (group, mut rollout) = (group(), rollout());
    run(&mut rollout, &group);
    deploy(&mut rollout, &group, "1", "t1", "ok");
    let pods = [worker("p"), worker("q")];
    let reached = Reloaded {
        pods: vec!["p".to_owned(), "q".to_owned()],
        unreachable: 0,
    };
    let refused = Failure {
        reason: Reason::ReloadFailed,
        message: "pod q: boom (1 pod serves it)".to_owned(),
        transient: false,
    };
    for (result, asked) in [(Ok(reached), vec![]), (Err(refused), vec!["p", "q"])] {
        let Some(Action::Reload(served)) = rollout.pending.pop_front() else {
            panic!("a reload is next");
        };
        tell(&mut rollout, &group, Done::Reloaded(served.inputs, result));
        assert!(!rollout.observe(&group, &pods, None, Instant::now()));
        let names: Vec<String> = rollout.to_ask.drain(..).map(|pod| pod.name).collect();
        assert_eq!(names, asked);
        if names.is_empty() {
            deploy(&mut rollout, &group, "2", "t2", "ok");
        }
    }
    assert_eq!(rollout.wanted().unwrap().desired.unwrap().code, code("t1"));
    // One that loaded it is not taken for one that serves what is wanted.
    assert_eq!(rollout.convergence().count(pods.iter()), (0, 2));
    assert!(!rollout.convergence().is_blank());
}

#[tokio::test(start_paused = true)]
async fn ops09_a_push_while_a_job_runs_is_fetched_at_once() {
    let (group, mut rollout) = (group(), rollout());
    fetch_first(&mut rollout, &group);
    assert!(matches!(
        rollout.pending.pop_front(),
        Some(Action::Deploy { .. })
    ));
    tell(&mut rollout, &group, resolved("2"));
    assert!(matches!(
        rollout.pending.pop_front(),
        Some(Action::Fetch(_))
    ));
}

#[tokio::test(start_paused = true)]
async fn the_end_of_a_deploy_with_other_secrets_is_not_taken_for_that_of_the_new_one() {
    let given = |value: &str| {
        let secret = ("weather".to_owned(), Some(data(&[("TOKEN", value)])));
        let found = Referenced {
            secrets: vec![secret],
            ..referenced()
        };
        validated(json!({"secrets": [{"name": "weather"}]}), found)
    };
    let (group, mut rollout) = (given("1"), rollout());
    fetch_first(&mut rollout, &group);
    let Some(Action::Deploy {
        revision, inputs, ..
    }) = rollout.pending.pop_front()
    else {
        panic!("a deploy is next");
    };
    // It fails while the Secret is put right: seen in the same run.
    let failed = Done::Deployed(revision, inputs, Ok(report("t1", "failed")));
    tell(&mut rollout, &given("2"), failed);
    assert_eq!(rollout.memory().observed_failure(), None);
    assert!(matches!(
        rollout.pending.pop_front(),
        Some(Action::Deploy { .. })
    ));
    // One that still runs is stopped in the run that sees the other secrets, and not before.
    let stop = CancellationToken::new();
    let task = rollout.tasks.spawn(std::future::pending());
    rollout.deploying = Some(Deploying {
        id: "a".to_owned(),
        task,
        stop: stop.clone(),
    });
    run(&mut rollout, &given("2"));
    assert!(!stop.is_cancelled() && rollout.pending.is_empty());
    run(&mut rollout, &given("3"));
    assert!(stop.is_cancelled());
    assert!(matches!(
        rollout.pending.pop_front(),
        Some(Action::Deploy { .. })
    ));
}
