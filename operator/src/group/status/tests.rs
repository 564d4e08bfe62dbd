mod judged;

use k8s_openapi::jiff::Timestamp;
use serde_json::json;

use super::super::rollout::tests::{deploy, serve};
use super::super::validate::Invalid;
use super::super::validate::tests::{group, operator, referenced, validated};
use super::*;
use crate::group::dereference::Remembered;
use crate::group::rollout::Rollout;
use crate::testing::{Server, api, context};

fn at(second: i64) -> Time {
    Time(Timestamp::from_second(second).unwrap())
}

fn condition<'a>(status: &'a McpGroupStatus, kind: &str) -> Option<&'a Condition> {
    status
        .conditions
        .iter()
        .find(|condition| condition.type_ == kind)
}

fn says(status: &McpGroupStatus, kind: &str) -> (String, String) {
    let condition = condition(status, kind).unwrap();
    (condition.status.clone(), condition.reason.clone())
}

fn zone(ready: u32, wanted: u32, problem: Option<(&str, &str)>) -> ZoneView {
    ZoneView {
        name: "default".to_owned(),
        known: true,
        wanted,
        ready,
        rolled: ready,
        updated: ready,
        unknown: 0,
        behind: None,
        problem: problem.map(|(reason, message)| (reason.to_owned(), message.to_owned())),
    }
}

/// A state in which revision 1 serves.
fn serving(zone: ZoneView) -> State {
    let group = validated(json!({}), referenced());
    let mut rollout = Rollout::load(&group.key, &Remembered::default()).unwrap();
    rollout.advance(&group, &operator(), false, tokio::time::Instant::now());
    serve(&mut rollout, &group, "1", "t1");
    State {
        rollout: Some(rollout),
        zones: vec![zone],
        ..State::default()
    }
}

fn told(state: &State, before: &McpGroupStatus, second: i64) -> (Outcome, McpGroupStatus) {
    let outcome = View::of(state).unwrap().outcome();
    let status = compute(&group(json!({})), state, before, Ok(&outcome), &at(second));
    (outcome, status)
}

#[tokio::test]
async fn a_group_that_serves_is_ready_and_says_the_same_next_time() {
    let state = serving(zone(2, 2, None));
    let (outcome, status) = told(&state, &McpGroupStatus::default(), 10);
    assert!(matches!(outcome, Outcome::Ready { .. }));
    assert_eq!(
        says(&status, "Ready"),
        ("True".to_owned(), "Serving".to_owned())
    );
    assert_eq!(says(&status, "SourceFetched").0, "True");
    assert_eq!(says(&status, "Deployed").0, "True");
    assert_eq!(says(&status, "WorkersAvailable").0, "True");
    assert!(condition(&status, "Reconciling").is_none() && condition(&status, "Stalled").is_none());
    assert_eq!(status.replicas.as_deref(), Some("2/2"));
    assert_eq!((status.tools, status.errors_total), (Some(1), Some(0)));
    assert!(
        status
            .conditions
            .iter()
            .all(|condition| condition.observed_generation == Some(3))
    );
    // Later: nothing differs, not even a time.
    assert_eq!(told(&state, &status, 99).1, status);
}

#[tokio::test]
async fn what_a_roll_back_goes_to_is_told() {
    let mut state = serving(zone(2, 2, None));
    let previous = |state: &State| {
        let (_, status) = told(state, &McpGroupStatus::default(), 10);
        status.revision.unwrap().previous
    };
    assert_eq!(previous(&state), None);
    let first = told(&state, &McpGroupStatus::default(), 10).1;
    let group = validated(json!({}), referenced());
    serve(state.rollout.as_mut().unwrap(), &group, "2", "t2");
    assert_eq!(previous(&state), first.revision.unwrap().serving);
}

