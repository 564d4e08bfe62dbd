"""Smart HTTP for bare repositories on loopback: `git http-backend` behind the standard library's HTTP server.

    python3 git_http.py FOLDER [PORT]     prints the address it listens at
"""

import os
import subprocess
import sys
import zlib
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer


class Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def do_GET(self):
        self.run_backend(b"")

    def do_POST(self):
        body = self.read_chunks() if self.headers.get("Transfer-Encoding", "").lower() == "chunked" else self.rfile.read(
            int(self.headers.get("Content-Length", 0)))
        if self.headers.get("Content-Encoding") == "gzip":
            body = zlib.decompress(body, wbits=31)
        self.run_backend(body)

    def read_chunks(self):
        parts = []
        while size := int(self.rfile.readline().split(b";")[0], 16):
            parts.append(self.rfile.read(size))
            self.rfile.readline()
        self.rfile.readline()
        return b"".join(parts)

    def run_backend(self, body):
        path, _, query = self.path.partition("?")
        env = dict(os.environ, GIT_PROJECT_ROOT=self.server.root, GIT_HTTP_EXPORT_ALL="1", PATH_INFO=path,
                   QUERY_STRING=query, REQUEST_METHOD=self.command, CONTENT_LENGTH=str(len(body)),
                   CONTENT_TYPE=self.headers.get("Content-Type", ""),
                   GIT_PROTOCOL=self.headers.get("Git-Protocol", ""), REMOTE_ADDR=self.client_address[0])
        done = subprocess.run(["git", "http-backend"], input=body, capture_output=True, env=env)
        head, _, answer = done.stdout.partition(b"\r\n\r\n")
        headers = [line.split(": ", 1) for line in head.decode("latin-1").split("\r\n") if ": " in line]
        status = next((value for name, value in headers if name.lower() == "status"), "200 OK" if headers else "500 Error")
        self.send_response_only(int(status.split()[0]))
        for name, value in headers:
            if name.lower() not in ("status", "content-length"):
                self.send_header(name, value)
        self.send_header("Content-Length", str(len(answer)))
        self.end_headers()
        self.wfile.write(answer)

    def log_message(self, *_):
        pass


def server(root, port=0):
    """A server that is ready for `serve_forever`; its address is `server_address`."""
    made = ThreadingHTTPServer(("127.0.0.1", port), Handler)
    made.root = os.path.abspath(root)
    return made


if __name__ == "__main__":
    made = server(sys.argv[1], int(sys.argv[2]) if len(sys.argv) > 2 else 0)
    print("http://%s:%d" % made.server_address, flush=True)
    made.serve_forever()
