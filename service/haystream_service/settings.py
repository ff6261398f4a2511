"""Settings of the services: defaults, then a TOML file, then the environment (HAYSTREAM_…), then arguments.

Nothing is read at import: `load` reads, once, where a program starts. Secrets are `SecretStr`, or files that are
read when a connection is made (`mounted`); no text that is made here holds one.
"""

import logging
import os
import re
import tomllib
from codecs import BOM_UTF8
from collections.abc import Iterator, Mapping
from functools import cache
from pathlib import Path
from typing import Annotated, Any, Literal, Self
from urllib.parse import parse_qsl, unquote, urlencode, urlsplit

from pydantic import (
    BaseModel,
    ConfigDict,
    Field,
    SecretStr,
    StringConstraints,
    ValidationError,
    model_validator,
)

from haystream_service.errors import UserError

log = logging.getLogger(__name__)

PREFIX = "HAYSTREAM_"
CONFIG = "HAYSTREAM_CONFIG"
NO_SETTINGS = (CONFIG, "HAYSTREAM_DATA")
"""Variables of ours that are none: the file of settings, and where graphs to measure on are."""

# What Kafka takes as the name of a topic or a group. Also goes into Redis keys, so no braces or colons.
Name = Annotated[str, StringConstraints(min_length=1, max_length=200, pattern=r"^[A-Za-z0-9._-]+$")]
Servers = Annotated[str, StringConstraints(pattern=r"^[^\s,:/]+:\d+(,[^\s,:/]+:\d+)*$")]
RedisUrl = Annotated[
    str,
    StringConstraints(
        pattern=r"^(rediss?://HOST(,HOST)*(/\d*)?|unix:///[^\s@?#]+)(\?[^\s@#]*)?$".replace(
            "HOST", r"(\[[0-9a-fA-F:.]+\]|[^\s:/@?#,\[\]]+)(:\d+)?"
        )
    ),
]
ApiUrl = Annotated[str, StringConstraints(pattern=r"^https?://[^\s/?#@]+(/[^\s?#]*)?$")]
Origins = Annotated[str, StringConstraints(pattern=r"^https?://[^\s/?#@,]+(,https?://[^\s/?#@,]+)*$")]
Secret = Annotated[SecretStr, Field(min_length=1)]
Text = Annotated[str, StringConstraints(min_length=1)]

EXPECTED = {
    "kafka": "host:port, or several with commas between",
    "redis": "a URL such as redis://host:6379/0; HAYSTREAM_REDIS_PASSWORD takes any password, a URL not / # ? %",
    "redis_cluster": "true or false",
    "redis_sentinel": "letters, digits, dots, dashes and underscores",
    "kafka_tls": "true or false",
    "topic_prefix": "letters, digits, dots, dashes and underscores",
    "redis_prefix": "letters, digits, dots, dashes and underscores",
    "group": "letters, digits, dots, dashes and underscores",
    "instance_id": "letters, digits, dots, dashes and underscores",
    "api": "a URL such as http://127.0.0.1:8080",
    "api_oidc_jwks": "a URL such as https://login.example.org/keys",
    "api_cors_origins": "https://host, or several with commas between",
}


class SettingsError(UserError):
    """A setting that cannot be used. The text names where it came from, its value and what was expected."""


