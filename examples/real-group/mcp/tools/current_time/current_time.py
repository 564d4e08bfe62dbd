"""`import mcp` inside that library finds the installed one, not this repo's mcp/ folder."""

from mcp_server_time.server import TimeServer

server = TimeServer()


def current_time(timezone):
    return server.get_current_time(timezone)
