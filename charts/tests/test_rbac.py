"""What the operator may do, and nothing more."""

import re

import pytest
from conftest import EVERY, ROOT, VALUES, of, render, rendered

CHILD = {"get", "list", "watch", "create", "patch", "delete"}
# The whole of it, so that a change is seen in a review.
RULES = {
    ("ramen.dev", "mcpgroups"): {"list", "watch"},
    ("ramen.dev", "mcpgroups/status"): {"patch"},
    ("ramen.dev", "mcpgroups/finalizers"): {"update"},
    ("", "secrets"): CHILD,
    ("", "configmaps"): CHILD,
    ("", "serviceaccounts"): CHILD,
    ("", "services"): CHILD,
    ("", "pods"): {"list", "watch"},
    ("", "events"): {"list"},
    ("apps", "deployments"): CHILD,
    ("batch", "jobs"): CHILD,
    ("networking.k8s.io", "networkpolicies"): CHILD,
    ("policy", "poddisruptionbudgets"): CHILD,
    ("autoscaling", "horizontalpodautoscalers"): CHILD,
    ("events.k8s.io", "events"): {"create", "patch"},
}


def granted(role: dict) -> dict:
    verbs = {}
    for rule in role["rules"]:
        names = rule.get("resourceNames")
        for group in rule["apiGroups"]:
            for resource in rule["resources"]:
                key = (group, resource) if names is None else (group, resource, *names)
                verbs.setdefault(key, set()).update(rule["verbs"])
    return verbs


def roles(documents: list[dict]) -> list[dict]:
    return of(documents, "Role") + of(documents, "ClusterRole")


@pytest.mark.parametrize("case", EVERY)
def test_no_wildcards_and_nothing_that_leads_further(case):
    for role in roles(rendered(case)):
        for rule in role["rules"]:
            words = rule["verbs"] + rule["resources"] + rule["apiGroups"]
            assert "*" not in words
            assert not {"escalate", "bind", "impersonate", "deletecollection"} & set(words)
            assert not {"pods/exec", "pods/attach", "pods/portforward", "nodes", "namespaces"} & set(words)
            assert not [word for word in rule["resources"] if "role" in word or "token" in word]


@pytest.mark.parametrize("case", VALUES)
def test_every_role_is_bound_once_and_to_the_operator(case):
    documents = rendered(case)
    (account,) = of(documents, "ServiceAccount")
    subject = {
        "kind": "ServiceAccount",
        "name": account["metadata"]["name"],
        "namespace": account["metadata"]["namespace"],
    }
    bindings = of(documents, "RoleBinding") + of(documents, "ClusterRoleBinding")
    bound = {(b["roleRef"]["kind"], b["metadata"].get("namespace"), b["roleRef"]["name"]) for b in bindings}
    existing = {(r["kind"], r["metadata"].get("namespace"), r["metadata"]["name"]) for r in roles(documents)}
    assert bound == existing and len(bindings) == len(existing)
    assert all(binding["subjects"] == [subject] for binding in bindings)
    (deployment,) = of(documents, "Deployment")
    assert deployment["spec"]["template"]["spec"]["serviceAccountName"] == subject["name"]


def test_the_default_stays_in_its_namespace():
    documents = rendered("default")
    assert of(documents, "ClusterRole") == [] and of(documents, "ClusterRoleBinding") == []
    assert {role["metadata"]["namespace"] for role in of(documents, "Role")} == {"ramen-system"}


def test_namespaced_mode_has_a_role_in_each_namespace_and_no_more():
    documents = rendered("namespaced")
    assert of(documents, "ClusterRole") == [] and of(documents, "ClusterRoleBinding") == []
    places = {role["metadata"]["namespace"]: granted(role) for role in of(documents, "Role", "ramen-operator")}
    assert places == {"team-a": RULES, "team-b": RULES}
    (deployment,) = of(documents, "Deployment")
    env = {e["name"]: e.get("value") for e in deployment["spec"]["template"]["spec"]["containers"][0]["env"]}
    assert env["RAMEN_OPERATOR_NAMESPACES"] == "team-a,team-b"


