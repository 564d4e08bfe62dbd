//! Servers that are programs: their environment, their end, and what they leave behind.

use std::collections::BTreeMap;
use std::time::Duration;

use ramen_client::{
    Client, ClientError, EraChoice, Json, Limits, Manager, ManagerOptions, Options, ServerConfig,
};
use serde_json::json;

use crate::support::{Log, soon};

/// A legacy server in `sh`: answers by what is in the line, with the id it was asked with.
const SERVER: &str = r#"
say() { printf '%s\n' "$1"; }
while read -r line; do
  id=$(printf '%s' "$line" | sed -n 's/.*"id":\([0-9]*\),"method".*/\1/p')
  case "$line" in
    *'"initialize"'*) say '{"jsonrpc":"2.0","id":'$id',"result":{"protocolVersion":"2025-11-25","capabilities":{"tools":{}},"serverInfo":{"name":"sh","version":"1"}}}';;
    *'"tools/list"'*) say '{"jsonrpc":"2.0","id":'$id',"result":{"tools":[{"name":"one","inputSchema":{"type":"object"}}]}}';;
    *'"tools/call"'*) eval "$CALL";;
  esac
done
eval "$END"
"#;

/// A text answer, as a `CALL`.
const ANSWER: &str = r#"say '{"jsonrpc":"2.0","id":'$id',"result":{"content":[{"type":"text","text":"'"$TEXT"'"}]}}'"#;

fn server(call: &str) -> ServerConfig {
    ServerConfig::stdio("sh", ["-c", SERVER])
        .with("CALL", call)
        .with_era(EraChoice::Legacy)
}

fn quick() -> Options {
    Options {
        limits: Limits {
            close: Duration::from_millis(200),
            ..Limits::default()
        },
        ..Options::default()
    }
}

async fn connect(config: &ServerConfig) -> Result<Client, ClientError> {
    soon(Client::connect("program", config, &quick())).await
}

async fn call(client: &Client) -> Result<String, ClientError> {
    soon(client.call_tool("one", &Json::from(&json!({})))).await
}

/// Whether a process is there and not a zombie.
fn alive(pid: &str) -> bool {
    std::fs::read_to_string(format!("/proc/{pid}/stat")).is_ok_and(|stat| {
        !stat
            .rsplit(')')
            .next()
            .unwrap_or("")
            .trim_start()
            .starts_with('Z')
    })
}

/// Whether a process is there in any form.
fn there(pid: &str) -> bool {
    std::path::Path::new(&format!("/proc/{pid}")).exists()
}

async fn until_dead(pid: &str) {
    soon(async {
        while alive(pid) {
            tokio::task::yield_now().await;
        }
    })
    .await;
}

#[tokio::test]
async fn connect_starts_a_configured_program_and_calls_its_tools() {
    let client = connect(&server(ANSWER).with("TEXT", "hello"))
        .await
        .unwrap();
    assert_eq!(client.server_info(), "sh 1");
    assert_eq!(call(&client).await.unwrap(), "hello");
    client.close().await;
}

#[tokio::test]
async fn a_program_that_dies_of_the_probe_is_started_again_without_it() {
    let script = format!(
        "read -r line; case \"$line\" in *discover*) exit 1;; esac; id=0; say() {{ printf '%s\\n' \"$1\"; }}; \
        say '{{\"jsonrpc\":\"2.0\",\"id\":0,\"result\":{{\"protocolVersion\":\"2025-11-25\",\"capabilities\":{{\"tools\":{{}}}}}}}}'; {SERVER}"
    );
    let config = ServerConfig::stdio("sh", ["-c".to_owned(), script]);
    let client = connect(&config).await.unwrap();
    assert_eq!(client.tools().len(), 1);
    client.close().await;
}

#[tokio::test]
async fn a_program_that_is_not_there_is_an_error_that_names_it() {
    let error = connect(&ServerConfig::stdio("/no/such/program", ["planted-arg"]))
        .await
        .unwrap_err();
    let text = error.chain();
    assert!(
        text.contains("/no/such/program") && text.contains("No such file"),
        "{text}"
    );
    assert!(!text.contains("planted"), "{text}");
}

#[tokio::test]
async fn a_program_that_exits_at_once_is_an_error_with_its_status_and_last_words() {
    let config = ServerConfig::stdio("sh", ["-c", "echo no licence >&2; exit 3"]);
    let text = connect(&config).await.unwrap_err().chain();
    assert!(
        text.contains("exit status: 3") && text.contains("no licence"),
        "{text}"
    );
}

