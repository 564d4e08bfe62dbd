"""A server made with the official SDK, at an address that pods reach; it refuses who comes without TOKEN. `ADDRESS PORT`"""

import asyncio
import os
import socket
import sys
from datetime import date

import uvicorn
from mcp.server import MCPServer

server = MCPServer("clock", version="1.0")


@server.tool()
def days_until(day: str, today: str) -> int:
    """How many days there are from one day to another, both as 2026-11-30."""
    return (date.fromisoformat(day) - date.fromisoformat(today)).days


def guarded(app, token):
    async def answer(scope, receive, send):
        if scope["type"] == "http" and dict(scope["headers"]).get(b"authorization") != f"Bearer {token}".encode():
            await send({"type": "http.response.start", "status": 401, "headers": [(b"content-length", b"0")]})
            await send({"type": "http.response.body", "body": b""})
        else:
            await app(scope, receive, send)

    return answer


def main(address, port):
    app = guarded(server.streamable_http_app(host=address), os.environ["TOKEN"])
    listener = socket.create_server((address, int(port)))
    print(f"http://{address}:{listener.getsockname()[1]}/mcp", flush=True)
    config = uvicorn.Config(app, log_level="error")
    asyncio.run(uvicorn.Server(config).serve(sockets=[listener]))


main(*sys.argv[1:])