#[tokio::test]
async fn only_a_condition_that_flips_gets_a_new_time() {
    let (_, before) = told(&serving(zone(2, 2, None)), &McpGroupStatus::default(), 10);
    let refused = ("FailedCreate", "pods is forbidden: exceeded quota: all");
    let (outcome, after) = told(&serving(zone(1, 2, Some(refused))), &before, 20);
    assert!(matches!(
        outcome,
        Outcome::Progressing {
            reason: "PodsNotReady",
            ..
        }
    ));
    assert_eq!(
        condition(&after, "Ready").unwrap().last_transition_time,
        at(20)
    );
    assert_eq!(
        condition(&after, "Deployed").unwrap().last_transition_time,
        at(10)
    );
    let workers = condition(&after, "WorkersAvailable").unwrap();
    assert_eq!(
        (workers.status.as_str(), workers.reason.as_str()),
        ("False", "FailedCreate")
    );
    assert!(workers.message.contains("exceeded quota"));
    assert_eq!(says(&after, "Reconciling").1, "PodsNotReady");
}

#[tokio::test]
async fn a_group_whose_pods_roll_is_ready_and_not_done() {
    let rolling = [(true, 1, "1 of 2 pods"), (false, 2, "0 of 2 pods")];
    for (known, rolled, words) in rolling {
        let state = serving(ZoneView {
            known,
            rolled,
            ..zone(2, 2, None)
        });
        let (outcome, status) = told(&state, &McpGroupStatus::default(), 10);
        assert!(matches!(
            outcome,
            Outcome::Progressing {
                reason: "RollingOut",
                ..
            }
        ));
        assert_eq!(says(&status, "Ready").0, "True");
        let reconciling = condition(&status, "Reconciling").unwrap();
        assert!(reconciling.message.starts_with(words), "{reconciling:?}");
    }
}

#[tokio::test]
async fn a_group_that_serves_and_is_suspended_says_so() {
    let mut state = serving(zone(2, 2, None));
    let source = json!({"url": "https://git.example/team/tools", "suspend": true});
    let group = validated(json!({ "source": source }), referenced());
    let rollout = state.rollout.as_mut().unwrap();
    rollout.advance(&group, &operator(), false, tokio::time::Instant::now());
    let (outcome, status) = told(&state, &McpGroupStatus::default(), 10);
    assert!(matches!(outcome, Outcome::Ready { .. }));
    let said = condition(&status, "SourceFetched").unwrap();
    assert_eq!((&*said.status, &*said.reason), ("True", "Suspended"));
    assert!(
        said.message
            .ends_with("newer than main@sha1:1 is looked for"),
        "{}",
        said.message
    );
}

#[tokio::test]
async fn a_group_is_not_done_while_pods_serve_something_else() {
    let behind = Some("pod b: it serves main@sha1:0: no room on the disk".to_owned());
    let state = serving(ZoneView {
        updated: 1,
        behind,
        ..zone(2, 2, None)
    });
    let (outcome, status) = told(&state, &McpGroupStatus::default(), 10);
    let Outcome::Progressing { reason, message } = outcome else {
        panic!("{outcome:?}")
    };
    assert_eq!(reason, "CatchingUp");
    let words = "1 of 2 pods are known to serve main@sha1:1; pod b: it serves main@sha1:0: ";
    assert!(message.starts_with(words), "{message}");
    assert_eq!(says(&status, "Ready").0, "True");
    assert_eq!(says(&status, "Reconciling").1, "CatchingUp");
    assert_eq!(status.zones[0].updated, 1);
}

#[tokio::test]
async fn a_pod_that_cannot_be_asked_does_not_hold_the_group_up_and_is_told() {
    let state = serving(ZoneView {
        updated: 1,
        unknown: 1,
        behind: Some("pod b: it does not answer the operator".to_owned()),
        ..zone(2, 2, None)
    });
    let (outcome, status) = told(&state, &McpGroupStatus::default(), 10);
    let Outcome::Ready { reason, message } = outcome else {
        panic!("{outcome:?}")
    };
    assert_eq!(reason, "Serving");
    let words = "; of 1 pods it is not known what they serve: they do not answer the operator";
    assert!(message.ends_with(words), "{message}");
    assert!(condition(&status, "Reconciling").is_none());
    assert_eq!(status.zones[0].updated, 1);
    // Of one that answers it is known.
    let state = serving(ZoneView {
        updated: 0,
        unknown: 1,
        ..zone(2, 2, None)
    });
    let (_, status) = told(&state, &McpGroupStatus::default(), 10);
    assert_eq!(says(&status, "Reconciling").1, "CatchingUp");
}

