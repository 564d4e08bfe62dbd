//! A group that is not there and one that the caller may not see answer the same, byte for byte.

use http::Request;
use http::header::HeaderValue;
use http_body_util::Full;

use super::*;

/// As long as the name of the group that is there, so that lengths are the same too.
const NOWHERE: &str = "nope";

/// Everything of an answer but its time, without the name of the group.
fn whole(got: &Got, name: &str) -> String {
    let headers = got.headers.iter().filter(|(header, _)| *header != "date");
    let mut lines: Vec<_> = headers
        .map(|(header, value)| format!("{header}: {}", value.to_str().unwrap()))
        .collect();
    lines.sort();
    lines.insert(0, got.status.to_string());
    lines.push(String::from_utf8(got.body.to_vec()).unwrap());
    lines.join("\n").replace(name, "NAME")
}

/// The same request to the group of this name, by its path or by header.
async fn asked(
    gateway: &Running,
    mut request: Request<Full<bytes::Bytes>>,
    name: &str,
    by_header: bool,
) -> String {
    if by_header {
        *request.uri_mut() = "/mcp".parse().unwrap();
        let group = format!("default/{name}").parse().unwrap();
        request.headers_mut().insert("ramen-group", group);
    } else {
        *request.uri_mut() = format!("/default/{name}/mcp").parse().unwrap();
    }
    whole(&gateway.send(request).await, name)
}

#[tokio::test]
async fn sec_a_group_that_is_not_there_looks_like_one_that_a_caller_may_not_see() {
    let (issuer, worker, gateway) = bench().await;
    allow(&gateway, &worker, None);
    gateway
        .groups
        .set(&spec("other", "rmk_of_another_group", &[worker.address]));
    let mut claims = issuer.claims();
    claims["aud"] = json!(format!("{PUBLIC}/default/other/mcp"));
    let credentials = [
        None,
        Some("Basic eDp5".to_owned()),
        Some("Bearer rmk_wrong".to_owned()),
        Some("Bearer rmk_of_another_group".to_owned()),
        Some("Bearer a.b.c".to_owned()),
        // Good, but no rule is about its bearer; and good for another group alone.
        Some(format!("Bearer {}", issuer.good())),
        Some(format!("Bearer {}", issuer.token(&claims))),
    ];
    let mut seen = Vec::new();
    for credential in &credentials {
        for method in ["POST", "GET", "DELETE"] {
            for (modern, by_header) in [(false, false), (true, false), (false, true), (true, true)]
            {
                let make = || {
                    let params = json!({"name": "echo", "arguments": {}});
                    let mut request = if modern {
                        gateway.modern("tools/call", params)
                    } else {
                        gateway.post(&call("echo"))
                    };
                    *request.method_mut() = method.parse().unwrap();
                    request.headers_mut().remove("authorization");
                    if let Some(credential) = credential {
                        let value = HeaderValue::from_str(credential).unwrap();
                        request.headers_mut().insert("authorization", value);
                    }
                    request
                };
                let there = asked(&gateway, make(), "demo", by_header).await;
                let nowhere = asked(&gateway, make(), NOWHERE, by_header).await;
                assert_eq!(there, nowhere, "{method} {credential:?} modern: {modern}");
                seen.push(there[..3].to_owned());
            }
        }
    }
    seen.sort();
    seen.dedup();
    assert_eq!(seen, ["401", "403"]);
    assert_eq!(worker.began(), 0);
}
