"""The chart's alert rules in a real Prometheus that reads a worker and a gateway. The operator's are held to a cluster."""

import json

import pytest

import programs
import prometheus
from test_gateway_metrics import send

# Where nobody listens.
UPSTREAM = {"name": "away", "url": "http://127.0.0.1:1/mcp"}
# Nobody signs in there.
ISSUERS = json.dumps({"publicUrl": "https://mcp.example.com", "issuers": [{"issuer": "https://login.example.com"}]})


@pytest.fixture(scope="module")
def watched(demo, tmp_path_factory):
    """A gateway with one call behind it, and Prometheus that reads it and its worker."""
    if not prometheus.program():
        pytest.skip("no prometheus: charts/tests/tools.sh brings it, or set RAMEN_PROMETHEUS")
    folder = tmp_path_factory.mktemp("prometheus")
    (folder / "operators").mkdir()
    (folder / "operators" / "rita.read").write_text("rmk_" + "0" * 64)
    issuers = folder / "oidc.yaml"
    issuers.write_text(ISSUERS)
    gateway = programs.Gateway(folder, {"demo": demo}, upstreams=[UPSTREAM], RAMEN_METRICS_LISTEN="127.0.0.1:0",
                               RAMEN_OPERATORS_DIR=str(folder / "operators"), RAMEN_OIDC_CONFIG=str(issuers),
                               RAMEN_UPSTREAM_ALLOWED_CIDRS="127.0.0.0/8")
    call = {"jsonrpc": "2.0", "id": 1, "method": "tools/call",
            "params": {"name": "demo_calculator_tool", "arguments": {"var1": 6, "var2": 7, "func": "multiply"}}}
    assert send(gateway, gateway.at("demo"), gateway.key, "--json", json.dumps(call))[0] == 200
    labels = {"namespace": "default", "pod": "demo-0"}
    server = prometheus.Prometheus(folder, [("workers", demo.metrics, {**labels, "group": "demo"}),
                                            ("gateways", gateway.metrics, labels)])
    server.operators, server.issuers, server.gateway = folder / "operators", issuers, gateway
    yield server
    server.stop()
    gateway.stop()


def test_both_are_read_and_every_rule_is_evaluated_on_series_that_are_there(watched):
    assert watched.faults(["ramen-worker", "ramen-gateway"]) == []
    # What nobody writes is found.
    assert watched.unknown("sum(rate(ramen_gateway_nothing_total[5m])) > 0") == {"ramen_gateway_nothing_total"}
    assert watched.faults(["ramen-operator"]), "no operator is read here"


def test_alerts_fire_while_something_is_wrong(watched):
    def firing(name, **labels):
        return any({"alertname": name, **labels}.items() <= alert.items() for alert in watched.firing())

    programs.until(lambda: firing("RamenGatewayUpstreamsDown", group="default/demo", severity="warning"),
                   "an upstream that is down is an alert")
    programs.until(lambda: not firing("RamenGatewayAway"), "a gateway that is read is not away")
    assert not firing("RamenGatewayFileUnusable")
    for file, path, bad, good in (("operators", watched.operators / "rules.yaml", "rules: [{level: read}]", "rules: []"),
                                  ("oidc", watched.issuers, "issuers: [", ISSUERS)):
        path.write_text(bad)
        programs.until(lambda: firing("RamenGatewayFileUnusable", file=file), f"{file} with a fault is an alert")
        path.write_text(good)
        programs.until(lambda: not firing("RamenGatewayFileUnusable"), f"{file} that was mended is none")
    watched.gateway.stop()
    programs.until(lambda: firing("RamenGatewayAway", severity="critical"), "a gateway that is away is an alert")
