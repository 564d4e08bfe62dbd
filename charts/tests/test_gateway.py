"""The gateway of the chart: what it is made of, what it may do, who reaches it."""

import re

import pytest
import yaml
from conftest import GATEWAYS, ROOT, of, refused, render, rendered
from test_rbac import RULES, granted

CASES = pytest.mark.parametrize("case", GATEWAYS)


def place(case: str) -> str:
    return GATEWAYS[case]["gateway"].get("namespace", "ramen-system")


def deployment(documents: list[dict]) -> dict:
    (found,) = of(documents, "Deployment", "ramen-gateway")
    return found


def env(documents: list[dict], name: str = "ramen-gateway") -> dict:
    (found,) = of(documents, "Deployment", name)
    (container,) = found["spec"]["template"]["spec"]["containers"]
    names = [entry["name"] for entry in container["env"]]
    assert len(names) == len(set(names))
    return {entry["name"]: entry.get("value") for entry in container["env"]}


def test_there_is_none_where_none_is_wanted():
    documents = rendered("default")
    assert [d["metadata"]["name"] for d in documents if "gateway" in d["metadata"]["name"]] == []
    assert "RAMEN_OPERATOR_GATEWAY_NAMESPACE" not in env(documents, "ramen")


@CASES
def test_the_operator_is_told_where_gateways_are(case):
    assert env(rendered(case), "ramen")["RAMEN_OPERATOR_GATEWAY_NAMESPACE"] == place(case)
    assert deployment(rendered(case))["metadata"]["namespace"] == place(case)


def test_an_operator_can_serve_the_gateways_of_another_release():
    documents = render({"gateway": {"namespace": "edge"}})
    assert env(documents, "ramen")["RAMEN_OPERATOR_GATEWAY_NAMESPACE"] == "edge"
    assert of(documents, "Deployment", "ramen-gateway") == []
    (role,) = of(documents, "Role", "ramen-system-ramen-for-gateways")
    assert role["metadata"]["namespace"] == "edge"


@CASES
def test_the_gateway_knows_every_variable_that_the_chart_sets(case):
    known = set(re.findall(r'"(RAMEN_[A-Z_]+)"', (ROOT / "gateway" / "src" / "names.rs").read_text()))
    ours = {name for name in env(rendered(case)) if name.startswith("RAMEN_")}
    assert ours <= known
    # What is left out has no meaning in a pod of the chart.
    left = {"RAMEN_GATEWAY_CONFIG", "RAMEN_ADDRESS_FILE"}
    # Programs: the image has none.
    left |= {"RAMEN_UPSTREAM_COMMANDS"}
    if case == "gateway":
        left |= {"RAMEN_UPSTREAM_ALLOWED_CIDRS"}
        left |= {"RAMEN_OPERATORS_DIR", "RAMEN_OPERATORS_CIDRS", "RAMEN_OIDC_CONFIG"}
        left |= {"RAMEN_ALLOWED_HOSTS", "RAMEN_ALLOWED_ORIGINS", "RAMEN_PROXY_CIDRS", "RAMEN_TLS_CERT", "RAMEN_TLS_KEY"}
    else:
        left |= {"RAMEN_GATEWAY_NAMESPACES"}
    assert known - ours == left


def test_values_become_variables():
    full = env(rendered("gateway-full"))
    assert full["RAMEN_ALLOWED_ORIGINS"] == "https://app.example.com,https://other.example.com"
    assert full["RAMEN_TRUST_PROXY"] == "1" and full["RAMEN_PROXY_CIDRS"] == "10.0.0.0/8"
    assert full["RAMEN_UPSTREAM_ALLOWED_CIDRS"] == "10.96.0.0/16"
    assert full["RAMEN_CALLER_RATE"] == "50" and full["HTTPS_PROXY"]
    assert full["RAMEN_GATEWAY_DISCOVERY"] == "kube"
    some = render({"watchNamespaces": ["team-b", "team-a"], "gateway": {"enabled": True}})
    assert env(some)["RAMEN_GATEWAY_NAMESPACES"] == "team-a,team-b"


