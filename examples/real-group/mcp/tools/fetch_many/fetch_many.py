"""An async tool: one client and one event loop serve every call of this package.

The server is part of the example, so that nothing outside this machine is contacted.
"""

import asyncio

import httpx

client = httpx.AsyncClient(timeout=10, trust_env=False)


async def answer(reader, writer):
    request_line = (await reader.readline()).decode("latin-1")
    while (await reader.readline()).strip():
        pass
    path = request_line.split(" ")[1]
    status = "404 Not Found" if path == "/missing" else "200 OK"
    body = f"hello from {path}".encode()
    head = f"HTTP/1.1 {status}\r\ncontent-length: {len(body)}\r\nconnection: close\r\n\r\n"
    writer.write(head.encode() + body)
    await writer.drain()
    writer.close()


async def fetch_many(paths):
    server = await asyncio.start_server(answer, "127.0.0.1", 0)
    async with server:
        host, port = server.sockets[0].getsockname()
        responses = await asyncio.gather(*(client.get(f"http://{host}:{port}{path}") for path in paths))
    return [
        {"path": path, "status": response.status_code, "text": response.text}
        for path, response in zip(paths, responses, strict=True)
    ]
