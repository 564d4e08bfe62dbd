"""A package index of a few made-up packages, as the standard has it: what `packages` lists, and nothing else.

PACKAGES is put in front of this text: a list of [name, version, source of the module].
"""

import base64
import hashlib
import http.server
import io
import zipfile

WHEELS = {}


def wheel(name, version, source):
    module = name.replace("-", "_")
    info = f"{module}-{version}.dist-info"
    members = {
        f"{module}/__init__.py": source,
        f"{info}/METADATA": f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n",
        f"{info}/WHEEL": "Wheel-Version: 1.0\nGenerator: ramen-e2e\nRoot-Is-Purelib: true\nTag: py3-none-any\n",
    }
    record = ""
    for path, text in members.items():
        digest = base64.urlsafe_b64encode(hashlib.sha256(text.encode()).digest()).decode().rstrip("=")
        record += f"{path},sha256={digest},{len(text.encode())}\n"
    members[f"{info}/RECORD"] = record + f"{info}/RECORD,,\n"
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w") as archive:
        for path, text in members.items():
            archive.writestr(zipfile.ZipInfo(path), text)
    return f"{module}-{version}-py3-none-any.whl", buffer.getvalue()


class Index(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def do_GET(self):
        parts = [part for part in self.path.split("/") if part]
        if parts[:1] == ["simple"] and len(parts) == 2 and parts[1] in WHEELS:
            links = "".join(
                f'<a href="/files/{file}#sha256={hashlib.sha256(content).hexdigest()}">{file}</a>\n'
                for file, content in WHEELS[parts[1]].items()
            )
            self.answer(200, "text/html", f"<!DOCTYPE html><html><body>\n{links}</body></html>".encode())
            return
        for files in WHEELS.values():
            if parts[:1] == ["files"] and parts[-1] in files:
                self.answer(200, "application/octet-stream", files[parts[-1]])
                return
        self.answer(404, "text/plain", b"no such package here\n")

    def answer(self, status, kind, body):
        self.send_response(status)
        self.send_header("Content-Type", kind)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        if self.command == "GET":
            self.wfile.write(body)

    do_HEAD = do_GET


for name, version, source in PACKAGES:  # noqa: F821
    file, content = wheel(name, version, source)
    WHEELS.setdefault(name, {})[file] = content
http.server.ThreadingHTTPServer(("", 8000), Index).serve_forever()
