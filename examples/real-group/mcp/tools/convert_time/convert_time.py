"""Nested pydantic models come back, and the library's own exception type goes out by its name."""

from mcp_server_time.server import TimeServer

server = TimeServer()


def convert_time(source_timezone, time, target_timezone):
    return server.convert_time(source_timezone, time, target_timezone)
