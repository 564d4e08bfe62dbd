"""What the gateway counts, read from its own port as Prometheus does."""

import json
import subprocess

import pytest

import programs

RITA = "rmk_" + "0" * 64


@pytest.fixture
def counted(demo, tmp_path):
    operators = tmp_path / "operators"
    operators.mkdir()
    (operators / "rita.read").write_text(f"{RITA}\n")
    gateway = programs.Gateway(tmp_path, {"demo": demo}, RAMEN_METRICS_LISTEN="127.0.0.1:0",
                               RAMEN_OPERATORS_DIR=str(operators))
    gateway.operators = operators
    yield gateway
    gateway.stop()


def send(gateway, url, key, *args):
    done = subprocess.run(["curl", "--silent", "--max-time", "30", "--write-out", "\n%{http_code}", url,
                           "--header", f"Authorization: Bearer {key}", *args], capture_output=True, text=True, check=True)
    body, _, status = done.stdout.rpartition("\n")
    return int(status), body


def test_requests_refusals_and_workers_are_counted(counted):
    call = {"jsonrpc": "2.0", "id": 1, "method": "tools/call",
            "params": {"name": "demo_calculator_tool", "arguments": {"var1": 6, "var2": 7, "func": "multiply"}}}
    url = counted.at("demo")
    assert send(counted, url, counted.key, "--json", json.dumps(call))[0] == 200
    assert send(counted, url, "rmk_wrong", "--json", json.dumps(call))[0] == 401
    assert send(counted, url, counted.key)[0] == 405
    requests = "ramen_gateway_requests_total"
    assert programs.metric(counted, requests, group="default/demo", era="legacy", outcome="ok") == 1
    assert programs.metric(counted, requests, group="default/demo", era="none", outcome="refused") == 2
    assert programs.metric(counted, "ramen_gateway_auth_failures_total", reason="credential") == 1
    assert programs.metric(counted, "ramen_gateway_refusals_total", reason="method") == 1
    assert programs.metric(counted, "ramen_gateway_request_duration_seconds_count", era="legacy") == 1
    assert programs.metric(counted, "ramen_gateway_workers", group="default/demo", state="ready") == 1
    assert programs.metric(counted, "ramen_gateway_in_flight") == 0


def test_operators_of_a_file_of_groups_look_and_change_nothing(counted):
    api = f"{counted.url}/api/v1"
    status, body = send(counted, f"{api}/groups/list", RITA)
    assert status == 200 and json.loads(body)["groups"][0]["group"] == "default/demo"
    status, body = send(counted, f"{api}/tools/list?group=demo", RITA)
    assert status == 200 and "demo_calculator_tool" in body
    status, body = send(counted, f"{api}/groups/suspend", RITA, "--json", '{"group":"demo"}')
    assert status == 403 and json.loads(body)["error"]["code"] == "forbidden"
    operations = "ramen_gateway_operations_total"
    assert programs.metric(counted, operations, operation="groups.list", outcome="ok") == 1
    assert programs.metric(counted, operations, operation="groups.suspend", outcome="forbidden") == 1
    # The callers' own key opens no operation, and a key that is taken away opens nothing.
    assert send(counted, f"{api}/groups/list", counted.key)[0] == 401
    (counted.operators / "rita.read").unlink()
    programs.until(lambda: send(counted, f"{api}/groups/list", RITA)[0] == 401, "the key is not valid any more")
    assert RITA not in counted.log.read_text()
    # A file with a fault is told until it is mended.
    rules = counted.operators / "rules.yaml"
    for text, unusable in (("rules: [{level: read}]", 1), ("rules: []", 0)):
        rules.write_text(text)
        programs.until(lambda: programs.metric(counted, "ramen_gateway_unusable_files", file="operators") == unusable,
                       f"ramen_gateway_unusable_files is {unusable}")
