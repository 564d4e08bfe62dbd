"""The charts against a real API server with its admission: nothing runs, but what the server takes and refuses is real."""

import io
import json
import os
import re
import subprocess
import tarfile
import time
from pathlib import Path

import documents
import pytest
import yaml
from conftest import CHART, CRDS, EVERY, HELM, ROOT, VALUES

CLUSTER = ROOT / "e2e" / "cluster" / "cluster"
NAME = f"charts-{os.getpid()}"
GROUP = {
    "apiVersion": "ramen.dev/v1alpha1",
    "kind": "McpGroup",
    "metadata": {"name": "library", "namespace": "team-a"},
    "spec": {"source": {"url": "https://git.example.com/x.git"}, "network": {"allowedCIDRs": ["10.0.0.0/8"]}},
}


class Cluster:
    def __init__(self, kubeconfig: str):
        self.env = {**os.environ, "KUBECONFIG": kubeconfig}

    def kubectl(self, *args: str, stdin: str | None = None, fails: bool = False) -> str:
        return self.run([str(CLUSTER), "kubectl", "--name", NAME, "--", *args], stdin, fails)

    def helm(self, *args: str, values: dict | None = None, fails: bool = False) -> str:
        more = [] if values is None else ["--values", "-"]
        return self.run([HELM, *args, *more], None if values is None else yaml.safe_dump(values), fails)

    def run(self, command: list[str], stdin: str | None, fails: bool) -> str:
        done = subprocess.run(
            command, input=stdin, env=self.env, capture_output=True, text=True, check=False, timeout=90
        )
        assert (done.returncode != 0) == fails, done.stdout + done.stderr
        return done.stderr if fails else done.stdout

    def get(self, *args: str) -> dict:
        return json.loads(self.kubectl("get", *args, "-o", "json"))

    def namespace(self, name: str):
        labels = {"pod-security.kubernetes.io/enforce": "restricted"}
        body = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name, "labels": labels}}
        self.kubectl("apply", "-f", "-", stdin=json.dumps(body))

    def until(self, what, seconds: float = 30):
        end = time.monotonic() + seconds
        while not (found := what()):
            assert time.monotonic() < end, "it did not come to pass"
            time.sleep(0.2)
        return found


@pytest.fixture(scope="module")
def cluster():
    tiers = subprocess.run([CLUSTER, "tiers"], capture_output=True, text=True, check=False, timeout=600)
    if "2 yes" not in tiers.stdout:
        pytest.skip(f"SKIPPED: no API server can be started here: {tiers.stdout.splitlines()[:1] or tiers.stderr[-200:]}")
    up = subprocess.run(
        [CLUSTER, "up", "--name", NAME, "--tier", "2"], capture_output=True, text=True, check=False, timeout=900
    )
    try:
        assert up.returncode == 0, up.stderr[-2000:]
        yield Cluster(up.stdout.strip().splitlines()[-1])
    finally:
        subprocess.run([CLUSTER, "down", "--name", NAME], capture_output=True, check=False, timeout=120)


@pytest.mark.parametrize("case", EVERY)
def test_the_api_server_takes_every_object(cluster, case):
    for namespace in ("ramen-system", "team-a", "team-b", "ramen-gateways"):
        cluster.namespace(namespace)
    values = {**EVERY[case], "metrics": {"dashboard": {"enabled": True}}}
    if "gateway" in values:
        # The kinds of the Gateway API are none of Kubernetes.
        values["gateway"] = {**values["gateway"], "httpRoute": {"enabled": False}}
    cluster.helm("install", "ramen", str(CHART), "-n", "ramen-system", "--dry-run=server", values=values)


