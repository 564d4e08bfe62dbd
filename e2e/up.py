"""A running `ramen up` on a folder, as a person starts it."""

import json
import shutil
import subprocess
import urllib.request

import programs


class Up:
    """Serves a copy of `group`, a folder that holds `mcp/`; the copy is `repo`, and its name the group's."""

    def __init__(self, folder, group, **env):
        self.repo = folder / group.name.removesuffix("-group")
        shutil.copytree(group, self.repo)
        self.start(folder, self.repo.name, [self.repo], env)

    def start(self, folder, name, what, env):
        self.name, self.state = name, folder / "state"
        self.log = (folder / "log").open("w+")
        self.process = subprocess.Popen(
            [programs.BIN / "ramen", "up", *what, "--state-dir", self.state, "--http", "127.0.0.1:0", "-o", "json"],
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


class UpOfFile(Up):
    """Serves the group `name` of a file of groups."""

    def __init__(self, folder, name, text, **env):
        self.file = folder / "groups.yaml"
        self.file.write_text(text)
        self.start(folder, name, ["-f", self.file], env)

    def operate(self, operation, **arguments):
        """What an operation answers."""
        request = urllib.request.Request(f"{self.api}/{operation}", json.dumps(arguments).encode(),
                                         {"Authorization": f"Bearer {self.operator}", "Content-Type": "application/json"})
        with urllib.request.urlopen(request, timeout=programs.PATIENCE) as answer:
            return json.load(answer)
