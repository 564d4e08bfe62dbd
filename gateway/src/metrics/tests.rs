use http::StatusCode;
use ramen_group::CidrSet;
use ramen_mcp::Era;
use ramen_redact::{KeySet, Secret};

use super::*;
use crate::answer;
use crate::groups::GroupSpec;

fn name(number: usize) -> GroupName {
    GroupName {
        namespace: "a".into(),
        name: format!("g{number}"),
    }
}

fn groups(numbers: std::ops::Range<usize>) -> Groups {
    let groups = Groups::default();
    let specs: Vec<_> = numbers
        .map(|number| GroupSpec {
            name: name(number),
            keys: KeySet::empty(),
            access: None,
            ranges: CidrSet::default(),
            worker_key: Secret::from("k"),
            workers: Vec::new(),
            upstreams: Vec::new(),
        })
        .collect();
    groups.replace(&specs);
    groups
}

fn lines<'t>(text: &'t str, start: &str) -> Vec<&'t str> {
    text.lines()
        .filter(|line| line.starts_with(start))
        .collect()
}

#[test]
fn a_request_counts_under_its_group_era_and_outcome() {
    let metrics = Arc::<Metrics>::default();
    let served = groups(0..1);
    let mut good = answer::empty(StatusCode::OK);
    good.extensions_mut().insert(Era::Modern);
    metrics.begin(Some(&name(0))).end(&good);
    metrics
        .begin(Some(&name(0)))
        .end(&Refusal::Address.answer());
    metrics.begin(None).end(&Refusal::Credential.answer());
    drop(metrics.begin(Some(&name(0))));
    let running = metrics.begin(Some(&name(0)));
    let text = metrics.text(&served);
    for line in [
        r#"ramen_gateway_requests_total{group="a/g0",era="modern",outcome="ok"} 1"#,
        r#"ramen_gateway_requests_total{group="a/g0",era="none",outcome="refused"} 1"#,
        r#"ramen_gateway_requests_total{group="unknown",era="none",outcome="refused"} 1"#,
        r#"ramen_gateway_requests_total{group="a/g0",era="none",outcome="cancelled"} 1"#,
        r#"ramen_gateway_auth_failures_total{reason="address"} 1"#,
        r#"ramen_gateway_auth_failures_total{reason="credential"} 1"#,
        r#"ramen_gateway_request_duration_seconds_count{era="modern"} 1"#,
        r#"ramen_gateway_workers{group="a/g0",state="ready"} 0"#,
        r#"ramen_gateway_worker_ejections_total{group="a/g0"} 0"#,
        "ramen_gateway_in_flight 1",
        "ramen_gateway_groups 1",
    ] {
        assert!(text.contains(line), "{line} in\n{text}");
    }
    drop(running);
    assert!(metrics.text(&served).contains("ramen_gateway_in_flight 0"));
}

#[test]
fn every_outcome_of_a_request_stands_in_its_help() {
    let metrics = Arc::<Metrics>::default();
    // What has no series has no help.
    metrics.begin(None).end(&Refusal::Path.answer());
    let text = metrics.text(&groups(0..0));
    let help = lines(&text, "# HELP ramen_gateway_requests ")[0];
    let listed = help.split(['(', ')']).nth(1).unwrap();
    let listed: Vec<_> = listed.split(", ").collect();
    assert_eq!(listed, Outcome::ALL.map(Outcome::label));
}

