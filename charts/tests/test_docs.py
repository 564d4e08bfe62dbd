"""What docs/cluster shows is valid, and what can be tried without a cluster is tried."""

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import jsonschema
import openapi
import pytest
import yaml
from conftest import CACHE, CHART, ROOT, found, template
from documents import FENCE, PAGES, blocks

LUA = found("lua", *CACHE.glob("tools/lua/usr/bin/lua5.4"))


def manifests() -> list[tuple[str, dict]]:
    documents = []
    for name, text in blocks("yaml").items():
        documents += [(name, d) for d in yaml.safe_load_all(text) if isinstance(d, dict) and "kind" in d]
    return documents


def kind_schema() -> dict:
    (path,) = (ROOT / "crds" / "yaml").glob("mcpgroups*.yaml")
    schema = yaml.safe_load(path.read_text())["spec"]["versions"][0]["schema"]["openAPIV3Schema"]

    def strict(node):
        if isinstance(node, dict):
            if "properties" in node and "additionalProperties" not in node:
                node["additionalProperties"] = False
            for value in node.values():
                strict(value)
        elif isinstance(node, list):
            for value in node:
                strict(value)

    strict(schema)
    schema["properties"] |= {"metadata": {"type": "object"}, "apiVersion": {}, "kind": {}}
    return schema


def is_valid_group(document: dict):
    error = jsonschema.exceptions.best_match(jsonschema.Draft202012Validator(kind_schema()).iter_errors(document))
    assert error is None, f"{error.json_path}: {error.message}"


def test_pages_are_there_and_every_link_leads_somewhere():
    assert {page.stem for page in PAGES} == {"install", "upgrade", "day-2", "security", "gitops"}
    for page in PAGES:
        text = FENCE.sub("", page.read_text())
        for target in re.findall(r"\]\(([^)\s]+)\)", text):
            path, _, anchor = target.partition("#")
            file = (page.parent / path).resolve() if path else page
            assert file.exists(), f"{page.name}: {target}"
            if anchor:
                titles = re.findall(r"^#+ (.+)$", file.read_text(), re.MULTILINE)
                slugs = {re.sub(r"[^\w\- ]", "", title.lower()).replace(" ", "-") for title in titles}
                assert anchor in slugs, f"{page.name}: {target}"


def test_lines_fit_a_terminal():
    for page in PAGES:
        for number, line in enumerate(FENCE.sub("", page.read_text()).splitlines(), 1):
            assert line.startswith("|") or len(line) <= 125, f"{page.name}:{number}"


def test_objects_in_the_pages_are_valid():
    for name, document in manifests():
        if document["apiVersion"].startswith("ramen.dev/"):
            is_valid_group(document)
        elif openapi.specification() and (document["apiVersion"], document["kind"]) in openapi.kinds():
            assert openapi.check(document) == [], name


def test_the_group_that_the_notes_of_the_chart_show_is_valid():
    notes = (CHART / "templates" / "NOTES.txt").read_text()
    text = re.search(r"<<'YAML'\n(.*?)\n  YAML", notes, re.DOTALL).group(1)
    text = re.sub(r"\{\{.*?\}\}", "x", text)
    is_valid_group(yaml.safe_load(text))


def test_values_in_the_pages_are_taken_by_the_chart():
    shown = {name: text for name, text in blocks("yaml").items() if name.endswith(":values.yaml")}
    assert shown
    for name, text in shown.items():
        done = template(CHART, yaml.safe_load(text))
        assert done.returncode == 0, (name, done.stderr)


def test_values_that_the_pages_name_exist():
    values = yaml.safe_load((CHART / "values.yaml").read_text())
    for page in PAGES:
        for name in re.findall(r"`((?:persistence|operator|networkPolicy|metrics|rbac|worker\.image)\.[\w.]+)`", page.read_text()):
            node = values
            for part in name.split("."):
                assert part in node, f"{page.name}: {name}"
                node = node[part]


def test_shell_in_the_pages_can_be_read_by_a_shell():
    for name, text in blocks("sh").items():
        done = subprocess.run(["bash", "-n"], input=text, capture_output=True, text=True, check=False)
        assert done.returncode == 0, (name, done.stderr)


def condition(kind: str, status: str, message: str = "…") -> dict:
    return {"type": kind, "status": status, "reason": "R", "message": message, "observedGeneration": 2}


