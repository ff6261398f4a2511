"""/metrics, /healthz and /readyz of a worker. Nothing else is served: Faust's own pages are off."""

from collections.abc import Callable

from aiohttp import web
from prometheus_client import CONTENT_TYPE_LATEST, CollectorRegistry, generate_latest


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
        """Serve; port 0 is any free one. Raises OSError where the port is taken."""
        await self._runner.setup()
        site = web.TCPSite(self._runner, host, port)
        await site.start()
        self.port = self._runner.addresses[0][1]

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
