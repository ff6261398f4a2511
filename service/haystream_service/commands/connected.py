"""Where the commands of the queue find it: at HAYSTREAM_API, or, where no API runs, on Kafka and Redis alone.

The latter is the API, too: its application, in this process, for this one user.
"""

import asyncio
import getpass
import socket
import threading
from collections.abc import Callable, Coroutine, Iterator
from contextlib import contextmanager
from pathlib import Path
from secrets import token_urlsafe
from time import sleep
from typing import Any, TypeVar
from urllib.parse import urlsplit

import httpx
from typing_extensions import override

from haystream_service.client import ApiUnavailable, Haystream
from haystream_service.console import notes
from haystream_service.errors import UserError
from haystream_service.kafka.admin import check_topics
from haystream_service.kafka.connection import client_arguments
from haystream_service.kafka.records import SOURCES, BrokerUnavailable
from haystream_service.logs import quiet
from haystream_service.mounted import MountedSecret
from haystream_service.settings import Settings, load
from haystream_service.store.base import StoreRefused, StoreUnavailable

T = TypeVar("T")
TRYING = "What needs it is tried again for some 20 seconds ..."
QUIET_SECONDS = 1.0
"""Of waiting for the API of which nobody needs to be told."""
LOOK_SECONDS = 4.0
"""For servers to answer at the start, where only what they refuse is of interest."""


@contextmanager
def connected(config: Path | None) -> Iterator[Haystream]:
    """A client of the API. Raises `UserError`."""
    settings = load(config)
    if settings.api is not None:
        with _there(settings, settings.api) as client:
            yield client
        return
    with quiet():
        own = _Here(settings)
        try:
            own.check()
            with Haystream("http://here", own.token, transport=own) as client:
                yield client
        except (ApiUnavailable, StoreRefused) as error:
            where = f"{settings.kafka} (HAYSTREAM_KAFKA) and {settings.redis} (HAYSTREAM_REDIS)"
            if settings.redis_prefix != Settings().redis_prefix:
                where += f", where keys begin with {settings.redis_prefix}: (HAYSTREAM_REDIS_PREFIX)"
            raise ApiUnavailable(f"{error}\nasked were {where}") from None
        finally:
            own.end()


@contextmanager
def connected_if_named(config: Path | None) -> Iterator[Haystream | None]:
    """A client of the API at HAYSTREAM_API; None where that is not set. Raises `UserError`."""
    settings = load(config)
    if settings.api is None:
        yield None
        return
    with _there(settings, settings.api) as client:
        yield client


def _there(settings: Settings, address: str) -> Haystream:
    token = MountedSecret(settings.api_token, settings.api_token_file)
    if not token:
        raise UserError("the API asks for a token: HAYSTREAM_API_TOKEN_FILE (or HAYSTREAM_API_TOKEN)")
    return Haystream(address, token.read(), ca_file=settings.api_ca_file, pause=_patience(address))


def _patience(address: str) -> Callable[[float], None]:
    """A pause between two tries which says, once and at a terminal, what is waited for where that takes long."""
    waited = 0.0

    def pause(seconds: float) -> None:
        nonlocal waited
        if notes.is_terminal and waited <= QUIET_SECONDS < waited + seconds:
            notes.print(f"{address} (HAYSTREAM_API) gives no answer yet. {TRYING}", markup=False)
        waited += seconds
        sleep(seconds)

    return pause


async def _check_hosts(settings: Settings) -> None:
    """Raise `UserError` where a setting names hosts of which there is none."""
    named = {"HAYSTREAM_KAFKA": settings.kafka, "HAYSTREAM_REDIS": urlsplit(settings.redis).netloc}
    for variable, addresses in named.items():
        hosts = [str(urlsplit(f"//{address}").hostname) for address in addresses.split(",") if address]
        if hosts and not any([await _is_known(host) for host in hosts]):
            raise UserError(f"there is no host {' and no '.join(hosts)} ({variable})")


async def _is_known(host: str) -> bool:
    """Whether the host's name has an address, or may have one in a moment."""
    try:
        await asyncio.get_running_loop().getaddrinfo(host, None)
    except socket.gaierror as error:
        return error.errno != socket.EAI_NONAME
    return True


class _Here(httpx.BaseTransport):
    """The application in this process, on an event loop in a thread of its own."""

    def __init__(self, settings: Settings) -> None:
        try:
            from haystream_service.api.access import EVERY_COLLECTION, Caller, Role
            from haystream_service.api.serve import Replica
            from haystream_service.api.tokens import Doorkeeper
        except ImportError as missing:
            raise UserError(
                f"without HAYSTREAM_API this needs packages that are not there ({missing.name}): "
                "pip install 'haystream[api]'"
            ) from None
        self.token = token_urlsafe()
        me = Caller(getpass.getuser(), frozenset(Role), frozenset({EVERY_COLLECTION}))
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, daemon=True)
        self._thread.start()

        async def made() -> tuple[Replica, httpx.ASGITransport]:
            replica = Replica(settings, Doorkeeper.for_one(self.token, me))
            return replica, httpx.ASGITransport(replica.app)

        self._replica, self._transport = self._run(made())

    def check(self) -> None:
        """Raise `UserError` for what no waiting mends, where requests would wait, or call it a bug: certificates,
        hosts and topics that are not there, a Redis that lets nobody in. At a terminal say what they will wait for.
        """
        client_arguments(self._replica.settings)
        self._run(self._look())

    async def _look(self) -> None:
        settings, store = self._replica.settings, self._replica.store
        try:
            async with asyncio.timeout(LOOK_SECONDS):
                await _check_hosts(settings)
                await store.ping()
                await check_topics(settings, *SOURCES.values())
                if await store.generation() is None:
                    raise StoreUnavailable(f"Redis has nothing under {settings.redis_prefix}: yet")
        except StoreRefused:
            raise
        except (TimeoutError, StoreUnavailable, BrokerUnavailable) as error:
            if notes.is_terminal:
                why = str(error).rstrip(".") or f"no answer within {LOOK_SECONDS:g} s"
                notes.print(f"{why}. {TRYING}", markup=False)

    @override
    def handle_request(self, request: httpx.Request) -> httpx.Response:
        """Answer a request, with the whole answer."""

        async def answered() -> httpx.Response:
            body = request.read()
            found = await self._transport.handle_async_request(
                httpx.Request(request.method, request.url, headers=request.headers, content=body)
            )
            return httpx.Response(found.status_code, headers=found.headers, content=await found.aread())

        try:
            return self._run(answered())
        except BrokerUnavailable as error:  # when the answer had begun: before, it is a problem
            raise ApiUnavailable(f"unavailable: {error}") from None

    def end(self) -> None:
        """Finish what is under way, let go of Kafka and Redis."""
        self._run(self._replica.close())
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()

    def _run(self, work: Coroutine[Any, Any, T]) -> T:
        return asyncio.run_coroutine_threadsafe(work, self._loop).result()
