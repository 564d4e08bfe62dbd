"""The charts as helm sees them, and what they say about the code."""

import json
import re
import shutil

import openapi
import pytest
import yaml
from conftest import CHART, CRDS, EVERY, KUBERNETES, ROOT, VALUES, helm, of, refused, render, rendered, template

CASES = pytest.mark.parametrize("case", VALUES)
ALL = pytest.mark.parametrize("case", EVERY)
# Kinds that Kubernetes does not have by itself.
OTHERS = {"monitoring.coreos.com/v1", "gateway.networking.k8s.io/v1"}


@pytest.mark.parametrize("chart", [CHART, CRDS], ids=lambda path: path.name)
def test_lint_finds_nothing(chart):
    done = helm("lint", "--strict", str(chart))
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.parametrize("version", KUBERNETES)
def test_supported_versions_are_taken_and_older_ones_refused(version):
    assert template(CHART, {}, "--kube-version", version).returncode == 0
    assert template(CRDS, {}, "--kube-version", version).returncode == 0


@pytest.mark.parametrize("chart", [CHART, CRDS], ids=lambda path: path.name)
def test_an_older_cluster_is_refused_in_words(chart):
    done = template(chart, {}, "--kube-version", "1.32.9")
    assert done.returncode != 0 and "kubeVersion" in done.stderr


def test_a_version_with_a_suffix_of_a_cloud_is_no_older_version():
    assert template(CHART, {}, "--kube-version", "v1.33.1-gke.100").returncode == 0


@ALL
def test_every_object_is_one_that_the_api_server_takes(case):
    if openapi.specification() is None:
        pytest.skip("SKIPPED: no OpenAPI file of Kubernetes in the Go module cache")
    for document in rendered(case):
        if document["apiVersion"] not in OTHERS:
            assert openapi.check(document) == [], document["metadata"]["name"]


def test_the_check_of_objects_finds_what_is_wrong():
    if openapi.specification() is None:
        pytest.skip("SKIPPED: no OpenAPI file of Kubernetes in the Go module cache")
    service = {"apiVersion": "v1", "kind": "Service", "metadata": {"name": "x", "labels": {"a": "b c"}}}
    service["spec"] = {"prots": [], "ports": [{"name": "p"}], "selector": {"a": 1}}
    found = "\n".join(openapi.check(service))
    for fault in (".spec.prots: no such field", "[0].port: missing", "selector.a: 1 is no string", "label a"):
        assert fault in found


@ALL
def test_names_are_there_once_and_short_enough(case):
    seen = set()
    for document in rendered(case):
        meta = document["metadata"]
        key = (document["kind"], meta.get("namespace"), meta["name"])
        assert key not in seen and len(meta["name"]) <= 63 + 64 * document["kind"].startswith("Cluster")
        seen.add(key)
        if document["kind"] not in ("ClusterRole", "ClusterRoleBinding"):
            assert meta.get("namespace"), key


def test_a_long_release_name_is_cut_and_still_makes_valid_names():
    done = template(CHART, {"fullnameOverride": "a" * 39 + "-" + "b" * 39})
    assert done.returncode == 0, done.stderr
    for document in filter(None, yaml.safe_load_all(done.stdout)):
        assert len(document["metadata"]["name"]) <= 63 and "--" not in document["metadata"]["name"]


@pytest.mark.parametrize(
    ("values", "says"),
    [
        ({"replica": 2}, "replica"),
        ({"scope": "Everywhere"}, "scope"),
        ({"replicas": "two"}, "replicas"),
        ({"watchNamespaces": ["Team_A"]}, "watchNamespaces"),
        ({"scope": "Cluster", "watchNamespaces": ["a"]}, "watchNamespaces"),
        ({"image": {"digest": "sha256:short"}}, "digest"),
        ({"worker": {"image": {"pullPolicy": "Sometimes"}}}, "pullPolicy"),
        ({"networkPolicy": {"egress": {"cidrs": ["everything"]}}}, "cidrs"),
        ({"networkPolicy": {"dnsTo": [{}]}}, "dnsTo"),
        ({"networkPolicy": {"dnsTo": [{"podSelecter": {}}]}}, "dnsTo"),
        ({"networkPolicy": {"metricsFrom": [{"podSelector": {"matchLabel": {"app": "x"}}}]}}, "metricsFrom"),
        ({"networkPolicy": {"metricsFrom": [{"ipBlock": {"cidr": "192.0.2.7"}}]}}, "metricsFrom"),
        ({"networkPolicy": {"metricsFrom": [{"ipBlock": {"cidr": "192.0.2.0/24"}, "podSelector": {}}]}}, "metricsFrom"),
        ({"networkPolicy": {"webhooksFrom": [{"podSelector": None}]}}, "webhooksFrom"),
        ({"gateway": {"from": [{"namespace": "team-a"}]}}, "from"),
        ({"resources": {"limits": None}}, "limits"),
        ({"persistence": {"size": "big"}}, "size"),
        ({"webhooks": {"enabled": True}}, "webhooks.secretName"),
        ({"webhooks": {"enabled": True, "secretName": "s", "ingress": {"enabled": True}}}, "webhooks.ingress.host"),
    ],
)
def test_a_value_that_cannot_work_is_refused_and_named(values, says):
    assert says in refused(values)