def test_cluster_mode_has_the_same_rules_everywhere():
    documents = rendered("cluster")
    (role,) = of(documents, "ClusterRole")
    assert granted(role) == RULES
    (deployment,) = of(documents, "Deployment")
    names = [e["name"] for e in deployment["spec"]["template"]["spec"]["containers"][0]["env"]]
    assert "RAMEN_OPERATOR_NAMESPACES" not in names


def test_only_several_replicas_with_hooks_may_mark_a_group():
    hooks = {"webhooks": {"enabled": True, "secretName": "hooks"}}
    several = {"replicas": 2, "artifacts": {"store": "s3://layers"}}
    for values, verbs in (
        (hooks, {"list", "watch"}),
        (several, {"list", "watch"}),
        (hooks | several, {"list", "watch", "patch"}),
    ):
        (role,) = of(render(values), "Role", "ramen-operator")
        assert granted(role)[("ramen.dev", "mcpgroups")] == verbs
        assert granted(role)[("ramen.dev", "mcpgroups/status")] == {"patch"}


@pytest.mark.parametrize("case", VALUES)
def test_the_lease_is_one_of_its_own_namespace(case):
    (own,) = of(rendered(case), "Role", "ramen-operator-own")
    assert own["metadata"]["namespace"] == "ramen-system"
    assert granted(own) == {
        ("coordination.k8s.io", "leases"): {"create"},
        ("coordination.k8s.io", "leases", "ramen-operator"): {"get", "update"},
    }
    (deployment,) = of(rendered(case), "Deployment")
    env = {e["name"]: e.get("value") for e in deployment["spec"]["template"]["spec"]["containers"][0]["env"]}
    assert env["RAMEN_OPERATOR_LEASE"] == "ramen-operator"


def test_roles_can_be_left_to_somebody_else():
    documents = render({"rbac": {"create": False}, "serviceAccount": {"create": False, "name": "given"}})
    assert roles(documents) == [] and of(documents, "ServiceAccount") == []


def test_the_code_names_the_kinds_that_are_granted_and_no_others():
    """A kind that the operator's code uses has a rule, and every rule a kind in the code."""
    text = "\n".join(path.read_text() for path in sorted((ROOT / "operator" / "src").rglob("*.rs")))
    used = set()
    for path in re.findall(r"k8s_openapi::api::([a-z0-9_]+::v\w+::(?:\{[^}]*\}|\w+))", text):
        module, _, names = path.replace("\n", " ").partition("::")
        names = names.split("::", 1)[1]
        for name in re.findall(r"\w+", names.split(" as ")[0] if "{" not in names else names):
            used.add((module, name))
    groups = {
        "": "core", "apps": "apps", "batch": "batch", "networking.k8s.io": "networking", "policy": "policy",
        "autoscaling": "autoscaling",
    }
    kinds = {
        "secrets": "Secret", "configmaps": "ConfigMap", "serviceaccounts": "ServiceAccount", "services": "Service",
        "pods": "Pod", "deployments": "Deployment", "jobs": "Job", "networkpolicies": "NetworkPolicy",
        "poddisruptionbudgets": "PodDisruptionBudget", "horizontalpodautoscalers": "HorizontalPodAutoscaler",
        "events": "Event",
    }
    wanted = {(groups[group], kinds[resource]) for group, resource in RULES if group in groups and resource in kinds}
    assert wanted <= used, f"granted, but not in the code: {wanted - used}"
    everything = {
        "Node", "Namespace", "PersistentVolumeClaim", "PersistentVolume", "StatefulSet", "DaemonSet", "ReplicaSet",
        "CronJob", "Ingress", "Role", "RoleBinding", "ClusterRole", "ClusterRoleBinding", "Endpoints", "EndpointSlice",
        "StorageClass", "CustomResourceDefinition",
    }
    assert not {name for _, name in used} & everything, "used in the code, but not granted"
