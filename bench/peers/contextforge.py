"""Peer: ContextForge in front of an MCP server, with the production settings of its own guide that fit one machine.

usage: contextforge.py UPSTREAM_URL FOLDER

Gunicorn with uvicorn workers (2 per core and one more, the application loaded before the fork), authentication on, stateless
sessions, answers as JSON, errors alone in the log. PostgreSQL where the machine has it, else SQLite. Registers the upstream,
makes a virtual server of its tools and says: listening PORT PATH TOKEN TOOL DATABASE.
"""

import ctypes
import glob
import json
import os
import pwd
import secrets
import shutil
import signal
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.request
from pathlib import Path

ADMIN = "admin@example.com"
PATIENCE = 120


def free_port():
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


def program(name):
    found = [shutil.which(name), *sorted(glob.glob(f"/usr/lib/postgresql/*/bin/{name}"), reverse=True)]
    return next((path for path in found if path), None)


def goes_with_us(how):
    """Run in a child before its program: the kernel sends it this signal when we end, however we do."""
    return lambda: ctypes.CDLL(None).prctl(1, how)


def postgres(parent):
    """A PostgreSQL of its own; its URL, or None. It does not run as root."""
    if not (program("initdb") and program("postgres")):
        return None
    folder, port = parent / "postgres", free_port()
    folder.mkdir()
    for above in (parent, parent.parent):
        above.chmod(0o711)
    ways = {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL, "cwd": "/"}
    if os.geteuid() == 0:
        ways["user"] = next(user for user in ("postgres", "nobody") if user in {entry.pw_name for entry in pwd.getpwall()})
        shutil.chown(folder, ways["user"])
    made = subprocess.run([program("initdb"), "-D", folder / "data", "-U", "bench", "--auth=trust", "--no-sync"], check=False, **ways)
    if made.returncode:
        return None
    subprocess.Popen([program("postgres"), "-D", folder / "data", "-p", str(port), "-k", folder, "-c", "listen_addresses=127.0.0.1",
                               "-c", "max_connections=500", "-c", "shared_buffers=512MB", "-c", "work_mem=16MB"],
                     preexec_fn=goes_with_us(signal.SIGINT), **ways)
    wait_for(lambda: socket.create_connection(("127.0.0.1", port)).close())
    return f"postgresql+psycopg://bench@127.0.0.1:{port}/postgres"


def wait_for(attempt):
    end = time.monotonic() + PATIENCE
    while True:
        try:
            return attempt()
        except OSError:
            if time.monotonic() > end:
                raise
            time.sleep(0.2)


def settings(folder, database):
    return {
        "ENVIRONMENT": "production", "APP_DOMAIN": "http://localhost", "HOST": "127.0.0.1",
        "DATABASE_URL": database or f"sqlite:///{folder}/mcp.db", "CACHE_TYPE": "memory",
        "AUTH_REQUIRED": "true", "MCP_CLIENT_AUTH_ENABLED": "true",
        "JWT_SECRET_KEY": secrets.token_hex(32), "AUTH_ENCRYPTION_SECRET": secrets.token_hex(32),
        "BASIC_AUTH_PASSWORD": secrets.token_hex(16), "PLATFORM_ADMIN_EMAIL": ADMIN, "PLATFORM_ADMIN_PASSWORD": f"Aa1!{secrets.token_hex(16)}",
        "PASSWORD_CHANGE_ENFORCEMENT_ENABLED": "false", "ADMIN_REQUIRE_PASSWORD_CHANGE_ON_BOOTSTRAP": "false",
        "USE_STATEFUL_SESSIONS": "false", "JSON_RESPONSE_ENABLED": "true", "MCPGATEWAY_UI_ENABLED": "false",
        "MCPGATEWAY_ADMIN_API_ENABLED": "false", "PLUGINS_ENABLED": "false", "OBSERVABILITY_ENABLED": "false", "LOG_LEVEL": "ERROR",
        # The upstream of the benchmark is on this machine.
        "SSRF_ALLOW_LOCALHOST": "true", "SSRF_ALLOW_PRIVATE_NETWORKS": "true",
        # A hundred calls a minute are no load.
        "RATE_LIMITING_ENABLED": "false", "RATE_LIMIT_LOCKOUT_ENABLED": "false",
    }


class Api:
    def __init__(self, port, token):
        self.base, self.token = f"http://127.0.0.1:{port}", token

    def __call__(self, method, path, body=None):
        request = urllib.request.Request(self.base + path, method=method, data=body and json.dumps(body).encode())
        request.add_header("authorization", f"Bearer {self.token}")
        request.add_header("content-type", "application/json")
        try:
            with urllib.request.urlopen(request, timeout=PATIENCE) as answer:
                return json.load(answer)
        except urllib.error.HTTPError as error:
            sys.exit(f"contextforge: {method} {path}: {error.code} {error.read()[:500].decode(errors='replace')}")


def main():
    upstream, folder = sys.argv[1], Path(sys.argv[2]).resolve()
    folder.mkdir(parents=True, exist_ok=True)
    database, port = postgres(folder), free_port()
    os.environ.update(settings(folder, database))
    os.chdir(folder)
    cores = len(os.sched_getaffinity(0))
    with open(folder / "contextforge.log", "wb") as log:
        server = subprocess.Popen(
            [sys.executable, "-m", "gunicorn", "--worker-class", "uvicorn.workers.UvicornWorker", "--workers", str(2 * cores + 1), "--preload",
             "--timeout", "600", "--max-requests", "100000", "--max-requests-jitter", "100", "--bind", f"127.0.0.1:{port}", "mcpgateway.main:app"],
            stdout=log, stderr=log, preexec_fn=goes_with_us(signal.SIGTERM))

    def up():
        if server.poll() is not None:
            sys.exit(f"contextforge ended:\n{(folder / 'contextforge.log').read_text(errors='replace')[-3000:]}")
        urllib.request.urlopen(f"http://127.0.0.1:{port}/health", timeout=5).close()
    wait_for(up)
    made = subprocess.run([sys.executable, "-m", "mcpgateway.utils.create_jwt_token", "--username", ADMIN, "--exp", "10080", "--admin",
                           "--secret", os.environ["JWT_SECRET_KEY"]], check=True, capture_output=True, text=True)
    token = made.stdout.strip().splitlines()[-1]
    api = Api(port, token)
    api("POST", "/gateways", {"name": "calculator", "url": upstream, "transport": "STREAMABLEHTTP"})
    tools = api("GET", "/tools")
    tool = next(tool for tool in tools if "calculator" in tool["name"])
    made = api("POST", "/servers", {"server": {"name": "bench", "associated_tools": [tool["id"]]}})
    kind = "PostgreSQL" if database else "SQLite"
    print(f"listening {port} /servers/{made['id']}/mcp {token} {tool['name']} {kind}", flush=True)
    server.wait()


main()