def test_the_schema_knows_every_value_and_no_other():
    schema = json.loads((CHART / "values.schema.json").read_text())
    values = yaml.safe_load((CHART / "values.yaml").read_text())

    def compare(values: dict, schema: dict, path: str):
        known = schema.get("properties")
        if known is None:
            return
        assert set(values) == set(known) - {"global"}, path
        for key, value in values.items():
            if isinstance(value, dict):
                compare(value, known[key], f"{path}.{key}")

    compare(values, schema, "")


def constants(path: str) -> set[str]:
    return set(re.findall(r'"(RAMEN_[A-Z_]+)"', (ROOT / path).read_text()))


@CASES
def test_the_operator_knows_every_variable_that_the_chart_sets(case):
    (deployment,) = of(rendered(case), "Deployment")
    (container,) = deployment["spec"]["template"]["spec"]["containers"]
    names = [entry["name"] for entry in container["env"]]
    assert len(names) == len(set(names))
    known = constants("operator/src/names.rs")
    if VALUES[case].get("scope") == "Cluster":
        known -= {"RAMEN_OPERATOR_NAMESPACES"}
    if not VALUES[case].get("webhooks"):
        known -= {"RAMEN_OPERATOR_HOOKS_DIR"}
    policies = VALUES[case].get("networkPolicy", {})
    for value, name in (("dnsTo", "RAMEN_OPERATOR_DNS_TO"), ("metricsFrom", "RAMEN_OPERATOR_METRICS_FROM")):
        if value not in policies:
            known -= {name}
    # With gateways alone: see test_gateway.py.
    known -= {"RAMEN_OPERATOR_GATEWAY_NAMESPACE"}
    # With a bucket alone: see test_pods_can_be_told_to_read_the_bucket_themselves.
    known -= {f"RAMEN_OPERATOR_PODS_BUCKET{end}" for end in ("", "_SECRET", "_CIDRS")}
    assert {name for name in names if name.startswith("RAMEN_")} == known


def test_images_of_workers_are_handed_on():
    (deployment,) = of(rendered("full"), "Deployment")
    env = {e["name"]: e.get("value") for e in deployment["spec"]["template"]["spec"]["containers"][0]["env"]}
    worker = VALUES["full"]["worker"]["image"]
    assert env["RAMEN_OPERATOR_WORKER_IMAGE"] == f"{worker['repository']}@{worker['digest']}"
    assert env["RAMEN_OPERATOR_ALLOW_HTTP"] == "1" and env["HTTPS_PROXY"]


def test_peers_of_policies_are_handed_on_as_they_are():
    (deployment,) = of(rendered("full"), "Deployment")
    env = {e["name"]: e.get("value") for e in deployment["spec"]["template"]["spec"]["containers"][0]["env"]}
    policies = VALUES["full"]["networkPolicy"]
    assert json.loads(env["RAMEN_OPERATOR_DNS_TO"]) == policies["dnsTo"]
    assert json.loads(env["RAMEN_OPERATOR_METRICS_FROM"]) == policies["metricsFrom"]


def test_a_field_of_a_peer_may_be_null():
    pods = {"podSelector": None, "namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": "dns"}}, "ipBlock": None}
    block = {"ipBlock": {"cidr": "192.0.2.0/24", "except": None}, "podSelector": None}
    done = template(CHART, {"networkPolicy": {"dnsTo": [pods, block], "metricsFrom": [block]}})
    assert done.returncode == 0, done.stderr