@CASES
def test_sec_it_reads_secrets_of_its_own_namespace_alone_and_writes_no_more_than_it_must(case):
    documents = rendered(case)
    reads = {("ramen.dev", "mcpgroups"): {"list", "watch"}, ("discovery.k8s.io", "endpointslices"): {"list", "watch"}}
    if case == "gateway-full":
        # Operations write groups, and nothing else.
        reads[("ramen.dev", "mcpgroups")] |= {"get", "patch"}
        reads |= {("", "events"): {"list"}, ("events.k8s.io", "events"): {"create"}}
    (own,) = of(documents, "Role", "ramen-gateway-own")
    assert own["metadata"]["namespace"] == place(case)
    assert granted(own) == {("", "secrets"): {"list", "watch"}}
    kind, name = ("ClusterRole", "ramen-system-ramen-gateway") if case == "gateway-full" else ("Role", "ramen-gateway")
    (wide,) = of(documents, kind, name)
    assert granted(wide) == reads
    account = {"kind": "ServiceAccount", "name": env_account(documents), "namespace": place(case)}
    for binding in of(documents, kind + "Binding", name) + of(documents, "RoleBinding", "ramen-gateway-own"):
        assert binding["subjects"] == [account]
    # The operator's own rights are what they are without it, and one Role where the gateways are.
    (operator,) = of(documents, kind, "ramen-system-ramen-operator" if kind == "ClusterRole" else "ramen-operator")
    assert granted(operator) == RULES
    (leaves,) = of(documents, "Role", "ramen-system-ramen-for-gateways")
    assert leaves["metadata"]["namespace"] == place(case)
    assert set(granted(leaves)) == {("", "secrets")}


def env_account(documents: list[dict]) -> str:
    name = deployment(documents)["spec"]["template"]["spec"]["serviceAccountName"]
    (account,) = of(documents, "ServiceAccount", name)
    assert account["automountServiceAccountToken"] is False
    return name


def test_roles_can_be_left_to_somebody_else():
    given = {"enabled": True, "serviceAccount": {"create": False, "name": "given"}}
    documents = render({"gateway": given, "rbac": {"create": False}})
    assert [d for d in documents if "Role" in d["kind"]] == []
    assert deployment(documents)["spec"]["template"]["spec"]["serviceAccountName"] == "given"


@CASES
def test_workers_and_services_find_its_pods_by_label(case):
    documents = rendered(case)
    labels = deployment(documents)["spec"]["template"]["metadata"]["labels"]
    # As in the policies that the operator makes: operator/src/group/build/network_policy.rs.
    assert labels["app.kubernetes.io/name"] == "ramen" and labels["app.kubernetes.io/component"] == "gateway"
    (service,) = of(documents, "Service", "ramen-gateway")
    assert service["spec"]["selector"].items() <= labels.items()
    (operator,) = of(documents, "Service", "ramen-operator")
    assert not operator["spec"]["selector"].items() <= labels.items()
    (container,) = deployment(documents)["spec"]["template"]["spec"]["containers"]
    port, metrics = container["ports"]
    assert metrics == {"name": "metrics", "containerPort": 9090}
    assert env(documents)["RAMEN_METRICS_LISTEN"].endswith(":9090")
    assert [p["targetPort"] for p in service["spec"]["ports"]] == [port["name"]]
    for probe in ("startupProbe", "livenessProbe", "readinessProbe"):
        assert container[probe]["httpGet"]["port"] == port["name"]
        assert container[probe]["httpGet"]["scheme"] == port["name"].upper()
    other = render({"gateway": {"enabled": True, "podLabels": {"app.kubernetes.io/component": "other"}}})
    assert deployment(other)["spec"]["template"]["metadata"]["labels"]["app.kubernetes.io/component"] == "gateway"


