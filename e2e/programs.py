"""Starts our programs as a person would, from their command lines, and takes them down again."""

import atexit
import functools
import json
import os
import re
import secrets
import signal
import socket
import subprocess
import sys
import tempfile
import time
import urllib.request
from contextlib import contextmanager
from pathlib import Path

import grpc

ROOT = Path(__file__).resolve().parent.parent
BIN = Path(os.environ.get("RAMEN_BIN_DIR", ROOT / "target" / "debug"))
PYTHON_BIN = Path(sys.executable).parent
PATIENCE = 60  # seconds after which a condition that does not come is a failure; never a measure of speed


def environment(**extra):
    """What a program of ours gets: nothing of the RAMEN_ and secret settings that a person may have around."""
    env = {k: v for k, v in os.environ.items() if not k.startswith("RAMEN_")}
    env["RAMEN_UV"] = os.environ.get("RAMEN_UV", str(PYTHON_BIN / "uv"))
    env.update(extra)
    return env


def until(condition, what, alive=lambda: True):
    """Waits for a condition; says what did not happen, by itself or as `what()` tells it then."""
    deadline = time.monotonic() + PATIENCE
    while not (value := condition()):
        assert alive(), f"the program ended before: {what}"
        assert time.monotonic() < deadline, f"did not happen in {PATIENCE} s: {what() if callable(what) else what}"
        time.sleep(0.02)
    return value


def deploy(group_dir, folder, *args, group="demo", env=None):
    """Runs `ramen-worker deploy`; gives back its exit code and report."""
    folder.mkdir(parents=True, exist_ok=True)
    command = [BIN / "ramen-worker", "deploy", "--code-dir", group_dir, "--store", folder / "store",
               "--out", folder / "out", "--group", group, "--progress", "none", *args]
    done = subprocess.run(command, env=environment(**(env or {})), stdin=subprocess.DEVNULL,
                          capture_output=True, text=True, timeout=600)
    report = folder / "out" / "report.json"
    assert report.exists(), f"deploy wrote no report (exit {done.returncode}):\n{done.stderr}"
    return done.returncode, json.loads(report.read_text())


def desired_state(report, python=None):
    """The desired-state file that serves what a report says."""
    broken = sorted({e["package"] for e in report["errors"] if e.get("package")})
    return {"revision": report["revision"] or "", "code": report["code"], "deps": report["deps"],
            "python": python or report["python"], "exclude": broken}


@contextmanager
def free_port():
    """A port at which nobody listens, and which the system gives to nobody else meanwhile: a server that is told of it can listen
    there, as one that sets SO_REUSEADDR may have a port with one that does not listen."""
    with socket.socket() as held:
        held.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        held.bind(("127.0.0.1", 0))
        yield held.getsockname()[1]


class Worker:
    """A running `ramen-worker serve`."""

    def __init__(self, folder, desired, group="demo", **env):
        self.folder = folder
        self.key = "rmk_" + secrets.token_hex(32)
        self.admin_key = secrets.token_hex(32)
        keys = folder / "keys"
        keys.mkdir()
        (keys / "key").write_text(self.key + "\n")
        (folder / "admin-key").write_text(self.admin_key + "\n")
        self.desired = folder / "desired.json"
        self.desired.write_text(json.dumps(desired))
        address = folder / "address.json"
        self.log = folder / "worker.log"
        with self.log.open("wb") as log:
            self.process = subprocess.Popen(
                [BIN / "ramen-worker", "serve"],
                env=environment(
                    RAMEN_LISTEN="127.0.0.1:0", RAMEN_METRICS_LISTEN="127.0.0.1:0", RAMEN_GROUP=group,
                    RAMEN_KEYS_DIR=str(keys), RAMEN_ADMIN_KEY_FILE=str(folder / "admin-key"),
                    RAMEN_STORE=str(folder / "store"), RAMEN_CACHE_DIR=str(folder / "cache"),
                    RAMEN_DESIRED=str(self.desired), RAMEN_ADDRESS_FILE=str(address), **env,
                ),
                stdin=subprocess.DEVNULL, stdout=log, stderr=subprocess.STDOUT, start_new_session=True,
            )
        try:
            until(address.exists, "the worker listens", self.alive)
            told = json.loads(address.read_text())
            self.address, self.metrics = told["grpc"], told.get("metrics")
            self.channel = grpc.insecure_channel(self.address)
            until(self.serving, "the worker serves its group", self.alive)
        except BaseException:
            self.stop()
            print(self.log.read_text(), file=sys.stderr)
            raise

    def alive(self):
        return self.process.poll() is None

    def serving(self):
        from grpc_health.v1 import health_pb2, health_pb2_grpc

        try:
            answer = health_pb2_grpc.HealthStub(self.channel).Check(health_pb2.HealthCheckRequest(), timeout=5)
        except grpc.RpcError:
            return False
        return answer.status == health_pb2.HealthCheckResponse.SERVING

    def call_raw(self, body, key=None, timeout=60, metadata=()):
        """One `ramen.v1.Mcp/Call`, the message encoded by hand: field 1, length-delimited."""
        call = self.channel.unary_unary(
            "/ramen.v1.Mcp/Call", request_serializer=encode_body, response_deserializer=decode_body)
        auth = (("authorization", f"Bearer {self.key if key is None else key}"),) if key != "" else ()
        return call(body, metadata=(*auth, *metadata), timeout=timeout)

    def rpc(self, method, params=None, id=1, **kwargs):
        message = {"jsonrpc": "2.0", "id": id, "method": method}
        if params is not None:
            message["params"] = params
        return json.loads(self.call_raw(json.dumps(message).encode(), **kwargs))

    def stop(self):
        channel = getattr(self, "channel", None)
        if channel:
            channel.close()
        return stop(self.process)