@CASES
def test_services_lead_to_ports_that_the_pod_has(case):
    documents = rendered(case)
    (deployment,) = of(documents, "Deployment")
    template_ = deployment["spec"]["template"]
    ports = {port["name"]: port["containerPort"] for port in template_["spec"]["containers"][0]["ports"]}
    for service in of(documents, "Service"):
        assert service["spec"]["selector"].items() <= template_["metadata"]["labels"].items()
        for port in service["spec"]["ports"]:
            assert port["targetPort"] in ports
    env = {e["name"]: e.get("value") for e in template_["spec"]["containers"][0]["env"]}
    assert env["RAMEN_OPERATOR_ARTIFACTS_URL"] == "http://ramen-artifacts.ramen-system.svc:8081"
    (service,) = of(documents, "Service", "ramen-artifacts")
    assert ports[service["spec"]["ports"][0]["targetPort"]] == service["spec"]["ports"][0]["port"] == 8081


def test_a_cluster_without_dns_gets_addresses_for_names():
    services = {"operator": {"clusterIP": "10.96.0.80"}, "artifacts": {"clusterIP": "fd00::81"}}
    documents = render({"services": services})
    (service,) = of(documents, "Service", "ramen-artifacts")
    assert service["spec"]["clusterIP"] == "fd00::81"
    (deployment,) = of(documents, "Deployment")
    env = {e["name"]: e.get("value") for e in deployment["spec"]["template"]["spec"]["containers"][0]["env"]}
    assert env["RAMEN_OPERATOR_ARTIFACTS_URL"] == "http://[fd00::81]:8081"
    (pod,) = of(documents, "Pod")
    script = pod["spec"]["containers"][0]["args"][0]
    assert "http://10.96.0.80:8080" in script and ".svc" not in script


def test_hooks_have_a_port_only_where_they_are_wanted():
    documents = rendered("default")
    (deployment,) = of(documents, "Deployment")
    env = {e["name"]: e.get("value") for e in deployment["spec"]["template"]["spec"]["containers"][0]["env"]}
    assert env["RAMEN_OPERATOR_HOOKS_LISTEN"] == "off"
    assert of(documents, "Ingress") == [] and of(documents, "Service", "ramen-hooks") == []
    assert "8082" not in json.dumps(documents)
    documents = rendered("full")
    (service,) = of(documents, "Service", "ramen-hooks")
    (ingress,) = of(documents, "Ingress")
    (path,) = ingress["spec"]["rules"][0]["http"]["paths"]
    assert path["path"] == "/v1/hooks" and path["backend"]["service"]["name"] == service["metadata"]["name"]
    assert path["backend"]["service"]["port"]["name"] in [port["name"] for port in service["spec"]["ports"]]
    (deployment,) = of(documents, "Deployment")
    (volume,) = [v for v in deployment["spec"]["template"]["spec"]["volumes"] if v["name"] == "hooks"]
    assert volume["secret"] == {"secretName": "ramen-hooks", "defaultMode": 0o440, "optional": True}
    (policy,) = of(documents, "NetworkPolicy", "ramen-operator")
    assert "hooks" in [rule["ports"][0]["port"] for rule in policy["spec"]["ingress"]]


def test_addresses_that_hand_out_credentials_are_out_of_reach():
    for case in ("default", "full"):
        (policy,) = of(rendered(case), "NetworkPolicy", "ramen-operator")
        assert policy["spec"]["policyTypes"] == ["Ingress", "Egress"]
        blocks = [peer["ipBlock"] for rule in policy["spec"]["egress"] for peer in rule.get("to", [])]
        assert "169.254.0.0/16" in next(b for b in blocks if b["cidr"] == "0.0.0.0/0")["except"]
        for block in blocks:
            assert block["cidr"].endswith("/0") or "except" not in block
            assert all((":" in e) == (":" in block["cidr"]) for e in block.get("except", []))


def test_only_pods_of_ours_reach_the_artifacts():
    (policy,) = of(rendered("default"), "NetworkPolicy", "ramen-operator")
    rules = {rule["ports"][0]["port"]: rule["from"] for rule in policy["spec"]["ingress"]}
    for peer in rules["artifacts"]:
        assert peer["podSelector"]["matchLabels"]


