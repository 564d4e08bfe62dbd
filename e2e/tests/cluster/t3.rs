//! Real pods.

use k8s_openapi::api::{apps::v1::Deployment, core::v1::Service};
use ramen_e2e::{PackageIndex, Probe, Tier, available, git_server, with_temp_ns};
use ramen_source::testing::{Repo, SmartHttpOptions};
use serde_json::json;

const SERVER: &str = "
import http.server, os
class Answer(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
        body = os.environ['HOSTNAME'].encode()
        self.send_response(200)
        self.send_header('Content-Length', str(len(body)))
        self.end_headers()
        self.wfile.write(body)
http.server.ThreadingHTTPServer(('', 8000), Answer).serve_forever()
";

// The pods are available some time before every node's kube-proxy has heard of them.
const CLIENT: &str = "
import time, urllib.request
end = time.monotonic() + 30
while True:
    try:
        print(urllib.request.urlopen(f'http://{ADDRESS}', timeout=5).read().decode())
        break
    except OSError:
        if time.monotonic() > end:
            raise
        time.sleep(0.1)
";

#[tokio::test]
#[ignore = "needs a cluster: make e2e"]
async fn a_deployment_of_two_becomes_available_and_answers() {
    with_temp_ns(Tier::T3, async |namespace| {
        let selector = json!({ "app": "web" });
        let web = Probe::new("web", SERVER).listens(8000);
        namespace
            .apply::<Deployment>(
                "web",
                json!({ "spec": {
                    "replicas": 2,
                    "selector": { "matchLabels": selector },
                    "template": web.template(),
                }}),
            )
            .await?;
        namespace
            .apply::<Service>(
                "web",
                json!({ "spec": { "selector": selector, "ports": [{ "port": 80, "targetPort": 8000 }] } }),
            )
            .await?;
        namespace.until::<Deployment>("web", available).await?;

        // Through the API server to a pod, from wherever the test runs.
        let path = format!("/api/v1/namespaces/{}/services/web:80/proxy/", namespace.name);
        let request = http::Request::get(path).body(Vec::new())?;
        let answer = namespace.client.request_text(request).await?;
        assert!(answer.starts_with("web-"), "{answer:?} is no pod of web");

        // And from a pod, through the Service's address.
        let service = namespace.api::<Service>().get("web").await?;
        let address = service.spec.and_then(|spec| spec.cluster_ip).unwrap_or_default();
        let script = format!("ADDRESS = '{address}'\n{CLIENT}");
        let (code, log) = Probe::new("client", &script).run(&namespace).await?;
        assert_eq!(code, 0, "{log}");
        assert!(log.starts_with("web-"), "{log:?} is no pod of web");
        Ok(())
    })
    .await;
}

#[tokio::test]
#[ignore = "needs a cluster: make e2e"]
async fn a_pod_reads_a_repository_that_the_test_serves() {
    with_temp_ns(Tier::T3, async |namespace| {
        let folder = tempfile::tempdir()?;
        let repo = Repo::init(&folder.path().join("group.git"))?;
        let commit = repo.push(&[("mcp/tools/a/a.py", "x = 1\n")])?;
        let server = git_server(folder.path(), SmartHttpOptions::default())?;
        let script = format!(
            "import urllib.request
print(urllib.request.urlopen('{}/info/refs?service=git-upload-pack', timeout=10).read())",
            server.url("group.git")
        );
        let (code, log) = Probe::new("reader", &script).run(&namespace).await?;
        assert_eq!(code, 0, "{log}");
        assert!(log.contains(&commit), "{log} does not name {commit}");
        Ok(())
    })
    .await;
}

/// A group of one tool that uses a package of the index; its golden call runs it for real.
const DEPLOY: &str = r"
import json, pathlib, subprocess, sys
files = {
    'requirements.txt': 'noodle==1.2\n',
    'tests.yaml': '''
cases:
  - name: three minutes are enough
    tool: cook
    args: {minutes: 3}
    expect: {text_contains: soft after 3}
''',
    'tools/cook/cook.json': json.dumps({
        'type': 'tool', 'name': 'cook', 'description': 'Boils noodles.', 'callable': 'cook',
        'input': {'minutes': {'type': 'integer'}},
    }),
    'tools/cook/cook.py': '''
import noodle

def cook(minutes):
    return noodle.boil(minutes)
''',
}
for name, text in files.items():
    path = pathlib.Path('/tmp/code/mcp', name)
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
command = ['ramen-worker', 'deploy', '--code-dir', '/tmp/code', '--store', '/tmp/store', '--out', '/tmp/out']
done = subprocess.run(command)
report = pathlib.Path('/tmp/out/report.json').read_text()
print(report)
assert json.loads(report)['golden'] == {'passed': 1, 'failed': 0}
sys.exit(done.returncode)
";

#[tokio::test]
#[ignore = "needs a cluster: make e2e"]
async fn the_worker_image_installs_imports_and_calls_without_root_and_without_the_internet() {
    with_temp_ns(Tier::T3, async |namespace| {
        let boil = "def boil(minutes):\n    return f'soft after {minutes}'\n";
        let index = PackageIndex::start(&namespace, &[("noodle", "1.2", boil)]).await?;
        let (code, log) = Probe::new("deploy", DEPLOY)
            .image("localhost/ramen-worker:dev")
            .env("PIP_INDEX_URL", &index.url)
            .run(&namespace)
            .await?;
        assert_eq!(code, 0, "{log}");
        Ok(())
    })
    .await;
}
