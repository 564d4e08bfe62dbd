"""A running `ramen up` on a folder, as a person starts it."""

import json
import shutil
import subprocess

import programs


class Up:
    """Serves a copy of `group`, a folder that holds `mcp/`; the copy is `repo`, and its name the group's."""

    def __init__(self, folder, group, **env):
        self.repo, self.state = folder / group.name.removesuffix("-group"), folder / "state"
        self.name = self.repo.name
        shutil.copytree(group, self.repo)
        self.log = (folder / "log").open("w+")
        self.process = subprocess.Popen(
            [programs.BIN / "ramen", "up", self.repo, "--state-dir", self.state, "--http", "127.0.0.1:0", "-o", "json"],
            env=programs.environment(**env), stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=self.log, text=True,
            start_new_session=True,
        )
        self.status = {}
        for line in self.process.stdout:
            self.status = json.loads(line)
            if self.status.get("ready"):
                break
        assert self.status.get("ready"), self.status or (folder / "log").read_text()[-4000:]
        self.url = self.status["url"]
        self.api = self.url.removesuffix(f"/default/{self.name}/mcp") + "/api/v1"
        self.operator = (self.state / "operator-key").read_text().strip()

    @property
    def key(self):
        return (self.state / "groups" / f"default.{self.name}" / "keys" / "mcp-key").read_text().strip()

    def stop(self):
        code = programs.stop(self.process)
        self.process.stdout.close()
        self.log.seek(0)
        assert code == 0, f"ramen up ended with {code}:\n{self.log.read()[-4000:]}"
        self.log.close()