READY, REFUSED = condition("Ready", "True", "fine"), condition("Deployed", "False", "bad push")
HEALTH = {
    "nobody looked": (None, "Progressing"),
    "of an older spec": ({"observedGeneration": 1, "conditions": [READY]}, "Progressing"),
    "serving": ({"observedGeneration": 2, "conditions": [READY, condition("Deployed", "True")]}, "Healthy"),
    "under way": ({"observedGeneration": 2, "conditions": [READY, condition("Reconciling", "True")]}, "Progressing"),
    "bad push": ({"observedGeneration": 2, "conditions": [READY, REFUSED]}, "Degraded"),
    "stalled": (
        {"observedGeneration": 2, "conditions": [condition("Ready", "False"), condition("Stalled", "True", "why")]},
        "Degraded",
    ),
    "first deploy": (
        {"observedGeneration": 2, "conditions": [condition("Ready", "False"), condition("Reconciling", "True")]},
        "Progressing",
    ),
    "no conditions": ({"observedGeneration": 2}, "Progressing"),
}


def lua(value) -> str:
    if value is None:
        return "nil"
    if isinstance(value, dict):
        return "{" + ", ".join(f"[{json.dumps(k)}] = {lua(v)}" for k, v in value.items()) + "}"
    if isinstance(value, list):
        return "{" + ", ".join(map(lua, value)) + "}"
    return json.dumps(value, ensure_ascii=False)


@pytest.mark.skipif(LUA is None, reason="no lua: charts/tests/tools.sh brings it, or set RAMEN_LUA")
@pytest.mark.parametrize("case", HEALTH)
def test_the_health_check_for_argo_cd_judges_like_kstatus(case):
    status, wanted = HEALTH[case]
    (config,) = [d for _, d in manifests() if d["metadata"].get("name") == "argocd-cm"]
    script = config["data"]["resource.customizations.health.ramen.dev_McpGroup"]
    group = lua({"metadata": {"generation": 2}, "status": status})
    program = f"obj = {group}\nlocal function judge()\n{script}\nend\nlocal health = judge()\n"
    program += 'print(health.status)\nprint(health.message or "")'
    done = subprocess.run([LUA, "-"], input=program, capture_output=True, text=True, check=True, timeout=10)
    health, message = done.stdout.splitlines()
    assert health == wanted and message
    if case == "stalled":
        assert message == "why"


FAKE = """#!{python}
import json, os, re, sys
place = {place!r}
steps = json.load(open(place + "/steps.json"))
at = int(open(place + "/at").read())
words = sys.argv[1:]
open(place + "/calls", "a").write(" ".join(words) + "\\n")
step = steps[min(at, len(steps) - 1)]
if words[0] == "wait":
    open(place + "/at", "w").write(str(at + 1))
    field, wanted = re.fullmatch(r"--for=jsonpath={{.status.revision.(\\w+)}}=(.*)", words[-1]).groups()
    sys.exit(0 if step.get(field) == wanted else 1)
if words[0] == "get":
    print(step["deployed"] if "Deployed" in words[-1] else "NameMismatch: tools/calc : why")
"""


@pytest.mark.parametrize(
    ("steps", "code", "says"),
    [
        ([{"attempted": "m@sha1:1"}, {"deployed": "Unknown"}, {"serving": "m@sha1:1", "deployed": "True"}], 0, ""),
        ([{"attempted": "m@sha1:1"}, {"serving": "m@sha1:0", "deployed": "False"}], 1, "was refused"),
        ([{"attempted": "m@sha1:0", "deployed": "True"}], 1, "has not seen"),
        ([{"attempted": "m@sha1:1"}, {"deployed": "Unknown"}], 1, "not live"),
    ],
    ids=["live", "refused", "unseen", "slow"],
)
def test_the_script_that_pipelines_wait_with(tmp_path, steps, code, says):
    (text,) = [text for name, text in blocks("sh").items() if name.endswith(":ramen-wait.sh")]
    (tmp_path / "ramen-wait.sh").write_text(text)
    (tmp_path / "steps.json").write_text(json.dumps(steps))
    (tmp_path / "at").write_text("0")
    fake = tmp_path / "kubectl"
    fake.write_text(FAKE.format(python=sys.executable, place=str(tmp_path)))
    fake.chmod(0o755)
    env = {**os.environ, "PATH": f"{tmp_path}:{os.environ['PATH']}"}
    command = ["sh", str(tmp_path / "ramen-wait.sh"), "team-a", "library", "m@sha1:1", "1" if says == "not live" else "30"]
    done = subprocess.run(command, capture_output=True, text=True, check=False, env=env, timeout=60)
    assert done.returncode == code, done.stderr
    assert says in done.stderr
    if code:
        assert "NameMismatch" in done.stderr
    first = (Path(tmp_path) / "calls").read_text().splitlines()[0]
    assert first.startswith("annotate -n team-a mcpgroup/library --overwrite ramen.dev/requested-at=m@sha1:1 ")
