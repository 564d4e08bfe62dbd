"""Rules and dashboard: that they hold, and that they speak of metrics which exist."""

import json
import re
import subprocess

import pytest
import yaml
from conftest import CHART, PROMTOOL, ROOT, VALUES, of, render, rendered

RULES = CHART / "files" / "rules.yaml"
DASHBOARD = json.loads((CHART / "files" / "dashboard.json").read_text())


def registered() -> set[str]:
    """Every series that the programs write, read from where they register them."""
    series = set()
    for path, prefix in (
        ("worker/src/metrics.rs", "ramen_"),
        ("operator/src/metrics.rs", "ramen_operator_"),
        ("gateway/src/metrics.rs", "ramen_gateway_"),
    ):
        text = (ROOT / path).read_text()
        counters = set(re.findall(r"(\w+): (?:Family<\w+, )?(?:Counter|Vec<Counter>)", text))
        counters |= set(re.findall(r"let (\w+) = Family::<\w+, Counter>", text))
        for method, name, variable in re.findall(
            r'\.(register|register_with_unit)\(\s*"(\w+)",\s*"[^"]*",\s*(?:Unit::\w+,\s*)?(?:metrics\.|self\.)?(\w+)', text
        ):
            if method == "register_with_unit":
                series |= {f"{prefix}{name}_seconds_{part}" for part in ("bucket", "sum", "count")}
            else:
                series.add(prefix + name + ("_total" if variable in counters else ""))
    return series


def named(expression: str) -> set[str]:
    return set(re.findall(r"\bramen_[a-z_]+\b", expression))


def rules() -> list[dict]:
    return [rule for group in yaml.safe_load(RULES.read_text())["groups"] for rule in group["rules"]]


def test_the_programs_register_what_this_test_thinks():
    assert {"ramen_calls_total", "ramen_hosts_ready", "ramen_call_duration_seconds_bucket"} <= registered()
    assert {"ramen_gateway_requests_total", "ramen_gateway_workers", "ramen_gateway_in_flight"} <= registered()
    assert {"ramen_operator_writes_total", "ramen_operator_groups", "ramen_operator_leader"} <= registered()


def test_rules_and_dashboard_ask_for_metrics_that_exist():
    asked = {rule["alert"]: named(rule["expr"]) for rule in rules()}
    for panel in DASHBOARD["panels"]:
        for target in panel.get("targets", []):
            asked[f"{panel['title']}: {target['expr']}"] = named(target["expr"])
    for variable in DASHBOARD["templating"]["list"][1:]:
        asked[variable["name"]] = named(variable["query"]["query"])
    for what, names in asked.items():
        assert names and names <= registered(), what


def test_every_metric_is_on_the_dashboard():
    shown = set()
    for panel in DASHBOARD["panels"]:
        for target in panel.get("targets", []):
            shown |= named(target["expr"])
    missing = {name for name in registered() if not name.endswith(("_sum", "_count"))} - shown
    assert not missing


def test_every_alert_tells_what_and_how_bad_and_the_guide_what_to_do():
    guide = (ROOT / "docs/cluster/day-2.md").read_text()
    lines = [line for line in guide.splitlines() if line.startswith("| `Ramen")]
    told = {name for line in lines for name in re.findall(r"`(Ramen\w+)`", line.split("|")[1])}
    assert told == {rule["alert"] for rule in rules()}
    for rule in rules():
        assert rule["labels"]["severity"] in ("info", "warning", "critical")
        assert rule["annotations"]["summary"] and rule["annotations"]["description"]


def test_the_dashboard_is_one_that_grafana_can_lay_out():
    ids = [panel["id"] for panel in DASHBOARD["panels"]]
    assert len(ids) == len(set(ids))
    for panel in DASHBOARD["panels"]:
        place = panel["gridPos"]
        assert place["x"] + place["w"] <= 24
    taken = set()
    for place in (panel["gridPos"] for panel in DASHBOARD["panels"]):
        cells = {
            (x, y)
            for x in range(place["x"], place["x"] + place["w"])
            for y in range(place["y"], place["y"] + place["h"])
        }
        assert not cells & taken
        taken |= cells


def test_the_chart_carries_both_unchanged():
    documents = rendered("full")
    (rule,) = of(render({**VALUES["full"], "gateway": {"enabled": True}}), "PrometheusRule")
    assert rule["spec"] == yaml.safe_load(RULES.read_text())
    (config,) = of(documents, "ConfigMap")
    assert json.loads(config["data"]["ramen.json"]) == DASHBOARD
    assert config["metadata"]["labels"]["grafana_dashboard"] == "1"
    (monitor,) = of(documents, "ServiceMonitor")
    service = of(documents, "Service", "ramen-operator")[0]
    assert monitor["spec"]["selector"]["matchLabels"].items() <= service["metadata"]["labels"].items()
    assert monitor["spec"]["endpoints"][0]["port"] in [port["name"] for port in service["spec"]["ports"]]
    (pods,) = of(documents, "PodMonitor")
    assert pods["spec"]["namespaceSelector"] == {"any": True}
    assert pods["metadata"]["labels"]["release"] == "prometheus"


def test_where_no_gateway_is_none_is_missed():
    (rule,) = of(rendered("full"), "PrometheusRule")
    groups = yaml.safe_load(RULES.read_text())["groups"]
    assert rule["spec"] == {"groups": [group for group in groups if group["name"] != "ramen-gateway"]}
    assert len(rule["spec"]["groups"]) == len(groups) - 1


def test_none_of_it_is_there_unless_asked_for():
    kinds = {document["kind"] for document in rendered("default")}
    assert not kinds & {"ServiceMonitor", "PodMonitor", "PrometheusRule", "ConfigMap"}


@pytest.mark.skipif(PROMTOOL is None, reason="no promtool: apt's package prometheus has it, or set RAMEN_PROMTOOL")
@pytest.mark.parametrize("command", [["check", "rules", RULES], ["test", "rules", "charts/tests/rules_test.yaml"]])
def test_promtool_takes_the_rules_and_they_fire_when_they_should(command):
    done = subprocess.run(
        [PROMTOOL, *map(str, command)], capture_output=True, text=True, check=False, timeout=60, cwd=ROOT
    )
    assert done.returncode == 0, done.stdout + done.stderr