def test_a_certificate_makes_it_speak_https():
    documents = rendered("gateway-full")
    spec = deployment(documents)["spec"]["template"]["spec"]
    _, tls, operators = spec["volumes"]
    assert tls == {"name": "tls", "secret": {"secretName": "gateway-tls", "defaultMode": 0o440}}
    sources = [{"secret": {"name": "operators"}}, {"configMap": {"name": "ramen-gateway-operators"}}]
    assert operators == {"name": "operators", "projected": {"defaultMode": 0o440, "sources": sources}}
    _, mount, other = spec["containers"][0]["volumeMounts"]
    assert env(documents)["RAMEN_OPERATORS_DIR"] == other["mountPath"]
    assert env(documents)["RAMEN_OPERATORS_CIDRS"] == "10.0.0.0/8,192.0.2.7"
    assert env(documents)["RAMEN_TLS_CERT"] == f"{mount['mountPath']}/tls.crt"
    assert env(documents)["RAMEN_TLS_KEY"] == f"{mount['mountPath']}/tls.key"
    (service,) = of(documents, "Service", "ramen-gateway")
    assert service["spec"]["ports"] == [
        {"name": "https", "port": 443, "targetPort": "https", "appProtocol": "https"}
    ]
    plain = rendered("gateway")
    assert "volumes" not in deployment(plain)["spec"]["template"]["spec"]
    (service,) = of(plain, "Service", "ramen-gateway")
    assert service["spec"]["ports"][0]["port"] == 80


def test_its_metrics_are_read_where_those_of_workers_are():
    assert of(rendered("gateway"), "PodMonitor") == []
    on = render({"gateway": {"enabled": True}, "metrics": {"podMonitor": {"enabled": True}}})
    (monitor,) = of(on, "PodMonitor", "ramen-gateway")
    labels = deployment(on)["spec"]["template"]["metadata"]["labels"]
    assert monitor["spec"]["selector"]["matchLabels"].items() <= labels.items()
    assert monitor["spec"]["podMetricsEndpoints"][0]["port"] == "metrics"


def test_issuers_are_a_file_of_the_pods_and_others_reach_the_same_pods():
    documents = rendered("gateway-full")
    (config,) = of(documents, "ConfigMap", "ramen-gateway-oidc")
    assert config["metadata"]["namespace"] == "ramen-gateways"
    assert yaml.safe_load(config["data"]["oidc.yaml"]) == GATEWAYS["gateway-full"]["gateway"]["oidc"]
    template = deployment(documents)["spec"]["template"]
    (volume,) = [volume for volume in template["spec"]["volumes"] if volume["name"] == "oidc"]
    assert volume["configMap"]["name"] == config["metadata"]["name"]
    # Of a whole folder: what is mounted as a single file never changes.
    (container,) = template["spec"]["containers"]
    (mount,) = [mount for mount in container["volumeMounts"] if mount["name"] == "oidc"]
    assert mount["mountPath"] == "/run/ramen/oidc" and "subPath" not in mount
    assert env(documents)["RAMEN_OIDC_CONFIG"] == "/run/ramen/oidc/oidc.yaml"
    other = {**GATEWAYS["gateway-full"], "gateway": {**GATEWAYS["gateway-full"]["gateway"]}}
    other["gateway"]["oidc"] = {**other["gateway"]["oidc"], "clockSkewSecs": 60}
    changed = render(other)
    assert of(changed, "ConfigMap", "ramen-gateway-oidc") != [config]
    assert deployment(changed)["spec"]["template"] == template
    assert of(rendered("gateway"), "ConfigMap", "ramen-gateway-oidc") == []


def test_rules_of_operators_are_a_file_beside_their_keys():
    documents = rendered("gateway-full")
    (config,) = of(documents, "ConfigMap", "ramen-gateway-operators")
    assert config["metadata"]["namespace"] == "ramen-gateways"
    written = GATEWAYS["gateway-full"]["gateway"]
    assert yaml.safe_load(config["data"]["rules.yaml"]) == {"rules": written["operations"]["rules"]}
    alone = {**written, "operations": {**written["operations"], "secretName": ""}}
    spec = deployment(render({**GATEWAYS["gateway-full"], "gateway": alone}))["spec"]["template"]["spec"]
    (volume,) = [volume for volume in spec["volumes"] if volume["name"] == "operators"]
    assert volume["projected"]["sources"] == [{"configMap": {"name": "ramen-gateway-operators"}}]
    assert of(rendered("gateway"), "ConfigMap", "ramen-gateway-operators") == []