def stop(process):
    """SIGTERM, patience, SIGKILL of the whole group; gives back the exit code."""
    if process.poll() is None:
        process.send_signal(signal.SIGTERM)
    try:
        return process.wait(40)
    except subprocess.TimeoutExpired:
        os.killpg(process.pid, signal.SIGKILL)
        return process.wait(10)


@contextmanager
def serving(group_dir, folder, *args, group="demo", env=None, deploy_env=None):
    """Deploys a group and serves what came out of it."""
    code, report = deploy(group_dir, folder, *args, group=group, env=deploy_env)
    assert code in (0, 3), json.dumps(report, indent=1)
    worker = Worker(folder, desired_state(report), group=group, **(env or {}))
    worker.report = report
    try:
        yield worker
    finally:
        code = worker.stop()
        assert code == 0, f"the worker ended with {code}:\n{worker.log.read_text()[-4000:]}"


class Gateway:
    """A running `ramen-gateway` in front of workers, `{name: worker}`; `access` and `upstreams` are those of all groups."""

    def __init__(self, folder, workers, listen="127.0.0.1:0", access=None, upstreams=(), **env):
        self.key = "rmk_" + secrets.token_hex(32)
        (folder / "callers").write_text(self.key + "\n")
        groups = []
        for name, worker in workers.items():
            (folder / f"{name}.key").write_text(worker.key + "\n")
            groups.append({"name": name, "keysFile": "callers", "workerKeyFile": f"{name}.key",
                           "workers": [worker.address], "upstreams": list(upstreams),
                           **({"access": access} if access else {})})
        config, address = folder / "groups.yaml", folder / "gateway.json"
        config.write_text(json.dumps({"groups": groups}))
        self.log = folder / "gateway.log"
        with self.log.open("wb") as log:
            self.process = subprocess.Popen(
                [BIN / "ramen-gateway", "--listen", listen, "--config", config, "--address-file", address],
                env=environment(**env), stdin=subprocess.DEVNULL, stdout=log, stderr=subprocess.STDOUT,
                start_new_session=True,
            )
        try:
            until(address.exists, "the gateway listens", lambda: self.process.poll() is None)
            told = json.loads(address.read_text())
            self.url, self.metrics = f"http://{told['http']}", told.get("metrics")
        except BaseException:
            stop(self.process)
            print(self.log.read_text(), file=sys.stderr)
            raise

    def at(self, group):
        return f"{self.url}/default/{group}/mcp"

    def stop(self):
        code = stop(self.process)
        assert code == 0, f"the gateway ended with {code}:\n{self.log.read_text()[-4000:]}"


def metric(program, name, **labels):
    """What a worker or a gateway counts, as Prometheus reads it; `None` for what it does not have."""
    with urllib.request.urlopen(f"http://{program.metrics}/metrics", timeout=PATIENCE) as answer:
        assert answer.headers["content-type"].startswith("application/openmetrics-text")
        text = answer.read().decode()
    for line in text.splitlines():
        series, _, number = line.rpartition(" ")
        if series.split("{")[0] == name and dict(re.findall(r'(\w+)="([^"]*)"', series)) == labels:
            return float(number)
    return None


def encode_body(body):
    size, header = len(body), b"\x0a"
    while size > 0x7F:
        header += bytes([size & 0x7F | 0x80])
        size >>= 7
    return header + bytes([size]) + body if body else b""


def decode_body(message):
    if not message:
        return b""
    assert message[0] == 0x0A, message[:10]
    size = shift = 0
    for index, byte in enumerate(message[1:], start=1):
        size |= (byte & 0x7F) << shift
        shift += 7
        if byte < 0x80:
            body = message[index + 1:]
            assert len(body) == size
            return body
    raise AssertionError("length has no end")


@functools.cache
def scratch():
    """A folder for what all tests of a run share; it goes with the run."""
    folder = tempfile.TemporaryDirectory(prefix="ramen-e2e-")
    atexit.register(folder.cleanup)
    return Path(folder.name)