@pytest.mark.parametrize(("case", "namespaces"), [("default", ["ramen-system"]), ("namespaced", ["team-a", "team-b"]), ("cluster", None)])
def test_sec_only_namespaces_that_are_looked_after_reach_the_artifacts(case, namespaces):
    (policy,) = of(rendered(case), "NetworkPolicy", "ramen-operator")
    rules = {rule["ports"][0]["port"]: rule["from"] for rule in policy["spec"]["ingress"]}
    (peer,) = [peer for peer in rules["artifacts"] if "app.kubernetes.io/managed-by" in peer["podSelector"]["matchLabels"]]
    known = {"matchExpressions": [{"key": "kubernetes.io/metadata.name", "operator": "In", "values": namespaces}]}
    assert peer["namespaceSelector"] == (known if namespaces else {})


def test_without_policies_there_are_none():
    assert of(render({"networkPolicy": {"enabled": False}}), "NetworkPolicy") == []


def notes(folder, values: dict) -> str:
    """`helm template` leaves them out, so they are rendered as a value of an object."""
    chart = shutil.copytree(CHART, folder / "ramen")
    (chart / "templates" / "NOTES.txt").rename(chart / "files" / "NOTES.txt")
    text = '{{ tpl (.Files.Get "files/NOTES.txt") . | toJson }}'
    (chart / "templates" / "notes.yaml").write_text(f"kind: Notes\nmetadata: {{name: notes}}\ntext: {text}\n")
    done = template(chart, values)
    assert done.returncode == 0, done.stderr
    (found,) = of([document for document in yaml.safe_load_all(done.stdout) if document], "Notes")
    return found["text"]


@pytest.mark.parametrize(
    ("values", "told"),
    [
        ({}, False),
        ({"scope": "Cluster"}, True),
        ({"scope": "Cluster", "networkPolicy": {"enabled": False}}, False),
    ],
)
def test_the_notes_tell_who_must_apply_the_policy_of_groups(tmp_path, values, told):
    text = notes(tmp_path, values)
    assert ("ramen-groups" in text) == told
    if told:
        page, chapter = re.search(r"(docs/\S+\.md), under \"(.+?)\"", text).groups()
        (section,) = re.findall(rf"^## {chapter}\n(.*?)^## ", (ROOT / page).read_text(), re.DOTALL | re.MULTILINE)
        assert "name: ramen-groups" in section


def test_sec_pods_of_groups_are_guarded_before_and_after_their_group_is_there():
    """Policies add up: what a group's own do not open stays closed, also once they went with the group."""
    for case, namespaces in (("default", ["ramen-system"]), ("namespaced", ["team-a", "team-b"]), ("cluster", [])):
        policies = of(rendered(case), "NetworkPolicy", "ramen-groups")
        assert [policy["metadata"]["namespace"] for policy in policies] == namespaces
        for policy in policies:
            spec = policy["spec"]
            assert spec["policyTypes"] == ["Ingress", "Egress"] and "ingress" not in spec and "egress" not in spec
            assert spec["podSelector"] == {"matchLabels": {"app.kubernetes.io/managed-by": "ramen-operator"}}


def test_ops08_uninstalling_the_kind_keeps_it_and_its_groups():
    documents = [d for d in yaml.safe_load_all(template(CRDS, {"annotations": {"a": "b"}}).stdout) if d]
    assert documents, "the chart has no kind in it"
    for document in documents:
        assert document["kind"] == "CustomResourceDefinition"
        assert document["metadata"]["annotations"]["helm.sh/resource-policy"] == "keep"
        assert document["metadata"]["annotations"]["a"] == "b"
        original = yaml.safe_load((ROOT / "crds" / "yaml" / f"{document['metadata']['name']}.yaml").read_text())
        assert document["spec"] == original["spec"]


def test_the_kind_in_the_chart_is_that_of_the_code():
    ours = sorted((CRDS / "files").glob("*.yaml"))
    assert [path.name for path in ours] == sorted(path.name for path in (ROOT / "crds" / "yaml").glob("*.yaml"))
    for path in ours:
        assert path.read_bytes() == (ROOT / "crds" / "yaml" / path.name).read_bytes(), "run cargo xtask crdgen"


def test_the_version_is_that_of_the_programs():
    version = re.search(r'^version = "(.+)"$', (ROOT / "Cargo.toml").read_text(), re.MULTILINE).group(1)
    for chart in (CHART, CRDS):
        assert yaml.safe_load((chart / "Chart.yaml").read_text())["appVersion"] == version