def test_ops05_ops06_its_pods_are_admitted_where_rules_are_strict(cluster):
    cluster.namespace("strict")
    quota = {
        "apiVersion": "v1",
        "kind": "ResourceQuota",
        "metadata": {"name": "all", "namespace": "strict"},
        "spec": {
            "hard": {
                f"{side}.{what}": "20Gi" if what != "cpu" else "10"
                for side in ("requests", "limits")
                for what in ("cpu", "memory", "ephemeral-storage")
            }
        },
    }
    cluster.kubectl("apply", "-f", "-", stdin=json.dumps(quota))
    # The quota counts nothing before its controller has looked at it.
    cluster.until(lambda: cluster.get("resourcequota", "all", "-n", "strict").get("status", {}).get("hard"))
    values = {"gateway": {"enabled": True, "replicas": 1, "tls": {"secretName": "tls"}}}
    cluster.helm("install", "ramen", str(CHART), "-n", "strict", values=values)
    for component in ("operator", "gateway"):
        selector = f"app.kubernetes.io/component={component}"
        (pod,) = cluster.until(lambda: cluster.get("pods", "-n", "strict", "-l", selector)["items"])
        assert pod["spec"]["containers"][0]["resources"]["limits"]
    refused = cluster.get("events", "-n", "strict", "--field-selector", "reason=FailedCreate")["items"]
    assert refused == []
    # The pod of `helm test`, which this server alone cannot run.
    hooks = cluster.helm("get", "hooks", "ramen", "-n", "strict")
    cluster.kubectl("apply", "--dry-run=server", "-n", "strict", "-f", "-", stdin=hooks)
    cluster.helm("uninstall", "ramen", "-n", "strict", "--wait")
    left = cluster.get("deploy,svc,netpol,role,rolebinding,pvc,sa", "-n", "strict", "-l", "helm.sh/chart")["items"]
    assert left == []


def test_a_pod_that_asks_for_more_is_refused_there(cluster):
    """The strict namespace is strict: without this, the test above would say nothing."""
    cluster.namespace("strict")
    pod = {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": "root", "namespace": "strict"},
        "spec": {"containers": [{"name": "c", "image": "x"}]},
    }
    assert "PodSecurity" in cluster.kubectl("apply", "-f", "-", stdin=json.dumps(pod), fails=True)


def can(cluster, verb: str, resource: str, namespace: str, user: str = "ramen-system:ramen") -> bool:
    body = {
        "apiVersion": "authorization.k8s.io/v1",
        "kind": "SubjectAccessReview",
        "spec": {
            "user": f"system:serviceaccount:{user}",
            "resourceAttributes": {
                "verb": verb,
                "namespace": namespace,
                "group": resource.partition(".")[2],
                "resource": resource.partition(".")[0],
            },
        },
    }
    answer = cluster.kubectl("create", "-f", "-", "-o", "json", stdin=json.dumps(body))
    return json.loads(answer)["status"]["allowed"]


def test_rights_end_at_the_namespaces_that_it_looks_after(cluster):
    for namespace in ("ramen-system", "team-a", "team-b", "other"):
        cluster.namespace(namespace)
    cluster.helm("install", "ramen", str(CHART), "-n", "ramen-system", values=VALUES["namespaced"])
    try:
        for namespace, allowed in (("team-a", True), ("team-b", True), ("other", False), ("ramen-system", False)):
            assert can(cluster, "list", "secrets", namespace) is allowed, namespace
            assert can(cluster, "patch", "deployments.apps", namespace) is allowed, namespace
        for verb, resource in (
            ("create", "pods"), ("get", "nodes"), ("create", "roles.rbac.authorization.k8s.io"),
            ("delete", "mcpgroups.ramen.dev"), ("update", "mcpgroups.ramen.dev"), ("create", "pods/exec"),
        ):
            assert not can(cluster, verb, resource, "team-a"), (verb, resource)
        assert not can(cluster, "list", "mcpgroups.ramen.dev", "")
    finally:
        cluster.helm("uninstall", "ramen", "-n", "ramen-system")


def test_sec_a_gateway_reads_no_secret_of_a_team_and_writes_nothing(cluster):
    for namespace in ("ramen-system", "team-a", "team-b", "other", "ramen-gateways"):
        cluster.namespace(namespace)
    values = {**VALUES["namespaced"], "gateway": {"enabled": True, "namespace": "ramen-gateways"}}
    cluster.helm("install", "ramen", str(CHART), "-n", "ramen-system", values=values)
    try:
        user = "ramen-gateways:ramen-gateway"
        for namespace in ("team-a", "team-b", "other", "ramen-system", "ramen-gateways"):
            own, serves = namespace == "ramen-gateways", namespace.startswith("team-")
            assert can(cluster, "list", "secrets", namespace, user) is own, namespace
            assert can(cluster, "watch", "mcpgroups.ramen.dev", namespace, user) is serves, namespace
            assert can(cluster, "list", "endpointslices.discovery.k8s.io", namespace, user) is serves, namespace
            for resource in ("secrets", "mcpgroups.ramen.dev", "endpointslices.discovery.k8s.io", "pods", "configmaps"):
                for verb in ("create", "patch", "update", "delete"):
                    assert not can(cluster, verb, resource, namespace, user), (verb, resource, namespace)
        # The operator leaves its Secrets there, and touches nothing else.
        assert can(cluster, "patch", "secrets", "ramen-gateways")
        assert not can(cluster, "patch", "deployments.apps", "ramen-gateways")
    finally:
        cluster.helm("uninstall", "ramen", "-n", "ramen-system")