#[tokio::test]
async fn a_bad_push_is_in_the_errors_list_while_the_last_good_revision_serves() {
    let mut state = serving(zone(2, 2, None));
    let group = validated(json!({}), referenced());
    deploy(state.rollout.as_mut().unwrap(), &group, "2", "t2", "failed");
    let (_, status) = told(&state, &McpGroupStatus::default(), 10);
    assert_eq!(
        says(&status, "Ready"),
        ("True".to_owned(), "LastGoodServes".to_owned())
    );
    assert_eq!(
        says(&status, "Deployed"),
        ("False".to_owned(), "ImportFailed".to_owned())
    );
    let revision = status.revision.unwrap();
    assert_eq!(revision.serving.as_deref(), Some("main@sha1:1"));
    assert_eq!(revision.attempted.as_deref(), Some("main@sha1:2"));
    assert_eq!(status.errors[0].package.as_deref(), Some("tools/x"));
    assert_eq!(status.errors_total, Some(1));
    assert_eq!(status.last_deploy.unwrap().outcome, "failed");
}

#[tokio::test]
async fn a_first_revision_that_fails_stalls_the_group() {
    let group = validated(json!({}), referenced());
    let mut rollout = Rollout::load(&group.key, &Remembered::default()).unwrap();
    rollout.advance(&group, &operator(), false, tokio::time::Instant::now());
    deploy(&mut rollout, &group, "1", "t1", "failed");
    let state = State {
        rollout: Some(rollout),
        zones: vec![zone(0, 1, None)],
        ..State::default()
    };
    let (outcome, status) = told(&state, &McpGroupStatus::default(), 10);
    assert!(matches!(
        outcome,
        Outcome::Stalled {
            reason: "DeployFailed",
            ..
        }
    ));
    assert_eq!(says(&status, "Stalled").0, "True");
    assert_eq!(says(&status, "WorkersAvailable").1, "NothingToServe");
}

#[tokio::test]
async fn a_missing_secret_is_told_once_and_what_serves_stays_told() {
    let mut state = serving(zone(2, 2, None));
    let invalid = Invalid {
        reason: ramen_group::Reason::SecretMissing,
        message: "there is no Secret weather".to_owned(),
    };
    let outcome = invalid.outcome();
    state.invalid = Some(invalid);
    let mut status = McpGroupStatus::default();
    for second in 10..13 {
        status = compute(
            &group(json!({})),
            &state,
            &status,
            Ok(&outcome),
            &at(second),
        );
    }
    assert_eq!(
        says(&status, "Ready"),
        ("False".to_owned(), "SecretMissing".to_owned())
    );
    assert_eq!(says(&status, "Stalled").0, "True");
    assert_eq!((status.errors.len(), status.errors_total), (1, Some(1)));
    assert_eq!(
        status.revision.as_ref().unwrap().serving.as_deref(),
        Some("main@sha1:1")
    );
    // The same for a process that knows nothing of the group yet.
    let blank = State {
        invalid: state.invalid.clone(),
        ..State::default()
    };
    for second in 13..15 {
        status = compute(
            &group(json!({})),
            &blank,
            &status,
            Ok(&outcome),
            &at(second),
        );
    }
    assert_eq!((status.errors.len(), status.errors_total), (1, Some(1)));
}

