"""Workers that the tests share. Each is made once and stopped at the end."""

import shutil

import pytest

import groups
import programs
from up import Up


@pytest.fixture(scope="session", autouse=True)
def built():
    for program in ("ramen", "ramen-worker", "ramen-gateway"):
        if not (programs.BIN / program).exists():
            pytest.exit(f"{program} is not built: run `make build` first", returncode=2)


@pytest.fixture(scope="session")
def demo(tmp_path_factory):
    with programs.serving(programs.ROOT / "examples" / "demo-group", tmp_path_factory.mktemp("demo")) as worker:
        yield worker


@pytest.fixture(scope="session")
def probe(tmp_path_factory):
    folder = tmp_path_factory.mktemp("probe")
    group = groups.probe_group(folder / "repo")
    env = {"RAMEN_SECRET_PROBE__TOKEN": "s3cret-value-of-the-test"}
    with programs.serving(group, folder, group="probe", env=env) as worker:
        yield worker


@pytest.fixture(scope="session")
def wild(tmp_path_factory):
    folder = tmp_path_factory.mktemp("wild")
    group = groups.wild_group(folder / "repo")
    env = {"RAMEN_SECRET_WILD__TOKEN": "wild-token-of-the-test"}
    with programs.serving(group, folder, "--secrets-from-env", group="wild", env=env, deploy_env=env) as worker:
        yield worker


@pytest.fixture(scope="session")
def gateway(demo, probe, tmp_path_factory):
    gateway = programs.Gateway(tmp_path_factory.mktemp("gateway"), {"demo": demo, "probe": probe})
    yield gateway
    gateway.stop()


@pytest.fixture
def folder(tmp_path):
    """A folder that is empty again when the test is over, also when it holds read-only files."""
    yield tmp_path
    shutil.rmtree(tmp_path, ignore_errors=True)


@pytest.fixture(scope="session")
def probe_up(tmp_path_factory):
    folder = tmp_path_factory.mktemp("probe-up")
    up = Up(folder, groups.probe_group(folder / "probe-group"))
    yield up
    up.stop()
