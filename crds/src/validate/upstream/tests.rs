use std::collections::BTreeMap;
use std::time::Duration;

use super::*;
use crate::{McpGroup, validate};

fn with(upstreams: &str) -> Result<Vec<Upstream>, Vec<String>> {
    let text = format!(
        "apiVersion: ramen.dev/v1alpha1\nkind: McpGroup\nmetadata: {{name: demo}}\nspec:\n  source: {{url: \
         https://git.example/demo.git}}\n  network: {{allowedCIDRs: [10.0.0.0/8]}}\n  upstreams: {upstreams}\n"
    );
    let group: McpGroup = serde_saphyr::from_str(&text).unwrap();
    validate(&group)
        .map(|group| group.upstreams)
        .map_err(|faults| faults.iter().map(ToString::to_string).collect())
}

#[test]
fn an_upstream_is_read_field_by_field() {
    let all = with(
        "[{name: issues, url: 'https://mcp.example/mcp', timeout: 5s, allowedTools: ['get_*'], headers: [{name: \
         Authorization, secretRef: {name: tokens, key: issues, prefix: 'Bearer '}}, {name: X-Team, value: blue}]}, \
         {name: files, command: npx, args: [-y, server], env: [{name: TOKEN, secretRef: {name: tokens, key: t}}]}]",
    )
    .unwrap();
    assert_eq!(all[0].name.as_str(), "issues");
    assert_eq!(all[0].timeout, Duration::from_secs(5));
    assert_eq!(all[1].timeout, Duration::from_mins(1));
    assert_eq!(all[0].allowed_tools, ["get_*"]);
    let needed: Vec<_> = all.iter().flat_map(Upstream::secrets).collect();
    assert!(needed.iter().all(|name| name.as_str() == "tokens") && needed.len() == 2);
    let Reach::Http { url, headers } = &all[0].reach else {
        panic!()
    };
    assert_eq!(url.expose().as_str(), "https://mcp.example/mcp");
    let values = headers
        .resolve(|_, key| (key == "issues").then_some(b"tok_123\n".as_slice()))
        .unwrap();
    let shown: BTreeMap<_, _> = values.iter().map(|(k, v)| (&**k, &**v.expose())).collect();
    assert_eq!(
        shown,
        BTreeMap::from([("Authorization", "Bearer tok_123"), ("X-Team", "blue")])
    );
    assert!(!format!("{values:?}").contains("tok_123"));
    assert!(matches!(&all[1].reach, Reach::Command { command, .. } if command == "npx"));
}

#[test]
fn a_value_that_is_not_there_or_cannot_be_sent_is_named_without_being_shown() {
    let all =
        with("[{name: a, url: 'https://h/', headers: [{name: X, secretRef: {name: s, key: k}}]}]")
            .unwrap();
    let Reach::Http { headers, .. } = &all[0].reach else {
        panic!()
    };
    for (bytes, wanted) in [
        (None, "is not there"),
        (Some(b"\xff\xfehidden".as_slice()), "is no text"),
        (Some(b"\n".as_slice()), "is empty"),
        (
            Some(b"hidden\r\nX-Other: 1".as_slice()),
            "control character",
        ),
    ] {
        let error = headers.resolve(|_, _| bytes).unwrap_err();
        assert!(
            error.contains("X: the key k of the Secret s") && error.contains(wanted),
            "{error}"
        );
        assert!(!error.contains("hidden"), "{error}");
    }
}

#[test]
fn what_is_wrong_names_its_field() {
    for (upstreams, wanted) in [
        (
            "[{name: my_time, url: 'https://h/'}]",
            "spec.upstreams[0].name: an upstream's name",
        ),
        (
            "[{name: a}]",
            "spec.upstreams[0]: needs either a url or a command, not both",
        ),
        (
            "[{name: a, url: 'https://h/', command: x}]",
            "spec.upstreams[0]: needs either a url or a command, not both",
        ),
        (
            "[{name: a, url: 'ftp://h/'}]",
            "spec.upstreams[0].url: must begin with https://",
        ),
        (
            "[{name: a, url: 'https://me:hunter2@h/'}]",
            "spec.upstreams[0].url: credentials",
        ),
        (
            "[{name: a, url: 'https://h/#x'}]",
            "spec.upstreams[0].url: must not have a fragment",
        ),
        (
            "[{name: a, url: 'https:// h'}]",
            "spec.upstreams[0].url: is no url",
        ),
        (
            "[{name: a, url: 'https://h/', timeout: 1h}]",
            "spec.upstreams[0].timeout: must be from 1s to 10m",
        ),
        (
            "[{name: a, url: 'https://h/', args: [x]}]",
            "spec.upstreams[0]: args and env",
        ),
        (
            "[{name: a, command: x, headers: [{name: X, value: y}]}]",
            "spec.upstreams[0]: headers go with",
        ),
        (
            "[{name: a, command: ' '}]",
            "spec.upstreams[0].command: must name",
        ),
        (
            "[{name: a, url: 'https://h/', headers: [{name: 'X Y', value: y}]}]",
            "spec.upstreams[0].headers[0].name: is no name of a header",
        ),
        (
            "[{name: a, url: 'https://h/', headers: [{name: Host, value: y}]}]",
            "spec.upstreams[0].headers[0].name: is a header that the connection sets itself",
        ),
        (
            "[{name: a, url: 'https://h/', headers: [{name: Mcp-Name, value: y}]}]",
            "is a header that the connection sets itself",
        ),
        (
            "[{name: a, url: 'https://h/', headers: [{name: X, value: y}, {name: x, value: z}]}]",
            "spec.upstreams[0].headers[1].name: is there twice",
        ),
        (
            "[{name: a, url: 'https://h/', headers: [{name: X}]}]",
            "spec.upstreams[0].headers[0]: needs either a value or a secretRef",
        ),
        (
            r#"[{name: a, url: 'https://h/', headers: [{name: X, value: "a\r\nb"}]}]"#,
            "spec.upstreams[0].headers[0].value: has a control character",
        ),
        (
            "[{name: a, url: 'https://h/', allowedTools: ['a*b']}]",
            "spec.upstreams[0].allowedTools[0]: must be a tool's name",
        ),
        (
            "[{name: a, url: 'https://h/'}, {name: a, url: 'https://g/'}]",
            "spec.upstreams[1].name: two upstreams have the same name",
        ),
    ] {
        let faults = with(upstreams).unwrap_err();
        assert!(
            faults.iter().any(|fault| fault.contains(wanted)),
            "{wanted}: {faults:?}"
        );
        assert!(!faults.concat().contains("hunter2"), "{faults:?}");
    }
}
