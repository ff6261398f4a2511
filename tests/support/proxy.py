"""A TCP proxy on 127.0.0.1 that can slow down or cut what goes through it."""

import asyncio
from contextlib import suppress

from haystream_service.local import free_port

CHUNK = 1 << 16


class Proxy:
    """Passes bytes on to a port. It listens on a port of its own, which stays the same.

    It lives in the event loop that called `start`.
    """

    def __init__(self, target: int) -> None:
        self.port = free_port()
        self.delay = 0.0
        """Seconds that everything is late, in each direction."""
        self.target = target
        self._open = asyncio.Event()
        self._open.set()
        self._writers: set[asyncio.StreamWriter] = set()
        self._server: asyncio.Server | None = None

    async def start(self) -> None:
        """Listen."""
        self._server = await asyncio.start_server(self._serve, "127.0.0.1", self.port)

    async def close(self) -> None:
        """Listen no more, and drop what is connected."""
        if self._server is not None:
            self._server.close()
        self._drop()

    def cut(self) -> None:
        """As a network that is gone: connections stay, new ones are taken, and no byte gets through."""
        self._open.clear()

    def heal(self) -> None:
        """Everything goes through again, at once: also what was sent meanwhile on connections that were kept."""
        self.delay = 0.0
        self._open.set()

    def reset(self) -> None:
        """Close every connection, as a load balancer that restarts."""
        self._drop()

    def _drop(self) -> None:
        for writer in list(self._writers):
            writer.transport.abort()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._writers.add(writer)
        onward: asyncio.StreamWriter | None = None
        try:
            await self._open.wait()
            back, onward = await asyncio.open_connection("127.0.0.1", self.target)
            self._writers.add(onward)
            await asyncio.gather(self._pass(reader, onward), self._pass(back, writer))
        except OSError:
            pass  # the target does not listen, or a side hung up: so does the proxy
        finally:
            for end in (writer, onward):
                if end is not None:
                    self._writers.discard(end)
                    end.transport.abort()

    async def _pass(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with suppress(OSError):
            while data := await reader.read(CHUNK):
                if self.delay:
                    await asyncio.sleep(self.delay)
                await self._open.wait()
                writer.write(data)
                await writer.drain()
        writer.transport.abort()
