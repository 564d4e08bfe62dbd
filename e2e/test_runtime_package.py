"""The package of `python/`, as somebody has it who tests functions without a worker."""

import os
import subprocess
import sys

import pytest

import programs

PACKAGE = programs.ROOT / "python"


@pytest.fixture(scope="module")
def installed(tmp_path_factory):
    """A folder with what pip would install."""
    target = tmp_path_factory.mktemp("installed")
    uv = programs.environment()["RAMEN_UV"]
    # From a copy: what a build leaves belongs into no tree.
    source = tmp_path_factory.mktemp("source") / "python"
    subprocess.run(["cp", "-r", PACKAGE, source], check=True)
    subprocess.run([uv, "pip", "install", "--quiet", "--no-deps", "--python", sys.executable,
                    "--target", target, source], check=True, timeout=programs.PATIENCE)
    return target


def test_its_own_tests_pass_on_what_is_installed(installed, tmp_path):
    env = {**os.environ, "PYTHONPATH": str(installed)}
    command = [sys.executable, "-m", "pytest", "--quiet", "-p", "no:cacheprovider", "--rootdir", tmp_path,
               "--override-ini", "addopts=", PACKAGE / "tests"]
    # Not in its own folder, where the sources would be found first.
    done = subprocess.run(command, env=env, cwd=tmp_path, capture_output=True, text=True, timeout=programs.PATIENCE)
    assert done.returncode == 0, done.stdout + done.stderr
    where = [sys.executable, "-c", "import ramen_runtime; print(ramen_runtime.__file__)"]
    found = subprocess.run(where, env=env, cwd=tmp_path, capture_output=True, text=True, check=True)
    assert found.stdout.startswith(str(installed)), found.stdout


def test_it_carries_its_type_stubs(installed):
    files = {path.name for path in (installed / "ramen_runtime").iterdir()}
    modules = {path.stem for path in (PACKAGE / "ramen_runtime").glob("*.py") if path.stem != "_backend"}
    assert "py.typed" in files
    assert {f"{module}.pyi" for module in modules} <= files