#[tokio::test]
async fn the_status_is_sent_by_its_own_manager_and_only_when_it_differs() {
    let (client, mut server) = api();
    let (ctx, _writers, _folder) = context(client);
    let mut state = serving(zone(2, 2, None));
    let (outcome, _) = told(&state, &McpGroupStatus::default(), 10);
    let key = GroupKey::new("team-a", "calc");
    let mut group = group(json!({}));
    let (wrote, all) = server
        .accept_all(write(&ctx, &group, &key, &mut state, Ok(&outcome)))
        .await;
    // The others are events.
    let asked = &all[0];
    assert!(
        all[1..].iter().all(|asked| asked.path.ends_with("/events")),
        "{all:?}"
    );
    wrote.unwrap();
    assert_eq!(asked.verb, "PATCH");
    assert_eq!(
        asked.path,
        "/apis/ramen.dev/v1alpha1/namespaces/team-a/mcpgroups/calc/status"
    );
    assert!(
        asked.query.contains("fieldManager=ramen-operator%2Fstatus"),
        "{}",
        asked.query
    );
    assert_eq!(asked.body["status"]["observedGeneration"], 3);
    assert!(asked.body.get("spec").is_none());
    // It came back through the watch.
    group.status = serde_json::from_value(asked.body["status"].clone()).unwrap();
    write(&ctx, &group, &key, &mut state, Ok(&outcome))
        .await
        .unwrap();
    server.silent().await;
}

/// Writes the status of a state as it is, and tells the events that were sent.
async fn announced(
    ctx: &Context,
    server: &mut Server,
    group: &mut McpGroup,
    state: &mut State,
) -> Vec<(String, String)> {
    let outcome = View::of(state).unwrap().outcome();
    announced_of(ctx, server, group, state, Ok(&outcome)).await
}

/// The same after a run that ended so.
async fn announced_of(
    ctx: &Context,
    server: &mut Server,
    group: &mut McpGroup,
    state: &mut State,
    result: Result<&Outcome, &Error>,
) -> Vec<(String, String)> {
    let key = GroupKey::new("team-a", "calc");
    let (wrote, all) = server
        .accept_all(write(ctx, group, &key, state, result))
        .await;
    wrote.unwrap();
    group.status = state.status.clone();
    let events = all.iter().filter(|asked| asked.path.ends_with("/events"));
    let word = |asked: &crate::testing::Asked, field: &str| {
        asked.body[field].as_str().unwrap_or_default().to_owned()
    };
    events
        .map(|asked| (word(asked, "type"), word(asked, "reason")))
        .collect()
}

#[tokio::test]
async fn events_tell_of_transitions_and_of_nothing_else() {
    let (client, mut server) = api();
    let (ctx, _writers, _folder) = context(client);
    let mut state = serving(zone(2, 2, None));
    let mut group = group(json!({}));
    let event = |kind: &str, reason: &str| (kind.to_owned(), reason.to_owned());
    let told = announced(&ctx, &mut server, &mut group, &mut state).await;
    assert_eq!(
        told,
        [event("Normal", "Serving"), event("Normal", "Deployed")]
    );
    assert_eq!(
        announced(&ctx, &mut server, &mut group, &mut state).await,
        []
    );
    // One pod of two: a warning, once; another message of the same reason is none.
    for (ready, wanted) in [(1, vec![event("Warning", "PodsNotReady")]), (0, vec![])] {
        state.zones = vec![zone(ready, 2, None)];
        assert_eq!(
            announced(&ctx, &mut server, &mut group, &mut state).await,
            wanted
        );
    }
    state.zones = vec![zone(2, 2, None)];
    let validated = validated(json!({}), referenced());
    deploy(
        state.rollout.as_mut().unwrap(),
        &validated,
        "2",
        "t2",
        "failed",
    );
    assert_eq!(
        announced(&ctx, &mut server, &mut group, &mut state).await,
        [
            event("Normal", "LastGoodServes"),
            event("Warning", "ImportFailed")
        ]
    );
}

