use std::slice;

use super::*;
use crate::pods::tests::worker;

fn inputs(tree: &str) -> Inputs {
    Inputs {
        tree: tree.to_owned(),
        runtime: String::new(),
        spec: String::new(),
    }
}

fn said(pod: &str, behind: Option<&str>) -> Said {
    Said {
        pod: pod.to_owned(),
        answer: behind.map_or(Answer::Serves, |why| Answer::Behind(why.to_owned())),
    }
}

/// The names of the pods that are asked now.
fn asked(one: &mut Convergence, of: &Inputs, pods: &[PodView]) -> Vec<String> {
    let now = Instant::now();
    one.note(Some(of), pods, now);
    let asked = one.asks(pods, now);
    asked.into_iter().map(|pod| pod.name).collect()
}

const NOBODY: [&str; 0] = [];

#[tokio::test(start_paused = true)]
async fn pods_that_a_push_did_not_reach_are_asked_until_all_serve_it_and_then_nobody_is() {
    let (mut one, of) = (Convergence::default(), inputs("a"));
    let pods = [worker("p"), worker("q"), worker("r")];
    one.loaded(&of, vec!["p".to_owned()]);
    assert_eq!(asked(&mut one, &of, &pods), ["q", "r"]);
    assert_eq!(one.count(pods.iter()), (1, 2));
    // Nobody is asked twice at once.
    assert_eq!(asked(&mut one, &of, &pods), NOBODY);
    one.said(&of, vec![said("q", None), said("r", Some("it serves b"))]);
    assert_eq!(asked(&mut one, &of, &pods), NOBODY);
    assert_eq!(one.count(pods.iter()), (2, 0));
    assert_eq!(
        one.behind(pods.iter()).as_deref(),
        Some("pod r: it serves b")
    );
    let mut pauses = Vec::new();
    for _ in 0..6 {
        let pause = one.next_timer().unwrap() - Instant::now();
        pauses.push(pause.as_secs());
        tokio::time::advance(pause).await;
        assert_eq!(asked(&mut one, &of, &pods), ["r"]);
        assert_eq!(one.next_timer(), None);
        one.said(&of, vec![said("r", Some("it serves b"))]);
        assert_eq!(asked(&mut one, &of, &pods), NOBODY);
    }
    assert_eq!(pauses, [30, 60, 120, 240, 300, 300]);
    tokio::time::advance(LAST_PAUSE).await;
    assert_eq!(asked(&mut one, &of, &pods), ["r"]);
    one.said(&of, vec![said("r", None)]);
    assert_eq!(asked(&mut one, &of, &pods), NOBODY);
    assert_eq!((one.count(pods.iter()), one.next_timer()), ((3, 0), None));
}

#[tokio::test(start_paused = true)]
async fn of_a_pod_that_never_answers_nothing_is_known_and_it_is_asked_on() {
    let (mut one, of) = (Convergence::default(), inputs("a"));
    let pods = [worker("p"), worker("q")];
    one.loaded(&of, vec!["p".to_owned()]);
    let mut unknown = Vec::new();
    for _ in 0..4 {
        assert_eq!(asked(&mut one, &of, &pods), ["q"]);
        let silent = Said {
            pod: "q".to_owned(),
            answer: Answer::Silent,
        };
        one.said(&of, vec![silent]);
        assert_eq!(asked(&mut one, &of, &pods), NOBODY);
        unknown.push(one.unknown(pods.iter()));
        assert_eq!(
            one.count(pods.iter()),
            (1, 0),
            "it is not taken for updated"
        );
        tokio::time::advance(one.next_timer().unwrap() - Instant::now()).await;
    }
    assert_eq!(unknown, [0, 0, 1, 1]);
    let behind = one.behind(pods.iter());
    assert_eq!(
        behind.as_deref(),
        Some("pod q: it does not answer the operator")
    );
    // Once it can be asked, what it says counts.
    assert_eq!(asked(&mut one, &of, &pods), ["q"]);
    one.said(&of, vec![said("q", Some("it serves b"))]);
    assert_eq!(one.unknown(pods.iter()), 0);
}

#[tokio::test(start_paused = true)]
async fn after_a_push_that_was_refused_all_pods_are_asked_anew() {
    let (mut one, of) = (Convergence::default(), inputs("a"));
    let pods = [worker("p"), worker("q")];
    one.loaded(&of, vec!["p".to_owned(), "q".to_owned()]);
    assert_eq!(asked(&mut one, &of, &pods), NOBODY);
    one.doubt();
    assert!(!one.is_blank(), "what was told before does not hold");
    assert_eq!(one.count(pods.iter()), (0, 2));
    assert_eq!(asked(&mut one, &of, &pods), ["p", "q"]);
    // A new revision was loaded while they were asked about the one before, and may have gone back to.
    let next = inputs("b");
    one.loaded(&next, vec!["p".to_owned(), "q".to_owned()]);
    one.said(&of, vec![said("p", None), said("q", None)]);
    assert_eq!(asked(&mut one, &next, &pods), ["p", "q"]);
}

#[tokio::test(start_paused = true)]
async fn a_pod_is_asked_when_it_answers_calls_and_again_when_its_container_is_another() {
    let (mut one, of) = (Convergence::default(), inputs("a"));
    let silent = PodView {
        ready: false,
        ..worker("p")
    };
    assert_eq!(asked(&mut one, &of, &[silent]), NOBODY);
    assert_eq!(asked(&mut one, &of, &[worker("p")]), ["p"]);
    one.said(&of, vec![said("p", None)]);
    assert_eq!(asked(&mut one, &of, &[worker("p")]), NOBODY);
    let again = PodView {
        restarts: 1,
        ..worker("p")
    };
    assert_eq!(asked(&mut one, &of, slice::from_ref(&again)), ["p"]);
    // What was said of another revision says nothing.
    let next = inputs("b");
    assert_eq!(asked(&mut one, &next, slice::from_ref(&again)), NOBODY);
    one.said(&of, vec![said("p", None)]);
    assert!(one.is_blank());
    assert_eq!(asked(&mut one, &next, slice::from_ref(&again)), ["p"]);
    // Before anything serves, nobody is asked.
    let mut none = Convergence::default();
    none.note(None, &[worker("p")], Instant::now());
    assert!(none.asks(&[worker("p")], Instant::now()).is_empty());
}
