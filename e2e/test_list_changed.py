"""A save is told to clients that are connected, over HTTP and through the bridge, and they list the tools anew by themselves."""

import json
import subprocess

import pytest

import drivers
import foreign
import groups
import programs
from up import Up

# The older revisions have no stream to tell it on over HTTP without a session.
WAYS = {
    "typescript-2-gateway": ("2", "auto", drivers.over_http),
    "typescript-2-bridge": ("2", "auto", drivers.bridge),
    "typescript-2-bridge-legacy": ("2", "legacy", drivers.bridge),
    "typescript-1-bridge": ("1", "legacy", drivers.bridge),
}


@pytest.fixture(scope="module")
def up(tmp_path_factory):
    up = Up(tmp_path_factory.mktemp("up"), programs.ROOT / "examples" / "demo-group")
    yield up
    up.stop()


@pytest.mark.parametrize("way", WAYS)
def test_a_save_is_told_to_a_client_that_is_connected(up, way):
    line, era, door = WAYS[way]
    command = foreign.node("watch.mjs", line, json.dumps({**door(up), "era": era}))
    client = subprocess.Popen(command, env=programs.environment(), stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    try:
        before = json.loads(client.stdout.readline())
        name = "added_for_" + way.replace("-", "_")
        groups.tool(up.repo, name, f"def {name}():\n    return 'new'\n")
        # One save may be seen in two steps, and the first may hold only part of it.
        while name not in (after := json.loads(client.stdout.readline())):
            pass
        assert set(after) == {*before, name}
    finally:
        client.kill()
        client.wait(programs.PATIENCE)
        client.stdin.close()
        client.stdout.close()
