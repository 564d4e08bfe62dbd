"""Renders the charts with real helm. Without helm everything here is skipped, and says so."""

import functools
import os
import shutil
import subprocess
from pathlib import Path

import pytest
import yaml

ROOT = Path(__file__).resolve().parents[2]
CHART = ROOT / "charts" / "ramen"
CRDS = ROOT / "charts" / "ramen-crds"
KUBERNETES = ["1.33.0", "1.36.3"]
CACHE = Path(os.environ.get("RAMEN_CACHE") or Path.home() / ".cache" / "ramen")

VALUES = {
    "default": {},
    "cluster": {"scope": "Cluster"},
    "namespaced": {"scope": "Namespaced", "watchNamespaces": ["team-a", "team-b"]},
    "full": yaml.safe_load((Path(__file__).parent / "full.yaml").read_text()),
}

GATEWAYS = {
    "gateway": {"gateway": {"enabled": True}},
    "gateway-full": yaml.safe_load((Path(__file__).parent / "gateway.yaml").read_text()),
}
EVERY = VALUES | GATEWAYS


def found(name: str, *places: Path) -> str | None:
    """A program: named by RAMEN_<NAME>, from the caches (newest first), or on PATH."""
    if named := os.environ.get(f"RAMEN_{name.upper()}"):
        return named
    newest = sorted(places, key=lambda path: path.stat().st_mtime, reverse=True)
    return str(newest[0]) if newest else shutil.which(name)


HELM = found("helm", *CACHE.glob("cluster/programs/helm/*/helm"))
PROMTOOL = found("promtool", *CACHE.glob("tools/prometheus/usr/bin/promtool"))
LUA = found("lua", *CACHE.glob("tools/lua/usr/bin/lua5.4"))
JUDGE = found("judge", *CACHE.glob("cluster/programs/judge/*/judge"))


def pytest_collection_modifyitems(items):
    if HELM is None:
        skip = pytest.mark.skip(reason="no helm: `make cluster-up` builds it, or set RAMEN_HELM")
        for item in items:
            item.add_marker(skip)


def pytest_terminal_summary(terminalreporter):
    if HELM is None:
        terminalreporter.write_line("SKIPPED all chart tests: no helm")
    if PROMTOOL is None:
        terminalreporter.write_line("SKIPPED the tests of alert rules: no promtool")
    if LUA is None:
        terminalreporter.write_line("SKIPPED the health check for Argo CD: no lua")
    if JUDGE is None:
        terminalreporter.write_line("SKIPPED kstatus and the health check for Flux: no judge")


def helm(*args: str) -> subprocess.CompletedProcess:
    return subprocess.run([HELM, *args], capture_output=True, text=True, check=False, timeout=60)


def template(chart: Path, values: dict, *args: str) -> subprocess.CompletedProcess:
    command = [HELM, "template", "ramen", str(chart), "--namespace", "ramen-system", "--values", "-", *args]
    return subprocess.run(
        command, input=yaml.safe_dump(values), capture_output=True, text=True, check=False, timeout=60
    )


@functools.cache
def rendered(case: str) -> list[dict]:
    done = template(CHART, EVERY[case])
    assert done.returncode == 0, done.stderr
    return [document for document in yaml.safe_load_all(done.stdout) if document]


def render(values: dict) -> list[dict]:
    done = template(CHART, values)
    assert done.returncode == 0, done.stderr
    return [document for document in yaml.safe_load_all(done.stdout) if document]


def refused(values: dict) -> str:
    done = template(CHART, values)
    assert done.returncode != 0, "helm took these values"
    return done.stderr


def of(documents: list[dict], kind: str, name: str | None = None) -> list[dict]:
    return [d for d in documents if d["kind"] == kind and name in (None, d["metadata"]["name"])]


def pods(documents: list[dict]) -> list[tuple[str, dict]]:
    """Every pod spec, with where it stands."""
    specs = []
    for document in documents:
        where = f"{document['kind']}/{document['metadata']['name']}"
        if document["kind"] == "Pod":
            specs.append((where, document["spec"]))
        elif "template" in document.get("spec", {}):
            specs.append((where, document["spec"]["template"]["spec"]))
    assert specs
    return specs
