//! Real pods.

use k8s_openapi::api::{apps::v1::Deployment, core::v1::Service};
use ramen_e2e::{Probe, Tier, available, with_temp_ns};
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