#[tokio::test]
async fn a_program_gets_its_variables_and_none_of_ours_that_it_was_not_given() {
    let config =
        server(r#"TEXT="$GIVEN/${CARGO_MANIFEST_DIR:-none}/${HOME:+home}"; eval "$ANSWER""#)
            .with("ANSWER", ANSWER)
            .with("GIVEN", "given");
    assert!(std::env::var_os("CARGO_MANIFEST_DIR").is_some());
    let client = connect(&config).await.unwrap();
    assert_eq!(call(&client).await.unwrap(), "given/none/home");
    client.close().await;
}

#[tokio::test]
async fn values_of_the_configuration_are_in_no_error_and_no_log() {
    let log = Log::default();
    let _guard = log.start();
    let config = ServerConfig::stdio(
        "sh",
        ["-c", "echo \"bad token $TOKEN\" >&2; env >&2; exit 1"],
    )
    .with("TOKEN", "planted-secret-1");
    let text = connect(&config).await.unwrap_err().chain();
    assert!(text.contains("***") && !text.contains("planted"), "{text}");
    let refusal = r#"say '{"jsonrpc":"2.0","id":'$id',"error":{"code":1,"message":"no '$TOKEN'","data":{"t":"'$TOKEN'"}}}'"#;
    let client = connect(&server(refusal).with("TOKEN", "planted-secret-2"))
        .await
        .unwrap();
    let error = call(&client).await.unwrap_err();
    let text = format!("{error} {error:?} {}", error.chain());
    assert!(text.contains("***") && !text.contains("planted"), "{text}");
    client.close().await;
    assert!(!log.text().contains("planted"), "{}", log.text());
}

#[tokio::test]
async fn a_flood_of_stderr_does_not_block_the_program_and_is_bounded() {
    let chatty = format!(
        r#"i=0; while [ $i -lt 3000 ]; do echo "$i ......................................................................" >&2; i=$((i+1)); done; TEXT=ok; {ANSWER}"#
    );
    let client = connect(&server(&chatty)).await.unwrap();
    assert_eq!(call(&client).await.unwrap(), "ok");
    client.close().await;
}

#[tokio::test]
async fn net05_done_closes_when_the_process_dies_and_the_pending_call_fails() {
    let client = connect(&server("kill -9 $$")).await.unwrap();
    let error = call(&client).await.unwrap_err();
    assert!(error.to_string().contains("signal: 9"), "{error}");
    soon(client.done()).await;
}

#[tokio::test]
async fn net05_done_closes_between_calls_too_even_when_a_grandchild_holds_stdout() {
    // The grandchild inherits stdout and lives on: without a look at the process nobody would notice its end.
    let config = server(&format!("sleep 600 & TEXT=\"$$ $!\"; {ANSWER}"));
    let client = connect(&config).await.unwrap();
    let pids = call(&client).await.unwrap();
    let (leader, grandchild) = pids.split_once(' ').unwrap();
    let pid = rustix::process::Pid::from_raw(leader.parse().unwrap()).unwrap();
    rustix::process::kill_process(pid, rustix::process::Signal::KILL).unwrap();
    soon(client.done()).await;
    until_dead(grandchild).await;
    client.close().await;
    assert!(!there(leader), "a zombie stays behind");
}

#[tokio::test]
async fn close_shuts_the_program_down_with_everything_it_started() {
    // Deaf to the end of its stdin and to SIGTERM, and so is what it starts.
    let stubborn = format!("trap '' TERM; (trap '' TERM; sleep 600) & TEXT=\"$$ $!\"; {ANSWER}");
    let config = server(&stubborn).with("END", "while :; do sleep 1; done");
    let client = connect(&config).await.unwrap();
    let pids = call(&client).await.unwrap();
    let (leader, child) = pids.split_once(' ').unwrap();
    assert!(alive(leader) && alive(child));
    soon(client.close()).await;
    assert!(!there(leader), "reaped by the time close returns");
    until_dead(child).await;
    assert!(client.is_done());
}

#[tokio::test]
async fn an_end_that_is_under_way_can_be_made_shorter() {
    let stubborn = format!("trap '' TERM; (sleep 600) & TEXT=\"$$ $!\"; {ANSWER}");
    let config = server(&stubborn).with("END", "while :; do sleep 1; done");
    let mut options = quick();
    options.limits.close = Duration::from_hours(1);
    let options = ManagerOptions {
        client: options,
        ..ManagerOptions::default()
    };
    let servers = BTreeMap::from([("deaf".to_owned(), config)]);
    let manager = soon(Manager::connect_all(servers, options)).await;
    let client = manager.client("deaf").await.unwrap();
    let pids = call(&client).await.unwrap();
    let (leader, child) = pids.split_once(' ').unwrap();
    tokio::select! {
        () = manager.close() => panic!("it does not end by itself"),
        () = soon(client.done()) => {}
    }
    soon(manager.close_within(Duration::ZERO)).await;
    assert!(!there(leader), "reaped by the time close returns");
    until_dead(child).await;
}

#[tokio::test]
async fn close_lets_a_program_end_by_itself_first() {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("goodbye");
    let config = server("").with("END", format!("echo done > {}", file.display()));
    let client = soon(Client::connect("program", &config, &Options::default()))
        .await
        .unwrap();
    soon(client.close()).await;
    assert_eq!(std::fs::read_to_string(file).unwrap(), "done\n");
}

#[tokio::test]
async fn a_dropped_client_takes_its_program_along() {
    let client = connect(&server(&format!("TEXT=$$; {ANSWER}")))
        .await
        .unwrap();
    let pid = call(&client).await.unwrap();
    drop(client);
    until_dead(&pid).await;
}

/// It left the group, so it is not ours to end; but it must not cost a pipe for as long as it lives.
#[tokio::test]
async fn what_a_program_left_behind_does_not_keep_its_pipes_open() {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("noticed");
    // In a group of its own from when it begins on: before, it would go down with the program.
    let daemon = r#"trap "" PIPE; echo > "$BEGUN"; while echo x; do sleep 0.05; done >&2; echo > "$NOTICED""#;
    let config = server(&format!(
        "setsid sh -c \"$DAEMON\" > /dev/null & until [ -e \"$BEGUN\" ]; do sleep 0.02; done; TEXT=ok; {ANSWER}"
    ))
    .with("DAEMON", daemon)
    .with("BEGUN", dir.path().join("begun").display().to_string())
    .with("NOTICED", file.display().to_string());
    let client = connect(&config).await.unwrap();
    assert_eq!(call(&client).await.unwrap(), "ok");
    soon(client.close()).await;
    soon(async {
        while !file.exists() {
            tokio::task::yield_now().await;
        }
    })
    .await;
}

/// The message that a program sends, cut off by its death in the middle of the line, is no answer.
#[tokio::test]
async fn a_program_that_dies_in_mid_answer_fails_the_call() {
    let client = connect(&server(
        r#"printf '{"jsonrpc":"2.0","id":%s,"result":{"content":[' "$id"; exit 0"#,
    ))
    .await
    .unwrap();
    let error = call(&client).await.unwrap_err();
    assert!(matches!(error, ClientError::Gone { .. }), "{error}");
}

/// Notifications, a line without end, lines without anything: for ever, in the place of an answer.
#[tokio::test]
async fn a_program_that_never_stops_talking_fails_its_call_in_time_and_others_go_on() {
    let good = connect(&server(&format!("TEXT=ok; {ANSWER}")))
        .await
        .unwrap();
    for talk in [
        r#"yes '{"jsonrpc":"2.0","method":"notifications/message","params":{"data":"x"}}'"#,
        r#"yes '{"jsonrpc":"2.0","id":4000000,"result":{}}'"#,
        r"tr '\0' x < /dev/zero",
        r"tr '\0' '\n' < /dev/zero",
    ] {
        let bad = connect(&server(talk)).await.unwrap();
        let in_time = ramen_client::CallOptions {
            timeout: Some(Duration::from_millis(200)),
            ..Default::default()
        };
        let no_args = Json::from(&json!({}));
        let calling = soon(bad.call_tool_with("one", &no_args, in_time));
        let others = async {
            for _ in 0..3 {
                assert_eq!(call(&good).await.unwrap(), "ok", "{talk}");
            }
        };
        let (outcome, ()) = tokio::join!(calling, others);
        let error = outcome.unwrap_err();
        assert!(matches!(error, ClientError::Timeout { .. }), "{error}");
        assert!(!bad.is_done(), "{talk}");
        soon(bad.close()).await;
    }
}

#[tokio::test]
async fn a_program_that_does_not_read_fails_its_calls_in_time_and_others_go_on() {
    let config = server("");
    let client = connect(&config).await.unwrap();
    let pid = {
        let other = connect(&server(&format!("TEXT=ok; {ANSWER}")))
            .await
            .unwrap();
        let huge = Json::from(&json!({"x": "y".repeat(1 << 20)}));
        let stuck = ramen_client::CallOptions {
            timeout: Some(Duration::from_millis(100)),
            ..Default::default()
        };
        let deaf = connect(&server("sleep 600")).await.unwrap();
        let _ = soon(deaf.call_tool_with("one", &huge, stuck.clone()))
            .await
            .unwrap_err();
        for _ in 0..3 {
            let error = soon(deaf.call_tool_with("one", &huge, stuck.clone()))
                .await
                .unwrap_err();
            assert!(matches!(error, ClientError::Timeout { .. }), "{error}");
        }
        assert_eq!(call(&other).await.unwrap(), "ok");
        soon(deaf.close()).await;
        other
    };
    pid.close().await;
    client.close().await;
}
