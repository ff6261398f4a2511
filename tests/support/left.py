"""What a version leaves behind, in Redis and in the topics, as text: taken from servers, and laid into others.

Names of keys and topics are kept without the prefix that they had.
"""

import asyncio
import json
from base64 import b64decode, b64encode
from collections import defaultdict
from pathlib import Path
from typing import Any

from aiokafka import AIOKafkaConsumer, AIOKafkaProducer, TopicPartition
from redis.asyncio import Redis

from haystream_service.kafka.connection import client_arguments, consumer_arguments
from haystream_service.settings import Settings
from support.pipeline import Pipeline, admin_client

MARK = ":generation"
TOPICS = ("queries", "items", "verdicts", "next-items")


async def take(pipeline: Pipeline, to: Path) -> None:
    """Write all that is there: a JSON object a line, a key of Redis, a record or an offset in each."""
    prefix = pipeline.settings.redis_prefix
    lines: list[dict[str, Any]] = []
    async with Redis.from_url(pipeline.settings.redis) as redis:
        for key in sorted([key async for key in redis.scan_iter(match=f"{prefix}:*")]):
            kind, name = (await redis.type(key)).decode(), key.decode().removeprefix(prefix)
            value = await _value(redis, kind, key)
            if name == MARK:
                value = value.replace(f":{pipeline.settings.topic_prefix}.", ":")
            lines.append({"key": name, kind: value})
    for topic in TOPICS:
        for record in sorted(await pipeline.records(topic), key=lambda r: (r.partition, r.offset)):
            record_key, value = map(_text, (record.key, record.value))
            where = {"topic": topic, "partition": record.partition, "time": record.timestamp}
            lines.append({**where, "record": [record_key, value]})
    async with admin_client(pipeline.settings) as admin:
        for group in _groups(pipeline.settings):
            offsets = await admin.list_consumer_group_offsets(group)
            for tp, found in sorted(offsets.items()):
                topic = tp.topic.removeprefix(f"{pipeline.settings.topic_prefix}.")
                if topic in TOPICS:
                    name = group.removeprefix(pipeline.settings.group)
                    where = {"topic": topic, "partition": tp.partition, "group": name}
                    lines.append({**where, "committed": found.offset})
    await asyncio.to_thread(to.write_text, "".join(json.dumps(line) + "\n" for line in lines))


async def lay(pipeline: Pipeline, path: Path) -> None:
    """Put it there, under the prefixes of the pipeline's settings."""
    settings = pipeline.settings
    lines = [json.loads(line) for line in (await asyncio.to_thread(path.read_text)).splitlines()]
    committed: defaultdict[str, dict[TopicPartition, int]] = defaultdict(dict)
    async with Redis.from_url(settings.redis) as redis, AIOKafkaProducer(**client_arguments(settings)) as producer:
        for line in lines:
            if "key" in line:
                name = line.pop("key")
                kind, value = line.popitem()
                if name == MARK:  # which may name the topic
                    value = value.replace(":", f":{settings.topic_prefix}.", 1)
                await _set(redis, f"{settings.redis_prefix}{name}", kind, value)
                continue
            topic = settings.topic(line["topic"])
            if "committed" in line:
                tp = TopicPartition(topic, line["partition"])
                committed[f"{settings.group}{line['group']}"][tp] = line["committed"]
                continue
            key, value = map(_bytes, line["record"])
            place = {"partition": line["partition"], "timestamp_ms": line["time"]}
            await producer.send_and_wait(topic, value, key, **place)
    for group, offsets in committed.items():
        async with AIOKafkaConsumer(**consumer_arguments(settings), group_id=group) as consumer:
            consumer.assign(list(offsets))
            await consumer.commit(offsets)


def _groups(settings: Settings) -> tuple[str, ...]:
    return settings.group, settings.items_group


async def _value(redis: "Redis[bytes]", kind: str, key: bytes) -> Any:
    match kind:
        case "string":
            return _text(await redis.get(key))
        case "set":
            return sorted(map(_text, await redis.smembers(key)))
        case "hash":
            return sorted([_text(name), _text(value)] for name, value in (await redis.hgetall(key)).items())
        case "stream":
            entries = await redis.xrange(key)
            return [[number.decode(), *map(_text, *fields.items())] for number, fields in entries]
    raise AssertionError(f"no version writes a {kind}")


async def _set(redis: "Redis[bytes]", key: str, kind: str, value: Any) -> None:
    match kind:
        case "string":
            await redis.set(key, _bytes(value))
        case "set":
            await redis.sadd(key, *map(_bytes, value))
        case "hash":
            await redis.hset(key, mapping=dict(map(_bytes, pair) for pair in value))
        case "stream":
            for number, field, text in value:
                await redis.xadd(key, {_bytes(field): _bytes(text)}, id=number)


def _text(raw: bytes | None) -> str | None:
    """UTF-8 where it is that, for whoever reads the file."""
    if raw is None:
        return None
    try:
        return f"={raw.decode()}"
    except UnicodeDecodeError:
        return f"#{b64encode(raw).decode()}"


def _bytes(text: str | None) -> bytes | None:
    if text is None:
        return None
    return text[1:].encode() if text[0] == "=" else b64decode(text[1:])
