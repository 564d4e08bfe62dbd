//! Network policies.

use k8s_openapi::api::networking::v1::NetworkPolicy;
use ramen_e2e::{Namespace, Probe, Tier, with_temp_ns};
use serde_json::json;

const SERVER: &str = "
import socket
listener = socket.create_server(('', 7000), backlog=64)
while True:
    peer, _ = listener.accept()
    peer.sendall(b'hello')
    peer.close()
";

/// Tries until the connection is as wished, 0, or half a minute is over, 1: a policy takes a moment to be in force.
fn client(server: &str, wish: &str) -> String {
    format!(
        "
import socket, sys, time
end = time.monotonic() + 30
while time.monotonic() < end:
    try:
        with socket.create_connection(('{server}', 7000), timeout=2) as peer:
            outcome = 'allowed' if peer.recv(5) == b'hello' else 'broken'
    except OSError as error:
        outcome = 'refused'
    print(outcome)
    if outcome == '{wish}':
        sys.exit(0)
    time.sleep(0.2)
sys.exit(1)
"
    )
}

async fn expect(
    namespace: &Namespace,
    name: &str,
    role: &str,
    script: &str,
) -> anyhow::Result<String> {
    let (code, log) = Probe::new(name, script)
        .label("role", role)
        .run(namespace)
        .await?;
    assert_eq!(code, 0, "{name}: {log}");
    Ok(log)
}

#[tokio::test]
#[ignore = "needs a cluster: make e2e"]
async fn a_policy_lets_one_pod_in_and_keeps_another_out() {
    with_temp_ns(Tier::T4, async |namespace| {
        let server = Probe::new("server", SERVER)
            .listens(7000)
            .start(&namespace)
            .await?;
        let (allowed, refused) = (client(&server, "allowed"), client(&server, "refused"));
        // Without a policy everyone gets in, so a refusal below is the policy's.
        expect(&namespace, "stranger-before", "stranger", &allowed).await?;

        namespace
            .apply::<NetworkPolicy>(
                "server",
                json!({ "spec": {
                    "podSelector": { "matchLabels": { "app": "server" } },
                    "policyTypes": ["Ingress"],
                    "ingress": [{
                        "from": [{ "podSelector": { "matchLabels": { "role": "friend" } } }],
                        "ports": [{ "port": 7000 }],
                    }],
                }}),
            )
            .await?;
        expect(&namespace, "stranger", "stranger", &refused).await?;
        expect(&namespace, "friend", "friend", &allowed).await?;
        // Now that it is in force, the first try is refused.
        let log = expect(&namespace, "stranger-again", "stranger", &refused).await?;
        assert_eq!(log.trim(), "refused");
        Ok(())
    })
    .await;
}