#[test]
fn what_an_answer_cannot_show_travels_with_it() {
    let metrics = Arc::<Metrics>::default();
    for (code, lost, outcome) in [
        (tonic::Code::Unavailable, false, "unavailable"),
        (tonic::Code::Unavailable, true, "lost"),
        (tonic::Code::DeadlineExceeded, false, "deadline"),
        (tonic::Code::ResourceExhausted, false, "exhausted"),
        (tonic::Code::PermissionDenied, false, "bad_worker"),
        (tonic::Code::Unknown, false, "error"),
    ] {
        let failed = Outcome::of_status(code, lost).mark(answer::empty(StatusCode::OK));
        metrics.begin(Some(&name(0))).end(&failed);
        let line = format!(r#"{{group="a/g0",era="none",outcome="{outcome}"}} 1"#);
        let text = metrics.text(&groups(0..1));
        assert!(text.contains(&line), "{line} in\n{text}");
    }
}

#[test]
fn a_file_that_cannot_be_used_is_told_until_it_can() {
    let metrics = Metrics::default();
    for unusable in [false, true, false] {
        metrics.unusable("groups", unusable);
        let line = format!(
            r#"ramen_gateway_unusable_files{{file="groups"}} {}"#,
            i32::from(unusable)
        );
        let text = metrics.text(&groups(0..0));
        assert!(text.contains(&line), "{line} in\n{text}");
    }
}

#[test]
fn a_listen_stream_is_in_no_latency() {
    let metrics = Arc::<Metrics>::default();
    let opened = Outcome::Listening.mark(answer::empty(StatusCode::OK));
    metrics.begin(Some(&name(0))).end(&opened);
    let open = metrics.listening();
    let text = metrics.text(&groups(0..1));
    assert_eq!(
        lines(&text, "ramen_gateway_request_duration_seconds_count").len(),
        0
    );
    assert!(text.contains("ramen_gateway_listen_streams 1"));
    drop(open);
    assert!(
        metrics
            .text(&groups(0..1))
            .contains("ramen_gateway_listen_streams 0")
    );
}

#[test]
fn the_number_of_series_is_bounded_and_a_group_that_went_takes_its_own_along() {
    let metrics = Arc::<Metrics>::default();
    let all = groups(0..MAX_GROUPS + 10);
    let ask = |number: usize| {
        metrics
            .begin(Some(&name(number)))
            .end(&answer::empty(StatusCode::OK));
    };
    (0..MAX_GROUPS + 10).for_each(ask);
    let text = metrics.text(&all);
    let requests = "ramen_gateway_requests_total";
    assert_eq!(lines(&text, requests).len(), MAX_GROUPS + 1);
    let other = r#"ramen_gateway_requests_total{group="other",era="none",outcome="ok"} 10"#;
    assert!(text.contains(other));
    assert_eq!(
        lines(&text, "ramen_gateway_workers{").len(),
        2 * (MAX_GROUPS + 1)
    );
    // Room again for others.
    let few = groups(MAX_GROUPS..MAX_GROUPS + 1);
    assert_eq!(lines(&metrics.text(&few), requests).len(), 1);
    ask(MAX_GROUPS);
    let text = metrics.text(&few);
    assert!(text.contains(&format!(r#"requests_total{{group="a/g{MAX_GROUPS}""#)));
}

#[test]
fn what_alerts_ask_for_is_there_before_it_happens() {
    let metrics = Metrics::default();
    metrics.operates("groups.list");
    let text = metrics.text(&groups(0..0));
    for line in [
        r#"ramen_gateway_auth_failures_total{reason="unverified"} 0"#,
        r#"ramen_gateway_refusals_total{reason="in_flight"} 0"#,
        r#"ramen_gateway_operations_total{operation="groups.list",outcome="internal"} 0"#,
        r#"ramen_gateway_operations_total{operation="groups.list",outcome="ok"} 0"#,
    ] {
        assert!(text.contains(line), "{line} in\n{text}");
    }
}

#[test]
fn readers_at_once_see_the_same_numbers() {
    let metrics = Metrics::default();
    let served = groups(0..50);
    let text = || {
        let text = metrics.text(&served);
        lines(&text, "ramen_gateway_workers{").len()
    };
    std::thread::scope(|scope| {
        let readers = [(); 4].map(|()| scope.spawn(|| [(); 20].map(|()| text())));
        for reader in readers {
            assert_eq!(reader.join().unwrap(), [100; 20]);
        }
    });
}

#[test]
fn the_page_of_metrics_has_all_that_are_exposed_and_no_other() {
    let metrics = Arc::<Metrics>::default();
    metrics.begin(None).end(&Refusal::Path.answer());
    metrics.judged(&Refusal::Address.answer());
    metrics.operated("groups.list", DONE);
    metrics.unusable("groups", false);
    let text = metrics.text(&groups(0..1));
    let types = text
        .lines()
        .filter_map(|line| line.strip_prefix("# TYPE ramen_gateway_"));
    let exposed: Vec<String> = types
        .map(|line| match line.split_once(' ').unwrap() {
            (name, "counter") => format!("{name}_total"),
            (name, _) => name.to_owned(),
        })
        .collect();
    let top = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
    let page = std::fs::read_to_string(top.join("docs/reference/metrics.md")).unwrap();
    let listed: Vec<&str> = page
        .lines()
        .filter_map(|line| line.strip_prefix("| `ramen_gateway_")?.split('`').next())
        .collect();
    // What has no series has no type: upstreams were cleared with the text.
    let listed: Vec<&str> = listed
        .into_iter()
        .filter(|name| *name != "upstreams")
        .collect();
    assert_eq!(exposed, listed, "run `make gen` and commit");
}
