"""What every pod of the chart keeps to."""

import pytest
from conftest import EVERY, of, pods, refused, render, rendered

CASES = pytest.mark.parametrize("case", EVERY)


def containers(spec: dict) -> list[dict]:
    return spec.get("initContainers", []) + spec["containers"]


@CASES
def test_ops05_every_pod_keeps_to_the_restricted_standard(case):
    allowed = {"configMap", "csi", "downwardAPI", "emptyDir", "ephemeral", "persistentVolumeClaim", "projected", "secret"}
    for where, spec in pods(rendered(case)):
        for field in ("hostNetwork", "hostPID", "hostIPC", "hostUsers"):
            assert field not in spec, where
        security = spec["securityContext"]
        assert security["runAsNonRoot"] is True and security["runAsUser"] == 65532, where
        assert security["seccompProfile"] == {"type": "RuntimeDefault"}, where
        for volume in spec.get("volumes", []):
            assert set(volume) - {"name"} <= allowed, (where, volume)
        for container in containers(spec):
            own = container["securityContext"]
            assert own["allowPrivilegeEscalation"] is False, where
            assert own["capabilities"] == {"drop": ["ALL"]}, where
            assert not own.get("privileged"), where
            assert all("hostPort" not in port for port in container.get("ports", [])), where


@CASES
def test_roots_cannot_be_written_and_scratch_space_has_a_bound(case):
    for where, spec in pods(rendered(case)):
        for container in containers(spec):
            assert container["securityContext"]["readOnlyRootFilesystem"] is True, where
        for volume in spec.get("volumes", []):
            if "emptyDir" in volume:
                assert volume["emptyDir"]["sizeLimit"], (where, volume)


@CASES
def test_ops06_every_container_has_requests_and_limits(case):
    for where, spec in pods(rendered(case)):
        for container in containers(spec):
            for field in ("requests", "limits"):
                resources = container["resources"][field]
                assert {"cpu", "memory", "ephemeral-storage"} <= set(resources), (where, field)


@CASES
def test_sec16_no_pod_gets_variables_from_services(case):
    for where, spec in pods(rendered(case)):
        assert spec["enableServiceLinks"] is False, where


@CASES
def test_only_the_operator_gets_a_token(case):
    for where, spec in pods(rendered(case)):
        assert spec["automountServiceAccountToken"] is where.startswith("Deployment/"), where
    for account in of(rendered(case), "ServiceAccount"):
        assert account["automountServiceAccountToken"] is False


def test_ops07_a_budget_stands_only_where_it_cannot_stop_a_drain():
    assert of(rendered("default"), "PodDisruptionBudget") == []
    shared = {"persistence": {"accessModes": ["ReadWriteMany"]}}
    assert of(render({"replicas": 1, **shared}), "PodDisruptionBudget") == []
    assert of(render({"replicas": 0}), "PodDisruptionBudget") == []
    (budget,) = of(render({"replicas": 3, **shared}), "PodDisruptionBudget")
    assert budget["spec"]["maxUnavailable"] == 1 and "minAvailable" not in budget["spec"]
    (deployment,) = of(rendered("full"), "Deployment")
    labels = deployment["spec"]["template"]["metadata"]["labels"]
    assert budget["spec"]["selector"]["matchLabels"].items() <= labels.items()


def test_several_replicas_need_a_store_that_all_can_mount():
    assert "ReadWriteMany" in refused({"replicas": 2})
    assert "persistence.enabled" in refused({"replicas": 2, "persistence": {"enabled": False}})
    (deployment,) = of(render({"replicas": 2, "persistence": {"existingClaim": "shared"}}), "Deployment")
    assert deployment["spec"]["replicas"] == 2


def test_a_store_that_one_pod_mounts_is_let_go_before_the_next_takes_it():
    (deployment,) = of(rendered("default"), "Deployment")
    assert deployment["spec"]["strategy"] == {"type": "Recreate"}
    (deployment,) = of(rendered("full"), "Deployment")
    assert deployment["spec"]["strategy"] == {"type": "RollingUpdate"}
    assert deployment["spec"]["template"]["spec"]["topologySpreadConstraints"]


