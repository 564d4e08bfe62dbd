use super::*;
use crate::pods::tests::worker;
use crate::pods::{Trouble, TroubleKind};

fn inputs(tree: &str) -> Inputs {
    Inputs {
        tree: tree.to_owned(),
        runtime: "ramen-worker:1 python newest".to_owned(),
        spec: String::new(),
    }
}

fn crashing(name: &str, restarts: u32) -> PodView {
    PodView {
        ready: false,
        address: None,
        restarts,
        trouble: Some(Box::new(Trouble {
            reason: "OOMKilled".to_owned(),
            message: "it ran out of memory".to_owned(),
            kind: TroubleKind::Died,
        })),
        ..worker(name)
    }
}

fn silent(name: &str) -> PodView {
    PodView {
        ready: false,
        ..worker(name)
    }
}

fn after(seconds: u64) -> Instant {
    Instant::now() + Duration::from_secs(seconds)
}

/// The clock of the tests began together with their time.
fn clock(now: Instant) -> i64 {
    const BEGIN: i64 = 1_780_000_000;
    let passed = now.duration_since(Instant::now()).as_secs();
    BEGIN + i64::try_from(passed).unwrap()
}

fn note(health: &mut Health, of: &Inputs, pods: &[PodView], now: Instant) {
    health.note(Some(of), pods, now, clock(now));
}

/// What another process knows of it.
fn restarted(health: &Health, of: &Inputs) -> Health {
    let remembered = serde_json::to_string(health.ends()).unwrap();
    let ends = serde_json::from_str(&remembered).unwrap();
    Health::resume(ends, Some(of), Instant::now())
}

const IMAGE: Option<&str> = Some("ramen-worker:1");

#[tokio::test(start_paused = true)]
async fn most_pods_must_end_again_and_again_before_a_revision_is_to_blame() {
    let (mut health, of) = (Health::default(), inputs("a"));
    note(
        &mut health,
        &of,
        &[worker("p"), worker("q"), worker("r")],
        after(0),
    );
    for restarts in 1..=3 {
        let pods = [crashing("p", restarts), worker("q"), worker("r")];
        note(&mut health, &of, &pods, after(u64::from(restarts) * 30));
        assert_eq!(health.verdict(&pods, IMAGE), None, "one of three");
    }
    let pods = [crashing("p", 3), crashing("q", 2), worker("r")];
    note(&mut health, &of, &pods, after(120));
    assert_eq!(health.verdict(&pods, IMAGE), None, "too early");
    let pods = [crashing("p", 3), crashing("q", 3), worker("r")];
    note(&mut health, &of, &pods, after(150));
    let failure = health.verdict(&pods, IMAGE).unwrap();
    assert_eq!(failure.message, "pod p: it ran out of memory");
    assert!(!failure.transient && failure.reason == Reason::HostCrashed);
}

#[tokio::test(start_paused = true)]
async fn ends_of_another_revision_of_long_ago_or_of_another_image_do_not_count() {
    let (mut health, of) = (Health::default(), inputs("a"));
    // Two before it served, one since.
    note(&mut health, &of, &[crashing("p", 2)], after(0));
    let pods = [crashing("p", 4)];
    note(&mut health, &of, &pods, after(10));
    assert_eq!(health.verdict(&pods, IMAGE), None);
    // The third comes when the first two are long gone.
    let pods = [crashing("p", 5)];
    note(&mut health, &of, &pods, after(21 * 60));
    assert_eq!(health.verdict(&pods, IMAGE), None);
    let pods = [crashing("p", 7)];
    note(&mut health, &of, &pods, after(21 * 60 + 60));
    assert!(health.verdict(&pods, IMAGE).is_some());
    assert_eq!(health.verdict(&pods, Some("ramen-worker:2")), None);
    // Another revision starts from nought.
    note(&mut health, &inputs("b"), &pods, after(21 * 60 + 61));
    assert_eq!(health.verdict(&pods, IMAGE), None);
}

#[tokio::test(start_paused = true)]
async fn pods_that_cannot_start_say_nothing_of_the_revision() {
    let (mut health, of) = (Health::default(), inputs("a"));
    let mut pull = crashing("p", 9);
    pull.trouble.as_mut().unwrap().kind = TroubleKind::Waits;
    note(&mut health, &of, &[], after(0));
    note(&mut health, &of, std::slice::from_ref(&pull), after(1));
    assert_eq!(health.verdict(&[pull], IMAGE), None);
}