class Settings(BaseModel):
    """All that can be set. The environment's name of a field is HAYSTREAM_ and the field's name."""

    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False, hide_input_in_errors=True)

    kafka: Servers = "127.0.0.1:9092"
    """Kafka's bootstrap servers."""
    kafka_tls: bool = False
    kafka_ca_file: Path | None = None
    """Certificates (PEM) of whoever signs the brokers'; by default those that the system trusts."""
    kafka_cert_file: Path | None = None
    """Our own certificate (PEM), for mutual TLS, with what leads to its root."""
    kafka_key_file: Path | None = None
    """Its private key, where that is not in the same file."""
    kafka_key_password: Secret | None = None
    kafka_key_password_file: Path | None = None
    kafka_sasl: Literal["PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512"] | None = None
    kafka_user: Text | None = None
    kafka_password: Secret | None = None
    kafka_password_file: Path | None = None
    redis: RedisUrl = "redis://127.0.0.1:6379/0"
    """Without user and password: a URL that holds them is taken apart, into the settings for them."""
    redis_cluster: bool = False
    """Whether that is a node of a Redis Cluster."""
    redis_sentinel: Name | None = None
    """What sentinels call the Redis to use. The URL is then that of a sentinel, or of several."""
    redis_sentinel_password: Secret | None = None
    """Of the sentinels themselves; Redis' own is `redis_password`."""
    redis_sentinel_password_file: Path | None = None
    redis_user: Text | None = None
    redis_password: Secret | None = None
    redis_password_file: Path | None = None
    redis_ca_file: Path | None = None
    redis_cert_file: Path | None = None
    redis_key_file: Path | None = None
    redis_key_password: Secret | None = None
    redis_key_password_file: Path | None = None
    topic_prefix: Name = "haystream"
    """Topics are PREFIX.queries, PREFIX.items and so on."""
    redis_prefix: Name = "haystream"
    group: Name = "haystream-worker"
    """The workers' consumer group; items are read by another, of this name and -items."""
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
    totals_seconds: float = Field(default=5, ge=0, le=3600)
    """How long new items that change nothing of a ranking's `items` wait until its totals are published, or longer
    where hundreds of queries are in memory."""
    idle_seconds: float = Field(default=900, ge=0, le=1e9)
    """How long a query is kept in memory that nothing comes for, and a collection that no query in memory needs."""
    queries_in_memory: int = Field(default=1000, ge=1, le=1_000_000)
    """Of more, those that nothing has come for the longest are put away; they come back with their next event."""
    memory_mib: int = Field(default=0, ge=0, le=1 << 30)
    """The same where the worker holds more memory than this, once they are all slim; 0: without bound."""
    slim_seconds: float = Field(default=60, ge=0, le=1e9)
    """How long nothing is done in a query until it gives up memory for what it can compute again."""
    refresh_seconds: float = Field(default=30, gt=0, le=1e6)
    """How long new items wait, at least, until queries that are put away take them in, one after the other."""
    max_batch: int = Field(default=1000, ge=1, le=1_000_000)
    """Events that one batch of a mailbox takes at most: bounds the size of a Redis script's arguments."""
    mailbox_size: int = Field(default=10_000, ge=1, le=10_000_000)
    """Records of one partition in hand; at so many its reading pauses, and no other partition's."""
    data_dir: Path | None = None
    """Where Faust keeps its own files; a temporary folder by default."""
    labelled_queries: int = Field(default=50, ge=0, le=10_000)
    """Queries that get metric series of their own; the others share one labelled `other`."""
    api: ApiUrl | None = None
    """Where the client and the commands that use it find the API."""
    api_token: Secret | None = None
    api_token_file: Path | None = None
    api_ca_file: Path | None = None
    """Certificates (PEM) of whoever signs the API's, for the client."""
    api_port: int = Field(default=8080, ge=0, le=65535)
    """Where `haystream api` serves; 0: any free port. Its /metrics and probes are on `port`."""
    api_keys_file: Path | None = None
    """The keys that `haystream api` knows (`haystream api-key`)."""
    api_oidc_issuer: Text | None = None
    """Whose tokens `haystream api` takes, too; goes with `api_oidc_audience` and `api_oidc_jwks`."""
    api_oidc_audience: Text | None = None
    api_oidc_jwks: ApiUrl | None = None
    """Where that issuer's public keys are."""
    api_cors_origins: Origins | None = None
    """Origins, with commas between, whose pages may use the API; by default none but its own."""
    api_rate: float = Field(default=200, gt=0, le=1e6)
    """Requests a second that a replica takes of one subject; twice as many at once."""
    api_body_mib: int = Field(default=16, ge=1, le=1024)
    """The largest body of items; any other may have 1 MiB."""
    log_format: Literal["text", "json"] = "text"
    """How the worker writes its log: lines to be read by a person, or a JSON object in each."""

    def topic(self, name: str) -> str:
        """The full name of one of our topics, such as `next-items`."""
        return f"{self.topic_prefix}.{name}"

    @property
    def items_group(self) -> str:
        """The consumer group that reads items; `group` reads queries and verdicts."""
        return f"{self.group}-items"

    @model_validator(mode="before")
    @classmethod
    def _credentials_apart(cls, values: Any) -> Any:
        """User and password out of the URL of Redis, so that it can be shown."""
        if not isinstance(values, dict) or not isinstance(values.get("redis"), str):
            return values
        try:
            url, found = _apart(values["redis"])
        except ValueError:
            return values  # no URL, which the field's own check says
        for name in found:
            if values.get(name) or (name == "redis_password" and values.get("redis_password_file")):
                raise ValueError(
                    f"{_variable('redis')} holds what {_variable(name)} is for: give it in one of them"
                )
        return {**values, **found, "redis": url}

    @model_validator(mode="after")
    def _fit_together(self) -> Self:
        if wrong := [problem for problems in FIT_TOGETHER for problem in problems(self)]:
            raise ValueError("\n".join(wrong))
        return self