#[tokio::test]
async fn runs_that_fail_under_what_serves_are_an_event_and_leave_ready_as_it_is() {
    let (client, mut server) = api();
    let (ctx, _writers, _folder) = context(client);
    let mut state = serving(zone(2, 2, None));
    let validated = validated(json!({}), referenced());
    let rollout = state.rollout.as_mut().unwrap();
    deploy(rollout, &validated, "2", "t2", "failed");
    let mut group = group(json!({}));
    announced(&ctx, &mut server, &mut group, &mut state).await;
    let ready = condition(state.status.as_ref().unwrap(), "Ready").cloned();
    assert_eq!(ready.as_ref().unwrap().reason, "LastGoodServes");
    let error = Error::Internal("it broke".to_owned());
    let failing = vec![("Warning".to_owned(), "Internal".to_owned())];
    for wanted in [failing, Vec::new()] {
        let told = announced_of(&ctx, &mut server, &mut group, &mut state, Err(&error)).await;
        assert_eq!(told, wanted);
        let status = state.status.as_ref().unwrap();
        assert_eq!(condition(status, "Ready").cloned(), ready);
        assert_eq!(says(status, "Reconciling").1, "Internal");
    }
    // Its end is none: what is told is as it was.
    let told = announced(&ctx, &mut server, &mut group, &mut state).await;
    assert_eq!(told, []);
}

#[tokio::test]
async fn a_source_that_fails_under_what_serves_is_an_event_and_so_is_its_end() {
    let (client, mut server) = api();
    let (ctx, _writers, _folder) = context(client);
    let mut state = serving(zone(2, 2, None));
    let mut group = group(json!({}));
    announced(&ctx, &mut server, &mut group, &mut state).await;
    for (done, kind, reason) in [
        (judged::unreachable(true), "Warning", "SourceUnreachable"),
        (judged::unreachable(false), "Warning", "RefNotFound"),
        (judged::pushed("1"), "Normal", "Fetched"),
    ] {
        judged::happened(&mut state, done);
        let told = announced(&ctx, &mut server, &mut group, &mut state).await;
        assert_eq!(told, [(kind.to_owned(), reason.to_owned())]);
    }
}

#[tokio::test]
async fn what_another_process_told_of_the_source_stays_until_it_was_asked() {
    let mut state = serving(zone(2, 2, None));
    judged::happened(&mut state, judged::unreachable(true));
    let (_, before) = told(&state, &McpGroupStatus::default(), 10);
    let fails = ("False".to_owned(), "SourceUnreachable".to_owned());
    assert_eq!(says(&before, "SourceFetched"), fails);
    let group = validated(json!({}), referenced());
    let remembered = Remembered {
        memory: Some(state.rollout.as_ref().unwrap().wanted().unwrap().remembered),
        ..Remembered::default()
    };
    let mut rollout = Rollout::load(&group.key, &remembered).unwrap();
    rollout.advance(&group, &operator(), false, tokio::time::Instant::now());
    state.rollout = Some(rollout);
    let (_, status) = told(&state, &before, 20);
    assert_eq!(
        condition(&status, "SourceFetched"),
        condition(&before, "SourceFetched")
    );
    judged::happened(&mut state, judged::pushed("1"));
    let (_, status) = told(&state, &status, 30);
    assert_eq!(says(&status, "SourceFetched").1, "Fetched");
    assert_eq!(
        condition(&status, "SourceFetched")
            .unwrap()
            .last_transition_time,
        at(30)
    );
}

#[tokio::test]
async fn a_group_that_was_removed_meanwhile_is_no_error() {
    let (client, mut server) = api();
    let (ctx, _writers, _folder) = context(client);
    let mut state = serving(zone(2, 2, None));
    let (outcome, _) = told(&state, &McpGroupStatus::default(), 10);
    let key = GroupKey::new("team-a", "calc");
    let group = group(json!({}));
    let (wrote, _) = tokio::join!(
        write(&ctx, &group, &key, &mut state, Ok(&outcome)),
        server.answer(|_| Server::missing())
    );
    wrote.unwrap();
    server.silent().await;
}
