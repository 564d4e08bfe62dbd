use serde_json::{Value, json};

use super::*;
use crate::pods::tests::worker;
use crate::pods::{Trouble, TroubleKind};

fn live(conditions: &Value) -> Deployment {
    serde_json::from_value(json!({
        "metadata": {"name": "calc-default", "generation": 2},
        "spec": {"replicas": 3, "selector": {}, "template": {}},
        "status": {
            "observedGeneration": 2, "readyReplicas": 1, "updatedReplicas": 3,
            "conditions": conditions,
        },
    }))
    .unwrap()
}

fn problem(conditions: &Value, pods: &[PodView]) -> Option<(String, String)> {
    let pods = problem_of(pods.iter(), None);
    zone_view("default".to_owned(), Some(3), Some(&live(conditions)), pods).problem
}

fn ill(name: &str, kind: TroubleKind, reason: &str) -> PodView {
    PodView {
        ready: false,
        trouble: Some(Box::new(Trouble {
            reason: reason.to_owned(),
            message: format!("{reason} in words"),
            kind,
        })),
        ..worker(name)
    }
}

#[test]
fn a_refusal_of_pods_comes_before_what_pods_have_and_that_before_a_missed_deadline() {
    let quota = json!({
        "type": "ReplicaFailure", "status": "True", "reason": "FailedCreate",
        "message": "pods \"x\" is forbidden: exceeded quota: all",
    });
    let late = json!({
        "type": "Progressing", "status": "False", "reason": "ProgressDeadlineExceeded",
        "message": "ReplicaSet \"x\" has timed out progressing.",
    });
    let pods = [ill("b", TroubleKind::Waits, "ImagePullBackOff")];
    let (reason, message) = problem(&json!([late, quota]), &pods).unwrap();
    assert_eq!(reason, "QuotaExceeded");
    assert!(message.starts_with("pods are refused: "), "{message}");
    let (reason, message) = problem(&json!([late]), &pods).unwrap();
    assert_eq!(reason, "ImagePullBackOff");
    assert_eq!(message, "pod b: ImagePullBackOff in words");
    let (reason, _) = problem(&json!([late]), &[]).unwrap();
    assert_eq!(reason, "ProgressDeadlineExceeded");
    assert_eq!(problem(&json!([]), &[worker("a")]), None);
}

#[test]
fn a_zone_of_which_nothing_else_is_known_wants_as_many_pods_as_its_deployment() {
    let wanted = |wanted: Option<u32>, replicas: Option<i32>| {
        let mut live = live(&json!([]));
        live.spec.as_mut().unwrap().replicas = replicas;
        zone_view("default".to_owned(), wanted, Some(&live), None).wanted
    };
    assert_eq!(wanted(None, Some(0)), 0);
    assert_eq!(wanted(None, Some(3)), 3);
    assert_eq!(wanted(None, None), 1);
    assert_eq!(wanted(Some(2), Some(0)), 2);
    assert_eq!(zone_view("default".to_owned(), None, None, None).wanted, 1);
}

#[test]
fn the_worst_is_told_and_the_same_whatever_the_order() {
    let mut pods = vec![
        ill("a", TroubleKind::Unplaced, "Unschedulable"),
        ill("c", TroubleKind::Died, "OOMKilled"),
        ill("b", TroubleKind::Died, "CrashLoopBackOff"),
    ];
    let first = problem(&json!([]), &pods).unwrap();
    assert_eq!(first.1, "pod b: CrashLoopBackOff in words");
    pods.reverse();
    assert_eq!(problem(&json!([]), &pods).unwrap(), first);
    // One that leaves says nothing any more.
    for pod in &mut pods {
        pod.leaving = true;
    }
    assert_eq!(problem(&json!([]), &pods), None);
}

#[test]
fn pods_that_nobody_has_heard_of_count_as_they_were_told_and_then_by_what_they_say() {
    let inputs = ramen_rollout::Inputs {
        tree: "t".to_owned(),
        runtime: String::new(),
        spec: String::new(),
    };
    let pods = [worker("a"), worker("b"), ill("c", TroubleKind::Waits, "x")];
    let zone = |told: &[ZoneStatus], convergence: &Convergence| {
        let live = live(&json!([]));
        let mut zones = [zone_view("default".to_owned(), Some(3), Some(&live), None)];
        converge(&mut zones, &pods, convergence, told);
        let [zone] = zones;
        (zone.updated, zone.rolled)
    };
    let told = [ZoneStatus {
        name: "default".to_owned(),
        replicas: 3,
        ready: 3,
        updated: 3,
    }];
    let mut convergence = Convergence::default();
    assert_eq!(zone(&[], &convergence), (0, 3));
    assert_eq!(zone(&told, &convergence), (2, 3));
    convergence.loaded(&inputs, vec!["b".to_owned()]);
    assert_eq!(zone(&told, &convergence), (1, 3));
}