def test_rules_of_keys_need_nobody_who_signs_in():
    operations = {"secretName": "operators", "rules": [OF_KEYS], "cidrs": ["10.0.0.0/8"]}
    documents = render({"gateway": {"enabled": True, "operations": operations}})
    (config,) = of(documents, "ConfigMap", "ramen-gateway-operators")
    assert yaml.safe_load(config["data"]["rules.yaml"]) == {"rules": [OF_KEYS]}
    sources = [{"secret": {"name": "operators"}}, {"configMap": {"name": "ramen-gateway-operators"}}]
    (volume,) = deployment(documents)["spec"]["template"]["spec"]["volumes"]
    assert volume["projected"]["sources"] == sources
    assert "RAMEN_OIDC_CONFIG" not in env(documents)


def test_a_pod_that_ends_has_time_for_what_it_began():
    spec = deployment(rendered("gateway"))["spec"]["template"]["spec"]
    wait = spec["containers"][0]["lifecycle"]["preStop"]["sleep"]["seconds"]
    drain = int(env(rendered("gateway"))["RAMEN_DRAIN_SECS"])
    assert spec["terminationGracePeriodSeconds"] > wait + drain
    assert deployment(rendered("gateway"))["spec"]["strategy"]["rollingUpdate"] == {"maxSurge": 1, "maxUnavailable": 0}


def test_a_load_balancer_keeps_the_addresses_that_are_judged():
    (service,) = of(rendered("gateway-full"), "Service", "ramen-gateway")
    assert service["spec"]["externalTrafficPolicy"] == "Local"
    assert service["spec"]["loadBalancerSourceRanges"] == ["192.0.2.0/24"]
    (service,) = of(rendered("gateway"), "Service", "ramen-gateway")
    assert service["spec"]["type"] == "ClusterIP" and "externalTrafficPolicy" not in service["spec"]
    fixed = render({"gateway": {"enabled": True}, "services": {"gateway": {"clusterIP": "10.96.0.90"}}})
    (service,) = of(fixed, "Service", "ramen-gateway")
    assert service["spec"]["clusterIP"] == "10.96.0.90"


def test_routes_lead_to_the_service():
    documents = rendered("gateway-full")
    (service,) = of(documents, "Service", "ramen-gateway")
    (ingress,) = of(documents, "Ingress", "ramen-gateway")
    (rule,) = ingress["spec"]["rules"]
    (path,) = rule["http"]["paths"]
    assert (rule["host"], path["path"], path["pathType"]) == ("mcp.example.com", "/", "Prefix")
    assert path["backend"]["service"] == {"name": service["metadata"]["name"], "port": {"name": "https"}}
    assert ingress["spec"]["tls"] == [{"hosts": ["mcp.example.com"], "secretName": "mcp-tls"}]
    (route,) = of(documents, "HTTPRoute")
    assert route["apiVersion"] == "gateway.networking.k8s.io/v1"
    spec = route["spec"]
    assert spec["parentRefs"] == [{"name": "public", "namespace": "edge", "sectionName": "https"}]
    assert spec["hostnames"] == ["mcp.example.com"]
    (rule,) = spec["rules"]
    assert rule["backendRefs"] == [{"name": "ramen-gateway", "port": service["spec"]["ports"][0]["port"]}]
    # Else routers end streams of events after their usual seconds.
    assert rule["timeouts"] == {"request": "0s"}
    assert rule["matches"] == [{"path": {"type": "PathPrefix", "value": "/"}}]
    assert of(rendered("gateway"), "Ingress") == [] and of(rendered("gateway"), "HTTPRoute") == []
    none = {"enabled": True, "httpRoute": {"enabled": True, "parentRefs": [{"name": "x"}], "timeouts": None}}
    (route,) = of(render({"gateway": none}), "HTTPRoute")
    assert "timeouts" not in route["spec"]["rules"][0]


def test_an_autoscaler_and_nobody_else_says_how_many_there_are():
    documents = rendered("gateway-full")
    assert "replicas" not in deployment(documents)["spec"]
    (scaler,) = of(documents, "HorizontalPodAutoscaler")
    assert scaler["spec"]["scaleTargetRef"]["name"] == "ramen-gateway"
    assert (scaler["spec"]["minReplicas"], scaler["spec"]["maxReplicas"]) == (3, 9)
    assert deployment(rendered("gateway"))["spec"]["replicas"] == 2
    assert of(rendered("gateway"), "HorizontalPodAutoscaler") == []


