"""What topics that exist are configured with, and what is wrong with that: said with the command that mends it."""

import logging
from collections.abc import Iterator, Mapping

from aiokafka.admin import AIOKafkaAdminClient
from aiokafka.admin.config_resource import ConfigResource, ConfigResourceType

from haystream_service.errors import UserError
from haystream_service.settings import Settings

log = logging.getLogger(__name__)

Configuration = Mapping[str, str]

OVERHEAD = 4096
"""Of `max.message.bytes`, what a message's key and Kafka's own frame take at most."""
LEAST_MESSAGE_BYTES = 64 << 10
"""A topic that takes less would not even take a dead letter without its payload, or a lease with long ids."""
FACTS = ("items", "verdicts", "leases")
"""Topics of which every record counts, whatever came later under its key."""
PUBLISHED = ("leases",)
"""Of those that take as much as the broker has it, what we publish to."""

KEPT = {"retention.bytes": "-1"}


async def configurations(admin: AIOKafkaAdminClient, topics: list[str]) -> dict[str, Configuration]:
    """By topic, what it is configured with; without those that Kafka does not tell of."""
    asked = [ConfigResource(ConfigResourceType.TOPIC, topic) for topic in topics]
    answers = await admin.describe_configs(asked) if topics else []
    return {
        topic: {name: value for name, value, *_ in entries}
        for answer in answers
        for error, _, _, topic, entries in answer.resources
        if not error
    }


def check(settings: Settings, found: Mapping[str, Configuration], wanted: Mapping[str, Configuration]) -> None:
    """Log a warning for what is not as we would have made it, both by name without the prefix.

    Raises:
        UserError: facts would be lost, or nothing could be published.
    """
    for name, configuration in found.items():
        for fatal, problem, mend in _problems(name, configuration, wanted[name]):
            topic = settings.topic(name)
            text = f"topic {topic} {problem}. Mend it with: {command(settings, topic, mend)}"
            if fatal:
                raise UserError(text)
            log.warning("%s", text)


def command(settings: Settings, topic: str, mend: Configuration) -> str:
    """What gives the topic this configuration."""
    changes = ",".join(f"{name}=[{value}]" if "," in value else f"{name}={value}" for name, value in mend.items())
    return (
        f"kafka-configs.sh --bootstrap-server {settings.kafka} --alter --entity-type topics --entity-name {topic}"
        f" --add-config {changes}"
    )


def _problems(name: str, found: Configuration, wanted: Configuration) -> Iterator[tuple[bool, str, Configuration]]:
    """Whether nothing can be done with it, what is the matter, and what to set."""
    policies = {policy.strip() for policy in found.get("cleanup.policy", wanted["cleanup.policy"]).split(",")}
    retention = found.get("retention.ms", "-1")
    forever = wanted["cleanup.policy"] == "compact" or wanted.get("retention.ms") == "-1"
    if "compact" in policies and name in FACTS:
        yield True, "is compacted, which deletes all but the last record of a key", wanted
    elif policies != {wanted["cleanup.policy"]} and not (policies == {"delete"} and retention == "-1"):
        is_so, should = ",".join(sorted(policies)), wanted["cleanup.policy"]
        yield False, f"has cleanup.policy={is_so}, where {should} is wanted", wanted
    elif "delete" in policies and retention != "-1" and forever:
        yield False, f"forgets its records after {retention} ms: `haystream rebuild` would bring less back", wanted
    if "delete" in policies and found.get("retention.bytes", "-1") != "-1" and wanted.get("retention.ms") == "-1":
        yield False, "forgets its records as it grows: `haystream rebuild` would bring less back", KEPT
    takes = int(found.get("max.message.bytes", LEAST_MESSAGE_BYTES))
    publishes = int(wanted.get("max.message.bytes", LEAST_MESSAGE_BYTES if name in PUBLISHED else 0))
    mend = {"max.message.bytes": str(publishes)}
    if publishes and takes < LEAST_MESSAGE_BYTES:
        yield True, f"takes messages of {takes} bytes, and {LEAST_MESSAGE_BYTES} is the least to work with", mend
    elif takes < publishes:
        yield False, f"takes messages of {takes} bytes: what is longer is cut to that", mend
