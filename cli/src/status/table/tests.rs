use serde_json::json;

use super::super::view::tests::group;
use super::*;

fn summary(name: &str, message: &str) -> Summary {
    Summary {
        namespace: "team-a".to_owned(),
        name: name.to_owned(),
        status: "True".to_owned(),
        message: message.to_owned(),
        ..Summary::default()
    }
}

#[test]
fn a_list_has_the_columns_of_kubectl_and_the_message() {
    let text = list(&[summary("demo", "two\nlines")], true);
    assert_eq!(
        text,
        "NAMESPACE   NAME   READY   REASON   TOOLS   ERRORS   REVISION   REPLICAS   AGE   MESSAGE\n\
         team-a      demo   True    -        -       0        -          -          -     two lines\n"
    );
    assert!(list(&[summary("demo", "")], false).starts_with("NAME   READY"));
}

#[test]
fn lines_of_a_watch_line_up_and_the_header_comes_once() {
    let mut lines = Lines::new(false);
    let first = lines.line(&summary("a-long-name", "x"));
    let second = lines.line(&summary("b", "y"));
    assert!(first.starts_with("NAME          READY"), "{first}");
    assert!(!second.contains('\n'));
    let row = first.lines().nth(1).unwrap();
    assert_eq!(row.find("True"), second.find("True"));
}

#[test]
fn a_group_is_told_from_what_serves_to_what_to_do() {
    let group = group(&json!({
        "observedGeneration": 3,
        "conditions": [{
            "type": "Ready", "status": "True", "reason": "LastGoodServes", "message": "the last good revision serves",
            "lastTransitionTime": "2026-01-01T00:00:00Z",
        }],
        "revision": {"serving": "main@sha1:0123456789abcdef", "attempted": "main@sha1:ff", "observed": "main@sha1:ff"},
        "packages": [
            {"kind": "tool", "name": "a", "ok": true}, {"kind": "tool", "name": "b", "ok": true},
            {"kind": "prompt", "name": "p", "ok": false},
        ],
        "errors": [{"package": "prompts/p", "reason": "SkillMissing", "message": "no SKILL.md", "path": "mcp/prompts/p/SKILL.md"}],
        "errorsTotal": 3,
        "lastDeploy": {"revision": "main@sha1:ff", "outcome": "partial", "timings": {"fetchMs": 120, "importMs": 1115, "totalMs": 1235}},
        "lastRequestedAt": "run 6",
    }));
    let detail = Detail::of(&group, &[], &[], vec!["events: not allowed".to_owned()]);
    let text = super::detail(&detail, false);
    for part in [
        "team-a/demo  ready  LastGoodServes",
        "serving      main@sha1:0123456789abcdef",
        "last deploy  main@ff: partial in 1.23 s (fetch 0.12 s, import 1.11 s)",
        "packages     2 tools; left out: prompts/p",
        "last hook    2026-01-02T03:04:05Z",
        "requested    run 7, not acted on yet",
        "error mcp/prompts/p/SKILL.md: SkillMissing: no SKILL.md",
        "fix: Add the file that `skill` names",
        "(docs/reference/errors.md#skillmissing)",
        "and 2 more",
        "CONDITION",
        "not read: events: not allowed",
    ] {
        assert!(text.contains(part), "{part}\n{text}");
    }
    assert!(!text.contains('\x1b'));
    assert!(super::detail(&detail, true).contains("\x1b[32mready\x1b[0m"));
}
