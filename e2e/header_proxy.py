"""A TCP proxy that adds one header to every HTTP/1.1 request: for test programs that cannot send a key."""

import asyncio
import threading


class HeaderProxy:
    def __init__(self, target, header):
        self.target, self.header = target, header
        self.loop = asyncio.new_event_loop()
        started = threading.Event()
        self.thread = threading.Thread(target=self._run, args=(started,), daemon=True)
        self.thread.start()
        started.wait()

    def _run(self, started):
        asyncio.set_event_loop(self.loop)
        self.server = self.loop.run_until_complete(asyncio.start_server(self._serve, "127.0.0.1", 0))
        self.port = self.server.sockets[0].getsockname()[1]
        started.set()
        self.loop.run_forever()

    async def _serve(self, reader, writer):
        try:
            upstream_reader, upstream_writer = await asyncio.open_connection(*self.target)
        except OSError:
            writer.close()
            return
        back = asyncio.ensure_future(self._copy(upstream_reader, writer))
        try:
            while head := await reader.readuntil(b"\r\n\r\n"):
                lines = head[:-4].split(b"\r\n")
                upstream_writer.write(b"\r\n".join([*lines, self.header.encode()]) + b"\r\n\r\n")
                fields = {line.split(b":", 1)[0].lower(): line.split(b":", 1)[1].strip() for line in lines[1:]}
                if fields.get(b"transfer-encoding", b"").lower() == b"chunked":
                    while True:
                        size = await reader.readline()
                        upstream_writer.write(size + await reader.readexactly(int(size, 16) + 2))
                        if int(size, 16) == 0:
                            break
                elif length := int(fields.get(b"content-length", 0)):
                    upstream_writer.write(await reader.readexactly(length))
                await upstream_writer.drain()
        except (asyncio.IncompleteReadError, ConnectionError):
            pass
        finally:
            upstream_writer.close()
            back.cancel()

    async def _copy(self, reader, writer):
        try:
            while data := await reader.read(65536):
                writer.write(data)
                await writer.drain()
        except ConnectionError:
            pass
        finally:
            writer.close()

    def stop(self):
        self.loop.call_soon_threadsafe(self.loop.stop)
        self.thread.join()
