"""/metrics, /healthz and /readyz of a worker or a replica of the API. Nothing else: Faust's own pages are off."""

import logging
from collections.abc import Callable

from aiohttp import web
from prometheus_client import CONTENT_TYPE_LATEST, CollectorRegistry, generate_latest

from haystream_service.errors import UserError

log = logging.getLogger(__name__)


class Probes:
    """A small HTTP server. It answers from the start on, so that a worker that waits for Kafka says so."""

    def __init__(
        self,
        registry: CollectorRegistry,
        *,
        ready: Callable[[], list[str]],
        healthy: Callable[[], list[str]],
    ) -> None:
        self._registry = registry
        self._ready = ready
        self._healthy = healthy
        app = web.Application()
        app.router.add_get("/metrics", self._metrics)
        app.router.add_get("/healthz", self._healthz)
        app.router.add_get("/readyz", self._readyz)
        self._runner = web.AppRunner(app, access_log=None, handle_signals=False)
        self.port = 0
        """What was bound, once started."""

    async def start(self, host: str, port: int) -> None:
        """Serve; port 0 is any free one. Raises `UserError` where that cannot be."""
        await self._runner.setup()
        try:
            await web.TCPSite(self._runner, host, port).start()
        except OSError as error:
            raise UserError(
                f"cannot serve /metrics on {host}:{port}: {error.strerror}. "
                "Name another address with HAYSTREAM_HOST, or another port with HAYSTREAM_PORT"
            ) from None
        self.port = self._runner.addresses[0][1]
        log.info("serving /metrics, /healthz and /readyz on %s:%d", host, self.port)

    async def stop(self) -> None:
        """Serve no more."""
        await self._runner.cleanup()

    async def _metrics(self, _: web.Request) -> web.Response:
        return web.Response(body=generate_latest(self._registry), headers={"Content-Type": CONTENT_TYPE_LATEST})

    async def _healthz(self, _: web.Request) -> web.Response:
        return _answer(self._healthy())

    async def _readyz(self, _: web.Request) -> web.Response:
        return _answer(self._ready())


def _answer(reasons: list[str]) -> web.Response:
    """200, or 503 with the reasons, one a line."""
    return web.Response(status=503 if reasons else 200, text="\n".join(reasons or ["ok"]) + "\n")
