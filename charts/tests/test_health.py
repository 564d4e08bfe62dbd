"""What other tools make of a group's status: Argo CD by the script of our page, kstatus, and Flux by the health check of
our page. The statuses are those that the operator writes (a test of its own holds the files to that); Flux's judgement is
made by Flux's code, `e2e/cluster/judge`."""

import json
import subprocess

import pytest
import yaml
from conftest import JUDGE, LUA, ROOT
from documents import blocks

STATUS = ROOT / "tests" / "fixtures" / "status"
EXPECTED = json.loads((STATUS / "expected.json").read_text())


def group(case: str) -> dict:
    return json.loads((STATUS / f"{case}.json").read_text())


def flux_check() -> dict:
    (text,) = [text for text in blocks("yaml").values() if "healthCheckExprs" in text]
    (check,) = yaml.safe_load(text)["healthCheckExprs"]
    assert (check["apiVersion"], check["kind"]) == ("ramen.dev/v1alpha1", "McpGroup")
    return check


def lua(value) -> str:
    if value is None:
        return "nil"
    if isinstance(value, dict):
        return "{" + ", ".join(f"[{json.dumps(k)}] = {lua(v)}" for k, v in value.items()) + "}"
    if isinstance(value, list):
        return "{" + ", ".join(map(lua, value)) + "}"
    return json.dumps(value, ensure_ascii=False)


def argo(object: dict) -> tuple[str, str]:
    documents = [d for text in blocks("yaml").values() for d in yaml.safe_load_all(text) if isinstance(d, dict)]
    (config,) = [d for d in documents if d.get("metadata", {}).get("name") == "argocd-cm"]
    script = config["data"]["resource.customizations.health.ramen.dev_McpGroup"]
    program = f"obj = {lua(object)}\nlocal function judge()\n{script}\nend\nlocal health = judge()\n"
    program += 'print(health.status)\nprint(((health.message or ""):gsub("\\n", " ")))'
    done = subprocess.run([LUA, "-"], input=program, capture_output=True, text=True, check=True, timeout=10)
    health, message = done.stdout.splitlines()
    return health, message


def test_every_status_has_a_verdict_and_every_verdict_a_status():
    assert {path.stem for path in STATUS.glob("*.json")} == {*EXPECTED, "expected"}


@pytest.mark.skipif(LUA is None, reason="no lua: charts/tests/tools.sh brings it, or set RAMEN_LUA")
@pytest.mark.parametrize("case", EXPECTED)
def test_the_health_check_for_argo_cd(case):
    health, message = argo(group(case))
    assert health == EXPECTED[case]["argo"], message
    assert message.strip()


@pytest.mark.skipif(LUA is None, reason="no lua: charts/tests/tools.sh brings it, or set RAMEN_LUA")
def test_the_health_check_for_argo_cd_says_what_the_group_says():
    for case, kind in (("bad-push", "Deployed"), ("first-push-bad", "Stalled"), ("serving", "Ready")):
        said = {c["type"]: c["message"] for c in group(case)["status"]["conditions"]}
        assert argo(group(case))[1].split() == said[kind].split()
    for status in (None, {}, {"observedGeneration": 3}):
        assert argo({"metadata": {"generation": 3}, "status": status})[0] == "Progressing"


@pytest.mark.skipif(JUDGE is None, reason="no judge: `e2e/cluster/cluster build judge` builds it, or set RAMEN_JUDGE")
def test_kstatus_and_the_health_check_for_flux():
    check = flux_check()
    objects = {case: group(case) for case in EXPECTED}
    expressions = {name: check[name] for name in ("inProgress", "failed", "current")}
    asked = json.dumps({"objects": objects, **expressions})
    done = subprocess.run([JUDGE], input=asked, capture_output=True, text=True, check=False, timeout=60)
    assert done.returncode == 0, done.stderr
    verdicts = json.loads(done.stdout)
    assert verdicts == {case: {k: v for k, v in e.items() if k != "argo"} for case, e in EXPECTED.items()}
