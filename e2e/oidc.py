"""A real OpenID Connect provider, and a person who signs in there without a browser."""

import json
import re
import subprocess
import threading
import urllib.error
import urllib.parse
import urllib.request
from http.cookiejar import CookieJar
from pathlib import Path

import documents
import foreign
import programs

GUIDE = programs.ROOT / "docs" / "auth.md"

FIELD = re.compile(r'<form[^>]*action="([^"]+)"')


class Provider:
    """`oidc-provider` from npm, set up as the guide shows it."""

    def __init__(self, folder, port=0):
        self.log = (folder / "provider.log").open("wb")
        command = foreign.node("provider.mjs", str(port))
        Path(command[1]).write_text(next(block.text for block in documents.blocks(GUIDE)
                                         if block.options.get("file") == "provider.mjs"))
        self.process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=self.log,
                                        env=programs.environment(), start_new_session=True)
        self.issuer = json.loads(self.process.stdout.readline())["issuer"]

    def stop(self):
        programs.stop(self.process)
        self.log.close()


class Stop(urllib.request.HTTPRedirectHandler):
    """Redirects are followed by hand, so that each of them is seen."""

    def redirect_request(self, *_):
        return None


def sign_in(address, login):
    """What a browser and a person do at the address that a client shows; ends where the answer goes to the client."""
    opener = urllib.request.build_opener(urllib.request.HTTPCookieProcessor(CookieJar()), Stop())
    host = urllib.parse.urlsplit(address).netloc

    def ask(url, form=None):
        data = urllib.parse.urlencode(form).encode() if form else None
        try:
            with opener.open(url, data=data, timeout=programs.PATIENCE) as answer:
                return None, answer.read().decode()
        except urllib.error.HTTPError as error:
            assert error.status in (302, 303), error.read().decode()
            return urllib.parse.urljoin(url, error.headers["location"]), ""

    url, form = address, None
    for _ in range(20):
        where, page = ask(url, form)
        if where:
            url, form = where, None
            if urllib.parse.urlsplit(url).netloc != host:
                with urllib.request.urlopen(url, timeout=programs.PATIENCE) as answer:
                    return answer.read().decode()
            continue
        action = FIELD.search(page)
        assert action, page
        url = urllib.parse.urljoin(url, action[1])
        form = {"prompt": "login", "login": login, "password": "any"} if 'name="password"' in page else {"prompt": "consent"}
    raise AssertionError(f"the sign-in does not end: {url}")


def ramen(*args, login, env):
    """A command of ours that asks for a sign-in; `login` is who agrees. Gives back exit code, output, stderr."""
    process = subprocess.Popen([programs.BIN / "ramen", *args], env=env, stdin=subprocess.DEVNULL,
                               stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    told, asked = [], []

    def watch():
        for line in process.stderr:
            told.append(line)
            if line.startswith("sign in here: "):
                asked.append(sign_in(line.removeprefix("sign in here: ").strip(), login))

    thread = threading.Thread(target=watch)
    thread.start()
    out = process.stdout.read()
    thread.join(programs.PATIENCE)
    return process.wait(programs.PATIENCE), out, "".join(told), len(asked)