@CASES
def test_images_are_named_by_tag_or_digest_and_never_latest(case):
    for where, spec in pods(rendered(case)):
        for container in containers(spec):
            image = container["image"]
            assert "@sha256:" in image or image.rsplit(":", 1)[1] not in ("latest", ""), where


def test_pods_of_the_operator_can_be_told_apart_by_label():
    (deployment,) = of(rendered("full"), "Deployment")
    labels = deployment["spec"]["template"]["metadata"]["labels"]
    assert labels["team"] == "platform"
    assert labels["app.kubernetes.io/name"] == "ramen"
    assert labels["app.kubernetes.io/component"] == "operator"
    # A label of the user must not take the place of ours.
    (deployment,) = of(render({"podLabels": {"app.kubernetes.io/component": "other"}}), "Deployment")
    assert deployment["spec"]["template"]["metadata"]["labels"]["app.kubernetes.io/component"] == "operator"


def test_a_bucket_is_a_store_without_a_claim_that_all_replicas_share():
    documents = render({"replicas": 2, "artifacts": {"store": "s3://layers/team", "secretName": "bucket"}})
    assert of(documents, "PersistentVolumeClaim") == []
    (deployment,) = of(documents, "Deployment")
    assert deployment["spec"]["strategy"] == {"type": "RollingUpdate"}
    spec = deployment["spec"]["template"]["spec"]
    (container,) = spec["containers"]
    env = {e["name"]: e.get("value") for e in container["env"]}
    assert env["RAMEN_OPERATOR_STORE"] == "s3://layers/team"
    assert container["envFrom"] == [{"secretRef": {"name": "bucket"}}]
    assert "store" not in {volume["name"] for volume in spec["volumes"] + container["volumeMounts"]}
    # Without a Secret: what the service account is given.
    (deployment,) = of(render({"artifacts": {"store": "gs://layers"}}), "Deployment")
    assert "envFrom" not in deployment["spec"]["template"]["spec"]["containers"][0]
    (deployment,) = of(rendered("default"), "Deployment")
    env = {e["name"]: e.get("value") for e in deployment["spec"]["template"]["spec"]["containers"][0]["env"]}
    assert env["RAMEN_OPERATOR_STORE"] == "/var/lib/ramen/store"


def test_pods_can_be_told_to_read_the_bucket_themselves():
    pods_read = {"enabled": True, "secretName": "reader", "cidrs": ["192.0.2.0/24", "2001:db8::/32"]}
    (deployment,) = of(render({"artifacts": {"store": "s3://layers", "pods": pods_read}}), "Deployment")
    env = {e["name"]: e.get("value") for e in deployment["spec"]["template"]["spec"]["containers"][0]["env"]}
    assert env["RAMEN_OPERATOR_PODS_BUCKET"] == "1"
    assert env["RAMEN_OPERATOR_PODS_BUCKET_SECRET"] == "reader"
    assert env["RAMEN_OPERATOR_PODS_BUCKET_CIDRS"] == "192.0.2.0/24,2001:db8::/32"
    (deployment,) = of(rendered("default"), "Deployment")
    assert "PODS_BUCKET" not in str(deployment)


@pytest.mark.parametrize(
    ("artifacts", "says"),
    [
        ({"pods": {"enabled": True}}, "artifacts.store"),
        ({"store": "s3://layers", "pods": {"cidrs": ["everywhere"]}}, "cidrs"),
        ({"secretName": "bucket"}, "artifacts.store"),
        ({"store": "/var/lib/x"}, "artifacts"),
        ({"store": "https://bucket.example"}, "artifacts"),
        ({"store": "s3://key:secret@bucket"}, "artifacts"),
    ],
)
def test_a_store_that_is_no_bucket_is_refused(artifacts, says):
    assert says in refused({"artifacts": artifacts})