def test_ops07_a_budget_stands_only_where_it_cannot_stop_a_drain():
    for gateway, budgets in (({"replicas": 1}, 0), ({"replicas": 2}, 1), ({"autoscaling": {"enabled": True, "minReplicas": 1}}, 0)):
        found = of(render({"gateway": {"enabled": True, **gateway}}), "PodDisruptionBudget", "ramen-gateway")
        assert len(found) == budgets
        assert all(budget["spec"]["maxUnavailable"] == 1 for budget in found)


@CASES
def test_its_policy_lets_callers_in_and_keeps_it_from_metadata_services(case):
    documents = rendered(case)
    (policy,) = of(documents, "NetworkPolicy", "ramen-gateway")
    labels = deployment(documents)["spec"]["template"]["metadata"]["labels"]
    assert policy["spec"]["podSelector"]["matchLabels"].items() <= labels.items()
    rule, metrics = policy["spec"]["ingress"]
    assert [port["port"] for port in metrics["ports"]] == ["metrics"] and metrics["from"]
    assert [port["port"] for port in rule["ports"]] == ["https" if case == "gateway-full" else "http"]
    if case == "gateway":
        assert "from" not in rule
    else:
        assert GATEWAYS[case]["gateway"]["from"][0] in rule["from"]
    blocks = [peer["ipBlock"] for out in policy["spec"]["egress"] for peer in out.get("to", [])]
    assert "169.254.0.0/16" in next(block for block in blocks if block["cidr"] == "0.0.0.0/0")["except"]
    off = render({"gateway": {"enabled": True}, "networkPolicy": {"enabled": False}})
    assert of(off, "NetworkPolicy") == []


RULE = {"groups": ["platform"], "level": "write"}
OF_KEYS = {"keys": ["ci"], "level": "write", "namespaces": ["team-a"]}


@pytest.mark.parametrize(
    ("gateway", "says"),
    [
        ({"ingress": {"enabled": True}}, "gateway.ingress.host"),
        ({"httpRoute": {"enabled": True}}, "gateway.httpRoute.parentRefs"),
        ({"autoscaling": {"enabled": True, "minReplicas": 5, "maxReplicas": 2}}, "gateway.autoscaling.minReplicas"),
        ({"proxyCIDRs": ["10.0.0.0/8"]}, "gateway.trustedProxyHops"),
        ({"oidc": {"issuers": [{"issuer": "https://login.example.com"}]}}, "gateway.oidc.publicUrl"),
        ({"oidc": {"publicURL": "https://mcp.example.com"}}, "publicURL"),
        ({"operations": {"secretName": "operators"}}, "gateway.operations.cidrs"),
        ({"operations": {"rules": [RULE], "cidrs": ["10.0.0.0/8"]}}, "gateway.oidc"),
        ({"operations": {"rules": [OF_KEYS], "cidrs": ["10.0.0.0/8"]}}, "gateway.operations.secretName"),
        ({"operations": {"rules": [OF_KEYS, RULE], "secretName": "x", "cidrs": ["10.0.0.0/8"]}}, "gateway.oidc"),
        ({"operations": {"rules": [{**RULE, **OF_KEYS}]}}, "groups"),
        ({"operations": {"rules": [{"level": "read"}]}}, "rules"),
        ({"operations": {"rules": [{**RULE, "level": "admin"}]}}, "level"),
        ({"allowedOrigins": ["app.example.com"]}, "allowedOrigins"),
        ({"replicas": -1}, "replicas"),
        ({"namespace": "Edge"}, "namespace"),
        ({"service": {"type": "ExternalName"}}, "type"),
        ({"tls": {"secret": "x"}}, "secret"),
        ({"httpRoute": {"timeouts": {"request": "never"}}}, "request"),
        ({"callers": {"inFlight": 0}}, "inFlight"),
    ],
)
def test_a_value_that_cannot_work_is_refused_and_named(gateway, says):
    assert says in refused({"gateway": {"enabled": True, **gateway}})
