"""Serves an ASGI app with uvicorn on uvloop, on a free port."""

import socket

import uvicorn
import uvloop
from calculator import announce


def serve(app):
    listener = socket.create_server(("127.0.0.1", 0), backlog=1024)
    announce(listener.getsockname()[1])
    server = uvicorn.Server(uvicorn.Config(app, log_level="error", access_log=False))
    uvloop.run(server.serve(sockets=[listener]))
