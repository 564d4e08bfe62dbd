"""A real Prometheus that reads our programs and evaluates the alert rules of the chart.

As a program it holds all rules to what runs: `prometheus.py JOB=HOST:PORT… [--absent SERIES…]`; or it prints what the expression
of one alert finds there, `… --alert NAME`: the labels of each series. Exit code 77: there is no Prometheus.
"""

import argparse
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
import urllib.parse
import urllib.request
from pathlib import Path

import yaml

import programs

CHARTS = programs.ROOT / "charts"
RULES = CHARTS / "ramen" / "files" / "rules.yaml"
CACHE = Path(os.environ.get("RAMEN_CACHE") or Path.home() / ".cache" / "ramen")
LISTENS = re.compile(r'msg="Listening on".* address=(\S+)')
SERIES = re.compile(r"\bramen_[a-z_]+\b")
# Between two looks of it. What rules say of minutes they say of them here too, but for how long an alert waits.
INTERVAL = "1s"


def program():
    """Debian's, brought by the script that brings promtool; `None` when it could not be had."""
    if named := os.environ.get("RAMEN_PROMETHEUS"):
        return named
    brought = CACHE / "tools" / "prometheus" / "usr" / "bin" / "prometheus"
    if not brought.exists() and not shutil.which("prometheus"):
        subprocess.run([CHARTS / "tests" / "tools.sh", "prometheus"], check=True, timeout=300)
    return str(brought) if brought.exists() else shutil.which("prometheus")


class Prometheus:
    """Reads `targets`, a list of job, address and labels. Alerts of the chart fire here as soon as they are pending."""

    def __init__(self, folder, targets):
        self.targets = len(targets)
        rules = yaml.safe_load(RULES.read_text())
        for rule in (rule for group in rules["groups"] for rule in group["rules"]):
            rule.pop("for", None)
        (folder / "rules.yaml").write_text(yaml.safe_dump(rules))
        jobs = [{"job_name": name, "static_configs": [{"targets": [address], "labels": labels}
                                                      for job, address, labels in targets if job == name]}
                for name in dict.fromkeys(job for job, _, _ in targets)]
        times = {"scrape_interval": INTERVAL, "scrape_timeout": INTERVAL, "evaluation_interval": INTERVAL}
        (folder / "prometheus.yaml").write_text(yaml.safe_dump(
            {"global": times, "rule_files": ["rules.yaml"], "scrape_configs": jobs}))
        self.log = folder / "prometheus.log"
        with self.log.open("wb") as log:
            self.process = subprocess.Popen(
                [program(), f"--config.file={folder / 'prometheus.yaml'}", f"--storage.tsdb.path={folder / 'tsdb'}",
                 "--web.listen-address=127.0.0.1:0", "--log.format=logfmt"],
                env=programs.environment(), stdin=subprocess.DEVNULL, stdout=log, stderr=subprocess.STDOUT,
                start_new_session=True)
        listens = programs.until(lambda: LISTENS.search(self.log.read_text()), "Prometheus listens", self.alive)
        self.url = f"http://{listens[1]}"
        programs.until(self.ready, "Prometheus is ready", self.alive)

    def alive(self):
        return self.process.poll() is None

    def ready(self):
        try:
            with urllib.request.urlopen(f"{self.url}/-/ready", timeout=5) as answer:
                return answer.status == 200
        except OSError:
            return False

    def ask(self, path, **query):
        with urllib.request.urlopen(f"{self.url}/api/v1/{path}?{urllib.parse.urlencode(query)}", timeout=30) as answer:
            return json.load(answer)["data"]

    def down(self):
        """Targets that could not be read, with why. It takes some seconds to know of any."""
        targets = self.ask("targets")["activeTargets"]
        if len(targets) < self.targets:
            return [f"{self.targets - len(targets)} of {self.targets} targets are not known yet"]
        return [f"{target['scrapeUrl']}: {target['lastError'] or target['health']}"
                for target in targets if target["health"] != "up"]

    def rules(self):
        return [rule for group in self.ask("rules")["groups"] for rule in group["rules"]]

    def unknown(self, expression):
        """Series that an expression asks for and nobody has."""
        return set(SERIES.findall(expression)) - set(self.ask("label/__name__/values"))

    def vector(self, expression):
        """The labels of each series that an expression finds now."""
        return [series["metric"] for series in self.ask("query", query=expression)["result"]]

    def all_up(self):
        programs.until(lambda: not self.down(), lambda: f"all targets are up: {self.down()}", self.alive)

    def finds(self, alert):
        """The same of an alert's expression, once all that it asks for was read."""
        self.all_up()
        (expression,) = [rule["query"] for rule in self.rules() if rule["name"] == alert]
        programs.until(lambda: all(map(self.vector, SERIES.findall(expression))), f"what {alert} asks for was read", self.alive)
        return self.vector(expression)

    def faults(self, groups, absent=()):
        """What is wrong with the rules of these groups, once all targets were read and all rules evaluated."""
        self.all_up()
        programs.until(lambda: all(rule["health"] != "unknown" for rule in self.rules()), "all rules are evaluated")
        faults = [f"{rule['name']}: {rule['lastError']}" for rule in self.rules() if rule["health"] != "ok"]
        for group in self.ask("rules")["groups"]:
            for rule in group["rules"] if group["name"] in groups else ():
                for series in sorted(self.unknown(rule["query"]) - set(absent)):
                    faults.append(f"{rule['name']}: nobody has {series}")
        return faults

    def firing(self):
        """Alerts that fire: their names and labels."""
        return [alert["labels"] for alert in self.ask("alerts")["alerts"] if alert["state"] == "firing"]

    def stop(self):
        programs.stop(self.process)


def main():
    arguments = argparse.ArgumentParser(description=__doc__)
    arguments.add_argument("targets", nargs="+", metavar="JOB=HOST:PORT")
    arguments.add_argument("--absent", action="append", default=[], metavar="SERIES")
    arguments.add_argument("--alert", metavar="NAME")
    arguments = arguments.parse_args()
    if not program():
        sys.exit(77)
    targets = [(*target.split("=", 1), {}) for target in arguments.targets]
    with tempfile.TemporaryDirectory(prefix="ramen-prometheus-") as folder:
        server = Prometheus(Path(folder), targets)
        try:
            if arguments.alert:
                print(json.dumps(server.finds(arguments.alert)))
                return
            groups = [group["name"] for group in yaml.safe_load(RULES.read_text())["groups"]]
            faults = server.faults(groups, arguments.absent)
        finally:
            server.stop()
    sys.exit("\n".join(faults) or 0)


if __name__ == "__main__":
    main()