SASL = ("PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512")
SECRETS = (
    "kafka_password",
    "kafka_key_password",
    "redis_password",
    "redis_key_password",
    "redis_sentinel_password",
    "api_token",
)
"""Each may be given in a file, which the setting with `_file` at its end names."""
OIDC = ("api_oidc_issuer", "api_oidc_audience", "api_oidc_jwks")
TLS_PARTS = ("ca_file", "cert_file", "key_file", "key_password", "key_password_file")


def _secrets_twice(settings: Settings) -> Iterator[str]:
    for name in SECRETS:
        if getattr(settings, name) is not None and getattr(settings, f"{name}_file") is not None:
            yield f"{_variable(name)} and {_variable(name)}_FILE are both given: give one of them"


def _tls_in_part(settings: Settings) -> Iterator[str]:
    for server, tls, on in (
        ("kafka", settings.kafka_tls, "HAYSTREAM_KAFKA_TLS=true"),
        ("redis", settings.redis.startswith("rediss:"), "a rediss:// URL"),
    ):
        given = [name for part in TLS_PARTS if getattr(settings, name := f"{server}_{part}") is not None]
        if given and not tls:
            yield f"{_variable(given[0])} is for TLS, which {on} asks for"
        if given and given != [f"{server}_ca_file"] and getattr(settings, f"{server}_cert_file") is None:
            yield f"{_variable(given[-1])} is the key of a certificate: name {_variable(server)}_CERT_FILE"


def _kafka_login_in_part(settings: Settings) -> Iterator[str]:
    password = settings.kafka_password is not None or settings.kafka_password_file is not None
    if settings.kafka_sasl and not (settings.kafka_user and password):
        yield "HAYSTREAM_KAFKA_SASL needs HAYSTREAM_KAFKA_USER and HAYSTREAM_KAFKA_PASSWORD (or …_FILE)"
    if not settings.kafka_sasl and (settings.kafka_user or password):
        yield f"a user or password for Kafka needs HAYSTREAM_KAFKA_SASL: {', '.join(SASL)}"


def _redis_in_part(settings: Settings) -> Iterator[str]:
    if settings.redis_sentinel is None:
        for name in ("redis_sentinel_password", "redis_sentinel_password_file"):
            if getattr(settings, name) is not None:
                yield f"{_variable(name)} needs HAYSTREAM_REDIS_SENTINEL, what sentinels call the server"
        if "," in urlsplit(settings.redis).netloc:
            yield "HAYSTREAM_REDIS names several hosts, as for sentinels: HAYSTREAM_REDIS_SENTINEL"
    elif settings.redis_cluster or settings.redis.startswith("unix:"):
        yield "HAYSTREAM_REDIS_SENTINEL goes with a URL of sentinels, without HAYSTREAM_REDIS_CLUSTER"
    if settings.redis_user and not (settings.redis_password or settings.redis_password_file):
        yield "HAYSTREAM_REDIS_USER needs HAYSTREAM_REDIS_PASSWORD or HAYSTREAM_REDIS_PASSWORD_FILE"


def _ports(settings: Settings) -> Iterator[str]:
    for name in ("kafka", "redis", "api", "api_oidc_jwks"):
        value = getattr(settings, name) or ""
        try:  # what precedes a server is for URLs alone: of Kafka there is none
            servers = value if name == "kafka" else urlsplit(value).netloc.rpartition("@")[2]
        except ValueError as error:
            yield f"{_variable(name)} is no URL: {error}"
            continue
        for server in servers.split(","):
            _, colon, port = server.rpartition("]")[2].rpartition(":")
            if colon and port and not (port.isdecimal() and 0 < int(port) < 65536):
                yield f"{_variable(name)} names port {port}, and ports are from 1 to 65535"