@pytest.fixture
def group(cluster):
    """A fresh group in a namespace of its own, and a way to write its status as the operator would."""
    if not list((CRDS / "files").glob("*.yaml")):
        pytest.fail("the chart has no kind in it")
    cluster.namespace("team-a")
    cluster.helm("upgrade", "--install", "ramen-crds", str(CRDS), "-n", "team-a")
    cluster.kubectl("wait", "crd/mcpgroups.ramen.dev", "--for=condition=Established", "--timeout=30s")
    cluster.kubectl("delete", "rmg", "library", "-n", "team-a", "--ignore-not-found")
    cluster.kubectl("apply", "-f", "-", stdin=json.dumps(GROUP))

    def tell(revision: dict, *conditions: tuple[str, str], dry: bool = False) -> subprocess.CompletedProcess:
        now = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())
        told = [
            {"type": kind, "status": status, "reason": "R", "message": "m", "lastTransitionTime": now}
            for kind, status in conditions
        ]
        errors = [{"reason": "NameMismatch", "message": "say it again", "package": "tools/calc"}]
        status = {"observedGeneration": 1, "revision": revision, "conditions": told, "errors": errors}
        command = [CLUSTER, "kubectl", "--name", NAME, "--", "patch", "rmg", "library", "-n", "team-a"]
        command += ["--subresource=status", "--type=merge", "-p", json.dumps({"status": status})]
        command += ["--dry-run=server"] if dry else []
        return subprocess.run(command, env=cluster.env, capture_output=True, text=True, check=False, timeout=60)

    return tell


