"""The least that a Faust service can do with verdicts and items: what the pipeline is held to.

It answers a verdict with the verdict, and reads items past. Run as a process of its own, as a worker is:

    python -m haystream_service.bench.noop KAFKA TOPIC_PREFIX DATA_DIR
"""

import asyncio
import sys
from collections.abc import AsyncIterator
from typing import Any

import faust
from yarl import URL

from haystream_service.local import LocalServer
from haystream_service.worker.app import COMMIT_SECONDS

LAST = b"last"
"""The key of an item that is answered, too."""


class NoopProcess(LocalServer):
    """The no-op agent as a process."""

    name = "the no-op agent"

    def __init__(self, kafka: str, prefix: str) -> None:
        super().__init__(data_dir=None, start_seconds=30.0)
        self._arguments = kafka, prefix

    def command(self) -> list[str]:
        """This module, by this interpreter."""
        return [sys.executable, "-m", __name__, *self._arguments, str(self.data_dir)]

    def answers(self) -> bool:
        """It has no pages; its first answer shows that it works."""
        return True


def build(kafka: str, prefix: str, data_dir: str) -> faust.App:
    """The app, not started."""
    app = faust.App(
        f"{prefix}-noop",
        broker=[URL(f"kafka://{kafka}")],
        version=1,
        autodiscover=False,
        store="memory://",
        datadir=data_dir,
        web_enabled=False,
        topic_allow_declare=False,
        topic_disable_leader=True,
        consumer_auto_offset_reset="earliest",
        broker_commit_interval=COMMIT_SECONDS,
    )
    raw: dict[str, Any] = {
        "key_type": bytes,
        "value_type": bytes,
        "key_serializer": "raw",
        "value_serializer": "raw",
    }
    verdicts, items, answers = (
        app.topic(f"{prefix}.{name}", **raw) for name in ("verdicts", "items", "next-items")
    )

    async def answer(stream: Any) -> None:
        events: AsyncIterator[Any] = stream.events()
        async for event in events:
            await (await answers.send(key=event.message.key, value=event.message.value))

    async def read_past(stream: Any) -> None:
        events: AsyncIterator[Any] = stream.events()
        async for event in events:
            if event.message.key == LAST:
                await (await answers.send(key=LAST, value=event.message.value))

    app.agent(verdicts, name="noop-verdicts")(answer)
    app.agent(items, name="noop-items")(read_past)
    return app


async def main() -> None:
    """Work until the process is ended."""
    app = build(*sys.argv[1:])
    await app.start()
    await app.wait_until_stopped()


if __name__ == "__main__":
    asyncio.run(main())
