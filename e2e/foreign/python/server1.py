"""A server made with the official Python SDK, first line: `server1.py stdio|http`; over HTTP it prints its address. The same as
client/tests/python_servers/server.py."""

import asyncio
import socket
import sys

import uvicorn
from mcp.server.fastmcp import Context, FastMCP

server = FastMCP("official-python")


@server.tool()
def add(a: int, b: int) -> int:
    """Adds."""
    return a + b


@server.tool()
def fail(why: str) -> str:
    """Fails."""
    raise ValueError(why)


@server.tool()
async def steps(ctx: Context) -> str:
    """Reports progress."""
    for step in range(3):
        await ctx.report_progress(step, 3, f"step {step}")
    return "done"


@server.resource("demo://text")
def text() -> str:
    """A text."""
    return "the text"


@server.prompt()
def review(code: str) -> str:
    """Reviews."""
    return f"Please review: {code}"


if sys.argv[1] == "stdio":
    server.run("stdio")
else:
    listener = socket.create_server(("127.0.0.1", 0))
    print(f"http://127.0.0.1:{listener.getsockname()[1]}/mcp", flush=True)
    config = uvicorn.Config(server.streamable_http_app(), log_level="error")
    asyncio.run(uvicorn.Server(config).serve(sockets=[listener]))