#[tokio::test(start_paused = true)]
async fn a_pod_that_runs_and_does_not_answer_is_asked_later_each_time() {
    let (mut health, of) = (Health::default(), inputs("a"));
    let pods = [silent("p")];
    let mut pauses = Vec::new();
    for _ in 0..6 {
        note(&mut health, &of, &pods, Instant::now());
        let at = health.next_timer().unwrap();
        pauses.push((at - Instant::now()).as_secs());
        assert!(!health.asks(Instant::now()));
        tokio::time::advance(at - Instant::now()).await;
        assert!(health.asks(Instant::now()) && !health.asks(Instant::now()));
        // Under way: no timer, however often it is woken.
        note(&mut health, &of, &pods, Instant::now());
        assert_eq!(health.next_timer(), None);
        health.said(&of, Vec::new());
    }
    assert_eq!(pauses, [20, 40, 80, 160, 300, 300]);
    note(&mut health, &of, &[worker("p")], Instant::now());
    assert_eq!(health.next_timer(), None);
}

#[tokio::test(start_paused = true)]
async fn what_a_pod_says_counts_while_it_does_not_answer_and_for_its_revision() {
    let (mut health, of) = (Health::default(), inputs("a"));
    let pods = [silent("p")];
    let says = |blames| {
        vec![Ailment {
            pod: "p".to_owned(),
            message: "its host processes end again and again".to_owned(),
            blames,
        }]
    };
    note(&mut health, &of, &pods, after(0));
    health.said(&of, says(false));
    assert!(health.ailing("p").is_some());
    assert_eq!(health.verdict(&pods, IMAGE), None);
    health.said(&of, says(true));
    assert!(
        health
            .verdict(&pods, IMAGE)
            .unwrap()
            .message
            .starts_with("pod p: its host")
    );
    note(&mut health, &of, &[worker("p")], after(1));
    assert_eq!(health.ailing("p"), None);
    note(&mut health, &inputs("b"), &pods, after(2));
    health.said(&of, says(true));
    assert_eq!(health.ailing("p"), None, "it was about another revision");
}

#[tokio::test(start_paused = true)]
async fn another_operator_counts_no_end_twice_and_loses_none() {
    let (mut health, of) = (Health::default(), inputs("a"));
    // Two before the revision, two of the revision.
    note(&mut health, &of, &[crashing("p", 2)], after(0));
    note(&mut health, &of, &[crashing("p", 3)], after(30));
    let pods = [crashing("p", 4)];
    note(&mut health, &of, &pods, after(60));
    for _ in 0..3 {
        let remembered = health.ends().clone();
        health = restarted(&health, &of);
        note(&mut health, &of, &pods, after(90));
        assert_eq!(health.verdict(&pods, IMAGE), None);
        let said = |ends: &Ends| serde_json::to_string(ends).unwrap();
        assert_eq!(said(health.ends()), said(&remembered), "nothing to write");
    }
    let pods = [crashing("p", 5)];
    note(&mut health, &of, &pods, after(120));
    assert!(health.verdict(&pods, IMAGE).is_some());
}

#[tokio::test(start_paused = true)]
async fn ends_while_there_was_no_operator_count_as_the_cluster_tells_them() {
    let of = inputs("a");
    let begin = clock(after(0));
    let died = |restarts, ended: i64, created: i64| PodView {
        ended: Some(begin + ended),
        created: begin + created,
        ..crashing("p", restarts)
    };
    for (what, pod, blamed) in [
        ("young, and ends at once", died(3, 600, 300), true),
        ("one end within hours", died(9, 600, -50_000), false),
        ("all of it long ago", died(9, -9000, -50_000), false),
    ] {
        let mut health = Health::default();
        note(&mut health, &of, &[], after(0));
        health = restarted(&health, &of);
        let pods = [pod];
        note(&mut health, &of, &pods, after(700));
        assert_eq!(health.verdict(&pods, IMAGE).is_some(), blamed, "{what}");
    }
}

#[tokio::test(start_paused = true)]
async fn only_pods_that_ended_and_are_there_are_remembered() {
    let (mut health, of) = (Health::default(), inputs("a"));
    note(&mut health, &of, &[worker("p"), worker("q")], after(0));
    assert!(health.ends().is_empty());
    note(&mut health, &of, &[crashing("p", 1), worker("q")], after(1));
    assert!(!health.ends().is_empty());
    note(&mut health, &of, &[worker("q")], after(2));
    assert!(health.ends().is_empty());
}
