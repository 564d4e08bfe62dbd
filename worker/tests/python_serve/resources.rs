//! URI: resources, listed and read.

use serde_json::{Value, json};

use crate::harness::{Group, modern};
use crate::served::{Setup, each_python};

fn group() -> Group {
    Group::new()
        .resource(
            "html",
            "demo://html",
            "text/html;profile=x",
            "def run(): return '<p>'",
        )
        .resource(
            "charset",
            "demo://charset",
            "application/json; charset=utf-8",
            "def run(): return {'a': 2**70}",
        )
        .resource(
            "png",
            "demo://png",
            "image/png",
            "def run(): return b'\\x89PNG\\r\\n'",
        )
        .resource(
            "readme",
            "demo://readme",
            "text/markdown",
            "def run(): return '# readme'",
        )
        .resource(
            "dots",
            "demo://a/../b",
            "text/plain",
            "def run(): return 'dots'",
        )
        .resource(
            "bare",
            "users/me",
            "text/plain",
            "async def run(): return 'me'",
        )
        .resource(
            "raises",
            "demo://raises",
            "text/plain",
            "import os\ndef run(): raise KeyError(os.environ['RAMEN_SECRET_G__KEY'])",
        )
        .resource(
            "dies",
            "demo://dies",
            "text/plain",
            "import os\ndef run(): os._exit(1)",
        )
}

#[tokio::test]
async fn uri01_uri02_uri03_uri06_resources_are_listed_and_read_as_they_are_written() {
    let rows = [
        (
            "uri01",
            "demo://html",
            "text/html;profile=x",
            json!({"text": "<p>"}),
        ),
        (
            "uri01_uri06",
            "demo://charset",
            "application/json; charset=utf-8",
            json!({"text": r#"{"a":1180591620717411303424}"#}),
        ),
        (
            "uri02",
            "demo://png",
            "image/png",
            json!({"blob": "iVBORw0K"}),
        ),
        (
            "uri03",
            "demo://readme",
            "text/markdown",
            json!({"text": "# readme"}),
        ),
        (
            "uri03_dots",
            "demo://a/../b",
            "text/plain",
            json!({"text": "dots"}),
        ),
        (
            "uri03_bare",
            "users/me",
            "text/plain",
            json!({"text": "me"}),
        ),
    ];
    each_python(async |python| {
        let setup = Setup::new(python).secret("KEY", "s3cr3t");
        let served = setup.serve(&group()).await;
        let client = served.client().await;
        let listed = client.rpc("resources/list", json!({})).await;
        let listed = listed["result"]["resources"].as_array().unwrap().clone();
        for (row, uri, mime, content) in &rows {
            let entry = listed.iter().find(|entry| entry["uri"] == *uri);
            let entry = entry.unwrap_or_else(|| panic!("{row}: {listed:?}"));
            assert_eq!(entry["mimeType"], *mime, "{row}");
            let mut wanted = json!({"uri": uri, "mimeType": mime});
            for (name, value) in content.as_object().unwrap() {
                wanted[name] = value.clone();
            }
            let answer = client.rpc("resources/read", json!({ "uri": uri })).await;
            assert_eq!(
                answer["result"]["contents"],
                json!([wanted]),
                "{row}: {answer}"
            );
            let answer = client
                .send(&modern(1, "resources/read", json!({ "uri": uri })))
                .await
                .unwrap();
            assert_eq!(
                answer["result"]["contents"],
                json!([wanted]),
                "{row}: {answer}"
            );
        }
    })
    .await;
}

#[tokio::test]
async fn uri04_uri06_what_cannot_be_read_is_an_error_with_the_id() {
    each_python(async |python| {
        let setup = Setup::new(python).secret("KEY", "s3cr3t");
        let mut served = setup.serve(&group()).await;
        let client = served.client().await;
        for uri in [
            "demo://read%6De",
            "demo://b",
            "DEMO://readme",
            "demo://readme/",
            "",
            "%",
        ] {
            let answer = client.rpc("resources/read", json!({ "uri": uri })).await;
            assert_eq!(answer["error"]["code"], -32002, "{uri}: {answer}");
            assert_eq!(answer["error"]["data"]["uri"], uri, "{answer}");
        }
        let answer = client
            .rpc("resources/read", json!({"uri": "demo://raises"}))
            .await;
        assert_eq!(answer["id"], 1);
        assert_eq!(answer["error"]["code"], -32603, "{answer}");
        assert_eq!(answer["error"]["message"], "KeyError: '***'", "{answer}");
        assert!(!served.log.text().contains("s3cr3t"));

        let read: Value = json!({
            "jsonrpc": "2.0", "id": 1, "method": "resources/read", "params": {"uri": "demo://dies"},
        });
        let status = client.send(&read).await.unwrap_err();
        assert_eq!(status.code(), tonic::Code::Unavailable, "{status}");
        let answer = client
            .rpc("resources/read", json!({"uri": "users/me"}))
            .await;
        assert_eq!(answer["result"]["contents"][0]["text"], "me", "{answer}");
        served.assert_alive();
    })
    .await;
}
