//! The statuses that other tools judge (`tests/fixtures/status`): what is kept there is what is written here.
//! The chart's tests hold Argo CD's script, kstatus and Flux's health check to them.

use std::path::{Path, PathBuf};

use ramen_group::{Finding, Reason};
use serde_json::Value;

use super::*;
use crate::group::rollout::Trouble;
use crate::group::tasks::Done;

/// Set to write the files anew.
const WRITE: &str = "RAMEN_WRITE_FIXTURES";

fn folder() -> PathBuf {
    let top = Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap();
    top.join("tests/fixtures/status")
}

fn blank() -> State {
    let group = validated(json!({}), referenced());
    let mut rollout = Rollout::load(&group.key, &Remembered::default()).unwrap();
    rollout.advance(&group, &operator(), false, tokio::time::Instant::now());
    State {
        rollout: Some(rollout),
        ..State::default()
    }
}

/// Something happened since the last run.
fn happened(state: &mut State, done: Done) {
    let group = validated(json!({}), referenced());
    let rollout = state.rollout.as_mut().unwrap();
    rollout.inbox.lock().unwrap().push(done);
    rollout.advance(&group, &operator(), false, tokio::time::Instant::now());
}

fn pushed(commit: &str) -> Done {
    Done::Resolved(Ok(ramen_source::git::Resolved {
        name: Some("main".to_owned()),
        full_ref: Some("refs/heads/main".to_owned()),
        on_branch: None,
        commit: commit.to_owned(),
    }))
}

fn unreachable(transient: bool) -> Done {
    let (reason, message) = if transient {
        (Reason::SourceUnreachable, "the host does not answer")
    } else {
        (Reason::RefNotFound, "there is no branch main")
    };
    Done::Resolved(Err(Trouble {
        finding: Finding::group(reason, message),
        transient,
    }))
}

fn of(state: &State) -> McpGroupStatus {
    told(state, &McpGroupStatus::default(), 10).1
}

fn all() -> Vec<(&'static str, Value)> {
    let json = |status: McpGroupStatus| serde_json::to_value(status).unwrap();
    let group = validated(json!({}), referenced());
    let mut cases = vec![
        // What the API server writes for a group that nobody has looked at.
        ("not-seen", json!({ "observedGeneration": -1 })),
        ("looking", json(of(&blank()))),
        ("serving", json(of(&serving(zone(2, 2, None))))),
        ("pods-coming", json(of(&serving(zone(1, 2, None))))),
    ];
    let mut old = of(&serving(zone(2, 2, None)));
    old.observed_generation = Some(2);
    cases.push(("of-an-older-spec", json(old)));
    let quota = ("FailedCreate", "pods is forbidden: exceeded quota: all");
    cases.push(("pods-refused", json(of(&serving(zone(1, 2, Some(quota)))))));

    let mut state = blank();
    happened(&mut state, pushed("1"));
    cases.push(("first-deploy", json(of(&state))));
    let mut state = serving(zone(2, 2, None));
    happened(&mut state, pushed("2"));
    cases.push(("newer-under-way", json(of(&state))));
    let mut state = serving(zone(2, 2, None));
    deploy(state.rollout.as_mut().unwrap(), &group, "2", "t2", "failed");
    cases.push(("bad-push", json(of(&state))));
    let mut state = blank();
    deploy(state.rollout.as_mut().unwrap(), &group, "1", "t1", "failed");
    cases.push(("first-push-bad", json(of(&state))));

    let mut state = serving(zone(2, 2, None));
    happened(&mut state, unreachable(true));
    cases.push(("serving-host-away", json(of(&state))));
    let mut state = blank();
    happened(&mut state, unreachable(true));
    cases.push(("host-away", json(of(&state))));
    let mut state = serving(zone(2, 2, None));
    happened(&mut state, unreachable(false));
    cases.push(("serving-branch-gone", json(of(&state))));

    let mut state = serving(zone(2, 2, None));
    let (reason, message) = ("SecretMissing", "there is no Secret weather".to_owned());
    state.invalid = Some(Invalid {
        reason,
        message: message.clone(),
    });
    let outcome = Outcome::Stalled { reason, message };
    let before = McpGroupStatus::default();
    let status = compute(
        &super::group(json!({})),
        &state,
        &before,
        Ok(&outcome),
        &at(10),
    );
    cases.push(("secret-missing", json(status)));
    cases
}

#[tokio::test]
async fn the_statuses_that_others_judge_are_those_that_are_written() {
    let folder = folder();
    let mut stale = Vec::new();
    let mut names = Vec::new();
    for (name, status) in all() {
        let object = json!({
            "apiVersion": "ramen.dev/v1alpha1", "kind": "McpGroup",
            "metadata": {"name": "calc", "namespace": "team-a", "generation": 3},
            "status": status,
        });
        let text = serde_json::to_string_pretty(&object).unwrap() + "\n";
        let file = folder.join(format!("{name}.json"));
        if std::env::var_os(WRITE).is_some() {
            std::fs::write(&file, &text).unwrap();
        }
        if std::fs::read_to_string(&file).unwrap_or_default() != text {
            stale.push(name);
        }
        names.push(name);
    }
    assert!(
        stale.is_empty(),
        "{stale:?} differ; run this test with {WRITE}=1 and commit"
    );
    let expected = std::fs::read(folder.join("expected.json")).unwrap();
    let expected: serde_json::Map<String, Value> = serde_json::from_slice(&expected).unwrap();
    let mut judged: Vec<&str> = expected.keys().map(String::as_str).collect();
    judged.sort_unstable();
    names.sort_unstable();
    assert_eq!(judged, names, "expected.json");
}
