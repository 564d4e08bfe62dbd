//! The ways to the gateway that its page shows, gone by `curl`: a port-forward, an Ingress, a route of the Gateway API.

use std::process::Stdio;

use anyhow::{Context as _, ensure};
use ramen_e2e::{
    GitHost, Group, Ingress, Namespace, Release, Tier, comes_true, kubectl_with, merge, tool,
    with_temp_ns,
};
use serde_json::{Value, json};
use tokio::{
    io::{AsyncBufReadExt as _, BufReader, Lines},
    process::{Child, ChildStdout},
};

use super::{both, gateways, two};
use crate::t4::{
    docs::{Shell, blocks, fenced},
    greeting,
};

const HOST: &str = "mcp.example.com";
/// From here a caller is in the group's ranges, and from there it is not.
const NEAR: &str = "127.0.0.1";
const FAR: &str = "10.0.0.1";
/// Longer than what proxies keep in memory unless they are told to.
const LONG: usize = 1_500_000;

/// `curl` to the group, through a port of the controller. A connection to an address of this machine comes from it, too.
fn curl(namespace: &Namespace, port: u16, address: &str) -> String {
    format!(
        "curl -sN --cacert tls.crt --resolve {HOST}:{port}:{address} https://{HOST}:{port}/{}/library/mcp \
         -H \"Authorization: Bearer $(cat key)\" -H 'Content-Type: application/json' \
         -H 'Accept: application/json, text/event-stream'",
        namespace.name
    )
}

/// A subscription that `curl` holds open.
struct Listening {
    lines: Lines<BufReader<ChildStdout>>,
    _child: Child,
}

impl Listening {
    /// Begins, and waits until the gateway has said that it listens.
    async fn start(shell: &Shell, curl: &str) -> anyhow::Result<Self> {
        let version = "2026-07-28";
        let body = json!({ "jsonrpc": "2.0", "id": 1, "method": "subscriptions/listen", "params": {
            "notifications": { "toolsListChanged": true },
            "_meta": {
                "io.modelcontextprotocol/protocolVersion": version,
                "io.modelcontextprotocol/clientCapabilities": {},
            },
        }});
        shell.write("listen.json", &body.to_string())?;
        let line = format!(
            "exec {curl} -H 'MCP-Protocol-Version: {version}' -H 'Mcp-Method: subscriptions/listen' -d @listen.json"
        );
        let mut child = shell.command(&line)?.stdout(Stdio::piped()).spawn()?;
        let said = child.stdout.take().context("a pipe was asked for")?;
        let mut listening = Self {
            lines: BufReader::new(said).lines(),
            _child: child,
        };
        listening
            .hears("notifications/subscriptions/acknowledged")
            .await?;
        Ok(listening)
    }

    /// Waits for an event.
    async fn hears(&mut self, event: &str) -> anyhow::Result<()> {
        let heard = async {
            while let Some(line) = self.lines.next_line().await? {
                if line.contains(event) {
                    return Ok(());
                }
            }
            anyhow::bail!("the stream ended before {event}")
        };
        let heard = tokio::time::timeout(std::time::Duration::from_mins(1), heard).await;
        heard.with_context(|| format!("no {event} came"))?
    }
}

/// What has to get through whatever stands before the gateway.
async fn leads_to_the_gateway(
    namespace: &Namespace,
    shell: &Shell,
    port: u16,
) -> anyhow::Result<()> {
    let near = curl(namespace, port, NEAR);
    let list = r#"-d '{"jsonrpc":"2.0","id":1,"method":"tools/list"}'"#;
    comes_true("it leads to the group", async || {
        let listed = shell.run(&format!("{near} {list}")).await;
        Ok(listed.is_ok_and(|listed| listed.contains("\"greet\"")))
    })
    .await?;

    // The caller's own address is judged, and nobody can say that they are somebody else.
    let status = format!("{list} -o answer -w '%{{http_code}}'");
    let far = curl(namespace, port, FAR);
    for forged in ["", &format!("-H 'X-Forwarded-For: {NEAR}'")] {
        let answered = shell.run(&format!("{far} {status} {forged}")).await?;
        assert_eq!(answered, "403", "{forged}");
    }

    let name = "x".repeat(LONG);
    let call = json!({ "jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": {
        "name": "greet", "arguments": { "name": name },
    }});
    shell.write("long.json", &call.to_string())?;
    let answer = shell
        .run(&format!("{near} --data-binary @long.json"))
        .await?;
    let shown = answer.get(..200).unwrap_or(&answer);
    ensure!(answer.contains(&format!("one greets {name}")), "{shown}");
    Ok(())
}