def _provider_in_part(settings: Settings) -> Iterator[str]:
    lacking = [name for name in OIDC if getattr(settings, name) is None]
    if lacking and len(lacking) < len(OIDC):
        yield f"an OpenID provider needs {' and '.join(map(_variable, lacking))}, too"


FIT_TOGETHER = (_ports, _secrets_twice, _tls_in_part, _kafka_login_in_part, _redis_in_part, _provider_in_part)
"""What each says is wrong with settings that are right one by one, in the order in which it is told."""


def load(config: Path | None = None, *, environ: Mapping[str, str] | None = None, **given: Any) -> Settings:
    """The settings; raises `SettingsError`.

    `config` is a TOML file, by default the one that HAYSTREAM_CONFIG names, if any. `environ` stands in for
    the process's environment; what begins with HAYSTREAM_ there and is no setting is warned of. Keyword arguments
    win over both; None among them means: not given.
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
    for variable in environ:
        if variable.startswith(PREFIX) and environ[variable]:
            _warn_unless_known(variable)
    for name, value in given.items():
        if value is not None:
            values[name], origin[name] = value, name
    try:
        settings = Settings.model_validate(values)
    except ValidationError as error:
        raise SettingsError(_explain(error, origin)) from None
    _check_files(settings, origin)
    return settings


def variables(settings: Settings) -> dict[str, str]:
    """What differs from the defaults as environment variables, with the secrets: for a process of ours."""
    given = settings.model_dump(exclude_defaults=True)
    return {
        _variable(name): value.get_secret_value() if isinstance(value, SecretStr) else str(value)
        for name, value in given.items()
    }


def _variable(name: str) -> str:
    return PREFIX + name.upper()


@cache  # once a process, however often it reads its settings
def _warn_unless_known(variable: str) -> None:
    if variable not in {*NO_SETTINGS, *map(_variable, Settings.model_fields)}:
        log.warning("there is no setting %s: it is not used", variable)


def _apart(url: str) -> tuple[str, dict[str, str]]:
    """The URL without user and password, and those; raises ValueError."""
    parts = urlsplit(url)
    options = dict(parse_qsl(parts.query, keep_blank_values=True))
    user = unquote(parts.username or "") or options.pop("username", "")
    password = unquote(parts.password or "") or options.pop("password", "")
    found = {name: value for name, value in (("redis_user", user), ("redis_password", password)) if value}
    if not found:
        return url, {}
    host = parts.netloc.rpartition("@")[2]
    return f"{parts.scheme}://{host}{parts.path}{'?' if options else ''}{urlencode(options)}", found


def _check_files(settings: Settings, origin: Mapping[str, str]) -> None:
    """Raise `SettingsError` where a file that a setting names cannot be read."""
    for name in Settings.model_fields:
        if name.endswith("_file") and (path := getattr(settings, name)) is not None:
            try:
                path.read_bytes()
            except OSError as error:
                where = origin.get(name, name)
                raise SettingsError(f"{where} is {str(path)!r}: cannot read it: {error.strerror}") from None


def _file(path: Path) -> dict[str, Any]:
    try:
        with path.open("rb") as file:
            return tomllib.loads(file.read().removeprefix(BOM_UTF8).decode())
    except OSError as error:
        raise SettingsError(f"cannot read the settings in {path}: {error.strerror}") from None
    except ValueError as error:
        raise SettingsError(f"the settings in {path} are not TOML: {error}") from None


def _explain(error: ValidationError, origin: Mapping[str, str]) -> str:
    lines = []
    for problem in error.errors(include_url=False):
        if not problem["loc"]:
            lines += str(problem["ctx"]["error"]).splitlines()  # of several settings together
            continue
        name = str(problem["loc"][0])
        where = origin.get(name, name)
        if problem["type"] == "extra_forbidden":
            lines.append(f"{where}: there is no such setting; there are {', '.join(Settings.model_fields)}")
            continue
        expected = EXPECTED.get(name) or problem["msg"].removeprefix("Input should be ")
        lines.append(f"{where} is {_shown(name, problem['input'])}: expected {expected}")
    return "\n".join(lines)


def _shown(name: str, value: object) -> str:
    """A setting's value for an error's text, without anything that may be a secret."""
    if name == "redis":
        return "not a URL of Redis"  # and nobody knows which part of it is a password
    if name in SECRETS:
        return "no such thing"
    return repr(re.sub(r".*@", "***@", str(value), flags=re.DOTALL)[:200])