@pytest.mark.parametrize(("deployed", "code"), [("True", 0), ("False", 1)], ids=["live", "refused"])
def test_a_pipeline_waits_with_the_real_kubectl(cluster, group, tmp_path, deployed, code):
    (text,) = [text for name, text in documents.blocks("sh").items() if name.endswith(":ramen-wait.sh")]
    (tmp_path / "ramen-wait.sh").write_text(text)
    shim = tmp_path / "kubectl"
    shim.write_text(f'#!/bin/sh\nexec "{CLUSTER}" kubectl --name {NAME} -- "$@"\n')
    shim.chmod(0o755)
    old, new = f"main@sha1:{'0' * 40}", f"main@sha1:{'1' * 40}"
    assert group({"serving": old, "attempted": old}, ("Ready", "True"), ("Deployed", "True")).returncode == 0
    command = ["sh", str(tmp_path / "ramen-wait.sh"), "team-a", "library", new, "60"]
    env = {**cluster.env, "PATH": f"{tmp_path}:{os.environ['PATH']}"}
    with subprocess.Popen(command, env=env, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as waiting:

        def asked() -> bool:
            notes = cluster.get("rmg", "library", "-n", "team-a")["metadata"].get("annotations", {})
            return notes.get("ramen.dev/requested-at", "").startswith(new)

        cluster.until(asked)
        assert group({"serving": old, "attempted": new}, ("Ready", "True"), ("Deployed", "Unknown")).returncode == 0
        serving = new if deployed == "True" else old
        assert group({"serving": serving, "attempted": new}, ("Ready", "True"), ("Deployed", deployed)).returncode == 0
        output, errors = waiting.communicate(timeout=60)
    assert waiting.returncode == code, output + errors
    assert ("NameMismatch: tools/calc" in errors) is bool(code)


def test_the_expressions_for_flux_judge_our_status(cluster, group):
    """The API server is asked to evaluate them, as rules of an admission policy."""
    (text,) = [text for text in documents.blocks("yaml").values() if "healthCheckExprs" in text]
    (check,) = yaml.safe_load(text)["healthCheckExprs"]
    cases = {
        "current": [(("Ready", "True"), ("Deployed", "True")), (("Ready", "True"),)],
        "failed": [
            (("Ready", "False"), ("Stalled", "True"), ("Deployed", "Unknown")),
            (("Ready", "True"), ("Deployed", "False")),
        ],
        "neither": [(("Ready", "False"), ("Reconciling", "True"), ("Deployed", "Unknown"))],
    }
    for wanted in ("current", "failed"):
        expression = re.sub(r"(?<![\w.])status\.", "object.status.", check[wanted])
        rules = {
            "apiGroups": ["ramen.dev"], "apiVersions": ["*"], "operations": ["UPDATE"], "resources": ["mcpgroups/status"],
        }
        policy = {
            "apiVersion": "admissionregistration.k8s.io/v1",
            "kind": "ValidatingAdmissionPolicy",
            "metadata": {"name": "flux"},
            "spec": {
                "matchConstraints": {"resourceRules": [rules]},
                "validations": [{"expression": expression, "message": f"not {wanted}"}],
            },
        }
        binding = {
            "apiVersion": "admissionregistration.k8s.io/v1",
            "kind": "ValidatingAdmissionPolicyBinding",
            "metadata": {"name": "flux"},
            "spec": {"policyName": "flux", "validationActions": ["Deny"]},
        }
        for document in (policy, binding):
            cluster.kubectl("apply", "-f", "-", stdin=json.dumps(document))
        # A policy counts a moment after it was made.
        cluster.until(lambda wanted=wanted: f"not {wanted}" in group({}, *cases["neither"][0], dry=True).stderr)
        for name, examples in cases.items():
            for conditions in examples:
                done = group({}, *conditions, dry=True)
                assert (done.returncode == 0) is (name == wanted), (wanted, conditions, done.stderr)
    for kind in ("validatingadmissionpolicybinding", "validatingadmissionpolicy"):
        cluster.kubectl("delete", kind, "flux")


def test_ops08_groups_outlive_the_charts_and_a_newer_kind_takes_the_place_of_an_older(cluster):
    if not list((CRDS / "files").glob("*.yaml")):
        pytest.fail("the chart has no kind in it")
    cluster.namespace("team-a")
    cluster.helm("upgrade", "--install", "ramen-crds", str(CRDS), "-n", "team-a")
    cluster.kubectl("wait", "crd/mcpgroups.ramen.dev", "--for=condition=Established", "--timeout=30s")
    names = cluster.get("crd", "mcpgroups.ramen.dev")["status"]["conditions"]
    assert ("NamesAccepted", "True") in [(condition["type"], condition["status"]) for condition in names]
    cluster.kubectl("apply", "-f", "-", stdin=json.dumps(GROUP))
    cluster.helm("uninstall", "ramen-crds", "-n", "team-a")
    assert cluster.get("rmg", "library", "-n", "team-a")["spec"].items() >= GROUP["spec"].items()
    # Taken over again by a new installation.
    cluster.helm("install", "ramen-crds", str(CRDS), "-n", "team-a")
    assert cluster.get("rmg", "library", "-n", "team-a")["spec"].items() >= GROUP["spec"].items()


def test_ops08_it_is_installed_beside_a_kind_of_nearly_the_same_name(cluster):
    """ToolHive has a kind MCPGroup, with the plural that ours has: only groups and short names tell the two apart."""
    names = {"kind": "MCPGroup", "plural": "mcpgroups", "singular": "mcpgroup", "shortNames": ["mcpg"]}
    schema = {"openAPIV3Schema": {"type": "object", "x-kubernetes-preserve-unknown-fields": True}}
    other = {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {"name": "mcpgroups.toolhive.stacklok.dev"},
        "spec": {
            "group": "toolhive.stacklok.dev",
            "scope": "Namespaced",
            "names": names,
            "versions": [{"name": "v1alpha1", "served": True, "storage": True, "schema": schema}],
        },
    }
    theirs = {
        "apiVersion": "toolhive.stacklok.dev/v1alpha1",
        "kind": "MCPGroup",
        "metadata": {"name": "their-own", "namespace": "team-a"},
    }
    cluster.namespace("team-a")
    cluster.kubectl("apply", "-f", "-", stdin=json.dumps(other))
    try:
        cluster.helm("upgrade", "--install", "ramen-crds", str(CRDS), "-n", "team-a")
        for kind in ("mcpgroups.toolhive.stacklok.dev", "mcpgroups.ramen.dev"):
            for condition in ("Established", "NamesAccepted"):
                cluster.kubectl("wait", f"crd/{kind}", f"--for=condition={condition}", "--timeout=30s")
        for document in (theirs, GROUP):
            cluster.kubectl("apply", "-f", "-", stdin=json.dumps(document))
        for word, name, group in (
            ("rmg", "library", "ramen.dev"), ("mcpgroups.ramen.dev", "library", "ramen.dev"),
            ("mcpg", "their-own", "toolhive.stacklok.dev"),
        ):
            found = cluster.get(word, name, "-n", "team-a")
            assert found["apiVersion"].partition("/")[0] == group, word
    finally:
        cluster.kubectl("delete", "crd", "mcpgroups.toolhive.stacklok.dev")


def earlier(tmp_path) -> str | None:
    """The charts as they were before the newest commit that changed them."""
    log = subprocess.run(
        ["git", "log", "--format=%H", "-2", "--", "charts/ramen", "charts/ramen-crds"],
        cwd=ROOT, capture_output=True, text=True, check=False,
    )
    commits = log.stdout.split()
    if len(commits) < 2:
        return None
    archive = subprocess.run(["git", "archive", commits[1], "charts"], cwd=ROOT, capture_output=True, check=True)
    with tarfile.open(fileobj=io.BytesIO(archive.stdout)) as tar:
        tar.extractall(tmp_path, filter="data")
    return commits[1]


def test_ops08_an_upgrade_from_the_charts_before_leaves_one_operator_and_its_groups(cluster, tmp_path):
    if earlier(tmp_path) is None:
        pytest.skip("SKIPPED: no earlier charts in the git log")
    cluster.namespace("upgrade")
    cluster.namespace("team-a")

    def kind(chart: Path):
        cluster.helm("upgrade", "--install", "ramen-crds", str(chart), "-n", "team-a")
        cluster.kubectl("wait", "crd/mcpgroups.ramen.dev", "--for=condition=Established", "--timeout=30s")

    # Whatever the commit before had: here it lacks a field that the newer kind has.
    (definition,) = (tmp_path / "charts" / "ramen-crds" / "files").glob("*.yaml")
    older = yaml.safe_load(definition.read_text())
    spec = older["spec"]["versions"][0]["schema"]["openAPIV3Schema"]["properties"]["spec"]
    spec["properties"]["worker"]["properties"].pop("podLabels", None)
    definition.write_text(yaml.safe_dump(older))
    labelled = {**GROUP, "spec": {**GROUP["spec"], "worker": {"podLabels": {"team": "noodles"}}}}

    def tried() -> subprocess.CompletedProcess:
        command = [CLUSTER, "kubectl", "--name", NAME, "--", "apply", "--dry-run=server", "-f", "-"]
        return subprocess.run(
            command, input=json.dumps(labelled), env=cluster.env, capture_output=True, text=True, check=False, timeout=60
        )

    kind(tmp_path / "charts" / "ramen-crds")
    cluster.kubectl("delete", "rmg", "library", "-n", "team-a", "--ignore-not-found")
    cluster.kubectl("apply", "-f", "-", stdin=json.dumps(GROUP))
    before = cluster.get("rmg", "library", "-n", "team-a")
    # Another kind counts a moment after it was written.
    cluster.until(lambda: "podLabels" in tried().stderr)
    cluster.helm("install", "up", str(tmp_path / "charts" / "ramen"), "-n", "upgrade", values={})
    kind(CRDS)
    cluster.helm("upgrade", "up", str(CHART), "-n", "upgrade", values={})
    after = cluster.get("rmg", "library", "-n", "team-a")
    assert after["metadata"]["uid"] == before["metadata"]["uid"]
    assert after["metadata"]["generation"] == 1
    assert after["spec"].items() >= before["spec"].items()
    # What the newer kind has is taken, and there when it is read.
    cluster.until(lambda: tried().returncode == 0)
    cluster.kubectl("apply", "-f", "-", stdin=json.dumps(labelled))
    assert cluster.get("rmg", "library", "-n", "team-a")["spec"]["worker"]["podLabels"] == {"team": "noodles"}
    (deployment,) = cluster.get("deployments", "-n", "upgrade")["items"]
    assert deployment["metadata"]["generation"] <= 2
    cluster.helm("rollback", "up", "-n", "upgrade")
    cluster.helm("uninstall", "up", "-n", "upgrade")