/// The certificate of the host and the Gateway, which somebody else looks after.
async fn edge(namespace: &Namespace, shell: &Shell, port: u16) -> anyhow::Result<()> {
    let certificate = format!(
        "openssl req -x509 -newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes -days 30 -keyout tls.key -out tls.crt \
         -subj /CN={HOST} -addext subjectAltName=DNS:{HOST} 2>&1
         kubectl -n {} create secret tls mcp-example-com --cert tls.crt --key tls.key",
        namespace.name
    );
    shell.run(&certificate).await?;
    let gateway = json!({
        "apiVersion": "gateway.networking.k8s.io/v1", "kind": "Gateway",
        "metadata": { "name": "public", "namespace": namespace.name },
        "spec": { "gatewayClassName": Ingress::CLASS, "listeners": [{
            "name": "https", "port": port, "protocol": "HTTPS",
            "tls": { "certificateRefs": [{ "name": "mcp-example-com" }] },
        }]},
    });
    kubectl_with(&["apply", "-f", "-"], &gateway.to_string())
        .await?
        .good()?;
    Ok(())
}

/// Waits until each of the gateways lists the group's tools: the next request may come to any of them.
async fn each_lists(namespace: &Namespace, shell: &Shell, ask: &str) -> anyhow::Result<()> {
    for (pod, _) in gateways(namespace).await? {
        let forward = format!("kubectl -n {} port-forward {pod} :8080", namespace.name);
        let mut forwarding = shell.forward(&forward).await?;
        let ask = ask.replace("127.0.0.1:8080", &format!("127.0.0.1:{}", forwarding.port));
        comes_true(&format!("{pod} knows the group"), async || {
            let listed = shell.run(&ask).await;
            Ok(listed.is_ok_and(|listed| listed.contains("\"greet\"")))
        })
        .await?;
        forwarding.child.kill().await?;
    }
    Ok(())
}

#[tokio::test]
#[ignore = "needs a cluster: make e2e"]
async fn a_group_is_called_as_the_page_says() {
    with_temp_ns(Tier::T4, async |namespace| {
        let shell = Shell::new(&[
            ("-n team-a", &format!("-n {}", namespace.name)),
            ("-n ramen-system", &format!("-n {}", namespace.name)),
            ("namespace: edge", &format!("namespace: {}", namespace.name)),
            ("team-a/library", &format!("{}/library", namespace.name)),
            ("8080:80", ":80"),
        ])?;
        let mut values = two();
        let controller = Ingress::start(&namespace).await?;
        if let Some(controller) = &controller {
            edge(&namespace, &shell, controller.gateways).await?;
            // An Ingress, then a route; the third way needs a load balancer.
            let shown = fenced(
                "gateway.md",
                "An address for everybody",
                "yaml file=values.yaml",
            )?;
            for block in &shown[..2] {
                let shown: Value = serde_saphyr::from_str(&shell.filled(block))?;
                merge(&mut values, shown);
            }
            // The port-forward is no such host.
            values["gateway"]["allowedHosts"] = json!([HOST, NEAR]);
        }
        Release::install(&namespace, values).await?;
        let git = GitHost::http()?;
        let commit = git.push(&greeting("one"))?;
        let mut spec = Group::spec(&git.url(), 1);
        spec["network"]["allowedCIDRs"] = json!([format!("{NEAR}/32")]);
        let group = Group::apply(&namespace, "library", spec).await?;
        group.serves(&commit).await?;
        both(&namespace).await?;
        let call = blocks("gateway.md", "Call a group")?;
        let (key, rest) = call[0].split_once('\n').context("a key")?;
        let (forward, ask) = rest.split_once('\n').context("a way")?;
        shell.run(key).await?;
        each_lists(&namespace, &shell, ask).await?;
        let mut forwarding = shell.forward(forward).await?;
        // Other tests forward, too: the port is what was free.
        let ask = ask.replace("127.0.0.1:8080", &format!("127.0.0.1:{}", forwarding.port));
        let listed = shell.run(&ask).await?;
        assert!(listed.contains("\"greet\""), "{listed}");
        forwarding.child.kill().await?;

        let Some(controller) = controller else {
            return Ok(());
        };
        let mut streams = Vec::new();
        for port in [controller.ingresses, controller.gateways] {
            let leads = leads_to_the_gateway(&namespace, &shell, port).await;
            leads.with_context(|| controller.log())?;
            streams.push(Listening::start(&shell, &curl(&namespace, port, NEAR)).await?);
        }
        // Only a list that is another one is told.
        let mut files = greeting("two").to_vec();
        files.extend(tool("part", &json!({}), "def part():\n    return 'bye'\n"));
        let second = git.push(&files)?;
        group.look("streams").await?;
        group.serves(&second).await?;
        for stream in &mut streams {
            stream.hears("notifications/tools/list_changed").await?;
        }
        Ok(())
    })
    .await;
}
