"""Settings of the services: defaults, then a TOML file, then the environment (HAYSTREAM_…), then arguments.

Nothing is read at import: `load` reads, once, where a program starts.
"""

import os
import re
import tomllib
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any

from pydantic import BaseModel, ConfigDict, Field, StringConstraints, ValidationError

from haystream_service.errors import UserError

PREFIX = "HAYSTREAM_"
CONFIG = "HAYSTREAM_CONFIG"

# What Kafka takes as the name of a topic or a group. Also goes into Redis keys, so no braces or colons.
Name = Annotated[str, StringConstraints(min_length=1, max_length=200, pattern=r"^[A-Za-z0-9._-]+$")]
Servers = Annotated[str, StringConstraints(pattern=r"^[^\s,:/]+:\d+(,[^\s,:/]+:\d+)*$")]
RedisUrl = Annotated[str, StringConstraints(pattern=r"^(rediss?|unix)://\S+$")]

EXPECTED = {
    "kafka": "host:port, or several with commas between",
    "redis": "a URL such as redis://host:6379/0",
    "redis_cluster": "true or false",
    "topic_prefix": "letters, digits, dots, dashes and underscores",
    "redis_prefix": "letters, digits, dots, dashes and underscores",
    "group": "letters, digits, dots, dashes and underscores",
    "instance_id": "letters, digits, dots, dashes and underscores",
}


class SettingsError(UserError):
    """A setting that cannot be used. The text names where it came from, its value and what was expected."""


class Settings(BaseModel):
    """All that can be set. The environment's name of a field is HAYSTREAM_ and the field's name."""

    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)

    kafka: Servers = "127.0.0.1:9092"
    """Kafka's bootstrap servers."""
    redis: RedisUrl = "redis://127.0.0.1:6379/0"
    redis_cluster: bool = False
    """Whether that is a node of a Redis Cluster."""
    topic_prefix: Name = "haystream"
    """Topics are PREFIX.queries, PREFIX.items and so on."""
    redis_prefix: Name = "haystream"
    group: Name = "haystream-worker"
    """The workers' consumer group."""
    instance_id: Name | None = None
    """Static membership: a worker that restarts with the same id rejoins without a rebalance."""
    host: str = Field(default="127.0.0.1", min_length=1)
    """Where the worker serves /metrics, /healthz and /readyz; 0.0.0.0 in a container."""
    port: int = Field(default=6066, ge=0, le=65535)
    """0: any free port."""
    partitions: int = Field(default=8, ge=1, le=10_000)
    """Of topics that are created. All topics that exist must have the same number."""
    replication: int = Field(default=1, ge=1, le=100)
    tolerance: float = Field(default=2e-5, gt=0, le=1e-2)
    """How exactly the local engine solves for the posterior means."""
    drain_seconds: float = Field(default=20, ge=0, le=3600)
    """What a worker that is told to stop has to finish its batches. Kubernetes' grace period is above it."""
    item_publish_seconds: float = Field(default=0.25, ge=0, le=3600)
    """How often new items are let in and ranked; verdicts never wait for them."""
    max_batch: int = Field(default=1000, ge=1, le=1_000_000)
    """Events that one batch of a mailbox takes at most: bounds the size of a Redis script's arguments."""
    mailbox_size: int = Field(default=10_000, ge=1, le=10_000_000)
    """Events that wait per query or collection; above it, reading from Kafka pauses."""
    data_dir: Path | None = None
    """Where Faust keeps its own files; a temporary folder by default."""
    labelled_queries: int = Field(default=50, ge=0, le=10_000)
    """Queries that get metric series of their own; the others share one labelled `other`."""

    def topic(self, name: str) -> str:
        """The full name of one of our topics, such as `next-items`."""
        return f"{self.topic_prefix}.{name}"


def load(config: Path | None = None, *, environ: Mapping[str, str] | None = None, **given: Any) -> Settings:
    """The settings; raises `SettingsError`.

    `config` is a TOML file, by default the one that HAYSTREAM_CONFIG names, if any. `environ` stands in for
    the process's environment. Keyword arguments win over both; None among them means: not given.
    """
    environ = os.environ if environ is None else environ
    if config is None and environ.get(CONFIG):
        config = Path(environ[CONFIG])
    values: dict[str, Any] = {}
    origin: dict[str, str] = {}
    for name, value in (_file(config) if config is not None else {}).items():
        values[name], origin[name] = value, f"{name} in {config}"
    for name in Settings.model_fields:
        variable = PREFIX + name.upper()
        # An empty variable is the same as none: that is how compose files and manifests leave one out.
        if environ.get(variable):
            values[name], origin[name] = environ[variable], variable
    for name, value in given.items():
        if value is not None:
            values[name], origin[name] = value, name
    try:
        return Settings.model_validate(values)
    except ValidationError as error:
        raise SettingsError(_explain(error, origin)) from None


def _file(path: Path) -> dict[str, Any]:
    try:
        with path.open("rb") as file:
            return tomllib.load(file)
    except OSError as error:
        raise SettingsError(f"cannot read the settings in {path}: {error.strerror}") from None
    except ValueError as error:
        raise SettingsError(f"the settings in {path} are not TOML: {error}") from None


def _explain(error: ValidationError, origin: Mapping[str, str]) -> str:
    lines = []
    for problem in error.errors(include_url=False):
        name = str(problem["loc"][0])
        where = origin.get(name, name)
        if problem["type"] == "extra_forbidden":
            lines.append(f"{where}: there is no such setting; there are {', '.join(Settings.model_fields)}")
            continue
        shown = re.sub(r"(?<=://)[^@]*(?=@)", "***", str(problem["input"]))[:200]
        expected = EXPECTED.get(name) or problem["msg"].removeprefix("Input should be ")
        lines.append(f"{where} is {shown!r}: expected {expected}")
    return "\n".join(lines)
